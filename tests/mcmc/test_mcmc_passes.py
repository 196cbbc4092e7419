"""How often set-up reads all rows: each count is exact, and what one pass has found is what several had."""

import pickle

import numpy as np
import pytest
from passes import passes

from fastrace import mcmc
from fastrace._models._seen import expand_seen
from fastrace._models.rows import chunks, lengths, products, products_of
from fastrace.control_variates import residual_rounding
from fastrace.mcmc.kernels._surrogate_moves import root_of_rows
from fastrace.mcmc.models import _first_pass
from fastrace.mcmc.models._first_pass import About
from fastrace.mcmc.models._unseen import unseen_directions
from surrogates import SEED

N, G = 30_000, 20
RNG = np.random.default_rng(SEED)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))]).astype(np.float32)
CODES = RNG.integers(0, G, N)
Y = (RNG.random(N) < 1.0 / (1.0 + np.exp(-X @ [0.3, 0.5, -0.4] - 0.5 * RNG.normal(size=G)[CODES]))) * 1.0


def counted(found):
    """Passes so far; forgets them."""
    out = {reader: rows / N for reader, rows in found.items()}
    found.clear()
    return out


def of_whole_table(found):
    """Passes over all rows so far, and rows beside them that are read of it, as a share; forgets them."""
    out = counted(found)
    whole = [passes for passes in out.values() if passes >= 1.0]
    assert all(passes == 1.0 for passes in whole)
    return len(whole), sum(passes for reader, passes in out.items() if passes < 1.0 and "first_pass" not in reader)


@pytest.fixture
def long(monkeypatch):
    """Tables of more rows than twice 6,000 are long."""
    monkeypatch.setattr(_first_pass, "SAMPLE", 6_000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decision", ["auto", "poisson"])
def test_a_hierarchy_takes_two_passes(long, dtype, decision):
    """As bench/memory_map.py: one of the model, and one that expands it, bounds what is left and tilts the mean."""
    with passes() as found:
        model = mcmc.GLM(X.astype(dtype), Y, groups={"g": CODES})
        made = counted(found)
        assert sum(passes for passes in made.values() if passes >= 1.0) == 1.0
        assert sum(passes for reader, passes in made.items() if "_taken" in reader) == len(_first_pass.some_rows(N)) / N
        kernel = mcmc.SurrogateMetropolis(model, decision=decision)
        assert kernel.decision == "poisson" and kernel._metric_of_bounds is not None
        assert of_whole_table(found) == (1, 0)
        compressed = mcmc.compress(model)
        assert of_whole_table(found) == (1, 0)
        other = mcmc.SurrogateMetropolis(model, psi_hat=compressed)  # to see that it is of these rows, bounds, a tilt
        assert of_whole_table(found) == (1, 0) and other._metric_of_bounds is None
        mcmc.SurrogateMetropolis(model, psi_hat=np.array(compressed.psi_hat))  # the metric is unknown before
        assert of_whole_table(found) == (3, 0)


MANY = {"sorted": np.sort(RNG.integers(0, 150, N)), "small": RNG.integers(0, 1500, N)}


@pytest.mark.parametrize("kind", MANY)
def test_groups_that_stand_together_or_are_many_take_two_passes_too(long, kind):
    """Few rows are read besides; the tilt, which leaves out some groups and rows, is what all rows say."""
    codes, rng = MANY[kind], np.random.default_rng(4)
    y = rng.random(N) < 1.0 / (1.0 + np.exp(-X @ [0.3, 0.5, -0.4] - 0.6 * rng.normal(size=1500)[codes]))
    with passes() as found:
        model = mcmc.GLM(X, y, groups={"g": codes})
        counted(found)
        kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
        whole, some = of_whole_table(found)
        assert whole == 1 and some < 0.15
        tilt, _, sites = kernel._better(None)
        assert sum(counted(found).values()) >= 2.0
    assert kind == "sorted" or (tilt is not None and sites is not None)
    assert (tilt is None) == (kernel._tilt is None)
    if tilt is not None:
        np.testing.assert_allclose(tilt, kernel._tilt, rtol=1e-9, atol=1e-9 * np.abs(tilt).max())


def test_rows_that_say_first_where_to_look_are_of_most_groups(long):
    codes = MANY["sorted"]
    factor = mcmc.GLM(X, Y, groups={"g": codes}).factors
    few, most = (_first_pass.some_rows(N, of) for of in ((), factor))
    assert len(np.unique(codes[few])) < 60 and len(np.unique(codes[most])) > 140
    assert len(most) <= _first_pass.SAMPLE and len(np.unique(most)) == len(most)
    shuffled = mcmc.GLM(X, Y, groups={"g": np.random.default_rng(5).permutation(codes)}).factors
    np.testing.assert_array_equal(_first_pass.some_rows(N, shuffled), few)


def test_passes_more_where_some_rows_say_too_little(long):
    """Newton's method then goes on, and the bounds about its end need a pass of their own, and so does the tilt."""
    with passes() as found:
        model = mcmc.GLM(X, Y, groups={"g": CODES})
        near = mcmc.compress(model)
        model._pilot = model._pilot._replace(point=model._pilot.point + 0.3)
        counted(found)
        kernel = mcmc.SurrogateMetropolis(model)
    made = counted(found)
    assert sum(passes for reader, passes in made.items() if "expand_seen" in reader) > 1.0
    assert sum("_about" in reader for reader in made) == 1 and kernel._metric_of_bounds is None
    assert near.distance(kernel.compressed.psi_hat) < 0.1 * np.sqrt(near.n_seen)


MODELS = {
    "logistic": {},
    "float64": {},
    "weights": {"weights": RNG.integers(0, 3, N)},
    "offset": {"offset": RNG.normal(size=N)},
    "slopes": {"groups": {"g": mcmc.Groups(CODES, slopes=[1])}},
    "flat": {"groups": None},
    "crossed": {"groups": {"g": CODES, "h": RNG.integers(0, 7, N)}},
    "shuffled": {"shuffle": 1},
    "poisson": {"family": "poisson"},
    "student-t": {"family": "student-t"},
    "horseshoe": {"groups": None, "prior": mcmc.Horseshoe(1.0)},
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_first_pass_finds_what_several_did(monkeypatch, kind):
    """Priors are the same to the bit, and the expansion is where all rows lead, up to a tenth of its reach."""
    options = {"groups": {"g": CODES}, **MODELS[kind]}
    table = X.astype(np.float64) if kind == "float64" else X
    before = mcmc.GLM(table, Y, **options)
    monkeypatch.setattr(_first_pass, "SAMPLE", 6_000)
    model = mcmc.GLM(table, Y, **options)
    assert "_unchecked" not in vars(model) and (model._pilot is None) == (kind == "flat")
    given, other = (None if m.joint_prior is None else m.joint_prior.given for m in (before, model))
    assert given == other
    if kind == "flat":
        return
    there = mcmc.compress(model)
    again = mcmc.compress(pickle.loads(pickle.dumps(model)))
    np.testing.assert_array_equal(there.psi_hat, again.psi_hat)
    monkeypatch.undo()
    here = mcmc.compress(before)
    assert here.distance(there.psi_hat) < 0.1 * np.sqrt(here.n_seen) + 0.01
    np.testing.assert_allclose(there.curvature.diagonal(), here.curvature.diagonal(), rtol=0.02)
    if kind not in ("slopes", "crossed"):  # of which one scale is 0, which its estimate goes to slowly
        np.testing.assert_allclose(there.precision, here.precision, rtol=0.05, atol=1e-6)


@pytest.mark.parametrize("groups", [None, {"g": CODES}])
@pytest.mark.parametrize(("bad", "dtype", "match"), [
    (np.nan, np.float32, r"X\[20001, 1\] is nan; finite numbers are needed"),
    (-np.inf, np.float64, r"X\[20001, 1\] is -inf; finite numbers are needed"),
    (1e200, np.float64, r"X holds 1e\+200, which would overflow; numbers of at most 1e\+100 are needed"),
])
@pytest.mark.parametrize("outcome", [Y, np.zeros(N)])
def test_a_long_table_is_refused_as_a_short_one(long, groups, bad, dtype, match, outcome):
    table = X.astype(dtype)
    table[20_001, 1] = bad
    with pytest.raises(ValueError, match=match):
        mcmc.GLM(table, outcome, groups=groups)
    table[20_001, 1], table[0, 1] = 0.0, bad  # a row that is read before all others
    with pytest.raises(ValueError, match=match.replace("20001", "0")):
        mcmc.GLM(table, outcome, groups=groups)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=match.replace("20001, 1", "0, 'age'")):
        mcmc.GLM(pandas.DataFrame(table, columns=["1", "age", "height"]), outcome, groups=groups)


def test_bounds_in_the_metric_that_was_known_before_hold(long):
    """No row moves by more than its length times how far its own coordinates move."""
    model = mcmc.GLM(X, Y, groups={"g": CODES})
    kernel = mcmc.SurrogateMetropolis(model)
    factor, arrow = kernel._factor_of_bounds(), kernel.compressed.curvature
    lengths_of = lengths(X, root_of_rows(factor), model.factors)
    rng, dense = np.random.default_rng(3), np.asarray(arrow.block_coordinates()[1])
    for _ in range(5):
        step = kernel._draw(rng)[: model.n_seen] - kernel.compressed.psi_hat
        z = factor.whiten(step)
        far = np.sqrt((z[dense] ** 2).sum() + z[arrow.start : arrow.start + G] ** 2)[CODES]
        moved = np.abs(model._movements(step))
        assert (moved <= lengths_of * far * (1.0 + 1e-9)).all() and (moved > 0.5 * lengths_of * far).any()
    assert not np.array_equal(factor.whiten(step), kernel.compressed.factor().whiten(step))
    weights, bend = kernel.reference.weights, np.abs(model._glm.third_derivatives())
    np.testing.assert_allclose(weights, bend * lengths_of**3, rtol=1e-12)


def test_draws_where_some_rows_said_first_where_to_look(long):
    """Chains of both kernels have one posterior, to six standard errors of the difference of their means."""
    model = mcmc.GLM(X, Y, groups={"g": CODES})
    one = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=4000, n_chains=2, rng=1, threads=1)
    model._pilot = None
    other = mcmc.sample(mcmc.SurrogateMetropolis(model, decision="race"), n_draws=4000, n_chains=2, rng=2, threads=1)
    means, errors = [], []
    for trace in (one, other):
        means.append(trace.draws.mean(axis=(0, 1)))
        errors.append(trace.draws.std(axis=(0, 1)) / np.sqrt(trace.ess()))
    assert (np.abs(means[0] - means[1]) < 6.0 * np.hypot(*errors) + 1e-12).all()


@pytest.mark.parametrize("prior", [{"prior_sd": 2.0}, {"prior": mcmc.StudentT(4.0)}])
def test_bounds_of_a_model_without_groups_take_one_pass(prior):
    with passes() as found:
        model = mcmc.GLM(X, Y, **prior)
        counted(found)
        kernel = mcmc.SurrogateMetropolis(model, psi_hat=np.array([0.3, 0.5, -0.4]))
        assert kernel.decision == "poisson"
        made = counted(found)
        assert sum(count for reader, count in made.items() if "_about" in reader) == 1.0
        assert sum(count for reader, count in made.items() if "_about" not in reader) == 1.0  # the expansion


@pytest.mark.parametrize("offset", [None, RNG.normal(size=N)])
@pytest.mark.parametrize("family", ["logistic", "student-t"])
def test_one_pass_about_a_point_finds_what_several_would(family, offset):
    model = mcmc.GLM(X, Y, family, groups={"g": mcmc.Groups(CODES, slopes=[1])}, offset=offset)
    rng = np.random.default_rng(1)
    hat, factor = 0.1 * rng.standard_normal(model.n_seen), rng.standard_normal((model.n_seen, 5))
    about = model._about(hat, factor)
    np.testing.assert_array_equal(about.center, model._predictors(hat))
    np.testing.assert_array_equal(about.across, model._lengths(factor))
    np.testing.assert_array_equal(about.across, lengths(model._glm.X, factor, model.factors))
    np.testing.assert_array_equal(about.unseen(), unseen_directions(model._glm.X, model.factors, model.n_seen))
    assert residual_rounding(about.largest) == model._rounding(hat)
    if family == "student-t":
        return
    planned = About(model, hat, factor, tilted=True)
    value, slope, _ = expand_seen(model._glm, hat, planned.take)
    assert value == expand_seen(model._glm, hat)[0]
    for name in ("center", "across"):
        np.testing.assert_array_equal(getattr(planned, name), getattr(about, name))
    np.testing.assert_allclose(planned.largest, about.largest, rtol=1e-15)
    np.testing.assert_allclose(planned.tilt, model._tilt(hat, about.across), rtol=1e-9, atol=1e-9 * np.abs(slope).max())


def test_products_with_several_matrices_are_those_of_each():
    model = mcmc.GLM(X, Y, groups={"g": CODES})
    one, other = np.random.default_rng(2).standard_normal((2, model.n_seen))
    both = np.concatenate([np.stack(products_of(part, x, X, model.factors, [one, other]), axis=1)
                           for part, x in chunks(X)])
    for column, matrix in zip(both.T, (one, other), strict=True):
        np.testing.assert_array_equal(column, np.concatenate([x for _, x in products(X, model.factors, matrix)]))


def test_what_a_pass_found_is_kept_for_its_point_alone_and_while_a_kernel_is_made():
    hat, factor = np.zeros(3 + G), np.eye(3 + G)
    with passes() as found:
        model = mcmc.GLM(X, Y, groups={"g": CODES})
        counted(found)
        with model._keeping():
            assert model._kept is None
            model._bounds(hat, factor)
            assert counted(found) and model._kept is not None
            model._bounds(hat, factor)
            assert not counted(found)
        assert not {"_keeps", "_kept", "_planned"} & set(vars(model))
    other = mcmc.GLM(X, Y, groups={"g": CODES})
    with model._keeping():
        model._bounds(hat, factor)
        for point in (hat, hat + 0.1):
            np.testing.assert_array_equal(model._predictors(point), other._predictors(point))
        for scale in (1.0, 2.0):
            np.testing.assert_array_equal(model._lengths(scale * factor), other._lengths(scale * factor))


def test_a_tilt_that_moves_no_row_far_needs_no_pass_to_see_so():
    """By the inequality of Cauchy and Schwarz: the norm of a row times that of the move."""
    model = mcmc.GLM(X, Y, groups={"g": CODES})
    kernel = mcmc.SurrogateMetropolis(model)
    factor, hat = kernel.compressed.factor(), np.array(kernel.compressed.psi_hat)
    spread = kernel._lengths_of_rows()
    tilt = model._tilt(hat, spread)
    length = np.sqrt(tilt @ factor.solve(tilt))
    assert 0.0 < length < 0.99
    moved = np.abs(model._movements(factor.solve(tilt)))
    assert (moved <= length * spread * (1.0 + 1e-9)).all() and moved.max() > 0.0
