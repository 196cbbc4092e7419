"""What is said of PyMC models that are no regressions of `GLM`, and of likelihoods that have no rows."""

import numpy as np
import pytest
from by_pymc import pm, pt, refused_as_hierarchy
from scipy import stats

from fastrace import mcmc
from fastrace.mcmc.doors.pymc import _expansions

pytensor = pytest.importorskip("pytensor")

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = X[:, 0] + RNG.normal(size=N)
COUNTS, CLASSES = RNG.poisson(2.0, N), np.arange(N) % 3
TABLE = RNG.multinomial(5, np.full(3, 1 / 3), N)
ORDERED = pm.distributions.transforms.ordered
SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def eta():
    return X @ pm.Normal("b", shape=2)


def mean():
    return pm.math.exp(eta())


def cutpoints():
    return pm.Normal("cut", 0.0, 2.0, shape=2, transform=ORDERED, initval=[-1.0, 1.0])


def weights():
    return pm.Dirichlet("w", np.ones(2))


def scores():
    return pm.math.softmax(X @ pm.Normal("b", shape=(2, 3)), axis=1)


@pytest.mark.parametrize(("build", "words"), [
    (lambda: pm.OrderedLogistic("y", eta=eta(), cutpoints=cutpoints(), observed=CLASSES), "cutpoints, as an ordered"),
    (lambda: pm.OrderedProbit("y", eta=eta(), cutpoints=cutpoints(), observed=CLASSES), "cutpoints, as an ordered"),
    (lambda: pm.NormalMixture("y", weights(), pm.Normal("m", shape=2), 1.0, observed=Y), "'y' is a mixture of Normal;"),
    (lambda: pm.Mixture("y", weights(), [pm.Poisson.dist(2.0), pm.Geometric.dist(pm.Beta("p", 1, 1))],
                        observed=COUNTS), "'y' is a mixture of Poisson and Geometric;"),
    (lambda: pm.ZeroInflatedPoisson("y", pm.Beta("psi", 1, 1), mean(), observed=COUNTS), "a zero-inflated Poisson"),
    (lambda: pm.ZeroInflatedNegativeBinomial("y", pm.Beta("psi", 1, 1), mu=mean(), alpha=1.0, observed=COUNTS),
     "zero-inflated NegBinomial, which is a mixture; mcmc.GLM has Bernoulli"),
    pytest.param(lambda: pm.HurdlePoisson("y", pm.Beta("psi", 1, 1), mean(), observed=COUNTS), "a hurdle Poisson",
                 marks=pytest.mark.filterwarnings("ignore:Scan return")),
    (lambda: pm.Multinomial("y", 5, scores(), observed=TABLE), r"'y' is Multinomial; .*mcmc.Softmax\(X, y\).*counts$"),
    (lambda: pm.Categorical("y", scores(), observed=CLASSES), r"a softmax; .*mcmc.Softmax\(X, y\) is a .* class at 0$"),
    (lambda: pm.Categorical("y", weights(), observed=CLASSES % 2), "'y' is Categorical; mcmc.GLM has [A-Za-z, ]*$"),
    (lambda: pm.CustomDist("y", pm.Normal("m"), logp=lambda y, m: -pt.square(y - m), observed=Y), "is a pm.CustomDist"),
    (lambda: pm.Censored("y", pm.Normal.dist(eta(), 1.0), None, 2.0, observed=Y.clip(None, 2.0)), "a censored Normal"),
    pytest.param(lambda: pm.Truncated("y", pm.Poisson.dist(mean()), 1, observed=COUNTS + 1), "a truncated Poisson",
                 marks=pytest.mark.filterwarnings("ignore:Scan return")),
    (lambda: pm.Bernoulli("y", logit_p=pt.tanh(X @ pm.Normal("W", shape=(2, 3))) @ pm.Normal("v", shape=3),
                          observed=CLASSES % 2), "sums of coefficients .* each row sees several"),
    (lambda: pm.Normal("y", pm.Normal("m") + pm.math.exp(pm.Normal("v") + X[:, 0] * pm.Normal("w"))
                       * pm.math.exp(X[:, 1] * pm.Normal("u")) + pm.math.exp(X[:, 0] * pm.Normal("t"))
                       - pm.math.exp(X[:, 1] * pm.Normal("r")), pm.HalfNormal("s"), observed=Y),
     "4 of these and 2 scalars; at most 3 and 3 are possible"),
])
def test_a_distribution_that_a_glm_does_not_have_is_named_as_people_name_it(build, words):
    with pm.Model() as model:
        build()
    refused_as_hierarchy(model, words)


def solved():
    from pymc.ode import DifferentialEquation

    times = np.linspace(0.1, 5.0, N)
    curve = DifferentialEquation(lambda y, t, p: [-p[0] * y[0]], times, n_states=1, n_theta=1)
    pm.Normal("y", curve(y0=[1.0], theta=[pm.HalfNormal("rate")])[:, 0], 1.0, observed=Y)


def simulated():
    pm.Simulator("y", lambda rng, m, size=None: rng.normal(m, size=size), pm.Normal("m"), observed=Y)


def schools():
    pm.Normal("y", pm.Normal("mu") + pm.HalfCauchy("tau", 5.0) * pm.Normal("z", shape=8), 10.0, observed=SCHOOLS)


@pytest.mark.parametrize(("build", "words", "few"), [
    (solved, "'y' .*: its terms depend on 'rate' by way of DifferentialEquation, .*have the rows choose", 1),
    (simulated, "'y' is a pm.Simulator.*pm.sample_smc", 1),
    (schools, "'z' has an entry for each of the 8 rows, .* no subsampling: pm.sample", 10),
    (schools, "'z' has an entry for each of the 8 rows, .* Marginalise it", 1),
])
def test_a_likelihood_without_rows_is_refused_for_its_own_reason(build, words, few, monkeypatch):
    monkeypatch.setattr("fastrace.mcmc.doors.pymc._words.FEW_ROWS", few)
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=f"(?i){words}") as error:
        mcmc.from_pymc(model)
    assert "pm.Data" not in str(error.value)


def test_rows_may_choose_from_what_an_operation_gives_for_all_of_them():
    """As the refusal of a differential equation of all rows says: one that gives few numbers, which rows choose."""
    from pymc.ode import DifferentialEquation

    times = np.linspace(0.5, 3.0, 5)
    with pm.Model() as model:
        rate = pm.HalfNormal("rate")
        curve = DifferentialEquation(lambda y, t, p: [-p[0] * y[0]], times, n_states=1, n_theta=1)
        pm.Normal("y", curve(y0=[1.0], theta=[rate])[np.arange(N) % 5, 0], 0.5, observed=Y)
    ours, at = mcmc.from_pymc(model), np.array([0.3])
    residual = Y - np.exp(-np.exp(0.3) * times[np.arange(N) % 5])
    expected = -2.0 * np.square(residual) + np.log(2.0) - 0.5 * np.log(2.0 * np.pi)
    np.testing.assert_allclose(ours.terms(at, np.arange(N)), expected, atol=1e-6)


def test_a_model_that_is_not_recognised_says_what_moves_it_and_what_is_faster(monkeypatch):
    with pm.Model() as model:
        b, log_sd = pm.Normal("b", shape=2), pm.Normal("log_sd")
        pm.Laplace("y", X @ b, pm.math.exp(log_sd), observed=Y)
    ours = mcmc.from_pymc(model)
    words = ours.describe()
    assert "'y' is Laplace; mcmc.GLM has" in words
    assert "Chains: sample takes RacingMetropolis, which expands the rows in all parameters" in words
    assert "few rows, 60 rows: pm.sample" in words
    assert ("no C compiler here" in words) == (not pytensor.config.cxx)
    ours.compile_kwargs["mode"] = "NUMBA"
    assert "no C compiler" not in ours.describe()
    monkeypatch.setattr("fastrace.mcmc.doors.pymc._words.FEW_ROWS", 10)
    assert "pm.sample" not in ours.describe() and _expansions.FEW_ROWS > 10
    with pm.Model() as model:
        z = pm.Deterministic("mean", pm.Normal("m") + pm.HalfNormal("s") * pm.Normal("z", shape=9))
        pm.Laplace("y", z[np.arange(N) % 3], 1.0, observed=Y)
    assert "SurrogateMetropolis, which expands the rows in the" in mcmc.from_pymc(model).describe()


@pytest.mark.filterwarnings("ignore:Scan return")
def test_a_truncated_law_without_second_derivatives_is_taken_and_said_to_be_slow():
    """PyTensor has no second derivative of the incomplete gamma function by its shape."""
    with pm.Model() as model:
        shape = pm.HalfNormal("shape", 3.0)
        pm.Truncated("y", pm.Gamma.dist(alpha=shape, beta=1.0), 0.2, 4.0, observed=Y.clip(0.3, 3.0))
    ours = mcmc.from_pymc(model)
    assert not ours.has_derivatives and "'y' is a truncated Gamma; mcmc.GLM has" in ours.describe()
    assert "PyTensor has no derivatives of the rows, so that sample takes RacingMetropolis" in ours.describe()
    law, at = stats.gamma(np.exp(0.4)), np.array([0.4])
    expected = law.logpdf(Y.clip(0.3, 3.0)) - np.log(law.cdf(4.0) - law.cdf(0.2))
    np.testing.assert_allclose(ours.terms(at, np.arange(N)), expected, rtol=1e-10)


def test_terms_of_censored_rows_are_their_tail_probabilities():
    with pm.Model() as model:
        pm.Censored("y", pm.Normal.dist(pm.Normal("m") * X[:, 0], 1.0), None, 0.5, observed=Y.clip(None, 0.5))
    ours, mean = mcmc.from_pymc(model), 0.4 * X[:, 0]
    expected = np.where(Y >= 0.5, stats.norm.logsf(0.5, mean), stats.norm.logpdf(Y, mean))
    np.testing.assert_allclose(ours.terms(np.array([0.4]), np.arange(N)), expected, rtol=1e-7)  # sqrt(2) is single
    assert ours.has_derivatives
