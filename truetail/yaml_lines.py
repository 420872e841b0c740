"""YAML read as plain data, with the place of every key and value, so that a fault can say file, line and column.

Nothing in a file can run code: only plain YAML types are built. Size, depth and the nodes that aliases unfold to are bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from truetail.units import shown

MOST_BYTES = 2**20
MOST_NODES = 100_000
DEEPEST = 50

Keys = tuple[str | int, ...]
TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands: 1-based line and column in the file, or (``origin``) the command line."""

    line: int
    column: int
    origin: str = ""

    def within(self, source: str) -> str:
        """``file:line:column``, or the origin."""
        return self.origin or f"{source}:{self.line}:{self.column}"


START = Place(1, 1)


class YamlFaults(ValueError):
    """What is wrong with a file as YAML: a list of (place, text)."""

    def __init__(self, faults: list[tuple[Place, str]]) -> None:
        super().__init__("; ".join(text for _, text in faults))
        self.faults = faults


@dataclass(slots=True)
class Document:
    """Plain data and where it stands: ``places`` maps the path of a value to the places of its key and of itself.

    ``faults`` are those that left the rest readable: a key twice, a foreign tag.
    """

    value: Any
    places: dict[Keys, tuple[Place, Place]] = field(default_factory=dict)
    faults: list[tuple[Place, str]] = field(default_factory=list)

    def place(self, path: Keys, of_key: bool = False) -> Place:
        """The place of the value (or key) at ``path``, or of the nearest part of the document above it."""
        for end in range(len(path), 0, -1):
            found = self.places.get(path[:end])
            if found is not None:
                # A key that is missing is reported at the key of what should hold it.
                return found[0] if of_key or end < len(path) else found[1]
        return START


def read_text(path: Path) -> str:
    """The text of a UTF-8 file of at most 1 MiB (a byte order mark is dropped). Raises YamlFaults or OSError."""
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise YamlFaults([(START, "the file is larger than 1 MiB, the most that is read")])
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise YamlFaults([(START, "the file is UTF-16; save it as UTF-8")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        place = Place(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise YamlFaults([(place, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8")]) from None


def parse(text: str) -> Document:
    """The one document in ``text``. Raises YamlFaults: not YAML, too deep, or too large."""
    reader = YAML(typ="safe", pure=True)
    try:
        root = reader.compose(text)
    except ReaderError as error:
        raise YamlFaults(
            [(_place_of(text, error.position), f"character {chr(error.character)!r} is not allowed in YAML")]
        ) from None
    except MarkedYAMLError as error:
        raise YamlFaults([_marked(error)]) from None
    except (YAMLError, ValueError) as error:
        raise YamlFaults([(START, f"not YAML: {error}")]) from None
    except RecursionError:
        raise YamlFaults([(START, f"nested deeper than {DEEPEST} levels")]) from None
    if root is None:
        return Document(None)
    build = _Build(reader.constructor)
    return Document(build.value(root, (), ()), build.places, build.faults)


class _Build:
    """Turns nodes into plain data, noting places and faults on the way."""

    def __init__(self, constructor: Any) -> None:
        self.constructor = constructor
        self.places: dict[Keys, tuple[Place, Place]] = {}
        self.faults: list[tuple[Place, str]] = []
        self.nodes = 0

    def value(self, node: Node, path: Keys, above: tuple[int, ...]) -> Any:
        """Plain data of ``node``. ``above`` are the ids of the nodes around it: meeting one again would never end."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise YamlFaults([(_of(node), f"the file unfolds to more than {MOST_NODES} values (aliases of aliases?)")])
        if id(node) in above:
            raise YamlFaults([(_of(node), "an alias stands within the value that it names")])
        if len(above) > DEEPEST:
            raise YamlFaults([(_of(node), f"nested deeper than {DEEPEST} levels")])
        if isinstance(node, ScalarNode):
            return self.scalar(node)
        if isinstance(node, MappingNode) and node.tag == TAG + "map":
            return self.mapping(node, path, (*above, id(node)))
        if isinstance(node, SequenceNode) and node.tag == TAG + "seq":
            items = []
            for index, item in enumerate(node.value):
                self.places[(*path, index)] = (_of(item), _of(item))
                items.append(self.value(item, (*path, index), (*above, id(node))))
            return items
        self.faults.append((_of(node), f"tag {shown(node.tag)} is not allowed: plain YAML only"))
        return None

    def mapping(self, node: MappingNode, path: Keys, above: tuple[int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, item in node.value:
            if not isinstance(key_node, ScalarNode):
                self.faults.append((_of(key_node), "a key must be plain text"))
                continue
            key = key_node.value
            if key_node.tag == TAG + "merge":
                self.faults.append(
                    (_of(key_node), "the merge key << is not supported: repeat the keys, or use an alias for a whole value")
                )
            elif key in result:
                first = self.places[(*path, key)][0]
                self.faults.append((_of(key_node), f"key {shown(key)} stands here again: it is already on line {first.line}"))
            else:
                # An empty value has its mark on the next thing in the file: its key is where to look.
                empty = isinstance(item, ScalarNode) and not item.value and item.start_mark.index == item.end_mark.index
                self.places[(*path, key)] = (_of(key_node), _of(key_node if empty else item))
                result[key] = self.value(item, (*path, key), above)
        return result

    def scalar(self, node: ScalarNode) -> Any:
        kind = str(node.tag).removeprefix(TAG)
        if kind in ("str", "timestamp"):  # a date is text to us: no field is one
            if any("\ud800" <= char <= "\udfff" for char in node.value):
                self.faults.append((_of(node), "half a surrogate pair is no character"))
            return node.value
        if kind == "null":
            return None
        if kind not in ("int", "float", "bool"):
            self.faults.append((_of(node), f"tag {shown(node.tag)} is not allowed: plain YAML only"))
            return None
        try:
            value = getattr(self.constructor, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError):
            self.faults.append((_of(node), f"found {shown(node.value)}, which is no {kind}"))
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self.faults.append((_of(node), f"found {shown(node.value)}; a number must be finite"))
            return None
        return value


def _of(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _place_of(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


def _marked(error: MarkedYAMLError) -> tuple[Place, str]:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark is not None else START
    problem = str(error.problem or error.context or "not YAML")
    if "'\\t'" in problem:
        return place, "a tab: YAML is indented with blanks only"
    if "another document" in problem:
        return place, "a second document (---): a file holds one"
    return place, f"not YAML: {problem}" + (f" ({error.context})" if error.context and error.context != problem else "")
