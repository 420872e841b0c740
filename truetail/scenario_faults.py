"""Every fault of a scenario at once: file:line:column, the field's path, what was found, what is allowed.

The schema's own complaints are put in one form, and keys that exclude each other are looked for even where the schema gave up.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from truetail.errors import UsageError
from truetail.scenario_types import Part, one_of_fault
from truetail.units import shown
from truetail.yaml_lines import Document, Keys, Place

MOST_SHOWN = 100


class ScenarioError(UsageError):
    """A scenario with faults: ``faults`` has a line each."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at ``path``; ``of_key`` when it is the key that is wrong, not its value."""

    path: Keys
    text: str
    of_key: bool = False


def lines(faults: list[Fault], document: Document, source: str, earlier: list[tuple[Place, str]]) -> list[str]:
    """The faults in the order of the file. ``earlier`` are the reader's own: what they left unread is not blamed again."""
    known = {place for place, _ in earlier if not place.origin}
    placed = [(place, text) for place, text in earlier]
    for fault in dict.fromkeys(faults):
        place = document.place(fault.path, fault.of_key)
        if place not in known:
            # A fault of the command line names its own path; so does one of the file.
            placed.append((place, f"{dotted(fault.path)}: {fault.text}" if fault.path else fault.text))
    placed.sort(key=lambda item: item[0])
    result = [f"{place.within(source)}: {text}" for place, text in placed]
    more = len(result) - MOST_SHOWN
    return result[:MOST_SHOWN] + ([f"{source}: and {more} more faults"] if more > 0 else [])


def dotted(path: Keys) -> str:
    """The path as ``--set`` takes it: ``requests.0.weight``."""
    return ".".join(map(str, path))


def schema_faults(model: type[Part], data: Any, error: ValidationError) -> list[Fault]:
    """The faults that the schema found in ``data``, and keys of which exactly one is due."""
    faults = [_fault(model, data, details) for details in error.errors(include_url=False)]
    blamed = {fault.path for fault in faults}
    for path, text in exclusive_keys(model, data):
        # Where a key is misspelt, "none of them" is only its echo.
        if not any(known[: len(path)] == path for known in blamed) or "none of them" not in text:
            faults.append(Fault(path, text))
    return faults


def exclusive_keys(model: type[Part], data: Any, path: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """(path, fault) for each mapping in ``data`` that has none or several of the keys that its part holds apart."""
    if not isinstance(data, dict):
        return
    text = one_of_fault(model.one_of, {key for key in model.one_of if data.get(key) is not None})
    if text:
        yield path, text
    for key, part in parts(model).items():
        value = data.get(key)
        for index, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            yield from exclusive_keys(part, item, (*path, key) if index is None else (*path, key, index))


def parts(model: type[Part]) -> dict[str, type[Part]]:
    """The keys of ``model`` that hold a mapping (or a list of mappings) with a schema of its own."""
    found = ((info.alias or name, part_in(info.annotation)) for name, info in model.model_fields.items())
    return {key: part for key, part in found if part is not None}


def part_in(annotation: Any) -> type[Part] | None:
    """The Part within an annotation such as ``list[Part] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    inner = (part_in(argument) for argument in typing.get_args(annotation))
    return next((part for part in inner if part is not None), None)


def keys_of(model: type[Part]) -> list[str]:
    """The keys of a part as they are written."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _fault(model: type[Part], data: Any, details: ErrorDetails) -> Fault:
    path = _path(data, details["loc"])
    if details["type"] == "extra_forbidden":
        return Fault(path, _unknown_key(_model_at(model, path[:-1]), str(path[-1])), of_key=True)
    if details["type"] == "missing":
        return Fault(path, f"is missing; {_meaning(_model_at(model, path[:-1]), str(path[-1]))}", of_key=True)
    return Fault(path, _text(details))


def _path(data: Any, loc: tuple[str | int, ...]) -> Keys:
    """``loc`` as a path in the file: without the tags of unions, and without what a short form stands for."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(part, str) and part.startswith("<"):
            continue
        if not isinstance(data, (dict, list)):
            break
        path.append(part)
        known = dict(enumerate(data)) if isinstance(data, list) else data
        data = known.get(part)
    return tuple(path)


def _model_at(model: type[Part], path: Keys) -> type[Part]:
    for part in path:
        if isinstance(part, str):
            model = parts(model).get(part, model)
    return model


def _unknown_key(model: type[Part], key: str) -> str:
    keys = keys_of(model)
    near = difflib.get_close_matches(key.lower(), keys, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown key; {hint}allowed: {', '.join(keys)}"


def _meaning(model: type[Part], key: str) -> str:
    info = next(info for name, info in model.model_fields.items() if key == (info.alias or name))
    description = info.description or ""
    return description[:1].lower() + description[1:].rstrip(".")


ALLOWED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "greater_than": "more than {gt:.15g}",
    "greater_than_equal": "{ge:.15g} or more",
    "less_than": "less than {lt:.15g}",
    "less_than_equal": "at most {le:.15g}",
    "string_too_long": "at most {max_length} characters",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of at most {max_length}",
}


def _text(details: ErrorDetails) -> str:
    context, found = details.get("ctx", {}), details["input"]
    if details["type"] == "value_error":
        return str(context["error"])
    if details["type"] == "literal_error":
        expected = str(context["expected"]).replace("True", "true").replace("False", "false")
        words = re.findall(r"'([^']*)'", expected)
        by_lower = {word.lower(): word for word in words}
        near = difflib.get_close_matches(str(found).lower(), by_lower, 1)
        hint = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
        return f"found {_brief(found)}; allowed is {expected}{hint}"
    allowed = ALLOWED.get(details["type"])
    if allowed is None:
        return f"found {_brief(found)}; {details['msg'][:1].lower()}{details['msg'][1:]}"
    return f"found {_brief(found)}; allowed is {allowed.format(**context)}"


def _brief(found: Any) -> str:
    match found:
        case None:
            return "nothing"
        case bool():
            return "true" if found else "false"
        case dict():
            return "a mapping"
        case list():
            return f"a list of {len(found)}"
    return shown(found)
