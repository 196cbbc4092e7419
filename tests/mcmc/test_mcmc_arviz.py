"""Traces in the released ArviZ, and diagnostics as ArviZ has them; skipped without it."""

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.trace import _ess, _halves, _rhat

arviz = pytest.importorskip("arviz")


def test_the_released_arviz_takes_a_trace():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    model = mcmc.GLM(x, x @ [1.0, -0.5] + rng.normal(size=500), family="gaussian", scale=1.0)
    trace = mcmc.sample(mcmc.RacingMetropolis(model), n_draws=100, n_chains=3, rng=1)
    kept = trace.to_arviz()
    np.testing.assert_array_equal(np.asarray(kept["posterior"]["theta"]), trace.draws)
    assert kept["posterior"]["theta"].dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(np.asarray(kept["sample_stats"]["n_rows"]), trace.rows)
    assert set(kept["sample_stats"].data_vars) == {"n_rows", "n_looks", "accepted", "full_pass", "undecided"}


def test_columns_of_a_frame_label_the_coordinates_in_arviz():
    rng = np.random.default_rng(0)
    table = {"age": rng.normal(size=500), "income": rng.normal(size=500)}
    model = mcmc.GLM(table, table["age"] + rng.normal(size=500), family="gaussian", scale=1.0)
    trace = mcmc.sample(mcmc.RacingMetropolis(model), n_draws=100, n_chains=2, rng=1)
    kept = trace.to_arviz()["posterior"]["theta"]
    assert kept.dims == ("chain", "draw", "theta_dim_0")
    np.testing.assert_array_equal(kept.sel(theta_dim_0="income"), trace.draws[:, :, 1])
    assert "theta[age]" in arviz.summary(trace.to_arviz()).index


def test_effective_sizes_and_rhat_are_those_of_arviz():
    """Own functions, so that the warnings of a run do not depend on what else is installed."""
    noise = np.random.default_rng(1).normal(size=(4, 800, 3))
    x = noise.copy()
    for t in range(1, 800):
        x[:, t] = [0.0, 0.6, 0.95] * x[:, t - 1] + noise[:, t]
    x[0] += 0.3
    data = arviz.convert_to_dataset({"x": x})
    chains = _halves(x)
    np.testing.assert_allclose(_rhat(chains), np.asarray(arviz.rhat(data, method="split")["x"]), rtol=1e-12)
    np.testing.assert_allclose(_ess(chains), np.asarray(arviz.ess(data, method="mean")["x"]), rtol=0.02)
