"""Sweeps over the effects of small groups on classes: their twin, which groups slice, a long exact run, resuming."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from scipy import special

from fastrace import mcmc
from fastrace.mcmc.kernels import _choice
from fastrace.mcmc.kernels._surrogate_moves import few_of_a_class
from guarantee import few_or_many
from reference import surrogate as twin
from surrogates import plain_inner

SEED = 20261130


def drawn(eta, rng):
    return (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)


def table_of(rng, widths, classes, correlated=False, weights=None):
    """Columns, classes, each factor's codes, and a model; group 0 of the first factor has one class alone.

    `widths`: values that effects of a group of each factor multiply, of 5 groups of 8 rows and then of 3 groups.
    """
    codes = [rng.permutation(np.repeat(np.arange(5), 8))]
    n = len(codes[0])
    X = np.column_stack([np.ones(n), *[rng.standard_normal(n) for _ in range(max(2, *widths) - 1)]])
    y = rng.integers(classes, size=n)
    y[codes[0] == 0] = 1
    codes += [rng.permutation(n) % 3 for _ in widths[1:]]
    groups = {f"f{k}": mcmc.Groups(own, slopes=list(range(1, q)) or None, correlated=correlated)
              for k, (own, q) in enumerate(zip(codes, widths, strict=True))}
    prior = {"sd": mcmc.HalfNormal(1.0), **({"correlation": mcmc.LKJ(2.0)} if correlated else {})}
    model = mcmc.Softmax(X, y, classes, groups=groups, prior=mcmc.Normal(0.0, 2.0), group_prior=prior, weights=weights,
                         offset=0.3 * rng.standard_normal((n, classes)))
    return X, y, codes, model


def as_twin(kernel, X, y, factors, eta, offset, times):
    """A step of the twin as a function of its state and stream, and the sweeps' groups; see `table_of`."""
    free, n = kernel.model.n_classes - 1, len(y)
    first, tables, sweeps = free * X.shape[1], [], []
    # What each coefficient and effect adds to each predictor of each row, shape (n, free, n_seen).
    tables.append(np.concatenate([np.einsum("np,k->nkp", X, np.eye(free)[c]) for c in range(free)], axis=2))
    for codes, q in factors:
        groups = codes.max() + 1
        own = []
        for g in range(groups):
            z = X[:, :q] * (codes == g)[:, None]
            tables.append(np.einsum("nt,kc->nktc", z, np.eye(free)).reshape(n, free, q * free))
            own.append(np.arange(first + g * q * free, first + (g + 1) * q * free))
        sweeps.append((own, lambda g, psi, codes=codes, own=own: of_group(psi, codes == g, own[g])))
        counts = np.array([[(y[codes == g] == k).sum() for k in range(free + 1)] for g in range(groups)])
        sweeps[-1] += ((counts <= q).any(axis=1),)
        first += groups * q * free
    design, blocks = np.concatenate(tables, axis=2), np.concatenate(sweeps[0][0])
    prior = twin.Prior([2.0] * free * X.shape[1],
                       [(codes.max() + 1, [1.0] * q * free, eta) for codes, q in factors])
    plain = plain_inner(kernel, prior, np.r_[blocks, np.delete(np.arange(first), blocks)])

    def predicted(psi, rows=slice(None)):
        moved = design[rows] @ psi + offset[rows]
        return np.column_stack([np.zeros(len(moved)), moved])

    def terms(psi, rows=slice(None)):
        log_share = special.log_softmax(predicted(psi, rows), axis=1)
        return times[rows] * log_share[np.arange(len(log_share)), y[rows]]

    def of_group(psi, rows, own):
        share, z = special.softmax(predicted(psi, rows), axis=1)[:, 1:], design[rows][:, :, own]
        left = (y[rows][:, None] == np.arange(1, free + 1)) - share
        bend = np.einsum("nk,kj->nkj", share, np.eye(free)) - np.einsum("nk,nj->nkj", share, share)
        return (terms(psi, rows).sum(), np.einsum("n,nk,nka->a", times[rows], left, z),
                np.einsum("n,nkj,nka,njb->ab", times[rows], bend, z, z))

    def step(theta, stream):
        along = kernel._along
        return twin.exact_step(plain, lambda psi: terms(psi).sum(), theta, stream, walks=kernel._walks, along=along,
                               far=30.0, scalings=kernel._scalings, n_walked=min(kernel._n_walked, len(along)),
                               shifts=kernel._shifts, sweeps=sweeps)

    assert np.abs(design @ kernel._shifts.T).max() < 1e-12
    return step, sweeps


@pytest.mark.parametrize(("widths", "classes", "correlated", "weighted"), [
    ((1,), 3, False, False), ((1,), 4, True, False), ((2,), 3, True, True), ((1, 1), 3, False, True),
    ((2, 1), 2, False, False)])
def test_a_step_with_sweeps_is_its_twin(widths, classes, correlated, weighted):
    rng = np.random.default_rng(SEED)
    times = rng.integers(1, 4, 40) if weighted else None
    X, y, codes, model = table_of(rng, widths, classes, correlated, times)
    kernel = mcmc.SurrogateMetropolis(model)
    if not kernel._swept:
        kernel._sweep_groups()
        kernel._engines = []
    assert kernel.decision == "exact" and kernel.describe()["groups_swept"] == 5 + 3 * len(widths[1:])
    step, sweeps = as_twin(kernel, X, y, list(zip(codes, widths, strict=True)), 2.0 if correlated else None,
                           model._data.offset, np.ones(40) if times is None else times)
    assert 0 < sum(sliced.sum() for _, _, sliced in sweeps)
    state = kernel.init(model.constrain(np.r_[kernel.compressed.psi_hat, kernel._phi_center]))
    _, steps = kernel.run(np.random.default_rng(3), state, 40)
    stream, theta = np.random.default_rng(3), state.position
    moved = []
    for draw, accepted in zip(model.unconstrain(steps.draws), steps.accepted, strict=True):
        before = theta
        theta, new = step(theta, stream)
        assert accepted == new
        np.testing.assert_allclose(draw, theta, rtol=1e-6, atol=1e-6)
        moved.append([(theta[u] != before[u]).any() for own, _, _ in sweeps for u in own])
    assert 0.2 < np.mean(moved) <= 1.0


def test_groups_slice_that_have_few_rows_of_a_class():
    """No more than effects on it: then its effects may have a flat side."""
    codes, y = np.repeat(np.arange(4), 6), np.tile([0, 1, 2], 8)
    y[codes == 1] = [0, 0, 1, 1, 1, 2]
    y[codes == 2] = [0, 0, 0, 1, 1, 1]
    model = mcmc.Softmax(np.ones((24, 1)), y, 3, groups=codes)
    assert few_of_a_class(model, 0).tolist() == [False, True, True, False]
    slopes = mcmc.Softmax(np.column_stack([np.ones(24), np.arange(24.0)]), y, 3, groups=mcmc.Groups(codes, [1]))
    assert few_of_a_class(slopes, 0).all()


def skewed(n_rows, n_groups, sd, classes=3, correlated=False, seed=0):
    """Effects of groups, few of which have most rows."""
    rng, share = np.random.default_rng(seed), 1.0 / np.arange(1, n_groups + 1)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, 2))])
    codes = np.r_[np.arange(n_groups), rng.choice(n_groups, n_rows - n_groups, p=share / share.sum())]
    eta = np.zeros((n_rows, classes))
    eta[:, 1:] = X @ (0.5 * rng.standard_normal((3, classes - 1)))
    eta[:, 1:] += (sd * rng.standard_normal((n_groups, classes - 1)))[codes]
    prior = {"group": {"correlation": mcmc.LKJ(2.0)}} if correlated else None
    return mcmc.Softmax(X, drawn(eta, rng), classes, groups=codes, group_prior=prior)


def quietly(kernel, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # few draws
        return mcmc.sample(kernel, rng=1, threads=1, n_chains=2, **options)


@few_or_many(("n_draws", "least"), (200, 15.0), (2000, 200.0))
def test_many_groups_of_very_different_size_mix(n_draws, least):
    """6,000 rows of 199 groups: of 2 x 4,000 draws without sweeps 4 were effective, at an R-hat of 1.38."""
    model = skewed(6000, 199, 1.5)
    kernel, _ = _choice.kernel_for(model)
    assert type(kernel) is mcmc.SurrogateMetropolis and kernel.decision == "exact"
    assert kernel.describe()["groups_swept"] == 199
    trace = quietly(kernel, n_draws=n_draws)
    assert trace.ess().min() > least and trace.rhat().max() < 1.15


@pytest.mark.parametrize("n_rows", [3000, 30_000])
def test_groups_that_move_at_once_are_not_swept(n_rows):
    rng = np.random.default_rng(SEED)
    codes, X = rng.integers(12, size=n_rows), np.ones((n_rows, 1))
    eta = np.zeros((n_rows, 3))
    eta[:, 1:] = (0.5 * rng.standard_normal((12, 2)))[codes]
    assert not mcmc.SurrogateMetropolis(mcmc.Softmax(X, drawn(eta, rng), groups=codes))._swept


@few_or_many(("n_groups", "n_draws"), (12, 600), (40, 8000))
@pytest.mark.parametrize("correlated", [False, True])
def test_sweeps_and_trajectories_by_all_gradients_agree(n_groups, n_draws, correlated):
    """Means, and means of squares, of groups of which some have one class alone."""
    model = skewed(20 * n_groups, n_groups, 1.5, correlated=correlated)
    swept = mcmc.SurrogateMetropolis(model)
    if not swept._swept:
        swept._sweep_groups()
        swept._engines = []
    traces = [quietly(kernel, n_draws=n_draws) for kernel in (swept, mcmc.HMC(model))]
    for power in (1, 2):
        values = [t.draws**power for t in traces]
        sizes = [np.array([mcmc.effective_sample_size(v[..., j]) for j in range(model.dim)]) for v in values]
        error = np.hypot(*[v.std(axis=(0, 1)) / np.sqrt(size) for v, size in zip(values, sizes, strict=True)])
        z = (values[0].mean(axis=(0, 1)) - values[1].mean(axis=(0, 1))) / error
        assert (np.abs(z) < 6.0).all(), (power, model.names[int(np.abs(z).argmax())], np.abs(z).max())


def test_chains_with_sweeps_go_on_bit_for_bit_in_turns_or_threads():
    _, _, _, model = table_of(np.random.default_rng(SEED), (2,), 3, True)
    kernel = mcmc.SurrogateMetropolis(model)
    kernel._sweep_groups()
    kernel._engines = []
    state, stream = kernel.init(None, np.random.default_rng(0)), np.random.default_rng(4)
    _, whole = kernel.run(stream, state, 40)
    other, stream = pickle.loads(pickle.dumps(kernel)), np.random.default_rng(4)
    half, first = other.run(stream, state, 15)
    last = copy.deepcopy(kernel).run(stream, pickle.loads(pickle.dumps(half)), 25)[1]
    np.testing.assert_array_equal(whole.draws, np.concatenate([first.draws, last.draws]))
    np.testing.assert_array_equal(whole.rows, np.concatenate([first.rows, last.rows]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # few draws
        turns, threads = (mcmc.sample(kernel, n_draws=40, n_chains=3, rng=1, threads=k).draws for k in (1, 3))
    np.testing.assert_array_equal(turns, threads)
