"""A `fastrace.mcmc.Compressed` in place of the rows of a model of PyMC, NumPyro, JAX, BlackJAX or Stan.

Each function imports its library when it is called. The library's own sampler then runs without rows, and
`fastrace.mcmc.correct` makes its thinned draws exact. All leave the constant of the log-likelihood out.

What the rows see stands in ``compressed.names``. Of a PyMC model that is no `GLM` it is a map of the parameters, which
`pymc_model` writes in PyMC. In another language write the map by hand: ``through=`` of `from_pymc` names the variables
that it goes to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastrace._base import _checks
from fastrace.mcmc.compression import Compressed

__all__ = ["jax_log_likelihood", "numpyro_factor", "pymc_model", "pymc_potential", "stan_data"]


def jax_log_likelihood(compressed: Compressed) -> Callable[[Any], Any]:
    """The expansion as a function that JAX traces: for BlackJAX, whose log density is this plus the log prior.

    Parameters
    ----------
    compressed : Compressed
        From `fastrace.mcmc.compress`.

    Returns
    -------
    callable
        Takes what the rows see, shape (n_seen,) in the order of ``compressed.names``, and returns a scalar. A call
        costs O(n_seen^2), and no row.

    Raises
    ------
    ImportError
        Without JAX: ``python -m pip install jax``.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.compressed import jax_log_likelihood
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> compressed = mcmc.compress(mcmc.GLM(X, rng.integers(0, 2, 1000), prior_sd=1.0))
    >>> log_likelihood = jax_log_likelihood(compressed)  # doctest: +SKIP
    >>> algorithm = blackjax.nuts(lambda psi: log_likelihood(psi) - 0.5 * psi @ psi, 0.5, np.eye(2))  # doctest: +SKIP
    """
    try:
        import jax.numpy as jnp
    except ImportError as error:
        raise ImportError("jax_log_likelihood needs JAX: python -m pip install jax") from error
    hat, slope, curvature = (jnp.asarray(part) for part in _parts(compressed))

    def log_likelihood(psi: Any) -> Any:
        step = psi - hat
        return step @ slope - 0.5 * (step @ (curvature @ step))

    return log_likelihood


def numpyro_factor(compressed: Compressed, psi: Any, name: str = "rows") -> None:
    """Put the expansion into a NumPyro model in place of its observed sites.

    Parameters
    ----------
    compressed : Compressed
        From `fastrace.mcmc.compress`.
    psi : jax array of shape (n_seen,)
        What the rows see, made of the sites of the model, in the order of ``compressed.names``.
    name : str, default "rows"
        Of the factor.

    Raises
    ------
    ImportError
        Without NumPyro: ``python -m pip install numpyro``.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.compressed import numpyro_factor
    >>> compressed = mcmc.compress(mcmc.GLM(np.ones((50, 1)), np.arange(50) % 2, prior_sd=1.0))
    >>> def model():
    ...     b = numpyro.sample("b", numpyro.distributions.Normal(0.0, 1.0).expand([1]))
    ...     numpyro_factor(compressed, b)
    >>> sampler = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=500, num_samples=500)  # doctest: +SKIP
    """
    try:
        import numpyro
    except ImportError as error:
        raise ImportError("numpyro_factor needs NumPyro: python -m pip install numpyro") from error
    numpyro.factor(name, jax_log_likelihood(compressed)(psi))


def pymc_model(compressed: Compressed, model: Any, name: str = "rows") -> Any:
    """A PyMC model with the expansion in place of the rows of another one, whose priors and variables it has.

    Parameters
    ----------
    compressed : Compressed
        From ``fastrace.mcmc.compress(model)``.
    model : PyMCModel
        From `fastrace.mcmc.from_pymc`. It stays as it is.
    name : str, default "rows"
        Of the potential.

    Returns
    -------
    pymc.Model
        The free variables and potentials of the model, observed variables that are not its rows, and deterministic
        variables that depend on no row. A call of its density costs O(n_seen^2) besides the priors, and no row.

    Raises
    ------
    ImportError
        Without PyMC: ``python -m pip install pymc``.
    TypeError
        If `model` is no `PyMCModel`, or `compressed` no `Compressed`.
    ValueError
        If `compressed` is of another model; if the model was recognised as a `GLM`, whose coefficients and effects are
        not PyMC's variables: ``from_pymc(model, through=[...])`` names in what to expand it; or if PyMC cannot copy the
        model, as with initial values of the user's own.

    Notes
    -----
    Any sampler of PyMC takes it: ``pymc.sample(nuts_sampler="numpyro")`` or ``"blackjax"`` run in JAX, and
    ``pymc.sampling.jax.get_jaxified_logp(model)`` is its log density for other samplers there.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.compressed import pymc_model
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0.0, 5.0, 2000)
    >>> with pm.Model() as curve:
    ...     top, rate = pm.HalfNormal("top", 5.0), pm.HalfNormal("rate", 1.0)
    ...     mean = top * (1.0 - pm.math.exp(-rate * x))
    ...     y = pm.Normal("y", mean, 0.5, observed=3.0 * (1.0 - np.exp(-x)) + 0.5 * rng.normal(size=2000))
    >>> model = mcmc.from_pymc(curve, through=["top", "rate"])
    >>> compressed = mcmc.compress(model)
    >>> compressed.names
    ('top_log__', 'rate_log__')
    >>> without = pymc_model(compressed, model)
    >>> without.observed_RVs, [v.name for v in without.potentials]
    ([], ['rows'])
    >>> with without:  # doctest: +SKIP
    ...     idata = pm.sample().sel(draw=slice(None, None, 5))
    >>> trace = mcmc.correct(idata, compressed, model)  # doctest: +SKIP
    """
    _parts(compressed)
    try:
        from fastrace.mcmc.doors.pymc._without_rows import without_rows
        from fastrace.mcmc.doors.pymc.models import PyMCModel
    except ImportError as error:
        raise ImportError('pymc_model needs PyMC: python -m pip install "pymc>=5.26"') from error
    if not isinstance(model, PyMCModel):
        raise TypeError(f"model is {_checks.shown(model)}; what mcmc.from_pymc returned is needed")
    new, psi = without_rows(compressed, model)
    if name in new.named_vars:
        raise ValueError(f"the model has a variable {name!r} already: give the potential another name")
    with new:
        pymc_potential(compressed, psi, name)
    return new


def pymc_potential(compressed: Compressed, psi: Any, name: str = "rows") -> Any:
    """Put the expansion into a PyMC model, in place of its observed variables; call it in the ``with`` block.

    Parameters
    ----------
    compressed : Compressed
        From `fastrace.mcmc.compress`.
    psi : tensor variable of shape (n_seen,)
        What the rows see, made of the model's variables, in the order of ``compressed.names``.
    name : str, default "rows"
        Of the potential.

    Returns
    -------
    tensor variable
        The potential.

    Raises
    ------
    ImportError
        Without PyMC: ``python -m pip install pymc``.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.compressed import pymc_potential
    >>> compressed = mcmc.compress(mcmc.GLM(np.ones((50, 1)), np.arange(50) % 2, prior_sd=1.0))
    >>> with pymc.Model():  # doctest: +SKIP
    ...     b = pymc.Normal("b", 0.0, 1.0, shape=1)
    ...     pymc_potential(compressed, b)
    ...     idata = pymc.sample()
    """
    try:
        import pymc
    except ImportError as error:
        raise ImportError('pymc_potential needs PyMC: python -m pip install "pymc>=5.26"') from error
    hat, slope, curvature = _parts(compressed)
    step = psi - hat
    return pymc.Potential(name, (step * slope).sum() - 0.5 * (step * (curvature @ step)).sum())


def stan_data(compressed: Compressed) -> dict[str, Any]:
    """The expansion as data of a Stan program.

    Parameters
    ----------
    compressed : Compressed
        From `fastrace.mcmc.compress`.

    Returns
    -------
    dict
        ``n_seen``, ``psi_hat``, ``slope`` and ``curvature``, as lists.

    Notes
    -----
    In the program, with ``psi`` made of its parameters in the order of ``compressed.names``::

        data {
          int n_seen;
          vector[n_seen] psi_hat;
          vector[n_seen] slope;
          matrix[n_seen, n_seen] curvature;
        }
        model {
          // priors as in the program with rows, and in place of these:
          target += dot_product(slope, psi - psi_hat) - 0.5 * quad_form_sym(curvature, psi - psi_hat);
        }

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.compressed import stan_data
    >>> compressed = mcmc.compress(mcmc.GLM(np.ones((50, 1)), np.arange(50) % 2, prior_sd=1.0))
    >>> data = stan_data(compressed)
    >>> data["n_seen"], data["curvature"]
    (1, [[12.5]])
    """
    hat, slope, curvature = _parts(compressed)
    return {"n_seen": len(hat), "psi_hat": hat.tolist(), "slope": slope.tolist(), "curvature": curvature.tolist()}


def _parts(compressed: Compressed) -> tuple[Any, Any, Any]:
    """Where the expansion is made, its gradient there, and minus its Hessian."""
    if not isinstance(compressed, Compressed):
        raise TypeError(f"compressed is a {type(compressed).__name__}; what mcmc.compress(model) returned is needed")
    return compressed.psi_hat, compressed.slope, compressed.curvature.to_dense()
