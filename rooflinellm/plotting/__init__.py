"""Charts: matplotlib functions that take ``ax=``, return what they drew on, and leave every global setting alone.

A chart's file is called after it (``roofline_chart.py``), so that importing the file cannot hide the function.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "compare",
    "describe",
    "memory",
    "offload",
    "pareto",
    "roofline",
    "save",
    "sensitivity",
    "sweep",
    "timeline",
    "validation",
]


def __getattr__(name: str) -> Any:
    found: Any
    if name == "roofline":
        from rooflinellm.plotting.roofline_chart import roofline as found
    elif name == "memory":
        from rooflinellm.plotting.memory_chart import memory as found
    elif name == "offload":
        from rooflinellm.plotting.offload_chart import offload as found
    elif name == "describe":
        from rooflinellm.plotting.style import describe as found
    elif name == "save":
        from rooflinellm.plotting.style import save as found
    elif name == "sweep":
        from rooflinellm.plotting.sweep_chart import sweep as found
    elif name == "pareto":
        from rooflinellm.plotting.pareto_chart import pareto as found
    elif name == "compare":
        from rooflinellm.plotting.compare_chart import compare as found
    elif name == "sensitivity":
        from rooflinellm.plotting.sensitivity_chart import sensitivity as found
    elif name == "timeline":
        from rooflinellm.plotting.timeline_chart import timeline as found
    elif name == "validation":
        from rooflinellm.plotting.validation_chart import validation as found
    else:
        raise AttributeError(f"module 'rooflinellm.plotting' has no attribute '{name}'")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
