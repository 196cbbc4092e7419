"""Answers to questions about means from as few samples as possible, with a stated probability of error."""

from fastrace import bounds, sources
from fastrace.acceptance import AcceptTest, gibbs_binary, in_slice, metropolis_accept
from fastrace.lil_ucb import LilUCB
from fastrace.moments import RunningComoments, RunningMoments
from fastrace.racing import FiniteRace, race
from fastrace.results import AcceptResult, RaceResult, SamplerStats, UnequalResult
from fastrace.sampling import DiscreteSampler
from fastrace.unequal import UnequalRace, race_unequal

__version__ = "0.1.0"

__all__ = [
    "AcceptResult",
    "AcceptTest",
    "DiscreteSampler",
    "FiniteRace",
    "LilUCB",
    "RaceResult",
    "RunningComoments",
    "RunningMoments",
    "SamplerStats",
    "UnequalRace",
    "UnequalResult",
    "bounds",
    "gibbs_binary",
    "in_slice",
    "metropolis_accept",
    "race",
    "race_unequal",
    "sources",
]
