"""The fuzz targets without their fuzzer: on random bytes, and on mutations of inputs that did something new.

What an input did is judged by the lines of Python that it reached, so this finds its way much as a fuzzer does, slowly.
`python tests/fuzz/fuzz_streams.py` with atheris runs a target for as long as one likes. Hypothesis chooses the numbers
that the bytes stand for, most of them small, so that each is a choice that was meant; an input that fails is made as
short as can be.
"""

import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import fuzz_observed, fuzz_race, fuzz_streams

TARGETS = {"races": fuzz_race.fuzz, "streams": fuzz_streams.fuzz, "observed": fuzz_observed.fuzz}
FEW = {"observed": 80}


def mutated(data, corpus, rng):
    """One to four changes: a byte, a bit, a piece lost, doubled or taken from another input, a number made extreme."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        place, kind = int(rng.integers(len(data) + 1)), int(rng.integers(6))
        if kind == 0 and place < len(data):
            data[place] = int(rng.integers(256))
        elif kind == 1 and place < len(data):
            data[place] ^= 1 << int(rng.integers(8))
        elif kind == 2 and len(data) > 4:
            del data[place : place + int(rng.integers(1, 5))]
        elif kind == 3:
            data[place:place] = data[place : place + int(rng.integers(1, 9))]
        elif kind == 4:
            other = corpus[int(rng.integers(len(corpus)))]
            data = data[:place] + bytearray(other[place:])
        else:
            data[place : place + 2] = bytes([int(rng.choice([0, 1, 127, 128, 255])), int(rng.choice([0, 255]))])
    return bytes(data[:400]) or b"\0"


def lines_of(function, data):
    """The lines of the package and its twins that a call reaches."""
    reached = set()

    def trace(frame, event, arg):
        name = frame.f_code.co_filename
        if "fastrace" not in name and "reference" not in name and "fuzz" not in name:
            return None
        if event == "line":
            reached.add((name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(data)
    finally:
        sys.settrace(before)
    return reached


def hunt(function, runs, seed):
    """The number of lines that so many inputs reached."""
    rng, corpus, seen = np.random.default_rng(seed), [b"\0"], set()
    for run in range(runs):
        fresh = rng.random() < 0.3 or len(corpus) < 5
        data = rng.bytes(int(rng.integers(4, 200))) if fresh else mutated(
            corpus[int(rng.integers(len(corpus)))], corpus, rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if run % 4 == 0:                # tracing is slow, so some inputs are traced
                    reached = lines_of(function, data)
                    if not reached <= seen:
                        seen |= reached
                        corpus.append(data)
                else:
                    function(data)
        except Exception as error:
            error.add_note(f"bytes.fromhex({data.hex()!r})")
            raise
    return len(seen)


@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", TARGETS)
def test_targets_hold_on_random_and_mutated_bytes(name, times, seed):
    assert hunt(TARGETS[name], FEW.get(name, 400) * times, seed) > 300


CHOICES = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 2**16 - 1)), min_size=4, max_size=150)


@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", TARGETS)
def test_targets_hold_on_choices(name, times):
    @settings(max_examples=FEW.get(name, 400) * times // 2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(CHOICES)
    def hold(choices):
        data = np.array(choices, "<u2").tobytes()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                TARGETS[name](data)
        except Exception as error:
            error.add_note(f"bytes.fromhex({data.hex()!r})")
            raise

    hold()
