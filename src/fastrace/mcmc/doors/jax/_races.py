"""Races inside compiled JAX programs: the loops are JAX's, the verdicts those of `fastrace.mcmc.doors.jax._xla`.

What the modules for JAX, NumPyro and BlackJAX share. Importing it needs JAX and registers the compiled functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

import fastrace.mcmc.doors.jax._xla as _xla
import fastrace.mcmc.doors.jax._xla_chain as _xla_chain
from fastrace._base import _checks
from fastrace._math._half_widths import BOUNDS
from fastrace.races import _schedules
from fastrace.races._settings import _plan

PENDING, REJECTED, ACCEPTED, LOST = range(4)  # as in `fastrace.mcmc.doors.jax._xla`
UNKNOWN = np.array([0, 0x7FF80000], np.uint32)  # the total nan
MOST_ROWS = 2**31 - 1
CHUNK = 8192  # rows of a full pass at once
STAGE = 16  # first looks after which a race reads that many times as many rows at once

Terms = Callable[[Any, Any], jax.Array]
LogPrior = Callable[[Any], jax.Array]


class RaceInfo(NamedTuple):
    """What one step did.

    Attributes
    ----------
    rows : Array of int32
        Rows whose terms were asked for, those read again in a full pass included; at most 2^31 - 1 are counted.
    looks : Array of int32
        Looks taken at them; 0 if the step was decided without a row.
    accepted, full_pass, undecided : Array of bool
        As in `fastrace.mcmc.StepInfo`.
    """

    rows: jax.Array
    looks: jax.Array
    accepted: jax.Array
    full_pass: jax.Array
    undecided: jax.Array


def _register() -> None:
    """Make the compiled functions known to XLA, under the version of its interface that it has."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.read_text(encoding="utf-8")))
    major, minor = int(found["MAJOR"]), int(found["MINOR"])
    if major != 0:
        raise ImportError(f"this jaxlib's interface for compiled functions has version {major}.{minor}; this fastrace "
                          f"knows versions 0.*: take a newer fastrace")
    for name, capsule in (_xla.targets(major, minor) | _xla_chain.targets(major, minor)).items():
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")


_register()


def call(name: str, shape: tuple[int, ...], dtype: Any, *operands: Any, **attributes: Any) -> jax.Array:
    """One result of a compiled function; batches and broadcasts under vmap."""
    result = jax.ShapeDtypeStruct(shape, dtype)
    out: jax.Array = jax.ffi.ffi_call(name, result, vmap_method="broadcast_all")(*operands, **attributes)
    return out


def key_words(key: Any) -> jax.Array:
    """The words of a JAX key, of either kind."""
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        if key.shape != ():
            raise ValueError(f"the key has shape {key.shape}; one key is needed, and vmap for many")
        return jax.random.key_data(key).ravel()
    if dtype != jnp.uint32 or getattr(key, "ndim", 0) != 1:
        raise ValueError(f"the key is {_checks.shown(key)}; jax.random.key(seed), or the words of one, are needed")
    words: jax.Array = key
    return words


class Rows:
    """The rows that likelihood terms belong to: arrays with the same first dimension."""

    def __init__(self, data: Any, what: str = "data") -> None:
        leaves = [np.shape(leaf) for leaf in jax.tree_util.tree_leaves(data)]
        lengths = {shape[0] if shape else -1 for shape in leaves}
        if len(lengths) != 1 or -1 in lengths:
            raise ValueError(f"{what} has arrays of shapes {leaves}; arrays with the same first dimension, one entry a "
                             f"row, are needed")
        self.n = _checks.integer(lengths.pop(), f"the number of rows of {what}", 1, "a likelihood needs rows")
        if self.n > MOST_ROWS:
            raise ValueError(f"{what} has {self.n} rows; at most 2^31 - 1 can be numbered by int32")
        self.data = jax.tree_util.tree_map(jnp.asarray, data)
        self.chunk = min(self.n, CHUNK)

    def some(self, rows: jax.Array) -> Any:
        """The rows with these numbers."""
        return jax.tree_util.tree_map(lambda x: x.at[rows].get(mode="promise_in_bounds"), self.data)

    def piece(self, k: Any, size: int) -> tuple[Any, Any, Any]:
        """Piece k of `size` rows, and where it starts and should start: the last one reaches back."""
        first = k * size
        start = jnp.minimum(first, self.n - size)
        take = lambda x: lax.dynamic_slice_in_dim(x, start, size)  # noqa: E731
        return jax.tree_util.tree_map(take, self.data), start, first

    def totals(self, values: Callable[[Any], jax.Array], n_arms: int, on: jax.Array) -> jax.Array:
        """Sums of ``values(piece)``, shape (n_arms, rows), over all rows, as words of doubles; 0 where `on` is 0.

        `on` is 1 where -inf is an error, else 2.
        """
        size, words = self.chunk, _xla.WORDS_OF_A_TOTAL * n_arms
        last = -(-self.n // size)
        on = jnp.asarray(on, jnp.int32)

        def more(carry: tuple[Any, Any]) -> Any:
            return (on > 0) & (carry[0] < last)

        def add(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            k, total = carry
            piece, start, first = self.piece(k, size)
            span = jnp.stack([start, first]).astype(jnp.int32)
            return k + 1, call("fastrace_total_add", (words,), jnp.uint32, total, values(piece), span, on)

        out: jax.Array = lax.while_loop(more, add, (jnp.int32(0), jnp.zeros(words, jnp.uint32)))[1]
        return out


class Race:
    """The plan of races of one kind, and the loop that reads rows until a verdict falls."""

    def __init__(
        self, n_rows: int, *, n_arms: int, delta: float, bound: str, support: _checks.Support | None, first_look: int,
        advantage: float, delayed: bool = False, guard: bool | None = None,
    ) -> None:
        self.n_rows, self.n_arms = n_rows, n_arms
        self.first_look = min(_checks.integer(first_look, "first_look", 2, "one row has no variance"), n_rows)
        self.delta = _checks.probability(delta, "delta")
        name = _checks.choice(bound, "bound", ("auto", *BOUNDS))
        self.bound = _schedules.bound_of(name, "geometric", support is not None)
        if self.bound != "normal" and support is None:
            raise ValueError(f"bound is {bound!r} and support is None; a rigorous bound needs support=(low, high), "
                             f"because nothing else limits what unread rows can be")
        if not _checks.real(advantage, "scan_advantage") >= 1.0:
            raise ValueError(f"scan_advantage is {advantage}; reading in order cannot cost more than at random")
        low, high = -np.inf, np.inf
        if support is not None:
            lows, highs = _checks.support_bounds(support, 1)
            low, high = float(lows[0]), float(highs[0])
        share: NDArray[np.float64]
        guarded = n_arms == 0 and _schedules.guarded(guard, self.bound)
        if n_arms == 0:
            looks = _schedules.looks("geometric", n_rows, self.first_look, 2.0)
            share, quantile = _schedules.shares(
                self.bound, "geometric", self.delta, looks, self.first_look, 2.0, False, guarded
            )
        else:
            looks, quantile, level = _plan(
                n_arms, n_rows, self.delta, self.bound, "pairwise", self.first_look, 2.0, False, False
            )
            share = np.full(looks.size, level)
        self.plan = _xla.plan(
            BOUNDS.index(self.bound), n_rows, looks, share, quantile,
            n_arms=n_arms, delayed=delayed, guard=guarded, advantage=advantage, low=low, high=high,
        )  # fmt: skip
        self.words = _xla.words(n_arms)

    def call(self, name: str, *operands: Any) -> jax.Array:
        """A compiled function that returns a state."""
        return call(name, (self.words,), jnp.uint32, *operands, plan=self.plan)

    def run(self, state: jax.Array, read: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """Read rows by ``read(rows)`` until a verdict falls, in small blocks first."""
        look = "fastrace_race_look" if self.n_arms == 0 else "fastrace_arms_look"
        for block, last in ((self.first_look, STAGE * self.first_look), (STAGE * self.first_look, self.n_rows)):
            if block >= self.n_rows and block > self.first_look:
                break
            size, end = min(block, self.n_rows), min(last, self.n_rows)

            def more(state: jax.Array, end: int = end) -> Any:
                return (state[0] == PENDING) & (state[2] < end)

            def body(state: jax.Array, size: int = size) -> jax.Array:
                rows = call("fastrace_race_rows", (size,), jnp.int32, state)
                return self.call(look, state, read(rows))

            state = lax.while_loop(more, body, state)
        return state


def sum_of_counts(a: jax.Array, b: Any) -> jax.Array:
    """Of counts in int32; 2^31 - 1 where it is larger."""
    return a + jnp.minimum(b, MOST_ROWS - a)


def info_of(state: jax.Array, lost: jax.Array, accepted: jax.Array, n_rows: int) -> RaceInfo:
    """What a race that is over, and was `lost` before its full pass or not, has taken."""
    skipped = state[3] != 0
    read = state[2].astype(jnp.int32)
    return RaceInfo(
        rows=sum_of_counts(read, jnp.where(lost, n_rows, 0).astype(jnp.int32)),
        looks=state[1].astype(jnp.int32),
        accepted=accepted,
        full_pass=lost,
        undecided=(read == n_rows) | (lost & ~skipped),
    )
