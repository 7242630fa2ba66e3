"""Predicted against measured: every row of a table of results, and how far off the predictions are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from rooflinellm.api.arguments import one_of, scalar_count
from rooflinellm.api.measured import Paths, asked_qualities, measured_rows
from rooflinellm.errors import InvalidRequest, RooflineError
from rooflinellm.measurements.accuracy import RowResult, ValidationResult
from rooflinellm.measurements.evaluate import Chooser, Evaluator, Predicted
from rooflinellm.measurements.names import Names
from rooflinellm.measurements.population import AT_DEPTH, phase_of, population, series, shallow
from rooflinellm.measurements.resolver import Resolved, Skip, resolve
from rooflinellm.measurements.row import Row
from rooflinellm.specs.profile import ProfileSpec
from rooflinellm.units import MILLI

LEAVE_OUT = ("series", "device")


def validate(
    files: Paths | None = None,
    *,
    rows_out: str | os.PathLike[str] | None = None,
    quality: str = "AB",
    profile: str | os.PathLike[str] | ProfileSpec | None = None,
    leave_out: Literal["series", "device"] | None = None,
    model: str | None = None,
    hardware: str | None = None,
    weights: str | None = None,
    engine: str | None = None,
    tensor_parallel: int | None = None,
    concurrency: int | None = None,
    progress: Callable[[int, int], None] | None = None,
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
    profile : str, path or ProfileSpec, optional
        Efficiency profile; None is the one that estimates take.
    leave_out : {'series', 'device'}, optional
        Predict each result with a profile that was fitted to those of the files' results that are not of its series
        (device, model, format, test and lengths), or not of its device. The profile that comes with the package has
        seen the results that do.
    model, hardware, weights, engine : str, optional
        What files do not say themselves, such as the device in a table of llama-bench.
    tensor_parallel, concurrency : int, optional
        Devices that share each layer and requests under way, where a server's client does not say. [-]
    progress : callable, optional
        Called with the steps that are done and all there are, while profiles are fitted.

    Returns
    -------
    ValidationResult

    Raises
    ------
    InvalidRequest
        No files, a quality that is none, both a profile and something to leave out, too few results to leave any out.
    UnreadableFile, InvalidSpec
        A file that is not there, is of no known kind, or breaks off. A single bad row is skipped instead.
    """
    quality = asked_qualities(quality)
    names = Names()
    counts = {"tensor_parallel": tensor_parallel, "concurrency": concurrency}
    stated = {name: None if value is None else scalar_count(name, value) for name, value in counts.items()}
    rows: Iterable[Row] = measured_rows(
        files, {"model": model, "hardware": hardware, "weights": weights, "engine": engine, **stated}
    )
    if leave_out is None:
        found = score(rows, quality, names, fixed(profile))
    else:
        one_of("leave_out", leave_out, LEAVE_OUT)
        if profile is not None:
            raise InvalidRequest(
                "profiles are fitted to what is not left out, so that none can be named",
                where="profile",
                next_step="Leave out either.",
            )
        from rooflinellm.api.held_out import unseen  # fitting needs scipy, plain validation does not

        rows = list(rows)
        found = score(rows, quality, names, unseen(rows, quality, names, leave_out, progress))
        found = replace(found, left_out=leave_out)
    if rows_out is not None:
        found.write_rows(rows_out)
    return found


def fixed(profile: str | os.PathLike[str] | ProfileSpec | None = None) -> Chooser:
    """One profile for all rows; None is the one that estimates take."""
    evaluator = Evaluator(profile)  # type: ignore[arg-type]
    return lambda _row, _resolved: evaluator


def score(rows: Iterable[Row], quality: str, names: Names, choose: Chooser) -> ValidationResult:
    """Predict rows of some qualities, each with what is chosen for it."""
    results: list[RowResult] = []
    shallow_rates: dict[tuple[object, ...], list[tuple[str | None, RowResult]]] = {}
    deep: list[tuple[tuple[object, ...], str | None, RowResult]] = []
    for row in rows:
        resolved, result = _score(row, quality, names, choose)
        results.append(result)
        if resolved is None or result.status == "skipped" or resolved.quantity.of != "decode":
            continue
        key = shallow(row, resolved)
        if resolved.keywords.get("context_tokens"):
            deep.append((key, row.note, result))
        else:
            shallow_rates.setdefault(key, []).append((row.note, result))
    return ValidationResult(tuple(results), tuple(_relative(deep, shallow_rates)), quality)


def _score(row: Row, quality: str, names: Names, choose: Chooser) -> tuple[Resolved | None, RowResult]:
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
        evaluator = choose(row, resolved)
        if isinstance(evaluator, str):
            return resolved, skipped(evaluator)
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
