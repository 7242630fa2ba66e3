"""The rooms of the package and who may import whom, read from the source without importing it."""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

import pytest

PACKAGE = "rooflinellm"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

# The table of the architecture, top row first: a room and the rooms its row names. A room may import what the rooms it
# names may import, and never a room below itself.
ROWS: dict[str, tuple[str, ...]] = {
    "base": (),
    "specs": ("base",),
    "catalog": ("specs",),
    "importers": ("specs",),
    "operators": ("specs",),
    "roofline": ("base",),
    "efficiency": ("specs", "roofline"),
    "render": ("base",),
    "results": ("base", "render"),
    "summary": ("base", "render", "results"),
    "engine": ("catalog", "importers", "operators", "efficiency", "results", "summary"),
    "measurements": ("engine",),
    "calibration": ("engine", "measurements"),
    "api": ("engine", "measurements", "calibration"),
    "launch": ("api",),
    "plotting": ("api", "results"),
    "reporting": ("api", "launch", "results", "plotting"),
    "cli": ("api", "launch", "results", "plotting", "reporting"),
}
BASE = (
    *("units", "errors", "_shown", "metrics", "_yaml", "_strict_yaml", "_parsed", "_resources", "_files", "_numeric"),
    "_kept",
)
ROOM_OF = dict.fromkeys(BASE, "base") | {"__main__": "cli"}
# A result that shows itself: a method takes what stands below its module when it is called.
NAMED_EXCEPTIONS = {("Sweep.plot", "plotting"), ("Estimate.explain", "summary"), ("Estimate._repr_html_", "summary")}
FACADE = "facade"  # rooflinellm/__init__.py: hands out the public names lazily, so it may name every room

# What a base module may import beside the standard library.
BASE_EXTERNAL = {"_strict_yaml": {"yaml"}, "_numeric": {"numpy"}}
# Optional dependencies: never at module level.
OPTIONAL = {"pandas", "huggingface_hub", "torch", "threadpoolctl"}

# No network, no code from data, no other programs.
FORBIDDEN_MODULES = {
    *("socket", "socketserver", "ssl", "urllib", "http", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "xmlrpc"),
    *("pickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"),
    "subprocess",
}
FORBIDDEN_CALLS = {
    *("eval", "exec", "builtins.eval", "builtins.exec"),
    *("os.system", "os.popen"),
    *("yaml.unsafe_load", "yaml.full_load"),
}
ALLOWED_ANYWAY: set[tuple[str, str]] = set()  # (module, what it uses)


class Edge(NamedTuple):
    """One import: of a module of the package or of a top-level module from elsewhere."""

    source: str
    target: str
    name: str  # what is taken from the target, "" for the module itself
    scope: str  # classes and functions around the statement, dotted; "" at module level
    line: int

    @property
    def internal(self) -> bool:
        return self.target == PACKAGE or self.target.startswith(PACKAGE + ".")

    def __str__(self) -> str:
        where = f" in {self.scope}" if self.scope else ""
        return f"{self.source}:{self.line}{where} imports {self.target}" + (f" ({self.name})" if self.name else "")


def module_names(root: Path = ROOT) -> dict[str, Path]:
    """Return the dotted name of each module of the package, and its file."""
    names = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def room(module: str) -> str:
    """Return the row of the table that a module belongs to."""
    if module == PACKAGE:
        return FACADE
    top = module.split(".")[1]
    return ROOM_OF.get(top, top)


def allowed_rooms(row: str) -> set[str]:
    """Return the rooms that a row may import, itself included."""
    return {row}.union(*(allowed_rooms(named) for named in ROWS[row]))


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` for such an expression, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def walk(node: ast.AST, scope: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield every node below `node` with the names of the classes and functions around it."""
    for child in ast.iter_child_nodes(node):
        yield child, scope
        inner = scope
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{scope}.{child.name}".lstrip(".")
        yield from walk(child, inner)


def is_dynamic_import(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in ("import_module", "__import__")


def literal_name(call: ast.Call) -> str:
    """Return the module name that a call is given as a literal, else ""."""
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def edges(source: str, text: str, modules: frozenset[str], is_package: bool = False) -> list[Edge]:
    """Return the imports of one module, those inside functions and those by a literal name included."""
    package = source if is_package else source.rpartition(".")[0]

    def absolute(name: str, level: int) -> str:
        if not level:
            return name
        above = package.split(".")
        return ".".join([*above[: len(above) - level + 1], *filter(None, [name])])

    found = []
    for node, scope in walk(ast.parse(text)):
        targets: list[tuple[str, str]] = []
        if isinstance(node, ast.Import):
            targets = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node.module or "", node.level)
            for alias in node.names:
                below = f"{base}.{alias.name}"
                targets.append((below, "") if below in modules else (base, alias.name))
        elif is_dynamic_import(node) and (name := literal_name(node)):
            level = len(name) - len(name.lstrip("."))
            targets = [(absolute(name[level:], level), "")]
        else:
            continue
        found += [Edge(source, target, name, scope, node.lineno) for target, name in targets]
    return found


def is_allowed(edge: Edge) -> bool:
    """Return whether the table allows an edge inside the package."""
    here, there = room(edge.source), room(edge.target)
    if here == FACADE:
        return True
    if there == FACADE:  # through the facade every room could be reached; the command line may reach every room
        return edge.name == "__version__" or here == "cli"
    if (edge.scope, there) in NAMED_EXCEPTIONS:
        return True
    return there in allowed_rooms(here)


MODULES = module_names()
TREES = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
EDGES = [
    edge
    for name, text in TREES.items()
    for edge in edges(name, text, frozenset(MODULES), MODULES[name].name == "__init__.py")
]


def report(problems: Iterable[object]) -> str:
    return "\n".join(map(str, problems))


def test_every_module_has_a_row() -> None:
    assert MODULES
    strays = [name for name in MODULES if room(name) not in {FACADE, *ROWS}]
    assert not strays, f"in no row of the table: {report(strays)}"


def test_the_table_reads_downwards() -> None:
    rows = list(ROWS)
    for row, named in ROWS.items():
        assert all(rows.index(above) < rows.index(row) for above in named), row


def test_every_import_is_allowed() -> None:
    wrong = [edge for edge in EDGES if edge.internal and not is_allowed(edge)]
    assert not wrong, report(wrong)


def test_every_imported_module_exists() -> None:
    missing = [edge for edge in EDGES if edge.internal and edge.target not in MODULES]
    assert not missing, report(missing)


def test_computed_imports_only_where_every_room_is_allowed() -> None:
    hidden = [
        f"{name}:{node.lineno}"
        for name, text in TREES.items()
        if room(name) not in (FACADE, "cli")
        for node, _ in walk(ast.parse(text))
        if is_dynamic_import(node) and not literal_name(node)
    ]
    assert not hidden, report(hidden)


def test_the_base_needs_only_the_standard_library() -> None:
    wrong = [
        edge
        for edge in EDGES
        if room(edge.source) == "base"
        and not edge.internal
        and (top := edge.target.split(".")[0]) not in sys.stdlib_module_names
        and top not in BASE_EXTERNAL.get(edge.source.split(".")[1], set())
    ]
    assert not wrong, report(wrong)


def test_optional_dependencies_are_imported_inside_functions() -> None:
    type_only = {
        (name, inner.lineno)
        for name, text in TREES.items()
        for node, _ in walk(ast.parse(text))
        if isinstance(node, ast.If) and dotted(node.test).split(".")[-1] == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    wrong = [
        edge
        for edge in EDGES
        if edge.target.split(".")[0] in OPTIONAL and not edge.scope and (edge.source, edge.line) not in type_only
    ]
    assert not wrong, report(wrong)


def test_no_network_no_pickle_no_eval() -> None:
    used = [
        (edge.source, edge.target.split(".")[0], edge.line)
        for edge in EDGES
        if edge.target.split(".")[0] in FORBIDDEN_MODULES
    ]
    for name, text in TREES.items():
        for node, _ in walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            if dotted(node.func) in FORBIDDEN_CALLS:
                used.append((name, dotted(node.func), node.lineno))
            unpickles = [word for word in node.keywords if word.arg == "allow_pickle"]
            if any(not isinstance(word.value, ast.Constant) or word.value.value for word in unpickles):
                used.append((name, "allow_pickle", node.lineno))
    wrong = [use for use in used if use[:2] not in ALLOWED_ANYWAY]
    assert not wrong, report(wrong)


SAMPLE = frozenset(
    f"{PACKAGE}{name}"
    for name in (
        "",
        ".units",
        ".specs",
        ".specs.device",
        ".roofline",
        ".engine",
        ".engine.decode",
        ".results",
        ".api",
        ".plotting",
        ".cli",
    )
)


@pytest.mark.parametrize(
    ("source", "text", "target", "allowed"),
    [
        ("specs.device", "from ..units import GIB", "units", True),
        ("specs.device", "from .. import units", "units", True),
        ("specs.device", "from . import device", "specs.device", True),
        ("specs.device", "from rooflinellm import __version__", "", True),
        ("specs.device", "from rooflinellm import estimate", "", False),
        ("specs.device", "import rooflinellm", "", False),
        ("roofline", "from .specs import Device", "specs", False),
        ("roofline", "def f():\n    import rooflinellm.specs.device as d", "specs.device", False),
        ("roofline", "import importlib\nimportlib.import_module('rooflinellm.specs')", "specs", False),
        ("engine.decode", "from ..roofline import time_s", "roofline", True),
        ("engine.decode", "from ..api import estimate", "api", False),
        ("engine.decode", "from ..specs import device", "specs.device", True),
        ("results", "class Sweep:\n    def plot(self):\n        from . import plotting", "plotting", True),
        ("results", "class Sweep:\n    def show(self):\n        from . import plotting", "plotting", False),
        ("results", "from . import plotting", "plotting", False),
        ("plotting", "from .engine import decode", "engine.decode", True),
        ("api", "from .plotting import roofline", "plotting", False),
        ("cli", "import rooflinellm as rl", "", True),
        ("api", "from .cli import main", "cli", False),
    ],
)
def test_the_reader_of_imports(source: str, text: str, target: str, allowed: bool) -> None:
    (edge,) = [edge for edge in edges(f"{PACKAGE}.{source}", text, SAMPLE) if edge.internal]
    assert edge.target == f"{PACKAGE}.{target}".rstrip(".")
    assert is_allowed(edge) is allowed


def test_a_package_counts_its_dots_from_itself() -> None:
    (edge,) = edges(f"{PACKAGE}.specs", "from .device import Device", SAMPLE, is_package=True)
    assert edge.target == f"{PACKAGE}.specs.device"
