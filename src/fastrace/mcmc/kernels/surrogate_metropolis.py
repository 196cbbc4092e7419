"""Metropolis-Hastings on a surrogate of the likelihood, corrected by few rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from fastrace._base import _checks
from fastrace._models._arrow import Arrow
from fastrace.control_variates import ControlVariate
from fastrace.mcmc.compression import Compressed, compress, require_of
from fastrace.mcmc.kernels._chain import Chain, ExactChain, Move
from fastrace.mcmc.kernels._minibatch import BlockPoissonChain, BlockTable, PoissonChain
from fastrace.mcmc.kernels._pieces import PiecePoissonChain
from fastrace.mcmc.kernels._racing import Racing
from fastrace.mcmc.kernels._rows import (
    SPREAD,
    WINDOW,
    ChainState,
    Tuning,
    checked_share,
    most_drawn,
    table_of,
)
from fastrace.mcmc.kernels._scaled import scaled_inner
from fastrace.mcmc.kernels._surrogate import Inner, NormalInner, SurrogateMove
from fastrace.mcmc.kernels._trajectories import trajectories_of
from fastrace.mcmc.models._pieces import Pieces, pieces_of
from fastrace.mcmc.models._sites import held_apart, replaced
from fastrace.mcmc.models.model import GLM, Model, NoModeError, Reference
from fastrace.mcmc.protocol import Steps
from fastrace.races._options import RaceOptions, takes_options
from fastrace.sources import ArraySource, Source

Array = NDArray[np.float64]

MOST_BY_SLICES = 8  # hyperparameters that the nested normal is taken for by default
FIRST_TRAJECTORIES = 50  # from one point to a start
NORMAL_DRAWS, NORMAL_SHARE = 400, 0.75  # of the nested normal, and the effective share of them that makes it cheapest
DECISIONS = ("auto", "race", "poisson", "exact")
INNERS = ("auto", "normal", "hmc")
SCALED = ("gaussian", "student-t")  # families whose surrogate is normal given a learned scale
LARGE, FIXED = 2e6, 0.95  # products that a factor takes, from which on most moves do without one of their own; how many
LEAN = 0.3  # deviation under the surrogate of what a tilt adds, from which on it is worth while
HYPER_SD = 0.3  # of random walks of hyperparameters where no normal density is near them
TARGET = 0.5  # share of whole moves accepted, below which moves become smaller
LEAST = 0.05  # of a move's size
PILOT, PILOT_SEED = 40, 20160619  # steps that say how many rows a minibatch takes, always from one seed
MISSED = 0.01  # share of the rows: where fewer hold what the expansion leaves, first looks of 50 rows miss them
FEW_ROWS = 4096  # that are read in less time than a move takes: minibatches of them accept less, and races may err
VAGUE, STRIDE = 0.2, 4.0  # deviation of the log of a learned scale that asks for plain steps; their length in such
PAIRS, PILOT_ROWS = 8, 20_000  # moves, and rows of each, that say how wide bounds of several factors are best
NOISE = 0.5  # variance that minibatches then add to the log acceptance ratio
MOST_VAGUE = 5.0  # of that deviation, with which scales would be 0 or infinite in double precision
MOST_APART = 0.02  # of the rows, which every race may read
WORTH = 0.05  # of the rows, from which on a race is tried in its place
BETWEEN = 3  # moves between two draws of it whose weights are looked at
CHECK = 10  # steps without a decision between two looks at the posterior of where they lead; a window has a multiple
FIRST_MOVES = 5  # on the surrogate, from its center to a draw of it

BAD_FIT = (
    "the expansion fits the posterior too badly for few rows to decide. The draws are right all the same, at the price "
    "of a full pass each; smaller moves, size=0.3, leave less to decide"
)


class SurrogateMetropolis(Racing):
    r"""Metropolis-Hastings on prior times expansion without rows, each step corrected by few of them.

    The likelihood is expanded once, in what the rows see: coefficients and group effects, not the scales behind them.
    The prior times that expansion is the surrogate. A step runs a kernel on the surrogate, which reads no row, and
    accepts where it ends by what the rows leave of the expansion. So hierarchical models over tall data cost about as
    much as their prior does.

    Parameters
    ----------
    model : GLM or other Model
        Log-likelihood terms, with derivatives, and a prior.
    inner : {"auto", "normal", "hmc"}, default "auto"
        How a step moves on the surrogate. "normal", the nested normal: hyperparameters from their marginal under the
        surrogate, then all that rows see given them, which is normal; nearly independent draws. "hmc": Hamiltonian
        trajectories, for priors that are far from normal; their steps and coordinates are settled on the surrogate
        when the kernel is made. "auto": the first up to 8 hyperparameters, unless less than .75 of 400 draws of it,
        always from one seed, are effective once weighted by what it leaves of the prior, as for tight Laplace priors.
    decision : {"auto", "race", "poisson", "exact"}, default "auto"
        How a step is decided. "race": as in `RacingMetropolis`, wrong with probability `delta` at most. "poisson":
        without error, from a Poisson minibatch; it needs a bound on each row's third derivative, which `GLM` knows.
        "exact": by all rows. "auto": by no row where the surrogate is the likelihood itself, as with a Gaussian
        likelihood whose scale is learned, and describe() says "none"; else "exact" up to 4096 rows, which are read in
        no time; "poisson" where such bounds are known and a short pilot, always from one seed, reads few rows by them;
        else "exact" where a few rows hold most of what the expansion leaves, such as a small group of one outcome,
        which small subsets miss; else "race". A race asked for by name reads these rows in every decision, and races
        the others; where it would take more than 2 % of the rows, it is a warning of `mcmc.sample`.
    n_inner : int, default 1
        Moves on the surrogate between two decisions.
    size : float, default 1.0
        Of a move at the start, above 0. 1 is a whole one; tuning makes it smaller where too many are refused.
    psi_hat : array_like of shape (n_seen,) or Compressed, optional
        Where to expand, or the expansion; by default `compress` finds it. A learned scale is its logarithm here, and
        itself in draws: of a draw x, this is ``kernel.model.unconstrain(x)[:kernel.model.n_seen]``.
    delta, bound, first_look, growth, access, student, skewness_guard
        Of the race, as in `RacingMetropolis`.
    full_pass_at : float, default 0.5
        Of the Poisson minibatch, as in `PoissonMinibatchMetropolis`.
    options : RaceOptions, optional
        Several of the options of races at once; what the call spells goes before it.

    Raises
    ------
    ValueError
        If an argument is out of range, the model has no derivatives, it has no bounds and the decision needs them, or a
        `Compressed` is of another model.

    See Also
    --------
    compress : the expansion as an object.
    PoissonMinibatchMetropolis, RacingMetropolis : for posteriors that are nearly normal.

    Notes
    -----
    Let :math:`\pi_s(\theta) \propto p(\theta) e^{Q(\psi)}` be the surrogate and R the log-likelihood less its
    expansion Q, so that the posterior is :math:`\pi_s e^R`. For a kernel T reversible with respect to
    :math:`\pi_s`, the flow :math:`\pi(\theta) T(\theta, \theta') \min(1, e^{R(\psi') - R(\psi)})` is the same
    in both directions, so that the posterior is invariant [1]_ [2]_; the decision is the race or minibatch that other
    kernels make too.

    A row sees the shared parameters and the effects of its own group, but not those of other groups. So the bound on
    the change of its term rests on how far those few coordinates move, in units of their posterior, and minibatches
    are far smaller than for a model with as many coefficients. With several grouping factors a row's bound is a sum of
    one part for each factor and one for the shared parameters, and rows are drawn for one part at a time. Such bounds
    are made wider, by a factor from a pilot, where larger minibatches refuse fewer moves.

    The nested normal is what integrated nested Laplace approximations compute [3]_; here the rows correct it. Its
    price is O(s^3 + G s^2) a marginal density for G groups and s other parameters. Where that is large, most moves do
    without it if a pilot shows that they get far: hyperparameters given what the rows see, and that by the factor of
    one fixed point, so that a move costs O(s^2 + G s).

    The logarithm of a learned scale of Gaussian or Student-t outcomes moves with the hyperparameters: given it the
    curvature of the surrogate is that where it was expanded, times the squared ratio of both scales. For a Gaussian
    likelihood this is no approximation.

    Where groups are many, the expansion's mean is away from the posterior's by much in all of them together. Then the
    surrogate is tilted: to its gradient comes the mean change of the rows' gradients over their own spread, without
    rows that the tilt would move by more than that spread. Decisions take the tilt off again.

    Groups with one outcome alone and rows of great leverage make the posterior far from normal in a few directions.
    Where there are such, in data of more than 4096 rows, normal factors by expectation propagation stand for them in
    the surrogate, and decisions take the difference off again. With minibatches, a random walk along each of these
    directions, with a decision of its own, follows every step, and three moves in four leave the effects of such groups
    where they are, standardised given all else. A step counts the rows that all its decisions read.

    While tuning, a chain that starts far from where the expansion holds makes its first steps on the surrogate alone.
    A full pass at the start and after every tenth of them, which no step counts, says where the posterior was highest:
    there it goes on, since the surrogate of a group of one outcome may have mass far out.
    Where the posterior has a longer tail than the surrogate, or the expansion is at a wrong point, a chain far out
    would see the surrogate's proposals refused for ever. So 5 % of all steps are random walks, decided at once by prior
    and likelihood, whatever the expansion says.

    References
    ----------
    .. [1] Liu, "Monte Carlo Strategies in Scientific Computing", Springer 2001, section 9.4.3.
    .. [2] Christen, Fox, "Markov chain Monte Carlo using an approximation", JCGS 14(4), 2005.
    .. [3] Rue, Martino, Chopin, "Approximate Bayesian inference for latent Gaussian models by using integrated nested
       Laplace approximations", JRSS-B 71(2), 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> kernel = mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior_sd=10.0))
    >>> trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    >>> bool(trace.accepted.mean() > 0.9)
    True
    """

    _tilt: Array | None = None  # of the surrogate's gradient, while a chain moves
    _stay: Array | None = None  # effects of groups that have directions of their own
    _along: Array | None = None  # directions of random walks
    _bend: Arrow | None = None  # of its curvature
    _apart: NDArray[np.intp] | None = None  # rows that every race reads
    _spreads: Array | None = None  # of the rows' predictors, while a kernel is made
    _missed = False  # whether few rows hold what a race is about
    _fixed_share = 0.0  # of moves without a factor of their own
    _stride = 0.0  # of kernels saved before there were plain steps
    _walks: Array | None = None
    _scaled = False  # whether a learned scale moves with the hyperparameters
    _pieces: Pieces | None = None  # of rows that belong to a group of each of several factors, and
    _parts: Array | None = None  # weights of the rows in them, until there is a table

    least_accepted = 0.2

    @takes_options
    def __init__(
        self,
        model: Model,
        inner: str = "auto",
        decision: str = "auto",
        *,
        n_inner: int = 1,
        size: float = 1.0,
        psi_hat: ArrayLike | Compressed | None = None,
        delta: float = 0.05,
        bound: str = "normal",
        first_look: int | None = None,
        growth: float | None = None,
        access: str = "auto",
        student: bool = False,
        skewness_guard: bool | None = None,
        full_pass_at: float = 0.5,
        options: RaceOptions | None = None,
    ) -> None:
        _checks.choice(inner, "inner", INNERS)
        self.decision = _checks.choice(decision, "decision", DECISIONS)
        self.n_inner = _checks.integer(n_inner, "n_inner", 1, "a step needs a move")
        self.size = _checks.real(size, "size")
        if not 0.0 < self.size <= 1.0:
            raise ValueError(f"size is {size}; a number above 0, at most 1, is needed")
        self.full_pass_at = checked_share(full_pass_at)
        if not isinstance(model, Model):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM or other mcmc.Model with derivatives is needed")
        self.model = model = model._surrogate_form()
        self.compressed = self._compress(psi_hat)
        self._engines: list[Chain] = []
        self.controlled = True
        self.inner = self._first_inner(inner)
        self._scaled = self.inner == "normal" and self._scale_has_closed_form()
        if self.decision == "auto":
            self.decision = self._first_decision()
        self._metric = self.compressed.metric()
        self._near = math.sqrt(self.compressed.n_seen) + 6.0
        self.reference: Reference = self._carrier()
        self._stride = self._stride_of_scale()
        self._settle()
        if inner == "auto" and self.inner == "normal" and not self._near_normal():
            self._move_by_trajectories(decision)
        if self.decision != "none":
            self._walks = self._walks_of()
        race = (delta, bound, first_look, growth, access, student, skewness_guard, None)
        if self.decision in ("auto", "poisson"):
            self._decide_by_bounds()
        if self.decision == "race":
            self._missed = decision == "race" and self._races_miss()  # "auto" has looked
            self._race_by(*race)
        self._spreads = None

    def _compress(self, psi_hat: Any) -> Compressed:
        if self.model.own_surrogate is not None:
            if isinstance(psi_hat, Compressed):
                raise ValueError("the rows see a map of the model's parameters, so that a Compressed is not of these; "
                                 "give the point psi_hat, what the rows see, or leave it out")
            return self.model.own_surrogate(psi_hat)
        if isinstance(psi_hat, Compressed):
            require_of(psi_hat, self.model)
            return psi_hat
        return compress(self.model, psi_hat)

    def _first_inner(self, inner: str) -> str:
        mapped = self.model.own_surrogate is not None
        if inner == "normal" and mapped:
            raise ValueError("inner='normal' needs a prior that is normal given its hyperparameters, and the model was "
                             "not recognised as one that has it; take inner='hmc'")
        if inner == "auto":
            return "hmc" if mapped or self.compressed.prior.n_hyper > MOST_BY_SLICES else "normal"
        return inner

    def _scale_has_closed_form(self) -> bool:
        """Whether the surrogate is normal given the scale, and a factor for each value of it is worth its price."""
        model = self.model
        if not (isinstance(model, GLM) and model.learns_scale and model._glm.family in SCALED):
            return False
        if model._glm.family == "student-t" and model.n_rows > FEW_ROWS:  # then an expansion does as well
            return False
        s, m = self.compressed.curvature.n_dense, self.compressed.n_seen
        twice = self.compressed.curvature.diagonal()[-1]  # the closed form has a maximum in the scale
        return bool(s * s * m <= LARGE and twice > 0.0 and 0.5 * twice > self.compressed.slope[-1])

    def _first_decision(self) -> str:
        """What "auto" is before bounds on rows are known."""
        if self._scaled and self.model._glm.family == "gaussian":  # type: ignore[attr-defined]
            return "none"
        return "exact" if self.model.n_rows <= FEW_ROWS else "auto"

    def _move_by_trajectories(self, decision: str) -> None:
        """Hamiltonian moves in place of the nested normal, on the expansion itself."""
        self.inner, scaled, self._scaled = "hmc", self._scaled, False
        if scaled:
            self._stride = self._stride_of_scale()
        if self.decision == "none":
            self.decision = self._first_decision()
            self.reference = self._carrier()
        self._settle()

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
            self._radius, smallest = self._shells[0] if self._shells else (self.reference.radius, weights)
            self._blocks = self._block_table(smallest)
        if self._blocks is None:
            self._table = table_of(weights)
            self._inner_tables = tuple(table_of(smaller) for _, smaller in self._shells)
        if asked == "auto":
            rng = np.random.default_rng(PILOT_SEED)
            _, steps = self.run(rng, self.init(None, rng), PILOT)
            decisions = 1 if self._along is None else 1 + len(self._along)
            if steps.rows.mean() > WORTH * self.model.n_rows * decisions:
                self.decision = self._without_bounds()
                self._engines, self._along, self._stay = [], None, None
                self.reference = replace(self.reference, weights=None, shells=())

    def _carrier(self) -> Reference:
        """What the source expands at, and the bounds on what it leaves where the decision needs them."""
        hat, bounded = np.array(self.compressed.psi_hat), self.decision in ("auto", "poisson")
        root, crossed = np.empty((0, 0)), bounded and isinstance(self.model, GLM) and len(self.model.factors) > 1
        if (bounded and not crossed) or self.compressed.prior.n_hyper == 0:
            root = self.compressed.covariance_root()
        if crossed and isinstance(self.model, GLM):
            self._pieces = pieces_of(self.compressed.factor(), self.model.factors)
            self._parts, rounding = self.model._piece_weights(hat, self._pieces)
            return Reference(hat, hat, root, self._parts.sum(axis=0), math.inf, rounding=rounding)
        weights, radius, rounding, *shells = self.model._bounds(hat, root) if bounded else (None, math.inf, 0.0)
        return Reference(hat, hat, root, weights, radius, rounding=rounding, shells=tuple(shells))

    def _block_table(self, weights: Array) -> BlockTable | None:
        """Rows by the block of coordinates that they see beside the dense ones; None if there are no blocks."""
        arrow = self.compressed.curvature
        for factor in getattr(self.model, "factors", ()):
            if arrow.n_blocks and factor.start == arrow.start and weights.any():
                return BlockTable(weights, factor.codes, arrow.n_blocks)
        return None

    def _stride_of_scale(self) -> float:
        """Of plain steps of the logarithm of a learned scale; 0 where the rows say enough of it, or it is not learned.

        Where they say little, its posterior has the tail of its prior, which is longer than that of an expansion.
        """
        if self.compressed.prior.given[3] is None:
            return 0.0
        last = np.zeros(self.compressed.n_seen)
        last[-1] = 1.0
        sd = math.sqrt(float(self.compressed.factor().solve(last)[-1]))
        if sd > MOST_VAGUE:
            raise NoModeError(f"where the likelihood is expanded, rows and prior say almost nothing of the learned "
                              f"scale: its logarithm has a standard deviation of {sd:.3g}. Effects and scale cannot be "
                              f"told apart, as in groups of one row each: give scale, a narrower scale_prior, or leave "
                              f"out the groups")
        return STRIDE * sd if sd > VAGUE and not self._scaled else 0.0

    def _piece_table(self) -> BlockTable:
        """Rows by the pieces that they see, with bounds so wide that minibatches add little noise to decisions.

        A row drawn at the rate of its bound b adds about change^2 / b to the variance of the log acceptance ratio.
        """
        assert self._pieces is not None and self._parts is not None
        rng, weights, self._parts = np.random.default_rng(PILOT_SEED), self._parts, None
        codes, n = self._pieces.codes(self.model.factors), self.model.n_rows  # type: ignore[attr-defined]
        ends = np.array([self.init(None, rng).position[: self.compressed.n_seen] for _ in range(2 * PAIRS)])
        rows = rng.integers(n, size=min(n, PILOT_ROWS))
        cubes = [self._pieces.cubes(end - self.compressed.psi_hat) for end in ends]
        source, theta = self.model.engine(self.reference)
        noise = rate = 0.0
        for k in range(0, 2 * PAIRS, 2):
            theta[:] = ends[k : k + 2]
            before, after = source.read(rows, [0, 1]).T
            bounds = (weights[:, rows] * (cubes[k] + cubes[k + 1])[codes[:, rows]]).sum(axis=0) / 6.0
            drawn = bounds > 0.0
            noise += n / PAIRS / len(rows) * float(np.sum(np.square(after - before)[drawn] / bounds[drawn]))
            rate += n / PAIRS / len(rows) * float(bounds.sum())
        wider = max(1.0, min(noise / NOISE, WORTH * n / rate if rate > 0.0 else 1.0))
        return BlockTable(wider * weights, codes, self._pieces.n_blocks)

    def _settle(self) -> None:
        """Where the hyperparameters are under the surrogate, found without a row."""
        if self.inner == "hmc":
            self._trajectories = trajectories_of(self.compressed.quadratic, self.compressed.prior,
                                                 effort=self.model._effort)
            self._phi_center = self._trajectories.start[self.compressed.n_seen :]
            return
        self._phi_center, self._phi_factor = marginal_of(self.compressed, self._scaled)
        if isinstance(self.model, GLM) and self.model.factors and not self.model.learns_scale:
            pieces = self._pieces or pieces_of(self.compressed.factor(), self.model.factors)
            self._tilt, self._bend = self._better(pieces)
        s, m = self.compressed.curvature.n_dense, self.compressed.n_seen
        if self.compressed.prior.n_hyper and s * s * m > LARGE:  # never where a scale moves with the hyperparameters
            self._fixed_share = 1.0
            draws = self._inner().draws(self._middle, PILOT, np.random.default_rng(PILOT_SEED))
            moved = (np.diff(draws[:, : self.compressed.n_seen], axis=0) != 0.0).any(axis=1)
            self._fixed_share = FIXED if moved.mean() > TARGET else 0.0

    def _without_bounds(self) -> str:
        """How "auto" decides where no minibatch is cheap."""
        return "exact" if self._races_miss() or self._apart is not None else "race"

    def _races_miss(self) -> bool:
        """Whether so few rows hold what the expansion leaves that the first looks of a race see none of them."""
        model = self.model
        if not isinstance(model, GLM) or not model.factors or model.learns_scale or self.inner == "hmc":
            return False
        spread = self._spread_of(self._pieces or pieces_of(self.compressed.factor(), model.factors))
        rows, apart = held_apart(model, np.array(self.compressed.psi_hat), spread, MISSED, MOST_APART)
        self._apart = rows if apart and len(rows) else None
        return not apart

    def _spread_of(self, pieces: Pieces) -> Array:
        """Standard deviation of each row's predictor."""
        model: Any = self.model
        if self._spreads is None:
            self._spreads = np.asarray(np.sqrt(np.square(pieces.lengths(model._glm.X, model.factors)).sum(axis=0)))
        return self._spreads

    @property
    def decision_advice(self) -> str:
        """What to do where races may decide wrongly; empty if nothing is known against them."""
        if not self._missed:
            return ""
        return ("a few rows hold most of what the expansion leaves of the likelihood, such as a small group of one "
                "outcome or a row far from all others. Small subsets miss them, so that races err more often than "
                "delta and the draws may be too narrow: take decision='poisson' or 'exact'")

    @property
    def _middle(self) -> Array:
        """A whole state where the surrogate is high."""
        if self.inner == "hmc":
            return self._trajectories.start
        return np.concatenate([self.compressed.psi_hat[: self.compressed.n_seen - self._scaled], self._phi_center])

    def _better(self, pieces: Pieces) -> tuple[Array | None, Arrow | None]:
        """What comes to the expansion's gradient and curvature while a chain moves, where it pays."""
        model, hat, factor = self.model, np.array(self.compressed.psi_hat), self.compressed.factor()
        assert isinstance(model, GLM)
        spread = self._spread_of(pieces)
        sites = replaced(model, hat, factor, spread) if model.n_rows > FEW_ROWS else None
        tilt = self._tilt_within(spread, None if sites is None else ~sites.rows)
        if tilt is not None and not float(tilt @ factor.solve(tilt)) > LEAN**2:
            tilt = None
        if sites is None:
            return tilt, None
        if self.decision in ("auto", "poisson"):  # a walk is decided by few rows
            self._along, self._stay = sites.walks, sites.effects
        return sites.tilt if tilt is None else tilt + sites.tilt, sites.bend

    def _tilt_within(self, spread: Array, use: NDArray[np.bool_] | None) -> Array | None:
        """The tilt by rows that it moves by no more than their own spread; None if there is no such tilt.

        Where a group has one outcome alone there is hardly any curvature, and gradients far out say nothing of the
        mean: the tilt would put the surrogate where the posterior has no mass.
        """
        model: Any = self.model
        hat, factor = np.array(self.compressed.psi_hat), self.compressed.factor()
        for _ in range(2):
            tilt: Array = model._tilt(hat, spread, use)
            near = np.abs(model._movements(factor.solve(tilt))) <= spread
            if near.all():
                return tilt
            use = near if use is None else near & use
        return None

    def _walks_of(self) -> Array:
        """Standard deviations of random walks: those of each coordinate given all others, of what the rows see."""
        precision = np.asarray(self._metric.diagonal())
        seen = 1.0 / np.sqrt(np.where(precision > 0.0, precision, 1.0))
        hyper = np.full(self.dim - len(seen), HYPER_SD)
        if self.inner == "normal":
            hyper = np.sqrt(np.square(self._phi_factor).sum(axis=1))[int(self._scaled) :]
        return np.asarray(2.38 / math.sqrt(self.dim) * np.concatenate([seen, hyper]))

    def _near_normal(self) -> bool:
        """Whether draws of the nested normal are seldom refused for what it leaves of the prior; reads no row."""
        prior = self.compressed.prior
        if prior.normal:
            return True
        inner: Any = self._inner()
        draws = inner.draws(self._middle, NORMAL_DRAWS, np.random.default_rng(PILOT_SEED))
        left = np.array([inner.left_of_prior(draw) for draw in draws])
        weights = np.exp(left - left.max())
        return bool(weights.sum() ** 2 > NORMAL_SHARE * NORMAL_DRAWS * np.square(weights).sum())

    @property
    def names(self) -> tuple[str, ...] | None:
        return getattr(self.model, "natural_names", self.model.names)

    @property
    def parts(self) -> tuple[Any, ...]:
        """Variables that the draws are made of, where the model says so."""
        return getattr(self.model, "parts", ())

    @property
    def records_natural(self) -> bool:
        """Whether draws are on the natural scale, and not in the coordinates of `reference`."""
        return getattr(self.model, "joint_prior", None) is not None or bool(self.parts)

    @property
    def dim(self) -> int:
        """Coordinates of a state: what the rows see, then the hyperparameters."""
        return int(self.compressed.prior.dim)

    @property
    def _weights(self) -> Array | None:
        return self.reference.weights

    @property
    def full_pass_advice(self) -> str:  # type: ignore[override]
        return "" if self.decision in ("exact", "none") else BAD_FIT

    def describe(self) -> dict[str, Any]:
        own = {"kernel": type(self).__name__, "inner": self.inner, "decision": self.decision, "n_inner": self.n_inner}
        if self.inner == "hmc":
            own |= {"step": self._trajectories.step, "length": self._trajectories.length}
        return own | ({"bound": self.bound, "delta": self.delta} if self.decision == "race" else {})

    # States.

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> ChainState:
        if position is None:
            start = self._draw(_checks.generator(rng))
        else:
            start = np.array(position, dtype=np.float64)
            if start.shape != (self.dim,) or not np.isfinite(start).all():
                raise ValueError(f"position is {_checks.shown(position)}; {self.dim} finite parameters are needed")
            unconstrain = getattr(self.model, "unconstrain", None)
            start = start if unconstrain is None else np.asarray(unconstrain(start), dtype=np.float64)
        return self._state_at(start)

    def _state_at(self, theta: Array) -> ChainState:
        return ChainState(np.array(theta, dtype=np.float64), np.empty(0), None, self._untuned())

    def _draw(self, rng: np.random.Generator) -> Array:
        """Nearly a draw from the surrogate, on the scale on which a chain moves."""
        moves = FIRST_TRAJECTORIES if self.inner == "hmc" else FIRST_MOVES
        return np.asarray(self._inner().draws(self._middle, moves, rng)[-1])

    def surrogate_draws(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """What the rows see of draws of the surrogate, shape (n, n_seen), and what is left of their log prior, (n,)."""
        draws, beside = self._drawn(BETWEEN * (n + FIRST_MOVES), BETWEEN * FIRST_MOVES, BETWEEN, rng)
        return draws[:, : self.compressed.n_seen], beside

    def _drawn(self, n: int, first: int, thin: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Some of n draws of the surrogate, and prior times the rows' expansion over its density, logarithms."""
        inner = self._inner()
        draws = inner.draws(self._middle, n, rng)[first::thin]
        return draws, np.array([inner.beside_of(x) if isinstance(inner, NormalInner) else 0.0 for x in draws])

    def dispersed(self, rng: np.random.Generator) -> Array:
        """A start for one of several chains: a draw from the surrogate, twice as wide in what the rows see."""
        start, hat = self._draw(rng), self.compressed.psi_hat
        n, step = len(hat), start[: len(hat)] - hat
        far = math.sqrt(max(0.0, float(step @ self._metric.shared().times(step))))
        start[:n] = hat + step * max(1.0, min(SPREAD, self._near / max(far, 1e-300)))
        return self._recorded(start)

    def _untuned(self) -> Tuning:
        none = np.empty(0)
        return Tuning(self.size, 0, 0, none, np.empty((0, 0)), 0, none, np.empty((0, 0)))

    # Engines.

    def _inner(self) -> Inner:
        if self.inner == "hmc":
            return self._trajectories.inner(self.compressed.quadratic)
        if self._scaled:
            return scaled_inner(self.compressed, self._phi_center, self._phi_factor, self.decision == "none")
        return NormalInner(self.compressed.quadratic, self.compressed.prior, self._phi_center, self._phi_factor,
                           fixed_share=self._fixed_share, tilt=self._tilt, bend=self._bend,
                           stay=self._stay)

    def _take(self, tuning: Tuning, rng: np.random.Generator | None = None, tune: bool = False) -> Chain:
        try:
            chain = self._engines.pop()
        except IndexError:
            chain = self._engine(SurrogateMove(self._inner(), self.n_inner, stride=self._stride, walks=self._walks,
                                               along=self._along))
        move: Any = chain.move
        move.inner.size = tuning.size
        move.undecided = tune and tuning.reach > 0.0  # on the way to where the expansion holds
        return chain

    def _engine(self, move: Move) -> Chain:
        source, theta = self.model.engine(self.reference)
        if self.decision == "race" and self._apart is not None:
            nothing = ArraySource(np.broadcast_to(0.0, (self.model.n_rows, 2)))
            source = ControlVariate(source, nothing, np.zeros(2), self._apart)
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
            return chain
        if self._pieces is not None:
            chain = PiecePoissonChain(source, *args, **options)
            chain.set_pieces(self._blocks, self._pieces, self.compressed.psi_hat, most)
            return chain
        chain = BlockPoissonChain(source, *args, **options)
        chain.set_blocks(self._blocks, self.compressed.factor(), self.compressed.psi_hat, self._radius, most)
        return chain

    def _recorded(self, draws: Array) -> Array:
        constrain = getattr(self.model, "constrain", None)
        return draws if constrain is None else np.asarray(constrain(draws))

    # Tuning.

    def _reach(self, state: ChainState) -> float:
        """Moves are not decided while a chain tunes far from where the expansion holds, in its first windows."""
        if self.decision == "none" or (state.tuning.n_steps > 0 and state.tuning.reach == 0.0):
            return 0.0
        step = state.position[: self.compressed.n_seen] - self.compressed.psi_hat
        far = math.sqrt(max(0.0, float(step @ self._metric.shared().times(step)))) / self._near
        outside = far > 1.0 + 1e-6  # dispersed starts may lie on the rim
        return far if outside and state.tuning.n_steps < 2 * WINDOW else 0.0

    def _at_a_window(self, state: ChainState) -> ChainState:
        state = super()._at_a_window(state)
        if not state.tuning.reach:
            return state if state.tuning.best is None else replace(state, tuning=replace(state.tuning, best=None))
        value = self._log_posterior(state.position)
        return replace(state, tuning=replace(state.tuning, best=(state.position, value)))

    def _piece(self, tuning: Tuning) -> int:
        return CHECK if tuning.reach else WINDOW

    def _adapted(self, state: ChainState, steps: Steps) -> ChainState:
        """Steps without a decision end where the posterior was highest: the surrogate alone may lead anywhere."""
        state = super()._adapted(state, steps)
        tuning, best = state.tuning, state.tuning.best
        if not tuning.reach or tuning.n_steps % CHECK or best is None:
            return state
        value = self._log_posterior(state.position)
        if value > best[1] or not math.isfinite(best[1]):
            return replace(state, tuning=replace(tuning, best=(state.position, value)))
        return state if tuning.n_steps % WINDOW else replace(state, position=np.array(best[0]), cache=None)

    def _log_posterior(self, theta: Array) -> float:
        """By all rows, up to a constant; minus infinity where double precision ends."""
        source, at = self.model.engine(self.reference)
        at[:] = theta[: self.compressed.n_seen]
        left = source.totals([0])[0]
        value = float(self._inner().log_density_of(theta) + left)
        return value if value < math.inf else -math.inf

    def _resized(self, tuning: Tuning) -> Tuning:
        if tuning.reach:
            return replace(tuning, n_accepted=0)
        if tuning.n_steps % WINDOW:
            return tuning
        gain = 2.0 / (tuning.n_steps / WINDOW) ** 0.6
        size = tuning.size * math.exp(gain * (tuning.n_accepted / WINDOW - TARGET))
        return replace(tuning, size=min(max(size, LEAST), 1.0), n_accepted=0)


def marginal_of(compressed: Compressed, scaled: bool = False) -> tuple[Array, Array]:
    """Center and lower triangular factor of a normal density near the hyperparameters' marginal under the surrogate.

    With `scaled` the logarithm of the learned scale stands before them.
    """
    prior = compressed.prior
    inner = scaled_inner(compressed) if scaled else NormalInner(compressed.quadratic, prior)
    k = prior.n_hyper + scaled
    if k == 0:
        return np.zeros(0), np.zeros((0, 0))
    start, unit = np.zeros(k), np.eye(k)
    if scaled:
        start[0] = compressed.psi_hat[-1]
        unit[0, 0] = min(1.0, 1.0 / math.sqrt(compressed.curvature.diagonal()[-1]))  # rows may say very much of it
    found = minimize(lambda x: -inner.marginal_of(start + unit @ x), np.zeros(k), method="Nelder-Mead",
                     options={"maxiter": 400 * k, "maxfev": 400 * k, "xatol": 1e-4, "fatol": 1e-6, "adaptive": True})
    center = start + unit @ np.asarray(found.x, dtype=np.float64)
    h = 0.05
    curvature = np.empty((k, k))
    for i in range(k):
        for j in range(i + 1):
            a, b = h * unit[i], h * unit[j]
            ends = [inner.marginal_of(center + s * a + t * b) for s, t in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            curvature[i, j] = curvature[j, i] = -(ends[0] - ends[1] - ends[2] + ends[3]) / (4.0 * h * h)
    if not np.isfinite(curvature).all():
        raise NoModeError(f"prior times expansion has no density beside its peak in the hyperparameters, at logarithms "
                          f"of scales {center.round(2).tolist()}: there the likelihood is not curved downwards in "
                          f"effects and scale together, as in groups of one row each. Give scale, leave out the "
                          f"groups, or give psi_hat")
    values, vectors = np.linalg.eigh(curvature)
    values = np.clip(values, 0.05, 1e8)
    return center, unit @ np.asarray(np.linalg.cholesky((vectors / values) @ vectors.T))
