"""The compiled kernels of `fastrace.mcmc` inside compiled JAX programs."""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fastrace.mcmc.doors.jax._xla_chain as _xla_chain
from fastrace._base import _checks
from fastrace.mcmc.doors.jax._races import RaceInfo, key_words
from fastrace.mcmc.kernels._chain import RaceChain
from fastrace.mcmc.kernels._metropolis import RowMetropolis
from fastrace.mcmc.kernels._rows import ChainState, RowKernel
from fastrace.mcmc.kernels.firefly_metropolis import FireflyMetropolis

NOTHING_KNOWN = np.array([0, 0x7FF80000, 0, 0, 0, 0], np.uint32)  # a total of nan, no losses, and no kurtosis


class CompiledState(NamedTuple):
    """State of a chain of a `CompiledKernel`.

    Attributes
    ----------
    position : Array of shape (dim,)
    cache : Array of uint32, shape (6,)
        The words of what the kernel keeps of the position besides.
    """

    position: jax.Array
    cache: jax.Array


class CompiledKernel:
    """A compiled kernel of `fastrace.mcmc`, with its compiled model, for JAX programs.

    Parameters
    ----------
    kernel : RacingMetropolis, PoissonMinibatchMetropolis, TunaMetropolis, Metropolis, RacingSlice or Slice
        Of `fastrace.mcmc`, over any of its models.
    n_steps : int, default 1
        Steps of the kernel in one call. A call costs about a microsecond besides its steps.
    tuned : state, optional
        The state of a chain of this kernel, for the proposal as it has been tuned there.

    Raises
    ------
    TypeError
        If it is no such kernel.

    See Also
    --------
    JaxRacingMetropolis : for a likelihood written in JAX.
    fastrace.mcmc.doors.blackjax.as_algorithm : the same as an algorithm of BlackJAX.

    Notes
    -----
    `init` and `step` are pure functions: for jit, vmap, scan and threads, on the CPU. The same key gives the same step
    bit for bit, batched or not. Steps are made without the interpreter's lock; a prior or a proposal that is a Python
    function takes it. An error in a step ends the program with a `jax.errors.JaxRuntimeError` or
    ValueError that has its text; so does Ctrl-C, which arrives as JAX's error too, not as KeyboardInterrupt.

    Functions compiled ahead of time must not outlive the kernel, nor go to another process.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.jax import CompiledKernel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> kernel = CompiledKernel(mcmc.PoissonMinibatchMetropolis(mcmc.GLM(X, y, prior_sd=10.0)))
    >>> step = lambda state, key: (lambda new, info: (new, (new.position, info)))(*kernel.step(key, state))
    >>> keys = jax.random.split(jax.random.key(1), 500)
    >>> _, (draws, info) = jax.lax.scan(step, kernel.init(jnp.array([1.0, -0.5])), keys)
    >>> draws.mean(axis=0).round(1).tolist() == jnp.array([1.0, -0.5]).tolist()
    True
    """

    def __init__(self, kernel: RowKernel, n_steps: int = 1, *, tuned: ChainState | None = None) -> None:
        if not isinstance(kernel, RowKernel):
            raise TypeError(f"kernel is {_checks.shown(kernel)}; a kernel of fastrace.mcmc over rows, such as "
                            f"RacingMetropolis, is "
                            f"needed")
        if isinstance(kernel, FireflyMetropolis):
            raise ValueError("FireflyMetropolis keeps a list of rows that grows and shrinks; the state of a chain in a "
                             "JAX program has a fixed size: take PoissonMinibatchMetropolis, which is exact too")
        if isinstance(kernel, RowMetropolis) and kernel.propose is not None:
            raise ValueError("the kernel's proposal is a Python function, which draws from a NumPy Generator; a JAX "
                             "program has none: take one of the built-in proposals")
        self.kernel = kernel
        self.n_steps = _checks.integer(n_steps, "n_steps", 1, "a call makes steps")
        self.dim = kernel.model.dim
        tuning = (kernel._state_at(np.zeros(self.dim)) if tuned is None else tuned).tuning
        make = functools.partial(kernel._take, tuning)
        self._number = _xla_chain.Crew(make, isinstance(make(), RaceChain)).number
        weakref.finalize(self, _xla_chain.crews.pop, self._number, None)

    def __repr__(self) -> str:
        return f"CompiledKernel({self.kernel!r}, n_steps={self.n_steps})"

    def init(self, position: Any, rng_key: Any = None) -> CompiledState:
        """The state at a position, an array of shape (dim,); `rng_key` is not needed."""
        theta = jnp.asarray(position)
        if theta.shape != (self.dim,):
            raise ValueError(f"position has shape {theta.shape}; ({self.dim},), one number a parameter, is needed")
        if not jnp.issubdtype(theta.dtype, jnp.floating):
            theta = theta.astype(jnp.result_type(float))
        if theta.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"position has dtype {theta.dtype}; float32 or float64 is needed")
        return CompiledState(theta, jnp.asarray(NOTHING_KNOWN))

    def step(self, rng_key: Any, state: CompiledState) -> tuple[CompiledState, RaceInfo]:
        """`n_steps` transitions.

        Parameters
        ----------
        rng_key : key
        state : CompiledState

        Returns
        -------
        state : CompiledState
        info : RaceInfo
            Rows and looks of all steps; whether any was accepted, made a full pass, was undecided.
        """
        theta = state.position
        if theta.shape != (self.dim,) or theta.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"the state has a position of shape {theta.shape} and dtype {theta.dtype}; ({self.dim},) "
                             f"and float32 or float64, as init() gives it, are needed")
        shapes = [
            jax.ShapeDtypeStruct((self.dim,), theta.dtype),
            jax.ShapeDtypeStruct((_xla_chain.CACHE_WORDS,), jnp.uint32),
            jax.ShapeDtypeStruct((5,), jnp.int32),
        ]
        function = jax.ffi.ffi_call("fastrace_chain_steps", shapes, vmap_method="broadcast_all")
        order = np.array([self._number, self.n_steps], np.int64)
        position, cache, counts = function(key_words(rng_key), theta, state.cache, order=order)
        info = RaceInfo(counts[0], counts[1], counts[2] > 0, counts[3] > 0, counts[4] > 0)
        return CompiledState(position, cache), info
