"""Races over populations whose arms never answer: refused before all is paid, and gone on with once they are mended."""

import asyncio
import itertools
import json
import pickle

import numpy as np
import pytest

import fastrace as fr
from fastrace.model_selection import race_predictions
from guarantee import assert_rate_at_most

VALUES = (np.random.default_rng(0).random((2000, 3)) < [0.3, 0.5, 0.7]).astype(float)
OPTIONS = {"support": (0, 1), "missing": "drop"}
SAID = "gave no reward on any of the first [0-9]+ rows, so that all of them were dropped"
pytestmark = pytest.mark.filterwarnings("ignore:.* gave no reward in the first:RuntimeWarning")


class Service:
    """Rewards of rows, of which some arms are down until it is mended."""

    def __init__(self, down, values=VALUES):
        self.down, self.values, self.paid = set(down), values, []

    def __call__(self, arms, rows):
        self.paid += itertools.product(np.ravel(rows).tolist(), np.ravel(arms).tolist())
        block = self.values[np.ix_(rows, arms)].copy()
        block[:, [arm in self.down for arm in arms]] = np.nan
        return block

    def one(self, arm, row):
        return self([arm], [row])[0, 0]

    def labels(self, arms, rows):
        return np.where(np.isnan(block := self(arms, rows)), None, block == 1.0)


def by_hand(service, race):
    race = race or fr.FiniteRace(3, 2000, rng=1, **OPTIONS)
    try:
        while not race.done:
            arms, rows = race.ask()
            race.tell(service(arms, rows))
    except ValueError as error:
        error.race = race
        raise
    return race.result()


def in_flight(service, race):
    race = race or fr.FiniteRace(3, 2000, rng=1, **OPTIONS)
    try:
        while not race.done:
            arms, rows = race.pending
            if arms.size:
                for arm, row in zip(arms.tolist(), rows.tolist(), strict=True):
                    race.tell(service.one(arm, row), arm, row)
            else:
                race.ask(7, pending=True)
    except ValueError as error:
        error.race = race
        raise
    return race.result()


DOORS = {
    "race": lambda service, race: race.run(service) if race else fr.race(
        service, n_arms=3, n_rows=2000, rng=1, **OPTIONS),
    "FiniteRace": lambda service, race: (race or fr.FiniteRace(3, 2000, rng=1, **OPTIONS)).run(service),
    "race_predictions": lambda service, race: race.run(service.source) if race else race_predictions(
        np.ones(2000, bool), service.labels, n_candidates=3, rng=1, missing="drop"),
    "by hand": by_hand,
    "in flight": in_flight,
    "race_async": lambda service, race: asyncio.run(
        fr.race_async(service.one, race=race, concurrency=1) if race else
        fr.race_async(service.one, 3, 2000, concurrency=1, rng=1, **OPTIONS)),
}


@pytest.mark.parametrize("down", [[1], [0, 1, 2]])
@pytest.mark.parametrize("door", DOORS)
def test_a_silent_arm_is_refused_after_a_quarter_of_the_rows_and_the_race_goes_on_once_it_is_mended(door, down):
    service = Service(down)
    with pytest.raises(ValueError, match=f"arms? {', '.join(map(str, down))} {SAID}") as caught:
        DOORS[door](service, None)
    race, before = caught.value.race, len(service.paid)
    service.source = getattr(caught.value, "source", None)
    assert 500 <= before / 3 <= 600 and not race.done and race.result().n_dropped < 600
    again = pickle.loads(pickle.dumps(race))
    with pytest.raises(ValueError, match=SAID):             # at the price of what was silent in that look, at most
        DOORS[door](service, again)
    assert len(service.paid) - before <= (180 if door == "by hand" else 60 * len(down))

    service.down.clear()
    before = len(service.paid)
    result = DOORS[door](service, race)
    assert result.best == 2 and result.stopped_by == "bound"
    assert result.n_dropped == race.result().n_dropped < 560 and result.pulls.max() > result.n_dropped
    if door != "by hand":                                   # of that look, arms that answered are not asked again
        look = set(service.paid[:before])
        asked = set(service.paid[before:]) & look
        assert asked and {arm for _, arm in asked} <= set(down)


def test_a_journal_says_which_lines_to_remove(tmp_path):
    path, service = tmp_path / "race.jsonl", Service([1])
    for expected in (1, 0):
        before = len(service.paid)
        with pytest.raises(ValueError, match=SAID) as caught:
            asyncio.run(fr.race_async(service.one, 3, 2000, concurrency=1, rng=1, journal=path, **OPTIONS))
        assert any('remove the lines with "reward": null' in note for note in caught.value.__notes__)
        assert (len(service.paid) > before) == expected         # what stands in the journal is not asked again
    service.down.clear()
    kept = [line for line in path.read_text().splitlines() if json.loads(line).get("reward", 0) is not None]
    path.write_text("\n".join(kept) + "\n")
    result = asyncio.run(fr.race_async(service.one, 3, 2000, concurrency=1, rng=1, journal=path, **OPTIONS))
    assert (result.best, result.n_dropped) == (2, 0)


def test_the_warning_before_stands_at_the_users_line():
    for door in ("race", "FiniteRace"):
        with pytest.warns(RuntimeWarning, match="gave no reward in the first") as said, pytest.raises(ValueError):
            DOORS[door](Service([1]), None)
        assert {warning.filename for warning in said} == {__file__}


def test_rows_that_each_miss_another_arm_are_refused_too():
    values = VALUES.copy()
    values[::2, 0] = values[1::2, 1] = np.nan
    with pytest.raises(ValueError, match="a reward was missing on each of the first 5[0-9]+ rows"):
        fr.FiniteRace(3, 2000, rng=1, **OPTIONS).run(Service([], values))


@pytest.mark.parametrize(("n_rows", "least", "most"), [(60, 60, 60), (300, 100, 150), (100_000, 5000, 5500)])
def test_small_populations_are_waited_for_longer_and_large_ones_less(n_rows, least, most):
    values = np.zeros((n_rows, 2))
    service = Service([1], values)
    with pytest.raises(ValueError, match=SAID):
        fr.race(service, n_arms=2, n_rows=n_rows, rng=1, **OPTIONS)
    assert least <= len(service.paid) / 2 <= most


def test_a_table_costs_nothing_and_is_read_to_its_end():
    values = VALUES.copy()
    values[:, 1] = np.nan
    values[1234, 1] = 1.0
    result = fr.race(values, rng=1, growth=1.1, **OPTIONS)      # by default, a look before the last rows decides
    assert (result.n_dropped, result.stopped_by) == (1999, "exact")


@pytest.mark.parametrize("whole", [35, 100])
def test_arms_that_answer_rarely_are_waited_for(whole, seed):
    trials, refused = 200, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        values = VALUES.copy()
        values[rng.permutation(2000)[whole:], 1] = np.nan
        try:
            fr.race(values, cost=1.0, rng=rng, **OPTIONS)
        except ValueError as error:
            refused += "of the first" in str(error)
    assert_rate_at_most(refused, trials, 1 / 20_000)


@pytest.mark.parametrize("support", [None, (0, 1)])
def test_of_rows_that_were_all_dropped_nothing_is_known(support):
    table = np.random.default_rng(0).random((300, 3))
    table[:, 1] = np.nan
    result = fr.race(table, missing="drop", max_pulls=200, support=support, rng=1)
    assert np.isnan(result.mean).all() and result.error_bound == 1.0
    assert "66 rows were dropped" in result.warnings[0] and "nothing is known of any arm" in result.warnings[0]


def test_a_reward_that_is_nan_names_the_option_for_missing_ones():
    with pytest.raises(ValueError, match="is nan; .* if it is missing, say missing='drop' or 'worst'$"):
        fr.race(np.full((300, 2), np.nan))
    with pytest.raises(ValueError, match="is inf; .* because nan and .inf compare with nothing$"):
        fr.race(np.full((300, 2), np.inf))
