"""Microseconds a step of models written in PyMC beside the same `mcmc.GLM`, and seconds to expand what is no GLM.

``python -m benchmarks.pymc_steps`` prints the table, measured in one run; with names of models, such as
``probit cloglog``, it prints their rows alone. ``python -m benchmarks.pymc_steps references`` prints the seconds of
`from_pymc` and of ``reference()`` for models of 57 parameters and 300,000 rows that are no GLMs.
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
    own = {"prior_sd": 10.0} if prior == "normal" else {"prior": mcmc.Laplace(0.0, 1.0)}
    return model, mcmc.GLM(X, y, **own)


def student():
    """The same with Student-t outcomes of a learned scale."""
    pm, (X, _) = pm_or_skip(), logistic(100_000, 10)
    y = X @ np.linspace(-1.0, 1.0, 10) + np.random.default_rng(3).standard_t(4.0, len(X))
    with pm.Model() as model:
        x, outcome = pm.Data("x", X), pm.Data("outcome", y)
        beta, sigma = pm.Normal("beta", 0.0, 10.0, shape=10), pm.HalfNormal("sigma", 5.0)
        pm.StudentT("y", nu=4.0, mu=x @ beta, sigma=sigma, observed=outcome)
    return model, mcmc.GLM(X, y, "student-t", prior=mcmc.Normal(0.0, 10.0), scale_prior=mcmc.HalfNormal(5.0))


def of_family(family):
    """The same with outcomes of another family, as people write it in PyMC, with plain arrays."""
    pm, (X, _) = pm_or_skip(), logistic(100_000, 10)
    rng, own = np.random.default_rng(3), {"prior": mcmc.Normal(0.0, 10.0)}
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
    model = _peers.pymc_regression(X, y, code=codes[0], centred=False)
    if potential:
        with model:
            pm.Potential("soft", -0.5 * pm.math.sqr(model["beta"].sum() - 1.0) / 9.0)
    return model, mcmc.GLM(X, y, groups=codes[0], prior=mcmc.Normal(0.0, 2.5),
                           group_prior=mcmc.HalfNormal(2.5))


def curve(n_rows):
    """A curve that decays, beside 53 columns: nothing that a `GLM` has."""
    pm, rng = pm_or_skip(), np.random.default_rng(5)
    X, age = rng.standard_normal((n_rows, 53)), rng.uniform(0.0, 5.0, n_rows)
    y = 1.0 + 2.0 * np.exp(-0.7 * age) + X @ np.linspace(-0.5, 0.5, 53) + 0.5 * rng.standard_normal(n_rows)
    with pm.Model() as model:
        x, since, outcome = pm.Data("x", X), pm.Data("since", age), pm.Data("outcome", y)
        level, height = pm.Normal("level", 0.0, 5.0), pm.Normal("height", 0.0, 5.0)
        rate, sigma = pm.HalfNormal("rate", 1.0), pm.HalfNormal("sigma", 2.0)
        seen = level + height * pm.math.exp(-rate * since) + x @ pm.Normal("beta", 0.0, 2.5, shape=53)
        pm.Normal("y", mu=seen, sigma=sigma, observed=outcome)
    return model


def layer(n_rows):
    """A hidden layer of five units, which see ten columns: no linear predictor is left of the rows' terms."""
    pm, rng = pm_or_skip(), np.random.default_rng(6)
    X, hidden = rng.standard_normal((n_rows, 10)), rng.normal(0.0, 0.5, (10, 5))
    y = 0.3 + np.tanh(X @ hidden) @ np.linspace(1.0, 2.0, 5) + 0.5 * rng.standard_normal(n_rows)
    with pm.Model() as model:
        x, outcome = pm.Data("x", X), pm.Data("outcome", y)
        level, sigma = pm.Normal("level", 0.0, 5.0), pm.HalfNormal("sigma", 2.0)
        inner = pm.Normal("inner", 0.0, 0.5, shape=(10, 5), initval=hidden + 0.05)
        outer = pm.HalfNormal("outer", 2.0, shape=5)
        pm.Normal("y", mu=level + pm.math.tanh(x @ inner) @ outer, sigma=sigma, observed=outcome)
    return model


def groups_and_potential(n_rows):
    """Eight coefficients, 48 varying intercepts and their deviation, beside a potential."""
    pm, rng = pm_or_skip(), np.random.default_rng(7)
    X, code = rng.standard_normal((n_rows, 8)), rng.integers(48, size=n_rows)
    eta = X @ np.linspace(-0.5, 0.5, 8) + (0.6 * rng.standard_normal(48))[code]
    model = _peers.pymc_regression(X, rng.random(n_rows) < special.expit(eta), code=code, centred=False)
    with model:
        pm.Potential("soft", -0.5 * pm.math.sqr(model["beta"].sum() - 1.0) / 9.0)
    return model


NO_GLMS = {"a decaying curve beside 53 columns": curve, "a hidden layer of five units": layer,
           "48 intercepts, with a Potential": groups_and_potential}
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


def seconds_of_reference(name, n_rows=300_000):
    """CPU seconds and seconds by the clock of `from_pymc` and of its first expansion, and how many parameters."""
    model, spent, start = NO_GLMS[name](n_rows), _peers.cpu(), time.perf_counter()
    ours = mcmc.from_pymc(model, progress=True)
    made = _peers.cpu() - spent
    ours.reference()
    return made, _peers.cpu() - spent - made, time.perf_counter() - start, ours.dim


class ReferencesOfPyMC:
    """CPU seconds of the first expansion at the mode of models that are no GLMs; the goal is 10 for all rows."""

    params = (list(NO_GLMS), [30_000, 300_000])
    param_names = ["model", "n_rows"]
    timeout = 600

    def track_seconds(self, name, n_rows):
        return seconds_of_reference(name, n_rows)[1]


def references():
    print("| model | parameters | from_pymc, CPU s | reference, CPU s | both, s by the clock |\n" + "|---" * 5 + "|")
    for name in NO_GLMS:
        made, expanded, clock, dim = seconds_of_reference(name)
        print(f"| {name} | {dim} | {made:.1f} | {expanded:.1f} | {clock:.1f} |", flush=True)


def main(names):
    if names == ["references"]:
        return references()
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
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
