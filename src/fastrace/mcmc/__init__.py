"""Markov chains whose steps read as few rows of the data as they can."""

from fastrace.mcmc.arch import ARCH
from fastrace.mcmc.bias import BiasCheck, check_bias
from fastrace.mcmc.binned import Binned
from fastrace.mcmc.firefly_metropolis import FireflyMetropolis
from fastrace.mcmc.gibbs import Categorical, Gibbs
from fastrace.mcmc.metropolis import Metropolis
from fastrace.mcmc.models import GLM, FunctionModel, Model, Reference, SourceModel
from fastrace.mcmc.poisson_gibbs import PoissonMinibatchGibbs
from fastrace.mcmc.poisson_metropolis import PoissonMinibatchMetropolis
from fastrace.mcmc.protocol import Kernel, StepInfo, Steps
from fastrace.mcmc.pymc_models import PyMCModel, from_pymc
from fastrace.mcmc.racing_gibbs import RacingGibbs
from fastrace.mcmc.racing_metropolis import RacingMetropolis
from fastrace.mcmc.racing_slice import RacingSlice
from fastrace.mcmc.sampling import sample
from fastrace.mcmc.slice import Slice
from fastrace.mcmc.softmax import Softmax
from fastrace.mcmc.trace import Trace, effective_sample_size
from fastrace.mcmc.tuna_metropolis import TunaMetropolis

__all__ = [
    "ARCH",
    "GLM",
    "BiasCheck",
    "Binned",
    "Categorical",
    "FireflyMetropolis",
    "FunctionModel",
    "Gibbs",
    "Kernel",
    "Metropolis",
    "Model",
    "PoissonMinibatchGibbs",
    "PoissonMinibatchMetropolis",
    "PyMCModel",
    "RacingGibbs",
    "RacingMetropolis",
    "RacingSlice",
    "Reference",
    "Slice",
    "Softmax",
    "SourceModel",
    "StepInfo",
    "Steps",
    "Trace",
    "TunaMetropolis",
    "check_bias",
    "effective_sample_size",
    "from_pymc",
    "sample",
]
