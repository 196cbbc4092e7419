"""Answers: printed, shown in a notebook, exported and drawn from the same rows."""

import builtins
import dataclasses
import html.parser
import json
import pickle
import re
import sys

import numpy as np
import pytest

import fastrace as fr
from fastrace.results import ArmsResult, Result

RNG = np.random.default_rng(20160619)
VALUES = np.clip(RNG.random((600, 13)) * 0.8 + 0.015 * np.arange(13), 0.0, 1.0)
NAMES = tuple(f"arm <{letter}>" for letter in "abcdefghijklm")


def learners():
    from fastrace.model_selection import DAUB

    return DAUB(13, 4000, 500).run(lambda learner, n: (None, 0.9 - 0.01 * learner - 1.0 / n**0.5))


def answers():
    """One answer of each kind."""
    race = fr.race(VALUES, max_pulls=2000, support=(0, 1), rng=1)
    sampler = fr.DiscreteSampler(VALUES * 0.01, rng=1)
    sampler.draw_many(5)
    return {
        "race": race,
        "race of sums": fr.race_sums([VALUES[:, 0], VALUES[:300, 1], VALUES[:, 12]], rng=1),
        "race on streams": fr.HoeffdingRace(13, 200, support=(0, 1)).run(VALUES, rng=1),
        "two of thirteen": fr.BettingRace(13, 300, support=(0, 1), n_best=2).run(VALUES, rng=1),
        "selection": fr.select_best(VALUES, 13, 3, epsilon=0.1, rng=1),
        "lil": fr.LilUCB(13, 600, support=(0, 1), rng=1).run(VALUES),
        "estimate": fr.estimate_mean(VALUES[:, 3], rng=1),
        "running": fr.EBStop(0.1).result(),
        "decision": fr.metropolis_accept(VALUES[:, :2], threshold=-3.0, rng=1),
        "draws": sampler.stats,
        "learners": learners(),
    }


ANSWERS = answers()
OF_ARMS = [key for key, answer in ANSWERS.items() if isinstance(answer, ArmsResult)]


class Cells(html.parser.HTMLParser):
    """The text of every row of the tables in a page."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "tr" in self.open:
            self.rows[-1].append(data)


@pytest.mark.parametrize("key", ANSWERS)
def test_answers_are_frozen_and_export_as_json(key):
    answer = ANSWERS[key]
    assert isinstance(answer, Result)
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.delta = 0.5
    plain = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    fields = [part.name for part in dataclasses.fields(answer)]
    assert list(plain) == [*(name for name in fields if name not in ("race", "source")), *answer._derived]
    assert "n_read" in plain or not isinstance(answer, ArmsResult)
    for name, value in plain.items():
        kept = getattr(answer, name)
        if isinstance(kept, np.ndarray):
            assert np.shape(value) == kept.shape
            assert [np.nan if item is None else item for item in np.ravel(value)] == pytest.approx(
                np.where(np.isfinite(kept), kept, np.nan).ravel().tolist(), nan_ok=True)
        elif isinstance(kept, float):
            assert value == (kept if np.isfinite(kept) else None)


@pytest.mark.parametrize("key", ANSWERS)
def test_the_page_shows_the_cells_of_the_printed_table(key):
    answer = ANSWERS[key]
    if key in OF_ARMS:
        answer = dataclasses.replace(answer, names=NAMES[:answer._size()])
    printed = [re.sub(r"\s+", "", line) for line in str(answer).splitlines()]
    page = answer._repr_html_()
    rows = ["".join(row) for row in Cells(page).rows]
    rows = [re.sub(r"\s+", "", row) for row in rows if row]
    assert set(rows) <= set(printed) and len(rows) >= (3 if key in OF_ARMS else 0)
    assert "<a>" not in page


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("key", ANSWERS)
def test_frames_have_a_row_per_arm(key, library, monkeypatch):
    answer = ANSWERS[key]
    if library == "polars":
        monkeypatch.setitem(sys.modules, "pandas", None)
    frame = answer.to_frame()
    assert type(frame).__module__.startswith(library)
    if key not in OF_ARMS:
        assert frame.shape[0] == 1
        return
    n_arms, read = answer._size(), answer._read
    assert frame.shape[0] == n_arms and list(frame[read]) == getattr(answer, read).tolist()
    assert answer.n_read == sum(frame[read])
    named = dataclasses.replace(answer, names=NAMES[:n_arms]).to_frame()
    assert list(named[answer._noun]) == list(NAMES[:n_arms])


def test_a_frame_without_pandas_and_polars_says_what_to_install(monkeypatch):
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install pandas"):
        ANSWERS["race"].to_frame()


@pytest.mark.parametrize("key", ANSWERS)
def test_answers_draw_every_panel(key):
    plt = pytest.importorskip("matplotlib.pyplot")
    panels = ANSWERS[key].plot()
    assert isinstance(panels, list) and panels
    panels[0].figure.canvas.draw()
    own = plt.figure().add_subplot()
    name = next(iter(ANSWERS[key]._panels()))
    assert ANSWERS[key].plot(name, own) is own and own.has_data()
    with pytest.raises(ValueError, match=r"what is 'nothing'; one of all, "):
        ANSWERS[key].plot("nothing")
    plt.close("all")


@pytest.mark.parametrize("key", OF_ARMS)
def test_an_arm_has_one_colour_in_all_panels_and_the_best_is_on_top(key):
    plt = pytest.importorskip("matplotlib.pyplot")
    from matplotlib.colors import to_rgba

    answer = ANSWERS[key]
    means, pulls = answer.plot()[:2]
    colour = {}
    for container in means.containers:
        line = container.lines[0]
        for place in line.get_ydata():
            colour[round(place)] = to_rgba(line.get_color()), line.get_zorder()
    for bar in pulls.patches:
        assert to_rgba(bar.get_facecolor()) == colour[round(bar.get_y() + bar.get_height() / 2)][0]
    top = [place for place, (_, layer) in colour.items() if layer == max(layer for _, layer in colour.values())]
    order = answer._order()
    assert set(order[top]) == set(np.atleast_1d(answer.best).tolist())
    plt.close("all")


@pytest.mark.parametrize("n_arms", [3, 30, 60])
def test_labels_of_arms_do_not_overlap_and_what_is_left_out_is_counted(n_arms):
    plt = pytest.importorskip("matplotlib.pyplot")
    names = [f"a configuration with a name as long as a sentence, number {k}" for k in range(n_arms)]
    answer = fr.race(np.random.default_rng(1).random((400, n_arms)), names=names, rng=1)
    for panels in (answer.plot(), [answer.plot("means", plt.figure(layout="tight").add_subplot())]):
        panels[0].figure.canvas.draw()
        for panel in panels:
            boxes = [label.get_window_extent() for label in panel.get_yticklabels()]
            assert len(boxes) == min(n_arms, 30)
            heights = sorted((box.y0, box.y1) for box in boxes)
            assert all(below[1] <= above[0] for below, above in zip(heights, heights[1:], strict=False))
            assert min(box.x0 for box in boxes) >= 0.0
            assert ("30 more arms not drawn" in panel.get_ylabel()) == (n_arms == 60)
    plt.close("all")


def test_tables_shorten_long_names_and_know_no_minus_zero():
    names = ("left " + "long " * 30 + "one", "left " + "long " * 30 + "two", "x")
    answer = dataclasses.replace(ANSWERS["race"], names=(*names, *NAMES[3:ANSWERS["race"]._size()]),
                                 lower=np.full(ANSWERS["race"]._size(), -0.0), mean=-0.0 * ANSWERS["race"].mean)
    lines = [line for line in str(answer).splitlines()[1:] if not line.startswith("warning")]
    assert max(map(len, lines)) <= 110
    assert any(line.startswith(("* ", "  ")) and "..." in line and "long one" in line for line in lines)
    assert not re.search(r"-0(?![.\d])", "\n".join(lines))
    assert not re.search(r"<th>[^<]*  ", answer._repr_html_())
    answer = dataclasses.replace(ANSWERS["estimate"], interval=(-0.0, 0.5), estimate=-0.0)
    assert "-0" not in str(answer).splitlines()[1]


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ANSWERS["race"].plot()


@pytest.mark.parametrize("key", ANSWERS)
def test_an_answer_equals_its_copy_and_no_other(key):
    answer = ANSWERS[key]
    copy = pickle.loads(pickle.dumps(answer))
    assert answer == copy and hash(answer) == hash(copy) and answer == answer
    assert dataclasses.replace(answer, warnings=("odd",)) != answer
    assert answer != key and [other for other in ANSWERS.values() if other == answer] == [answer]


def test_before_any_reward_no_arm_is_best_and_intervals_are_the_support():
    race = fr.FiniteRace(3, 100, support=(0, 2), offset=[0, 10, -np.inf])
    sums = fr.UnequalRace([5, 3, 0], support=(0, 2), offset=[1, 2, 3], bound="serfling")
    stream = fr.HoeffdingRace(3, 9, support=(0, 2))
    for waiting, lower, upper in ((race, [0, 0.1, -np.inf], [2, 2.1, -np.inf]), (sums, [1, 2, 3], [11, 8, 3]),
                                  (stream, [0, 0, 0], [2, 2, 2])):
        answer = waiting.result()
        assert str(answer).startswith("no reward yet: ") and "still running" in str(answer).splitlines()[0]
        np.testing.assert_allclose(answer.lower, lower)
        np.testing.assert_allclose(answer.upper, upper)
    assert str(fr.race(VALUES, rng=1)).startswith("best arm ")
    assert np.isinf(fr.FiniteRace(3, 100).result().upper).all()


def test_arms_that_tie_with_the_best_are_named():
    tied = np.zeros((60, 6))
    tied[:, 2:] = 0.5 * (np.arange(60) % 2)[:, None]
    assert "  arm c ties with d, e, f; " in str(fr.race(tied, names=list("abcdef"), rng=1))
    assert "  arm 0 ties with 2; " in str(fr.race_sums([tied[:, 2], tied[:, 0], tied[:, 3]], scan_advantage=9, rng=1))
    assert "ties" not in str(fr.race(VALUES, rng=1))


@pytest.mark.parametrize(("n_best", "whole"), [(1, 6), (3, 8), (8, 13), (9, 14)])
def test_a_table_never_hides_a_single_line(n_best, whole):
    """A line that says so would take as much room."""
    for n_arms in (whole, whole + 1):
        text = str(fr.LUCB(n_arms, n_best).result())
        hidden = n_arms > whole
        assert len([line for line in text.splitlines() if line.startswith((" ", "*")) and "more" not in line]) == (
            1 + (n_arms - 2 if hidden else n_arms))
        assert ("2 more arms" in text) == hidden and "1 more" not in text
    race = fr.FiniteRace(11, 100)
    assert "more arm" not in str(race.result()) and "  10 " in str(race.result())
    assert "2 more arms" in str(fr.FiniteRace(12, 100).result())
    assert "more pair" not in str(fr.Comparison(12, reference=0).result())


@pytest.mark.parametrize("delta", [0.2, 0.003])
def test_no_error_bound_of_a_normal_approximation_is_below_delta(delta, rng):
    """At any door: nobody knows how right smaller ones are. A support, or a table that was read, says more."""
    values = rng.random((5000, 2)) + [0.0, 0.4]
    arms, rewards = np.tile([0, 1], 2000), values[:2000].ravel()

    def compared(support):
        test = fr.Comparison(2, delta, support)
        test.observe_many(arms, rewards)
        return test.result().error_bound

    for of in (
        lambda support: fr.race(values, delta, support=support, rng=1).error_bound,
        lambda support: fr.race(values, delta, support=support, student=support is None, rng=1).error_bound,
        lambda support: fr.LUCB(2, 1, delta=delta, support=support).run(values, rng=1).error_bound,
        lambda support: fr.BettingRace(2, delta=delta, support=support).run(values, rng=1).error_bound,
        compared,
    ):
        assert of(None) == pytest.approx(delta, rel=1e-12) and of((0.0, 1.4)) < delta
    assert f"any delta from {delta:.3g} on" in str(fr.race(values, delta, rng=1))
    assert fr.race(values - [0.0, 0.38], delta, max_pulls=300, rng=1).error_bound > delta
    assert fr.race(values - [0.0, 0.4], delta, rng=1).error_bound == 0.0            # all was read
