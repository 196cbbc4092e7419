"""All arms asked for: every door gives them all, makes no pull, and says so in the same words."""

import asyncio
import json

import numpy as np
import pytest

import fastrace as fr
from fastrace.cli import main
from fastrace.pulls import BernoulliPulls

VALUES = np.random.default_rng(0).random((60, 3))


async def _never(arm, row):
    raise AssertionError("nothing is to be evaluated")


def _never_pulled(arms, counts):
    raise AssertionError("nothing is to be pulled")


RACES = {
    "race": lambda n: fr.race(VALUES, support=(0, 1), n_best=n, max_pulls=2, rng=1),
    "race normal": lambda n: fr.race(VALUES, n_best=n, rng=1),
    "race drop": lambda n: fr.race(VALUES, support=(0, 1), n_best=n, missing="drop", rng=1),
    "race marginal": lambda n: fr.race(VALUES, support=(0, 1), n_best=n, bound="serfling", variance="marginal"),
    "FiniteRace": lambda n: fr.FiniteRace(3, 60, support=(0, 1), n_best=n).result(),
    "race_async": lambda n: asyncio.run(fr.race_async(_never, n_arms=3, n_rows=60, support=(0, 1), n_best=n)),
    "LUCB": lambda n: fr.LUCB(3, n).run(_never_pulled),
    "LUCB paired": lambda n: fr.LUCB(3, n, paired=True).run(_never_pulled),
    "LUCB unbounded": lambda n: fr.LUCB(3, n, support=None).run(_never_pulled),
    "LUCB intervals": lambda n: fr.LUCB(3, n, rule="intervals").run(_never_pulled),
    "SAR": lambda n: fr.SAR(3, n, 30).run(_never_pulled),
    "OCBA": lambda n: fr.OCBA(3, n, 30).run(_never_pulled),
    "BettingRace": lambda n: fr.BettingRace(3, support=(0, 1), n_best=n).run(VALUES),
    "BettingRace brackets": lambda n: fr.BettingRace(3, support=(0, 1), n_best=n, rule="brackets").run(VALUES),
    "BettingRace asymptotic": lambda n: fr.BettingRace(3, support=None, n_best=n).run(VALUES),
    "HoeffdingRace": lambda n: fr.HoeffdingRace(3, 60, support=(0, 1), n_best=n).run(VALUES),
    "BernsteinRace": lambda n: fr.BernsteinRace(3, 60, support=(0, 1), n_best=n).run(VALUES),
    **{f"select_best {method}": lambda n, method=method: fr.select_best(
        _never_pulled, 3, n, 0.1, method=method, max_pulls=4)
       for method in ("auto", "lucb", "kl-lucb", "adapt", "direct", "halving", "incremental", "sar")},
}


@pytest.mark.parametrize("door", RACES)
def test_all_arms_are_the_answer_and_none_is_pulled(door):
    result = RACES[door](3)
    assert result.best.tolist() == [0, 1, 2] and result.stopped_by == "single" and result.n_read == 0
    assert result.error_bound == 0.0 and not result.warnings
    assert "single" in str(result)


@pytest.mark.parametrize("door", RACES)
def test_more_than_all_are_refused(door):
    with pytest.raises(ValueError, match="n_best is 4.*3 arms"):
        RACES[door](4)


def test_a_plan_of_all_arms_reads_nothing_and_is_right():
    plan = fr.plan_race(0.1, 0.3, 100, 3, n_best=3, n_races=5)
    assert plan.mean == 0 and plan.right == 1.0


def test_a_budget_of_one_pull_is_enough_where_none_is_needed():
    assert fr.race(VALUES, support=(0, 1), n_best=3, max_pulls=1).n_read == 0
    with pytest.raises(ValueError, match="max_pulls is 1; at least 3"):
        fr.race(VALUES, support=(0, 1), n_best=2, max_pulls=1)
    assert fr.select_best(BernoulliPulls([0.1, 0.9]), n_best=2, max_pulls=1).n_read == 0


def test_the_command_line_gives_all_columns(tmp_path, capsys):
    file = tmp_path / "table.csv"
    file.write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in VALUES))
    main(["race", str(file), "--best", "3", "--support", "0", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["stopped_by"] == "single" and sum(found["pulls"]) == 0
