"""Chains inside compiled JAX programs; skipped without JAX."""

import doctest
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fastrace import bounds, mcmc
from guarantee import assert_rate_at_most

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from fastrace.mcmc.doors.jax import CompiledKernel, JaxCategorical, JaxRacingGibbs, JaxRacingMetropolis  # noqa: E402
from fastrace.mcmc.doors.jax import _races as _jax  # noqa: E402

N = 3000
BROKEN = (ValueError, jax.errors.JaxRuntimeError)  # the first where XLA runs before the call returns
EXACT = 1e12  # a scan_advantage with which every race turns to a full pass at its first look


def x64(on=True):
    return jax.enable_x64(on) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(on)


@pytest.fixture(scope="module", autouse=True)
def single_precision():
    """JAX's default, which PyTensor changes for the whole process when it compiles by JAX."""
    with x64(False):
        yield


def regression():
    """Two parameters, logistic; a prior that matters a little."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 2))
    return x, (rng.random(N) < 1.0 / (1.0 + np.exp(-x @ [0.7, -0.4]))).astype(float)


def terms(theta, rows):
    eta = rows["x"] @ theta
    return rows["y"] * eta - jnp.logaddexp(0.0, eta)


def log_prior(theta):
    return -0.5 * (theta**2).sum()


def logistic(**options):
    x, y = regression()
    return JaxRacingMetropolis(terms, {"x": x, "y": y}, jnp.zeros(2), log_prior, **options)


def posterior():
    """Mean and standard deviation by quadrature."""
    x, y = regression()
    model = mcmc.GLM(x, y, prior_sd=1.0).reference()
    z = np.linspace(-6.0, 6.0, 81)
    grid = model.center + np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2) @ model.factor.T
    eta = grid @ x.T
    log_p = (eta * y - np.logaddexp(0.0, eta)).sum(axis=1) - 0.5 * np.square(grid).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    return mean, np.sqrt(p @ np.square(grid - mean))


def chain(kernel, n):
    """A compiled run: keys of shape (n,), from a state."""

    def step(state, key):
        state, info = kernel.step(key, state)
        return state, (state.position, info)

    return jax.jit(lambda key, state: jax.lax.scan(step, state, jax.random.split(key, n)))


def exactly(state):
    """The state of a chain that has lost so many races that its next step is an exact one."""
    return state._replace(losses=jnp.int32(5))


def assert_moments(draws, mean, sd, delta=0.0):
    """Draws of shape (chains, n, dim)."""
    for j in range(draws.shape[2]):
        part = np.asarray(draws[:, :, j], dtype=float)
        ess = mcmc.effective_sample_size(part)
        z = stats.norm.isf(1e-6 / 4)
        assert abs(part.mean() - mean[j]) < z * part.std() / np.sqrt(ess) + delta * sd[j]
        assert abs(part.std() / sd[j] - 1.0) < z / np.sqrt(ess) + delta


@pytest.fixture(scope="module")
def kernel():
    return logistic()


@pytest.fixture(scope="module")
def state(kernel):
    return kernel.init(kernel.reference.center + 0.02)


# A likelihood in JAX.


def test_chains_have_the_posterior_s_moments(kernel, state):
    mean, sd = posterior()
    start = jax.vmap(kernel.init)(jnp.asarray(kernel.reference.center + 0.02 * np.arange(8).reshape(4, 2)))
    run = jax.jit(jax.vmap(chain(kernel, 1500)))
    _, (draws, info) = run(jax.random.split(jax.random.key(1), 4), start)
    assert draws.dtype == jnp.float32
    assert_moments(draws, mean, sd, 0.05)
    assert 0.5 < info.accepted.mean() < 1.0 and info.rows.mean() < 0.3 * N


def test_decisions_are_the_exact_ones_but_for_delta(kernel):
    """The same key makes the same proposal and the same threshold, however it is decided."""
    far = kernel.init(kernel.reference.center + 0.3)
    one = logistic(delta=0.1, proposal="random-walk", size=8.0, delayed=False, scan_advantage=1.0)
    keys = jax.random.split(jax.random.key(2), 3000)
    step = jax.jit(jax.vmap(one.step, (0, None)))
    raced, info = step(keys, far)
    assert not info.full_pass.any() and 0 < info.rows.mean() < N
    exact, all_info = step(keys, exactly(far))
    assert all_info.full_pass.all() and (all_info.rows == N).all() and not all_info.undecided.any()
    assert ((exact.position != far.position).any(axis=1) == all_info.accepted).all()
    assert 0.05 < all_info.accepted.mean() < 0.95
    assert_rate_at_most(int((info.accepted != all_info.accepted).sum()), 3000, 0.1)


def test_exact_decisions_follow_the_log_posterior(kernel):
    """A proposal that does not move the rows' sum much: accepted with the Metropolis-Hastings probability."""
    x, y = regression()
    here, there = np.array([0.7, -0.4]), np.array([0.75, -0.38])

    def log_posterior(theta):
        eta = x @ theta
        return (y * eta - np.logaddexp(0.0, eta)).sum() - 0.5 * (theta**2).sum()

    for ratio in (0.0, -0.4):
        one = logistic(delayed=False, control_variate=None,
                       proposal=lambda key, at, ratio=ratio: (jnp.asarray(there, at.dtype), ratio))
        step = jax.jit(jax.vmap(one.step, (0, None)))
        _, info = step(jax.random.split(jax.random.key(3), 4000), exactly(one.init(jnp.asarray(here))))
        p = min(1.0, np.exp(log_posterior(there) - log_posterior(here) + ratio))
        assert 0.05 < p < 0.95
        assert stats.binomtest(int(info.accepted.sum()), 4000, p).pvalue > 1e-6


@pytest.mark.parametrize("proposal", ["random-walk", "crank-nicolson", "langevin", "user"])
def test_far_starts_are_left(proposal):
    """Sixty standard deviations out, where delayed acceptance would trust the expansion first."""
    own = logistic().reference
    walk = 1.5 * jnp.asarray(own.factor, jnp.float32)
    propose = {"user": lambda key, at: (at + walk @ jax.random.normal(key, (2,)), 0.0)}.get(proposal, proposal)
    one = logistic(proposal=propose, walk_share=0.5)
    assert one.reference is not None
    _, (draws, _) = jax.jit(chain(one, 1500))(jax.random.key(1), one.init(jnp.array([4.0, 4.0])))
    apart = np.linalg.norm(np.linalg.solve(own.factor, (np.asarray(draws, float) - own.center).T), axis=0)
    assert np.linalg.norm(np.linalg.solve(own.factor, [4.0, 4.0] - own.center)) > 60.0
    assert apart[-300:].max() < 6.0


def test_looks_follow_the_plain_rule():
    """The compiled race against the formulas of `fastrace.bounds`, look for look; each row once."""
    n, first, delta = 1000, 16, 0.05
    race = _jax.Race(n, n_arms=0, delta=delta, bound="auto", support=None, first_look=first, advantage=1.0)
    values = np.random.default_rng(0).normal(0.02, 0.3, n)
    quantile = bounds.normal_quantile(delta, n, first, 2.0, "first-exit")
    for seed in range(6):
        words = jax.random.key_data(jax.random.key(seed))
        state = race.call("fastrace_race_open", words, jnp.float32(0.5), jnp.int32(0), jnp.int32(1))
        threshold = np.asarray(state).view(np.float64)[6]       # behind counts and the order of rows
        rows = []
        while state[0] == _jax.PENDING:
            asked = np.asarray(_jax.call("fastrace_race_rows", (first,), jnp.int32, state))
            left = n - len(rows)
            rows += asked[:left].tolist()
            state = race.call("fastrace_race_look", state, jnp.asarray(values[asked], jnp.float32))
            seen, read = values[rows].astype(np.float32).astype(float), len(rows)
            if read in bounds.looks(n, first, 2.0):
                half = quantile * seen.std() * np.sqrt(bounds.variance_factor(read, n))
                expected = abs(seen.mean() - threshold / n) > half or read == n
                assert bool(state[0] != _jax.PENDING) == expected
        assert len(set(rows)) == len(rows) == int(state[2])
        assert bool(state[0] == _jax.ACCEPTED) == (seen.mean() > threshold / n)


def test_one_answer_for_one_key(kernel, state):
    keys = jax.random.split(jax.random.key(4), 6)
    compiled = jax.jit(kernel.step)
    batch, batch_info = jax.jit(jax.vmap(kernel.step, (0, None)))(keys, state)
    for i, key in enumerate(keys):
        one, info = compiled(key, state)
        again, _ = compiled(key, state)
        assert (one.position == again.position).all()
        assert info.rows == batch_info.rows[i] and info.accepted == batch_info.accepted[i]
        np.testing.assert_allclose(one.position, batch.position[i], rtol=1e-5)
    plain, info = kernel.step(keys[0], state)                   # not compiled as a whole
    np.testing.assert_allclose(plain.position, batch.position[0], rtol=1e-5)
    assert info.rows == batch_info.rows[0]
    old_style, _ = compiled(jax.random.key_data(keys[0]), state)
    assert (old_style.position == compiled(keys[0], state)[0].position).all()


def test_threads_give_the_same_chains(kernel, state):
    run = chain(kernel, 200)
    alone = [np.asarray(run(jax.random.key(i), state)[1][0]) for i in range(3)]
    found = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: np.asarray(run(jax.random.key(i), state)[1][0])}))
               for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(3):
        np.testing.assert_array_equal(found[i], alone[i])


@pytest.mark.parametrize("order", [None, 1])
def test_double_precision_and_other_orders(order):
    """A tree of parameters, in float64; without a control variate lost races turn to exact steps with a kept total."""
    x, y = regression()
    mean, sd = posterior()

    def tree_terms(at, rows):
        return terms(jnp.stack([at["a"], at["b"][0]]), rows)

    with x64():
        start = {"a": jnp.float64(mean[0]), "b": jnp.asarray(mean[1:])}
        one = JaxRacingMetropolis(
            tree_terms, {"x": x, "y": y}, start, lambda at: -0.5 * (at["a"] ** 2 + at["b"][0] ** 2),
            control_variate=order, proposal="auto" if order else "random-walk",
            covariance=None if order else np.diag(sd**2))
        _, (draws, info) = chain(one, 1500)(jax.random.key(5), one.init(start))
        assert draws["a"].dtype == jnp.float64 and draws["b"].shape == (1500, 1)
        assert_moments(np.stack([draws["a"], draws["b"][:, 0]], axis=-1)[None], mean, sd, 0.05)
        if order is None:
            assert info.full_pass.mean() > 0.5 and (~info.undecided & info.full_pass).mean() > 0.3


def test_rigorous_bounds_and_their_support():
    """Differences of logistic terms along one coordinate are bounded by its largest move."""
    x, _ = regression()
    far = np.array([0.9, -0.5])
    keys = jax.random.split(jax.random.key(6), 400)
    reach = 1.1 * np.abs(x @ np.array([0.1, 0.1])).max()
    for bound in ("auto", "serfling"):
        options = {"control_variate": None, "delta": 0.1, "support": (-reach, reach), "bound": bound,
                   "proposal": lambda key, at: (at + 0.1, 0.0)}
        one = logistic(scan_advantage=1.0, **options)
        assert one.bound == ("betting" if bound == "auto" else bound)
        step = jax.jit(jax.vmap(one.step, (0, None)))
        a, info = step(keys, one.init(far))
        b, _ = step(keys, exactly(one.init(far)))
        assert_rate_at_most(int((a.position != b.position).any(axis=1).sum()), 400, 0.1)
        assert 0 < info.rows.mean()


def test_impossible_and_broken_terms():
    y = np.linspace(0.5, 1.5, 500)

    def scale(theta, rows):
        """-inf where the scale is not positive, nan above 10."""
        value = -0.5 * rows**2 / theta**2 - jnp.log(jnp.abs(theta))
        return jnp.where(theta > 10.0, jnp.nan, jnp.where(theta > 0.0, value, -jnp.inf))

    def kernel_to(where, **options):
        return JaxRacingMetropolis(scale, y, jnp.float32(1.0), control_variate=None,
                                   proposal=lambda key, at: (jnp.float32(where), 0.0), **options)

    for begin in (lambda state: state, exactly):
        one = kernel_to(-1.0)
        state, info = one.step(jax.random.key(0), begin(one.init(jnp.float32(1.0))))
        assert state.position == 1.0 and not info.accepted
        for start, end, said in ((1.0, 11.0, "nan"), (-1.0, 1.0, "finite")):
            one = kernel_to(end)
            with pytest.raises(BROKEN, match=f"log-likelihood of row .*{said}"):
                jax.block_until_ready(jax.jit(one.step)(jax.random.key(0), begin(one.init(jnp.float32(start)))))
    ruled_out = JaxRacingMetropolis(scale, y, jnp.float32(1.0), lambda t: jnp.where(t > 1.5, -jnp.inf, 0.0),
                                    control_variate=None, proposal=lambda key, at: (jnp.float32(11.0), 0.0))
    _, info = ruled_out.step(jax.random.key(0), ruled_out.init(jnp.float32(1.0)))
    assert not info.accepted and info.rows == 0
    broken = JaxRacingMetropolis(scale, y, jnp.float32(1.0), lambda t: jnp.nan * t, control_variate=None,
                                 proposal=lambda key, at: (at, 0.0))
    with pytest.raises(BROKEN, match="log prior or the proposal's log ratio is nan"):
        jax.block_until_ready(broken.step(jax.random.key(0), broken.init(jnp.float32(1.0))))


def test_bad_arguments_say_what_is_needed(kernel, state):
    x, y = regression()
    data = {"x": x, "y": y}
    for match, arguments, options in [
        ("same first dimension", (terms, {"x": x, "y": y[:-1]}, jnp.zeros(2)), {}),
        ("needs rows|first dimension", (terms, {}, jnp.zeros(2)), {}),
        ("one log-likelihood a row", (lambda t, r: terms(t, r).sum(), data, jnp.zeros(2)), {}),
        ("one log-likelihood a row", (lambda t, r: terms(t, r) > 0, data, jnp.zeros(2)), {}),
        ("real numbers", (terms, data, jnp.zeros(2, int)), {}),
        ("log_prior returned", (terms, data, jnp.zeros(2), lambda t: t), {}),
        ("order 1 or 2", (terms, data, jnp.zeros(2)), {"control_variate": 3}),
        ("delta", (terms, data, jnp.zeros(2)), {"delta": 1.0}),
        ("needs support", (terms, data, jnp.zeros(2)), {"bound": "betting"}),
        ("size is", (terms, data, jnp.zeros(2)), {"size": 1.5}),
        ("walk_share is", (terms, data, jnp.zeros(2)), {"walk_share": 1.0}),
        ("first_look", (terms, data, jnp.zeros(2)), {"first_look": 1}),
        ("scan_advantage is", (terms, data, jnp.zeros(2)), {"scan_advantage": 0.5}),
        ("positive definite", (terms, data, jnp.zeros(2)), {"control_variate": None, "covariance": np.zeros((2, 2))}),
        ("reference has", (terms, data, jnp.zeros(2)), {"reference": jnp.zeros(3)}),
        ("must start where it is finite", (lambda t, r: terms(t, r) * jnp.nan, data, jnp.zeros(2)), {}),
    ]:
        with pytest.raises(ValueError, match=match):
            JaxRacingMetropolis(*arguments, **options)
    with pytest.raises(ValueError, match=r"position has shapes \[\(3,\)\]"):
        kernel.init(jnp.zeros(3))
    with pytest.raises(ValueError, match="the key is"):
        jax.jit(kernel.step)(jnp.zeros(2), state)
    with pytest.raises(ValueError, match="one key is needed"):
        kernel.step(jax.random.split(jax.random.key(0), 2), state)
    with pytest.raises(ValueError, match="the proposal"):
        logistic(control_variate=None, proposal=lambda key, at: jnp.zeros(3)).step(jax.random.key(0), state)


# Compiled kernels.


@pytest.mark.parametrize("kind", [mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis, mcmc.Metropolis])
def test_compiled_kernels(kind):
    x, y = regression()
    mean, sd = posterior()
    one = CompiledKernel(kind(mcmc.GLM(x, y, prior_sd=1.0)), 2)
    keys = jax.random.split(jax.random.key(7), 4)
    with x64():
        start = jax.vmap(one.init)(jnp.asarray(mean + 0.01 * np.arange(8).reshape(4, 2)))
        run = chain(one, 1200)
        _, (draws, info) = jax.jit(jax.vmap(run))(keys, start)
        assert_moments(draws, mean, sd, 0.05 if kind is mcmc.RacingMetropolis else 0.0)
        _, (alone, _) = run(keys[2], jax.tree_util.tree_map(lambda part: part[2], start))
        np.testing.assert_array_equal(alone, draws[2])
        assert 0.3 < info.accepted.mean() <= 1.0
        state = jax.tree_util.tree_map(lambda part: part[0], start)
        plain, compiled = one.step(keys[0], state)[0], jax.jit(one.step)(keys[0], state)[0]
        np.testing.assert_array_equal(plain.position, compiled.position)
        if kind is mcmc.Metropolis:
            assert set(np.unique(info.rows).tolist()) <= {0, N, 2 * N} and info.full_pass.any()
    single = one.init(np.float32(mean))
    assert one.step(keys[0], single)[0].position.dtype == jnp.float32


def test_compiled_kernels_refuse():
    x, y = regression()
    model = mcmc.GLM(x, y, prior_sd=1.0)
    one = CompiledKernel(mcmc.RacingMetropolis(model))
    for match, position in (("shape", jnp.zeros(3)), ("dtype", jnp.zeros(2, jnp.bfloat16))):
        with pytest.raises(ValueError, match=f"position has {match}"):
            one.init(position)
    with pytest.raises(ValueError, match="n_steps"):
        CompiledKernel(mcmc.Metropolis(model), 0)
    with pytest.raises(TypeError, match="kernel is"):
        CompiledKernel(model)
    with pytest.raises(ValueError, match="FireflyMetropolis"):
        CompiledKernel(mcmc.FireflyMetropolis(model))
    with pytest.raises(ValueError, match="NumPy Generator"):
        CompiledKernel(mcmc.RacingMetropolis(model, proposal=lambda rng, t: (t, 0.0)))
    with pytest.raises(BROKEN, match="parameter 1 of a position is nan"):
        jax.block_until_ready(one.step(jax.random.key(0), one.init(jnp.array([0.0, jnp.nan]))))
    raising = CompiledKernel(mcmc.RacingMetropolis(mcmc.GLM(x, y, log_prior=lambda t: 1 / 0)))
    with pytest.raises(BROKEN, match="ZeroDivisionError"):
        jax.block_until_ready(raising.step(jax.random.key(0), one.init(jnp.zeros(2))))
    step, state = jax.jit(one.step), one.init(jnp.zeros(2))
    assert jax.block_until_ready(step(jax.random.key(0), state))[1].rows >= 0     # and still works


# Categorical variables.


def mixture(n=2000):
    """Which of four means: log-probabilities known."""
    y = np.random.default_rng(5).normal(0.06, 1.0, n).astype(np.float32)
    means = np.array([0.0, 0.05, 0.1, 5.0], np.float32)
    prior = np.log([0.4, 0.3, 0.3, 1e-30])
    log_p = prior - 0.5 * np.square(y[:, None].astype(float) - means).sum(axis=0)
    p = np.exp(log_p - log_p.max())
    variable = JaxCategorical(4, lambda sites, rows: -0.5 * (rows - jnp.asarray(means)[sites["z"]]) ** 2, y,
                              lambda sites: jnp.asarray(prior, jnp.float32)[sites["z"]])
    return variable, p / p.sum()


def test_categorical_draws_are_the_exact_ones_but_for_delta():
    variable, p = mixture()
    keys = jax.random.split(jax.random.key(8), 3000)
    drawn = {}
    for name, delta, advantage in (("race", 0.1, 1.0), ("exact", 1e-12, EXACT)):
        gibbs = JaxRacingGibbs({"z": variable}, delta, scan_advantage=advantage)
        sites, info = jax.jit(jax.vmap(lambda key, g=gibbs: g.draw(key, {"z": jnp.int32(0)})))(keys)
        drawn[name] = np.asarray(sites["z"])
        assert sites["z"].dtype == jnp.int32
        assert info["z"].full_pass.mean() > 0.9 if name == "exact" else not info["z"].full_pass.any()
    counts = np.bincount(drawn["exact"], minlength=4)
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], 3000 * p[:3] / p[:3].sum()).pvalue > 1e-6
    assert_rate_at_most(int((drawn["race"] != drawn["exact"]).sum()), 3000, 0.1)


def test_several_variables_of_several_kinds():
    """An array of binary variables and one of three states that depends on them, with rows of their own."""
    y = jnp.asarray(np.random.default_rng(6).normal([3.0, 0.0], 1.0, (400, 2)), jnp.float32)
    flags = JaxCategorical(2, lambda sites, rows: -0.5 * ((rows - 3.0 * sites["on"]) ** 2).sum(axis=1), y)
    count = JaxCategorical(3, lambda sites, rows: -0.5 * (rows - sites["k"]) ** 2, jnp.full(150, 1.9),
                           lambda sites: jnp.where(sites["k"] > 2 * sites["on"].sum(), -jnp.inf, 0.0))
    gibbs = JaxRacingGibbs({"on": flags, "k": count}, 1e-6)
    sites, info = jax.jit(gibbs.draw)(jax.random.key(0), {"on": jnp.array([0, 1], jnp.int8), "k": jnp.int32(0)})
    assert sites["on"].tolist() == [1, 0] and sites["on"].dtype == jnp.int8 and sites["k"] == 2
    assert info["on"].accepted and info["on"].rows > 0 and info["k"].looks >= 0


def test_categorical_draws_refuse():
    variable, _ = mixture(100)
    with pytest.raises(ValueError, match="at least one"):
        JaxRacingGibbs({})
    with pytest.raises(ValueError, match="betting"):
        JaxRacingGibbs({"z": variable}, bound="betting", support=(0, 1))
    with pytest.raises(ValueError, match="n_states"):
        JaxCategorical(1, variable.terms, np.zeros(3))
    with pytest.raises(TypeError, match="terms is"):
        JaxCategorical(2, None, np.zeros(3))
    gibbs = JaxRacingGibbs({"z": variable})
    with pytest.raises(ValueError, match="start from"):
        gibbs.draw(jax.random.key(0), {})
    with pytest.raises(ValueError, match="whole numbers"):
        gibbs.draw(jax.random.key(0), {"z": jnp.zeros(())})
    with pytest.raises(ValueError, match="terms of 'z' returned"):
        summed = JaxCategorical(2, lambda s, r: r.sum(), np.zeros(9))
        JaxRacingGibbs({"z": summed}).draw(jax.random.key(0), {"z": jnp.int32(0)})
    for terms_of, prior, match in (
        (lambda s, r: jnp.where(s["z"] == 1, jnp.nan, r), None, "log-likelihood of row .* nan"),
        (lambda s, r: jnp.full_like(r, -jnp.inf), None, "every state"),
        (lambda s, r: r, lambda s: -jnp.inf, "ruled out by its log prior"),
        (lambda s, r: r, lambda s: jnp.nan, "log prior is nan"),
    ):
        broken = JaxRacingGibbs({"z": JaxCategorical(2, terms_of, np.zeros(500, np.float32), prior)})
        with pytest.raises(BROKEN, match=match):
            jax.block_until_ready(broken.draw(jax.random.key(0), {"z": jnp.int32(0)}))


@pytest.mark.parametrize("bound", ["auto", "normal"])
def test_numbers_outside_the_support_are_refused(bound):
    """0.1 in even rows and 0.9 in odd ones, neither of them exact in float32."""
    values = np.tile([0.1, 0.9], 1000)
    odd, even = r"row \d*[13579] gives .* 0\.89\d*,", r"row \d*[02468] gives .* 0\.1\d*,"

    def accept(support):
        one = JaxRacingMetropolis(lambda at, rows: rows * at, values, jnp.float32(0.0), control_variate=None,
                                  bound=bound, proposal=lambda key, at: (jnp.float32(1.0), -1000.0), support=support)
        return jax.jit(one.step)(jax.random.key(0), one.init(jnp.float32(0.0)))[1]

    def draw(support):
        one = JaxRacingGibbs({"z": JaxCategorical(2, lambda sites, rows: rows, values)}, support=support,
                             bound="serfling" if bound == "auto" else bound)
        return one.draw(jax.random.key(0), {"z": jnp.int32(0)})[1]["z"]

    for race in (accept, draw):
        assert race((0.1, 0.9)).rows > 0
        for support, said in (((-0.5, 0.7), odd), ((0.2, 1.0), even)):
            with pytest.raises(BROKEN, match=rf"{said} .* outside its support \({support[0]:g}, {support[1]:g}\)"):
                jax.block_until_ready(race(support))


@pytest.mark.parametrize("advantage", [1.0, EXACT])
def test_a_full_pass_weighs_dropped_states_too(advantage):
    """State 0 is far behind, and the only one that is possible, which one row of many tells.

    Either all that were left turn out to be impossible, or they are so alike that a full pass is cheaper.
    """
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=5000), "bad": np.arange(5000) == 77}

    def weights(sites, rows):
        return jnp.where(sites["z"] == 0, 0.01 * rows["x"] - 0.1, jnp.where(rows["bad"], -jnp.inf, 0.0))

    gibbs = JaxRacingGibbs({"z": JaxCategorical(3, weights, rows)}, scan_advantage=advantage)
    sites, info = jax.jit(jax.vmap(lambda key: gibbs.draw(key, {"z": jnp.int32(1)})))(
        jax.random.split(jax.random.key(0), 20))
    assert (sites["z"] == 0).all() and info["z"].full_pass.mean() > 0.8  # else row 77 was in the first look
    if advantage == EXACT:
        assert (info["z"].rows == 64 + 5000).mean() > 0.8
    else:
        assert (info["z"].rows > 64 + 5000).mean() > 0.8


def test_counts_of_rows_saturate(monkeypatch):
    most = 2**31 - 1
    words = jnp.asarray([_jax.LOST, 3, 2**30, 0], jnp.uint32)
    assert _jax.info_of(words, jnp.bool_(True), jnp.bool_(True), most).rows == most
    assert _jax.info_of(words, jnp.bool_(True), jnp.bool_(True), 10).rows == 2**30 + 10
    gibbs = JaxRacingGibbs({"z": mixture(100)[0]})
    no = jnp.bool_(False)
    one = _jax.RaceInfo(jnp.int32(2**30), jnp.int32(2), no, no, no)
    monkeypatch.setattr(gibbs, "_drawn", lambda *_: (jnp.int32(0), one))
    for n, expected in ((1, 2**30), (2, most), (3, most), (5, most)):
        draw = jax.jit(gibbs.draw)
        _, info = draw(jax.random.key(0), {"z": jnp.zeros(n, jnp.int32)})
        assert info["z"].rows == expected and info["z"].looks == 2 * n
        _, many = jax.vmap(draw, (0, None))(jax.random.split(jax.random.key(0), 2), {"z": jnp.zeros(n, jnp.int32)})
        assert (many["z"].rows == expected).all()


# Frameworks.


def test_blackjax_runs_both_kinds():
    blackjax = pytest.importorskip("blackjax")
    from fastrace.mcmc.doors.blackjax import as_algorithm, racing_metropolis

    x, y = regression()
    mean, sd = posterior()
    ours = as_algorithm(CompiledKernel(mcmc.PoissonMinibatchMetropolis(mcmc.GLM(x, y, prior_sd=1.0))))
    for algorithm in (racing_metropolis(terms, {"x": x, "y": y}, jnp.zeros(2), log_prior), ours):
        _, (states, info) = blackjax.util.run_inference_algorithm(
            rng_key=jax.random.key(9), inference_algorithm=algorithm, num_steps=1500,
            initial_position=jnp.asarray(mean))
        assert_moments(states.position[None], mean, sd, 0.05)
        assert info.rows.shape == (1500,)


def test_numpyro_blocks():
    """A mean and which of two groups it belongs to: the joint posterior is known."""
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS, Gibbs, HMCGibbs

    from fastrace.mcmc.doors.numpyro import RacingBlock, gibbs_fn

    y = np.random.default_rng(10).normal(0.55, 1.0, 400).astype(np.float32)

    def model():
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu + 0.1 * z, 1.0), obs=y)

    variable = JaxCategorical(2, lambda sites, rows: -0.5 * (rows - sites["mu"] - 0.1 * sites["z"]) ** 2, y)
    # Given z, mu is normal; z has the odds of the two evidences.
    precision = 1.0 + len(y)
    center = np.array([y.sum(), (y - 0.1).sum()]) / precision
    log_evidence = 0.5 * precision * center**2 - 0.5 * np.array([(y**2).sum(), ((y - 0.1) ** 2).sum()])
    odds = np.exp(log_evidence[1] - log_evidence[0])
    p = odds / (1.0 + odds)
    for kernel in (
        HMCGibbs(NUTS(model), gibbs_fn({"z": variable}, 0.02), ["z"]),
        Gibbs([(RacingBlock({"z": variable}, 0.02), ["z"]), (NUTS(model), None)]),
    ):
        run = MCMC(kernel, num_warmup=200, num_samples=1500, progress_bar=False)
        extra = () if isinstance(kernel, HMCGibbs) else ("block_states.0.info",)
        run.run(jax.random.key(11), extra_fields=extra)
        z = np.asarray(run.get_samples()["z"], dtype=float)
        mu = np.asarray(run.get_samples()["mu"], dtype=float)
        error = np.sqrt(p * (1 - p) / mcmc.effective_sample_size(z))
        assert abs(z.mean() - p) < stats.norm.isf(1e-6) * error + 0.02
        assert abs(mu.mean() - ((1 - p) * center[0] + p * center[1])) < 0.03
        if extra:
            info = run.get_extra_fields()["block_states.0.info"]["z"]
            assert info.rows.shape == (1500,) and (np.asarray(info.rows) > 0).all()
    with pytest.raises(ValueError, match="the block has the sites"):
        MCMC(HMCGibbs(NUTS(model), gibbs_fn({"k": variable}), ["z"]), num_warmup=1, num_samples=1,
             progress_bar=False).run(jax.random.key(0))


def test_example_in_the_guide():
    pytest.importorskip("blackjax")
    text = (Path(__file__).resolve().parents[2] / "docs" / "chains.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```pycon\n(.*?)^```", text, re.M | re.S)
    said = []
    test = doctest.DocTestParser().get_doctest(block, {}, "guide", "chains.md", 0)
    doctest.DocTestRunner().run(test, out=said.append)
    assert test.examples and not said, "".join(said)
