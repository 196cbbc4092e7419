"""Paid races: an option means the same at every door that takes it, and docs/tables.md says which doors those are."""

import asyncio
import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastrace as fr

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin

from fastrace.model_selection import RacingSearchCV, race_predictions

OPTIONS = ("epsilon", "n_best", "max_pulls", "max_seconds", "cost", "names", "missing", "order", "progress")
OF_RUN = {"LUCB": fr.LUCB.run, "BettingRace": fr.BettingRace.run, "FiniteRace": fr.FiniteRace.run}
CALLS = {"race": fr.race, "FiniteRace": fr.FiniteRace, "race_predictions": race_predictions,
         "RacingSearchCV": RacingSearchCV, "select_best": fr.select_best, "LUCB": fr.LUCB,
         "BettingRace": fr.BettingRace}
APART = (np.random.default_rng(0).random((3000, 3)) < [0.3, 0.5, 0.9]).astype(float)
TIED = np.repeat((np.random.default_rng(1).random((3000, 1)) < 0.5).astype(float), 3, axis=1)
GAPS = np.where(np.random.default_rng(2).random((3000, 3)) < 0.1, np.nan, APART)


def where(door, option):
    """Where a door takes an option: "yes" in the call that begins the race, "run" in its method, "" nowhere."""
    if option in inspect.signature(CALLS[door]).parameters:
        return "yes"
    return "run" if door in OF_RUN and option in inspect.signature(OF_RUN[door]).parameters else ""


class Cells:
    """Rewards of a table by a function of arms and rows; it counts what it gave, and what of that was missing."""

    def __init__(self, table):
        self.table, self.n_given, self.n_lost, self.turn = table, 0, 0, np.zeros(3, int)

    def __call__(self, arms, rows):
        block = self.table[np.ix_(np.asarray(rows) % len(self.table), arms)]
        self.n_given += block.size
        self.n_lost += np.isnan(block).sum()
        return block.astype(object) if np.isnan(block).any() else block

    def pull(self, arms, counts):
        found = []
        for arm, count in zip(arms, counts, strict=True):
            found += self([arm], range(self.turn[arm], self.turn[arm] + count)).ravel().tolist()
            self.turn[arm] += count
        return [None if x != x else x for x in found]


class Recorded(ClassifierMixin, BaseEstimator):
    """A model whose predictions are a column of cells."""

    def __init__(self, column=0, cells=None):
        self.column, self.cells = column, cells

    def fit(self, X, y):
        self.classes_ = np.array([0.0, 1.0])
        return self

    def predict(self, X):
        return self.cells([self.column], X[:, 0].astype(int))[:, 0].astype(float)

    def __sklearn_clone__(self):
        return Recorded(self.column, self.cells)


def _split(options):
    return options, {name: options.pop(name) for name in ("max_pulls", "order", "progress") if name in options}


def _search(cells, options):
    size = len(cells.table)
    X, y = np.arange(size + 2)[:, None], np.r_[np.ones(size), 0.0, 1.0]
    search = RacingSearchCV(Recorded(cells=cells), {"column": [0, 1, 2]}, cv=[([size, size + 1], np.arange(size))],
                            scoring="accuracy", refit=False, error_score="raise", random_state=1, **options)
    return search.fit(X, y).race_


def _lucb(cells, options):
    options, of_run = _split({"n_best": 1} | options)
    return fr.LUCB(3, **options).run(cells.pull, **of_run)


def _betting(cells, options):
    options, of_run = _split(dict(options))
    return fr.BettingRace(3, support=(0, 1), **options).run(cells, **of_run)


def _finite(cells, options):
    of_run = {"progress": options["progress"]} if "progress" in options else {}
    options = {name: value for name, value in options.items() if name != "progress"}
    return fr.FiniteRace(3, len(cells.table), support=(0, 1), rng=1, **options).run(cells, **of_run)


DOORS = {
    "race": lambda cells, o: fr.race(cells, n_arms=3, n_rows=len(cells.table), support=(0, 1), rng=1, **o),
    "FiniteRace": _finite,
    "race_predictions": lambda cells, o: race_predictions(
        np.ones(len(cells.table)), cells, n_candidates=3, support=(0, 1), rng=1, **o),
    "RacingSearchCV": _search,
    "select_best": lambda cells, o: fr.select_best(cells.pull, 3, rng=1, **o),
    "LUCB": _lucb,
    "BettingRace": _betting,
}
SILENCED = pytest.mark.filterwarnings("ignore:the race is not as promised")


def test_the_table_in_the_docs_is_that_of_the_signatures():
    text = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith(("| option", *(f"| `{name}`" for name in OPTIONS)))]
    doors = rows[0][1:-1]
    assert doors == list(CALLS) and [row[0] for row in rows[1:]] == list(OPTIONS)
    for option, *cells, meaning in rows[1:]:
        assert cells == [where(door, option) for door in doors], option
        assert meaning
    flying = next(line for line in text.splitlines() if line.startswith("| in flight"))
    assert [bool(cell.strip()) for cell in flying.strip("|").split("|")[1:-1]] == [
        hasattr(CALLS[door], "pending") for door in doors]


BAD = {
    "epsilon": [-0.1, np.nan, np.inf, "x", None, [0.1]],
    "n_best": [0, -1, 4, True, 1.5, None, "2"],
    "max_pulls": [0, -1, 2, 2.5, True, "7", 10**30, np.inf],
    "cost": [[1, 2], -1, np.nan, np.inf, "x", [[1, 2, 3]]],
    "names": [["a", "b"], ["a", "a", "b"], "abc"],
    "missing": ["skip", None, True],
    "order": ["shuffled", None, True],
    "progress": [1, "yes", None],
}


@SILENCED
@pytest.mark.parametrize(("option", "value"), [(option, value) for option, values in BAD.items() for value in values],
                         ids=lambda x: repr(x)[:20])
def test_what_is_wrong_with_an_option_is_said_alike_and_before_anything_is_paid(option, value):
    said = {}
    for door in DOORS:
        if not where(door, option):
            continue
        cells = Cells(APART)
        with pytest.raises((TypeError, ValueError)) as caught:
            DOORS[door](cells, {option: value})
        assert cells.n_given == 0, door
        of_door = f"{door}: " if where(door, option) == "yes" and option != "progress" else ""
        text = str(caught.value)
        assert text.startswith(of_door) and option in text
        said.setdefault((type(caught.value), text.removeprefix(of_door)), []).append(door)
    assert len(said) == 1, said


@SILENCED
@pytest.mark.parametrize("door", DOORS)
def test_with_an_epsilon_near_ties_stop_by_it(door):
    result = DOORS[door](Cells(TIED), {"epsilon": 0.3, "n_best": 2})
    assert result.stopped_by == "epsilon" and result.epsilon == 0.3 and result.error_bound <= result.delta
    assert set(result.verdict) <= {"good enough", "not better", "equivalent"} and len(result.best) == 2
    result = DOORS[door](Cells(APART), {})
    assert result.stopped_by == "bound" and result.best == 2 and result.verdict == ("worse", "worse", "better")


@SILENCED
@pytest.mark.parametrize("door", DOORS)
def test_a_budget_is_kept_and_said(door):
    cells = Cells(TIED)
    result = DOORS[door](cells, {"max_pulls": 40})
    assert result.stopped_by == "max_pulls" and 3 <= result.n_read == cells.n_given <= 40
    assert result.delta < result.error_bound <= 1.0 and any("max_pulls was reached" in said for said in result.warnings)
    assert np.isfinite(result.differences).all()
    few = DOORS[door](Cells(APART), {"max_pulls": 1, "n_best": 3})      # nothing is to be found out
    assert few.stopped_by == "single" and sorted(few.best) == [0, 1, 2]


@SILENCED
@pytest.mark.parametrize("door", DOORS)
def test_costs_and_names_are_those_of_each_arm(door):
    cost = np.array([1.0, 2.0, 10.0])
    named = {"names": ["a", "b", "c"]} if where(door, "names") else {}
    result = DOORS[door](Cells(APART), {"cost": cost} | named)
    assert result.cost == result.pulls @ cost
    if named:
        assert result.names == ("a", "b", "c") and re.search(r"\bc\b", str(result))


@SILENCED
@pytest.mark.parametrize("missing", ["drop", "worst"])
@pytest.mark.parametrize("door", DOORS)
def test_missing_rewards_are_counted_one_by_one(door, missing):
    cells = Cells(GAPS)
    result = DOORS[door](cells, {"missing": missing, "cost": 1.0})
    assert result.best == 2 and result.n_missing == cells.n_lost > 0
    assert result.cost == result.n_read == cells.n_given                # a call without an answer was made, too
    if missing == "worst":
        counted = f"{result.n_missing} missing (rewards|scores) counted as the low end of the support"
        assert any(re.fullmatch(counted, said) for said in result.warnings)
    elif hasattr(result, "n_dropped"):
        assert 0 < result.n_dropped < result.n_missing
        assert any(re.match(f"{result.n_dropped} (rows|rounds) were dropped", said) for said in result.warnings)
    with pytest.raises(ValueError, match="nan"):
        DOORS[door](Cells(GAPS), {"missing": "raise"})


AT_RANDOM = "draws the rows uniformly at random, whatever order the table is in, and pays for no cell twice."
ONCE, AGAIN = "draws? (a row|it) at most once", "may draw a row again, as (its|their) bounds are proven for independent"


@pytest.mark.parametrize("door", [fr.FiniteRace, RacingSearchCV, fr.BettingRace.run, fr.LUCB.run, fr.select_best])
def test_each_door_says_how_rows_at_random_are_drawn(door):
    """One sentence for all of them, and a second one that says whether a draw may come again."""
    said = re.sub(r"\s+", " ", inspect.getdoc(door))
    order = re.search(r'order : \{"random", "given"\}.*?``"given"``:? ', said)[0]
    assert AT_RANDOM in order
    again = door in (fr.LUCB.run, fr.select_best)
    assert bool(re.search(AGAIN, order)) == again and bool(re.search(ONCE, order)) != again
    table = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    row = next(line for line in table.splitlines() if line.startswith("| `order`"))
    assert AT_RANDOM in row and re.search(AGAIN, row) and re.search(ONCE, row)


@SILENCED
@pytest.mark.parametrize("door", [door for door in DOORS if where(door, "order")])
def test_both_orders_are_taken(door):
    for order in ("random", "given"):
        assert DOORS[door](Cells(APART), {"order": order}).best == 2


@SILENCED
@pytest.mark.parametrize("door", DOORS)
def test_an_arm_without_any_reward_is_named_after_a_hundred(door):
    """Long before rows, rounds or the patience of the rule are at an end."""
    silent = np.where(np.arange(3) == 1, np.nan, TIED)
    cells, more = Cells(silent), {"first_look": 50} if door in ("race_predictions", "RacingSearchCV") else {}
    with pytest.warns(RuntimeWarning, match="arm 1.*look at what these calls return") as caught:
        try:
            result = DOORS[door](cells, {"missing": "drop", "max_pulls": 900} | more)
        except ValueError as error:
            assert "dropped" in str(error)
        else:
            assert result.n_missing >= 100
    assert sum("look at what" in str(said.message) for said in caught) == 1
    quiet = Cells(np.where(np.arange(3000)[:, None] < 90, silent, TIED))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        DOORS[door](quiet, {"missing": "drop", "max_pulls": 900} | more)


@pytest.mark.parametrize("threads", [False, True])
def test_a_race_of_requests_says_so_too(threads):
    def answer(arm, row):
        return None if arm == 1 else float(TIED[row, arm])

    async def grade(arm, row):
        return answer(arm, row)

    with pytest.warns(RuntimeWarning, match="arm 1 gave no reward in the first 10[0-9] rows"):
        asyncio.run(fr.race_async(answer if threads else grade, 3, 3000, support=(0, 1), missing="drop", max_pulls=900,
                                  rng=1))


def test_a_selection_keeps_the_warning_in_its_result():
    def pull(arms, counts):
        return [np.full(count, np.nan if arm == 1 else 0.5) for arm, count in zip(arms, counts, strict=True)]

    rule = fr.LUCB(3, 1, missing="drop", names=["a", "b", "c"])
    with pytest.warns(RuntimeWarning, match="arm 1 gave no reward in 100 pulls, while other arms did"):
        result = rule.run(pull, max_pulls=400)
    assert any("arm b gave no reward in" in said for said in result.warnings)
