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
from fastrace.mcmc.doors.jax._gibbs import JaxCategorical, JaxRacingGibbs
from fastrace.mcmc.doors.jax._metropolis import JaxRacingMetropolis, RaceState
from fastrace.mcmc.doors.jax._races import RaceInfo

__all__ = [
    "JaxCategorical",
    "CompiledKernel",
    "CompiledState",
    "RaceInfo",
    "RaceState",
    "JaxRacingGibbs",
    "JaxRacingMetropolis",
]
