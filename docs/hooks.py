"""What the site adds to MkDocs: formulas as MathML, and the charts that pages draw themselves; nothing is fetched."""

from __future__ import annotations

import html
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from refresh import images_of

FORMULA = re.compile(r'<(div|span) class="arithmatex">\\[\[(](.*?)\\[\])]</\1>', re.DOTALL)
IMAGE = re.compile(r"!\[[^]]*\]\(([^)]+)\)")


def on_page_content(content: str, **_others: Any) -> str:
    """Formulas as MathML, which browsers show without a script."""

    def formula(found: re.Match[str]) -> str:
        display = "block" if found[1] == "div" else "inline"
        return f"<{found[1]} class='formula'>{convert(html.unescape(found[2]), display=display)}</{found[1]}>"

    return FORMULA.sub(formula, content)


def on_files(files: Files, config: Any) -> Files:
    """Draw the charts of pages that show images which are not in the repository."""
    known = {each.src_uri for each in files}
    for page in files.documentation_pages():
        wanted = set(IMAGE.findall(page.content_string)) - known
        if not any(each.startswith("images/") for each in wanted):
            continue
        folder = Path(tempfile.mkdtemp())
        for image in images_of(Path(page.abs_src_path or ""), folder):
            files.append(File.generated(config, f"images/{image.name}", content=image.read_bytes()))
    return files
