"""A report as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from rooflinellm import __version__
from rooflinellm.render import Column, Table, printable
from rooflinellm.reporting.blocks import (
    Bullets,
    Cards,
    Chart,
    Commands,
    Heading,
    Page,
    Section,
    Sources,
    Terms,
    Words,
)
from rooflinellm.reporting.drawing import drawn, inlined

STYLE = """
:root{color-scheme:light dark;--ink:#1d1d1f;--quiet:#555b63;--line:#d9dce1;--paper:#fff;--sheet:#f5f6f8;--link:#00558c}
@media (prefers-color-scheme:dark){:root{--ink:#e8e9ec;--quiet:#a7adb7;--line:#3a3f47;--paper:#16181c;--sheet:#1f2228;
--link:#7cc4f4}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
main,footer{max-width:67rem;margin:0 auto;padding:1rem}
h1{font-size:1.7rem;line-height:1.2;margin:.8rem 0 .2rem}
h2{font-size:1.25rem;line-height:1.3;margin:2.4rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.6rem 0 .4rem}
p{margin:.5rem 0}
a{color:var(--link)}
.quiet,.note,footer,figcaption,.notes{color:var(--quiet)}
.note,footer,figcaption,.notes{font-size:.875rem}
.notes p{margin:.15rem 0}
.lead{font-size:1.1rem}
ul,ol{padding-left:1.3rem;margin:.5rem 0}
li{margin:.2rem 0}
nav ul{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;list-style:none;padding:0;font-size:.9rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.2rem;margin:.6rem 0}
dt{color:var(--quiet)}dd{margin:0}
.scroll{overflow-x:auto;margin:.6rem 0}
.scroll:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
caption{text-align:left;font-weight:600;padding-bottom:.3rem}
caption .quiet{font-weight:400}
th,td{padding:.25rem .55rem;text-align:left;white-space:nowrap;vertical-align:top}
th:first-child,td:first-child{padding-left:0}
th{font-weight:600}
thead th{color:var(--quiet);font-weight:500;border-bottom:1px solid var(--line);vertical-align:bottom}
thead th[colspan]{border-bottom:0}
tbody tr+tr>*{border-top:1px solid var(--line)}
tbody th{font-weight:500;white-space:normal;min-width:8rem;max-width:14rem}
.right{text-align:right}
td.wide{white-space:normal;min-width:16rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1rem;margin:1rem 0}
.card{background:var(--sheet);border-radius:.5rem;padding:.8rem 1rem;min-width:0}
.card caption{white-space:normal;overflow-wrap:anywhere}.card caption .quiet{display:block}
.card th,.card td{padding:.2rem .55rem}
.card th:first-child{padding-left:0}
figure{margin:1rem 0}
svg{display:block;width:100%;height:auto;background:#fff;border-radius:.25rem}
svg.wide{max-width:56rem}svg.narrow{display:none;max-width:26rem}
svg *{stroke-linejoin:round;stroke-linecap:butt}
svg text{font-family:"DejaVu Sans","Bitstream Vera Sans",Verdana,Geneva,Arial,sans-serif}
svg .halo text{paint-order:stroke;stroke:#fff;stroke-width:2.6px}
pre{background:var(--sheet);border-radius:.4rem;padding:.7rem .9rem;margin:.6rem 0;overflow-x:auto;font-size:.85rem}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:normal}
@media (max-width:40rem){h1{font-size:1.4rem}svg.wide{display:none}svg.narrow{display:block}dl{display:block}
dd{margin:0 0 .5rem}main,footer{padding:.7rem}.card{padding:.6rem}
.scroll tbody th{white-space:normal;overflow-wrap:anywhere;min-width:6.2rem;max-width:8rem}
.card table{font-size:.76rem;width:100%}.card th,.card td{padding:.2rem .12rem}
.card .scroll tbody th{overflow-wrap:normal;max-width:none;min-width:0}}
@media print{:root{--ink:#000;--quiet:#444;--line:#bbb;--paper:#fff;--sheet:#fff;--link:#000}
@page{margin:15mm}
body{font-size:10pt}main,footer{max-width:none;padding:0}nav{display:none}
h2,h3,caption{break-after:avoid}figure,.card,tr,pre{break-inside:avoid}.card{border:1px solid var(--line)}
.scroll,pre{overflow:visible}table{font-size:7pt}th,td{padding:.12rem .3rem}pre{white-space:pre-wrap}
svg.wide{display:block}svg.narrow{display:none}}
"""
LONG = 60
"""Letters of a cell from which on its column may break lines. [-]"""


def html_page(page: Page) -> str:
    """Write a report as an HTML document; every text that comes from a file or from what was typed is escaped."""
    sections = "\n".join(map(_section, page.sections))
    links = "".join(f'<li><a href="#{each.key}">{_text(each.heading)}</a></li>' for each in page.sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="rooflinellm {__version__}">
<title>{_text(page.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<h1>{_text(page.title)}</h1>
<p class="quiet">{_text(page.subtitle)}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
{sections}
</main>
<footer><p>{_text(page.footer)}</p></footer>
</body>
</html>
"""


def _text(text: str) -> str:
    return html.escape(printable(text))


def _section(section: Section) -> str:
    blocks = "\n".join(_WRITERS[type(block)](block) for block in section.blocks)
    heading = f'<h2 id="{section.key}-heading">{_text(section.heading)}</h2>'
    return f'<section id="{section.key}" aria-labelledby="{section.key}-heading">\n{heading}\n{blocks}\n</section>'


def _words(block: Words) -> str:
    looks = f' class="{block.role}"' if block.role else ""
    return f"<p{looks}>{_text(block.text)}</p>"


def _bullets(block: Bullets) -> str:
    return f"<ul>{''.join(f'<li>{_text(item)}</li>' for item in block.items)}</ul>"


def _terms(block: Terms) -> str:
    return f"<dl>{''.join(f'<dt>{_text(name)}</dt><dd>{_text(text)}</dd>' for name, text in block.pairs)}</dl>"


def _cards(block: Cards) -> str:
    cards = "".join(f'<div class="card">{_table(table)}</div>' for table in block.tables)
    return f'<div class="cards">{cards}</div>'


def _commands(block: Commands) -> str:
    lines = "\n".join(_text(line) for line in block.lines)
    return f'<pre tabindex="0"><code>{lines}</code></pre>'


def _sources(block: Sources) -> str:
    items = []
    for item in block.items:
        link = ""
        if item.url and item.url.startswith(("https://", "http://")):
            link = f' <a href="{html.escape(item.url)}" rel="noreferrer">{_text(item.url)}</a>'
        elif item.url:
            link = f" {_text(item.url)}"
        items.append(f"<li>{_text(item.number)} {_text(item.text)}{link}</li>")
    return f'<ul class="note">{"".join(items)}</ul>'


def _chart(block: Chart) -> str:
    pictures = [(place, drawn(block, size)) for place, size in (("wide", block.wide), ("narrow", block.narrow))]
    svg = "\n".join(inlined(picture, block, place) for place, picture in pictures)
    return f"<figure>\n{svg}\n<figcaption>{_text(block.title)}</figcaption>\n</figure>"


def _table(table: Table) -> str:
    """A table that scrolls in a box of its own where it is too wide; the first cell of a row names it."""
    broken = {
        index
        for index, column in enumerate(table.columns)
        if column.align == "left" and any(len(row[index]) > LONG for row in table.rows)
    }
    head = "".join(
        f'<th scope="col"{_side(column)}>{_text(column.heading)}</th>' if column.heading else "<td></td>"
        for column in table.columns
    )
    over = ""
    if any(column.group for column in table.columns):
        over = f"<tr>{''.join(_groups(table))}</tr>"
    body = []
    for row in table.rows:
        cells = [f'<th scope="row"{_side(table.columns[0])}>{_text(row[0])}</th>'] if row[0] else ["<td></td>"]
        for index, cell in list(enumerate(row))[1:]:
            cells.append(f"<td{_side(table.columns[index], index in broken)}>{_text(cell)}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    answer = f' <span class="quiet">{_text(table.answer)}</span>' if table.answer else ""
    caption = f"<caption>{_text(table.title)}{answer}</caption>"
    notes = "".join(f"<p>{_text(note)}</p>" for note in table.notes_of())
    notes = f'<div class="notes">{notes}</div>' if notes else ""
    label = html.escape(printable(f"Table: {table.title}"))
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f"<table>{caption}<thead>{over}<tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>{notes}"
    )


def _side(column: Column, broken: bool = False) -> str:
    looks = " ".join(filter(None, ("right" if column.align == "right" else "", "wide" if broken else "")))
    return f' class="{looks}"' if looks else ""


def _groups(table: Table) -> Iterator[str]:
    for name, members in groupby(table.columns, key=lambda column: column.group):
        count = len(list(members))
        if name:
            yield f'<th scope="colgroup" colspan="{count}">{_text(name)}</th>'
        else:
            yield f'<td colspan="{count}"></td>'


_WRITERS: dict[type, Callable[[Any], str]] = {
    Words: _words,
    Heading: lambda block: f"<h3>{_text(block.text)}</h3>",
    Bullets: _bullets,
    Terms: _terms,
    Cards: _cards,
    Commands: _commands,
    Sources: _sources,
    Chart: _chart,
    Table: _table,
}
