"""Log-likelihoods against plain twins, vector exp and log against 80-bit arithmetic, differences of arms."""

import math
import pickle

import numpy as np
import pytest

from fastrace import likelihoods, mcmc
from fastrace.likelihoods import GLMSource, PairSource
from fastrace.sources import ArraySource
from reference import sources as twin

FAMILIES = ["logistic", "gaussian", "poisson", "student-t", "binomial", "probit", "cloglog", "negative-binomial",
            "gamma"]


def problem(rng, family, n_rows=300, p=7, n_arms=3, dtype=np.float64):
    X = rng.standard_normal((n_rows, p)).astype(dtype)
    theta = 0.5 * rng.standard_normal((n_arms, p))
    eta = X @ theta[0]
    y = {"logistic": lambda: (rng.random(n_rows) < 1 / (1 + np.exp(-eta))).astype(float),
         "gaussian": lambda: eta + 2.0 * rng.standard_normal(n_rows),
         "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
         "student-t": lambda: eta + rng.standard_t(4, n_rows),
         "binomial": lambda: (rng.random(n_rows) < 0.4).astype(float),
         "probit": lambda: (eta + rng.standard_normal(n_rows) > 0.0).astype(float),
         "cloglog": lambda: (rng.random(n_rows) < -np.expm1(-np.exp(eta))).astype(float),
         "negative-binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(1 / 1.5, 1.5, n_rows)).astype(float),
         "gamma": lambda: rng.gamma(1 / 1.5, 1.5 * np.exp(eta))}[family]()
    return X, y, theta


def make(rng, family, **arguments):
    X, y, theta = problem(rng, family, **arguments)
    return GLMSource(X, y, theta, family, scale=1.5, df=3.5)


# Families: their bounds by differences, without a line of their own here


def test_every_family_has_a_twin():
    needed = "a new family needs a twin in tests/reference/sources.py, outcomes in `problem` and `test_equals_scipy`"
    assert list(likelihoods._FAMILIES) == FAMILIES, needed


@pytest.mark.parametrize("family", list(likelihoods._FAMILIES))
def test_derivatives_and_bounds_of_a_family_hold(family):
    """By differences in eta, at outcomes of the kind that the family takes."""
    scale, df = (0.7, 3.5) if family in likelihoods.SCALED else (None, 4.0)
    source = GLMSource(np.ones((2, 1)), [1.0, 1.0], None, family, scale, df)
    outcomes = {"binary": [0.0, 1.0], "count": [0.0, 1.0, 4.0], "real": [-2.0, 0.0, 0.5],
                "share": [0.0, 1.0, 0.3], "positive": [0.0, 1.0, 4.0]}[source.outcomes]
    h, eta = 1e-4, np.linspace(-6.0, 6.0, 2001)
    parts = []
    for y in outcomes:
        (up, up1, up2), (down, down1, down2) = (source.expand(y, eta + sign * h) for sign in (1, -1))
        value, slope, bend = source.expand(y, eta)
        size = 1.0 + np.abs(value) + np.abs(bend)
        assert (np.abs((up - down) / (2 * h) - slope) < 1e-6 * size).all()
        assert (np.abs((up1 - down1) / (2 * h) - bend) < 1e-6 * size).all()
        assert (np.abs(slope) <= source.steepest * (1.0 + 1e-12)).all()
        third = np.abs(up2 - down2) / (2 * h)
        low = eta - y if source.of_residual else eta
        assert (third <= source.third_derivatives(low - h, low + h) + 1e-7 * size).all()
        assert (third <= source.third_derivatives(low - h, low + h, y) + 1e-7 * size).all()
        wide = source.third_derivatives(low - 1.5, low + 1.5, y)      # 1.5 is 250 steps of the grid
        for i in range(250, 1750, 50):
            largest = third[i - 250:i + 251].max()
            assert largest - 1e-6 * size[i] <= wide[i] <= max(largest, 1e-4) * 1.01 + 1e-4 * size[i]
        parts.append((value, slope, bend))
        if source.of_residual:
            for ours, moved in zip(parts[-1], source.expand(y + 1.5, eta + 1.5), strict=True):
                np.testing.assert_allclose(ours, moved, rtol=1e-9, atol=1e-12)
    if source.outcomes in ("count", "positive"):      # linear in the outcome
        for zero, single, four in zip(*parts, strict=True):
            np.testing.assert_allclose(four, zero + 4.0 * (single - zero), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", list(likelihoods._FAMILIES))
def test_a_model_of_every_family_has_a_mode_and_kernels(family, rng):
    X = np.column_stack([np.ones(400), rng.standard_normal((400, 2))])
    y = np.minimum(np.abs(np.rint(rng.standard_normal(400))), 1.0)
    scale = {"scale": 1.0} if family in likelihoods.SCALED else {}
    model = mcmc.GLM(X, y + 0.5 if family == "gamma" else y, family, **scale, prior_sd=10.0)
    reference = model.reference()
    value, gradient, _ = model._log_posterior(reference.theta_hat)
    np.testing.assert_allclose(gradient @ reference.factor, 0.0, atol=1e-4)
    for kernel in (mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis):
        trace = mcmc.sample(kernel(model), n_draws=20, n_chains=1, n_tune=0, rng=1)
        assert trace.rows.mean() < 400 and np.isfinite(trace.draws).all()
    assert np.isfinite(mcmc.Binned(model).engine(None)[0].totals()).all()


# The twins


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 3, 4, 7, 20, 130])
def test_equals_its_twin(family, dtype, p, rng):
    X, y, theta = problem(rng, family, p=p, dtype=dtype)
    theta /= math.sqrt(p)
    source = GLMSource(X, y, theta, family, scale=1.5, df=3.5)
    rows, arms = rng.integers(0, len(X), 41), [2, 0]
    expected = twin.glm_rewards(X, y, theta, family, rows, arms, 1.5, 3.5)
    np.testing.assert_allclose(source.read(rows, arms), expected, rtol=2e-13, atol=1e-14)
    everything = twin.glm_rewards(X, y, theta, family, range(len(X)), range(3), 1.5, 3.5)
    np.testing.assert_allclose(source.totals(), everything.sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("family, distribution", [
    ("logistic", lambda stats, y, eta: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-eta)))),
    ("gaussian", lambda stats, y, eta: stats.norm.logpdf(y, eta, 1.5)),
    ("poisson", lambda stats, y, eta: stats.poisson.logpmf(y, np.exp(eta))),
    ("student-t", lambda stats, y, eta: stats.t.logpdf(y, 3.5, eta, 1.5)),
    ("binomial", lambda stats, y, eta: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-eta)))),
    ("probit", lambda stats, y, eta: stats.bernoulli.logpmf(y, stats.norm.cdf(eta))),
    ("cloglog", lambda stats, y, eta: np.where(y > 0, np.log(-np.expm1(-np.exp(eta))), -np.exp(eta))),
    ("negative-binomial", lambda stats, y, eta: stats.nbinom.logpmf(y, 1 / 1.5, 1 / (1 + 1.5 * np.exp(eta)))),
    ("gamma", lambda stats, y, eta: stats.gamma.logpdf(y, 1 / 1.5, scale=1.5 * np.exp(eta))),
])
def test_equals_scipy(family, distribution, rng):
    from scipy import stats
    X, y, theta = problem(rng, family)
    source = GLMSource(X, y, theta, family, scale=1.5, df=3.5)
    exact = distribution(stats, y[:, None], X @ theta.T)
    np.testing.assert_allclose(source.totals() + source.constant, exact.sum(axis=0), rtol=1e-11)
    assert (source.constant == 0.0) == (family not in ("poisson", "negative-binomial", "gamma"))


def test_binomial_trials_equal_scipy(rng):
    from scipy import stats
    X, _, theta = problem(rng, "binomial")
    trials = rng.integers(0, 9, len(X))
    y, weights = rng.binomial(trials, 0.4), rng.integers(0, 3, len(X))
    source = GLMSource(X, y, theta, "binomial", trials=trials, weights=weights)
    exact = stats.binom.logpmf(y[:, None], trials[:, None], 1 / (1 + np.exp(-X @ theta.T)))
    np.testing.assert_allclose(source.totals() + source.constant, weights @ exact, rtol=1e-11)
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again.totals(), source.totals())


# Learned scales: the last parameter is the logarithm of the scale


def learning(rng, family, log_scale=0.4, n_rows=300):
    X, y, theta = problem(rng, family, n_rows=n_rows)
    arms = np.column_stack([theta, log_scale + 0.1 * rng.standard_normal(len(theta))])
    return GLMSource(X, y, arms, family, df=3.5, learn_scale=True)


@pytest.mark.parametrize("log_scale", [0.4, -12.0])
@pytest.mark.parametrize("family", list(likelihoods.SCALED))
def test_learned_scales_equal_the_twin(family, log_scale, rng):
    source = learning(rng, family, log_scale)
    for j, arm in enumerate(source.theta):
        eta, scale = source.X @ arm[:-1], math.exp(arm[-1])
        terms = [twin.log_likelihood(family, e, y, scale, 3.5) for e, y in zip(eta, source.y, strict=True)]
        found = source.read(np.arange(300), [j])[:, 0]
        if log_scale > -1.0:
            rest = [twin.left_out(family, y, scale) for y in source.y]
            np.testing.assert_allclose(found, np.add(terms, rest), rtol=1e-11, atol=1e-12)
        fixed = GLMSource(source.X, source.y, arm[:-1], family, scale, 3.5)
        apart = source.totals()[j] + source.constant - fixed.totals()[0] - fixed.constant
        assert abs(apart) < 1e-11 * np.abs(terms).sum()
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again.totals(), source.totals())
    assert again.learns_scale


@pytest.mark.parametrize("log_scale", [-700.0, -400.0, -100.0, -40.0, -25.0])
def test_a_tiny_dispersion_is_the_poisson_limit(log_scale, rng):
    """The term is Poisson's plus ((y - m)^2 - y) scale / 2, and so are its derivatives in log(dispersion)."""
    X, y, theta = rng.standard_normal((200, 2)), rng.poisson(2.0, 200).astype(float), np.array([0.5, -0.3])
    at, m = np.append(theta, log_scale), np.exp(X @ theta)
    source = GLMSource(X, y, at[None], "negative-binomial", learn_scale=True)
    np.testing.assert_allclose(source.read(np.arange(200), [0])[:, 0], y * (X @ theta) - m, rtol=1e-8, atol=1e-8)
    of_scale, mixed, twice = source.mixed_derivatives(at)
    tail, across = 0.5 * ((y - m) ** 2 - y) * math.exp(log_scale), m * (m - y) * math.exp(log_scale)
    for found, right in ((of_scale, tail), (mixed, across), (twice, tail)):
        np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-8 * math.exp(log_scale))


@pytest.mark.parametrize("log_scale", [-700.0, -355.0, -19.0, 0.0, 20.0, 50.0])
def test_terms_of_any_dispersion_are_finite(log_scale, rng):
    X, y = rng.standard_normal((200, 2)), rng.poisson(2.0, 200).astype(float)
    source = GLMSource(X, y, np.array([[0.5, -0.3, log_scale]]), "negative-binomial", learn_scale=True)
    assert np.isfinite(source.totals()).all()
    for found in (*source.derivatives(source.theta[0]), *source.mixed_derivatives(source.theta[0])):
        assert np.isfinite(found).all()


@pytest.mark.parametrize("log_scale", [0.4, -3.0, 3.0])
@pytest.mark.parametrize("family", list(likelihoods.SCALED))
def test_derivatives_and_bounds_in_a_learned_scale_hold(family, log_scale, rng):
    """By differences; third derivatives against their bounds over the stretch of each difference."""
    source, h = learning(rng, family, log_scale), 1e-5
    hat, eta, y = source.theta[0], source.X @ source.theta[0, :-1], np.asarray(source.y)
    value, slope, bend = source.derivatives(hat)
    of_scale, mixed, twice = source.mixed_derivatives(hat)
    up, down = hat.copy(), hat.copy()
    up[-1] += h
    down[-1] -= h
    high, low = (source.derivatives(at) + source.mixed_derivatives(at) for at in (up, down))
    moved = [(a - b) / (2 * h) for a, b in zip(high, low, strict=True)]
    size = 1.0 + np.abs(value) + np.abs(slope) + np.abs(bend) + np.abs(of_scale) + np.abs(twice)
    for ours, differences in ((of_scale, moved[0]), (mixed, moved[1]), (twice, moved[3])):
        assert (np.abs(ours - differences) < 1e-5 * size).all()
    bounds = source.mixed_third_derivatives(eta, eta, y, down[-1], up[-1])
    for bound, third in zip(bounds[1:], (moved[2], moved[4], moved[5]), strict=True):
        assert (np.abs(third) <= bound * (1.0 + 1e-4) + 1e-4 * size).all()
    wide = source.mixed_third_derivatives(eta - 0.5, eta + 0.5, y, hat[-1] - 0.3, hat[-1] + 0.3)
    assert (wide >= bounds * (1.0 - 1e-4)).all()


@pytest.mark.parametrize("family", list(likelihoods.SCALED))
def test_a_learned_scale_has_the_posterior_of_the_estimate(family, rng):
    """The mode, the residuals of the expansion there, their bounds, and both kinds of kernel."""
    X, y, _ = problem(rng, family, n_rows=600, p=2)
    model = mcmc.GLM(X, y, family, df=3.5, prior_sd=5.0, weights=rng.integers(1, 3, 600))
    assert model.names[-1] == ("log(scale)" if family in ("gaussian", "student-t") else "log(dispersion)")
    reference = model.reference()
    value, gradient, hessian = model.expand_seen(reference.theta_hat)
    np.testing.assert_allclose(gradient - reference.theta_hat / 25.0, 0.0, atol=1e-2)
    left, theta = model.engine(reference)
    plain, same = model.engine(None)
    whitened = rng.standard_normal((2, 3))
    theta[:] = same[:] = reference.theta_hat + whitened @ reference.factor.T
    for arm in range(2):
        step = theta[arm] - reference.theta_hat
        expansion = value + gradient @ step + 0.5 * step @ hessian.to_dense() @ step
        assert abs(plain.totals()[arm] - expansion - left.totals()[arm]) < 1e-9 * (1.0 + abs(value))
    assert np.linalg.norm(whitened, axis=1).max() < reference.radius
    farthest, apart = np.linalg.norm(whitened, axis=1).max(), np.linalg.norm(whitened[1] - whitened[0])
    bound = reference.weights * 0.5 * farthest**2 * apart
    change = np.abs(np.diff(left.read(np.arange(600)), axis=1)[:, 0])
    assert (change <= bound * (1.0 + 1e-9) + reference.rounding).all()
    for kernel in (mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis):
        trace = mcmc.sample(kernel(model), n_draws=50, n_chains=1, n_tune=0, rng=1)
        assert np.isfinite(trace.draws).all()

@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_reward_depends_on_its_row_and_arm_alone(family, dtype, rng):
    source = make(rng, family, n_rows=700, p=21, n_arms=5, dtype=dtype)
    block = source.read(np.arange(700))
    for _ in range(20):
        rows = rng.integers(0, 700, rng.integers(1, 700))
        arms = rng.permutation(5)[: rng.integers(1, 6)]
        np.testing.assert_array_equal(source.read(rows, arms), block[np.ix_(rows, arms)])


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layouts_give_the_same_bits(layout, dtype, rng):
    X, y, theta = problem(rng, "logistic", dtype=dtype, n_rows=600)
    plain, other = GLMSource(X, y, theta), GLMSource(LAYOUTS[layout](X), y, theta)
    assert not other.X.flags.c_contiguous
    assert other.X.dtype == dtype
    rows = rng.integers(0, 600, 333)
    np.testing.assert_array_equal(other.read(rows), plain.read(rows))
    np.testing.assert_array_equal(other.totals(), plain.totals())
    np.testing.assert_array_equal(other.derivatives(theta[0]), plain.derivatives(theta[0]))


@pytest.mark.parametrize("convert", [
    lambda x: x.astype(np.float16), lambda x: np.rint(x).astype(np.int8), lambda x: x > 0,
    lambda x: x.astype(">f8"), lambda x: x.astype(np.longdouble), lambda x: x.tolist(),
    lambda x: np.broadcast_to(x[:1], x.shape),
], ids=range(7))
def test_kinds_of_arrays(convert, rng):
    X, y, theta = problem(rng, "logistic")
    X = convert(X)
    copy = np.array(X, dtype=np.float64)
    np.testing.assert_array_equal(GLMSource(X, y, theta).totals(), GLMSource(copy, y, theta).totals())
    np.testing.assert_array_equal(np.asarray(X, dtype=np.float64), copy)


def test_large_x_is_read_in_place(tmp_path, rng):
    X, y, theta = problem(rng, "gaussian", dtype=np.float32)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    source = GLMSource(mapped, y, theta, "gaussian", 1.0)
    assert np.shares_memory(source.X, mapped)
    np.testing.assert_array_equal(source.totals(), GLMSource(X, y, theta, "gaussian", 1.0).totals())


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_arms_go_through_blas(layout, dtype, rng):
    X, y, theta = problem(rng, "logistic", p=70, n_arms=40, n_rows=600, dtype=dtype)
    source = GLMSource(layout(X), y, theta / 8)
    rows = rng.integers(0, 600, 555)
    arms = rng.permutation(40)
    one_by_one = np.column_stack([source.read(rows, [arm])[:, 0] for arm in arms])
    np.testing.assert_allclose(source.read(rows, arms), one_by_one, rtol=1e-12)
    np.testing.assert_allclose(source.totals(), [source.totals([arm])[0] for arm in range(40)], rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_derivatives(family, rng):
    X, y, theta = problem(rng, family)
    source = GLMSource(X, y, theta, family, scale=1.5, df=3.5)
    value, slope, curvature = source.derivatives(theta[1])
    np.testing.assert_allclose(value, source.read(np.arange(300), [1])[:, 0], rtol=1e-13)
    expected = np.array([twin.derivatives(family, eta, yn, 1.5, 3.5)
                         for eta, yn in zip(X @ theta[1], y, strict=True)])
    np.testing.assert_allclose(slope, expected[:, 0], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(curvature, expected[:, 1], rtol=1e-11, atol=1e-13)
    part = source.derivatives(theta[1], 17, 100)
    np.testing.assert_array_equal(part[2], curvature[17:117])
    step = 1e-5
    up, down = (source.derivatives(theta[1] + sign * step * np.eye(7)[0])[0] for sign in (1, -1))
    np.testing.assert_allclose((up - down) / (2 * step), slope * X[:, 0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("first, count", [(-1, 2), (0, 301), (300, 1), (5, -1)])
def test_derivatives_outside_the_rows(first, count, rng):
    with pytest.raises(ValueError, match="the source has rows 0 to 300"):
        make(rng, "gaussian").derivatives(np.zeros(7), first, count)


# Vector functions, through the families that show them bare


def ulps(value, exact):
    """Error in units of the last place of the exact answer."""
    nearest = np.abs(exact).astype(np.float64)
    spacing = np.nextafter(nearest, np.inf) - nearest
    return float(np.max(np.abs(value - exact) / spacing))


def grid(rng, low, high):
    x = rng.uniform(low, high, 100_000)
    return np.concatenate([x, x * 1e-3, x * 1e-7, np.linspace(low, high, 1001), [0.0]])


needs_longdouble = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no arithmetic beyond double")


@needs_longdouble
@pytest.mark.parametrize("low, high", [(-700, 700), (-1, 1), (-40, 40)])
def test_exp_is_accurate(low, high, rng):
    x = grid(rng, low, high)
    source = GLMSource(x[:, None], np.zeros(len(x)), [[1.0]], "poisson")
    assert ulps(-source.read(np.arange(len(x)))[:, 0], np.exp(x.astype(np.longdouble))) < 1.5


@needs_longdouble
@pytest.mark.parametrize("low, high", [(-700, 700), (-3, 3), (-40, 40)])
def test_softplus_is_accurate(low, high, rng):
    x = grid(rng, low, high)
    source = GLMSource(x[:, None], np.zeros(len(x)), [[1.0]], "logistic")
    wide = x.astype(np.longdouble)
    exact = np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide)))
    assert ulps(-source.read(np.arange(len(x)))[:, 0], exact) < 3.5


@needs_longdouble
@pytest.mark.parametrize("high", [1e-3, 3.0, 1e6, 1e150])
def test_log1p_is_accurate(high, rng):
    x = grid(rng, -high, high)
    source = GLMSource(x[:, None], np.zeros(len(x)), [[1.0]], "student-t", 1.0, df=1.0)     # -log(pi) - log1p(x^2)
    exact = -np.log(np.longdouble(np.pi)) - np.log1p((x * x).astype(np.longdouble))
    assert ulps(source.read(np.arange(len(x)))[:, 0], exact) < 4


@pytest.mark.parametrize("family, eta, expected", [
    ("logistic", [800, -800, 1e300, -1e300], [-800.0, 0.0, -1e300, 0.0]),
    ("poisson", [800, -800, 709.7, -745.1], [-math.inf, 0.0, -math.exp(709.7), -5e-324]),
    ("student-t", [1e200, -1e200, 0.0, 1e-200], [-math.inf, -math.inf, -math.log(math.pi), -math.log(math.pi)]),
    ("gaussian", [1e200, 0.0, 0.0, 0.0], [-math.inf] + [-0.5 * math.log(2 * math.pi)] * 3),
])
def test_extremes(family, eta, expected):
    source = GLMSource(np.array(eta)[:, None], np.zeros(4), [[1.0]], family, 1.0, df=1.0)
    np.testing.assert_allclose(source.read(range(4))[:, 0], expected, rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_x_that_is_not_finite_is_refused(bad, dtype):
    """A rule that did not read the row used to decide as if all were well."""
    X = np.ones((9000, 2), dtype)
    X[8191, 1] = bad
    with pytest.raises(ValueError, match=rf"X\[8191, 1\] is {bad}; finite numbers are needed"):
        GLMSource(X, np.ones(9000), np.zeros((2, 2)))


@pytest.mark.parametrize("family", FAMILIES)
def test_nan_and_infinity_in_x_arrive_as_nan(family):
    X = [[math.nan, 1.0], [math.inf, -math.inf], [0.0, 0.0]]
    source = GLMSource(X, [1, 1, 1], [[1.0, 1.0]], family, 1.0, check_finite=False)
    assert np.isnan(source.read([0, 1, 2])[:, 0]).tolist() == [True, True, False]


# Parameters


def test_theta_is_replaced_and_copied(rng):
    X, y, theta = problem(rng, "logistic")
    source = GLMSource(X, y, theta)
    new = rng.standard_normal((3, 7))
    for given in (new, np.asfortranarray(new), new.tolist(), new.astype(">f8")):
        source.theta = np.zeros((3, 7))
        source.theta = given
        np.testing.assert_array_equal(source.theta, new)
    np.testing.assert_array_equal(source.totals(), GLMSource(X, y, new).totals())
    source.set_theta(theta.astype(np.float32))
    np.testing.assert_array_equal(source.theta, theta.astype(np.float32))
    source.theta[0, 0] = 99.0
    new[0, 0] = 77.0
    assert source.theta[0, 0] == np.float32(theta[0, 0])


@pytest.mark.parametrize("theta, words", [
    (np.zeros((2, 7)), r"shape \(2, 7\); \(3, 7\)"),
    (np.zeros(7), r"shape \(7,\)"),
    (np.full((3, 7), np.nan), "holds nan"),
    (np.where(np.eye(3, 7), -np.inf, 0.0), "holds -inf"),
])
def test_bad_theta_changes_nothing(theta, words, rng):
    source = make(rng, "gaussian")
    before = source.theta
    with pytest.raises(ValueError, match=words):
        source.theta = theta
    np.testing.assert_array_equal(source.theta, before)


def test_one_parameter_vector_is_one_arm(rng):
    X, y, theta = problem(rng, "gaussian")
    assert GLMSource(X, y, theta[0], "gaussian", 1.0).n_arms == 1


@pytest.mark.parametrize("change, words", [
    ({"family": "no such"}, "'logistic', 'gaussian', 'poisson', 'student-t'"),
    ({"scale": 0.0}, "scale is 0.0"),
    ({"family": "gaussian"}, "scale is missing"),
    ({"family": "student-t"}, "scale is missing"),
    ({"scale": math.nan}, "scale is nan"),
    ({"df": -1}, "df is -1"),
    ({"X": np.zeros(5)}, r"X has shape \(5,\)"),
    ({"X": np.zeros((5, 0)), "theta": np.zeros((1, 0))}, r"X has shape \(5, 0\)"),
    ({"X": np.zeros((5, 2), dtype=complex)}, "complex128"),
    ({"y": np.zeros(4)}, r"y has shape \(4,\)"),
    ({"y": ["a"] * 5}, "<U1"),
    ({"y": [0, 1, 2, 0, 0]}, r"y\[2\] is 2.*must be 0 or 1"),
    ({"y": [0, math.nan, 1, 0, 0]}, r"y\[1\] is nan"),
    ({"y": [0, -1, 1, 0, 0], "family": "poisson"}, r"y\[1\] is -1.*whole number"),
    ({"y": [0, 0.5, 1, 0, 0], "family": "poisson"}, r"y\[1\] is 0.5"),
    ({"y": [0, math.inf, 1, 0, 0], "family": "gaussian", "scale": 1.0}, r"y\[1\] is inf.*finite"),
    ({"y": [0, 1, 2, 0, 0], "family": "binomial", "trials": [1, 1, 1, 1, 1]}, r"y\[2\] is 2 of 1 trials"),
    ({"family": "binomial", "trials": [1, -1, 1, 1, 1]}, r"trials\[1\] is -1"),
    ({"family": "binomial", "trials": [1, 1.5, 1, 1, 1]}, r"trials\[1\] is 1.5; each must be a whole number"),
    ({"family": "binomial", "trials": [1, 1]}, r"trials has shape \(2,\)"),
    ({"trials": [1] * 5}, "'logistic' family has none"),
    ({"family": "gamma", "scale": 1.0}, r"y\[0\] is 0.0; each outcome of the gamma family must be positive"),
    ({"learn_scale": True}, "'logistic' family has no scale"),
    ({"learn_scale": True, "scale": 2.0, "family": "gaussian"}, "given or learned"),
    ({"family": "negative-binomial"}, "scale is missing.*dispersion"),
    ({"theta": np.zeros((2, 3))}, r"theta has shape \(2, 3\); \(2, 2\)"),
    ({"theta": np.zeros((0, 2))}, r"theta has shape \(0, 2\)"),
    ({"theta": [[0.0, math.inf]]}, "theta holds inf"),
])
def test_bad_arguments(change, words):
    arguments = {"X": np.ones((5, 2)), "y": np.zeros(5), "theta": np.zeros((2, 2))} | change
    with pytest.raises(ValueError, match=words):
        GLMSource(**arguments)


@pytest.mark.parametrize("family", FAMILIES)
def test_pickles(family, rng):
    source = make(rng, family)
    source.support = (-50, 0)
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again.totals(), source.totals())
    assert (again.family, again.scale, again.df, again.support) == (family, 1.5, 3.5, (-50, 0))
    again.theta = np.zeros((3, 7))
    assert np.any(source.theta)


# Differences


@pytest.mark.parametrize("family", FAMILIES)
def test_pair_is_the_difference_of_two_arms(family, rng):
    source = make(rng, family)
    pair = PairSource(source, 2, 0)
    assert (pair.arm_a, pair.arm_b, pair.n_arms, pair.n_rows) == (2, 0, 1, 300)
    rows = rng.integers(0, 300, 77)
    block = source.read(rows)
    np.testing.assert_array_equal(pair.read(rows)[:, 0], block[:, 0] - block[:, 2])
    everything = source.totals()
    np.testing.assert_allclose(pair.totals(), everything[0] - everything[2], rtol=1e-12)
    source.theta = source.theta[[1, 1, 1]]
    np.testing.assert_array_equal(pair.read(rows), 0.0)


def test_pair_of_any_source_with_its_support(rng):
    values = rng.random((50, 3))
    assert PairSource(ArraySource(values)).support is None
    assert PairSource(ArraySource(values, support=(0, 1))).support == (-1, 1)
    pair = PairSource(ArraySource(values, support=([0, -1, -2], [1, 2, 5])), 1, 2)
    assert pair.support == (-4, 6)
    np.testing.assert_allclose(pair.totals(), [values[:, 2].sum() - values[:, 1].sum()], rtol=1e-12)
    again = pickle.loads(pickle.dumps(pair))
    assert again.support == (-4, 6)
    np.testing.assert_array_equal(again.read([3, 1]), pair.read([3, 1]))


@pytest.mark.parametrize("arms, words", [((0, 3), "arm_b is 3"), ((-1, 0), "arm_a is -1")])
def test_pair_of_arms_that_are_not_there(arms, words):
    with pytest.raises(ValueError, match=words):
        PairSource(ArraySource(np.zeros((2, 3))), *arms)


def test_gaussian_totals_come_from_sufficient_statistics(rng):
    """One pass for the first full pass, none for those after; right near the first parameters and far from them."""
    x = rng.normal(size=(20_000, 4)).astype(np.float32)
    y = x @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=20_000)
    source = GLMSource(x, y, rng.normal(size=(3, 4)), "gaussian", scale=1.5)
    for spread in (1e-3, 1.0, 100.0):
        source.theta = [1.0, -2.0, 0.5, 0.0] + spread * rng.normal(size=(3, 4))
        plain = source.read(np.arange(20_000)).sum(axis=0)
        np.testing.assert_allclose(source.totals(), plain, rtol=1e-11)
        np.testing.assert_allclose(PairSource(source, 0, 2).totals()[0], plain[2] - plain[0], rtol=1e-8)
    assert source.scan_advantage > 1e6


@pytest.mark.parametrize(("family", "y"), [("cloglog", 0.0), ("poisson", 0.0), ("gamma", 1.0)])
def test_a_row_of_weight_0_is_none_where_its_term_is_infinite(family, y):
    """Its product with 0 was nan, which ended chains that went so far out."""
    far = -800.0 if family == "gamma" else 800.0
    source = GLMSource(np.ones((2, 1)), [1.0, y], [[far]], family, weights=[0, 0], **(
        {"scale": 1.0} if family == "gamma" else {}))
    assert source.totals([0]).tolist() == [0.0]
