"""Predicted against measured: every row of a table of results, and how far off the predictions are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources.abc import Traversable
from typing import Any

from rooflinellm import _resources
from rooflinellm.errors import InvalidRequest, RooflineError
from rooflinellm.measurements.accuracy import RowResult, ValidationResult
from rooflinellm.measurements.evaluate import Evaluator, Predicted
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.population import AT_DEPTH, phase_of, population, series, shallow
from rooflinellm.measurements.readers import read
from rooflinellm.measurements.resolver import Resolved, Skip, resolve
from rooflinellm.measurements.row import Row
from rooflinellm.specs.parsing import split_count
from rooflinellm.specs.profile import ProfileSpec
from rooflinellm.units import MILLI

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
QUALITIES = "ABC"


def validate(
    files: Paths | None = None,
    *,
    rows_out: str | os.PathLike[str] | None = None,
    quality: str = "AB",
    profile: str | ProfileSpec | None = None,
    model: str | None = None,
    hardware: str | None = None,
    weights: str | None = None,
    engine: str | None = None,
) -> ValidationResult:
    """Predict what results measured, and say how far off the predictions are.

    Parameters
    ----------
    files : path or iterable of path, optional
        Files of results, as `rooflinellm.measurements.readers.read` takes them; None is the results that come with the
        package.
    rows_out : path, optional
        Also write a line a row to this CSV file.
    quality : str
        Qualities to score, of ``A``, ``B`` and ``C``; rows without a quality always count.
    profile : str or ProfileSpec, optional
        Efficiency profile; None is the one that estimates take.
    model, hardware, weights, engine : str, optional
        What files do not say themselves, such as the device in a table of llama-bench.

    Returns
    -------
    ValidationResult

    Raises
    ------
    InvalidRequest
        No files, or a quality that is none.
    UnreadableFile, InvalidSpec
        A file that is not there, is of no known kind, or breaks off. A single bad row is skipped instead.
    """
    quality = _qualities(quality)
    names, evaluator = Names(), Evaluator(profile)
    stated = {"model": model, "device": hardware, "quant": weights, "engine": engine}
    results: list[RowResult] = []
    shallow_rates: dict[tuple[object, ...], list[tuple[str | None, RowResult]]] = {}
    deep: list[tuple[tuple[object, ...], str | None, RowResult]] = []
    for path in measured_files(files):
        for row in read(path):
            full = _completed(row, stated)
            resolved, result = _score(full, quality, names, evaluator)
            results.append(result)
            if resolved is None or result.status == "skipped" or resolved.quantity.of != "decode":
                continue
            key = shallow(full, resolved)
            if resolved.keywords.get("context_tokens"):
                deep.append((key, full.note, result))
            else:
                shallow_rates.setdefault(key, []).append((full.note, result))
    found = ValidationResult(tuple(results), tuple(_relative(deep, shallow_rates)), quality)
    if rows_out is not None:
        found.write_rows(rows_out)
    return found


def _qualities(quality: str) -> str:
    asked = quality.upper() if isinstance(quality, str) else ""
    if not asked or set(asked) - set(QUALITIES):
        raise InvalidRequest(f"{quality!r:.40} is no quality; give some of {', '.join(QUALITIES)}", where="quality")
    return "".join(each for each in QUALITIES if each in asked)


def measured_files(files: Paths | None) -> Iterator[str | os.PathLike[str] | Traversable]:
    if files is not None:
        given = [files] if isinstance(files, str | os.PathLike) else list(files)
        if not given:
            raise InvalidRequest("no files of results were given", where="files")
        yield from given
        return
    folder = _resources.database("hardware_db") / "measurements"
    shipped = sorted(
        (file for file in folder.iterdir() if file.name.endswith((".csv", ".csv.gz"))), key=lambda file: file.name
    )
    if not shipped:
        raise InvalidRequest(
            "this version comes without measured results",
            where="files",
            next_step="Give a file: llama-bench, vLLM or SGLang output, or a CSV table of results.",
        )
    yield from shipped


def _completed(row: Row, stated: Mapping[str, str | None]) -> Row:
    """The row with what its file leaves out."""
    changed: dict[str, Any] = {}
    for name, value in stated.items():
        own = getattr(row, name) or (row.device_id or row.device_key if name == "device" else None)
        own = own or (row.hf_model_id if name == "model" else row.weight_dtype if name == "quant" else None)
        if value and not own:
            changed[name] = value
    if "device" in changed and (counted := split_count(changed["device"])):
        changed["device"], changed["device_count"] = counted[1], float(counted[0])
    return replace(row, **changed) if changed else row


def _score(row: Row, quality: str, names: Names, evaluator: Evaluator) -> tuple[Resolved | None, RowResult]:
    def skipped(reason: str) -> RowResult:
        measured, unit = _measured(row)
        return RowResult(
            id=row.id,
            phase=phase_of(row),
            measured=measured,
            unit=unit,
            status="skipped",
            reason=reason,
            population=population(row),
            engine=row.engine or "",
            device=row.device_id or row.device or "",
            model=row.hf_model_id or row.model or "",
            quality=row.quality or "",
        )

    if row.quality and row.quality not in quality:
        return None, skipped(f"quality {row.quality} was not asked for")
    resolved = resolve(row, names)
    if isinstance(resolved, Skip):
        return None, skipped(str(resolved))
    try:
        predicted = evaluator.predict(resolved)
    except RooflineError as error:
        return resolved, skipped(error.message)
    except ArithmeticError as error:
        return resolved, skipped(f"the numbers of the row have no answer: {error}")
    return resolved, _predicted(row, resolved, predicted)


def _predicted(row: Row, resolved: Resolved, predicted: Predicted) -> RowResult:
    quantity = resolved.quantity
    return RowResult(
        id=row.id,
        phase=quantity.of,
        measured=quantity.measured,
        unit=quantity.unit,
        status="predicted",
        ideal=predicted.ideal,
        expected=predicted.expected,
        low=predicted.low,
        high=predicted.high,
        population=population(row, resolved),
        engine=resolved.engine.id + (f":{resolved.backend}" if resolved.backend else ""),
        device=resolved.system.name,
        model=resolved.model.id,
        weights=resolved.fmt.id,
        quality=row.quality or "",
        series=series(row, resolved),
    )


def _measured(row: Row) -> tuple[float | None, str]:
    """The measured number of a row that is skipped, where its unit is one of speed."""
    if row.kind == "local":
        return row.tokens_per_s, "tokens/s"
    unit = (row.unit or "").lower()
    if row.value is None or unit == "s":
        return row.value, "s" if unit == "s" else "tokens/s"
    if unit.startswith("ms"):
        return row.value * MILLI, "s"
    return (row.value if "tokens/s" in unit else None), "tokens/s"


def _relative(
    deep: Sequence[tuple[tuple[object, ...], str | None, RowResult]],
    partners: Mapping[tuple[object, ...], Sequence[tuple[str | None, RowResult]]],
) -> Iterator[RowResult]:
    """Rates at depth over that at depth 0 of the same configuration, and of the same run where one is noted.

    Of several, the one whose error is the median.
    """
    for key, note, result in deep:
        found = partners.get(key, ())
        same = [other for other_note, other in found if other_note == note] or [other for _, other in found]
        if not same:
            continue
        partner = sorted(same, key=lambda other: other.log_error)[(len(same) - 1) // 2]
        assert result.measured and result.expected and partner.measured and partner.expected
        yield replace(
            result,
            measured=result.measured / partner.measured,
            expected=result.expected / partner.expected,
            ideal=None,
            low=None,
            high=None,
            population=AT_DEPTH,
        )
