"""Models of the benchmarks as rivals write them, whose samplers read all rows: NumPyro's NUTS and HMCECS, and PyMC."""

import time

import numpy as np

from fastrace import mcmc

QUICK = 20.0  # seconds of draws, below which they are made again without the compiling


def smallest(samples):
    """Least effective size over all numbers of one chain; what is called "raw" is no parameter of the model."""
    parts = [np.asarray(values).reshape(len(values), -1) for name, values in samples.items() if "raw" not in name]
    return min(mcmc.effective_sample_size(x[None]) for x in np.concatenate(parts, axis=1).T)


def by_numpyro(model, data, n_warmup, n_draws, kernel=None):
    """Effective draws of one chain; seconds of warm-up, with compiling; seconds of the draws."""
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


def regression(family="logistic", prior=None, offset=None, spread=1.0, sd=2.5):
    """A regression without groups: NumPyro's function of columns and outcome. `spread` is the outcome's, or its noise.

    A horseshoe is not centred, as its authors advise.
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
        eta = x @ coefficients(x.shape[1], len(x)) + (0.0 if offset is None else jnp.asarray(offset))
        if family == "logistic":
            law = of.Bernoulli(logits=eta)
        elif family == "poisson":
            law = of.Poisson(jnp.exp(eta))
        elif family == "negative-binomial":
            law = of.NegativeBinomial2(jnp.exp(eta), 1.0 / numpyro.sample("dispersion", of.HalfCauchy(1.0)))
        else:
            law = of.Normal(eta, numpyro.sample("scale", of.HalfCauchy(spread)))
        numpyro.sample("y", law, obs=outcome)

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


def by_hmcecs(X, y, mode, n_warmup=500, n_draws=8000, n_subsample=200, sd=10.0):
    """Logistic regression by energy-conserving subsampling about the mode, to second order."""
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as of
    from numpyro.infer import HMCECS, NUTS

    def model(x, outcome):
        beta = numpyro.sample("beta", of.Normal(jnp.zeros(x.shape[1]), sd).to_event(1))
        with numpyro.plate("rows", len(x), subsample_size=n_subsample):
            some, labels = numpyro.subsample(x, event_dim=1), numpyro.subsample(outcome, event_dim=0)
            numpyro.sample("y", of.Bernoulli(logits=some @ beta), obs=labels)

    proxy = HMCECS.taylor_proxy({"beta": jnp.asarray(mode)}, degree=2)
    return by_numpyro(model, (X, y), n_warmup, n_draws, HMCECS(NUTS(model), num_blocks=10, proxy=proxy))


def pymc_hierarchy(X, y, code, n_groups, centred):
    """Varying intercepts in PyMC, whose rows enter by `pm.Data`."""
    import pymc as pm

    with pm.Model() as model:
        x, group, outcome = pm.Data("x", X), pm.Data("group", code), pm.Data("outcome", y.astype(np.int64))
        beta, sd = pm.Normal("beta", 0.0, 2.5, shape=X.shape[1]), pm.HalfNormal("sd", 2.5)
        if centred:
            effect = pm.Normal("effect", 0.0, sd, shape=n_groups)
        else:
            effect = pm.Deterministic("effect", pm.Normal("raw", 0.0, 1.0, shape=n_groups) * sd)
        pm.Bernoulli("y", logit_p=x @ beta + effect[group], observed=outcome)
    return model


def by_nutpie(model, n_tune=200, n_draws=200):
    """Effective draws of one chain of nutpie, seconds of compiling and tuning together with drawing."""
    import nutpie

    start = time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    middle = time.process_time()
    found = nutpie.sample(compiled, draws=n_draws, tune=n_tune, chains=1, cores=1, seed=1, progress_bar=False)
    end = time.process_time()
    samples = {name: values.to_numpy()[0] for name, values in found.posterior.data_vars.items()}
    return smallest(samples), middle - start, end - middle
