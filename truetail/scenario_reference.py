"""The reference tables of docs/scenario.md, made from the schema: ``python -m truetail.scenario_reference docs/scenario.md``."""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from truetail.scenario import Scenario
from truetail.scenario_faults import part_in, parts
from truetail.scenario_types import Part, Unit
from truetail.units import format_duration_s, format_rate_rps, format_share

BEGIN = "<!-- made from the schema: python -m truetail.scenario_reference docs/scenario.md -->"
END = "<!-- end of what is made from the schema -->"

WRITTEN: dict[str, Callable[[float], str]] = {"duration": format_duration_s, "rate": format_rate_rps, "share": format_share}
PLAIN = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    dict: "mapping",
    list: "list",
    Any: "any value",
}


def tables() -> str:
    """One table a part of the scenario, in the order in which they are met."""
    return "\n\n".join(_table(path, model) for path, model in _walk("", Scenario))


def replaced(document: str) -> str:
    """``document`` with what stands between the marks made anew. Raises ValueError when the marks are missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the marks {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def _walk(path: str, model: type[Part]) -> Iterator[tuple[str, type[Part]]]:
    yield path, model
    for key, part in parts(model).items():
        info = next(info for name, info in model.model_fields.items() if key == (info.alias or name))
        if part.model_fields:
            yield from _walk(f"{path}.{key}".lstrip(".") + _holds(info.annotation), part)


def _table(path: str, model: type[Part]) -> str:
    about = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    exclusive = f" Exactly one of {', '.join(f'`{key}`' for key in model.one_of)}." if model.one_of else ""
    rows = [_row(info.alias or name, info) for name, info in model.model_fields.items()]
    head = [f"### {f'`{path}`' if path else 'The scenario'}", "", about + exclusive, ""]
    return "\n".join([*head, "| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _row(key: str, info: FieldInfo) -> str:
    cells = [f"`{key}`", _called(info), _default(info), info.description or ""]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _called(info: FieldInfo) -> str:
    mark = _mark(info)
    if mark is not None and mark.called:
        return mark.called
    return _type(info.annotation)


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        mark = next((item for item in arguments[1:] if isinstance(item, Unit)), None)
        return mark.called if mark is not None else _type(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type(item) for item in arguments if item is not type(None))
    if origin is typing.Literal:
        return ", ".join(f"`{item}`" for item in arguments)
    if origin is list:
        return "list of mappings" if part_in(annotation) else f"list of: {_type(arguments[0])}"
    if part_in(annotation):
        return "mapping"
    return PLAIN[origin or annotation]


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default is PydanticUndefined or info.default is None or info.default == "":
        return ""
    mark = _mark(info)
    write = WRITTEN.get(mark.called) if mark is not None else None
    text = write(info.default) if write else info.default if isinstance(info.default, str) else json.dumps(info.default)
    return f"`{text}`"


def _mark(info: FieldInfo) -> Unit | None:
    return next((item for item in info.metadata if isinstance(item, Unit)), None)


def _holds(annotation: Any) -> str:
    """``[]`` for a list of mappings, ``.NAME`` for mappings under free names, nothing for one mapping."""
    origin = typing.get_origin(annotation)
    if origin in (list, dict):
        return "[]" if origin is list else ".NAME"
    return next((held for item in typing.get_args(annotation) if (held := _holds(item))), "")


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(replaced(page.read_text(encoding="utf-8")), encoding="utf-8")
