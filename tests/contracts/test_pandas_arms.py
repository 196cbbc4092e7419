"""Every argument outside `mcmc` that may have names of arms or columns: by name, refused in words, or said why not.

`test_pandas_parameters` does the same for `mcmc`; `test_pandas_rows` holds the doors that pair rows.
"""

import copy
import inspect
import pickle
import re

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier

import fastrace as fr
from fastrace import baselines, boosting, bounds, model_selection, pulls, sources
from fastrace.boosting import FilterBoostClassifier
from fastrace.model_selection import BudgetedUCB, CoarseGrid, RacingSearchCV, RegretDisplay, race_predictions
from fastrace.results import Result

pd = pytest.importorskip("pandas")

ARMS, N = ["a", "b", "c"], 2000
LOW, HIGH, COST = np.array([0.0, 0.1, 0.2]), np.array([0.6, 0.8, 1.0]), np.array([1.0, 2.0, 4.0])
TABLE = pd.DataFrame(np.random.default_rng(1).random((N, 3)) * (HIGH - LOW) + LOW, columns=ARMS)
WITH = {"support": (0, 1), "rng": 1}
SOON = {"first_look": 5, **WITH}
OPEN = {"names": ARMS, "support": (0, 1)}
SHIFT = {"a": 0.0, "b": 0.0, "c": -np.inf}


def paid(result):
    return result.pulls.tolist(), result.cost


def ended(result):
    return result.pulls.tolist(), result.best


def summed(**given):
    return ended(fr.race_sums({arm: TABLE[arm].to_numpy() for arm in ARMS}, rng=1, **given))


def unequal(**given):
    race = fr.UnequalRace([500, 1000, 2000], names=ARMS, rng=1, **given)
    return ended(race.run([TABLE[arm].to_numpy()[:size] for arm, size in zip(ARMS, race._sizes, strict=True)]))


def searched(cost):
    x = np.random.default_rng(0).normal(size=(600, 2))
    learners = (DummyClassifier(), DecisionTreeClassifier(max_depth=1), DecisionTreeClassifier(max_depth=2))
    search = RacingSearchCV(list(zip(ARMS, learners, strict=True)), cost=cost, cv=2, random_state=1,
                            first_look=10)
    return paid(search.fit(x, (x > 0).all(axis=1)).race_)


def predicted(cost):
    y = np.arange(N) % 2
    rng = np.random.default_rng(0)
    guesses = {arm: np.where(rng.random(N) < share, y, 1 - y) for arm, share in zip(ARMS, (0.6, 0.7, 0.8), strict=True)}
    return paid(race_predictions(y, pd.DataFrame(guesses), cost=cost, rng=1))


def chosen(kind):
    def risks(rates):
        rule = kind(rates, 8, [lambda n: n ** -0.5] * 3, names=ARMS)
        asked = []
        while not rule.done and len(asked) < 6:
            learner, n = rule.ask()
            asked.append((int(learner), int(n)))
            rule.tell(learner, n, 0.5, 0.5)
        return asked
    return risks


def regrets(what):
    def drawn(given):
        numbers = {"regret": COST, "fraction": COST} | {what: given}
        return str(RegretDisplay(ARMS, **numbers))
    return drawn


def observed_by(observed):
    return fr.PermutationTest(observed, names=ARMS).observed.tolist()


# One entry per arm, in the order a, b, c: what comes of them, where the arms have names.
BY_NAME = {
    "FiniteRace(cost)": lambda given: paid(fr.FiniteRace(3, N, names=ARMS, cost=given, **SOON).run(TABLE)),
    "FiniteRace(support)": lambda given: ended(fr.FiniteRace(3, N, names=ARMS, support=(0, given), rng=1).run(TABLE)),
    "FiniteRace(offset)": lambda given: ended(fr.FiniteRace(3, N, names=ARMS, offset=-given * N, **WITH).run(TABLE)),
    "race(cost)": lambda given: paid(fr.race(TABLE, cost=given, **SOON)),
    "race(support)": lambda given: ended(fr.race(TABLE, support=(-1, given), rng=1)),
    "race(offset)": lambda given: ended(fr.race(TABLE, offset=-given * N, **WITH)),
    "LilUCB(support)": lambda given: fr.LilUCB(3, N, names=ARMS, support=(0, given))._options["high"].tolist(),
    "LilUCB(offset)": lambda given: ended(fr.LilUCB(3, N, names=ARMS, offset=-given, **WITH).run(TABLE)),
    "UnequalRace(sizes)": lambda given: fr.UnequalRace((500 * given).astype(int), names=ARMS)._sizes.tolist(),
    "UnequalRace(support)": lambda given: fr.UnequalRace([9, 9, 9], names=ARMS, support=(0, given))._options[
        "high"].tolist(),
    "UnequalRace(offset)": lambda given: unequal(offset=-given * N),
    "race_sums(offset)": lambda given: summed(offset=-given * N),
    "race_sums(sizes)": lambda given: ended(fr.race_sums(
        lambda arm, rows: rows % (2 + arm), (500 * given).astype(int), names=ARMS, rng=1)),
    "DiscreteSampler(log_prior)": lambda given: fr.DiscreteSampler(TABLE, given, **WITH).log_prior.tolist(),
    "DiscreteSampler(support)": lambda given: fr.DiscreteSampler(TABLE, support=(-1, given))._options.high.tolist(),
    "StreamRace(cost)": lambda given: paid(fr.HoeffdingRace(3, N, cost=given, **OPEN).run(TABLE, rng=1)),
    "StreamRace(support)": lambda given: fr.HoeffdingRace(3, N, names=ARMS, support=(0, given))._high.tolist(),
    "BettingRace(cost)": lambda given: paid(fr.BettingRace(3, cost=given, epsilon=0.1, **OPEN).run(TABLE, rng=1)),
    "BettingRace(support)": lambda given: fr.BettingRace(3, names=ARMS, support=(0, given))._high.tolist(),
    "LUCB(cost)": lambda given: paid(fr.LUCB(3, 1, 0.2, cost=given, **OPEN).run(TABLE, rng=1)),
    "LUCB(support)": lambda given: fr.LUCB(3, 1, 0.2, names=ARMS, support=(0, given))._support[1].tolist(),
    "LUCB(sub_gaussian)": lambda given: fr.LUCB(3, 1, 0.2, names=ARMS, support=None, sub_gaussian=given)._given[
        "sub_gaussian"].tolist(),
    "select_best(cost)": lambda given: paid(fr.select_best(TABLE, epsilon=0.2, cost=given, **WITH)),
    "select_best(support)": lambda given: ended(fr.select_best(TABLE, epsilon=0.2, support=(-1, given), rng=1)),
    **{f"{rule.__name__}(support)": lambda given, rule=rule, more=more: rule(
        *more, names=ARMS, support=(0, given))._support[1].tolist()
       for rule, more in ((fr.Adapt, (3, 1, 0.2)), (fr.Direct, (3, 1, 0.2)), (fr.Halving, (3, 1, 0.2)),
                          (fr.Incremental, (3, 1, 0.2)), (fr.MedianElimination, (3, 0.2)),
                          (fr.KLLUCB, (3, 1, 0.2)), (fr.OCBA, (3, 1, 600)), (fr.SAR, (3, 1, 600)),
                          (fr.SubsetRace, (3, 1, 600)))},
    "race_predictions(cost)": predicted,
    "race_predictions(support)": lambda given: ended(race_predictions(
        np.zeros(N), TABLE, "neg_mean_squared_error", support=(-given, 0), first_look=5, rng=1)),
    "RacingSearchCV(cost)": searched,
    "Budgeted(rows_per_quantum)": lambda given: chosen(BudgetedUCB)(given.astype(int)),
    "CoarseGrid(rows_per_quantum)": lambda given: chosen(CoarseGrid)(given.astype(int)),
    "RegretDisplay(regret)": regrets("regret"),
    "RegretDisplay(fraction)": regrets("fraction"),
    "PermutationTest(observed)": observed_by,
    "ArraySource(support)": lambda given: list(sources.ArraySource(TABLE, support=(0, given)).support[1]),
    "as_source(support)": lambda given: list(sources.as_source(TABLE, support=(0, given)).support[1]),
}
ALIKE = {       # subclasses that hand the argument on, or the same argument by another road
    "HoeffdingRace(cost)": "StreamRace(cost)", "HoeffdingRace(support)": "StreamRace(support)",
    "BernsteinRace(cost)": "StreamRace(cost)", "BernsteinRace(support)": "StreamRace(support)",
    "BudgetedUCB(rows_per_quantum)": "Budgeted(rows_per_quantum)",
    "RaceOptions(support)": "race(support)", "race_sums(support)": "UnequalRace(support)",
}

# The same where nobody has said names, and a table with names, or a second series, comes later.
UNNAMED = {
    "FiniteRace(cost)": lambda given, table: paid(fr.FiniteRace(3, N, cost=given, **SOON).run(table)),
    "FiniteRace(support)": lambda given, table: ended(fr.FiniteRace(3, N, support=(-1, given), rng=1).run(table)),
    "FiniteRace(offset)": lambda given, table: ended(fr.FiniteRace(3, N, offset=-given * N, **WITH).run(table)),
    "LilUCB": lambda given, table: ended(fr.LilUCB(3, N, support=(-1, given), rng=1).run(table)),
    "UnequalRace(sizes)": lambda given, table: ended(fr.UnequalRace((500 * given).astype(int), rng=1).run(
        {arm: table[arm].to_numpy()[:size] for arm, size in zip(table, (500, 1000, 2000), strict=True)})),
    "HoeffdingRace": lambda given, table: paid(fr.HoeffdingRace(3, N, cost=given, support=(0, 1)).run(table, rng=1)),
    "BettingRace": lambda given, table: paid(
        fr.BettingRace(3, cost=given, epsilon=0.1, support=(0, 1)).run(table, rng=1)),
    "LUCB(cost)": lambda given, table: paid(fr.LUCB(3, 1, 0.2, cost=given).run(table, rng=1)),
    "LUCB(support)": lambda given, table: ended(fr.LUCB(3, 1, 0.2, support=(-1, given)).run(table, rng=1)),
    "LUCB(sub_gaussian)": lambda given, table: ended(
        fr.LUCB(3, 1, 0.5, support=None, sub_gaussian=given).run(table, rng=1)),
    "Adapt": lambda given, table: ended(fr.Adapt(3, 1, 0.2, support=(-1, given), rng=1).run(table, rng=1)),
    "told": lambda given, table: paid(told(fr.FiniteRace(3, N, cost=given, **SOON), table)),
    "told rounds": lambda given, table: paid(told_rounds(given, table)),
}


def told(race, table):
    while not race.done:
        arms, rows = race.ask()
        race.tell(table.iloc[rows, arms])
    return race.result()


def told_rounds(cost, table):
    race = fr.BettingRace(3, cost=cost, epsilon=0.1, support=(0, 1))
    for row in range(N):
        if race.done:
            break
        race.tell(table.iloc[row, race.ask()[0]])
    return race.result()


# Tables whose columns are arms, by "Class.method(argument)" or "function(argument)"; two calls hand two frames.
def running(kind, order):
    moments = kind(3)
    moments.update_many(TABLE[:1000])
    moments.update_many(TABLE[order][1000:])
    return (moments.mean if kind is fr.RunningMoments else moments.difference_mean).tolist()


def merged(order):
    moments, others = fr.RunningMoments(3), fr.RunningMoments(3)
    moments.update_many(TABLE[:1000])
    others.update_many(TABLE[order][1000:])
    moments.merge(others)
    return moments.mean.tolist()


def boosted(method):
    def fitted(order):
        model = FilterBoostClassifier(n_estimators=3, random_state=1).fit(TABLE, TABLE["c"] > 0.6)
        out = getattr(model, method)(TABLE[order])
        return np.array(list(out) if method.startswith("staged") else out).tolist()
    return fitted


def permuted(order):
    test = fr.PermutationTest(pd.Series(COST, ARMS))
    test.tell(TABLE[order][:50] * 5.0)
    return test.result().pvalue.tolist()


def raced(**given):
    race = fr.FiniteRace(3, N, **SOON)
    while not race.done:
        arms, rows = race.ask()
        block = TABLE.iloc[rows, arms]
        race.tell(block[given["order"]] if race.result().n_read and len(arms) == 3 else block)
    return race.result().best, race.result().mean.tolist()


COLUMNS = {
    "_Running.update_many(xs)": lambda order: running(fr.RunningMoments, order),
    "RunningComoments.update_many(xs)": lambda order: running(fr.RunningComoments, order),
    "race(proxy)": lambda order: ended(fr.race(TABLE, proxy=TABLE[order], **WITH)),
    "FiniteRace(proxy)": lambda order: ended(fr.FiniteRace(3, N, names=ARMS, proxy=TABLE[order], **WITH).run(TABLE)),
    "FiniteRace.tell(rewards)": lambda order: raced(order=order),
    "PermutationTest.tell(statistics)": permuted,
}
REFUSED = {
    "_Running.merge(other)": merged,
    "FiniteRace.run(source)": lambda order: fr.FiniteRace(3, N, names=ARMS, **WITH).run(TABLE[order]),
    "LilUCB.run(source)": lambda order: fr.LilUCB(3, N, names=ARMS, **WITH).run(TABLE[order]),
    "StreamRace.run(rewards)": lambda order: fr.HoeffdingRace(3, N, **OPEN).run(TABLE[order]),
    "Selection.run(pull)": lambda order: fr.LUCB(3, 1, 0.2, **OPEN).run(TABLE[order]),
    "race(rewards)": lambda order: fr.race(TABLE[order], names=ARMS, **WITH),
    "select_best(pull)": lambda order: fr.select_best(TABLE[order], names=ARMS, epsilon=0.2, **WITH),
    "DiscreteSampler(rewards)": lambda order: fr.DiscreteSampler(TABLE[order], names=ARMS, **WITH),
    **{f"FilterBoostClassifier.{method}(X)": boosted(method) for method in (
        "decision_function", "predict", "predict_log_proba", "predict_proba", "staged_decision_function",
        "staged_predict", "staged_predict_proba")},
    "race_predictions(y_pred)": lambda order: race_predictions(np.ones(N), TABLE[order].round(), names=ARMS),
}
PAIRED = {      # functions of one number each, by the arguments that are matched
    name: getattr(bounds, name) for name in bounds.__all__ if name not in ("looks", "crossing_probability",
                                                                           "normal_quantile_from_variances")}
FIRST = {"n": [10, 20, 30], "look": [1, 2, 3], "std": [0.1, 0.2, 0.3], "delta": [0.1, 0.2, 0.3],
         "power": [1.1, 1.2, 2.0], "n_rows": [100, 200, 300], "first_look": [5, 6, 7], "growth": [1.5, 2.0, 3.0],
         "quantile": [2.0, 2.5, 3.0], "skewness": [1.0, 2.0, 3.0], "support": (0.0, [1.0, 2.0, 3.0]),
         "log_inv_delta": [2.0, 3.0, 4.0]}

ONE = "one stream, so one support"
ROWS = "a row each: test_pandas_rows has the doors that pair rows"
NUMBERS = "numbers of arms, rows, rounds or pulls, as ask gives them"
SKLEARN = "as scikit-learn takes it"
PULLS = "a reward per pull or row asked for, which may be labelled by its arm: tested below"
PLAIN = {
    **dict.fromkeys([f"{rule}(support)" for rule in (
        "AA", "AbsoluteStop", "AcceptTest", "EBGStop", "EBStop", "GeometricNAS", "NAS", "SRA", "SignStop", "_OfSums",
        "estimate_mean", "metropolis_accept")], ONE),
    **dict.fromkeys([f"{rule}({what})" for rule in ("ASHA", "DAUB", "SuccessiveHalving") for what in ("sizes",)],
                    "sizes of training sets, in the order of trainings"),
    **dict.fromkeys(["AcceptTest(source)", "gibbs_binary(source)", "in_slice(source)", "metropolis_accept(source)"],
                    "a source of one or two arms, which have numbers alone"),
    **dict.fromkeys(["Budgeted(penalties)", "BudgetedUCB(penalties)", "CoarseGrid(penalties)"], "functions in a list"),
    **dict.fromkeys(["CandidateSearch.fit(X)", "CandidateSearch.fit(y)", "CandidateSearch.fit(params)",
                     "FilterBoostClassifier.fit(X)", "FilterBoostClassifier.fit(y)",
                     "FilterBoostClassifier.fit(sample_weight)", "FilterBoostClassifier(estimator)",
                     "FilterBoostClassifier(categorical_features)", "FilterBoostClassifier(random_state)",
                     *(f"{search}({what})" for search in ("DAUBSearchCV", "RacingSearchCV") for what in (
                         "cv", "error_score", "estimator", "param_grid", "pre_dispatch", "random_state", "refit",
                         "scoring")), "DAUBSearchCV(checkpoint)", "DAUBSearchCV(first)"], SKLEARN),
    "Comparison(arms)": "the names themselves",
    "Comparison.from_frame(frame)": "its columns are named by the other arguments",
    "Comparison.observe(time)": "a time",
    **dict.fromkeys(["Comparison.observe_many(arms)", "Comparison.observe_many(rewards)",
                     "Comparison.observe_many(times)", "Proxy(scores)", "Proxy.adjust(rewards)", "Proxy.adjust(rows)",
                     "Proxy.adjust(scores)", "estimate_mean(proxy)", "permutation_test(data)",
                     "race_predictions(sample_weight)", "race_predictions(y_true)", "max_discrepancy_penalty(X)",
                     "max_discrepancy_penalty(y)", "rademacher_penalty(X)"], ROWS),
    **dict.fromkeys(["FiniteRace.tell(arms)", "FiniteRace.tell(rows)", "Selection.tell(arms)", "Selection.tell(pulls)",
                     "StreamRace.tell(arms)", "StreamRace.tell(rounds)"], NUMBERS),
    "LilUCB.tell(rewards)": "one number",
    "Selection.tell(rewards)": PULLS,
    "UnequalRace.tell(rewards)": PULLS,
    "StreamRace.tell(rewards)": "tested below, and in test_pandas_columns",
    "ParquetRows(columns)": "names of columns",
    "ParquetRows(path)": "a path",
    "BudgetedUCB.tell(model)": "a classifier, or what it predicts, a row each",
    **dict.fromkeys([f"RowScore.{method}({what})" for method, said in {
        "ends_of": ("least", "most"), "fold": ("sample_weight", "y"), "rows": ("constants", "labels", "response", "y"),
        "support_for": ("labels",), "table": ("block", "constants", "labels", "y"), "warnings": ("result",)}.items()
        for what in said], "made by the package, from checked arrays"),
    **dict.fromkeys(["RacingEarlyStopping(reference)", "RacingEarlyStopping.complete_sample(scores)",
                     "RacingEarlyStopping.start_task(samples)", "RacingEarlyStopping.start_task(task)",
                     "RacingPruner.difference(trial)", "RacingPruner.order(trial)"],
                    "objects of another library, whose samples and trials have names or numbers"),
    "RegretDisplay.from_search(full_scores)": "tested below",
    "RegretDisplay.from_search(searches)": "by name",
    "SelectionCurveDisplay.from_search(search)": "a search",
    "SelectionCurveDisplay.plot(at)": "numbers of trainings",
    "plan_race(gap)": "gaps of arms that have no names",
    "race_predictions(labels)": "the classes themselves: test_pandas_columns has the columns that they name",
    "race_predictions(scoring)": "a score",
    **dict.fromkeys(["crossing_probability(variances)", "normal_quantile_from_variances(variances)"],
                    "variances in the order of looks"),
    "cover(g)": "sizes of nested classes, in their order",
}


def arguments():
    """Every argument of Python code that may be an array, as "Class(argument)", "Class.method(argument)" or so."""
    doors = [pytest.importorskip(f"fastrace.doors.{door}", exc_type=ImportError) for door in ("optuna", "inspect")]
    found = set()
    for room in (fr, baselines, boosting, model_selection, *doors, sources, pulls, bounds):
        for name in getattr(room, "__all__", None) or [
                name for name, value in vars(room).items()
                if not name.startswith("_") and getattr(value, "__module__", None) == room.__name__]:
            thing = getattr(room, name)
            functions = [(name, thing)] if inspect.isfunction(thing) else []
            for home in inspect.getmro(thing) if inspect.isclass(thing) and not issubclass(thing, Result) else ():
                if not home.__module__.startswith("fastrace."):
                    continue
                for method, value in vars(home).items():
                    function = getattr(value, "__func__", value)
                    if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
                        functions.append((home.__name__ + ("" if method == "__init__" else f".{method}"), function))
            for called, function in functions:
                for parameter in list(inspect.signature(function).parameters.values()):
                    words = str(parameter.annotation)
                    if parameter.name in ("self", "cls", "ax", "rng", "names", "options", "progress") or (
                            "Callable" in words.split("|")[0]):
                        continue
                    if any(word in words for word in ("Array", "Any", "Support", "Mapping", "Sequence[")):
                        found.add(f"{called}({parameter.name})")
    return found


def test_every_argument_has_a_line():
    told = {f"{name}({what})" for name, function in PAIRED.items()
            for what in inspect.signature(function).parameters if what in FIRST}
    lines = {*BY_NAME, *ALIKE, *COLUMNS, *REFUSED, *PLAIN} | told
    compiled = {"ArraySource(support)", "as_source(support)", "_Running.update_many(xs)", "_Running.merge(other)",
                "RunningComoments.update_many(xs)"}
    assert set(ALIKE.values()) <= set(BY_NAME)
    assert arguments() - lines == set(), "new arguments: give each a line"
    assert lines - arguments() - told - compiled == set(), "lines of no argument"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", BY_NAME)
def test_entries_of_arms_go_by_their_names(door):
    call = BY_NAME[door]
    wanted, series = call(COST), pd.Series(COST, ARMS)
    assert call(series) == call(series[["c", "a", "b"]]) == wanted
    assert call(pd.Series(COST)) == call(pd.Series(COST)[[2, 0, 1]]) == wanted      # numbers of the arms
    assert call(COST[[2, 0, 1]]) != wanted or "offset" in door
    with pytest.raises(ValueError, match=r"has the names 'a', 'b', 'z'; those of the .*, 'a', 'b', 'c', are needed"):
        call(series.set_axis(["a", "b", "z"]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", UNNAMED)
def test_a_series_before_the_names_of_a_table_is_checked_against_them(door):
    call, series = UNNAMED[door], pd.Series(COST, ARMS)
    wanted = call(COST, TABLE)
    assert call(series, TABLE) == call(pd.Series(COST), TABLE) == call(pd.Series(COST)[[2, 0, 1]], TABLE) == wanted
    assert call(series, TABLE.set_axis(range(3), axis=1)) == wanted if "sizes" not in door else True
    for given in (series[["c", "a", "b"]], series.set_axis(["a", "b", "z"])):
        if door == "told rounds" and given.index[0] == "c":     # rounds of all arms go by name, whatever the order
            pulls, cost = call(given, TABLE)
            assert (pulls[1:] + pulls[:1], cost) == wanted
            continue
        with pytest.raises(ValueError, match="named the arms '[ac]'|rewards has the names 'a', '[bc]'"):
            call(given, TABLE)


def test_two_series_without_names_go_by_those_of_the_first():
    low, high = pd.Series(LOW, ARMS), pd.Series(HIGH, ARMS)
    for race in (fr.FiniteRace(3, N, support=(low, high[::-1]), cost=pd.Series(COST, ARMS)[["b", "c", "a"]]),
                 copy.deepcopy(fr.FiniteRace(3, N, support=(low, high[::-1]), cost=pd.Series(COST, ARMS)[::-1]))):
        assert race._options.high.tolist() == HIGH.tolist() and race._options.cost.tolist() == COST.tolist()
        assert pickle.loads(pickle.dumps(race)).run(TABLE).names == ("a", "b", "c")
    assert fr.race(TABLE.to_numpy(), support=(low, high[::-1]), rng=1).names == ("a", "b", "c")
    assert fr.select_best(TABLE.to_numpy(), epsilon=0.2, support=(low, high[::-1]), rng=1).names == ("a", "b", "c")
    with pytest.raises(ValueError, match=r"support\[1\] has the names 'a', 'b', 'z'"):
        fr.FiniteRace(3, N, support=(low, high.set_axis(["a", "b", "z"])))
    with pytest.raises(ValueError, match="cost has more than one entry named 'a'"):
        fr.FiniteRace(3, N, cost=pd.Series(COST, ["a", "a", "b"]))
    saved = pickle.loads(pickle.dumps(fr.FiniteRace(3, N, cost=pd.Series(COST, ["x", "y", "z"]))))
    with pytest.raises(ValueError, match="the columns are 'a', 'b', 'c', and a series or table given before has"):
        saved.run(TABLE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", COLUMNS)
def test_columns_of_arms_go_by_their_names(door):
    wanted = COLUMNS[door](ARMS)
    assert COLUMNS[door](["b", "c", "a"]) == wanted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", REFUSED)
def test_columns_of_arms_in_another_order_are_refused(door):
    REFUSED[door](ARMS)
    with pytest.raises(ValueError, match="in another order|in the same order"):
        REFUSED[door](["b", "c", "a"])


def test_moments_keep_the_names_of_their_arms():
    moments = fr.RunningMoments(3)
    moments.update_many(TABLE)
    for again in (moments.copy(), pickle.loads(pickle.dumps(moments)), moments + fr.RunningMoments(3),
                  fr.RunningMoments(3) + moments):
        again.update_many(TABLE[["c", "b", "a"]])
        again.update_many(TABLE.to_numpy())
        np.testing.assert_allclose(again.mean, TABLE.mean())
        with pytest.raises(ValueError, match="xs has the names 'a', 'b', 'z'; those of the arms, 'a', 'b', 'c'"):
            again.update_many(TABLE.set_axis(["a", "b", "z"], axis=1))
    with pytest.raises(ValueError, match=r"xs\[0, 0\] is nan"):       # what is refused leaves no names
        fresh = fr.RunningMoments(3)
        fresh.update_many(TABLE * np.nan)
    fresh.update_many(TABLE[["c", "b", "a"]])
    assert fresh.mean[0] == TABLE["c"].mean()


@pytest.mark.parametrize("name", PAIRED)
def test_numbers_of_a_bound_are_matched_by_their_labels(name):
    function = PAIRED[name]
    known = {what: FIRST[what] for what in inspect.signature(function).parameters if what in FIRST}
    known.pop("log_inv_delta", None)
    wanted = function(**known)

    def labelled(order):
        given = {what: pd.Series(value, ARMS) for what, value in known.items() if what != "support"}
        if "support" in known:
            given["support"] = (0.0, pd.Series(known["support"][1], ARMS))
        first = next(iter(given))
        return function(**given | {first: given[first][order]})

    np.testing.assert_array_equal(labelled(ARMS), wanted)
    with pytest.raises(ValueError, match="the pandas indexes of .* differ: row 0 is"):
        labelled(["c", "a", "b"])


def test_rewards_of_pulls_go_by_the_arms_that_label_them():
    rules = [fr.LUCB(3, 1, 0.2, batch=4, names=ARMS, rng=1) for _ in range(2)]
    rng = np.random.default_rng(0)
    while not rules[0].done:
        arms, counts = rules[0].ask()
        of_pull = np.repeat(arms, counts)
        rewards = pd.Series(rng.random(of_pull.size) * HIGH[of_pull], [ARMS[arm] for arm in of_pull])
        rules[0].tell(rewards.to_numpy())
        rules[1].ask()
        rules[1].tell(rewards.sort_index(ascending=False, kind="stable"))
    assert ended(rules[0].result()) == ended(rules[1].result())
    rule = fr.LUCB(3, 1, 0.2, names=ARMS)
    arms, counts = rule.ask()
    with pytest.raises(ValueError, match="rewards has entries of the arms 'a'.*; those asked for"):
        rule.tell(pd.Series(np.full(counts.sum(), 0.5), ["a"] * counts.sum()))
    races = [fr.UnequalRace([40, 60, 80], names=ARMS, rng=1) for _ in range(2)]
    while not races[0].done:
        of_row, rows = races[0].ask()
        rewards = pd.Series(TABLE.to_numpy()[rows, of_row], [ARMS[arm] for arm in of_row])
        races[0].tell(rewards.to_numpy())
        races[1].ask()
        races[1].tell(rewards.sort_index(ascending=False, kind="stable"))
    assert ended(races[0].result()) == ended(races[1].result())


def test_blocks_told_to_a_race_without_names():
    race = fr.FiniteRace(3, N, offset=[0.0, -np.inf, 0.0], **WITH)
    arms, rows = race.ask()
    block = TABLE.iloc[rows, arms]
    with pytest.raises(ValueError, match="rewards has the names 'a', 'c'; those of the arms asked for, known by their"):
        race.tell(block)
    numbered = block.set_axis(arms, axis=1)
    race.tell(numbered.iloc[:, ::-1])
    assert race.result().mean[arms].tolist() == pytest.approx(block.mean().tolist())
    rounds = fr.BettingRace(3, support=(0, 1), epsilon=0.01)
    rounds.tell(TABLE.iloc[0])
    rounds.tell(TABLE.iloc[1][["c", "a", "b"]])
    assert rounds.result().mean.tolist() == pytest.approx(TABLE[:2].mean().tolist())
    with pytest.raises(ValueError, match="rewards has the names 'a', 'b', 'z'"):
        rounds.tell(TABLE.iloc[2].set_axis(["a", "b", "z"]))


def by_race(answer, **given):
    return fr.race(answer, n_arms=3, n_rows=N, **given, **WITH)


def by_cheap_race(answer, **given):
    return fr.race(sources.CallableSource(answer, 3, N, (0, 1), reward_cost=5.0), **given, rng=1)


def by_run(answer, **given):
    return fr.FiniteRace(3, N, **given, **WITH).run(answer)


def by_predictions(answer, **given):
    return race_predictions(np.zeros(N), answer, n_candidates=3, scoring="neg_mean_squared_error",
                            support=(-1.0, 0.0), rng=1, **given)


@pytest.mark.parametrize("door", [by_race, by_cheap_race, by_run, by_predictions])
def test_tables_that_a_function_returns_go_by_names_and_rows(door):
    values = TABLE.to_numpy()

    def table(arms, rows):
        return pd.DataFrame(values[np.ix_(rows, arms)], rows, [ARMS[arm] for arm in arms])

    ways = [table, lambda arms, rows: table(arms, rows).sort_index(axis=1, ascending=False).sort_index(),  # as a pivot
            lambda arms, rows: table(arms, rows)[[ARMS[arm] for arm in arms[::-1]]].reset_index(drop=True)]
    wanted = ended(door(lambda arms, rows: values[np.ix_(rows, arms)], names=ARMS))
    assert [ended(door(way, names=ARMS)) for way in ways] == [wanted] * 3
    with pytest.raises(ValueError, match="'elm'"):
        door(lambda arms, rows: table(arms, rows).rename(columns={"b": "elm"}), names=ARMS)
    assert ended(door(table)) == wanted         # without names of arms a table is in the order that was asked for


def test_scores_of_learners_go_by_the_names_that_a_search_gives_them():
    rule = model_selection.DAUB(3, 100, names=ARMS)
    while not rule.done:
        learner, n = rule.ask()
        rule.tell(learner, n, 0.1 * learner, 0.1 * learner)
    result, scores = rule.result(), pd.Series([0.0, 0.1, 0.2], ARMS)
    pytest.importorskip("matplotlib")
    for given in (scores, scores[::-1], scores.to_numpy()):
        assert RegretDisplay.from_search({"daub": result}, given).regret.tolist() == [0.0]
    with pytest.raises(ValueError, match="full_scores has the names 'a', 'b', 'z'; those of the learners"):
        RegretDisplay.from_search({"daub": result}, scores.set_axis(["a", "b", "z"]))


def test_rewards_uniform_between_two_series():
    low, high = pd.Series(LOW, ARMS), pd.Series(HIGH, ARMS)
    made = [pulls.UniformPulls(*ends, rng=1).read([0, 1, 2], [9, 9, 9]).tolist()
            for ends in ((LOW, HIGH), (low, high), (low, high[::-1]))]
    assert made[0] == made[1] == made[2]


def test_candidates_of_a_search_have_names_and_numbers():
    search = RacingSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2, 3]}, cv=2, random_state=1)
    x = np.random.default_rng(0).normal(size=(300, 2))
    names = search.fit(x, x[:, 0] > 0).race_.names
    assert names == ("max_depth=1", "max_depth=2", "max_depth=3")
    for cost in (pd.Series(COST, names)[::-1], pd.Series(COST)[::-1]):
        race = search.set_params(cost=cost).fit(x, x[:, 0] > 0).race_
        assert race.names == names and race.cost == race.pulls @ COST
    with pytest.raises(ValueError, match="cost has the names 'a', 'b', 'c'; those of the candidates, 'max_depth=1'"):
        search.set_params(cost=pd.Series(COST, ARMS)).fit(x, x[:, 0] > 0)


@pytest.mark.parametrize("door", [
    lambda table: fr.race(table, support=(0, 1), rng=1),
    lambda table: fr.FiniteRace(3, 400, support=(0, 1), rng=1).run(table),
    lambda table: fr.BettingRace(3, support=(0, 1)).run(table, rng=1),
])
def test_errors_call_a_row_as_the_index_of_its_table_does(door):
    values = np.random.default_rng(0).random((400, 3))
    values[:, 1] = np.where(np.arange(400) % 2, 2.0, np.nan)
    table = pd.DataFrame(values, columns=list("abc"))
    pairs = pd.MultiIndex.from_product([[0, 1], range(200)])
    for index in ([f"prompt{k}" for k in range(400)], np.arange(400)[::-1], pairs):
        named = table.set_axis(index, axis=0)
        with pytest.raises(ValueError, match=r"^arm 1 is 'b': the reward of arm 1 (on|in) row \d+ \(") as caught:
            door(named)
        place = int(re.search(r"row (\d+)", str(caught.value))[1])
        assert f"row {place} ({named.index[place : place + 1].tolist()[0]!r}) is " in str(caught.value)
    for plain in (table, table.to_numpy(), {"a": values[:, 0], "b": values[:, 1], "c": values[:, 2]}):
        with pytest.raises(ValueError, match=r"the reward of arm 1 (on|in) row \d+ is "):
            door(plain)
