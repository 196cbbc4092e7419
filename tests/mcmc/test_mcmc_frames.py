"""Metropolis in frames: orthogonal proposals that enter together, each as often as its weight says."""

import pickle

import numpy as np
import pytest
from scipy import stats

from chains import assert_keeps_steps, rare, slots_from_exact_draws
from fastrace import mcmc
from guarantee import assert_fits, few_or_many
from reference import mcmc as twin


def framed(model, batch, walk_share=0.01, **options):
    return mcmc.Metropolis(model, proposal="independent", batch=batch, walk_share=walk_share, frames=True, **options)


def tent(theta):
    return -abs(theta[0])


@pytest.mark.parametrize(("log_prior", "mirror", "batch"),
                         [(None, True, 16), (tent, True, 4), (tent, False, 2), (None, False, 9)])
def test_frames_are_their_twin_however_a_run_is_cut(log_prior, mirror, batch):
    X, y = rare(300, 3, 3, -1.5)
    kernel = framed(mcmc.GLM(X, y, prior_sd=3.0, log_prior=log_prior), batch, 0.02, mirror=mirror)
    about, state = kernel.reference, kernel.init(rng=1)

    def log_posterior(theta):
        return (-np.logaddexp(0.0, np.where(y > 0, -1.0, 1.0) * (X @ theta)).sum() - theta @ theta / 18.0
                + (0.0 if log_prior is None else log_prior(theta)))

    at_mode = log_posterior(about.center)
    expected = twin.frames(lambda theta: log_posterior(theta) - at_mode, about.center + about.factor @ kernel.lean,
                           about.factor, state.whitened - kernel.lean, np.random.default_rng(2), 200,
                           n_points=batch // (1 + mirror), walk=2.38 / np.sqrt(3), walk_share=0.02, mirror=mirror)
    rng, after, draws, rows = np.random.default_rng(2), state, [], 0
    for n in (1, 40, 3, 100, 56):
        after, steps = kernel.run(rng, after, n)
        draws.append(steps.draws)
        rows += int(steps.rows.sum())
        after = pickle.loads(pickle.dumps(after))
        np.testing.assert_array_equal(after.position, steps.draws[-1])
        np.testing.assert_allclose(about.center + about.factor @ after.whitened, after.position, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.concatenate(draws), expected, rtol=0, atol=1e-10)
    whole = kernel.run(np.random.default_rng(2), state, 200)[1]
    np.testing.assert_array_equal(whole.draws, np.concatenate(draws))
    moved = (np.diff(whole.draws, axis=0, prepend=state.position[None]) != 0.0).any(axis=1)
    np.testing.assert_array_equal(whole.accepted, moved)
    assert whole.rows.sum() == rows and (whole.rows == np.where(whole.full_pass, 300, 0)).all()
    again = pickle.loads(pickle.dumps(kernel)).describe()
    assert again == kernel.describe() and again["frames"] and again["batch"] == batch


@pytest.mark.parametrize(("batch", "mirror"), [(8, True), (4, True), (2, False), (6, False)])
@few_or_many("chains", 3000, 30_000)
def test_frames_leave_a_leaning_posterior_invariant(batch, mirror, chains):
    """Two parameters, on a grid: draws far apart, from every slot of a frame alike."""
    X, y = np.column_stack([np.ones(30), np.arange(30) % 2 - 0.5]), (np.arange(30) < 5).astype(float)
    kernel = framed(mcmc.GLM(X, y, prior_sd=1.0), batch, mirror=mirror)
    a, b = np.meshgrid(np.linspace(-8.0, 3.0, 500), np.linspace(-7.0, 7.0, 500), indexing="ij")
    eta = np.multiply.outer(X[:, 0], a) + np.multiply.outer(X[:, 1], b)
    density = np.exp(np.tensordot(y, eta, 1) - np.logaddexp(0.0, eta).sum(axis=0) - (a * a + b * b) / 2.0 + 8.0)
    of = (a, b, a + b)
    limits = [np.interp(np.linspace(0.0, 1.0, 11)[1:-1], np.cumsum(weight) / weight.sum(), value)
              for value, weight in [(np.sort(f, axis=None), density.ravel()[np.argsort(f, axis=None)]) for f in of]]
    stride = 3 * max(batch, 10) + 1
    _, steps = kernel.run(np.random.default_rng(5), kernel.init(rng=6), (chains + 2) * stride)
    draws = steps.draws[2 * stride :: stride]
    for value, edges in zip((draws[:, 0], draws[:, 1], draws.sum(axis=1)), limits, strict=True):
        assert_fits(np.bincount(np.searchsorted(edges, value), minlength=10), np.full(10, 0.1))
    assert 0.3 < steps.accepted.mean() < 1.0


def test_one_turn_from_the_posterior_ends_in_it():
    """Whatever the slot: chains that begin at exact draws, by rejection, are at such draws after each step."""
    X, y = np.ones((20, 1)), (np.arange(20) < 2).astype(float)
    kernel = framed(mcmc.GLM(X, y, prior_sd=3.0), 4, mirror=False)
    grid = np.linspace(-10.0, 3.0, 13_001)
    log_density = 2.0 * grid - 20.0 * np.logaddexp(0.0, grid) - grid**2 / 18.0
    for slot in slots_from_exact_draws(kernel, grid, log_density, np.random.default_rng(8)):
        assert_fits(slot, np.full(5, 0.2))


def test_means_and_squares_over_frames_hardly_vary():
    """Beside independent draws: for 30 parameters 20, 5 and 7 times less is expected here."""
    X, y = rare(20_000, 30, 3, -1.5)
    kernel, turns = framed(mcmc.GLM(X, y, prior_sd=3.0), 60, 0.0), 200
    _, steps = kernel.run(np.random.default_rng(1), kernel.init(rng=2), 60 * (turns + 1))
    z = np.linalg.solve(kernel.reference.factor, (steps.draws[60:] - steps.draws.mean(axis=0)).T).T
    for value, spread in ((z, 1.0), (np.square(z), 2.0), (z * np.roll(z, 1, axis=1), 1.0)):
        over = np.square(value.reshape(turns, 60, 30).mean(axis=1) - value.mean(axis=0)).sum() / (turns * 30)
        assert over < spread / 60 / 3.0


def test_a_start_at_the_center_has_no_direction():
    X, y = np.ones((40, 1)), np.arange(40) % 2.0
    kernel = framed(mcmc.GLM(np.column_stack([X, np.arange(40) // 2 - 9.5]), y, prior_sd=3.0), 8)
    state = kernel.init(kernel.reference.center + kernel.reference.factor @ kernel.lean)
    assert np.abs(state.whitened - kernel.lean).max() < 1e-12
    kernel.lean = state.whitened
    draws = kernel.run(np.random.default_rng(1), state, 100)[1].draws
    assert np.isfinite(draws).all() and len(np.unique(draws[:, 0])) > 50


def test_states_of_batches_and_frames_go_on_as_each_other():
    """A trace may be continued by the same kernel with other options."""
    X, y = rare(300, 3, 3, -1.5)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    single, frames = mcmc.Metropolis(model, proposal="independent", batch=16), framed(model, 16)
    for first, other in ((single, frames), (frames, single)):
        after, _ = first.run(np.random.default_rng(1), first.init(rng=2), 21)
        _, steps = other.run(np.random.default_rng(3), after, 50)
        fresh = other.run(np.random.default_rng(3), other.init(after.position), 50)[1].draws
        np.testing.assert_allclose(steps.draws, fresh, rtol=0, atol=1e-10)


def test_a_frame_that_fails_keeps_the_steps_before_it():
    assert_keeps_steps(lambda model: framed(model, 16), 40)


@pytest.mark.parametrize(("batch", "mirror", "message"), [
    (1, True, "batch=4"), (3, True, "batch=4"), (1, False, "batch=2"),
])
def test_frames_need_two_points(batch, mirror, message):
    with pytest.raises(ValueError, match=message):
        framed(mcmc.GLM(*rare(100, 2, 3, -1.5), prior_sd=3.0), batch, mirror=mirror)


def test_frames_beside_single_proposals_have_the_same_quantiles():
    X, y = rare(60, 2, 3, -1.5)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    kernels = framed(model, 4), mcmc.Metropolis(model, proposal="independent", batch=8, walk_share=0.01, mirror=False)
    draws = [k.run(np.random.default_rng(7), k.init(rng=8), 60_000)[1].draws[::29] for k in kernels]
    for j in range(2):
        assert stats.ks_2samp(draws[0][:, j], draws[1][:, j]).pvalue > 1e-6
