"""Which layers' experts a llama.cpp command keeps on the host, by its overrides of tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rooflinellm.launch.settings import Settings
from rooflinellm.operators.model import ModelSpec

_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_TENSORS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
_OTHERS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "ffn_gate_shexp")
LONGEST = 2_000
"""Characters of an override."""


def mixtures(model: ModelSpec) -> list[int]:
    """Numbers of the layers that have experts."""
    return [index for index, block in enumerate(model.layers) if getattr(block.ffn, "kind", "") == "moe"]


def experts_on_host(settings: Settings, model: ModelSpec) -> int | None:
    """Layers, the first ones, whose experts stay on the host; None where the command says nothing of it.

    The first override whose pattern is found in a tensor's name places it, as in llama.cpp; ``--n-cpu-moe N`` is the
    override of the experts of the first N layers.

    Raises
    ------
    InvalidRequest
        A pattern that is no regular expression, or a number that is none.
    """
    layers = mixtures(model)
    overrides = _overrides(settings, model)
    if not overrides:
        return None
    names = [f"blk.{layer}.{tensor}.weight" for layer in range(len(model.layers)) for tensor in _OTHERS]
    if any(_place(name, overrides) == "host" for name in [*names, "output.weight"]):
        _unused(settings, "tensors that are no experts, on the host")
    if not layers:
        if settings.text("experts_on_host"):
            settings.said.append(f"{settings.typed('experts_on_host')}: {model.id} has no experts")
        return None
    hosted = []
    for layer in layers:
        places = {_place(f"blk.{layer}.{tensor}.weight", overrides) for tensor in _TENSORS}
        if len(places) > 1:
            _unused(settings, "a part of a layer's experts on the host")
            return None
        if "host" in places:
            hosted.append(layer)
    if not hosted:
        return 0
    if hosted != layers[: len(hosted)]:
        settings.said.append(f"experts of {len(hosted)} layers on the host: counted as those of the first layers")
    return layers[len(hosted) - 1] + 1


def _unused(settings: Settings, what: str) -> None:
    settings.unused.append(f"{settings.typed('override')} ({what})")


def _overrides(settings: Settings, model: ModelSpec) -> list[tuple[str, re.Pattern[str], str]]:
    """Flag, pattern and place of each override, in order."""
    found = []
    for typed, value in settings.texts("override"):
        for part in re.split(r"[,;](?=[^,;]*=)", value):
            text, equals, place = part.strip().rpartition("=")
            if not equals or len(text) > LONGEST:
                raise settings.error(
                    "override", f"'{part[:60]}' is no override of tensors", "Write it like exps=CPU, as llama.cpp does."
                )
            found.append((typed, _compiled(settings, text), "host" if place.upper().startswith("CPU") else "device"))
    of_first = settings.text("experts_on_host")
    if of_first is not None:
        number = len(model.layers) if of_first == "all" else settings.count("experts_on_host") or 0
        if number:
            layers = "|".join(map(str, range(min(number, len(model.layers)))))
            pattern = re.compile(rf"blk\.({layers}){_EXPERTS}")
            found.append((settings.typed("experts_on_host"), pattern, "host"))
    return found


def _compiled(settings: Settings, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise settings.error("override", f"'{pattern[:60]}' is no regular expression: {error}") from error


def _place(name: str, overrides: Sequence[tuple[str, re.Pattern[str], str]]) -> str:
    return next((place for _, pattern, place in overrides if pattern.search(name)), "device")
