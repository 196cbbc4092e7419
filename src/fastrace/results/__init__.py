"""Answers: frozen dataclasses that print as a short table and plot themselves."""

from fastrace.results.results import (
    AcceptResult,
    RaceResult,
    SamplerStats,
    SelectionResult,
    StopResult,
    StreamRaceResult,
    UnequalResult,
    axes,
)

__all__ = [
    "AcceptResult",
    "RaceResult",
    "SamplerStats",
    "SelectionResult",
    "StopResult",
    "StreamRaceResult",
    "UnequalResult",
    "axes",
]
