# mypy: disable-error-code="misc, no-untyped-call"
"""Trainings done by joblib's workers: finished ones are kept whatever happens, and those that hang are given up."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs, parallel_config
from joblib import hash as joblib_hash
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn import config_context, get_config
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.metrics._scorer import _MultimetricScorer
from sklearn.model_selection._validation import _fit_and_score, _score
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples

from fastrace._base import _checks, _files
from fastrace._base._words import counted
from fastrace.model_selection._parquet_rows import ParquetRows, as_slice, read_rows
from fastrace.model_selection.searches._candidates import Candidates, name_of

KIND, VERSION = "searches", 3           # of the file of a checkpoint
TRAIN_SCORE_ROWS = 3000
PATIENCE = 30.0                          # seconds for which dead workers are waited for
RESPONSES = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform")
Part = tuple[int, int, int]              # candidate, rows, split


class Lost(NamedTuple):
    """A training that gave nothing: why, and the time limit that it passed."""

    reason: str
    limit: float | None = None

    def error(self, where: str) -> Exception:
        """The same as an exception."""
        kind = RuntimeError if self.limit is None else TimeoutError
        return kind(f"{where}: {self.reason.removeprefix('TimeoutError: ')}")


def where(name: str, n: int, split: int) -> str:
    """A training in words."""
    return f"candidate {name} on {n} rows of split {split}"


def worker_died(error: BaseException) -> bool:
    return type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker")


class Crew:
    """The workers of one search. What comes back is stored at once, in the order in which it comes."""

    def __init__(self, n_jobs: Any, pre_dispatch: Any, time_limit: Any = None, raises: bool = False) -> None:
        self.n_jobs, self.raises = n_jobs, raises
        self.limit = None if time_limit is None else _checks.real(time_limit, "time_limit")
        if self.limit is not None and not self.limit > 0.0:
            raise ValueError(f"time_limit is {time_limit}; a positive number of seconds is needed, or None")
        self.pre_dispatch = pre_dispatch
        self.parallel = _parallel(n_jobs, pre_dispatch)

    def __enter__(self) -> Crew:
        self.parallel.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.parallel.__exit__(*error)

    def run(
        self, keys: Iterable[Any], make: Callable[[Any], Any], store: Callable[[Any, Any], None],
        words: Callable[[Any], str],
    ) -> None:
        """Call ``function(*args, **options)`` for each key, from ``make(key)``; None there leaves a key out.

        ``words(key)`` says in an error which training it was.

        After the death of a worker what was not finished is done again, one at a time, so that only the culprit is
        lost. Processes in which something hangs are ended.
        """
        waiting, lost = dict.fromkeys(keys), False

        def keep(key: Any, out: Any) -> None:
            nonlocal lost
            del waiting[key]
            store(key, out)
            if isinstance(out, Lost):
                lost = True
                if self.raises:
                    raise out.error(words(key))

        try:
            self._through(self.parallel, list(waiting), make, keep)
        except Exception as error:
            if self.raises or not worker_died(error):
                raise
            for key in list(waiting):
                if not self._elsewhere():
                    keep(key, Lost(f"its worker died ({type(error).__name__}), and no other came"))
                    continue
                try:
                    self._through(_parallel(self.n_jobs), [key], make, keep)
                except Exception as again:
                    if not worker_died(again):
                        raise
                    more = "" if self.limit is None else f", or it did not stop within {2 * self.limit + 1:g} s"
                    keep(key, Lost(f"its worker died ({type(again).__name__}){more}"))
            lost = True
        finally:
            if lost:
                self._renew()

    def _elsewhere(self) -> bool:
        """Whether a training will run in another process than this one, which it might kill.

        joblib does not use a cluster of which one worker is left: those that died need time to come back.
        """
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(TimeoutError):          # Dask has waited for a while itself
                if effective_n_jobs(self.n_jobs) > 1:
                    return True
            if time.monotonic() > end:
                return False
            time.sleep(0.1)

    def _renew(self) -> None:
        """End processes in which something may still run, and begin with new ones."""
        backend: Any = getattr(self.parallel, "_backend", None)
        if type(backend).__name__ == "LokyBackend":
            if getattr(backend, "_workers", None) is not None:
                backend.abort_everything(ensure_ready=False)
            self.parallel.__exit__(None, None, None)
            self.parallel = _parallel(self.n_jobs, self.pre_dispatch)
            self.parallel.__enter__()

    def _through(self, parallel: Any, keys: list[Any], make: Callable[[Any], Any], keep: Callable[..., None]) -> None:
        _hear_of_errors(getattr(parallel, "_backend", None))
        calls = ((key, made) for key in keys if (made := make(key)) is not None)
        found = parallel(delayed(guarded)(self.limit, os.getpid(), key, *made) for key, made in calls)
        try:
            for key, out in found:
                keep(key, out)
        finally:
            if hasattr(found, "close"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found.close()            # of use where `keep` raised: ends what is still being done


def _hear_of_errors(backend: Any) -> None:
    """Let joblib hear of tasks that Dask gives up, as their workers die; it waits for them for ever otherwise.

    Its Dask backend calls back with results only, and it is the callback that joblib waits for.
    """
    if type(backend).__name__ != "DaskDistributedBackend" or "hears_of_errors" in vars(backend):
        return
    name = "submit" if hasattr(type(backend), "submit") else "apply_async"
    plain = getattr(backend, name)

    def submit(func: Any, callback: Any = None) -> Any:
        future = plain(func, callback)

        def ended(one: Any) -> None:
            if callback is not None and not one.cancelled() and one.exception() is not None:
                callback(one.exception())

        future.add_done_callback(ended)
        return future

    setattr(backend, name, submit)
    backend.hears_of_errors = True


def _parallel(n_jobs: Any, pre_dispatch: Any = "2*n_jobs") -> Any:
    """joblib's workers, their results one by one where the backend knows how."""
    try:
        return Parallel(n_jobs=n_jobs, pre_dispatch=pre_dispatch, return_as="generator_unordered")
    except (TypeError, ValueError):
        return Parallel(n_jobs=n_jobs, pre_dispatch=pre_dispatch)


def guarded(limit: float | None, home: int, key: Any, function: Any, args: Any, options: Any) -> tuple[Any, Any]:
    """Call a function; `Lost` if it takes longer than `limit` seconds.

    It then goes on in a thread of its own. In a process of joblib's that is ended by the caller; and if nothing runs
    there any more, as the function does not let go of the interpreter, the process ends itself.
    """
    if limit is None:
        return key, function(*args, **options)
    box: list[tuple[bool, Any]] = []
    config, (backend, n_jobs) = get_config(), get_active_backend()

    def work() -> None:
        try:
            with config_context(**config), parallel_config(backend=backend, n_jobs=n_jobs):
                box.append((True, function(*args, **options)))
        except BaseException as error:
            box.append((False, error))

    own = os.getpid() != home and "loky" in type(multiprocessing.current_process()).__module__
    with open(os.devnull, "w") as nowhere:
        try:
            if own:
                faulthandler.dump_traceback_later(2.0 * limit + 1.0, exit=True, file=nowhere)
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(limit)
        finally:
            if own:
                faulthandler.cancel_dump_traceback_later()
    if not box:
        return key, Lost(f"TimeoutError: took longer than {limit:g} s", limit)
    good, answer = box[0]
    if not good:
        raise answer
    return key, answer


class Trainings:
    """Trainings of candidates on the first n rows of each split's training part."""

    def __init__(
        self, search: Any, X: Any, y: Any, orders: list[NDArray[Any]], tests: list[Any], settings: list[dict[str, Any]],
        sizes: list[int], scorers: Any, routed: Any, train_scores: bool, context: Any, parts: dict[Part, Any],
    ) -> None:
        self.search, self.X, self.y, self.settings, self.sizes = search, X, y, settings, sizes
        self.orders, self.tests, self.parts = orders, tests, parts
        self.base = clone(search.estimator)
        if isinstance(X, np.ndarray) and not search.shuffle and not get_tags(self.base).input_tags.pairwise:
            self.X = Views(X)
        self.context, self.n_made = context, 0
        self.sampled = train_scores and not search.return_train_score
        self.options: dict[str, Any] = {
            "scorer": scorers, "fit_params": routed.estimator.fit, "score_params": routed.scorer.score,
            "return_train_score": search.return_train_score, "return_n_test_samples": True, "return_times": True,
            "return_parameters": False, "error_score": search.error_score, "verbose": search.verbose,
        }
        self.models: dict[tuple[int, int], tuple[int, Any]] = {}
        self.gradual = bool(search.warm_start) or isinstance(X, ParquetRows)
        self.classes = None if y is None or not self.gradual else np.unique(np.asarray(y))

    def get(self, item: tuple[int, int]) -> Any:
        """What a training gave, a dict per split; `Lost`; or None if it has not been done."""
        found = [self.parts.get((*item, fold)) for fold in range(len(self.orders))]
        lost = next((one for one in found if isinstance(one, Lost)), None)
        return lost if lost is not None else None if any(one is None for one in found) else found

    def run(self, crew: Crew, batch: list[tuple[int, int]]) -> None:
        """Do what is missing of a batch."""
        keys = [(*item, fold) for fold in range(len(self.orders)) for item in batch
                if (*item, fold) not in self.parts]
        contexts: dict[Part, Any] = {}
        if self.context is not None:         # before any work begins: workers pickle the search meanwhile
            for key in keys:
                contexts[key] = self.context.subcontext(task_name="candidate-split-evaluation", task_id=self.n_made)
                self.n_made += 1
        crew.run(keys, lambda key: self.call(key, contexts.get(key)), self.store,
                 lambda key: where(name_of(self.settings[key[0]]), key[1], key[2]))

    def call(self, key: Part, context: Any) -> Any:
        """Function, arguments and options of one training."""
        i, n, fold = key
        if any(isinstance(self.parts.get((i, n, k)), Lost) for k in range(len(self.orders))):
            return None                      # hangs on another split, or kills its worker
        more = dict(self.options)
        if "callback_ctx" in KNOWN:
            more |= {"caller": self.search, "callback_ctx": context}
        estimator = clone(self.base)
        if self.gradual:
            before = self.models.get((i, fold))
            estimator = Gradual(estimator, self.sizes, before, self.classes, bool(self.search.warm_start))
        more |= {"train": self.orders[fold][:n], "test": self.tests[fold], "parameters": self.settings[i],
                 "split_progress": (fold, len(self.orders)), "candidate_progress": (i, len(self.settings))}
        return trained, (estimator, self.X, self.y), {
            "sampled": self.sampled, "kept": bool(self.search.warm_start), **more}

    def store(self, key: Part, out: Any) -> None:
        """Keep what came back."""
        if isinstance(out, dict):
            model = out.pop("model", None)
            i, n, fold = key
            if model is not None and n >= self.models.get((i, fold), (0, None))[0]:
                self.models[i, fold] = n, model
        self.parts[key] = out


KNOWN = signature(_fit_and_score).parameters


def trained(estimator: Any, X: Any, y: Any, sampled: bool, kept: bool, **options: Any) -> dict[str, Any]:
    """One training by `_fit_and_score`, and its score on some of the rows trained on."""
    said = Listener(options["scorer"])
    if not isinstance(said.scorer, _MultimetricScorer):          # that one collects the errors itself
        options["scorer"] = said
    out: dict[str, Any] = _fit_and_score(estimator, X, y, return_estimator=True, **options)
    out["score_error"] = said.error
    model = out.pop("estimator")
    if sampled:
        train, scores = options["train"], out["test_scores"]
        if out["fit_error"] is None:
            rows = train[:TRAIN_SCORE_ROWS]
            part = _safe_split(model, X, y, rows, train)
            weights = _check_method_params(X, params=options["score_params"], indices=rows)
            scores = _score(model, *part, options["scorer"], weights, options["error_score"])
        out["train_scores"] = scores
    if kept and out["fit_error"] is None:
        out["model"] = getattr(model, "model", model)
    return out


class Listener:
    """A scorer, and the error that it ended with."""

    def __init__(self, scorer: Any) -> None:
        self.scorer, self.error = scorer, ""

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            return self.scorer(*args, **options)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}".splitlines()[0]
            raise

    def __repr__(self) -> str:
        return repr(self.scorer)


class Views:
    """An array, or a memory map, whose rows that follow each other are cut out without a copy."""

    def __init__(self, table: NDArray[Any]) -> None:
        self.table, self.shape, self.ndim, self.dtype = table, table.shape, table.ndim, table.dtype

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: Any) -> Any:
        rows = key[0] if isinstance(key, tuple) else key
        return self.table[as_slice(rows) if isinstance(rows, np.ndarray) else rows]


class Gradual:
    """Stands for an estimator in `_fit_and_score`: trains on from the model of a smaller subset, reads files piecemeal.

    A learner with ``partial_fit`` gets the rows between one size of the grid and the next in one call, or in one call
    for each row group of a file, whether it goes on from another model or not: a resumed search repeats the calls.
    """

    def __init__(self, estimator: Any, sizes: list[int], before: Any, classes: Any, warm: bool) -> None:
        self.estimator, self.sizes, self.before, self.classes, self.warm = estimator, sizes, before, classes, warm
        self.model = estimator

    def set_params(self, **params: Any) -> Gradual:
        self.estimator.set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None, **params: Any) -> Gradual:
        learner = self.estimator._chosen() if isinstance(self.estimator, Candidates) else self.estimator
        n = _num_samples(X)
        if not self.warm or not hasattr(learner, "partial_fit"):
            self.model = self.estimator
            self.model.fit(read_rows(X), *([] if y is None else [y]), **params)
            return self
        done, self.model = self.before if self.before is not None and self.before[0] <= n else (0, clone(learner))
        extra = {name: value for name, value in params.items() if _per_row(value, n)}
        rest = {name: value for name, value in params.items() if name not in extra}
        if "classes" in signature(self.model.partial_fit).parameters:
            rest["classes"] = self.classes
        for stop in [*(size for size in self.sizes if done < size < n), *([n] if done < n else [])]:
            rows, done = np.arange(done, stop), stop
            for at in X[rows].blocks() if isinstance(X, ParquetRows) else [slice(None)]:
                places = rows[at]
                part = X[places].read() if isinstance(X, ParquetRows) else _safe_indexing(
                    X, as_slice(places) if isinstance(X, np.ndarray) else places)
                target = [] if y is None else [_safe_indexing(y, places)]
                weights = {name: _safe_indexing(value, places) for name, value in extra.items()}
                self.model.partial_fit(part, *target, **weights, **rest)
        return self

    def score(self, X: Any, y: Any = None, **params: Any) -> Any:
        if not isinstance(X, ParquetRows):
            return self.model.score(X, y, **params)
        own = getattr(type(getattr(self.model, "learner_", self.model)), "score", None)
        if own is ClassifierMixin.score or own is RegressorMixin.score:
            return own(self, X, y, **params)
        return self.model.score(X.read(), y, **params)

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "estimator") or name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.model, name)
        return _by_blocks(found) if name in RESPONSES else found

    def __sklearn_tags__(self) -> Any:
        return self.estimator.__sklearn_tags__()


def _per_row(value: Any, n: int) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str) and _num_samples(value) == n


def _by_blocks(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a model that reads one row group after another."""
    @wraps(method)
    def answer(X: Any, **options: Any) -> Any:
        if not isinstance(X, ParquetRows) or not len(X):
            return method(read_rows(X), **options)
        places = X.blocks()
        whole = np.concatenate([np.asarray(method(X[at].read(), **options)) for at in places])
        if isinstance(places[0], slice):
            return whole
        out = np.empty_like(whole)
        out[np.concatenate(places)] = whole
        return out

    return answer


def fingerprint(*parts: Any) -> str:
    """A hash of what a search is about, the same in another process as far as that can be."""
    words = []
    for part in parts:
        try:
            words.append(joblib_hash(part))
        except Exception:                   # lambdas and the like do not pickle
            words.append(re.sub(r" at 0x[0-9a-f]+", "", _long(part)))
    return str(joblib_hash(words))


def _long(part: Any) -> str:
    if isinstance(part, dict):
        return "{" + ", ".join(f"{key!r}: {_long(value)}" for key, value in part.items()) + "}"
    if isinstance(part, (list, tuple)):
        return "[" + ", ".join(map(_long, part)) + "]"
    if hasattr(part, "get_params") and not isinstance(part, type):
        return f"{type(part).__qualname__}({_long(part.get_params(deep=False))})"
    return repr(part)


def head(X: Any, count: int = 64) -> Any:
    """The first rows, by which data are told from other data."""
    try:
        return read_rows(_safe_indexing(X, np.arange(min(count, _num_samples(X)))))
    except Exception:
        return None


@dataclass(frozen=True)
class Saved:
    """Finished trainings of an interrupted search: what it was about, its random seeds, and they themselves."""

    key: str
    seeds: Any
    parts: dict[Any, Any]

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        return f"{counted(len(self), 'training')} of a search that was not finished; its next fit goes on from them"


def load(path: Path | None) -> Saved | None:
    """Read a checkpoint, if there is one; every byte of it is checked, and none is run as code."""
    if path is None or not path.exists():
        return None
    key, seeds, parts = _files.unpack(_files.read(path, KIND, VERSION))
    return Saved(key, seeds, {item: Lost(*out) if lost else out for item, lost, out in parts})


def _plain(value: Any) -> Any:
    """What a training gave, its numbers those of Python."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    if value is None or isinstance(value, (bool, str)):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


class Checkpoint:
    """Writes finished trainings to a file, in one step, for at most a fifth of the time.

    What cannot be written is said once, and the search goes on: its trainings are kept in memory all the same.
    """

    def __init__(self, path: Path | None, key: str, seeds: Any, parts: dict[Any, Any]) -> None:
        self.path = path
        self.saved = Saved(key, seeds, parts)
        self.due, self.written, self.warned = 0.0, -1, False

    def save(self, last: bool = False) -> None:
        began = time.perf_counter()
        if self.path is None or len(self.saved.parts) == self.written or not (last or began >= self.due):
            return
        parts = [(item, isinstance(out, Lost), _plain(out)) for item, out in self.saved.parts.items()]
        try:
            _files.write(self.path, KIND, VERSION, self.saved.key,
                         _files.pack((self.saved.key, _plain(self.saved.seeds), parts)))
        except OSError as error:
            if not self.warned:
                warnings.warn(f"checkpoint {str(self.path)!r} cannot be written ({error}); the search goes on, its "
                              f"finished trainings are in trainings_ if it is interrupted", stacklevel=4)
            self.warned = True
        else:
            self.written = len(self.saved.parts)
        now = time.perf_counter()
        self.due = now + 4.0 * (now - began)


def resumed(saved: Saved | None, key: str, limit: float | None) -> dict[Any, Any]:
    """Finished trainings of the same search; those given up under a smaller time limit, or with their worker, are not
    finished."""
    if saved is None or saved.key != key:
        return {}
    return {item: out for item, out in saved.parts.items() if not isinstance(out, Lost) or (
        out.limit is not None and limit is not None and limit <= out.limit)}


def warn_dropped(name: str, n: int, n_rows: int, reason: str) -> None:
    """Say that a candidate is out."""
    warnings.warn(f"candidate {name} was dropped on {n} of {n_rows} rows: {reason}", stacklevel=5)
