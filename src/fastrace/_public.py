"""The public names of `fastrace`, which loads them when the first of them is asked for."""

# mypy: implicit-reexport
# ruff: noqa: F401

import fastrace.baselines as baselines
import fastrace.bounds as bounds
import fastrace.pulls as pulls
import fastrace.sources as sources
from fastrace.baselines import KLLUCB, OCBA, SAR, Direct, Halving, Incremental, MedianElimination, SubsetRace
from fastrace.moments import RunningComoments, RunningMoments
from fastrace.races._options import RaceOptions
from fastrace.races.acceptance import AcceptTest, gibbs_binary, in_slice, metropolis_accept
from fastrace.races.flight import race_async
from fastrace.races.lil_ucb import LilUCB
from fastrace.races.planning import plan_race
from fastrace.races.racing import FiniteRace, race
from fastrace.races.sampling import DiscreteSampler
from fastrace.races.unequal import UnequalRace, race_sums
from fastrace.races.unequal import race_unequal as race_unequal
from fastrace.results import (
    AcceptResult,
    ComparisonResult,
    PermutationResult,
    RacePlan,
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
from fastrace.streams.betting import BettingStop, TargetBetStop, TargetEBStop, TargetOddsStop
from fastrace.streams.betting_race import BettingRace
from fastrace.streams.comparison import Comparison
from fastrace.streams.estimating import estimate_mean
from fastrace.streams.gbas import GBAS
from fastrace.streams.over_bounds import AbsoluteStop, SignStop
from fastrace.streams.permutation import PermutationTest, permutation_test
from fastrace.streams.proxies import Proxy
from fastrace.streams.sequences import ConfidenceSequence
from fastrace.streams.stopping import AA, NAS, SRA, EBGStop, EBStop, GeometricNAS
from fastrace.streams.stream_racing import BernsteinRace, HoeffdingRace
