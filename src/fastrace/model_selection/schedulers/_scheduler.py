"""What all methods share: who was asked for what, what came back, what it cost, who was dropped and why."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypedDict, TypeVar

import numpy as np

from fastrace._base import _callers, _checks, _clock
from fastrace._base._docs import filled
from fastrace._base._words import counted
from fastrace.model_selection._deadline import within
from fastrace.model_selection._results import Evaluation, LearnerResult
from fastrace.model_selection.schedulers._sizes import checked_first

Allocation = tuple[int, int]
Self = TypeVar("Self", bound="Scheduler")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")
VERSION = 3
Cost = str | Callable[[int, int], float]
IN_FULL = "all learners were trained in full at once"
OUT_OF_TIME = "max_seconds was reached: best is the best of the trainings so far"
NONE_LEFT = "no rows are left within the cost of training all in full"

# Paragraphs of the pages of several methods, which hold their names in braces.
SHARED = {
    "size": """\
n_learners : int
    Learners to choose from, at least 1.
n_rows : int
    Rows of a full training (N in DAUB's paper, R in Hyperband's).""",
    "first": """\
first : {"exhaust", "smallest"} or int, default "exhaust"
    Rows of the first round. ``"exhaust"`` makes the last round as large as it gets, ``"smallest"`` is `smallest`.""",
    "rounds": """\
growth : float, optional
    Factor between sizes. By default `factor`, with the rounds of scikit-learn's halving searches; otherwise rounds
    go on until `n_rows` or until one learner is left.
sizes : sequence of int, optional
    The sizes themselves, the last one `n_rows`.
smallest : int, default 1
    Fewest rows of a round.
aggressive : bool, default False
    Repeat the first size until as many are left as the rows allow for.
finish : bool, default True
    Train the winner on all rows at the end, if it has not been.""",
    "common": """\
direction : {"maximize", "minimize"}, default "maximize"
    Whether large or small scores are good. Scores may have any scale: decisions are the same for s and a s + b.
cost : {"rows", "seconds"} or callable, default "rows"
    What a training costs: its rows, the seconds between `ask` and `tell`, or ``cost(learner, n)``. Costs are
    reported and count against the budget; they do not guide the choice.
budget : float, optional
    Total cost after which to stop with the best validation score so far.
names : sequence of str, optional
    Names of the learners, for printing.""",
}


class Common(TypedDict, total=False):
    """The options of every method."""

    direction: str
    cost: Cost
    budget: float | None
    names: Sequence[str] | None


def _alone(
    method: Callable[Concatenate[Self, Given], Answer],
) -> Callable[Concatenate[Self, Given], Answer]:
    """Let one thread at a time call a method, so that workers may share what asks: the others wait."""

    @functools.wraps(method)
    def locked(self: Self, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        with self._lock:
            return method(self, *given, **named)

    return locked


class Scheduler:
    """Base of the methods: `ask` for a training, `tell` its scores.

    Subclasses say which training comes next (`_propose`), take one that gave scores (`_take`), and may name the
    learner that is best so far (`_leader`). Scores reach them with the sign that makes larger better.
    """

    __signature__: inspect.Signature | None
    _first = 0                                # rows of the first training that were asked for, if there are not so many

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__doc__ = filled(cls.__doc__, SHARED)
        if "__init__" not in vars(cls):
            return
        if cls.__module__.partition(".")[0] == "fastrace":
            _complete(cls)
        else:
            cls.__signature__ = None              # that of its own constructor, not that of the class above

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        *,
        direction: str = "maximize",
        cost: Cost = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._n_learners = _checks.integer(n_learners, "n_learners", 1, "there must be something to choose")
        _checks.room(100.0 * self._n_learners, f"n_learners is {n_learners}: what is known of them")
        self._n_rows = _checks.integer(n_rows, "n_rows", 1, "learners are trained on rows")
        self._direction = _checks.choice(direction, "direction", ("maximize", "minimize"))
        self._upward = 1.0 if self._direction == "maximize" else -1.0
        self._price = cost if callable(cost) else None
        self._cost = "own" if callable(cost) else _checks.choice(cost, "cost", ("rows", "seconds"))
        self._by_rows = self._price is None and self._cost == "rows"
        self._budget = math.inf if budget is None else _checks.real(budget, "budget")
        if not self._budget > 0.0:
            raise ValueError(f"budget is {budget}; a positive cost is needed, or None for no limit")
        self._limited = self._budget < math.inf
        self._names = _checks.arm_names(names, self._n_learners, "learner")
        self._spent = 0.0
        self._outstanding: dict[Allocation, float] = {}
        self._reserved: dict[Allocation, float] = {}   # what outstanding trainings will cost, where a budget asks
        self._ahead = 0.0                         # their sum
        self._returned: deque[Allocation] = deque()
        self._log: list[tuple[int, int, float, float, float, float, str]] = []
        self._uncounted: set[Allocation] = set()  # failed and deferred: their rows are not counted
        self._dropped: dict[int, str] = {}
        self._reached = [0] * self._n_learners
        self._last = [math.nan] * self._n_learners
        self._stopped_by = ""
        self._best = -1
        self._lock = threading.RLock()            # user's prices may look at the run that asks for them

    # What a method says.

    def _propose(self) -> Allocation | None:
        """The next training, or None while it depends on one that is outstanding."""
        raise NotImplementedError

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        """Take scores, larger better; return the learner's projected bound, nan if there is none."""
        raise NotImplementedError

    def _left(self, learner: int) -> None:
        """A learner was dropped."""

    def _defer(self, learner: int, n: int) -> bool:
        """Try a learner that failed on n rows again on more; False if there are none, or the method cannot."""
        return False

    def _leader(self) -> int:
        """The learner whose last validation score is best, on however many rows; -1 if there is none."""
        scored = (i for i in range(self._n_learners) if self._reached[i] and i not in self._dropped)
        return max(scored, key=lambda i: (self._upward * self._last[i], -i), default=-1)

    def _stand_ins(self) -> list[int]:
        """Who goes on where all that were meant to have crashed: the leader, or else all that were never trained."""
        leader = self._leader()
        return [leader] if leader >= 0 else [i for i in range(self._n_learners) if i not in self._dropped]

    def _method(self) -> str:
        return type(self).__name__

    def _warnings(self) -> tuple[str, ...]:
        if not self._first:
            return ()
        return (f"first is {self._first} and there are {self._n_rows} rows, so each training takes all rows; a smaller "
                f"first lets most learners train on few",)

    def _checked_first(self, first: int) -> int:
        """Rows of the first training; the result says so if there are not so many."""
        found = checked_first(first)
        self._first = found if found > self._n_rows else 0
        return found

    # What users call.

    @property
    def n_learners(self) -> int:
        """Learners to choose from."""
        return self._n_learners

    @property
    def n_rows(self) -> int:
        """Rows of a full training."""
        return self._n_rows

    @property
    def done(self) -> bool:
        """Whether the choice has been made."""
        return self._stopped_by != ""

    @property
    def spent(self) -> float:
        """Cost of all trainings that have ended."""
        return self._spent

    @property
    @_alone
    def outstanding(self) -> list[Allocation]:
        """Trainings asked for that have not ended, in the order asked."""
        return list(self._outstanding)

    @property
    @_alone
    def dropped(self) -> dict[int, str]:
        """Learners that failed, and why."""
        return dict(self._dropped)

    def ask(self) -> Allocation | None:
        """Return the next training as (learner, rows).

        Each call hands out another training, so that several may run at once; call `tell` in any order, from any
        thread. With one at a time the method is exactly that of its paper.

        Returns
        -------
        (int, int) or None
            None if the next decision must wait for a training that is outstanding, or if the budget has run out;
            look at `done`.

        Raises
        ------
        RuntimeError
            If the choice has been made.
        """
        with self._lock:
            if self._stopped_by:
                raise RuntimeError(f"the selection is over, stopped by {self._stopped_by!r}: see result()")
            item = self._again() if self._returned else None
            if item is None:
                item = self._propose()
                if item is None:
                    return None
            if self._limited:
                try:
                    price = 0.0 if self._cost == "seconds" else self._charge(*item, None)
                except BaseException:             # of the user's cost; the method has moved on
                    self._returned.appendleft(item)
                    raise
                if self._spent + self._ahead + price > self._budget or self._spent >= self._budget:
                    self._returned.appendleft(item)
                    if not self._outstanding:
                        self._stop("budget", self._leader())
                    return None
                self._reserved[item] = price
                self._ahead += price
            self._outstanding[item] = 0.0 if self._by_rows else time.perf_counter()
            return item

    def _again(self) -> Allocation | None:
        """The first training that was taken back, of a learner that was not dropped since."""
        while self._returned:
            item = self._returned.popleft()
            if item[0] not in self._dropped:
                return item
        return None

    def tell(
        self,
        learner: int,
        n: int,
        train_score: float | None,
        valid_score: float,
        cost: float | None = None,
    ) -> None:
        """Take the scores of a training that was asked for.

        Parameters
        ----------
        learner, n : int
            The training, as `ask` returned it.
        train_score : float or None
            Score on the rows trained on; None if it is not known.
        valid_score : float
            Score on held-out rows. A score that is nan or infinite drops the learner.
        cost : float, optional
            Cost of the training, at least 0; by default what the method's `cost` says.

        Raises
        ------
        ValueError, TypeError
            If the training was not asked for, a score is not a number, or the cost is negative or nan; nothing is
            changed then.
        """
        with self._lock:
            key = learner, n
            asked = self._outstanding.get(key)
            if asked is None:
                raise ValueError(f"learner {learner} on {n} rows was not asked for; tell what ask() returned, once")
            valid = valid_score if type(valid_score) is float else _score(valid_score, "valid_score")
            if train_score is None:
                train, given, usable = math.inf, math.nan, True
            else:
                given = train_score if type(train_score) is float else _score(train_score, "train_score")
                train, usable = self._upward * given, given == given
            price = float(n) if cost is None and self._by_rows else self._charge(learner, n, cost, asked)
            self._close(key)
            self._spent += price
            if learner in self._dropped:
                self._log.append((learner, n, given, valid, price, math.nan, "dropped before"))
                return
            if not (usable and math.isfinite(valid)):
                what = f"validation score is {valid}" if usable else "training score is nan"
                self._log.append((learner, n, given, valid, price, math.nan, what))
                self._drop(learner, f"{what} on {n} rows")
                return
            if n >= self._reached[learner]:
                self._reached[learner], self._last[learner] = n, valid
            bound = self._take(learner, n, train, self._upward * valid)
            self._log.append((learner, n, given, valid, price, self._upward * bound, ""))

    @_alone
    def fail(
        self, learner: int, n: int, reason: object, cost: float | None = None, *, defer: bool = False
    ) -> None:
        """Say that a training that was asked for crashed or took too long; the run goes on without the learner.

        Parameters
        ----------
        learner, n : int
            The training, as `ask` returned it.
        reason : object
            What happened: words or an exception.
        cost : float, optional
            Cost of the training, as for `tell`; with `defer` its rows are not counted.
        defer : bool, default False
            Do not drop the learner but try it on more rows: it may need some (neighbours, classes). `DAUB` and the
            halvings can do so; other methods drop it, as these do once it fails on all rows.
        """
        asked = self._outstanding.get((learner, n))
        if asked is None:
            raise ValueError(f"learner {learner} on {n} rows was not asked for; fail what ask() returned, once")
        price = 0.0 if defer and cost is None and self._by_rows else self._charge(learner, n, cost, asked)
        self._close((learner, n))
        self._spent += price
        text = str(reason)
        if isinstance(reason, BaseException):
            text = f"{type(reason).__name__}: {next(iter(text.splitlines()), '')}"
        self._log.append((learner, n, math.nan, math.nan, price, math.nan, text))
        if defer:
            self._uncounted.add((learner, n))
        if learner not in self._dropped and not (defer and self._defer(learner, n)):
            self._drop(learner, f"{text} on {n} rows")

    @_alone
    def cancel(self) -> None:
        """Take back all outstanding trainings, of workers that died or before a restart; `ask` hands them out again."""
        self._returned = deque([*self._outstanding, *self._returned])
        self._outstanding.clear()
        self._reserved.clear()
        self._ahead = 0.0

    def run(
        self: Self,
        train: Callable[[int, int], Any],
        *,
        time_limit: float | None = None,
        max_seconds: float | None = None,
        callback: Callable[[Self], Any] | None = None,
    ) -> LearnerResult:
        """Train until the choice has been made.

        Parameters
        ----------
        train : callable
            ``train(learner, n)`` trains on n rows and returns (training score or None, validation score), or these and
            a cost. An exception drops the learner; KeyboardInterrupt and SystemExit do not: the training is taken
            back, and a later call goes on.
        time_limit : float, optional
            Seconds after which a training is given up and its learner dropped. Python cannot kill it: it goes on in
            a thread of its own until it ends.
        max_seconds : float, optional
            Seconds after which no further training is begun, and the learner that is best so far is returned,
            ``stopped_by="max_seconds"``. A training that is under way is waited for, and one at least brings a score.
            Another call goes on.
        callback : callable, optional
            Called with this object after each training; a true answer stops with the best so far.

        Returns
        -------
        LearnerResult
            The learner chosen, and what each training cost and brought.

        Raises
        ------
        RuntimeError
            If every learner was dropped, with the reasons; its cause is the last exception of a training.
        TypeError
            If `train` cannot be called with a learner and a number of rows.
        """
        _checks.takes(train, "train", "learner", "n", hint="; it trains a learner on n rows")
        if time_limit is not None:
            _clock.seconds(time_limit, "time_limit")
        end = _clock.deadline(max_seconds)
        self.cancel()
        last = blamed = None                    # the last error of a training, and whose it was
        while not self._stopped_by and not self._late(end):
            item = self.ask()
            if item is None:
                continue                        # the budget has run out
            began = time.perf_counter()
            try:
                answer = _called(train, item, time_limit)
                if not hasattr(answer, "__len__") or isinstance(answer, (str, bytes)) or len(answer) not in (2, 3):
                    raise TypeError(f"train returned {_checks.shown(answer)}; (training score or None, validation "
                                    f"score), and "
                                    f"perhaps a cost, are needed")
                seconds = time.perf_counter() - began if self._cost == "seconds" else None
                self.tell(*item, answer[0], answer[1], answer[2] if len(answer) == 3 else seconds)
            except Exception as error:
                if item not in self._outstanding:
                    raise
                last, blamed = error, item
                self.fail(*item, error, time.perf_counter() - began if self._cost == "seconds" else None)
            except BaseException:
                self.cancel()
                raise
            if callback is not None and callback(self) and not self._stopped_by:
                self._stop("callback", self._leader())
        try:
            return self._as_it_stands("" if self._stopped_by else "max_seconds")
        except RuntimeError as none_left:
            hint = f"; train{blamed} raised the last of these errors: call it yourself to see where" if last else ""
            raise RuntimeError(f"{none_left}{hint}") from last

    def result(self) -> LearnerResult:
        """Return the choice, or the best so far while the run goes on.

        Raises
        ------
        RuntimeError
            If every learner was dropped, with the reasons, or if nothing has been told yet.
        """
        return self._as_it_stands()

    @_alone
    def _late(self, end: float) -> bool:
        """Whether the time has come to stop with what is known, if anything is."""
        return _clock.over(end) and self._leader() >= 0

    @_alone
    def _as_it_stands(self, ended: str = "") -> LearnerResult:
        """The result of a run, which may have been `ended` from without."""
        best = self._best if self._stopped_by else self._leader()
        if best < 0:
            if self._dropped:
                raise RuntimeError(f"no learner is left: {self._reasons()}")
            raise RuntimeError("no training has ended yet, so there is no best learner")
        rows, cost = np.zeros(self._n_learners, np.int64), np.zeros(self._n_learners)
        bound = np.full(self._n_learners, np.nan)
        for learner, n, _, _, price, upper, _ in self._log:
            rows[learner] += 0 if (learner, n) in self._uncounted else n
            cost[learner] += price
            bound[learner] = upper
        return LearnerResult(
            best=best,
            score=self._last[best],
            n_rows=self._n_rows,
            rows=rows,
            cost=cost,
            reached=np.array(self._reached, np.int64),
            scores=np.array(self._last),
            bound=bound,
            history=tuple(Evaluation(*line) for line in self._log),
            dropped=dict(self._dropped),
            method=self._method(),
            stopped_by=self._stopped_by or ended,
            direction=self._direction,
            warnings=self._warnings() + ((OUT_OF_TIME,) if ended and not self._stopped_by else ()),
            names=self._names,
        )

    # Inside.

    def _close(self, item: Allocation) -> None:
        """An outstanding training has ended."""
        del self._outstanding[item]
        if self._limited:
            self._ahead -= self._reserved.pop(item)
            if not self._reserved:
                self._ahead = 0.0                 # no rounding is carried along

    def _reasons(self) -> str:
        """Why learners were dropped, each reason once."""
        found: dict[str, list[int]] = {}
        for learner, why in self._dropped.items():
            found.setdefault(why, []).append(learner)
        words = []
        for why, (i, *others) in list(found.items())[:10]:
            label = f"learner {i}" if self._names is None else self._names[i]
            words.append(f"{label}{f' and {len(others)} more' if others else ''}: {why}")
        return "; ".join(words) + ("; ..." if len(found) > 10 else "")

    def _charge(self, learner: int, n: int, cost: float | None, asked: float = 0.0) -> float:
        if cost is not None:
            price = _checks.real(cost, "cost")
        elif self._price is not None:
            price = _checks.real(self._price(learner, n), "cost")
        elif self._cost == "rows":
            return float(n)
        else:
            price = time.perf_counter() - asked
        if price < 0.0:
            raise ValueError(f"cost is {price}; at least 0 is needed")
        return price

    def _drop(self, learner: int, reason: str) -> None:
        self._dropped[learner] = reason
        self._reached[learner] = 0
        self._last[learner] = math.nan
        if len(self._dropped) == self._n_learners:
            self._stop("all dropped", -1)
        else:
            self._left(learner)

    @_alone
    def _stop(self, why: str, best: int) -> None:
        self._stopped_by, self._best = why, best

    @_alone
    def __reduce__(self) -> tuple[Any, ...]:
        state = {key: value for key, value in self.__dict__.items() if key != "_lock"}
        return _rebuild.saved(type(self), copy.deepcopy(state))     # a copy: other threads go on while it is written

    def __copy__(self: Self) -> Self:
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        state = f"stopped by {self._stopped_by}" if self._stopped_by else "running"
        return f"{self._method()}: {counted(len(self._log), 'training')}, {state}"


def _complete(cls: type[Scheduler]) -> None:
    """Give a method the signature and the errors of its own: its last ``**parameter`` stands for options of its base.

    ``**common`` are those of `Scheduler`, others those of the class above.
    """
    build: Callable[..., None] = cls.__init__
    _, *own = inspect.signature(build).parameters.values()
    given = {part.name: part for part in own if part.kind is not part.VAR_KEYWORD}
    for part in own:
        if part.kind is part.VAR_KEYWORD:
            base = inspect.signature(Scheduler if part.name == "common" else cls.__mro__[1]).parameters.values()
            given |= {more.name: more for more in base if more.kind is more.KEYWORD_ONLY and more.name not in given}
    cls.__signature__ = inspect.Signature(list(given.values()))

    @functools.wraps(build)
    def built(self: Scheduler, *args: Any, **options: Any) -> None:
        with _callers.options_of(type(self).__name__):
            unknown = [name for name in options if name not in given]
            if unknown:
                raise TypeError(f"there is no parameter {unknown[0]!r}; there are {', '.join(given)}")
            build(self, *args, **options)

    cls.__init__ = built     # type: ignore[method-assign]


@_checks.rebuilds(VERSION, Scheduler, subclasses=True)
def _rebuild(cls: type[Scheduler], state: dict[str, Any]) -> Scheduler:
    """Rebuild a pickled method."""
    made = cls.__new__(cls)
    made.__dict__.update(state)
    made._lock = threading.RLock()
    return made


def _score(value: Any, name: str) -> float:
    """A float, nan and infinities among them."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {_checks.shown(value)} of type {type(value).__name__}; a number is needed")
    return float(value)


def _called(train: Callable[[int, int], Any], item: Allocation, limit: float | None) -> Any:
    """What ``train(*item)`` returns; TimeoutError if it takes longer than `limit` seconds."""
    if limit is None:
        return train(*item)
    ended, answer = within(limit, lambda: train(*item))
    if not ended:
        raise TimeoutError(f"took longer than {limit:g} s")
    return answer
