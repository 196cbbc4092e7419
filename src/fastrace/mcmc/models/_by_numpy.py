"""PyTensor without a C compiler: functions that NumPy computes array by array; importing this module needs PyTensor.

PyTensor then makes fused operations, and some others, entry by entry in Python.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.scalar import Add, Cast, Clip, Mul, Second
from pytensor.scalar.basic import upgrade_to_float_no_complex
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma
from pytensor.tensor.elemwise import Elemwise
from scipy.special import zeta

__all__ = ["by_numpy", "trigamma"]


def by_numpy(mode: Any, compiles: bool = True) -> Any:
    """A mode without what would be made entry by entry; the same one where a compiler makes its functions.

    `compiles` says whether it asks for the C compiler, if there is one.
    """
    if type(mode.linker).__name__ not in ("PerformLinker", "VMLinker", "OpWiseCLinker") or (
            pytensor.config.cxx and compiles):
        return mode
    split = out2in(node_rewriter([Elemwise])(_as_numpy_has_it), ignore_newtrees=True)
    return mode.excluding("fusion", "add_mul_fusion", "local_pow_to_nested_squaring").register((split, 48.9))


def _as_numpy_has_it(fgraph: Any, node: Any) -> Any:
    """Sums and products of two in place of many, and what stands for operations that PyTensor makes entry by entry.

    These are log(1 + exp(x)), log(1 - exp(x)), casts to a wider type, bounds, the second derivative of log gamma, and
    spreading over a shape.
    """
    op, inputs = node.op.scalar_op, node.inputs
    if isinstance(op, Add | Mul) and len(inputs) > 2:
        return [functools.reduce(node.op, inputs)]
    if isinstance(op, Softplus) and inputs[0].dtype == node.outputs[0].dtype:
        x = inputs[0]
        return [pt.maximum(x, np.zeros((), x.dtype)) + pt.log1p(pt.exp(-pt.abs(x)))]
    wide = node.outputs[0].dtype
    if isinstance(op, Log1mexp) and inputs[0].dtype == wide:
        x = inputs[0]
        return [pt.switch(x < math.log(0.5), pt.log1p(-pt.exp(x)), pt.log(-pt.expm1(x)))]
    if isinstance(op, Clip) and all(i.dtype == wide for i in inputs):
        x, low, high = inputs
        return [pt.switch(x < low, low, pt.switch(x > high, high, x))]
    if type(op) is TriGamma and inputs[0].dtype == wide:
        return [_TRIGAMMA(inputs[0])]
    if isinstance(op, Second) and wide == inputs[1].dtype == np.result_type(*(i.dtype for i in inputs)):
        return [pt.switch(np.ones((), bool), inputs[1], inputs[0])]
    if isinstance(op, Cast) and np.result_type(inputs[0].dtype, wide) == wide:
        return [pt.mul(inputs[0], np.ones((), wide))]
    return None


class _SeriesTriGamma(TriGamma):  # type: ignore[misc]
    """The second derivative of log gamma of whole arrays, where SciPy's own is asked for entry by entry."""

    nfunc_spec = (f"{__name__}.trigamma", 1, 1)


def trigamma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `scipy.special.polygamma(1, x)` computes it."""
    return np.asarray(zeta(2.0, x))


_TRIGAMMA = Elemwise(_SeriesTriGamma(upgrade_to_float_no_complex, name="tri_gamma"))
