"""Gibbs draws where few factors hold the difference between two states, near ties: those draws are exact ones."""

import warnings

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.kernels.racing_gibbs import _held_by_few
from guarantee import assert_fits, assert_rate_at_most

N = 5000


def terms(few, rng):
    """Log-factors of two states: all but a few are small, and these make up for all others, so that states tie."""
    values = 0.01 * rng.standard_normal((N, 2)) + [0.0, -0.01]
    places = rng.permutation(N)[:few]
    values[places, 1] = (values[:, 0].sum() - values[:, 1].sum()) / few + 0.1 * rng.standard_normal(few)
    return values


def variable(kind, values):
    if kind == "sizes":
        return mcmc.Categorical(2, lambda state, rows, z: values[rows, state], sizes=lambda z: np.array([N, N]))
    if kind == "expansions":
        return mcmc.Categorical(2, lambda states, rows, z: values[rows][:, states], N,
                                expansions=lambda states, rows, z: np.zeros((len(rows), len(states))),
                                expansion_sums=lambda z: np.zeros(2))
    return mcmc.Categorical(2, lambda states, rows, z: values[rows][:, states], N)


def wrong(kind, few, n=300, **options):
    values = terms(few, np.random.default_rng(few))
    kernel = mcmc.RacingGibbs([variable(kind, values)], 0.05, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(kernel, n_draws=20, n_chains=1, n_tune=0, rng=1)
        found = mcmc.check_bias(kernel, trace, n, rng=2)
    return found, trace, values


@pytest.mark.parametrize("few", [10, 25, 50])
@pytest.mark.parametrize("kind", ["function", "sizes", "expansions"])
def test_draws_that_few_factors_hold_are_exact(kind, few):
    found, trace, _ = wrong(kind, few)
    assert found.n_raced == 0 and found.n_wrong == 0


@pytest.mark.parametrize("kind", ["function", "sizes", "expansions"])
def test_races_would_be_wrong_there(kind):
    """And the guard is what keeps them from it."""
    found, *_ = wrong(kind, 10, tail_guard=False)
    with pytest.raises(AssertionError):
        assert_rate_at_most(found.n_wrong, found.n_checked, 0.05)


@pytest.mark.parametrize("kind", ["function", "sizes", "expansions"])
def test_draws_of_many_factors_are_raced_after_one_look(kind):
    values = 0.1 * np.random.default_rng(1).standard_normal((N, 2)) + [0.0, 0.05]
    kernel = mcmc.RacingGibbs([variable(kind, values)], 0.05)
    trace = mcmc.sample(kernel, n_draws=20, n_chains=1, n_tune=0, rng=1)
    assert trace.chains[0].rows[0] >= 2 * N and trace.chains[0].rows[1:].max() < 2 * N


@pytest.mark.parametrize("law", ["standard_normal", "standard_exponential", "standard_t"])
def test_factors_of_common_laws_are_not_held_by_few(law):
    rng = np.random.default_rng(2)
    values = rng.standard_t(5.0, N) if law == "standard_t" else getattr(rng, law)(N)
    assert not _held_by_few(values) and not _held_by_few(np.ones(N)) and not _held_by_few(np.full(3, -np.inf))
    assert _held_by_few(np.where(np.arange(N) < 60, 1.0, 1e-3 * values))


@pytest.mark.parametrize(("kind", "thin"), [("function", 1), ("expansions", 3)])
def test_the_law_of_held_draws_is_the_variables_and_a_look_comes_again(kind, thin):
    values, looks = terms(10, np.random.default_rng(4)), []
    p = np.exp(values.sum(axis=0))
    kernel = mcmc.RacingGibbs([variable(kind, values)], 0.05)
    held, kernel._held = kernel._held, lambda *args: looks.append(1) or held(*args)
    state, steps = kernel.run(np.random.default_rng(3), kernel.init(), 900)
    assert_fits(np.bincount(steps.draws[::thin, 0], minlength=2), p / p.sum())
    assert len(looks) == 4
    again = kernel.run(np.random.default_rng(5), state, 30)[1].draws
    halves = np.random.default_rng(5)
    middle, first = kernel.run(halves, state, 11)
    assert (np.concatenate([first.draws, kernel.run(halves, middle, 19)[1].draws]) == again).all()


def test_a_sweep_looks_at_some_variables_only():
    values = np.column_stack([np.zeros(N), np.random.default_rng(1).standard_normal(N)])
    kernel = mcmc.RacingGibbs([variable("function", values)] * 20, 0.05)
    rng, state = np.random.default_rng(1), kernel.init()
    state, _ = kernel.run(rng, state, 1)
    assert (state.losses == -1).sum() == 4
    assert (kernel.run(rng, state, 1)[0].losses >= 0).all()
