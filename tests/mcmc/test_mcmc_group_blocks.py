"""Sweeps over the effects of small groups: their twin, quadrature, many tiny groups, crossed ones, and resuming."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import fastrace as fr
from fastrace import mcmc
from fastrace.mcmc.kernels._chain import ExactChain
from fastrace.mcmc.kernels._surrogate_decisions import _mean_run
from guarantee import assert_mean, few_or_many
from reference import surrogate as twin
from reference.varying_intercepts import hyper_laws
from surrogates import plain_inner

SEED = 20161127


def table_of(rng, n_groups, widths, correlated=False):
    """Columns, outcomes, each factor's codes, and a model; group 0 of the first has one outcome alone.

    `widths`: effects of a group of each factor, the first of `n_groups` groups of 7 rows, others of 3 groups.
    """
    codes = [rng.permutation(np.repeat(np.arange(n_groups), 7))]
    n = len(codes[0])
    X = np.column_stack([np.ones(n), *[rng.standard_normal(n) for _ in range(max(2, *widths) - 1)]])
    y = (rng.random(n) < 0.5) * 1.0
    y[codes[0] == 0] = 0.0
    codes += [rng.permutation(n) % 3 for _ in widths[1:]]
    groups = {f"f{k}": mcmc.Groups(own, slopes=list(range(1, q)) or None, correlated=correlated and q > 1)
              for k, (own, q) in enumerate(zip(codes, widths, strict=True))}
    return X, y, codes, mcmc.GLM(X, y, groups=groups, prior=mcmc.Normal(0.0, 2.0), group_prior=mcmc.HalfNormal(1.0))


def as_twin(kernel, X, y, factors, eta):
    """A step of the twin as a function of its state and stream; the coordinates of each group's effects.

    factors: codes and effects of a group, of which there are the first columns of X. All terms have the prior that
    `table_of` gives them; without eta effects are independent.
    """
    first, parts, sweeps = X.shape[1], [X], []
    for codes, q in factors:
        n = codes.max() + 1
        parts += [(X * (codes == g)[:, None])[:, :q] for g in range(n)]
        own = [np.arange(first + g * q, first + (g + 1) * q) for g in range(n)]
        sweeps.append((own, lambda g, psi, codes=codes, q=q: of_group(psi, codes == g, q)))
        first += n * q
    table, blocks = np.column_stack(parts), np.concatenate(sweeps[0][0])
    prior = twin.Prior([2.0] * X.shape[1], [(codes.max() + 1, [1.0] * q, eta) for codes, q in factors])
    plain = plain_inner(kernel, prior, np.r_[blocks, np.delete(np.arange(first), blocks)])

    def terms(psi):
        return -np.logaddexp(0.0, np.where(y > 0, -1.0, 1.0) * (table @ psi))

    def of_group(psi, own, q):
        z, p = X[own, :q], 1.0 / (1.0 + np.exp(-table[own] @ psi))
        return terms(psi)[own].sum(), (y[own] - p) @ z, z.T @ ((p * (1.0 - p))[:, None] * z)

    def step(theta, stream):
        along = kernel._along
        return twin.exact_step(plain, lambda psi: terms(psi).sum(), theta, stream, walks=kernel._walks, along=along,
                               far=30.0, scalings=kernel._scalings, n_walked=min(kernel._n_walked, len(along)),
                               shifts=kernel._shifts, sweeps=sweeps)

    assert np.abs(table @ kernel._shifts.T).max() < 1e-12
    return step, [own for groups, _ in sweeps for own in groups]


@pytest.mark.parametrize(("widths", "correlated", "n_shifts"), [
    ((1,), False, 1), ((2,), False, 2), ((1, 1), False, 2), ((2, 2, 1), False, 5),
    ((2,), True, 2), ((3,), True, 3), ((3, 2, 1), True, 6)])
def test_a_step_with_sweeps_is_its_twin(widths, correlated, n_shifts):
    """Correlated effects have the prior LKJ(2)."""
    rng = np.random.default_rng(SEED)
    X, y, codes, model = table_of(rng, 5, widths, correlated)
    kernel = mcmc.SurrogateMetropolis(model)
    assert kernel.describe()["groups_swept"] == 5 + 3 * len(widths[1:])
    assert kernel._shifts.shape == (n_shifts, model.n_seen) and len(kernel._scalings) == model.n_hyper
    step, own = as_twin(kernel, X, y, list(zip(codes, widths, strict=True)), 2.0 if correlated else None)

    state = kernel.init(model.constrain(np.r_[kernel.compressed.psi_hat, kernel._phi_center]))
    _, steps = kernel.run(np.random.default_rng(3), state, 60)
    stream, theta = np.random.default_rng(3), state.position
    moved = []
    for draw, accepted in zip(model.unconstrain(steps.draws), steps.accepted, strict=True):
        before = theta
        theta, new = step(theta, stream)
        assert accepted == new
        np.testing.assert_allclose(draw, theta, rtol=1e-6, atol=1e-6)
        moved.append([(theta[u] != before[u]).any() for u in own])
    assert 0.2 < np.mean(moved) <= 1.0


def counts(rng):
    """300 groups of 20 rows; grids of the intercept and of log sigma."""
    codes = np.repeat(np.arange(300), 20)
    y = rng.poisson(np.exp(-2.0 + 0.7 * rng.standard_normal(300)[codes]))
    return "poisson", y * 1.0, codes, np.linspace(-2.7, -1.3, 141), np.linspace(-1.2, 0.4, 121)


def weak_effects(rng):
    """Of 300 groups of 20 rows, whose scale the rows say little of."""
    codes = np.repeat(np.arange(300), 20)
    y = rng.random(6000) < 1.0 / (1.0 + np.exp(0.5 - 0.25 * rng.standard_normal(300)[codes]))
    return "logistic", y * 1.0, codes, np.linspace(-0.8, -0.2, 101), np.linspace(-6.0, -0.4, 151)


def rare_outcomes(rng):
    """100 groups of 60 rows, 1 % of them positive."""
    codes = np.repeat(np.arange(100), 60)
    y = rng.random(6000) < 1.0 / (1.0 + np.exp(4.5 - 0.8 * rng.standard_normal(100)[codes]))
    return "logistic", y * 1.0, codes, np.linspace(-8.0, -3.4, 141), np.linspace(-6.0, 1.6, 151)


@few_or_many("n_draws", 600, 20_000)
@pytest.mark.parametrize("data", [counts, weak_effects, rare_outcomes])
def test_many_small_groups_have_the_posterior_of_their_scale(data, n_draws):
    """Weights of `laplace` find the deviation of the last one's log scale a tenth too small, at a Pareto k of .62."""
    family, y, codes, b, s = data(np.random.default_rng(SEED))
    laws = hyper_laws(family, y, codes, 2.5, 2.5, b, s)
    model = mcmc.GLM(np.ones((len(y), 1)), y, family, groups=codes, prior=mcmc.Normal(sd=2.5),
                     group_prior=mcmc.HalfNormal(2.5))
    kernel = mcmc.SurrogateMetropolis(model)
    if data is not weak_effects:                    # most whole moves are accepted
        assert kernel.describe()["groups_swept"] == codes.max() + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # few effective draws in the small version
        draws = mcmc.sample(kernel, n_draws=n_draws, n_chains=4, rng=SEED, threads=1).draws
    for grid, law, values in zip((b, s), laws, (draws[..., 0], np.log(draws[..., -1])), strict=True):
        assert max(law[0], law[-1]) < 1e-4
        share = np.cumsum(law)
        for place in np.searchsorted(share, [0.05, 0.2, 0.5, 0.8, 0.95]):
            edge = grid[place] + 0.5 * (grid[1] - grid[0])
            assert_mean((values < edge).ravel() * 1.0, share[place])


def test_coefficients_move_by_steps_of_their_own_where_all_effects_at_once_are_refused():
    """By moves on the surrogate alone R-hat of the slope was 3.5 here, and its effective size 4 of 4000."""
    rng = np.random.default_rng(0)
    codes, x = np.repeat(np.arange(500), 3), rng.standard_normal(1500)
    y = rng.random(1500) < 1.0 / (1.0 + np.exp(-0.3 - 0.8 * x - 2.5 * rng.standard_normal(500)[codes]))
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(np.column_stack([np.ones(1500), x]), y, groups=codes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(kernel, n_draws=1000, n_chains=4, rng=1, threads=1)
    assert trace.accepted.mean() < 0.1              # of moves on the surrogate
    assert trace.rhat()[1] < 1.1 and trace.ess()[1] > 40.0


def large_effects(n_groups, n_rows, correlation):
    """(1 + x | g) of rows with 0 or 1, whose effects deviate by 1.5."""
    rng = np.random.default_rng(0)
    codes, x = np.repeat(np.arange(n_groups), n_rows), rng.standard_normal(n_groups * n_rows)
    root = np.linalg.cholesky([[1.0, correlation], [correlation, 1.0]])
    effects = 1.5 * rng.standard_normal((n_groups, 2)) @ root.T
    X = np.column_stack([np.ones(len(x)), x])
    y = rng.random(len(x)) < 1.0 / (1.0 + np.exp(-(X * ([0.3, 0.5] + effects[codes])).sum(axis=1)))
    return mcmc.SurrogateMetropolis(mcmc.GLM(X, y, groups=mcmc.Groups(codes, slopes=[1])))


@few_or_many(("n_draws", "least"), (150, 12.0), (3000, 300.0))
@pytest.mark.parametrize(("n_groups", "n_rows", "decision"), [(200, 100, "poisson"), (200, 10, "exact")])
def test_correlated_effects_that_are_large_mix(n_groups, n_rows, decision, n_draws, least):
    """Of 4,000 draws with minibatches 8 were effective, and with all rows 46 of an effect, 120 of the correlation."""
    kernel = large_effects(n_groups, n_rows, 0.9)
    assert kernel.decision == decision and kernel.describe()["groups_swept"] == n_groups
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(kernel, n_draws=n_draws, n_chains=4, rng=1, n_tune=100)
    assert trace.ess().min() > least and trace.rhat().max() < 1.2
    assert not [words for words in trace.warnings if "read all rows" in words]


@pytest.mark.parametrize("learned", [False, True])
def test_walks_of_shared_parameters_follow_their_covariance_given_all_effects(learned):
    """A walk is along an axis of it, 2.4 standard deviations long."""
    rng = np.random.default_rng(SEED)
    codes = np.repeat(np.arange(40), 3)
    x = rng.standard_normal(120)
    X, y = np.column_stack([np.ones(120), 1000.0 * x, x + 0.1 * rng.standard_normal(120)]), rng.poisson(1.0, 120)
    model = mcmc.GLM(X, y, "negative-binomial" if learned else "poisson", groups=codes)
    kernel = mcmc.SurrogateMetropolis(model, decision="exact")
    ways, shared = kernel._walks_of_shared(), [0, 1, 2, *([model.n_seen - 1] if learned else [])]
    assert not np.delete(ways, shared, axis=1).any()
    covariance = np.linalg.inv(kernel.compressed.metric().to_dense()[np.ix_(shared, shared)])
    np.testing.assert_allclose(ways[:, shared].T @ ways[:, shared], 2.4**2 * covariance, rtol=1e-8)


def test_many_groups_of_two_rows_mix():
    """A move of all effects at once is refused."""
    rng = np.random.default_rng(SEED)
    codes = np.repeat(np.arange(500), 2)
    y = rng.random(1000) < 1.0 / (1.0 + np.exp(-0.3 - 0.8 * rng.standard_normal(500)[codes]))
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(np.ones((1000, 1)), y, groups=codes))
    trace = mcmc.sample(kernel, n_draws=2000, n_chains=4, rng=1, threads=1)
    assert kernel.describe()["groups_swept"] == 500 and np.max(trace.rhat()) < 1.05


def test_effects_of_both_crossed_factors_mix():
    """With sweeps over one factor alone, 33 to 77 of 1,000 draws of the other's effects were effective."""
    rng = np.random.default_rng(SEED)
    codes = [rng.permutation(800) % k for k in (160, 150)]
    eta = -1.0 + sum(0.9 * rng.standard_normal(own.max() + 1)[own] for own in codes)
    model = mcmc.GLM(np.ones((800, 1)), rng.poisson(np.exp(eta)), "poisson", groups=dict(zip("ab", codes, strict=True)))
    kernel = mcmc.SurrogateMetropolis(model)
    state, _ = kernel.run(rng, kernel.init(None, rng), 300, tune=True)
    draws = kernel.run(rng, state, 1000)[1].draws
    for f in model.factors:
        assert np.mean([mcmc.effective_sample_size(draws[None, :, k]) for k in range(f.start, f.stop)]) > 200


def test_groups_are_swept_where_a_chain_accepts_most_moves_and_stands_still_at_times():
    """Half of the moves of all effects are accepted, but 22 to 234 of 6,000 draws were effective."""
    rng = np.random.default_rng(1)
    x, sizes = rng.standard_normal(3000), (100, 30)
    codes = [rng.permutation(np.r_[np.arange(k), rng.integers(k, size=3000 - k)]) for k in sizes]
    eta = 0.3 - 0.5 * x
    for k, own in zip(sizes, codes, strict=True):
        eta += 0.7 * rng.standard_normal(k)[own] + 0.4 * rng.standard_normal(k)[own] * x
    y = rng.random(3000) < 1.0 / (1.0 + np.exp(-eta))
    groups = {name: mcmc.Groups(own, slopes=[1]) for name, own in zip("ab", codes, strict=True)}
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(np.column_stack([np.ones(3000), x]), y, groups=groups))
    assert kernel.describe()["groups_swept"] == 130


def test_the_mean_run_of_a_state_counts_it_as_often_as_it_lasts():
    moved = np.array([1, 0, 0, 1, 1, 0], dtype=bool)        # states last 0 steps, 3, 1 and 2
    assert _mean_run(moved) == (9 + 1 + 4) / 6
    rng = np.random.default_rng(SEED)
    assert abs(_mean_run(rng.random(100_000) < 0.4) - (2.0 - 0.4) / 0.4) < 0.1


def test_coefficients_move_against_effects_where_rows_see_no_change():
    """Of an intercept, of a slope that varies too, and of columns that are the same, or a slope, within groups."""
    rng = np.random.default_rng(SEED)
    codes = rng.permutation(np.repeat(np.arange(6), 8))
    x, own = rng.standard_normal(48), rng.standard_normal(6)[codes]
    X = np.column_stack([np.ones(48), x, own, x * own, x**2])
    model = mcmc.GLM(X, rng.random(48) < 0.5, groups=mcmc.Groups(codes, slopes=[1]))
    kernel = mcmc.SurrogateMetropolis(model)
    shifts = kernel._shifts_of_coefficients()
    effects = model.factors[0].values(X, slice(0, 48))
    assert [np.flatnonzero(way[:5]).tolist() for way in shifts] == [[0], [1], [2], [3]]
    for way in shifts:
        seen = X @ way[:5] + (effects * way[5 : 5 + 12].reshape(6, 2)[codes]).sum(axis=1)
        assert np.abs(way[5:]).max() > 0.01 and np.abs(seen).max() < 1e-12


def test_chains_with_sweeps_go_on_bit_for_bit_in_turns_or_threads():
    rng = np.random.default_rng(SEED)
    _, _, _, model = table_of(rng, 6, (2,))
    kernel = mcmc.SurrogateMetropolis(model)
    state = kernel.init(None, np.random.default_rng(0))
    stream = np.random.default_rng(4)
    _, whole = kernel.run(stream, state, 60)
    other, stream = pickle.loads(pickle.dumps(mcmc.SurrogateMetropolis(model))), np.random.default_rng(4)
    half, first = other.run(stream, state, 25)
    last = copy.deepcopy(kernel).run(stream, pickle.loads(pickle.dumps(half)), 35)[1]
    np.testing.assert_array_equal(whole.draws, np.concatenate([first.draws, last.draws]))
    np.testing.assert_array_equal(whole.rows, np.concatenate([first.rows, last.rows]))
    turns, threads = (mcmc.sample(kernel, n_draws=40, n_chains=3, rng=1, threads=k).draws for k in (1, 3))
    np.testing.assert_array_equal(turns, threads)


def test_a_sweep_takes_no_chain_whose_rows_it_cannot_read(rng):
    _, _, _, model = table_of(rng, 5, (1,))
    chain = mcmc.SurrogateMetropolis(model)._take(mcmc.SurrogateMetropolis(model)._untuned())
    move, source = chain.move, fr.sources.ArraySource(np.zeros((35, 2)))
    with pytest.raises(ValueError, match="the chain reads ArraySource"):
        ExactChain(source, np.zeros((2, 7)), None, None, move, surrogate=None, n_hyper=1)
