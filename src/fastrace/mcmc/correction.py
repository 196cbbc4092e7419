"""Draws of a surrogate posterior, made by any sampler, as draws of the posterior."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._base._blas import one_blas_thread
from fastrace._base._handed import KEPT, handed_over
from fastrace._base._progress import meter
from fastrace._base._words import counted
from fastrace.mcmc import _pareto
from fastrace.mcmc._diagnosis import diagnosis
from fastrace.mcmc._fit import residuals, tail
from fastrace.mcmc._moving import moving
from fastrace.mcmc.compression import Compressed, has_prior_of, require_of, require_of_map
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.models._modes import called
from fastrace.mcmc.models.model import Model, Reference
from fastrace.mcmc.protocol import Steps, joined
from fastrace.mcmc.trace import Trace
from fastrace.races.acceptance import AcceptTest

__all__ = ["correct"]

Array = NDArray[np.float64]

_INDEPENDENT = 0.3      # effective draws a draw, below which proposals are not independent
_LEAST = 0.2            # share of proposals accepted
_EXPAND_AGAIN = "Expand where these draws are, with mcmc.compress(model, psi_hat=trace), and sample that again"
_MORE = "Give more draws of the surrogate, thinned, or expand again where these are, with psi_hat=trace"
_FAR = 6.0              # standard deviations from the expansion, beyond which a scale is no logarithm
_WIDER = 1.5            # times as wide as they should be, or as narrow, that draws are not by chance,
_AWAY = 0.5             # standard deviations from where they should be, or so many,
_FOR_WIDTHS = 400       # if there are so many
_LARGE = 500            # parameters, and these are not too many to look
_BESIDE = 0.1           # of a log density, about the standard deviations by which a mean is off
_SLICE = 32             # draws of a chain that are decided before those of the next
_ALIKE = 0.01           # standard deviations, or share of one, within which a normal density is that of the model
_DRAWS = 400            # whose weights tell Pareto k where decisions are races


@one_blas_thread()
def correct(
    draws: Any,
    surrogate: Compressed | Reference,
    model: Model,
    rng: _checks.RngLike = None,
    *,
    decision: str = "race",
    delta: float = 0.05,
    progress: bool = False,
) -> Trace:
    r"""Make draws of a surrogate posterior draws of the posterior, by an independence chain.

    Parameters
    ----------
    draws : array_like of shape (n_chains, n_draws, k) or (n_draws, k), frame, dict, Trace or InferenceData
        Draws of the density proportional to prior times the expansion of the likelihood, made by any sampler, such as
        NUTS of another library on a `Compressed`, and thinned until they are independent. What the rows see stands
        first: ``model.n_seen`` columns, which are all that the decisions read. Further columns, such as scales, go
        along. The column of a learned scale of the family holds its logarithm. A dict has arrays without the last axis,
        by the names of the parameters in ``model.names``, and a learned scale may come as it is, by its name "scale" or
        "dispersion". So it is in a frame, or a list of frames, one for each chain, unless its columns are only
        numbered. Of a `PyMCModel` draws are all of its parameters, in its own coordinates, or the variables of the PyMC
        model by name as they are: the `InferenceData` of `pymc.sample`, its ``posterior``, or a dict of arrays of shape
        (n_chains, n_draws, ...). A `Trace` of the model stands for its draws.
    surrogate : Compressed or Reference
        The expansion that the sampler used, from `compress` or ``model.reference()``.
    model : Model
        The log-likelihood terms that were expanded. The rows of a `PyMCModel` may see a map of its parameters.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.
    decision : {"race", "poisson", "exact"}, default "race"
        Whether a draw is taken is decided by a race, wrong with probability `delta` at most; by a minibatch of a
        Poisson number of rows, exactly; or by passes over all rows. Minibatches are those of `SurrogateMetropolis`,
        which must take the model: one with bounds on third derivatives, as of a `GLM` or `Softmax`, a prior with
        derivatives, and a proper posterior.
    delta : float, default 0.05
        As in `RacingMetropolis`, of races.
    progress : bool, default False
        Show a bar on standard error, or a line every ten seconds where that is a file or a pipe; needs rich.

    Returns
    -------
    Trace
        As many draws as came, those that were refused replaced by the draw before, with a learned scale in place of
        its logarithm, as in all traces; of a `PyMCModel` with a `Compressed`, its parameters, which `PyMCModel.unpack`
        gives their names. ``trace.kernel["pareto_k"]`` is
        Pareto k of the weights of the draws: below 0.5 the surrogate is good, above 0.7 not to be used. Such a trace
        cannot be continued.

    Raises
    ------
    ValueError
        If shapes or names disagree, a draw is not finite, all draws of a parameter are alike, a learned scale came in
        place of its logarithm, or a `Compressed` is of another model.

    Warns
    -----
    UserWarning
        If k is above 0.7, draws are correlated (less than 0.3 effective ones a draw), few are taken, chains disagree,
        or draws lie elsewhere, or are much wider or narrower, than under the prior of the model that was expanded,
        where that is normal; if a `Compressed` has another prior than the model, a `Reference` is not that of the
        model, or the prior, over the draws, is no normal one of which the density of a `Reference` is made; also in
        ``Trace.warnings``.

    See Also
    --------
    check_bias : how often the races were wrong.

    Notes
    -----
    With :math:`R(\psi)` for what the expansion leaves of the log-likelihood, draw t replaces the present one with
    probability :math:`\min(1, \exp(R(\psi_t) - R(\psi)))` [1]_. The prior cancels, so that it may be any; so does
    whatever else the sampler multiplied its density by. That the draws are of prior times expansion is not known, and a
    mistake in the sampler's density is not corrected. k is estimated from at most 400 draws and 4000 rows, with "exact"
    from all. A minibatch replaces the ratio by an estimate of it whose chain has the same stationary distribution [2]_.
    It refuses more draws than all rows do: few more where there are few groups, and half of them where there are
    hundreds.

    All chains are decided side by side, 32 draws of each at a time. An exception that ends this early, from a function
    of yours or Ctrl-C, comes through unchanged but for a note. Its attribute ``trace`` holds what is decided. To go on
    from there, put the last draws of that trace before the draws that are left, in the coordinates of these, and leave
    out the first draw of each chain that comes of them: the first one of a call is taken as it is.

    The normal density of a `Reference` is prior times expansion where the prior is normal. Of another prior it holds a
    normal approximation at `theta_hat`, and nothing of a ``log_prior=``: draws of it then lack a factor that decisions
    do not give back. Draws of a sampler on ``Compressed.log_likelihood`` plus the log prior lack none.

    References
    ----------
    .. [1] Liu, "Monte Carlo Strategies in Scientific Computing", 2001, section 5.4.
    .. [2] Zhang, De Sa, "Poisson-Minibatching for Gibbs Sampling with Convergence Rate Guarantees", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> model = mcmc.GLM(X, y, prior_sd=2.5)
    >>> about = model.reference()               # stands for any sampler's surrogate
    >>> draws = about.center + rng.standard_normal((4, 500, 2)) @ about.factor.T
    >>> trace = mcmc.correct(draws, about, model, rng=1)
    >>> bool(trace.accepted.mean() > 0.9), bool(trace.kernel["pareto_k"] < 0.5)
    (True, True)
    """
    _checks.choice(decision, "decision", ("race", "poisson", "exact"))
    delta = _checks.probability(delta, "delta")
    array, carrier, model, recorded = proposals(draws, surrogate, model)
    gen = _checks.generator(rng)
    began = time.perf_counter()
    n = model.n_seen
    flat = array[:, :, :n].reshape(-1, n)
    k = math.nan
    if decision != "exact" and len(flat) >= _pareto.LEAST:
        k = tail(model, carrier, flat[gen.choice(len(flat), min(_DRAWS, len(flat)), replace=False)])
    left = np.empty(array.shape[:2])
    if decision == "exact":
        engine = model.engine(carrier)
        thresholds = -gen.standard_exponential(left.shape)
        residuals_of = partial(residuals, model, carrier, count=None, engine=engine)
        ways = [_exactly(own, n, threshold, out, model.n_rows, residuals_of)
                for own, threshold, out in zip(array, thresholds, left, strict=True)]
    elif decision == "race":
        ways = [_raced(child, own, n, model, carrier, delta)
                for child, own in zip(_checks.children(gen, len(array)), array, strict=True)]
    else:
        kernel = _deciding(model, carrier)
        ways = [_by_minibatches(child, own, n, kernel)
                for child, own in zip(_checks.children(gen, len(array)), array, strict=True)]
    about: dict[str, Any] = {"kernel": "correct", "decision": decision}
    about |= {"delta": delta} if decision == "race" else {}
    parts: list[list[Steps]] = [[] for _ in ways]
    trace: Trace | None = None
    early = _of_another(array, surrogate, model)
    _warn(early)

    def made(n_draws: int) -> Trace:
        names = (model.natural_names or ()) if array.shape[2] == model.dim else ()
        chains = tuple(joined(own)[:n_draws] for own in parts)
        return Trace(chains, about | {"pareto_k": k}, (), (), time.perf_counter() - began, names=names,
                     parts=getattr(model, "parts", ()) if names else (), shown_last=model._shown_last,
                     variables=model._variables_of(names) if names else ())

    try:
        with meter("deciding on draws", left.size, progress) as show:
            for first in range(0, array.shape[1], _SLICE):
                for own, way in zip(parts, ways, strict=True):
                    steps = next(way)
                    own.append(replace(steps, draws=recorded(steps.draws)))
                show(min(first + _SLICE, array.shape[1]) * len(array))
        if decision == "exact" and left.size >= _pareto.LEAST:
            k = _pareto.smoothed(left.ravel())[1]
        trace = made(array.shape[1])
        problems = _problems(trace, recorded(array), k, model)
        problems += _density_problems(array, surrogate, model, [*early, *problems])
        trace = trace._told(warnings=(*early, *problems))
        _warn(problems)
    except BaseException as error:      # also a warning that is an error
        n_draws = sum(map(len, parts[-1]))
        if n_draws:
            so_far = trace or made(n_draws)._told(warnings=(*early, *_of_weights(k)))
            on = f"{counted(n_draws, 'draw')} of each chain"
            if n_draws < array.shape[1]:
                on += (f"; numbers from {n_draws} on of those that came are left: correct them with the last one of "
                       f"error.trace before them, which the first draw of that trace then repeats")
            handed_over(error, "trace", so_far, on, True, KEPT)
        raise
    return trace


def _warn(problems: Sequence[str]) -> None:
    for words in problems:
        warnings.warn(words, stacklevel=_checks.users_level())


class Proposals(NamedTuple):
    """Draws of a surrogate, checked.

    Attributes
    ----------
    array : ndarray of shape (n_chains, n_draws, k)
        What the rows see first, in coordinates in which chains of the model move.
    carrier : Reference
        What residuals are expanded about.
    model : Model
        The form of the model that has them.
    recorded : callable
        Draws in the coordinates of a trace.
    """

    array: Array
    carrier: Reference
    model: Model
    recorded: Callable[[Array], Array]


def proposals(draws: Any, surrogate: Compressed | Reference, model: Model) -> Proposals:
    """Draws of a surrogate in the form in which decisions take them."""
    if not isinstance(model, Model):
        raise TypeError(f"model is {_checks.shown(model)}; a GLM or other mcmc.Model is needed"
                        f"{_checks.of_pymc(model)}")
    if not isinstance(surrogate, (Compressed, Reference)):
        raise TypeError(f"surrogate is {_checks.shown(surrogate)}; what compress(model) or model.reference() returned "
                        f"is needed")
    array, of_trace = _draws_of(draws, model)
    shape = array.shape
    array = array[None] if array.ndim == 2 else array
    form = model._surrogate_form() if isinstance(surrogate, Compressed) else model
    mapped = form.own_surrogate is not None
    hat = np.array(surrogate.psi_hat if isinstance(surrogate, Compressed) else surrogate.theta_hat)
    n = form.dim if form is not model else form.n_seen
    n_expanded = len(form.seen_names) if mapped else form.n_seen  # type: ignore[attr-defined]
    if len(hat) != n_expanded:
        raise ValueError(f"the surrogate expands in {len(hat)} parameters and the rows of the model see {n_expanded}; "
                         f"the one of this model is needed")
    odd = np.argwhere(~np.isfinite(array))
    if odd.size:
        raise ValueError(f"draws{odd[0].tolist()} is {array[tuple(odd[0])]}, and {counted(len(odd), 'number')} of "
                         f"{array.size} are not finite; leave such draws out")
    if array.ndim != 3 or array.shape[1] < 1 or array.shape[2] < n or (form is not model and array.shape[2] > n):
        wanted = f"k the {n} parameters of the model" if form is not model else (
            f"k at least the {n} parameters that the rows see")
        raise ValueError(f"draws has shape {shape}; draws of shape (n_chains, n_draws, k) or "
                         f"(n_draws, k) are needed, {wanted}")
    if array.shape[1] in (n, model.dim) and array.shape[2] > array.shape[1] and array.shape[2] != model.dim:
        raise ValueError(f"draws has shape {shape}, and the rows of the model see {n} parameters: parameters stand "
                         f"where draws should. Shape (n_chains, n_draws, k) or (n_draws, k) is needed: swap the last "
                         f"two axes, as with np.swapaxes(draws, -1, -2)")
    if mapped:
        require_of_map(surrogate, form)  # type: ignore[arg-type]
    elif isinstance(surrogate, Compressed):
        require_of(surrogate, form, with_prior=False)
    recorded: Callable[[Array], Array] = np.array
    if form is not model:
        array, recorded = form.unconstrain(array), form.constrain
    elif of_trace:
        recorded = form.constrain
    elif form.joint_prior is not None and getattr(form, "learns_scale", False):  # the scale itself, as in all traces
        recorded = partial(with_scale, n_seen=n)
    _check_columns(array[:, :, : form.n_seen].reshape(-1, form.n_seen), surrogate, form)
    return Proposals(array, Reference(hat, hat, np.eye(len(hat)), None, math.inf), form, recorded)


def with_scale(draws: Array, n_seen: int) -> Array:
    """Draws with a learned scale, the last that the rows see, in place of its logarithm."""
    out = draws.copy()
    out[..., n_seen - 1] = np.exp(out[..., n_seen - 1])
    return out


def _draws_of(draws: Any, model: Model) -> tuple[Array, bool]:
    """Draws as an array, and whether they are of a trace: then all are in coordinates in which chains move."""
    if isinstance(draws, Trace):
        return moving(model, draws), True
    packed: Any = getattr(model, "packed", None)  # of a PyMC model, with variables by name as they are
    if packed is not None:
        draws = getattr(draws, "posterior", draws)
        if isinstance(draws, Mapping) and model._are_variables(draws):  # type: ignore[attr-defined]
            return packed(draws), False
    return _table_of(draws, model), False


def _table_of(draws: Any, model: Model) -> Array:
    """Draws as an array: those of dicts and frames by name, unless columns are only numbered or the model has no names.
    """
    if isinstance(draws, (list, tuple)) and draws and all(_frames.column_names(part) for part in draws):
        chains = [_table_of(part, model) for part in draws]
        if len({chain.shape for chain in chains}) > 1:
            raise ValueError(f"draws of the chains have shapes {[own.shape for own in chains]}; one shape is needed")
        return np.stack(chains)
    if isinstance(draws, Mapping):
        return _by_name(draws, model)
    columns = _frames.column_names(draws)
    if columns is None or model.names is None or _frames.only_numbered(getattr(draws, "columns", columns)):
        return _checks.floats(draws, "draws")
    twin = _checks.twice(columns)
    if twin is not None:
        raise ValueError(f"draws have more than one column {twin!r}; different names are needed")
    table = np.asarray(_frames.as_table(draws, "draws", "a table of numbers"))
    return _by_name(dict(zip(columns, table.T, strict=True)), model)


def _by_name(draws: Mapping[str, ArrayLike], model: Model) -> Array:
    """Columns in the order of the model's parameters; of what the rows see alone, unless hyperparameters came too."""
    names = list(model.names or (f"theta[{j}]" for j in range(model.dim)))
    given = {name: _checks.floats(values, f"draws[{name!r}]") for name, values in draws.items()}
    scale, last = getattr(model, "scale_name", ""), model.n_seen - 1
    if getattr(model, "learns_scale", False) and scale in given and names[last] not in given:
        values = given.pop(scale)
        if not (values > 0.0).all():
            raise ValueError(f"draws of {scale!r} are not all positive, and the logarithm of a scale is taken")
        given[names[last]] = np.log(values)
    wanted = names if len(given) > model.n_seen else names[: model.n_seen]
    odd = [name for name in wanted if name not in given] or [name for name in given if name not in wanted]
    if odd:
        raise ValueError(f"draws by name {'lack' if odd[0] in wanted else 'hold'} {odd[0]!r}; the rows see "
                         f"{', '.join(map(repr, names[: model.n_seen][:20]))}, and all or none of the hyperparameters "
                         f"may come too")
    shapes = {given[name].shape for name in wanted}
    if len(shapes) > 1:
        raise ValueError(f"draws by name have shapes {sorted(shapes)}; one shape, (n_chains, n_draws) or (n_draws,), "
                         f"is needed")
    return np.stack([given[name] for name in wanted], axis=-1)


def _check_columns(seen: Array, surrogate: Compressed | Reference, model: Model) -> None:
    """Refuse draws that stand still, and a learned scale in place of its logarithm."""
    still = np.flatnonzero(np.ptp(seen, axis=0) == 0.0)
    if len(seen) > 1 and len(still):
        raise ValueError(f"all {len(seen)} draws of parameters {called(np.ptp(seen, axis=0) == 0.0, model.names)} are "
                         f"alike: draws of prior times expansion are needed")
    if not getattr(model, "learns_scale", False) or not (seen[:, -1] > 0.0).all():
        return
    unit = np.eye(model.n_seen)[-1]
    if isinstance(surrogate, Compressed):
        hat, sd = surrogate.psi_hat[-1], math.sqrt(surrogate.factor().solve(unit)[-1])
    else:
        hat, sd = surrogate.center[-1], float(np.linalg.norm(surrogate.factor[-1]))
    middle = float(np.median(seen[:, -1]))
    if abs(middle - hat) > _FAR * sd > abs(math.log(middle) - hat):
        name = called(unit, model.names)
        raise ValueError(f"the draws of {name} lie about {middle:.4g}, {abs(middle - hat) / sd:.3g} standard "
                         f"deviations from the expansion, and their logarithms are where it is: take the logarithm, or "
                         f"give draws as a dict by name")


def _of_another(array: Array, surrogate: Compressed | Reference, model: Model) -> list[str]:
    """What says that draws of the surrogate are not of prior times expansion of this model, in words."""
    if isinstance(surrogate, Compressed):
        opaque = model.joint_prior is None and model.log_prior is not None      # no expansion has such a prior
        if model.own_surrogate is not None or (not opaque and has_prior_of(surrogate, model)):
            return []
        return ["the Compressed has another prior than the model, and decisions read no prior: these are draws under "
                "the prior that the sampler had. If that was not the model's, sample with that one"]
    try:
        center, factor = model._normal_at(surrogate.theta_hat)
    except (ValueError, ArithmeticError) as error:
        return [f"the Reference is not that of the model, which has no normal density at its theta_hat: {error}"]
    sd, own = np.linalg.norm(surrogate.factor, axis=1), np.linalg.norm(factor, axis=1)
    away, ratio = np.abs(surrogate.center - center) / sd, own / sd
    odd = np.maximum(away, np.abs(ratio - 1.0))
    if (odd > _ALIKE).any():
        worst = int(odd.argmax())
        return [f"the Reference is not that of the model: at its theta_hat the normal density of the model has a mean "
                f"of {called(np.eye(len(odd))[worst], model.names)} {away[worst]:.2g} standard deviations away, and "
                f"{ratio[worst]:.3g} times the standard deviation. Draws that were made with it are of another "
                f"density, which is not corrected: give what model.reference() of this very model returns"]
    beside = model.log_prior_beside(surrogate)
    if beside is None:
        return []
    flat = array[:, :, : model.dim].reshape(-1, model.dim)
    values = np.array([beside(theta) for theta in flat[:: max(1, len(flat) // _DRAWS)]])
    spread = float(values.std()) if np.isfinite(values).all() else math.inf
    if not spread > _BESIDE:
        return []
    return [f"the prior of the model is not normal: over these draws its log density and that of the normal density "
            f"of the Reference differ by {spread:.2g} (standard deviation). Draws made of center and factor have the "
            f"prior of that density, and decisions read none: draw prior times expansion by a sampler of your own on "
            f"mcmc.compress(model), or run mcmc.sample. If so these were made, all is well"]


def _expected(surrogate: Compressed | Reference, model: Model) -> tuple[Array, Array] | None:
    """Means and standard deviations of prior times expansion, with the prior that came with the expansion.

    None if that is not normal, or large.
    """
    if isinstance(surrogate, Reference):
        plain = model.joint_prior is None and model.log_prior is None
        return (surrogate.center, np.linalg.norm(surrogate.factor, axis=1)) if plain else None
    own = surrogate.prior
    mapped = model.own_surrogate is not None
    if mapped or own.n_hyper or not own.normal or surrogate._part is not None or surrogate.n_seen > _LARGE:
        return None
    return np.array(surrogate.mode), np.sqrt(np.diagonal(np.linalg.inv(surrogate.metric().to_dense())))


def _density_problems(
    proposed: Array, surrogate: Compressed | Reference, model: Model, others: Sequence[str]
) -> list[str]:
    """What says that the draws are of another density than prior times expansion, in words."""
    expected = None if others or proposed[..., 0].size < _FOR_WIDTHS else _expected(surrogate, model)
    if expected is None:
        return []
    mean, sd = expected
    seen = proposed[:, :, : len(sd)]
    ratio, away = seen.std(axis=(0, 1)) / sd, np.abs(seen.mean(axis=(0, 1)) - mean) / sd
    odd = np.maximum(ratio, 1.0 / ratio)
    wide = odd.max() > _WIDER
    if not (wide or away.max() > _AWAY):
        return []
    worst = int(odd.argmax() if wide else away.argmax())
    name = called(np.eye(len(odd))[worst], model.names)
    what = (f"are {ratio[worst]:.2g} times as wide as" if wide else
            f"lie {away[worst]:.2g} standard deviations from the mean of")
    return [f"the draws of {name} {what} prior times expansion, with the prior of the model that was expanded. This is "
            f"right if they were made with another prior. Otherwise the sampler had another density, such as one "
            f"without a factor, and that is not corrected: compare its log density with Compressed.log_likelihood"]


def _slices(count: int) -> Iterator[NDArray[np.intp]]:
    """Numbers of draws, so many at a time."""
    for first in range(0, count, _SLICE):
        yield np.arange(first, min(first + _SLICE, count))


# Chains over draws, of which the rows see the first n columns. Each gives its steps slice by slice.


def _exactly(
    own: Array, n: int, threshold: Array, left: Array, n_rows: int, residuals_of: Callable[[Array], Array]
) -> Iterator[Steps]:
    """An independence chain, by all rows; `left` takes what the expansion leaves at each draw."""
    now = 0
    for tried in _slices(len(own)):
        left[tried] = residuals_of(own[tried, :n])
        place = np.empty(len(tried), dtype=np.intp)
        for i, t in enumerate(tried):
            now = t if t and left[t] - left[now] > threshold[t] else now
            place[i] = now
        m = len(tried)
        yield Steps(own[place], np.full(m, n_rows, np.int64), np.ones(m, np.int32), place == tried, np.ones(m, bool),
                    np.zeros(m, bool))


def _raced(
    rng: np.random.Generator, own: Array, n: int, model: Model, carrier: Reference, delta: float
) -> Iterator[Steps]:
    """The same, each decision a race on what the expansion leaves; the first draw is taken as it is."""
    source, theta = model.engine(carrier)
    test = AcceptTest(source, bound="normal", delta=delta, rng=rng)
    now = 0
    for tried in _slices(len(own)):
        place = np.zeros(len(tried), dtype=np.intp)
        rows, looks = np.zeros(len(tried), np.int64), np.zeros(len(tried), np.int32)
        full, undecided = np.zeros(len(tried), bool), np.zeros(len(tried), bool)
        for i, t in enumerate(tried):
            if t:
                theta[0], theta[1] = own[now, :n], own[t, :n]
                now = t if test.decide(-float(rng.standard_exponential())) else now
                answer = test.result()
                rows[i], looks[i] = answer.n_evaluated, answer.n_looks
                undecided[i] = answer.n_read == answer.n_rows
                full[i] = answer.n_evaluated > answer.n_read
            place[i] = now
        yield Steps(own[place], rows, looks, place == tried, full, undecided)


def _deciding(model: Model, carrier: Reference) -> SurrogateMetropolis:
    """The kernel whose decisions are taken, which expands where the surrogate does."""
    try:
        kernel = SurrogateMetropolis(model, decision="poisson", psi_hat=carrier.theta_hat)
    except ValueError as error:
        raise ValueError(f"decision='poisson' decides as SurrogateMetropolis does, which does not take the model: "
                         f"{error}. Here decision='race' and 'exact' take any prior") from error
    if kernel.model is not model:       # in other coordinates, in another order
        raise ValueError("decision='poisson' needs the surrogate of mcmc.compress(model), in the coordinates in which "
                         "such a model is decided; a Reference came. With one, give decision='race' or 'exact'")
    return kernel


def _by_minibatches(rng: np.random.Generator, own: Array, n: int, kernel: SurrogateMetropolis) -> Iterator[Steps]:
    """The same, each decision by a minibatch."""
    now = 0
    for tried, steps in zip(_slices(len(own)), kernel._decided(rng, own[:, :n], _SLICE), strict=True):
        place = np.maximum.accumulate(np.where(steps.accepted, tried, now))
        now = place[-1]
        yield replace(steps, draws=own[place])


def _of_weights(k: float) -> list[str]:
    if not k > _pareto.MOST:
        return []
    return [f"Pareto k of the weights of the draws is {k:.2g}, above {_pareto.MOST}: the surrogate misses a part of "
            f"the posterior, and the chain gets stuck there. {_EXPAND_AGAIN}, or run mcmc.sample"]


def _problems(trace: Trace, proposed: Array, k: float, model: Model) -> list[str]:
    """What is wrong with the draws, in words."""
    out = []
    if math.isnan(k):
        out.append(f"Pareto k needs {_pareto.LEAST} draws, and {counted(proposed[..., 0].size, 'draw')} came: nothing "
                   f"says how good the surrogate is")
    out += _of_weights(k)
    before = replace(trace, chains=tuple(replace(steps, draws=own) for steps, own in
                                         zip(trace.chains, proposed, strict=True)))
    share = float(before.ess().min()) / (trace.n_chains * trace.n_draws)
    if trace.n_draws >= 100 and share < _INDEPENDENT:
        out.append(f"the draws of the surrogate have {share:.2g} effective draws a draw: thin them by about "
                   f"{math.ceil(1.0 / share)}, since the chain takes them for independent")
    advice = f"the surrogate is far from the posterior there. {_EXPAND_AGAIN}, or run mcmc.sample"
    if trace.kernel["decision"] == "poisson":
        advice = f"minibatches refuse more than all rows do, which decision='exact' reads; or {advice}"
    return out + list(diagnosis(trace, None, False, least_accepted=_LEAST, refusal_advice=advice, more_advice=_MORE))
