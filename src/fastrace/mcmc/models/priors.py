"""Priors as objects: of coefficients, of scales, of correlations, and densities of a user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._callbacks import density_address

__all__ = [
    "LKJ",
    "Beta",
    "Exponential",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "HalfStudentT",
    "Horseshoe",
    "Laplace",
    "LogDensity",
    "LogNormal",
    "Normal",
    "Scale",
    "StudentT",
]

Array = NDArray[np.float64]
Triple = tuple[str, float, float]  # what the compiled prior reads


def _positive(owner: object, *fields: str) -> None:
    for name in fields:
        value = _checks.real(getattr(owner, name), name)
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} of {type(owner).__name__} is {value:g}; a positive finite number is needed")


def _finite(owner: object, *fields: str) -> None:
    for name in fields:
        value = _checks.real(getattr(owner, name), name)
        if not math.isfinite(value):
            raise ValueError(f"{name} of {type(owner).__name__} is {value:g}; a finite number is needed")


class Scale:
    """A prior of a positive number: of a standard deviation, or of another scale. Use one of its subclasses.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Exponential(2.0).triple()  # what the compiled prior reads
    ('gamma', 1.0, 2.0)
    """

    def triple(self) -> Triple:
        """Name and parameters of the compiled density."""
        raise NotImplementedError


@dataclass(frozen=True)
class HalfNormal(Scale):
    """Normal density on positive numbers.

    Parameters
    ----------
    sd : float, default 1.0
        Of the normal density before it is halved, in units of the scale. The mean is 0.8 `sd`.

    Raises
    ------
    ValueError
        If `sd` is not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Normal(0.0, mcmc.HalfNormal(2.5))  # a standard deviation that the data learn
    Normal(mean=0.0, sd=HalfNormal(sd=2.5))
    """

    sd: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "sd")

    def triple(self) -> Triple:
        return "half-normal", self.sd, 0.0


@dataclass(frozen=True)
class HalfStudentT(Scale):
    """Student density on positive numbers.

    Parameters
    ----------
    df : float, default 4.0
        Degrees of freedom.
    scale : float, default 1.0
        In units of the scale that it is a prior of.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.HalfStudentT(df=3.0, scale=2.5)
    HalfStudentT(df=3.0, scale=2.5)
    """

    df: float = 4.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "df", "scale")

    def triple(self) -> Triple:
        return "half-student", self.scale, self.df


@dataclass(frozen=True)
class HalfCauchy(Scale):
    """Cauchy density on positive numbers; half its mass lies above `scale`.

    Parameters
    ----------
    scale : float, default 1.0
        In units of the scale that it is a prior of.

    Raises
    ------
    ValueError
        If `scale` is not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.HalfCauchy(2.0)
    HalfCauchy(scale=2.0)
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "scale")

    def triple(self) -> Triple:
        return "half-student", self.scale, 1.0


@dataclass(frozen=True)
class Exponential(Scale):
    """Exponential density.

    Parameters
    ----------
    rate : float, default 1.0
        One over the mean.

    Raises
    ------
    ValueError
        If `rate` is not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Exponential(2.0)
    Exponential(rate=2.0)
    """

    rate: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "rate")

    def triple(self) -> Triple:
        return "gamma", 1.0, self.rate


@dataclass(frozen=True)
class Gamma(Scale):
    """Gamma density with mean `shape` / `rate`.

    Parameters
    ----------
    shape, rate : float
        Both positive.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Gamma(2.0, 0.1)
    Gamma(shape=2.0, rate=0.1)
    """

    shape: float
    rate: float

    def __post_init__(self) -> None:
        _positive(self, "shape", "rate")

    def triple(self) -> Triple:
        return "gamma", self.shape, self.rate


@dataclass(frozen=True)
class LogNormal(Scale):
    """Density of a scale whose logarithm is normal.

    Parameters
    ----------
    mean, sd : float, default 0.0 and 1.0
        Of the logarithm.

    Raises
    ------
    ValueError
        If `mean` is not finite, or `sd` not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.LogNormal(0.0, 0.5)
    LogNormal(mean=0.0, sd=0.5)
    """

    mean: float = 0.0
    sd: float = 1.0

    def __post_init__(self) -> None:
        _finite(self, "mean")
        _positive(self, "sd")

    def triple(self) -> Triple:
        return "log-normal", self.mean, self.sd


def _check_width(owner: object, field: str, flat: bool = False) -> None:
    """Of a density of coefficients: a number, or a prior of it."""
    value = getattr(owner, field)
    if isinstance(value, Scale):
        return
    value = _checks.real(value, field)
    if not 0.0 < value <= (math.inf if flat else 1.7e308):
        raise ValueError(f"{field} of {type(owner).__name__} is {value:g}; a positive number, or a prior of it such as "
                         f"HalfNormal(1.0), is needed")


@dataclass(frozen=True)
class Normal:
    """Normal prior of coefficients.

    Parameters
    ----------
    mean : float, default 0.0
        In units of the coefficients.
    sd : float or prior of a scale, default 1.0
        Infinity is a flat prior. With a prior of a scale, such as `HalfNormal`, the standard deviation is learned; all
        coefficients that are given this object share it.

    Raises
    ------
    ValueError
        If `mean` is not finite, or `sd` not positive.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Normal(0.0, 2.5)
    Normal(mean=0.0, sd=2.5)
    """

    mean: float = 0.0
    sd: float | Scale = 1.0

    def __post_init__(self) -> None:
        _finite(self, "mean")
        _check_width(self, "sd", flat=True)


@dataclass(frozen=True)
class StudentT:
    """Student prior of coefficients: heavier tails than a normal one.

    Parameters
    ----------
    df : float, default 4.0
        Degrees of freedom.
    mean : float, default 0.0
        In units of the coefficients.
    scale : float or prior of a scale, default 1.0
        With a prior of a scale it is learned, and shared by all coefficients that are given this object.

    Raises
    ------
    ValueError
        If `mean` is not finite, or `df` or `scale` not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.StudentT(df=3.0, scale=2.5)
    StudentT(df=3.0, mean=0.0, scale=2.5)
    """

    df: float = 4.0
    mean: float = 0.0
    scale: float | Scale = 1.0

    def __post_init__(self) -> None:
        _positive(self, "df")
        _finite(self, "mean")
        _check_width(self, "scale")


@dataclass(frozen=True)
class Laplace:
    """Laplace (double exponential) prior of coefficients; with a learned scale, the Bayesian lasso.

    Parameters
    ----------
    mean : float, default 0.0
        In units of the coefficients.
    scale : float or prior of a scale, default 1.0
        The mean distance from `mean`. With a prior of a scale it is learned, and shared by all coefficients that are
        given this object.

    Raises
    ------
    ValueError
        If `mean` is not finite, or `scale` not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Laplace(scale=mcmc.HalfCauchy(1.0))
    Laplace(mean=0.0, scale=HalfCauchy(scale=1.0))
    """

    mean: float = 0.0
    scale: float | Scale = 1.0

    def __post_init__(self) -> None:
        _finite(self, "mean")
        _check_width(self, "scale")


@dataclass(frozen=True)
class Horseshoe:
    r"""Regularised horseshoe prior of coefficients: most are shrunk to almost nothing, a few hardly at all.

    Coefficient j is normal with mean 0 and standard deviation :math:`s_j`,
    :math:`1 / s_j^2 = 1 / (\tau \lambda_j)^2 + 1 / c^2`, local scales :math:`\lambda_j` half-Cauchy, global scale
    :math:`\tau` half-Student with scale `global_scale`, and a slab with
    :math:`c^2 \sim` inverse gamma(`slab_df` / 2, `slab_df` `slab_scale`^2 / 2).

    Parameters
    ----------
    expected_nonzero : float, optional
        A guess p0 of how many of the p coefficients matter; then `global_scale` is
        p0 / (p - p0) times the noise of one observation over the square root of their number: rows, as often as
        `weights` say, and all trials of each.
    global_scale : float, optional
        In place of `expected_nonzero`; one of both is needed. In units of the outcome (or of its link) over columns.
    slab_scale : float, default 2.5
        How large coefficients that matter may be. Infinity is the plain horseshoe, which has no slab.
    slab_df : float, default 4.0
        Degrees of freedom of a large coefficient, which the slab makes Student-distributed. With infinity the slab is
        normal: c is `slab_scale`, and not learned.
    global_df : float, default 1.0
        Degrees of freedom of the global scale: 1 is half-Cauchy.
    local_df : float, default 1.0
        Degrees of freedom of the local scales.

    Raises
    ------
    ValueError
        If not just one of `expected_nonzero` and `global_scale` is given, or a parameter is not positive and finite,
        but for an infinite `slab_scale` or `slab_df`.

    Notes
    -----
    Columns should have about the same scale. A model with p such coefficients has p + 2 hyperparameters, and p + 1
    without a slab or with one that is not learned. A constant column, the intercept, is not shrunk: it has the weak
    prior of the model.

    References
    ----------
    .. [1] Piironen & Vehtari, "Sparsity information and regularization in the horseshoe and other shrinkage priors",
       Electronic Journal of Statistics 11 (2017).

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Horseshoe(global_scale=0.01).slab_scale
    2.5
    """

    expected_nonzero: float | None = None
    global_scale: float | None = None
    slab_scale: float = 2.5
    slab_df: float = 4.0
    global_df: float = 1.0
    local_df: float = 1.0

    def __post_init__(self) -> None:
        if (self.expected_nonzero is None) == (self.global_scale is None):
            raise ValueError(
                f"expected_nonzero is {self.expected_nonzero} and global_scale {self.global_scale}; one of both is "
                f"needed: a guess of how many coefficients matter, or the scale that follows from it"
            )
        _positive(self, "expected_nonzero" if self.global_scale is None else "global_scale")
        slab = [name for name in ("slab_scale", "slab_df") if getattr(self, name) != math.inf]
        _positive(self, "global_df", "local_df", *slab)

    def global_scale_of(self, n_coefficients: int, n_observations: float, noise: float) -> float:
        """The scale of the global scale for so many coefficients, observations, and so noisy an observation."""
        if self.expected_nonzero is None:
            assert self.global_scale is not None
            return self.global_scale
        if not self.expected_nonzero < n_coefficients:
            raise ValueError(
                f"expected_nonzero is {self.expected_nonzero:g} of {n_coefficients} coefficients; fewer than all of "
                f"them must be expected to matter, or another prior is right"
            )
        return self.expected_nonzero / (n_coefficients - self.expected_nonzero) * noise / math.sqrt(n_observations)


@dataclass(frozen=True)
class Beta:
    """Prior of a share: in `VariableSelection`, of the coefficients that are in the model.

    Parameters
    ----------
    a, b : float, default 1.0
        The share has mean a / (a + b), and a + b says how sure of it one is. With both 1 every number of coefficients
        is as likely as any other.

    Raises
    ------
    ValueError
        If one of them is not positive and finite.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.Beta(1.0, 9.0)
    Beta(a=1.0, b=9.0)
    """

    a: float = 1.0
    b: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "a", "b")


@dataclass(frozen=True)
class LKJ:
    """Prior of the correlations between the effects of a group: density proportional to det(R)^(eta - 1).

    Parameters
    ----------
    eta : float, default 2.0
        At 1 all correlation matrices are alike; larger values favour small correlations.

    Raises
    ------
    ValueError
        If `eta` is not positive and finite.

    References
    ----------
    .. [1] Lewandowski, Kurowicka & Joe, "Generating random correlation matrices based on vines and extended onion
       method", Journal of Multivariate Analysis 100 (2009).

    Examples
    --------
    >>> from fastrace import mcmc
    >>> mcmc.LKJ(1.0)
    LKJ(eta=1.0)
    """

    eta: float = 2.0

    def __post_init__(self) -> None:
        _positive(self, "eta")


@dataclass(frozen=True)
class LogDensity:
    """A log density of the user's own, which the prior is multiplied by.

    Parameters
    ----------
    function : callable
        ``function(theta)`` returns the log density, up to a constant. With ``backend="jax"`` it is written in
        `jax.numpy`; with ``backend="pytensor"`` it takes a symbolic vector and returns a symbolic scalar. With
        ``backend="numba"`` it is a `numba.cfunc` of type ``float64(CPointer(float64), intp, CPointer(float64))``, or a
        `scipy.LowLevelCallable` of C's ``double (double *, intptr_t, double *)``: it takes the parameters, their number
        and where to write the gradient, and returns the log density.
    gradient : callable, optional
        ``gradient(theta)`` returns its gradient, shape (n,). Other backends than NumPy derive or supply it themselves.
    names : sequence of str, optional
        The parameters it takes, in this order; by default all parameters of the model, in order. Scales are handed over
        as their logarithms, as chains move them, and the density is one of the logarithms.
    backend : {"numpy", "jax", "pytensor", "numba"}, default "numpy"
        What `function` is written in.

    Raises
    ------
    ValueError
        If the backend is unknown, or a gradient is given beside a backend that has its own.

    Notes
    -----
    Without a gradient only kernels that need none can use it. Where the density puts the posterior far from where the
    likelihood alone would, `compress` and `SurrogateMetropolis` expand the likelihood there, see `compress`; other
    kernels expand it at the mode without the density. With ``backend="numba"`` chains of models with joint
    priors, such as `GLM`, call the compiled code without the GIL; it must be safe in several threads at once. Others
    are called from Python and take the GIL: some microseconds for each evaluation.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> ridge = mcmc.LogDensity(lambda b: -((b[0] - b[1]) ** 2), lambda b: np.array([2.0, -2.0]) * (b[1] - b[0]),
    ...                         names=("x", "z"))
    >>> ridge.evaluate(np.array([1.0, 2.0]))
    (-1.0, array([ 2., -2.]))
    """

    function: Callable[..., Any]
    gradient: Callable[[Array], Any] | None = None
    names: Sequence[str] | None = None
    backend: str = "numpy"

    def __post_init__(self) -> None:
        backends = ("numpy", "jax", "pytensor", "numba")
        if self.backend not in backends:
            raise ValueError(f"backend is {self.backend!r}; one of {', '.join(map(repr, backends))} is needed")
        if self.backend == "numba":
            density_address(self.function)
        elif not callable(self.function) or not (self.gradient is None or callable(self.gradient)):
            raise TypeError(f"function is {_checks.shown(self.function)} and gradient {_checks.shown(self.gradient)}; "
                            f"functions of the parameters are needed")
        if self.gradient is not None and self.backend != "numpy":
            raise ValueError(f"a gradient came with backend={self.backend!r}, which has its own: leave it out")
        if self.names is not None:
            object.__setattr__(self, "names", tuple(self.names))

    @property
    def address(self) -> int | None:
        """Where the compiled code stands that needs no GIL; None for functions of Python."""
        return density_address(self.function) if self.backend == "numba" else None

    def evaluate(self, theta: Array) -> tuple[float, Array | None]:
        """The log density at a point and its gradient, or None where no gradient is known."""
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            compiled = getattr(self, f"_with_{self.backend}")()
            self.__dict__["_compiled"] = compiled
        value, slopes = compiled(theta)
        try:
            value = float(value)
        except (TypeError, ValueError) as error:
            called = getattr(self.function, "__name__", type(self.function).__name__)
            raise TypeError(f"the log density {called!r} returned {_checks.shown(value)} at theta of shape "
                            f"{theta.shape}; one number, the log density of all of theta, is needed, such as the sum "
                            f"of those of its entries") from error
        if math.isnan(value) or value == math.inf:
            raise ValueError(f"the log density returned {value} at {theta}; a finite number is needed, or -inf where "
                             f"the parameters are impossible")
        return value, None if slopes is None else np.asarray(slopes, dtype=np.float64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def _with_numpy(self) -> Callable[[Array], tuple[Any, Any]]:
        function, gradient = self.function, self.gradient
        if gradient is None:
            return lambda theta: (function(theta), None)
        return lambda theta: (function(theta), gradient(theta))

    def _with_jax(self) -> Callable[[Array], tuple[Any, Any]]:
        import jax

        compiled = jax.jit(jax.value_and_grad(self.function))

        def call(theta: Array) -> tuple[Any, Any]:
            with jax.enable_x64(True):
                return compiled(theta)

        return call

    def _with_pytensor(self) -> Callable[[Array], tuple[Any, Any]]:
        import pytensor
        import pytensor.tensor as pt

        theta = pt.dvector("theta")
        value = self.function(theta)
        compiled = pytensor.function([theta], [value, pytensor.grad(value, theta)])
        return lambda point: tuple(compiled(point))

    def _with_numba(self) -> Callable[[Array], tuple[Any, Any]]:
        import ctypes

        pointer = ctypes.POINTER(ctypes.c_double)
        kind = ctypes.CFUNCTYPE(ctypes.c_double, pointer, ctypes.c_ssize_t, pointer)
        compiled = kind(density_address(self.function))

        def call(theta: Array) -> tuple[Any, Any]:
            theta, slopes = np.ascontiguousarray(theta), np.empty(len(theta))
            where = [array.ctypes.data_as(pointer) for array in (theta, slopes)]
            return compiled(where[0], len(theta), where[1]), slopes

        return call


Location = Normal | StudentT | Laplace | Horseshoe
