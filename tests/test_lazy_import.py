"""`import rooflinellm` costs next to nothing, and hands out every public name all the same."""

import json
import subprocess
import sys

import pytest

import rooflinellm as rl

HEAVY = ("numpy", "pydantic", "yaml", "scipy", "matplotlib", "pandas", "rich", "click", "importlib.metadata")

FUNCTIONS = (
    *("hardware", "system", "model", "list_hardware", "list_models"),
    *("estimate", "sweep", "compare", "fit", "recommend", "sensitivity", "check_claim", "simulate_load", "report"),
    *("validate", "calibrate", "probe"),
)
ERRORS = (
    *("RooflineError", "UnknownName", "AmbiguousName", "MissingSpec", "InvalidSpec"),
    *("UnsupportedModel", "UnreadableFile", "DoesNotFit"),
)


def in_new_process(code: str, *arguments: str) -> list[str]:
    """Run `code`, which prints a JSON list, in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, list)
    return answer


@pytest.mark.parametrize("statement", ["import rooflinellm", "import rooflinellm; dir(rooflinellm)"])
def test_import_loads_nothing_heavy(statement: str) -> None:
    # What the interpreter itself brings at start (a .pth file may import anything) is not ours.
    code = f"""
import sys
before = set(sys.modules)
{statement}
loaded = set(sys.modules) - before
import json
print(json.dumps(sorted(loaded)))
"""
    loaded = in_new_process(code)
    assert "rooflinellm" in loaded
    heavy = [name for name in loaded if any(name == root or name.startswith(root + ".") for root in HEAVY)]
    assert not heavy


def test_every_public_name_resolves() -> None:
    code = """
import json, rooflinellm as rl
unlisted = sorted(set(rl.__all__) - set(dir(rl)))
missing = [name for name in rl.__all__ if not hasattr(rl, name)]
print(json.dumps(unlisted + missing))
"""
    assert in_new_process(code) == []


def test_the_promised_names_are_public() -> None:
    code = "import json, rooflinellm as rl; print(json.dumps(list(rl.__all__)))"
    promised = {*FUNCTIONS, *ERRORS, "Options", "plotting", "__version__"}
    public = set(in_new_process(code))
    assert promised <= public


def test_an_unknown_name_is_an_attribute_error() -> None:
    code = """
import json, rooflinellm as rl
try:
    rl.no_such_name
except AttributeError as error:
    print(json.dumps([str(error)]))
"""
    (message,) = in_new_process(code)
    assert "no_such_name" in message


def test_a_function_survives_the_import_of_a_module_of_its_name() -> None:
    # Python sets a submodule as an attribute of its package; `rl.report` must stay callable after that.
    code = """
import importlib, json, pkgutil, sys
import rooflinellm as rl
for found in pkgutil.walk_packages(rl.__path__, "rooflinellm."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(json.dumps([name for name in sys.argv[1:] if not callable(getattr(rl, name))]))
"""
    assert in_new_process(code, *sorted(FUNCTIONS)) == []


def test_what_the_package_lists_is_what_is_public() -> None:
    assert dir(rl) == sorted(rl.__all__)
