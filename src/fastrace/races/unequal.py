"""Races of sums over populations of different sizes, such as the clusters of a Gibbs step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace.races._unequal as _unequal
import fastrace.races._unequal_judge as _unequal_judge
from fastrace import bounds
from fastrace._base import _callers, _checks, _frames
from fastrace._base._words import counted
from fastrace._math._half_widths import INVERTED
from fastrace.races import _options
from fastrace.races._options import RaceOptions
from fastrace.races._ragged import Ragged
from fastrace.results import UnequalResult
from fastrace.results.columns import remembered
from fastrace.sources import CallableSource, Source, column_names

INEXACT_LOOKS = _unequal_judge.N_LOOKS - 1
INEXACT_PAIRS = _unequal_judge.N_LOOKS**2 - 1
Rewards = Source | ArrayLike | Sequence[ArrayLike] | Callable[[int, NDArray[np.int64]], ArrayLike]


class UnequalRace:
    r"""Find the largest of several sums, each over a population of its own size.

    Arm y stands for :math:`A_y = c_y + \sum_{j=1}^{N_y} r_{y,j} / \tau`. An arm is looked at up to six times: after
    `first_look` rows, and after 0.1, 0.2, 0.4, 0.8 and all of the rest of its rows, so that large and small
    populations end together. At each look the arms that the leader has beaten are dropped.

    Parameters
    ----------
    sizes : array_like of int, shape (n_arms,)
        Rows of each arm (:math:`N_y` in [1]_). An arm without rows, such as a new cluster, is known exactly.
    delta : float, default 0.05
        Probability that the answer is not the arm with the largest sum, in (0, 1).
    bound : {"auto", "normal", "hoeffding-serfling", "empirical-bernstein-serfling", "serfling"}, default "auto"
        Rule that drops arms. The normal rule assumes that the mean of `first_look` rows of an arm is nearly normal; the
        others are rigorous and need `support`. ``"auto"`` is ``"serfling"`` if there is a support, else ``"normal"``.
    first_look : int, default 10
        Rows of an arm at the first look, at least 2. The paper took 3, which spends the whole of `delta` on variances
        of three rewards.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward. With it the promise holds for all populations inside it, unless
        `bound` is ``"normal"``, which takes from it only what ``allocation="adaptive"`` need not read.
    offset : array_like, shape (n_arms,), optional
        :math:`c_y`, the log prior plus a Gumbel variate in a Gibbs step; -inf takes the arm out of the race.
    temperature : float, default 1.0
        :math:`\tau`, which divides rewards but not offsets: above 1 it flattens, below 1 it sharpens.
    kind : {"sidak", "union"}, default "sidak"
        How the normal rule spends `delta` over the five looks that can be wrong. Sidak's share is never smaller.
    student : bool, default False
        Student quantiles in the normal rule, each arm with its own number of rows [2]_.
    scan_advantage : float, optional
        Cost of a row read at random over one read in order; as the source says by default (24 for vectors in memory),
        and 1 with `tell`. Where the rows wanted next cost more than the whole arm in order, the arm is read in full.
        With 1 an arm is read only as far as its comparisons need.
    allocation : {"even", "adaptive"}, default "even"
        "even" reads all arms for each look, as in [1]_. "adaptive" reads one at a time: the leader, or the arm that may
        yet exceed it by most, whichever tells more per row. With a `support` it reads nothing of an arm, such as a
        cluster of few members, that could not win whatever its rows are.
    pooling : float, default 0.0
        Only with the normal rule: rows that the variance within all arms counts for beside those of the arm itself, at
        least 0. A few of them, where rewards of all arms are alike, make up for a short first look. It is a heuristic:
        see Notes.
    tail_guard : bool, default True
        Let the normal rule decide only on arms whose tails it has seen (a heuristic; see Notes). Other rules need no
        such guard.
    outside : {"raise", "warn"}, default "raise"
        What to do with a reward outside `support`: refuse it, or take it as it is and say so in the result.
    names : sequence of str, optional
        What to call the arms in the result.
    options : RaceOptions, optional
        Options said once for several races; what is spelled here goes before them.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness: one keyed order of the rows per arm is drawn from it here, nothing later.

    Raises
    ------
    ValueError
        If a parameter is out of range, a rigorous bound has no `support`, or a reward is nan, +inf or outside it;
        the race then goes on from the last good rows.

    Notes
    -----
    Two arms of different size must be compared on the scale of sums. The leader x drops y when

    .. math:: \hat A_x - \hat A_y > B \sqrt{N_x^2 \hat\sigma_x^2 v_x + N_y^2 \hat\sigma_y^2 v_y} / \tau, \quad
              v = \frac{1}{T} \left(1 - \frac{T - 1}{N - 1}\right)

    (eq. 26 of [1]_ corrected: power +1/2, variances, and the factors :math:`N^2`). B belongs to ``delta / (D - 1)``
    over five looks. A rigorous bound drops y when the gap exceeds the half-widths of both sums, each at
    ``delta / (5 D)``. With ``allocation="adaptive"`` two arms may be compared at different looks, and B belongs to
    ``delta / (D - 1)`` over the 35 pairs of looks that can be wrong. With `pooling` the promise is not proved: the
    variances of other arms enter a comparison, and change it between looks. Populations are drawn from independently.
    An arm whose rewards so far are all equal says nothing of the rest: under the normal rule it drops nobody and stays,
    until rewards differ, all are read, or a support or `pooling` speaks. Rare large rewards among ordinary ones
    that vary cannot be suspected before one of them has been read: only a `support` with a rigorous bound protects from
    those. The orders of rows are pseudo-random (see
    ``_keyed_order.pxd``), so reading k rows costs O(k) time and O(n_arms) memory, whatever the sizes.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, appendix C.3.
    .. [2] Banerjee, "Approximate confidence interval for linear functions of means of k populations when the
       population variances are not equal", Sankhya 22, 1960.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(0)
    >>> clusters = [rng.normal(mean, 1.0, size) for mean, size in ((0.2, 3000), (-0.5, 40), (0.5, 2000))]
    >>> race = fr.UnequalRace([3000, 40, 2000, 0], offset=[0.0, 0.0, 0.0, 5.0], rng=1)
    >>> while not race.done:
    ...     arms, rows = race.ask()
    ...     race.tell([clusters[arm][row] for arm, row in zip(arms, rows)])
    >>> race.result().best
    2
    """

    @_callers.names_caller
    @_options.takes_options
    def __init__(
        self,
        sizes: ArrayLike,
        delta: float = 0.05,
        bound: str = "auto",
        first_look: int = 10,
        support: _checks.Support | None = None,
        *,
        offset: ArrayLike | None = None,
        temperature: float = 1.0,
        kind: str = "sidak",
        student: bool = False,
        scan_advantage: float | None = None,
        allocation: str = "even",
        pooling: float = 0.0,
        tail_guard: bool = True,
        outside: str = "raise",
        names: Sequence[str] | None = None,
        options: RaceOptions | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._sizes = _sizes(sizes)
        n_arms = self._sizes.size
        self._delta = _checks.probability(delta, "delta")
        self._bound = _options.bound(bound, support is not None, ("auto", *INVERTED), "serfling")
        first_look = min(_options.first_look(first_look), _options.MOST_ROWS)
        kind = _checks.choice(kind, "kind", ("sidak", "union"))
        adaptive = _checks.choice(allocation, "allocation", ("even", "adaptive")) == "adaptive"
        self._scan_advantage = _options.scan_advantage(scan_advantage)
        pooling = _checks.real(pooling, "pooling")
        if not 0.0 <= pooling < math.inf:
            raise ValueError(f"pooling is {pooling!r}; a number of rows is needed, at least 0: it weighs a variance")
        if pooling > 0.0 and self._bound != "normal":
            raise ValueError(f"pooling is {pooling!r} and bound is {bound!r}, which is {self._bound!r} here; it is for "
                             f"bound='normal', as a rigorous bound needs each arm's own variance")
        student = _checks.flag(student, "student")
        tau = _checks.real(temperature, "temperature")
        if not 0.0 < tau < math.inf:
            raise ValueError(f"temperature is {temperature!r}; a positive number is needed, as it divides rewards")
        self._names = _frames.arms_called(names, n_arms, sizes=sizes, support=support, offset=offset)
        self._sizes = _sizes(_frames.of_arms(sizes, self._names, "sizes"))
        if support is None:
            low, high = np.array(-np.inf), np.array(np.inf)
        else:
            low, high = _checks.support_bounds(_frames.support_of_arms(support, self._names), n_arms)
        constants = _options.constants(offset, "offset", n_arms, self._names)
        n_running = int((constants > -np.inf).sum())
        quantile = np.zeros(1)
        if self._bound == "normal" and n_running > 1:
            quantile += _quantile(self._delta / (n_running - 1), kind, INEXACT_PAIRS if adaptive else INEXACT_LOOKS)
            if student:
                quantile = bounds.student_quantile(quantile, _plan(self._sizes, first_look))
        self._options: dict[str, Any] = {
            "first_look": first_look,
            "bound": self._bound,
            "student": student,
            "quantile": quantile,
            "log_inv_delta": math.log(n_running) + math.log(INEXACT_LOOKS) - math.log(self._delta),
            "temperature": tau,
            "low": low,
            "high": high,
            "offset": constants,
            "adaptive": adaptive,
            "pooling": pooling,
            "tails": _checks.flag(tail_guard, "tail_guard"),
            "strict": _options.strict(outside),
        }
        self._race = _unequal.UnequalCore(self._sizes, **self._options)
        self._race.begin(_checks.generator(rng))

    def __reduce__(self) -> tuple[Any, ...]:
        known = (self._sizes, self._delta, self._bound, self._scan_advantage, self._options)
        return _rebuild.saved(type(self), known, self._race._get_state(), self._names)

    def __repr__(self) -> str:
        state = "over" if self.done else "running"
        return f"UnequalRace({counted(self._sizes.size, 'arm')}, delta={self._delta:g}, bound={self._bound!r}): {state}"

    @property
    def done(self) -> bool:
        """Whether the race is over."""
        return self._race.done

    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the arm and the row of each reward wanted next, two vectors; the same until `tell`.

        They are those of the next look, or, of a look at more than 2**20 rewards, the first of them.
        """
        return self._race.ask()

    def tell(self, rewards: ArrayLike) -> None:
        """Take the rewards that `ask` wanted, a vector in its order."""
        if _frames.labels_of(rewards) is not None and not self.done:
            rewards = _frames.by_arm(rewards, self._names, self._race.ask()[0])
        vector = _checks.numbers_of(rewards, "rewards")
        if vector.ndim != 1 or vector.dtype.kind not in "fiub":
            raise ValueError(
                f"rewards has shape {vector.shape} and dtype {vector.dtype}; a vector of real numbers is needed, "
                f"one per row that ask() wanted"
            )
        with _checks.named_arms(self._names, self._race):
            self._race.tell(np.ascontiguousarray(vector, dtype=np.float64))

    def run(self, rewards: Rewards) -> UnequalResult:
        """Race to the end, in compiled code without the GIL.

        Parameters
        ----------
        rewards : sequence of vectors, vector, callable or Source
            One vector per arm; or one vector with the arms one after another; both are read in place. Or a function
            ``(arm, rows) -> rewards``, a vector of the shape of `rows`. Or a `Source` of as many arms and at least as
            many rows as the largest arm, which is never asked for a row that an arm does not have.

        Returns
        -------
        UnequalResult
            The answer when the race is over, as `result` gives it.
        """
        if isinstance(rewards, Mapping):
            self._names = remembered(self._names, tuple(str(name) for name in rewards))
            rewards = list(rewards.values())
        source = _source(rewards, self._sizes)
        with _checks.named_arms(self._names, self._race):
            self._race.run(source, source.scan_advantage if self._scan_advantage is None else self._scan_advantage)
        return self.result()

    def result(self) -> UnequalResult:
        """Return what is known so far; ``stopped_by`` is empty while the race is running."""
        # All intervals hold together: delta is shared among arms, sides, and the looks at each arm.
        share = math.log(2.0 * self._sizes.size) + math.log(INEXACT_LOOKS) - math.log(self._delta)
        student = self._options["student"] and self._bound == "normal"
        known = self._race.answer(
            share, _unequal_judge._upper_quantile(-share), bounds.student_quantile if student else None
        )
        rows = sum(self._sizes.tolist())
        told = []
        if self._race.outside:
            told.append("a reward lay outside support: the promise does not hold")
        if self._race.far:
            told.append(
                "sums are so far from 0 that they lose the digits that tell arms apart: totals, intervals and the "
                "answer may be wrong, of an exact race too; take off what all sums share, from offset or from the "
                "rewards of arms of one size"
            )
        if self._race.constant:
            told.append(
                "all rewards read of an arm were equal at a look: the normal rule cannot tell how far the rest may lie"
            )
        if known["held_back"].size:
            told.append(
                "the normal rule was held back until more rows were read: rewards of arms "
                f"{known['held_back'][:10].tolist()} were constant, or few of them carried the mean; a support with a "
                f"rigorous bound would promise the answer without that heuristic"
            )
        return UnequalResult(
            n_rows=self._sizes,
            fraction_read=int(known["pulls"].sum()) / rows if rows else 0.0,
            bound=self._bound,
            delta=self._delta,
            warnings=tuple(told),
            names=self._names,
            **known,
        )


@_options.takes_options
def race_sums(
    rewards: Rewards,
    sizes: ArrayLike | None = None,
    delta: float = 0.05,
    bound: str = "auto",
    first_look: int = 10,
    support: _checks.Support | None = None,
    *,
    names: Sequence[str] | None = None,
    offset: ArrayLike | None = None,
    temperature: float = 1.0,
    kind: str = "sidak",
    student: bool = False,
    scan_advantage: float | None = None,
    allocation: str = "even",
    pooling: float = 0.0,
    tail_guard: bool = True,
    outside: str = "raise",
    options: RaceOptions | None = None,
    rng: _checks.RngLike = None,
) -> UnequalResult:
    """Find the largest sum, of several over populations of their own sizes, from as few rows as possible.

    The largest sum is not the largest mean: an arm of many small rewards beats one of few large ones. `race` finds the
    largest mean.

    It pays where rewards are computed when they are asked for. Vectors that lie in memory are added up faster than they
    are sampled unless they are long, so the race reads an arm in full as soon as that is cheaper.

    Parameters
    ----------
    rewards : sequence or mapping of vectors, vector, callable or Source
        One vector per arm, with the names of the arms if it is a mapping; or what `UnequalRace.run` takes, with
        `sizes`.
    sizes : array_like of int, shape (n_arms,), optional
        Rows of each arm; not needed for a sequence of vectors.
    delta, bound, first_look, support
        See `UnequalRace`.
    names : sequence of str, optional
        What to call the arms in the result.
    offset, temperature, kind, student, scan_advantage, allocation, pooling, tail_guard, outside, options, rng
        See `UnequalRace`.

    Returns
    -------
    UnequalResult
        The arm with the largest sum, the estimates of all sums and the rows read of each arm.

    Raises
    ------
    ValueError
        If an argument is out of range, `rewards` is a table of two dimensions, or a reward that is read is nan, +inf or
        outside `support`.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(0)
    >>> clusters = [rng.normal(mean, 1.0, size) for mean, size in ((0.2, 3000), (-0.5, 40), (0.5, 2000), (0.0, 0))]
    >>> fr.race_sums(clusters, offset=[0.0, 0.0, 0.0, 5.0], rng=1).best
    2
    >>> def factors(arm, rows):         # stands for something that takes long to compute
    ...     return clusters[arm][rows]
    >>> result = fr.race_sums(factors, [3000, 40, 2000, 0], offset=[0.0, 0.0, 0.0, 5.0], rng=1)
    >>> result.best, result.fraction_read < 0.5
    (2, True)
    """
    if isinstance(rewards, Mapping):
        names = list(rewards) if names is None else names
        rewards = list(rewards.values())
    with _callers.options_of("race_sums"):
        if getattr(rewards, "ndim", 1) == 2 or column_names(rewards) is not None:
            shape = f" of shape {rewards.shape}" if hasattr(rewards, "shape") else ""
            raise ValueError(
                f"rewards is a table{shape}, whose arms could be its rows or its columns; give a list of vectors, one "
                f"per arm, or race its columns by `race`, which finds the largest mean"
            )
        if sizes is None:
            if isinstance(rewards, Source) or callable(rewards) or _is_flat(rewards):
                raise ValueError(
                    "sizes is missing; only a sequence of vectors, one per arm, shows how long its arms are"
                )
            vectors = [_vector(part, f"rewards[{i}]") for i, part in enumerate(_several(rewards))]
            if not vectors:
                raise ValueError("rewards is empty; a vector of at least one arm is needed")
            sizes = np.array([part.shape[0] for part in vectors], dtype=np.int64)
            rewards = Ragged(vectors)
        race = UnequalRace(
            sizes,
            delta,
            bound,
            first_look,
            support,
            offset=offset,
            temperature=temperature,
            kind=kind,
            student=student,
            scan_advantage=scan_advantage,
            allocation=allocation,
            pooling=pooling,
            tail_guard=tail_guard,
            outside=outside,
            names=names,
            rng=rng,
        )
    return race.run(rewards)


def race_unequal(*args: Any, **options: Any) -> UnequalResult:
    """Find the largest sum: the former name of `race_sums`."""
    warnings.warn(
        "race_unequal finds the largest sum, not the largest mean, and is now called race_sums; this name will go",
        DeprecationWarning,
        stacklevel=2,
    )
    return race_sums(*args, **options)


def _sizes(sizes: ArrayLike) -> NDArray[np.int64]:
    array = _checks.as_array(sizes, "sizes")
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"sizes has shape {array.shape} and dtype {array.dtype}; a vector of integers is needed, one per arm"
        )
    if array.min() < 0 or array.max() > 1 << 62:
        raise ValueError(f"sizes runs from {array.min()} to {array.max()}; each must lie within [0, 2**62]")
    return np.array(array, dtype=np.int64)


def _quantile(delta: float, kind: str, n_looks: int) -> float:
    """B of the union or of Sidak over the looks that can be wrong; 0 for one half and above."""
    if kind == "union":
        return _unequal_judge._upper_quantile(math.log(delta) - math.log(n_looks))
    share = -math.expm1(math.log1p(-delta) / n_looks) if delta < 1.0 else 1.0
    return _unequal_judge._upper_quantile(math.log(share))


def _plan(sizes: NDArray[np.int64], first_look: int) -> NDArray[np.int64]:
    """Rows of each arm at the looks that can be wrong: shape (n_arms, 5)."""
    rest = np.maximum(sizes - first_look, 0)[:, None]
    extra = rest // 10 * [0, 1, 2, 4, 8] + rest % 10 * [0, 1, 2, 4, 8] // 10
    read: NDArray[np.int64] = np.minimum(first_look, sizes)[:, None] + np.clip(extra, np.arange(5), rest)
    return np.maximum(read, 1)


def _is_flat(rewards: Any) -> bool:
    return isinstance(rewards, np.ndarray) and rewards.ndim == 1 and rewards.dtype != object


def _several(rewards: Any) -> Any:
    if isinstance(rewards, (str, bytes)) or not (hasattr(rewards, "__iter__") or hasattr(rewards, "__getitem__")):
        raise TypeError(
            f"rewards is {_checks.shown(rewards)}; a list of vectors, one per arm, is needed, or one vector, a "
            f"function or a Source, with sizes"
        )
    return rewards


def _vector(values: Any, name: str) -> NDArray[Any]:
    """A vector that compiled code can read in place, or a copy of it."""
    array = _checks.numbers_of(values, name)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "fiub"):
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; a vector of real numbers is needed, one per arm"
        )
    if array.dtype.type not in (np.float32, np.float64) or not array.dtype.isnative:
        array = array.astype(np.float64)
    return array if array.flags.aligned else array.copy()


def _source(rewards: Rewards, sizes: NDArray[np.int64]) -> Source:
    if isinstance(rewards, Source):
        if rewards.n_rows < sizes.max():
            raise ValueError(f"the source has {rewards.n_rows} rows; the largest arm has {sizes.max()}")
        return rewards
    if callable(rewards):
        function = rewards
        _checks.at_once(function, "rewards")
        _checks.takes(function, "rewards", "arm", "rows")

        def block(arms: NDArray[np.intp], rows: NDArray[np.int64]) -> ArrayLike:
            given = function(int(arms[0]), rows)
            _checks.at_once(given, "rewards")
            needed = f"one reward per row, a vector of real numbers of shape {rows.shape}, is needed"
            _checks.unmasked(given, "what rewards returned")
            try:
                values = np.asarray(given)
            except (ValueError, TypeError):
                raise ValueError(f"rewards(arm, rows) returned rows of different lengths; {needed}") from None
            _checks.refuse_rounded(given, values, "what rewards returned")
            values = _checks.numbers_of(values, "what rewards returned")
            if values.shape != rows.shape:
                raise ValueError(f"rewards(arm, rows) returned shape {values.shape}; {needed}")
            if values.dtype.kind not in "fiub":
                raise ValueError(f"rewards(arm, rows) returned dtype {values.dtype}; {needed}")
            return values[:, None]

        return CallableSource(block, sizes.size, int(sizes.max()))
    if _is_flat(rewards):
        flat = _vector(rewards, "rewards")
        total = sum(sizes.tolist())     # an int of Python, which does not overflow
        if flat.shape[0] != total:
            raise ValueError(f"rewards has {flat.shape[0]} entries; sizes add up to {total}")
        ends = np.cumsum(sizes).tolist()
        return Ragged([flat[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)])
    vectors = [_vector(part, f"rewards[{i}]") for i, part in enumerate(_several(rewards))]
    if [v.shape[0] for v in vectors] != sizes.tolist():
        raise ValueError(f"rewards has vectors of {[v.shape[0] for v in vectors]} entries; sizes are {sizes.tolist()}")
    return Ragged(vectors)


@_checks.rebuilds(2, UnequalRace, subclasses=True)
def _rebuild(
    cls: type[UnequalRace], known: tuple[Any, ...], state: dict[str, Any], names: tuple[str, ...] | None = None
) -> Any:
    """Rebuild a pickled `UnequalRace`."""
    race = cls.__new__(cls)
    race._sizes, race._delta, race._bound, race._scan_advantage, race._options = known
    race._race = _unequal.UnequalCore(race._sizes, **race._options)
    race._names = _checks.arm_names(names, len(race._sizes))
    race._race._set_state(state)
    return race
