"""Columns and groups that rows cannot tell apart: the posterior, a refusal, or words on what to leave out."""

import warnings

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from tests.guarantee import assert_mean

SEED = 20261127
N = 60
RNG = np.random.default_rng(SEED)
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
G = np.arange(N) % 6
Y = X @ [0.5, 1.0] + RNG.normal(size=6)[G] + RNG.normal(size=N)
OF_GROUPS = RNG.normal(size=6)[G]
ONE_EACH = np.arange(N)
CASES = {  # columns, and grouping factors
    "collinear columns": (np.column_stack([X, 2.0 * X[:, 1]]), [G]),
    "two constant columns": (np.column_stack([X, 3.0 * X[:, 0]]), [G]),
    "a column of zeros": (np.column_stack([X, 0.0 * X[:, 0]]), [G]),
    "a column constant within the groups": (np.column_stack([X, OF_GROUPS]), [G]),
    "a column for each group": (np.column_stack([X, np.eye(6)[G]]), [G]),
    "one row a group": (X, [ONE_EACH]),
    "a factor within another": (X, [G // 2, G]),
    "one factor twice": (X, [G, G]),
}


def by_quadrature(columns, factors):
    """Means of coefficients, effects and logarithms of scales: y is normal given the scales, which are on a grid.

    Coefficients are normal with sd 2, scales half-normal with scale 1, and the outcome has a standard deviation of 1.
    """
    logs = np.linspace(-7.0, 1.6, 200 if len(factors) == 1 else 45)
    dummies = [np.eye(codes.max() + 1)[codes] for codes in factors]
    design = np.column_stack([columns, *dummies])
    density, means, points = [], [], []
    for point in np.stack(np.meshgrid(*[logs] * len(factors), indexing="ij"), axis=-1).reshape(-1, len(factors)):
        variances = [np.full(columns.shape[1], 4.0)]
        variances += [np.full(z.shape[1], np.exp(2.0 * s)) for z, s in zip(dummies, point, strict=True)]
        spread = np.concatenate(variances)
        root = np.linalg.cholesky(np.eye(N) + (design * spread) @ design.T)
        left = np.linalg.solve(root, Y)
        prior = stats.halfnorm.logpdf(np.exp(point)).sum() + point.sum()
        density.append(prior - 0.5 * left @ left - np.log(np.diag(root)).sum())
        means.append(spread * (design.T @ np.linalg.solve(root.T, left)))
        points.append(point)
    weights = special.softmax(density)
    return np.concatenate([weights @ np.array(means), weights @ np.array(points)])


@pytest.mark.parametrize("case", CASES)
def test_what_the_rows_cannot_tell_apart_has_its_posterior_by_quadrature(case):
    columns, factors = CASES[case]
    names = {f"f{k}": codes for k, codes in enumerate(factors)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = mcmc.GLM(columns, Y, "gaussian", 1.0, groups=names, prior=mcmc.Normal(0.0, 2.0),
                         group_prior=mcmc.HalfNormal(1.0))
        trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=20_000, n_chains=1, rng=SEED)
    draws = model.unconstrain(trace.draws[0])
    assert min(mcmc.effective_sample_size(x) for x in draws.T) > 200.0
    assert_mean(draws, by_quadrature(columns, factors))


@pytest.mark.parametrize("more", [1.0, 3.0])
def test_a_second_constant_column_leaves_the_level_of_the_outcome_where_it_was(more):
    """The weak prior put both at it, so that their sum was at twice it, which effects of groups then took off."""
    y = 1000.0 + Y
    draws = []
    for columns in (X, np.column_stack([X, np.full(N, more)])):
        trace = mcmc.sample(mcmc.GLM(columns, y, "gaussian", groups=G), n_draws=2000, n_chains=1, rng=SEED)
        draws.append(trace.draws[0][:, list(trace.names).index("sd(1|group)")])
    assert draws[1].mean() < draws[0].mean() + 1.0 < 10.0


def words_of(**options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = mcmc.GLM(X, options.pop("y", Y > 0.5), **options)
    return model, [str(w.message) for w in caught]


OTHER_NAMES = np.array(list("fedcba"))[G]
ALIKE = {
    "one factor twice": {"a": G, "b": G},
    "under other labels": {"a": G, "b": OTHER_NAMES},
    "within itself": {"a": G, "b": (OTHER_NAMES, G)},
    "slopes of a column": {"a": mcmc.Groups(G, slopes=[1]), "b": mcmc.Groups(OTHER_NAMES, [1], intercept=False)},
    "slopes of a table": {"a": mcmc.Groups(G, X[:, 1:], False), "b": mcmc.Groups(OTHER_NAMES, X[:, 1:])},
    "a constant": {"a": mcmc.Groups(G, slopes=[0], intercept=False), "b": OTHER_NAMES},
}


@pytest.mark.parametrize("case", ALIKE)
def test_factors_that_divide_the_rows_alike_are_warned_of(case):
    model, said = words_of(groups=ALIKE[case])
    assert len(said) == 1 and "'a' and 'b' divide the rows alike" in said[0] and "Leave one of them out" in said[0]
    assert model._remedy == said[0]


def test_a_slope_of_a_constant_beside_an_intercept_is_warned_of():
    for slopes in ([0], np.full((N, 1), 0.1)):
        _, said = words_of(groups={"a": mcmc.Groups(G, slopes=slopes)})
        assert len(said) == 1 and "which is constant" in said[0] and "Leave the slope out" in said[0]


@pytest.mark.parametrize("family", ["logistic", "probit", "cloglog"])
def test_groups_of_one_row_with_outcomes_of_0_and_1_are_warned_of(family):
    _, said = words_of(family=family, groups={"person": ONE_EACH})
    assert len(said) == 1 and "one row each" in said[0] and "Leave 'person' out" in said[0]
    # counts know how far they spread
    assert not words_of(y=np.arange(N) % 4, family="poisson", groups={"person": ONE_EACH})[1]
    assert not words_of(family=family, groups={"person": ONE_EACH}, prior_sd=np.ones(N + 2))[1]


@pytest.mark.parametrize("groups", [
    {"a": G // 2, "b": G}, {"a": G, "b": ONE_EACH % 5}, {"a": mcmc.Groups(G), "b": mcmc.Groups(G, [1], False)},
    {"a": mcmc.Groups(G, slopes=[1])},
])
def test_factors_within_others_across_them_and_with_other_slopes_are_not(groups):
    assert not words_of(groups=groups)[1]


def test_what_was_doubtful_is_said_again_where_chains_do_not_mix():
    rng = np.random.default_rng(SEED)
    codes = rng.integers(20, size=2000)
    y = rng.normal(size=20)[codes] + rng.normal(size=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = mcmc.GLM(np.ones((2000, 1)), y, "gaussian", groups={"a": codes, "b": codes})
        trace = mcmc.sample(model, n_draws=200, n_chains=2, n_tune=100, rng=1)
    assert "R-hat" in trace.warnings[0] and trace.warnings[-1] == model._remedy != ""


# What else is said of grouping factors, and where.


@pytest.mark.parametrize(("family", "y", "said"), [
    ("logistic", np.ones(N), "y is 1 in every row"), ("logistic", np.zeros(N), "y is 0 in every row"),
    ("poisson", np.zeros(N), "y is 0 in every row"), ("binomial", np.full(N, 3.0), "y is the number of trials"),
    ("poisson", np.ones(N), None), ("logistic", (RNG.random(N) < 0.5) * 1.0, None),
])
def test_outcomes_that_are_all_alike_are_spoken_of(family, y, said):
    more = {"trials": np.full(N, 3.0)} if family == "binomial" else {}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        mcmc.GLM(X, y, family, groups={"g": G}, **more)
    assert [said in str(one.message) for one in seen] == [True] * (said is not None)
    assert all(one.filename == __file__ for one in seen)


def test_rows_that_count_nothing_do_not_make_outcomes_differ():
    y = np.ones(N)
    y[0] = 0.0
    with pytest.warns(UserWarning, match="y is 1 in every row"):
        mcmc.GLM(X, y, groups={"g": G}, weights=np.arange(N) > 0)


def test_a_factor_of_one_group_is_spoken_of():
    with pytest.warns(UserWarning, match="groups 'g' have one group alone"):
        model = mcmc.GLM(X, Y, "gaussian", groups={"g": np.zeros(N, int)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(model, n_draws=20, n_chains=2, rng=1)
    assert sum("one group alone" in words for words in trace.warnings) == 1
    with pytest.warns(UserWarning, match="groups 'g' have one group alone") as seen:
        mcmc.Softmax(X, np.arange(N) % 3, groups={"g": np.zeros(N, int)})
    assert seen[0].filename == __file__


def test_a_formula_says_what_is_doubtful_at_the_users_line_and_refuses_effects_twice():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("formulae")
    frame = pd.DataFrame({"y": Y, "x": X[:, 1], "g": list("abcdef" * 10), "one": ["a"] * N})
    with pytest.warns(UserWarning, match="one group alone") as seen:
        mcmc.GLM.from_formula("y ~ x + (1 | one)", frame, family="gaussian")
    assert seen[0].filename == __file__
    for formula in ("y ~ x + (1 | g) + (1|g)", "y ~ x + (x|g) + (1 | one) + ( x | g )"):
        with pytest.raises(ValueError, match=r"\| g\) twice"):
            mcmc.GLM.from_formula(formula, frame, family="gaussian")
    mcmc.GLM.from_formula("y ~ x + (1 | g) + (0 + x | g)", frame, family="gaussian")
