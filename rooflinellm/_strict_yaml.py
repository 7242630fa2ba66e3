"""The loader behind `_yaml`: strict, and quick on what files of the databases are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import yaml
from yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent

from rooflinellm.errors import InvalidSpec

MAX_NODES = 200_000
MAX_DEPTH = 200

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictLoader(_Loader):  # type: ignore[misc]
    """A safe loader that refuses duplicate keys and reads scalars as YAML 1.2 does.

    In YAML 1.1 ``no`` is False, ``1e12`` a string and ``12:30`` a number; each has spoilt a data file somewhere.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the base class's own protocol

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        seen: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain value", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key '{key}'", key_node.start_mark)
            seen[key] = self.construct_object(value_node, deep=deep)
        return seen


def _resolve(tag: str, pattern: str, first: str) -> None:
    StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern, re.VERBOSE), list(first))


_resolve("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF")
_resolve("int", r"^(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789")
_resolve("float", r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$", "-+0123456789.")
_resolve("null", r"^(?:~|null|Null|NULL|)$", "~nN\0")
StrictLoader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile(r"^$")))
_resolve("merge", r"^<<$", "<")


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    base = {"0o": 8, "0x": 16}.get(text[:2].lower(), 10)
    return int(text, base)


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node).replace("_", ""))


def _construct_bool(loader: Any, node: yaml.ScalarNode) -> bool:
    text = loader.construct_scalar(node).lower()
    if text not in ("true", "false"):
        raise yaml.constructor.ConstructorError(None, None, f"'{text}' is neither true nor false", node.start_mark)
    return bool(text == "true")


KINDS = ("null", "str", "seq", "map")
"""Kinds of value that are read as the base class reads them."""

StrictLoader.yaml_constructors = {
    tag: construct
    for tag, construct in _Loader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in KINDS
}
StrictLoader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
StrictLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
StrictLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)


class _Unusual(Exception):
    """The document needs the full loader: an anchor, a tag, a merge, a key that is no scalar, a mistake."""


_LOADER = StrictLoader("")  # asked only for what it does with a single scalar, which leaves no state behind


@lru_cache(maxsize=8192)
def _plain(text: str) -> Any:
    """Read a scalar without quotes; the same few thousand stand in all files of the databases."""
    if text[:1] not in StrictLoader.yaml_implicit_resolvers:  # by first character: whatever else it is, it is text
        return text
    tag = _LOADER.resolve(yaml.ScalarNode, text, (True, False))
    construct = StrictLoader.yaml_constructors.get(tag)
    if construct is None:
        raise _Unusual
    return construct(_LOADER, yaml.ScalarNode(tag, text))


def _usual(text: str) -> Any:
    """Read a document of plain mappings, lists and scalars in one pass, without building nodes: in a third of the time.

    Raises
    ------
    _Unusual, yaml.YAMLError, ValueError, RecursionError
        The full loader must read the document, or say what is wrong with it.
    """
    loader = StrictLoader(text)
    try:
        next_event = loader.get_event
        next_event()  # start of the stream
        if not isinstance(next_event(), yaml.DocumentStartEvent):
            raise _Unusual
        value = _usual_value(next_event(), next_event)
        next_event()  # end of the document
        if not isinstance(next_event(), yaml.StreamEndEvent):
            raise _Unusual
        return value
    finally:
        loader.dispose()


def _usual_value(event: Any, next_event: Callable[[], Any]) -> Any:
    """Read the value that starts with an event."""
    kind = type(event)
    if event.anchor is not None or event.tag is not None:
        raise _Unusual
    if kind is ScalarEvent:
        return _plain(event.value) if event.implicit[0] else event.value
    if kind is MappingStartEvent:
        found: dict[Hashable, Any] = {}
        while type(event := next_event()) is ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                raise _Unusual
            key = _plain(event.value) if event.implicit[0] else event.value
            if key in found:
                raise _Unusual
            event = next_event()
            if type(event) is ScalarEvent and event.anchor is None and event.tag is None:  # most are; no call for each
                found[key] = _plain(event.value) if event.implicit[0] else event.value
            else:
                found[key] = _usual_value(event, next_event)
        if type(event) is not MappingEndEvent:
            raise _Unusual
        return found
    items = []
    while type(event := next_event()) is not SequenceEndEvent:
        items.append(_usual_value(event, next_event))
    return items


def parse(text: str, where: str) -> Any:
    """Read YAML text into plain Python values; errors as in `_yaml.load`."""
    try:
        value = _usual(text)
    except (_Unusual, yaml.YAMLError, ValueError, RecursionError):
        return parse_fully(text, where)
    if len(text) > MAX_NODES:  # a shorter one cannot hold as many
        _check_expansion(value, where)
    return value


def parse_fully(text: str, where: str) -> Any:
    """Read YAML text with the full loader, which also says what is wrong and where."""
    try:
        _check_depth(text)
        value = yaml.load(text, Loader=StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        problem = error.problem or error.context or "invalid YAML"
        raise InvalidSpec(f"no valid YAML: {problem}", where=where + line) from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InvalidSpec(f"no valid YAML: {error}", where=where) from error
    _check_expansion(value, where)
    return value


def _check_depth(text: str) -> None:
    """Refuse deep nesting before anything recurses: older builds of PyYAML do so without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=StrictLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")


def _check_expansion(value: Any, where: str) -> None:
    """Refuse aliases that blow up, or contain themselves, once everything is written out."""
    left = MAX_NODES
    stack = [value]
    while stack:
        item = stack.pop()
        left -= 1
        if left < 0:
            raise InvalidSpec(f"expands into more than {MAX_NODES:,} nodes (aliases within aliases?)", where=where)
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """Find a line as `_yaml.line_of` does."""
    try:
        node = yaml.compose(text, Loader=StrictLoader)
    except yaml.YAMLError:
        return None
    line = None
    for step in path:
        child = None
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                if key_node.value == str(step):
                    line, child = key_node.start_mark.line + 1, value_node
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            child = node.value[step]
            line = child.start_mark.line + 1
        if child is None:
            continue  # a step that is no key of the file, such as the member of a union that was tried
        node = child
    return line
