"""Markov chains whose steps read as few rows of the data as they can."""

from fastrace.mcmc.metropolis import Metropolis
from fastrace.mcmc.models import GLM, FunctionModel, Model, Reference, SourceModel
from fastrace.mcmc.poisson_metropolis import PoissonMinibatchMetropolis
from fastrace.mcmc.protocol import Kernel, StepInfo, Steps
from fastrace.mcmc.racing_metropolis import RacingMetropolis
from fastrace.mcmc.sampling import sample
from fastrace.mcmc.trace import Trace, effective_sample_size
from fastrace.mcmc.tuna_metropolis import TunaMetropolis

__all__ = [
    "GLM",
    "FunctionModel",
    "Kernel",
    "Metropolis",
    "Model",
    "PoissonMinibatchMetropolis",
    "RacingMetropolis",
    "Reference",
    "SourceModel",
    "StepInfo",
    "Steps",
    "Trace",
    "TunaMetropolis",
    "effective_sample_size",
    "sample",
]
