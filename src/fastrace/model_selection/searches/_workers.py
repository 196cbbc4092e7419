# mypy: disable-error-code="no-untyped-call"
"""joblib's workers: what is finished is kept whatever happens, and trainings that hang are given up."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from joblib import effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from sklearn import config_context, get_config
from sklearn.utils.parallel import Parallel, delayed

from fastrace._base import _clock
from fastrace.model_selection._deadline import within

LONGEST = 86400.0 * 365.0               # seconds that a limit may be, within what threads can wait
PATIENCE = 30.0                          # seconds for which dead workers are waited for


class Failure(NamedTuple):
    """Why a training, a score or a prediction is missing.

    `error` is the type of the exception by name, "" for the death of a worker. `kind` says what it means for a search:
    "type" if the data are of a wrong type, "final" if more rows cannot help (memory, time, a dead worker), or "".
    `limit` is the time limit that was passed, if that is why.
    """

    error: str
    words: str
    kind: str = ""
    limit: float | None = None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What an exception says, in one line."""
        kind = "type" if isinstance(error, TypeError) else "final" if isinstance(error, MemoryError) else ""
        return cls(type(error).__name__, next(iter(str(error).splitlines()), ""), kind)

    def __str__(self) -> str:
        return f"{self.error}: {self.words}" if self.error else self.words

    def exception(self, training: str) -> Exception:
        """The same as an exception that names the training."""
        return (RuntimeError if self.limit is None else TimeoutError)(f"{training}: {self.words}")


def worker_died(error: BaseException) -> bool:
    return type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker")


class Crew:
    """The workers of one search. What comes back is stored at once, in the order in which it comes."""

    def __init__(self, n_jobs: Any, pre_dispatch: Any, time_limit: Any = None, raises: bool = False) -> None:
        self.n_jobs, self.raises = n_jobs, raises
        self.limit = None if time_limit is None else min(_clock.seconds(time_limit, "time_limit"), LONGEST)
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
            if isinstance(out, Failure):
                lost = True
                if self.raises:
                    raise out.exception(words(key))

        try:
            self._through(self.parallel, list(waiting), make, keep)
        except Exception as error:
            if self.raises or not worker_died(error):
                raise
            for key in list(waiting):
                if not self._elsewhere():
                    keep(key, Failure("", f"its worker died ({type(error).__name__}), and no other came", "final"))
                    continue
                try:
                    self._through(_parallel(self.n_jobs), [key], make, keep)
                except Exception as again:
                    if not worker_died(again):
                        raise
                    more = "" if self.limit is None else f", or it did not stop within {2 * self.limit + 1:g} s"
                    keep(key, Failure("", f"its worker died ({type(again).__name__}){more}", "final"))
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

        def ended(task: Any) -> None:
            if callback is not None and not task.cancelled() and task.exception() is not None:
                callback(task.exception())

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
    """Call a function; a `Failure` if it takes longer than `limit` seconds.

    It then goes on in a thread of its own. In a process of joblib's that is ended by the caller; and if nothing runs
    there any more, as the function does not let go of the interpreter, the process ends itself.
    """
    if limit is None:
        return key, function(*args, **options)
    config, (backend, n_jobs) = get_config(), get_active_backend()

    def work() -> Any:
        with config_context(**config), parallel_config(backend=backend, n_jobs=n_jobs):
            return function(*args, **options)

    own = os.getpid() != home and "loky" in type(multiprocessing.current_process()).__module__
    with open(os.devnull, "w") as nowhere:
        try:
            if own:
                faulthandler.dump_traceback_later(2.0 * limit + 1.0, exit=True, file=nowhere)
            ended, answer = within(limit, work)
        finally:
            if own:
                faulthandler.cancel_dump_traceback_later()
    return key, answer if ended else Failure("TimeoutError", f"took longer than {limit:g} s", "final", limit)
