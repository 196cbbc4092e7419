"""The normal density at the mode, corrected by importance weights: often all that a posterior needs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._arguments import names_meant
from fastrace._base._blas import one_blas_thread
from fastrace._base._words import counted
from fastrace.mcmc import _pareto
from fastrace.mcmc._convergence import effective_sample_size
from fastrace.mcmc._fit import mode_words, other_expansion, other_mode
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.models._sites import flat_effects
from fastrace.mcmc.models.model import GLM, Model
from fastrace.mcmc.trace import arviz_tree, printed_first
from fastrace.results import Column, Result, Table

__all__ = ["LaplaceResult", "laplace"]

Array = NDArray[np.float64]

_FEW = 100.0    # effective draws, below which means are rough
_LONG = 5.0     # degrees of freedom where tails are long
_SURE = 0.3     # Pareto k of a normal density; its estimate from 4000 draws is off by .1, and .48 once hid a long tail
_THIN = 5       # moves of hyperparameters between two draws
_ARRIVING = 50  # draws before the first
_NOWHERE = ("the posterior is 0 at all {} draws of {}: log_prior or terms are -inf there, where derivatives say that "
            "it is largest")


@dataclass(frozen=True, eq=False)
class LaplaceResult(Result):
    """Weighted draws of a posterior, and whether they are enough.

    Attributes
    ----------
    draws : ndarray of shape (n_draws, dim)
        Draws of the density that proposes: normal, Student-t, or prior times expansion where the prior has
        hyperparameters. Scales are themselves, as in chains, though it is their logarithms that are proposed.
    log_weights : ndarray of shape (n_draws,)
        Logarithms of their Pareto-smoothed importance weights, which sum to 1.
    resampled : ndarray of shape (n_draws, dim)
        Draws repeated in proportion to their weights, in random order: each counts alike.
    pareto_k : float
        Shape of the tail of the weights: below 0.5 they have a finite variance. 0 where all are equal.
    ess : float
        Effective sample size ``1 / sum(weights ** 2)``, less where draws are not independent.
    center, factor : ndarray of shape (dim,) and (dim, dim)
        Of the density that proposes: its mean and the Cholesky factor of its squared scale, in the coordinates of
        ``model.names``, with the logarithm of a learned scale. With hyperparameters the point of expansion, and an
        empty array.
    df : float
        Its degrees of freedom, infinite for the normal density, also where that is nested: given hyperparameters. nan
        where prior times expansion is far from either.
    n_passes : int
        Log-likelihoods that were evaluated on all rows.
    variable, names : str and tuple of str
        What the draws and their coordinates are called.
    warnings : tuple of str
        Why the draws should not be trusted, if so.
    shown_last : tuple of int
        Coordinates that are printed after all others, such as the effects of groups.
    variables : tuple of Variable
        The variables that `to_arviz` makes of the coordinates; empty if they are one vector.
    """

    draws: Array = field(repr=False)
    log_weights: Array = field(repr=False)
    resampled: Array = field(repr=False)
    pareto_k: float
    ess: float
    center: Array = field(repr=False)
    factor: Array = field(repr=False)
    df: float
    n_passes: int
    variable: str = "theta"
    names: tuple[str, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()
    shown_last: tuple[int, ...] = field(default=(), repr=False)
    variables: tuple[Variable, ...] = field(default=(), repr=False)

    @property
    def weights(self) -> Array:
        """The weights themselves, shape (n_draws,)."""
        return np.exp(self.log_weights)

    @property
    def mean(self) -> Array:
        """Posterior mean of each coordinate."""
        return np.asarray(self.weights @ self.draws, dtype=np.float64)

    @property
    def sd(self) -> Array:
        """Posterior standard deviation of each coordinate."""
        return np.sqrt(self.weights @ np.square(self.draws - self.mean))

    @property
    def verdict(self) -> str:
        """Whether a chain is needed, in words."""
        k, limit = self.pareto_k, _limit(self.log_weights)
        if not k < limit:
            return (f"a chain is needed: Pareto k is {k:.2g}, above {limit:.2g}, so that weights of draws from this "
                    f"density are not to be trusted. Run mcmc.sample")
        said = f"Pareto k is {math.floor(100.0 * k) / 100.0:g}"  # also rounded it is below what it is said to be below
        if k >= _pareto.GOOD:
            return (f"{said}, between {_pareto.GOOD} and {limit:.2g}: means and deviations can be used, "
                    f"at {self.ess:.0f} effective draws; tails are better left to a chain")
        if self.warnings == (_rough(self.ess, len(self.draws)),):
            return (f"more draws are needed, or a chain: {said}, below {_pareto.GOOD}, so that weights can be trusted, "
                    f"but {self.warnings[0]}")
        if self.warnings:
            return f"a chain is advised, though {said}, below {_pareto.GOOD}: see `warnings`. Run mcmc.sample"
        return (f"no chain is needed: {said}, below {_pareto.GOOD}, so that the weighted draws are exact "
                f"for practical purposes, at {self.ess:.0f} effective draws")

    def to_arviz(self) -> Any:
        """The resampled draws as one chain of ArviZ: a DataTree with ArviZ 1.x, InferenceData with 0.x.

        Variables, axes and labels are those of `Trace.to_arviz`.

        Raises
        ------
        ImportError
            If ArviZ is not there.
        """
        about = {"kernel": "laplace", "pareto_k": self.pareto_k, "ess": self.ess, "df": self.df}
        draws = self.resampled[None]
        posterior = {variable.name: variable.of(draws) for variable in self.variables} or {self.variable: draws}
        return arviz_tree({"posterior": posterior}, about, self.variable, self.names, self.variables)

    def _title(self) -> str:
        density = "the normal density" if math.isinf(self.df) else f"the Student-t (df {self.df:g}) density"
        if not self.factor.size:
            density = "prior times expansion" if math.isnan(self.df) else "the nested normal density"
        return f"Laplace approximation: {counted(len(self.draws), 'weighted draw')} of {density}"

    def _columns(self) -> dict[str, Any]:
        weights, mean = self.weights, self.mean
        apart = np.square(self.draws - mean)
        sd = np.sqrt(weights @ apart)
        with np.errstate(invalid="ignore"):
            ess = sd**2 / (np.square(weights) @ apart)
        names = list(self.names) or [f"{self.variable}[{j}]" for j in range(len(mean))]
        return {"coordinate": names, "mean": mean, "sd": sd, "ess": ess}

    def _table(self) -> Table:
        values = self._columns()
        columns = [Column("mean", values["mean"], ".4g", 11), Column("sd", values["sd"], ".4g", 11),
                   Column("ess", values["ess"], ".0f", 9)]
        names = values["coordinate"]
        order = printed_first(len(names), self.shown_last)
        width = max(12, *(len(names[j]) for j in order))
        rows: list[Any] = [[f"{names[j]:>{width}}", *(column.cell(j) for column in columns)] for j in order]
        if len(names) > len(order):
            rows.append(f"{'':>{width}}  ... and {len(names) - len(order)} more; smallest ess "
                        f"{values['ess'].min():.0f}")
        return Table([f"{'':>{width}}", *(f"{column.head:>{column.width}}" for column in columns)], rows)

    def _notes(self) -> list[str]:
        return [*([] if self.warnings else [self.verdict]), *super()._notes()]

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"weights": self._draw_weights, "draws": self._draw_draws}

    def _draw_weights(self, ax: Any) -> None:
        ax.plot(np.sort(self.weights)[::-1] * len(self.draws), color="C0")
        ax.axhline(1.0, color="0.6", linewidth=0.8)
        ax.set(xscale="log", xlabel="draw, largest weight first", ylabel="weight over the mean weight",
               title=f"Pareto k {self.pareto_k:.2g}, {self.ess:.0f} effective draws")

    def _draw_draws(self, ax: Any) -> None:
        sample, name = self.draws[:, 0], self._columns()["coordinate"][0]
        edges = np.histogram_bin_edges(sample, 50)
        ax.hist(sample, edges, density=True, histtype="step", color="0.6", label="proposed")
        ax.hist(sample, edges, weights=self.weights, density=True, histtype="step", color="C0", label="weighted")
        ax.set(xlabel=name, ylabel="density")
        ax.legend()


@one_blas_thread()
@names_meant
def laplace(
    model: Model, n_draws: int = 4000, rng: _checks.RngLike = None, *, df: float | str = "auto"
) -> LaplaceResult:
    """Draws of the normal density at the posterior mode, with importance weights on all rows; no chain.

    Parameters
    ----------
    model : GLM, Softmax, ARCH, FunctionModel with derivatives, or other Model
        Log-likelihood terms and prior.
    n_draws : int, default 4000
        Number of draws, at least 25. Each costs one pass over the rows.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.
    df : float or "auto", default "auto"
        Degrees of freedom of the density that proposes: infinite for the normal one. "auto" begins with the normal
        density. If its weights may have a long tail (Pareto k of 0.3 or more), a Student-t density with 5 degrees of
        freedom is tried at the mode, and if those have one (0.5 or more) at their weighted mean and covariance. The
        smallest k wins.

    Returns
    -------
    LaplaceResult
        Weighted and resampled draws, Pareto k, the effective size, and in words whether a chain is needed.

    Raises
    ------
    ValueError
        If the model has no derivatives, its posterior is improper or has no mode, or an argument is out of range.

    Warns
    -----
    UserWarning
        If k says that the weights are not to be trusted, or if fewer than 100 draws are effective, however few were
        asked for. In models whose prior has hyperparameters, also where k may not show what draws miss: groups whose
        effects have a long tail to one side, and a learned scale of which the rows say little.

    Notes
    -----
    Weights are smoothed by a generalised Pareto distribution fitted to the largest of them [1]_. With k < 0.5 the
    answers are exact for practical purposes: their error is that of `ess` independent draws. With k above 0.7 (less for
    n < 2154 draws: ``1 - 1 / log10(n)``) they are not to be trusted. Draws beyond a hard edge of the posterior have no
    weight and do not count. On posteriors of up to about 50 parameters that are close to normal this is often the
    cheapest answer. Weights speak of the region that the draws reach: another mode far away leaves no trace in k. Where
    the log-likelihood is not known to be concave one is looked for, from a few points on some of the rows, and a
    warning says where it is.

    Where the prior has hyperparameters, such as the scales of group effects, the joint mode is no place to expand at. A
    chain on prior times expansion, see `compress`, then proposes, without a row: hyperparameters from their marginal
    density, all else from its normal one. A learned scale of Gaussian outcomes, or of up to 4096 Student-t ones, moves
    with the hyperparameters: of Gaussian outcomes the expansion is then the likelihood itself, and under normal priors
    all weights are equal. A learned dispersion of other families is expanded in its logarithm with all else. Where the
    prior is far from normal given its hyperparameters, as tight `Laplace` priors are, the chain makes Hamiltonian
    moves. Every 5th move is a draw; `ess` counts their dependence too. `df` has no meaning there.

    The cost is one pass over the rows for each draw. Generalised linear models evaluate 64 draws at once by a product
    of matrices.

    References
    ----------
    .. [1] Vehtari, Simpson, Gelman, Yao, Gabry, "Pareto smoothed importance sampling", JMLR 25(72), 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> answer = mcmc.laplace(mcmc.GLM(X, y, prior_sd=2.5), n_draws=1000, rng=1)
    >>> answer.mean.round(1)
    array([ 0.9, -0.5])
    >>> answer.verdict.split(":")[0]
    'no chain is needed'
    """
    if not isinstance(model, Model):
        raise TypeError(f"model is {_checks.shown(model)}; a GLM, FunctionModel or other mcmc.Model is needed"
                        f"{_checks.of_pymc(model)}")
    n_draws = _checks.integer(n_draws, "n_draws", _pareto.LEAST, "the shape of the tail is learned from a fifth")
    _checks.room(8.0 * n_draws * model.dim, f"n_draws is {n_draws}: the draws")
    if not model.has_derivatives:
        raise ValueError(f"{type(model).__name__} has no derivatives to find a mode by: give them, or run a chain with "
                         f"mcmc.sample")
    if isinstance(df, str):
        _checks.choice(df, "df", ("auto",))
    elif not _checks.real(df, "df") > 0.0:
        raise ValueError(f"df is {df}; positive degrees of freedom are needed, infinite ones for the normal density")
    gen = _checks.generator(rng)
    form = model._surrogate_form()
    model = form if form.n_hyper else model
    if model.n_hyper:
        nested, problems = _nested(model, n_draws, gen)
        return _answer(model, nested, n_draws, gen, problems)
    reference = model.reference()
    first = _Proposal(reference.center, reference.factor, math.inf if df == "auto" else float(df))
    best = _weighted(model, first, n_draws, gen)
    passes = n_draws
    if df == "auto":
        for limit, proposal in ((_SURE, lambda _: _Proposal(first.center, first.factor, _LONG)),
                                (_pareto.GOOD, _moments)):
            other = None if best.k < limit else proposal(best)
            if other is not None:
                found = _weighted(model, other, n_draws, gen)
                passes += n_draws
                best = min(best, found, key=lambda weighted: weighted.k)
    mode = other_mode(model, reference)
    return _answer(model, best, passes, gen, [] if mode is None else [mode_words(model, *mode)])


def _nested(model: Model, n: int, rng: np.random.Generator) -> tuple[_Weighted, list[str]]:
    """For priors with hyperparameters: draws of prior times expansion, weighted by what that leaves; and doubts."""
    kernel = SurrogateMetropolis(model, decision="exact")
    compressed = kernel.compressed
    if kernel._swept:
        kernel._stay = None  # moves that leave effects to sweeps would make draws that depend on each other
    draws, beside = kernel._drawn(_THIN * (n + _ARRIVING), _THIN * _ARRIVING, _THIN, rng)
    seen = draws[:, : model.n_seen]
    left = model._log_likelihoods(seen) - [compressed.log_likelihood(psi) for psi in seen] + beside
    if not np.isfinite(left.max()):
        raise ValueError(_NOWHERE.format(n, "prior times expansion"))
    density = _Proposal(compressed.psi_hat, np.empty((0, 0)), math.inf if kernel.inner == "normal" else math.nan)
    natural = np.asarray(model.constrain(draws), dtype=np.float64)
    share = min(n, len(np.unique(draws, axis=0)), *(effective_sample_size(column) for column in draws.T)) / n
    return _Weighted(density, natural, *_pareto.smoothed(left), share), _unseen(model, kernel)


def _unseen(model: Model, kernel: SurrogateMetropolis) -> list[str]:
    """What draws of prior times expansion may miss without k showing it, one sentence each."""
    out: list[str] = []
    if not isinstance(model, GLM):
        return out
    flat = flat_effects(model, np.array(kernel.compressed.psi_hat)) if kernel._swept else ()
    if len(flat):
        out.append(f"{counted(len(flat), 'effect')} of groups whose outcomes are alike: such effects have a long tail "
                   f"on one side, which weighted draws may miss, and then k does not show it. Run mcmc.sample, which "
                   f"moves them one by one")
    if kernel._stride:
        out.append("the rows say little of the learned scale: its logarithm has a long tail, which weighted draws may "
                   "miss, and then k does not show it. Run mcmc.sample, or give the scale or a narrower scale_prior")
    mode = other_expansion(model, kernel.compressed)
    return out if mode is None else [*out, mode_words(model, *mode, "psi_hat")]


@dataclass(frozen=True, eq=False)
class _Proposal:
    """A normal or Student-t density."""

    center: Array
    factor: Array
    df: float

    def draws(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws, and their log densities up to a constant that all proposals share."""
        d = len(self.center)
        xi = rng.standard_normal((n, d))
        if math.isinf(self.df):
            log_density = -0.5 * np.square(xi).sum(axis=1)
        else:
            xi *= np.sqrt(self.df / rng.chisquare(self.df, n))[:, None]
            log_density = -0.5 * (self.df + d) * np.log1p(np.square(xi).sum(axis=1) / self.df)
        return self.center + xi @ self.factor.T, log_density


@dataclass(frozen=True, eq=False)
class _Weighted:
    """Draws of a proposal with their weights."""

    proposal: _Proposal
    draws: Array
    log_weights: Array
    k: float
    share: float = 1.0  # of the draws that are independent

    @property
    def ess(self) -> float:
        return float(self.share / np.exp(2.0 * self.log_weights).sum())


def _weighted(model: Model, proposal: _Proposal, n: int, rng: np.random.Generator) -> _Weighted:
    draws, log_density = proposal.draws(n, rng)
    log_ratios = model.log_posteriors(draws) - log_density
    if not np.isfinite(log_ratios.max()):
        raise ValueError(_NOWHERE.format(n, "the normal density at its mode"))
    return _Weighted(proposal, draws, *_pareto.smoothed(log_ratios))


def _moments(found: _Weighted) -> _Proposal | None:
    """A Student-t density with the weighted mean and covariance of draws; None where too few of them count."""
    d = found.draws.shape[1]
    if found.ess < 4.0 * d + 20.0:
        return None
    weights = np.exp(found.log_weights)
    center = weights @ found.draws
    apart = found.draws - center
    covariance = (weights[:, None] * apart).T @ apart
    try:
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return _Proposal(center, factor * math.sqrt((_LONG - 2.0) / _LONG), _LONG)


def _limit(log_weights: Array) -> float:
    """Shape up to which weights are trusted, by the number of those that are not 0."""
    return _pareto.trusted_below(max(int(np.isfinite(log_weights).sum()), _pareto.LEAST))


def _rough(ess: float, n: int) -> str:
    """What is said where less than `_FEW` of n draws are effective."""
    return (f"only {ess:.0f} of {n} draws are effective, and {_FEW:.0f} are needed: means and deviations are rough; "
            f"give a larger n_draws, or run mcmc.sample")


def _answer(
    model: Model, best: _Weighted, passes: int, rng: np.random.Generator, problems: list[str]
) -> LaplaceResult:
    """The result, with its problems as warnings."""
    n = len(best.draws)
    points = (np.arange(n) + rng.random()) / n  # one uniform serves all: systematic resampling
    cumulative = np.cumsum(np.exp(best.log_weights))
    chosen = rng.permutation(np.minimum(np.searchsorted(cumulative, points * cumulative[-1], side="right"), n - 1))
    p = best.proposal
    draws = best.draws if model.n_hyper or model.joint_prior is None else model.constrain(best.draws)
    names = model.natural_names or ()
    answer = LaplaceResult(draws, best.log_weights, draws[chosen], best.k, best.ess, p.center, p.factor, p.df,
                           passes, names=names, shown_last=model._shown_last, variables=model._variables_of(names))
    if not best.k < _limit(best.log_weights):
        problems.append(answer.verdict)
    elif best.ess < _FEW:
        problems.append(_rough(best.ess, n))
    for words in problems:
        warnings.warn(words, stacklevel=_checks.users_level())
    return answer if not problems else replace(answer, warnings=tuple(problems))
