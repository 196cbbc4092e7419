"""Chains on surrogates: twins, closed forms, enumerable targets, and what every kernel must keep."""

import pickle

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from fastrace._models._arrow import Arrow, Quadratic
from fastrace._models._priors import JointPrior
from fastrace.mcmc.kernels import _surrogate_moves
from fastrace.mcmc.kernels._nested_normal import NormalInner
from guarantee import assert_fits, assert_mean
from reference import surrogate as twin
from surrogates import SEED, grouped, grouped_data, plain_inner


def arrow_case(rng, s=2, groups=4, width=2, start=2):
    """A positive definite arrow with its whole matrix, and the coordinates in the order of its factor."""
    dim = s + groups * width
    tables = rng.standard_normal((400, dim)) * (rng.random((400, dim)) < 0.6)
    for row in tables:
        g = rng.integers(groups)
        for other in range(groups):
            if other != g:
                row[start + other * width : start + (other + 1) * width] = 0.0
    H = tables.T @ tables / 20.0 + 1e-3 * np.eye(dim)
    inside = np.arange(start, start + groups * width)
    outside = np.delete(np.arange(dim), inside)
    blocks = np.array([H[np.ix_(*2 * [inside[g * width : (g + 1) * width]])] for g in range(groups)])
    return Arrow(H[np.ix_(outside, outside)], H[np.ix_(outside, inside)], blocks, start), H, np.r_[inside, outside]


@pytest.mark.parametrize("size", [1.0, 0.4])
@pytest.mark.parametrize(("walk_share", "fixed_share"), [(0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.25, 0.6)])
def test_the_nested_normal_is_its_twin(size, walk_share, fixed_share):
    rng = np.random.default_rng(SEED)
    arrow, H, order = arrow_case(rng)
    hat, gradient = rng.standard_normal((2, arrow.dim))
    scales = [("half-normal", 1.0, 0.0), ("half-normal", 0.5, 0.0)]
    prior = JointPrior([("normal", 0.0, 2.0, 0.0, -1)] * 2, (), [(4, scales, None)])
    center, factor = np.array([-0.2, -0.7]), np.array([[0.5, 0.0], [0.1, 0.6]])
    stretch = np.array([[2.0, 0.9], [0.7, 1.5]])
    inner = NormalInner(Quadratic(hat, 0.0, gradient, arrow), prior, center, factor, stretch, walk_share, fixed_share)
    inner.size = size
    plain = twin.NormalInner(hat, gradient, H, twin.Prior([2.0, 2.0], [(4, [1.0, 0.5])]), order, center, factor,
                             walk_share, size, fixed_share, stretch=stretch)
    for phi in rng.standard_normal((5, 2)):         # the constants of both differ
        assert inner.marginal_of(phi) - inner.marginal_of(center) == pytest.approx(
            plain.log_marginal(phi) - plain.log_marginal(center), rel=1e-9, abs=1e-9)
    theta = np.r_[hat, center]
    draws = inner.draws(theta, 40, np.random.default_rng(5))
    stream = np.random.default_rng(5)
    for draw in draws:
        theta = plain.move(theta, stream)
        np.testing.assert_allclose(draw, theta, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("width", [8, 9])
def test_wide_groups_have_their_closed_marginal(width):
    groups, eye = 3, np.eye(width)
    prior = JointPrior([], (), [(groups, [("half-normal", 1.0, 0.0)] * width, None)])
    arrow = Arrow(np.zeros((0, 0)), np.zeros((0, groups * width)), np.tile(eye, (groups, 1, 1)))
    nothing = np.zeros(groups * width)              # effects u of sd s, and N(0 | u, 1) of each: N(0 | 0, 1 + s^2)
    inner = NormalInner(Quadratic(nothing, 0.0, nothing, arrow), prior)
    levels = [np.zeros(width), np.linspace(-1.0, 1.0, width)]
    closed = [prior.hyper_value(phi) - 0.5 * groups * np.log1p(np.exp(2.0 * phi)).sum() for phi in levels]
    assert inner.marginal_of(levels[1]) - inner.marginal_of(levels[0]) == pytest.approx(closed[1] - closed[0])


@pytest.mark.parametrize(("n_inner", "stride"), [(1, 0.0), (3, 0.0), (1, 0.4)])
def test_an_exact_step_is_its_twin(n_inner, stride, monkeypatch):
    monkeypatch.setattr(_surrogate_moves, "LEAN", 0.0)
    monkeypatch.setattr(_surrogate_moves, "replaced", lambda *args: None)
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 60, 4)
    model = grouped(X, codes, y)
    kernel = mcmc.SurrogateMetropolis(model, decision="exact", n_inner=n_inner)
    kernel._stride = stride
    made = kernel.compressed
    order = np.r_[2:6, 0:2]             # the blocks first
    plain = plain_inner(kernel, twin.Prior([2.0, 2.0], [(4, [1.0])]), order)
    table = np.column_stack([X, np.eye(4)[codes]])

    def log_likelihood(psi):
        return -np.logaddexp(0.0, np.where(y > 0, -1.0, 1.0) * (table @ psi)).sum()

    state = kernel.init(np.r_[made.psi_hat, np.exp(kernel._phi_center)])
    _, steps = kernel.run(np.random.default_rng(3), state, 100)
    stream, theta = np.random.default_rng(3), state.position
    for draw, accepted in zip(model.unconstrain(steps.draws), steps.accepted, strict=True):
        theta, new = twin.exact_step(plain, log_likelihood, theta, stream, n_inner, stride,
                                     kernel._walks)
        assert accepted == new
        np.testing.assert_allclose(draw, theta, rtol=1e-6, atol=1e-6)
    assert 0.3 < steps.accepted.mean() < 1.0


@pytest.mark.parametrize("decision", ["exact", "race", "poisson"])
def test_a_gaussian_hierarchy_has_its_closed_form(decision):
    """Marginal of the scale by quadrature of the outcomes' own normal density; its expansion is exact."""
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 80, 5, family="gaussian")
    kernel = mcmc.SurrogateMetropolis(grouped(X, codes, y, "gaussian", scale=1.0), decision=decision)
    kernel._walks, kernel._engines = None, []       # all else is accepted
    trace = mcmc.sample(kernel, n_draws=2000, n_chains=1, n_tune=50, rng=SEED)
    assert trace.accepted.mean() == 1.0
    Z = np.eye(5)[codes]
    logs = np.linspace(-7.0, 2.5, 150)
    density = np.empty(len(logs))
    means = np.empty((len(logs), 2))
    for i, tau in enumerate(np.exp(logs)):
        V = np.eye(80) + tau**2 * Z @ Z.T + 4.0 * X @ X.T
        density[i] = stats.multivariate_normal(np.zeros(80), V).logpdf(y) - 0.5 * tau**2 + logs[i]
        means[i] = 4.0 * X.T @ np.linalg.solve(V, y)
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    draws = kernel.model.unconstrain(trace.draws[0])
    for k in range(2):
        assert_mean(draws[:, k], weight @ means[:, k])
    assert_mean(draws[:, -1], weight @ logs)
    inside = np.cumsum(weight)
    edges = np.interp([0.2, 0.4, 0.6, 0.8], inside, logs)
    thinned = draws[::3, -1]
    assert_fits(np.bincount(np.searchsorted(edges, thinned), minlength=5), np.full(5, 0.2))


@pytest.mark.parametrize("decision", ["exact", "race", "poisson"])
@pytest.mark.parametrize("size", [1.0, 0.5])
def test_an_enumerable_target_is_kept_where_the_expansion_is_bad(decision, size):
    rng = np.random.default_rng(SEED)
    x = 2.0 * rng.standard_normal(14)
    y = (rng.random(14) < 1 / (1 + np.exp(-1.5 * x))) * 1.0
    model = mcmc.GLM(x[:, None], y, prior=mcmc.Normal(0.0, mcmc.HalfNormal(1.0)))
    kernel = mcmc.SurrogateMetropolis(model, decision=decision, size=size, first_look=10, student=True,
                                      delta=0.01)
    _, steps = kernel.run(rng, kernel.init(None, rng), 24_000)
    b, log_sd = np.meshgrid(np.linspace(-3.0, 7.0, 300), np.linspace(-8.0, 2.0, 300), indexing="ij")
    level = stats.norm.logpdf(b, 0.0, np.exp(log_sd)) - 0.5 * np.exp(2.0 * log_sd) + log_sd
    level -= np.logaddexp(0.0, np.where(y > 0, -1.0, 1.0) * b[..., None] * x).sum(axis=-1)
    weight = np.exp(level - level.max())
    weight /= weight.sum()
    for column, values in zip(model.unconstrain(steps.draws).T, (b, log_sd), strict=True):
        edges = np.interp([0.25, 0.5, 0.75], np.cumsum(weight.sum(axis=1 if values is b else 0)),
                          values[:, 0] if values is b else values[0])
        assert_fits(np.bincount(np.searchsorted(edges, column[::20]), minlength=4),
                    np.diff(np.r_[0.0, [weight[values <= e].sum() for e in edges], 1.0]))
    assert steps.accepted.mean() < 0.99


@pytest.mark.parametrize("decision", ["exact", "race", "poisson"])
def test_chains_resume_pickle_and_take_turns(decision, tmp_path):
    rng = np.random.default_rng(SEED)
    model = grouped(*grouped_data(rng, 300, 5))
    kernel = mcmc.SurrogateMetropolis(model, decision=decision)
    whole = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=60, rng=3, threads=1).draws
    threads = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=60, rng=3, threads=2).draws
    np.testing.assert_array_equal(whole, threads)
    again = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(whole, mcmc.sample(again, n_draws=60, n_chains=2, n_tune=60, rng=3).draws)
    part = mcmc.sample(kernel, n_draws=25, n_chains=2, n_tune=60, rng=3)
    rest = mcmc.sample(kernel, pickle.loads(pickle.dumps(part)), n_draws=35)
    np.testing.assert_array_equal(whole, np.concatenate([part.draws, rest.draws], axis=1))
    path = tmp_path / "chains"
    mcmc.sample(kernel, n_draws=25, n_chains=2, n_tune=60, rng=3, checkpoint=path)
    np.testing.assert_array_equal(whole, mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=60, rng=3,
                                                     checkpoint=path).draws)
    assert kernel.describe()["decision"] == decision


def test_a_far_start_arrives_while_tuning():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 2000, 5)
    kernel = mcmc.SurrogateMetropolis(grouped(X, codes, y), decision="exact")
    state, _ = kernel.run(rng, kernel.init(np.r_[np.full(7, 30.0), 20.0]), 100, tune=True)
    assert kernel.compressed.distance(state.position[:7]) < kernel._near
    _, steps = kernel.run(rng, state, 200)
    assert steps.accepted.mean() > 0.3


# The expansion as an object.


@pytest.mark.parametrize("below, above", [(1.0, 1.0), (5.0, 0.4), (20.0, 0.1)])
def test_the_sides_of_a_marginal_are_measured_apart(below, above):
    for side, way in ((below, [-2.0]), (above, [2.0])):
        found = _surrogate_moves._reach(lambda x, side=side: -((x[0] - 1.0) ** 2) / (8.0 * side**2), np.ones(1),
                                        np.array(way))
        assert found == pytest.approx(min(side, _surrogate_moves.MOST_STRETCH), abs=max(side, 1.0) / 60)


def test_scales_with_long_tails_are_proposed():
    """Where effects are hardly there, scales have any small value: four of them at once, by proposals of two sides."""
    rng = np.random.default_rng(SEED)
    n, codes = 3000, [rng.integers(30, size=3000) for _ in range(4)]
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    y = (rng.random(n) < 0.5).astype(float)
    model = mcmc.GLM(X, y, groups=codes, prior=mcmc.Normal(0.0, 2.0), group_prior=mcmc.HalfNormal(1.0))
    kernel = mcmc.SurrogateMetropolis(model, inner="normal")
    alike = NormalInner(kernel.compressed.quadratic, kernel.compressed.prior, kernel._phi_center, kernel._phi_factor,
                        tilt=kernel._tilt, bend=kernel._bend, stay=kernel._stay)
    least = []
    for inner in (kernel._inner(), alike):
        phi = inner.draws(kernel._middle, 2000, np.random.default_rng(1))[:, model.n_seen :]
        least.append(min(mcmc.effective_sample_size(draws[None]) for draws in phi.T))
    assert least[0] > 2.5 * least[1] and least[0] > 200.0


@pytest.mark.parametrize("scales", [(1.0, 0.5, 0.3), (1.0, 1e-6, 0.999), (1e-7, 1.0, 0.9999), (1e-9, 1e-8, 0.99),
                                    (1e4, 1e4, 0.2)])
def test_scales_near_zero_are_not_lost_in_rounding(scales):
    """Marginal and mean against formulas with a root S of the prior's covariance, which needs no precision."""
    rng = np.random.default_rng(SEED)
    X = np.column_stack([np.ones(400), rng.standard_normal(400)])
    X[:, 1] -= X[:, 1].mean()  # so that coefficients are independent under the prior
    y = (rng.random(400) < 1.0 / (1.0 + np.exp(-X @ [0.3, 1.0]))).astype(float)
    model = mcmc.GLM(X, y, groups=mcmc.Groups(rng.integers(5, size=400), slopes=[1]))
    kernel = mcmc.SurrogateMetropolis(model, inner="normal", decision="exact")
    inner, made, n = kernel._inner(), kernel.compressed, model.n_seen
    phi = model.unconstrain(np.r_[np.zeros(n), scales])[n:]
    mean, precision = made.prior.conditional_of(phi)
    first, second, correlation = scales
    root = np.diag(np.r_[1.0 / np.sqrt(precision[:2]), np.zeros(n - 2)])
    for start in range(2, n, 2):
        root[start : start + 2, start : start + 2] = [
            [first, 0.0], [second * correlation, second * np.sqrt(1.0 - correlation**2)]]
    H, g, e = made.curvature.to_dense(), made.quadratic.gradient, mean - made.psi_hat
    inside, b = np.eye(n) + root.T @ H @ root, g - H @ e
    step = np.linalg.solve(inside, root.T @ b)
    expected = g @ e + 0.5 * (b @ root @ step - e @ H @ e - np.linalg.slogdet(inside)[1]) + made.prior.hyper_value(phi)
    np.testing.assert_allclose(inner.marginal_of(phi), expected, rtol=1e-9)
    np.testing.assert_allclose(inner.mean_of(phi), mean + root @ step, rtol=1e-9, atol=1e-11)


def test_correlations_that_double_precision_cannot_hold_have_no_density():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 300, 5)
    model = mcmc.GLM(X, y, groups=mcmc.Groups(codes, slopes=[1]))
    kernel = mcmc.SurrogateMetropolis(model, inner="normal", decision="exact")
    phi = model.unconstrain(np.r_[np.zeros(model.n_seen), 1.0, 1.0, 1.0 - 1e-14])[model.n_seen :]
    assert kernel._inner().marginal_of(phi) == -np.inf


@pytest.mark.parametrize("decision", ["poisson", "exact"])
def test_an_expansion_at_a_wrong_point_does_not_trap_a_chain(decision):
    """20 standard deviations off, where proposals of the surrogate are refused for ever."""
    rng = np.random.default_rng(SEED)
    X = np.column_stack([np.ones(6000), rng.standard_normal((6000, 2))])
    y = (rng.random(6000) < 1.0 / (1.0 + np.exp(-X @ [-3.0, 0.8, 0.3]))).astype(float)
    model = mcmc.GLM(X, y, prior_sd=10.0)
    about = model.reference()
    far = about.center + 20.0 * about.factor @ np.array([0.6, -0.5, 0.62])
    moved = []
    for walks in (True, False):
        kernel = mcmc.SurrogateMetropolis(model, decision=decision, psi_hat=far)
        if not walks:
            kernel._walks, kernel._engines = None, []
        _, steps = kernel.run(np.random.default_rng(1), kernel.init(rng=2), 6000)
        away = np.linalg.norm(np.linalg.solve(about.factor, (steps.draws - about.center).T), axis=0)
        moved.append((away[-2000:].mean(), len(np.unique(steps.draws[-2000:, 0]))))
    assert moved[0][0] < 4.0 and moved[0][1] > 20
    assert moved[1][1] < 10


def test_steps_that_are_not_decided_leave_no_sum_behind():
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((300, 2))
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [1.0, -1.0]))) * 1.0
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior_sd=3.0), decision="exact")
    state, steps = kernel.run(rng, kernel.init([40.0, 40.0]), 50, tune=True)
    assert steps.rows.sum() == 0                    # on the way to where the expansion holds
    assert state.cache is None
    state, _ = kernel.run(rng, state, 20)
    known, _ = kernel.run(np.random.default_rng(1), state, 20)
    anew, _ = kernel.run(np.random.default_rng(1), kernel.init(state.position), 20)
    np.testing.assert_array_equal(known.position, anew.position)


def test_groups_are_dummy_columns():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 400, 6)
    made = mcmc.compress(grouped(X, codes, y))
    value, gradient, hessian = mcmc.GLM(np.column_stack([X, np.eye(6)[codes]]), y).expand_seen(made.psi_hat)
    assert made.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(made.slope, gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.curvature.to_dense(), -hessian.to_dense(), rtol=1e-9, atol=1e-9)
    assert made.curvature.n_blocks == 6


def test_a_compressed_model_is_its_expansion():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 500, 6)
    model = grouped(X, codes, y)
    made = mcmc.compress(model)
    value, gradient, hessian = model.expand_seen(made.psi_hat)
    hessian = hessian.to_dense()
    at = made.psi_hat + 0.1 * rng.standard_normal(8)
    d = at - made.psi_hat
    assert made.log_likelihood(at) == pytest.approx(value + gradient @ d + 0.5 * d @ hessian @ d, rel=1e-12)
    np.testing.assert_allclose(made.gradient(at), gradient + hessian @ d, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.hessian_product(d), hessian @ d, rtol=1e-9, atol=1e-9)
    again = pickle.loads(pickle.dumps(made))
    assert again.log_likelihood(at) == made.log_likelihood(at)
    root = made.covariance_root()
    np.testing.assert_allclose(np.linalg.inv(root @ root.T), made.metric().to_dense(), rtol=1e-8, atol=1e-8)
    assert made.distance(at) == pytest.approx(np.linalg.norm(np.linalg.solve(root, d)), rel=1e-9)


def test_an_expansion_of_another_model_is_refused():
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((400, 2))
    y = (rng.random(400) < 0.5) * 1.0
    own = mcmc.compress(mcmc.GLM(X, y, prior_sd=3.0))
    mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior_sd=3.0), psi_hat=own)
    others = [(mcmc.GLM(X[:300], y[:300], prior_sd=3.0), "300 rows"), (mcmc.GLM(X, y, prior_sd=1.0), "another prior"),
              (mcmc.GLM(X, 1.0 - y, prior_sd=3.0), "other rows")]
    for other, words in others:
        with pytest.raises(ValueError, match=words):
            mcmc.SurrogateMetropolis(other, psi_hat=own)
    draws = own.psi_hat + 0.01 * rng.standard_normal((30, 2))
    with pytest.raises(ValueError, match="other rows"):
        mcmc.correct(draws, own, others[2][0], rng=1, decision="exact")


def test_the_point_of_expansion_lies_in_the_bulk_and_not_in_the_neck():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 3000, 30, tau=0.6)
    kernel = mcmc.SurrogateMetropolis(grouped(X, codes, y), decision="exact")
    trace = mcmc.sample(kernel, n_draws=500, n_chains=1, n_tune=50, rng=2)
    draws = trace.draws[0, :, :32]
    away = (kernel.compressed.psi_hat - draws.mean(axis=0)) / draws.std(axis=0)
    assert np.abs(away).max() < 1.0
    assert kernel.compressed.distance(draws.mean(axis=0)) < np.sqrt(32)


def test_models_without_groups_are_expanded_at_their_mode():
    rng = np.random.default_rng(SEED)
    X, _, y = grouped_data(rng, 500, 2)
    model = mcmc.GLM(X, y, prior_sd=2.0)
    np.testing.assert_array_equal(mcmc.compress(model).psi_hat, model.reference().theta_hat)
    with pytest.raises(ValueError, match="n_seen|finite"):
        mcmc.compress(model, [0.0])
    with pytest.raises(TypeError, match="model"):
        mcmc.compress(X)


# A model without a kernel.


def test_a_model_without_a_kernel_gets_one_and_is_told_why():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 500, 5)
    trace = mcmc.sample(grouped(X, codes, y), n_draws=100, n_chains=2, n_tune=50, rng=1)
    assert trace.kernel["kernel"] == "SurrogateMetropolis"
    assert "hyperparameters" in trace.kernel["chosen"]
    assert trace.names[-1].startswith("sd(")
    assert (trace.draws[..., -1] > 0.0).all()
    model = mcmc.GLM(X, y, prior_sd=2.0)
    first, again = (mcmc.sample(model, n_draws=50, n_chains=2, n_tune=50, rng=1) for _ in range(2))
    np.testing.assert_array_equal(first.draws, again.draws)
    assert "independent draw" in first.kernel["chosen"]
    flat = mcmc.FunctionModel(lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2, 1, 500)
    trace = mcmc.sample(flat, [0.0], n_draws=20, n_chains=1, n_tune=20, rng=1)
    assert trace.kernel["kernel"] == "RacingMetropolis"
    assert "derivatives" in trace.kernel["chosen"]


def test_a_pilot_takes_minibatches_where_bounds_are_and_races_elsewhere():
    rng = np.random.default_rng(SEED)
    X, codes, y = grouped_data(rng, 6000, 5)
    assert mcmc.SurrogateMetropolis(grouped(X, codes, y)).decision == "poisson"
    model = mcmc.FunctionModel(
        lambda theta, rows: -0.5 * (y[rows] - X[rows] @ theta) ** 2, 2, 6000,
        derivatives=lambda theta, rows: ((y[rows] - X[rows] @ theta)[:, None] * X[rows],
                                         -X[rows][:, :, None] * X[rows][:, None, :]))
    assert mcmc.SurrogateMetropolis(model).decision == "race"
    with pytest.raises(ValueError, match="no bound"):
        mcmc.SurrogateMetropolis(model, decision="poisson")


def test_a_learned_scale_is_recorded_by_its_natural_name():
    rng = np.random.default_rng(3)
    model = mcmc.GLM({"x": rng.normal(size=2000)}, 3.0 * rng.normal(size=2000), "gaussian")
    assert model.names == ("x", "log(scale)") and model.natural_names == ("x", "scale")
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=200, n_chains=1, rng=1)
    assert trace.names == ("x", "scale") and abs(trace.draws[..., 1].mean() - 3.0) < 0.3
    assert not any("far from the normal density" in words for words in trace.warnings)


@pytest.mark.parametrize("given", [np.zeros(1), np.zeros(0), 0.0, np.zeros((2, 2))])
def test_a_state_of_another_length_is_refused_before_it_is_read(given):
    inner = mcmc.SurrogateMetropolis(mcmc.GLM(np.eye(3), [0, 1, 1], prior_sd=1.0))._inner()
    for ask in (inner.log_density_of, lambda theta: inner.draws(theta, 1, np.random.default_rng(0))):
        with pytest.raises(ValueError, match="3 numbers are needed"):
            ask(given)


@pytest.mark.parametrize("unit", [0.01, 1e4])
def test_effects_of_any_size_in_units_of_the_outcome_are_found(unit):
    """Scales of effects are sought from where their prior is, which knows the units."""
    rng = np.random.default_rng(7)
    days, who = np.tile(np.arange(10.0), 18), np.repeat(np.arange(18), 10)
    start, slope = 25.0 + 2.5 * rng.normal(size=18), 1.0 + 0.6 * rng.normal(size=18)
    y = start[who] + slope[who] * days + 2.5 * rng.normal(size=180)
    X = np.column_stack([np.ones(180), days])
    own = {"who": mcmc.Groups(who, slopes=[1], correlated=False)}
    hat = mcmc.compress(mcmc.GLM(X, unit * y, "gaussian", groups=own)).psi_hat
    same = mcmc.compress(mcmc.GLM(X, y, "gaussian", groups=own)).psi_hat
    np.testing.assert_allclose(hat[:-1] / unit, same[:-1], atol=0.02)
    np.testing.assert_allclose(hat[-1] - np.log(unit), same[-1], atol=0.02)


@pytest.mark.parametrize("size", [1.0, 0.3])
def test_hyperparameters_without_a_normal_density_are_left_again(size):
    """Standard deviations so far apart that no block of the precision has a factor: the density there is 0."""
    count, scales = 3, [("half-normal", 1.0, 0.0), ("half-normal", 1.0, 0.0)]
    prior = JointPrior([], (), [(count, scales, 2.0)])
    arrow = Arrow(np.zeros((0, 0)), np.zeros((0, 6)), np.tile(np.eye(2), (count, 1, 1)))
    inner = NormalInner(Quadratic(np.zeros(6), 0.0, np.zeros(6), arrow), prior)
    inner.size = size
    for phi in ([0.0, 0.0, 40.0], [-3.0, 3.0, -400.0], [900.0, 0.0, 0.0]):      # correlations of 1 and -1; infinite
        assert inner.marginal_of(phi) == -np.inf
        draws = inner.draws(np.r_[np.ones(6), phi], 20, np.random.default_rng(1))
        assert np.isfinite(inner.marginal_of(draws[-1, 6:])) and (np.ptp(draws, axis=0) > 0.0).all()


def test_an_expansion_with_another_prior_is_refused_and_one_with_the_same_is_not():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(3000, 3)) * [1.0, 20.0, 0.3]
    y = rng.random(3000) < special.expit(X[:, 0])

    def of(mean, sd):
        return mcmc.LogDensity(lambda t: -0.5 * float((t - mean) @ (t - mean)) / sd**2, lambda t: (mean - t) / sd**2)

    wide, narrow = (mcmc.GLM(X, y, prior=of(*prior)) for prior in ((0.0, 10.0), (2.0, 0.1)))
    for kernel in (mcmc.SurrogateMetropolis, mcmc.HMC):
        with pytest.raises(ValueError, match="another prior than the model"):
            kernel(narrow, psi_hat=mcmc.compress(wide))
        kernel(mcmc.GLM(X, y, prior=of(0.0, 10.0)), psi_hat=mcmc.compress(wide))    # another function, the same values
    order = rng.permutation(3000)
    weak = mcmc.compress(mcmc.GLM(X, y, prior="weak"))
    for table in (X[order], np.asfortranarray(X[order])):
        mcmc.SurrogateMetropolis(mcmc.GLM(table, y[order], prior="weak"), psi_hat=weak)     # in units of sums over rows
    by_sd = mcmc.compress(mcmc.GLM(X, y, prior_sd=0.7))
    mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior=mcmc.Normal(0.0, 0.7)), psi_hat=by_sd)
    with pytest.raises(ValueError, match="another prior than the model"):
        mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior=mcmc.Normal(0.0, 0.701)), psi_hat=by_sd)
