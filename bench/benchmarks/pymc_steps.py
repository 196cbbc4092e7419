"""Microseconds a step of models written in PyMC beside the same `mcmc.GLM`.

``python -m benchmarks.pymc_steps`` prints the table, measured in one run; with names of models, such as
``probit cloglog``, it prints their rows alone.
"""

import sys
import time
import warnings
from functools import partial

import numpy as np
from scipy import special

from fastrace import mcmc
from fastrace.mcmc.kernels._choice import kernel_for

from . import _peers, hierarchies
from .mcmc import logistic

WAYS = ("mcmc.GLM", "from_pymc", "as_glm")


def pm_or_skip():
    try:
        import pymc
    except ImportError as error:
        raise NotImplementedError("needs PyMC") from error
    return pymc


def regression(prior="normal", potential=False):
    """A PyMC model of 100,000 rows and 10 columns, and the same as a `GLM`; with a potential it is none of these."""
    pm, (X, y) = pm_or_skip(), logistic(100_000, 10)
    with pm.Model() as model:
        x, outcome = pm.Data("x", X), pm.Data("outcome", y)
        beta = pm.Normal("beta", 0.0, 10.0, shape=10) if prior == "normal" else pm.Laplace("beta", 0.0, 1.0, shape=10)
        if potential:
            pm.Potential("soft", -0.5 * pm.math.sqr(beta.sum() - 1.0) / 9.0)
        pm.Bernoulli("y", logit_p=x @ beta, observed=outcome)
    own = {"prior_sd": 10.0} if prior == "normal" else {"prior": mcmc.Laplace(1.0)}
    return model, mcmc.GLM(X, y, **own)


def student():
    """The same with Student-t outcomes of a learned scale."""
    pm, (X, _) = pm_or_skip(), logistic(100_000, 10)
    y = X @ np.linspace(-1.0, 1.0, 10) + np.random.default_rng(3).standard_t(4.0, len(X))
    with pm.Model() as model:
        x, outcome = pm.Data("x", X), pm.Data("outcome", y)
        beta, sigma = pm.Normal("beta", 0.0, 10.0, shape=10), pm.HalfNormal("sigma", 5.0)
        pm.StudentT("y", nu=4.0, mu=x @ beta, sigma=sigma, observed=outcome)
    return model, mcmc.GLM(X, y, "student-t", prior=mcmc.Normal(10.0), scale_prior=mcmc.HalfNormal(5.0))


def of_family(family):
    """The same with outcomes of another family, as people write it in PyMC, with plain arrays."""
    pm, (X, _) = pm_or_skip(), logistic(100_000, 10)
    rng, own = np.random.default_rng(3), {"prior": mcmc.Normal(10.0)}
    eta = X @ np.linspace(-0.5, 0.5, 10)
    with pm.Model() as model:
        seen = X @ pm.Normal("beta", 0.0, 10.0, shape=10)
        if family == "probit":
            y = (rng.random(len(X)) < special.ndtr(eta)).astype(int)
            pm.Bernoulli("y", p=pm.math.invprobit(seen), observed=y)
        elif family == "cloglog":
            y = (rng.random(len(X)) < -np.expm1(-np.exp(eta))).astype(int)
            pm.Bernoulli("y", p=1 - pm.math.exp(-pm.math.exp(seen)), observed=y)
        elif family == "binomial":
            own["trials"] = rng.integers(1, 9, len(X))
            y = rng.binomial(own["trials"], special.expit(eta))
            pm.Binomial("y", n=own["trials"], logit_p=seen, observed=y)
        elif family == "negative-binomial":
            y = rng.negative_binomial(2, 2 / (2 + np.exp(eta)))
            pm.NegativeBinomial("y", mu=pm.math.exp(seen), alpha=pm.Exponential("alpha", 0.5), observed=y)
        else:
            y, mu = rng.gamma(2, np.exp(eta) / 2), pm.math.exp(seen)
            pm.Gamma("y", mu=mu, sigma=mu * pm.HalfNormal("variation", 0.8), observed=y)
    return model, mcmc.GLM(X, y, family, **own)


def groups(potential=False):
    """200,000 rows with 50 varying intercepts, not centred."""
    pm, (X, y, codes) = pm_or_skip(), hierarchies.varying_intercepts("50 groups", hierarchies.N_ROWS)
    model = _peers.pymc_hierarchy(X, y, codes[0], 50, False)
    if potential:
        with model:
            pm.Potential("soft", -0.5 * pm.math.sqr(model["beta"].sum() - 1.0) / 9.0)
    return model, mcmc.GLM(X, y, groups=codes[0], prior=mcmc.Normal(2.5),
                           group_prior=mcmc.HalfNormal(2.5))


MODELS = {
    "logistic, normal prior": regression,
    "logistic, Laplace prior": lambda: regression("laplace"),
    "Student-t, learned sigma": student,
    **{name: partial(of_family, name) for name in ("probit", "cloglog", "binomial")},
    "negative binomial, learned alpha": partial(of_family, "negative-binomial"),
    "gamma, learned variation": partial(of_family, "gamma"),
    "logistic, 50 intercepts": groups,
    "logistic, normal prior, with a Potential": lambda: regression(potential=True),
    "logistic, 50 intercepts, with a Potential": lambda: groups(True),
}
KERNELS = {
    "chosen by mcmc.sample": lambda model: kernel_for(model)[0],
    "SurrogateMetropolis": mcmc.SurrogateMetropolis,
    "RacingMetropolis": mcmc.RacingMetropolis,
    "PoissonMinibatchMetropolis": mcmc.PoissonMinibatchMetropolis,
}


class Chain:
    """A chain that has tuned, whose steps are timed."""

    def __init__(self, kernel=None):                    # quick.py makes one of each class of a benchmark module
        self.kernel, self.rng, self.n = kernel, np.random.default_rng(1), 20
        if kernel is not None:
            self.state = kernel.init(rng=1)
            self.state, _ = kernel.run(self.rng, self.state, 200, tune=True)

    def microseconds(self, seconds=0.1):
        """Of a step, in CPU time."""
        while True:
            started = time.process_time()
            self.state, _ = self.kernel.run(self.rng, self.state, self.n)
            spent = time.process_time() - started
            if spent > seconds:
                return 1e6 * spent / self.n
            self.n *= 2


def measured(name, kernel, rounds=7):
    """Way -> name of the kernel and microseconds a step, medians of rounds that take turns; and words of refusals."""
    model, glm = MODELS[name]()
    ours, chains, words = mcmc.from_pymc(model), {}, {}
    makers = {"mcmc.GLM": lambda: glm, "from_pymc": lambda: ours, "as_glm": ours.as_glm}
    for way in WAYS:
        try:
            chains[way] = Chain(KERNELS[kernel](makers[way]()))
        except ValueError as error:
            words[way] = str(error)
    taken = {way: [] for way in chains}
    for _ in range(rounds):
        for way, chain in chains.items():
            taken[way].append(chain.microseconds())
    return {way: (type(chains[way].kernel).__name__, float(np.median(found))) for way, found in taken.items()}, words


class StepsOfPyMC:
    """Microseconds a step of the kernel that `mcmc.sample` chooses, and of three others."""

    params = (list(MODELS), list(KERNELS), list(WAYS))
    param_names = ["model", "kernel", "way"]
    timeout = 600

    def track_microseconds_per_step(self, name, kernel, way):
        found, words = measured(name, kernel, 3)
        if way not in found:
            raise NotImplementedError(words[way])
        return found[way][1]


def main(names):
    print("| model | kernel | mcmc.GLM, us | from_pymc, us | times | as_glm(), us | times |\n" + "|---" * 7 + "|")
    for name in names or MODELS:
        for kernel in KERNELS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found, words = measured(name, kernel)
            own = found.get("mcmc.GLM", ("", np.nan))
            cells = [f"{own[1]:.3g}" if own[0] else "refused"]
            for way in WAYS[1:]:
                cells += [f"{found[way][1]:.3g}", f"{found[way][1] / own[1]:.2f}"] if way in found else ["refused", "-"]
            kinds = " / ".join(dict.fromkeys(kind for kind, _ in found.values()))
            said = f"{kernel}: {kinds}" if kernel.startswith("chosen") else kernel
            print(f"| {name} | {said} | {' | '.join(cells)} |", flush=True)
            for way, why in words.items():
                print(f"    {way}: {why[:150]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
