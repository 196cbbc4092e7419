"""Running kernels: chains in threads, tuning, checkpoints, traces."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import queue
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks, _files, _frames
from fastrace._base._arguments import names_meant
from fastrace._base._blas import one_blas_thread, words_on_threads
from fastrace._base._handed import KEPT, handed_over
from fastrace._base._progress import meter, phase
from fastrace._base._words import counted
from fastrace.mcmc._checkpoints import ChainRun, Checkpoint
from fastrace.mcmc._diagnosis import EXPAND_AGAIN, advice_of, diagnosis, far_words
from fastrace.mcmc._fingerprint import differences, fingerprint
from fastrace.mcmc._fit import fit_problems
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.kernels._choice import kernel_for
from fastrace.mcmc.kernels._rows import RowKernel
from fastrace.mcmc.kernels.surrogate_gibbs import SurrogateGibbs
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.kernels.variable_selection import VariableSelection
from fastrace.mcmc.models.mixture import MixtureOf
from fastrace.mcmc.models.model import Model, Reference
from fastrace.mcmc.protocol import Kernel, Steps, joined, joined_later
from fastrace.mcmc.trace import Trace

__all__ = ["sample"]

SLICE = 0.1  # seconds between two looks at the clock, the callback and the checkpoint
_CHAINS = 4
_LEAST = 100  # draws a chain, from which on what they miss is looked for
FIRST = 32  # steps before the first of them
Callback = Callable[[int, Steps], object]


@one_blas_thread()
@names_meant
def sample(
    kernel: Kernel | Model | MixtureOf,
    init: Any = None,
    n_draws: int = 1000,
    n_chains: int | None = None,
    rng: _checks.RngLike = None,
    progress: bool = False,
    n_tune: int = 500,
    *,
    threads: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    callback: Callback | None = None,
) -> Trace:
    """Run chains of a kernel.

    Parameters
    ----------
    kernel : Kernel, Model or MixtureOf
        Such as `RacingMetropolis`. A model gets a kernel: `SurrogateMetropolis` where its prior has hyperparameters,
        also for a hierarchy in PyMC that `from_pymc` recognises; else of that, `PoissonMinibatchMetropolis`,
        `RacingMetropolis`, from 64 parameters on a `PoissonMinibatchMetropolis` in batches and from 100 on a
        `Metropolis` in batches, the one that needs the least work for an independent draw in a short pilot, always from
        one seed. Races are left aside where an exact kernel reads 600 rows a step or less; from 100 parameters on, all
        others are where shared minibatches move well and those of one step would be larger. ``Trace.kernel`` says
        which, and ``Trace.kernel["chosen"]`` why. Minibatches of one step are exact; those of batches are so up to the
        probability `tail`, .001, that a row is beyond its bound. A `MixtureOf` gets `SurrogateGibbs`.
    init : array_like, sequence of array_like, dict, or Trace, optional
        Where all chains start, or where each does. By default each chain has a start of its own where the kernel has
        a normal density to follow: a draw from it, twice as wide while there is tuning, so that chains that agree have
        come together; where the posterior is 0 there, another one, then points ever nearer. Other kernels choose. A
        start has the coordinates of draws, so that a learned scale is the scale itself. A dict has a number, or one for
        each chain, for every name of ``Trace.names``; a scale may come as "scale" or as "log(scale)". A `Trace` is
        continued: sampling takes up its states and generators, without tuning. The kernel must be of the same kind and
        its model have the same parameters; whether its rows are the same is checked only where there is a `checkpoint`.
    n_draws : int, default 1000
        Draws kept of each chain.
    n_chains : int, optional
        Number of chains, 4 by default. A `Trace` that is continued has as many as it has; another number is refused.
    rng : None, int, SeedSequence or Generator, optional
        Each chain has a generator of its own, spawned from this one. A `Trace` goes on with its own.
    progress : bool, default False
        Show a bar on standard error, or a line every ten seconds where that is a file or a pipe; needs rich. Of a
        model without a kernel, what the set-up of kernels is at, too; and that the draws are checked at the end.
    n_tune : int, default 500
        Steps at the start of each chain in which the proposal adapts; they are not kept.
    threads : int, optional
        Chains at work at once; by default as many as there are processors. Compiled models run side by side, Python
        functions take turns. Chains that outnumber the threads take turns of about 0.1 seconds. Where threadpoolctl
        is installed (extra "threads"), BLAS has one thread meanwhile.
    checkpoint : path, optional
        File to save to, every so many seconds and at the end. If it is there already, sampling goes on from it, and the
        result is the one that an uninterrupted call would have given. Kernel, model, `init`, `n_chains`, `n_tune` and
        `rng` must be those of the run that it was made by; `n_draws` may be larger, and `rng` may be left out. A file
        of another run, or of anything else, is refused and stays as it is. See the notes for the format.
    checkpoint_every : float, default 30.0
        Seconds, above 0.
    callback : callable, optional
        ``callback(chain, steps)`` with the number of the chain and the `Steps` it has just made, whose ``steps.draws``
        has shape (n, ...), about ten times a second and chain. If it raises, all chains end.

    Returns
    -------
    Trace
        Draws of all chains, what each step read, and where the chains stand.

    Raises
    ------
    ValueError
        If an argument is out of range, no start is found where the posterior is not 0, or the checkpoint is damaged or
        of another run.
    OSError
        If the checkpoint cannot be written where it should be, before the first step.

    Notes
    -----
    Problems with the draws are reported once, as warnings and in ``Trace.warnings``:

    - R-hat, as ``Trace.rhat`` computes it, above 1.01; for chains of fewer than 1000 draws, above ``1 + 20 / n_draws``.
      Chains of 8 to 99 draws, judged without ranks too, which so few draws have too few of, thus show large
      disagreements alone, and shorter ones none; the printed trace says so;
    - fewer than 100 effective draws a chain; for chains of 100 to 999 draws, fewer than ``n_draws / 20``;
    - less than 10 % of the proposals of a chain of at least 100 draws accepted, or 20 % of those of a surrogate;
    - chains that stayed more than ``sqrt(dim) + 6`` standard deviations from the normal density at the mode that the
      kernel follows;
    - minibatch kernels, which are there to read few rows, that read all rows in most steps of a chain;
    - several chains that all began at one point;
    - another mode, which the kernel's normal density does not see: looked for by Newton's method from a few points on
      some of the rows, in models with derivatives whose log-likelihood is not known to be concave; PyMC's are left
      aside where they have more than 8 parameters, or where `SurrogateMetropolis` moves them as they are;
    - weights of independent proposals with a Pareto k above 0.7, see `laplace`: chains then get stuck in the tails;
    - a reward outside the support that a race was given, which voids its promise.

    Silence is no proof: chains that all miss one part of a posterior agree. Where a posterior is improper, because
    outcomes are separated or columns collinear under a flat prior, the kernel refuses the model.

    A checkpoint belongs to one run. Runs are recognised by a hash of the kernel's options and of the model. The hash
    covers all arrays of the model, the code of functions, and the arrays and numbers that functions use directly. It
    does not cover what functions keep in lists or in objects of their own. It does not cover arrays of Gibbs variables
    that have `prepare` either, since `prepare` may change them.

    A checkpoint is written whole under another name and then renamed, so that no half of one is ever found. Its header
    names the run and holds the SHA-256 of all its bytes; a file with a changed byte is refused. Chains are saved as
    arrays and numbers, without code, in NumPy's npz and JSON. Kernels that are not part of fastrace may have states of
    other types: those are pickled. Reading a pickle can run any code, and a checksum does not say who made the file, so
    give such kernels only files that you trust. If a checkpoint cannot be written later on, because a disk is full,
    sampling goes on: the result is returned, and a warning says that the file is not up to date.

    The draws depend on the seed and the kernel alone, and not on threads, progress, callback or interruptions. An
    exception that ends sampling early, from a callback, a user's function or Ctrl-C, comes through unchanged but for a
    note. Its attribute ``trace`` holds the trace so far, with which `sample` goes on. So it is where the exception
    comes while the draws are checked, and of a warning that is made an error. A second Ctrl-C loses nothing either.
    While a kernel is being made for a model there are no draws yet: Ctrl-C then has no ``trace``, and nothing is kept.
    To keep the set-up, make the kernel first and give `sample` that.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 2))
    >>> y = X @ [1.0, 2.0] + rng.normal(size=5000)
    >>> kernel = mcmc.PoissonMinibatchMetropolis(mcmc.GLM(X, y, family="student-t", scale=1.0))
    >>> trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    >>> trace.draws.mean(axis=(0, 1)).round(1)
    array([1., 2.])
    >>> longer = mcmc.sample(kernel, trace, n_draws=500)
    >>> longer.n_draws
    500
    """
    if isinstance(kernel, MixtureOf):
        kernel = SurrogateGibbs(kernel)
    entered = time.perf_counter()
    why, set_up = "", 0.0 if isinstance(init, Trace) else float(getattr(kernel, "set_up_seconds", math.nan))
    if isinstance(kernel, Model):
        with phase("choosing a kernel", progress):
            kernel, why = kernel_for(kernel)
        set_up = time.perf_counter() - entered
    if isinstance(kernel, type) or not (callable(getattr(kernel, "run", None)) and hasattr(kernel, "describe")):
        raise TypeError(f"kernel is {_checks.shown(kernel)}; a model such as GLM(X, y), or a kernel such "
                        f"as RacingMetropolis(model), is needed{_checks.of_pymc(kernel)}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {_checks.shown(callback)}; a function of (chain, steps) is needed")
    if callback is not None:
        _checks.takes(callback, "callback", "chain", "steps")
    n_draws = _checks.integer(n_draws, "n_draws", 0, "a number of draws")
    if n_chains is not None:
        n_chains = _checks.integer(n_chains, "n_chains", 1, "a number of chains")
    if isinstance(init, Trace) and n_chains not in (None, init.n_chains):
        raise ValueError(f"n_chains is {n_chains} and init a trace of {counted(init.n_chains, 'chain')}, which go on "
                         f"as they are: leave n_chains out, or start {n_chains} new ones from its last draws, "
                         f"trace.draws[:, -1]")
    n_chains = _CHAINS if n_chains is None else n_chains
    n_tune = _checks.integer(n_tune, "n_tune", 0, "a number of steps")
    if threads is not None:
        threads = _checks.integer(threads, "threads", 1, "a number of threads")
    if not _checks.real(checkpoint_every, "checkpoint_every") > 0.0:
        raise ValueError(f"checkpoint_every is {checkpoint_every}; a number of seconds above 0 is needed")
    generator = None if rng is None else _checks.generator(rng)
    names = getattr(kernel, "names", None) or ()
    init = _listed(kernel, init, n_chains) if isinstance(init, Mapping) else _frames.in_order(
        init, names, "init", "parameters")
    # A run of its own for each chain, and at least a number a draw.
    _checks.room(n_chains * (1000.0 + 8.0 * n_draws * _width(kernel)),
                 f"n_draws is {n_draws} and n_chains {n_chains}: the draws")
    saved, runs = _begun(kernel, init, n_draws, n_chains, generator, n_tune, checkpoint)
    one_start = _one_start(kernel, init, len(runs))
    work = _Work(kernel, runs, callback, saved, checkpoint_every, set_up)
    if saved is not None:
        work.save()  # if it cannot be written, then before the first step
    begins = not isinstance(init, Trace)
    try:
        try:
            work.go(min(threads or os.cpu_count() or 1, len(runs)), progress)
            failure = work.try_to_save()
        except BaseException as error:
            work.hand_over(error)
            failure = work.try_to_save()
            if failure is not None:
                error.add_note(failure)
            raise
        trace = work.trace()
        problems = [] if failure is None else [failure]
        with phase("checking the draws", progress):
            if isinstance(kernel, SurrogateGibbs) and trace.n_draws:
                trace = replace(trace, nameless=kernel.judged(trace))
            problems += _problems(kernel, trace, one_start, begins)
        doubts = "; ".join(getattr(getattr(kernel, "model", None), "_doubts", ()))  # warned of when it was made
        kept = [*problems, *([doubts] if doubts and doubts not in problems else [])]
        trace = trace._told(warnings=tuple(kept), kernel=trace.kernel | ({"chosen": why} if why else {}))
        work.finished = trace
        took = time.perf_counter() - entered + (0.0 if why else set_up)     # a set-up of ours lies within
        told = [*problems, words_on_threads(took) if hasattr(kernel, "compressed") else ""]
        for words in filter(None, told):
            warnings.warn(words, stacklevel=_checks.users_level())
    except BaseException as error:  # also a second Ctrl-C, one after the last step, and a warning that is an error
        work.hand_over(error)
        raise
    return trace


def _width(kernel: Kernel) -> int:
    """Numbers that a draw holds, as far as the kernel's model says."""
    dim = getattr(getattr(kernel, "model", None), "dim", 1)
    return dim if isinstance(dim, int) else 1


def _begun(
    kernel: Kernel, init: Any, n_draws: int, n_chains: int, rng: np.random.Generator | None, n_tune: int,
    checkpoint: str | os.PathLike[str] | None,
) -> tuple[Checkpoint | None, list[ChainRun]]:
    """The chains at their starts, or where a checkpoint has them, and where they are saved."""
    if checkpoint is None:
        return None, _started(kernel, init, n_draws, n_chains, rng, n_tune)
    path = _files.file_path(checkpoint)
    about = fingerprint(kernel, init, n_chains, rng, n_tune)
    pickled = not type(kernel).__module__.startswith("fastrace.")
    if path.exists():
        return _loaded(path, about, n_draws, pickled)
    return Checkpoint(path, about, pickled), _started(kernel, init, n_draws, n_chains, rng, n_tune)


def _problems(kernel: Kernel, trace: Trace, one_start: bool, begins: bool) -> list[str]:
    """What is wrong with the draws, in words; `begins` says that the chains do not go on from a trace."""
    found = []
    if getattr(kernel, "outside", False):
        found.append("a reward lay outside support: the promise of the draws is void; widen support")
    reference = getattr(kernel, "reference", None)
    try:
        reference = reference if isinstance(reference, Reference) else None
        natural = getattr(kernel, "records_natural", False)
        apart = natural and hasattr(kernel, "compressed") or not getattr(kernel, "_at_mode", True)
        alike = None if apart else reference
        moving = getattr(kernel, "_unconstrained", None) if natural and alike is not None else None
        found += diagnosis(trace, alike, one_start, unconstrained=moving, judged=trace.nameless, **advice_of(kernel))
        if alike is None and isinstance(kernel, SurrogateMetropolis) and trace.n_draws:
            distances = kernel._distances(trace.draws)
            if distances is not None:
                found += far_words(*distances, EXPAND_AGAIN)
        if reference is not None and begins and trace.n_draws:
            found += fit_problems(kernel, reference, float(trace.accepted.mean()))
        beyond = getattr(kernel, "_beyond", None)
        words = ""
        if beyond and trace.n_draws >= _LEAST:
            words = beyond(trace.draws.reshape(-1, trace.draws.shape[-1]), trace.kernel)
        found += [words] if words else []
        remedy = getattr(getattr(kernel, "model", None), "_remedy", "") if found else ""
        found += [remedy] if remedy else []
    except Exception as error:  # a kernel of a user's own may draw anything; its draws are not lost for that
        found.append(f"the draws could not be checked ({type(error).__name__}: {error})")
    return found


def _variables(kernel: Kernel, names: tuple[str, ...], shape: tuple[int, ...]) -> tuple[Variable, ...]:
    """The variables of draws of this shape: those that a kernel names, or else its model."""
    model = getattr(kernel, "model", None)
    if not isinstance(model, Model) or shape != (model.dim,) or tuple(getattr(kernel, "parts", ())):
        return ()
    return tuple(getattr(kernel, "_variables_of", model._variables_of)(names))


def _started(
    kernel: Kernel, init: Any, n_draws: int, n_chains: int, rng: _checks.RngLike, n_tune: int
) -> list[ChainRun]:
    if isinstance(init, Trace):
        if len(init.states) != init.n_chains:
            raise ValueError("init is a trace that does not say where its chains stand, as those of correct; give its "
                             "last draws as starts: trace.draws[:, -1]")
        _require_continued(kernel, init)
        pairs = zip(init.states, copy.deepcopy(init.rngs), strict=True)
        return [ChainRun(i, state, own, 0, n_draws) for i, (state, own) in enumerate(pairs)]
    children = _checks.children(_checks.generator(rng), n_chains)
    starts = [init] * n_chains
    if init is not None:
        shape = _checks.as_array(init, "init").shape
        position = _any_position(kernel)
        if position is not None and position.dtype.kind == "f":
            if not np.isfinite(_checks.reals(init, "init")).all():
                raise ValueError(f"init is {_checks.shown(init)}; finite numbers, where chains start, are needed")
        of_a_start = shape if position is None else position.shape
        if shape != of_a_start:
            if shape != (n_chains, *of_a_start):
                count = (". init, where chains start, stands before n_draws: for a number of draws write "
                         f"n_draws={_checks.shown(init)}") if shape == () else ""
                raise ValueError(
                    f"init has shape {shape}; {of_a_start} for all chains, or {(n_chains, *of_a_start)}, one start "
                    f"each, is needed{count}"
                )
            starts = list(np.asarray(init))
    spread = _spread(kernel, init, n_tune)
    runs = []
    for i, (start, own) in enumerate(zip(starts, children, strict=True)):
        place = start if spread is None else spread(own)
        runs.append(ChainRun(i, kernel.init(place, own), own, n_tune, n_draws))
    return runs


def _listed(kernel: Kernel, init: Mapping[str, Any], n_chains: int) -> NDArray[np.float64]:
    """Starts by name as an array of shape (n_chains, dim); a scale may come by its logarithm, and the other way."""
    names = tuple(getattr(kernel, "names", None) or ())
    if not names:
        raise TypeError("init is a dict, and the parameters of this kernel have no names: give an array")
    given = {name: _checks.reals(values, f"init[{name!r}]") for name, values in init.items()}
    for name in names:
        if name not in given and f"log({name})" in given:
            given[name] = np.exp(given.pop(f"log({name})"))
        elif name not in given and name.startswith("log(") and name[4:-1] in given:
            given[name] = np.log(_positive(given.pop(name[4:-1]), name[4:-1]))
    missing, unknown = [name for name in names if name not in given], [name for name in given if name not in names]
    if missing or unknown:
        odd = [f"holds {unknown[0]!r}, which is no parameter{',' if missing else ''}"] if unknown else []
        odd += [f"lacks {missing[0]!r}"] if missing else []
        raise ValueError(f"init {' and '.join(odd)}; a dict needs a number, or one for each chain, for each of "
                         f"{', '.join(map(repr, names[:20]))}{', ...' if names[20:] else ''}")
    shapes = {given[name].shape for name in names}
    if not shapes <= {(), (n_chains,)}:
        raise ValueError(f"init has values of shapes {sorted(shapes)}; numbers, or {n_chains} of them, one for each "
                         f"chain, are needed")
    if shapes == {()}:
        return np.array([float(given[name]) for name in names])
    return np.stack([np.broadcast_to(given[name], n_chains) for name in names], axis=1)


def _positive(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    if not (values > 0.0).all():
        raise ValueError(f"init has {name} = {values.min():.4g}; a scale is a positive number")
    return values


def _require_continued(kernel: Kernel, trace: Trace) -> None:
    """Refuse a kernel of another kind, or of a model with other parameters, than those of the trace."""
    about, names = kernel.describe(), tuple(getattr(kernel, "names", None) or ())
    kinds = [[str(held[key]) for key in ("kernel", "inner") if key in held] for held in (trace.kernel, about)]
    model, own = getattr(kernel, "model", None), trace.chains[0].draws.shape[1:]
    dim = model.dim if isinstance(model, Model) and not trace.parts else None
    if kinds[0] != kinds[1] and all(kinds):
        apart = f"is of {' '.join(kinds[0])}, and the kernel is {' '.join(kinds[1])}"
    elif dim is not None and len(own) == 1 and own != (dim,):
        apart = f"has {counted(own[0], 'parameter')}, and the kernel's model {dim}"
    elif names and trace.names and names != trace.names:
        old, new = next(pair for pair in zip(trace.names, names, strict=True) if pair[0] != pair[1])
        apart = f"has a parameter {old!r} where the kernel's model has {new!r}"
    else:
        return
    raise ValueError(f"init is a trace that {apart}; a trace is continued by the kernel that made it, on the same "
                     f"model. To start others there give its last draws, trace.draws[:, -1], in place of it")


def _spread(kernel: Kernel, init: Any, n_tune: int) -> Callable[[np.random.Generator], Any] | None:
    """What draws a start for each chain, if there is such a function and it is to be used."""
    asked = init is None and (n_tune or getattr(kernel, "always_dispersed", False))
    return getattr(kernel, "dispersed", None) if asked else None


def _one_start(kernel: Kernel, init: Any, n_chains: int) -> bool:
    """Whether several chains begin at one point."""
    if n_chains < 2 or isinstance(init, Trace):
        return False
    if init is None:
        if getattr(kernel, "has_one_start", False):  # and needs no other
            return False
        spread, rngs = _spread(kernel, init, 0), [np.random.default_rng(seed) for seed in (1, 2)]
        a, b = (_position(kernel.init(None if spread is None else spread(rng), rng)) for rng in rngs)
        return a is not None and b is not None and a.dtype.kind == "f" and np.array_equal(a, b)
    starts, position = np.asarray(init), _any_position(kernel)
    if position is None:
        return True             # without a position one `init` serves all chains
    return starts.shape == position.shape or bool((starts == starts[:1]).all())


def _any_position(kernel: Kernel) -> NDArray[Any] | None:
    """An array of the shape and type of a kernel's positions, or None if its states have none.

    Kernels over rows are not asked for a start of their own, which they may not find where a user knows one.
    """
    rows = kernel._kernel if isinstance(kernel, VariableSelection) else kernel
    return np.zeros(rows.dim) if isinstance(rows, RowKernel) else _position(kernel.init(None))


def _position(state: Any) -> NDArray[Any] | None:
    """Where a chain stands, or None if a state of a kernel does not say."""
    position = getattr(state, "position", None)
    return None if position is None else np.asarray(position)


class _Work:
    """Chains at work; saved and stopped together."""

    def __init__(
        self, kernel: Kernel, runs: list[ChainRun], callback: Callback | None, saved: Checkpoint | None, every: float,
        set_up: float,
    ) -> None:
        self.kernel = kernel
        self.runs = runs
        self.callback = callback
        self.saved = saved
        self.every = every
        self.set_up = set_up
        self.finished: Trace | None = None  # with its warnings
        self.handed: BaseException | None = None  # what has the trace
        self.lock = threading.Lock()  # held while a chain's state and draws change hands
        self.stop = threading.Event()
        self.done: queue.SimpleQueue[int] = queue.SimpleQueue()

    def go(self, threads: int, progress: bool) -> None:
        """Make all steps."""
        waiting = deque(self._advance(run) for run in self.runs)
        with meter("sampling", sum(run.todo for run in self.runs), progress) as show:
            if threads > 1:
                self._watch(threads, waiting, show)
                return
            made, last = 0, time.monotonic()
            for count in self._in_turn(waiting):
                made += count
                show(made)
                last = self._maybe_save(last)

    def _in_turn(self, waiting: deque[Iterator[int]]) -> Iterator[int]:
        """Steps of one slice of a waiting chain after another: those cut short have about as many draws each."""
        while not self.stop.is_set():
            try:
                chain = waiting.popleft()
            except IndexError:  # all others are at work in other threads
                return
            count = next(chain, None)
            if count is not None:
                waiting.append(chain)
                yield count

    def _watch(self, threads: int, waiting: deque[Iterator[int]], show: Callable[[int], None]) -> None:
        """Look after threads at work on chains."""

        def work() -> None:
            for count in self._in_turn(waiting):
                self.done.put(count)

        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work) for _ in range(threads)]
            made, last = 0, time.monotonic()
            try:
                while not all(future.done() for future in futures):
                    with contextlib.suppress(queue.Empty):
                        made += self.done.get(timeout=0.02)
                        show(made)
                    last = self._maybe_save(last)
                    for future in futures:
                        if future.done():
                            future.result()
            except BaseException:
                self.stop.set()
                raise
            for future in futures:
                future.result()
            while not self.done.empty():  # what the last slices made
                made += self.done.get()
            show(made)

    def _advance(self, run: ChainRun) -> Iterator[int]:
        """Slices of one chain, each about as long as `SLICE`; how many steps each had."""
        count = FIRST
        while run.todo:
            tune = run.tune_left > 0
            count = min(count, run.tune_left if tune else run.left)
            started = time.perf_counter()
            try:
                state, steps = self.kernel.run(run.rng, run.state, count, tune=tune)
            except BaseException as error:
                partial = getattr(error, "partial_run", None)
                if partial is not None:
                    with contextlib.suppress(AttributeError):
                        del error.partial_run  # type: ignore[attr-defined]
                    self._keep(run, partial[0], partial[1], tune)
                raise
            took = time.perf_counter() - started
            self._keep(run, state, steps, tune, took)
            if self.callback is not None:
                self.callback(run.number, steps)
            yield count
            count = max(FIRST, min(int(count * SLICE / max(took, 1e-6)), 16 * count))

    def _keep(self, run: ChainRun, state: Any, steps: Steps, tune: bool, took: float = 0.0) -> None:
        with self.lock:
            run.state = state
            run.rng_state = run.rng.bit_generator.state
            if tune:
                run.tune_left -= len(steps)
            else:
                run.left -= len(steps)
                run.parts.append(steps)
                run.seconds += took

    def hand_over(self, error: BaseException) -> None:
        """Give an exception the trace so far, and a note of what to do with it; nothing here takes long."""
        if error is self.handed:
            return
        trace = None
        with contextlib.suppress(Exception):  # a kernel of a user's own may fail to say what it is
            trace = self.trace() if self.finished is None else self.finished
        if trace is not None:
            sizes = [len(chain) for chain in trace.chains]
            few, many = min(sizes), max(sizes)
            count = counted(few, "draw") if few == many else f"{few} to {counted(many, 'draw')}"
            on = (f"{count} of each chain. mcmc.sample(..., init=error.trace), with the same kernel or model, goes on "
                  f"from there, without more tuning")
            handed_over(error, "trace", trace, on, many > 0, KEPT)
        self.handed = error

    def trace(self) -> Trace:
        """The draws so far; a chain's are joined when they are asked for."""
        with self.lock:
            empty = self.kernel.run(self.runs[0].rng_there(), self.runs[0].state, 0)[1]
            names = tuple(getattr(self.kernel, "names", None) or ())
            about = self.kernel.describe()
            tuned = getattr(self.kernel, "_tuned", None)
            about |= tuned([run.state for run in self.runs]) if tuned else {}
            return Trace(
                tuple(joined_later(run.parts) if run.parts else empty for run in self.runs),
                about,
                tuple(run.state for run in self.runs),
                tuple(run.rng_there() for run in self.runs),
                max(run.seconds for run in self.runs),
                self.kernel.variable,
                names=names if empty.draws.shape[1:] == (len(names),) else (),
                parts=tuple(getattr(self.kernel, "parts", ())),
                shown_last=tuple(getattr(self.kernel, "shown_last", ())),
                variables=_variables(self.kernel, names, empty.draws.shape[1:]),
                set_up_seconds=self.set_up,
            )

    def _maybe_save(self, last: float) -> float:
        if self.saved is None or time.monotonic() - last < self.every:
            return last
        self.try_to_save()  # if it failed, a later one may not
        return time.monotonic()

    def save(self) -> None:
        """Write the checkpoint, if there is one."""
        if self.saved is None:
            return
        with self.lock:
            for run in self.runs:
                run.parts = [joined(run.parts)] if run.parts else []
            runs = [replace(run, rng=run.rng_there(), parts=list(run.parts)) for run in self.runs]
        self.saved.save(runs)

    def try_to_save(self) -> str | None:
        """Save; return the reason if the file cannot be written."""
        try:
            self.save()
        except Exception as error:
            assert self.saved is not None
            return (f"the checkpoint {str(self.saved.path)!r} could not be written ({type(error).__name__}: {error}); "
                    f"it is as it was before, and the draws are in the trace alone")
        return None


def _loaded(
    path: Path, asked: dict[str, Any], n_draws: int, pickled: bool
) -> tuple[Checkpoint, list[ChainRun]]:
    """A checkpoint, and its chains; more draws than it was made for are added."""
    saved, chains = Checkpoint.load(path, pickled)
    found = differences(saved.about, asked)
    if found:
        hint = "; or leave rng out to go on with the seed it has" if found == ["seed"] else ""
        raise ValueError(f"checkpoint {str(path)!r} is of another run, which differs in {', '.join(found)}"
                         f"{_compared(saved.about, asked, found)}; remove it to begin anew, or give another path{hint}")
    longest = max(run.n_draws for run in chains)
    if longest > n_draws:
        raise ValueError(f"checkpoint {str(path)!r} has {longest} draws of a chain and n_draws is {n_draws}; ask for "
                         f"{longest} or more, remove it to begin anew, or give another path")
    for run in chains:
        run.left = n_draws - run.n_draws
    return saved, chains


def _compared(saved: dict[str, Any], asked: dict[str, Any], names: list[str]) -> str:
    """What can be said of the differences in words."""
    words = [f"{name} {saved.get(name)} there, {asked.get(name)} here" for name in names if name.startswith("n_")]
    if "kernel" in names:
        there, here = ({k: v for k, v in d["kernel"].items() if k != "options"} for d in (saved, asked))
        words += [f"kernel {there} there, {here} here"] if there != here else ["options of the kernel"]
    return f" ({'; '.join(words)})" if words else ""
