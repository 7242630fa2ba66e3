"""A model's entry as the YAML of the database: parts of a layer on a line each, equal layers written once."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from rooflinellm.specs.common import Spec
from rooflinellm.specs.model import Block, ExtraTensor, LayerGroup, ModelEntry

WIDTH = 120
_LAST = ("published", "sources", "notes")
Anchors = dict[Block | tuple[ExtraTensor, ...], str]
"""Names of what is written once and referred to after that."""

_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}){0,2}")


def entry_text(entry: ModelEntry) -> str:
    """Write an entry.

    Parameters
    ----------
    entry : ModelEntry
        The model; the bytes of a file that it was read from are no part of the text.

    Returns
    -------
    str
        YAML that reads as the same entry.
    """
    anchors, seen = _anchors(entry), set[object]()
    lines = ["schema: 1"]
    fields = [name for name in type(entry).model_fields if name not in _LAST]
    for name in (*fields, *_LAST):
        value = getattr(entry, name)
        if name not in ("schema_version", "file") and value != type(entry).model_fields[name].default:
            lines += _field(name, value, anchors, seen)
    return "\n".join(lines) + "\n"


def _field(name: str, value: Any, anchors: Anchors, seen: set[object]) -> Iterator[str]:
    if name == "layers":
        yield "layers:"
        yield from _layers(value, anchors, seen)
    elif name == "mtp":
        yield "mtp:"
        yield from _pattern(value.pattern, anchors, "  ", seen)
        if value.extra:
            yield f"  extra: [{', '.join(map(_flow, value.extra))}]"
    elif name == "sources":
        yield "sources:"
        yield from _sources(value)
    elif isinstance(value, tuple):
        yield f"{name}:"
        yield from (f"  - {_scalar(item, 4) if isinstance(item, str) else _flow(item)}" for item in value)
    else:
        yield f"{name}: {_flow(value) if isinstance(value, Spec) else _scalar(value, 2)}"


def _anchors(entry: ModelEntry) -> Anchors:
    """A name for each block, and each list of extra tensors, that is written more than once."""
    written: list[Any] = [block for group in entry.layers for block in group.pattern]
    written += entry.mtp.pattern if entry.mtp is not None else ()
    extras: list[Any] = [block.extra for block in dict.fromkeys(written) if len(block.extra) > 1]
    names: Anchors = {}
    for kind, found in (("block", written), ("extra", extras)):
        repeated = [each for each, count in Counter(found).items() if count > 1]
        names |= {each: f"{kind}_{number}" for number, each in enumerate(repeated, 1)}
    return names


def _layers(groups: Sequence[LayerGroup], anchors: Anchors, seen: set[object]) -> Iterator[str]:
    for group in groups:
        lines = list(_pattern(group.pattern, anchors, "    ", seen))
        if group.repeat > 1:
            lines.insert(0, f"    repeat: {group.repeat}")
        first, *others = lines
        yield f"  - {first.strip()}"
        yield from others


def _pattern(blocks: Sequence[Block], anchors: Anchors, indent: str, seen: set[object]) -> Iterator[str]:
    if all(block in seen and block in anchors for block in blocks):
        yield f"{indent}pattern: [{', '.join(f'*{anchors[block]}' for block in blocks)}]"
        return
    yield f"{indent}pattern:"
    for block in blocks:
        name = anchors.get(block)
        if name is not None and block in seen:
            yield f"{indent}  - *{name}"
            continue
        seen.add(block)
        first, *others = _block(block, anchors, seen)
        if name is not None:
            yield f"{indent}  - &{name}"
            yield f"{indent}    {first}"
        else:
            yield f"{indent}  - {first}"
        yield from (f"{indent}    {line}" for line in others)


def _block(block: Block, anchors: Anchors, seen: set[object]) -> Iterator[str]:
    for name in type(block).model_fields:
        value = getattr(block, name)
        if name == "extra" and value:
            anchor = anchors.get(value)
            if anchor is not None and value in seen:
                yield f"extra: *{anchor}"
                continue
            seen.add(value)
            yield "extra:" if anchor is None else f"extra: &{anchor}"
            yield from (f"  - {_flow(tensor)}" for tensor in value)
        elif isinstance(value, Spec) or value != type(block).model_fields[name].default:
            yield f"{name}: {_flow(value)}"


def _flow(value: Any) -> str:
    """A part in one line, without what its class takes anyway."""
    if isinstance(value, Spec):
        fields = type(value).model_fields
        given = {name: getattr(value, name) for name in fields}
        kept = (f"{name}: {_flow(item)}" for name, item in given.items() if item != fields[name].default)
        return f"{{{', '.join(kept)}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _scalar(value: Any, indent: int) -> str:
    """A value, wrapped and quoted as YAML needs it."""
    if not isinstance(value, str) or _DATE.fullmatch(value):
        return _flow(value)
    text = yaml.safe_dump(value, width=10**6, allow_unicode=True).removesuffix("...\n").strip()
    if text[0] in "'\"" or "\n" in value or " #" in value:
        return text
    lines = textwrap.wrap(text, WIDTH - indent - 16, break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines)


def _sources(sources: Mapping[str, Any]) -> Iterator[str]:
    for name, source in sources.items():
        yield f"  {name}:"
        for field in type(source).model_fields:
            value = getattr(source, field)
            if value is not None:
                yield f"    {field}: {_scalar(value, 6)}"
