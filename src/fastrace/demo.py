"""What `fastrace demo` shows: the same posterior drawn by racing and exactly, on real data.

The posterior is that of the order of an ARCH model with Student-t errors, after Chen & Ghahramani (2016), section 5.2,
on daily returns that install with the package arch; or of the columns of a table of log-factors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from fastrace._base._words import counted
from fastrace._models._arch import ArchSource
from fastrace._models._expanded import Expanded, Expansion
from fastrace.control_variates import ControlVariate
from fastrace.mcmc.models.arch import term_sums
from fastrace.races.sampling import DiscreteSampler
from fastrace.results import SamplerStats
from fastrace.sources import as_source

Array = NDArray[np.float64]
Advance = Callable[[int], None]
ORDERS = (14, 16, 18, 20, 22, 24)

# Share of the terms that the expansion fits worst: they are summed at every draw and never raced (ibid., appendix C.2).
ALWAYS_READ = 0.04
PILOT_DRAWS = 32


@dataclass(frozen=True)
class Comparison:
    """Draws by racing and exactly, from the same parameters and the same Gumbel noise.

    Attributes
    ----------
    title : str
        What was drawn.
    states : list of str
        Names of the states.
    n_terms : int
        Terms per state, all of which an exact draw reads.
    delta : float
        Probability with which a raced draw may differ from the exact one.
    exact, raced : ndarray of int, shape (draws,)
        The states drawn.
    fraction_read : ndarray, shape (draws,)
        Terms that each raced draw read over those of an exact draw: above 1 where it turned to a full pass after some
        looks.
    full_passes : int
        Raced draws that turned to a full pass.
    exact_seconds, raced_seconds : float
        Wall time of the exact draws and of the raced draws.
    notes : tuple of str
        What the reader should know.
    """

    title: str
    states: list[str]
    n_terms: int
    delta: float
    exact: NDArray[np.intp]
    raced: NDArray[np.intp]
    fraction_read: Array
    full_passes: int
    exact_seconds: float
    raced_seconds: float
    notes: tuple[str, ...]

    @property
    def n_draws(self) -> int:
        return self.exact.size

    @property
    def speed_up(self) -> float:
        return self.exact_seconds / self.raced_seconds

    @property
    def n_different(self) -> int:
        """Draws in which the race and the exact argument of the maximum differ: the race's errors."""
        return int((self.exact != self.raced).sum())

    def frequencies(self, draws: NDArray[np.intp]) -> Array:
        return np.bincount(draws, minlength=len(self.states)) / draws.size

    @property
    def total_variation(self) -> float:
        """Half the sum of differences between the frequencies of the two sets of draws."""
        return float(0.5 * np.abs(self.frequencies(self.exact) - self.frequencies(self.raced)).sum())

    def expected_noise(self, repeats: int = 400) -> float:
        """Mean total variation between two independent sets of as many exact draws."""
        rng = np.random.default_rng(0)
        sets = rng.multinomial(self.n_draws, self.frequencies(self.exact), size=(2, repeats)) / self.n_draws
        return float(0.5 * np.abs(sets[0] - sets[1]).sum(axis=1).mean())

    def error_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Clopper-Pearson interval for the rate of `n_different`."""
        interval = stats.binomtest(self.n_different, self.n_draws).proportion_ci(level)
        return float(interval.low), float(interval.high)

    def rows(self) -> list[tuple[str, str, str]]:
        """The table: what, by racing, exactly."""
        low, high = self.error_interval()
        per_draw = 1e6 / self.n_draws
        return [
            ("terms read", f"{self.fraction_read.mean():.1%}", "100%"),
            ("  in half of the draws, at most", f"{np.median(self.fraction_read):.1%}", "100%"),
            ("draws that turned to a full pass", f"{self.full_passes / self.n_draws:.1%}", ""),
            ("wall time", f"{self.raced_seconds:.3f} s", f"{self.exact_seconds:.3f} s"),
            ("  per draw", f"{self.raced_seconds * per_draw:.0f} us", f"{self.exact_seconds * per_draw:.0f} us"),
            ("speed-up", f"{self.speed_up:.1f} x", "1 x"),
            ("error promised, per draw", f"{self.delta:g}", "0"),
            ("error measured: draws that differ", f"{self.n_different} of {self.n_draws}", ""),
            ("  95 % interval of that rate", f"{low:.4f} to {high:.4f}", ""),
            ("total variation between the two", f"{self.total_variation:.4f}", ""),
            ("  expected of two exact sets", f"{self.expected_noise():.4f}", ""),
        ]


def softplus(z: Array) -> Array:
    return np.logaddexp(0.0, z)


def inverse_softplus(x: Array) -> Array:
    return x + np.log(-np.expm1(-x))


class OrderPosterior:
    """The order q of an ARCH(q) model with Student-t errors, by the augmentation of Carlin & Chib (1995).

    Weights a_0, ..., a_q and nu are Exp(1) a priori, orders equally likely. Each order has a pseudo-prior, the normal
    approximation at its mode in softplus coordinates. A step keeps the parameters of the order at hand, draws those of
    all others from their pseudo-priors, and then draws the order given all of them:
    p(q) proportional to likelihood_q x prior_q(parameters_q) / pseudo-prior_q(parameters_q).

    Parameters
    ----------
    returns : ndarray, shape (T,)
        Returns, mean removed, of standard deviation 1.
    orders : sequence of int
        The orders.
    rng : Generator
        For the pilot draws that pick the terms to be read always.
    """

    def __init__(self, returns: Array, orders: Sequence[int], rng: np.random.Generator) -> None:
        self.orders = tuple(orders)
        most = max(orders)
        squares = returns * returns
        self._lags = np.column_stack([np.ones(returns.size - most)]
                                     + [squares[most - i : returns.size - i] for i in range(1, most + 1)])
        self._squares = squares[most:]
        width = most + 2                            # weights first, nu in the last column, gaps between
        n_arms = len(self.orders)
        self._used = np.zeros((n_arms, width), dtype=bool)
        for j, q in enumerate(self.orders):
            self._used[j, : q + 1] = self._used[j, -1] = True
        self._centre = np.zeros((n_arms, width))
        self._root = np.zeros((n_arms, width, width))
        self._constant = np.zeros(n_arms)
        for j in range(n_arms):
            self._fit(j)
        self._mode = np.where(self._used, softplus(self._centre), 0.0)

        self._now = self._mode.copy()               # where all the sources read their parameters
        self.plain = ArchSource(squares, self.orders, self._now, natural=True)
        self._sum_up()
        pilot = Expanded(self.plain, self._mode)
        worst = np.zeros(pilot.n_rows)
        for _ in range(PILOT_DRAWS):
            self.set(*self.draw(rng))
            np.maximum(worst, np.abs(pilot.read(np.arange(pilot.n_rows))).max(axis=1), out=worst)
        n_raced = pilot.n_rows - int(ALWAYS_READ * pilot.n_rows)
        self.always_read = np.sort(np.argsort(worst)[n_raced:])
        self.raced = ControlVariate(
            self.plain, Expansion(self.plain, self._mode), self._expansions, always_read=self.always_read
        )

    def _sums(self, x: Array) -> tuple[float, Array, Array]:
        """Sum of the terms of the order with parameters x, its gradient and its Hessian in them."""
        lags = self._lags[:, : x.size - 1]
        return term_sums(self._squares, lags, lags @ x[:-1], x[-1])

    def _negative_log_posterior(self, z: Array) -> tuple[float, Array]:
        x = softplus(z)
        value, gradient, _ = self._sums(x)
        slope = -np.expm1(-x)
        return -(value + (np.log(slope) - x).sum()), -(gradient * slope + 2 * np.exp(-x) - 1)

    def _fit(self, j: int) -> None:
        q = self.orders[j]
        start = inverse_softplus(np.r_[0.3, np.full(q, 0.6 / q), 5.0])
        found = optimize.minimize(self._negative_log_posterior, start, jac=True, method="BFGS")
        x = softplus(found.x)
        _, gradient, curvature = self._sums(x)
        slope = -np.expm1(-x)
        precision = -(curvature * np.outer(slope, slope) + np.diag((gradient - 2) * slope * np.exp(-x)))
        factor = np.linalg.cholesky(precision)
        used = np.flatnonzero(self._used[j])
        self._centre[j, used] = found.x
        self._root[j][np.ix_(used, used)] = np.linalg.inv(factor).T
        # Minus the log of the pseudo-prior's constant.
        self._constant[j] = 0.5 * used.size * np.log(2 * np.pi) - np.log(np.diag(factor)).sum()

    def _sum_up(self) -> None:
        """The sum of the expansions over all terms, as one quadratic form in the parameters per order."""
        n_arms, width = self._used.shape
        self._value = np.zeros(n_arms)
        self._gradient = np.zeros((n_arms, width))
        self._hessian = np.zeros((n_arms, width, width))
        for j, used in enumerate(self._used):
            value, gradient, hessian = self._sums(self._mode[j, used])
            self._value[j], self._gradient[j, used], self._hessian[j][np.ix_(used, used)] = value, gradient, hessian

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Parameters of every order from its pseudo-prior, shape (n_arms, max(orders) + 2): a_0, ..., a_q, nu last.

        Also the log of prior over pseudo-prior there, shape (n_arms,).
        """
        noise = np.where(self._used, rng.standard_normal(self._used.shape), 0.0)
        x = softplus(self._centre + np.matmul(self._root, noise[:, :, None])[:, :, 0])
        log_prior = np.where(self._used, np.log(-np.expm1(-x)) - x, 0.0).sum(axis=1)
        return np.where(self._used, x, 0.0), log_prior + 0.5 * (noise * noise).sum(axis=1) + self._constant

    def set(self, parameters: Array, log_prior: Array) -> None:
        """Take new parameters, shape (n_arms, max(orders) + 2), and what is added to each log likelihood."""
        self._now[:] = parameters
        self.plain.offset[:] = log_prior

    def _expansions(self) -> Array:
        """Sums of the expansions over all terms at the present parameters."""
        step = self._now - self._mode
        bent = np.matmul(self._hessian, step[:, :, None])[:, :, 0]
        return np.asarray(self._value + (step * (self._gradient + 0.5 * bent)).sum(axis=1))


def returns_of_oil() -> Array:
    """Daily log-returns of the WTI oil price, 1986 to 2018, mean removed, of standard deviation 1."""
    try:
        from arch.data import wti
    except ImportError as error:
        raise ImportError('the data come with the package arch: python -m pip install arch') from error
    prices = wti.load().iloc[:, 0].dropna().to_numpy(dtype=np.float64)
    returns = np.diff(np.log(prices))
    returns -= returns.mean()
    return np.asarray(returns / returns.std())


def side_by_side(
    sampler: DiscreteSampler,
    noise: np.random.Generator,
    n_draws: int,
    exact_sums: Callable[[], Array],
    *,
    before: Callable[[int], None],
    before_race: Callable[[], None],
    advance: Advance,
) -> dict[str, Any]:
    """Draw exactly and by racing, each time from the same state and the same Gumbel noise.

    `before` takes the last exact draw (0 at first) and is not timed; `exact_sums` belongs to the exact draw's time,
    `before_race` to the race's. Returns the fields of `Comparison` that follow.
    """
    copy = np.random.Generator(type(noise.bit_generator)())     # stands where the sampler's generator will draw from
    exact, raced = np.zeros(n_draws, np.intp), np.zeros(n_draws, np.intp)
    evaluations, seconds = np.zeros(n_draws), np.zeros(2)
    for k in range(n_draws):
        before(int(exact[k - 1]) if k else 0)
        copy.bit_generator.state = noise.bit_generator.state
        start = time.perf_counter()
        sums = exact_sums()
        exact[k] = (sums - np.log(copy.standard_exponential(sums.size))).argmax()
        middle = time.perf_counter()
        before_race()
        raced[k] = sampler.draw()
        seconds += middle - start, time.perf_counter() - middle
        evaluations[k] = sampler.stats.evaluations
        advance(k + 1)
    return {
        "exact": exact,
        "raced": raced,
        "evaluations": np.diff(evaluations, prepend=0.0),
        "full_passes": round(sampler.stats.fraction_exact * n_draws),
        "exact_seconds": float(seconds[0]),
        "raced_seconds": float(seconds[1]),
        "warnings": _warnings(sampler.stats),
    }


def compare_orders(
    n_draws: int, delta: float, seed: int, advance: Advance, orders: Sequence[int] = ORDERS
) -> Comparison:
    """Draw the order of an ARCH model by racing and exactly, in one chain that the exact draws move."""
    start = time.perf_counter()
    walk, noise = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    posterior = OrderPosterior(returns_of_oil(), orders, walk)
    setup = time.perf_counter() - start
    n_terms, n_arms = posterior.plain.n_rows, len(orders)
    parameters, log_prior = posterior.draw(walk)

    def refresh(order: int) -> None:
        kept, kept_prior = parameters[order].copy(), log_prior[order]
        parameters[:], log_prior[:] = posterior.draw(walk)
        parameters[order], log_prior[order] = kept, kept_prior

    def exact_sums() -> Array:
        posterior.set(parameters, log_prior)
        return posterior.plain.totals()

    sampler = DiscreteSampler(posterior.raced, delta=delta, rng=noise)
    run = side_by_side(
        sampler,
        noise,
        n_draws,
        exact_sums,
        before=refresh,
        before_race=lambda: posterior.set(parameters, log_prior),
        advance=advance,
    )
    return Comparison(
        title=f"order of an ARCH model of {n_terms} daily returns of WTI oil",
        states=[f"q = {q}" for q in orders],
        n_terms=n_terms,
        delta=delta,
        fraction_read=run.pop("evaluations") / (n_arms * n_terms),
        notes=(
            "The parameters change before every draw, so no likelihood can be kept from one draw to the next.",
            f"Terms are raced less their expansions about the modes; the {ALWAYS_READ:.0%} that these fit worst "
            f"are read at every draw, and counted. Modes and expansions took {setup:.1f} s, once.",
            "Both kinds of draw are compiled and use one core; their time starts when the parameters are there.",
            *run.pop("warnings"),
        ),
        **run,
    )


def compare_table(
    table: Any, states: list[str], n_draws: int, delta: float, seed: int, advance: Advance
) -> Comparison:
    """Draw the column of a table of log-factors, rows by states, by racing and exactly."""
    source = as_source(table)
    noise = np.random.default_rng(seed)
    sampler = DiscreteSampler(source, delta=delta, rng=noise)
    run = side_by_side(
        sampler, noise, n_draws, source.totals, before=lambda last: None, before_race=lambda: None, advance=advance
    )
    return Comparison(
        title=f"column of a table of {source.n_rows} x {source.n_arms} log-factors",
        states=states,
        n_terms=source.n_rows,
        delta=delta,
        fraction_read=run.pop("evaluations") / max(source.n_arms * source.n_rows, 1),
        notes=(
            "Both read the table anew at every draw, as a step must whose factors change with the rest of a chain. "
            "A table that stays as it is you would sum once, and draw from the sums.",
            *run.pop("warnings"),
        ),
        **run,
    )


def _warnings(found: SamplerStats) -> tuple[str, ...]:
    """What the sampler says of its draws; advice on options that the demo does not have becomes a note."""
    if found.bound != "normal":
        return tuple(f"Warning: {text}" for text in found.warnings)
    rule = "Rule: normal without replacement. No support is known, so it assumes that the means at a look are normal."
    if found.constant or found.held_back or found.skewed:
        rule += (" Some terms looked skewed or constant, where that assumption is rough: judge the race by the error "
                 "measured above, not by the one promised.")
    notes = [rule]
    if found.impossible:
        notes.append("Warning: states left the race for a log-factor of -inf. The race cannot see one that it did not "
                     "read: judge it by the error measured above.")
    return tuple(notes)


def figure(comparison: Comparison) -> Any:
    """Both posteriors side by side, and how much each draw read: a matplotlib Figure."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('the picture needs matplotlib: python -m pip install matplotlib') from error
    sheet = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = sheet.subplots(1, 2)
    at = np.arange(len(comparison.states))
    for shift, name, draws in ((-0.2, "exact", comparison.exact), (0.2, "raced", comparison.raced)):
        share = comparison.frequencies(draws)
        noise = 1.96 * np.sqrt(share * (1 - share) / draws.size)
        left.bar(at + shift, share, 0.4, yerr=noise, capsize=2, label=name)
    left.set_xticks(at, comparison.states, rotation=45 if len(at) > 8 else 0)
    left.set_ylabel("share of draws")
    left.set_title(comparison.title, fontsize=10)
    left.legend()
    read = np.sort(comparison.fraction_read)[::-1]
    right.plot(np.arange(1, read.size + 1) / read.size, read, label="raced draws, the dearest first")
    right.axhline(read.mean(), linestyle="--", color="C0", label=f"their mean, {read.mean():.1%}")
    right.axhline(1.0, color="C1", label="an exact draw")
    right.set_yscale("log")
    right.set_xlabel("share of draws")
    right.set_ylabel("terms read, over those of an exact draw")
    differ = f"{comparison.n_different} of {counted(comparison.n_draws, 'draw')} differ"
    right.set_title(f"{comparison.speed_up:.1f} times the speed of exact draws, {differ}", fontsize=10)
    right.legend()
    return sheet
