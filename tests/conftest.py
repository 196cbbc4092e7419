"""Fixtures and options that all tests share."""

import argparse
import gc
import os
import random
import signal
import zlib

import numpy as np
import pytest

# A shell that runs the tests in the background has them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# PyTensor compiles for longer than these tests run; what is fused and not compiled runs entry by entry.
os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,linker=vm,optimizer_excluding=fusion:add_mul_fusion")
SEEDS = os.environ.get("FASTRACE_SEEDS", "20160619")


def pytest_addoption(parser):
    parser.addoption("--share", metavar="I/N", type=_share,
                     help="run part I of N of the selected tests, I from 1 to N; a test never changes its part")


def pytest_configure(config):
    """Hypothesis draws from the first of FASTRACE_SEEDS, where the command line does not say `--hypothesis-seed`."""
    if config.getoption("hypothesis_seed", 0) is None:
        config.option.hypothesis_seed = SEEDS.partition(",")[0]


def _share(text):
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"--share is {text!r}; needs I/N with 1 <= I <= N, such as 1/12")
    return int(part), int(parts)


def pytest_collection_modifyitems(config, items):
    """Keep the tests of one share: those whose node id has the checksum I - 1 modulo N."""
    if config.getoption("share") is None:
        return
    part, parts = config.getoption("share")
    kept, left = [], []
    for item in items:
        (kept if zlib.crc32(item.nodeid.encode()) % parts == part - 1 else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_terminal_summary(terminalreporter):
    """Write what was skipped to a file, if FASTRACE_SKIPPED_TO names one: `pytest @FILE` runs these later."""
    path = os.environ.get("FASTRACE_SKIPPED_TO")
    if path:
        names = dict.fromkeys(report.nodeid for report in terminalreporter.stats.get("skipped", []))
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in names)


def pytest_collection_finish():
    """What the collection has made stays until the end: garbage collections need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc):
    """Tests that take `seed` run for one seed, or for those of FASTRACE_SEEDS, such as "0,1,2"."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", [int(s) for s in SEEDS.split(",")])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Generators that get no seed take theirs from the name of the test and FASTRACE_SEEDS, each a new one.

    NumPy asks this one function for all entropy; scikit-learn also draws from the generator that NumPy's users share.
    Processes that a test starts are not reached: they have the entropy of the system.
    """
    chance = random.Random(f"{SEEDS} {item.nodeid}")
    np.random.bit_generator.randbits = chance.getrandbits
    np.random.seed(chance.getrandbits(32))      # noqa: NPY002


@pytest.fixture(scope="module")
def settled():
    """Garbage collections leave out what is there already, which makes them quick."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)
