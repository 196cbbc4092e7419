"""Chains inside compiled JAX programs, in effective samples per CPU second, beside NumPyro's samplers."""

import time

import numpy as np

from benchmarks.mcmc import logistic
from fastrace import mcmc

try:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from fastrace.mcmc.doors.jax import CompiledKernel, JaxCategorical, JaxRacingGibbs, JaxRacingMetropolis
except ImportError:
    jax = None


def needs_jax():
    if jax is None:
        raise NotImplementedError("JAX or NumPyro is not installed")


def terms(theta, rows):
    eta = rows["x"] @ theta
    return rows["y"] * eta - jnp.logaddexp(0.0, eta)


def seconds_of(run, *arguments):
    """CPU seconds of the second of two runs: the first compiles."""
    jax.block_until_ready(run(*arguments))
    started = time.process_time()
    out = jax.block_until_ready(run(*arguments))
    return time.process_time() - started, out


class Logistic:
    """Effective samples per CPU second of the slowest coordinate, N = 10^5, d = 10, float64. "race": the likelihood in
    JAX; "compiled race" and "compiled poisson": compiled kernels as one call of a scan; "HMCECS": NumPyro's, with a
    second-order proxy at the mode and a subsample of 200 rows."""

    params = ["race", "compiled race", "compiled poisson", "HMCECS"]
    param_names = ["kernel"]
    timeout = 600

    def setup(self, name):
        needs_jax()

    def track_ess_per_second(self, name):
        with jax.enable_x64(True):
            return self.figure(name)

    def figure(self, name):
        X, y = logistic(100_000, 10)
        model = mcmc.GLM(X, y, prior_sd=10.0)
        reference = model.reference()
        mode = jnp.asarray(reference.theta_hat)
        if name == "HMCECS":
            spent, draws = self.hmcecs(X, y, mode)
        else:
            n = 5_000 if name == "race" else 20_000
            if name == "race":
                data = {"x": X, "y": y}
                kernel = JaxRacingMetropolis(terms, data, mode, lambda b: -0.005 * (b * b).sum(), reference=mode)
            elif name == "compiled race":
                kernel = CompiledKernel(mcmc.RacingMetropolis(model, control_variate=reference))
            else:
                kernel = CompiledKernel(mcmc.PoissonMinibatchMetropolis(model, control_variate=reference))

            def step(state, key):
                state, _ = kernel.step(key, state)
                return state, state.position

            run = jax.jit(lambda key, state: jax.lax.scan(step, state, jax.random.split(key, n))[1])
            spent, draws = seconds_of(run, jax.random.key(1), kernel.init(mode))
        draws = np.asarray(draws)
        return min(mcmc.effective_sample_size(draws[:, j]) for j in range(draws.shape[1])) / spent

    def hmcecs(self, X, y, mode):
        x, outcome = jnp.asarray(X), jnp.asarray(y)

        def model():
            b = numpyro.sample("b", dist.Normal(jnp.zeros(10), 10.0).to_event(1))
            with numpyro.plate("N", len(y), subsample_size=200):
                rows = numpyro.subsample(x, event_dim=1)
                numpyro.sample("obs", dist.Bernoulli(logits=rows @ b), obs=numpyro.subsample(outcome, event_dim=0))

        proxy = numpyro.infer.HMCECS.taylor_proxy({"b": mode}, degree=2)
        kernel = numpyro.infer.HMCECS(numpyro.infer.NUTS(model), num_blocks=10, proxy=proxy)
        run = numpyro.infer.MCMC(kernel, num_warmup=500, num_samples=2000, progress_bar=False)
        run.warmup(jax.random.key(0), init_params={"b": mode})

        def again():
            run.post_warmup_state = run.last_state
            run.run(jax.random.key(1))
            return run.get_samples()["b"]

        return seconds_of(again)


class Choice:
    """Draws a CPU second of one categorical variable of ten states and 10^5 Gaussian factors, as `mcmc.Choice`:
    `spread` 1, states of real mass; 30, one state has nearly all."""

    params = (["race", "DiscreteGibbs"], [1.0, 30.0])
    param_names = ["draw", "spread"]
    timeout = 600

    def setup(self, name, spread):
        needs_jax()

    def track_draws_per_second(self, name, spread):
        rng = np.random.default_rng([20160623, 100_000, 10, 5, 1])
        x = rng.standard_normal((100_000, 5))
        w = rng.normal(0.0, 1.0, 5)
        y = x @ w + rng.standard_normal(100_000)
        each = w + spread * rng.standard_normal((10, 5)) / np.sqrt(100_000)
        with jax.enable_x64(True):
            x, y, each = map(jnp.asarray, (x, y, each))
            n = 200
            if name == "race":
                def factors(sites, rows):
                    return -0.5 * (rows["y"] - rows["x"] @ each[sites["z"]]) ** 2

                gibbs = JaxRacingGibbs({"z": JaxCategorical(10, factors, {"x": x, "y": y})})

                def step(sites, key):
                    sites, _ = gibbs.draw(key, sites)
                    return sites, sites["z"]

                run = jax.jit(lambda key: jax.lax.scan(step, {"z": jnp.int32(0)}, jax.random.split(key, n))[1])
                return n / seconds_of(run, jax.random.key(1))[0]

            def model():
                z = numpyro.sample("z", dist.Categorical(logits=jnp.zeros(10)))
                numpyro.sample("y", dist.Normal(x @ each[z], 1.0), obs=y)

            sampler = numpyro.infer.DiscreteGibbs(model)
            run = numpyro.infer.MCMC(sampler, num_warmup=5, num_samples=n, progress_bar=False)
            run.warmup(jax.random.key(0))

            def again():
                run.post_warmup_state = run.last_state
                run.run(jax.random.key(1))
                return run.get_samples()["z"]

            return n / seconds_of(again)[0]
