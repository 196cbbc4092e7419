"""What earlier releases saved is read for ever, and goes on as it did then."""

import pickle

import pytest

from golden.make import GOLDEN, HERE

FILES = sorted(HERE.glob("*/*.pickle"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_c2_19_a_golden_pickle_goes_on_as_it_did(file):
    saved, expected = pickle.loads(file.read_bytes())
    assert GOLDEN[file.stem][1](pickle.loads(saved)) == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_c2_19_what_is_saved_today_is_what_was_saved_then(name):
    newest = max(HERE.glob(f"*/{name}.pickle"), key=lambda file: tuple(map(int, file.parent.name.split("."))))
    make, go_on = GOLDEN[name]
    assert go_on(make()) == pickle.loads(newest.read_bytes())[1]
