"""Compiled models besides the generalised linear ones: their terms, expansions and bounds, and chains over them."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

from chains import (
    EXACT,
    KERNELS,
    RACES,
    Lattice,
    assert_derivatives,
    assert_same_posterior,
    logistic,
    outcomes,
    scale_of,
)
from fastrace import DiscreteSampler, mcmc
from fastrace.sources import CallableSource
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference import arch as arch_twin
from reference import mcmc as twin

# Softmax regression.


def classes(n_rows, dim, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    eta = np.zeros((n_rows, n_classes))
    eta[:, 1:] = X @ (0.7 * rng.standard_normal((dim, n_classes - 1)))
    return X, np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)


@pytest.mark.parametrize(("n_classes", "dim"), [(2, 3), (4, 3), (7, 1), (18, 140)])
@pytest.mark.parametrize("layout", ["C", "F", "float32"])
def test_softmax_terms_and_expansion_are_the_twins(n_classes, dim, layout):
    X, y = classes(300, dim, n_classes, 5)
    X = np.asfortranarray(X) if layout == "F" else X.astype(np.float32) if layout == "float32" else X
    model = mcmc.Softmax(X, y, n_classes)
    rng = np.random.default_rng(1)
    at = rng.standard_normal(model.dim) / dim

    def terms(theta):
        return twin.softmax_terms(X.astype(float), y, theta)

    if model.dim < 30:
        source, theta = assert_derivatives(model, at, terms)
        for arm in (0, 1):
            expected = terms(theta[arm]) - twin.softmax_expansion(X.astype(float), y, at, theta[arm])
            np.testing.assert_allclose(source.read(np.arange(300))[:, arm], expected, rtol=0, atol=1e-13)
        again = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(again.read(np.arange(300)), source.read(np.arange(300)))
    source, theta = model.engine(None)
    theta[:] = at + rng.standard_normal((2, model.dim)) * np.array([[0.1], [30.0]])     # far out too
    for arm in (0, 1):
        np.testing.assert_allclose(source.read(np.arange(300))[:, arm], terms(theta[arm]), rtol=1e-12, atol=1e-12)


def test_softmax_of_two_classes_is_logistic_regression():
    X, y = logistic(500, 3, 2)
    pair = mcmc.Softmax(X, y.astype(int), prior_sd=3.0), mcmc.GLM(X, y, prior_sd=3.0)
    ours, known = (model.reference() for model in pair)
    np.testing.assert_allclose(ours.center, known.center, atol=1e-9)
    np.testing.assert_allclose(ours.factor, known.factor, atol=1e-12)
    np.testing.assert_allclose(ours.weights, known.weights, rtol=1e-9)
    np.testing.assert_allclose(pair[0].slopes(ours), pair[1].slopes(known), rtol=1e-9)


def test_softmax_bounds_hold_and_are_reached():
    X, y = classes(400, 2, 4, 8)
    model = mcmc.Softmax(X, y)
    reference = model.reference()
    slopes = model.slopes(reference)
    source, theta = model.engine(reference)
    plain, parameters = model.engine(None)
    rng = np.random.default_rng(2)
    closest = 0.0
    for length in (0.1, 1.0, 10.0, 100.0):
        for _ in range(100):
            z = rng.standard_normal((2, model.dim))
            z *= length * rng.random((2, 1)) / np.sqrt(np.square(z).sum(axis=1, keepdims=True))
            theta[:] = parameters[:] = reference.theta_hat + z @ reference.factor.T
            moved = np.abs(np.subtract(*source.read(np.arange(400)).T))
            bound = reference.weights * twin.size_of_move(z[0], z[1])
            assert (moved <= bound * (1 + 1e-9) + 1e-12).all()
            closest = max(closest, (moved / (bound + 1e-9)).max())
            changed = np.abs(np.subtract(*plain.read(np.arange(400)).T))
            assert (changed <= slopes * np.sqrt(np.square(z[1] - z[0]).sum()) * (1 + 1e-9) + 1e-12).all()
    assert closest > 0.2


@pytest.mark.parametrize("family", ["logistic", "poisson", "student-t"])
def test_bounds_in_balls_hold_and_are_reached(family):
    """Where outcomes are rare, rows differ in how much curvature they see within a ball."""
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(500), rng.standard_normal((500, 2))])
    eta = X @ [-4.0 if family == "logistic" else -1.0, 0.7, 0.7]
    y = {"logistic": (rng.random(500) < 1.0 / (1.0 + np.exp(-eta))).astype(float), "poisson": rng.poisson(np.exp(eta)),
         "student-t": eta + 2.5 * rng.standard_t(4.0, 500)}[family]
    model = mcmc.GLM(X, y, family, 1.0 if family == "student-t" else None, prior_sd=5.0)
    reference = model.reference()
    lengths, center = model._lengths(reference.factor), X @ reference.theta_hat
    balls = [*reference.shells, *([(reference.radius, reference.weights)] if family == "poisson" else [])]
    assert balls and (reference.radius == np.inf) == (family != "poisson")
    source, theta = model.engine(reference)
    if family == "student-t":
        center = center - y
    third = {"logistic": lambda e: np.tanh(e / 2.0) / (4.0 * np.cosh(e / 2.0) ** 2), "poisson": np.exp,
             "student-t": lambda e: 5.0 * e * (12.0 - e * e) * 2.0 / (4.0 + e * e) ** 3}[family]
    totals = [weights.sum() for _, weights in balls]
    assert totals == sorted(totals)
    for radius, weights in balls:
        exact = np.array([twin.bend(third, c, t) for c, t in zip(center, radius * lengths, strict=True)])
        assert (weights >= exact * lengths**3 * (1.0 - 1e-3)).all()
        assert weights.sum() <= 1.35 * (exact * lengths**3).sum()
        closest = 0.0
        for _ in range(300):
            z = rng.standard_normal((2, 3))
            z *= radius * rng.random((2, 1)) / np.sqrt(np.square(z).sum(axis=1, keepdims=True))
            theta[:] = reference.theta_hat + z @ reference.factor.T
            moved = np.abs(np.subtract(*source.read(np.arange(500)).T))
            bound = weights * twin.size_of_move(z[0], z[1])
            assert (moved <= bound * (1 + 1e-9) + 1e-12).all()
            closest = max(closest, (moved / (bound + 1e-9)).max())
        assert closest > 0.2


class SoftmaxLattice(Lattice):
    """Four parameter vectors of a regression with three classes."""

    def __init__(self, n_rows=60):
        self.X, self.y = classes(n_rows, 2, 3, 3)
        self.model = mcmc.Softmax(self.X, self.y, prior_sd=2.0)
        reference = self.model.reference()
        z = np.array([[0, 0, 0, 0], [1.0, -0.5, 0.3, 0.2], [-0.6, 0.8, -1.0, 0.1], [0.4, 0.3, 0.5, -1.4]])
        self.points = reference.center + z @ reference.factor.T
        log_p = [twin.softmax_terms(self.X, self.y, p).sum() - p @ p / 8.0 for p in self.points]
        self.p = np.exp(log_p - np.max(log_p))
        self.p /= self.p.sum()


@few_or_many("chains", 1200, 20_000)
@pytest.mark.parametrize("name", EXACT)
def test_exact_kernels_leave_an_enumerable_softmax_posterior_invariant(name, chains):
    lattice = SoftmaxLattice()
    kernel = KERNELS[name](lattice.model, proposal=lattice.propose)
    assert_fits(lattice.counts(kernel, chains, 2, np.random.default_rng(5)), lattice.p)


@pytest.mark.parametrize("name", RACES)
def test_races_are_within_their_promise_on_an_enumerable_softmax_posterior(name):
    lattice = SoftmaxLattice(400)
    kernel = KERNELS[name](lattice.model, proposal=lattice.propose)
    counts = lattice.counts(kernel, 1000, 2, np.random.default_rng(6))
    for count, p in zip(counts, lattice.p, strict=True):
        assert_rate_at_most(count, 1000, p + 2 * kernel.delta)
        assert_rate_at_most(1000 - count, 1000, 1.0 - p + 2 * kernel.delta)


def test_softmax_chains_agree_with_a_long_exact_run():
    X, y = classes(3000, 2, 4, 15)
    model = mcmc.Softmax(X, y, prior_sd=5.0)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=4000, n_chains=1, rng=1)
    for kernel in (
        mcmc.PoissonMinibatchMetropolis(model, control_variate=reference),
        mcmc.RacingMetropolis(model, 0.01, control_variate=reference),
    ):
        ours = mcmc.sample(kernel, n_draws=6000, n_chains=1, rng=2)
        assert_same_posterior(exact, ours, reference.center)
        assert ours.rows.mean() < 1500


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: mcmc.Softmax(X, y[:-1]), "y has shape"),
        (lambda X, y: mcmc.Softmax(X, y - 1), r"y\[\d+\] is -1; classes"),
        (lambda X, y: mcmc.Softmax(X, y + 0.5), "classes must be whole"),
        (lambda X, y: mcmc.Softmax(X, y, 2), "classes must be whole numbers from 0 to 1"),
        (lambda X, y: mcmc.Softmax(X, y, 1), "n_classes"),
        (lambda X, y: mcmc.Softmax(X[0], y), "X has shape"),
        (lambda X, y: mcmc.Softmax(X, np.where(y == 1, np.nan, y)), "finite"),
        (lambda X, y: mcmc.Softmax(X, y).reference([0.0]), "theta_hat"),
        (lambda X, y: mcmc.Softmax(X, y, prior_sd=[1.0]), "prior_sd"),
        (lambda X, y: mcmc.RacingMetropolis(mcmc.Softmax(X, y), access="shuffled"), "shuffle"),
    ],
)
def test_bad_softmax_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(*classes(100, 2, 3))


# ARCH.


def arch_returns(n, order, nu=6.0, seed=0):
    """Returns of an ARCH(order) model."""
    rng = np.random.default_rng(seed)
    weights = np.array([0.5, *(0.5 / order * np.ones(order))])
    r = np.zeros(n + 200)
    for t in range(order, len(r)):
        r[t] = np.sqrt(weights[0] + weights[1:] @ np.square(r[t - order : t][::-1])) * rng.standard_t(nu)
    return r[200:]


def arch_terms(returns, order):
    return lambda theta: arch_twin.log_likelihood_terms(
        returns, order, order, np.exp(theta[:-1]), np.exp(theta[-1])
    )


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("n", [40, 150])
def test_arch_terms_and_expansion_are_the_twins(order, n):
    returns = arch_returns(n, order, seed=order)
    returns[7] = 0.0
    model = mcmc.ARCH(returns, order)
    at = model.start + 0.3 * np.random.default_rng(1).standard_normal(model.dim)
    source, theta = assert_derivatives(model, at, arch_terms(returns, order))
    again = pickle.loads(pickle.dumps(source))
    rows = np.arange(model.n_rows)
    np.testing.assert_array_equal(again.read(rows), source.read(rows))
    theta[1] = at
    np.testing.assert_allclose(source.read(rows)[:, 1], 0.0, atol=1e-14)
    # row by row: third order in the distance
    moved = []
    for step in (0.02, 0.01):
        theta[1] = at + step
        moved.append(source.read(rows)[:, 1])
    np.testing.assert_allclose(moved[0], 8.0 * moved[1], atol=0.1 * np.abs(moved[0]).max())


def test_arch_of_impossible_parameters_rejects():
    model = mcmc.ARCH(arch_returns(100, 2), 2)
    for hat in (None, model.reference()):
        source, theta = model.engine(hat)
        theta[0], theta[1] = model.start, model.start
        for far in ([0, 800.0, 0, 0], [-800.0, 0, 0, 0], [0, 0, 0, 60.0]):
            theta[1] = model.start + far
            assert source.totals()[1] == -np.inf and np.isfinite(source.totals()[0])
        theta[1, 0] = np.nan
        assert np.isnan(source.read([0])[0, 1])


def test_exact_arch_chains_have_the_posterior_of_a_quadrature():
    """One lag and nu all but known: moments by a sum over a grid."""
    returns = arch_returns(400, 1, seed=4)
    sd = [2.0, 2.0, 1e-3]
    model = mcmc.ARCH(returns, 1, prior_mean=[-0.5, -0.7, np.log(6.0)], prior_sd=sd)
    reference = model.reference()
    grid = np.linspace(-7.0, 7.0, 57)
    points = reference.center + np.stack(np.meshgrid(grid, grid, [0.0], indexing="ij"), -1).reshape(-1, 3) \
        @ reference.factor.T
    source, theta = model.engine(None)
    log_p = np.empty(len(points))
    for i, point in enumerate(points):
        theta[0] = point
        log_p[i] = source.totals([0])[0] - 0.5 * np.square((point - model.prior_mean) / sd).sum()
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    for make, n, draws in ((mcmc.Metropolis, "exact", 8000), (mcmc.RacingMetropolis, 0.01, 8000)):
        kernel = make(model) if n == "exact" else make(model, n)
        a = mcmc.sample(kernel, n_draws=draws, n_chains=1, rng=3).draws[0]
        for j in range(2):
            for power in (1, 2):
                expected = p @ (points[:, j] - reference.center[j]) ** power
                b = (a[:, j] - reference.center[j]) ** power
                error = b.std() / np.sqrt(mcmc.effective_sample_size(b))
                promise = 0.0 if n == "exact" else 0.02 * b.std()
                assert abs(b.mean() - expected) < stats.norm.isf(1e-6 / 16) * error + promise


def test_arch_races_read_few_rows_of_a_long_series():
    model = mcmc.ARCH(arch_returns(30_000, 2, seed=6), 2)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=1500, n_chains=1, rng=1)
    race = mcmc.sample(mcmc.RacingMetropolis(model, 0.01, control_variate=reference), n_draws=3000, n_chains=1, rng=2)
    assert_same_posterior(exact, race, reference.center)
    assert race.rows.mean() < 0.5 * exact.rows.mean()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda r: mcmc.ARCH(r, 0), "order"),
        (lambda r: mcmc.ARCH(r, 65), "order"),
        (lambda r: mcmc.ARCH(r[:3], 3), "more than 3"),
        (lambda r: mcmc.ARCH(np.where(r == r[5], np.nan, r), 2), "finite"),
        (lambda r: mcmc.ARCH(0.0 * r, 2), "not all of them 0"),
        (lambda r: mcmc.ARCH(r, 2, prior_sd=-1.0), "prior_sd"),
        (lambda r: mcmc.ARCH(r, 2).reference([0.0]), "theta_hat"),
        (lambda r: mcmc.PoissonMinibatchMetropolis(mcmc.ARCH(r, 2)), "RacingMetropolis"),
        (lambda r: mcmc.TunaMetropolis(mcmc.ARCH(r, 2)), "bound"),
    ],
)
def test_bad_arch_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(arch_returns(100, 2))


# Expansions in the data.


def binned(family, n_rows=6000, **options):
    rng = np.random.default_rng(8)
    if family == "arch":
        return mcmc.Binned(mcmc.ARCH(arch_returns(n_rows, 2, seed=6), 2), **options)
    X = rng.standard_normal((n_rows, 3))
    X[:, 0] = 1.0
    y = outcomes(family, X, np.array([0.3, 0.5, -0.4]), rng)
    return mcmc.Binned(mcmc.GLM(X, y, family, **scale_of(family), prior_sd=5.0), **options)


@pytest.mark.parametrize("family", ["logistic", "gaussian", "poisson", "student-t", "arch"])
def test_binned_control_variates_know_their_sums_and_follow_the_terms(family):
    model = binned(family)
    source, theta = model.engine(None)
    plain, parameters = model.model.engine(None)
    at = model.model.reference().theta_hat
    rng = np.random.default_rng(1)
    for spread in (0.02, 0.5):      # near the mode and away from it
        theta[:] = parameters[:] = at + spread * rng.standard_normal((2, model.dim))
        np.testing.assert_allclose(source.totals(), plain.totals(), rtol=1e-9)
        left = np.subtract(*source.read(np.arange(source.n_rows)).T)
        whole = np.subtract(*plain.read(np.arange(model.n_rows)).T)
        assert left.std() < (1e-9 if family == "gaussian" else 0.2) * whole.std()
    assert f"{len(source.always_read)} rows always read" in repr(model)
    assert len(source.always_read) == 120 or family == "arch"


def test_binned_races_have_the_posterior():
    model = binned("logistic", 20_000)
    reference = model.model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model.model, control_variate=reference), n_draws=3000, n_chains=1, rng=1)
    kernel = mcmc.RacingMetropolis(model, 0.01, covariance=model.covariance)
    race = mcmc.sample(kernel, reference.center, n_draws=1500, n_chains=1, n_tune=0, rng=2)
    assert_same_posterior(exact, race, reference.center)
    assert race.rows.mean() < 0.6 * 20_000
    plain = mcmc.RacingMetropolis(model.model, control_variate=None, proposal="random-walk")
    assert race.rows.mean() < 0.6 * mcmc.sample(plain, n_draws=100, n_chains=1, n_tune=0, rng=1).rows.mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_bins": 0}, "n_bins"), ({"outliers": 1.0}, "outliers"), ({"at": [0.0]}, "theta_hat")],
)
def test_bad_bins(options, message):
    with pytest.raises(ValueError, match=message):
        binned("logistic", 200, **options)
    with pytest.raises(TypeError, match="GLM or an ARCH"):
        mcmc.Binned(mcmc.FunctionModel(divmod, 1, 5))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_explanatory_variables_must_be_finite(value, dtype):
    X = np.random.default_rng(0).normal(size=(5000, 2)).astype(dtype)
    y = (X[:, 0] > 0.0).astype(int)
    X[4500, 1] = value
    for make in (mcmc.GLM, mcmc.Softmax):
        with pytest.raises(ValueError, match=rf"X\[4500, 1\] is {value}; finite numbers are needed"):
            make(X, y, shuffle=1)
    with pytest.raises(ValueError, match="finite"):
        mcmc.ARCH(X[:, 1], 1)


@pytest.mark.parametrize("support", [(-0.001, 0.0), (-40.0, 0.0)])
@pytest.mark.parametrize("kind", ["gibbs", "own", "metropolis", "slice"])
def test_a_support_that_does_not_hold_is_told(kind, support):
    y, means = np.random.default_rng(0).normal(0.2, 1.0, 2000), np.array([0.0, 0.25, 0.5])
    if kind in ("metropolis", "slice"):
        def make():
            theta = np.zeros((2, 1))
            terms = lambda arms, rows: -0.5 * np.tanh(y[rows, None] - theta[arms, 0]) ** 2  # noqa: E731
            return CallableSource(terms, 2, 2000, support=support), theta
        race = mcmc.RacingMetropolis if kind == "metropolis" else mcmc.RacingSlice
        kernel = race(mcmc.SourceModel(make, prior_sd=1.0), covariance=[[0.01]])
    else:
        factors, sizes = (lambda s, rows, z: -0.5 * (y[rows, None] - means[s]) ** 2), None
        if kind == "own":
            factors, sizes = (lambda s, rows, z: -0.5 * (y[rows] - means[s]) ** 2), lambda z: [2000, 2000, 2000]
        bound = "serfling" if kind == "own" else "betting"
        kernel = mcmc.RacingGibbs([mcmc.Categorical(3, factors, 2000, sizes=sizes)], support=support, bound=bound)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            mcmc.sample(kernel, n_draws=5, n_chains=2, n_tune=0, rng=1)
    told = [w for w in seen if "outside support: the promise of the draws is void" in str(w.message)]
    assert len(told) == (2 if support[0] == -0.001 else 0)


def test_stats_of_a_sampler_print_what_voids_the_promise():
    y = np.random.default_rng(0).normal(size=(2000, 1))
    sampler = DiscreteSampler(y + [0.0, 0.01], support=(-0.001, 0.0), bound="betting", outside="warn", rng=0)
    sampler.draw_many(2)
    assert "warning: a reward lay outside the support" in str(sampler.stats)
