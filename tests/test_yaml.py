"""Strict YAML: the quick reader of usual documents gives what the full loader gives, and refuses all else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rooflinellm import _strict_yaml, _yaml
from rooflinellm.errors import InvalidSpec, UnreadableFile

ROOT = Path(__file__).parent.parent
FILES = sorted(file for name in ("hardware_db", "model_db") for file in (ROOT / name).rglob("*.yaml"))

SCALARS = (
    *("", "~", "null", "Null", "nul", "true", "True", "tRUE", "no", "off", "y", "=", "<", "-", ".", "..", "0", "-0"),
    *("007", "0o17", "0x1F", "0b1", "1_000", "+12", "1e12", "1E-3", "1.", ".5", "1.5.2", "12:30", "2024-05-01", ".inf"),
    *(".nan", "nvidia", "r#", "'quoted: 1'", '"\\u00e9"', "'null'", '"1"', "gpu # remark", "a b", "été"),
)


def full(text: str) -> Any:
    return _strict_yaml.parse_fully(text, "text")


def outcome(read: Any, text: str) -> Any:
    """What a reader makes of a text, with the types of the values, or what it says."""
    try:
        return repr(read(text))
    except InvalidSpec as error:
        return str(error)


@pytest.mark.parametrize("text", SCALARS)
@pytest.mark.parametrize("frame", ["{}", "- {}", "a: {}", "{{a: [{}]}}", "{}: a"])
def test_scalars_read_alike(text: str, frame: str) -> None:
    document = frame.format(text)
    assert outcome(_yaml.parse, document) == outcome(full, document)


PLAIN = st.sampled_from([text for text in SCALARS if not text.startswith(("'", '"'))]) | st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_documents_read_alike(value: Any, flow: bool) -> None:
    document = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert outcome(_yaml.parse, document) == outcome(full, document)


@given(st.text(alphabet="ab1.:-,[]{}&*!<>|'\"#%?~ \n", max_size=24))
def test_anything_reads_alike(document: str) -> None:
    assert outcome(_yaml.parse, document) == outcome(full, document)


def test_the_databases_read_alike() -> None:
    assert FILES
    for file in FILES:
        text = _yaml.read_text(file)
        assert _yaml.parse(text) == full(text), file


REFUSED = {
    "a key twice": ("a: 1\nb: {c: 1,\n  c: 2}\n", "line 3", "duplicate key 'c'"),
    "keys of one value": ("1: a\n1.0: b\n", "line 2", "duplicate key '1.0'"),
    "a tag": ("a: !!python/name:os.system ''\n", "line 1", "tag"),
    "an unknown anchor": ("a: 1\nb: *c\n", "line 2", "undefined alias"),
    "a list that contains itself": ("&a [*a]\n", "text", "200,000 nodes"),
    "a list as key": ("? [a, b]\n: 1\n", "line 1", "plain value"),
    "two documents": ("a: 1\n---\nb: 2\n", "line 2", "another document"),
    "an open bracket": ("a: 1\nb: [1, 2\n", "line 3", "expected"),
    "a long number": ("a: " + "9" * 5_000, "text", "4300 digits"),
    "deep lists": ("[" * 5_000 + "]" * 5_000, "text", "no valid YAML"),
    "aliases within aliases": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcde", "bcdef", strict=True)),
        "text",
        "200,000 nodes",
    ),
    "a long list": ("[" + "1," * 250_000 + "]", "text", "200,000 nodes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, *words = REFUSED[case]
    with pytest.raises(InvalidSpec) as error:
        _yaml.parse(text, where="text")
    assert all(word in str(error.value) for word in words), str(error.value)


def test_anchors_and_merges() -> None:
    text = "a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n"
    assert _yaml.parse(text) == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xef\xbb\xbf" + b"x" * size)
    assert _yaml.read_text(file) == "x" * size
    assert _yaml.read_text(file, max_bytes=size + 3) == "x" * size
    with pytest.raises(UnreadableFile, match="larger than"):
        _yaml.read_text(file, max_bytes=size + 2)
