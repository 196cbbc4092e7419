"""How a chain moves on a surrogate of the likelihood: settled on the expansion when a kernel is made."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from fastrace._base import _checks, _frames
from fastrace._models._arrow import Arrow, ArrowFactor, added
from fastrace._models._priors import JointPrior
from fastrace._models.glm_inputs import is_sparse
from fastrace._models.softmax_sums import expand_softmax, roots_of_rows
from fastrace.mcmc._moving import mean_seen
from fastrace.mcmc._scales import first_point, negative, parts_of
from fastrace.mcmc.compression import Compressed, compress, prior_of, require_of, require_of_map
from fastrace.mcmc.kernels._group_blocks import ClassBlocks, GroupBlocks
from fastrace.mcmc.kernels._nested_normal import NormalInner, layout_of
from fastrace.mcmc.kernels._rows import PILOT_SEED, SPREAD, ChainState, RowKernel, Tuning, first_inside
from fastrace.mcmc.kernels._scaled import scaled_inner
from fastrace.mcmc.kernels._surrogate import Inner
from fastrace.mcmc.kernels._trajectories import Trajectories, trajectories_of
from fastrace.mcmc.models._first_pass import About, is_long
from fastrace.mcmc.models._pieces import Pieces
from fastrace.mcmc.models._sites import READ, STEP, Sites, flat_effects, replaced
from fastrace.mcmc.models._unseen import DEPENDENT
from fastrace.mcmc.models.model import GLM, Model, NoModeError
from fastrace.mcmc.models.softmax import Softmax
from fastrace.results import Result

Array = NDArray[np.float64]

MOST_BY_SLICES = 8  # hyperparameters that the nested normal is taken for by default, and
MOST_OF_GROUPS = 15  # where all are scales and correlations of groups' effects, whose marginal is nearly normal
FIRST_TRAJECTORIES = 50  # from one point to a start
NORMAL_DRAWS, NORMAL_SHARE = 400, 0.75  # of the nested normal, and the effective share of them that makes it cheapest
SCALED = ("gaussian", "student-t")  # families whose surrogate is normal given a learned scale
LARGE, FIXED = 2e6, 0.95  # products that a factor takes, from which on most moves do without one of their own; how many
CLOSED = 1e9  # products up to which groups' effects have a factor that leaves all rows unread: other moves mix badly
WITHIN = 0.99  # squared length of the move by a tilt: then no predictor moves by its spread, the norm of its row
LEAN = 0.3  # deviation under the surrogate of what a tilt adds, from which on it is worth while
FIRST_STEP = 0.3  # of logarithms of scales, where the maximum of their marginal is looked for
AVERAGES = 5  # passes over rows, at most, for means of gradient and curvature
SIDE = 3.0  # how far the log marginal of hyperparameters falls where its two sides are measured
MOST_STRETCH, HALVINGS = 8.0, 6  # of a side, and of the interval in which its end lies
HYPER_SD = 0.3  # of random walks of hyperparameters where no normal density is near them
MOVED = 0.5  # share of moves without a factor of their own that get anywhere, from which on they are made
TARGET = 0.3  # share of moves accepted, below which they become smaller: at .23 small ones would get on best
PILOT = 40  # steps that say how many rows a minibatch takes
FAR = 30.0  # times as long as the others the longest random walks are where all rows are read
FEW_ROWS = 4096  # that are read in less time than a move takes: minibatches of them accept less, and races may err
FLAT_ROWS = 20_000  # and of groups with a flat side: their tails need walks, which all rows decide
VAGUE, STRIDE = 0.2, 4.0  # deviation of the log of a learned scale that asks for plain steps; their length in such
MOST_VAGUE = 5.0  # of that deviation, with which scales would be 0 or infinite in double precision
BETWEEN = 3  # moves between two draws of it whose weights are looked at
FIRST_MOVES = 5  # on the surrogate, from its center to a draw of it


class OnSurrogate(RowKernel):
    """Base of kernels that move on prior times expansion; see `SurrogateMetropolis` for the parameters."""

    inner: str
    decision: str
    compressed: Compressed
    _metric: Any
    _trajectories: Trajectories
    _phi_center: Array
    _phi_factor: Array
    _phi_stretch: Array | None = None  # of kernels saved before sides were told apart
    _tilt: Array | None = None  # of the surrogate's gradient, while a chain moves
    _stay: Array | None = None  # effects of groups that have directions of their own, or are swept
    _along: Array | None = None  # directions of random walks
    _walks_a_step = 0  # at most, along these; 0: as many as read no more than some thousand rows
    _scalings: Array | None = None  # of scales together with their effects
    _bend: Arrow | None = None  # of its curvature
    _ways: Array | None = None  # that no row sees, and
    _lengths: Array | None = None  # of the rows, and
    _flat: NDArray[np.intp] | None = None  # effects with a flat side, while a kernel is made
    _fixed_share = 0.0  # of moves without a factor of their own
    _stride = 0.0  # of kernels saved before there were plain steps
    _walks: Array | None = None
    _scaled = False  # whether a learned scale moves with the hyperparameters
    _shifts: Array | None = None  # directions that rows do not see
    _swept: tuple[tuple[int, NDArray[np.intp]], ...] = ()  # numbers of factors, with groups that move one by one
    _unseen: Array | None = None  # directions, and the metric times each; None in kernels saved before it was kept
    _metric_of_bounds: tuple[Arrow, Array] | None = None  # curvature and precision, if not those of `compressed`
    _pieces: Pieces | None = None  # of rows that belong to a group of each of several factors

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

    # States.

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> ChainState:
        if position is None:
            start = self._drawn_inside(_checks.generator(rng), 1.0)
        else:
            start = _frames.floats_in_order(position, self.names, "position")
            if start.shape != (self.dim,) or not np.isfinite(start).all():
                raise ValueError(f"position is {_checks.shown(position)}; {self.dim} finite parameters are needed")
            unconstrain = getattr(self.model, "unconstrain", None)
            start = start if unconstrain is None else np.asarray(unconstrain(start), dtype=np.float64)
        return self._state_at(start)

    def _state_at(self, theta: Array) -> ChainState:
        return ChainState(np.array(theta, dtype=np.float64), np.empty(0), None, self._untuned())

    def dispersed(self, rng: np.random.Generator) -> Array:
        """A start for one of several chains: a draw from the surrogate, twice as wide in what the rows see."""
        return self._recorded(self._drawn_inside(rng, SPREAD))

    def _drawn_inside(self, rng: np.random.Generator, width: float) -> Array:
        """A draw from the surrogate, so many times as wide in what the rows see, where the posterior is not 0."""
        hat = self.compressed.psi_hat
        n = len(hat)

        def draw() -> Array:
            start = self._draw(rng)
            step = start[:n] - hat
            far = math.sqrt(max(0.0, float(step @ self._metric.shared().times(step))))
            share = max(1.0, min(width, self._near / max(far, 1e-300)))
            if share > 1.0:
                start[:n] = hat + step * share
            return start

        return first_inside(self.model, hat, draw)

    def _untuned(self) -> Tuning:
        none = np.empty(0)
        return Tuning(self.size, 0, 0, none, np.empty((0, 0)), 0, none, np.empty((0, 0)))

    def _recorded(self, draws: Array) -> Array:
        constrain = getattr(self.model, "constrain", None)
        return draws if constrain is None else np.asarray(constrain(draws))

    # Setting up.

    def _compress(self, psi_hat: Any) -> Compressed:
        if self.model.own_surrogate is not None:
            if isinstance(psi_hat, Compressed):
                require_of_map(psi_hat, self.model)
                psi_hat = psi_hat.psi_hat
            return self.model.own_surrogate(mean_seen(self.model, psi_hat) if isinstance(psi_hat, Result) else psi_hat)
        self._plan_pass(psi_hat)
        if isinstance(psi_hat, Compressed):
            require_of(psi_hat, self.model)
            return psi_hat
        return compress(self.model, psi_hat)

    def _plan_pass(self, psi_hat: Any) -> None:
        """Have the pass that expands many rows find all else about the point, if point and metric are known before."""
        model: Any = self.model
        if not (self._in_blocks and self.decision in ("auto", "poisson") and is_long(model.n_rows)):
            return
        if not isinstance(model, GLM) or model.learns_scale or is_sparse(model._glm.X):
            return
        if isinstance(psi_hat, Compressed):
            point, factor = psi_hat.psi_hat, psi_hat.factor()
        elif psi_hat is None and model._pilot is not None and model._pilot.scales(prior_of(model)) is not None:
            point, factor = model._pilot.point, model._pilot.factor(layout_of(prior_of(model)))
            self._metric_of_bounds = model._pilot.curvature, model._pilot.precision
        else:
            return
        width = factor.base.width if factor.base.n_blocks else 0
        model._planned = About(model, np.array(point), root_of_rows(factor), width, tilted=True)

    @property
    def _in_blocks(self) -> bool:
        """Whether rows see one group's effects each."""
        return isinstance(self.model, (GLM, Softmax)) and len(self.model.factors) == 1

    def _factor_of_bounds(self) -> ArrowFactor:
        """Of the metric in which rows are bounded: a factor for each who asks."""
        if self._metric_of_bounds is None:
            return self.compressed.factor()
        out = ArrowFactor(self._metric_of_bounds[0], layout_of(self.compressed.prior))
        out.factor(self._metric_of_bounds[1])
        return out

    def _first_inner(self, inner: str) -> str:
        mapped = self.model.own_surrogate is not None
        if inner == "normal" and mapped:
            raise ValueError("inner='normal' needs a prior that is normal given its hyperparameters, and the model was "
                             "not recognised as one that has it; take inner='hmc'")
        if inner == "auto":
            prior = self.compressed.prior
            most = MOST_BY_SLICES if prior.given[1] else MOST_OF_GROUPS
            return "hmc" if mapped or prior.n_hyper > most else "normal"
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
        most = CLOSED if model._glm.family == "gaussian" and model.factors else LARGE
        return bool(s * s * m <= most and twice > 0.0 and 0.5 * twice > self.compressed.slope[-1])

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

    def _settle(self) -> None:
        """Where the hyperparameters are under the surrogate, found without a row."""
        if self.inner == "hmc":
            with self.model._settling():
                self._trajectories = trajectories_of(self.compressed.quadratic, self.compressed.prior,
                                                     effort=self.model._effort, most=self.model._most_gradients)
            if not self._trajectories.settled:
                most = f"{self.model._most_gradients:,.0f}"
                warnings.warn(f"the pilot was ended by the {most} gradients that it may take, before it knew how long "
                              f"trajectories should be: prior times expansion is too narrow, in some directions or "
                              f"somewhere, so that chains move slowly and may stay away from a part of it. Write what "
                              f"has a learned scale standardised, such as z * tau with a normal z of its own; "
                              f"model.describe() says why the model was not recognised as a GLM, whose gradients are "
                              f"compiled; or take NUTS", stacklevel=_checks.users_level())
        else:
            found = marginal_of(self.compressed, self._scaled, self.model)
            self._phi_center, self._phi_factor, self._phi_stretch = found
        model: Any = self.model
        flat = sites = None
        grouped = isinstance(model, GLM) and bool(model.factors)
        if self._few_rows and grouped:
            flat = self._flat_effects()
            flat = flat if len(flat) else None
        if self.inner == "normal" and grouped and not model.learns_scale:
            self._tilt, self._bend, sites = self._better(flat)
        if self.inner == "normal" and isinstance(model, Softmax) and model.factors:
            self._tilt, self._bend = self._averaged()
        if flat is not None:
            self._walk_where_flat(sites)
        if self.inner == "hmc":
            return
        s, m = self.compressed.curvature.n_dense, self.compressed.n_seen
        if self.compressed.prior.n_hyper and s * s * m > LARGE:  # never where a scale moves with the hyperparameters
            self._fixed_share = 1.0
            draws = self._inner().draws(self._middle, PILOT, np.random.default_rng(PILOT_SEED))
            moved = (np.diff(draws[:, : self.compressed.n_seen], axis=0) != 0.0).any(axis=1)
            self._fixed_share = FIXED if moved.mean() > MOVED else 0.0

    def _flat_effects(self) -> NDArray[np.intp]:
        """Places of effects with a flat side."""
        model: Any = self.model
        if self._flat is None:
            self._flat = flat_effects(model, np.array(self.compressed.psi_hat))
        return self._flat

    def _lengths_of_rows(self) -> Array:
        """How far a step of length 1 in the metric moves each row's predictor at most, up to rounding.

        These are the standard deviations of the predictors too. Pieces would not do for them: effects of nested factors
        are anything but independent, and the sum of their variances is up to 200 times that of the predictor.

        Lengths were up to 2.5e-11 too small by a metric of condition 1e13, and 1.6e-10 by one of 3e14.
        Bounds hold their cubes, for which `cubic_change` has a margin of 1e-9.
        """
        model: Any = self.model
        if self._lengths is None:
            self._lengths = np.asarray(model._lengths(root_of_rows(self._factor_of_bounds())))
        return self._lengths

    def _better(self, flat: NDArray[np.intp] | None) -> tuple[Array | None, Arrow | None, Sites | None]:
        """What comes to the expansion's gradient and curvature while a chain moves, where it pays."""
        model, hat, factor = self.model, np.array(self.compressed.psi_hat), self.compressed.factor()
        assert isinstance(model, GLM)
        spread = self._lengths_of_rows()
        # With several factors the rows of a group are no function of its effect alone.
        alone, looked = len(model.factors) == 1, flat is not None or model.n_rows > FEW_ROWS
        sites = replaced(model, hat, factor, spread, flat) if alone and looked else None
        tilt = self._tilt_within(spread, None if sites is None else ~sites.rows)
        if tilt is not None and not float(tilt @ factor.solve(tilt)) > LEAN**2:
            tilt = None
        if sites is None:
            return tilt, None, None
        if self.decision in ("auto", "poisson"):  # a walk is decided by few rows
            self._along, self._stay = sites.walks, sites.effects
        return sites.tilt if tilt is None else tilt + sites.tilt, sites.bend, sites

    def _averaged(self) -> tuple[Array | None, Arrow | None]:
        """What comes to the expansion's gradient and curvature of a `Softmax` while a chain moves, where it pays.

        Both become their means over the normal density that prior and surrogate then make, which is the normal density
        nearest the posterior [1]_, with scales held.

        References
        ----------
        .. [1] Opper, Archambeau, "The variational Gaussian approximation revisited", Neural Computation 21, 2009.
        """
        model, own = self.model, self.compressed
        assert isinstance(model, Softmax)
        quadratic, layout, hat = own.quadratic, layout_of(own.prior), np.array(own.psi_hat)
        mean = own.prior.conditional_of(self._phi_center)[0]
        tilt, bend = np.zeros(len(hat)), None
        step = np.zeros(len(hat))
        for _ in range(AVERAGES):
            factor = ArrowFactor(added(quadratic.curvature, bend), layout)
            factor.factor(own.precision)
            before, step = step, factor.solve(
                quadratic.gradient + tilt - factor.prior_times(own.precision, hat - mean))
            if bend is not None and float(np.linalg.norm(factor.whiten(step - before))) < LEAN:
                break
            roots = roots_of_rows(model._data, root_of_rows(factor))
            _, slope, curved = parts_of(*expand_softmax(model._data, hat + step, roots))
            tilt = slope + curved.times(step) - own.slope
            bend = added(curved, negative(own.curvature))
        return tilt, bend

    def _walk_where_flat(self, sites: Sites | None) -> None:
        """Sweeps over groups, and random walks of rows that no sweep moves, where rows are few."""
        if not self._scaled:
            self._sweep_groups()
            if sites is not None:
                self._along = np.concatenate([self._along, sites.walks[sites.alone]])

    def _sweep_groups(self) -> None:
        """Effects move group by group, and all else given them: scales and intercepts together with effects too."""
        model: Any = self.model
        self._along = self._walks_of_shared()
        self._shifts, self._scalings = self._shifts_of_coefficients(), self._scalings_of_effects()
        counts = [np.bincount(f.codes, minlength=f.n_groups) for f in model.factors]
        self._swept = tuple((k, np.flatnonzero(own)) for k, own in enumerate(counts))
        self._stay = np.zeros(self.compressed.n_seen)
        for f, own in zip(model.factors, counts, strict=True):
            self._stay[f.start : f.stop] = np.repeat(own > 0, f.width)

    @property
    def _few_rows(self) -> bool:
        """Whether decisions read all rows, and these are so few that further decisions in a step cost little."""
        return self.decision == "exact" and self.model.n_rows <= FLAT_ROWS

    @property
    def _n_walked(self) -> int | None:
        """Directions that a step walks along; None: all."""
        return self._walks_a_step or max(2, READ // self.model.n_rows) if self._few_rows else None

    @property
    def _n_shared(self) -> int:
        """Coefficients of a model with groups, and its scale if it learns one, which rows see too."""
        model: Any = self.model
        if isinstance(model, Softmax):
            return model.n_columns * (model.n_classes - 1)
        return int(model.n_columns + model.learns_scale)

    def _walks_of_shared(self) -> Array:
        """Steps of coefficients and a learned scale given the effects, along the axes of what is then their covariance.

        Where the rows refuse moves of all effects at once, nothing else would move these.
        """
        model: Any = self.model
        metric, units = self.compressed.metric(), np.zeros((self._n_shared, model.n_seen))
        units[np.arange(len(units)), np.arange(len(units)) - int(getattr(model, "learns_scale", False))] = 1.0
        unscaled = 1.0 / np.sqrt(np.array([unit @ metric.times(unit) for unit in units]))
        units *= unscaled[:, None]
        values, vectors = np.linalg.eigh(units @ np.array([metric.times(unit) for unit in units]).T)
        return np.asarray((STEP / np.sqrt(np.maximum(values, DEPENDENT * values[-1])) * vectors).T @ units)

    def _unseen_ways(self) -> Array:
        """Steps that no row of a `GLM` or `Softmax` sees."""
        model: Any = self.model
        if self._ways is None:
            self._ways = model._unseen_ways()
        return self._ways

    def _shifts_of_coefficients(self) -> Array:
        """Steps of a coefficient against the effects of all groups, where no row sees it: only the prior holds them."""
        metric, ways = self.compressed.metric(), self._unseen_ways()
        return np.reshape([STEP / math.sqrt(float(way @ metric.times(way))) * way for way in ways], ways.shape)

    def _scalings_of_effects(self) -> Array:
        """Steps of each scale and correlation of groups' effects together with these, which stay standardised."""
        sds = self._sds_of_hyperparameters()
        return STEP * np.diag(sds)[len(sds) - self._n_of_effects :]

    @property
    def _n_of_effects(self) -> int:
        """Hyperparameters that are scales and correlations of groups' effects; they stand last."""
        return sum(len(sds) + (len(sds) * (len(sds) - 1) // 2 if eta is not None else 0)
                   for _, sds, eta in self.compressed.prior.given[2])

    def _standardising(self) -> JointPrior:
        """The prior, in whose free coordinates effects of groups are standardised and nothing else."""
        prior = self.compressed.prior.copy()
        first = len(prior.given[0])
        free = np.zeros(prior.n_seen, dtype=bool)
        free[first : first + sum(count * len(sds) for count, sds, _ in prior.given[2])] = True
        prior.set_free(free)
        return prior

    def _tilt_within(self, spread: Array, use: NDArray[np.bool_] | None) -> Array | None:
        """The tilt by rows that it moves by no more than their own spread; None if there is no such tilt.

        Where a group has one outcome alone there is hardly any curvature, and gradients far out say nothing of the
        mean: the tilt would put the surrogate where the posterior has no mass.
        """
        model: Any = self.model
        hat, factor = np.array(self.compressed.psi_hat), self.compressed.factor()
        for _ in range(2):
            tilt: Array = model._tilt(hat, spread, use)
            step = factor.solve(tilt)
            if float(tilt @ step) < WITHIN:  # then all are near, and rows need not be read for it
                return tilt
            near = self._moved_within(step, spread)
            if near.all():
                return tilt
            use = near if use is None else near & use
        return None

    def _moved_within(self, step: Array, spread: Array) -> NDArray[np.bool_]:
        """Which rows' predictors a step moves by no more than their spread.

        Where the pass about the point found the norms that coordinates of all groups have a part in, the inequality of
        Cauchy and Schwarz, for these and for the others, leaves few rows to be read.
        """
        model: Any = self.model
        kept, arrow = model._kept, self.compressed.curvature
        if kept is None or kept.shared is None or not np.array_equal(kept.across, spread):
            return np.asarray(np.abs(model._movements(step)) <= spread)
        squares, dense = np.square(self._factor_of_bounds().whiten(step)), np.asarray(arrow.block_coordinates()[1])
        own = squares[arrow.start : arrow.start + arrow.n_blocks * arrow.width].reshape(arrow.n_blocks, -1)
        most = kept.shared * math.sqrt(squares[dense].sum())
        most += np.sqrt(np.maximum(np.square(spread) - np.square(kept.shared), 0.0) * own.sum(axis=1)[
            model.factors[0].codes])
        near = most <= WITHIN * spread
        others = np.flatnonzero(~near)
        near[others] = np.abs(model._movements(step, others)) <= spread[others]
        return np.asarray(near)

    def _walks_of(self) -> Array:
        """Standard deviations of random walks: those of each coordinate given all others, of what the rows see."""
        precision = np.asarray(self._metric.diagonal())
        seen = 1.0 / np.sqrt(np.where(precision > 0.0, precision, 1.0))
        return np.asarray(2.38 / math.sqrt(self.dim) * np.concatenate([seen, self._sds_of_hyperparameters()]))

    def _sds_of_hyperparameters(self) -> Array:
        """Standard deviations of those that no row sees, under the surrogate; trajectories say nothing of them."""
        if self.inner == "hmc":
            return np.full(self.dim - self.compressed.n_seen, HYPER_SD)
        return np.sqrt(np.square(self._phi_factor).sum(axis=1))[int(self._scaled) :]

    def _near_normal(self) -> bool:
        """Whether draws of the nested normal are seldom refused for what it leaves of the prior; reads no row."""
        prior = self.compressed.prior
        if prior.normal:
            return True
        inner: Any = self._inner()
        draws = inner.draws(self._middle, NORMAL_DRAWS, np.random.default_rng(PILOT_SEED))
        left = np.array([inner.left_of_prior(draw) for draw in draws])
        if not np.isfinite(left.max()):
            return False
        weights = np.exp(left - left.max())
        return bool(weights.sum() ** 2 > NORMAL_SHARE * NORMAL_DRAWS * np.square(weights).sum())

    @property
    def _middle(self) -> Array:
        """A whole state where the surrogate is high."""
        if self.inner == "hmc":
            return self._trajectories.start
        return np.concatenate([self.compressed.psi_hat[: self.compressed.n_seen - self._scaled], self._phi_center])

    def _inner(self) -> Inner:
        if self.inner == "hmc":
            return self._trajectories.inner(self.compressed.quadratic)
        if self._scaled:
            return scaled_inner(self.compressed, self._phi_center, self._phi_factor, self._phi_stretch,
                                self.decision == "none")
        return NormalInner(self.compressed.quadratic, self.compressed.prior, self._phi_center, self._phi_factor,
                           self._phi_stretch, fixed_share=self._fixed_share, tilt=self._tilt, bend=self._bend,
                           stay=self._stay)

    def _group_blocks(self) -> GroupBlocks | None:
        """What sweeps over groups' effects, factor by factor, with working memory of its own; None if nothing does."""
        model: Any = self.model
        if not self._swept:
            return None
        classes = isinstance(model, Softmax)
        rows, free = (model._data.rows, model.n_classes - 1) if classes else (model._glm, 1)
        prior, out, kind = self.compressed.prior, None, ClassBlocks if classes else GroupBlocks
        for k, groups in reversed(self._swept):
            first = len(prior.given[0]) + sum(f.n_groups * f.width**2 for f in model.factors[:k])
            values = rows.factors[k].values(rows.X, slice(0, model.n_rows))
            sliced = few_of_a_class(model, k)[groups] if classes else None
            out = kind(self.compressed.quadratic, prior, model.factors[k], groups, first, values, out, free, sliced)
        return out

    def _draw(self, rng: np.random.Generator) -> Array:
        """Nearly a draw from the surrogate, on the scale on which a chain moves."""
        moves = FIRST_TRAJECTORIES if self.inner == "hmc" else FIRST_MOVES
        return np.asarray(self._inner().draws(self._middle, moves, rng)[-1])

    def surrogate_draws(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """What the rows see of draws of the surrogate, shape (n, n_seen), and what is left of their log prior, (n,)."""
        draws, beside = self._drawn(BETWEEN * (n + FIRST_MOVES), BETWEEN * FIRST_MOVES, BETWEEN, rng)
        return draws[:, : self.compressed.n_seen], beside

    def _drawn(self, n: int, first: int, thin: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Some of n draws of the surrogate, and prior times the rows' expansion over its density, logarithms.

        Trajectories from a point where the prior is 0 go nowhere: such draws have none of it.
        """
        inner, prior = self._inner(), self.compressed.prior
        draws = inner.draws(self._middle, n, rng)[first::thin]
        if isinstance(inner, NormalInner):
            return draws, np.array([inner.beside_of(x) for x in draws])
        return draws, np.where(np.isfinite([prior.value_of(x) for x in draws]), 0.0, -np.inf)


def root_of_rows(factor: ArrowFactor) -> Array:
    """Few columns in place of those of `covariance_root`, whose products with any row have the same norm.

    With L the factor of the metric, blocks first, a column of L'^-1 that belongs to a block holds effects of this
    block alone. A row sees those of one block, so that one column holds them for all blocks. Effects of other
    factors are dense: each has a column.
    """
    arrow = factor.base
    dense = np.asarray(arrow.block_coordinates()[1])
    units = np.zeros((len(dense) + (arrow.width if arrow.n_blocks else 0), arrow.dim))
    units[np.arange(len(dense)), dense] = 1.0
    for k, unit in enumerate(units[len(dense) :]):
        unit[arrow.start + k : arrow.start + arrow.n_blocks * arrow.width : arrow.width] = 1.0
    return np.stack([factor.draw(unit) for unit in units], axis=1)


def few_of_a_class(model: Softmax, number: int) -> NDArray[np.bool_]:
    """Which groups of a factor have no more rows of some class than effects on it, so that these may have a flat side.
    """
    factor, n = model._data.rows.factors[number], model.n_classes
    counts = np.bincount(factor.codes.astype(np.intp) * n + model._classes, minlength=factor.n_groups * n)
    return np.asarray(counts.reshape(-1, n).min(axis=1) <= factor.width)


def marginal_of(
    compressed: Compressed, scaled: bool = False, model: Model | None = None
) -> tuple[Array, Array, Array]:
    """Center and lower triangular factor of a normal density near the hyperparameters' marginal under the surrogate.

    Also how much farther than that density the marginal reaches below and above along each column of the factor, as of
    scales that may be tiny. With `scaled` the logarithm of the learned scale stands before them. `model` says what to
    do where there is none.
    """
    prior = compressed.prior
    inner = scaled_inner(compressed) if scaled else NormalInner(compressed.quadratic, prior)
    k = prior.n_hyper + scaled
    if k == 0:
        return np.zeros(0), np.zeros((0, 0)), np.ones((2, 0))
    hat, own = np.array(compressed.psi_hat), compressed.curvature.diagonal()
    start, unit = np.zeros(k), np.eye(k)
    start[scaled:] = first_point(prior, hat, 1.0 / np.sqrt(np.maximum(own, 1e-300)))[0][prior.n_seen :]
    if scaled:
        start[0] = hat[-1]
        unit[0, 0] = min(1.0, 1.0 / math.sqrt(own[-1]))  # rows may say very much of it
    simplex = np.vstack([np.zeros(k), FIRST_STEP * np.eye(k)])
    found = minimize(lambda x: -inner.marginal_of(start + unit @ x), np.zeros(k), method="Nelder-Mead",
                     options={"maxiter": 400 * k, "maxfev": 400 * k, "xatol": 1e-4, "fatol": 1e-6, "adaptive": True,
                              "initial_simplex": simplex})
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
                          f"of scales {center.round(2).tolist()}, where the likelihood is not curved downwards"
                          f"{'' if model is None else model._against_peaks}")
    values, vectors = np.linalg.eigh(curvature)
    values = np.clip(values, 0.05, 1e8)
    factor = unit @ np.asarray(np.linalg.cholesky((vectors / values) @ vectors.T))
    stretch = [[_reach(inner.marginal_of, center, sign * column) for column in factor.T] for sign in (-1.0, 1.0)]
    return center, factor, np.array(stretch)


def _reach(log_density: Callable[[Array], float], center: Array, way: Array) -> float:
    """Steps of `way` until the log density has fallen by `SIDE`, over those in which that of a standard normal has."""
    level, normal = log_density(center) - SIDE, math.sqrt(2.0 * SIDE)
    low, high = 0.0, normal
    while log_density(center + high * way) > level and high < MOST_STRETCH * normal:
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log_density(center + middle * way) > level else (low, middle)
    return high / normal
