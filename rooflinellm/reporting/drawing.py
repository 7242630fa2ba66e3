"""Charts as SVG: files as `plotting.save` writes them, and parts of a page that share it with others."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from rooflinellm.plotting.style import describe, svg_text
from rooflinellm.render import printable
from rooflinellm.reporting.blocks import Chart

_HALO = re.compile(r'<g id="([^"]*)-halo">\s*(?:<path d="[^"]*"[^>]*/>\s*)+</g>\s*')
_ID = re.compile(r'(?<= )id="([^"]*)"')
_REFERENCE = re.compile(r'(url\(#|xlink:href="#)([^")]*)')
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart that was drawn: the text of its SVG file, and what it shows, in words."""

    svg: str
    description: str


def drawn(chart: Chart, size: tuple[float, float]) -> Drawn:
    """Draw a chart at a size [inch]."""
    from matplotlib.figure import Figure

    axes = chart.draw(Figure(figsize=size, layout="constrained").subplots())
    return Drawn(svg_text(axes), describe(axes))


def inlined(picture: Drawn, chart: Chart, place: str) -> str:
    """The ``<svg>`` element of a chart as part of a page.

    Ids begin with the chart's own, styles apply to the chart alone, and the halos of labels, which a file draws as
    outlines of every letter, are left to the page's style.

    Parameters
    ----------
    picture : Drawn
        The chart.
    chart : Chart
        What it is called.
    place : str
        Tells several drawings of one chart apart.
    """
    name = f"{chart.key}-{place}"
    text = picture.svg[picture.svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)  # the page has the same for all charts
    haloed = set(_HALO.findall(text))
    text = _HALO.sub("", text)

    def named(match: re.Match[str]) -> str:
        looks = ' class="halo"' if match[1] in haloed else ""
        return f'id="{name}-{_SPACE.sub("-", match[1])}"{looks}'

    text = _ID.sub(named, text)
    text = _REFERENCE.sub(lambda match: f"{match[1]}{name}-{_SPACE.sub('-', match[2])}", text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text.replace("xlink:href=", "href="))
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    title, words = html.escape(printable(chart.title)), html.escape(printable(picture.description))
    head = (
        f'<svg role="img" id="{name}" class="{place}" {box[0]} aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{title}</title><desc id="{name}-desc">{words}</desc>'
    )
    return re.sub(r"\s*\n\s*", "\n", head + text[text.index(">") + 1 :].strip())
