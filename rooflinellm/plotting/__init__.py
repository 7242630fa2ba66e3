"""Charts: matplotlib functions that take ``ax=``, return what they drew on, and leave every global setting alone.

A chart's file is called after it (``roofline_chart.py``), so that importing the file cannot hide the function.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC = {
    "roofline": "rooflinellm.plotting.roofline_chart",
    "describe": "rooflinellm.plotting.style",
    "save": "rooflinellm.plotting.style",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'rooflinellm.plotting' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
