"""Arguments that users of other libraries know by other names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# What PyMC, bambi, NumPyro, emcee and scikit-learn say for it.
MEANT = {
    "draws": "n_draws", "num_samples": "n_draws", "nsteps": "n_draws", "tune": "n_tune", "num_warmup": "n_tune",
    "warmup": "n_tune", "burn": "n_tune", "chains": "n_chains", "num_chains": "n_chains", "cores": "threads",
    "n_jobs": "threads", "random_seed": "rng", "random_state": "rng", "seed": "rng", "key": "rng",
    "progressbar": "progress", "progress_bar": "progress", "initvals": "init", "init_params": "init", "start": "init",
    "exposure": "offset", "sample_weight": "weights", "freq_weights": "weights",
    "sigma": "scale", "nu": "df",
}


def names_meant(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function or ``__init__``: of a keyword that it does not have, it says which one is meant."""
    parameters = inspect.signature(function).parameters
    known = [name for name in parameters if name != "self"]

    @functools.wraps(function)
    def told(*args: P.args, **given: P.kwargs) -> T:
        for name in given:
            if name not in parameters:
                close = [MEANT[name]] if MEANT.get(name) in known else get_close_matches(name, known, 1)
                whose = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
                raise TypeError(f"{whose}() got an unexpected keyword argument {name!r}"
                                + (f": {close[0]}= is meant" if close else f"; it has {', '.join(known)}"))
        return function(*args, **given)

    return told
