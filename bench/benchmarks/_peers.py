"""Models of the benchmarks as rivals write them: NUTS of NumPyro, PyMC and nutpie, which read all rows, and HMCECS."""

import os
import signal
import subprocess
import tempfile
import time

import numpy as np

from fastrace import mcmc
from fastrace.mcmc._convergence import each_rhat

QUICK = 20.0  # seconds of draws, below which they are made again without the compiling


def cpu():
    """CPU seconds of this process, and of the compilers that it has started and that have ended."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def limited(command, seconds):
    """What a command did, from a process with one thread and a limit of CPU seconds, and whether that ended it.

    PyTensor has the compiler that it finds there, without PYTENSOR_FLAGS, and no code that it compiled before.
    """
    import resource  # not on Windows

    def at_most():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))

    with tempfile.TemporaryDirectory() as folder:
        own = {"PYTENSOR_FLAGS": f"base_compiledir={folder}", "OMP_NUM_THREADS": "1", "NPROC": "1"}  # the last for XLA
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=at_most,
                              env=os.environ | own)
    return done, done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


def smallest(samples):
    """Least effective size over all numbers of one chain; what is called "raw" is no parameter of the model."""
    return min(mcmc.effective_sample_size(x[None]) for x in _numbers(samples).T)


def largest_rhat(samples):
    """The same of R-hat."""
    return float(each_rhat(_numbers(samples)[None]).max())


def _numbers(samples):
    parts = [np.asarray(values).reshape(len(values), -1) for name, values in samples.items() if "raw" not in name]
    return np.concatenate(parts, axis=1)


def by_numpyro(model, data, n_warmup, n_draws, kernel=None, kept=None):
    """Effective draws of one chain; seconds of warm-up, with compiling; seconds of the draws.

    The dict `kept` is given the draws.
    """
    import jax
    from numpyro.infer import MCMC, NUTS

    chain = MCMC(kernel or NUTS(model), num_warmup=n_warmup, num_samples=n_draws, progress_bar=False)
    data = [None if part is None else jax.numpy.asarray(part) for part in data]
    start = time.process_time()
    chain.warmup(jax.random.key(0), *data)
    jax.block_until_ready(chain.last_state)
    warm = time.process_time() - start
    for key in (1, 2):
        start = time.process_time()
        chain.run(jax.random.key(key), *data)
        samples = {name: np.asarray(values) for name, values in chain.get_samples().items()}
        took = time.process_time() - start
        if took > QUICK:
            break
        chain.post_warmup_state = chain.last_state
    if kept is not None:
        kept |= samples
    return smallest(samples), warm, took


def groups_of(n_levels, family="logistic", centred=True):
    """Varying intercepts of so many levels of each factor: NumPyro's function of columns, outcome and codes.

    With priors like the weak ones of `mcmc.GLM`.
    """
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as of

    def model(x, outcome, *codes):
        eta = x @ numpyro.sample("beta", of.Normal(jnp.zeros(x.shape[1]), 2.5).to_event(1))
        for k, (code, n) in enumerate(zip(codes, n_levels, strict=True)):
            sd = numpyro.sample(f"sd{k}", of.HalfNormal(2.5))
            if centred:
                effect = numpyro.sample(f"effect{k}", of.Normal(jnp.zeros(n), sd).to_event(1))
            else:
                raw = numpyro.sample(f"raw{k}", of.Normal(jnp.zeros(n), 1.0).to_event(1))
                effect = numpyro.deterministic(f"effect{k}", sd * raw)
            eta += effect[code]
        law = of.Bernoulli(logits=eta) if family == "logistic" else of.Poisson(jnp.exp(eta))
        numpyro.sample("y", law, obs=outcome)

    return model


def regression(family="logistic", prior=None, offset=None, spread=1.0, sd=2.5, n_subsample=None):
    """A regression without groups: NumPyro's function of columns and outcome. `spread` is the outcome's, or its noise.

    A horseshoe is not centred, as its authors advise. `n_subsample` rows at a time are what HMCECS reads.
    """
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as of

    def coefficients(dim, n_rows):
        if isinstance(prior, mcmc.Laplace):
            return numpyro.sample("beta", of.Laplace(jnp.zeros(dim), prior.scale).to_event(1))
        if not isinstance(prior, mcmc.Horseshoe):
            return numpyro.sample("beta", of.Normal(jnp.zeros(dim), sd * spread).to_event(1))
        raw = numpyro.sample("raw", of.Normal(jnp.zeros(dim), 1.0).to_event(1))
        local = numpyro.sample("local", of.HalfCauchy(jnp.ones(dim)).to_event(1))
        whole = numpyro.sample("global", of.HalfCauchy(prior.global_scale_of(dim, n_rows, spread)))
        slab = numpyro.sample("slab", of.InverseGamma(0.5 * prior.slab_df, 0.5 * prior.slab_df * prior.slab_scale**2))
        wide = (whole * local) ** 2
        return numpyro.deterministic("beta", raw * jnp.sqrt(slab * wide / (slab + wide)))

    def model(x, outcome):
        beta = coefficients(x.shape[1], len(x))
        if family == "negative-binomial":
            dispersion = numpyro.sample("dispersion", of.HalfCauchy(1.0))
        elif family == "gaussian":
            scale = numpyro.sample("scale", of.HalfCauchy(spread))
        with numpyro.plate("rows", len(x), subsample_size=n_subsample):
            eta = numpyro.subsample(x, event_dim=1) @ beta
            if offset is not None:
                eta += numpyro.subsample(jnp.asarray(offset), event_dim=0)
            if family == "logistic":
                law = of.Bernoulli(logits=eta)
            elif family == "poisson":
                law = of.Poisson(jnp.exp(eta))
            elif family == "negative-binomial":
                law = of.NegativeBinomial2(jnp.exp(eta), 1.0 / dispersion)
            else:
                law = of.Normal(eta, scale)
            numpyro.sample("y", law, obs=numpyro.subsample(outcome, event_dim=0))

    return model


def classes(n_classes, sd=10.0):
    """Multinomial logistic regression; the first class has coefficients of 0."""
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as of

    def model(x, outcome):
        beta = numpyro.sample("beta", of.Normal(jnp.zeros((x.shape[1], n_classes - 1)), sd).to_event(2))
        logits = jnp.concatenate([jnp.zeros((len(x), 1)), x @ beta], axis=1)
        numpyro.sample("y", of.Categorical(logits=logits), obs=outcome)

    return model


def classes_of_groups(n_classes, n_groups):
    """Softmax regression with intercepts of groups, not centred: NumPyro's function of columns, outcome and codes.

    With priors like the weak ones of `mcmc.Softmax`.
    """
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as of

    def model(x, outcome, codes):
        beta = numpyro.sample("beta", of.Normal(0.0, 2.5).expand([x.shape[1], n_classes - 1]).to_event(2))
        sd = numpyro.sample("sd", of.HalfNormal(2.5).expand([n_classes - 1]).to_event(1))
        raw = numpyro.sample("raw", of.Normal(0.0, 1.0).expand([n_groups, n_classes - 1]).to_event(2))
        effects = numpyro.deterministic("effects", sd * raw)
        eta = jnp.concatenate([jnp.zeros((len(x), 1)), x @ beta + effects[codes]], axis=1)
        numpyro.sample("y", of.Categorical(logits=eta), obs=outcome)

    return model


def by_hmcecs(X, y, mode, n_warmup=500, n_draws=8000, n_subsample=200, **options):
    """A `regression` by energy-conserving subsampling about the mode, to second order."""
    import jax.numpy as jnp
    from numpyro.infer import HMCECS, NUTS

    model = regression(n_subsample=n_subsample, **options)
    proxy = HMCECS.taylor_proxy({"beta": jnp.asarray(mode)}, degree=2)
    return by_numpyro(model, (X, y), n_warmup, n_draws, HMCECS(NUTS(model), num_blocks=10, proxy=proxy))


def pymc_regression(X, y, family="logistic", prior=None, offset=None, spread=1.0, sd=2.5, code=None, centred=True):
    """The posterior of `regression`, with or without intercepts that vary, in PyMC; rows enter by `pm.Data`."""
    import pymc as pm

    with pm.Model() as model:
        x, outcome = pm.Data("x", X), pm.Data("outcome", y.astype(np.float64 if family == "gaussian" else np.int64))
        dim = X.shape[1]
        if isinstance(prior, mcmc.Laplace):
            beta = pm.Laplace("beta", 0.0, prior.scale, shape=dim)
        elif isinstance(prior, mcmc.Horseshoe):
            raw, local = pm.Normal("raw", 0.0, 1.0, shape=dim), pm.HalfCauchy("local", 1.0, shape=dim)
            whole = pm.HalfCauchy("global", prior.global_scale_of(dim, len(X), spread))
            slab = pm.InverseGamma("slab", 0.5 * prior.slab_df, 0.5 * prior.slab_df * prior.slab_scale**2)
            wide = (whole * local) ** 2
            beta = pm.Deterministic("beta", raw * pm.math.sqrt(slab * wide / (slab + wide)))
        else:
            beta = pm.Normal("beta", 0.0, sd * spread, shape=dim)
        eta = x @ beta
        if offset is not None:
            eta += pm.Data("offset", offset)
        if code is not None:
            group, n, width = pm.Data("group", code), int(code.max()) + 1, pm.HalfNormal("sd", 2.5)
            if centred:
                effect = pm.Normal("effect", 0.0, width, shape=n)
            else:
                effect = pm.Deterministic("effect", pm.Normal("raw", 0.0, 1.0, shape=n) * width)
            eta += effect[group]
        if family == "logistic":
            pm.Bernoulli("y", logit_p=eta, observed=outcome)
        elif family == "poisson":
            pm.Poisson("y", mu=pm.math.exp(eta), observed=outcome)
        elif family == "negative-binomial":
            alpha = 1.0 / pm.HalfCauchy("dispersion", 1.0)
            pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=alpha, observed=outcome)
        else:
            pm.Normal("y", mu=eta, sigma=pm.HalfCauchy("scale", spread), observed=outcome)
    return model


def pymc_classes(X, y, n_classes, sd=10.0):
    """The posterior of `classes` in PyMC; rows enter by `pm.Data`."""
    import pymc as pm

    with pm.Model() as model:
        x, outcome = pm.Data("x", X), pm.Data("outcome", y.astype(np.int64))
        beta = pm.Normal("beta", 0.0, sd, shape=(X.shape[1], n_classes - 1))
        eta = pm.math.concatenate([np.zeros((len(X), 1)), x @ beta], axis=1)
        pm.Categorical("y", logit_p=eta, observed=outcome)
    return model


def least_of(found):
    """`smallest`, of the one chain of PyMC or nutpie; a name that ends with "__" is of a parameter on another scale."""
    draws = found.posterior.data_vars.items()
    return smallest({name: values.to_numpy()[0] for name, values in draws if not name.endswith("__")})


def by_pymc(model, n_tune, n_draws):
    """Effective draws of one chain of PyMC's own NUTS; seconds of compiling and tuning; seconds of the draws."""
    import pymc as pm

    tuned = start = cpu()

    def each(trace, draw):
        nonlocal tuned
        if draw.tuning:
            tuned = cpu()

    found = pm.sample(n_draws, tune=n_tune, chains=1, cores=1, random_seed=1, progressbar=False, callback=each,
                      compute_convergence_checks=False, model=model)
    return least_of(found), tuned - start, cpu() - tuned


def by_nutpie(model, n_tune, n_draws):
    """The same of nutpie, with Numba. It does not tell when it has tuned: the seconds are shared out by gradients."""
    import nutpie

    start = cpu()
    compiled = nutpie.compile_pymc_model(model)
    middle = cpu()
    found = nutpie.sample(compiled, draws=n_draws, tune=n_tune, chains=1, cores=1, seed=1, progress_bar=False)
    took = cpu() - middle
    tuning, drawing = (int(stats.n_steps.sum()) for stats in (found.warmup_sample_stats, found.sample_stats))
    share = tuning / (tuning + drawing)
    return least_of(found), middle - start + share * took, (1.0 - share) * took
