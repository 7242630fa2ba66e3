"""Predict how fast a large language model runs on given hardware, and why.

    import rooflinellm as rl

    rl.estimate("llama-3.1-8b", "rtx-4090", weights="Q4_K_M")

Everything public is loaded when it is first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Options": "rooflinellm.api.options",
    "Turn": "rooflinellm.api.turns",
    "best_parallel": "rooflinellm.api.best_parallel",
    "calibrate": "rooflinellm.api.calibrate",
    "calibrate_kernels": "rooflinellm.api.calibrate_kernels",
    "chunked_prefill": "rooflinellm.api.batching",
    "check_claim": "rooflinellm.api.check_claim",
    "compare": "rooflinellm.api.compare",
    "disaggregated": "rooflinellm.api.disaggregated",
    "estimate": "rooflinellm.api.estimate",
    "hardware": "rooflinellm.api.lookup",
    "model": "rooflinellm.api.lookup",
    "system": "rooflinellm.api.lookup",
    "largest_batch": "rooflinellm.api.largest_batch",
    "mixed_step": "rooflinellm.api.batching",
    "list_hardware": "rooflinellm.api.lists",
    "list_formats": "rooflinellm.api.lists",
    "list_models": "rooflinellm.api.lists",
    "fit": "rooflinellm.api.fit",
    "fit_models": "rooflinellm.api.fit_models",
    "from_command": "rooflinellm.launch.command",
    "kernel_time": "rooflinellm.api.kernels",
    "launch_command": "rooflinellm.launch.show",
    "parallel_choices": "rooflinellm.api.parallel_choices",
    "prefix_cache": "rooflinellm.api.prefix",
    "probe": "rooflinellm.api.probe",
    "questions": "rooflinellm.api.questions",
    "recommend": "rooflinellm.api.recommend",
    "sensitivity": "rooflinellm.api.sensitivity",
    "simulate_load": "rooflinellm.api.simulate_load",
    "report": "rooflinellm.reporting.report",
    "sweep": "rooflinellm.api.sweep",
    "sweep_blocks": "rooflinellm.api.sweep",
    "validate": "rooflinellm.api.validate",
    "validate_kernels": "rooflinellm.api.kernels",
    "AmbiguousName": "rooflinellm.errors",
    "DoesNotFit": "rooflinellm.errors",
    "InvalidRequest": "rooflinellm.errors",
    "InvalidSpec": "rooflinellm.errors",
    "MissingSpec": "rooflinellm.errors",
    "RooflineError": "rooflinellm.errors",
    "RooflineWarning": "rooflinellm.errors",
    "UnknownName": "rooflinellm.errors",
    "UnreadableFile": "rooflinellm.errors",
    "UnsupportedModel": "rooflinellm.errors",
}
_MODULES = ("metrics", "plotting", "roofline", "units")

__all__ = ["__version__", *sorted(_PUBLIC), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"rooflinellm.{name}")
    raise AttributeError(f"module 'rooflinellm' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
