"""What earlier releases saved is read for ever, and goes on as it did then."""

import json
import pickle

import pytest

from golden.make import HERE, JOURNALS, NAMES, agree, goes_on, halfway, load, run_journaled, without_sent

KEPT = {file.name.removesuffix(".pickle.gz"): load(file) for file in HERE.glob("*.pickle.gz")}
KEPT_JOURNALS = {file.name.removesuffix(".journals.json"): json.loads(file.read_text())
                 for file in HERE.glob("*.journals.json")}
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


# Journals of `race_async`.


@pytest.mark.parametrize("form", ["journal", "sent"])       # before and since a call is written down before it is made
@pytest.mark.parametrize(("version", "kind"), [(v, kind) for v in KEPT_JOURNALS for kind in KEPT_JOURNALS[v]])
def test_a_race_goes_on_from_a_golden_journal_and_asks_nothing_twice(version, kind, form, tmp_path):
    kept, path = KEPT_JOURNALS[version][kind], tmp_path / "journal"
    path.write_text(kept[form])
    asked, found = run_journaled(kind, path)
    assert agree(kept["found"], found)
    paid = kept[form].count('"reward"')
    assert paid > 50 and asked == kept["asked"][paid:]


@pytest.mark.parametrize("kind", JOURNALS)
def test_what_is_written_today_is_the_journal_of_then(kind, tmp_path):
    kept = KEPT_JOURNALS[NEWEST][kind]
    asked, _found = run_journaled(kind, tmp_path / "journal")
    written = (tmp_path / "journal").read_text()
    assert written.startswith(kept["sent"]) and asked == kept["asked"]
    assert "".join(without_sent(written.splitlines(keepends=True))).startswith(kept["journal"])
