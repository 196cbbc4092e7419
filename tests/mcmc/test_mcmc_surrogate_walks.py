"""Walks of chains on surrogates along effects far from normal: twins, moments, groups of one outcome."""

import copy

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.kernels import _surrogate_moves
from fastrace.mcmc.models import _sites
from fastrace.mcmc.models._sites import matched, replaced
from guarantee import assert_same_law
from reference import surrogate as twin
from surrogates import SEED, far_from_normal, grouped, plain_inner


@pytest.mark.parametrize(("few", "n_walked"), [(True, None), (True, 2), (False, None)])
@pytest.mark.parametrize("size", [1.0, 0.6])
def test_walks_along_sites_are_their_twin(size, few, n_walked, monkeypatch):
    if n_walked:
        monkeypatch.setattr(mcmc.SurrogateMetropolis, "_n_walked", n_walked)
    for name in ("FEW_ROWS", "FLAT_ROWS"):
        monkeypatch.setattr(_surrogate_moves, name, 4096 if few else 0)
    rng = np.random.default_rng(SEED)
    X, codes, y = far_from_normal(rng)
    model = grouped(X, codes, y)
    kernel = mcmc.SurrogateMetropolis(model, decision="exact", size=size)
    made, order = kernel.compressed, np.r_[2:6, 0:2]
    table = np.column_stack([X, np.eye(4)[codes]])
    spread = twin.spread_of(table, np.linalg.inv(made.metric().to_dense()))
    flat = _sites.flat_effects(model, np.array(made.psi_hat)) if few else None
    sites = replaced(model, np.array(made.psi_hat), made.factor(), spread, flat)
    assert sites.effects[2] == 1.0 and sites.rows[codes == 0].all() and len(sites.walks) > 1
    assert (kernel._along is not None) == (kernel._scalings is not None) == few
    kernel._tilt, kernel._bend, kernel._along, kernel._stay = sites.tilt, sites.bend, sites.walks, sites.effects
    kernel._swept, kernel._shifts, kernel._walks_a_step, kernel._engines = (), None, 0, []
    more = {"far": _surrogate_moves.FAR, "scalings": kernel._scalings, "n_walked": n_walked} if few else {}
    plain = plain_inner(kernel, twin.Prior([2.0, 2.0], [(4, [1.0])]), order, size)

    def log_likelihood(psi):
        return -np.logaddexp(0.0, np.where(y > 0, -1.0, 1.0) * (table @ psi)).sum()

    state = kernel.init(np.r_[made.psi_hat, np.exp(kernel._phi_center)])
    _, steps = kernel.run(np.random.default_rng(3), state, 60)
    stream, theta = np.random.default_rng(3), state.position
    for draw, accepted in zip(model.unconstrain(steps.draws), steps.accepted, strict=True):
        theta, new = twin.exact_step(plain, log_likelihood, theta, stream, walks=kernel._walks, along=kernel._along,
                                     **more)
        assert accepted == new
        np.testing.assert_allclose(draw, theta, rtol=1e-6, atol=1e-6)


def test_walks_along_sites_leave_what_exact_decisions_leave(monkeypatch):
    rng = np.random.default_rng(SEED)
    X, codes, y = far_from_normal(rng, 200)
    draws = []
    for decision, few in (("exact", 0), ("poisson", 0), ("exact", 4096)):
        for name in ("FEW_ROWS", "FLAT_ROWS"):
            monkeypatch.setattr(_surrogate_moves, name, few)
        kernel = mcmc.SurrogateMetropolis(grouped(X, codes, y), decision=decision)
        assert (kernel._along is None) == ((decision, few) == ("exact", 0))
        state, _ = kernel.run(rng, kernel.init(None, rng), 200)
        draws.append(kernel.run(rng, state, 12_000)[1].draws)
    assert_same_law(*draws[:2])
    assert_same_law(*draws[::2])


def test_sites_have_the_moments_of_their_terms():
    prior, slope, bend = np.array([[4.0]]), np.array([-1.0]), np.array([0.1])

    def value(k, t):
        return slope[k] * t - 0.5 * bend[k] * t**2 - np.logaddexp(0.0, 3.0 * t)

    nu, curved = matched(prior, slope, bend, value)
    t = np.linspace(-40.0, 40.0, 200_001)
    weights = np.exp(value(0, t) - (slope[0] * t - 0.5 * bend[0] * t**2) - 0.5 * t**2 / prior[0, 0])
    weights /= weights.sum()
    mean = weights @ t
    variance = weights @ (t - mean) ** 2
    precision = 1.0 / prior[0, 0] + curved[0] - bend[0]
    assert 1.0 / precision == pytest.approx(variance, rel=5e-3)
    assert (nu[0] - slope[0]) / precision == pytest.approx(mean, rel=5e-3)


def with_a_group_of_one_outcome(seed, n_rows, n_groups, intercept=-2.5):
    """Eight rows of group 0, all without success, one of them of great leverage; other effects far apart."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n_rows), rng.normal(size=n_rows)])
    codes = rng.integers(1, n_groups, size=n_rows)
    codes[:8], X[7, 1] = 0, 25.0
    eta = X @ [intercept, 1.0] + 3.0 * rng.normal(size=n_groups)[codes]
    y = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta))) * 1.0
    y[codes == 0] = 0.0
    return X, codes, y


@pytest.mark.parametrize(("data", "n_groups", "decision"), [(574, 2, "poisson"), (574, 2, "exact"), (790, 4, "poisson"),
                                                            (790, 4, "exact")])
def test_a_group_of_one_outcome_does_not_lead_the_surrogate_away(data, n_groups, decision):
    """A tilt by gradients over a spread of such rows put it up to thousands of standard deviations off."""
    X, codes, y = with_a_group_of_one_outcome(data, 400, n_groups)
    model = grouped(X, codes, y, coefficient_sd=10.0, scale_sd=10.0)
    kernel = mcmc.SurrogateMetropolis(model, decision=decision)
    effects, centers = [], []
    for rng in np.random.default_rng(SEED).spawn(6):
        centers.append(np.median(kernel._inner().draws(kernel._middle, 400, rng)[:, 2]))
        state, _ = kernel.run(rng, kernel.init(None, rng), 400, tune=True)
        effects.append(kernel.run(rng, state, 3000)[1].draws[:, 2])
    width = np.ptp(np.quantile(np.concatenate(effects), [0.05, 0.95]))
    assert np.ptp([np.median(x) for x in effects]) < width
    assert np.abs(centers).max() < 60.0 and np.abs([np.median(x) for x in effects]).max() < 60.0


def test_steps_on_the_surrogate_alone_end_where_the_posterior_is_higher():
    X, codes, y = with_a_group_of_one_outcome(574, 400, 2)
    model = grouped(X, codes, y, coefficient_sd=10.0, scale_sd=10.0)
    kernel = mcmc.SurrogateMetropolis(model, decision="exact")
    far = kernel.init(np.r_[kernel.compressed.psi_hat + [0.0, 0.0, -300.0, 0.0], 100.0])
    for rng in np.random.default_rng(SEED).spawn(10):
        state, _ = kernel.run(rng, far, 50, tune=True)
        assert kernel._log_posterior(state.position) > kernel._log_posterior(far.position)
        held, again = far, copy.deepcopy(rng)
        whole, _ = kernel.run(rng, far, 50, tune=True)
        for _ in range(10):                             # however a run is cut
            held, _ = kernel.run(again, held, 5, tune=True)
        np.testing.assert_array_equal(held.position, whole.position)
