"""Points and draws of a PyMC model as vectors of parameters, and back by the names of its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace.mcmc.doors.pymc._expansions import Expansions
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.trace import Trace

__all__ = ["NamedDraws"]


class NamedDraws(Expansions):
    """What a `PyMCModel` makes of points and draws; what it asks of the model is listed first."""

    values: list[Any]
    shapes: list[tuple[int, ...]]
    sizes: list[int]
    dtypes: list[np.dtype[Any]]

    def as_glm(self) -> GLM:
        raise NotImplementedError

    def from_glm(self, draws: ArrayLike) -> NDArray[np.float64]:
        raise NotImplementedError

    @property
    def _value_names(self) -> list[str]:
        return [v.name for v in self.values]

    def pack(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        """The parameters of a point of PyMC."""
        missing = [name for name in self._value_names if name not in point]
        if missing:
            raise ValueError(f"the point has no {missing[0]!r}; it has {', '.join(point)}")
        return np.concatenate([np.ravel(np.asarray(point[name], dtype=np.float64)) for name in self._value_names])

    def point(self, theta: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Value variables by name, in their own dtypes."""
        out, first = {}, 0
        for name, shape, size, dtype in zip(self._value_names, self.shapes, self.sizes, self.dtypes, strict=True):
            out[name] = np.asarray(theta[first : first + size], dtype=dtype).reshape(shape).copy()
            first += size
        return out

    def unpack(self, draws: ArrayLike | Trace, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Draws of shape (..., dim) as arrays by the names of the model's variables, on their own scales.

        `draws` may be the trace of a chain of this model or of what `as_glm` gives. An array must hold parameters of
        this model: `from_glm` makes them of draws of the other. `names` are free and deterministic variables; by
        default all but those that depend on the rows.
        """
        array = self._of_trace(draws) if isinstance(draws, Trace) else np.asarray(draws, dtype=np.float64)
        if array.shape[-1:] != (self.dim,):
            raise ValueError(f"draws has shape {array.shape}; the last axis must have the {self.dim} parameters")
        listed, function = self._graphs.draws(names)
        flat = [function(self._whole(theta), *self._fixed_values()) for theta in array.reshape(-1, self.dim)]
        return {
            name: np.stack([draw[i] for draw in flat]).reshape(array.shape[:-1] + flat[0][i].shape)
            for i, name in enumerate(listed)
        }

    def _of_trace(self, trace: Trace) -> NDArray[np.float64]:
        """The draws of a trace as parameters of this model, whichever of its two forms the chain moved."""
        draws = np.asarray(trace.draws, dtype=np.float64)
        if not trace.names or tuple(trace.names) == self.names:
            return draws
        try:
            others = self.as_glm().natural_names or ()
        except ValueError:
            others = ()
        if tuple(trace.names) == others:
            return self.from_glm(draws)
        theirs, own = ", ".join(trace.names[:3]), ", ".join((self.names or ())[:3])
        raise ValueError(f"the trace is of {theirs}, ... and the model has {own}, ...; a trace of this model, or of "
                         f"its as_glm(), is needed")

    def labelled(self, draws: ArrayLike | Trace) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Draws of shape (..., dim) by the names of the model's variables, and what ArviZ needs to label them.

        Parameters
        ----------
        draws : Trace, or array_like of shape (..., dim)
            As `unpack` takes them.

        Returns
        -------
        arrays : dict
            As `unpack` gives them.
        labels : dict
            "dims": names of the axes of each variable that has some; "coords": labels along these axes.
        """
        arrays, model = self.unpack(draws), self.pymc_model
        dims = {name: list(model.named_vars_to_dims[name]) for name in arrays if model.named_vars_to_dims.get(name)}
        used = {dim for axes in dims.values() for dim in axes}
        return arrays, {"dims": dims, "coords": {dim: list(at) for dim, at in model.coords.items()
                                                 if dim in used and at is not None}}

    def packed(self, values: Any) -> NDArray[np.float64]:
        """Draws of the model's variables as draws of its parameters, the inverse of `unpack`.

        Parameters
        ----------
        values : dict or xarray Dataset
            Arrays of shape (..., *shape of the variable) by the names of all free variables, on their own scales.
            Other names may stand beside them.

        Returns
        -------
        ndarray of shape (..., dim)
            The parameters.

        Raises
        ------
        ValueError
            If a variable lacks, shapes disagree, or a value is impossible.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from fastrace import mcmc
        >>> with pm.Model() as model:
        ...     mean, sd = pm.Normal("mean"), pm.HalfNormal("sd")
        ...     obs = pm.Normal("obs", mu=mean, sigma=sd, observed=np.arange(5.0))
        >>> mcmc.from_pymc(model).packed({"mean": [0.5, 1.0], "sd": [1.0, 2.0]}).round(2)
        array([[0.5 , 0.  ],
               [1.  , 0.69]])
        """
        free = [self.pymc_model.values_to_rvs[value] for value in self.values]
        lacking = [v.name for v in free if v.name not in values]
        if lacking:
            raise ValueError(f"the draws lack {lacking[0]!r}; those of all free variables, "
                             f"{', '.join(v.name for v in free)}, are needed")
        given, function = [], self._graphs.parameters(free)
        for v, inner in zip(free, self._graphs.shapes_of(free), strict=True):
            own = _checks.floats(np.asarray(values[v.name]), f"draws[{v.name!r}]")
            if own.ndim < len(inner) or own.shape[own.ndim - len(inner) :] != inner:
                raise ValueError(f"draws[{v.name!r}] has shape {own.shape}; draws of shape "
                                 f"(..., {', '.join(map(str, inner))}) are needed")
            given.append(own)
        outer = {own.shape[: own.ndim - len(inner)] for own, inner in
                 zip(given, self._graphs.shapes_of(free), strict=True)}
        if len(outer) > 1:
            raise ValueError(f"draws of the variables have shapes {sorted(outer)} beside their own; one is needed")
        shape = outer.pop()
        flat = [own.reshape(-1, *inner) for own, inner in zip(given, self._graphs.shapes_of(free), strict=True)]
        out = np.array([np.concatenate([np.ravel(part) for part in function(*point)])
                        for point in zip(*flat, strict=True)], dtype=np.float64).reshape(*shape, self.dim)
        if not np.isfinite(out).all():
            place = np.argwhere(~np.isfinite(out))[0].tolist()
            raise ValueError(f"draw {place[:-1]} has {(self.names or ())[place[-1]]} = {out[tuple(place)]}: a value "
                             f"that its variable cannot have, or that stands on the edge of what it can")
        return out

    def _are_variables(self, values: Any) -> bool:
        """Whether some names are those of all free variables."""
        return all(self.pymc_model.values_to_rvs[value].name in values for value in self.values)
