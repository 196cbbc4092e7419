"""Ctrl-C while a compiled loop runs."""

import signal
import time

import pytest

LATEST = 0.1            # seconds of work after which a loop must have heard


def press(run, times=5, after=0.02):
    """Call `run` so often, with Ctrl-C after so many seconds of work; return how many of the calls it cut short.

    Seconds are the processor's for this process: a loaded machine changes little. A loop that hears late does so each
    time; what another part of the process or of the machine adds now and then does not count.
    """
    if not hasattr(signal, "setitimer"):
        pytest.skip("needs a timer that signals")
    before, cut, late = signal.signal(signal.SIGPROF, signal.default_int_handler), 0, []
    try:
        while cut < times:
            begun = time.process_time()
            try:
                signal.setitimer(signal.ITIMER_PROF, after)
                run()
            except KeyboardInterrupt:
                late.append(time.process_time() - begun - after)
                if late[-1] < LATEST:
                    cut, late = cut + 1, []
                assert len(late) < 3, f"heard {late} s late"
            else:
                break
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
    finally:
        signal.signal(signal.SIGPROF, before)
    return cut
