"""What a kernel is: `init`, `step` and `run`, the same for all of them."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

STATISTICS = ("rows", "looks", "accepted", "full_pass", "undecided", "diverging")


@dataclass(frozen=True)
class StepInfo:
    """What one step did.

    Attributes
    ----------
    rows : int
        Rows whose terms were asked for, those read again in a full pass included.
    looks : int
        Looks taken at them; 0 if the step was decided without a row.
    accepted : bool
        Whether the proposal was accepted.
    full_pass : bool
        Whether all rows were read in one pass in order.
    undecided : bool
        Whether the bound had not decided when all rows had been read: the decision is then exact.
    diverging : bool, default False
        Whether a Hamiltonian trajectory on all rows met an energy more than 1000 above that at its start, or none.
    """

    rows: int
    looks: int
    accepted: bool
    full_pass: bool
    undecided: bool
    diverging: bool = False


@dataclass(frozen=True, eq=False)
class Steps:
    """Many steps of one chain: the state after each of them, and its `StepInfo` as arrays.

    Attributes
    ----------
    draws : ndarray of shape (n, ...)
    rows : ndarray of int64, shape (n,)
    looks : ndarray of int32, shape (n,)
    accepted, full_pass, undecided : ndarray of bool, shape (n,)
    diverging : ndarray of bool, shape (n,), optional
        By default none is.
    """

    draws: NDArray[Any]
    rows: NDArray[np.int64]
    looks: NDArray[np.int32]
    accepted: NDArray[np.bool_]
    full_pass: NDArray[np.bool_]
    undecided: NDArray[np.bool_]
    diverging: NDArray[np.bool_] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.diverging is None:
            object.__setattr__(self, "diverging", np.zeros(len(self.draws), bool))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()        # of steps saved before trajectories were told divergent

    def __len__(self) -> int:
        return len(self.draws)

    def __repr__(self) -> str:
        return f"Steps({len(self)} of a chain, each of shape {self.draws.shape[1:]})"

    def __getitem__(self, part: slice) -> Steps:
        return Steps(*(getattr(self, field.name)[part] for field in fields(self)))

    def info(self, i: int) -> StepInfo:
        """The numbers of one step."""
        return StepInfo(*(getattr(self, name)[i].item() for name in STATISTICS))


def joined(parts: list[Steps]) -> Steps:
    """Runs one after another as one."""
    if len(parts) == 1:
        return parts[0]
    return Steps(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Steps)))


def joined_later(parts: list[Steps]) -> Steps:
    """The same, but each array is joined when it is first asked for: an interrupted run does not wait for that."""
    if len(parts) == 1:
        return parts[0]
    later = object.__new__(_JoinedLater)
    object.__setattr__(later, "_left", {field.name: [getattr(part, field.name) for part in parts]
                                        for field in fields(Steps)})
    object.__setattr__(later, "_length", sum(map(len, parts)))
    return later


class _JoinedLater(Steps):
    """Steps whose arrays are in parts until they are asked for."""

    _left: dict[str, list[NDArray[Any]]]
    _length: int

    @functools.cached_property
    def diverging(self) -> NDArray[np.bool_]:
        """In place of the default of `Steps`, which would be found first."""
        return np.asarray(self.__getattr__("diverging"))

    def __getattr__(self, name: str) -> Any:
        parts = self.__dict__.get("_left", {}).get(name)
        if parts is None:       # or another thread has just joined them
            return object.__getattribute__(self, name)
        whole = np.concatenate(parts)
        object.__setattr__(self, name, whole)
        self._left.pop(name, None)
        return whole

    def __len__(self) -> int:
        return self._length if "_length" in self.__dict__ else len(self.draws)

    def __reduce__(self) -> tuple[Any, ...]:
        return Steps, tuple(getattr(self, field.name) for field in fields(Steps))


def from_flags(
    draws: NDArray[Any], rows: NDArray[np.int64], looks: NDArray[np.int32], flags: NDArray[np.uint8]
) -> Steps:
    """Steps from what the compiled loops record; the bits of `flags` are those of `fastrace.mcmc.kernels._chain`."""
    return Steps(draws, rows, looks, flags & 1 != 0, flags & 2 != 0, flags & 4 != 0, flags & 8 != 0)


class Kernel(Protocol):
    """A transition of a Markov chain.

    States are immutable and hold all that a chain needs to go on exactly: kernels keep nothing of a chain, so one
    kernel serves many chains in as many threads.
    """

    @property
    def variable(self) -> str:
        """Name of what is drawn."""

    def init(self, position: Any = None, rng: Any = None) -> Any:
        """The state at a position; without one a starting point of the kernel's own."""

    def step(self, rng: np.random.Generator, state: Any) -> tuple[Any, StepInfo]:
        """One transition: the next state, and what it took."""

    def run(self, rng: np.random.Generator, state: Any, n: int, *, tune: bool = False) -> tuple[Any, Steps]:
        """`n` transitions, in compiled code where that is possible. With `tune` the proposal adapts."""

    def describe(self) -> dict[str, Any]:
        """What a trace should remember of the kernel."""


def keep_partial(error: BaseException, state: Any, steps: Steps) -> None:
    """Hang what a run has done on the exception that ends it."""
    with contextlib.suppress(Exception):
        error.partial_run = (state, steps)  # type: ignore[attr-defined]
