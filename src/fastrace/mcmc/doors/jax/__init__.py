"""Raced Markov chains inside compiled JAX programs; importing this module needs JAX.

Verdicts come from compiled functions that XLA calls by itself (its foreign function interface), without host callbacks;
on the CPU only.
"""

from __future__ import annotations

try:
    import jax  # noqa: F401
except ImportError as error:
    raise ImportError("fastrace.mcmc.doors.jax needs JAX: python -m pip install jax") from error

from fastrace.mcmc.doors.jax._compiled import CompiledKernel, CompiledState
from fastrace.mcmc.doors.jax._gibbs import Categorical, RacingGibbs
from fastrace.mcmc.doors.jax._metropolis import RaceState, RacingMetropolis
from fastrace.mcmc.doors.jax._races import RaceInfo

__all__ = [
    "Categorical",
    "CompiledKernel",
    "CompiledState",
    "RaceInfo",
    "RaceState",
    "RacingGibbs",
    "RacingMetropolis",
]
