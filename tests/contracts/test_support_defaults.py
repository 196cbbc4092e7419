"""The default of `support` at every door: docs/streams.md says which it is, and rewards outside one are refused."""

import asyncio
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import catalogue
import fastrace as fr
from fastrace.streams._stopping import Stream

TABLE = Path(__file__).parents[2] / "docs" / "streams.md"
PERCENT = np.array([[40.0, 60.0, 80.0, 20.0]] * 500)       # scores that pass for shares of 1 to who does not look


def defaults():
    """The default at every public function and class that has one, by dotted name; answers and bounds have none."""
    found = {}
    for name, door in catalogue.public().items():
        try:
            parameter = inspect.signature(door).parameters.get("support")
        except ValueError:
            continue
        if parameter is not None and parameter.default is not parameter.empty:
            found[name.removeprefix("baselines.")] = parameter.default
    del found["streams.stream_race.StreamRace"]             # a base of the others
    return found


def test_the_table_says_what_the_default_is_everywhere():
    said = {}
    for line in TABLE.read_text(encoding="utf-8").split("| default of `support`", 1)[1].splitlines()[2:]:
        if not line.startswith("|"):
            break
        default, where, _ = (cell.strip() for cell in line.strip("|").split(" | "))
        said |= {name: default.strip("`") for name in re.findall(r"`([\w.]+)`", where)}
    doors = {name: text for name, text in said.items() if not name.startswith("doors.")}
    known = defaults()
    assert set(doors) == set(known)
    refused = {name for name, text in doors.items() if text == "refused"}
    assert refused == {"BettingRace", "HoeffdingRace", "BernsteinRace"}
    for name, text in doors.items():
        if name not in refused:
            assert text == ("None" if known[name] is None else str(tuple(map(int, known[name])))), name
    for name in refused:
        with pytest.raises(ValueError, match=f"^{name}: support is (missing|None); "):
            getattr(fr, name)(2, 10)


OF_STREAMS = sorted(name for name, door in catalogue.public_classes().items()
                    if issubclass(door, Stream) and isinstance(defaults().get(name), tuple))


@pytest.mark.parametrize("name", OF_STREAMS)
def test_a_rule_refuses_rewards_outside_the_default(name):
    """All rules take a first reward of 40 for what it is."""
    door = catalogue.public_classes()[name]
    parameters = inspect.signature(door).parameters
    rule = door(**({"epsilon": 0.1} if "epsilon" in parameters else {}))
    with pytest.raises(ValueError, match=r"40\.0, outside support="):
        rule.update_many(PERCENT.ravel())
    assert rule.n_samples == 0


@pytest.mark.parametrize("call", [
    lambda: fr.estimate_mean(PERCENT[:, 0]), lambda: fr.estimate_mean(iter(PERCENT[:, 0])),
    lambda: fr.Proxy(PERCENT[:, 0]).adjust(PERCENT[:5, 0], rows=np.arange(5)),
    lambda: fr.select_best(PERCENT), lambda: fr.select_best(PERCENT, method="kl-lucb"),
    *(lambda name=name: fr.select_best(PERCENT, method=name, epsilon=0.1) for name in (
        "adapt", "direct", "halving", "incremental", "median-elimination")),
    lambda: fr.SAR(4, 1, 400).run(PERCENT), lambda: fr.OCBA(4, 1, 400).run(PERCENT),
    lambda: fr.SubsetRace(4, 1, 400).run(PERCENT),
    lambda: asyncio.run(fr.race_async(lambda arm, k: 40.0, race=fr.LUCB(4, 1), retries=0)),
])
def test_a_call_refuses_rewards_outside_the_default(call):
    with pytest.raises(ValueError, match="outside (the )?support"):
        call()
