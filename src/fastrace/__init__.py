"""Answers to questions about means from as few samples as possible, with a stated probability of error."""

# ruff: noqa: F403, F405

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastrace._public import *
    from fastrace._public import race_unequal as race_unequal

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
    "Comparison",
    "ComparisonResult",
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
    "PermutationResult",
    "PermutationTest",
    "Proxy",
    "RaceOptions",
    "RacePlan",
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
    "TargetOddsStop",
    "UnequalRace",
    "UnequalResult",
    "baselines",
    "bounds",
    "estimate_mean",
    "gibbs_binary",
    "in_slice",
    "metropolis_accept",
    "permutation_test",
    "plan_race",
    "pulls",
    "race",
    "race_async",
    "race_sums",
    "select_best",
    "sources",
]

MODULES = ("baselines", "bounds", "pulls", "sources")   # public names that are modules of this folder


def __getattr__(name: str) -> Any:
    """Load the public names when the first is asked for, so that the command can answer before SciPy is there."""
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in (*__all__, "race_unequal"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = vars(import_module(f"{__name__}._public"))
    globals().update({key: value for key, value in public.items() if not key.startswith("_")})
    return public[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
