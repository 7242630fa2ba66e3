"""A ``config.json`` as typed values: every field is checked when it is read, and the first one that is wrong is named.

The files come from anywhere, so nothing in them is trusted: not their size, their depth, their types or their numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rooflinellm import _yaml
from rooflinellm.errors import InvalidSpec, UnsupportedModel, met
from rooflinellm.specs.model import MAX_LAYERS

MAX_BYTES = 8_000_000
MAX_COUNT = 10**9
MAX_ITEMS = 200_000
NOT_UNDERSTOOD = "Nothing is guessed: please report the architecture, or write an entry for the model."

_MISSING: Any = object()


def read_json(path: Path, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    UnreadableFile
        Not there, no text, or too large.
    InvalidSpec
        No JSON, no object, a number that JSON has not (NaN), or nested too deeply.
    """
    text = _yaml.read_text(path, max_bytes=max_bytes)

    def constant(name: str) -> float:
        # Published files hold `Infinity` (time_step_limit of state spaces); no reader of a field takes it.
        if name == "NaN":
            raise ValueError("NaN is no number")
        return math.inf

    try:
        value = json.loads(text, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise InvalidSpec(f"no valid JSON: {error.msg}", where=f"{path}, line {error.lineno}") from error
    except (ValueError, RecursionError) as error:
        shown = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidSpec(f"no valid JSON: {shown:.200}", where=str(path)) from error
    if not isinstance(value, dict):
        raise InvalidSpec(f"expected an object, found {_kind(value)}", where=str(path))
    return value


class Config:
    """Fields of a configuration, or of a part of one.

    Each reader takes the names a field has had, in the order in which they count. A field that is absent has the value
    its family gives it (`defaults`), then the reader's `default`; one that is ``null`` has the latter.

    Parameters
    ----------
    values : mapping
        The fields.
    where : str
        The file, for messages.
    prefix : str
        Where the part lies in the file: ``text_config.``.
    defaults : mapping, optional
        What the family's own code takes for fields that are absent.
    """

    def __init__(
        self, values: Mapping[str, Any], where: str, prefix: str = "", defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.values = values
        self.where = where
        self.prefix = prefix
        self.defaults = defaults or {}

    def part(self, name: str) -> Config | None:
        """A nested object, None where there is none."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fault(name, f"expected an object, found {_kind(value)}")
        return Config(value, self.where, f"{self.prefix}{name}.")

    def fault(self, name: str, message: str) -> NoReturn:
        """Refuse a field."""
        raise InvalidSpec(message, where=f"{self.where}, field {self.prefix}{name}")

    def unsupported(self, message: str) -> NoReturn:
        """Refuse what is written correctly and not described here."""
        raise UnsupportedModel(message, where=self.where, next_step=NOT_UNDERSTOOD)

    def has(self, *names: str) -> bool:
        """Whether one of the names is in the file."""
        return any(self.values.get(name) is not None for name in names)

    def _find(self, names: Sequence[str], default: Any) -> tuple[str, Any]:
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        if not any(name in self.values for name in names):
            for name in names:
                if name in self.defaults:
                    return name, self.defaults[name]
        if default is _MISSING:
            others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            self.fault(names[0], f"missing{others}, and the family has no value for it")
        return names[0], default

    def count(self, *names: str, default: Any = _MISSING, least: int = 1) -> int:
        """A whole number."""
        name, value = self._find(names, default)
        return self._count(name, value, least)

    def count_or_none(self, *names: str, least: int = 1) -> int | None:
        """A whole number, None where there is none."""
        name, value = self._find(names, None)
        return None if value is None else self._count(name, value, least)

    def _count(self, name: str, value: Any, least: int = 1) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_COUNT:
            value = int(value)
        if type(value) is not int or not least <= value <= MAX_COUNT:
            self.fault(name, f"expected a whole number from {least} to {MAX_COUNT:,}, found {_shown(value)}")
        return value

    def number(self, *names: str, default: Any = _MISSING) -> float:
        """A positive number."""
        name, value = self._find(names, default)
        if type(value) not in (int, float) or not 0 < value < 1e15 or not math.isfinite(value):
            self.fault(name, f"expected a positive number, found {_shown(value)}")
        return float(value)

    def flag(self, *names: str, default: Any = False) -> bool:
        """A truth value."""
        name, value = self._find(names, default)
        if not isinstance(value, bool):
            self.fault(name, f"expected true or false, found {_shown(value)}")
        return value

    def text(self, *names: str, default: Any = "") -> str:
        """A string."""
        name, value = self._find(names, default)
        if not isinstance(value, str) or len(value) > 1_000:
            self.fault(name, f"expected text, found {_shown(value)}")
        return value

    def items(self, *names: str) -> list[Any] | None:
        """A list, None where there is none."""
        name, value = self._find(names, None)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            self.fault(name, f"expected a list, found {_kind(value)}")
        return value

    def texts(self, *names: str) -> list[str] | None:
        """A list of strings, None where there is none."""
        values = self.items(*names)
        if values is not None and not all(isinstance(value, str) for value in values):
            self.fault(names[0], "expected a list of strings")
        return values

    def numbers(self, *names: str, least: int = 0) -> list[int] | None:
        """A list of whole numbers, None where there is none."""
        values = self.items(*names)
        return None if values is None else [self._count(names[0], value, least) for value in values]

    def by_layer(self, name: str, layers: int, default: Any = _MISSING, least: int = 0) -> list[int]:
        """A whole number for each layer: the file has one for all, or a list."""
        value = self.values.get(name)
        if isinstance(value, list):
            values = self.numbers(name, least=least) or []
            if len(values) < layers:
                self.fault(name, f"{len(values):,} values for {layers:,} layers")
            return values[:layers]
        return [self.count(name, default=default, least=least)] * layers

    @property
    def kind(self) -> str:
        """``model_type``."""
        return self.text("model_type")

    @property
    def layers(self) -> int:
        """Number of layers."""
        names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        count = self.count(*names)
        if count > MAX_LAYERS:
            self.fault(self._find(names, None)[0], f"{count:,} layers; at most {MAX_LAYERS:,} are allowed")
        return count

    @property
    def hidden(self) -> int:
        """Hidden size."""
        return self.count("hidden_size", "n_embd", "d_model", "n_embed", "hidden_dim", "dim")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.count("num_attention_heads", "n_head", "n_heads", "num_heads")

    @property
    def kv_heads(self) -> int:
        """Key/value heads: as many as query heads where the file names none."""
        heads = self.heads
        names = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups")
        count = self.count(*names, default=heads)
        if heads % count:
            self.fault("num_key_value_heads", f"{heads} query heads are no multiple of {count}")
        return count

    @property
    def head_dim(self) -> int:
        """Size of a head: a part of the hidden size where the file names none."""
        given = self.count_or_none("head_dim", "attention_head_dim", "kv_channels")
        if given is not None:
            return given
        if self.hidden % self.heads:
            self.fault("head_dim", f"missing, and hidden size {self.hidden} is no multiple of {self.heads} heads")
        return self.hidden // self.heads

    @property
    def intermediate(self) -> int:
        """Width of the feed-forward part."""
        return self.count("intermediate_size", "ffn_hidden_size", "ffn_dim")

    @property
    def intermediate_or_four(self) -> int:
        """Width of the feed-forward part, four times the hidden size where the file names none (GPT-2 and its kin)."""
        names = ("n_inner", "intermediate_size", "ffn_hidden_size", "ffn_dim")
        return self.count(*names, default=4 * self.hidden)

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding."""
        return self.count("vocab_size", "padded_vocab_size")

    @property
    def window(self) -> int | None:
        """Size of the attention window; 0 and -1 mean none."""
        if self.values.get("sliding_window") in (0, -1, False):
            return None
        return self.count_or_none("sliding_window", least=2)

    def layer_types(self, layers: int, *names: str) -> list[str] | None:
        """Kind of each layer, None where the file has no list; entries behind the last layer are left out."""
        values = self.texts(*(names or ("layer_types",)))
        if values is None:
            return None
        if len(values) < layers:
            self.fault(names[0] if names else "layer_types", f"{len(values):,} kinds for {layers:,} layers")
        return values[:layers]


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


def _shown(value: Any) -> str:
    """A value as a message can hold it."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**18:
        return "a huge number"
    return re.sub(r"\s+", " ", f"{met(value)}")
