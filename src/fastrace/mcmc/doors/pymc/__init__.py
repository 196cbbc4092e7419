"""Models taken from PyMC, and steps for `pymc.sample`; only the steps need PyMC when they are imported."""

from importlib import import_module
from typing import Any

__all__ = ["CategoricalStep", "MetropolisStep"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.steps"), name)
