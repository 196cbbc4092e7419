"""How often set-up reads all rows: each count is exact, and what one pass has found is what several had."""

import numpy as np
import pytest
from passes import passes

from fastrace import mcmc
from fastrace._models.rows import lengths, products, products_with
from fastrace.mcmc import compression
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


def test_passes_of_a_hierarchy(monkeypatch):
    """As bench/memory_map.py: 2 of the model, 3 to expand it, 1 for bounds on rows and 1 for a tilt of the mean."""
    monkeypatch.setattr(compression, "_SAMPLE", 6_000)  # most of Newton's steps on every fifth row
    with passes() as found:
        model = mcmc.GLM(X, Y, groups={"g": CODES})
        assert sorted(counted(found).values()) == [1.0, 1.0]  # entries are finite; moments of columns
        compressed = mcmc.compress(model)
        made = counted(found)
        whole = {reader: count for reader, count in made.items() if reader.startswith("expand_seen")}
        some = {reader: count for reader, count in made.items() if reader not in whole}
        assert sum(whole.values()) == 3.0
        assert sum(some.values()) < 3.0 and all("_on_some" in reader or "_taken" in reader for reader in some)
        kernel = mcmc.SurrogateMetropolis(model)
        assert kernel.decision == "poisson"
        made = {reader: count for reader, count in counted(found).items()
                if "_on_some" not in reader and "_taken" not in reader}
        assert sum(count for reader, count in made.items() if "_compress" in reader or "expand" in reader) == 3.0
        assert sum(made.values()) == 5.0
        assert sum("_read_about" in reader for reader in made) == sum("_tilt" in reader for reader in made) == 1
        mcmc.SurrogateMetropolis(model, psi_hat=compressed)
        assert sum(counted(found).values()) == 3.0  # to see that it is of these rows, bounds, a tilt


@pytest.mark.parametrize("prior", [{"prior_sd": 2.0}, {"prior": mcmc.StudentT(4.0)}])
def test_bounds_of_a_model_without_groups_take_one_pass(prior):
    with passes() as found:
        model = mcmc.GLM(X, Y, **prior)
        counted(found)
        kernel = mcmc.SurrogateMetropolis(model, psi_hat=np.array([0.3, 0.5, -0.4]))
        assert kernel.decision == "poisson"
        made = counted(found)
        assert sum(count for reader, count in made.items() if "_read_about" in reader) == 1.0
        assert sum(count for reader, count in made.items() if "_read_about" not in reader) == 1.0  # the expansion


@pytest.mark.parametrize("offset", [None, RNG.normal(size=N)])
@pytest.mark.parametrize("family", ["logistic", "student-t"])
def test_one_pass_about_a_point_finds_what_several_would(family, offset):
    model = mcmc.GLM(X, Y, family, groups={"g": mcmc.Groups(CODES, slopes=[1])}, offset=offset)
    rng = np.random.default_rng(1)
    hat, factor = 0.1 * rng.standard_normal(model.n_seen), rng.standard_normal((model.n_seen, 5))
    seen = []
    center, across, rounding = model._read_about(hat, factor, lambda part, x: seen.append((part.start, len(x))))
    np.testing.assert_array_equal(center, model._predictors(hat))
    np.testing.assert_array_equal(across, model._lengths(factor))
    np.testing.assert_array_equal(across, lengths(model._glm.X, factor, model.factors))
    assert rounding == model._rounding(hat)
    assert sum(count for _, count in seen) == N and seen == sorted(seen)


def test_products_with_several_matrices_are_those_of_each():
    model = mcmc.GLM(X, Y, groups={"g": CODES})
    one, other = np.random.default_rng(2).standard_normal((2, model.n_seen))
    both = np.concatenate([np.stack(outs, axis=1) for _, _, outs in products_with(X, model.factors, [one, other])])
    for column, matrix in zip(both.T, (one, other), strict=True):
        np.testing.assert_array_equal(column, np.concatenate([x for _, x in products(X, model.factors, matrix)]))


def test_what_a_pass_found_is_kept_for_its_point_alone_and_while_a_kernel_is_made():
    model = mcmc.GLM(X, Y, groups={"g": CODES})
    hat, factor = np.zeros(model.n_seen), np.eye(model.n_seen)
    with passes() as found:
        with model._keeping():
            assert model._kept == ()
            model._bounds(hat, factor)
            found.clear()
        assert "_kept" not in vars(model)
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
