"""Options of an estimate that few callers need."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rooflinellm._shown import one_line

if TYPE_CHECKING:
    from rooflinellm.specs.profile import ProfileSpec


@dataclass(frozen=True, slots=True)
class Options:
    """Conventions and engine settings; None leaves the engine's default.

    Attributes
    ----------
    first_token : {'prefill', 'extra_step'}
        The first output token comes out of prefill, as engines do it, or costs one more decode step.
    routing_skew : float, optional
        Experts touched in the expectation: 0 as if tokens chose uniformly … 1 as if all chose the same; None is what
        real routing was measured at, 0.33. [-]
    verify_amortisation : float, optional
        Share of a further position's cost that a verifying pass saves; for speculation. [-]
    draft_weights : str, optional
        Weight format of a draft model; None is the model's own.
    draft_steps : int, optional
        Passes of what drafts in a cycle, where drafts form a tree; None is one for each drafted token. [-]
    overlap : {'operator', 'phase', 'none'}
        What overlaps in the expectation: memory and compute of one operator, of the whole phase, or nothing.
    ubatch : int, optional
        Tokens of a prompt that pass at once. [token]
    kv_unified : bool, optional
        All sequences share one pool of cache cells.
    swa_full : bool
        Sliding-window layers hold every token, as with llama.cpp's ``--swa-full``.
    mla : {'absorbed', 'expanded'}, optional
        Form of latent attention.
    state_copies : int
        Copies of recurrent state that are kept for each sequence, such as one more for each drafted token, to roll
        rejected ones back to. [-]
    kv_on_host : bool
        The cache stays in the host's memory and attention is computed there, as with ``--no-kv-offload``.
    tensor_split : tuple of float, optional
        Parts of the devices in the layers, in the order of the system; None follows their memory. [-]
    reserved_gib : float
        Memory that other programs hold on each device: a desktop 0.5 to 1.5 GiB, a draft model or a vision tower its
        size. [GiB]
    overcommit : {'paging'}, optional
        What happens to what a discrete device cannot hold: the driver keeps it in system memory and the device reads
        it over the link, as on Windows, wherever the engine was to leave it. None answers as if it fitted.
    must_fit : bool
        What does not fit raises `DoesNotFit` instead of a warning.
    power_limit_w : float, optional
        Power a device is limited to: compute scales with its square root, bandwidth does not. [W]
    profile : str, path or ProfileSpec, optional
        Efficiency profile to prefer, such as one of own measurements (`rooflinellm.calibrate`); None is the fitted one.
    """

    first_token: Literal["prefill", "extra_step"] = "prefill"
    routing_skew: float | None = None
    verify_amortisation: float | None = None
    draft_weights: str | None = None
    draft_steps: int | None = None
    overlap: Literal["operator", "phase", "none"] = "operator"
    ubatch: int | None = None
    kv_unified: bool | None = None
    swa_full: bool = False
    mla: Literal["absorbed", "expanded"] | None = None
    state_copies: int = 1
    kv_on_host: bool = False
    tensor_split: tuple[float, ...] | None = None
    reserved_gib: float = 0.0
    overcommit: Literal["paging"] | None = None
    must_fit: bool = False
    power_limit_w: float | None = None
    profile: str | os.PathLike[str] | ProfileSpec | None = None

    __repr__ = one_line


DEFAULTS = Options()
"""What holds where none are given."""
