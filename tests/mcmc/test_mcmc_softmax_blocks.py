"""Groups of a multinomial regression as blocks of its curvature: hundreds of groups, correlations, several factors."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, special, stats

from fastrace import mcmc
from fastrace._models._softmax import SoftmaxSource
from fastrace._models.softmax_sums import expand_softmax, roots_of_rows, softmax_sums
from fastrace.control_variates import taylor_glm
from fastrace.mcmc.kernels._surrogate_moves import root_of_rows
from fastrace.mcmc.models._pieces import pieces_of
from tests.guarantee import assert_uniform, few_or_many

SEED = 20261129
N, CLASSES = 1200, 4


def rows(seed=SEED, n=N):
    """Two columns, and codes of two crossed factors; one group of the first has no row, another has one."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    codes = rng.choice([0, 1, 2, 4, 5, 6], size=n)
    codes[0] = 7
    return X, pd.Categorical.from_codes(codes, [f"g{k}" for k in range(8)]), rng.integers(3, size=n), rng


def drawn(eta, rng):
    return (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)


def columns_of(X, codes, values):
    """A column for each effect of each group."""
    out = np.zeros((len(X), len(codes.categories), values.shape[1]))
    out[np.arange(len(X)), codes.codes] = values
    return out.reshape(len(X), -1)


FACTORS = {
    "intercepts": lambda g, h: {"g": g},
    "slopes": lambda g, h: {"g": mcmc.Groups(g, [1])},
    "slopes alone": lambda g, h: {"g": mcmc.Groups(g, [1], intercept=False)},
    "crossed": lambda g, h: {"h": h, "g": mcmc.Groups(g, [1])},
    "nested": lambda g, h: {"h": mcmc.Groups(h, [1]), "gh": (np.asarray(g.codes), h)},
}


def with_dense(kind, table=np.asarray):
    """A source with groups, and one with a column for each effect, with offsets and weights."""
    X, g, h, rng = rows()
    y, groups = rng.integers(CLASSES, size=N), FACTORS[kind](g, h)
    beside = {"weights": rng.integers(0, 3, N), "offset": rng.normal(size=(N, CLASSES - 1))}
    ours = SoftmaxSource(table(X), y, None, CLASSES, groups=groups, **beside)
    x = ours.rows.X
    parts = [np.asarray(x.toarray() if hasattr(x, "nnz") else x, dtype=np.float64)]
    for f in ours.rows.factors:
        codes = pd.Categorical.from_codes(f.codes, range(f.n_groups))
        parts.append(columns_of(X, codes, f.values(parts[0], slice(0, N))))
    return ours, SoftmaxSource(np.column_stack(parts), y, None, CLASSES, **beside), rng


@pytest.mark.parametrize("table", [np.asarray, np.float32, sparse.csr_array])
@pytest.mark.parametrize("kind", FACTORS)
def test_terms_and_expansions_are_those_of_a_column_for_each_effect(kind, table):
    ours, dense, rng = with_dense(kind, (lambda X: X.astype(np.float32)) if table is np.float32 else table)
    psi, hat = rng.normal(size=(2, ours.theta.shape[1]))
    order = ours.places.ravel()
    assert sorted(order) == list(range(len(psi)))
    value, gradient, hessian = expand_softmax(ours, psi)
    sums = softmax_sums(dense, psi[order])
    tight = {"rtol": 1e-12, "atol": 1e-10}
    np.testing.assert_allclose(value, sums.value, **tight)
    np.testing.assert_allclose(gradient[order], sums.gradient, **tight)
    np.testing.assert_allclose(hessian.to_dense()[np.ix_(order, order)], sums.hessian, **tight)
    main = max(f.n_groups * f.width for f in ours.rows.factors) * (CLASSES - 1)
    assert hessian.n_blocks * hessian.width == main
    ours.set_theta(psi[None])
    dense.set_theta(psi[None, order])
    np.testing.assert_allclose(ours.read(np.arange(N)), dense.read(np.arange(N)), **tight)
    np.testing.assert_array_equal(ours.read([5, 3, 1199]).ravel(), ours.read(np.arange(N))[[5, 3, 1199]].ravel())
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.totals(), ours.totals())
    with pytest.raises(ValueError, match="use fastrace.mcmc.Softmax"):
        taylor_glm(ours, hat)


@pytest.mark.parametrize("kind", ["slopes", "crossed"])
def test_means_over_normal_predictors_are_those_of_many_draws(kind):
    ours, _, rng = with_dense(kind)
    free, hat = CLASSES - 1, 0.3 * rng.normal(size=ours.theta.shape[1])
    factor = 0.03 * np.tril(rng.normal(size=(len(hat), len(hat))))
    roots = roots_of_rows(ours, factor)
    design = np.zeros((5, free, len(hat)))          # of some rows, by how unit steps move their predictors
    for j, unit in enumerate(np.eye(len(hat))):
        table = unit[ours.places]
        for i in range(5):
            x = [ours.rows.X[i]]
            for f in ours.rows.factors:
                own = np.zeros((f.n_groups, f.width))
                own[f.codes[i]] = f.values(ours.rows.X, slice(i, i + 1))
                x.append(own.ravel())
            design[i, :, j] = table @ np.concatenate(x)
    moved = design @ factor
    np.testing.assert_allclose(roots[:5] @ roots[:5].transpose(0, 2, 1), moved @ moved.transpose(0, 2, 1), rtol=1e-8,
                               atol=1e-12)
    small = SoftmaxSource(ours.rows.X[:5], ours.rows.y[:5], None, CLASSES,
                          groups=tuple(group.reordered(slice(0, 5)) for group in ours.rows.groups))
    _, slope, bend = expand_softmax(small, hat, roots[:5])
    draws = 20_000
    steps = np.einsum("nki,mi->mnk", moved, rng.standard_normal((draws, len(hat))))
    steps = np.concatenate([steps, -steps])
    share = special.softmax(np.concatenate([np.zeros((*steps.shape[:2], 1)), design @ hat + steps], axis=2), axis=2)
    left = np.eye(CLASSES)[small.rows.y.astype(int)] - share
    exact = np.einsum("nk,nkj->j", left.mean(axis=0)[:, 1:], design)
    _, slope_there, bend_there = expand_softmax(small, hat)
    assert np.abs(slope - exact).max() < 0.1 * np.abs(exact - slope_there).max()
    curved = np.zeros((len(hat), len(hat)))
    for i in range(5):
        p = share[:, i, 1:]
        second = np.diag(p.mean(axis=0)) - np.einsum("mk,mj->kj", p, p) / len(p)
        curved -= design[i].T @ second @ design[i]
    assert np.abs(bend.to_dense() - curved).max() < 0.1 * np.abs(curved - bend_there.to_dense()).max()


def of_effects(model, point):
    """Log density of the effects at a point on the natural scale, by names of standard deviations and correlations."""
    names, out = list(model.names), 0.0
    for f in model.factors:
        called = [(t[: t.rindex("[")], t[t.rindex("[") :]) for t in f.terms]
        sd = np.array([point[names.index(f"sd({t}|{f.name}){k}")] for t, k in called])
        related = np.eye(f.width)
        for i, a in enumerate(f.terms):
            for j, b in enumerate(f.terms[:i]):
                name = f"correlation({b},{a}|{f.name})"
                related[i, j] = related[j, i] = point[names.index(name)] if name in names else 0.0
        density = stats.multivariate_normal(np.zeros(f.width), related * np.outer(sd, sd))
        out += density.logpdf(point[f.start : f.stop].reshape(f.n_groups, f.width)).sum()
    return out


@pytest.mark.parametrize("related", [False, True])
@pytest.mark.parametrize("kind", FACTORS)
def test_the_log_posterior_given_the_hyperparameters_is_that_of_a_column_for_each_effect(kind, related):
    X, g, h, rng = rows()
    y, free = rng.integers(CLASSES, size=N), CLASSES - 1
    groups = {name: mcmc.Groups(own) if not isinstance(own, mcmc.Groups) else own
              for name, own in FACTORS[kind](g, h).items()}
    for own in groups.values():
        own.correlated = related
    priors = {"sd": mcmc.HalfNormal(1.5)} | ({"correlation": mcmc.LKJ(3.0)} if related else {})
    model = mcmc.Softmax(X, y, CLASSES, groups=groups, prior=mcmc.Normal(0.0, 2.0), shuffle=2, group_prior=priors)
    assert any(name.startswith("correlation") for name in model.names) == related
    design = [X]
    for f in mcmc.GLM(X, y > 0, groups=groups, prior_sd=1.0).factors:
        design.append(columns_of(X, pd.Categorical.from_codes(f.codes, range(f.n_groups)), f.values(X, slice(0, N))))
    dense, order = mcmc.Softmax(np.column_stack(design), y, CLASSES), model._data.places.ravel()
    points = 0.5 * rng.normal(size=(6, model.dim))
    points[1:, model.n_seen :] = points[0, model.n_seen :]
    natural = model.constrain(points)
    theirs = dense.log_posteriors(natural[:, order]) + [
        stats.norm.logpdf(point[: 2 * free], scale=2.0).sum() + of_effects(model, point) for point in natural]
    ours = model.log_posteriors(points)
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(model.unconstrain(natural), points, rtol=1e-9, atol=1e-9)


def test_two_classes_with_correlated_effects_are_a_logistic_regression():
    """Densities, names but for the class, expansions, and weighted draws."""
    X, g, _, rng = rows()
    y = drawn(np.column_stack([np.zeros(N), X @ [0.2, 0.6] + 0.7 * rng.normal(size=8)[g.codes]]), rng)
    priors = {"prior": mcmc.Normal(0.0, 2.0), "group_prior": mcmc.HalfNormal(1.0)}
    options = {"groups": {"g": mcmc.Groups(g, [1])}, **priors}
    ours, glm = mcmc.Softmax(X, y, 2, **options), mcmc.GLM(X, y, **options)
    assert [name.replace("[1]", "") for name in ours.names] == list(glm.names)
    points = 0.7 * rng.normal(size=(20, glm.dim))
    levels = [model.log_posteriors(points) for model in (ours, glm)]
    np.testing.assert_allclose(*[level - level[0] for level in levels], rtol=1e-9, atol=1e-8)
    made = [mcmc.compress(model) for model in (ours, glm)]
    np.testing.assert_allclose(made[0].psi_hat, made[1].psi_hat, atol=1e-3)
    made = [mcmc.compress(model, made[1].psi_hat) for model in (ours, glm)]
    np.testing.assert_allclose(made[0].curvature.to_dense(), made[1].curvature.to_dense(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made[0].precision, made[1].precision, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # of groups whose outcomes are alike
        answers = [mcmc.laplace(model, 2000, rng=1) for model in (ours, glm)]
    error = np.hypot(*[answer.sd / np.sqrt(answer.ess) for answer in answers])
    assert (np.abs(answers[0].mean - answers[1].mean) < 6.0 * error).all()


@pytest.mark.parametrize("kind", ["intercepts", "slopes", "crossed", "nested"])
def test_no_row_leaves_its_bounds_which_are_not_far_off(kind):
    """Of blocks by what a row sees of a step, of pieces by the sum over those that it sees."""
    X, g, h, rng = rows()
    y = drawn(X @ rng.normal(size=(2, CLASSES)) + rng.normal(size=(8, CLASSES))[g.codes], rng)
    model = mcmc.Softmax(X, y, CLASSES, groups=FACTORS[kind](g, h))
    made = mcmc.compress(model)
    hat, factor = np.array(made.psi_hat), made.factor()
    source, theta = model.engine(mcmc.SurrogateMetropolis(model, decision="exact").reference)
    nearest = 0.0
    if len(model.factors) > 1:
        pieces = pieces_of(factor, model.factors)
        weights, _ = model._piece_weights(hat, pieces)
        codes = pieces.codes(model.factors)
    else:
        weights, radius, _ = model._bounds(hat, root_of_rows(factor))
        assert radius == np.inf
        outside = made.curvature.block_coordinates()[1]
    for size in (0.3, 1.0, 3.0):
        for _ in range(20):
            step = size * factor.draw(rng.normal(size=len(hat)))
            theta[0], theta[1] = hat, hat + step
            left = np.abs(source.read(np.arange(N), [1]).ravel())
            if len(model.factors) > 1:
                bound = (weights * pieces.cubes(step)[codes]).sum(axis=0) / 6.0
            else:
                z, first = factor.whiten(step), made.curvature.start
                own = z[first : first + made.curvature.n_blocks * made.curvature.width]
                squares = np.square(own).reshape(made.curvature.n_blocks, -1).sum(axis=1)[model.factors[0].codes]
                bound = weights * (squares + np.square(z[outside]).sum()) ** 1.5 / 6.0
            assert (left <= bound * (1.0 + 1e-8) + 1e-10).all()
            nearest = max(nearest, float((left / bound).max()))
    assert nearest > 0.01


def test_steps_that_no_row_sees_move_no_row():
    X, g, h, rng = rows()
    model = mcmc.Softmax(X, rng.integers(CLASSES, size=N), CLASSES, groups=FACTORS["crossed"](g, h))
    ways = model._unseen_ways()
    assert len(ways) == 3 * (CLASSES - 1)           # two intercepts and a slope against those of groups
    for way in ways:
        assert np.abs(model._movements(way)).max() < 1e-12 * np.abs(way).max() + 1e-12
    assert np.linalg.matrix_rank(ways) == len(ways)


def prior_draws(rng, n, correlated, groups=3):
    """Two slopes, effects of two classes in each group, deviations, and a correlation if there is one."""
    slopes, sds = rng.standard_normal((n, 2)), np.abs(rng.standard_normal((n, 2)))
    related = 2.0 * rng.beta(2.0, 2.0, n) - 1.0 if correlated else np.zeros(n)
    z = rng.standard_normal((n, groups, 2))
    z[..., 1] = related[:, None] * z[..., 0] + np.sqrt(1.0 - related**2)[:, None] * z[..., 1]
    return np.column_stack([slopes, (sds[:, None] * z).reshape(n, -1), sds, *([related] if correlated else [])])


def given(codes, correlated):
    prior = {"sd": mcmc.HalfNormal(1.0)} | ({"correlation": mcmc.LKJ(2.0)} if correlated else {})
    return {"groups": codes, "prior": mcmc.Normal(0.0, 1.0), "group_prior": {"group": prior}}


@few_or_many("draws", 200_000, 2_000_000)
@pytest.mark.parametrize("correlated", [False, True])
def test_chains_have_the_posterior_that_draws_from_the_prior_weighted_by_all_rows_have(correlated, draws):
    """Nothing is expanded or approximated there. A group has no row, and one has one row."""
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal(14)
    codes = pd.Categorical.from_codes(np.array([0] * 13 + [2]), ["a", "b", "c"])
    y = rng.integers(3, size=14)
    theta = prior_draws(rng, draws, correlated)
    eta = np.zeros((draws, 14, 3))
    eta[..., 1:] = x[:, None] * theta[:, None, :2] + theta[:, 2:8].reshape(-1, 3, 2)[:, codes.codes]
    weights = np.exp(np.take_along_axis(eta, y[None, :, None], 2)[..., 0].sum(axis=1)
                     - special.logsumexp(eta, axis=2).sum(axis=1))
    weights /= weights.sum()
    mean = weights @ theta
    error = np.sqrt(np.square(weights) @ np.square(theta - mean))
    assert 1.0 / np.square(weights).sum() > 1000.0
    model = mcmc.Softmax(x[:, None], y, 3, **given(codes, correlated))
    kernel = mcmc.SurrogateMetropolis(model, decision="exact")
    trace = mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=1)
    own = trace.draws.std(axis=(0, 1)) / np.sqrt(trace.ess())
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - mean) < 5.5 * np.hypot(own, error)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # of few rows
        answer = mcmc.laplace(model, 4000, rng=1)
    assert (np.abs(answer.mean - mean) < 5.5 * np.hypot(answer.sd / np.sqrt(answer.ess), error) + 0.05).all()


@few_or_many("fits", 40, 600)
@pytest.mark.parametrize("decision", ["exact", "poisson"])
def test_simulation_based_calibration_with_correlated_classes(decision, fits):
    """Ranks of parameters drawn from the prior among draws of their posterior are uniform."""
    draws, cells = (19, 5) if fits < 100 else (99, 20)
    rng, ranks, thin = np.random.default_rng(SEED), [], 20
    x, codes = rng.standard_normal((60, 1)), np.arange(60) % 3
    for theta in prior_draws(rng, fits, True):
        eta = np.zeros((60, 3))
        eta[:, 1:] = x * theta[:2] + theta[2:8].reshape(3, 2)[codes]
        model = mcmc.Softmax(x, drawn(eta, rng), 3, **given(codes, True))
        kernel = mcmc.SurrogateMetropolis(model, decision=decision)
        _, steps = kernel.run(rng, kernel.init(theta), draws * thin)
        ranks.append((steps.draws[thin - 1 :: thin] < theta).sum(axis=0))
    assert_uniform(np.array(ranks), draws, cells)


def many(n_groups, n_classes, n, seed=SEED):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    codes = rng.integers(n_groups, size=n)
    eta = np.zeros((n, n_classes))
    effects = 0.6 * rng.normal(size=(n_groups, n_classes - 1))
    eta[:, 1:] = X @ rng.normal(size=(2, n_classes - 1)) + effects[codes]
    return X, codes, drawn(eta, rng), effects


def test_two_hundred_groups_of_five_classes_are_sampled_in_blocks():
    X, codes, y, effects = many(200, 5, 30_000)
    model = mcmc.Softmax(X, y, groups=codes)
    made = mcmc.compress(model)
    assert (made.curvature.n_blocks, made.curvature.width, made.curvature.n_dense) == (200, 4, 8)
    kernel = mcmc.SurrogateMetropolis(model, psi_hat=made)
    trace = mcmc.sample(kernel, n_draws=3000, n_chains=2, rng=1)
    assert kernel.inner == "normal" and trace.rhat().max() < 1.1
    means, sds = trace.draws.mean(axis=(0, 1)), trace.draws.std(axis=(0, 1))
    z = (means[8:808] - effects.ravel()) / sds[8:808]
    assert np.mean(np.abs(z) < 2.0) > 0.9           # of the effects that made the data
    assert (np.abs(means[808:] - 0.6) < 0.1).all()


def test_a_thousand_groups_of_one_row_each_are_no_bar():
    rng = np.random.default_rng(SEED)
    X, y = np.column_stack([np.ones(1000), rng.normal(size=1000)]), rng.integers(3, size=1000)
    model = mcmc.Softmax(X, y, groups=np.arange(1000), group_prior=mcmc.HalfNormal(0.5))
    assert model.dim == 2 * 1002 + 2
    kernel = mcmc.SurrogateMetropolis(model)
    _, steps = kernel.run(rng, kernel.init(None, rng), 300)
    assert steps.accepted.mean() > 0.05
    slopes = steps.draws[:, [1, 3]].mean(axis=0)
    assert (np.abs(slopes) < 0.5).all()             # there are none


def test_chains_go_on_where_they_were(tmp_path):
    X, codes, y, _ = many(60, 3, 4000)
    model = mcmc.Softmax(X, y, groups=codes, group_prior={"correlation": mcmc.LKJ(2.0)})
    kernel = mcmc.SurrogateMetropolis(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # of few draws
        whole = mcmc.sample(kernel, n_draws=400, n_chains=2, rng=5)
        file = tmp_path / "chains"
        mcmc.sample(kernel, n_draws=150, n_chains=2, rng=5, checkpoint=file)
        rest = mcmc.sample(pickle.loads(pickle.dumps(kernel)), n_draws=400, n_chains=2, rng=5, checkpoint=file)
    np.testing.assert_array_equal(rest.draws, whole.draws)


def test_names_variables_and_predictions_with_correlations():
    X, g, h, rng = rows()
    y = rng.integers(3, size=N)
    frame = pd.DataFrame({"one": X[:, 0], "x": X[:, 1]})
    model = mcmc.Softmax(frame, y, groups={"g": mcmc.Groups(g, ["x"]), "h": h})
    assert model.names[4:8] == ("1|g[g0][1]", "1|g[g0][2]", "x|g[g0][1]", "x|g[g0][2]")
    assert model.names[-12:-2] == (
        "sd(1|g)[1]", "sd(1|g)[2]", "sd(x|g)[1]", "sd(x|g)[2]", "correlation(1[1],1[2]|g)", "correlation(1[1],x[1]|g)",
        "correlation(1[2],x[1]|g)", "correlation(1[1],x[2]|g)", "correlation(1[2],x[2]|g)", "correlation(x[1],x[2]|g)")
    assert model.names[-2:] == ("sd(1|h)[1]", "sd(1|h)[2]")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # of few draws
        trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=200, n_chains=2, rng=1, n_tune=100)
    found = trace.to_arrays()["posterior"]
    shapes = {name: values.shape[2:] for name, values in found.items()}
    assert shapes == {"one": (2,), "x": (2,), "1|g": (8, 2), "x|g": (8, 2), "1|h": (3, 2), "1|g_sigma": (2,),
                      "x|g_sigma": (2,), "1|h_sigma": (2,), **dict.fromkeys(model.names[-8:-2], ())}
    assert set(found["1|g"].shape[:2]) == {2, 200} and (np.abs(found["correlation(1[1],1[2]|g)"]) < 1.0).all()
    place = model.names.index("x|g[g3][2]")
    np.testing.assert_array_equal(found["x|g"][..., 3, 1], trace.draws[..., place])
    draws = trace.draws.reshape(-1, model.dim)
    eta, some = np.zeros((len(draws), 5, 3)), np.arange(5)
    for k in (1, 2):
        eta[..., k] = draws[:, [2 * k - 2, 2 * k - 1]] @ X[:5].T
        for i in some:
            for t, value in (("1", 1.0), ("x", X[i, 1])):
                eta[:, i, k] += value * draws[:, model.names.index(f"{t}|g[{g[i]}][{k}]")]
            eta[:, i, k] += draws[:, model.names.index(f"1|h[{h[i]}][{k}]")]
    means = model.predict(trace, frame[:5], groups={"g": g[:5], "h": h[:5]})
    np.testing.assert_allclose(means, special.softmax(eta, axis=2), rtol=1e-9)
    assert "~ LKJ(2)" in str(model)


def test_chunks_of_rows_with_groups_give_the_expansion_of_all():
    X, codes, y, _ = many(30, 3, 6000)
    options = {"n_classes": 3, "prior": mcmc.Normal(0.0, 2.0), "group_prior": mcmc.HalfNormal(1.0)}
    whole = mcmc.Softmax(X, y, groups=mcmc.Groups(codes, [1], name="g"), **options)
    pilot = mcmc.Softmax(X[:1500], y[:1500], groups=mcmc.Groups(codes[:1500], [1], name="g"), **options)
    wanted = mcmc.compress(whole)
    parts = [{"X": X[k::4], "y": y[k::4], "groups": {"g": mcmc.Groups(codes[k::4], [1])}} for k in range(4)]
    ours = mcmc.compress(pilot, np.array(wanted.psi_hat), chunks=parts)
    np.testing.assert_allclose(ours.slope, wanted.slope, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.curvature.to_dense(), wanted.curvature.to_dense(), rtol=1e-9, atol=1e-9)
    assert ours.n_rows == 6000


@few_or_many("groups", 40, 200)
def test_weighted_draws_agree_with_chains(groups):
    X, codes, y, _ = many(groups, 4, 200 * groups)
    model = mcmc.Softmax(X, y, groups={"g": codes}, group_prior={"g": {"correlation": mcmc.LKJ(2.0)}})
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=4000, n_chains=2, rng=1)
    exact = mcmc.sample(mcmc.SurrogateMetropolis(model, decision="exact"), n_draws=4000, n_chains=2, rng=2)
    error = np.hypot(*[t.draws.std(axis=(0, 1)) / np.sqrt(t.ess()) for t in (trace, exact)])
    for j, z in enumerate((trace.draws.mean(axis=(0, 1)) - exact.draws.mean(axis=(0, 1))) / error):
        assert abs(z) < 6.0, (model.names[j], z)
