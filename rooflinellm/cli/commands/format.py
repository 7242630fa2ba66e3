"""`format`: the database of weight formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rooflinellm.cli.inputs import Group, examples
from rooflinellm.cli.listing import sources_table, write_listing
from rooflinellm.cli.output import Output, output_options

if TYPE_CHECKING:
    from rooflinellm.render import Table
    from rooflinellm.specs.formats import FormatSpec, Rule

command = Group("format", help="Weight formats: list, show the recipe.")


@command.command("list", epilog=examples("format list gguf q4"))
@click.argument("query", nargs=-1)
@output_options
def listed(query: tuple[str, ...], output: Output) -> None:
    """Formats with all words of QUERY in their names; without one, all."""
    from rooflinellm.api.lists import list_formats

    words = " ".join(query)
    write_listing(output, "formats", list_formats(words), words)


@command.command("show", epilog=examples("format show Q4_K_M --model llama-3.3-70b"))
@click.argument("name")
@click.option("-m", "--model", default="llama-3.1-8b", show_default=True, help="Model to give the size of.")
@output_options
def show(name: str, model: str, output: Output) -> None:
    """The recipe of a format, and the size of a model in it."""
    from rooflinellm import catalog
    from rooflinellm.api.lists import model_sizes
    from rooflinellm.api.lookup import model as find

    spec = catalog.weight_format(name)
    chosen = find(model)
    (size,) = model_sizes(chosen, [spec.id])
    rules = [_rule(rule) for rule in spec.rules]
    output.write(
        tables=lambda: _show_tables(spec, rules, chosen.name, size),
        payload=lambda: {
            "id": spec.id,
            "name": spec.name,
            "aliases": list(spec.aliases),
            "family": spec.family,
            "vectors": spec.vectors,
            "rules": rules,
            "model": chosen.id,
            **{key: value for key, value in size.items() if key != "weights"},
            "sources": {key: source.model_dump(exclude_none=True) for key, source in spec.sources.items()},
        },
        records=lambda: rules,
    )


def _rule(rule: Rule) -> dict[str, Any]:
    """A rule of the recipe with the bits of its encoding."""
    from rooflinellm import catalog

    encoding = catalog.encodings().encodings[rule.encoding]
    conditions = [] if rule.layers is None else [f"layers: {rule.layers}"]
    if rule.first_layers is not None:
        conditions.append(f"layers: the first {rule.first_layers}")
    if rule.when is not None:
        wanted = rule.when.model_dump(exclude_none=True).items()
        conditions += [name if value is True else f"{name} {value}" for name, value in wanted]
    return {
        "tensors": ", ".join(rule.tensors),
        "encoding": rule.encoding,
        "bits": encoding.bits_per_element,
        "condition": ", ".join(conditions).replace("_", " "),
    }


def _show_tables(spec: FormatSpec, rules: list[dict[str, Any]], model: str, size: dict[str, Any]) -> list[Table]:
    from rooflinellm.render import Table
    from rooflinellm.units import format_gib

    answer = f"{model}: {format_gib(size['resident_weight_bytes'])}, {size['bits_per_weight']:.2f} bits per weight"
    lines = []
    for rule in rules:
        condition = f" if {rule['condition']}" if rule["condition"] else ""
        lines.append(f"{rule['encoding']} ({rule['bits']:.4g} bits){condition}: {rule['tensors']}")
    lines.append(f"norms and biases: {spec.vectors}; the first rule that matches decides")
    if spec.aliases:
        lines.append(f"also called: {', '.join(spec.aliases)}")
    table = Table((), (), f"{spec.name} ({spec.id})", lines, answer)
    return [table, sources_table(spec.sources)] if spec.sources else [table]
