"""Draws of a surrogate posterior, made by any sampler, as draws of the posterior."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace.mcmc import _pareto
from fastrace.mcmc._fit import residuals
from fastrace.mcmc.compression import Compressed, require_of
from fastrace.mcmc.models.model import Model, Reference
from fastrace.mcmc.protocol import Steps
from fastrace.mcmc.trace import Trace, diagnosis
from fastrace.races.acceptance import AcceptTest

__all__ = ["correct"]

Array = NDArray[np.float64]

_INDEPENDENT = 0.3      # effective draws a draw, below which proposals are not independent
_LEAST = 0.2            # share of proposals accepted
_DRAWS = 400            # whose weights tell Pareto k where decisions are races


def correct(
    draws: ArrayLike,
    surrogate: Compressed | Reference,
    model: Model,
    rng: _checks.RngLike = None,
    *,
    decision: str = "race",
    delta: float = 0.05,
) -> Trace:
    r"""Make draws of a surrogate posterior draws of the posterior, by an independence chain.

    Parameters
    ----------
    draws : array_like of shape (n_chains, n_draws, k) or (n_draws, k)
        Draws of the density proportional to prior times the expansion of the likelihood, made by any sampler, such as
        NUTS of another library on a `Compressed`, and thinned until they are independent. What the rows see stands
        first: ``model.n_seen`` columns, which are all that the decisions read. Further columns, such as scales, go
        along.
    surrogate : Compressed or Reference
        The expansion that the sampler used, from `compress` or ``model.reference()``.
    model : Model
        The log-likelihood terms that were expanded.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.
    decision : {"race", "exact"}, default "race"
        Whether a draw is taken is decided by a race, wrong with probability `delta` at most, or by passes over all
        rows.
    delta : float, default 0.05
        As in `RacingMetropolis`.

    Returns
    -------
    Trace
        As many draws as came, those that were refused replaced by the draw before. ``trace.kernel["pareto_k"]`` is
        Pareto k of the weights of the draws: below 0.5 the surrogate is good, above 0.7 not to be used. Such a trace
        cannot be continued.

    Raises
    ------
    ValueError
        If shapes disagree, a draw is not finite, or a `Compressed` is of another model.

    Warns
    -----
    UserWarning
        If k is above 0.7, draws are correlated, few are taken, or chains disagree; also in ``Trace.warnings``.

    Notes
    -----
    With :math:`R(\psi)` for what the expansion leaves of the log-likelihood, draw t replaces the present one with
    probability :math:`\min(1, \exp(R(\psi_t) - R(\psi)))` [1]_. The prior cancels, so that it may be any. In a race k
    is estimated from at most 400 draws and 4000 rows, with "exact" from all.

    References
    ----------
    .. [1] Liu, "Monte Carlo Strategies in Scientific Computing", 2001, section 5.4.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> model = mcmc.GLM(X, y, prior_sd=2.5)
    >>> about = model.reference()               # stands for any sampler's surrogate
    >>> draws = about.center + rng.standard_normal((4, 500, 2)) @ about.factor.T
    >>> trace = mcmc.correct(draws, about, model, rng=1)
    >>> bool(trace.accepted.mean() > 0.9), bool(trace.kernel["pareto_k"] < 0.5)
    (True, True)
    """
    if not isinstance(model, Model):
        raise TypeError(f"model is {_checks.shown(model)}; a GLM or other mcmc.Model is needed")
    if not isinstance(surrogate, (Compressed, Reference)):
        raise TypeError(f"surrogate is {_checks.shown(surrogate)}; what compress(model) or model.reference() returned "
                        f"is needed")
    _checks.choice(decision, "decision", ("race", "exact"))
    delta = _checks.probability(delta, "delta")
    hat = np.array(surrogate.psi_hat if isinstance(surrogate, Compressed) else surrogate.theta_hat)
    array = np.array(draws, dtype=np.float64)
    array = array[None] if array.ndim == 2 else array
    n = model.n_seen
    if len(hat) != n:
        raise ValueError(f"the surrogate expands in {len(hat)} parameters and the rows of the model see {n}; the one "
                         f"of this model is needed")
    if array.ndim != 3 or array.shape[1] < 1 or array.shape[2] < n or not np.isfinite(array).all():
        raise ValueError(f"draws has shape {np.shape(draws)}; finite draws of shape (n_chains, n_draws, k) or "
                         f"(n_draws, k) are needed, k at least the {n} parameters that the rows see")
    if isinstance(surrogate, Compressed):
        require_of(surrogate, model, with_prior=False)
    gen = _checks.generator(rng)
    began = time.perf_counter()
    carrier = Reference(hat, hat, np.eye(n), None, math.inf)
    seen = array[:, :, :n]
    if decision == "exact":
        left = residuals(model, carrier, seen.reshape(-1, n), all_rows=True)
        k = _pareto.smoothed(left)[1] if len(left) >= _pareto.LEAST else math.nan
        chains = [_exactly(gen, own, part, model.n_rows) for own, part in
                  zip(array, left.reshape(array.shape[:2]), strict=True)]
    else:
        flat = seen.reshape(-1, n)
        some = flat[gen.choice(len(flat), min(_DRAWS, len(flat)), replace=False)]
        k = _pareto.smoothed(residuals(model, carrier, some))[1] if len(flat) >= _pareto.LEAST else math.nan
        chains = [_raced(gen, own, n, model, carrier, delta) for own in array]
    about: dict[str, Any] = {"kernel": "correct", "decision": decision, "pareto_k": k}
    about |= {"delta": delta} if decision == "race" else {}
    names = (model.names or ()) if array.shape[2] == model.dim else ()
    trace = Trace(tuple(chains), about, (), (), time.perf_counter() - began, names=names)
    problems = _problems(trace, array, k)
    for words in problems:
        warnings.warn(words, stacklevel=2)
    return replace(trace, warnings=tuple(problems))


def _exactly(rng: np.random.Generator, own: Array, left: Array, n_rows: int) -> Steps:
    """An independence chain over draws whose residuals are known."""
    threshold = -rng.standard_exponential(len(own))
    place = np.zeros(len(own), dtype=np.intp)
    for t in range(1, len(own)):
        now = place[t - 1]
        place[t] = t if left[t] - left[now] > threshold[t] else now
    count = len(own)
    return Steps(own[place], np.full(count, n_rows, np.int64), np.ones(count, np.int32), place == np.arange(count),
                 np.ones(count, bool), np.zeros(count, bool))


def _raced(rng: np.random.Generator, own: Array, n: int, model: Model, carrier: Reference, delta: float) -> Steps:
    """The same, each decision a race on what the expansion leaves; the first draw is taken as it is."""
    source, theta = model.engine(carrier)
    test = AcceptTest(source, bound="normal", delta=delta, rng=rng)
    count = len(own)
    place = np.zeros(count, dtype=np.intp)
    rows, looks = np.zeros(count, np.int64), np.zeros(count, np.int32)
    full, undecided = np.zeros(count, bool), np.zeros(count, bool)
    for t in range(1, count):
        now = place[t - 1]
        theta[0], theta[1] = own[now, :n], own[t, :n]
        place[t] = t if test.decide(-float(rng.standard_exponential())) else now
        answer = test.result()
        rows[t], looks[t] = answer.n_evaluated, answer.n_looks
        undecided[t] = answer.n_read == answer.n_rows
        full[t] = answer.n_evaluated > answer.n_read
    return Steps(own[place], rows, looks, place == np.arange(count), full, undecided)


def _problems(trace: Trace, proposed: Array, k: float) -> list[str]:
    """What is wrong with the draws, in words."""
    out = []
    if k > _pareto.MOST:
        out.append(f"Pareto k of the weights of the draws is {k:.2g}, above {_pareto.MOST}: the surrogate misses a "
                   f"part of the posterior, and the chain gets stuck there. Expand at the mean of the draws, with "
                   f"compress(model, psi_hat), and sample again, or run mcmc.sample")
    before = replace(trace, chains=tuple(replace(steps, draws=own) for steps, own in
                                         zip(trace.chains, proposed, strict=True)))
    share = float(before.ess().min()) / (trace.n_chains * trace.n_draws)
    if trace.n_draws >= 100 and share < _INDEPENDENT:
        out.append(f"the draws of the surrogate have {share:.2g} effective draws a draw: thin them by about "
                   f"{math.ceil(1.0 / share)}, since the chain takes them for independent")
    return out + list(diagnosis(trace, None, False, "", _LEAST))
