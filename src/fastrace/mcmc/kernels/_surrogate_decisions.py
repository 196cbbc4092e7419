"""How a step on a surrogate is decided: by which rows, by which bounds on them, and by which chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.mcmc.kernels._chain import Chain, ExactChain, Move
from fastrace.mcmc.kernels._minibatch import BlockPoissonChain, BlockTable, PoissonChain
from fastrace.mcmc.kernels._pieces import PiecePoissonChain
from fastrace.mcmc.kernels._racing import PAIRS, Racing
from fastrace.mcmc.kernels._rows import PILOT_SEED, ChainState, NoStartError, most_drawn, table_of, worth_thinning
from fastrace.mcmc.kernels._surrogate import GivenMove
from fastrace.mcmc.kernels._surrogate_moves import FEW_ROWS, FLAT_ROWS, PILOT, OnSurrogate, root_of_rows
from fastrace.mcmc.models._pieces import pieces_of
from fastrace.mcmc.models._sites import left_of_rows, replaced
from fastrace.mcmc.models._unseen import orthonormal
from fastrace.mcmc.models.model import GLM, Reference
from fastrace.mcmc.models.softmax import Softmax
from fastrace.mcmc.protocol import Steps, from_flags
from fastrace.sources import Source

Array = NDArray[np.float64]
BoundsOf = Callable[[NDArray[np.intp], Array, Array], Array]  # of rows, for a move between two steps

PILOT_ROWS = 20_000  # of each of `PAIRS` moves, that say how wide bounds of rows in groups are best
ALONG_ROWS = 256  # rows, up to which these have walks of their own, where
PILOT_OF_FEW, REFUSED = 100, 0.4  # of so many steps at most this share is accepted
PILOT_OF_GROUPS, LASTS = 400, 2.5  # with groups, of so many a state lasts longer than this, in steps, on average, or
LASTS_OF_FEW = 8.0  # than this where minibatches decide, beside which a sweep over groups is dear
MOSTLY_ALL = 0.5  # of the rows; a race that reads more in a step is as dear as all
PILOT_PASSES = 10_000_000  # rows that those of a model with groups may read
NOISE = 0.5  # variance that minibatches then add to the log acceptance ratio
LITTLE, CHEAP = 0.1, 32.0  # variance that is worth so many rows, which are read in less time than a move takes
WORTH = 0.05  # of the rows, from which on a race is tried in its place
MOST_WIDENED = 0.5 * WORTH  # of the rows, that minibatches by wider bounds may read
BALLS = 1.0, 2.5, 5.0  # radii of smaller balls for blocks, beyond the root of the coordinates that a row sees
SMALLER = 0.6  # of the next larger ball's weights, below which those of a smaller one are worth their memory

BAD_FIT = (
    "the expansion fits the posterior too badly for few rows to decide. The draws are right all the same, at the price "
    "of a full pass each; smaller moves, size=0.3, leave less to decide"
)


class DecidedByRows(OnSurrogate, Racing):
    """Base of kernels whose moves on a surrogate rows correct; see `SurrogateMetropolis` for the parameters."""

    reference: Reference
    full_pass_at: float
    _blocks: BlockTable | None
    _balls: tuple[tuple[float, BlockTable], ...] = ()  # of blocks
    _wider = 1.0  # factor of their bounds
    _inverse_cubes: NDArray[np.float32] | None = None  # of rows that are thinned
    _parts: Array | None = None  # weights of the rows in pieces, until there is a table

    def _first_decision(self) -> str:
        """What "auto" is before bounds on rows are known."""
        if self._scaled and self.model._glm.family == "gaussian":  # type: ignore[attr-defined]
            return "none"
        model, n = self.model, self.model.n_rows
        if n <= FEW_ROWS:
            return "exact"
        # To find such groups takes two passes over the rows for each effect.
        if isinstance(model, GLM) and model.factors and not self._scaled and max(n, 4 * model.n_seen) <= FLAT_ROWS:
            return "exact" if len(self._flat_effects()) else "auto"
        return "auto"

    def _decide_by_bounds(self) -> None:
        """Take up the bounds on rows; with "auto", race where there are none or a pilot reads too much by them."""
        asked, weights = self.decision, self.reference.weights
        if weights is None and asked == "poisson":
            raise ValueError(f"{self.model!r} gives no bound on the third derivative of each row's term, without which "
                             f"no minibatch is exact; take decision='race' or 'exact'")
        self.decision = self._without_bounds() if weights is None else "poisson"
        if weights is None:
            return
        if self._pieces is not None:
            self._blocks = self._piece_table()
        else:
            # In a block fewer coordinates matter than the radii are for: the smallest ball holds nearly all moves.
            self._radius = self._shells[0][0] if self._shells else self.reference.radius
            self._blocks, self._balls = self._block_tables(self._innermost)
        if self._blocks is None:
            self._table = table_of(weights)
            self._inner_tables = tuple(table_of(smaller) for _, smaller in self._shells)
        if self._pieces is None and worth_thinning(self._innermost, self._seen_by_row):
            self._inverse_cubes = self._cubes_of_rows()
        if asked == "auto":
            rng = np.random.default_rng(PILOT_SEED)
            start = self._pilot_start(rng)
            if start is None:
                return
            _, steps = self.run(rng, start, PILOT)
            decisions = 1 if self._along is None else 1 + len(self._along)
            if steps.rows.mean() > WORTH * self.model.n_rows * decisions:
                self.decision = self._without_bounds()
                self._engines, self._along, self._stay = [], None, None
                self.reference = replace(self.reference, weights=None, shells=())

    def _pilot_start(self, rng: np.random.Generator) -> ChainState | None:
        """Where a pilot begins; None where no start is found, as a user may know one for chains."""
        try:
            return self.init(None, rng)
        except NoStartError:
            return None

    def _carrier(self) -> Reference:
        """What the source expands at, and the bounds on what it leaves where the decision needs them.

        Its root of n_seen^2 numbers is for bounds on rows that may see all parameters, and to judge draws of models
        without hyperparameters.
        """
        model: Any = self.model
        hat, bounded = np.array(self.compressed.psi_hat), self.decision in ("auto", "poisson")
        root, grouped = np.empty((0, 0)), isinstance(model, (GLM, Softmax))
        crossed = bounded and grouped and len(model.factors) > 1
        if (bounded and not crossed and not self._in_blocks) or self.compressed.prior.n_hyper == 0:
            root = self.compressed.covariance_root()
        if crossed:
            self._pieces = pieces_of(self.compressed.factor(), model.factors)
            self._parts, rounding = model._piece_weights(hat, self._pieces)
            self._unseen = orthonormal(self._unseen_ways(), self.compressed.metric())
            return Reference(hat, hat, root, self._parts.sum(axis=0), math.inf, rounding=rounding)
        bounds: tuple[Any, ...] = (None, math.inf, 0.0)
        if bounded and isinstance(model, GLM):
            kept = model._kept
            if kept is None or not np.array_equal(kept.hat, hat):  # then there is one metric
                self._metric_of_bounds = None
            factor = root_of_rows(self._factor_of_bounds()) if self._in_blocks else root
            bounds = model._bounds(hat, factor)
            self._ways = model._about(hat, factor).unseen()
            self._unseen = orthonormal(self._ways, self.compressed.metric())
        elif bounded:
            bounds = model._bounds(hat, root_of_rows(self.compressed.factor()) if self._in_blocks else root)
            if self._in_blocks:
                self._unseen = orthonormal(self._unseen_ways(), self.compressed.metric())
        weights, radius, rounding, *shells = bounds
        return Reference(hat, hat, root, weights, radius, rounding=rounding, shells=tuple(shells))

    @property
    def _seen_by_row(self) -> int:
        """How many coordinates a row sees."""
        arrow = self.compressed.curvature
        return int(arrow.n_dense + (arrow.width if arrow.n_blocks else 0))

    def _cubes_of_rows(self) -> NDArray[np.float32] | None:
        lengths = (self._lengths_of_rows(),) if self._in_blocks and isinstance(self.model, GLM) else ()
        return self.model._inverse_cubes(self.reference, *lengths)

    @property
    def walks_along_rows(self) -> bool:
        """Whether sweeps over groups, or random walks decided by all rows, follow each step."""
        return self.decision == "exact" and (self._along is not None or bool(self._swept))

    @property
    def rests_on_surrogate(self) -> bool:
        """Whether a chain may get stuck where the surrogate has too little mass.

        Not where groups are swept: then effects move by the rows of their group, from a prior that reaches wherever
        these do, and all else given the effects, by steps that the surrogate has no say in.
        """
        return not self._swept

    def _mend_refusals(self, asked: str) -> None:
        """Where most moves are refused: sweeps over groups, or walks along the worst of few rows that are all read.

        Such are many small groups, many parameters, or outcomes that columns separate. Rows that are walked along have
        normal factors. Where minibatches decide, a sweep is dear beside a move, and made only where "auto" chose
        them and chains stand still. Races of classes give way to all rows, beside which they are not worth their error.
        """
        model: Any = self.model
        classes = isinstance(model, Softmax)
        if not (isinstance(model, GLM) or classes and model.factors) or self._scaled:
            return
        exact, swept = self.decision == "exact", bool(self._swept)
        most = FLAT_ROWS if classes else PILOT_PASSES // PILOT_OF_FEW
        grouped = swept or (bool(model.factors) and model.n_rows <= most)
        by_few = self._blocks is not None if self.decision == "poisson" else classes
        if not exact and not (asked == "auto" and grouped and by_few):
            return
        if not grouped and (classes or model.n_rows > ALONG_ROWS or model.factors or model.learns_scale
                            or self.inner == "hmc"):
            return
        rng = np.random.default_rng(PILOT_SEED)
        start = self._pilot_start(rng)
        if start is None:
            return
        state, steps = self.run(rng, start, PILOT_OF_FEW)
        moved, whole = steps.accepted, exact or steps.rows.mean() > MOSTLY_ALL * model.n_rows
        refused = whole and moved.mean() <= REFUSED
        if grouped and not (refused or swept):  # a chain of some effects a group may move well and stand still for long
            more = (min(PILOT_OF_GROUPS, PILOT_PASSES // model.n_rows) if whole else PILOT_OF_GROUPS) - PILOT_OF_FEW
            moved = np.concatenate([moved, self.run(rng, state, more)[1].accepted])
            refused = _mean_run(moved) > (LASTS if whole else LASTS_OF_FEW)
        self._engines = []
        if swept:
            self._walks_a_step = int(not refused and self._along is not None and len(self._along) == self._n_shared)
            return
        if not refused:
            return
        if grouped:
            self.decision = "exact" if self.decision == "race" else self.decision
            self._sweep_groups()
            return
        hat, no_effects = np.array(self.compressed.psi_hat), np.zeros(0, dtype=np.intp)
        sites = replaced(model, hat, self.compressed.factor(), self._lengths_of_rows(), no_effects)
        if sites is not None:
            self._tilt, self._bend, self._along = sites.tilt, sites.bend, sites.walks

    def _block_tables(self, weights: Array) -> tuple[BlockTable | None, tuple[tuple[float, BlockTable], ...]]:
        """Rows by the block of coordinates that they see beside the dense ones, if there are blocks; and in balls."""
        arrow, model = self.compressed.curvature, self.model
        if not (self._in_blocks and arrow.n_blocks and weights.any()):
            return None, ()
        factor = model.factors[0]  # type: ignore[attr-defined]
        assert factor.start == arrow.start
        balls = [] if self._along is None else self._smaller_balls(weights)
        self._wider = self._widening(self._bounds_in_blocks([*balls, (math.inf, weights)]))
        codes = factor.codes.astype(np.uint16) if arrow.n_blocks < 1 << 16 else factor.codes  # which are sorted sooner
        tables = [BlockTable(own, codes, arrow.n_blocks) for own in (*(w for _, w in balls), weights)]
        return tables[-1], tuple((radius, table) for (radius, _), table in zip(balls, tables, strict=False))

    def _smaller_balls(self, weights: Array) -> list[tuple[float, Array]]:
        """Radii and weights of smaller balls, where these ask for far fewer rows: as of groups with one outcome alone.

        The radii of `Reference.shells` are for all coordinates together, of which a row sees few.
        """
        arrow, model = self.compressed.curvature, self.model
        out: list[tuple[float, Array]] = []
        hat, lengths, total = np.array(self.compressed.psi_hat), self._lengths_of_rows(), math.fsum(weights)
        for beyond in reversed(BALLS):
            radius = math.sqrt(arrow.n_dense + arrow.width) + beyond
            smaller = np.minimum(model._weights_within(hat, lengths, radius), weights)  # type: ignore[attr-defined]
            if radius < self._radius and smaller.any() and math.fsum(smaller) <= SMALLER * total:
                out.append((radius, smaller))
                total = math.fsum(smaller)
        return out[::-1]

    def _bounds_in_blocks(self, balls: Sequence[tuple[float, Array]]) -> BoundsOf:
        """Bounds of rows by one block each, from weights within balls, the smallest first."""
        arrow, factor = self.compressed.curvature, self._factor_of_bounds()
        codes = self.model.factors[0].codes  # type: ignore[attr-defined]
        dense = np.asarray(arrow.block_coordinates()[1])
        own = slice(arrow.start, arrow.start + arrow.n_blocks * arrow.width)

        def bounds(rows: NDArray[np.intp], before: Array, after: Array) -> Array:
            squares = np.square([factor.whiten(before), factor.whiten(after)])
            far = squares[:, own].reshape(2, arrow.n_blocks, arrow.width).sum(axis=2)
            far = np.sqrt(far + squares[:, dense].sum(axis=1, keepdims=True))[:, codes[rows]]
            weights = balls[-1][1][rows]
            for radius, smaller in reversed(balls[:-1]):
                weights = np.where(far.max(axis=0) <= radius, smaller[rows], weights)
            return np.asarray(weights * (far**3).sum(axis=0) / 6.0)

        return bounds

    def _piece_table(self) -> BlockTable:
        """Rows by the pieces that they see."""
        assert self._pieces is not None and self._parts is not None
        pieces, weights, self._parts = self._pieces, self._parts, None
        codes = pieces.codes(self.model.factors)  # type: ignore[attr-defined]

        def bounds(rows: NDArray[np.intp], before: Array, after: Array) -> Array:
            cubes = pieces.cubes(before) + pieces.cubes(after)
            return np.asarray((weights[:, rows] * cubes[codes[:, rows]]).sum(axis=0) / 6.0)

        self._wider = self._widening(bounds)
        return BlockTable(weights, codes, pieces.n_blocks)

    def _widening(self, bounds_of: BoundsOf) -> float:
        """By how much to multiply bounds, so that minibatches add little noise to decisions.

        A row drawn at the rate of its bound b adds about change^2 / b to the variance of the log acceptance ratio.
        """
        rng, n = np.random.default_rng(PILOT_SEED), self.model.n_rows
        ends = self._ends(2 * PAIRS, rng)
        rows = rng.integers(n, size=min(n, PILOT_ROWS))
        steps = self._seen_of(ends - self.compressed.psi_hat)
        source, theta = self.model.engine(self.reference)
        noise = rate = 0.0
        for k in range(0, 2 * PAIRS, 2):
            theta[:] = ends[k : k + 2]
            before, after = source.read(rows, [0, 1]).T
            bounds = bounds_of(rows, *steps[k : k + 2])
            drawn = bounds > 0.0
            noise += n / PAIRS / len(rows) * float(np.sum(np.square(after - before)[drawn] / bounds[drawn]))
            rate += n / PAIRS / len(rows) * float(bounds.sum())
        if not (rate > 0.0 and math.isfinite(noise)):
            return 1.0
        return max(1.0, min(noise / NOISE, MOST_WIDENED * n / rate), min(noise / LITTLE, CHEAP / rate))

    def _seen_of(self, steps: Array) -> Array:
        """Steps without their parts along directions that no row sees."""
        if self._unseen is None:
            return steps
        ways, held = self._unseen
        return np.asarray(steps - (steps @ held.T) @ ways)

    def _without_bounds(self) -> str:
        """How "auto" decides where no minibatch is cheap."""
        return "exact" if self._grouped and (self._races_miss() or self._apart is not None) else "race"

    @property
    def _grouped(self) -> bool:
        """Whether few rows that matter are to be expected, as of small groups; elsewhere "auto" races as it did."""
        model = self.model
        return isinstance(model, (GLM, Softmax)) and bool(model.factors) and self.inner != "hmc"

    def _ends(self, n: int, rng: np.random.Generator) -> Array:
        return np.array([self._draw(rng)[: self.compressed.n_seen] for _ in range(n)])

    def _left_of_rows(self) -> Array:
        model = self.model
        if not isinstance(model, GLM) or model.learns_scale:
            return super()._left_of_rows()
        return left_of_rows(model, np.array(self.compressed.psi_hat), self._lengths_of_rows())

    @property
    def _instead(self) -> str:
        return "decision='poisson' or 'exact'"

    @property
    def full_pass_advice(self) -> str:  # type: ignore[override]
        return "" if self.decision in ("exact", "none") or self._swept else BAD_FIT

    @property
    def _weights(self) -> Array | None:
        return self.reference.weights

    def _decided(self, rng: np.random.Generator, points: Array, size: int) -> Iterator[Steps]:
        """An independence chain over draws of the surrogate, of what the rows see, in slices of so many draws.

        The first draw is taken as it is.
        """
        chain, n, dim = self._engine(GivenMove(points[1:])), len(points), points.shape[1]
        chain.load(np.concatenate([points[0], np.zeros(chain.n_hyper)]), np.empty(0), None)
        for first in range(0, n, size):
            m, given = min(size, n - first), int(first == 0)
            draws = np.empty((m, chain.dim))
            draws[:given, :dim] = points[:given]
            rows, looks, flags = np.zeros(m, np.int64), np.zeros(m, np.int32), np.ones(m, np.uint8)
            chain.run(rng, draws[given:], rows[given:], looks[given:], flags[given:])
            yield from_flags(draws[:, :dim], rows, looks, flags)

    # Engines.

    def _engine(self, move: Move) -> Chain:
        source, theta = self.model.engine(self.reference)
        bounds = self._bounds_of_moves()
        return self._chain(
            source, theta, None, None, move, surrogate=True, weights=bounds, n_hyper=self.compressed.prior.n_hyper,
            metric=None if bounds is None else self._metric,
        )

    @property
    def _from_hat(self) -> Array:
        return self.reference.theta_hat

    def _chain(self, source: Source, *args: Any, **options: Any) -> Any:
        if self.decision == "race":
            return super()._chain(source, *args, **options)
        if self.decision in ("exact", "none"):
            return ExactChain(source, *args, **options)
        most = most_drawn(self.full_pass_at, self.model.n_rows)
        if self._blocks is None:
            chain = PoissonChain(source, *args, **options)
            chain.set_table(self._table, most, *self._inner_tables)
            chain.set_inverse_cubes(self._inverse_cubes)
            return chain
        if self._pieces is not None:
            chain = PiecePoissonChain(source, *args, **options)
            chain.set_pieces(self._blocks, self._pieces, self.compressed.psi_hat, most, self._wider, self._unseen)
            return chain
        chain = BlockPoissonChain(source, *args, **options)
        chain.set_blocks(self._blocks, self._factor_of_bounds(), self.compressed.psi_hat, self._radius, most,
                         *self._balls, wider=self._wider, unseen=self._unseen)
        chain.set_inverse_cubes(self._inverse_cubes)
        return chain


def _mean_run(moved: NDArray[np.bool_]) -> float:
    """How many steps the state of a step lasts in all, mean over steps: (2 - a) / a where each moves with chance a."""
    ends = np.concatenate([[0], np.flatnonzero(moved), [len(moved)]])
    return float(np.square(np.diff(ends)).sum()) / len(moved)
