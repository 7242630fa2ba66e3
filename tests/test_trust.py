"""What the package may do: the modules it imports, the calls it makes and the files it writes: short lists, and whole.

A new entry in one of these lists is a decision, never a by-product.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "rooflinellm"
ROOT = Path(__file__).resolve().parents[1]
TREES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / PACKAGE).rglob("*.py"))
}

# The standard library's harmless part, and the dependencies.
MODULES = {
    *("__future__", "abc", "bisect", "codecs", "collections", "contextlib", "csv", "dataclasses", "datetime"),
    *("difflib", "errno", "fnmatch", "functools", "gc", "gzip", "hashlib", "heapq", "html", "io", "itertools", "json"),
    *("math", "numbers", "operator", "os", "pathlib", "pkgutil", "platform", "random", "re", "shlex", "shutil"),
    *("stat", "statistics", "string", "struct", "sys", "textwrap", "threading", "time", "typing", "warnings", "zlib"),
    *("click", "matplotlib", "numpy", "pandas", "pydantic", "scipy", "yaml"),
}
# What only the named modules may import.
MODULES_OF = {
    "ctypes": {"measurements.computer"},  # the size of memory, where only the system's library says
    "huggingface_hub": {"importers.huggingface_fetch"},  # the network, asked for with hf://
    "importlib": {"__init__", "_resources", "cli.app", "measurements.torch_speed"},
    "threadpoolctl": {"api.probe"},
}
TYPES_ONLY = {"importlib.resources.abc"}  # a type of files inside a zip
# Modules that other code might be imported through, with what they import.
COMPUTED_IMPORTS = {"__init__": 2, "cli.app": 1, "measurements.torch_speed": 2}

FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
FORBIDDEN_ATTRIBUTES = {
    *("popen", "fork", "forkpty", "startfile", "unsafe_load", "full_load", "load_all", "load_module"),
    *("exec_module", "read_pickle", "to_pickle", "loadtxt", "genfromtxt", "fromfile", "memmap"),
    *(f"{kind}{form}" for kind in ("exec", "spawn") for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    *("posix_spawn", "posix_spawnp", "urlopen", "urlretrieve", "rmtree", "removedirs", "__reduce__", "__globals__"),
}
# The functions that write files: all through `_files.write_whole`, but for standard streams that are closed.
WRITERS = {
    ("_files", "replace"),
    ("_files", "unlink"),
    ("cli", "open"),
    ("cli.app", "open"),
    ("cli.commands.calibrate", "write_text"),
    ("cli.commands.model", "write_text"),
    ("cli.commands.probe", "write_text"),
    ("cli.commands.report", "write_text"),
    ("measurements.accuracy", "open"),
    ("plotting.style", "savefig"),
    ("reporting.report", "write_text"),
}


def below(name: str) -> str:
    """The name of a module inside the package."""
    return name.removeprefix(f"{PACKAGE}.").removesuffix(".__init__")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def test_the_package_imports_only_what_is_listed() -> None:
    seen: set[str] = set()
    for name, tree in TREES.items():
        for module in imports(tree):
            top = module.partition(".")[0]
            if top == PACKAGE or module in TYPES_ONLY:
                continue
            seen.add(top)
            assert top in MODULES or below(name) in MODULES_OF.get(top, ()), f"{name} imports {module}"
    assert set(MODULES_OF) <= seen  # a list without use is a list too long


def test_computed_imports_are_counted() -> None:
    found = {}
    for name, tree in TREES.items():
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module"
        ]
        if calls:
            found[below(name)] = len(calls)
    assert found == COMPUTED_IMPORTS


def test_no_call_runs_what_data_says() -> None:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                assert node.id not in FORBIDDEN_NAMES, f"{name}:{node.lineno} uses {node.id}"
            elif isinstance(node, ast.Attribute):
                assert node.attr not in FORBIDDEN_ATTRIBUTES, f"{name}:{node.lineno} uses {node.attr}"
                assert ast.unparse(node) != "os.system", f"{name}:{node.lineno}"
            elif isinstance(node, ast.keyword):
                assert node.arg not in ("shell", "allow_pickle"), f"{name}:{node.value.lineno} says {node.arg}"


def test_yaml_is_read_by_the_strict_loader_alone() -> None:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("yaml.load", "yaml.compose", "yaml.parse"):
                assert isinstance(node, ast.Call)
                assert [ast.unparse(each.value) for each in node.keywords] == ["StrictLoader"], f"{name}:{node.lineno}"
            elif called.startswith("yaml."):
                allowed = ("yaml.ScalarNode", "yaml.constructor.ConstructorError")
                assert called in allowed or "dump" in called, f"{name} calls {called}"


def test_only_these_write_files() -> None:
    found = set()
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            modes = [ast.unparse(each) for each in (*node.args, *(word.value for word in node.keywords))]
            writes = called == "open" and any(
                mode in ("'w'", "'wb'", "'a'", "'x'", "'xb'", "'r+b'", "os.O_WRONLY") for mode in modes
            )
            changes = called in (
                "write_text",
                "write_bytes",
                "savefig",
                "unlink",
                "mkdir",
                "makedirs",
                "rename",
                "touch",
            )
            replaces = ast.unparse(node.func) == "os.replace"
            names = [ast.unparse(each) for each in node.args]
            if writes or changes or replaces:
                found.add((below(name), called))
            elif names and names[0] in ("Path.write_text", "Path.write_bytes"):
                found.add((below(name), names[0].rpartition(".")[2]))
    assert found == WRITERS


WATCHED = """
import sys
seen = []
FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pickle.",
             "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.", "shutil.rmtree", "os.remove", "os.rename")

def watch(event, arguments):
    if event.startswith(FORBIDDEN) and event != "socket.gethostname":
        seen.append(event)
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        if ".pyc" not in str(arguments[0]) and "null" not in str(arguments[0]):
            seen.append(f"open {arguments[0]} {arguments[1]}")

import numpy, yaml, pydantic, click, scipy.optimize  # what they do when they are imported is theirs
sys.addaudithook(watch)
from rooflinellm.cli import main
codes = [main(line.split()) for line in sys.argv[1:]]
print(codes, seen, file=sys.stderr)
"""


def test_a_run_opens_no_socket_no_program_and_no_file_to_write(tmp_path: Path) -> None:
    config = ROOT / "tests" / "importers" / "huggingface" / "tiny-llama.json"
    commands = [
        "estimate llama-3.1-8b rtx-4090 --json",
        "sweep qwen3-0.6b rtx-4090 --over batch=1,2",
        "fit gpt-oss-20b rtx-3090",
        f"model show {config}",
        "hardware list",
        "estimate no-such-model rtx-4090",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *commands], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "[0, 0, 0, 0, 0, 2] []", done.stderr[-2000:]


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system ['x']", "!!python/name:os.system ''", "!x {a: 1}"])
def test_yaml_makes_no_objects(text: str) -> None:
    from rooflinellm import _yaml
    from rooflinellm.errors import InvalidSpec

    with pytest.raises(InvalidSpec):
        _yaml.parse(text)
