"""`model`: the database of models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.inputs import Group, examples
from rooflinellm.cli.listing import sources_table, write_lint, write_listing
from rooflinellm.cli.output import Output, output_options
from rooflinellm.cli.terminal import say

if TYPE_CHECKING:
    from rooflinellm.operators.model import ModelSpec
    from rooflinellm.render import Table
    from rooflinellm.specs.model import ModelEntry

SIZES = ("gguf:f16", "gguf:q8_0", "gguf:q6_k", "gguf:q5_k_m", "gguf:q4_k_m", "gguf:iq4_xs", "gguf:q3_k_m", "gguf:q2_k")
KV_TYPES = ("f16", "q8_0", "q4_0")

command = Group("model", help="Models: list, show layers and sizes, check files.")


@command.command("list", epilog=examples("model list qwen3", "model list --json"))
@click.argument("query", nargs=-1)
@output_options
def listed(query: tuple[str, ...], output: Output) -> None:
    """Models with all words of QUERY in their names; without one, all."""
    from rooflinellm.api.lists import list_models

    words = " ".join(query)
    write_listing(output, "models", list_models(words), words)


@command.command("show", epilog=examples("model show gpt-oss-20b"))
@click.argument("name")
@output_options
def show(name: str, output: Output) -> None:
    """Layers, parameters, KV cache and sizes of a model."""
    from rooflinellm.api.lists import model_sizes
    from rooflinellm.api.lookup import model

    spec = model(name)
    sizes = model_sizes(spec, dict.fromkeys((spec.native_format, *SIZES)))
    kv = {kind: spec.kv_bytes_per_token(kind) for kind in KV_TYPES}
    layers = list(_layers(spec))
    output.write(
        tables=lambda: _show_tables(spec, layers, kv, sizes),
        payload=lambda: _show_payload(spec, layers, kv, sizes),
        records=lambda: sizes,
    )


def _layers(spec: ModelSpec) -> Iterator[dict[str, Any]]:
    """Kinds of layers in the order in which they first occur."""
    counted: dict[Any, int] = {}
    for block in spec.layers:
        counted[block] = counted.get(block, 0) + 1
    for block, count in counted.items():
        parts = {"mixer": block.mixer, "beside": block.beside, "ffn": block.ffn}
        yield {
            "count": count,
            **{name: part.model_dump(exclude_defaults=True) for name, part in parts.items() if part is not None},
        }


def _part_text(part: dict[str, Any]) -> str:
    """A layer's part in words: its kind, then what sets it apart."""
    words = []
    for name, value in part.items():
        label = name.replace("_", " ")
        if isinstance(value, dict):
            words.append(f"{label} ({_part_text({'kind': '', **value})})")
        elif name != "kind":
            words.append(label if value is True else f"{label} {value:,}" if type(value) is int else f"{label} {value}")
    kind = part.get("kind", "")
    return f"{kind}: {', '.join(words)}" if kind and words else kind or ", ".join(words)


def _show_tables(
    spec: ModelSpec, layers: list[dict[str, Any]], kv: dict[str, int], sizes: list[dict[str, Any]]
) -> list[Table]:
    from rooflinellm.render import Column, Table
    from rooflinellm.summary import params_text
    from rooflinellm.units import GB, GIB, KIB, significant

    entry = spec.entry
    whole = params_text(spec.total_params)
    active = "" if spec.active_params > 0.7 * spec.total_params else f", {params_text(spec.active_params)} active"
    facts = [
        ["parameters", f"{whole} ({spec.total_params:,})"],
        ["multiplied per token", f"{params_text(spec.active_params)} ({spec.active_params:,})"],
        ["longest context", f"{spec.max_context_tokens:,} tokens"],
        ["hidden size", f"{spec.hidden:,}"],
        ["vocabulary", f"{spec.vocabulary:,}" + (", head tied to the embedding" if spec.tied_embeddings else "")],
        ["KV cache per token", ", ".join(f"{significant(size / KIB)} KiB in {kind}" for kind, size in kv.items())],
        ["published in", spec.native_format],
        ["family, licence, release", ", ".join(filter(None, (entry.family, entry.license, entry.release_date)))],
    ]
    notes = [f"also called: {', '.join(spec.aliases)}"] if spec.aliases else []
    tables = [
        Table([Column("", "left"), Column("", "left")], facts, f"{spec.name}, {whole}{active}", notes, spec.id),
        Table(
            (),
            (),
            f"{entry.layer_count} layers",
            [
                f"{layer['count']} x " + " | ".join(_part_text(layer[name]) for name in layer if name != "count")
                for layer in layers
            ],
        ),
        Table(
            [Column("format", "left"), Column("bits per weight"), Column("GiB"), Column("GB")],
            [
                [
                    each["weights"],
                    f"{each['bits_per_weight']:.2f}",
                    significant(each["resident_weight_bytes"] / GIB),
                    significant(each["resident_weight_bytes"] / GB),
                ]
                for each in sizes
            ],
            notes=["rooflinellm fit MODEL HARDWARE shows what fits"],
        ),
    ]
    return [*tables, sources_table(spec.sources)] if spec.sources else tables


def _show_payload(
    spec: ModelSpec, layers: list[dict[str, Any]], kv: dict[str, int], sizes: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": spec.id,
        "name": spec.name,
        "aliases": list(spec.aliases),
        "family": spec.family,
        "total_params": spec.total_params,
        "active_params": spec.active_params,
        "hidden": spec.hidden,
        "vocabulary": spec.vocabulary,
        "tied_embeddings": spec.tied_embeddings,
        "max_context_tokens": spec.max_context_tokens,
        "native_format": spec.native_format,
        "layer_count": spec.entry.layer_count,
        "layers": layers,
        "kv_bytes_per_token": kv,
        "sizes": sizes,
        "sources": {key: source.model_dump(exclude_none=True) for key, source in spec.sources.items()},
    }


@command.command("lint", epilog=examples("model lint my-model.yaml"))
@click.argument("files", nargs=-1, metavar="[FILE]...")
@output_options
def lint(files: tuple[str, ...], output: Output) -> int:
    """Check model files (or folders of them); without one, all."""
    from rooflinellm.api.lint import lint_models

    return write_lint(output, lint_models(files))


@command.command("import", epilog=examples("model import config.json", "model import ./Qwen3-8B -o qwen3-8b.yaml"))
@click.argument("path")
@click.option("-o", "--output-file", "target", metavar="FILE", help="Write the entry to FILE instead of showing it.")
def imported(path: str, target: str | None) -> None:
    """Turn a model's own file into an entry in YAML.

    PATH is a config.json, the folder with it, a GGUF file, or hf://organisation/name.
    """
    from rooflinellm._files import write_whole
    from rooflinellm.api.lookup import model
    from rooflinellm.errors import UnreadableFile
    from rooflinellm.importers.entry_text import entry_text
    from rooflinellm.render import printable

    spec = model(path)
    entry, renamed = _named_after(spec.entry, target)
    text = entry_text(entry)
    if target is None:
        click.echo(text, nl=False)
        return
    try:
        write_whole(target, lambda path: path.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"cannot be written: {error.strerror or error}", where=target) from error
    click.echo(printable(f"{target}: {spec!r}"), err=True)
    if renamed:
        say("note", renamed)


def _named_after(entry: ModelEntry, target: str | None) -> tuple[ModelEntry, str]:
    """The entry with the id that a file of this name must hold, and what there is to say about that."""
    from rooflinellm.specs.common import is_identifier

    if target is None or not target.lower().endswith((".yaml", ".yml")):
        return entry, ""
    stem = os.path.basename(target).rpartition(".")[0]
    if stem == entry.id:
        return entry, ""
    if not is_identifier(stem):
        return entry, f"its id is {entry.id}: call the file {entry.id}.yaml, since a file has the name of its entry"
    return entry.model_copy(update={"id": stem}), f"its id is {stem}, the file's name, instead of {entry.id}"
