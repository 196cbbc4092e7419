"""What was paid for is never lost: rewards that no look has taken yet, where a race is cut short."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastrace._core as _core
from fastrace._base import _checks, _frames
from fastrace._base._answers import entries, numbers_among
from fastrace._base._handed import handed_over
from fastrace.results import RaceResult
from fastrace.sources import CallableSource, Source

Block = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.float64]]


class Scored(ABC):
    """A function of rewards that has more to say of an answer than the race that rests on them."""

    @abstractmethod
    def complete(self, result: RaceResult) -> RaceResult:
        """The answer with what the function knows of it."""


def is_scored(source: Source) -> bool:
    """Whether rewards are made of something else that a user gave, such as predictions."""
    return isinstance(getattr(source, "function", None), Scored)


def completed(result: RaceResult, source: Source) -> RaceResult:
    """The answer with what its source knows of it."""
    return source.function.complete(result) if is_scored(source) else result  # type: ignore[attr-defined]


class Receipts:
    """A user's function that keeps what it has answered since the last look of a race."""

    def __init__(self, function: Callable[[Any, Any], Any], race: _core.Race) -> None:
        self.function, self.race = function, race
        self.looked = race.n_looked
        self.blocks: list[Block] = []

    def __call__(self, arms: NDArray[np.intp], rows: NDArray[np.int64]) -> Any:
        if self.race.n_looked != self.looked:
            self.looked = self.race.n_looked
            self.blocks.clear()
        asked = arms.copy(), rows.copy()            # the function may change both
        found = self.function(arms, rows)
        with contextlib.suppress(Exception):        # the source says what is wrong with a block
            self.blocks += read_apart(*asked, found)
        return found


def read_apart(arms: NDArray[np.intp], rows: NDArray[np.int64], answer: Any) -> list[Block]:
    """The numbers in a block, in blocks without what is none, such as a word: that counts as not answered."""
    shape = rows.size, arms.size
    if isinstance(answer, np.ndarray) and answer.dtype.kind in "fiub" and answer.shape == shape and not isinstance(
            answer, np.ma.MaskedArray):
        block = np.array(answer, np.float64)
        if answer.dtype.kind in "fb" or (np.abs(block) < _checks.LARGE).all():
            return [(arms, rows, block)]
    objects = entries(answer, shape)
    if objects is None:
        return []
    rewards, read = numbers_among(objects)
    whole = read.all(axis=1)
    out = [(arms, rows[whole], rewards[whole])] if whole.any() else []
    return out + [(arms[read[k]], rows[k : k + 1], rewards[k : k + 1, read[k]])
                  for k in np.flatnonzero(~whole & read.any(axis=1))]


def dear(source: Source, settings: Any) -> bool:
    """Whether each reward is assumed to cost far more than a race's own work."""
    return settings.cost is not None or settings.proxy is not None or source.reward_cost == math.inf


@contextlib.contextmanager
def receipts(
    source: Source, core: _core.Race, settings: Any, names: tuple[str, ...] | None, whole: Callable[[], Any]
) -> Iterator[Source]:
    """Yield the source to race on; an exception takes with it the race, `whole()`, and what has been paid for.

    What a function returns goes by the `names` of the arms, if it has names.
    """
    costly, kept, running = dear(source, settings), None, source
    if type(source) is CallableSource and (costly or names is not None):
        answer = partial(_frames.answer_of, source.function, names)
        kept = Receipts(answer, core) if costly else None
        running = CallableSource(kept or answer, source.n_arms, source.n_rows, source.support,
                                 first_look=source.first_look, scan_advantage=source.scan_advantage,
                                 reward_cost=source.reward_cost)
    if not costly:
        yield running
        return
    try:
        yield running
    except BaseException as error:
        race = whole()
        if kept is not None and kept.looked != core.n_looked:       # the look was taken after the last answer
            kept.blocks.clear()
        if kept is not None and kept.blocks:
            race._fly().keep(kept.blocks, _checks.silent_arms(error))
        handed_over(error, "race", race, "error.race.run(error.source) goes on where it stopped", race._paid(),
                    source=source)
        raise
