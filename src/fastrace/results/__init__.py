"""Answers: frozen dataclasses that print as a short table, export themselves and draw themselves.

`base` holds what all of them share: `Result`, and `ArmsResult` for answers about several arms. `races`, `selections`,
`comparisons`, `permutations`, `plans` and `single` hold the answers themselves, `columns` the names that a table gives
to its arms. The answers about learners and chains stand in their own rooms and derive from the same base.
"""

from fastrace._base._words import STOPPED_BY as STOPPED_BY
from fastrace.results.base import ArmsResult, Column, ComparedResult, Result, Table
from fastrace.results.comparisons import ComparisonResult
from fastrace.results.permutations import PermutationResult
from fastrace.results.plans import RacePlan
from fastrace.results.races import RaceResult, StreamRaceResult, UnequalResult
from fastrace.results.selections import SelectionResult
from fastrace.results.single import AcceptResult, SamplerStats, StopResult

__all__ = [
    "STOPPED_BY",
    "AcceptResult",
    "ArmsResult",
    "Column",
    "ComparedResult",
    "ComparisonResult",
    "PermutationResult",
    "RacePlan",
    "RaceResult",
    "Result",
    "SamplerStats",
    "SelectionResult",
    "StopResult",
    "StreamRaceResult",
    "Table",
    "UnequalResult",
]
