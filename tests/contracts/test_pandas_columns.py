"""Names on pandas objects with one entry per class or arm say whose it is; position counts where there are none."""

import numpy as np
import pytest

import fastrace as fr
from fastrace import mcmc
from fastrace.model_selection import race_predictions

pd = pytest.importorskip("pandas")

ARMS = ["a", "b", "c"]
SHIFT = {"a": 0.0, "b": 0.0, "c": -np.inf}      # c has the largest rewards, and must not win
OFFSETS = {
    "race": fr.race,
    "race_names": lambda table, **more: fr.race(table.to_numpy(), names=ARMS, **more),
    "FiniteRace": lambda table, **more: fr.FiniteRace(3, len(table), names=ARMS, **more).run(table.to_numpy()),
    "LilUCB": lambda table, **more: fr.LilUCB(3, len(table), 0.05, support=(0, 1), names=ARMS, **more).run(
        table.to_numpy()),
    "race_sums": lambda table, **more: fr.race_sums({arm: table[arm].to_numpy() for arm in ARMS}, **more),
}
SHARES = (0.5, 0.6, 0.9)


def predictions(labels, seed=0):
    """True values, and the probabilities by three models in the order of `labels`: the last is best."""
    rng = np.random.default_rng(seed)
    y = np.array(labels)[rng.integers(0, len(labels), 2000)]
    tables = [0.5 * rng.random((2000, len(labels))) + share * (y[:, None] == np.array(labels)) for share in SHARES]
    return y, [table / table.sum(axis=1, keepdims=True) for table in tables]


def scores(y, tables, **more):
    return race_predictions(y, tables, "neg_log_loss", rng=1, **more).mean.tolist()


@pytest.mark.parametrize("labels", [["a", "b", "c"], [1, 2, 5], [0, 1, 2], [False, True]])
@pytest.mark.parametrize("kind", ["values", "text", "arrow"])
def test_columns_that_name_classes_are_taken_by_name(labels, kind):
    y, tables = predictions(labels)
    wanted, back = scores(y, tables), labels[::-1]
    names = labels if kind == "values" else list(map(str, labels))
    frames = [pd.DataFrame(table, columns=names).iloc[:, ::-1] for table in tables]
    if kind == "arrow":
        frames = [pytest.importorskip("pyarrow").table(frame) for frame in frames]
    assert scores(y, frames) == wanted
    assert scores(y, [*tables[:2], frames[2]]) == wanted
    assert scores(y, dict(zip("xyz", frames, strict=True)), labels=back) == wanted
    assert scores(y, frames, labels=labels) == wanted


def test_columns_without_names_are_taken_by_position():
    y, tables = predictions(["a", "b", "c"])
    wanted = scores(y, tables)
    for names in (None, [0, 1, 2], ["0", "1", "2"], ["column_0", "column_1", "column_2"]):
        assert scores(y, [pd.DataFrame(table, columns=names) for table in tables]) == wanted
    y, tables = predictions([0, 1, 2])
    back = [pd.DataFrame(table[:, ::-1]) for table in tables]       # labels say what the columns are
    assert scores(y, back, labels=[2, 1, 0]) == scores(y, tables)


@pytest.mark.parametrize("names", [["a", "b", "x"], ["a", "b", "b"], [2, 1, 0]])
def test_columns_that_name_no_classes_are_refused(names):
    y, tables = predictions(["a", "b", "c"])
    frame = pd.DataFrame(tables[2])
    frame.columns = names
    for given, called in (([*tables[:2], frame], r"y_pred\[2\]"), ({"m": tables[0], "n": frame}, r"y_pred\['n'\]")):
        with pytest.raises(ValueError, match=f"{called} has the names {names[0]!r}, .*; those of the classes"):
            scores(y, given)


LOW, HIGH, COST = [0.0, 0.1, 0.2], [0.6, 0.8, 1.0], [1.0, 2.0, 4.0]      # of a, b and c
BOUNDED = np.random.default_rng(1).random((4000, 3)) * np.subtract(HIGH, LOW) + LOW


RACES = {
    "race": lambda table, **more: fr.race(table, rng=1, **more),
    "race_names": lambda table, **more: fr.race(table.to_numpy(), names=ARMS, rng=1, **more),
    "FiniteRace": lambda table, **more: fr.FiniteRace(3, len(table), names=ARMS, rng=1, **more).run(table.to_numpy()),
    "select_best": lambda table, **more: fr.select_best(table, epsilon=0.1, rng=1, **more),
    "select_names": lambda table, **more: fr.select_best(table.to_numpy(), names=ARMS, epsilon=0.1, rng=1, **more),
    "LUCB": lambda table, **more: fr.LUCB(3, 1, 0.1, names=ARMS, **more).run(table, rng=1),
    "BettingRace": lambda table, **more: fr.BettingRace(3, epsilon=0.1, names=ARMS, **more).run(table, rng=1),
}
BOUNDS = {
    "HoeffdingRace": lambda table, **more: fr.HoeffdingRace(3, 4000, names=ARMS, **more).run(table, rng=1),
    "LilUCB": lambda table, **more: fr.LilUCB(3, 4000, 0.05, names=ARMS, rng=1, **more).run(table),
    "KLLUCB": lambda table, **more: fr.baselines.KLLUCB(3, 1, 0.2, names=ARMS, **more).run(table, rng=1),
    "race_sums": lambda table, **more: fr.race_sums({arm: table[arm].to_numpy() for arm in ARMS}, rng=1, **more),
}


@pytest.mark.parametrize("door", [*RACES, *BOUNDS])
def test_costs_and_supports_go_by_the_names_of_the_arms(door):
    run, table = (RACES | BOUNDS)[door], pd.DataFrame(BOUNDED, columns=ARMS)
    price = {} if door in BOUNDS else {"cost": COST}
    wanted = run(table, support=(LOW, HIGH), **{key: pd.Series(value) for key, value in price.items()})
    assert not price or wanted.cost == pytest.approx(wanted.pulls @ COST)
    for order in (ARMS, ["c", "a", "b"]):
        series = [pd.Series(values, index=ARMS)[order] for values in (LOW, HIGH, COST)]
        found = run(table, support=tuple(series[:2]), **dict.fromkeys(price, series[2]))
        assert found == wanted
    strange = pd.Series(HIGH, index=["c", "b", "x"])
    with pytest.raises(ValueError, match=r"support\[1\] has the names 'c', 'b', 'x'; those of the arms, 'a', 'b', 'c'"):
        run(table, support=(LOW, strange))
    for key in price:
        with pytest.raises(ValueError, match=f"{key} has the names 'c', 'b', 'x'"):
            run(table, support=(LOW, HIGH), **{key: strange})


@pytest.mark.parametrize("given", [{}, {"names": ARMS}])
def test_a_log_prior_goes_by_the_names_of_the_states(given):
    table = pd.DataFrame(np.zeros((100, 3)), columns=ARMS)
    prior = pd.Series({"c": 0.0, "a": -np.inf, "b": -np.inf})
    sampler = fr.DiscreteSampler(table.to_numpy() if given else table, prior, support=(0, 1), rng=1, **given)
    assert sampler.log_prior.tolist() == [-np.inf, -np.inf, 0.0] and sampler.draw() == 2
    sampler.log_prior = prior[["b", "c", "a"]]
    assert sampler.draw() == 2
    with pytest.raises(ValueError, match="log_prior has the names"):
        sampler.log_prior = prior.set_axis(["x", "y", "z"])


def test_scales_of_arms_go_by_their_names():
    table = pd.DataFrame(BOUNDED, columns=ARMS)
    scale = pd.Series([0.5, 1.0, 2.0], index=ARMS)
    wanted = fr.select_best(table, support=None, sub_gaussian=scale.to_numpy(), epsilon=0.5, rng=1)
    assert fr.select_best(table, support=None, sub_gaussian=scale[::-1], epsilon=0.5, rng=1) == wanted
    assert fr.select_best(table, support=None, sub_gaussian=scale.to_numpy()[::-1], epsilon=0.5, rng=1) != wanted


@pytest.mark.parametrize("door", OFFSETS)
def test_an_offset_goes_by_the_names_of_the_arms(door):
    table = pd.DataFrame(np.random.default_rng(0).random((3000, 3)) * 0.5 + [0.0, 0.2, 0.5], columns=ARMS)
    for given in (pd.Series(SHIFT), pd.Series(SHIFT)[["c", "b", "a"]], pd.Series(list(SHIFT.values())),
                  list(SHIFT.values())):
        assert OFFSETS[door](table, offset=given, rng=1).best == 1
    with pytest.raises(ValueError, match="offset has the names 'c', 'b', 'x'; those of the arms, 'a', 'b', 'c', are"):
        OFFSETS[door](table, offset=pd.Series([-1.0, 0.0, 0.0], index=["c", "b", "x"]), rng=1)


def test_an_offset_of_arms_without_names_goes_by_position():
    table = np.random.default_rng(0).random((3000, 3)) * 0.5 + [0.0, 0.2, 0.5]
    assert fr.race(table, offset=pd.Series([0.0, 0.0, -np.inf], index=["c", "b", "a"]), rng=1).best == 1


def test_probabilities_of_inclusion_go_by_the_names_of_the_parameters():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=ARMS)
    model = mcmc.GLM(X, rng.random(300) < 0.5, prior_sd=1.0)
    known = {"init": np.zeros(3), "n_draws": 200, "n_chains": 1, "n_tune": 20, "rng": 1}
    shares = [1.0, 0.5, 1.0]
    wanted = mcmc.sample(mcmc.VariableSelection(model, prior=shares), **known).draws
    assert (wanted == 0.0).any(axis=(0, 1)).tolist() == [False, True, False]
    for given in (pd.Series(shares, ARMS)[["b", "c", "a"]], pd.Series(shares)):
        np.testing.assert_array_equal(mcmc.sample(mcmc.VariableSelection(model, prior=given), **known).draws, wanted)
    with pytest.raises(ValueError, match="prior has the names 'a', 'b', 'x'; those of the parameters"):
        mcmc.VariableSelection(model, prior=pd.Series(shares, ["a", "b", "x"]))


def test_scores_of_a_proxy_go_by_the_names_of_the_arms():
    rng = np.random.default_rng(0)
    right = (rng.random((4000, 3)) < [0.60, 0.70, 0.62]).astype(float)
    judged = pd.DataFrame(np.where(rng.random(right.shape) < 0.95, right, 1 - right), columns=ARMS)
    table = pd.DataFrame(right, columns=ARMS)
    wanted = fr.race(table, support=(0, 1), proxy=judged.to_numpy(), rng=1)
    back = judged[["c", "a", "b"]]
    for proxy in (judged, back, judged.to_numpy(), judged.set_axis(range(3), axis=1), dict(back)):
        assert fr.race(table, support=(0, 1), proxy=proxy, rng=1) == wanted
        assert fr.race(right, names=ARMS, support=(0, 1), proxy=proxy, rng=1) == wanted
        found = fr.FiniteRace(3, 4000, names=ARMS, support=(0, 1), proxy=proxy, rng=1).run(right)
        assert found.n_read == wanted.n_read
    polars = pytest.importorskip("polars").from_pandas(back)
    assert fr.race(table, support=(0, 1), proxy=polars, rng=1) == wanted
    assert fr.race(table, support=(0, 1), proxy=judged[["a"]], rng=1).best == 1         # that arms share
    with pytest.raises(ValueError, match="proxy has the names 'a', 'b', 'x'; those of the arms, 'a', 'b', 'c', are"):
        fr.race(table, support=(0, 1), proxy=judged.set_axis(["a", "b", "x"], axis=1))


RUNS = {
    "race": lambda table: fr.race(table, names=ARMS, support=(0, 1)),
    "FiniteRace": lambda table: fr.FiniteRace(3, len(table), names=ARMS, support=(0, 1)).run(table),
    "LilUCB": lambda table: fr.LilUCB(3, len(table), names=ARMS, support=(0, 1)).run(table),
    "BettingRace": lambda table: fr.BettingRace(3, names=ARMS, support=(0, 1), epsilon=0.1).run(table),
    "LUCB": lambda table: fr.LUCB(3, 1, 0.1, names=ARMS, support=(0, 1)).run(table),
    "select_best": lambda table: fr.select_best(table, names=ARMS, epsilon=0.1, support=(0, 1)),
    "DiscreteSampler": lambda table: fr.DiscreteSampler(table, names=ARMS, support=(0, 1)).draw(),
    "race_predictions": lambda table: race_predictions(np.ones(len(table)), table.round(), names=ARMS),
}


@pytest.mark.parametrize("door", RUNS)
def test_a_table_whose_columns_are_the_names_in_another_order_is_refused(door):
    table = pd.DataFrame(BOUNDED, columns=ARMS)
    RUNS[door](table)
    RUNS[door](table.set_axis(["x", "y", "z"], axis=1))         # new names for the same columns
    with pytest.raises(ValueError, match=r"have the same names in another order, 'a', 'b', 'c' and 'c', 'a', 'b'"):
        RUNS[door](table[["c", "a", "b"]])


def test_rewards_told_go_by_the_names_of_the_arms():
    table = pd.DataFrame(BOUNDED, columns=ARMS)
    races = [fr.FiniteRace(3, 4000, names=ARMS, support=(0, 1), rng=1) for _ in range(2)]
    while not races[0].done:
        arms, rows = races[0].ask()
        block = table.iloc[rows, arms]
        races[0].tell(block.to_numpy())
        races[1].ask()
        races[1].tell(block.iloc[:, ::-1])
    assert races[0].result() == races[1].result()
    rounds = [fr.BettingRace(3, names=ARMS, support=(0, 1), epsilon=0.01) for _ in range(2)]
    for row in range(4000):
        if rounds[0].done:
            break
        arms = rounds[0].ask()[0]
        one = table.iloc[row, arms]
        rounds[0].tell(one.to_numpy())
        rounds[1].tell(one[::-1] if row % 2 else one[::-1].to_frame().T)
    assert rounds[0].result() == rounds[1].result() and rounds[0].result().pulls.sum() > 100
    means = []
    for step in (1, -1):
        race = fr.FiniteRace(3, 4000, names=ARMS, support=(0, 1), rng=1)
        arms, rows = race.ask(50, pending=True)
        race.tell(table.iloc[rows, arms].iloc[:, ::step], arms, rows)
        means.append(race.result().mean.tolist())
    assert means[0] == means[1] == pytest.approx(table.iloc[rows].mean().tolist())
    with pytest.raises(ValueError, match="rewards has the names 'a', 'b', 'x'; those of the arms"):
        race.tell(pd.DataFrame(np.zeros((1, 3)), columns=["a", "b", "x"]), arms, race.ask(1, pending=True)[1])
