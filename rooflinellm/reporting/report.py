"""The public function: a report about one model on one or several systems."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from rooflinellm._files import write_whole
from rooflinellm.api import lookup
from rooflinellm.api.arguments import count
from rooflinellm.api.compare import Comparison, compare
from rooflinellm.api.estimate import MAX_TOKENS
from rooflinellm.api.lookup import Name
from rooflinellm.api.questions import ByContext, by_context
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.operators.model import ModelSpec
from rooflinellm.reporting.blocks import Page
from rooflinellm.reporting.content import Findings, page, verdict, warnings_of
from rooflinellm.specs.model import ModelEntry

ENDINGS = (".html", ".md")
"""Endings of the files that a report can be written to."""
MOST_SYSTEMS = 7
"""Systems that a chart can tell apart. [-]"""
FRAME_HEIGHT = 720
"""Height of a report in a notebook. [px]"""


@dataclass(frozen=True)
class Report:
    """The answer of `report`.

    Attributes
    ----------
    comparison : Comparison
        The estimates of a single request behind it, by system and prompt length.
    answer : str
        The answer in a sentence or two.
    warnings : tuple of str
        What makes some answers an "as if", and what would make the report better.
    page : Page
        What it says.
    """

    comparison: Comparison
    answer: str
    warnings: tuple[str, ...]
    page: Page

    @cached_property
    def html(self) -> str:
        """One HTML document with its charts in it, that needs nothing else."""
        from rooflinellm.reporting.html_page import html_page

        return html_page(self.page)

    @cached_property
    def markdown(self) -> str:
        """The same as Markdown, without charts."""
        from rooflinellm.reporting.markdown_page import markdown_page

        return markdown_page(self.page)

    def files(self, path: str | os.PathLike[str]) -> dict[Path, str]:
        """The files of the report and their texts: one as HTML; as Markdown one more for each chart, beside it.

        Parameters
        ----------
        path : str or path
            The file; ``.html`` or ``.md``.

        Raises
        ------
        InvalidRequest
            Another ending.
        """
        target = Path(os.path.expanduser(path))
        if target.suffix.lower() not in ENDINGS:
            raise InvalidRequest(f"'{target.name}' ends in none of {', '.join(ENDINGS)}", where="path")
        if target.suffix.lower() == ".html":
            return {target: self.html}
        from rooflinellm.reporting.drawing import drawn
        from rooflinellm.reporting.markdown_page import markdown_page

        beside, charts = {}, {}
        for chart in self.page.charts:
            picture = drawn(chart, chart.wide)
            file = target.with_name(f"{target.stem}-{chart.key}.svg")
            charts[file], beside[chart.key] = picture.svg, (file.name, picture.description)
        return {target: markdown_page(self.page, beside), **charts}

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the report to a file, and the charts of a Markdown file beside it.

        Parameters
        ----------
        path : str or path
            The file; its ending, ``.html`` or ``.md``, decides the kind.
        force : bool
            Whether files that are there may be replaced.

        Raises
        ------
        InvalidRequest
            Another ending, a file that is there, or one that cannot be written.
        """
        write_files(self.files(path), force=force)

    def __repr__(self) -> str:
        names = ", ".join(row.name for row in self.comparison.rows)
        prompts = ", ".join(f"{each:,}" for each in self.comparison.prompt_tokens)
        return f"Report({self.comparison.model.id} on {names}; prompts of {prompts} tokens)"

    def _repr_html_(self) -> str:
        # In a frame of its own, so that its style and ids stay out of the notebook's page.
        return (
            f'<iframe title="{html.escape(self.page.title)}" srcdoc="{html.escape(self.html)}" sandbox="allow-popups" '
            f'style="width:100%;height:{FRAME_HEIGHT}px;border:0"></iframe>'
        )


def write_files(texts: dict[Path, str], *, force: bool = False) -> None:
    """Write several files, or none where one of them is there and may not be replaced; errors as in `Report.save`."""
    for file in texts:
        if os.path.exists(file) and not force:
            raise InvalidRequest(
                f"'{file}' is there already", where="path", next_step="Name another file, or say force=True."
            )
    for file, text in texts.items():
        try:
            write_whole(file, partial(Path.write_text, data=text, encoding="utf-8", newline="\n"))
        except OSError as error:
            raise InvalidRequest(f"cannot write '{file}': {error.strerror or error}", where="path") from error


def report(
    model: Name | ModelEntry | ModelSpec,
    hardware: Any,
    *,
    prompts: Any = None,
    context: Any = None,
    path: str | os.PathLike[str] | None = None,
    force: bool = False,
    date: str | None = None,
    **request: Any,
) -> Report:
    """Say on one page how fast a model will run on one or several systems, before one of them is bought.

    It answers whether it fits and the four questions: how long prefill takes at the prompt lengths, when the first
    token comes, how fast a single request decodes, and how both change as the context fills. With a `batch` above 1 the
    rates of several requests have a section of their own, those of each and of all apart.

    Parameters
    ----------
    model : str, path or spec
        As in `rooflinellm.model`.
    hardware : str, path, spec, or a sequence of them
        As in `rooflinellm.system`, at most 7.
    prompts : int or sequence of int, optional
        Lengths of the prompt: an everyday one and a long one; None is 512 and 8,192, as far as the context holds them.
        [token]
    context : int or sequence of int, optional
        Amounts of occupied context for the fourth question; one number is the largest of several steps, None steps up
        to what the model is made for. [token]
    path : str or path, optional
        File to write it to, ``.html`` or ``.md``, see `Report.save`.
    force : bool
        Whether a file that is there may be replaced.
    date : str, optional
        A date to print; None prints none, so that the same question gives the same file.
    **request
        As in `rooflinellm.estimate`, single values.

    Returns
    -------
    Report

    Raises
    ------
    InvalidRequest
        No system or more than 7, arrays, impossible numbers, or a file that is there or cannot be written.
    RooflineError
        It can run on none of the systems: what `estimate` raises for the first.

    Warns
    -----
    RooflineWarning
        As `estimate`, each system named; and where there is one prompt length only.
    """
    if "prompt_tokens" in request:
        raise InvalidRequest("name the lengths of the prompt in prompts", where="prompt_tokens")
    spec = lookup.model(model)
    found = _findings(spec, hardware, prompts, context, date, request)
    result = Report(found.comparison, verdict(found), warnings_of(found), page(found))
    for text in result.warnings:
        warnings.warn(text, RooflineWarning, stacklevel=2)
    if path is not None:
        result.save(path, force=force)
    return result


def _findings(
    spec: ModelSpec, hardware: Any, prompts: Any, context: Any, date: str | None, request: dict[str, Any]
) -> Findings:
    """Everything that is asked of `estimate`."""
    alone = {name: value for name, value in request.items() if name != "batch"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflineWarning)
        together = compare(spec, hardware, prompt_tokens=prompts, **request)
        if len(together.rows) > MOST_SYSTEMS:
            raise InvalidRequest(f"{len(together.rows)} systems are more than {MOST_SYSTEMS}", where="hardware")
        comparison = together
        if request.get("batch", 1) != 1:
            systems = [row.system for row in together.rows]
            comparison = compare(spec, systems, prompt_tokens=together.prompt_tokens, **alone)
        growths = _growths(comparison, context, alone)
    contexts = next(iter(growths.values())).decode
    return Findings(
        comparison=comparison,
        together=together,
        growths=growths,
        prompts=comparison.prompt_tokens,
        contexts=tuple(item.workload["context_tokens"] for item in contexts),
        request=request,
        date=date,
        named=prompts is not None,
    )


def _growths(comparison: Comparison, context: Any, request: dict[str, Any]) -> dict[str, ByContext]:
    contexts: Sequence[int] | None = None
    if isinstance(context, list | tuple):
        if not context:
            raise InvalidRequest("give at least one amount of context", where="context")
        contexts = sorted({int(count("context", each, 0, MAX_TOKENS)) for each in context})
    elif context is not None:
        request = request | {"context_limit": int(count("context", context, 1, MAX_TOKENS))}
    return {
        row.name: by_context(comparison.model, row.system, contexts=contexts, **request)
        for row in comparison.rows
        if row.estimates
    }
