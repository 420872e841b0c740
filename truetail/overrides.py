"""``--set key.path=value``: values from the command line, laid over the file and held to the same checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from truetail.units import shown
from truetail.yaml_lines import Document, Keys, Place, YamlFaults, parse

FORM = "an override has the form key.path=value, like arrivals.rate=120/s or requests.0.weight=2"


def apply(document: Document, overrides: Iterable[str]) -> list[tuple[Place, str]]:
    """Lay ``overrides`` over ``document`` in order, changing it; returns the faults of those that could not be laid.

    The value is read as YAML. A number in the path is a place in a list (one past the end appends). Mappings on the way are made.
    """
    faults: list[tuple[Place, str]] = []
    for text in overrides:
        origin = Place(0, 0, f"--set {text if len(text) <= 80 else text[:77] + '...'}")
        try:
            path, value = split(text)
            _put(document.value, path, value)
        except YamlFaults as error:
            faults.extend((origin, fault) for _, fault in error.faults)
        except ValueError as error:
            faults.append((origin, str(error)))
        else:
            _replace_places(document, path, origin)
    return faults


def split(text: str) -> tuple[Keys, Any]:
    """The path and the value of one override. Raises ValueError (YamlFaults for a value that is not YAML)."""
    name, equals, value = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise ValueError(f"found {shown(text)}; {FORM}")
    # ASCII only: int() would also take other scripts' digits.
    path = tuple(int(key) if key.isascii() and key.isdigit() and len(key) < 7 else key for key in keys)
    document = parse(value)
    if document.faults:
        raise YamlFaults(document.faults)
    return path, document.value


def _put(root: Any, path: Keys, value: Any) -> None:
    holder = root
    for depth, key in enumerate(path):
        last = depth == len(path) - 1
        made: Any = [] if not last and path[depth + 1] == 0 else {}
        if isinstance(holder, list):
            if not isinstance(key, int) or key > len(holder):
                raise ValueError(f"{_dotted(path[:depth])} is a list of {len(holder)}: {shown(key)} is no place in it")
            if key == len(holder):
                holder.append(made)
        elif isinstance(holder, dict):
            key = str(key)
            if not last and holder.get(key) is None:
                holder[key] = made
        else:
            raise ValueError(f"{_dotted(path[:depth])} holds {shown(holder)}, so it has no {shown(key)}; set it as a whole")
        if last:
            holder[key] = value
        else:
            holder = holder[key]


def _replace_places(document: Document, path: Keys, origin: Place) -> None:
    """What stands at and below ``path`` now comes from the command line."""
    for known in [known for known in document.places if known[: len(path)] == path]:
        del document.places[known]
    # A mapping made on the way comes from there too.
    for end in range(1, len(path)):
        document.places.setdefault(path[:end], (origin, origin))
    document.places[path] = (origin, origin)


def _dotted(path: Keys) -> str:
    return ".".join(map(str, path)) or "the scenario"
