"""Early stopping of evaluations in Inspect; importing this module needs inspect-ai."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from inspect_ai.log import EvalLog
    from inspect_ai.scorer import value_to_float
    from inspect_ai.util import EarlyStop
except ImportError as error:
    raise ImportError("fastrace.doors.inspect needs inspect-ai: python -m pip install inspect-ai") from error

from fastrace._base import _checks
from fastrace.streams.sequences import ConfidenceSequence

__all__ = ["RacingEarlyStopping"]

UNKNOWN = "not known yet"
_RUNS: ContextVar[dict[int, _Run]] = ContextVar("_RUNS")     # of each manager; runs of several models do not mix


class RacingEarlyStopping:
    r"""Stop an evaluation once its verdict is known; give it to a `Task` of Inspect as ``early_stopping``.

    The mean score is compared with a number, or sample by sample with that of another model or prompt. Once the verdict
    is known, samples and epochs that have not begun are left out.

    Parameters
    ----------
    reference : float, mapping or EvalLog, optional
        What to compare with: a number, such as a pass mark; a finished log, or a score for each sample id. Without it
        the evaluation stops once the mean is known to within `epsilon`.
    epsilon : float, default 0.0
        In units of the scores. Differences up to this are as good as none: if the mean is within `epsilon` of the
        reference for certain, the verdict is "equivalent", and the evaluation stops too.
    delta : float, default 0.05
        Probability that the verdict of an evaluation is wrong, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every score.
    score : str, optional
        The scorer whose scores count; needed where a task has several.
    order : {"random", "given"}, default "random"
        ``"random"`` refuses tasks whose samples Inspect has not shuffled. ``"given"`` takes them as they come; give it
        only where the order has nothing to do with the scores.
    missing : {"worst", "raise"}, default "worst"
        What to do with a score that is not a number, such as that of a sample that could not be scored: count it as
        the low end of `support`, also in the reference, or raise an error, which ends the evaluation.

    Attributes
    ----------
    results : list of dict
        What is known of each evaluation that ended, as in the log: "task", "model", "verdict" ("better", "worse",
        "equivalent", "known" or "not known yet"), "lower" and "upper" (of the mean difference to the reference, or of
        the mean), "estimate", "n_read", "n_samples", "epochs", "n_missing", "delta", "epsilon", "about" and "notes".

    Raises
    ------
    ValueError
        If a parameter is out of range; or as a task begins, before anything is paid for, if its samples are not
        shuffled, the reference lacks one of them, or the scorer is not named.

    Notes
    -----
    The promise. With probability at least ``1 - delta`` the interval holds at all times, and so the verdict is right,
    whenever the evaluation stops. Each evaluation has a `delta` of its own: for a promise over ten models, give each a
    tenth.

    What it is about. With one epoch, the mean over the samples of the task had all of them been evaluated. It is an
    exact promise about these scores, as shuffled samples are drawn without replacement. With several epochs, the score
    of a sample varies, and the verdict is about the expected score; samples are then taken for independent draws from
    the population that they stand for. After e epochs a sample counts with its mean over them, each epoch has an
    interval of its own with ``delta / epochs``, and the answer is what all of them leave.

    Scores enter in the order of the samples, not in that of their completion: an answer that comes early waits for
    those before it. So it does no harm that quick samples may be easy ones, and any number may be in flight. Those that
    are in flight as the verdict is reached are completed.

    Fallback. The evaluation runs to its end, without a verdict and with a note in the log, from a sample on that ends
    in an error and has no score (``score_on_error=True`` of Inspect gives it one), if a score lies outside `support`,
    or if samples are added while it runs.

    Metrics of the log, such as accuracy, are those of the samples that were completed. A mean of what was read until
    something was decided exaggerates: quote the interval.

    A seed for ``sample_shuffle`` makes runs read their samples in one order. The promise then holds for each model
    that was chosen without a look at earlier runs in that order; let Inspect draw a new order otherwise.

    Examples
    --------
    >>> from inspect_ai import Task, eval
    >>> from inspect_ai.dataset import Sample
    >>> from inspect_ai.model import ModelOutput
    >>> from inspect_ai.scorer import match
    >>> from inspect_ai.solver import solver
    >>> from fastrace.doors.inspect import RacingEarlyStopping
    >>> @solver
    ... def three_of_four():                                # in place of `generate()`, which asks a model
    ...     async def solve(state, generate):
    ...         state.output = ModelOutput.from_content("mock", "4" if int(state.sample_id) % 4 else "5")
    ...         return state
    ...     return solve
    >>> manager = RacingEarlyStopping(reference=0.4, delta=0.05)                # better or worse than 40 % right?
    >>> samples = [Sample("2 + 2", target="4", id=k) for k in range(1000)]
    >>> task = Task(samples, solver=three_of_four(), scorer=match(), early_stopping=manager)
    >>> log = eval(task, "mockllm/model", sample_shuffle=True, max_samples=4, display="none", log_dir="memory://logs")[0]
    >>> manager.results[0]["verdict"], manager.results[0]["n_read"] < 200
    ('better', True)
    >>> log.results.early_stopping.metadata["verdict"], len(log.results.early_stopping.early_stops) > 800
    ('better', True)
    """

    def __init__(
        self,
        reference: float | Mapping[str | int, float] | EvalLog | None = None,
        epsilon: float = 0.0,
        delta: float = 0.05,
        support: tuple[float, float] = (0.0, 1.0),
        *,
        score: str | None = None,
        order: str = "random",
        missing: str = "worst",
    ) -> None:
        self.epsilon = _checks.real(epsilon, "epsilon")
        if not 0.0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon is {epsilon}; a finite number of at least 0 is needed, in units of the scores")
        if reference is None and self.epsilon == 0.0:
            raise ValueError("epsilon is 0 and there is no reference; give something to compare with, or the accuracy "
                             "epsilon at which the mean is known well enough")
        self.delta = _checks.probability(delta, "delta")
        self.support = _checks.interval(support)
        self.score = score
        self.order = _checks.choice(order, "order", ("random", "given"))
        self.missing = _checks.choice(missing, "missing", ("worst", "raise"))
        self.reference: float | dict[str | int, float] | None
        if isinstance(reference, EvalLog):
            self.reference = self._scores_of(reference)
        elif isinstance(reference, Mapping):
            self.reference = {key: self._value(value, f"the reference of sample {key}") for key, value in
                              reference.items()}
        else:
            if isinstance(reference, str):
                raise TypeError(f"reference is {_checks.shown(reference)}; a number, a mapping from sample ids to "
                                f"scores, or a log is needed: read_eval_log(file) reads one")
            self.reference = None if reference is None else _checks.real(reference, "reference")
            if self.reference is not None and not self.support[0] <= self.reference <= self.support[1]:
                raise ValueError(f"reference is {reference}, outside support={self.support}; give a number inside, or "
                                 f"widen the support")
        self.results: list[dict[str, Any]] = []

    async def start_task(self, task: Any, samples: Sequence[Any], epochs: int) -> str:
        """Begin an evaluation; Inspect calls this.

        Parameters
        ----------
        task : EvalSpec
            The task.
        samples : list of Sample
            Its samples, in the order in which they are to be evaluated.
        epochs : int
            Times that each sample is evaluated.

        Returns
        -------
        str
            The name of the manager.
        """
        shuffle = task.config.sample_shuffle
        if self.order == "random" and not task.dataset.shuffled and (shuffle is None or shuffle is False):
            raise ValueError(f"the samples of task {task.task!r} are not shuffled, and the promise is about samples in "
                             f"random order; run eval(..., sample_shuffle=True), or give order='given' if their order "
                             f"has nothing to do with the scores")
        names = [scorer.name for scorer in task.scorers or ()]
        if self.score is None and len(names) > 1:
            raise ValueError(f"task {task.task!r} has the scorers {', '.join(names)}; say whose scores count: "
                             f"score={names[0]!r}")
        ids = [sample.id for sample in samples]
        reference: float | NDArray[np.float64] = 0.0
        if isinstance(self.reference, dict):
            lacking = [key for key in ids if key not in self.reference]
            if lacking:
                raise ValueError(f"the reference has no score of sample {lacking[0]!r} of task {task.task!r}, and "
                                 f"{len(lacking)} of {len(ids)} are missing; it must cover all samples, so run it to "
                                 f"its end, with the same limit")
            reference = np.array([self.reference[key] for key in ids])
        elif self.reference is not None:
            reference = self.reference
        run = _Run(self, task, ids, epochs, reference)
        _RUNS.set({**_RUNS.get({}), id(self): run})
        return "fastrace"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Say whether a sample is to be left out; Inspect calls this.

        Parameters
        ----------
        id : str or int
            The sample.
        epoch : int
            The epoch, from 1.

        Returns
        -------
        EarlyStop or None
            A reason to leave it out, or None.
        """
        run = self._running()
        if run.verdict == UNKNOWN:
            return None
        return EarlyStop(id=id, epoch=epoch, reason=run.reason())

    async def complete_sample(self, id: str | int, epoch: int, scores: Mapping[str, Any]) -> None:
        """Take the scores of a sample; Inspect calls this.

        Parameters
        ----------
        id : str or int
            The sample.
        epoch : int
            The epoch, from 1.
        scores : dict of str to SampleScore
            Its scores, by scorer.
        """
        found = scores.get(self.score) if self.score is not None else next(iter(scores.values()), None)
        self._running().take(id, epoch, None if found is None else found.score.value)

    async def complete_task(self) -> dict[str, Any]:
        """End an evaluation; Inspect calls this, and keeps what comes back in the log.

        Returns
        -------
        dict
            What is known, as in `results`.
        """
        self.results.append(self._running().result())
        return dict(self.results[-1])

    def _running(self) -> _Run:
        run = _RUNS.get({}).get(id(self))
        if run is None:
            raise RuntimeError("no evaluation has begun here: start_task comes first, in the same asynchronous task")
        return run

    def _scores_of(self, log: EvalLog) -> dict[str | int, float]:
        """Mean score of each sample of a log, over its epochs."""
        if not log.samples:
            raise ValueError("reference is a log without samples; read it with them: read_eval_log(file)")
        found: dict[str | int, list[float]] = {}
        for sample in log.samples:
            scores = sample.scores or {}
            if self.score is None and len(scores) > 1:
                raise ValueError(f"the reference has the scores {', '.join(scores)}; say which count: "
                                 f"score={next(iter(scores))!r}")
            one = scores.get(self.score) if self.score is not None else next(iter(scores.values()), None)
            value = None if one is None else one.value
            found.setdefault(sample.id, []).append(self._value(value, f"the reference of sample {sample.id}"))
        return {key: float(np.mean(values)) for key, values in found.items()}

    def _value(self, value: Any, of: str) -> float:
        """A score of the reference as a number inside the support."""
        number = as_number(value)
        if number is None:
            if self.missing == "raise":
                raise ValueError(f"{of} is {value!r}; a number is needed, or missing='worst' to count it as the worst")
            return self.support[0]
        if not self.support[0] <= number <= self.support[1]:
            raise ValueError(f"{of} is {number}, outside support={self.support}; widen the support")
        return number


def as_number(value: Any) -> float | None:
    """A score as a number, letters such as "C" as Inspect reads them; None if it is none."""
    if value is None or not isinstance(value, str | int | float | bool | np.number):
        return None
    number = float(value_to_float()(value))
    return number if math.isfinite(number) else None


class _Run:
    """One evaluation: scores in the order of its samples, an interval for each epoch, a verdict."""

    def __init__(
        self, manager: RacingEarlyStopping, task: Any, ids: list[Any], epochs: int,
        reference: float | NDArray[np.float64],
    ) -> None:
        self.manager = manager
        self.names = {"task": task.task, "model": task.model}
        self.position = {key: k for k, key in enumerate(ids)}
        self.scores = np.full((epochs, len(ids)), np.nan)
        self.reference = np.broadcast_to(np.asarray(reference, np.float64), len(ids))
        low, high = manager.support
        support = (low - high, high - low) if np.ndim(reference) else (low - float(reference), high - float(reference))
        n_rows = len(ids) if epochs == 1 else None
        self.sequences = [ConfidenceSequence(delta=manager.delta / epochs, support=support, n_rows=n_rows)
                          for _ in range(epochs)] if ids else []
        self.n_missing = 0
        self.notes: list[str] = []
        self.void = False
        self.verdict = UNKNOWN

    def take(self, key: Any, epoch: int, value: Any) -> None:
        """Take one score, and all that waited for it."""
        k, number = self.position.get(key), as_number(value)
        if k is None or epoch > len(self.scores):
            return self._give_up(f"sample {key!r} was added while the evaluation ran")
        if number is None:
            if self.manager.missing == "raise":
                raise ValueError(f"the score of sample {key!r} is {value!r}; a number is needed, or missing='worst' to "
                                 f"count it as the worst")
            self.n_missing += 1
            number = self.manager.support[0]
        low, high = self.manager.support
        if not low <= number <= high:
            return self._give_up(f"the score of sample {key!r} is {number}, outside support=({low}, {high})")
        if math.isnan(self.scores[epoch - 1, k]):           # what is evaluated again later has had its turn
            self.scores[epoch - 1, k] = number
            self._advance()
        return None

    def _give_up(self, why: str) -> None:
        if not self.void and self.verdict == UNKNOWN:
            self.void = True
            self.notes.append(f"{why}: the evaluation runs to its end without a verdict")
            warnings.warn(f"early stopping of {self.names['task']}: {self.notes[-1]}", stacklevel=4)

    def _advance(self) -> None:
        """Feed each epoch's sequence what is known of its samples, up to the first one that is still missing."""
        if self.void:
            return
        for e, sequence in enumerate(self.sequences):
            begun = sequence.n_samples
            known = np.isfinite(self.scores[: e + 1, begun:]).all(axis=0)
            end = begun + (int(known.argmin()) if not known.all() else known.size)
            if end > begun and not sequence.stopped:
                gains = self.scores[: e + 1, begun:end].mean(axis=0) - self.reference[begun:end]
                sequence.update_many(gains)
        if self.verdict == UNKNOWN:
            self.verdict = self._verdict()

    def interval(self) -> tuple[float, float]:
        """Interval of the mean difference, or of the mean: what the sequences of all epochs leave."""
        ends = [sequence.interval for sequence in self.sequences]
        low, high = max((end[0] for end in ends), default=-math.inf), min((end[1] for end in ends), default=math.inf)
        return float(low), float(high)

    def _verdict(self) -> str:
        (low, high), epsilon = self.interval(), self.manager.epsilon
        if low > high:
            self._give_up("no mean fits the scores, which a random order makes as unlikely as delta")
            return UNKNOWN
        if self.manager.reference is None:
            return "known" if high - low <= 2.0 * epsilon else UNKNOWN
        if low > 0.0 or high < 0.0:
            return "better" if low > 0.0 else "worse"
        return "equivalent" if -epsilon <= low and high <= epsilon else UNKNOWN

    def reason(self) -> str:
        """Why samples are left out."""
        low, high = self.interval()
        what = "the mean" if self.manager.reference is None else "the difference to the reference"
        return f"{self.verdict}: {what} lies in [{low:.4g}, {high:.4g}] with probability {1.0 - self.manager.delta:g}"

    def result(self) -> dict[str, Any]:
        """What is known, in words and numbers that JSON takes."""
        low, high = self.interval()
        read = np.isfinite(self.scores)
        waiting = [key for key, k in self.position.items() if not read[0, k] and read[0, k:].any()]
        notes = list(self.notes)
        if waiting and self.verdict == UNKNOWN and not self.void:
            notes.append(f"sample {waiting[0]!r} has no score, and scores after it wait for it")
        if self.n_missing:
            notes.append(f"{self.n_missing} scores are missing, and count as the worst")
        first = self.sequences[0].n_samples if self.sequences else 0
        gains = np.nanmean(self.scores[:, :first], axis=0) - self.reference[:first]
        one = len(self.scores) == 1
        return {
            **self.names,
            "verdict": self.verdict,
            "lower": low if math.isfinite(low) else None,
            "upper": high if math.isfinite(high) else None,
            "estimate": float(gains.mean()) if first else None,
            "n_read": int(read.sum()),
            "n_samples": len(self.position),
            "epochs": len(self.scores),
            "n_missing": self.n_missing,
            "delta": self.manager.delta,
            "epsilon": self.manager.epsilon,
            "about": "the mean over the samples of the task" if one else "the expected score of samples like these",
            "notes": notes,
        }
