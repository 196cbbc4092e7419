"""Raced Markov chains inside compiled JAX programs; importing this module needs JAX.

Verdicts come from compiled functions that XLA calls by itself (its foreign function interface), without host callbacks;
on the CPU only.
"""

from __future__ import annotations

from fastrace.mcmc._jax import RaceInfo
from fastrace.mcmc._jax_compiled import CompiledKernel, CompiledState
from fastrace.mcmc._jax_gibbs import Categorical, RacingGibbs
from fastrace.mcmc._jax_metropolis import RaceState, RacingMetropolis

__all__ = [
    "Categorical",
    "CompiledKernel",
    "CompiledState",
    "RaceInfo",
    "RaceState",
    "RacingGibbs",
    "RacingMetropolis",
]
