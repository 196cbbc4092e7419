"""Priors as objects: what they mean, the joint prior they make, natural scales, and densities of a user's own."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import LowLevelCallable, sparse, stats

from fastrace import mcmc
from fastrace.mcmc.models._joint import Effects, Layout, constrained, joint_prior, moments_of, unconstrained
from reference import priors as plain

CLINIC = Effects("clinic", 3, ("1", "a"), (1.0, 2.0), True)
WARD = Effects("ward", 2, ("1",), (1.0,), True)


def layout(**other):
    parts = {"columns": ("1", "a", "b"), "means": (1.0, 0.0, 0.0), "spreads": (0.0, 2.0, 0.5), "factors": (),
             "aux": None, "n_observations": 100, "center": 3.0, "noise": 2.0, "row_noise": 2.0}
    return Layout(**(parts | other))


def quartic(b):
    return -float((b**4).sum())


def of_quartic(b):
    return -4.0 * b**3


SCALES = [(mcmc.HalfNormal(1.5), stats.halfnorm(scale=1.5)), (mcmc.HalfCauchy(0.7), stats.halfcauchy(scale=0.7)),
          (mcmc.Exponential(2.0), stats.expon(scale=0.5)), (mcmc.Gamma(2.0, 3.0), stats.gamma(2.0, scale=1 / 3)),
          (mcmc.LogNormal(0.3, 0.8), stats.lognorm(0.8, scale=np.exp(0.3)))]


@pytest.mark.parametrize(("scale", "truth"), SCALES, ids=[type(s).__name__ for s, _ in SCALES])
def test_scales_have_the_density_of_their_name(scale, truth):
    prior, names, _ = joint_prior(layout(), mcmc.Normal(0.0, scale))
    assert names == ["sd(coefficients)"]
    for x in (0.05, 0.9, 4.0):
        assert prior.hyper_value([np.log(x)]) == pytest.approx(truth.logpdf(x) + np.log(x), rel=1e-12)


def test_half_student_is_twice_the_student_density():
    prior, _, _ = joint_prior(layout(), mcmc.Laplace(0.0, mcmc.HalfStudentT(3.0, 2.5)))
    truth = np.log(2.0) + stats.t(3.0, scale=2.5).logpdf(1.7) + np.log(1.7)
    assert prior.hyper_value([np.log(1.7)]) == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize(
    ("prior", "truth"),
    [(mcmc.Normal(1.0, 2.0), stats.norm(1.0, 2.0)), (mcmc.StudentT(3.0, 1.0, 2.0), stats.t(3.0, 1.0, 2.0)),
     (mcmc.Laplace(1.0, 2.0), stats.laplace(1.0, 2.0))], ids=["normal", "student", "laplace"])
def test_coefficients_have_the_density_of_their_name(prior, truth):
    joint, names, _ = joint_prior(layout(), prior)
    assert names == []
    point = np.array([0.3, -1.0, 5.0])
    assert joint.value_and_gradient(point)[0] == pytest.approx(truth.logpdf(point).sum(), rel=1e-12)


def test_horseshoe_is_that_of_its_paper():
    """Piironen & Vehtari (2017), equations 2.8 and 3.12, written with densities on the natural scale."""
    prior, names, _ = joint_prior(layout(), mcmc.Horseshoe(expected_nonzero=1.0, slab_scale=1.5, slab_df=5.0))
    assert names == ["global_scale(coefficients)", "slab_scale(coefficients)", "local_scale(a)", "local_scale(b)"]
    beta, tau, slab, local = np.array([0.4, -0.1]), 0.3, 1.2, np.array([2.0, 0.4])
    scale = np.sqrt(slab**2 * local**2 / (slab**2 + tau**2 * local**2)) * tau
    truth = stats.norm(0.0, scale).logpdf(beta).sum() + stats.halfcauchy.logpdf(local).sum()
    truth += stats.halfcauchy(scale=1.0 / 1.0 * 2.0 / 10.0).logpdf(tau)
    truth += stats.invgamma(2.5, scale=2.5 * 1.5**2).logpdf(slab**2) + np.log(2 * slab)
    truth += np.log(tau * slab * local.prod())
    truth += stats.norm(3.0, 5.0).logpdf(0.2)           # the intercept is not shrunk
    point = unconstrained(prior, np.concatenate([[0.2], beta, [tau, slab], local]))
    assert prior.value_and_gradient(point)[0] == pytest.approx(truth, rel=1e-12)


def test_defaults_are_in_units_of_the_data():
    joint, names, _ = joint_prior(layout(factors=(CLINIC,)))
    assert names == ["sd(1|clinic)", "sd(a|clinic)", "correlation(1,a|clinic)"]
    assert joint.given[0] == (("normal", 3.0, 5.0, 0.0, -1), ("normal", 0.0, 2.5, 0.0, -1),
                              ("normal", 0.0, 10.0, 0.0, -1))
    assert joint.given[2] == ((3, [("half-normal", 5.0, 0.0), ("half-normal", 2.5, 0.0)], 2.0),)


def test_priors_by_name():
    both = layout(factors=(CLINIC, WARD), aux="scale")
    joint, names, _ = joint_prior(
        both, {"intercept": mcmc.StudentT(), "b": mcmc.Normal(0.0, mcmc.HalfNormal())},
        {"clinic": {"sd": {"a": mcmc.Exponential(3.0)}, "correlation": mcmc.LKJ(4.0)}, "ward": mcmc.HalfCauchy(2.0)},
        mcmc.HalfStudentT(4.0, 2.0))
    assert [c[0] for c in joint.given[0]] == ["student", "normal", "normal"]
    assert names == ["sd(b)", "sd(1|clinic)", "sd(a|clinic)", "correlation(1,a|clinic)", "sd(1|ward)"]
    assert joint.given[2][0][1:] == ([("half-normal", 5.0, 0.0), ("gamma", 1.0, 3.0)], 4.0)
    assert joint.given[2][1] == (2, [("half-student", 2.0, 1.0)], None)


def shared_priors():
    lasso = mcmc.Laplace(0.0, mcmc.HalfCauchy(0.5))
    return [(lasso, ["scale(coefficients)"]), (mcmc.Normal(1.0, mcmc.HalfNormal(2.0)), ["sd(coefficients)"]),
            (mcmc.Horseshoe(expected_nonzero=1.0), [f"{word}_scale(coefficients)" for word in ("global", "slab")] + [
                f"local_scale({name})" for name in "abc"])]


@pytest.mark.parametrize("prior, names", shared_priors())
def test_columns_that_a_dict_gives_one_object_share_what_it_learns(prior, names):
    rng = np.random.default_rng(4)
    X = {name: rng.normal(size=60) for name in "abc"} | {"one": np.ones(60)}
    y = rng.normal(size=60)
    whole = mcmc.GLM(X, y, "gaussian", prior=prior)
    by_name = mcmc.GLM(X, y, "gaussian", prior=dict.fromkeys("cab", prior))
    assert by_name.names == whole.names and [n for n in whole.names if n in names] == names
    points = rng.normal(size=(3, whole.dim))
    np.testing.assert_allclose(by_name.log_posteriors(points), whole.log_posteriors(points), rtol=1e-13)
    again = pickle.loads(pickle.dumps(by_name))
    assert again.names == whole.names
    np.testing.assert_array_equal(again.log_posteriors(points), by_name.log_posteriors(points))


def test_equal_objects_have_a_scale_each():
    rng = np.random.default_rng(4)
    X, y = {name: rng.normal(size=60) for name in "abc"}, rng.integers(0, 2, 60)
    one, other = (mcmc.Laplace(0.0, mcmc.HalfCauchy(0.5)) for _ in range(2))
    assert mcmc.GLM(X, y, prior={"c": one, "b": other, "a": one}).names[3:] == ("scale(a, c)", "scale(b)")


def test_the_last_name_of_a_column_says_its_prior_in_the_order_of_columns():
    rng = np.random.default_rng(5)
    X, y = {name: rng.normal(size=50) for name in "abcd"}, rng.integers(0, 2, 50)
    wide = mcmc.Laplace(0.0, mcmc.HalfCauchy(1.0))
    model = mcmc.GLM(X, y, prior={"d": wide, "b": wide, "c": wide, "a": mcmc.Normal(0.0, 2.0)})
    assert model.names[4:] == ("scale(b, c, d)",)
    assert "a ~ Normal(0, 2)" in str(model)
    many = {f"x{j}": rng.normal(size=50) for j in range(7)}
    model = mcmc.GLM(many, y, prior=dict.fromkeys(list(many)[:5], wide))
    assert model.names[7:] == ("scale(x0, ..., x4)",)


def test_natural_scales_and_back():
    joint, _, _ = joint_prior(
        layout(factors=(Effects("g", 2, ("1", "a", "b"), (1.0, 1.0, 1.0), True),), aux="scale"),
        mcmc.Horseshoe(global_scale=0.1), None, mcmc.HalfNormal())
    theta = np.random.default_rng(3).normal(size=(2, 5, joint.dim))
    values = constrained(joint, theta)
    np.testing.assert_allclose(unconstrained(joint, values), theta, rtol=1e-9)
    lower = plain.correlations(theta[1, 2, -3:], 3)
    np.testing.assert_allclose(values[1, 2, -3:], (lower @ lower.T)[[1, 2, 2], [0, 0, 1]], rtol=1e-12)
    np.testing.assert_allclose(values[..., joint.n_seen - 1:-3], np.exp(theta[..., joint.n_seen - 1:-3]))
    assert (values[..., :joint.n_seen - 1] == theta[..., :joint.n_seen - 1]).all()
    for bad, words in ((-values, "positive numbers"), (np.where(np.arange(joint.dim) > joint.dim - 4, 3.0, values),
                                                      "positive definite")):
        with pytest.raises(ValueError, match=words):
            unconstrained(joint, bad)


@pytest.mark.parametrize(
    ("make", "words"),
    [(lambda: mcmc.HalfNormal(0.0), "positive finite"), (lambda: mcmc.Normal(0.0, -1.0), "HalfNormal"),
     (lambda: mcmc.Normal(np.inf), "finite number"), (lambda: mcmc.Horseshoe(), "one of both"),
     (lambda: mcmc.Horseshoe(2.0, 1.0), "one of both"), (lambda: mcmc.StudentT(df=-1.0), "positive finite"),
     (lambda: mcmc.LKJ(-1.0), "positive finite"), (lambda: mcmc.LogDensity(quartic, backend="stan"), "one of 'numpy'"),
     (lambda: mcmc.LogDensity(quartic, of_quartic, backend="jax"), "leave it out"),
     (lambda: mcmc.LogDensity(quartic, backend="numba"), "numba.cfunc"),
     (lambda: joint_prior(layout(), mcmc.Horseshoe(5.0)), "fewer than all"),
     (lambda: joint_prior(layout(), {"c": mcmc.Normal()}), "names 'c'"),
     (lambda: joint_prior(layout(), None, mcmc.HalfNormal()), "no groups"),
     (lambda: joint_prior(layout(factors=(WARD,)), None, {"wart": mcmc.HalfNormal()}), "factors are 'ward'"),
     (lambda: joint_prior(layout(), None, None, mcmc.HalfNormal()), "learns no scale"),
     (lambda: joint_prior(layout(), own=[mcmc.LogDensity(quartic, names=("z",))], names=["a"]), "names 'z'")])
def test_what_is_impossible_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("make", [lambda: joint_prior(layout(), 3.0), lambda: mcmc.LogDensity(2.0),
                                  lambda: joint_prior(layout(factors=(WARD,)), None, {"sd": 2.0})])
def test_wrong_kinds_are_refused(make):
    with pytest.raises(TypeError, match="needed"):
        make()


def _with_jax(b):
    return -(b**4).sum()


def _numba():
    numba = pytest.importorskip("numba")
    types = numba.types

    @numba.cfunc(types.float64(types.CPointer(types.float64), types.intp, types.CPointer(types.float64)))
    def compiled(theta, n, gradient):
        out = 0.0
        for k in range(n):
            out -= theta[k] ** 4
            gradient[k] = -4.0 * theta[k] ** 3
        return out

    return compiled


@pytest.mark.parametrize("backend", ["numpy", "numba", pytest.param("jax", marks=pytest.mark.long),
                                     pytest.param("pytensor", marks=pytest.mark.long)])
def test_own_densities(backend):
    if backend in ("jax", "pytensor"):
        pytest.importorskip(backend)
    function = _numba() if backend == "numba" else quartic if backend == "numpy" else _with_jax
    density = mcmc.LogDensity(function, of_quartic if backend == "numpy" else None, ("b", "1"), backend)
    joint, _, _ = joint_prior(layout(), mcmc.Normal(0.0, 1.0), own=[density], names=["1", "a", "b"])
    point = np.array([0.3, -1.0, 2.0])
    value, gradient = joint.value_and_gradient(point)
    assert value == pytest.approx(stats.norm.logpdf(point).sum() - 0.3**4 - 16.0, rel=1e-12)
    np.testing.assert_allclose(gradient, -point - 4.0 * np.array([0.3**3, 0.0, 8.0]), rtol=1e-12)
    assert joint.beside_of(point) == pytest.approx(-0.3**4 - 16.0, rel=1e-12)
    if backend == "numpy":
        assert pickle.loads(pickle.dumps(joint)).value_and_gradient(point)[0] == value


def test_an_own_density_without_a_gradient_serves_where_none_is_needed():
    joint, _, _ = joint_prior(layout(), own=[mcmc.LogDensity(quartic)])
    assert joint.beside_of(np.ones(3)) == -3.0
    with pytest.raises(ValueError, match="gradient"):
        joint.value_and_gradient(np.ones(3))
    broken, _, _ = joint_prior(layout(), own=[mcmc.LogDensity(lambda b: np.nan)])
    with pytest.raises(ValueError, match="returned nan"):
        broken.beside_of(np.ones(3))


# Priors of a GLM.

RNG = np.random.default_rng(4)
X = np.column_stack([np.ones(400), RNG.normal(size=(400, 2))])
X[:, 1:] -= X[:, 1:].mean(axis=0)
Y = (RNG.random(400) < 1.0 / (1.0 + np.exp(-X @ [0.3, 1.0, -0.5]))).astype(float)
CLINICS = RNG.integers(0, 5, size=400)


def frame(**other):
    return mcmc.GLM(X, Y, names=("1", "age", "dose"), **other)


def likelihood(model, psi):
    eta = X @ psi[:3] + (psi[3:][CLINICS] if len(psi) == 8 else 0.0)
    return (Y * eta - np.logaddexp(0.0, eta)).sum()


def test_groups_have_a_learned_standard_deviation_by_default():
    model = frame(groups={"clinic": CLINICS})
    assert (model.dim, model.n_seen, model.n_hyper) == (9, 8, 1)
    assert model.names[-2:] == ("1|clinic[4]", "sd(1|clinic)")
    points = np.random.default_rng(5).normal(size=(3, 9))
    spreads = X[:, 1:].std(axis=0)
    for point, value in zip(points, model.log_posteriors(points), strict=True):
        tau = np.exp(point[8])
        truth = likelihood(model, point[:8]) + stats.norm(0.0, tau).logpdf(point[3:8]).sum()
        truth += stats.halfnorm(scale=2.5).logpdf(tau) + point[8] + stats.norm(0.0, 2.5).logpdf(point[0])
        truth += stats.norm(0.0, 2.5 / spreads).logpdf(point[1:3]).sum()
        assert value == pytest.approx(truth, rel=1e-12)


def test_normal_priors_as_objects_are_the_ones_by_number():
    one, other = frame(prior=mcmc.Normal(0.5, 2.0)), frame(prior_mean=0.5, prior_sd=2.0)
    assert one.joint_prior is None
    assert (one.reference().center == other.reference().center).all()
    mixed = frame(prior={"age": mcmc.Normal(1.0, 0.1), "dose": mcmc.Normal(0.0, np.inf)})
    np.testing.assert_allclose(mixed.prior_precision, [0.16, 100.0, 0.0])
    assert frame().joint_prior is None
    assert not frame().prior_precision.any()


@pytest.mark.parametrize("prior", [mcmc.Laplace(0.0, 0.1), mcmc.StudentT(3.0, 0.0, 0.2),
                                   [mcmc.Normal(0.0, 1.0), mcmc.LogDensity(quartic, of_quartic)]])
def test_other_priors_without_hyperparameters_serve_every_kernel(prior):
    model = frame(prior=prior)
    points = np.random.default_rng(6).normal(size=(2, 3))
    truth = [likelihood(model, p) + model.joint_prior.value_of(p) for p in points]
    np.testing.assert_allclose(model.log_posteriors(points), truth, rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                 # that there are few draws
        trace = mcmc.sample(mcmc.Metropolis(model), n_draws=20, n_chains=1, rng=1)
    assert np.isfinite(trace.draws).all()


def test_natural_scales_of_a_model():
    model = frame(groups={"clinic": CLINICS}, group_prior=mcmc.Exponential(1.0))
    theta = np.linspace(-1.0, 1.0, 18).reshape(2, 9)
    values = model.constrain(theta)
    np.testing.assert_array_equal(values[:, :8], theta[:, :8])
    np.testing.assert_allclose(values[:, 8], np.exp(theta[:, 8]))
    np.testing.assert_allclose(model.unconstrain(values), theta)
    assert (frame().constrain(theta[:, :3]) == frame().unconstrain(theta[:, :3])).all()


def test_hyperparameters_are_not_for_kernels_that_move_in_normal_coordinates():
    for model in (frame(prior=mcmc.Horseshoe(1.0)), frame(groups=CLINICS)):
        with pytest.raises(ValueError, match="SurrogateMetropolis"):
            mcmc.RacingMetropolis(model)


def test_models_with_hyperparameters_pickle():
    model = frame(prior=mcmc.Horseshoe(1.0), groups=CLINICS)
    points = np.random.default_rng(7).normal(size=(2, model.dim))
    again = pickle.loads(pickle.dumps(model))
    assert (again.log_posteriors(points) == model.log_posteriors(points)).all()
    assert again.names == model.names


@pytest.mark.parametrize("other", [{"prior_sd": 2.0}, {"prior_mean": 1.0}, {"log_prior": quartic}])
def test_priors_are_said_in_one_way(other):
    with pytest.raises(ValueError, match="all in one way"):
        frame(prior=mcmc.Normal(), **other)


def test_gaussian_defaults_have_the_units_of_the_outcome():
    y = 5.0 + 10.0 * RNG.normal(size=400)
    model = mcmc.GLM(X, y, "gaussian", 10.0, prior="weak", names=("1", "age", "dose"))
    np.testing.assert_allclose(model.prior_mean, [y.mean(), 0.0, 0.0])
    np.testing.assert_allclose(model.prior_precision ** -0.5 / (2.5 * y.std()), [1.0, *1.0 / X[:, 1:].std(axis=0)])


def test_a_standard_deviation_of_an_effect_that_does_not_exist_is_refused():
    """Its prior would be left out without a word."""
    with pytest.raises(ValueError, match="names 'age'; the effects are '1'"):
        mcmc.GLM(np.ones((6, 1)), np.arange(6) % 2, groups={"g": np.arange(6) % 3},
                 group_prior={"sd": {"age": mcmc.HalfNormal(1.0)}})


@pytest.mark.parametrize("whole", [False, True])
def test_compiled_densities_run_without_the_gil_and_are_those_of_python(whole):
    """Of numba.cfunc and LowLevelCallable; no Python object is made or asked while the prior is evaluated."""
    names = None if whole else ("b", "1")
    compiled = _numba()
    point = np.array([0.3, -1.0, 2.0])
    parts = []
    for function, backend in ((compiled, "numba"), (LowLevelCallable(compiled.ctypes), "numba"), (quartic, "numpy")):
        density = mcmc.LogDensity(function, of_quartic if backend == "numpy" else None, names, backend)
        assert density.evaluate(point)[0] == pytest.approx(quartic(point))
        asked = []
        if backend == "numba":  # the method of Python is not asked
            object.__setattr__(density, "_compiled", asked.append)
        joint, _, _ = joint_prior(layout(), mcmc.Normal(0.0, 1.0), own=[density, density], names=["1", "a", "b"])
        parts.append([*joint.value_and_gradient(point), joint.beside_of(point), joint.copy().beside_of(point)])
        assert not asked
    for part in parts[1:]:
        for a, b in zip(part, parts[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)


def test_compiled_densities_that_are_broken_or_of_another_form_are_refused():
    numba = pytest.importorskip("numba")
    types = numba.types

    @numba.cfunc(types.float64(types.CPointer(types.float64), types.intp, types.CPointer(types.float64)))
    def broken(theta, n, gradient):
        return np.inf if theta[0] > 0.0 else -np.inf

    joint, *_ = joint_prior(layout(), mcmc.Normal(0.0, 1.0), own=[mcmc.LogDensity(broken, backend="numba")])
    with pytest.raises(ValueError, match=r"returned inf at \[1.0, 1.0, 1.0\]"):
        joint.value_and_gradient(np.ones(3))
    assert joint.beside_of(-np.ones(3)) == -np.inf

    @numba.cfunc(types.float64(types.float64))
    def other(x):
        return x

    for function in (other, LowLevelCallable(other.ctypes)):
        with pytest.raises(ValueError, match=r"double \(double \*, intptr_t, double \*\)"):
            mcmc.LogDensity(function, backend="numba")


YEARS = 2010.0 + RNG.integers(0, 11, size=400)
WAYS = {"groups": {"groups": {"clinic": CLINICS}}, "weak": {"prior": "weak"},
        "learned": {"prior": {"x1": mcmc.Normal(0.0, mcmc.HalfNormal(0.5))}},
        "flat": {"prior": {"x1": mcmc.Normal(0.0, np.inf)}}}


def of_years(family, zero, way, constant=1.0, **other):
    """The same outcomes, with years that are counted from another one."""
    rng = np.random.default_rng(9)
    eta = 0.2 * (YEARS - 2015.0)
    y = {"logistic": lambda: Y, "gaussian": lambda: 40.0 + eta + rng.normal(size=400),
         "poisson": lambda: rng.poisson(np.exp(eta))}[family]()
    return mcmc.GLM(np.column_stack([np.full(400, constant), YEARS - zero]), y, family, **WAYS[way], **other)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", ["logistic", "gaussian", "poisson"])
def test_where_a_column_has_its_zero_changes_nothing_but_the_intercept(family, way):
    """The weak prior of an intercept is on the predictor where columns have their means."""
    raw, centred = of_years(family, 0.0, way), of_years(family, YEARS.mean(), way)
    assert raw.names == centred.names and centred.prior_part is None
    points = np.random.default_rng(10).normal(scale=0.1, size=(5, raw.dim))
    there = points.copy()
    there[:, 0] -= YEARS.mean() * there[:, 1]
    apart = raw.log_posteriors(there) - centred.log_posteriors(points)
    np.testing.assert_allclose(apart, apart[0], atol=1e-6)
    answers = [mcmc.compress(model) for model in (raw, centred)]
    roots = [compressed.covariance_root() for compressed in answers]
    slope, sd = zip(*[(c.psi_hat[1], np.linalg.norm(r[1])) for c, r in zip(answers, roots, strict=True)], strict=True)
    np.testing.assert_allclose(slope, slope[1], atol=0.02 * sd[1])
    np.testing.assert_allclose(sd, sd[1], rtol=0.02)


@pytest.mark.parametrize("way", ["groups", "weak"])
@pytest.mark.parametrize("family", ["logistic", "gaussian", "poisson"])
def test_a_raw_calendar_year_has_the_slope_of_a_centred_one(family, way):
    traces = [mcmc.sample(of_years(family, zero, way), n_draws=500, n_chains=2, rng=1)
              for zero in (0.0, YEARS.mean())]
    slopes = [trace.draws[:, :, 1] for trace in traces]
    assert abs(slopes[0].mean() - slopes[1].mean()) < 0.3 * slopes[1].std()
    assert 0.8 < slopes[0].std() / slopes[1].std() < 1.25
    assert way == "weak" or abs(np.log(traces[0].draws[..., -1].mean() / traces[1].draws[..., -1].mean())) < 0.3


def test_an_intercept_is_any_constant_column_that_no_prior_was_given():
    tens, ones = of_years("gaussian", 0.0, "weak", constant=10.0), of_years("gaussian", 0.0, "weak")
    points = np.random.default_rng(11).normal(scale=0.1, size=(5, 3))
    shares = points / [10.0, 1.0, 1.0]
    apart = tens.log_posteriors(shares) - ones.log_posteriors(points)
    np.testing.assert_allclose(apart, apart[0], atol=1e-6)
    given = mcmc.GLM(tens._glm.X, Y, prior={"intercept": mcmc.Normal(0.0, 2.5)})
    assert given.prior_part is None and mcmc.GLM(tens._glm.X[:, 1:], Y, prior="weak").prior_part is None


def test_a_sparse_table_has_the_same_prior():
    dense = of_years("poisson", 0.0, "groups")
    thin = mcmc.GLM(sparse.csr_array(dense._glm.X), dense._glm.y, "poisson", groups={"clinic": CLINICS})
    np.testing.assert_allclose(thin.prior_part.precision, dense.prior_part.precision)
    np.testing.assert_allclose(thin.prior_part.shift, dense.prior_part.shift)


def test_each_class_of_a_softmax_has_an_intercept():
    y = np.random.default_rng(12).integers(0, 3, size=400)
    made = [mcmc.Softmax(np.column_stack([np.ones(400), YEARS - zero]), y, prior="weak")
            for zero in (0.0, YEARS.mean())]
    points = np.random.default_rng(13).normal(scale=0.1, size=(5, 4))
    there = points.copy()
    there[:, [0, 2]] -= YEARS.mean() * there[:, [1, 3]]
    apart = made[0].log_posteriors(there) - made[1].log_posteriors(points)
    np.testing.assert_allclose(apart, apart[0], atol=1e-6)


def test_two_intercepts_under_flat_priors_are_found_beside_a_weak_one():
    """What is flat is one direction of dummies and intercept, though the intercept has a prior."""
    dummies = np.column_stack([np.ones(400), np.eye(2)[CLINICS % 2]])
    flat = mcmc.Normal(0.0, np.inf)
    for groups in ({}, {"groups": {"g": RNG.integers(0, 6, size=400)}}):
        with pytest.raises(ValueError, match="improper"):
            mcmc.compress(mcmc.GLM(dummies, Y, prior={"x1": flat, "x2": flat}, **groups))


def test_outcomes_that_are_all_alike_are_expanded_where_centred_columns_are():
    """The prior alone bounds the predictor there, so the point of expansion needs all of it."""
    X = np.column_stack([np.ones(400), YEARS])
    made = []
    for zero in (0.0, YEARS.mean()):
        model = mcmc.GLM(X - [0.0, zero], np.ones(400), groups={"clinic": CLINICS})
        point = np.array(mcmc.compress(model).psi_hat)
        made.append([point[0] + (YEARS.mean() - zero) * point[1], *point[1:]])
    np.testing.assert_allclose(*made, atol=1e-3)


def repeated(values, times):
    """Each row as many times as it was seen; none where that is 0."""
    return values[np.repeat(np.arange(len(times)), times)]


def assert_same_prior(one, other):
    """Of models with a joint prior or a normal one, to rounding."""
    assert one.names == other.names
    if one.joint_prior is None:
        np.testing.assert_allclose(one.prior_mean, other.prior_mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.prior_precision, other.prior_precision, rtol=1e-9)
    else:
        at = np.random.default_rng(0).normal(size=(3, one.dim))
        assert [c[0] for c in one.joint_prior.given[0]] == [c[0] for c in other.joint_prior.given[0]]
        for theta in at:
            np.testing.assert_allclose(one.joint_prior.value_of(theta), other.joint_prior.value_of(theta), rtol=1e-9)
    assert (one.prior_part is None) == (other.prior_part is None)
    if one.prior_part is not None:
        np.testing.assert_allclose(one.prior_part.precision, other.prior_part.precision, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(one.prior_part.shift, other.prior_part.shift, rtol=1e-7, atol=1e-9)


def seen_often(n=300, seed=17):
    """Columns, outcomes by family, groups and how often each row was seen; rows that never were lie far out."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(3.0, 2.0, n), rng.normal(size=n) * (rng.random(n) < 0.3)])
    eta, times = 0.5 * X[:, 1] - 1.0 + X[:, 2], rng.integers(0, 6, n) ** 2
    times[[0, 1, n - 1]] = 0
    trials = rng.integers(1, 20, n).astype(float)
    p = 1.0 / (1.0 + np.exp(-eta))
    y = {"logistic": (rng.random(n) < p) * 1.0, "binomial": rng.binomial(trials.astype(int), p).astype(float),
         "poisson": rng.poisson(np.exp(0.3 * eta)) * 1.0, "gaussian": eta + rng.normal(size=n),
         "student-t": eta + rng.standard_t(4.0, n), "gamma": rng.gamma(2.0, np.exp(0.3 * eta))}
    X[times == 0, 1] *= 100.0
    y["gaussian"][times == 0] = y["student-t"][times == 0] = 1e5
    return X, y, times, trials, rng.integers(0, 8, n), rng.normal(2.0, 3.0, n) * np.where(times > 0, 1.0, 1e3)


def both_ways(make, times, *rows):
    """A model of rows with weights, and of rows that stand as often as they were seen."""
    return make(*rows, weights=times), make(*(repeated(values, times) for values in rows))


PRIORS = {"weak": {"prior": "weak"}, "one scale": {"prior": mcmc.Normal(0.0, mcmc.HalfNormal(1.0))},
        "horseshoe": {"prior": mcmc.Horseshoe(expected_nonzero=1.0)}}


@pytest.mark.parametrize("way", PRIORS)
@pytest.mark.parametrize("family", ["logistic", "poisson", "gaussian", "student-t", "gamma"])
def test_a_row_with_a_weight_is_as_many_rows(family, way):
    X, y, times, *_ = seen_often()
    models = both_ways(lambda x, z, **more: mcmc.GLM(x, z, family, **PRIORS[way], **more), times, X, y[family])
    assert_same_prior(*models)
    if way == "weak":
        modes = [mcmc.compress(model).psi_hat for model in models]
        np.testing.assert_allclose(*modes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own_values", [False, True])
def test_effects_of_groups_have_the_spreads_of_rows_as_often_as_they_were_seen(own_values):
    X, y, times, _, codes, z = seen_often()

    def model(x, outcome, group, slope, **more):
        group = mcmc.Groups(group, slopes=slope[:, None] if own_values else [1])
        return mcmc.GLM(x, outcome, "gaussian", groups={"g": group}, **more)

    assert_same_prior(*both_ways(model, times, X, y["gaussian"], codes, z))


@pytest.mark.parametrize("kind", ["sparse", "sorted sparse", "memory map", "float32"])
def test_weights_count_in_every_kind_of_table(kind, tmp_path):
    X, y, times, *_ = seen_often(n=10_000 if kind == "memory map" else 300)     # more than two chunks
    if kind == "memory map":
        times[:5000] = 0        # a whole chunk that counts nothing
        y["gaussian"][:5000] = 1e5
        np.save(tmp_path / "x.npy", X)
    table = {"sparse": lambda: sparse.csr_array(X), "sorted sparse": lambda: sparse.csr_array(X[np.argsort(times)]),
             "memory map": lambda: np.load(tmp_path / "x.npy", mmap_mode="r"), "float32": lambda: X.astype("f")}[kind]()
    order = np.argsort(times) if kind == "sorted sparse" else np.arange(len(times))
    weighted = mcmc.GLM(table, y["gaussian"][order], "gaussian", weights=times[order])
    plain = X.astype("f") if kind == "float32" else X
    assert_same_prior(weighted, mcmc.GLM(repeated(plain, times), repeated(y["gaussian"], times), "gaussian"))


def test_classes_of_rows_with_weights_are_those_of_as_many_rows():
    X, y, times, *_ = seen_often()
    labels = y["poisson"].clip(max=2).astype(int)
    for way in PRIORS.values():
        models = both_ways(lambda x, z, way=way, **more: mcmc.Softmax(x, z, 3, prior=way["prior"], **more), times, X,
                           labels)
        assert_same_prior(*models)
        if way["prior"] == "weak":
            np.testing.assert_allclose(*[model.reference().theta_hat for model in models], rtol=1e-5, atol=1e-6)


def global_scale(model):
    return model.joint_prior.given[1][0][1][1]


def test_the_global_scale_of_a_horseshoe_is_that_of_all_observations():
    X, y, times, trials, *_ = seen_often()
    prior = mcmc.Horseshoe(expected_nonzero=1.0)
    won = repeated(y["binomial"], times), repeated(trials, times)
    one_by_one = np.concatenate([np.arange(t) < k for k, t in zip(*won, strict=True)]) * 1.0
    of_trials = np.repeat(repeated(X, times), won[1].astype(int), axis=0)
    expected = global_scale(mcmc.GLM(of_trials, one_by_one, "logistic", prior=prior))
    share = one_by_one.mean()
    np.testing.assert_allclose(expected, 1.0 / np.sqrt(len(one_by_one) * share * (1.0 - share)))
    counted = mcmc.GLM(X, y["binomial"], "binomial", trials=trials, weights=times, prior=prior)
    np.testing.assert_allclose(global_scale(counted), expected, rtol=1e-12)
    single = [mcmc.GLM(of_trials, one_by_one, family, prior=prior) for family in ("logistic", "binomial")]
    assert global_scale(single[0]) == global_scale(single[1])


def test_the_global_scale_of_an_arch_model_counts_returns_by_weights():
    returns = np.random.default_rng(18).normal(size=101)
    scales = [global_scale(mcmc.ARCH(returns, 1, prior=mcmc.Horseshoe(expected_nonzero=1.0), weights=weights))
              for weights in (None, np.ones(101), np.full(101, 4.0))]
    np.testing.assert_allclose(scales, np.array([0.5, 0.5, 0.25]) / 10.0)


def test_moments_by_weights_take_any_positive_numbers():
    rng = np.random.default_rng(19)
    values, times = rng.normal(5.0, 2.0, (200, 2)), rng.integers(0, 4, 200)
    for scale in (1.0, 0.37):
        for found, expected in zip(moments_of(values, times * scale), moments_of(repeated(values, times)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_plain_horseshoe_has_no_slab():
    prior, names, _ = joint_prior(layout(), mcmc.Horseshoe(global_scale=0.5, slab_scale=np.inf))
    assert names == ["global_scale(coefficients)", "local_scale(a)", "local_scale(b)"]
    beta, tau, local = np.array([0.4, -0.1]), 0.3, np.array([2.0, 0.4])
    truth = stats.norm(0.0, tau * local).logpdf(beta).sum() + stats.halfcauchy.logpdf(local).sum()
    truth += stats.halfcauchy(scale=0.5).logpdf(tau) + np.log(tau * local.prod()) + stats.norm(3.0, 5.0).logpdf(0.2)
    point = unconstrained(prior, np.concatenate([[0.2], beta, [tau], local]))
    assert prior.value_and_gradient(point)[0] == pytest.approx(truth, rel=1e-12)


def test_a_slab_may_be_a_number():
    """Value by SciPy, gradient by differences, on the scale on which chains move."""
    horseshoe = mcmc.Horseshoe(global_scale=0.5, slab_scale=0.8, slab_df=np.inf)
    prior, names, _ = joint_prior(layout(), horseshoe)
    assert names == ["global_scale(coefficients)", "local_scale(a)", "local_scale(b)"]
    beta, tau, local = np.array([0.4, -0.1]), 0.3, np.array([2.0, 0.4])
    wide = 1.0 / np.sqrt((tau * local) ** -2.0 + 0.8**-2.0)
    truth = stats.norm(0.0, wide).logpdf(beta).sum() + stats.halfcauchy.logpdf(local).sum()
    truth += stats.halfcauchy(scale=0.5).logpdf(tau) + np.log(tau * local.prod()) + stats.norm(3.0, 5.0).logpdf(0.2)
    point = unconstrained(prior, np.concatenate([[0.2], beta, [tau], local]))
    value, gradient = prior.value_and_gradient(point)
    assert value == pytest.approx(truth, rel=1e-12)
    for j, step in enumerate(1e-6 * np.eye(len(point))):
        up, down = (prior.value_and_gradient(point + s)[0] for s in (step, -step))
        assert (up - down) / 2e-6 == pytest.approx(gradient[j], abs=1e-6)
    assert pickle.loads(pickle.dumps(prior)).value_and_gradient(point)[0] == value


@pytest.mark.parametrize("slab", [np.inf, 0.2])
def test_draws_under_a_horseshoe_without_a_learned_slab_are_those_of_quadrature(slab):
    """One coefficient in a Gaussian regression: E beta by integrals over global and local scale."""
    rng = np.random.default_rng(8)
    x = np.repeat([-1.0, 1.0], 40)
    y = 0.3 * x + rng.normal(size=80)
    prior = mcmc.Horseshoe(global_scale=0.2, slab_scale=slab, slab_df=4.0 if slab == np.inf else np.inf)
    model = mcmc.GLM(x[:, None], y, "gaussian", scale=1.0, prior=prior)
    assert model.names[1:] == ("global_scale(coefficients)", "local_scale(x0)")
    t = np.linspace(-9.0, 9.0, 1201)
    log_tau, log_lam = t[:, None], t[None]
    variance = 1.0 / (np.exp(-2.0 * (log_tau + log_lam)) + slab**-2.0)
    weight = stats.cauchy(scale=0.2).pdf(np.exp(log_tau)) * stats.cauchy.pdf(np.exp(log_lam))
    weight *= np.exp(log_tau + log_lam)
    weight *= stats.norm.pdf(x @ y / 80, 0.0, np.sqrt(variance + 1.0 / 80))
    truth = float((weight * variance / (variance + 1.0 / 80)).sum() / weight.sum() * (x @ y) / 80)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=4000, n_chains=4, rng=3)
    draws = trace.draws[..., 0]
    error = draws.std() / np.sqrt(trace.ess()[0])
    assert abs(draws.mean() - truth) < 5.0 * error


@pytest.mark.parametrize("prior", [mcmc.Normal(0.0, mcmc.HalfNormal(1.0)), mcmc.Laplace(0.0, mcmc.HalfNormal(1.0)),
                                   mcmc.Horseshoe(expected_nonzero=1)])
def test_a_scale_of_no_coefficient_is_not_learned(prior):
    """Constant columns have a prior of their own, here all of them."""
    y = np.arange(300) % 3 == 0
    model = mcmc.GLM(np.ones((300, 1)), y, prior=prior)
    assert model.names == ("x0",)
    answer = mcmc.laplace(model, 400, rng=1)
    assert abs(answer.mean[0] - np.log(0.5)) < 0.05
