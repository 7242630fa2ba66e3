"""Files, places and moments that programs break in: no entry of a kind, no home, no rights, no end, no time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rooflinellm as rl
from rooflinellm import _files, _yaml, catalog
from rooflinellm.api import turns, workloads
from rooflinellm.cli.terminal import say
from rooflinellm.importers import read as read_model
from rooflinellm.measurements import readers, resolve

ROOT = Path(__file__).resolve().parents[1]

# What reads a file, and the ending it needs.
READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "yaml": (".yaml", lambda path: _yaml.load(Path(path))),
    "hardware": (".yaml", rl.hardware),
    "system": (".yaml", rl.system),
    "model": (".yaml", rl.model),
    "configuration": (".json", rl.model),
    "gguf": (".gguf", rl.model),
    "safetensors": (".safetensors", rl.model),
    "importer": (".json", read_model),
    "engine": (".yaml", lambda path: rl.estimate("qwen3-0.6b", "rtx-4090", engine=str(path))),
    "profile": (".yaml", lambda path: rl.estimate("qwen3-0.6b", "rtx-4090", options=rl.Options(profile=path))),
    "results": (".csv", lambda path: list(readers.read(path))),
    "validate": (".csv", rl.validate),
    "calibrate": (".csv", rl.calibrate),
    "turns": (".csv", turns.read_turns),
    "turns as JSON": (".json", turns.read_turns),
    "trace": (".csv", workloads.trace),
}
BYTES = {
    "empty": b"",
    "a NUL": b"\0",
    "no UTF-8": b"id: \xff\xfe\n",
    "UTF-16": "id: a\n".encode("utf-16"),
    "half a character": "id: é".encode()[:-1],
    "nested deeply": b"[" * 100_000,
    "nested deeply, as objects": b'{"a":' * 50_000,
    "a long number": b"9" * 100_000,
    "an endless line": b"a" * 3_000_000,
    "a zip bomb": b"\x1f\x8b\x08\0\0\0\0\0\0\0" + b"\0" * 100,
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "a web page": b"<!DOCTYPE html><html><body>404</body></html>",
    "control characters": b"id: \x1b[31m\x07\n",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", BYTES)
def test_content_that_nothing_reads(reader: str, content: str, tmp_path: Path) -> None:
    ending, read = READERS[reader]
    path = tmp_path / f"x{ending}"
    path.write_bytes(BYTES[content])
    if reader == "yaml" and content in ("empty", "an endless line", "a web page", "a pointer of Git LFS"):
        return  # a text, or nothing, is YAML
    with pytest.raises(rl.RooflineError) as caught:
        read(path)
    assert len(str(caught.value)) < 2_000
    assert "\x1b" not in str(caught.value)


def _places(folder: Path, ending: str) -> Iterator[tuple[str, Any]]:
    yield "not there", folder / f"missing{ending}"
    (folder / f"folder{ending}").mkdir()
    yield "a folder", folder / f"folder{ending}"
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / f"pipe{ending}")
        yield "a pipe", folder / f"pipe{ending}"
        (folder / f"loop{ending}").symlink_to(folder / f"loop{ending}")
        yield "a link to itself", folder / f"loop{ending}"
        (folder / f"endless{ending}").symlink_to("/dev/zero")
        yield "a device without an end", folder / f"endless{ending}"
    yield "a name that is too long", folder / ("x" * 300 + ending)
    yield "a name with a NUL", f"x\0{ending}"
    yield "below a file", Path(__file__) / f"x{ending}"
    yield "no home to expand", f"~nobody-of-this-name/x{ending}"


@pytest.mark.parametrize("reader", READERS)
def test_places_that_hold_no_file(reader: str, tmp_path: Path) -> None:
    ending, read = READERS[reader]
    for kind, path in _places(tmp_path, ending):
        if reader == "yaml" and "\0" in str(path):
            path = Path(path)
        with pytest.raises(rl.RooflineError) as caught:
            read(path)
        assert str(caught.value), kind


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("reader", READERS)
def test_a_file_without_rights(reader: str, tmp_path: Path) -> None:
    ending, read = READERS[reader]
    path = tmp_path / f"x{ending}"
    path.write_bytes(b"{}")
    path.chmod(0)
    with pytest.raises(rl.RooflineError, match="ermission"):
        read(path)


# --- writing


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    _files.write_whole(path, lambda file: file.write_text("first"))
    path.chmod(0o640)

    def breaks(file: Path) -> None:
        file.write_text("half of")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _files.write_whole(path, breaks)
    assert path.read_text() == "first"
    _files.write_whole(path, lambda file: file.write_text("second"))
    assert path.read_text() == "second"
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["x.txt"]


@pytest.mark.skipif(os.name != "posix", reason="devices and links of POSIX")
def test_what_is_no_regular_file_is_written_to(tmp_path: Path) -> None:
    before = os.stat(os.devnull).st_rdev
    _files.write_whole(os.devnull, lambda file: file.write_text("gone"))
    assert os.stat(os.devnull).st_rdev == before
    (tmp_path / "link").symlink_to(tmp_path / "real")
    _files.write_whole(tmp_path / "link", lambda file: file.write_text("text"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"
    _files.write_whole(tmp_path / ("n" * 250), lambda file: file.write_text("long"))
    assert (tmp_path / ("n" * 250)).read_text() == "long"


WRITERS: dict[str, Callable[[Path], Any]] = {
    "a chart": lambda folder: rl.plotting.save(rl.plotting.roofline("rtx-4090"), folder / "x.svg"),
    "a report": lambda folder: rl.report("qwen3-0.6b", "rtx-4090", path=folder / "x.html"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_is_not_there_is_our_error(writer: str, tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    with pytest.raises(rl.RooflineError):
        WRITERS[writer](tmp_path / "missing")
    plt.close("all")


# --- interruptions

LONG = {
    "sweep": (
        *("sweep", "llama-3.1-8b", "rtx-4090", "--over", "context=0:120000:6000", "--over", "batch=1,2,4,8,16,32"),
        *("-o", "x.svg"),
    ),
    "report": ("report", "llama-3.1-8b", "rtx-4090", "rtx-3090", "h100-sxm", "-o", "x.html"),
    "calibrate": ("calibrate", "-o", "x.yaml"),
    "validate": ("validate", "--plot", "x.png", "--rows", "x.csv"),
}


def started(*arguments: str, folder: Path, **settings: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", **settings}
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import rooflinellm.cli as c, sys; print('up', flush=True); sys.exit(c.main())",
            *arguments,
        ],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("command", LONG)
@pytest.mark.parametrize("after_s", [0.0, pytest.param(2.5, marks=pytest.mark.slow)])
def test_ctrl_c_leaves_no_file_and_no_traceback(command: str, after_s: float, tmp_path: Path) -> None:
    process = started(*LONG[command], folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    if process.returncode == -signal.SIGINT and not after_s:
        # The signal came before the program was entered, or on its first line, so that Python answers it.
        entered = [line for line in said.splitlines() if "rooflinellm" in line]
        assert len(entered) <= 1 and all(line.endswith(", in main") for line in entered), said
    else:
        assert process.returncode in ((130,) if command in ("calibrate", "validate") else (0, 130))
        assert "Traceback" not in said
    left = {file.name for file in tmp_path.iterdir()}
    assert left == set() or (process.returncode == 0 and left == {LONG[command][-1]})


# --- surroundings


def answer_in(tmp_path: Path, *command: str, **settings: str | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | {k: v for k, v in settings.items() if v is not None}
    for name, value in settings.items():
        if value is None:
            environment.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", "rooflinellm", *command],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"HOME": None, "XDG_CONFIG_HOME": None},
        {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent/config"},
        {"HOME": "/dev/null"},
        {"ROOFLINELLM_PATH": "/nonexistent:relative:/dev/null:~nobody/x"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_surroundings_change_no_answer(settings: dict[str, str | None], tmp_path: Path) -> None:
    done = answer_in(tmp_path, "estimate", "qwen3-0.6b", "rtx-4090", "--json", **settings)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["results"][0]["decode"]["tokens_per_s"]["expected"]
    assert found == rl.estimate("qwen3-0.6b", "rtx-4090").decode.tokens_per_s.expected


@pytest.mark.skipif(os.name != "posix", reason="C locale of POSIX")
def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = answer_in(tmp_path, "report", "qwen3-0.6b", "rtx-4090", "-o", "x.html", **settings)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == rl.report("qwen3-0.6b", "rtx-4090").html


def test_many_threads_get_one_answer() -> None:
    asked = [("qwen3-0.6b", "rtx-4090"), ("gpt-oss-20b", "rtx-3090"), ("llama-3.1-8b", "m3-max-40c@64GiB")]
    alone = [rl.estimate(*each, batch=3).to_json() for each in asked]
    found: list[list[str]] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            found.append([rl.estimate(*each, batch=3).to_json() for each in asked])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert found == [alone] * 12


def test_many_processes_write_one_file(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rooflinellm._files import write_whole\n"
        "for i in range(200): write_whole('x.txt', lambda file: file.write_text(sys.argv[1] * 50_000))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code, letter], cwd=tmp_path, env=environment) for letter in "ab"
    ]
    seen = set()
    while any(process.poll() is None for process in processes):
        if (tmp_path / "x.txt").exists():
            seen.add((tmp_path / "x.txt").read_text())
    assert [process.returncode for process in processes] == [0, 0]
    assert seen <= {"a" * 50_000, "b" * 50_000}
    assert [file.name for file in tmp_path.iterdir()] == ["x.txt"]


# --- what a terminal obeys

TEXT = "a <script>alert(1)</script> $\\frac{a_$ & | `b` [bold]x[/bold]"
EVIL = TEXT + "E\x1b[31mVIL\x1b]0;title\x07 \x9b31m \u202ereverse"


@pytest.fixture
def evil(tmp_path: Path) -> str:
    import yaml

    (source,) = (ROOT / "hardware_db" / "devices").rglob("nvidia-geforce-rtx-4090.yaml")
    entry = _yaml.load(source) | {"id": "evil", "name": TEXT, "aliases": [TEXT], "notes": [EVIL]}
    for cited in entry["sources"].values():
        cited |= {"title": EVIL, "url": "javascript:alert(1)//" + EVIL}
    path = tmp_path / "evil.yaml"
    path.write_text(yaml.safe_dump(entry, allow_unicode=False), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("form", ["table", "md", "json", "csv"])
@pytest.mark.parametrize(
    "command",
    [
        ("hardware", "show", "{}"),
        ("hardware", "lint", "{}"),
        ("estimate", "qwen3-0.6b", "{}", "-v"),
        ("estimate", "qwen3-0.6b", "{}", "--engine", "mlx"),
        ("compare", "qwen3-0.6b", "{}", "rtx-3090"),
        ("fit", "qwen3-0.6b", "{}"),
        ("sweep", "llama-3.3-70b", "{}", "--over", "batch=1,2"),
        ("sensitivity", "qwen3-0.6b", "{}"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_no_name_reaches_a_terminal_as_a_command(
    command: tuple[str, ...], form: str, evil: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from rooflinellm.cli import main

    main([*(part.format(evil) for part in command), "--format", form])
    out, err = capsys.readouterr()
    shown = out + err
    assert shown
    bad = {each for each in shown if not each.isprintable() and each != "\n"}
    assert not bad, ascii(bad)
    if form == "json" and out:
        json.loads(out)


def test_a_name_has_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    for name in ('"a\\e[31mb"', '"a\\nb"', '"a\\u202eb"', '"a\\x9bb"'):
        path.write_text(f"schema: 1\nid: evil\nname: {name}\n", encoding="utf-8")
        with pytest.raises(rl.InvalidSpec, match=r"line 3: name: .*control character"):
            rl.hardware(path)


def test_messages_obey_no_codes(capsys: pytest.CaptureFixture[str]) -> None:
    say("error", "a \x1b[31m b\nnext \x9b line")
    assert capsys.readouterr().err == "error: a  [31m b\nnext   line\n"


def test_charts_and_reports_show_a_name_as_text(evil: str) -> None:
    from xml.dom import minidom

    import matplotlib.pyplot as plt

    from rooflinellm.plotting import style

    charts = [
        rl.plotting.roofline(evil),
        rl.plotting.sweep(rl.sweep("qwen3-0.6b", [evil, "rtx-3090"], context_tokens=[0, 1000])),
        rl.plotting.compare(rl.compare("qwen3-0.6b", [evil, "rtx-3090"])),
        rl.plotting.memory(rl.estimate("qwen3-0.6b", evil)),
    ]
    for chart in charts:
        text = style.svg_text(chart)
        minidom.parseString(text)
        assert "<script" not in text
    plt.close("all")
    found = rl.report("qwen3-0.6b", [evil, "rtx-3090"])
    assert "<script" not in found.html
    assert 'href="javascript' not in found.html
    for text in (found.html, found.markdown):
        assert not any(each in text for each in "\x1b\x07\x9b\u202e")


# --- what fuzzing found

HUGE = "9" * 5_000


@pytest.mark.parametrize("number", [HUGE, "9" * 400, "1e400", "inf", "nan", "-1", "1.5"])
def test_results_with_numbers_beyond_all_measure(number: str, tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    texts = [
        "|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n|---|---|---|---|---|---|---|\n"
        f"| 512 | 128 | {number} | 0.480 | 1066.67 | 1.000 | 128.00 |\n| {number} | 1 | 1 | 0.1 | 1.0 | 1.0 | 1.0 |\n",
        f"| model | size | params | backend | test | t/s |\n|---|---|---|---|---|---|\n"
        f"| qwen2 7B Q4_K - Medium | 4.36 GiB | 7.62 B | CUDA | pp{number} | 7340.20 |\n"
        f"| qwen2 7B Q4_K - Medium | {number} GiB | 0.57.62 B | CUDA | pp1 | {number} ± 1.2.3 |\n",
        json.dumps({"model_size": number, "model_n_params": number, "n_prompt": number, "n_gen": 1, "avg_ts": number}),
        f"main: n_kv_max = {number}, n_batch = {number}\n\n|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |"
        "   T_TG s | S_TG t/s |      T s |    S t/s |\n|---|---|---|---|---|---|---|---|---|---|\n"
        f"| 128 | 128 | {number} | {number} | 0.1 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 |\n",
    ]
    for text in texts:
        path.write_text(text, encoding="utf-8")
        try:
            rows = list(readers.read(path))
        except rl.RooflineError:
            continue
        for row in rows:
            assert str(resolve(row))


def test_configurations_of_a_device_that_cannot_be_ordered(tmp_path: Path) -> None:
    (source,) = (ROOT / "hardware_db" / "devices").rglob("apple-m3-max-40c.yaml")
    text = source.read_text(encoding="utf-8")
    assert "configurations_gib: [" in text
    path = tmp_path / "apple-m3-max-40c.yaml"
    for wrong in ("x, ", "128, ", "null, ", "[1], ", "-1, "):
        path.write_text(text.replace("configurations_gib: [", f"configurations_gib: [{wrong}"), encoding="utf-8")
        with pytest.raises(rl.InvalidSpec, match="configurations_gib"):
            rl.hardware(path)


@pytest.mark.parametrize("name", ["h.yaml", "2x h.yaml", "h.yaml + ddr5-6000x2@96GiB", " h.yaml "])
def test_a_file_in_a_name_is_read_as_it_is_now(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = Path(__file__).parents[1] / "hardware_db" / "devices" / "nvidia" / "nvidia-geforce-rtx-4090.yaml"
    text = source.read_text(encoding="utf-8").replace("id: nvidia-geforce-rtx-4090", "id: h")
    found = []
    for rate in ("1008", "504", "1008"):
        slower = text.replace("1008", rate).replace("data_rate_gt_s: 21", f"data_rate_gt_s: {float(rate) / 48}")
        Path("h.yaml").write_text(slower, encoding="utf-8")
        found.append(rl.estimate("llama-3.1-8b", name, engine="llama.cpp").decode.time_s.ideal)
    assert found[0] == found[2] < found[1] / 1.5


def test_a_format_is_more_than_its_id() -> None:
    fmt = catalog.weight_format("gguf:q4_k_m")
    other = fmt.model_copy(update={"rules": catalog.weight_format("gguf:q8_0").rules})
    sizes = [
        rl.estimate("llama-3.1-8b", "rtx-4090", weights=each).memory.resident_weight_bytes for each in (fmt, other, fmt)
    ]
    assert sizes[0] == sizes[2] < sizes[1]
