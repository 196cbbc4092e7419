"""Gibbs sampling whose draws are races."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace.likelihoods import PairSource
from fastrace.mcmc.kernels._chain import sits_out
from fastrace.mcmc.kernels.gibbs import Categorical, Gibbs, GibbsState, States, Tally
from fastrace.mcmc.models._sites import held_apart
from fastrace.races._options import RaceOptions, takes_options
from fastrace.races.acceptance import AcceptTest
from fastrace.races.sampling import DiscreteSampler
from fastrace.races.unequal import UnequalRace
from fastrace.sources import Source

UNSEEN = -1  # losses of a variable whose factors have not been looked at
HELD = 1 << 40  # losses, from which on few factors hold what the states differ by: draws are exact ones
LOOKED, AGAIN = 16, 256  # looks in one sweep, at most; exact draws of a variable before it is looked at again
SHARE = 0.02  # of the factors: where fewer hold the difference, the normal rule errs more often than delta
LIKELY, MOST = 12.0, 8  # by how much less the logarithm of a state's probability may be; states, at most
NOTHING, AT_ONCE = 1e-3, 1 << 16  # what factors may leave of a difference that matters; factors at once


class RacingGibbs(Gibbs):
    r"""Gibbs sampling that reads only as many factors as each draw needs.

    Parameters
    ----------
    variables : sequence of Categorical
        A step draws each of them in turn. Variables may differ in their numbers of states and of factors, and states
        may have factors of their own, any number of them.
    delta : float, default 0.05
        Probability that one draw differs from the exact one, in (0, 1).
    bound : str, default "auto"
        As in `DiscreteSampler`; for variables with `sizes` as in `UnequalRace`, whose rigorous bounds read more of
        states that a `support` does not rule out than "normal" does. "betting" is rigorous and needs an interval:
        `support`, the `residual_support` of variables with `expansions`, or a `control_variates.taylor_glm`, which
        derives it from the states' parameters.
    support : tuple of float, optional
        Interval (low, high) that holds every log-factor. States with factors of their own that it rules out, such as
        small clusters, are then not read.
    first_look, student
        As in `DiscreteSampler`.
    tail_guard : bool, default True
        As in `FiniteRace`: the normal rule waits for tails that it has not seen, but for variables with `sizes`; and
        draws are exact where few factors hold what likely states differ by, see Notes.
    options : RaceOptions, optional
        Options said once for several races; what is spelled here goes before them.

    See Also
    --------
    Gibbs : reads all factors.
    PoissonMinibatchGibbs : exact, where factors are bounded and weak.

    Notes
    -----
    A draw perturbs the states with Gumbel noise and races them [1]_; its law is within total variation `delta` of the
    exact one, a sweep over V variables within ``V delta``. After four races in a row that read all factors of a
    variable, its next draws are exact ones, by one vectorised pass; every sixteenth races again. ``full_pass`` in the
    trace marks the sweeps in which at least half of the draws read all factors, and `sample` warns where most sweeps
    are such.

    Where states have real mass, factors as they are must nearly all be read: race on what a control variate leaves. For
    states that are parameters of a generalised linear model or softmax regression near some ``theta_hat``, give
    ``taylor_glm(source, theta_hat)`` of `fastrace.control_variates` as `factors`: ten states and 10^5 Student-t factors
    then took 0.07 % of the factors, and 100 times less time than one vectorised pass.

    A variable with `expansions` is drawn otherwise: a state is proposed from the prior times the exponential of the
    sums of the expansions, without a factor, and accepted with probability :math:`\min(1, \exp \Delta R)`, where R is
    the sum of what the expansions leave of a state's factors [2]_. If the present state is proposed, there is nothing
    to decide; else the race is between two states alone, whatever their number. This decision, rather than the draw, is
    within `delta` of the exact one.

    The normal rule cannot suspect a few factors that are far larger than those that it has read: where one in 100 to
    500 carries most of the difference between two states, 3 to 44 % of the races near ties are wrong at ``delta=0.05``.
    So a chain looks at each variable once, at most at 16 in a sweep, and reads all its factors: where fewer than 2 % of
    them hold what likely states differ by, its next 256 draws are exact, and then it is looked at again. Of 5,000
    factors of which 10, 25 or 50 held it, 4 to 46 % of the draws were wrong, and none by the looks. What shows only at
    other states of the other variables is not seen, nor what comes later in a chain. There are no looks with
    ``tail_guard=False`` or a `support`, nor where factors are a `Source`. Give a `support`, or `expansions` with their
    residuals' support, to race such factors; `check_bias` shows whether it matters.

    Rigorous draws cost little more where residuals are small. Of 10^5 rows and ten states drawn from the posterior of
    three coefficients, betting read 58 rows a draw of logistic, 262 of Student-t and 276 of Poisson factors by
    `taylor_glm`; the normal rule read 51, 54 and 164. Decisions between two states by `expansions` took 51, 66 and 492
    rows, and 75, 63 and 239. Of a softmax regression (`control_variates.SoftmaxSource`) with four coefficients of three
    classes they took 56 rows a draw, and 52 by the normal rule; 31 and 39 a decision. The interval widens with the
    number of coefficients: 148 and 52 rows a draw with 16 of five classes, 824 and 82 with 27 of ten.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, Algorithm 1 and
       appendix C.3.
    .. [2] Liu, "Monte Carlo Strategies in Scientific Computing", Springer 2001, section 9.4.3.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> y = np.random.default_rng(0).normal(0.3, 1.0, 100_000)
    >>> means = np.array([0.0, 0.25, 0.5])
    >>> factors = lambda states, rows, z: -0.5 * (y[rows, None] - means[states]) ** 2
    >>> kernel = mcmc.RacingGibbs([mcmc.Categorical(3, factors, 100_000)])
    >>> trace = mcmc.sample(kernel, n_draws=50, n_chains=1, n_tune=0, rng=1)
    >>> bool(trace.rows.mean() < 100_000)
    True
    """

    outside = False  # whether a log-factor has been met that `support` does not hold
    full_pass_advice = (
        "a part of the factors does not tell the likely states apart. Race on what an approximation leaves of them: "
        "give Categorical expansions, or taylor_glm as factors; if it has one, expand nearer to the likely states. "
        "Where the factors of a state were all equal in what was read, the tail guard waits for others: give the "
        "interval of each state's factors as support, (0, 0) for one whose control variate leaves nothing. Where "
        "nothing helps, Gibbs reads as much, in cheaper passes and without delta"
    )

    _looks = False  # of kernels saved before chains looked at factors

    @takes_options
    def __init__(
        self,
        variables: Sequence[Categorical],
        delta: float = 0.05,
        bound: str = "auto",
        *,
        support: _checks.Support | None = None,
        first_look: int | None = None,
        student: bool = False,
        tail_guard: bool = True,
        options: RaceOptions | None = None,
    ) -> None:
        super().__init__(variables)
        self.delta = _checks.probability(delta, "delta")
        self.bound = bound
        self.support = support
        self.first_look = first_look
        self.student = _checks.flag(student, "student")
        self.tail_guard = _checks.flag(tail_guard, "tail_guard")
        self._looks = self.tail_guard and support is None and isinstance(bound, str) and bound in ("auto", "normal")
        z = np.zeros(len(self.variables), np.intp)
        for variable in self.variables:
            self._engine(variable, z)  # argument checks now

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "bound": self.bound, "delta": self.delta}

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> GibbsState:
        state = super().init(position, rng)
        if self._looks:  # a Source has control variates and bounds of its own, and says what is hard about it
            state.losses[[not isinstance(v.factors, Source) for v in self.variables]] = UNSEEN
        return state

    def _engine(self, variable: Categorical, z: States) -> Any:
        if variable.sizes is not None:
            return None
        if variable.expansions is not None:
            return self._two_states(variable, z)
        sampler = DiscreteSampler(
            variable.source(z), bound=self.bound, delta=self.delta, support=self.support, first_look=self.first_look,
            student=self.student, tail_guard=self.tail_guard, outside="warn",  # `mcmc.sample` says so at the end
            rng=0,
        )
        return sampler.source, sampler

    def _drawn(
        self, rng: np.random.Generator, i: int, z: States, offset: NDArray[np.float64], losses: NDArray[np.intp],
        engine: Any, tally: Tally,
    ) -> int:
        variable = self.variables[i]
        if losses[i] == UNSEEN and tally.looked < LOOKED:
            tally.looked += 1
            losses[i] = HELD if self._held(variable, z, offset, engine, tally) else 0
        held = losses[i] >= HELD
        if held:
            losses[i] = losses[i] + 1 if losses[i] < HELD + AGAIN else UNSEEN
        if variable.expansions is not None:
            return self._proposed(rng, int(z[i]), offset, self._all_rows(engine) if held else engine, tally)
        if held:
            return self._exact(rng, variable, z, offset, None if engine is None else engine[0], tally)
        if losses[i] == UNSEEN:
            return self._raced(rng, variable, z, offset, engine, tally)[0]
        if sits_out(losses[i]):
            losses[i] += 1
            return self._exact(rng, variable, z, offset, None if engine is None else engine[0], tally)
        state, lost = self._raced(rng, variable, z, offset, engine, tally)
        losses[i] = losses[i] + 1 if lost else 0
        return state

    def _raced(
        self, rng: np.random.Generator, variable: Categorical, z: States, offset: NDArray[np.float64], engine: Any,
        tally: Tally,
    ) -> tuple[int, bool]:
        """A state, and whether the race for it read all factors."""
        if engine is None:
            state, lost = self._race_own(rng, variable, z, offset, tally)
        else:
            state, lost = self._race(rng, offset, engine, tally)
        tally.undecided |= lost
        return state, lost

    def _held(
        self, variable: Categorical, z: States, offset: NDArray[np.float64], engine: Any, tally: Tally
    ) -> bool:
        """Whether few factors hold what the likely states differ by, so that small subsets miss them. Reads all."""
        if engine is None:
            sizes, factors = variable.own(z)
            own = [np.asarray(factors(int(s), np.arange(sizes[s])), dtype=float) if sizes[s] else np.zeros(1)
                   for s in range(variable.n_states)]
            tally.rows += int(sizes.sum())
            likely = _likely(offset + np.array([np.sum(values) for values in own]))
            return any(_held_by_few(own[s]) for s in likely)
        source: Any = engine[0]
        race = engine[1]
        bound = race.bound if isinstance(race, AcceptTest) else race._options.bound
        if bound != "normal":  # the source knows how far apart factors may be
            return False
        rows, states = source.n_rows, np.flatnonzero(offset > -np.inf)
        if variable.expansions is not None:
            likely = _likely(offset + source.shifts())
        else:
            likely = states[_likely(offset[states] + source.totals(states))]
            tally.rows += rows * len(states)
        if len(likely) < 2:
            return False
        parts = [source.read(np.arange(k, min(k + AT_ONCE, rows)), likely) for k in range(0, rows, AT_ONCE)]
        values = np.concatenate(parts)
        tally.rows += rows * len(likely)
        return any(_held_by_few(values[:, k] - values[:, 0]) for k in range(1, len(likely)))

    def _race(
        self, rng: np.random.Generator, offset: NDArray[np.float64], engine: tuple[Source, DiscreteSampler],
        tally: Tally,
    ) -> tuple[int, bool]:
        source, sampler = engine
        core = sampler._core
        before, exact, looks = core.evaluations, core.n_exact, core.n_looks_taken
        core.start_afresh(rng)
        if not np.array_equal(offset, sampler._log_prior):
            sampler.log_prior = offset
        state = sampler.draw()
        tally.rows += core.evaluations - before
        tally.looks += core.n_looks_taken - looks
        if core.outside:
            self.outside = True
        lost = core.n_exact > exact
        tally.full_pass |= lost
        return state, lost

    def _two_states(self, variable: Categorical, z: States) -> tuple[Source, AcceptTest]:
        """What the expansions of a variable leave, and a race between two states of it."""
        if self.support is not None:
            raise ValueError("support came with a variable that has expansions, and holds its factors, not what the "
                             "expansions leave of them: leave it out, and give the variable a residual_support")
        source = variable.source(z)
        return source, AcceptTest(
            PairSource(source, 0, 0), bound=self.bound, delta=self.delta, first_look=self.first_look,
            student=self.student, skewness_guard=None if self.tail_guard else False, outside="warn", rng=0,
        )

    def _all_rows(self, engine: tuple[Source, AcceptTest]) -> tuple[Source, AcceptTest]:
        """The same whose first look is at all rows: decisions are exact."""
        source, _ = engine
        return source, AcceptTest(PairSource(source, 0, 0), bound="normal", delta=self.delta, first_look=source.n_rows,
                                  outside="warn", rng=0)

    def _proposed(
        self, rng: np.random.Generator, now: int, offset: NDArray[np.float64], engine: tuple[Source, AcceptTest],
        tally: Tally,
    ) -> int:
        """A state proposed from the sums of the expansions; a race on what they leave accepts it or not."""
        source, test = engine
        sums = source.shifts()
        new = int(np.argmax(offset + sums - np.log(rng.standard_exponential(len(sums)))))
        if new == now or offset[now] == -np.inf:
            return new
        test.source = PairSource(source, now, new)
        log_u, seed = -rng.standard_exponential(), int(rng.integers(2**64, dtype=np.uint64))
        test._follow_support()
        accepted = test.run_afresh(seed, log_u + float(sums[new] - sums[now]))
        if test.outside:
            self.outside = True
        tally.rows += 2 * test.n_evaluated
        tally.looks += test.n_looks
        tally.full_pass |= test.n_evaluated > test.n_read
        tally.undecided |= test.n_read == source.n_rows
        return new if accepted else now

    def _race_own(
        self, rng: np.random.Generator, variable: Categorical, z: States, offset: NDArray[np.float64], tally: Tally
    ) -> tuple[int, bool]:
        sizes, factors = variable.own(z)
        noise = -np.log(rng.standard_exponential(variable.n_states))
        race = UnequalRace(
            sizes, self.delta, self.bound,
            10 if self.first_look is None else self.first_look, self.support, offset=offset + noise,
            student=self.student, allocation="even" if self.support is None else "adaptive", outside="warn", rng=rng,
        )
        result = race.run(factors)
        tally.rows += int(result.pulls.sum())
        tally.looks += result.n_looks
        if race._race.outside:
            self.outside = True
        lost = result.stopped_by == "exact"
        return int(result.best), lost


def _likely(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """States that the draw may well be, the likeliest first."""
    order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")[:MOST]
    with np.errstate(invalid="ignore"):
        return order[scores[order] >= scores[order[0]] - LIKELY]


def _held_by_few(values: NDArray[np.float64]) -> bool:
    """Whether few of the values, of those that are finite, hold nearly all that they differ by."""
    finite = values[np.isfinite(values)]
    apart = np.abs(finite - finite.mean()) if len(finite) else np.zeros(1)
    return bool(apart.sum() > NOTHING) and held_apart(apart, SHARE, 0.0)[1] == 0.0
