"""Fixtures that all tests share."""

import os
import signal

import numpy as np
import pytest

# A shell that runs the tests in the background has them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc):
    """Tests that take `seed` run for one seed, or for those of FASTRACE_SEEDS, such as "0,1,2"."""
    if "seed" in metafunc.fixturenames:
        seeds = [int(s) for s in os.environ.get("FASTRACE_SEEDS", "20160619").split(",")]
        metafunc.parametrize("seed", seeds)


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)
