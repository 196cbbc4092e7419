"""Traces in the released ArviZ; skipped without it."""

import numpy as np
import pytest

from fastrace import mcmc

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
    ours, theirs = trace.ess(), np.ravel(np.asarray(arviz.ess(kept)["theta"]))
    np.testing.assert_allclose(ours, theirs, rtol=0.5)
