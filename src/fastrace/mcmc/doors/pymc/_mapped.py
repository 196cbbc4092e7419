"""PyMC models whose rows see a map of the parameters: expansions in what the rows see; needs PyMC to be made."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from fastrace._base._progress import patient
from fastrace._models._arrow import Arrow
from fastrace._models._expanded import Expanded
from fastrace._models._priors import JointPrior
from fastrace.mcmc.compression import Compressed
from fastrace.mcmc.kernels._trajectories import Purse, trajectories_of
from fastrace.mcmc.models._modes import NoModeError, find_mode
from fastrace.mcmc.models.base import Model, Reference
from fastrace.mcmc.models.own_terms import terms_of_arms
from fastrace.sources import CallableSource, Source

__all__ = ["EFFORT", "MappedModel"]

Array = NDArray[np.float64]
Parts = tuple[float, Array, Array]

EFFORT = 0.25  # share of the usual moves in pilots: each gradient is a call of Python
_WEAK = 10.0  # standard deviation of a weak normal density of what the rows see, about where PyMC starts
_PULL = 3.0  # the same of the parameters, where a first point is looked for
_ROUNDS = 2  # of a pilot that expands anew at the mean of what the rows see
_MOVES = 200  # of each
_ARRIVING = 50  # of these, left out
_FEWEST = 20  # of the others that tell a mean and a covariance
_TO_SETTLE, _TO_MOVE = 6700, 2000  # gradients for trajectories of one pilot, and for its moves,
_TRAJECTORY = 1026  # but for those of a trajectory that passes the limit: so many at most
_TO_BEGIN = 500  # gradients for a first point
PILOT = _TO_BEGIN + _ROUNDS * (_TO_SETTLE + _TO_MOVE + 2 * _TRAJECTORY)  # at most, and for trajectories of chains
SETTLING = _TO_SETTLE + _TRAJECTORY


class _Surrogate:
    """Log prior plus expansion at theta, less the normal density that compiled code adds; with its gradient.

    `center` and `curvature` are those of that density, of which the sum does not depend; `whole` needs none.
    """

    def __init__(
        self, owner: Any, hat: Array, slope: Array, bend: Array, center: Array | None, curvature: Array | None
    ) -> None:
        self.owner, self.hat, self.slope, self.bend = owner, hat, slope, bend
        self.center, self.curvature = center, curvature

    def __call__(self, theta: Array) -> tuple[float, Array]:
        value, gradient = self.whole(theta, 1.0)
        if not math.isfinite(value):
            return -math.inf, np.zeros(len(theta))
        assert self.center is not None and self.curvature is not None
        pull = self.curvature @ (theta - self.center)
        return value + 0.5 * float(pull @ (theta - self.center)), gradient + pull

    def whole(self, theta: Array, share: float) -> tuple[float, Array]:
        """A share of the log prior, plus the expansion; -inf for what is not finite.

        So it is where a trial step is too long, and an infinite scale meets effects of both signs in a product.
        """
        self.owner._asked += 1
        self.owner._tell(self.owner._asked)
        with np.errstate(over="ignore", invalid="ignore"):  # the next line looks for it
            value, gradient = self.owner._graphs.call("surrogate", theta, self.hat, self.slope, self.bend,
                                                      np.array(share))
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return -math.inf, np.zeros(len(theta))
        return float(value), np.asarray(gradient)


class MappedModel(Model):
    """A PyMC model for `SurrogateMetropolis`: rows are expanded in what they see, and chains move its parameters.

    What the rows see are the variables that `through` of `from_pymc` names. Otherwise they are the coefficients of
    linear predictors and scalars, such as the logarithm of a scale, as functions of the parameters; or, where the terms
    are no functions of linear predictors, the last variables on the way from parameters to rows if these are fewer
    numbers, else all parameters. Moves are Hamiltonian on prior times expansion, with gradients by PyTensor.

    Parameters
    ----------
    owner : PyMCModel
    """

    _concave = True  # no normal density follows it: no search for other modes by one
    _computed = (*Model._computed, "parts", "_level")
    _level = math.nan  # of the log-likelihood where it was expanded
    _effort = EFFORT
    _most_gradients = _TO_SETTLE

    def __init__(self, owner: Any) -> None:
        super().__init__(owner.dim, owner.n_rows, names=owner.names)
        self.owner, self.parts = owner, owner._parts()
        self.expansion: tuple[Array, Array, Array, Array] | None = None  # point, slope, curvature, what is added to it

    def __repr__(self) -> str:
        return f"{self.owner!r}, rows expanded in what they see"

    @property
    def has_derivatives(self) -> bool:
        return True

    @property
    def is_hierarchy(self) -> bool:
        """Whether there are parameters behind what the rows see, or the user said what that is."""
        graphs = self.owner._graphs
        return bool(self.owner._through is not None or graphs.hidden or graphs.n_seen < self.dim)

    def reference(self, theta_hat: ArrayLike | None = None) -> Reference:
        return self.owner.reference(theta_hat)

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        if reference is None:
            return self.owner.engine(None)
        theta, left = np.zeros((2, self.dim)), partial(self.left, compiled=self._compiled())
        return CallableSource(partial(terms_of_arms, left, theta), 2, self.n_rows), theta

    def _compiled(self) -> tuple[Source, Array] | None:
        """What the expansion leaves of a generalised linear model's terms in what the rows see, for one chain."""
        glm = self.owner._seen_glm
        if glm is None or self.expansion is None:
            return None
        source, psi = glm.engine(None)
        return Expanded(source, self.expansion[0]), psi

    def _bounds(self, hat: Array, factor: Array) -> tuple[Any, ...]:
        return None, math.inf, 0.0

    def log_posteriors(self, theta: ArrayLike) -> Array:
        return self.owner.log_posteriors(theta)

    @property
    def seen_names(self) -> tuple[str, ...]:
        """What each number that the rows see is called."""
        return tuple(self.owner._graphs.seen_names or self.names or ())

    def seen(self, theta: Array) -> Array:
        """What the rows see of the parameters."""
        graphs = self.owner._graphs
        return np.array(graphs.call("seen", theta) if graphs.maps else theta, dtype=np.float64)

    def left(self, theta: Array, rows: NDArray[np.int64], compiled: tuple[Source, Array] | None = None) -> Array:
        """What the expansion leaves of the terms of some rows; each has its share of what was added to the curvature.

        By compiled code where its source, with the array that it reads from, is given.
        """
        assert self.expansion is not None
        hat, _, _, added = self.expansion
        rows = np.asarray(rows, dtype=np.int64)
        psi = self.seen(theta)
        step = psi - hat
        graphs = self.owner._graphs
        if compiled is not None:
            source, arms = compiled
            arms[:] = psi
            out = source.read(rows, [0])[:, 0]
        else:
            out = graphs.left_seen(psi, hat, rows) if graphs.maps else self.owner.left(theta, rows, hat)
        return np.asarray(out) + 0.5 * float(step @ added @ step) / self.n_rows

    # The surrogate.

    def expanded(self, psi: Array) -> Parts:
        """Sum of all rows' terms, its gradient and Hessian in what the rows see."""
        owner = self.owner
        return owner._expand_seen(psi) if owner._graphs.maps else owner._expand_terms(psi, None)

    def own_surrogate(self, psi_hat: ArrayLike | None = None) -> Compressed:
        """Expand the rows, and give a normal density in the parameters near prior times expansion.

        Where they are expanded, if not at a point given: at the mode of the likelihood under a weak normal density
        first, then at the mean of what the rows see under the surrogate, which is the posterior's but for residuals.
        """
        return self._compressed(*self._settled(psi_hat)[:2])

    def compressed(self, psi_hat: ArrayLike | None = None) -> Compressed:
        """The expansion in what the rows see; its `precision` is what draws of prior times expansion say of the prior.
        """
        draws = self._settled(psi_hat)[2]
        assert self.expansion is not None
        hat, slope, curvature, _ = self.expansion
        mean, inverse = draws.mean(axis=0), _inverse_covariance(draws)
        out = Compressed(hat, self._level, slope, Arrow(curvature), (inverse - curvature).ravel(), self.n_rows,
                         JointPrior(_flat(len(hat))), self.seen_names, _mapped=True)
        return out if psi_hat is None else replace(out, from_mode=out.distance(mean), _mode=mean)

    def expand_as(self, compressed: Compressed) -> tuple[float, Array, Array]:
        """Expand where a `Compressed` of this model is; value, gradient and curvature there."""
        hat = np.array(compressed.psi_hat)
        if len(hat) != len(self.seen_names):
            raise ValueError(f"{compressed!r} came for a model whose rows see {len(self.seen_names)} numbers; "
                             f"compress(model) of this very model is needed")
        self._expand_at(hat)
        assert self.expansion is not None
        return self._level, self.expansion[1], self.expansion[2]

    def _settled(self, psi_hat: ArrayLike | None) -> tuple[Array, Array, Array]:
        """Expand the rows; mean and precision of parameters under prior times expansion, and draws of what rows see."""
        start = self.owner._probe(self.owner.pymc_model.initial_point())
        if psi_hat is not None:
            psi = np.array(psi_hat, dtype=np.float64)
            if psi.shape != self.seen(start).shape or not np.isfinite(psi).all():
                raise ValueError(f"psi_hat has shape {psi.shape}; {len(self.seen(start))} finite numbers, what the "
                                 f"rows see, are needed")
        else:
            with self.owner._shown():
                psi = self._likely(self.seen(start))
        self._expand_at(psi)
        with self._asking("gradients of a pilot, at most", PILOT):
            return self._piloted(start, psi_hat is None)

    @contextlib.contextmanager
    def _asking(self, title: str, most: int) -> Iterator[None]:
        """Show how many gradients are made meanwhile."""
        with patient(title, self.owner.progress, total=most) as self.owner._tell:
            try:
                yield
            finally:
                self.owner._asked, self.owner._tell = 0, int

    def _settling(self) -> contextlib.AbstractContextManager[None]:
        return self._asking("gradients to settle trajectories, at most", SETTLING)

    def _piloted(self, start: Array, anew: bool) -> tuple[Array, Array, Array]:
        """Mean and precision of draws from prior times expansion, and what the rows see of the last of them.

        `anew` asks for expansions at what the rows see on average in the draws of each round.
        """
        center, curvature = self._first(start)
        rng = np.random.default_rng(0)
        seen = None
        for _ in range(_ROUNDS):
            made = self._compressed(center, curvature)
            pilot = trajectories_of(made.quadratic, made.prior, effort=EFFORT, most=_TO_SETTLE)
            moves = Purse(_TO_MOVE).moves(pilot.inner(made.quadratic), pilot.start, _MOVES, rng)
            draws = np.array(list(moves)[_ARRIVING:])
            if len(draws) < _FEWEST:  # so many moves say little; chains are no less right where nothing is said
                continue
            center, curvature = np.asarray(draws.mean(axis=0), dtype=np.float64), _inverse_covariance(draws)
            seen = np.array([self.seen(draw) for draw in draws])
            if anew:
                self._expand_at(seen.mean(axis=0))
        if seen is None:
            root = np.linalg.inv(np.linalg.cholesky(curvature))
            draws = center + rng.standard_normal((_MOVES, self.dim)) @ root
            seen = np.array([self.seen(draw) for draw in draws])
        return center, curvature, seen

    def _likely(self, start: Array) -> Array:
        """Where the likelihood is largest under a weak density about a point."""
        def expand(psi: Array) -> Parts:
            value, slope, bend = self.expanded(psi)
            step = (psi - start) / _WEAK**2
            return value - 0.5 * float(step @ (psi - start)), slope - step, bend - np.eye(len(psi)) / _WEAK**2

        try:
            return find_mode(expand, start, 1e-4)
        except NoModeError as error:
            raise ValueError("no point was found at which the rows can be expanded: write the effects non-centred, or "
                             "the model as a GLM with groups, centre and scale the data, or name the point by "
                             "SurrogateMetropolis(model, psi_hat=...), what the rows see near the posterior; pm.sample "
                             "needs no such point") from error

    def _expand_at(self, psi: Array) -> None:
        """The expansion; directions in which the log-likelihood bends upwards count as straight."""
        self._level, slope, bend = self.expanded(psi)
        if not (np.isfinite(slope).all() and np.isfinite(bend).all()):
            raise ValueError(f"the derivatives of the rows' terms at {psi} are not finite; give psi_hat elsewhere")
        values, vectors = np.linalg.eigh(-bend)
        curvature = (vectors * np.maximum(values, 0.0)) @ vectors.T
        self.expansion = psi, np.asarray(slope), curvature, curvature + bend

    def _surrogate(self, center: Array | None = None, curvature: Array | None = None) -> _Surrogate:
        assert self.expansion is not None
        return _Surrogate(self.owner, *self.expansion[:3], center, curvature)

    def slope_of_surrogate(self, theta: Array) -> Array:
        """Gradient of log prior plus expansion."""
        return self._surrogate().whole(theta, 1.0)[1]

    def _first(self, start: Array) -> tuple[Array, Array]:
        """Parameters at which the rows see what they were expanded at, about, and a precision there."""
        assert self.expansion is not None
        surrogate = self._surrogate()

        def away(theta: Array) -> tuple[float, Array]:
            value, gradient = surrogate.whole(theta, 0.0)
            step = (theta - start) / _PULL**2
            return 0.5 * float(step @ (theta - start)) - value, step - gradient

        options = {"maxiter": 200, "maxfun": _TO_BEGIN - 100}  # of which a line search ends later
        at = np.asarray(minimize(away, start, jac=True, method="L-BFGS-B", options=options).x)
        graphs = self.owner._graphs
        jacobian = graphs.jacobian(at) if graphs.maps else np.eye(self.dim)
        return at, jacobian.T @ self.expansion[2] @ jacobian + np.eye(self.dim)

    def _compressed(self, center: Array, curvature: Array) -> Compressed:
        prior = JointPrior(_flat(self.dim), (), (), None, [(self._surrogate(center, curvature), None)])
        return Compressed(center, 0.0, np.zeros(self.dim), Arrow(curvature), np.zeros(self.dim), self.n_rows, prior,
                          tuple(self.names or ()))


def _flat(count: int) -> list[tuple[str, float, float, float, int]]:
    return [("flat", 0.0, 1.0, 0.0, -1)] * count


def _inverse_covariance(draws: Array) -> Array:
    """Of few draws, so that variances are a little larger and correlations a little smaller than theirs."""
    covariance = np.atleast_2d(np.cov(draws.T))
    spread = np.maximum(np.diagonal(covariance), 1e-12)
    inverse = np.linalg.inv(0.9 * covariance + 0.1 * np.diag(spread))
    return np.asarray((inverse + inverse.T) / 2.0, dtype=np.float64)
