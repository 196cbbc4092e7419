"""Gibbs sampling of mixtures by one expansion a group, corrected exactly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace.mcmc.kernels._rows import SPREAD
from fastrace.mcmc.kernels._surrogate_gibbs import SurrogateGibbsCore
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.models.mixture import SMALL_GROUP, MixtureOf, apart, normals_of_classes
from fastrace.mcmc.protocol import StepInfo, Steps, from_flags, keep_partial
from fastrace.mcmc.trace import Part

__all__ = ["MixtureState", "SurrogateGibbs"]

Array = NDArray[np.float64]
ALL_ROWS_FROM = 0.3  # expected share of a group's rows from which a pass over all of them is cheaper


@dataclass(frozen=True, eq=False)
class MixtureState:
    """State of a chain of `SurrogateGibbs`.

    Attributes
    ----------
    position : ndarray of shape (size,)
        Labels of the groups, then what is drawn of parameters, weights, mean and sd.
    noise : ndarray of shape (n_classes,), or (n_classes + 1,) where classes share a scale
        Share of noise in the proposals of each class's parameters, and of the shared scale: 1 for independent ones.
    n_tuned : int
        Sweeps that have adapted it.
    decisions : ndarray of int64, shape (4,)
        Since tuning: decisions on labels, those accepted; decisions on parameters, those accepted.
    """

    position: Array
    noise: Array = field(repr=False)
    n_tuned: int
    decisions: NDArray[np.int64]


MANY_GROUPS, FEW_ROWS = 1000, 20.0  # of as few rows on average, whose labels alone move classes too slowly


class SurrogateGibbs:
    r"""Gibbs sampling of a mixture whose proposals read no row, and whose decisions read few.

    Each group of rows is expanded once: :math:`Q_g(\theta)` follows its log-likelihood to second order. A sweep
    proposes the label of each group from the weights times :math:`\exp Q_g(\theta_k)`, for all states at once, and the
    parameters of each class from the prior times :math:`\exp \sum_g Q_g(\theta)` over its groups. It accepts a change
    with probability :math:`\min(1, \exp \Delta \sum_g R_g)`, where :math:`R_g` is what the expansions of the groups
    that the change touches leave of their log-likelihoods. Weights, and the mean and spread of the classes, have closed
    forms. The chain is exact.

    Parameters
    ----------
    mixture : MixtureOf
        The groups, classes and priors.
    decision : {"poisson", "exact"}, default "poisson"
        "poisson" reads a Poisson number of rows of a group, drawn in proportion to how far they can change, which keeps
        the chain exact; groups with few rows, or without bounds, are read whole. "exact" reads whole groups always.
    order_by : int or str, optional
        Record classes in ascending order of this coefficient, by number or name, or of "scale" or "dispersion" where
        each class learns its own. The chain is the same; only the names of the classes in the trace change.
    keep_labels : bool, default True
        Keep the labels of all groups in the trace. Without them a draw takes ``n_classes * p`` numbers and a few more.

    Attributes
    ----------
    parts : tuple of Part
        The variables of the trace: "label", "theta", "scale" or "dispersion", "weight", "mean" and "sd", as far as they
        are drawn.
    names : tuple of str

    Raises
    ------
    ValueError
        If an argument is out of range.
    TypeError
        If `mixture` is no `MixtureOf`.

    See Also
    --------
    RacingGibbs : categorical variables with factors of the user's own.

    Notes
    -----
    A sweep costs one product of matrices, :math:`G \times d^2 / 2` by :math:`d^2 / 2 \times K`, for the labels of G
    groups among K classes of d parameters, the Cholesky factors of the classes, and the rows of the decisions. A label
    that is proposed anew needs no decision if it is the present one. Where independent proposals of a class's
    parameters are refused too often, as in classes of many groups, tuning shortens them (Crank-Nicolson moves), to an
    acceptance of 0.65. One change in ten is proposed otherwise, so that no chain is held where the expansions are poor:
    labels from the fourth roots of their shares, parameters by a random walk of random length.

    With terms whose third derivative is bounded by :math:`w_i` along directions of length 1 in the group's metric, a
    change moves the residual of a row by at most :math:`w_i M`; a Poisson number of rows with mean :math:`M \sum w_i`
    is then read [2]_. The Poisson family has such bounds within :math:`\sqrt{d} + 5` standard deviations of a group's
    point of expansion; beyond it the group is read whole. The Gaussian family of a given scale leaves nothing and reads
    no row.

    A scale that is learned is proposed with the coefficients, as its logarithm. A proposal has a normal density in the
    place of the scale's prior, and the decision has what the prior is besides. Bounds are then ones on third
    derivatives in predictor and logarithm, and hold within :math:`\sqrt{d} + 5` standard deviations; beyond, groups are
    read whole.
    Few rows are expanded too badly in the logarithm. So groups of up to ``25 d`` rows are read whole: their labels are
    drawn from sums over their rows, which leaves no decision, and the parameters of their class are proposed about
    Newton's step from where they are, accepted with the ratio of both ways in it. Scales lie between exp(-700) and
    exp(700). A scale that all classes share is held while coefficients are drawn, and then drawn given these, about
    Newton's step along its logarithm, by all groups.

    The trace counts rows; ``looks`` are the decisions of a sweep, and a sweep counts as ``accepted`` if at least half
    of them were. `acceptance` gives the shares. Chains begin at labels that no row is read for: points of expansion
    drawn apart from each other as k-means++ does, and each group at the nearest. `sample` then draws the parameters of
    each class given its groups from prior times expansions, twice as wide.

    Labels are drawn given the parameters of the classes, and these given the labels. So chains move slowly where
    classes overlap and groups say little of their class: of 400 groups of 8 rows in three such classes R-hat was 1.030
    after 1000 draws, of which `sample` warns, and 1.006 after 4000.

    Classes may exchange names, see `MixtureOf`.

    References
    ----------
    .. [1] Liu, "Monte Carlo Strategies in Scientific Computing", Springer 2001, section 9.4.3.
    .. [2] Zhang, Cooper, De Sa, "Asymptotically optimal exact minibatch Metropolis-Hastings", NeurIPS 2020.
    .. [3] Makalic, Schmidt, "A simple sampler for the horseshoe estimator", IEEE Signal Processing Letters 23(1), 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> user = np.repeat(np.arange(20), 1000)
    >>> X = rng.normal(size=(20_000, 3))
    >>> theta = np.array([[0.5, 1.0, 0.0], [0.5, -1.0, 0.3]])
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-(X * theta[user % 2]).sum(axis=1)))
    >>> kernel = mcmc.SurrogateGibbs(mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=2.5), user, 2), order_by=1)
    >>> trace = mcmc.sample(kernel, n_draws=200, n_chains=2, rng=1)
    >>> trace.to_arrays()["posterior"]["theta"].mean(axis=(0, 1)).round(1) + 0.0
    array([[ 0.5, -1. ,  0.3],
           [ 0.5,  1. ,  0. ]])
    >>> bool(trace.rows.mean() < 400), bool(kernel.acceptance(trace)["parameters"] > 0.8)
    (True, True)
    """

    variable = "state"
    always_dispersed = True  # also without tuning: few groups have one start of their own, up to names of classes
    refusal_advice = ("the expansions of the groups are far from their likelihoods there. Tune for longer, as tuning "
                      "shortens the moves of classes; kernel.acceptance(trace) says whether labels or parameters are "
                      "refused")
    _rows: GLM | None = None  # of the mixture, in the order of groups; made when chains begin

    def __init__(
        self, mixture: MixtureOf, decision: str = "poisson", *, order_by: int | str | None = None,
        keep_labels: bool = True,
    ) -> None:
        if not isinstance(mixture, MixtureOf):
            raise TypeError(f"mixture is {_checks.shown(mixture)}; a MixtureOf(model, groups, n_classes) is needed")
        self.model = mixture
        self.decision = _checks.choice(decision, "decision", ("poisson", "exact"))
        self.keep_labels = _checks.flag(keep_labels, "keep_labels")
        self.order_by = None if order_by is None else self._column(order_by)
        if self.order_by is not None and mixture.parameters is not None:
            raise ValueError("order_by came with parameters that are given: their order is yours")
        if not self.keep_labels and len(self._all_parts) == 1:
            raise ValueError("keep_labels is False and nothing but labels is drawn")
        self._cores: list[SurrogateGibbsCore] = []

    def __repr__(self) -> str:
        return f"SurrogateGibbs({self.model!r}, decision={self.decision!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**{k: v for k, v in self.__dict__.items() if k != "_rows"}, "_cores": []}

    def _column(self, order_by: int | str) -> int:
        m = self.model
        if isinstance(order_by, str):
            own_scale = m.model.learns_scale and not m.shared_scale
            names = [*m.model.column_names, *([m.model.scale_name] if own_scale else [])]
            if order_by not in names:
                raise ValueError(f"order_by is {order_by!r}; a number, or a name out of {names}, is needed")
            return names.index(order_by)
        column = _checks.integer(order_by, "order_by", 0, "a coefficient has a number")
        if column >= m.n_coefficients:
            raise ValueError(f"order_by is {column}; classes have coefficients 0 to {m.n_coefficients - 1}")
        return column

    @property
    def _all_parts(self) -> tuple[Part, ...]:
        m = self.model
        classes = tuple(range(m.n_classes))
        columns, p = m.column_names, m.n_coefficients
        parts = [Part("label", (m.n_groups,), ("group",), (m.levels,), whole=True)]
        if m.parameters is None:
            parts.append(Part("theta", (m.n_classes, p), ("class", "coefficient"), (classes, columns)))
            if m.shared_scale:
                parts.append(Part(m.model.scale_name, (), (), ()))
            elif m.model.learns_scale:
                parts.append(Part(m.model.scale_name, (m.n_classes,), ("class",), (classes,)))
        if m.weights is None:
            parts.append(Part("weight", (m.n_classes,), ("class",), (classes,)))
        if m.hierarchical:
            parts += [Part(name, (p,), ("coefficient",), (columns,)) for name in ("mean", "sd")]
        return tuple(parts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The variables of the trace."""
        return self._all_parts if self.keep_labels else self._all_parts[1:]

    @property
    def names(self) -> tuple[str, ...]:
        """What each number of a draw is called."""
        return tuple(name for part in self.parts for name in part.names())

    @property
    def has_one_start(self) -> bool:
        """Whether chains may all begin at one point: with one class, or classes that are known, they miss no labels."""
        return self.model.n_classes == 1 or self.model.parameters is not None

    @property
    def exchange_advice(self) -> str:
        """What to do about chains that disagree; empty if nothing but more draws helps."""
        if self.model.n_classes == 1:
            return ("With one class all groups have the same parameters, whether they fit or not: mcmc.sample of the "
                    "GLM alone draws them all at once, and more classes tell groups of different kinds apart")
        if self.model.parameters is not None:
            return ""
        rows = self.model.model.n_rows / self.model.n_groups
        if self.model.n_groups >= MANY_GROUPS and rows <= FEW_ROWS:
            return (f"Labels move one at a time, and {self.model.n_groups} groups of {rows:.3g} rows on average say "
                    f"little each, so that classes hardly move: take fewer classes, join groups that belong together, "
                    f"or give parameters that a shorter run on larger groups found")
        return ""

    @property
    def _classes_named(self) -> bool:
        """Whether class k is the same in all draws."""
        m = self.model
        return m.n_classes == 1 or m.parameters is not None or self.order_by is not None

    def judged(self, trace: Any) -> dict[str, Array] | None:
        """What chains are judged by where classes exchange names, `MixtureOf.nameless`; None where they do not."""
        return None if self._classes_named else self.model.nameless(trace)

    def describe(self) -> dict[str, Any]:
        """What a trace remembers of the kernel."""
        return {"kernel": type(self).__name__, "decision": self.decision, "n_classes": self.model.n_classes,
                "n_groups": self.model.n_groups, "classes_named": self._classes_named}

    def acceptance(self, trace: Any) -> dict[str, float]:
        """Share of the decisions on "labels" and on "parameters" that were accepted since tuning; nan without any.

        Labels that stay are no decision, and neither are the parameters of a class without groups. The changes that are
        proposed otherwise than from the expansions do not count.
        """
        counts = sum((state.decisions for state in trace.states), start=np.zeros(4, dtype=np.int64))
        return {name: float(counts[i + 1] / counts[i]) if counts[i] else float("nan")
                for name, i in (("labels", 0), ("parameters", 2))}

    # States.

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> MixtureState:
        """The state at a position.

        Parameters
        ----------
        position : array_like of shape (size,), optional
            The variables of `parts` one after another, labels always among them; by default points of expansion drawn
            apart from each other.
        rng : None, int, SeedSequence or Generator, optional
            For that draw.
        """
        start = self._start(_checks.generator(rng)) if position is None else self._checked(position)
        noise = np.ones(self.model.n_classes + self.model.shared_scale)
        return MixtureState(start, noise, 0, np.zeros(4, dtype=np.int64))

    def _split(self, position: Array) -> dict[str, Array]:
        out, first = {}, 0
        for part in self._all_parts:
            last = first + int(np.prod(part.shape))
            out[part.name] = position[first:last].reshape(part.shape)
            first = last
        return out

    def _checked(self, position: ArrayLike) -> Array:
        at = _frames.floats_in_order(
            position, [name for part in self._all_parts for name in part.names()], "position")
        size = sum(int(np.prod(part.shape)) for part in self._all_parts)
        if at.shape != (size,) or not np.isfinite(at).all():
            raise ValueError(f"position has shape {at.shape}; {size} finite numbers, those of "
                             f"{', '.join(part.name for part in self._all_parts)} one after another, are needed")
        found = self._split(at)
        label = found["label"]
        if not ((label == np.rint(label)) & (label >= 0) & (label < self.model.n_classes)).all():
            raise ValueError(f"labels of the position must be whole numbers from 0 to {self.model.n_classes - 1}")
        if "weight" in found and not ((found["weight"] >= 0.0).all() and abs(found["weight"].sum() - 1.0) < 1e-6):
            raise ValueError(f"weights of the position are {found['weight']}; numbers from 0 up that add up to 1 are "
                             f"needed")  # that of a class without groups may underflow
        for name, words in (("sd", "standard deviations"), ("scale", "scales"), ("dispersion", "dispersions")):
            if name in found and not (found[name] > 0.0).all():
                raise ValueError(f"{words} of the position are {found[name]}; positive numbers are needed")
        return at

    def dispersed(self, rng: np.random.Generator) -> Array:
        """A start for one of several chains: parameters of classes drawn given their groups, twice as wide."""
        start, m = self._start(rng), self.model
        if m.parameters is None:
            found, (mean, precision, _) = self._split(start), m._class_prior()
            shares = np.equal.outer(found["label"], np.arange(m.n_classes)).astype(np.float64)
            means, precisions = normals_of_classes(m.expansions, shares, mean, precision)
            roots = np.linalg.inv(np.linalg.cholesky(precisions))
            points = means + SPREAD * np.einsum("kji,kj->ki", roots, rng.standard_normal(means.shape))
            found["theta"][:] = points[:, : m.n_coefficients]
            if m.model.learns_scale:
                found[m.model.scale_name][...] = self._scales(points, shares.sum(axis=0))
        return start

    def _scales(self, points: Array, counts: NDArray[Any]) -> Array:
        """Scales of the classes at points, of so many groups each; that of the largest class where they share one."""
        scales = _scales_of(points)
        return scales[int(counts.argmax())] if self.model.shared_scale else scales

    def _start(self, rng: np.random.Generator) -> Array:
        m, groups = self.model, self.model.expansions
        k, given = m.n_classes, m._points()
        points = given if given is not None else apart(groups, k, rng)
        label = groups.values_at(points).argmax(axis=1)
        parts, theta = [label.astype(np.float64)], points[:, : m.n_coefficients]
        if m.parameters is None:
            parts.append(theta.ravel())
            if m.model.learns_scale:
                parts.append(np.atleast_1d(self._scales(points, np.bincount(label, minlength=k))))
        if m.weights is None:
            parts.append((np.bincount(label, minlength=k) + 1.0) / (m.n_groups + k))
        if m.hierarchical:
            parts += [theta.mean(axis=0), np.maximum(theta.std(axis=0), 1e-3 * m.sd_scale)]
        return np.concatenate(parts)

    # Steps.

    def step(self, rng: np.random.Generator, state: MixtureState) -> tuple[MixtureState, StepInfo]:
        """One sweep: the next state, and what it took."""
        state, steps = self.run(rng, state, 1)
        return state, steps.info(0)

    def run(
        self, rng: np.random.Generator, state: MixtureState, n: int, *, tune: bool = False
    ) -> tuple[MixtureState, Steps]:
        """`n` sweeps in compiled code, without the GIL. With `tune`, proposals of parameters are shortened if need be.

        An exception comes through with what was done as ``partial_run``.
        """
        core = self._taken(state)
        draws = np.empty((n, len(state.position)))
        rows, looks, flags = np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n, np.uint8)
        try:
            core.run(rng, draws, rows, looks, flags, state.n_tuned if tune else -1)
        except BaseException as error:
            done = core.n_done
            if done:
                keep_partial(error, *self._reached(core, state, draws[:done], rows[:done], looks[:done], flags[:done],
                                                   tune))
            raise
        out = self._reached(core, state, draws, rows, looks, flags, tune)
        self._cores.append(core)
        return out

    def _reached(
        self, core: SurrogateGibbsCore, state: MixtureState, draws: Array, rows: NDArray[np.int64],
        looks: NDArray[np.int32], flags: NDArray[np.uint8], tune: bool,
    ) -> tuple[MixtureState, Steps]:
        kept = draws if self.keep_labels else np.ascontiguousarray(draws[:, self.model.n_groups :])
        decisions = np.zeros(4, dtype=np.int64) if tune else state.decisions + core.decisions
        new = replace(state, position=core.position(), noise=core.noise_shares,
                      n_tuned=state.n_tuned + (len(draws) if tune else 0), decisions=decisions)
        return new, from_flags(kept, rows, looks, flags)

    def _taken(self, state: MixtureState) -> SurrogateGibbsCore:
        """Memory of a chain that nobody uses, with this state in it."""
        m = self.model
        try:
            core = self._cores.pop()
        except IndexError:
            if self._rows is None:
                self._rows = m.rows_by_group()
            mean, precision, of_scale = m._class_prior() if m.parameters is None else (0.0, 1.0, None)
            from_rows = SMALL_GROUP * m.dim if m.model.learns_scale else 0
            core = SurrogateGibbsCore(
                *self._rows._arms(max(2, m.n_classes) if from_rows else 2), m.expansions, m.n_classes, mean,
                precision, moves=(m.parameters is None, m.weights is None, m.hierarchical),
                concentration=m.concentration, sd_scale=m.sd_scale,
                most=0.0 if self.decision == "exact" else ALL_ROWS_FROM,
                order_by=-1 if self.order_by is None else self.order_by, learns_scale=m.model.learns_scale,
                scale_prior=of_scale, small_rows=from_rows, shared=m.shared_scale,
            )
        found, p = self._split(self._checked(state.position)), m.n_coefficients
        if m.parameters is not None:
            found["theta"] = m.parameters[:, :p]
            found |= {m.model.scale_name: m.parameters[:, p]} if m.model.learns_scale else {}
        if m.shared_scale:
            found[m.model.scale_name] = np.full(m.n_classes, found[m.model.scale_name])
        core.load(
            found["label"].astype(np.intp), found["theta"], found.get(m.model.scale_name),
            found.get("weight", m.weights), found.get("mean", np.zeros(p)), found.get("sd", np.ones(p)), state.noise,
        )
        return core


def _scales_of(points: Array) -> Array:
    """Scales whose logarithms are the last of the parameters of classes."""
    return np.exp(np.clip(points[:, -1], -700.0, 700.0))
