"""Searches when things go wrong: learners that hang, workers that die, Ctrl-C, all backends of joblib."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

from fastrace.model_selection import DAUBSearchCV, RacingSearchCV


class Trouble(ClassifierMixin, BaseEstimator):
    """Knows its score beforehand, and misbehaves from 100 rows on."""

    made = 0
    let_go = threading.Event()          # of threads that hang: set after each test
    awake = []                          # who was not let go, and hung to the end

    def __init__(self, final=0.5, does="", at=100, path=""):
        self.final = final
        self.does = does
        self.at = at
        self.path = path

    def fit(self, X, y):
        self.n_, self.classes_ = len(y), np.unique(y)
        Trouble.made += 1
        if self.n_ < self.at:
            return self
        if self.path:
            with open(self.path, "w") as file:
                file.write(str(os.getpid()))
        if self.does == "hang":
            if not Trouble.let_go.wait(30.0):
                Trouble.awake.append(self.n_)
        elif self.does == "hold":                  # as compiled code does that keeps the interpreter for itself
            import ctypes
            ctypes.PyDLL(None).sleep(60)
        elif self.does == "die":
            os._exit(3)
        elif self.does == "interrupt":
            signal.raise_signal(signal.SIGINT)
            time.sleep(5.0)
        return self

    def predict(self, X):
        return np.where(X[:, 0] < self.final, X[:, 1], -1.0)

    def score(self, X, y):
        return self.final - 1.0 / np.sqrt(self.n_)


@pytest.fixture(autouse=True)
def let_go():
    Trouble.let_go = threading.Event()
    yield
    Trouble.let_go.set()


@pytest.fixture(scope="module")
def table():
    X = np.random.default_rng(0).random((600, 2))
    X[:, 1] = np.arange(600) % 2
    return X, X[:, 1]


def learners(does="", **more):
    return [("fair", Trouble(0.6)), ("bad", Trouble(0.9, does, **more)), ("good", Trouble(0.8))]


def search(does="", **options):
    options = {"method": "daub", "cv": 2, "first": 20, "ratio": 2.5, "training_bound": False,
               "random_state": 0} | options
    return DAUBSearchCV(learners(does), **options)


def without(table):
    """What is chosen when the culprit just raises."""
    X, y = table
    return search().set_params(estimator__bad__at=10**9).fit(X, y)


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_learner_that_hangs_is_dropped(table, n_jobs):
    X, y = table
    with parallel_config(backend="threading"), pytest.warns(UserWarning, match="bad was dropped on 125 of 300 rows"):
        found = search("hang", time_limit=1.5, n_jobs=n_jobs).fit(X, y)
    assert Trouble.awake == []                     # it did not wait for the end of the training
    assert found.best_params_ == {"choice": "good"}
    assert found.result_.dropped == {1: "TimeoutError: took longer than 1.5 s on 125 rows"}
    rows = found.cv_results_["n_resources"][found.cv_results_["candidate"] == 1]
    assert rows.tolist() == [20, 50]               # what was finished before is reported
    with parallel_config(backend="threading"), pytest.raises(
            TimeoutError, match="^candidate bad on 125 rows of split 0: took longer than 1.5 s$"):
        search("hang", time_limit=1.5, error_score="raise").fit(X, y)


def pair(does, **options):
    """Two learners on processes, as few trainings as can be: starting workers takes seconds."""
    learners = [("bad", Trouble(0.9, does, path=options.pop("path", ""))), ("good", Trouble(0.8))]
    return DAUBSearchCV(learners, **({"cv": 0.5, "first": 300, "training_bound": False, "random_state": 0} | options))


@pytest.mark.long
def test_a_process_in_which_something_hangs_is_ended(table, tmp_path):
    path = str(tmp_path / "pid")
    with parallel_config(backend="loky", n_jobs=2), pytest.warns(UserWarning, match="bad was dropped"):
        found = pair("hang", time_limit=2.0, path=path).fit(*table)
    assert found.best_params_ == {"choice": "good"} and "longer than 2 s" in found.result_.dropped[0]
    with open(path) as file:
        worker = int(file.read())
    assert worker != os.getpid()
    with pytest.raises(ProcessLookupError):
        for _ in range(100):                       # well before the 30 s that it sleeps
            os.kill(worker, 0)
            time.sleep(0.1)


@pytest.mark.long
def test_a_worker_that_does_not_let_go_of_the_interpreter_ends_itself(table):
    with parallel_config(backend="loky", n_jobs=2), pytest.warns(UserWarning, match="bad was dropped"):
        found = pair("hold", time_limit=1.0).fit(*table)
    assert found.best_params_ == {"choice": "good"}
    assert "or it did not stop within 3 s" in found.result_.dropped[0]


def test_a_dead_worker_costs_its_candidate_only(table):
    with parallel_config(backend="loky", n_jobs=2), pytest.warns(UserWarning, match="bad was dropped"):
        found = pair("die").fit(*table)
    assert found.result_.dropped == {0: "its worker died (TerminatedWorkerError) on 300 rows"}
    assert found.best_params_ == {"choice": "good"}


@pytest.mark.long
def test_a_race_goes_on_without_the_candidate_whose_worker_died(table):
    with parallel_config(backend="loky", n_jobs=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = RacingSearchCV(pair("die").estimator.learners, cv=0.5, scoring="accuracy", random_state=0).fit(*table)
    assert np.isnan(found.cv_results_["mean_test_score"][0]) and found.best_params_ == {"choice": "good"}


def test_reasons_of_all_failures_are_named(table):
    X, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with parallel_config(backend="threading"), pytest.raises(ValueError, match="a: TimeoutError.*b: TimeoutErr"):
            DAUBSearchCV([("a", Trouble(0.5, "hang", 0)), ("b", Trouble(0.6, "hang", 0))], cv=2, first=20,
                         time_limit=0.2).fit(X, y)
        with pytest.raises(ValueError, match="fits failed"):
            DAUBSearchCV([("a", GaussianNB()), ("b", GaussianNB())], cv=2, first=20).fit(np.full((600, 1), "x"), y)


def test_a_larger_time_limit_tries_again(table, tmp_path):
    X, y = table
    path = tmp_path / "kept"
    with parallel_config(backend="threading"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = search("hang", time_limit=1.0, checkpoint=path).fit(X, y)
        assert list(first.result_.dropped) == [1]
        Trouble.made = 0
        again = search("hang", time_limit=1.0, checkpoint=path, refit=False).fit(X, y)
        assert Trouble.made == 0 and again.result_.dropped == first.result_.dropped
        longer = search("hang", time_limit=1.2, checkpoint=path, refit=False).fit(X, y)
        assert Trouble.made == 1 and longer.result_.dropped == {1: "TimeoutError: took longer than 1.2 s on 125 rows"}


@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_keeps_each_finished_training(table, n_jobs, random_state):
    """Also those of a batch of which others were not finished, and whatever the seed."""
    X, y = table
    made = search("interrupt", cv=4, random_state=random_state, n_jobs=n_jobs)
    with parallel_config(backend="threading"):
        with pytest.raises(KeyboardInterrupt):
            made.fit(X, y)
        kept = dict(made.trainings_.parts)
        assert len(kept) >= 8 and all(isinstance(one, dict) for one in kept.values())
        assert not any(key[0] == 1 and key[1] >= 100 for key in kept)
        Trouble.made = 0
        made.set_params(estimator__bad__does="").fit(X, y)     # other settings: nothing is reused
        assert Trouble.made > len(kept)
    assert not hasattr(made, "trainings_")


def test_interrupted_anywhere_the_winner_is_the_same(table, tmp_path):
    X, y = table
    whole = search(cv=3).fit(X, y)

    for k, path in enumerate((None, tmp_path / "kept")):
        made, interrupts = search(cv=3, checkpoint=path), 0
        original = Trouble.fit

        count = itertools.count(1)

        def fit(self, X, y, original=original, count=count):
            if next(count) % 4 == 0:
                raise KeyboardInterrupt
            return original(self, X, y)

        Trouble.fit = fit
        try:
            while True:
                try:
                    made.fit(X, y)
                    break
                except KeyboardInterrupt:
                    interrupts += 1
                    assert interrupts < 50
                    if path is not None:
                        made = search(cv=3, checkpoint=path)       # as in a new process
        finally:
            Trouble.fit = original
        assert interrupts > 3, k
        assert made.result_.allocations == whole.result_.allocations
        assert made.best_params_ == whole.best_params_ and made.best_score_ == whole.best_score_


# This file and what tests share.
FOLDERS = os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))])
KILLED = """
import os, sys, numpy as np
sys.path[:0] = sys.argv[1].split(os.pathsep)
from test_search_faults import Trouble, search
from fastrace.model_selection.searches._checkpoint import Checkpoint
save = Checkpoint.save
Checkpoint.save = lambda self, last=False: save(self, last=True)         # each time, however long the disk takes
X = np.random.default_rng(0).random((600, 2))
X[:, 1] = np.arange(600) % 2
plain = Trouble.fit
def fit(self, X, y):
    if Trouble.made == int(sys.argv[3]):
        os._exit(7)
    return plain(self, X, y)
Trouble.fit = fit
made = search(checkpoint=sys.argv[2]).fit(X, X[:, 1])
print(made.best_params_["choice"], made.best_score_, Trouble.made)
"""


@pytest.mark.long
def test_a_killed_process_goes_on_from_its_checkpoint(tmp_path):
    """The process itself dies in a training: those before it are used by the next process."""
    def run(path, die_at):
        call = [sys.executable, "-c", KILLED, FOLDERS, str(tmp_path / path), str(die_at)]
        return subprocess.run(call, capture_output=True, text=True, timeout=170, check=False)

    assert run("a", 13).returncode == 7
    again, whole = run("a", 1000), run("b", 1000)
    assert again.returncode == whole.returncode == 0, again.stderr + whole.stderr
    choice, score, made = again.stdout.split()
    assert [choice, score] == whole.stdout.split()[:2]
    assert int(made) <= int(whole.stdout.split()[2]) - 10


@pytest.mark.long
def test_every_backend_gives_the_same(table):
    X, y = table
    wanted = without(table)
    grid = DAUBSearchCV(Trouble(), {"final": [0.6, 0.8]}, method="daub", cv=2, first=20, ratio=2.5,
                        training_bound=False, random_state=0)
    alone = grid.fit(X, y).result_.allocations
    for backend in ("threading", "loky", "multiprocessing"):
        with parallel_config(backend=backend, n_jobs=2):
            found = search().set_params(estimator__bad__at=10**9).fit(X, y)
            assert found.result_.allocations == wanted.result_.allocations
            assert grid.fit(X, y).result_.allocations == alone


def test_dask_on_a_local_cluster(table):
    distributed = pytest.importorskip("distributed")
    X, y = table
    wanted = without(table)
    raced = RacingSearchCV(learners(), cv=2, scoring="accuracy", random_state=0).fit(X, y)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as local:
        with distributed.Client(local), parallel_config(backend="dask"):
            found = search().set_params(estimator__bad__at=10**9).fit(X, y)
            assert found.result_.allocations == wanted.result_.allocations
            other = RacingSearchCV(learners(), cv=2, scoring="accuracy", random_state=0).fit(X, y)
            assert other.race_.pulls.tolist() == raced.race_.pulls.tolist()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                late = search("hang", time_limit=1.5).fit(X, y)
            assert late.best_params_ == {"choice": "good"} and "took longer than" in late.result_.dropped[1]


class Killer(ClassifierMixin, BaseEstimator):
    """Writes down each training, and kills its worker without a word: once, if `once` is a path, or always."""

    def __init__(self, final=0.5, home=0, once="", log=""):
        self.final = final
        self.home = home
        self.once = once
        self.log = log

    def fit(self, X, y):
        self.n_, self.classes_ = len(y), np.unique(y)
        with open(self.log, "a") as file:
            file.write(f"{self.final} {self.n_} {os.getpid()}\n")
        if self.home and self.n_ >= 100 and os.getpid() != self.home and not os.path.exists(self.once):
            if self.once:
                open(self.once, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        return self

    def predict(self, X):
        return np.where(X[:, 0] < self.final, X[:, 1], -1.0)

    def score(self, X, y):
        return self.final - 1.0 / np.sqrt(self.n_)


KILLERS = [0.5, 0.6, 0.9, 0.8]


def killers(tmp_path, kills, once=False, search=DAUBSearchCV, **options):
    log = tmp_path / "log"
    log.write_text("")
    once = str(tmp_path / "killed") if once else ""
    home = os.getpid() if kills else 0
    made = search([(f"k{final}", Killer(final, home * (final == 0.9), once, str(log))) for final in KILLERS],
                  cv=2, random_state=0, refit=False, **options)
    return made, lambda: [line.split() for line in log.read_text().splitlines()]


@pytest.fixture
def cluster():
    """Two Dask workers, processes that may be killed."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.scheduler.allowed-failures": 2}), distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local:
        with distributed.Client(local):
            yield


def test_a_candidate_that_hangs_on_a_split_is_out_of_the_race(table):
    with parallel_config(backend="threading"), pytest.warns(Warning, match="(?s)fits failed.*took longer than 0.3 s"):
        made = RacingSearchCV(learners("hang"), cv=2, time_limit=0.3, scoring="accuracy", random_state=0).fit(*table)
    assert made.best_params_ == {"choice": "good"}
    assert np.isnan(made.cv_results_["mean_test_score"]).tolist() == [False, True, False]


@pytest.mark.long
@pytest.mark.parametrize("backend", ["loky", "dask"])
@pytest.mark.parametrize("search", [DAUBSearchCV, RacingSearchCV])
def test_a_worker_killed_once_costs_nothing(table, tmp_path, backend, search, request):
    """What was finished is kept and reported, what was not is made again, and the answer is that of a quiet run."""
    options = {"first": 40} if search is DAUBSearchCV else {"scoring": "accuracy"}
    made, _ = killers(tmp_path, False, search=search, **options)
    wanted = made.fit(*table)
    made, trainings = killers(tmp_path, True, once=True, search=search, **options)
    if backend == "dask":
        request.getfixturevalue("cluster")
    with parallel_config(backend=backend, n_jobs=2):
        made.fit(*table)
    assert (tmp_path / "killed").exists()
    assert made.best_params_ == wanted.best_params_ == {"choice": "k0.9"}
    names = ["params", "mean_test_score"]
    assert [list(made.cv_results_[name]) for name in names] == [list(wanted.cv_results_[name]) for name in names]
    counts = {}
    for final, n, _ in trainings():
        counts[final, n] = counts.get((final, n), 0) + 1
    assert max(counts.values()) <= 2 * 2        # splits, what was in the killed worker's hands once more
    if search is DAUBSearchCV:
        assert not made.result_.dropped and made.result_.allocations == wanted.result_.allocations
        assert all(count == 2 for (_, n), count in counts.items() if n == "40")


@pytest.mark.long
@pytest.mark.parametrize("backend", ["loky", "dask"])
@pytest.mark.parametrize("search", [DAUBSearchCV, RacingSearchCV])
def test_a_task_that_always_kills_is_a_failed_candidate(table, tmp_path, backend, search, request):
    options = {"first": 40} if search is DAUBSearchCV else {"scoring": "accuracy"}
    made, trainings = killers(tmp_path, True, search=search, **options)
    if backend == "dask":
        request.getfixturevalue("cluster")
    with parallel_config(backend=backend, n_jobs=2), pytest.warns(Warning, match="its worker died"):
        made.fit(*table)
    assert made.best_params_ == {"choice": "k0.8"}
    if search is DAUBSearchCV:
        assert list(made.result_.dropped) == [2] and "its worker died" in made.result_.dropped[2]
        rows = made.cv_results_["n_resources"][made.cv_results_["candidate"] == 2]
        assert rows.tolist() == [40]                          # what was finished before is reported
    else:
        assert np.isnan(made.cv_results_["mean_test_score"]).tolist() == [False, False, True, False]
    killed = [line for line in trainings() if line[0] == "0.9" and int(line[1]) >= 100]
    assert 2 <= len(killed) <= 14                             # tried again, and given up
