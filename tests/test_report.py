"""The report: well-formed, safe, the same numbers as `estimate`, as HTML and as Markdown."""

import html
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rooflinellm as rl
from rooflinellm.cli import main
from rooflinellm.errors import InvalidRequest, RooflineWarning
from rooflinellm.reporting.report import Report
from rooflinellm.units import format_seconds, significant

ROOT = Path(__file__).resolve().parents[1]
AD_HOC = "24GiB,1000GB/s,100TFLOP/s@fp16,200TFLOP/s@int8"
SYSTEMS = ("rtx-4090", "m3-max-40c@64GiB", AD_HOC)
HOSTILE = '"><script>alert(1)</script> & `x` [y](javascript:z) | *b*'
VOID = {"meta", "link", "br", "hr", "img", "input"}
FOUR_QUESTIONS = ("prefill", "first-token", "decode", "context")


class Walk(HTMLParser):
    """Checks that tags are balanced, and keeps what a page holds."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.headings: list[int] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._attributes(tag, attrs)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._attributes(tag, attrs)

    def _attributes(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["text"], ["desc"], ["title"]):
            self.text += f"{data} "


@pytest.fixture(scope="module")
def found() -> Report:
    return rl.report("llama-3.1-8b", SYSTEMS, weights="Q4_K_M")


@pytest.fixture(scope="module")
def walk(found: Report) -> Walk:
    return Walk(found.html)


def hostile_model(folder: Path) -> Path:
    """An entry of the packaged data under another name."""
    entry = next((ROOT / "model_db").rglob("llama-3.2-1b.yaml")).read_text(encoding="utf-8")
    text = re.sub(r"^name: .*$", f"name: '{HOSTILE}'", entry, count=1, flags=re.MULTILINE)
    assert text != entry
    file = folder / "hostile.yaml"
    file.write_text(text, encoding="utf-8")
    return file


# --- the page


def test_the_page_is_well_formed(walk: Walk) -> None:
    assert walk.open == []
    assert [each for each, count in Counter(walk.ids).items() if count > 1] == []
    assert all(each and not re.search(r"\s", each) for each in walk.ids)
    assert walk.tags["html"] == walk.tags["main"] == walk.tags["h1"] == 1
    assert ("html", "lang", "en") in walk.attributes


def test_references_inside_the_page_lead_somewhere(found: Report, walk: Walk) -> None:
    named = {value[1:] for _, name, value in walk.attributes if name == "href" and value.startswith("#")}
    named |= set(re.findall(r"url\(#([^)]+)\)", found.html))
    named |= {each for _, name, value in walk.attributes if name == "aria-labelledby" for each in value.split()}
    assert named and named <= set(walk.ids)


def test_nothing_is_loaded_and_no_script_runs(found: Report, walk: Walk) -> None:
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "image"} & walk.tags.keys()
    loading = [
        (tag, name, value)
        for tag, name, value in walk.attributes
        if name in ("src", "srcset", "href", "xlink:href", "data", "action") and not value.startswith("#")
    ]
    assert loading and all(tag == "a" and value.startswith("https://") for tag, _, value in loading)
    assert not any(name.startswith("on") for _, name, _ in walk.attributes)
    assert not re.search(r"@import|url\((?!#)", found.html)


def test_it_can_be_read_without_seeing_it(walk: Walk) -> None:
    assert walk.headings[0] == 1
    assert all(after <= before + 1 for before, after in zip(walk.headings, walk.headings[1:], strict=False))
    assert walk.tags["caption"] == walk.tags["table"] > 10
    pictures = [value for tag, name, value in walk.attributes if (tag, name) == ("svg", "role")]
    assert pictures == ["img"] * walk.tags["svg"]
    assert walk.tags["svg"] == walk.tags["desc"] >= 10  # each on wide and on narrow screens
    assert {value for tag, name, value in walk.attributes if (tag, name) == ("th", "scope")} >= {"col", "row"}


def test_text_in_charts_is_text_and_styles_stay_inside(found: Report) -> None:
    charts = re.findall(r"<svg.*?</svg>", found.html, re.DOTALL)
    assert all("<style" not in each and "<metadata" not in each and "-halo" not in each for each in charts)
    assert any(">RTX 4090" in each and "<text" in each for each in charts)
    assert "Arithmetic intensity [FLOP/byte]" in found.html


def test_the_page_is_light(found: Report) -> None:
    assert len(found.html.encode()) < 1_000_000


def test_the_same_question_gives_the_same_page(found: Report) -> None:
    again = rl.report("llama-3.1-8b", SYSTEMS, weights="Q4_K_M")
    assert again.html == found.html
    assert again.markdown == found.markdown
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", found.page.footer)
    dated = rl.report("llama-3.1-8b", AD_HOC, date="2026-01-31")
    assert "2026-01-31" in dated.page.footer and "2026-01-31" in dated.html


# --- what it says


def test_the_numbers_are_those_of_estimate(found: Report, walk: Walk) -> None:
    for system in SYSTEMS:
        for prompt in (512, 8192):
            est = rl.estimate("llama-3.1-8b", system, weights="Q4_K_M", prompt_tokens=prompt)
            numbers = [format_seconds(each) for each in (est.ttft_s.expected, est.tpot_s.expected)]
            rates = est.prefill.tokens_per_s, est.decode.tokens_per_s
            numbers += [significant(each.expected) for each in rates] + [
                f"≤ {significant(each.ideal)}" for each in rates
            ]
            for number in numbers:
                assert number in walk.text, (system, prompt, number)


def test_four_questions_with_the_ends_of_the_interval(found: Report) -> None:
    sections = {section.key: section for section in found.page.sections}
    assert list(sections)[:2] == ["answer", "question"]
    assert [key for key in sections if key in FOUR_QUESTIONS] == list(FOUR_QUESTIONS)
    est = rl.estimate("llama-3.1-8b", "rtx-4090", weights="Q4_K_M", prompt_tokens=512)
    table = sections["decode"].blocks[0]
    rate = est.decode.tokens_per_s
    assert list(table.rows[0])[:5] == [  # type: ignore[union-attr]
        *("RTX 4090", "512", significant(rate.expected)),
        *(f"{significant(rate.low)}–{significant(rate.high)}", f"≤ {significant(rate.ideal)}"),
    ]


def test_context_is_a_table_and_a_chart(found: Report) -> None:
    (section,) = [each for each in found.page.sections if each.key == "context"]
    growth = section.blocks[0]
    at_32k = [column.heading for column in growth.columns].index("32k")  # type: ignore[union-attr]
    est = rl.estimate(
        "llama-3.1-8b", "rtx-4090", weights="Q4_K_M", prompt_tokens=0, output_tokens=0, context_tokens=32_768
    )
    assert growth.rows[0][at_32k] == significant(est.decode.tokens_per_s.expected)  # type: ignore[union-attr]
    assert [chart.key for chart in found.page.charts][:2] == ["decode-by-context", "prefill-by-context"]


def test_contexts_can_be_chosen() -> None:
    for context, headings in (([0, 1000, 9000], ["0", "1,000", "9,000"]), (20_000, ["0", "4k", "16k", "20,000"])):
        (section,) = [
            each for each in rl.report("llama-3.1-8b", AD_HOC, context=context).page.sections if each.key == "context"
        ]
        assert [column.heading for column in section.blocks[0].columns][1:] == headings  # type: ignore[union-attr]


def test_markdown_has_the_same_numbers(found: Report, walk: Walk) -> None:
    def numbers(text: str) -> Counter[str]:
        return Counter(re.findall(r"\d[\d,.]*\d|\d", text))

    titles = Counter(number for chart in found.page.charts for number in re.findall(r"\d[\d,.]*\d|\d", chart.title))
    written = numbers(html.unescape(re.sub(r"https?://\S+", "", found.markdown).replace("\\", "")))
    shown = numbers(re.sub(r"https?://\S+", " ", walk.text)) - titles
    assert set(shown) == set(written)


def test_every_value_has_its_source(found: Report, walk: Walk) -> None:
    device = rl.hardware("rtx-4090")
    assert "1,008 GB/s" in walk.text and "whitepaper" in walk.text
    for key, source in device.sources.items():
        assert source.title in walk.text, key
        if source.url:
            assert ("a", "href", source.url) in walk.attributes


def test_basis_versions_commands_and_limits(found: Report, walk: Walk) -> None:
    from rooflinellm.api.lists import data_version

    assert f"rooflinellm {rl.__version__}" in walk.text and data_version() in walk.text
    assert "calibrated" in walk.text and "series of this device" in walk.text
    assert "llama-bench -m llama-3.1-8b-Q4_K_M.gguf -ngl 99 -fa 1 -p 512,8192 -n 0" in walk.text
    assert "quality of answers" in walk.text


def test_a_batch_has_a_section_of_its_own() -> None:
    found = rl.report("llama-3.1-8b", AD_HOC, batch=6)
    single = rl.estimate("llama-3.1-8b", AD_HOC, prompt_tokens=8192)
    batched = rl.estimate("llama-3.1-8b", AD_HOC, prompt_tokens=8192, batch=6)
    sections = {section.key: section for section in found.page.sections}
    decode = sections["decode"].blocks[0].rows[1]  # type: ignore[union-attr]
    assert decode[2] == significant(single.decode.tokens_per_s.expected)
    each, together = sections["batch"].blocks[:2]
    assert each.rows[1][5] == significant(batched.decode.tokens_per_s.expected)  # type: ignore[union-attr]
    aggregate = significant(batched.decode.aggregate_tokens_per_s.expected)
    assert together.rows[1][5] == aggregate  # type: ignore[union-attr]
    others = [each for each in found.page.sections if each.key != "batch"]
    assert not any(aggregate in str(section.blocks) for section in others if section.key in FOUR_QUESTIONS)
    kv = batched.memory.kv_allocated_bytes / 2**30
    assert significant(kv) in sections["memory"].blocks[0].rows[0]  # type: ignore[union-attr]


def test_one_prompt_is_warned_of() -> None:
    with pytest.warns(RooflineWarning, match="two are better"):
        found = rl.report("llama-3.1-8b", AD_HOC, prompts=512)
    assert "two are better" in found.markdown


def test_what_does_not_fit_or_run_is_said() -> None:
    with pytest.warns(RooflineWarning, match="does not fit"):
        found = rl.report("llama-3.3-70b", AD_HOC, weights="Q4_K_M")
    assert found.answer.startswith("It does not fit")
    mixed = rl.report("llama-3.1-8b", ["rtx-4090", "m3-max-40c"], engine="vllm")
    assert "cannot run it" in mixed.html and "Apple M3 Max" in mixed.page.title


def test_parts_on_the_host_are_shown() -> None:
    found = rl.report("llama-3.3-70b", "rtx-4090 + ddr5-5600x2@96GiB", weights="Q4_K_M", context=[0, 4096])
    assert "what each place costs in decode" in found.markdown
    assert "layers on the host: -ngl" in found.markdown
    assert "ddr5-5600x2" in found.markdown


def test_names_from_files_are_shown_as_they_are(tmp_path: Path) -> None:
    found = rl.report(hostile_model(tmp_path), AD_HOC)
    walk = Walk(found.html)
    assert "script" not in walk.tags
    assert HOSTILE in html.unescape(found.html)
    assert not re.search(r"(?<!\\)</?[a-z]+>", found.markdown.replace("&lt;", ""))
    assert "[y](javascript" not in found.markdown
    assert not any(value.startswith("javascript") for _, name, value in walk.attributes if name == "href")
    assert "<script" not in found._repr_html_()


def test_it_shows_itself_in_a_frame(found: Report) -> None:
    assert repr(found).startswith("Report(llama-3.1-8b on RTX 4090, ") and "\n" not in repr(found)
    frame = Walk(found._repr_html_())
    assert frame.tags == {"iframe": 1}
    (inside,) = [value for _, name, value in frame.attributes if name == "srcdoc"]
    assert inside == found.html


# --- files and the command line


def test_files_are_written_once(tmp_path: Path, found: Report) -> None:
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    found.save(page)
    assert page.read_text(encoding="utf-8") == found.html
    with pytest.raises(InvalidRequest, match="there already"):
        found.save(page)
    found.save(page, force=True)
    found.save(text)
    written = text.read_text(encoding="utf-8")
    charts = re.findall(r"\]\(<([^>]+)>\)", written)
    assert len(charts) == len(found.page.charts)
    for name in charts:
        assert (tmp_path / name).read_text(encoding="utf-8").startswith("<?xml")
    text.unlink()
    with pytest.raises(InvalidRequest, match="there already"):
        found.save(text)  # its charts are still there
    assert not text.exists()
    with pytest.raises(InvalidRequest, match="ends in none of"):
        found.save(tmp_path / "report.pdf")
    with pytest.raises(InvalidRequest, match="cannot write"):
        found.save(tmp_path / "nowhere" / "report.html")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    arguments = ["report", "llama-3.1-8b", AD_HOC, "-o", str(file)]
    assert main(arguments) == 0
    answer = capsys.readouterr()
    assert "It fits" in answer.out and answer.err == ""
    assert file.read_text(encoding="utf-8") == rl.report("llama-3.1-8b", AD_HOC).html
    file.write_text("mine", encoding="utf-8")
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "mine"
    assert main([*arguments, "--force", "--json"]) == 0
    assert '"answer": "It fits' in capsys.readouterr().out
    assert file.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["no-such-model", "rtx-4090", "-o", "{}/a.html"], 2, "no-such-model"),
        (["llama-3.1-8b", "rtx-4090", "-o", "{}/a.pdf"], 2, ".html, .md"),
        (["llama-3.1-8b", "rtx-4090"], 2, "--out"),
        (["llama-3.1-8b", "rtx-4090", "-o", "{}/none/a.html"], 2, "no folder"),
        (["llama-3.1-8b", "rtx-4090", "-o", "{}/a.html", "-p", "-5"], 2, "-p: -5"),
        (["llama-3.1-8b", "rtx-4090", "-o", "{}/a.html", "--contexts", "-5"], 2, "-5"),
        (["llama-3.1-8b", *(f"{size}GiB,1TB/s,1TFLOP/s@fp16" for size in range(8, 16)), "-o", "{}/a.html"], 2, "7"),
        (["{}/broken.yaml", "rtx-4090", "-o", "{}/a.html"], 3, "broken.yaml"),
    ],
)
def test_exit_codes(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("schema: [", encoding="utf-8")
    assert main(["report", *(each.replace("{}", str(tmp_path)) for each in arguments)]) == code
    answer = capsys.readouterr()
    assert said in answer.err and "Traceback" not in answer.err
    assert not (tmp_path / "a.html").exists()


# --- in a browser, where there is one


def browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(browser() is None, reason="no Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_it_does_not_scroll_sideways(found: Report, tmp_path: Path, width: int) -> None:
    program = browser()
    assert program is not None
    # A frame, since a window may not be that narrow; what it holds by `srcdoc` can be asked for its width.
    file = tmp_path / "frame.html"
    ask = "const page = this.contentDocument.documentElement;"
    ask += " const boxes = [...this.contentDocument.querySelectorAll('.card .scroll')];"
    ask += " const cut = boxes.filter(box => box.scrollWidth > box.clientWidth).length;"
    ask += " document.title = page.scrollWidth + ' of ' + page.clientWidth + ', ' + cut + ' cut'"
    file.write_text(
        f'<iframe width="{width}" height="900" style="border:0" onload="{ask}" srcdoc="{html.escape(found.html)}">',
        encoding="utf-8",
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    done = subprocess.run([program, *options, file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    ((needed, there, cut),) = re.findall(r"<title>(\d+) of (\d+), (\d+) cut</title>", done.stdout)
    assert needed == there and int(there) > width - 30  # less a scroll bar
    assert cut == "0"  # the first tables, which answer, show all their columns
