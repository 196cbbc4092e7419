"""Raced Gibbs blocks for NumPyro; importing this module needs NumPyro."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

try:
    import jax
    from numpyro.infer import CustomGibbs
except ImportError as error:
    needed = 'fastrace.mcmc.doors.numpyro needs NumPyro, 0.22 or newer, and JAX: python -m pip install "numpyro>=0.22"'
    raise ImportError(needed) from error

from fastrace.mcmc.doors.jax._gibbs import JaxCategorical, JaxRacingGibbs
from fastrace.mcmc.doors.jax._races import RaceInfo

__all__ = ["JaxCategorical", "RacingBlock", "gibbs_fn"]


def gibbs_fn(variables: Mapping[str, JaxCategorical], delta: float = 0.05, **options: Any) -> Any:
    """Raced draws as the function that `numpyro.infer.HMCGibbs` and `CustomGibbs` ask for.

    Parameters
    ----------
    variables : dict of JaxCategorical
        By site.
    delta : float, default 0.05
        Probability that one draw differs from the exact one, in (0, 1).
    **options
        For `fastrace.mcmc.doors.jax.JaxRacingGibbs`, whose Notes say what each rule promises. Give
        ``support=(low, high)`` if few rows may carry a state: without one, the normal rule can miss rare large factors.

    Returns
    -------
    callable
        ``gibbs_fn(rng_key, gibbs_sites, hmc_sites)``.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from numpyro.infer import MCMC, NUTS, HMCGibbs
    >>> from fastrace.mcmc.doors.numpyro import JaxCategorical, gibbs_fn
    >>> y = 2.0 + jax.random.normal(jax.random.key(0), (2_000,))
    >>> def model():
    ...     z = numpyro.sample("z", dist.Categorical(jnp.full(3, 1 / 3)))
    ...     numpyro.sample("mu", dist.Normal(z.astype(float), 0.1))
    ...     numpyro.sample("y", dist.Normal(z.astype(float), 1.0), obs=y)
    >>> z = JaxCategorical(3, lambda sites, rows: -0.5 * (rows - sites["z"]) ** 2, y,
    ...                    lambda sites: dist.Normal(sites["z"].astype(float), 0.1).log_prob(sites["mu"]))
    >>> kernel = HMCGibbs(NUTS(model), gibbs_fn({"z": z}), ["z"])
    >>> mcmc = MCMC(kernel, num_warmup=50, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(1))
    >>> bool((mcmc.get_samples()["z"] == 2).all())
    True
    """
    kernel = JaxRacingGibbs(variables, delta, **options)

    def draw(rng_key: Any, gibbs_sites: dict[str, Any], hmc_sites: dict[str, Any]) -> dict[str, jax.Array]:
        _check(kernel, gibbs_sites)
        return kernel.draw(rng_key, {**hmc_sites, **gibbs_sites})[0]

    return draw


class RacingBlockState(NamedTuple):
    """State of a `RacingBlock`.

    Attributes
    ----------
    z : dict of Array
        Values of the block's sites.
    rng_key : key
    info : dict of RaceInfo
        Of each site: rows read, looks, whether it changed, made a full pass, was undecided.
    """

    z: dict[str, jax.Array]
    rng_key: jax.Array
    info: dict[str, RaceInfo]


class RacingBlock(CustomGibbs):  # type: ignore[misc]
    """Raced draws of categorical sites as a block of `numpyro.infer.Gibbs`.

    Parameters
    ----------
    variables, delta, **options
        As in `gibbs_fn`; the variables are all sites of the block.

    Notes
    -----
    What the races took is in the block's state: collect it by ``extra_fields=("block_states.0.info",)``.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from numpyro.infer import MCMC, NUTS, Gibbs
    >>> from fastrace.mcmc.doors.numpyro import JaxCategorical, RacingBlock
    >>> y = 2.0 + jax.random.normal(jax.random.key(0), (2_000,))
    >>> def model():
    ...     z = numpyro.sample("z", dist.Categorical(jnp.full(3, 1 / 3)))
    ...     numpyro.sample("mu", dist.Normal(z.astype(float), 0.1))
    ...     numpyro.sample("y", dist.Normal(z.astype(float), 1.0), obs=y)
    >>> z = JaxCategorical(3, lambda sites, rows: -0.5 * (rows - sites["z"]) ** 2, y,
    ...                    lambda sites: dist.Normal(sites["z"].astype(float), 0.1).log_prob(sites["mu"]))
    >>> kernel = Gibbs([(RacingBlock({"z": z}), ["z"]), (NUTS(model), None)])
    >>> mcmc = MCMC(kernel, num_warmup=50, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(1), extra_fields=("block_states.0.info",))
    >>> info = mcmc.get_extra_fields()["block_states.0.info"]["z"]
    >>> bool((mcmc.get_samples()["z"] == 2).all()), bool(info.rows.mean() < 2000)
    (True, True)
    """

    def __init__(self, variables: Mapping[str, JaxCategorical], delta: float = 0.05, **options: Any) -> None:
        self.kernel = JaxRacingGibbs(variables, delta, **options)
        super().__init__(lambda rng_key, gibbs_sites, hmc_sites: self._draw(rng_key, gibbs_sites, hmc_sites)[0])

    def _draw(self, rng_key: Any, own: dict[str, Any], others: dict[str, Any]) -> Any:
        _check(self.kernel, own)
        return self.kernel.draw(rng_key, {**others, **own})

    def init(self, rng_key: Any, num_warmup: int, init_params: Any, model_args: Any, model_kwargs: Any) -> Any:
        """The state at the start; NumPyro asks."""
        state = super().init(rng_key, num_warmup, init_params, model_args, model_kwargs)
        _check(self.kernel, state.z)
        nothing = RaceInfo(*(jax.numpy.zeros((), kind) for kind in _KINDS))
        return RacingBlockState(state.z, state.rng_key, dict.fromkeys(self.kernel.variables, nothing))

    def sample(self, state: Any, model_args: Any, model_kwargs: Any) -> Any:
        """One sweep; NumPyro asks."""
        found: dict[str, Any] = {}

        def noted(rng_key: Any, gibbs_sites: dict[str, Any], hmc_sites: dict[str, Any]) -> Any:
            values, found["info"] = self._draw(rng_key, gibbs_sites, hmc_sites)
            return values

        after = CustomGibbs(noted).sample(state, model_args, model_kwargs)
        return after._replace(info=found["info"])


_KINDS = ("int32", "int32", "bool", "bool", "bool")


def _check(kernel: JaxRacingGibbs, sites: Mapping[str, Any]) -> None:
    if set(sites) != set(kernel.variables):
        raise ValueError(f"the block has the sites {sorted(sites)}; {sorted(kernel.variables)}, those with factors, "
                         f"are needed")
