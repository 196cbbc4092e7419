"""Metropolis-Hastings whose accept decisions are races."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace import bounds
from fastrace._base import _checks
from fastrace.mcmc.kernels._chain import RaceChain
from fastrace.mcmc.kernels._metropolis import Propose, RowMetropolis
from fastrace.mcmc.models.model import Model, Reference
from fastrace.races._weighted import AliasTable, WeightedRace
from fastrace.races.acceptance import AcceptTest
from fastrace.sources import Source

FIRST_DRAWS, SLOW = 16, 50  # draws before the first look, unless the source has an own first look above SLOW
AFFORDABLE = 50.0  # sum over rows of how far a term may change in a typical move, up to which "auto" is betting


class RacingMetropolis(RowMetropolis):
    r"""Metropolis-Hastings that reads only as many rows as each accept decision needs.

    Parameters
    ----------
    model : GLM, Softmax, FunctionModel, SourceModel or other Model
        Log-likelihood terms and prior.
    delta : float, default 0.05
        Probability that a decision differs from the exact one, in (0, 1).
    bound : str, default "auto"
        "betting" is rigorous: it needs a bound on how far each row's term can change. `GLM` and `Softmax` know one for
        what their control variate leaves, and so does a model with ``third_derivatives``; rows are then drawn in
        proportion to their bounds. "normal" needs none; it rests on means being nearly normal, and has a guard where
        they are not, see `AcceptTest`. "auto" is betting where bounds are known and so small that it reads about as
        many rows as the normal rule, as for a `GLM` of up to some 30 parameters; else it is normal with a control
        variate, and as in `AcceptTest` without. The attribute `bound` says which. Others as in `AcceptTest`.
    proposal : str or callable, default "auto"
        "crank-nicolson": :math:`\theta' = c + \sqrt{1 - s^2} (\theta - c) + s L \xi`, which leaves the reference, a
        normal density near the posterior, invariant [3]_. "independent": draws from the reference. "langevin": a step
        along the gradient of the reference. "random-walk". Or a function ``(rng, theta)`` that returns a proposal and
        ``log q(theta | proposal) - log q(proposal | theta)``. "auto" is the first with a control variate, else the
        random walk.
    size : float, default 1.0
        Size of the proposal at the start: s for "crank-nicolson", else in units of the usual scale (2.38 / sqrt(d)
        standard deviations for random walks). Tuning changes it.
    walk_share : float, default 0.1
        Share of random-walk steps among those of "crank-nicolson", "independent" and "langevin", decided at once: from
        far out in a tail heavier than the reference's they get away, which the others may not.
    covariance : array_like of shape (dim, dim), optional
        Of a random walk, for models without derivatives; taken from the draws while tuning.
    control_variate : "auto", None, array_like of shape (dim,) or Reference, default "auto"
        What is known of the log-likelihood without its rows: its second-order expansion at the posterior mode, or at
        the point given. "auto" has it where the model gives derivatives.
    delayed : bool, default True
        Screen a proposal by the expansion first, then race [4]_, if the state and the proposal
        are both within ``sqrt(dim) + 3`` standard deviations of the reference; see the notes.
    first_look, growth, student, skewness_guard, scan_advantage
        As in `AcceptTest`. Where rows are drawn in proportion to bounds, the first look is at 16 draws by default, and
        a race turns to a full pass also at a `scan_advantage` of 1: once it seems to need more draws than the data have
        rows, since draws with replacement make no decision exact.
    access : {"auto", "random", "shuffled"}, default "auto"
        Which rows a race reads. "random": a subset drawn afresh for each race. "shuffled": consecutive rows from a
        random start, of rows that the model has put in random order, ``GLM(..., shuffle=1)``; each decision then keeps
        its promise over that shuffle, which all decisions of the model share. "auto": "shuffled" if the model was told
        to shuffle.

    Raises
    ------
    ValueError
        If an argument is out of range, or a rigorous bound has no support.

    See Also
    --------
    PoissonMinibatchMetropolis : exact, where a bound on each row's third derivative is known.
    Metropolis : reads all rows.

    Notes
    -----
    Each transition is within total variation `delta` of the exact one [1]_: with "betting" whatever the data, with
    "normal" as far as means are normal. Where all rows together are bounded, most steps are decided before a row is
    read: those are exact. A race that forecasts that it needs most rows turns to one pass over all of them; so does,
    without a control variate, nearly every race at the scale of a posterior: it then pays no more than `Metropolis`,
    and no less.

    With "betting" and a bound :math:`|d_i| \le w_i M` on the change of each row's term, a race draws rows with
    replacement, row i with probability :math:`w_i / W`, and bets on :math:`d_i / (w_i M)`, whose mean is
    :math:`\sum d / (W M)` [5]_. With 10^5 rows and 5, 10, 20 and 30 parameters it read 10, 111, 869 and 1325 rows a
    step of a logistic and 149, 247, 411 and 1121 of a Poisson regression, where the guarded normal rule read 37, 108,
    910, 1174 and 315, 521, 1086, 1957; its rows cost twice as much time. The terms of Poisson regression are bounded
    only near the mode: a step that leaves a ball of radius sqrt(d) + 5 standard deviations reads all rows.

    Delayed acceptance rejects a proposal that the expansion speaks against, whatever the rows would say. Far from the
    reference the expansion is wrong, and a chain there would stay. So acceptance is delayed only between two states
    near the reference, and decided at once if one of them is not. The posterior stays invariant: with a the ratio that
    is known without rows and b what the rows make of the rest, both ``min(1, a) min(1, b)`` and ``min(1, a b)`` balance
    the two directions of a move, and which of them decides depends on the pair of states, not on its direction.

    While tuning, a chain that is not yet near makes random-walk steps, half of them as long as its distance asks for;
    the proposal adapts when it has arrived, or comes no nearer. With ``n_tune=0`` only `walk_share` leads back.

    Which kernel: for a GLM `PoissonMinibatchMetropolis`, which is exact. Its bounds grow like ``|x|^3``, so its lead
    shrinks with the dimension: with 10^5 rows it made 5 times the effective samples a second of the race over shuffled
    rows at 10 parameters and 1.6 times as many at 50; at 100 the race made 1.5 times as many as it. The better of the
    two made 50 to 90 times what hand-written Numba chains make with the same control variate and a random walk
    (bench/benchmarks/mcmc.py). For terms without known bounds, the race.

    Over data far larger than the cache give ``shuffle=``: a step then takes as long with 10^6 rows as with 10^5.
    Without it races read rows from all over memory, which takes 1.5 to 3 times as long.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, eq. 12.
    .. [2] Bardenet, Doucet, Holmes, "On Markov chain Monte Carlo methods for tall data", JMLR 18(47), 2017.
    .. [3] Cotter, Roberts, Stuart, White, "MCMC methods for functions", Statistical Science 28(3), 2013.
    .. [4] Christen, Fox, "Markov chain Monte Carlo using an approximation", JCGS 14(4), 2005.
    .. [5] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> kernel = mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=10.0))
    >>> trace = mcmc.sample(kernel, n_draws=2000, n_chains=2, rng=1)
    >>> bool(trace.rows.mean() < 100)
    True
    """

    full_pass_advice = (
        "its races end in full passes. A control variate leaves far less to race: control_variate='auto' with a model "
        "that gives derivatives. If it has one, the expansion fits the posterior badly; Metropolis and Slice then read "
        "as much, in cheaper passes and without delta"
    )
    outside = False  # whether a difference has been met that `support` does not hold

    def __init__(
        self,
        model: Model,
        delta: float = 0.05,
        bound: str = "auto",
        *,
        proposal: str | Propose = "auto",
        size: float = 1.0,
        walk_share: float = 0.1,
        covariance: ArrayLike | None = None,
        control_variate: str | ArrayLike | Reference | None = "auto",
        delayed: bool = True,
        first_look: int | None = None,
        growth: float | None = None,
        access: str = "auto",
        student: bool = False,
        skewness_guard: bool | None = None,
        scan_advantage: float | None = None,
    ) -> None:
        super().__init__(
            model,
            proposal=proposal,
            size=size,
            walk_share=walk_share,
            covariance=covariance,
            control_variate=control_variate,
            delayed=delayed,
        )
        _checks.choice(access, "access", ("auto", "random", "shuffled"))
        if access == "auto":
            access = "shuffled" if getattr(model, "shuffled", False) else "random"
        if access == "shuffled" and not getattr(model, "shuffled", True):
            raise ValueError("access is 'shuffled' and the model keeps its rows in the order they came in, which may "
                             "follow the outcome; give GLM(..., shuffle=seed)")
        self._bounded = self.controlled and self.reference is not None and self.reference.weights is not None
        self._options: dict[str, Any] = {
            "delta": delta,
            "bound": self._automatic(student, skewness_guard) if bound == "auto" and self.controlled else bound,
            "first_look": first_look,
            "growth": growth,
            "access": access,
            "student": student,
            "skewness_guard": skewness_guard,
            "scan_advantage": scan_advantage,
        }
        # Argument checks now, not at the first step.
        self._table: AliasTable | None = None
        test = self._test(self.model.engine(self.reference if self.controlled else None)[0])
        self.bound, self.delta = test.bound, test.delta
        if self.bound == "betting" and self._bounded:
            assert self.reference is not None and self.reference.weights is not None
            weights = self.reference.weights
            # A model without third derivatives is its expansion: no row is ever drawn.
            self._table = AliasTable(weights if weights.any() else weights + 1.0)
        self._engines.append(self._engine())

    def _automatic(self, student: bool, skewness_guard: bool | None) -> str:
        """The rule behind "auto": the rigorous one where it hardly reads more rows than the normal one."""
        if not self._bounded or student or skewness_guard:  # two options of the normal rule
            return "normal"
        assert self.reference is not None and self.reference.weights is not None
        # Between two draws from the reference: twice sqrt(dim)^3 / 6.
        return "betting" if math.fsum(self.reference.weights) * self.model.dim**1.5 / 3.0 <= AFFORDABLE else "normal"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "bound": self.bound, "delta": self.delta}

    def _test(self, source: Source) -> AcceptTest:
        options = {**self._options, "outside": "warn"}  # `mcmc.sample` says so at the end
        if self._bounded and options["bound"] != "normal":
            options["support"] = (-1.0, 1.0)  # the chain puts each step's own in its place
        return AcceptTest(source, rng=np.random.default_rng(0), **options)

    def _chain(self, source: Source, *args: Any, **options: Any) -> RaceChain:
        chain = RaceChain(source, *args, **options)
        self._set_race(chain, source)
        return chain

    def _look(self, chain: Any) -> None:
        if chain.outside and not self._bounded:
            self.outside = True

    def _set_race(self, chain: RaceChain, source: Source) -> None:
        low, high = -math.inf, math.inf
        if not self._bounded and source.support is not None:
            lows, highs = _checks.support_bounds(source.support, 2)
            low, high = lows[1] - highs[0], highs[1] - lows[0]
        weighted = None
        if self._table is not None:
            advantage = self._options["scan_advantage"]
            weighted = WeightedRace(self._table, self._looks(source), self.delta,
                                    math.nan if advantage is None else advantage)
        chain.set_race(self._test(source), low, high, weighted)

    def _looks(self, source: Source) -> NDArray[np.int64]:
        """Draws at each look of a race over rows in proportion to their bounds; looks are free."""
        first, growth = self._options["first_look"], self._options["growth"]
        if first is None:  # a source that asks for more is slow to ask
            first = FIRST_DRAWS if source.first_look <= SLOW else source.first_look
        looks: NDArray[np.int64] = bounds.looks(source.n_rows, first, 1.1 if growth is None else growth)
        return looks
