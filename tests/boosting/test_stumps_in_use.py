"""Streams of stumps in use: a second use at once is refused, and examples that do not fit."""

import pickle
import types

import numpy as np
import pytest

from in_use import generator, in_threads

CODES = np.random.default_rng(1).integers(0, 2, size=(60_000, 2), dtype=np.uint8)
SIGNS = np.where(np.random.default_rng(2).random(60_000) < 0.5, 1, -1).astype(np.int8)


class ActingLock:
    """The lock of a generator of the user's: `act` runs when it is taken."""

    def __init__(self):
        self.act = None

    def __enter__(self):
        if self.act is not None:
            self.act()

    def __exit__(self, *error):
        pass


def stream_of_stumps(rng):
    from fastrace.boosting import _boost, _edges

    return _boost.StumpStream([0, 1], [0, 0], [0, 0], [0, 2, 4], _edges.EdgeRule(2, "nas", 0.01, 30.0),
                              _boost.Filter(0.1, rng))


def test_a_stream_of_stumps_in_use_is_refused():
    lock, bits, refused = ActingLock(), np.random.PCG64(1), []
    own = types.SimpleNamespace(lock=lock, capsule=bits.capsule)
    stream = stream_of_stumps(types.SimpleNamespace(bit_generator=own))
    rule, sieve = stream.rule, stream.filter

    def again():
        for use in (lambda: stream.consume(CODES, SIGNS), lambda: stream.restart(1.0), lambda: stream.add(0, 1.0),
                    lambda: stream.full_pass(CODES, SIGNS, np.ones(len(SIGNS))), lambda: stream.table,
                    lambda: pickle.dumps(stream), lambda: rule.restart(1.0), lambda: rule.edges, lambda: rule.lower,
                    lambda: rule.update_many(np.ones((3, 2), np.int8)), lambda: sieve.accept(np.zeros(3)),
                    lambda: sieve.restart(1.0)):
            with pytest.raises(RuntimeError, match="in use"):
                use()
            refused.append(use)

    lock.act = again
    assert stream.consume(CODES[:100], SIGNS[:100]) == 100
    assert len(refused) == 12 and stream.total_drawn == sieve.drawn == 100
    lock.act = None
    with pytest.raises(ValueError, match="start is"):
        stream.consume(CODES, SIGNS, None, -1)
    with pytest.raises(ValueError, match="stump is 2"):
        stream.add(2, 1.0)
    assert stream.consume(CODES, SIGNS, None, 0, 50) == 50 and stream.total_drawn == 150


def test_a_stream_of_stumps_counts_what_two_threads_read():
    stream = stream_of_stumps(np.random.default_rng(1))
    read = [0, 0]

    def consume(k):
        for _ in range(30):
            try:
                read[k] += stream.consume(CODES, SIGNS)
            except RuntimeError as error:
                assert "in use" in str(error)

    assert in_threads(lambda: consume(0), lambda: consume(1)) == [None, None]
    assert stream.total_drawn == sum(read) and stream.filter.drawn == sum(read)


def test_stumps_that_do_not_fit_are_refused():
    from fastrace.boosting import _boost, _edges

    for bad in (([0, 1], [0, 0], [0, 2], [0, 2, 4]), ([0, 2], [0, 0], [0, 0], [0, 2, 4]),
                ([0], [0], [0], [0, 2, 4]), ([0, 1], [0, 0], [0, 0], [0, 4, 2]), ([0, 1], [0, -1], [0, 0], [0, 2, 4])):
        with pytest.raises(ValueError):
            _boost.StumpStream(*bad, _edges.EdgeRule(2, "nas", 0.2, 3.0), _boost.Filter(0.1, generator()))


@pytest.mark.parametrize("at", [0, 37, 99])
def test_examples_that_do_not_fit_the_stumps_are_refused(at):
    from fastrace.boosting import _boost

    codes, signs = CODES[:100].copy(), SIGNS[:100].copy()
    wrong = {"code 2 of feature 1": (at, 1, 2), "code 255 of feature 0": (at, 0, 255)}
    for match, (row, feature, code) in wrong.items():
        broken = codes.copy()
        broken[row, feature] = code
        stream = stream_of_stumps(np.random.default_rng(1))
        with pytest.raises(ValueError, match=f"row {row} has {match}"):
            stream.consume(broken, signs)
        assert stream.total_drawn == stream.filter.drawn == at
        with pytest.raises(ValueError, match=f"row {row} has {match}"):
            stream.full_pass(broken, signs, np.ones(100))
        assert stream.total_drawn == at
        with pytest.raises(ValueError, match=f"row {row} has {match}"):
            _boost.scores(broken, np.array([0, 2, 4]), np.ones(4))
        assert stream.consume(codes, signs, None, at) == 100 and stream.total_drawn == 100
    for row in (-1, 100, 2**40):
        rows = np.arange(100)
        rows[at] = row
        stream = stream_of_stumps(np.random.default_rng(1))
        with pytest.raises(ValueError, match=f"rows holds {row}"):
            stream.consume(codes, signs, rows)
        assert stream.total_drawn == at
    signs[at] = 3
    with pytest.raises(ValueError, match=f"label of row {at} is 3"):
        stream_of_stumps(np.random.default_rng(1)).consume(codes, signs)
    for offset, table in (([0, 2], np.ones(2)), ([0, 2, 4], np.ones(3)), ([0, 4, 2], np.ones(2))):
        with pytest.raises(ValueError):
            _boost.scores(codes, np.array(offset), table)
