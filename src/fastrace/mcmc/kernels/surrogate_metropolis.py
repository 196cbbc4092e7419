"""Metropolis-Hastings on a surrogate of the likelihood, corrected by few rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._blas import one_blas_thread
from fastrace._base._progress import phase, stage
from fastrace._models._arrow import ArrowFactor
from fastrace.mcmc.compression import Compressed
from fastrace.mcmc.kernels._chain import Chain
from fastrace.mcmc.kernels._nested_normal import layout_of
from fastrace.mcmc.kernels._rows import WINDOW, ChainState, Tuning, checked_share
from fastrace.mcmc.kernels._surrogate import SurrogateMove
from fastrace.mcmc.kernels._surrogate_decisions import DecidedByRows
from fastrace.mcmc.kernels._surrogate_moves import FAR, TARGET
from fastrace.mcmc.kernels._trajectories import UNSTABLE, unstable_share
from fastrace.mcmc.models.model import GLM, Model
from fastrace.mcmc.protocol import Steps
from fastrace.races._options import RaceOptions, takes_options
from fastrace.results import Result

Array = NDArray[np.float64]

DECISIONS = ("auto", "race", "poisson", "exact")
INNERS = ("auto", "normal", "hmc")
MOST_INNER = 1 << 20  # moves between two looks for Ctrl-C
LEAST = 0.05  # of a move's size
_LEAST_OF_NECKS = 5  # parameters; of fewer the step itself is near its limit, at draws of smooth densities too
_WAY_OUT = "write effects with a learned scale as z * sd, or the model as a GLM with groups, or take NUTS on all rows"
_JUDGED = 25  # draws of a chain whose distance from the surrogate is computed
CHECK = 10  # steps without a decision between two looks at the posterior of where they lead; a window has a multiple


class SurrogateMetropolis(DecidedByRows):
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
        when the kernel is made. "auto": the first up to 8 hyperparameters, or 15 if all are scales and correlations of
        groups, unless less than .75 of 400 draws of it, always from one seed, are effective once weighted by what it
        leaves of the prior, as for tight Laplace priors.
    decision : {"auto", "race", "poisson", "exact"}, default "auto"
        How a step is decided. "race": as in `RacingMetropolis`, wrong with probability `delta` at most. "poisson":
        without error, from a Poisson minibatch; it needs a bound on each row's third derivative, which `GLM` knows.
        "exact": by all rows. "auto": by no row where the surrogate is the likelihood itself, as with a Gaussian
        likelihood whose scale is learned, and describe() says "none"; else "exact" up to 4096 rows, which are read in
        no time, or 20,000 where some group has a flat side, as with one outcome alone; "poisson" where such
        bounds are known and a short pilot, always from one seed, reads few rows by them;
        else, with groups moved by the nested normal, "exact" where a few rows hold most of what the expansion leaves,
        such as a small group of one outcome, which small subsets miss; else "race". A race of a `GLM` with a fixed
        scale reads such rows in every decision, and races the others; where it would take more than 2 % of the rows, it
        is a warning of `mcmc.sample`. Its first look is as long as ten of the rows need that hold most of the rest.
    n_inner : int, default 1
        Moves on the surrogate between two decisions.
    size : float, default 1.0
        Of a move at the start, above 0. 1 is a whole one; tuning makes it smaller where too many are refused.
    psi_hat : Trace, Compressed or array_like of shape (n_seen,), optional
        Where to expand: a trace of the model, for the mean of what the rows see of its draws; the expansion itself; or
        a point, a learned scale as its logarithm. By default `compress` finds it, with a part in it of densities of
        your own where these lead far from the likelihood.
    delta, bound, first_look, growth, access, student, skewness_guard
        Of the race, as in `RacingMetropolis`.
    full_pass_at : float, default 0.5
        Of the Poisson minibatch, as in `PoissonMinibatchMetropolis`.
    options : RaceOptions, optional
        Several of the options of races at once; what the call spells goes before it.
    progress : bool, default False
        Say on standard error what the set-up is at, in a line for each of its stages: with two crossed factors of
        hundreds of groups it takes some ten seconds. `sample` with `progress` says so of the kernels that it makes.

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
    one part for each factor and one for the shared parameters, and rows are drawn for one part at a time. Where
    wards lie in clinics and have all effects that clinics have, clinics have no part: rows see the sum of both effects,
    which is far better known than either. No row sees an intercept that moves against the intercepts of all groups, a
    coefficient against slopes that vary, or the coefficient of a column that is the same in all rows of a group against
    the groups' intercepts. Bounds leave out how far a move goes along such directions, which is far at times where
    groups are few: little is then known of how much they differ. Bounds are made wider, by a factor from a pilot, where
    larger minibatches refuse fewer moves.

    The nested normal is what integrated nested Laplace approximations compute [3]_; here the rows correct it. Its
    price is O(s^3 + G s^2) a marginal density for G groups and s other parameters. Where that is large, most moves do
    without it if a pilot shows that they get far: hyperparameters given what the rows see, and that by the factor of
    one fixed point, so that a move costs O(s^2 + G s).

    Trajectories are rejected where a scale is so small that the effects behind it are stiff. So each Hamiltonian move
    also takes one step of a scale that effects share, and multiplies these effects by as much [4]_: with standardised
    effects fixed, the likelihood says nothing of a small scale. There are no such steps for scales in a log density of
    one's own.

    The logarithm of a learned scale of Gaussian or Student-t outcomes moves with the hyperparameters: given it the
    curvature of the surrogate is that where it was expanded, times the squared ratio of both scales. For a Gaussian
    likelihood this is no approximation.

    Where groups are many, the expansion's mean is away from the posterior's by much in all of them together. Then the
    surrogate is tilted: to its gradient comes the mean change of the rows' gradients over their own spread, without
    rows that the tilt would move by more than that spread. Decisions take the tilt off again.

    Groups with one outcome alone and rows of great leverage make the posterior far from normal in a few directions.
    Where there are such, in models with one grouping factor and a fixed scale, normal factors by expectation
    propagation stand for them in the surrogate, and decisions take the difference off again. With minibatches, a
    random walk along each of these directions, with a decision of its own, follows every step, and three moves in
    four leave the effects of such groups where they are, standardised given all else. A step counts the rows that
    all its decisions and slices read.

    Without groups, up to 256 rows that are all read have such factors and walks where a pilot of 100 steps accepts at
    most 40 of them, as where there are many parameters for few rows, or columns separate the outcomes.

    Where groups are many and small, a move of all their effects at once is refused. Given the hyperparameters, and
    what the rows see of all else, the effects of groups are independent, so that each group's are proposed and decided
    on their own, and one pass over the rows serves all groups: a Gibbs step for each. Half of the sweeps propose about
    Newton's step from where a group is [5]_. The others slice its likelihood along an ellipse through a draw of the
    prior [6]_, which reaches wherever a flat side does. There are such sweeps, one a step, where all rows are read and
    a pilot of 100 steps accepts at most 40 of them, or the states of one of up to 400 steps last longer than 2.5 on
    average, each counted as often as it lasts, or some effect has a flat side: it may go far out and take little of the
    likelihood, and its posterior reaches as far as the scale behind it lets it, whatever the expansion says. There are
    such sweeps too where "auto" chose minibatches, in models with one grouping factor and up to 100,000 rows, where
    states last longer than 8: a step then reads all rows several times. Of a `Softmax` with groups and up to 20,000
    rows there are such sweeps where the same holds, and all rows then decide where "auto" would have raced. Its groups
    with more rows of each class than effects on it have no flat side as a rule: they propose about Newton's step in all
    sweeps. Of more rows, small moves of all effects at once are cheaper than sweeps.
    Hyperparameters then move given the effects once more, each scale and each correlation also moves together with its
    effects, which stay standardised, and a coefficient against the effects of all groups where no row sees it: an
    intercept, a slope that varies, and the coefficient of a column that is the same in all rows of a group.
    Coefficients and a learned scale also walk given all effects, along axes of what is then their covariance: along as
    many a step as read 4096 rows, two at least, or one where that pilot accepts more than 40 moves. In three moves in
    four of the others the effects stay as they are, standardised given all else. With several factors, there is a sweep
    over each. A row with a flat side in a group of several has a walk of its own. Half of the walks are longer, by up
    to 30 times. There are up to 64 of them. Where all would read more than 4096 rows a step, each step makes as many as
    do not, at least two, along directions drawn at random.

    Beside the passes of `compress`, or one to see that a `Compressed` is of these rows, set-up with minibatches reads
    all rows once for their bounds, and a `GLM` with groups and a fixed scale once more for the tilt; with more than one
    factor, six times and once. More passes come where groups have a flat side, and of races, which look for the rows
    that are always read. Of a `GLM` with one grouping factor, a fixed scale and more than 4e5 rows in a dense table,
    all of these are one pass as a rule, after that of the model: the first one tells where the rows will be expanded,
    and a metric near that of the posterior there, in which rows are bounded.

    ``describe()`` and ``Trace.kernel`` say what was chosen: "groups_swept", "walks", the number of directions of walks,
    "tilted", the share of moves that do without a factor of their own, "share_given_effects", by how much bounds were
    widened, "bounds_widened", how many "rows_always_read" races read, and "moved_by_density", how far a `LogDensity`
    or a Laplace prior moved the point of expansion, see `compress`; each where there is such.

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
    .. [4] Papaspiliopoulos, Roberts, Skold, "A general framework for the parametrization of hierarchical models",
       Statistical Science 22(1), 2007.
    .. [5] Gamerman, "Sampling from the posterior distribution in generalized linear mixed models", Statistics and
       Computing 7, 1997.
    .. [6] Murray, Adams, MacKay, "Elliptical slice sampling", AISTATS 2010.

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

    least_accepted = 0.2
    set_up_seconds = math.nan  # of kernels saved before it was kept
    _computed = ("set_up_seconds",)  # attributes that do not change the draws

    @takes_options
    def __init__(
        self,
        model: Model,
        inner: str = "auto",
        decision: str = "auto",
        *,
        n_inner: int = 1,
        size: float = 1.0,
        psi_hat: ArrayLike | Compressed | Result | None = None,
        delta: float = 0.05,
        bound: str = "normal",
        first_look: int | None = None,
        growth: float | None = None,
        access: str = "auto",
        student: bool = False,
        skewness_guard: bool | None = None,
        full_pass_at: float = 0.5,
        options: RaceOptions | None = None,
        progress: bool = False,
    ) -> None:
        _checks.choice(inner, "inner", INNERS)
        self.decision = _checks.choice(decision, "decision", DECISIONS)
        self.n_inner = _checks.integer(n_inner, "n_inner", 1, "a step needs a move")
        if self.n_inner > MOST_INNER:
            raise ValueError(f"n_inner is {n_inner}; at most {MOST_INNER} moves are made in one step, which nothing "
                             f"interrupts: take more steps")
        self.size = _checks.real(size, "size")
        if not 0.0 < self.size <= 1.0:
            raise ValueError(f"size is {size}; a number above 0, at most 1, is needed")
        self.full_pass_at = checked_share(full_pass_at)
        if not isinstance(model, Model):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM or other mcmc.Model with derivatives is needed")
        self.model = model._surrogate_form()
        race = (delta, bound, first_look, growth, access, student, skewness_guard, None)
        began = time.perf_counter()
        with phase("setting up SurrogateMetropolis", progress), self.model._keeping():
            self._set_up(inner, psi_hat, race)
        self.set_up_seconds = time.perf_counter() - began

    @one_blas_thread()
    def _set_up(self, inner: str, psi_hat: ArrayLike | Compressed | Result | None, race: tuple[Any, ...]) -> None:
        """Expand the rows, find where the surrogate is, and choose how to move and to decide."""
        decision = self.decision
        stage("expanding the likelihood")
        self.compressed = self._compress(psi_hat)
        self._engines = []
        self.controlled = True
        self.inner = self._first_inner(inner)
        self._scaled = self.inner == "normal" and self._scale_has_closed_form()
        if self.decision == "auto":
            self.decision = self._first_decision()
        if self.decision in ("auto", "poisson"):
            stage("bounding what the rows leave of the expansion")
        self._metric = self.compressed.metric()
        self._near = math.sqrt(self.compressed.n_seen) + 6.0
        self.reference = self._carrier()
        self._stride = self._stride_of_scale()
        stage("finding where prior times expansion is")
        self._settle()
        if inner == "auto" and self.inner == "normal" and not self._near_normal():
            self._move_by_trajectories(decision)
        if self.decision != "none":
            self._walks = self._walks_of()
        stage("choosing how to decide and to move, by short pilots")
        if self.decision in ("auto", "poisson"):
            self._decide_by_bounds()
        if self.decision == "race":
            self._race_by(*race)
        self._mend_refusals(decision)
        self._ways = self._lengths = self._flat = None

    def _move_by_trajectories(self, decision: str) -> None:
        """Hamiltonian moves in place of the nested normal, on the expansion itself."""
        self.inner, scaled, self._scaled = "hmc", self._scaled, False
        if scaled:
            self._stride = self._stride_of_scale()
        if self.decision == "none":
            self.decision = self._first_decision()
            self.reference = self._carrier()
        self._settle()

    @property
    def exchange_advice(self) -> str:
        """What to do about chains that disagree; empty if nothing but more draws helps."""
        if self.inner != "hmc" or self.model.own_surrogate is None:
            return ""
        return f"Trajectories may stand still in the neck of a funnel, however long they run: {_WAY_OUT}"

    def _beyond(self, draws: Array, about: Mapping[str, Any] | None = None) -> str:
        """What draws of shape (n, dim) may have missed without a sign of it, in words; empty if nothing is known."""
        if self.inner != "hmc" or self.model.own_surrogate is None or self.dim < _LEAST_OF_NECKS:
            return ""
        model: Any = self.model
        share = unstable_share(model.slope_of_surrogate, self._trajectories, self._unconstrained(draws))
        if share < UNSTABLE:
            return ""
        return (f"at {share:.1%} of the draws the posterior is too narrow for the step of trajectories. Chains may "
                f"stop short of parts narrower still, such as the neck of a funnel, without R-hat showing it: "
                f"{_WAY_OUT}")

    def describe(self) -> dict[str, Any]:
        """What a trace remembers of the kernel, with what pilots chose; there `size` is the smallest that was tuned."""
        own: dict[str, Any] = {"kernel": type(self).__name__, "inner": self.inner, "decision": self.decision,
                               "n_inner": self.n_inner, "size": self.size}
        if self.inner == "hmc":
            own |= {"step": self._trajectories.step, "length": self._trajectories.length}
        if self.compressed.moved_by_density:
            own["moved_by_density"] = self.compressed.moved_by_density
        if self._swept:
            own["groups_swept"] = sum(len(groups) for _, groups in self._swept)
        if self._along is not None and len(self._along):
            own["walks"] = len(self._along)
        if self._tilt is not None:
            own["tilted"] = True
        if self._fixed_share:
            own["share_given_effects"] = self._fixed_share
        if self.decision == "poisson" and self._wider > 1.0:
            own["bounds_widened"] = self._wider
        if self.decision == "race" and self._apart is not None:
            own["rows_always_read"] = len(self._apart)
        return own | ({"bound": self.bound, "delta": self.delta} if self.decision == "race" else {})

    def _tuned(self, states: Iterable[ChainState]) -> dict[str, Any]:
        """What tuning has made of the kernel's options."""
        return {"size": min(float(state.tuning.size) for state in states)}

    # States.

    def _distances(self, draws: Array) -> tuple[Array, int] | None:
        """How far coefficients of a `GLM` are from where the surrogate has them, and how many of them are judged.

        Distances are in standard deviations given the hyperparameters of each draw, of some draws of each chain: where
        effects are extreme, what is known of an intercept depends on their scale. Under a density of a user's own,
        which has no place in them, all that rows see is judged, by how far it is from the point of expansion. None if
        there are no coefficients with a normal or flat prior.
        """
        if not isinstance(self.model, GLM):
            return None
        own, prior = self.compressed, self.compressed.prior
        if prior.given[4]:
            some, factor = self._unconstrained(draws[:, :: max(1, draws.shape[1] // _JUDGED)]), own.factor()
            steps = some[..., : own.n_seen] - own.psi_hat
            return np.linalg.norm(np.apply_along_axis(factor.whiten, 2, steps), axis=2), own.n_seen
        priors = prior.given[0][: self.model.n_columns]
        places = np.array([j for j, c in enumerate(priors) if c[0] in ("normal", "flat") and c[4] < 0], dtype=np.intp)
        if not len(places):
            return None
        some = self._unconstrained(draws[:, :: max(1, draws.shape[1] // _JUDGED)])
        quadratic, layout = own.quadratic, layout_of(prior)
        factor = ArrowFactor(quadratic.curvature, layout)
        slope = quadratic.evaluate(own.psi_hat)[1]
        out = np.zeros(some.shape[:2])
        for at in np.ndindex(out.shape):
            mean, precision = prior.conditional_of(some[at][own.n_seen :])
            with suppress(np.linalg.LinAlgError):  # where it is not curved downwards, no density is expected
                factor.factor(precision)
                middle = own.psi_hat + factor.solve(slope - factor.prior_times(precision, own.psi_hat - mean))
                covariance = factor.block_covariances()[0][np.ix_(places, places)]
                step = some[at][places] - middle[places]
                out[at] = math.sqrt(max(0.0, float(step @ np.linalg.solve(covariance, step))))
        return out, len(places)

    # Engines.

    def _take(self, tuning: Tuning, rng: np.random.Generator | None = None, tune: bool = False) -> Chain:
        try:
            chain = self._engines.pop()
        except IndexError:
            scalings = self._scalings           # of kernels saved before, what the effects do stands first
            scalings = scalings if scalings is None else scalings[:, -self.compressed.prior.n_hyper :]
            chain = self._engine(SurrogateMove(
                self._inner(), self.n_inner, stride=self._stride, walks=self._walks, along=self._along,
                far=FAR if self._few_rows else 1.0, scalings=scalings, n_walked=self._n_walked,
                blocks=self._group_blocks(), shifts=self._shifts,
                standard=None if scalings is None else self._standardising()))
        move: Any = chain.move
        move.inner.size = tuning.size
        move.undecided = tune and tuning.reach > 0.0  # on the way to where the expansion holds
        return chain

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
