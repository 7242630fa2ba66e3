"""The wheel holds the databases, works installed and zipped, and the user's own folders are found."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest

from rooflinellm import __version__, _parsed, _resources, _strict_yaml, _yaml, errors

ROOT = Path(__file__).resolve().parents[1]
DATABASES = ("hardware_db", "model_db")
PARSED = "rooflinellm/_data/parsed.dat"
DATA_SUFFIXES = (".yaml", ".csv.gz", ".md")
CODE_SUFFIXES = (".py", ".html", ".css")
DEPENDENCIES = ("numpy", "pydantic", "yaml", "matplotlib", "scipy", "rich", "click")


def files_below(folder: Path) -> set[str]:
    """Return the files of a folder of the checkout as paths from its root, without what tools leave behind."""
    relative = (path.relative_to(ROOT) for path in folder.rglob("*") if path.is_file())
    return {
        path.as_posix()
        for path in relative
        if path.suffix != ".pyc" and not any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    }


def device_ids() -> list[str]:
    return sorted(path.stem for path in (ROOT / "hardware_db" / "devices").rglob("*.yaml"))


def model_ids() -> list[str]:
    folders = [folder for folder in (ROOT / "model_db").iterdir() if folder.is_dir() and folder.name != "formats"]
    return sorted(path.stem for folder in folders for path in folder.rglob("*.yaml"))


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in `folder` as a user without any settings would, and return its output."""
    ours = ("PYTHON", "PIP_", "ROOFLINELLM_", "XDG_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {name: str(folder) for name in ("HOME", "USERPROFILE", "APPDATA", "MPLCONFIGDIR")}
    environment |= {"PYTHONNOUSERSITE": "1", "PYTHONUTF8": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{command} gave {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of the checkout with the build backend that is installed already (no download)."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a fresh virtual environment; return the folder of its programs.

    The dependencies are not installed again, which would need the network: a .pth file lends the new environment those
    that this process uses. It is written after the installation, so that pip sees the wheel as the only package, and it
    comes after the environment's own folder on the path, so that the wheel wins over a copy in the lent folders. A .pth
    file in a lent folder is not followed, so an editable installation there stays out of sight.
    """
    home = tmp_path_factory.mktemp("installation")
    environment = home / "venv"
    run(sys.executable, "-m", "venv", environment, folder=home)
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel, folder=home)
    packages = Path(
        run(programs / "python", "-c", "import sysconfig as s; print(s.get_path('purelib'))", folder=home).strip()
    )
    specs = {name: find_spec(name) for name in DEPENDENCIES}
    lent = {str(Path(spec.origin).parents[1]) for spec in specs.values() if spec is not None and spec.origin}
    (packages / "lent.pth").write_text("".join(f"{folder}\n" for folder in sorted(lent)), encoding="utf-8")
    return programs


def test_the_wheel_holds_the_package_and_the_databases_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    information = f"rooflinellm-{__version__}.dist-info/"
    described = {name.removeprefix(information) for name in names if name.startswith(information)}
    assert described == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/LICENSE-DATA"}

    data = {f"rooflinellm/_data/{name}" for database in DATABASES for name in files_below(ROOT / database)}
    code = files_below(ROOT / "rooflinellm")
    assert {name for name in names if not name.startswith(information)} == code | data | {PARSED}

    assert {name for name in data if not name.endswith(DATA_SUFFIXES)} == set()
    assert {name for name in code if not name.endswith(CODE_SUFFIXES)} == {"rooflinellm/py.typed"}
    for database in DATABASES:
        assert any(name.startswith(f"rooflinellm/_data/{database}/") and name.endswith(".yaml") for name in data)


def test_the_wheel_says_what_its_yaml_says(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(wheel) as archive:
        monkeypatch.setattr(_resources, "parsed", lambda: archive.read(PARSED))
        _parsed._packaged.cache_clear()
        texts = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".yaml")]
        assert len(texts) > 700
        try:
            for text in texts:
                assert _parsed.known(text) == _strict_yaml.parse(text, "text")
            # The file itself counts where it was changed since, were it only in its last character.
            assert _parsed.known(texts[0] + "\n") is _parsed.known("") is _parsed.UNKNOWN
        finally:
            _parsed._packaged.cache_clear()


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": [0, 3]}', b"\xff\xfe\n{}", b'{"%s": [0, 9]}\n{' % (b"0" * 32)])
def test_a_damaged_file_of_parsed_values_is_as_none(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_resources, "parsed", lambda: data)
    monkeypatch.setattr(_parsed, "_digest", lambda text: "0" * 32)
    _parsed._packaged.cache_clear()
    try:
        assert _parsed.known("a: 1") is _parsed.UNKNOWN
        assert _yaml.parse("a: 1") == {"a": 1}
    finally:
        _parsed._packaged.cache_clear()


def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    # On another day, in another folder, with the files' dates as they are: what is built depends on the sources alone.
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("rooflinellm", *DATABASES):
        shutil.copytree(
            ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy
        )
    for name in ("pyproject.toml", "build_parsed.py", "README.md", "LICENSE", "LICENSE-DATA"):
        shutil.copy(ROOT / name, copy / name)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, copy, folder=tmp_path)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_metadata_of_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"rooflinellm-{__version__}.dist-info/METADATA").decode("utf-8"))
    assert (metadata["Name"], metadata["Version"]) == ("rooflinellm", __version__)
    assert metadata["License-Expression"] == "MIT AND CC-BY-4.0"
    required = metadata.get_all("Requires-Dist") or []
    core = [requirement for requirement in required if "extra ==" not in requirement]
    assert len(core) == len(DEPENDENCIES)
    assert not any(limit in requirement.split(";")[0] for requirement in required for limit in ("<", "==", "~="))


def test_an_installed_wheel_answers(installation: Path, tmp_path: Path) -> None:
    where = run(installation / "python", "-c", "import rooflinellm; print(rooflinellm.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(installation.parent)

    program = installation / "rooflinellm"
    answer = json.loads(run(program, "estimate", "llama-3.1-8b", "rtx-4090", "--json", folder=tmp_path))
    assert answer["rooflinellm_version"] == __version__
    assert {"schema_version", "data_version"} <= answer.keys()
    assert answer["results"]
    for result in answer["results"]:  # one a prompt length
        for phase in ("prefill", "decode"):
            rate = result[phase]["tokens_per_s"]
            assert 0 < rate["low"] <= rate["expected"] <= rate["high"] <= rate["ideal"]


@pytest.mark.parametrize(("command", "ids"), [("hardware", device_ids()), ("model", model_ids())])
def test_an_installed_wheel_lists_every_entry(installation: Path, tmp_path: Path, command: str, ids: list[str]) -> None:
    program = installation / "rooflinellm"
    answer = json.loads(run(program, command, "list", "--json", folder=tmp_path))
    (entries,) = [value for value in answer.values() if isinstance(value, list)]
    assert sorted(entry["id"] for entry in entries) == ids
    assert run(program, command, "list", folder=tmp_path).strip()


def test_a_zipped_wheel_answers(wheel: Path, tmp_path: Path) -> None:
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
import rooflinellm as rl
estimate = rl.estimate("llama-3.1-8b", "rtx-4090")
print(json.dumps({
    "file": rl.__file__,
    "hardware": sorted(item.id for item in rl.list_hardware("")),
    "models": sorted(item.id for item in rl.list_models("")),
    "rate": float(estimate.decode.tokens_per_s.expected),
}))
"""
    answer = json.loads(run(sys.executable, "-c", code, wheel, folder=tmp_path))
    assert answer["file"].startswith(str(wheel))
    assert answer["hardware"] == device_ids()
    assert answer["models"] == model_ids()
    assert answer["rate"] > 0


@pytest.mark.parametrize("name", DATABASES)
def test_a_checkout_uses_the_databases_beside_it(name: Literal["hardware_db", "model_db"]) -> None:
    assert _resources.database(name).is_dir()


def test_a_missing_database_is_one_of_our_errors() -> None:
    with pytest.raises(errors.UnreadableFile, match="no_such_db"):
        _resources.database("no_such_db")


class TestUserDirectories:
    @pytest.fixture(autouse=True)
    def _linux_without_settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("ROOFLINELLM_PATH", "XDG_CONFIG_HOME", "APPDATA"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr(sys, "platform", "linux")

    def test_the_named_folders_come_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("ROOFLINELLM_PATH", os.pathsep.join(["/b", "", "~/a", "/b"]))
        expected = [Path("/b"), tmp_path / "a", tmp_path / ".config" / "rooflinellm"]
        assert _resources.user_directories() == expected

    @pytest.mark.parametrize(
        ("platform", "variable", "folder"),
        [
            ("linux", None, "{home}/.config/rooflinellm"),
            ("linux", "XDG_CONFIG_HOME", "/settings/rooflinellm"),
            ("darwin", None, "{home}/Library/Application Support/rooflinellm"),
            ("win32", "APPDATA", "/settings/rooflinellm"),
        ],
    )
    def test_the_configuration_folder(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str | None, folder: str
    ) -> None:
        monkeypatch.setattr(sys, "platform", platform)
        if variable:
            monkeypatch.setenv(variable, "/settings")
        assert _resources.user_directories() == [Path(folder.format(home=tmp_path))]

    def test_a_relative_setting_is_ignored(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", "settings")
        assert _resources.user_directories() == [tmp_path / ".config" / "rooflinellm"]

    @pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
    def test_no_home_is_no_error(self, monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does where it finds no home
        assert _resources.user_directories() == []
