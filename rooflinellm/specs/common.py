"""What all specifications share: frozen models, sourced quantities, and errors that name file, line and field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rooflinellm import _yaml
from rooflinellm._shown import one_line
from rooflinellm.errors import InvalidSpec, met

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Evidence = Literal["datasheet", "whitepaper", "measured", "third_party", "derived", "estimate"]
"""How a value is known, from the maker's own figure down to a recollection that nobody has checked."""

_IDENTIFIER, _LONGEST = r"^[a-z0-9]+(?:[-._+][a-z0-9]+)*$", 100
Identifier = Annotated[str, Field(pattern=_IDENTIFIER, max_length=_LONGEST)]


def is_identifier(text: str) -> bool:
    """Whether a text may be the id of an entry."""
    return len(text) <= _LONGEST and re.fullmatch(_IDENTIFIER, text) is not None


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds a line break or a control character")
    return text


Name = Annotated[str, AfterValidator(_printable)]
"""What charts and terminals show; a control character in it would be obeyed."""
Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Positive = Annotated[float, Field(gt=1e-9, lt=1e15, strict=True)]


class Spec(BaseModel):
    """Base of all declarative models: frozen, and no field that the schema does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    __repr__ = one_line
    __str__ = one_line

    def __dir__(self) -> list[str]:
        """What a specification has itself; what the library behind it adds would bury that in a completion."""
        return [name for name in super().__dir__() if name.startswith("__") or name not in _OF_THE_BASE]


_OF_THE_BASE = frozenset(dir(BaseModel))


class Source(Spec):
    """A public source, named so that a reader can find it."""

    title: str
    publisher: str | None = None
    year: Annotated[int, Field(ge=1990, le=2100)] | None = None
    url: str | None = None
    note: str | None = None


class Alternative(Spec):
    """A value another source gives, kept beside the one that was chosen."""

    value: Positive
    source: str
    note: str | None = None


class Quantity(Spec):
    """A number with its evidence; the unit stands in the name of the field that holds it."""

    value: Positive
    kind: Evidence
    source: str
    note: str | None = None
    alternatives: tuple[Alternative, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _has_evidence(cls, value: Any) -> Any:
        if isinstance(value, int | float | str):
            raise ValueError(f"a bare value; say how it is known: {{value: {value}, kind: datasheet, source: …}}")
        return value


class Entry(Spec):
    """What every file of the databases starts with."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    id: Identifier
    name: Name
    aliases: tuple[Name, ...] = ()
    sources: dict[str, Source] = {}
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sources_are_listed(self) -> Entry:
        for key in cited_sources(self):
            if key not in self.sources:
                known = ", ".join(self.sources) or "none"
                raise ValueError(f"source '{key}' is cited but not listed under sources (listed: {known})")
        return self


_PLAIN = frozenset({type(None), int, float, bool})
"""What many fields hold; asking whether something is a model takes longer."""


def cited_sources(spec: BaseModel) -> list[str]:
    """Every source key that a specification cites, in its nested values too, in the order of the fields."""
    found: list[str] = []
    for name, value in vars(spec).items():
        if isinstance(value, str):
            if name == "source":
                found.append(value)
            continue
        if type(value) in _PLAIN:
            continue
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                found += cited_sources(item)
    return found


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], data: Any, *, where: str, text: str | None = None) -> Model:
    """Turn plain values into a specification.

    Parameters
    ----------
    model : type
        The specification's class.
    data : Any
        Plain values, as YAML or JSON give them.
    where : str
        The file's name, for messages.
    text : str, optional
        The file's text, to name the line.

    Raises
    ------
    InvalidSpec
        Naming file, line, field, the value met and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise InvalidSpec(f"expected a mapping of fields, found {type(data).__name__}", where=where)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        first = problems[0]
        field = ".".join(str(step) for step in first["loc"]) or "the whole entry"
        line = _yaml.line_of(text, first["loc"]) if text is not None else None
        place = f"{where}, line {line}" if line else where
        given = first.get("input")
        shown = f" (found {_shown(given)})" if isinstance(given, str | int | float | bool) else ""
        more = f" — and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise InvalidSpec(f"{field}: {first['msg']}{shown}{more}", where=place) from error


def _shown(value: str | float) -> str:
    """A value for a message: whole numbers with thousands of digits cannot be written."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    return f"{met(value)}"


def load(model: type[Model], file: Path | Traversable) -> Model:
    """Read and validate one YAML file; errors as in `validate` and `_yaml.load`."""
    text = _yaml.read_text(file)
    return validate(model, _yaml.parse(text, where=str(file)), where=str(file), text=text)
