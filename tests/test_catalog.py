"""Names, paths, figures and system strings lead to the right entry or to an error that says what to do."""

import io
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rooflinellm import _resources, catalog
from rooflinellm.errors import (
    AmbiguousName,
    InvalidRequest,
    InvalidSpec,
    MissingSpec,
    RooflineError,
    UnknownName,
    UnreadableFile,
    UnsupportedModel,
)
from rooflinellm.specs.hardware import HardwareSpec, SystemSpec

GIB = 2**30
AD_HOC = "24GiB,1008GB/s,165TFLOP/s@fp16"


def device(id_: str, *aliases: str, name: str = "A device", kind: str = "gpu", more: str = "", memory: str = "") -> str:
    capacity = "" if kind == "cpu" else "  capacity_gib: {value: 24, kind: datasheet, source: s}\n"
    return f"""schema: 1
id: {id_}
name: {name}
aliases: [{", ".join(f'"{alias}"' for alias in aliases)}]
vendor: maker
architecture: first
kind: {kind}
memory:
  type: GDDR6
  bandwidth_gb_s: {{value: 100, kind: datasheet, source: s}}
{capacity}{memory}peaks:
  - {{precision: fp32, accumulate: fp32, unit: vector, tflops: 10, kind: datasheet, source: s}}
sources: {{s: {{title: A data sheet}}}}
{more}"""


def model(id_: str, *aliases: str) -> str:
    listed = "".join(f"\n  - {alias}" for alias in aliases) or " []"
    return f"""schema: 1
id: {id_}
name: A model
aliases:{listed}
family: f
hidden: 64
vocabulary: 100
tied_embeddings: true
max_context_tokens: 128
native_format: hf:bf16
layers:
  - pattern:
      - mixer: {{kind: attention, heads: 4, kv_heads: 2, head_dim: 16}}
        ffn: {{kind: gated, intermediate: 128}}
"""


class Database:
    """Databases on disk, to be filled by a test."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def device(self, id_: str, *aliases: str, **more: Any) -> Path:
        return self.write(f"hardware_db/devices/maker/{id_}.yaml", device(id_, *aliases, **more))

    def model(self, id_: str, *aliases: str) -> Path:
        return self.write(f"model_db/f/{id_}.yaml", model(id_, *aliases))

    def format(self, id_: str, *aliases: str) -> Path:
        family, _, stem = id_.partition(":")
        names = ", ".join(aliases)
        rules = "rules: [{tensors: ['*'], encoding: f16}]\nvectors: f32\n"
        text = f"schema: 1\nid: {id_}\nname: {stem}\naliases: [{names}]\nfamily: {family}\n{rules}"
        return self.write(f"model_db/formats/{family}/{stem}.yaml", text)


@pytest.fixture
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the configuration of whoever runs the tests out of them."""
    for variable in ("XDG_CONFIG_HOME", "HOME", "APPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.delenv("ROOFLINELLM_PATH", raising=False)


@pytest.fixture
def user(tmp_path: Path, no_home: None, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("ROOFLINELLM_PATH", str(tmp_path / "user"))
    return Database(tmp_path / "user")


@pytest.fixture
def packaged(tmp_path: Path, no_home: None, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database in the place of the packaged one."""
    root = tmp_path / "packaged"
    for name in ("hardware_db", "model_db"):
        (root / name).mkdir(parents=True)
    monkeypatch.setattr(_resources, "database", lambda name: root / name)
    return Database(root)


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["acme-x1", "ACME X1", "Acme_X1", " acmex1 ", "acme\N{NON-BREAKING HYPHEN}x1", "X-One"]
)
def test_case_spaces_dashes_and_underscores_do_not_matter(user: Database, name: str) -> None:
    user.device("acme-x1", "x one")
    assert catalog.hardware(name).id == "acme-x1"


@pytest.mark.parametrize("name", ["max", "max 395", "v1 0", "a b", "max+", "openai gpt"])
def test_dots_plus_signs_and_slashes_matter(packaged: Database, name: str) -> None:
    packaged.device("d-1", "max+ 395", "v1.0", "a/b")
    with pytest.raises(UnknownName):
        catalog.hardware(name)
    assert catalog.hardware("MAX+395").id == "d-1"


def test_an_alias_of_several_entries_is_ambiguous(packaged: Database) -> None:
    packaged.device("d-12gb", "d")
    packaged.device("d-9gb", "D")
    packaged.device("d-other")
    with pytest.raises(AmbiguousName) as caught:
        catalog.hardware("d")
    assert caught.value.candidates == ("d-9gb", "d-12gb")
    assert caught.value.exit_code == 2


def test_an_id_wins_over_aliases(packaged: Database) -> None:
    packaged.device("d-1", "d-2", "d2")
    packaged.device("d-2")
    assert catalog.hardware("D 2").id == "d-2"


def test_ids_that_differ_in_a_dash_only(packaged: Database) -> None:
    packaged.device("m-2-13b")
    packaged.device("m-21-3b")
    assert catalog.hardware("m-21-3b").id == "m-21-3b"
    with pytest.raises(AmbiguousName):
        catalog.hardware("m213b")


def test_an_inexact_match_is_a_suggestion(packaged: Database) -> None:
    for stem in ("rtx-4090", "rtx-4080", "rtx-3090", "h100-sxm", "m3-max", "w7900", "x-1"):
        packaged.device(f"maker-{stem}", stem)
    with pytest.raises(UnknownName) as caught:
        catalog.hardware("RTX 4090 Ti")
    assert caught.value.suggestions[0] == "maker-rtx-4090"
    assert 1 <= len(caught.value.suggestions) <= 5
    assert "Did you mean: maker-rtx-4090" in str(caught.value)
    with pytest.raises(UnknownName) as caught:
        catalog.hardware("rxt 4090")
    assert "maker-rtx-4090" in caught.value.suggestions
    with pytest.raises(UnknownName) as caught:
        catalog.hardware("h10")
    assert caught.value.suggestions[0] == "maker-h100-sxm"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("iPhone 16 Pro", "apple-a18-pro-6c"),
        ("iphone-16", "apple-a18-5c"),
        ("raspberry pi 5 8GB", "raspberry-pi-5@8GiB"),
        ("framework desktop ai max+ 395 128GB", "amd-ryzen-ai-max-plus-395-8060s@128GiB"),
        ("M3 Max 128 GB", "apple-m3-max-40c@128GiB"),  # the only one of its kind with as much
        ("m3 max 36gb", "apple-m3-max-30c@36GiB"),
        ("rtx-3090 24GB", "nvidia-geforce-rtx-3090"),
        ("2x rtx-3090 24GB", "2x nvidia-geforce-rtx-3090"),
        ("m4-pro-20c@64GB", "apple-m4-pro-20c@64GiB"),
        ("7950x@64GB", "amd-ryzen-9-7950x@64GiB"),
        ("rtx-4090 + ddr5-5600x2@64 GB", "nvidia-geforce-rtx-4090 + ddr5-5600x2@64GiB"),
        ("rtx-4090 + ddr5-5600x2@64000MB", "nvidia-geforce-rtx-4090 + ddr5-5600x2@64000MB"),
        (
            "rtx-4090 + ddr5-5600x2@64GiB + nvme-gen4@2TB",
            "nvidia-geforce-rtx-4090 + ddr5-5600x2@64GiB + nvme-gen4@2000GB",
        ),
    ],
)
def test_what_things_are_sold_as(name: str, expected: str) -> None:
    found = catalog.system(name)
    assert found.name == expected
    assert catalog.system(expected) == found


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        (
            "iphone",
            ["apple-a17-pro-6c", "apple-a18-5c", "apple-a18-pro-6c", "apple-a19-5c", "apple-a19-pro-6c"],
        ),
        ("MacBook Pro M3 Max", ["apple-m3-max-30c", "apple-m3-max-40c"]),
        ("m3 max macbook pro", ["apple-m3-max-30c", "apple-m3-max-40c"]),
        ("mac-studio-m2-ultra", ["apple-m2-ultra-60c", "apple-m2-ultra-76c"]),
        ("mac mini m4 pro 64GB", ["apple-m4-pro-16c@64GiB", "apple-m4-pro-20c@64GiB"]),
    ],
)
def test_what_several_are_sold_as_is_asked_back(name: str, candidates: list[str]) -> None:
    with pytest.raises(AmbiguousName) as caught:
        catalog.system(name)
    assert list(caught.value.candidates) == candidates


@pytest.mark.parametrize("name", ["rtx-3090 48GB", "m3 max 100GB", "iphone 14", "mac studio a18"])
def test_what_is_sold_as_nothing(name: str) -> None:
    with pytest.raises(UnknownName):
        catalog.system(name)


@pytest.mark.parametrize("amount", ["64GB", "64 GiB", "64GB RAM", "32gb of memory"])
def test_an_amount_of_memory_alone_is_no_part(amount: str) -> None:
    with pytest.raises(InvalidRequest, match="without its kind"):
        catalog.system(f"rtx-4090 + {amount}")


def test_lists_know_products() -> None:
    assert [entry.id for entry in catalog.list_hardware("iphone 16 pro max")] == ["apple-a18-pro-6c"]


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "x" * 5000, "\ud800", 4090, None, b"rtx", ["rtx"]])
@pytest.mark.parametrize("lookup", ["hardware", "system", "model", "engine", "profile", "weight_format", "kv_type"])
def test_what_is_no_name_at_all(lookup: str, name: Any) -> None:
    with pytest.raises(InvalidRequest):
        getattr(catalog, lookup)(name)


def test_a_name_of_dashes_only(user: Database) -> None:
    user.device("d-1", "-", "_")
    with pytest.raises(UnknownName):
        catalog.hardware("--")


@pytest.mark.parametrize(
    "aliases",
    [
        "aliases: [one, 'two', \"three\"]",
        "aliases: [one,\n  two,   # a remark\n  three]",
        "aliases:\n  - one\n  - 'two'\n  - \"three\"  # a remark",
        "aliases:\n- one\n\n# a remark\n- two\n- three",
        "aliases: &names [one, two, three]",
        "aliases:\r\n  - one\r\n  - two\r\n  - three\r",
    ],
)
def test_every_way_to_write_aliases(user: Database, aliases: str) -> None:
    text = device("acme-x1").replace("aliases: []", aliases)
    user.write("hardware_db/devices/maker/acme-x1.yaml", text)
    for name in ("one", "Two", "three"):
        assert catalog.hardware(name).id == "acme-x1"
    (listed,) = catalog.list_hardware("acme")
    assert listed.aliases == catalog.hardware("acme-x1").aliases == ("one", "two", "three")


def test_a_lookup_by_id_opens_one_file(packaged: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        packaged.device(f"d-{number}", f"alias-{number}")
    opened = []
    real = io.open

    def spy(file: Any, *args: Any, **keywords: Any) -> Any:
        opened.append(Path(os.fspath(file)).name if not isinstance(file, int) else file)
        return real(file, *args, **keywords)

    monkeypatch.setattr(io, "open", spy)
    assert catalog.hardware("D 3").id == "d-3"
    assert opened == ["d-3.yaml"]
    catalog.hardware("d-3")
    assert opened == ["d-3.yaml"]
    catalog.hardware("alias-4")
    assert sorted(opened[1:]) == ["d-0.yaml", "d-1.yaml", "d-2.yaml", "d-3.yaml", "d-4.yaml", "d-4.yaml"]
    del opened[:]
    catalog.hardware("alias-2")
    assert opened == ["d-2.yaml"]


def test_the_same_entry_is_the_same_object(user: Database) -> None:
    user.device("d-1", "one")
    assert catalog.hardware("d-1") is catalog.hardware("one")
    assert catalog.hardware(catalog.hardware("d-1")) is catalog.hardware("d-1")


def test_lookups_from_many_threads(packaged: Database) -> None:
    for number in range(40):
        packaged.device(f"d-{number}", f"alias {number}")
    wrong: list[object] = []
    start = threading.Barrier(8)

    def look() -> None:
        start.wait()
        for number in range(40):
            try:
                if catalog.hardware(f"alias-{number}").id != f"d-{number}":
                    wrong.append(number)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- Whose file -------------------------------------------------------------------------------------------------------


def test_the_order_of_the_folders(
    tmp_path: Path, packaged: Database, user: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = Database(tmp_path / "second")
    monkeypatch.setenv("ROOFLINELLM_PATH", os.pathsep.join([str(user.root), str(second.root)]))
    packaged.device("d-1", "one", name="packaged")
    assert catalog.hardware("one").name == "packaged"
    second.device("d-1", name="second")
    assert catalog.hardware("d-1").name == "second"
    user.device("d-1", "uno", name="first")
    assert catalog.hardware("d-1").name == "first"
    # Whoever replaces an entry keeps the names it is known by.
    assert catalog.hardware("one").name == catalog.hardware("uno").name == "first"
    (listed,) = catalog.list_hardware()
    assert (listed.name, listed.aliases) == ("first", ("uno", "one"))
    explicit = Database(tmp_path / "elsewhere").device("d-1", name="explicit")
    assert catalog.hardware(explicit).name == catalog.hardware(str(explicit)).name == "explicit"


def test_the_configuration_folder(tmp_path: Path, packaged: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_resources, "user_directories", lambda: [tmp_path / "absent", tmp_path / "configuration"])
    packaged.model("m-1")
    Database(tmp_path / "configuration").model("m-2", "org/M-2")
    assert [entry.id for entry in catalog.list_models()] == ["m-1", "m-2"]
    assert catalog.model("org/m-2").id == "m-2"


def test_files_need_no_folder_of_a_vendor(user: Database) -> None:
    user.write("hardware_db/devices/acme-x1.yml", device("acme-x1"))
    assert catalog.hardware("acme x1").id == "acme-x1"


def test_an_edited_file_is_read_again(user: Database) -> None:
    user.device("acme-x1", name="before")
    assert catalog.hardware("acme-x1").name == "before"
    file = user.device("acme-x1", "new-alias", name="afterwards")
    assert catalog.hardware("acme-x1").name == catalog.hardware(file).name == "afterwards"
    assert catalog.hardware("new-alias").id == "acme-x1"
    file.unlink()
    with pytest.raises(UnknownName):
        catalog.hardware("acme-x1")


BROKEN = {
    "no YAML": ("schema: 1\nid: [broken\n", InvalidSpec, "line"),
    "not text": ("\x00\x01", InvalidSpec, ""),
    "no mapping": ("- 1\n", InvalidSpec, "mapping"),
    "wrong field": (device("broken").replace("kind: gpu", "kind: toaster"), InvalidSpec, "line 7: kind: "),
    "a number for an alias": (device("broken").replace("[]", "[4091]"), InvalidSpec, "aliases.0"),
    "another id": (device("other-id"), InvalidSpec, "other-id"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_fails_when_asked_for_and_never_else(user: Database, case: str) -> None:
    text, error, message = BROKEN[case]
    user.write("hardware_db/devices/maker/broken.yaml", text)
    user.device("whole", "entire")
    assert catalog.hardware("entire").id == "whole"
    assert {"broken", "whole"} <= {entry.id for entry in catalog.list_hardware()}
    with pytest.raises(error) as caught:
        catalog.hardware("broken")
    assert "broken.yaml" in str(caught.value)
    assert message in str(caught.value)
    assert caught.value.exit_code == 3


def test_files_that_cannot_be_read(user: Database) -> None:
    user.device("whole", "entire")
    (user.root / "hardware_db/devices/maker/folder.yaml").mkdir()
    (user.root / "hardware_db/devices/maker/latin.yaml").write_bytes(b"schema: 1\nid: latin\nname: \xe9\n")
    assert catalog.hardware("entire").id == "whole"
    for name in ("folder", "latin"):
        with pytest.raises(UnreadableFile, match=f"{name}.yaml"):
            catalog.hardware(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_never_waited_for(user: Database, tmp_path: Path) -> None:
    user.device("whole", "entire")
    os.mkfifo(user.root / "hardware_db/devices/maker/pipe.yaml")
    assert catalog.hardware("entire").id == "whole"
    for name in ("pipe", user.root / "hardware_db/devices/maker/pipe.yaml"):
        with pytest.raises(UnreadableFile):
            catalog.hardware(name)


def test_two_files_of_one_id(user: Database) -> None:
    user.write("hardware_db/devices/a/twin.yaml", device("twin"))
    user.write("hardware_db/devices/b/twin.yaml", device("twin"))
    with pytest.raises(InvalidSpec, match=r"twin\.yaml"):
        catalog.hardware("twin")


def test_paths(tmp_path: Path, no_home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Database(tmp_path).write("any name.yaml", device("acme-x1"))
    monkeypatch.chdir(tmp_path)
    assert catalog.hardware("any name.yaml") == catalog.hardware(file)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "own.YAML").write_text(device("own"), encoding="utf-8")
    if os.name == "posix":
        assert catalog.hardware("~/own.YAML").id == "own"
    for missing in ("absent.yaml", "~no-such-user/x.yaml", tmp_path, Path("rtx-4090")):
        with pytest.raises(UnreadableFile):
            catalog.hardware(missing)
    model_file = Database(tmp_path).write("m.yml", model("m-1"))
    assert catalog.model(model_file).id == "m-1"
    with pytest.raises(InvalidSpec):
        catalog.model(file)


def test_databases_inside_a_zip_file(packaged: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged.device("d-1", "one")
    packaged.model("m-1", "org/M")
    packaged.format("gguf:q8_0")
    archive = tmp_path / "wheel.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for file in packaged.root.rglob("*.yaml"):
            target.write(file, file.relative_to(packaged.root))
    with zipfile.ZipFile(archive) as source:
        roots = {name: zipfile.Path(source, f"{name}/") for name in ("hardware_db", "model_db")}
        monkeypatch.setattr(_resources, "database", roots.__getitem__)
        assert catalog.hardware("one").id == "d-1"
        assert catalog.model("org/m").id == "m-1"
        assert catalog.weight_format("Q8_0").id == "gguf:q8_0"
        assert [entry.id for entry in catalog.list_models()] == ["m-1"]


# --- Ad hoc devices ---------------------------------------------------------------------------------------------------


def test_an_ad_hoc_device() -> None:
    gpu = catalog.hardware("24GiB,1008GB/s,165TFLOP/s@fp16,330TFLOP/s@int8,82.6TFLOPS@fp32")
    assert gpu.ad_hoc
    assert (gpu.vendor, gpu.architecture, gpu.kind) == ("ad-hoc", "ad-hoc", "gpu")
    assert gpu.name == "24GiB,1008GB/s,165TFLOP/s@fp16,330TFLOP/s@int8,82.6TFLOPS@fp32"
    assert gpu.memory_bytes == gpu.usable_bytes == 24 * GIB
    assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(1008e9)
    assert gpu.peaks == pytest.approx(
        {"fp16.fp32": 165e12, "fp16.fp16": 165e12, "int8.int32": 330e12, "fp32.fp32": 82.6e12}
    )
    assert {key: gpu.peak_unit(key) for key in gpu.peaks} == {
        "fp16.fp32": "matrix",
        "fp16.fp16": "matrix",
        "int8.int32": "matrix",
        "fp32.fp32": "vector",
    }
    assert gpu.cache is None
    assert not gpu.links
    assert gpu.clock_headroom == 1
    with pytest.raises(MissingSpec):
        gpu.peak("bf16.fp32")


@pytest.mark.parametrize(
    ("precision", "keys"),
    [
        ("fp64", ["fp64.fp64"]),
        ("fp32", ["fp32.fp32"]),
        ("tf32", ["tf32.fp32"]),
        ("FP16", ["fp16.fp16", "fp16.fp32"]),
        ("fp16.fp32", ["fp16.fp32"]),
        ("bf16", ["bf16.fp32"]),
        ("fp8", ["fp8.fp16", "fp8.fp32"]),
        ("fp6", ["fp6.fp32"]),
        ("fp4", ["fp4.fp32"]),
        ("int8", ["int8.int32"]),
        ("int4", ["int4.int32"]),
    ],
)
def test_a_precision_stands_for_all_its_accumulators(precision: str, keys: list[str]) -> None:
    assert sorted(catalog.hardware(f"1GiB,1GB/s,1TOPS@{precision}").peaks) == keys


def test_an_exact_peak_wins_over_a_general_one() -> None:
    gpu = catalog.hardware(" 24 GiB , 1.008 TB/s , 330 TFLOPS @ fp16 , 165 TFLOP/s @ FP16.FP32 ")
    assert gpu.peaks == {"fp16.fp32": 165e12, "fp16.fp16": 330e12}
    assert gpu.memory_bandwidth_bytes_per_s == 1008e9


def test_decimal_and_binary_capacities_stay_apart() -> None:
    assert catalog.hardware("24GB,1GB/s,1TFLOP/s@fp16").memory_bytes == 24e9


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("24GiB,1008GB/s", "at least one peak"),
        (",", "at least one peak"),
        ("24GiB,1008GB/s,", "precision"),
        ("24GiB,1008GB/s,165TFLOP/s", "precision"),
        ("24GiB,1008GB/s,165TFLOP/s@fp17", "fp17"),
        ("24GiB,1008GB/s,165TFLOP/s@int8.fp16", "int8.int32"),
        ("24GiB,1008GB/s,165TFLOP/s@fp16@48GiB", "precision"),
        ("24GiB,1008GB/s,1TFLOP/s@fp16,2TFLOP/s@fp16", "twice"),
        ("24GiB,1008GB/s,1TFLOP/s@fp16.fp16,2TFLOP/s@fp16.fp16", "twice"),
        ("24GiB,1008gb/s,165TFLOP/s@fp16", "bits"),
        ("24GiB,1,008GB/s,165TFLOP/s@fp16", "bandwidth"),
        ("1008GB/s,24GiB,165TFLOP/s@fp16", "memory"),
        ("0GiB,1008GB/s,165TFLOP/s@fp16", "more than 0"),
        ("-1GiB,1008GB/s,165TFLOP/s@fp16", "memory"),
        ("1B,1008GB/s,165TFLOP/s@fp16", "1 MiB"),
        ("1e9TiB,1008GB/s,165TFLOP/s@fp16", "1 PiB"),
        ("24GiB,1e30GB/s,165TFLOP/s@fp16", "beyond every machine"),
        ("24GiB,1008GB/s,1e-320TFLOP/s@fp16", "beyond every machine"),
        ("24\N{KELVIN SIGN}iB,1008GB/s,165TFLOP/s@fp16", "plain letters"),
    ],
)
def test_figures_that_are_none(text: str, part: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        catalog.hardware(text)
    assert part in str(caught.value)
    assert "24GiB,1008GB/s,165TFLOP/s@fp16" in str(caught.value)  # how to write it


# --- Systems ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rigs(packaged: Database) -> Iterator[None]:
    packaged.device("acme-a1", "a1", "4090")
    packaged.device("acme-b2", "b2", "2x")
    packaged.device("acme-max-plus", "acme max+ 395")
    packaged.device("acme-c3+npu")
    packaged.device("soc-m3", "m3 max", kind="soc", memory="  unified: true\n")
    packaged.device("apu-780", "780m", kind="apu", memory="  unified: true\n")
    packaged.device("cpu-7950x", "7950x", kind="cpu")
    packaged.device("cpu-5800x3d", "5800x3d", kind="cpu")
    packaged.device("d-8gb", "ambiguous")
    packaged.device("d-16gb", "ambiguous")
    yield


@pytest.mark.parametrize(
    ("text", "name", "count", "host"),
    [
        ("a1", "acme-a1", 1, None),
        ("4090", "acme-a1", 1, None),
        ("2x", "acme-b2", 1, None),
        ("2x 2x", "2x acme-b2", 2, None),
        ("2x a1", "2x acme-a1", 2, None),
        ("2xA1", "2x acme-a1", 2, None),
        ("2 X a1", "2x acme-a1", 2, None),
        ("2×a1", "2x acme-a1", 2, None),
        ("02x 4090", "2x acme-a1", 2, None),
        ("1024x a1", "1024x acme-a1", 1024, None),
        ("a1 + a1 + 2x 4090", "4x acme-a1", 4, None),
        ("2x a1 + ddr5-5600x2@64GiB", "2x acme-a1 + ddr5-5600x2@64GiB", 2, (89.6e9, 64 * GIB)),
        ("DDR5 5600 x2 @ 64 GB+a1", "acme-a1 + ddr5-5600x2@64GiB", 1, (89.6e9, 64 * GIB)),
        ("a1 + ddr5-5600×2", "acme-a1 + ddr5-5600x2", 1, (89.6e9, None)),
        ("a1 + ddr4-3200x2", "acme-a1 + ddr4-3200x2", 1, (51.2e9, None)),
        ("a1 + ddr5-4800x12@1.5TiB", "acme-a1 + ddr5-4800x12@1536GiB", 1, (460.8e9, 1536 * GIB)),
        ("a1 + ddr5-4800MT/s x 12", "acme-a1 + ddr5-4800x12", 1, (460.8e9, None)),
        ("a1 + lpddr5x-8533@128bit", "acme-a1 + lpddr5x-8533@128bit", 1, (136.528e9, None)),
        ("a1 + LPDDR5X-8533@128-bit@32GiB", "acme-a1 + lpddr5x-8533@128bit@32GiB", 1, (136.528e9, 32 * GIB)),
        ("m3-max@64GiB", "soc-m3@64GiB", 1, None),
        ("2x a1@48GiB", "2x acme-a1@48GiB", 2, None),
        ("acme max+ 395", "acme-max-plus", 1, None),
        ("2x Acme MAX+ 395 + ddr5-5600x2", "2x acme-max-plus + ddr5-5600x2", 2, (89.6e9, None)),
        ("acme-c3+npu", "acme-c3+npu", 1, None),
        ("ddr4-3200x2 + 3x acme c3+npu", "3x acme-c3+npu + ddr4-3200x2", 3, (51.2e9, None)),
        ("ddr5-5600x2 + acme max+ 395@64GiB", "acme-max-plus@64GiB + ddr5-5600x2", 1, (89.6e9, None)),
        (AD_HOC, AD_HOC, 1, None),
        ("2x 24 GiB, 1008 GB/s, 165 TFLOP/s @ fp16", f"2x {AD_HOC}", 2, None),
        (f"{AD_HOC} + ddr5-5600x2@64GiB", f"{AD_HOC} + ddr5-5600x2@64GiB", 1, (89.6e9, 64 * GIB)),
        ("24GiB,1.008e+3GB/s,165TFLOP/s@fp16.fp32", "24GiB,1.008e+3GB/s,165TFLOP/s@fp16.fp32", 1, None),
    ],
)
@pytest.mark.usefixtures("rigs")
def test_a_system(text: str, name: str, count: int, host: tuple[float, int | None] | None) -> None:
    rig = catalog.system(text)
    assert (rig.name, rig.id, rig.count) == (name, name, count)
    found = rig.host and (rig.host.bandwidth_bytes_per_s, rig.host.capacity_bytes)
    assert found == (host and (pytest.approx(host[0]), host[1]))
    assert catalog.system(rig.name) == rig
    assert catalog.system(rig) is rig


@pytest.mark.usefixtures("rigs")
def test_a_capacity_behind_a_device() -> None:
    rig = catalog.system("m3-max@64GiB")
    assert rig.device.memory_bytes == 64 * GIB
    assert catalog.hardware("m3-max").memory_bytes == 24 * GIB
    assert catalog.system(rig.device).name == "soc-m3@64GiB"


@pytest.mark.usefixtures("rigs")
def test_a_processor_beside_an_accelerator_is_the_host() -> None:
    rig = catalog.system("a1 + 7950x + ddr5-6000x2@96GiB")
    assert rig.name == "acme-a1 + cpu-7950x + ddr5-6000x2@96GiB"
    assert (rig.device.id, rig.count) == ("acme-a1", 1)
    assert rig.host_cpu is not None
    assert rig.host_cpu.id == "cpu-7950x"
    assert rig.host is not None
    assert (rig.host.bandwidth_bytes_per_s, rig.host.capacity_bytes) == (pytest.approx(96e9), 96 * GIB)
    assert catalog.system("ddr5-6000x2@96GiB+7950X+A1") == rig


@pytest.mark.usefixtures("rigs")
def test_a_host_processor_without_memory_brings_its_rated_memory() -> None:
    rig = catalog.system("a1 + 7950x")
    assert rig.host is not None
    assert (rig.host.bandwidth_bytes_per_s, rig.host.capacity_bytes) == (pytest.approx(100e9), None)
    rig = catalog.system("a1 + 7950x@64GiB")
    assert rig.host is not None
    assert rig.host.capacity_bytes == 64 * GIB
    assert catalog.system(rig.name) == rig


@pytest.mark.usefixtures("rigs")
def test_a_processor_alone_is_the_device() -> None:
    rig = catalog.system("7950x")
    assert (rig.device.id, rig.device.memory_bytes, rig.host, rig.host_cpu) == ("cpu-7950x", None, None, None)
    rig = catalog.system("7950x + ddr5-6000x2@96GiB")
    assert rig.name == "cpu-7950x + ddr5-6000x2@96GiB"
    assert rig.device.memory_bandwidth_bytes_per_s == pytest.approx(96e9)
    assert rig.device.memory_bytes == 96 * GIB
    assert rig.device.memory.type == "DDR5"
    assert rig.host is None
    assert catalog.system(rig.name) == rig
    assert catalog.hardware("7950x").memory_bandwidth_bytes_per_s == pytest.approx(100e9)
    assert catalog.system("5800x3d").device.id == "cpu-5800x3d"


@pytest.mark.usefixtures("rigs")
def test_two_processors_share_the_memory_of_the_board() -> None:
    rig = catalog.system("2x 7950x + ddr5-4800x24@768GiB")
    single = catalog.hardware("7950x")
    assert rig.count == 1
    assert rig.device.memory_bandwidth_bytes_per_s == pytest.approx(921.6e9)
    assert rig.device.memory_bytes == 768 * GIB
    assert rig.device.peaks == {key: 2 * rate for key, rate in single.peaks.items()}
    assert catalog.system(rig.name) == rig
    rated = catalog.system("2x 7950x")
    assert rated.device.memory_bandwidth_bytes_per_s == 2 * single.memory_bandwidth_bytes_per_s
    beside = catalog.system("a1 + 2x 7950x + ddr5-4800x24@768GiB")
    assert beside.host_cpu is not None and beside.host_cpu.peaks == rig.device.peaks
    assert beside.host is not None and beside.host.bandwidth_bytes_per_s == pytest.approx(921.6e9)
    assert catalog.system(beside.name) == beside


@pytest.mark.usefixtures("rigs")
def test_two_computers_are_not_a_board_of_two_processors() -> None:
    rig = catalog.system("2x 7950x + 10gbe")
    assert (rig.count, rig.device.peaks) == (2, catalog.hardware("7950x").peaks)


@pytest.mark.usefixtures("rigs")
def test_the_memory_of_an_integrated_gpu_is_the_systems() -> None:
    rig = catalog.system("780m + ddr5-5600x2@32GiB")
    assert rig.device.memory_bandwidth_bytes_per_s == pytest.approx(89.6e9)
    assert rig.device.memory_bytes == 32 * GIB
    assert rig.host is None
    with pytest.raises(InvalidRequest, match="soc-m3@64GiB"):
        catalog.system("m3-max + ddr5-5600x2")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0x a1", "1 to 1,024"),
        ("-2x a1", "1 to 1,024"),
        ("1025x a1", "1 to 1,024"),
        ("1000x a1 + 1000x a1", "1 to 1,024"),
        ("1.5x a1", "1 to 1,024"),
        ("9" * 1500 + "x a1", "1 to 1,024"),
        ("7950x + 5800x3d", "different kinds"),
        ("a1 + 10gbe + 5gbe", "twice"),
        ("a1 + 0gbe", "Gbit/s"),
        ("10gbe", "no device"),
        ("a1 + 7950x + 5800x3d", "different kinds"),
        ("a1 +", "empty part"),
        ("+", "empty part"),
        ("a1 ++ ddr5-5600x2", "empty part"),
        ("ddr5-5600x2@64GiB", "no device"),
        ("a1 + ddr5-5600x2 + ddr4-3200x2", "twice"),
        ("a1 + 7950x@64GiB + ddr5-5600x2@64GiB", "twice"),
        ("7950x@64GiB + ddr5-5600x2@64GiB", "twice"),
        ("a1 + ddr5-5600", "ddr5-5600x2"),
        ("a1 + ddr5-5600@64GiB", "ddr5-5600x2"),
        ("a1 + ddr5-5600x0", "1 to 128 channels"),
        ("a1 + ddr5-5600x129", "1 to 128 channels"),
        ("a1 + ddr5-5600x2@128bit", "give one"),
        ("a1 + ddr5-5600@4bit", "8 to 8,192 bits"),
        ("a1 + lpddr5x-8533x4", "128bit"),
        ("a1 + ddr5", "ddr5-5600x2@64GiB"),
        ("a1 + 2x ddr5-5600@32GiB", "ddr5-5600x2@64GiB"),
        ("a1 + ddr5-5600x2@lots", "memory"),
        ("a1 + ddr5-5600x2@64gb", "bits"),
        ("a1@fp16", "fp16"),
        ("a1@0GiB", "more than 0"),
        ("a1@1B", "1 MiB"),
        ("a1, ddr5-5600x2", "ad hoc device"),
        ("+".join(["a1"] * 17), "17 parts"),
    ],
)
@pytest.mark.usefixtures("rigs")
def test_systems_that_are_none(text: str, part: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        catalog.system(text)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2x a11", "'a11'"),
        ("3x a11@48GiB + ddr5-5600x2", "'a11'"),
        ("7951x3d", "'7951x3d'"),
        ("a1 + nothing", "'nothing'"),
        ("a1 ddr5-5600x2", "'a1 ddr5-5600x2'"),
    ],
)
@pytest.mark.usefixtures("rigs")
def test_the_unknown_part_of_a_system_is_named(text: str, name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        catalog.system(text)
    assert name in str(caught.value)
    if name == "'a11'":
        assert caught.value.suggestions[0] == "acme-a1"


@pytest.mark.usefixtures("rigs")
def test_an_ambiguous_part_of_a_system() -> None:
    for text in ("ambiguous", "2x ambiguous + ddr5-5600x2", "a1 + ambiguous"):
        with pytest.raises(AmbiguousName) as caught:
            catalog.system(text)
        assert caught.value.candidates == ("d-8gb", "d-16gb")


@pytest.mark.usefixtures("rigs")
def test_a_system_of_a_path(user: Database) -> None:
    file = user.write("my + own.yaml", device("own"))
    assert catalog.system(f"2x {file} + ddr5-5600x2").name == "2x own + ddr5-5600x2"
    assert catalog.system(f"{file}@48GiB").device.memory_bytes == 48 * GIB
    assert catalog.system(file).name == "own"


@pytest.mark.usefixtures("rigs")
def test_a_device_is_no_system() -> None:
    for text in ("2x a1", "a1@48GiB", "a1 + ddr5-5600x2"):
        with pytest.raises(UnknownName, match=r"system\(\)"):
            catalog.hardware(text)
    assert catalog.system(catalog.hardware("a1")) == catalog.system("a1")
    assert catalog.system(catalog.hardware(AD_HOC)) == catalog.system(AD_HOC)


# --- Models -----------------------------------------------------------------------------------------------------------


def test_models(user: Database) -> None:
    user.model("acme-1b", "AcmeAI/Acme-1B-Instruct", "acme:1b")
    for name in ("acme-1b", "ACME 1B", "acmeai/acme-1b-instruct", "acme:1b"):
        assert catalog.model(name).id == "acme-1b"
    assert catalog.model(catalog.model("acme-1b")) is catalog.model("acme-1b")
    with pytest.raises(UnknownName, match=r"config\.json") as caught:
        catalog.model("acmeai/acme-2b-instruct")
    assert caught.value.suggestions[0] == "acme-1b"


def test_what_importers_read(user: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user.model("acme-1b")
    monkeypatch.chdir(tmp_path)
    for folder in ("acme-1b", "checkpoint"):
        (tmp_path / folder).mkdir()
    assert catalog.import_path("acme-1b") is None
    assert catalog.model("acme-1b").id == "acme-1b"
    for name in ("checkpoint", "./acme-1b", "a.json", "b.GGUF", "c.safetensors", Path("checkpoint")):
        assert catalog.import_path(name) == Path(name)
        with pytest.raises(UnsupportedModel, match="importing"):
            catalog.model(name)
    assert catalog.import_path("absent") is None
    assert catalog.import_path("absent.yaml") is None


# --- Formats ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def formats(packaged: Database) -> Iterator[None]:
    for id_, aliases in {
        "gguf:q4_k_m": [],
        "gguf:f16": ["fp16"],
        "gguf:bf16": [],
        "gguf:mxfp4": ["mxfp4_moe"],
        "gguf:nvfp4": [],
        "hf:fp16": ["float16"],
        "hf:bf16": [],
        "hf:mxfp4": [],
        "hf:nvfp4": [],
        "hf:awq": ["awq-int4"],
        "mlx:4bit": [],
    }.items():
        packaged.format(id_, *aliases)
    encodings = """schema: 1
encodings:
  f16: {block_elements: 1, block_bytes: 2, source: s}
  q8_0: {block_elements: 32, block_bytes: 34, source: s}
kv_types:
  f16: {encoding: f16, aliases: [fp16, q8_0]}
  q8_0: {encoding: q8_0}
sources: {s: {title: ggml}}
"""
    packaged.write("model_db/formats/encodings.yaml", encodings)
    yield


@pytest.mark.parametrize(
    ("name", "families", "found"),
    [
        ("Q4_K_M", ("gguf",), "gguf:q4_k_m"),
        ("q4km", None, "gguf:q4_k_m"),
        ("gguf:Q4_K_M", ("hf", "gguf"), "gguf:q4_k_m"),
        ("MXFP4", ("gguf",), "gguf:mxfp4"),
        ("MXFP4", ("hf", "gguf"), "hf:mxfp4"),
        ("MXFP4", ("hf",), "hf:mxfp4"),
        ("hf:mxfp4", None, "hf:mxfp4"),
        ("MXFP4_MoE", ("hf", "gguf"), "gguf:mxfp4"),
        ("mlx-4bit", None, "mlx:4bit"),
        ("MLX 4bit", ("mlx",), "mlx:4bit"),
        ("4bit", ("mlx",), "mlx:4bit"),
        ("fp16", ("gguf",), "gguf:f16"),
        ("fp16", ("hf",), "hf:fp16"),
        ("AWQ-INT4", None, "hf:awq"),
    ],
)
@pytest.mark.usefixtures("formats")
def test_formats_resolve_within_the_families(name: str, families: tuple[str, ...] | None, found: str) -> None:
    spec = catalog.weight_format(name, families)
    assert spec.id == found
    assert catalog.weight_format(spec, ("hf",)) is spec


@pytest.mark.usefixtures("formats")
def test_formats_that_are_none() -> None:
    with pytest.raises(AmbiguousName) as ambiguous:
        catalog.weight_format("mxfp4")
    assert ambiguous.value.candidates == ("gguf:mxfp4", "hf:mxfp4")
    with pytest.raises(UnknownName) as unknown:
        catalog.weight_format("Q4_K_X", ("gguf", "hf"))
    assert unknown.value.suggestions[0] == "gguf:q4_k_m"
    for name, families in (("awq", ("gguf",)), ("hf:awq", ("gguf",)), ("awq", ("unheard-of",))):
        with pytest.raises(InvalidRequest):
            catalog.weight_format(name, families)
    for name in ("gguf:", "gguf", ":", "xx:q4_k_m", "hf:q4_k_m"):
        with pytest.raises(UnknownName):
            catalog.weight_format(name)


@pytest.mark.usefixtures("formats")
def test_which_names_are_gguf_types() -> None:
    for name in ("Q4_K_M", "q4-k-m", "MXFP4", "BF16", "F16", "gguf:nvfp4", "gguf:fp16"):
        assert catalog.gguf_type(name), name
    for name in ("nvfp4", "NVFP4", "fp16", "awq", "mlx-4bit", "hf:mxfp4", "zzz"):
        assert not catalog.gguf_type(name), name


@pytest.mark.usefixtures("formats")
def test_kv_types_and_encodings() -> None:
    assert [catalog.kv_type(name) for name in ("f16", "FP16", "q8_0", "Q8-0")] == ["f16", "f16", "q8_0", "q8_0"]
    assert catalog.encodings() is catalog.encodings()
    assert catalog.encodings().encodings["q8_0"].bits_per_element == 8.5
    with pytest.raises(UnknownName, match="f16, q8_0") as caught:
        catalog.kv_type("q8_1")
    assert caught.value.suggestions == ("q8_0",)


@pytest.mark.usefixtures("formats")
def test_a_table_of_encodings_of_ones_own(user: Database) -> None:
    text = "schema: 1\nencodings: {f8: {block_elements: 1, block_bytes: 1, source: s}}\n"
    user.write(
        "model_db/formats/encodings.yaml", f"{text}kv_types: {{f8: {{encoding: f8}}}}\nsources: {{s: {{title: t}}}}\n"
    )
    assert catalog.kv_type("F8") == "f8"


# --- Engines and profiles ---------------------------------------------------------------------------------------------

ENGINE = """schema: 1
id: acme.cpp
name: acme.cpp
aliases: [acme]
format_families: [gguf]
backends:
  cuda: &backend
    rules: [{weights: ["*"], use: [fp16.fp32]}]
    attention: [{use: [fp16.fp32]}]
    source: s
  vulkan: *backend
prefill_chunk: 512
batch_tokens: 2048
several_devices: layer_split
kv: {types: [f16], default: f16, block_tokens: 256, sliding: full, source: s}
workspace: {rule: llama.cpp, source: s}
sources: {s: {title: the source}}
"""
PROFILE = """schema: 1
id: nominal
name: Nominal
basis: nominal
groups:
  - memory: {base: 0.8}
    compute: {base: 0.5}
    few_tokens: {base: 1}
    half_tokens: {base: 32}
    floor_us: {base: 10, by: {kind: {attention: 2}}}
    interval: {decode: 1.3, prefill: 1.5, source: s}
    source: s
decode_power_fraction: 0.6
prefill_power_fraction: 0.9
sources: {s: {title: a guess}}
"""


def test_engines_and_profiles(packaged: Database) -> None:
    packaged.write("hardware_db/engines/acme.cpp.yaml", ENGINE)
    file = packaged.write("hardware_db/engines/profiles/nominal.yaml", PROFILE)
    packaged.write("hardware_db/engines/profiles/fitted.yaml", PROFILE.replace("id: nominal", "id: fitted"))
    for text, backend, build in (
        ("acme.cpp", None, None),
        ("ACME", None, None),
        ("acme.cpp:cuda", "cuda", None),
        (" acme.cpp : Vulkan @ 2024-05 ", "vulkan", "2024-05"),
        ("acme@2024-05-31", None, "2024-05-31"),
    ):
        spec, *rest = catalog.engine(text)
        assert [spec.id, *rest] == ["acme.cpp", backend, build]
    assert catalog.engine(spec) == (spec, None, None)
    assert [entry.id for entry in catalog.list_engines()] == ["acme.cpp"]
    for text in ("acme.cpp:", "acme.cpp:metal", "acme:cuda:2", "acmecpp", "acme.cqp"):
        with pytest.raises(UnknownName):
            catalog.engine(text)
    for text in ("acme.cpp@", "acme.cpp@b4567", "acme.cpp:cuda@2024-13", "acme@24-05", ":cuda", "@2024-05"):
        with pytest.raises(InvalidRequest):
            catalog.engine(text)
    assert catalog.profile().id == "nominal"
    assert catalog.profile("Fitted").id == "fitted"
    assert catalog.profile(file).id == "nominal"
    assert catalog.profile(catalog.profile()) is catalog.profile()
    with pytest.raises(UnknownName):
        catalog.profile("nominaal")


# --- Lists ------------------------------------------------------------------------------------------------------------


def test_lists(packaged: Database) -> None:
    packaged.device("acme-rtx-3090", "3090", name="Acme RTX 3090")
    packaged.device("acme-rtx-10", name="Acme RTX 10")
    packaged.device("acme-rtx-9", "der kleine", name="'Acme: RTX 9'")
    packaged.device("other-30", name="Other 30  # a remark")

    def ids(query: str) -> list[str]:
        return [entry.id for entry in catalog.list_hardware(query)]

    assert ids("") == ["acme-rtx-9", "acme-rtx-10", "acme-rtx-3090", "other-30"]
    assert ids("rtx 30") == ids("RTX-30") == ids("rtx_3090") == ids("30 rtx") == ids("rtx3090") == ["acme-rtx-3090"]
    assert ids("30") == ["acme-rtx-3090", "other-30"]
    assert ids("DER Kleine") == ["acme-rtx-9"]
    assert ids("nothing") == []
    assert {entry.id: entry.name for entry in catalog.list_hardware()} == {
        entry.id: catalog.hardware(entry.id).name for entry in catalog.list_hardware()
    }
    with pytest.raises(InvalidRequest):
        catalog.list_hardware(None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("formats")
def test_lists_of_formats() -> None:
    assert [entry.id for entry in catalog.list_formats("mxfp4")] == ["gguf:mxfp4", "hf:mxfp4"]
    assert catalog.list_formats("hf awq")[0].id == "hf:awq"


# --- The packaged entries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("rtx-4090", "nvidia-geforce-rtx-4090"),
        ("4090", "nvidia-geforce-rtx-4090"),
        ("RTX 4090", "nvidia-geforce-rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
        ("rtx-3090", "nvidia-geforce-rtx-3090"),
        ("m3-max-40c", "apple-m3-max-40c"),
        ("h100-sxm", "nvidia-h100-sxm5-80gb"),
        ("strix-halo", "amd-ryzen-ai-max-plus-395-8060s"),
        ("dgx-spark", "nvidia-dgx-spark-gb10"),
        ("mi300x", "amd-instinct-mi300x"),
        ("7950x", "amd-ryzen-9-7950x"),
    ],
)
@pytest.mark.usefixtures("no_home")
def test_what_people_type_for_devices(name: str, id_: str) -> None:
    assert catalog.hardware(name).id == id_


@pytest.mark.parametrize("name", ["3080", "a100", "h100", "m3 max", "5060 ti"])
@pytest.mark.usefixtures("no_home")
def test_names_that_fit_several_devices(name: str) -> None:
    with pytest.raises(AmbiguousName) as caught:
        catalog.hardware(name)
    assert len(caught.value.candidates) > 1


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama 3.3 70B", "llama-3.3-70b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("mixtral-8x7b", "mixtral-8x7b"),
        ("deepseek-v3", "deepseek-v3"),
    ],
)
@pytest.mark.usefixtures("no_home")
def test_what_people_type_for_models(name: str, id_: str) -> None:
    assert catalog.model(name).id == id_


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("8x h100-sxm", "8x nvidia-h100-sxm5-80gb"),
        ("2x rtx-3090 + ddr5-5600x2@64GiB", "2x nvidia-geforce-rtx-3090 + ddr5-5600x2@64GiB"),
        ("m3-max-40c@64GiB", "apple-m3-max-40c@64GiB"),
        (
            "rtx-4090 + 7950x + ddr5-6000x2@96GiB",
            "nvidia-geforce-rtx-4090 + amd-ryzen-9-7950x + ddr5-6000x2@96GiB",
        ),
    ],
)
@pytest.mark.usefixtures("no_home")
def test_what_people_type_for_systems(text: str, name: str) -> None:
    rig = catalog.system(text)
    assert rig.name == name
    assert catalog.system(name) == rig


@pytest.mark.usefixtures("no_home")
def test_every_packaged_name_leads_somewhere() -> None:
    """Each id gives its entry, each alias that entry or a choice that has it; what is listed is what is in the file."""
    lookups: list[tuple[tuple[catalog.Listed, ...], Callable[[str], Any]]] = [
        (catalog.list_hardware(), catalog.hardware),
        (catalog.list_models(), catalog.model),
        (catalog.list_formats(), catalog.weight_format),
        (catalog.list_engines(), lambda name: catalog.engine(name)[0]),
    ]
    for entries, lookup in lookups:
        assert entries
        for entry in entries:
            spec = lookup(entry.id)
            assert (spec.id, spec.name, spec.aliases, getattr(spec, "products", ())) == entry
            for alias in (*entry.aliases, *entry.products):
                try:
                    found = {lookup(alias).id}
                except AmbiguousName as error:
                    found = set(error.candidates)
                assert entry.id in found or alias in {other.id for other in entries}, alias


# --- Any text ---------------------------------------------------------------------------------------------------------

WORDS = """rtx-4090 4090 7950x m3-max-40c strix-halo nothing x X × + @ , : . - 2x 0x 24GiB 64GB 1008GB/s 165TFLOP/s
@fp16 @int8.int32 ddr5-5600 lpddr5x-8533 x2 128bit @64GiB gguf: Q4_K_M mlx-4bit llama.cpp vllm cuda @2024-05 ~ / .yaml
.json 1e9 \N{KELVIN SIGN} \N{ARABIC-INDIC DIGIT THREE} \N{LATIN SMALL LETTER LONG S}"""
PIECES = [*WORDS.split(), " ", "\0", "\ud800", "9" * 30]
LOOKUPS: list[Callable[[str], object]] = [
    catalog.hardware,
    catalog.system,
    catalog.model,
    catalog.import_path,
    catalog.weight_format,
    catalog.gguf_type,
    catalog.kv_type,
    catalog.engine,
    catalog.profile,
    catalog.list_hardware,
    catalog.list_formats,
]


@settings(deadline=None, max_examples=150)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=8).map("".join)), st.sampled_from(LOOKUPS))
@example("2\N{KELVIN SIGN}iB,1GB/s,1TOPS@fp8", catalog.system)
@example("rtx-4090@1\N{LATIN CAPITAL LETTER K}\N{LATIN SMALL LETTER DOTLESS I}B", catalog.system)
@example("~\0/x.yaml", catalog.hardware)
@example("/dev/null/x.yaml", catalog.model)
@example("a" * 300 + ".yaml", catalog.hardware)
def test_any_text_gives_an_answer_or_an_error_of_ours(text: str, lookup: Callable[[str], object]) -> None:
    try:
        lookup(text)
    except RooflineError as error:
        assert str(error)
        assert error.exit_code in (2, 3)


@st.composite
def systems(draw: st.DrawFn) -> str:
    count = draw(st.integers(1, 1024))
    gib = draw(st.integers(1, 4096))
    rate = draw(st.integers(1, 10**6))
    peaks = draw(st.lists(st.sampled_from(["fp16", "bf16", "int8", "fp32", "fp8"]), min_size=1, unique=True))
    text = ",".join([f"{gib}GiB", f"{rate}GB/s", *(f"{rate}TFLOP/s@{peak}" for peak in peaks)])
    if draw(st.booleans()):
        text = f"{count}x {text}"
    if draw(st.booleans()):
        text += f" + ddr{draw(st.sampled_from('45'))}-{draw(st.integers(100, 9999))}x{draw(st.integers(1, 24))}"
        if draw(st.booleans()):
            text += f"@{gib}{draw(st.sampled_from(['GiB', 'GB', 'MiB']))}"
        if draw(st.booleans()):
            text += f" + ssd@{draw(st.integers(10**6, 10**9)) / 10**7}GB/s@{gib}GB"
        if draw(st.booleans()):
            text += f" + {draw(st.integers(10**4, 10**9)) / 10**6}gbe"
    return text


@pytest.mark.parametrize("rest", ["ssd@6.979321GB/s@2TB", "ssd@6979.321MB/s@2TB", "12.3456789gbe"])
def test_a_canonical_name_keeps_every_digit(rest: str) -> None:
    rig = catalog.system(f"rtx-4090 + ddr5-4800x2@64GiB + {rest}")
    assert "6.979321" in rig.name or "12.3456789" in rig.name
    assert catalog.system(rig.name) == rig


@settings(deadline=None, max_examples=100)
@given(systems())
def test_a_canonical_name_gives_the_same_system_again(text: str) -> None:
    rig = catalog.system(text)
    assert isinstance(rig, SystemSpec)
    assert isinstance(rig.device, HardwareSpec)
    assert catalog.system(rig.name) == rig
