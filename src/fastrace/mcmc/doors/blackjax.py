"""Raced kernels as algorithms of BlackJAX; importing this module needs BlackJAX."""

from __future__ import annotations

from typing import Any

try:
    from blackjax.base import SamplingAlgorithm
except ImportError as error:
    raise ImportError('fastrace.mcmc.doors.blackjax needs BlackJAX: python -m pip install jax blackjax') from error

from fastrace.mcmc.doors.jax._metropolis import JaxRacingMetropolis
from fastrace.mcmc.doors.jax._races import LogPrior, Terms

__all__ = ["as_algorithm", "racing_metropolis"]


def racing_metropolis(
    terms: Terms, data: Any, position: Any, log_prior: LogPrior | None = None, **options: Any
) -> SamplingAlgorithm:
    """Metropolis-Hastings over a log-likelihood written in JAX, which reads few rows a step, for BlackJAX.

    Parameters
    ----------
    terms, data, position, log_prior, **options
        As in `fastrace.mcmc.doors.jax.JaxRacingMetropolis`. The normal rule judges by the rows that it has read: if
        rare rows may have large terms, give a rigorous `bound` and its `support`.

    Returns
    -------
    blackjax.base.SamplingAlgorithm
        ``init(position, rng_key=None)`` and ``step(rng_key, state)``, which returns a
        `fastrace.mcmc.doors.jax.RaceState` and a `fastrace.mcmc.doors.jax.RaceInfo`.

    Examples
    --------
    >>> import blackjax
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from fastrace.mcmc.doors.blackjax import racing_metropolis
    >>> x = jax.random.normal(jax.random.key(0), (50_000, 2))
    >>> y = jax.random.bernoulli(jax.random.key(1), jax.nn.sigmoid(x @ jnp.array([1.0, -0.5])))
    >>> def terms(theta, rows):
    ...     return jax.nn.log_sigmoid(jnp.where(rows["y"], 1, -1) * (rows["x"] @ theta))
    >>> algorithm = racing_metropolis(terms, {"x": x, "y": y}, jnp.zeros(2), lambda theta: -0.005 * (theta**2).sum())
    >>> _, (states, info) = blackjax.util.run_inference_algorithm(
    ...     rng_key=jax.random.key(2), inference_algorithm=algorithm, num_steps=500,
    ...     initial_position=jnp.array([1.0, -0.5]))
    >>> states.position.mean(axis=0).round(1).tolist() == jnp.array([1.0, -0.5]).tolist()
    True
    """
    return as_algorithm(JaxRacingMetropolis(terms, data, position, log_prior, **options))


def as_algorithm(kernel: Any) -> SamplingAlgorithm:
    """A kernel of `fastrace.mcmc.doors.jax`, such as `CompiledKernel`, as an algorithm of BlackJAX.

    Parameters
    ----------
    kernel : JaxRacingMetropolis or CompiledKernel
        Of `fastrace.mcmc.doors.jax`.

    Returns
    -------
    blackjax.base.SamplingAlgorithm
    """
    return SamplingAlgorithm(kernel.init, kernel.step)
