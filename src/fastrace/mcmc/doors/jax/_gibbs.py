"""Draws of categorical variables given the rest of a chain, raced, inside compiled JAX programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace.mcmc.doors.jax._races import LOST, Race, RaceInfo, Rows, Terms, info_of, key_words, sum_of_counts

ADVANTAGE = 4.0  # a row of a race over a row of a full pass: it is gathered, and its K terms are compared

LogWeights = Callable[[Any], jax.Array]


class JaxCategorical:
    """One categorical variable, or an array of them, and the factors of its conditional distribution.

    Given everything else, the log-probability of a state is its log prior plus the sum of the terms over all rows.

    Parameters
    ----------
    n_states : int
        States 0, 1, ...; two for a binary variable.
    terms : callable
        ``terms(sites, rows)`` returns the log-factor of each of some rows, shape (k,): `sites` is the dictionary of all
        variables, this one in the state that is weighed, and `rows` is `data` with k entries in the first dimension of
        each array. -inf rules the state out, nan and +inf are errors.
    data : pytree of array_like
        Arrays with one entry a row in their first dimension. Variables may have different ones.
    log_prior : callable, optional
        ``log_prior(sites)``, as above: the log-factor that is always read. Uniform by default.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from fastrace.mcmc.doors.jax import JaxCategorical
    >>> y = jnp.linspace(-1.0, 1.0, 1000)
    >>> JaxCategorical(3, lambda sites, rows: -0.5 * (rows - 0.1 * sites["z"]) ** 2, y)
    JaxCategorical(3 states, 1000 rows)
    """

    def __init__(self, n_states: int, terms: Terms, data: Any, log_prior: LogWeights | None = None) -> None:
        self.n_states = _checks.integer(n_states, "n_states", 2, "there is nothing to draw otherwise")
        for name, function in (("terms", terms), ("log_prior", log_prior)):
            if not callable(function) and (name == "terms" or function is not None):
                raise TypeError(f"{name} is {_checks.shown(function)}; a function is needed")
        self.terms, self.log_prior = terms, log_prior
        self.rows = Rows(data)

    def __repr__(self) -> str:
        return f"JaxCategorical({counted(self.n_states, 'state')}, {counted(self.rows.n, 'row')})"


class JaxRacingGibbs:
    r"""Gibbs sampling of categorical variables that reads only as many factors as each draw needs.

    Parameters
    ----------
    variables : dict of JaxCategorical
        By site; drawn in turn, in this order. A site that is an array is drawn entry by entry.
    delta : float, default 0.05
        Probability that one draw differs from the exact one, in (0, 1).
    bound : str, default "auto"
        "normal" without `support`, a rule that is not rigorous (see Notes); else "serfling", "hoeffding-serfling" or
        "empirical-bernstein-serfling".
    support : tuple of float, optional
        Interval (low, high) that holds every term but -inf; one outside it ends the program with an error.
    first_look : int, default 64
        Rows of the first look.
    scan_advantage : float, optional
        Cost of a row of the race over one of a full pass; at 1 the race never turns to a full pass.

    Raises
    ------
    ValueError
        If an argument is out of range, or shapes and dtypes do not fit; while tracing, before anything runs.

    See Also
    --------
    fastrace.mcmc.doors.numpyro.RacingBlock : the same as a block of NumPyro's Gibbs.

    Notes
    -----
    A draw perturbs the states with Gumbel noise and races them [1]_; its law is within total variation `delta` of the
    exact one. A race that forecasts that it needs most rows turns to one pass over all of them: that draw is exact.
    Every state's terms are computed for every row read, also of states that are out already.

    What is promised depends on the rule. With a `support` that holds every term, the rigorous rules keep `delta`
    whatever the terms are. Without one, the normal rule assumes that the mean of `first_look` rows is nearly normal,
    and this race has no tail guard, unlike `fastrace.mcmc.RacingGibbs`. If few rows carry a state, such as large
    factors on one row in a thousand, a draw may end before one of them is read: in such a case 184 of 200 draws were
    wrong without a support and none with one. Rare large factors need a `support`.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, Algorithm 1.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from fastrace.mcmc.doors.jax import JaxCategorical, JaxRacingGibbs
    >>> y = 0.3 + jax.random.normal(jax.random.key(0), (100_000,))
    >>> means = jnp.array([0.0, 0.25, 0.5])
    >>> z = JaxCategorical(3, lambda sites, rows: -0.5 * (rows - means[sites["z"]]) ** 2, y)
    >>> sites, info = jax.jit(JaxRacingGibbs({"z": z}).draw)(jax.random.key(1), {"z": jnp.array(0)})
    >>> int(sites["z"]), bool(info["z"].rows < 100_000)
    (1, True)
    """

    def __init__(
        self,
        variables: Mapping[str, JaxCategorical],
        delta: float = 0.05,
        bound: str = "auto",
        *,
        support: _checks.Support | None = None,
        first_look: int = 64,
        scan_advantage: float | None = None,
    ) -> None:
        self.variables = dict(variables)
        if not self.variables or not all(isinstance(v, JaxCategorical) for v in self.variables.values()):
            raise ValueError(f"variables is {_checks.shown(variables)}; a dictionary of JaxCategorical by site, at "
                             f"least one, is "
                             f"needed")
        if bound == "betting":
            raise ValueError("bound is 'betting', which keeps a gambler for each pair of states; 'serfling' is "
                             "rigorous too")
        if bound == "auto" and support is not None:
            bound = "serfling"
        self._races = {
            name: Race(
                variable.rows.n, n_arms=variable.n_states, delta=delta, bound=bound, support=support,
                first_look=first_look, advantage=ADVANTAGE if scan_advantage is None else scan_advantage,
            )
            for name, variable in self.variables.items()
        }
        self.delta = delta
        self.bound = next(iter(self._races.values())).bound

    def __repr__(self) -> str:
        return f"JaxRacingGibbs({self.variables!r}, bound={self.bound!r}, delta={self.delta})"

    def draw(self, rng_key: Any, sites: Mapping[str, Any]) -> tuple[dict[str, jax.Array], dict[str, RaceInfo]]:
        """One sweep over the variables.

        Parameters
        ----------
        rng_key : key
        sites : dict of array_like
            Values of all sites: those to be drawn, whole numbers, and those that their terms depend on.

        Returns
        -------
        sites : dict of Array
            The new values of the variables, in their own dtypes.
        info : dict of RaceInfo
            Of each variable; for an array sums of rows and looks, and whether any entry changed, made a full pass or
            was undecided.
        """
        missing = sorted(set(self.variables) - set(sites))
        if missing:
            raise ValueError(f"sites has {sorted(sites)}; values of {missing} are needed too, to start from")
        key_words(rng_key)
        now = {name: jnp.asarray(value) for name, value in sites.items()}
        info: dict[str, RaceInfo] = {}
        for i, name in enumerate(self.variables):
            if not jnp.issubdtype(now[name].dtype, jnp.integer):
                raise ValueError(f"site {name!r} has dtype {now[name].dtype}; whole numbers, the states, are needed")
            now, info[name] = self._site(jax.random.fold_in(rng_key, i), name, now)
        return {name: now[name] for name in self.variables}, info

    def _site(self, key: Any, name: str, sites: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], RaceInfo]:
        value = sites[name]
        if value.ndim == 0:
            state, info = self._drawn(key_words(key), name, lambda s: {**sites, name: s.astype(value.dtype)})
            state = state.astype(value.dtype)
            return {**sites, name: state}, info._replace(accepted=state != value)

        def body(carry: Any, i: Any) -> tuple[Any, RaceInfo]:
            flat = carry

            def with_state(s: jax.Array) -> dict[str, jax.Array]:
                return {**sites, name: flat.at[i].set(s.astype(value.dtype)).reshape(value.shape)}

            state, info = self._drawn(key_words(jax.random.fold_in(key, i)), name, with_state)
            state = state.astype(value.dtype)
            return flat.at[i].set(state), info._replace(accepted=state != flat[i])

        flat, infos = lax.scan(body, value.ravel(), jnp.arange(value.size))
        rows, looks = (lax.reduce(part, jnp.int32(0), sum_of_counts, (0,)) for part in infos[:2])
        info = RaceInfo(rows, looks, *(part.any() for part in infos[2:]))
        return {**sites, name: flat.reshape(value.shape)}, info

    def _drawn(
        self, words: jax.Array, name: str, with_state: Callable[[jax.Array], dict[str, jax.Array]]
    ) -> tuple[jax.Array, RaceInfo]:
        """Draw one variable; `with_state` puts a state in its place."""
        variable, race = self.variables[name], self._races[name]
        states = jnp.arange(variable.n_states)

        def factors(rows: Any) -> jax.Array:
            return jax.vmap(lambda s: variable.terms(with_state(s), rows))(states)

        some = jax.eval_shape(lambda: variable.rows.piece(0, 1)[0])
        out = jax.eval_shape(factors, some)
        if getattr(out, "shape", None) != (variable.n_states, 1) or out.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"the terms of {name!r} returned {out} for {variable.n_states} states and 1 row; one "
                             f"float32 or float64 number a row is needed")
        prior = jnp.zeros(variable.n_states, out.dtype)
        if variable.log_prior is not None:
            log_prior = variable.log_prior
            prior = jnp.asarray(jax.vmap(lambda s: log_prior(with_state(s)))(states), out.dtype)
            if prior.shape != (variable.n_states,):
                raise ValueError(f"the log prior of {name!r} has shape {prior.shape[1:]}; one number is needed")
        state = race.call("fastrace_arms_open", words, prior)
        state = race.run(state, lambda rows: factors(variable.rows.some(rows)).T)
        lost = state[0] == LOST
        totals = variable.rows.totals(factors, variable.n_states, jnp.where(lost, 2, 0))
        state = race.call("fastrace_arms_close", state, totals)
        info = info_of(state, lost, lost, variable.rows.n)
        # The fourth word says who has won.
        undecided = (info.rows >= variable.rows.n) | lost
        return state[3].astype(jnp.int32), info._replace(undecided=undecided)
