"""Races whose rewards are requests: to a language model, a simulator, a service; many of them under way at once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import inspect
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from fastrace._base import _callers, _checks, _clock
from fastrace._base._handed import handed_over
from fastrace._base._progress import meter
from fastrace._base._requests import AHEAD, InFlight
from fastrace._base._words import counted, doubtful_after
from fastrace.races._calls import Caller, Evaluate, NotSentError, Request, SendError, StuckError
from fastrace.races._journal import Journal
from fastrace.races.racing import FiniteRace
from fastrace.results.base import plain

FIRST_WAIT = 0.5            # seconds before the first retry; twice as long before each further one
MANY = 10                   # failures in a row, without any answer before, that show the function at fault
DOWN = ("This came of the answers in {}. Where some are missing because a service was down, remove the lines with "
        "\"reward\": null, which are asked for again then.")
AGAIN = "{} failed and had to be sent again; cost and max_pulls count each call; the first raised {}"
GIVEN_UP = "{} failed and could not be sent again before {} was reached; the first that failed raised {}"
LOST = ("the journal has {} without an answer, under way when the process ended: what is still wanted of them is sent "
        "again; n_failed, cost and max_pulls count each call")
UNCOMPARED = ("max_pulls", "cost")      # what may differ when a race goes on from its journal
_KNOWN = frozenset(inspect.signature(FiniteRace).parameters)    # options of a race
_AT_WORK: set[int] = set()              # identities of races that requests are made for


async def race_async(
    evaluate: Evaluate,
    n_arms: int | None = None,
    n_rows: int | None = None,
    delta: float = 0.05,
    *,
    race: InFlight | None = None,
    concurrency: int = 64,
    retries: int = 2,
    timeout: float | None = None,
    max_seconds: float | None = None,
    journal: str | os.PathLike[str] | None = None,
    rng: _checks.RngLike = None,
    progress: bool = False,
    **options: Any,
) -> Any:
    """Find the arm with the largest mean by requests, many of them under way at once, and pay for as few as possible.

    Parameters
    ----------
    evaluate : callable
        ``await evaluate(arm, row)`` gives the reward of an arm on a row: a number, or None where there is no answer. A
        plain function is called in threads, `concurrency` of them, so that it does not hold up the event loop. For a
        `LUCB`, ``evaluate(arm, pull)``: the number of the pull, those of an arm counted from 0. For a `BettingRace`,
        ``evaluate(arm, round)``.
    n_arms : int
        Number of arms: models, prompts, policies.
    n_rows : int
        Rows of the population: questions, games, patients.
    delta : float, default 0.05
        Probability that the answer is wrong.
    race : FiniteRace, LUCB or BettingRace, optional
        A race to go on with, begun, stopped short or just made; it stands for sizes, `delta`, `rng` and all its
        options. What it has asked for elsewhere, and not been told, is asked for again. ``race=fr.LUCB(...)`` is the
        way for streams, such as a simulator: no two pulls of an arm are alike, and there is no `n_rows` of them;
        ``race=fr.BettingRace(...)`` is that for streams whose arms share the draws of a round, such as seeds.
    concurrency : int, default 64
        Most requests under way at once.
    retries : int, default 2
        How often a request that raises an exception is sent again: after half a second, then after twice as long each
        time. Whatever it raises: whether a TypeError is a mistake of yours or of an answer, nobody can tell. With 0 the
        first exception ends the race, so that what has been paid for is in ``error.race``. How many were sent again
        stands in ``result.warnings``. Every call that began is charged: `max_pulls` and ``result.cost`` count those
        that failed, too, and ``result.n_failed`` says how many these were. A request is sent again only while
        `max_pulls` leaves a call for it. If it does not, the race ends once no call is under way, with what it can use:
        over rows, the answers before the first row that lacks one.
    timeout : float, optional
        Seconds after which a request counts as one that raised a TimeoutError. By default the race waits for each as
        long as it takes. The time of a plain function begins when a thread takes it. Nothing stops a thread: the
        function holds it until it returns. Its late answer is used if the reward is still asked for; what waits for a
        thread and is no longer needed is not called. Where such calls hold all threads, a warning says so; if none of
        them returns within ten times `timeout`, that is an error, also where rewards may be missing.
    max_seconds : float, optional
        Seconds after which no further request is sent, nor one that failed sent again. Requests under way are awaited,
        each for `timeout` at most, and their rewards taken; those that no thread has taken are not sent.
        The result is what the last look knew, ``stopped_by="max_seconds"``. ``race_async(evaluate, race=result.race)``
        goes on, as does the same call with its `journal`; neither asks again for what has been answered. The clock
        starts once the journal is read.
    journal : str or path, optional
        A file that gets a line of JSON per call, and per reward as soon as it is there. If the file exists,
        the race goes on with it: it asks for nothing that stands in it, and counts the calls that failed. The journal
        of another race is refused. Beside `race` it needs a `LUCB` or `BettingRace` of which nothing has been asked
        yet; make the same one again to go on. Where it holds more calls than `max_pulls`, all rewards in it are used,
        and a warning of the result says so. Each call has a line before it is made. So those that were under way when
        the process was killed are known: they count as calls that failed, and a warning of the result says how many.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness. With a journal, the seed stands in it, and None takes that.
    progress : bool, default False
        Show how many rewards there are on standard error.
    **options
        Of `FiniteRace`: `support`, `bound`, `names`, `max_pulls`, `first_look` and so on. Beside a `LUCB` or
        `BettingRace`, `max_pulls`: most calls to pay for, those that failed and those before this call of `race_async`
        included. It may be called again with more, as may `run` of the rule, whose `max_pulls` counts them too. What a
        `LUCB` asks for depends on whether they are fewer than 512 per arm; the journal knows how many they were.

    Returns
    -------
    RaceResult, SelectionResult or StreamRaceResult
        As of the same race with one request at a time: neither the number of requests, nor their speed, nor calls that
        fail and are made again change it. Only with `max_pulls` may the race end at another row, since what was asked
        for in vain and what failed is paid for too. `n_unused` counts what was asked for in vain, requests that were
        still under way at the end included, and `n_failed` the calls that failed.

    Raises
    ------
    ValueError
        If an argument is out of range, the journal is of another race, or a reward is nan, +inf or outside the support.
    TypeError
        If `evaluate` returns what is neither a number nor None.
    TimeoutError
        If every thread hangs: see `timeout`.
    Exception
        What `evaluate` raises once more after its retries. Before that, requests under way are awaited and their
        rewards taken. Cancellation and Ctrl-C abandon requests that can be cancelled, and wait for those in threads.
        Every such exception has the race with all that has been answered as its attribute ``race``:
        ``error.race.result()`` is what is known, and ``race_async(evaluate, race=error.race)`` goes on and asks for
        nothing twice. What asyncio raises in its place has that exception behind it: the TimeoutError of
        `asyncio.wait_for` and `asyncio.timeout` as its ``__cause__``, so that ``error.__cause__.race`` is the race, and
        the KeyboardInterrupt of `asyncio.run` after Ctrl-C as its ``__context__``. A race that you made yourself and
        gave as `race` has it all, too.

    Notes
    -----
    The promise is that of `FiniteRace`. The order of rows is fixed beforehand, and rewards enter the race in that
    order; those that come early are held back. Requests run ahead of the next look by at most twice `concurrency`
    rewards: so much is asked for in vain when the race ends, and a share of it whenever an arm leaves. A `LUCB` takes
    the rewards of an arm in the order of its pulls; what runs ahead of what it asks for is used in time, but for some
    of it at the end: at most twice `concurrency`, or a sixteenth of all pulls, if that is more. So it costs little,
    unless few pulls decide: then take a `concurrency` well below their number. For ``LUCB(paired=True)``, the number of
    a pull is that of a draw, which its arms share, and nothing runs ahead; a larger `batch` lets more requests be under
    way.
    Where the race takes missing rewards (`missing`), None, nan and requests that fail after their retries are such. A
    function that fails from the beginning, without any answer, is an error all the same.
    A `LUCB` or `BettingRace` with epsilon 0 and neither `max_pulls` nor `max_seconds` never ends where means at the cut
    are equal. A warning says so after 20,000 rewards that have not told them apart, and again after ten times as many.
    A request that was under way when the process was killed has left no answer, so it is sent again, and both calls are
    charged. Each line of the journal goes to the operating system at once; a power cut may take the last of them.
    The event loop waits while a look is judged: less than a millisecond for 12 arms and 50,000 rows.

    Examples
    --------
    >>> import asyncio
    >>> import numpy as np
    >>> import fastrace as fr
    >>> right = np.random.default_rng(0).random((5000, 3)) < [0.6, 0.7, 0.5]
    >>> async def grade(model, question):
    ...     await asyncio.sleep(0)          # here stands the call of a model
    ...     return right[question, model]
    >>> result = asyncio.run(fr.race_async(grade, 3, 5000, support=(0, 1), concurrency=16, rng=1))
    >>> result.best, result.fraction_read < 0.5
    (1, True)
    """
    unit = race._fly().unit if isinstance(race, InFlight) else "row"
    if not callable(evaluate):
        raise TypeError(f"evaluate is {_checks.shown(evaluate)}; a function of arm and {unit} is needed")
    _checks.takes(evaluate, "evaluate", "arm", unit)
    limit = _checks.integer(concurrency, "concurrency", 1, "it counts requests")
    again = _checks.integer(retries, "retries", 0, "it counts requests")
    for name, value in (("timeout", timeout), ("max_seconds", max_seconds)):
        if value is not None:
            _clock.seconds(value, name)
    begun = race is None
    with contextlib.ExitStack() as stack:
        if race is None:
            race, book, beyond = _begun(n_arms, n_rows, delta, rng, journal, options, stack)
        else:
            _claim(race, stack)
            sizes = {"n_arms": n_arms, "n_rows": n_rows, "delta": None if delta == 0.05 else delta}
            book, beyond = _gone_on(race, journal, sizes | {"rng": rng} | options, stack)
        show = stack.enter_context(meter("requests", None, _checks.flag(progress, "progress")))
        pool = None
        if not _checks.is_async(evaluate):
            pool = ThreadPoolExecutor(limit, thread_name_prefix="fastrace")
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        try:
            send = None if book is None else book.send
            caller = Caller(evaluate, pool, limit, timeout, _clock.deadline(max_seconds), send)
            crew = _Crew(race, caller, limit, again, book, show)
            await crew.work()
        except BaseException as error:
            handed_over(error, "race", race, "race_async(evaluate, race=error.race) goes on where it stopped",
                        race._paid())
            if book is not None and _checks.silent_arms(error):
                error.add_note(DOWN.format(book.path))
            raise
    late = not crew.flight.over
    result: Any = race._as_it_stands("max_seconds" if late else "")
    beyond += crew.warnings()
    if late and begun:
        result = dataclasses.replace(result, race=race)
    return dataclasses.replace(result, warnings=(*result.warnings, *beyond)) if beyond else result


def _begun(
    n_arms: int | None, n_rows: int | None, delta: float, rng: _checks.RngLike,
    journal: str | os.PathLike[str] | None, options: dict[str, Any], stack: contextlib.ExitStack,
) -> tuple[FiniteRace, Journal | None, tuple[str, ...]]:
    """A race from its beginning, or from where its journal has it; the journal; what the result is to say of it."""
    if n_arms is None or n_rows is None:
        raise TypeError("n_arms and n_rows are needed, or a race to go on with. Was race=result.race meant? It is None "
                        "where the race is over, and then the result stands: there is nothing to go on with")
    seed = _seed(rng, journal is not None)
    race = _race(n_arms, n_rows, delta, seed, options)
    if journal is None:
        return race, None, ()
    book = stack.enter_context(Journal(journal, _identity(race, seed), _described(np.random.SeedSequence())))
    beyond = _beyond(book, options.get("max_pulls"))
    if beyond:
        options = options | {"max_pulls": book.n_calls}
    race = _race(n_arms, n_rows, delta, _seed_of(book.race["seed"]), options)
    _record(race, book)
    return race, book, beyond + _lost(book)


def _gone_on(
    race: Any, journal: str | os.PathLike[str] | None, beside: dict[str, Any], stack: contextlib.ExitStack
) -> tuple[Journal | None, tuple[str, ...]]:
    """Let a race go on, or refuse what is none, and what came beside it; its journal, and what to say, as `_begun`."""
    if not isinstance(race, InFlight):
        raise TypeError(f"race is {_checks.shown(race)}; a FiniteRace, a LUCB or a BettingRace is needed")
    limit = beside.pop("max_pulls", None) if race._takes_budget else None
    spelled = [name for name, value in beside.items() if value is not None]
    identity = race._identity()
    if journal is not None and identity is None:
        instead = "make that rule" if race._takes_budget else "give n_arms, n_rows and the options of the race"
        raise ValueError(f"journal and race both came; a journal begins with its race, so that it holds every reward: "
                         f"{instead} anew")
    unknown = [name for name in beside if name not in _KNOWN]
    if unknown:
        raise TypeError(f"race_async() got an unexpected keyword argument {unknown[0]!r}")
    if spelled:
        raise ValueError(f"{', '.join(spelled)} came beside race, which has its own; leave out what a race has")
    book = None
    limit = _checks.budget(limit, 1, False)
    stack.callback(race._suit, None)
    if journal is not None:
        book = stack.enter_context(Journal(journal, plain(identity)))
        _record(race, book)
    suited = race._suit(limit)
    race._fly().again()
    if race._takes_budget:
        race._allow(limit)
    if book is not None:
        book.suit(limit if suited else None)
    return book, () if book is None else _beyond(book, limit) + _lost(book)


def _beyond(book: Journal, max_pulls: int | None) -> tuple[str, ...]:
    """What to say where a journal holds more calls than may be paid for: nothing paid for is lost."""
    if max_pulls is None or book.n_calls <= max_pulls:
        return ()
    n_vain = book.n_calls - book.n_rewards
    failed = f", and {counted(n_vain, 'call', ',')} that gave none" if n_vain else ""
    return (f"max_pulls is {max_pulls}, and the journal held {counted(book.n_rewards, 'reward', ',')} that had been "
            f"paid for before{failed}: all of them were used that the race had a use for, and no more were asked for",)


def _lost(book: Journal) -> tuple[str, ...]:
    """What to say of calls that were under way as the process ended."""
    return (LOST.format(counted(book.n_lost, "call", ",")),) if book.n_lost else ()


def _claim(race: Any, stack: contextlib.ExitStack) -> None:
    """Refuse a race that another race_async is at work on: each would wait for requests of the other for ever."""
    if id(race) in _AT_WORK:
        raise RuntimeError("race is in use by another race_async; await that one first, or make a race for each")
    _AT_WORK.add(id(race))
    stack.callback(_AT_WORK.discard, id(race))


def _record(race: InFlight, book: Journal) -> None:
    try:
        with _checks.named_arms(race._names, race._compiled_race()):
            charged: tuple[Any, Any] = book.failed, book.unused
            for limit, rewards in book.parts:
                race._suit(limit)
                race._fly().record(rewards, *charged)
                charged = 0, 0
    except ValueError as error:
        error.add_note(DOWN.format(book.path))
        raise


def _race(n_arms: int, n_rows: int, delta: float, rng: Any, options: dict[str, Any]) -> FiniteRace:
    with _callers.called_by("race_async"):
        race = FiniteRace(n_arms, n_rows, delta, rng=rng, **options)
        if n_rows == 0 and options.get("offset") is None:
            raise ValueError("n_rows is 0 and there is no offset: nothing tells the arms apart")
        return race


# The seed, and what tells one race from another.


def _seed(rng: _checks.RngLike, kept: bool) -> Any:
    """What the race draws from: a SeedSequence that a journal can keep, or None where the journal is to say it."""
    if not kept or rng is None:
        return rng
    if isinstance(rng, (np.random.Generator, np.random.BitGenerator)):
        return np.random.SeedSequence(int.from_bytes(_checks.generator(rng).bytes(16), "little"))
    return rng if isinstance(rng, np.random.SeedSequence) else np.random.SeedSequence(_checks.integer(
        rng, "rng", 0, "a seed is not negative"))


def _described(seed: np.random.SeedSequence | None) -> Any:
    """A seed for JSON."""
    if seed is None:
        return None
    return {"entropy": plain(seed.entropy), "spawn_key": plain(seed.spawn_key)}


def _seed_of(described: dict[str, Any]) -> np.random.SeedSequence:
    return np.random.SeedSequence(described["entropy"], spawn_key=tuple(described["spawn_key"]))


def _identity(race: FiniteRace, seed: np.random.SeedSequence | None) -> dict[str, Any]:
    """All that decides what a race asks and when it stops, for JSON."""
    options = {name: plain(_digest(value) if name == "proxy" else value)
               for name, value in vars(race._options).items() if name not in UNCOMPARED}
    low, high, offset = options.pop("low"), options.pop("high"), race._race._offset
    return options | {"support": None if low is None else [low, high], "names": plain(race._names),
                      "offset": [str(value) for value in offset.tolist()] if offset.any() else None,
                      "seed": _described(seed)}


def _digest(scores: np.ndarray[Any, Any]) -> str:
    """A proxy in a few letters."""
    return hashlib.sha256(repr(scores.shape).encode() + scores.tobytes()).hexdigest()


# Requests.


def _number(value: Any, arm: int, row: int) -> float:
    """A reward as a float, nan for None."""
    if value is None:
        return math.nan
    if _checks.is_number(value):
        if not _checks.is_readable(value):
            raise _AnswerError(f"evaluate({arm}, {row}) gave {_checks.shown(value)}, {_checks.LOST_DIGITS}")
        return _checks.nearest(value)
    masked = np.ma.is_masked(value)         # np.asarray reads behind the mask
    array = np.asarray(value)
    if masked or array.ndim or array.dtype.kind not in "fiub":
        raise _AnswerError(f"evaluate({arm}, {row}) gave {_checks.shown(value)}; a number is needed, or None where "
                           f"there is no answer")
    return float(array)


class _AnswerError(TypeError):
    """An answer that is no number: a mistake of the program, which no further request cures."""


class _Crew:
    """Workers, each with one request under way at a time, until the race is over or one of them has failed."""

    def __init__(self, race: InFlight, caller: Caller, concurrency: int, retries: int, journal: Journal | None,
                 show: Callable[[int], None]) -> None:
        self.race, self.flight, self.caller, self.end = race, race._fly(), caller, caller.end
        self.concurrency, self.retries, self.journal, self.show = concurrency, retries, journal, show
        self.given_up = {"max_seconds": 0, "max_pulls": 0}      # requests that these kept from being sent again
        self.first = ""                         # what the first of those raised that had to be sent again
        endless = race._need_not_end() and math.isinf(self.flight.limit)
        self.doubt = doubtful_after(race._compiled_race().n_arms, paid=True) if endless else 0
        self.failure: BaseException | None = None
        self.answered = self.failed = 0
        self.workers: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()            # set when a worker has ended
        self.moved = asyncio.Event()            # set, and replaced, when a look has been taken or a worker has failed

    async def work(self) -> None:
        """Run the race to its end. If a worker fails, let the others finish what they have paid for, then raise."""
        self._start()
        try:
            await self.ended.wait()
            while not self.flight.over and any(not worker.done() for worker in self.workers):
                await asyncio.wait(self.workers)
        finally:
            for worker in self.workers:
                worker.cancel()
            await asyncio.gather(*self.workers, return_exceptions=True)
        if isinstance(self.failure, _AnswerError):
            raise TypeError(*self.failure.args) from None
        if isinstance(self.failure, StuckError):
            raise TimeoutError(*self.failure.args) from None
        if self.failure is not None:
            raise self.failure

    def warnings(self) -> tuple[str, ...]:
        """What to say of requests that failed."""
        counts = {AGAIN: self.caller.n_again} | {GIVEN_UP.format("{}", limit, "{}"): count
                                                 for limit, count in self.given_up.items()}
        return tuple(said.format(counted(count, "request", ","), self.first) for said, count in counts.items() if count)

    def _start(self) -> None:
        """Start another worker, if more may be under way: no more of them than there are requests to make at once."""
        if len(self.workers) < self.concurrency:
            self.workers.append(asyncio.create_task(self._worker()))

    def _wake(self) -> None:
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    async def _worker(self) -> None:
        try:
            while self.failure is None and not self.flight.over and not _clock.over(self.end):
                cell = self.flight.next_cell(AHEAD * self.concurrency)
                if cell is not None:
                    self._start()
                    await self._answer(Request(*cell))
                elif not self.flight.over:
                    await self._until_moved()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self.failure = self.failure or error
            self.caller.close()
        finally:
            self.ended.set()
            self._wake()

    async def _until_moved(self) -> None:
        """Wait for a look or a failure, or for the end: after a request that was given up neither may come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_clock.left(self.end)):
                await self.moved.wait()

    async def _answer(self, request: Request) -> None:
        """Get a reward, by as many calls as it may take, and charge each of them."""
        error: BaseException | None = None
        try:
            await self._ask(request)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._settle(request, error)

    async def _ask(self, request: Request) -> None:
        arm, row = request.arm, request.row
        while True:
            try:
                found = await self.caller.answer(request)
                value = _number(found, arm, row)
                break
            except SendError as error:          # of the journal, and not of the function
                raise error.args[0] from None
            except NotSentError:
                self.given_up["max_seconds"] += request.attempt > 0 and self.failure is None
                return
            except asyncio.CancelledError:
                if request.thread is not None and not self.flight.over:     # keep what it was paid for
                    found = await request.thread
                    if not inspect.isawaitable(found):
                        self._take(request, _number(found, arm, row), found)
                raise
            except (_AnswerError, StuckError):
                raise
            except Exception as error:
                if request.attempt < self.retries and self.failure is None:
                    self.first = self.first or f"{type(error).__name__}: {error}".rstrip(": ")
                    wait = FIRST_WAIT * 2.0**request.attempt
                    if not self._again(request, error, wait):
                        return
                    await request.pause(wait)
                    continue
                self.failed += 1
                # Where all fails from the beginning, the function is at fault and not the answer.
                if not self.flight.missing or not self.answered and self.failed >= max(len(self.workers), MANY):
                    error.add_note(f"raised by evaluate({arm}, {row}), which is asked for one reward: that of one arm "
                                   f"on one {self.flight.unit}, both given as an int")
                    raise
                found, value = None, math.nan
                break
        self._take(request, value, found)

    def _again(self, request: Request, error: Exception, wait: float) -> bool:
        """Charge a call that failed; whether another one is to be made after so many seconds."""
        affordable = self._fail(request, error)
        self.flight.forward()               # with less to spend, the next look may be nearer
        self._wake()
        wanted = self.flight.wants(request.arm, request.row)
        if not affordable or not wanted:
            self.given_up["max_pulls"] += wanted
            self.flight.drop(request.arm, request.row)
            request.settled = True
            return False
        in_time = not _clock.over(self.end - wait)
        self.given_up["max_seconds"] += not in_time
        return in_time

    def _fail(self, request: Request, error: BaseException | None) -> bool:
        """Charge a call that failed; whether another one can be paid for."""
        affordable: bool = self.flight.fail(request.arm, request.row)
        request.failed()
        if self.journal is not None:
            self.journal.fail(request.arm, request.row, type(error).__name__)
        return affordable

    def _settle(self, request: Request, error: BaseException | None) -> None:
        """Charge a call that began and gave no reward, until the race is over; hand back a cell that is not wanted."""
        if request.settled:
            return
        if request.begun and self.flight.over:
            if self.journal is not None:
                with contextlib.suppress(OSError):      # the answer is there; the call will count as lost
                    self.journal.waste(request.arm, request.row)
            return
        if request.begun:
            self._fail(request, error)
        if not self.flight.wants(request.arm, request.row):
            self.flight.drop(request.arm, request.row)

    def _take(self, request: Request, value: float, found: Any) -> None:
        """Check a reward, write it down, tell it: in this order, so that the journal holds none that is refused.

        `found` is what came, of which `value` is the number.
        """
        core, arm, row = self.race._compiled_race(), request.arm, request.row
        late = not request.begun                # the answer of a call that was charged as one that failed
        with _checks.named_arms(self.race._names, core):
            if math.isnan(value) and not self.flight.missing:
                raise _checks.arm_error(core, arm, (
                    f"the reward of arm {arm} on {self.flight.unit} {row} is missing: evaluate({arm}, {row}) gave "
                    f"{'None' if found is None else 'nan'}; a number is needed, or, where answers may be missing, "
                    f"missing='drop' or missing='worst'"))
            self.flight.check(np.array([value]), np.array([arm]), np.array([row]))
            if self.journal is not None:
                self.journal.add(arm, row, value, late)
            request.settled = True
            if late:
                self.flight.recover(arm, row)
            self.answered += not math.isnan(value)
            before = self.flight.start
            self.flight.take([(row, arm, value)])
        self.show(int(self.flight.paid.sum()))
        if self.flight.start != before or self.flight.over:
            self._wake()
        if 0 < self.doubt <= self.flight.start and not self.flight.over:
            self.doubt *= 10
            self.race._doubt(f"{self.flight.start:,} rewards", timed=self.end < math.inf)
