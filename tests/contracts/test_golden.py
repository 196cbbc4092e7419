"""What earlier releases saved is read for ever, and goes on as it did then."""

import pickle

import pytest

from golden.make import HERE, NAMES, agree, goes_on, halfway, load

KEPT = {file.name.removesuffix(".pickle.gz"): load(file) for file in HERE.glob("*.pickle.gz")}
NEWEST = max(KEPT, key=lambda version: tuple(map(int, version.split("."))))


@pytest.mark.parametrize(("version", "name"), [(version, name) for version in KEPT for name in KEPT[version]])
def test_a_golden_pickle_goes_on_as_it_did(version, name):
    saved, expected = KEPT[version][name]
    assert agree(expected, goes_on(pickle.loads(saved)))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_today_is_what_was_saved_then(name):
    assert name in KEPT[NEWEST], "a new class: python tests/golden/make.py adds it to the newest file"
    assert agree(KEPT[NEWEST][name][1], goes_on(halfway(name)))


def test_golden_pickles_say_something():
    """An empty list of facts would agree with anything."""
    silent = [name for name, (_, expected) in KEPT[NEWEST].items() if not any(expected)]
    assert silent == ["model_selection.RowScore"], "a function with a name has no numbers"
