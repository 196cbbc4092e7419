"""Calls of a user's function that is slow: awaited, or made in threads that nothing stops, each within a time."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fastrace._base import _checks, _clock

Evaluate = Callable[[int, int], Any]
PATIENCE = 10               # times `timeout` that the race waits where every thread hangs
STUCK = ("all {} threads are held by calls of evaluate that gave no answer within timeout={:g} s, and nothing stops a "
         "thread: the race sends nothing more until one of them returns")


class StuckError(TimeoutError):
    """Every thread hangs, so that nothing can be sent, whatever may be missing."""


class NotSentError(Exception):
    """A request that no thread has taken, and that is to be sent no more. It reaches no user."""


class SendError(Exception):
    """A call that could not be written down, and so was not made; it holds the reason. It reaches no user."""


class Request:
    """A reward that is asked for, by one call after another."""

    def __init__(self, arm: int, row: int) -> None:
        self.arm, self.row = arm, row
        self.attempt = 0                        # calls that failed before
        self.mark: list[None] = []              # has an entry once the present call is sent: of each call its own
        self.late: dict[asyncio.Future[Any], Future[Any]] = {}  # earlier calls that threads may still be at, as the
        self.thread: asyncio.Future[Any] | None = None          # event loop sees them and as threads do; and the one
        self.settled = False                    # that was cancelled in a thread. Whether nothing is left to be counted

    @property
    def begun(self) -> bool:
        """Whether the present call has begun, so that it is paid for."""
        return bool(self.mark)

    def failed(self) -> None:
        """The present call has failed."""
        self.attempt, self.mark = self.attempt + 1, []

    async def pause(self, seconds: float) -> None:
        """Wait before the next call, unless an earlier one is answered."""
        end = time.monotonic() + seconds
        while _earlier(self.late) is None:
            left = max(0.0, end - time.monotonic())
            if left == 0.0 or all(thread.done() for thread in self.late):
                await asyncio.sleep(left)
                break
            await _until_any(self.late, left)


class Caller:
    """Makes the calls of requests: no more than `concurrency` threads, `timeout` seconds for each, none after `end`.

    Where there is a `pool`, the function is called in its threads. What waits for one is not called after `close`.
    Right before a call is made, ``send(arm, row)`` is called in the same thread.
    """

    def __init__(self, evaluate: Evaluate, pool: ThreadPoolExecutor | None, concurrency: int, timeout: float | None,
                 end: float, send: Callable[[int, int], None] | None) -> None:
        self.send = send
        self.evaluate, self.pool, self.concurrency, self.timeout, self.end = evaluate, pool, concurrency, timeout, end
        self.n_again = 0                        # calls that were begun after another one for the same reward had failed
        self.queued: set[Future[Any]] = set()   # calls that may not have begun
        self.closed = False
        self.held = 0                           # threads whose calls have been given up
        self.stirred = 0.0                      # when a thread last took a call
        self.stuck = False                      # whether it was said that every thread is held

    def close(self) -> None:
        """Make no call any more that no thread has taken."""
        self.closed = True
        for job in self.queued:
            job.cancel()

    async def answer(self, request: Request) -> Any:
        """The answer of a call, or of one of those before it that are late, if that comes first."""
        earlier = _earlier(request.late)
        if earlier is not None:
            return earlier.result()
        arm, row, again = request.arm, request.row, request.attempt > 0
        limit = asyncio.timeout(self.timeout if self.pool is None else None)
        job = thread = None
        if self.pool is not None:
            loop = asyncio.get_running_loop()
            begun: asyncio.Future[None] = loop.create_future()

            before, mark = list(request.late.values()), request.mark

            def call() -> Any:
                earlier = _earlier(before)      # its answer has set this thread free, and the event loop not seen it
                if earlier is not None:
                    return earlier.result()
                loop.call_soon_threadsafe(self._begin, begun, again)
                mark.append(None)               # first, as an answer to an earlier call may come meanwhile
                try:
                    self._send(arm, row)
                except SendError:
                    mark.clear()
                    raise
                return self.evaluate(arm, row)

            job = self.pool.submit(contextvars.copy_context().run, call)
            thread = asyncio.wrap_future(job)
            thread.add_done_callback(_seen)
        try:
            async with limit:
                if thread is None or job is None:
                    self._send(arm, row)
                    self.n_again += again
                    request.mark.append(None)
                    return await self.evaluate(arm, row)
                if self.timeout is not None:
                    await self._until_begun(job, begun, thread, request.late, self.timeout)
                    limit.reschedule(loop.time() + self.timeout)
                while not thread.done():
                    earlier = _earlier(request.late)
                    if earlier is not None:
                        self._give_up(job, thread)
                        return earlier.result()
                    await _until_any([thread, *request.late])
                found = thread.result()
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            if not limit.expired():
                raise
            if job is not None and thread is not None:
                self._give_up(job, thread)
                request.late[thread] = job
            raise TimeoutError(f"evaluate({arm}, {row}) gave no answer within {self.timeout:g} s") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise RuntimeError(f"evaluate({arm}, {row}) was cancelled, and the race was not") from None
            if job is not None and thread is not None and not job.cancel():     # nothing stops a thread
                job.add_done_callback(_let_go)
                request.mark.append(None)
                request.thread = thread
            raise

    def _send(self, arm: int, row: int) -> None:
        if self.send is not None:
            try:
                self.send(arm, row)
            except Exception as error:
                raise SendError(error) from None

    def _begin(self, begun: asyncio.Future[None], again: bool) -> None:
        """A thread has taken a call."""
        self.stirred = time.monotonic()
        self.n_again += again
        if not begun.done():
            begun.set_result(None)

    async def _until_begun(
        self, job: Future[Any], begun: asyncio.Future[None], thread: asyncio.Future[Any],
        late: Iterable[asyncio.Future[Any]], timeout: float,
    ) -> None:
        """Wait until a thread takes a call, or an earlier request is answered; what is to be sent no more is cancelled.

        A call waits only while threads are held by others that have been given up.
        """
        came = time.monotonic()
        self.queued.add(job)
        try:
            while not begun.done() and _earlier(late) is None:
                ended = self.closed or _clock.over(self.end)
                if thread.cancelled() or ended and job.cancel():
                    raise NotSentError
                now, held = time.monotonic(), self.held >= self.concurrency
                if held and not self.stuck:
                    self.stuck = True
                    warnings.warn(STUCK.format(self.concurrency, timeout), RuntimeWarning,
                                  stacklevel=_checks.users_level())
                if held and now >= max(self.stirred, came) + PATIENCE * timeout and job.cancel():
                    raise StuckError(f"{STUCK.format(self.concurrency, timeout)}, and none did within "
                                     f"{PATIENCE * timeout:g} s; let evaluate itself give up in time")
                await _until_any([begun, thread, *late], min(max(0.0, self.end - now), timeout))
        finally:
            self.queued.discard(job)

    def _give_up(self, job: Future[Any], thread: asyncio.Future[Any]) -> None:
        """Wait no more for a call: where no thread has taken it, none will; otherwise it holds one until it returns."""
        if job.cancel():
            return
        job.add_done_callback(_let_go)
        if not thread.done():
            self.held += 1
            thread.add_done_callback(self._free)

    def _free(self, thread: asyncio.Future[Any]) -> None:
        self.held -= 1


def _seen(thread: asyncio.Future[Any]) -> None:
    """Let asyncio not complain about the exception of a thread that nobody waits for."""
    if not thread.cancelled():
        thread.exception()


def _earlier(late: Iterable[asyncio.Future[Any] | Future[Any]]) -> asyncio.Future[Any] | Future[Any] | None:
    """The first of these requests that has been answered, if any."""
    for job in late:
        if job.done() and not job.cancelled() and job.exception() is None and not inspect.isawaitable(job.result()):
            return job
    return None


async def _until_any(futures: Iterable[asyncio.Future[Any]], seconds: float | None = None) -> None:
    """Wait until one more of these is done."""
    await asyncio.wait([future for future in futures if not future.done()], timeout=seconds,
                       return_when=asyncio.FIRST_COMPLETED)


def _let_go(job: Future[Any]) -> None:
    """Close a coroutine that a thread has made and that nobody will await any more."""
    if not job.cancelled() and job.exception() is None and inspect.iscoroutine(job.result()):
        job.result().close()
