"""Markov chains whose steps read as few rows of the data as they can.

`models` holds likelihoods and priors, `kernels` transitions, `doors` what other libraries use (PyMC, JAX, emcee, ...).
`sampling` runs chains, with `_checkpoints` and `_fingerprint`; `trace` is what they leave, `bias` what races got wrong.
`laplace` answers without a chain where the posterior is close to normal, by weights that `_pareto` smooths.
`compression` expands likelihoods once, for chains that read few rows or none, also of rows that come in chunks
(`_chunked`); `correction` makes draws of such a surrogate right. `_diagnosis` and `_fit` say what is wrong with draws.
`protocol` says what a kernel is. Single decisions are in `fastrace.races`, compiled likelihoods in `fastrace._models`.
"""

from fastrace._models.grouping import Groups
from fastrace.mcmc._convergence import effective_sample_size
from fastrace.mcmc.bias import BiasCheck, check_bias
from fastrace.mcmc.compression import Compressed, compress
from fastrace.mcmc.correction import correct
from fastrace.mcmc.doors.pymc.models import PyMCModel, from_pymc
from fastrace.mcmc.kernels.firefly_metropolis import FireflyMetropolis
from fastrace.mcmc.kernels.gibbs import Categorical, Gibbs
from fastrace.mcmc.kernels.hmc import HMC
from fastrace.mcmc.kernels.metropolis import Metropolis
from fastrace.mcmc.kernels.poisson_gibbs import PoissonMinibatchGibbs
from fastrace.mcmc.kernels.poisson_metropolis import PoissonMinibatchMetropolis
from fastrace.mcmc.kernels.racing_gibbs import RacingGibbs
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.kernels.racing_slice import RacingSlice
from fastrace.mcmc.kernels.slice import Slice
from fastrace.mcmc.kernels.surrogate_gibbs import SurrogateGibbs
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.kernels.tuna_metropolis import TunaMetropolis
from fastrace.mcmc.kernels.variable_selection import VariableSelection
from fastrace.mcmc.laplace import LaplaceResult, laplace
from fastrace.mcmc.models.arch import ARCH
from fastrace.mcmc.models.binned import Binned
from fastrace.mcmc.models.mixture import MixtureOf
from fastrace.mcmc.models.model import GLM, FunctionModel, Model, Reference, SourceModel
from fastrace.mcmc.models.predictor import PredictorModel
from fastrace.mcmc.models.priors import (
    LKJ,
    Beta,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    Horseshoe,
    Laplace,
    LogDensity,
    LogNormal,
    Normal,
    StudentT,
)
from fastrace.mcmc.models.softmax import Softmax
from fastrace.mcmc.protocol import Kernel, StepInfo, Steps
from fastrace.mcmc.sampling import sample
from fastrace.mcmc.trace import Trace

__all__ = [
    "ARCH",
    "GLM",
    "HMC",
    "LKJ",
    "Beta",
    "BiasCheck",
    "Binned",
    "Categorical",
    "Compressed",
    "Exponential",
    "FireflyMetropolis",
    "FunctionModel",
    "Gamma",
    "Gibbs",
    "Groups",
    "HalfCauchy",
    "HalfNormal",
    "HalfStudentT",
    "Horseshoe",
    "Kernel",
    "Laplace",
    "LaplaceResult",
    "LogDensity",
    "LogNormal",
    "Metropolis",
    "MixtureOf",
    "Model",
    "Normal",
    "PoissonMinibatchGibbs",
    "PoissonMinibatchMetropolis",
    "PredictorModel",
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
    "StudentT",
    "SurrogateGibbs",
    "SurrogateMetropolis",
    "Trace",
    "TunaMetropolis",
    "VariableSelection",
    "check_bias",
    "compress",
    "correct",
    "effective_sample_size",
    "from_pymc",
    "laplace",
    "sample",
]
