"""Damaged saved states of every public class: refused, or an object that does nothing worse than answer wrongly.

Bytes choose the class, how far it had come, what is damaged and how, so that a fuzzer can steer by them:

    python tests/fuzz/fuzz_restore.py -max_total_time=60 CORPUS_DIRECTORY    (needs atheris)
    python tests/fuzz/fuzz_restore.py FILE                                   (repeats one input)

`tests/contracts/test_restoring.py` runs the same on random bytes. `tests/catalogue.py` makes the objects.
"""

import contextlib
import copy
import functools
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    FILES = [path for path in sys.argv[1:] if Path(path).is_file()]
    if not FILES:
        import atheris

        with atheris.instrument_imports(include=["fastrace"]):
            import fastrace  # noqa: F401

import catalogue
from fuzz.fuzz_race import Chooser, damage, leaves, replaced

NAMED = (ValueError, TypeError, MemoryError)        # what a damaged state may raise when it is restored
WRONG = (AssertionError, SystemError)               # what nothing may raise: a loop, and compiled code that fails
MEMORY = 1 << 30                                    # bytes of address space to be had beside those in use
SECONDS = 5.0                                       # of work after which an object is taken to loop


@functools.cache
def saved(name):
    """Whether the class saves itself by a function of the package, and so has a state that this may damage."""
    try:
        rebuild = catalogue.made(name).__reduce_ex__(4)[0]
    except TypeError:
        return False
    return (getattr(rebuild, "__module__", None) or "").startswith("fastrace")


@contextlib.contextmanager
def bounded():
    """Little memory and time for what a damaged state asks for, where the system can bound them."""
    with contextlib.ExitStack() as back:
        if sys.platform == "linux":
            import resource

            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
            back.callback(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
            def loops(number, frame):
                raise AssertionError(f"the restored object was at work for {SECONDS} s")

            back.callback(signal.signal, signal.SIGPROF, signal.signal(signal.SIGPROF, loops))
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            back.callback(signal.setitimer, signal.ITIMER_PROF, 0.0)
        back.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        back.enter_context(np.errstate(all="ignore"))
        yield


def fuzz(data, names=None):
    """Damage a state of one of the classes `names`, by default of any; return what became of it."""
    choose = Chooser(data)
    name = choose.of(names or [name for name in catalogue.OBJECTS if saved(name)])
    thing, done = catalogue.made(name), choose.below(4)
    for k in range(done):
        catalogue.step(thing, k)
    rebuild, state, *rest = copy.deepcopy(thing.__reduce_ex__(4))
    for _ in range(1 + choose.chance(3)):
        places = list(leaves(state))
        if places:          # one change may leave an empty tuple of an exception's one word
            state = replaced(state, choose.of(places), lambda leaf: damage(choose, leaf))
    with bounded():
        try:
            other = rebuild(*state)
            if rest and rest[0] is not None:
                other.__setstate__(rest[0])
        except NAMED:
            return "refused"
        try:
            for k in range(done, done + 3):
                catalogue.step(other, k)
            repr(other)
        except WRONG:
            raise
        except Exception:
            return "failed"
    return "went on"


if __name__ == "__main__":
    for path in FILES:
        print(path, fuzz(Path(path).read_bytes()))
    if not FILES:
        atheris.Setup(sys.argv, fuzz)
        atheris.Fuzz()
