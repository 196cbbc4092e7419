"""Moves in the released emcee; skipped without it."""

import pickle

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc

emcee = pytest.importorskip("emcee")

from fastrace.mcmc.doors.emcee import KernelMove, RacingStretchMove  # noqa: E402


def regression(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = x @ [1.0, -0.5] + rng.normal(size=n)
    return mcmc.GLM(x, y, family="gaussian", scale=1.0), np.linalg.inv(x.T @ x), np.linalg.solve(x.T @ x, x.T @ y), x, y


@pytest.mark.parametrize("make", [lambda m: KernelMove(mcmc.RacingMetropolis(m)), RacingStretchMove])
def test_moves_leave_the_posterior_that_is_known(make):
    model, covariance, mean, _, _ = regression()
    move = make(model)
    sampler = emcee.EnsembleSampler(8, 2, lambda theta: 0.0, moves=move)
    sampler.run_mcmc(move.start(8, 1), 1500)
    chain = sampler.get_chain(discard=100)
    assert chain.shape == (1400, 8, 2)
    assert 0.1 < sampler.acceptance_fraction.mean() < 1.0
    for j in range(2):
        draws = chain[:, :, j].T
        error = draws.std() / np.sqrt(mcmc.effective_sample_size(draws))
        assert abs(draws.mean() - mean[j]) < stats.norm.isf(1e-6 / 4) * error + 0.02 * draws.std()
        np.testing.assert_allclose(draws.std(), np.sqrt(covariance[j, j]), rtol=0.15)
    assert len(move.steps) == 8 and np.isnan(sampler.get_log_prob()[1:]).all()


def test_a_stretch_step_of_all_rows_is_emcee_s_own_in_law():
    model, covariance, mean, x, y = regression(200)
    own = emcee.EnsembleSampler(8, 2, lambda b: -0.5 * np.square(y - x @ b).sum())
    raced = RacingStretchMove(model, 3.0, control_variate=None, delta=1e-9)
    ours = emcee.EnsembleSampler(8, 2, lambda b: 0.0, moves=raced)
    start = mean + np.random.default_rng(0).normal(size=(8, 2)) @ np.linalg.cholesky(covariance).T
    for sampler in (own, ours):
        sampler.run_mcmc(start, 400)
    assert sampler.get_chain().std() > 0.0
    assert np.mean([steps.rows.mean() for steps in raced.steps]) > 20
    np.testing.assert_allclose(ours.get_chain(flat=True).std(axis=0), np.sqrt(np.diag(covariance)), rtol=0.35)


def test_a_backend_s_random_state_goes_on_exactly():
    model = regression()[0]
    move = KernelMove(mcmc.RacingMetropolis(model))
    start = move.start(4, 1)
    whole = emcee.EnsembleSampler(4, 2, lambda theta: 0.0, moves=move)
    whole.run_mcmc(emcee.State(start, random_state=np.random.RandomState(5).get_state()), 60)
    first = emcee.EnsembleSampler(4, 2, lambda theta: 0.0, moves=pickle.loads(pickle.dumps(move)))
    state = first.run_mcmc(emcee.State(start, random_state=np.random.RandomState(5).get_state()), 25)
    second = emcee.EnsembleSampler(4, 2, lambda theta: 0.0, moves=first._moves[0])
    second.run_mcmc(emcee.State(state.coords, random_state=state.random_state), 35)
    np.testing.assert_array_equal(np.concatenate([first.get_chain(), second.get_chain()]), whole.get_chain())


def test_log_prob_is_exact_on_request_and_mixes_with_other_moves():
    model, _, _, x, y = regression(500)

    def log_prob(b):
        return -0.5 * np.square(y - x @ b).sum()

    move = KernelMove(mcmc.RacingMetropolis(model), 2, log_prob=True)
    sampler = emcee.EnsembleSampler(6, 2, log_prob, moves=[(move, 0.5), (emcee.moves.StretchMove(), 0.5)])
    sampler.run_mcmc(move.start(6, 1), 40)
    at = sampler.get_chain()[-1]
    np.testing.assert_allclose(sampler.get_log_prob()[-1], [log_prob(b) for b in at])


def test_bad_arguments():
    model = regression(100)[0]
    with pytest.raises(ValueError, match="n_steps"):
        KernelMove(mcmc.RacingMetropolis(model), 0)
    with pytest.raises(ValueError, match="a is 1"):
        RacingStretchMove(model, 1.0)
    move = RacingStretchMove(model)
    sampler = emcee.EnsembleSampler(2, 2, lambda theta: 0.0, moves=move)
    with pytest.raises(ValueError, match="2 walkers"):
        sampler.run_mcmc(np.array([[0.0, 1.0], [1.0, 0.0]]), 2, skip_initial_state_check=True)
