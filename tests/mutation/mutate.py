"""Change one constant or operator of the formulas at a time and see whether a test notices; not part of the tests.

    python tests/mutation/mutate.py --sample 150 --seed 1 [--only operators/] [--jobs 2]

Each mutant is a copy of the package in a temporary folder, against which the quick tests of the formulas run, the
snapshot left out: it holds numbers and knows no reasons. What survives is a formula that no test knows, or a change
that changes nothing; the list says which line and what was changed.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies  # noqa: F401 - what each mutant's process starts with
import matplotlib.figure  # noqa: F401
import numpy  # noqa: F401
import pydantic  # noqa: F401
import pytest
import scipy.optimize  # noqa: F401
import yaml  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("operators", "engine", "roofline.py")
TESTS = (
    *("roofline", "golden", "metrics", "layer_kinds", "formats", "article", "evaluate", "cases_memory", "paging"),
    *("kv_targets", "speculation", "prefix", "batching", "parallel", "placement", "cases_offload", "cases_serving"),
    *("mlx_sizes", "model_entries", "context", "load", "engines", "fit", "disaggregated", "energy", "properties"),
)
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
CALLS = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max"}


class Mutant(NamedTuple):
    """One change: the file, the line, what stands there and what will, and the changed text."""

    file: Path
    line: int
    change: str
    text: str


def _docstrings(tree: ast.AST) -> set[int]:
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _changes(tree: ast.AST) -> Iterator[tuple[int, str, object, str, object]]:
    """Every change: line, description, node, attribute, new value."""
    skip = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skip and type(node.value) in (int, float):
            new = node.value + 1 if node.value in (0, 1, 2) else node.value * 2
            yield node.lineno, f"{node.value} -> {new}", node, "value", new
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OPERATORS:
            other = OPERATORS[type(node.op)]
            yield node.lineno, f"{type(node.op).__name__} -> {other.__name__}", node, "op", other()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
            other = OPERATORS[type(node.ops[0])]
            yield (
                node.lineno,
                f"{type(node.ops[0]).__name__} -> {other.__name__}",
                node,
                "ops",
                [other(), *node.ops[1:]],
            )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield node.lineno, f"{node.func.id} -> {CALLS[node.func.id]}", node.func, "id", CALLS[node.func.id]


def mutants(only: str = "") -> Iterator[Mutant]:
    """All changes of all files; imports, types and messages hold none that count."""
    package = ROOT / "rooflinellm"
    files = [
        file
        for name in FOLDERS
        for file in ([package / name] if name.endswith(".py") else (package / name).glob("*.py"))
    ]
    for file in sorted(files):
        if only not in file.as_posix():
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for line, change, node, attribute, new in _changes(tree):
            old = getattr(node, attribute)
            setattr(node, attribute, new)
            yield Mutant(file, line, change, ast.unparse(tree))
            setattr(node, attribute, old)


def survives(mutant: Mutant, tests: tuple[str, ...], limit_s: float) -> bool:
    """Whether all tests pass with a change."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "rooflinellm", root / "rooflinellm", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("hardware_db", "model_db", "tests", "docs"):
            (root / name).symlink_to(ROOT / name)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, root / name)
        (root / mutant.file.relative_to(ROOT)).write_text(mutant.text, encoding="utf-8")
        process = multiprocessing.get_context("fork").Process(target=_passes, args=(folder, tests))
        process.start()
        process.join(limit_s)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode == 0


def _passes(folder: str, tests: tuple[str, ...]) -> None:
    """In a process of its own, which has the dependencies already: exit with what pytest says of a folder."""
    os.setpgrp()
    os.chdir(folder)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
    command = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-W", "default"]
    code = pytest.main([*command, *(f"tests/test_{name}.py" for name in tests)])
    assert sys.modules["rooflinellm"].__file__ == str(Path(folder) / "rooflinellm" / "__init__.py")
    os._exit(int(code))


def main() -> int:
    """Run a sample and list what survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a file's path")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tests", default=",".join(TESTS), help="names of test files, without test_ and .py")
    parser.add_argument("--limit", type=float, default=900, help="seconds a mutant gets; an endless loop is noticed")
    options = parser.parse_args()
    found = list(mutants(options.only))
    sample = random.Random(options.seed).sample(found, min(options.sample, len(found)))
    tests = tuple(options.tests.split(","))
    started, alive, done = time.perf_counter(), 0, 0

    def tried(mutant: Mutant) -> tuple[Mutant, bool]:
        return mutant, survives(mutant, tests, options.limit)

    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, survived in pool.map(tried, sample):
            done += 1
            alive += survived
            print(f"{done}: {mutant.file.name}:{mutant.line}", end="\r", file=sys.stderr)
            if survived:
                print(f"survives: {mutant.file.relative_to(ROOT)}:{mutant.line}: {mutant.change}", flush=True)
    taken = time.perf_counter() - started
    print(f"{done} of {len(found)} mutants tried in {taken:.0f} s, {alive} survive")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
