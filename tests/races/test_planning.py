"""The planner of races: its laws of rewards, and that its races are those of tables."""

import json

import numpy as np
import pytest
from scipy import stats

import fastrace as fr
from fastrace.races import planning


@pytest.mark.parametrize(("mean", "sd"), [(0.5, 0.1), (0.7, 0.4), (0.6, 0.5), (0.95, 0.5)])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8])
def test_beta_rewards_have_the_moments_and_the_correlation_asked_for(mean, sd, correlation):
    name, draw = planning._law(np.array([0.0, 0.02, 0.02]), sd, correlation, (0.0, 1.0), mean)
    x = draw(np.array([0, 2]), 40_000, np.random.default_rng(3))
    sd = min(sd, (mean * (1.0 - mean)) ** 0.5)
    assert name == ("beta" if sd < 0.45 and mean < 0.9 else "0/1") and x.min() >= 0.0 and x.max() <= 1.0
    np.testing.assert_allclose(x.mean(0), [mean, mean - 0.02], atol=6 * sd / 200 + 1e-3)
    assert abs(x[:, 0].std() - sd) < 0.02 * sd + 6 * 0.7 * sd / 200
    assert abs(np.corrcoef(x.T)[0, 1] - correlation) < 0.06


@pytest.mark.parametrize("support", [None, (0, 1)])
def test_planned_races_are_those_of_tables(support):
    means, races = np.array([0.6, 0.53, 0.5]), 30
    plan = fr.plan_race([0.07, 0.1], 0.15, 800, 3, 0.4, support=support, mean=0.6, n_races=races, rng=1)
    found = []
    for k in range(races):
        rng = np.random.default_rng([k, 11])
        z = np.sqrt(0.4) * rng.standard_normal((800, 1)) + np.sqrt(0.6) * rng.standard_normal((800, 3))
        values = means + 0.15 * z
        if support is not None:
            weight = means * (1 - means) / 0.15**2 - 1
            values = stats.beta.ppf(stats.norm.cdf(z), means * weight, (1 - means) * weight)
        found.append(fr.FiniteRace(3, 800, support=support, rng=k).run(values).n_read)
    assert stats.ks_2samp(plan.n_read, found).pvalue > 1e-6
    assert plan.right > 0.8 and plan.bound == ("normal" if support is None else "betting")


def test_a_plan_prints_exports_and_repeats():
    plan = fr.plan_race(0.1, 0.5, 1000, 4, 0.5, support=(0, 1), n_races=8, rng=4)
    assert plan == fr.plan_race(0.1, 0.5, 1000, 4, 0.5, support=(0, 1), n_races=8, rng=4)
    text = str(plan)
    assert "4 arms over 1,000 rows" in text and "50 % of races" in text and "8 simulated races" in text
    assert plan.quantile(1.0) == plan.n_read.max() and plan.quantile([0.0, 0.5]).shape == (2,)
    assert plan.quantile(0.1) <= plan.quantile(0.5) <= plan.quantile(0.9)
    for wrong in (2, -0.1, [0.5, np.nan]):
        with pytest.raises(ValueError, match="q is .*; shares of the races are needed, from 0 to 1"):
            plan.quantile(wrong)
    assert json.loads(json.dumps(plan.to_dict()))["mean"] == plan.mean
    pytest.importorskip("pandas")
    frame = plan.to_frame()
    assert frame["n_read"].tolist() == plan.n_read.tolist() and frame["fraction_read"].max() <= 1.0
    plt = pytest.importorskip("matplotlib.pyplot")
    plan.plot()
    plt.close("all")


def test_options_of_the_race_are_passed_on():
    plan = fr.plan_race(0.001, 0.2, 1000, 3, support=(0, 1), max_pulls=300, n_races=3, rng=1)
    assert plan.quantile(1) <= 300
    assert fr.plan_race(0.3, 0.2, 1000, 3, bound="serfling", support=(-1, 1), n_races=2, rng=1).bound == "serfling"


@pytest.mark.parametrize(("change", "said"), [
    ({"gap": -0.1}, "plan_race: gap is -0.1; finite numbers of at least 0"),
    ({"gap": [0.1, 0.2, 0.3]}, r"gap has shape \(3,\); a scalar or shape \(2,\), one value per arm but the best"),
    ({"gap": 1.5}, "means go from"),
    ({"sd": 0.0}, "sd is 0.0; a finite number above 0"),
    ({"sd": 0.6}, "at most 0.5"),
    ({"correlation": 1.0}, r"correlation is 1.0; a number in \[0, 1\)"),
    ({"n_races": 0}, "n_races is 0"),
    ({"n_rows": 0}, "n_rows is 0; at least 1"),
    ({"n_arms": 1}, "n_arms is 1; at least 2"),
    ({"bound": "best"}, "bound is 'best'"),
    ({"hue": 1}, "unexpected keyword argument 'hue'"),
])
def test_arguments_are_checked(change, said):
    good = {"gap": 0.1, "sd": 0.2, "n_rows": 100, "n_arms": 3, "support": (0, 1)}
    with pytest.raises((ValueError, TypeError), match=said):
        fr.plan_race(**(good | change))


def test_a_plan_counts_every_arm_that_will_do_as_right():
    plan = fr.plan_race([0.0, 0.3], 0.2, 400, 3, support=(0, 1), n_best=2, n_races=20, rng=1)
    assert plan.best.shape == (20, 2) and plan.right == 1.0
    assert plan.to_dict()["right"] == 1.0
    options = {"support": (0, 1), "n_races": 20, "rng": 1}
    near = fr.plan_race([0.005, 0.4], 0.2, 400, 3, epsilon=0.1, **options)
    assert near.right == 1.0 > (near.best == 0).mean()
    assert fr.plan_race([0.005, 0.4], 0.2, 400, 3, max_pulls=12, **options).right < 1.0


def test_a_plan_of_several_best_arms_has_a_column_for_each():
    pytest.importorskip("pandas")
    frame = fr.plan_race([0.0, 0.3], 0.2, 400, 3, support=(0, 1), n_best=2, n_races=5, rng=1).to_frame()
    assert list(frame.columns) == ["n_read", "fraction_read", "best[0]", "best[1]"]
