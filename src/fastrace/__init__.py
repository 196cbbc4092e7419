"""Answers to questions about means from as few samples as possible, with a stated probability of error."""

from fastrace import baselines, bounds, pulls, sources
from fastrace.baselines import KLLUCB, OCBA, SAR, Direct, Halving, Incremental, MedianElimination, SubsetRace
from fastrace.moments import RunningComoments, RunningMoments
from fastrace.races._options import RaceOptions
from fastrace.races.acceptance import AcceptTest, gibbs_binary, in_slice, metropolis_accept
from fastrace.races.lil_ucb import LilUCB
from fastrace.races.racing import FiniteRace, race
from fastrace.races.sampling import DiscreteSampler
from fastrace.races.unequal import UnequalRace, race_sums
from fastrace.races.unequal import race_unequal as race_unequal
from fastrace.results import (
    AcceptResult,
    RaceResult,
    SamplerStats,
    SelectionResult,
    StopResult,
    StreamRaceResult,
    UnequalResult,
)
from fastrace.select.adaptive import Adapt
from fastrace.select.choosing import select_best
from fastrace.select.lucb import LUCB
from fastrace.streams.betting import BettingStop, TargetBetStop, TargetEBStop
from fastrace.streams.estimating import estimate_mean
from fastrace.streams.gbas import GBAS
from fastrace.streams.over_bounds import AbsoluteStop, SignStop
from fastrace.streams.sequences import ConfidenceSequence
from fastrace.streams.stopping import AA, NAS, SRA, EBGStop, EBStop, GeometricNAS
from fastrace.streams.stream_racing import BernsteinRace, BettingRace, HoeffdingRace

__version__ = "0.1.0"

__all__ = [
    "AA",
    "GBAS",
    "KLLUCB",
    "LUCB",
    "NAS",
    "OCBA",
    "SAR",
    "SRA",
    "AbsoluteStop",
    "AcceptResult",
    "AcceptTest",
    "Adapt",
    "BernsteinRace",
    "BettingRace",
    "BettingStop",
    "ConfidenceSequence",
    "Direct",
    "DiscreteSampler",
    "EBGStop",
    "EBStop",
    "FiniteRace",
    "GeometricNAS",
    "Halving",
    "HoeffdingRace",
    "Incremental",
    "LilUCB",
    "MedianElimination",
    "RaceOptions",
    "RaceResult",
    "RunningComoments",
    "RunningMoments",
    "SamplerStats",
    "SelectionResult",
    "SignStop",
    "StopResult",
    "StreamRaceResult",
    "SubsetRace",
    "TargetBetStop",
    "TargetEBStop",
    "UnequalRace",
    "UnequalResult",
    "baselines",
    "bounds",
    "estimate_mean",
    "gibbs_binary",
    "in_slice",
    "metropolis_accept",
    "pulls",
    "race",
    "race_sums",
    "select_best",
    "sources",
]
