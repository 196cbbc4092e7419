"""Words for PyMC models that are no `GLM`, and for likelihoods that have no rows; needs PyMC to be called."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytensor
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Sigmoid
from pytensor.scalar.math import Erf, Erfc, Erfcx
from pytensor.tensor.basic import Join
from pytensor.tensor.special import Softmax

from fastrace._base._words import counted
from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._expansions import FEW_ROWS

__all__ = ["distribution", "pace", "refuse_simulator", "why_not_by_rows"]

_SOFTMAX = ("mcmc.Softmax(X, y) is a softmax regression in compiled code, with normal priors and the coefficients of "
            "one class at 0")
_BY_ROW = ("pytensor.", "pymc.logprob", "pymc.distributions", "pymc.pytensorf")  # modules of operations that give rows


def distribution(observed: Any) -> tuple[str, str]:
    """An observed variable's distribution as people call it, and what to take in its place, or nothing."""
    name = law(observed)
    if name == "Multinomial":
        return "Multinomial", f"{_SOFTMAX}, where y may be a table of counts" * _by(observed, Softmax)
    if name == "Categorical":
        if _by(observed, Softmax):
            return "Categorical with a softmax", _SOFTMAX
        ordered = _by(observed, Join) and _by(observed, Sigmoid, Erf, Erfc, Erfcx)
        return f"Categorical{' with probabilities between cutpoints, as an ordered regression has' * ordered}", ""
    if name in ("Mixture", "_Hurdle"):
        parts = list(dict.fromkeys(map(_base, observed.owner.inputs[2:])))  # after a generator and weights
        others = [part for part in parts if part != "DiracDelta"]
        if len(parts) == 2 and len(others) == 1:
            return f"a {'hurdle' if name == '_Hurdle' else 'zero-inflated'} {others[0]}, which is a mixture", ""
        return f"a mixture of {' and '.join(parts)}", ""
    if name in ("Censored", "Truncated"):
        return f"a {name.lower()} {_base(observed)}", ""
    return "a pm.CustomDist" if _is_custom(observed) else name, ""


def _is_random(v: Any) -> bool:
    return v.owner is not None and hasattr(v.owner.op, "dist_params")


def _base(v: Any) -> str:
    """The name of a distribution, or of that which is cut."""
    name = law(v)
    if name == "Censored":
        return law(v.owner.inputs[0])
    return type(v.owner.op.base_rv_op).__name__.removesuffix("RV") if name == "Truncated" else name


def _is_custom(observed: Any) -> bool:
    return any(base.__name__ in ("CustomDistRV", "CustomSymbolicDistRV") for base in type(observed.owner.op).__mro__)


def _by(observed: Any, *ops: type) -> bool:
    """Whether one of these operations makes a parameter of the distribution, by way of no other random variable."""
    above = ancestors(observed.owner.inputs, blockers=[v for v in ancestors(observed.owner.inputs) if _is_random(v)])
    made = [u.owner.op for u in above if u.owner is not None]
    return any(isinstance(op, ops) or isinstance(getattr(op, "core_op", None), ops)
               or isinstance(getattr(op, "scalar_op", None), ops) for op in made)


def pace(n_rows: int, mode: Any) -> str:
    """What makes chains of a model faster whose rows PyTensor evaluates, as far as there is something."""
    few = (f"the model has few rows, {counted(n_rows, 'row')}: pm.sample, which reads all of them, may be cheaper; "
           if n_rows <= FEW_ROWS else "")
    by = ("" if pytensor.config.cxx or mode is not None else
          "PyTensor has no C compiler here, so that NumPy does one operation after another: install one, such as g++; ")
    return f"{few}{by}a regression or hierarchy of a family of mcmc.GLM, which runs without PyTensor"


def refuse_simulator(observed: Any) -> None:
    """Refuse a simulator, whose likelihood is a distance of all data from simulated ones."""
    if any(base.__name__ == "SimulatorRV" for base in type(observed.owner.op).__mro__):
        raise ValueError(f"{observed.name!r} is a pm.Simulator, whose likelihood is the distance of all its data from "
                         f"simulated ones, and not one factor for each row: pm.sample_smc is for it")


def why_not_by_rows(model: Any, terms: Sequence[Any], met: Collection[Any], n_rows: int) -> str:
    """Why terms of some rows cannot be computed alone, as far as the graph shows it; empty if it does not.

    `met` are the nodes whose entries were met as those of the rows.
    """
    values = {model.rvs_to_values[v]: v.name for v in model.free_RVs}
    for u in ancestors(terms):
        if u.owner is None or type(u.owner.op).__module__.startswith(_BY_ROW):
            continue
        behind = sorted(values[v] for v in set(ancestors([u])).intersection(values))
        if behind:
            return (f"its terms depend on {', '.join(map(repr, behind))} by way of {type(u.owner.op).__name__}, which "
                    f"computes all that it gives together, where a row's term may depend on its own row alone. Have "
                    f"the rows choose from what it gives by an array of numbers, solution[index], if they share it, "
                    f"or use pm.sample")
    own = sorted(name for v, name in values.items() if v in met)
    if own:
        words = ("This model needs no subsampling: pm.sample reads all its rows at once" if n_rows <= FEW_ROWS else
                 "Marginalise it, give an entry to each group of rows in its place, or use pm.sample")
        has = "has" if len(own) == 1 else "have"
        return (f"{', '.join(map(repr, own))} {has} an entry for each of the {n_rows} rows, of which each row sees its "
                f"own. A step that reads some rows needs a likelihood with no parameter with one entry for each row. "
                f"{words}")
    return ""
