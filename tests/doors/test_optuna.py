"""A pruner in the released Optuna; skipped without it."""

import pickle
import types
import warnings

import numpy as np
import pytest

from guarantee import assert_rate_at_most, few_or_many
from reference.doors import pruned_study

optuna = pytest.importorskip("optuna")

from optuna.storages import JournalStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

from fastrace.doors.optuna import RacingPruner  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        yield


def study_of(pruner, direction="maximize", **given):
    return optuna.create_study(direction=direction, pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=1),
                               **given)


def evaluate(study, pruner, trial, values, stop=None):
    """Evaluate a trial on its rows up to `stop`; return the rows read."""
    read = 0
    for row in pruner.order(trial)[:stop]:
        trial.report(float(values[row]), int(row))
        read += 1
        if trial.should_prune():
            study.tell(trial, state=TrialState.PRUNED)
            return read
    if stop is None:
        study.tell(trial, float(np.mean(values)))
    return read


def scores(rng, n_trials, n_rows):
    """Right or wrong, of trials of several skills on rows of several hardness."""
    return (rng.random((n_trials, 1)) + 0.3 * rng.random((n_trials, n_rows)) > rng.random(n_rows)).astype(float)


@pytest.mark.parametrize(("direction", "part"), [("maximize", 0.9), ("minimize", 0.1)])
def test_the_best_trial_is_one_of_all_rows(direction, part):
    """A trial that is pruned may return its mean so far, for the sampler; Optuna takes it for a finished one."""
    pruner = RacingPruner(4, rng=1)
    study = study_of(pruner, direction)
    with pytest.raises(ValueError, match="^no trial has finished with a value for each of 4 rows"):
        pruner.best_trial(study)
    evaluate(study, pruner, study.ask(), [0.5, 0.5, 0.5, 0.5])
    evaluate(study, pruner, study.ask(), [0.5, 0.5, 0.5, 0.6 if direction == "minimize" else 0.4])
    trial = study.ask()
    evaluate(study, pruner, trial, [part] * 4, stop=2)
    study.tell(trial, part)
    assert study.best_trial.number == 2 and pruner.best_trial(study).number == 0


@pytest.mark.parametrize(("direction", "epsilon"), [("maximize", 0.0), ("maximize", 0.05), ("minimize", 0.0)])
def test_a_study_reads_the_rows_that_the_twin_reads(direction, epsilon):
    table = scores(np.random.default_rng(3), 9, 120)
    pruner = RacingPruner(120, epsilon, delta=0.1, rng=5)
    study = study_of(pruner, direction)
    values = table if direction == "maximize" else 2.0 - table
    pruner.support = (0.0, 1.0) if direction == "maximize" else (1.0, 2.0)
    read, orders = [], []
    for row in values:
        trial = study.ask()
        orders.append(pruner.order(trial))
        read.append(evaluate(study, pruner, trial, row))
    assert read == pruned_study(table, orders, epsilon, 0.1, (0.0, 1.0))
    assert min(read) < 80 and max(read[1:]) == 120


def test_orders_are_permutations_that_differ_by_trial_and_stay():
    pruner = RacingPruner(50, rng=1)
    study = study_of(pruner)
    trials = [study.ask() for _ in range(3)]
    orders = [pruner.order(trial) for trial in trials]
    assert all(np.array_equal(np.sort(order), np.arange(50)) for order in orders)
    assert not np.array_equal(orders[0], orders[1]) and not np.array_equal(orders[1], orders[2])
    for other in (pruner, pickle.loads(pickle.dumps(pruner)), RacingPruner(50, rng=2)):
        assert np.array_equal(other.order(trials[1]), orders[1])        # the study remembers the seed
    assert np.array_equal(RacingPruner(50, rng=1).order(study_of(None).ask()), orders[0])


class Study:
    """As much of a study as a pruner reads, without the time that storages take."""

    def __init__(self):
        self.trials, self.direction, self.directions = [], optuna.study.StudyDirection.MAXIMIZE, [None]

    def get_trials(self, deepcopy=True):
        return self.trials

    def ask(self):
        trial = types.SimpleNamespace(number=len(self.trials), user_attrs={}, study=self, state=TrialState.RUNNING,
                                      intermediate_values={})
        trial.set_user_attr = trial.user_attrs.__setitem__
        self.trials.append(trial)
        return trial


def ever_pruned(study, pruner, trial, values, every):
    order = pruner.order(trial)
    for start in range(0, len(order), every):
        trial.intermediate_values |= {int(row): float(values[row]) for row in order[start : start + every]}
        if pruner.prune(study, trial):
            trial.state = TrialState.PRUNED
            return True
    trial.state = TrialState.COMPLETE
    return False


def overfitting(seen, values):
    """A trial as good as `values`, that fails on the rows that were read first and makes up for it on the others."""
    first, rest = seen[: len(seen) // 4], seen[len(seen) // 4 :]
    made = values.copy()
    made[first] = 0.0
    made[rest[np.argsort(values[rest])[: int(values[first].sum())]]] = 1.0
    return made


def study_errs(law, pruner, rng, n_rows=80):
    """Whether a study that Optuna runs prunes a trial as good as all that finished, or ends with a best that is none.
    """
    means, finished, wrong = [], [], []
    values, order = np.repeat([0.0, 1.0], n_rows // 2), None
    configurations = [rng.permutation(values) for _ in range(6)]
    configurations[-1][np.argmin(configurations[-1])] = 1.0

    def objective(trial):
        nonlocal values, order
        if law == "learned":
            values = configurations[trial.suggest_categorical("configuration", range(6))]
        elif law == "overfitting" and order is not None:
            values = overfitting(order, values)
        else:
            values = rng.permutation(values)
            values[np.flatnonzero(values == 0)[: law == "rising"]] = 1.0
        order = pruner.order(trial) if isinstance(pruner, RacingPruner) else rng.permutation(n_rows)
        means.append(values.mean())
        for done, row in enumerate(order, 1):
            trial.report(values[row], int(row))
            if done % 8 == 0 and trial.should_prune():
                wrong.append(means[-1] >= max(finished))
                raise optuna.TrialPruned
        finished.append(means[-1])
        return means[-1]

    sampler = optuna.samplers.TPESampler(n_startup_trials=2, seed=int(rng.integers(2**31)))
    study = optuna.create_study(direction="maximize", pruner=pruner, sampler=sampler)
    study.optimize(objective, n_trials=5)
    return any(wrong) or study.best_value < max(means)


@pytest.mark.parametrize("law", ["ties", "overfitting", "rising", "learned"])
@few_or_many("n_studies", few=60, many=300)
def test_a_trial_that_is_not_worse_is_seldom_pruned(law, n_studies):
    failed, delta = 0, 0.2
    for child in np.random.SeedSequence(20261122).spawn(n_studies):
        rng = np.random.default_rng(child)
        failed += study_errs(law, RacingPruner(80, delta=delta, rng=rng), rng)
    assert_rate_at_most(failed, n_studies, delta)


def test_studies_tell_of_a_pruner_without_a_promise():
    pruner = optuna.pruners.WilcoxonPruner(p_threshold=0.2, n_startup_steps=16)     # below 14 SciPy permutes: minutes
    failed = sum(study_errs("ties", pruner, rng) for rng in np.random.default_rng(20261122).spawn(30))
    with pytest.raises(AssertionError, match="promised 0.2"):
        assert_rate_at_most(failed, 30, 0.2)


def test_delta_is_spent_on_trials_that_may_have_been_at_risk_alone():
    study, pruner = Study(), RacingPruner(200, delta=0.06, rng=1)

    def share(trial):
        pruner.order(trial)
        return trial.user_attrs["fastrace"].get("delta")

    good, bad = np.ones(200), np.zeros(200)
    assert share(study.ask()) is None                                   # nothing to compare with
    first = study.trials[0]
    good[:60] = 0.0
    ever_pruned(study, pruner, first, good, 50)
    for _ in range(3):
        assert ever_pruned(study, pruner, study.ask(), bad, 5)
    study.trials[-1].state = TrialState.COMPLETE                        # which returned its mean so far
    trial = study.ask()
    assert share(trial) == pytest.approx(0.06 / 2)                      # pruned trials were worse
    assert share(study.ask()) == pytest.approx(0.06 / 6)                # the first runs still
    trial.state = TrialState.FAIL
    study.trials[-1].state = TrialState.FAIL
    assert share(study.ask()) == pytest.approx(0.06 / 12)               # nobody knows how the failed would have ended
    study.trials[-1].state = TrialState.FAIL
    study.ask().state = TrialState.WAITING
    assert share(study.ask()) == pytest.approx(0.06 / 20)               # three failed, one waits
    study.trials[-1].state = TrialState.FAIL
    for values in (good, np.maximum(good, np.arange(200) < 1)):         # as good as the first; better than it
        assert not ever_pruned(study, pruner, study.ask(), values, 50)
    assert share(study.ask()) == pytest.approx(0.06 / 56)


def test_the_best_finished_trial_at_the_start_stays_what_a_trial_is_compared_with():
    study, pruner = Study(), RacingPruner(100, rng=1)
    half = np.arange(100) % 2.0
    ever_pruned(study, pruner, study.ask(), half, 100)
    early = study.ask()
    order = pruner.order(early)
    ever_pruned(study, pruner, study.ask(), np.ones(100), 100)          # another worker finishes something better
    early.intermediate_values = {int(row): float(half[row]) for row in order[:90]}
    assert not pruner.prune(study, early)
    late = study.ask()
    pruner.order(late)
    assert late.user_attrs["fastrace"]["reference"] == 2
    late.intermediate_values = {int(row): float(half[row]) for row in pruner.order(late)[:90]}
    assert pruner.prune(study, late) and pruner.difference(study, late)[0] < -0.5 < pruner.difference(study, late)[1]
    assert pruner.difference(study, study.trials[0]) == (-np.inf, np.inf)


def test_rows_beyond_a_gap_wait():
    study, pruner = Study(), RacingPruner(200, rng=1)
    ever_pruned(study, pruner, study.ask(), np.ones(200), 200)
    trial = study.ask()
    order = pruner.order(trial)
    for n in (3, 150):
        trial.intermediate_values = {int(row): 0.0 for row in order[[*range(3), *range(4, n)]]}
        assert not pruner.prune(study, trial)
    trial.intermediate_values[int(order[3])] = 0.0
    assert pruner.prune(study, trial)


def test_workers_share_a_study_by_its_storage(tmp_path):
    table = 0.3 * scores(np.random.default_rng(8), 5, 60)
    table[0] = 1.0
    studies, pruners = [], []
    for _ in range(2):
        storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
        pruners.append(RacingPruner(60))
        studies.append(study_of(pruners[-1], storage=storage, study_name="shared", load_if_exists=True))
    evaluate(studies[0], pruners[0], studies[0].ask(), table[0])
    dead = studies[0].ask()
    evaluate(studies[0], pruners[0], dead, table[0], stop=10)           # and then its worker is killed
    read = [evaluate(study, pruner, study.ask(), table[k])
            for k, (study, pruner) in enumerate(zip(studies * 2, pruners * 2, strict=True), 1)]
    assert min(read) < 50                                               # the second worker knows what the first found
    for other in studies[1].trials[2:]:
        assert other.user_attrs["fastrace"]["reference"] == 0
        assert other.user_attrs["fastrace"]["delta"] <= 0.05 / 6        # the dead trial may have been at risk
        seen = [pruner.difference(study, other) for study, pruner in zip(studies, pruners, strict=True)]
        assert seen[0] == seen[1]
        assert seen[0][1] < 0 and other.state == TrialState.PRUNED


def test_a_retried_trial_begins_anew():
    study, pruner = Study(), RacingPruner(80, rng=1)
    ever_pruned(study, pruner, study.ask(), np.ones(80), 80)
    lost = study.ask()
    pruner.order(lost)
    lost.state = TrialState.FAIL
    again = study.ask()
    again.user_attrs |= lost.user_attrs
    again.intermediate_values = {0: 0.0}
    with pytest.warns(UserWarning, match="trial 2 is not pruned: its objective has not called order"):
        assert not pruner.prune(study, again)
    assert not np.array_equal(pruner.order(again), pruner.order(lost))
    assert again.user_attrs["fastrace"]["delta"] < lost.user_attrs["fastrace"]["delta"]


def test_it_falls_back_to_no_pruning_and_says_why():
    study, pruner = Study(), RacingPruner(60, rng=1)
    trial = study.ask()
    assert not pruner.prune(study, trial)                               # no values yet
    trial.intermediate_values = {int(row): 0.0 for row in pruner.order(trial)}
    assert not pruner.prune(study, trial)                               # nothing to compare with
    trial.state = TrialState.PRUNED
    ever_pruned(study, pruner, study.ask(), np.ones(60), 60)
    stray = study.ask()
    stray.intermediate_values = dict.fromkeys(range(59), 0.0)
    with pytest.warns(UserWarning, match="has not called order"):
        assert not pruner.prune(study, stray)
    broken = study.ask()
    broken.intermediate_values = {int(row): 0.0 for row in pruner.order(broken)[:50]}
    assert pruner.prune(study, broken)
    broken.intermediate_values[int(pruner.order(broken)[50])] = np.nan
    with pytest.warns(UserWarning, match="trial 3 is not pruned: one of its values is nan"):
        assert not pruner.prune(study, broken)
    whole = study.ask()
    whole.intermediate_values = {int(row): 0.0 for row in pruner.order(whole)}
    assert not pruner.prune(study, whole) and pruner.difference(study, whole) == (-1.0, -1.0)
    broken.state = whole.state = TrialState.COMPLETE
    last = study.ask()
    pruner.order(last)
    assert last.user_attrs["fastrace"]["reference"] == 1


def test_bad_input_is_refused_and_leaves_the_study_as_it_was():
    for bad, said in (({"n_rows": 0}, "n_rows is 0"), ({"epsilon": -0.1}, "epsilon is -0.1"), ({"delta": 1.0}, "delta"),
                      ({"epsilon": np.inf}, "epsilon is inf"), ({"support": (1, 0)}, "support")):
        with pytest.raises(ValueError, match=said):
            RacingPruner(**{"n_rows": 5, **bad})
    pruner = RacingPruner(30, rng=1)
    study = study_of(pruner)
    evaluate(study, pruner, study.ask(), np.ones(30))
    for value, step, said in ((0.5, 30, "trial 1 reported step 30; a step is a row, from 0 to 29"),
                              (1.5, 3, r"the value of row 3 of trial 2 is 1.5, outside support=\(0.0, 1.0\)")):
        trial = study.ask()
        pruner.order(trial)
        trial.report(value, step)
        with pytest.raises(ValueError, match=said):
            trial.should_prune()
        assert study.trials[-1].intermediate_values == {step: value}
        study.tell(trial, value)                                        # not compared with, nor in the way of others
    trial = study.ask()
    pruner.order(trial)
    assert trial.user_attrs["fastrace"]["reference"] == 0 and trial.user_attrs["fastrace"]["delta"] == 0.05 / 12
    with pytest.raises(ValueError, match="trial 1 was begun with n_rows=30, and this pruner has n_rows=40"):
        RacingPruner(40).difference(study, study.trials[1])
    two = optuna.create_study(directions=["maximize", "minimize"])
    with pytest.raises(ValueError, match="the study has 2 objectives"):
        pruner.prune(two, study.trials[0])


def test_a_fixed_trial_has_an_order_too():
    assert len(RacingPruner(7, rng=1).order(optuna.trial.FixedTrial({"x": 1}))) == 7
