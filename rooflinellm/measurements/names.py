"""What results call devices, models, formats and engines, and the entries they mean.

The catalogue is asked first. What it does not know is looked up in ``hardware_db/measurements/aliases.yaml``, with and
without the decoration of file names: parts, quantisation, owner, tuning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field

from rooflinellm import _resources, catalog
from rooflinellm.errors import AmbiguousName, RooflineError, UnknownName
from rooflinellm.operators.model import ModelSpec
from rooflinellm.specs.common import Positive, Spec, load
from rooflinellm.specs.engine import EngineSpec
from rooflinellm.specs.formats import FormatSpec
from rooflinellm.specs.hardware import HardwareSpec
from rooflinellm.specs.index import Listed, key_of

Strings = tuple[str, ...]


class BenchType(Spec):
    """A model by what llama-bench prints of it: ``llama 8B`` with 8.03 B parameters."""

    type: str
    params_b: Positive
    model: str


class Aliases(Spec):
    """``hardware_db/measurements/aliases.yaml``: entries, and what results call them."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    devices: dict[str, Strings]
    models: dict[str, Strings]
    bench_types: tuple[BenchType, ...]
    formats: dict[str, Strings]
    formats_of_models: dict[str, str]
    kv: dict[str, Strings]
    engines: dict[str, Strings]


_Value = TypeVar("_Value")
_PARTS = re.compile(r"-\d{5}-of-\d{5}|\.gguf$|\.safetensors$|\.bin$", re.IGNORECASE)
_COMPOSITE = re.compile(r"(?P<name>.+?) \((?P<type>.+)\)")
_BENCH_TYPE = re.compile(
    r"(?P<type>[\w.-]+ (?:\?|\d[\d.x]*)?[BME](?:x\d+E)?(?:\.A[\d.]+B)?(?: \([A-Za-z]+\))?|[\w-]+ A[\d.]+B)"
    r"(?: (?:mostly )?(?P<quant>\S.*))?"
)
_QUANT = re.compile(
    r"[-._ ](?:(?:UD|i1|gguf|mlx|mostly|APEX)[-_.])?"
    r"(?P<quant>I?Q\d(?:_\w+)?|Q\dR\d+|EXL[23]|T?Q\d_\d|B?F16|F32|FP16|FP8|FP4|MXFP4(?:_MOE)?|NVFP4|AWQ(?:-INT4)?|GPTQ|\d-?bit|INT\d)"
    r"(?:[-._ ].*)?$",
    re.IGNORECASE,
)
_ENDINGS = re.compile(
    r"[-_.](?:gguf|mlx|it|instruct|chat|hf|base|qat|mtp|ud|i1|v?\d{1,2}bit|awq|gptq|fp8|nvfp4|mxfp4|pt|abliterated)$",
    re.IGNORECASE,
)
_OWNER = re.compile(r"^[A-Za-z0-9.-]+_(?=[A-Za-z])")
_VERSION = re.compile(r"[-\s]v?\d[\w.+]*$")
_PARENTHESES = re.compile(r"\s*\([^()]*\)")
_BITS = re.compile(r"[\s-]*[\d.]+\s*bpw.*$")
_SIZES = {" - medium": "_m", " - small": "_s", " - large": "_l"}
_PREFIXES = ("mostly ", "unsloth-dynamic-", "ud-", "gguf-", "mlx-")


def bench_type(text: str) -> tuple[str, str | None] | None:
    """Split what llama-bench prints of a model, ``llama 8B Q4_K - Medium``, into type and quantisation."""
    match = _BENCH_TYPE.fullmatch(text.strip())
    return (match["type"], match["quant"]) if match else None


def split_model(text: str) -> tuple[str, str | None]:
    """Split ``FILE (TYPE)`` into file and type; a type alone gives an empty file, all else no type."""
    match = _COMPOSITE.fullmatch(text.strip())
    if match and bench_type(match["type"]):
        return match["name"], match["type"]
    return ("", text) if bench_type(text) else (text, None)


def quant_in(text: str) -> str | None:
    """The quantisation that a model's string names: its type's, or else its file name's."""
    name, kind = split_model(text)
    split = bench_type(kind) if kind else None
    if split and split[1]:
        return split[1]
    match = _QUANT.search(_PARTS.sub("", name))
    return match["quant"] if match else None


def _model_candidates(text: str) -> Iterator[str]:
    """A name, then with less and less of its decoration."""
    name = text.strip()
    if not name:
        return
    yield name
    name = _PARTS.sub("", _PARENTHESES.sub("", name)).strip()
    if ":" in name:  # ollama
        yield name.replace(":", "-")
    yield name
    for base in dict.fromkeys(
        (name, name.rpartition("/")[2], _OWNER.sub("", name.rpartition("/")[2]), name.split(" ")[0])
    ):
        shorter = _QUANT.sub("", base)
        yield shorter
        while (less := _ENDINGS.sub("", shorter)) != shorter:
            shorter = less
            yield shorter


def _format_candidates(text: str) -> Iterator[str]:
    name = text.strip()
    yield name
    name = name.lower()
    for size, short in _SIZES.items():
        name = name.replace(size, short)
    yield name
    name = _BITS.sub("", name)
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    yield name
    for ending in (" moe", " mix", "_r4", "_r8"):
        name = name.removesuffix(ending)
    yield name


class _Catalogue:
    """Names of one kind of entry, looked up without the search for suggestions that an unknown name costs."""

    def __init__(
        self, entries: Iterable[Listed], aliases: Mapping[str, Strings], *, repositories: bool = False
    ) -> None:
        self.ids: dict[str, set[str]] = {}
        for entry in entries:
            self.ids.setdefault(key_of(entry.id), set()).add(entry.id)
        own, tails = dict(self.ids), dict[str, set[str]]()
        for entry in entries:
            for alias in entry.aliases:
                if key_of(alias) not in own:
                    self.ids.setdefault(key_of(alias), set()).add(entry.id)
                if repositories:
                    tails.setdefault(key_of(alias.rpartition("/")[2]), set()).add(entry.id)
            tails.setdefault(key_of(entry.name), set()).add(entry.id)
        for key, found in tails.items():
            if len(found) == 1:
                self.ids.setdefault(key, found)
        self.aliases = {key_of(alias): entry for entry, names in aliases.items() for alias in (entry, *names)}

    def find(self, text: str) -> set[str]:
        """Ids of the entries that a name fits: one, several, or none."""
        key = key_of(text)
        for _ in range(3):  # an alias may stand for another name
            found = self.ids.get(key, set())
            if len(found) == 1 or key not in self.aliases:
                return found
            key = key_of(self.aliases[key])
        return set()

    def meant(self, text: str) -> str | None:
        """What the table of aliases puts in the place of a name, whether there is such an entry or not."""
        return self.aliases.get(key_of(text))


class Names:
    """The names as they stand when this is made; answers are kept."""

    def __init__(self) -> None:
        table = load(Aliases, _resources.database("hardware_db") / "measurements" / "aliases.yaml")
        self.bench_types, self.formats_of_models = table.bench_types, table.formats_of_models
        self._devices = _Catalogue(catalog.list_hardware(), table.devices)
        self._models = _Catalogue(catalog.list_models(), table.models, repositories=True)
        self._engines = _Catalogue(catalog.list_engines(), table.engines)
        self._formats = _Catalogue(catalog.list_formats(), table.formats)
        self._kv = {key_of(alias): kind for kind, names in table.kv.items() for alias in (kind, *names)}
        self._found: dict[Hashable, Any] = {}

    def _once(self, key: Hashable, find: Callable[[], _Value]) -> _Value:
        """What `find` returns, or the error it raises, kept."""
        if key not in self._found:
            try:
                self._found[key] = find()
            except RooflineError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, RooflineError):
            raise found
        return cast(_Value, found)

    def device(self, text: str) -> HardwareSpec:
        """The device that results call so.

        Raises
        ------
        UnknownName, AmbiguousName
        """
        return self._once(("device", text), lambda: self._device(text))

    def _device(self, text: str) -> HardwareSpec:
        plain = re.sub(r"\((?:R|TM|C)\)", "", text, flags=re.IGNORECASE)
        candidates = [text, plain, _PARENTHESES.sub("", plain)]
        candidates += [re.sub(r"\s+\d+-Core(?:\s+Processor)?$|\s+Processor$|\s+CPU\s+@.*$", "", candidates[-1])]
        several: set[str] = set()
        for candidate in dict.fromkeys(filter(None, map(str.strip, candidates))):
            found = self._devices.find(candidate)
            if len(found) == 1:
                return catalog.hardware(next(iter(found)))
            several |= found
        if several:
            raise AmbiguousName(f"'{text[:80]}' fits {len(several)} devices", candidates=sorted(several))
        meant = self._devices.meant(text)
        raise UnknownName(f"no entry for device {meant}" if meant else f"no entry for device '{text[:80]}'")

    def model(self, names: Iterable[str | None], params_b: float | None = None) -> ModelSpec:
        """The model of the first name that is one.

        Parameters
        ----------
        names : iterable of str or None
            What a result calls it: repository, file, type of llama-bench.
        params_b : float, optional
            Billions of parameters, which tell models of one llama-bench type apart.

        Raises
        ------
        UnknownName
        """
        given = tuple(name for name in names if name)
        return self._once(("model", given, params_b), lambda: self._model(given, params_b))

    def _model(self, given: Strings, params_b: float | None) -> ModelSpec:
        missing: str | None = None
        for text in given:
            name, kind = split_model(text)
            known = None if name else self._bench_model(kind, params_b)
            if not name and not known and params_b is not None and params_b == float(f"{params_b:.2g}"):
                name = text  # the words of a table with rounded counts, such as "Llama2 7B GPTQ"
            for candidate in [known] if known else _model_candidates(name):
                found = self._models.find(candidate)
                if len(found) == 1:
                    return _spec(next(iter(found)))
                missing = missing or self._models.meant(candidate)
            bench = self._bench_model(kind, params_b)
            found = self._models.find(bench) if bench else set()
            if len(found) == 1:
                return _spec(next(iter(found)))
            missing = missing or bench
        if not given:
            raise UnknownName("the row names no model")
        raise UnknownName(f"no entry for model {missing}" if missing else f"no entry for model '{given[0][:80]}'")

    def _bench_model(self, text: str | None, params_b: float | None) -> str | None:
        split = bench_type(text) if text else None
        if split is None:
            return None
        same = [each for each in self.bench_types if key_of(each.type) == key_of(split[0])]
        if params_b is not None and same:
            near = min(abs(each.params_b - params_b) for each in same)
            same = [each for each in same if abs(each.params_b - params_b) == near and near < 0.005 * params_b]
        models = {each.model for each in same}
        return models.pop() if len(models) == 1 else None

    def engine(self, text: str) -> EngineSpec:
        """The engine that results call so; raises `UnknownName`."""
        return self._once(("engine", text), lambda: self._engine(text))

    def _engine(self, text: str) -> EngineSpec:
        plain = text.strip()
        meant: str | None = None
        for candidate in dict.fromkeys((plain, _PARENTHESES.sub("", plain), _VERSION.sub("", plain))):
            found = self._engines.find(candidate)
            if len(found) == 1:
                return catalog.engine(next(iter(found)))[0]
            meant = meant or self._engines.meant(candidate)
        raise UnknownName(f"no entry for engine {meant}" if meant else f"no entry for engine '{plain[:60]}'")

    def weight_format(self, text: str, engine: EngineSpec, model: ModelSpec) -> FormatSpec:
        """The format of weights that results call so, among those the engine reads; raises `UnknownName`."""
        key = (
            "format",
            text,
            engine.format_families,
            self.formats_of_models.get(f"{engine.format_families[0]}/{model.id}"),
        )
        return self._once(key, lambda: self._weight_format(text, engine, key[-1]))

    def _weight_format(self, text: str, engine: EngineSpec, fixed: str | None) -> FormatSpec:
        if fixed:
            return catalog.weight_format(fixed)
        for candidate in dict.fromkeys(_format_candidates(text)):
            for family in engine.format_families:
                for name in (f"{family}:{candidate}", candidate):
                    found = {
                        each for each in self._formats.find(name) if each.partition(":")[0] in engine.format_families
                    }
                    if len(found) == 1:
                        return catalog.weight_format(next(iter(found)))
        raise UnknownName(f"no format of {engine.id} is called '{text[:40]}'")

    def kv(self, text: str, engine: EngineSpec) -> str | None:
        """The type of the cache, None for the engine's default; raises `UnknownName`."""
        parts = [part.strip() for part in text.split("/")]
        if len(parts) == 2 and parts[0] == parts[1]:
            parts = parts[:1]
        named: list[str] = []
        for part in parts:
            name = self._kv.get(key_of(part), part)
            if name == "default":
                return None
            try:
                kind = catalog.kv_type(name)
            except UnknownName:
                raise UnknownName(f"no type of cache is called '{part[:40]}'") from None
            if kind not in engine.kv.types:
                raise UnknownName(f"{engine.id} has no cache of type {kind}")
            named.append(kind)
        return "/".join(named)


_specs: dict[int, ModelSpec] = {}


def _spec(name: str) -> ModelSpec:
    """The model of an entry, derived once, so that what is cached for it serves all rows."""
    entry = catalog.model(name)
    known = _specs.get(id(entry))
    if known is None or known.entry is not entry:
        known = _specs[id(entry)] = ModelSpec(entry)
    return known


@cache
def _names(folders: Strings) -> Names:
    return Names()


def default_names() -> Names:
    """The names of the packaged databases and of the user's own folders, read once."""
    return _names(tuple(map(str, _resources.user_directories())))
