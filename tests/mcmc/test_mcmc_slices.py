"""Slice samplers: the posterior, the twin, races in place of full passes."""

import numpy as np
import pytest
from scipy import stats

from chains import logistic
from fastrace import mcmc
from guarantee import few_or_many
from reference import mcmc as twin


@few_or_many("n_draws", 500, 1200)
@pytest.mark.parametrize("kernel", [mcmc.Slice, mcmc.RacingSlice])
@pytest.mark.parametrize("control_variate", ["auto", None])
def test_slices_have_the_posterior(kernel, control_variate, n_draws):
    X, y = logistic(1500, 2, 12)
    model = mcmc.GLM(X, y, prior_sd=5.0)
    reference = model.reference()
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=reference), n_draws=5 * n_draws, n_chains=1, rng=1)
    ours = mcmc.sample(kernel(model, control_variate=control_variate), n_draws=n_draws, n_chains=1, n_tune=0, rng=2)
    for j in range(2):
        for power in (1, 2):
            a, b = ((t.draws[0, :, j] - reference.center[j]) ** power for t in (exact, ours))
            error = np.hypot(*(x.std() / np.sqrt(mcmc.effective_sample_size(x)) for x in (a, b)))
            assert abs(a.mean() - b.mean()) < stats.norm.isf(1e-6 / 16) * error + 0.02 * a.std()
    assert kernel is mcmc.RacingSlice or (ours.looks >= 2).all()


def test_a_racing_slice_of_all_rows_is_the_exact_one():
    X, y = logistic(300, 2, 13)
    model = mcmc.GLM(X, y, prior_sd=5.0)
    for control_variate in ("auto", None):
        exact = mcmc.Slice(model, control_variate=control_variate)
        race = mcmc.RacingSlice(model, first_look=300, control_variate=control_variate)
        state = exact.init(rng=1)
        a, b = (k.run(np.random.default_rng(3), state, 200)[1].draws for k in (exact, race))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("width", "most"), [(2.5, 16), (0.4, 3)])
def test_slices_are_their_twin(width, most):
    X, y = logistic(300, 3, 4)
    kernel = mcmc.Slice(mcmc.GLM(X, y), width=width, max_steps=most)
    model, reference = twin.Logistic(X, y, kernel.reference), kernel.reference

    def log_density(z):
        return model.residuals(reference.center + reference.factor @ z).sum() - 0.5 * (z @ z)

    start = kernel.init(reference.center + reference.factor @ [0.5, -1.0, 0.2])
    ours = kernel.run(np.random.default_rng(3), start, 60)[1].draws
    z = twin.slice_sweeps(log_density, start.whitened, np.random.default_rng(3), 60, width=width, most=most)
    np.testing.assert_allclose(ours, reference.center + z @ reference.factor.T, rtol=1e-7, atol=1e-9)


def test_slice_samplers_have_no_proposal():
    model = mcmc.GLM(*logistic(200, 2))
    for kernel in (mcmc.Slice(model), mcmc.RacingSlice(model)):
        assert not hasattr(kernel, "proposal") and not hasattr(kernel, "delayed")
        assert {"width", "max_steps"} < kernel.describe().keys() and "proposal" not in repr(kernel)
        with pytest.raises(TypeError, match="walk_share"):
            type(kernel)(model, walk_share=0.5)


def test_slice_arguments():
    model = mcmc.GLM(*logistic(200, 2, 1))
    for options in ({"width": 0.0}, {"max_steps": 0}):
        for kernel in (mcmc.Slice, mcmc.RacingSlice):
            with pytest.raises(ValueError, match="width|max_steps"):
                kernel(model, **options)
