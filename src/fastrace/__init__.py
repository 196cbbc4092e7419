"""Answers to questions about means from as few samples as possible, with a stated probability of error."""

from fastrace import bounds, pulls, sources
from fastrace.acceptance import AcceptTest, gibbs_binary, in_slice, metropolis_accept
from fastrace.adaptive_selection import OCBA, Adapt, SubsetRace
from fastrace.betting import BettingStop, SignTest, TargetBetStop, TargetEBStop
from fastrace.choosing import select_best
from fastrace.gbas import GBAS
from fastrace.lil_ucb import LilUCB
from fastrace.lucb import KLLUCB, LUCB, SAR
from fastrace.moments import RunningComoments, RunningMoments
from fastrace.racing import FiniteRace, race
from fastrace.results import (
    AcceptResult,
    RaceResult,
    SamplerStats,
    SelectionResult,
    StopResult,
    StreamRaceResult,
    UnequalResult,
)
from fastrace.sampling import DiscreteSampler
from fastrace.selection import Direct, Halving, Incremental, MedianElimination
from fastrace.sequences import ConfidenceSequence
from fastrace.stopping import AA, NAS, SRA, AbsoluteStop, EBGStop, EBStop, GeometricNAS, SignStop, estimate_mean
from fastrace.stream_racing import BernsteinRace, BettingRace, HoeffdingRace
from fastrace.unequal import UnequalRace, race_sums
from fastrace.unequal import race_unequal as race_unequal

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
    "RaceResult",
    "RunningComoments",
    "RunningMoments",
    "SamplerStats",
    "SelectionResult",
    "SignStop",
    "SignTest",
    "StopResult",
    "StreamRaceResult",
    "SubsetRace",
    "TargetBetStop",
    "TargetEBStop",
    "UnequalRace",
    "UnequalResult",
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
