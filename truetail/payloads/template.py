"""Templates: ``${name}`` in a body, path or header stands for a value of the arrival."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Value = Callable[[str], Any]
"""The value of a name for the arrival at hand; raises UsageError for a name that there is not."""

_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.]*)\}")


def names(template: Any) -> set[str]:
    """Every name that a template (text, or JSON with texts in it) asks for."""
    if isinstance(template, str):
        return set(_PLACE.findall(template))
    if isinstance(template, Mapping):
        return names(list(template.keys())) | names(list(template.values()))
    if isinstance(template, list):
        return set().union(*map(names, template)) if template else set()
    return set()


def fill(template: Any, value: Value) -> Any:
    """The template with its values. A text that is nothing but ``${name}`` becomes the value itself: a number, a list, a mapping."""
    if isinstance(template, str):
        whole = _PLACE.fullmatch(template)
        return value(whole[1]) if whole else fill_text(template, value)
    if isinstance(template, Mapping):
        return {fill_text(key, value): fill(item, value) for key, item in template.items()}
    if isinstance(template, list):
        return [fill(item, value) for item in template]
    return template


def fill_text(template: str, value: Value) -> str:
    """The same for text: values are written into it."""
    return _PLACE.sub(lambda place: str(value(place[1])), template) if "$" in template else template
