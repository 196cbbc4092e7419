"""Pictures of selections show what the results hold."""

from types import SimpleNamespace

import numpy as np
import pytest

from fastrace.model_selection import (
    DAUB,
    FixedSubset,
    RegretDisplay,
    SelectionCurveDisplay,
)

plt = pytest.importorskip("matplotlib.pyplot")
plt.switch_backend("Agg")

FINAL, SPEED = [0.90, 0.93, 0.95, 0.80, 0.70], [3.0, 10.0, 30.0, 1.0, 1.0]


def train(learner, n):
    return 1.0, FINAL[learner] - SPEED[learner] / n


@pytest.fixture(scope="module")
def result():
    return DAUB(5, 100_000, first=500, names=list("abcde")).run(train)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_curves_stand_as_they_did_at_each_decision(result):
    total = len(result.history)
    shown = SelectionCurveDisplay.from_search(result, at=[15, total], n_learners=5)
    assert len(shown.axes_) == 2 and shown.axes_[0].figure is shown.figure_
    for panel, moment in zip(shown.axes_, (15, total), strict=True):
        so_far = result.history[:moment]
        curves = {line.get_label(): line for line in panel.get_lines() if line.get_label() in "abcde"}
        assert set(curves) == set("abcde")
        for i, name in enumerate("abcde"):
            points = sorted((one.n, one.valid_score) for one in so_far if one.learner == i)
            assert np.array_equal(curves[name].get_xydata(), points)
        ends = {line.get_ydata()[0] for line in panel.get_lines() if line.get_marker() == "_"}
        last = {one.learner: one for one in so_far}
        assert ends == {one.bound for one in last.values() if one.n < 100_000}
    assert len(shown.plot().axes_) == len(shown.decisions()) == 4
    assert shown.decisions()[0] == 15 and shown.decisions()[-1] == total
    assert len(shown.plot(at=3, n_learners=1).axes_) == 1
    _, axes = plt.subplots(1, 2)
    assert shown.plot(at=[4, 9], ax=axes).figure_ is axes[0].figure
    for wrong in (0, total + 1, []):
        with pytest.raises(ValueError, match="at is"):
            shown.plot(at=wrong)
    with pytest.raises(ValueError, match="ax holds"):
        shown.plot(at=4, ax=axes)


def test_a_learner_has_one_colour_in_all_panels_and_sixty_long_names_fit():
    names = [f"HistGradientBoostingClassifier(learning_rate={i / 100}, max_depth={i}, l2_regularization=0.1)"
             for i in range(60)]
    many = DAUB(60, 100_000, names=names).run(lambda i, n: (None, 0.9 - 0.001 * i - (1 + i % 7) / n**0.5))
    shown = SelectionCurveDisplay(many).plot()
    colours = {}
    shown.figure_.canvas.draw()
    for panel in shown.axes_:
        for line in panel.get_lines():
            if "Hist" in line.get_label():
                colours.setdefault(line.get_label(), set()).add(line.get_color())
        inside, legend = panel.get_window_extent(), panel.get_legend().get_window_extent()
        assert legend.width <= inside.width and panel.title.get_window_extent().width <= 1.2 * inside.width
    assert colours and all(len(found) == 1 for found in colours.values())
    regret = RegretDisplay(names, np.linspace(0, 1, 60), np.linspace(0.1, 1, 60)).plot()
    assert max(map(len, str(regret).splitlines())) < 80


def test_rows_spent_are_a_panel_of_the_result(result):
    ax = result.plot("rows")
    bars = {ax.get_yticklabels()[round(bar.get_y() + 0.45)].get_text(): bar.get_width() for bar in ax.patches}
    assert bars == dict(zip("abcde", result.rows.tolist(), strict=True))
    with pytest.raises(ValueError, match="call fit first"):
        SelectionCurveDisplay.from_search(object())
    nameless = DAUB(2, 9000).run(train)
    assert SelectionCurveDisplay.from_search(SimpleNamespace(result_=nameless)).names == ("learner 0", "learner 1")


def test_regret_is_that_of_the_choice(result):
    full = np.array([train(i, 100_000)[1] for i in range(5)])
    subset = FixedSubset(5, 100_000, 500).run(train)
    shown = RegretDisplay.from_search({"DAUB": result, "0.5 %": subset}, full)
    assert shown.regret == pytest.approx([full.max() - full[result.best], full.max() - full[subset.best]])
    assert shown.fraction.tolist() == [result.fraction, subset.fraction]
    assert "DAUB" in str(shown) and f"{100 * result.fraction:.3g}" in str(shown)
    assert len(shown.ax_.get_lines()) == 2
    with pytest.raises(ValueError, match="full_scores has shape"):
        RegretDisplay.from_search({"DAUB": result}, full[:3])
    with pytest.raises(ValueError, match="one number per name"):
        RegretDisplay(["a"], [0.1, 0.2], [0.1])
    loss = DAUB(5, 100_000, direction="minimize").run(lambda i, n: (None, -train(i, n)[1]))
    assert RegretDisplay.from_search({"DAUB": loss}, -full).regret[0] == pytest.approx(full.max() - full[loss.best])
