"""Streams that are observed, not chosen: intervals of arms, of their differences and ratios, at any time."""

from __future__ import annotations

import copy
import functools
import math
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._math._half_widths as _half_widths
from fastrace._base import _callers, _checks, _frames
from fastrace.results import ComparisonResult
from fastrace.streams import _observed, _rules
from fastrace.streams._keys import canonical, keys_of, listed
from fastrace.streams._observed import _Bounded, _Clusters, _Shared, _Unbounded, column, instants, ratios, split
from fastrace.streams._sequences import differences

FOR_ARMS = 0.2          # share of delta that the intervals of the arms spend; those of the differences spend the rest
FIRST, GROWS = 20, 1.2  # rewards at the first look that is kept, and how much they grow between two
MANY_PAIRS, GROWS_FASTER = 10**4, 2.0       # pairs from which on looks are fewer, as each costs time and memory by pair
MOST_PAIRS = 200_000    # at which an exact look takes some seconds
AT_ONCE = 1 << 16       # rewards that are taken between two times that Ctrl-C is heard
MOST_ABSOLUTE = 1e100
MOST_ARMS = 10**6
Method = TypeVar("Method", bound=Callable[..., Any])


def _alone(method: Method) -> Method:
    """Decorate a method: threads that share an object wait for each other."""

    @functools.wraps(method)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        with self._busy:
            return method(self, *args, **options)

    return called  # type: ignore[return-value]


class Comparison(_callers.OwnInit):
    r"""Compare the means of streams that are observed, such as the variants of an A/B test, at any time.

    Rewards come as they come: unequal numbers per arm, in any order, chosen by somebody else. You may look after every
    reward, and stop for any reason; the intervals hold at all times at once.

    Parameters
    ----------
    arms : int or sequence
        Number of arms, or a sequence of distinct labels, one per arm. `observe` names an arm by its label. Arms given
        by their number have the labels 0, 1, 2 and so on.
    delta : float, default 0.05
        Probability that any interval ever misses, in (0, 1): of arms, differences and ratios together.
    support : tuple of float or None, default None
        Interval (low, high) that holds every reward, in reward units, such as (0, 1) for conversions. With it, the
        intervals of the result are exact, except with `clusters`. If you do not know such an interval, as for revenue
        or seconds, leave it out: the intervals of the result are then asymptotic, see the notes.
    reference : label, optional
        Arm with which each other one is compared. Without it, all pairs are, each arm with all before it, at most
        200,000 pairs.
    epsilon : float, default 0
        Largest difference that makes no difference, in reward units, for the verdict ``"equivalent"``.
    clusters : bool, default False
        Whether rewards come in clusters that are not independent inside: of one user, process or block. The unit is
        then the cluster, each reward is observed with the key of its own, and the intervals are asymptotic. A cluster
        may have rewards in several arms, which then need not be independent either.
    smaller_is_better : bool, default False
        Call an arm of smaller mean the better one, as for seconds or errors.
    first_look : int, default 200
        Rewards of an arm, or its clusters, before which its asymptotic intervals are infinite.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range, or a reward or label cannot be used; nothing is changed then.

    Notes
    -----
    For independent rewards of one mean per arm, all intervals of `result` hold at all times with probability at least
    ``1 - delta``. Which arm is observed next may depend on what has been seen, if the support is known. Every interval
    is as of now, from all rewards so far.

    With a `support`, each arm has a universal portfolio, as in `ConfidenceSequence`. For the lower end of a difference
    x - y of means, one portfolio bets on a larger x, and the other on a smaller y. Their product is a test martingale
    if the means are x and y, whichever of the two is observed when. The difference d is refuted once the least product
    over all (y + d, y) reaches 1 over the share of `delta`: a minimum in one dimension of a convex function.

    Without one, the error of a difference is taken to be normal, as the sum of the variances of both means, with
    Welch's degrees of freedom. Its interval is a mixture of t-statistics that becomes the asymptotic confidence
    sequence of [1]_ as rewards come. This asks that the shares of the arms settle, or that their variances are alike.
    Ends are moved for skewed rewards, as in `ConfidenceSequence`: of a difference, a small arm with a long tail moves
    them most, and equal tails of equal arms nearly cancel. The result warns of arms with long tails, of which few
    values have been seen. The table there shows what to expect. Clusters of unequal sizes are compared by the ratio of
    sums, with the variance of what each cluster adds to it; clusters may go on to grow. What clusters add to the means
    of both arms of a pair goes into the variance of the difference by its covariance. Ends are moved for the skewness
    of what clusters add. Where 1 in 200 or 1 in 50 clusters has any reward but 0, with lognormal amounts, none of 300
    experiments missed a difference at 30 looks (at delta 0.05; 200 to 4,000 clusters per arm, of its own or shared);
    with 1 in 200, and 200 to 2,000 clusters beside nine times as many, 1 of 300 did (``bench/heavy_tails.py``).

    The bound of a ratio is one of the difference over one of the other arm's mean, at no extra cost.

    O(1) time per reward, and O(1) memory but for clusters, which take O(1) each. The history is kept where the rewards
    have grown by a fifth, or doubled if there are more than 10,000 pairs. It takes O(log n) memory per arm and pair.

    References
    ----------
    .. [1] Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic confidence
       sequences", Annals of Statistics 52, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(1)
    >>> test = fr.Comparison(["blue", "green"], support=(0, 1))
    >>> test.observe("blue", 1)
    >>> arms = rng.choice(["blue", "green"], size=40_000, p=[0.8, 0.2])
    >>> test.observe_many(arms, rng.random(40_000) < np.where(arms == "green", 0.13, 0.10))
    >>> test.result().verdict
    ('better',)
    """

    def __init__(
        self, arms: int | Sequence[Hashable], delta: float = 0.05, support: tuple[float, float] | None = None, *,
        reference: Hashable = None, epsilon: float = 0.0, clusters: bool = False, smaller_is_better: bool = False,
        first_look: int | None = None,
    ) -> None:
        self._labels = _labels(arms)
        self.names = tuple(str(label) for label in self._labels)
        self._code = {label: code for code, label in enumerate(self._labels)}
        for code, label in enumerate(canonical(list(self._labels))):
            self._code.setdefault(label, code)      # a date, in whichever unit
        self.delta = _checks.probability(delta, "delta")
        self.support = None if support is None else _checks.interval(support)
        self.clusters = _checks.flag(clusters, "clusters")
        self.smaller_is_better = _checks.flag(smaller_is_better, "smaller_is_better")
        self.kind = "asymptotic" if self.support is None or self.clusters else "exact"
        if first_look is not None and self.kind == "exact":
            _rules.with_support(first_look, "")
        self.first_look = _rules.start(first_look)
        self.epsilon = _checks.real(epsilon, "epsilon")
        if not 0.0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon is {epsilon!r}; a finite number of at least 0 is needed")
        self.reference = reference
        self._pairs = self._paired(reference)
        self._arms: list[Any] = [self._new() for _ in self._labels]
        self._counts = np.zeros(len(self._labels), dtype=np.int64)
        self._shared = _Shared(len(self._labels))
        self._next = FIRST
        self._history: list[tuple[Any, ...]] = []
        self._time: Any = None
        self._busy = threading.RLock()

    def _paired(self, reference: Hashable) -> NDArray[np.intp]:
        """The pairs that are compared: an arm and the other one."""
        n_arms = len(self._labels)
        if reference is not None:
            base = self._code_of(reference, "reference")
            arms = np.delete(np.arange(n_arms), base)
            return np.column_stack([arms, np.full_like(arms, base)]).astype(np.intp)
        count = n_arms * (n_arms - 1) // 2
        if count > MOST_PAIRS:
            raise ValueError(f"{n_arms} arms are {count:,} pairs, and all are compared without a reference; at most "
                             f"{MOST_PAIRS:,} are allowed: say reference=, the arm to compare each other one with")
        return np.column_stack(np.tril_indices(n_arms, -1)).astype(np.intp)

    def _new(self) -> Any:
        if self.clusters:
            return _Clusters()
        if self.support is None:
            return _Unbounded()
        return _Bounded(self.support, FOR_ARMS * self.delta / len(self._labels))

    # Rewards

    @_alone
    def observe(self, arm: Hashable, reward: float, *, cluster: Hashable = None, time: Any = None) -> None:
        """Observe one reward of an arm, by its label.

        Parameters
        ----------
        arm : label
            One of `arms`.
        reward : float
            Its reward.
        cluster : hashable, optional
            Key of the cluster, with ``clusters=True``. The same key of two arms means one cluster, as of a user who saw
            both, or a block that holds both. Dates of one instant are one key, in any unit and library; a date is its
            midnight.
        time : any, optional
            When, for the history; not used otherwise.
        """
        code = self._code_of(arm, "arm")
        if self.clusters:
            keys = self._keys(None if cluster is None else [cluster], 1)
            self._arms[code].add(keys, 1.0, self._rewards([reward]))
        elif cluster is not None:
            raise ValueError(f"cluster is {cluster!r} and this comparison has no clusters: say clusters=True")
        else:
            try:
                self._arms[code].update(reward)
            except ValueError:
                self._rewards([reward], "reward")       # in words of its own: some of a stream's options are not here
                raise
        self._counts[code] += 1
        if time is not None:
            self._time = time
        if int(self._counts.sum()) >= self._next:
            self._look(self._time)

    @_alone
    def observe_many(
        self, arms: Any, rewards: ArrayLike, *, clusters: Iterable[Hashable] | Hashable = None, times: Any = None
    ) -> None:
        """Observe rewards in order.

        Parameters
        ----------
        arms : array_like of labels, shape (k,), or a label
            The arm of each reward, or the arm of all of them.
        rewards : array_like, shape (k,)
            Rewards.
        clusters : array_like of hashables, shape (k,), or a key, optional
            Key of the cluster of each, or that of all of them, with ``clusters=True``. A tuple is one key per reward.
        times : array_like, shape (k,), optional
            When each came, for the history.

        Raises
        ------
        ValueError
            If an arm is unknown, a reward is nan or outside `support`, or lengths or pandas indexes differ. Nothing is
            changed then; nor by Ctrl-C.
        TypeError
            If `clusters` is a frame, a dict or a set, or a key cannot be hashed.
        """
        _frames.require_same_rows(arms=arms, rewards=rewards, clusters=clusters, times=times)
        values = self._rewards(rewards)
        codes = self._codes(arms, values.size)
        keys = self._keys(clusters, values.size)
        when = None if times is None else np.asarray(times)
        if when is not None and when.shape != values.shape:
            raise ValueError(f"times has shape {when.shape} and rewards {values.shape}; both must be the same")
        undo, looks = _observed.marked(self._arms, codes, keys), len(self._history)
        before = self._counts.copy(), self._next, self._time
        try:
            start = 0
            while start < values.size:
                end = min(values.size, start + min(self._next - int(self._counts.sum()), AT_ONCE))
                self._take(codes[start:end], values[start:end], None if keys is None else keys[start:end])
                if when is not None:
                    self._time = when[end - 1]
                if int(self._counts.sum()) >= self._next:
                    self._look(self._time)
                start = end
        except BaseException:
            for code, back in undo.items():
                self._arms[code] = back()
            self._counts, self._next, self._time = before
            self._shared = _Shared(len(self._labels))
            del self._history[looks:]
            raise

    def _take(self, codes: NDArray[np.intp], values: NDArray[np.float64], keys: Any) -> None:
        """Hand rewards that have been checked to their arms."""
        for code, places in enumerate(split(codes, len(self._labels))):
            if not places.size:
                continue
            if keys is None:
                self._arms[code].update_many(values[places])
            else:
                self._arms[code].add(list(map(keys.__getitem__, places.tolist())), 1.0, values[places])
            self._counts[code] += places.size

    def _rewards(self, rewards: ArrayLike, name: str = "") -> NDArray[np.float64]:
        array = _checks.numbers_of(rewards, "rewards")
        if array.ndim != 1:
            raise ValueError(f"rewards has shape {array.shape}; a vector of shape (k,) is needed")
        if array.dtype.kind not in "fiub" and array.size:
            raise TypeError(f"rewards has dtype {array.dtype}; real numbers are needed{_first_word(array)}")
        values = array.astype(np.float64)
        low, high = (-MOST_ABSOLUTE, MOST_ABSOLUTE) if self.support is None else self.support
        slack = 0.0 if self.support is None else _half_widths.stream_slack(low, high)
        good = (values >= low - slack) & (values <= high + slack)
        if not good.all():
            bad = int(np.argmin(good))
            needed = "a finite number is needed: drop or replace it" if self.support is None or not np.isfinite(
                values[bad]) else f"outside support={self.support}: widen support, or scale the rewards"
            raise ValueError(f"{name or f'rewards[{bad}]'} is {array[bad]!s}; {needed}")
        return values

    def _codes(self, arms: Any, count: int) -> NDArray[np.intp]:
        """The arms' numbers, from an array of labels or a label for all."""
        if isinstance(arms, tuple):
            if arms in self._code:
                return np.full(count, self._code[arms], dtype=np.intp)
            arms = list(arms)
        if not isinstance(arms, list) and (isinstance(arms, (str, bytes)) or np.ndim(arms) == 0):
            return np.full(count, self._code_of(arms, "arms"), dtype=np.intp)
        array = arms if isinstance(arms, list) else _checks.as_array(arms, "arms")
        if not isinstance(array, list) and array.ndim != 1:
            raise ValueError(f"arms is {_checks.shown(arms)}; a label for each reward, a vector of them, is needed")
        if len(array) != count:
            raise ValueError(f"arms has {len(array)} entries and rewards {count}; each reward needs its arm")
        numbered = self._labels == tuple(range(len(self._labels)))
        if numbered and isinstance(array, np.ndarray) and array.dtype.kind in "iu":
            codes = array.astype(np.intp)
            if count and not 0 <= codes.min() <= codes.max() < len(self._labels):
                bad = int(np.argmax((codes < 0) | (codes >= len(self._labels))))
                raise ValueError(f"arms[{bad}] is {array[bad]}; {self._needed()}")
            return codes
        labels = listed(array) if isinstance(array, np.ndarray) else array
        code_of = self._code
        try:
            return np.array([code_of[label] for label in labels], dtype=np.intp)
        except (KeyError, TypeError):
            return np.array([self._code_of(label, f"arms[{k}]") for k, label in enumerate(labels)], dtype=np.intp)

    def _code_of(self, label: Any, name: str) -> int:
        try:
            return self._code[label] if label in self._code else self._code[canonical([label])[0]]
        except (KeyError, TypeError):
            raise ValueError(f"{name} is {_checks.shown(label)}; {self._needed()}") from None

    def _needed(self) -> str:
        shown = ", ".join(map(repr, self._labels[:10])) + (", ..." if len(self._labels) > 10 else "")
        return f"one of the arms {shown} is needed"

    def _keys(self, clusters: Any, count: int) -> list[Hashable] | None:
        if not self.clusters:
            if clusters is not None:
                raise ValueError("clusters are given and this comparison has none: make it with clusters=True")
            return None
        if clusters is None:
            raise ValueError("clusters is missing; with clusters=True each reward needs the key of its cluster")
        return keys_of(clusters, count)

    def _look(self, time: Any) -> None:
        """Keep what is known now, and plan the next time."""
        found = self._intervals(evidence=False)
        n_read = int(self._counts.sum())
        self._history.append((n_read, time, *found["arms"], *found["pairs"][:3]))
        grows = GROWS if len(self._pairs) <= MANY_PAIRS else GROWS_FASTER
        self._next = max(n_read + 1, math.floor(grows * n_read))

    # Answers

    @property
    def n_read(self) -> int:
        """Rewards observed, of all arms together."""
        return int(self._counts.sum())

    def _intervals(self, evidence: bool) -> dict[str, tuple[NDArray[np.float64], ...]]:
        """Means with intervals of arms, then of pairs; with `evidence` also log(1 / error bound)."""
        share = (1.0 - FOR_ARMS) * self.delta / max(len(self._pairs), 1)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            if self.kind == "exact":
                arms, pairs = self._exact(share, evidence)
            else:
                arms, pairs = self._asymptotic(share)
        mean, lower, upper = arms
        arm, other = self._pairs[:, 0], self._pairs[:, 1]
        difference, low, high, level = pairs
        # Where one arm has few rewards, the intervals of the two arms may say more.
        low, high = np.maximum(low, lower[arm] - upper[other]), np.minimum(high, upper[arm] - lower[other])
        return {"arms": (mean, lower, upper), "pairs": (difference, low, high, level)}

    def _exact(self, share: float, evidence: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        mean = np.array([arm.estimate for arm in self._arms])
        lower, upper = np.array([arm.interval for arm in self._arms]).T.copy()
        found = np.zeros((len(self._pairs), 4))
        differences(self._arms, self._pairs, lower, upper, math.log(2.0 / share), evidence, found)
        spent = math.log(2.0 * len(self._pairs) / (1.0 - FOR_ARMS)) if len(self._pairs) else 0.0
        difference = mean[self._pairs[:, 0]] - mean[self._pairs[:, 1]]
        return (mean, lower, upper), (difference, found[:, 0], found[:, 1], found[:, 2:].max(axis=1) - spent)

    def _asymptotic(self, share: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        moments = np.array([arm._moments() for arm in self._arms], dtype=np.float64)
        units, mean, variance, skewness, origin = moments.T
        count = units.astype(np.int64)
        mean = np.where(units > 0, mean, np.nan)
        error = np.where((units >= self.first_look) & (variance > 0.0), variance / units, np.inf)     # of the mean
        best_at = _rules.best_at(self.first_look)
        level = math.log(len(mean) / (FOR_ARMS * self.delta))
        half = _half_widths.t_mixture_half_width(
            error, units, units - 1.0, _half_widths.t_mixture_spread(best_at, level), level)
        # Outwards, as far from 0 the width may be lost in rounding.
        lower, upper = (np.nextafter(np.where(np.isfinite(half), origin + (mean + sign * _half_widths.tail_end(
            half, error, _half_widths.tail_shift(sign * skewness, count, 1.0))), sign * np.inf), sign * np.inf)
            for sign in (-1.0, 1.0))
        a, b = self._pairs[:, 0], self._pairs[:, 1]
        both = error[a] + error[b]
        freedom = both**2 / (error[a] ** 2 / (units[a] - 1.0) + error[b] ** 2 / (units[b] - 1.0))
        size = units[a] * units[b] / (units[a] + units[b])
        part, rest = error[a] / both, error[b] / both
        below, above = (
            np.sqrt(part) * _half_widths.tail_shift(sign * skewness[a], count[a], part)
            + np.sqrt(rest) * _half_widths.tail_shift(-sign * skewness[b], count[b], rest) for sign in (-1.0, 1.0))
        if self.clusters:       # one that has rewards in both arms adds to both errors
            n_shared, covariance = self._shared(self._arms, self._pairs)
            both = both - 2.0 * covariance
            freedom = np.minimum(freedom, units[a] + units[b] - n_shared - 1.0)
        level = math.log(1.0 / share)
        spread = _half_widths.t_mixture_spread(0.5 * best_at, level)
        known = np.isfinite(both) & (both > 0.0)
        width = np.where(known, _half_widths.t_mixture_half_width(both, size, freedom, spread, level), np.inf)
        difference = (origin[a] - origin[b]) + (mean[a] - mean[b])
        low, high = (np.where(np.isfinite(width), difference + sign * _half_widths.tail_end(width, both, shift),
                              sign * np.inf) for sign, shift in ((-1.0, below), (1.0, above)))
        away = _half_widths.tail_away(np.abs(difference), both, np.where(difference > 0.0, below, above))
        evidence = np.where(known, _half_widths.t_mixture_level(away, both, size, freedom, spread), 0.0)
        evidence = evidence - (math.log(len(self._pairs) / (1.0 - FOR_ARMS)) if len(self._pairs) else 0.0)
        return (origin + mean, lower, upper), (difference, low, high, evidence)

    @_alone
    def result(self) -> ComparisonResult:
        """Return what is known now."""
        found = self._intervals(evidence=True)
        mean, lower, upper = found["arms"]
        difference, low, high, evidence = found["pairs"]
        arm, other = self._pairs[:, 0], self._pairs[:, 1]
        ratio_low, ratio_high = ratios(low, high, lower[arm], upper[arm], lower[other], upper[other])
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(mean[other] != 0.0, mean[arm] / mean[other], np.nan)
        return ComparisonResult(
            names=self.names, mean=mean, lower=lower, upper=upper, pulls=self._counts.copy(), pairs=self._pairs.copy(),
            difference=difference, difference_lower=low, difference_upper=high, ratio=ratio, ratio_lower=ratio_low,
            ratio_upper=ratio_high, error_bound=np.exp(-np.clip(evidence, 0.0, self._most_evidence)),
            verdict=tuple(self._verdict(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)),
            kind=self.kind, delta=self.delta, epsilon=self.epsilon, support=self.support,
            n_clusters=np.array([len(arm.place) for arm in self._arms]) if self.clusters else None,
            history=self.history, note=self._note(), warnings=self._doubts(),
        )

    @property
    def _most_evidence(self) -> float:
        """The log of the evidence that is believed: of asymptotic bets no more than `delta` needs."""
        return math.inf if self.kind == "exact" else -math.log(self.delta)

    def _verdict(self, low: float, high: float) -> str:
        if low > 0.0 or high < 0.0:
            return "better" if (low > 0.0) != self.smaller_is_better else "worse"
        return "equivalent" if self.epsilon > 0.0 and -self.epsilon <= low and high <= self.epsilon else "not known yet"

    def _note(self) -> str:
        if self.kind == "exact":
            return ""
        unit = "clusters" if self.clusters else "rewards"
        return f"asymptotic: nearly right from {self.first_look} {unit} of each arm on, as their mean is nearly normal"

    def _doubts(self) -> tuple[str, ...]:
        """What may void the promise, by arm."""
        found = [(name, text) for name, arm in zip(self.names, self._arms, strict=True) for text in arm._doubts()]
        said = [f"arm {name!r}: {text}" for name, text in found]
        if not len(self._pairs):
            said.insert(0, f"{self.names[0]!r} is the only arm, so nothing is compared: give two or more")
        return tuple(said)

    @property
    @_alone
    def history(self) -> dict[str, Any]:
        """What was known at earlier times: see `ComparisonResult`."""
        names = ("n_read", "time", "mean", "lower", "upper", "difference", "difference_lower", "difference_upper")
        columns: list[Any] = list(zip(*self._history, strict=True)) if self._history else [()] * len(names)
        made = {name: list(column) for name, column in zip(names, columns, strict=True)}
        widths = dict(zip(names[2:], [len(self._labels)] * 3 + [len(self._pairs)] * 3, strict=True))
        tables = {name: np.array(made[name], dtype=np.float64).reshape(len(self._history), width)
                  for name, width in widths.items()}
        return {"n_read": np.array(made["n_read"], dtype=np.int64), "time": made["time"], **tables}

    def to_frame(self) -> Any:
        """Return `result` as a table with one row per pair."""
        return self.result().to_frame()

    def plot(self, what: str = "all", ax: Any = None) -> Any:
        """Draw `result`: "means", "differences", "history" or all of them."""
        return self.result().plot(what, ax)

    @_alone
    def __reduce__(self) -> tuple[Any, ...]:
        own = ("delta", "support", "reference", "epsilon", "clusters", "smaller_is_better")
        known = {"arms": self._labels, **{name: getattr(self, name) for name in own},
                 "first_look": None if self.kind == "exact" else self.first_look}
        seen = [copy.copy(arm) for arm in self._arms], self._counts.copy(), self._next, list(self._history), self._time
        fields = vars(Comparison(1))
        return _rebuild.saved(type(self), known, seen, extra={
            key: value for key, value in vars(self).items() if key not in fields})

    def __repr__(self) -> str:
        return f"<Comparison({list(self._labels)!r}, delta={self.delta:g}, {self.kind}): n_read={self.n_read}>"

    # Workers and frames

    def merge(self, other: Comparison) -> None:
        """Add what another comparison of the same arms observed, such as that of another worker.

        Nothing is lost: the intervals are those of one comparison that observed all. The history goes on from this
        one's. A cluster of the same key is the same cluster.

        Parameters
        ----------
        other : Comparison
            With the same arguments; unchanged. How much it has observed must not have been decided by looking at the
            rewards of this one, nor the other way round.
        """
        if not isinstance(other, Comparison):
            raise TypeError(f"other is a {type(other).__name__}; only another Comparison can be merged")
        if other is self:
            raise ValueError("a comparison cannot be merged with itself: its rewards would count twice")
        for name in ("_labels", "delta", "support", "reference", "epsilon", "clusters", "smaller_is_better",
                     "first_look"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"{name.strip('_')} is {mine!r} on one side and {theirs!r} on the other; both must be "
                                 f"the same")
        found = copy.copy(other)  # as it is now
        with self._busy:
            later = _observed.later(self._time, found._time)
            for mine, theirs in zip(self._arms, found._arms, strict=True):
                mine._absorb(theirs)
            self._counts += found._counts
            self._time = later
            if self.n_read >= self._next:
                self._look(self._time)

    @classmethod
    def from_frame(
        cls, frame: Any, *, arm: str, reward: str, cluster: str | None = None, time: str | None = None, **options: Any
    ) -> Comparison:
        """Compare the arms of a frame with one row per event.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame or dict of arrays
            The events.
        arm, reward : str
            Columns that hold the label of the arm and the reward.
        cluster, time : str, optional
            Columns that hold the key of the cluster, and the time: rows are observed in its order. A time is a number,
            a date, or one in words as of ISO 8601, such as "2026-11-28" or "2026-11-28T09:30".
        **options
            As for `Comparison`: `delta`, `support`, `reference` and others.

        Returns
        -------
        Comparison
            Its arms are the labels in the frame, sorted.

        Raises
        ------
        ValueError
            If there is no such column, or an entry is missing, or a time in words that do not say when.

        Examples
        --------
        >>> import fastrace as fr
        >>> events = {"variant": ["a", "b", "b", "a"], "converted": [0, 1, 1, 0]}
        >>> print(fr.Comparison.from_frame(events, arm="variant", reward="converted", support=(0, 1)))
        <Comparison(['a', 'b'], delta=0.05, exact): n_read=4>
        """
        if isinstance(options.get("clusters"), str):
            raise TypeError(f"clusters is {options['clusters']!r}; the column that holds the keys goes by cluster=, as "
                            f"those of the arm and the reward go by arm= and reward=")
        if isinstance(frame, Mapping):
            _frames.require_same_rows(**{str(of): frame[of] for of in (arm, reward, cluster, time)
                                         if isinstance(of, Hashable) and of in frame})
        with _frames.rows_called_as(frame, "rewards"):
            labels = column(frame, arm, "arm")
            values = column(frame, reward, "reward")
            keys = None if cluster is None else column(frame, cluster, "cluster")
            times = None
            if values.dtype.kind not in "fiub":
                raise ValueError(f"column {reward!r} has dtype {values.dtype}; rewards must be real numbers"
                                 f"{_first_word(values, reward)}")
            found = sorted(set(listed(labels)), key=lambda label: (str(type(label)), label))
            made = cls(found, clusters=options.pop("clusters", cluster is not None), **options)
            if time is not None:
                made._rewards(values)           # before they are sorted: errors call a row by its place in the frame
                made._keys(keys, values.size)
                times = column(frame, time, "time")
                order = np.argsort(instants(times, time), kind="stable")
                labels, values, times = labels[order], values[order], times[order]
                keys = None if keys is None else keys[order]
            made.observe_many(labels, values, clusters=keys, times=times)
            return made


@_checks.rebuilds(1, Comparison, subclasses=True)
def _rebuild(cls: type[Comparison], known: dict[str, Any], seen: tuple[Any, ...]) -> Comparison:
    """Rebuild a pickled `Comparison`."""
    made = cls.__new__(cls)
    Comparison.__init__(made, **known)
    arms, counts, following, history, time = seen
    arms = [arm.canonical() if isinstance(arm, _Clusters) else arm for arm in arms]
    if [type(arm) for arm in arms] != [type(arm) for arm in made._arms]:
        raise ValueError("its arms are not of its kind")
    good = isinstance(counts, np.ndarray) and counts.dtype == np.int64
    if not good or counts.tolist() != [arm.n_samples for arm in arms]:
        raise ValueError("its counts are not those of its arms")
    following = _checks.integer(following, "next look", int(counts.sum()) + 1, "it is still to come")
    shapes = [counts.shape] * 3 + [(len(made._pairs),)] * 3
    for n_read, _, *parts in history:
        _checks.integer(n_read, "n_read", 1, "it is a number of rewards")
        if [np.shape(part) for part in parts] != shapes:
            raise ValueError("its history is not about its arms")
    made._arms, made._counts, made._next, made._history, made._time = arms, counts, following, history, time
    return made


def _first_word(rewards: Any, name: Any = "rewards") -> str:
    """Which of the rewards is the first that cannot be read as a number."""
    for k, value in enumerate(rewards.tolist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return f", and {name}[{k}] is {_checks.shown(value)}"
    return ", and these are words: convert them"


def _labels(arms: int | Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Labels of the arms, checked."""
    _checks.unmasked(arms, "arms")
    if isinstance(arms, (str, bytes, Set)) and not isinstance(arms, Mapping):
        raise TypeError(f"arms is {arms!r}; a number of arms, or a sequence of labels such as ['A', 'B'], is needed")
    if not isinstance(arms, Iterable):
        count = _checks.integer(arms, "arms", 1, "there must be something to observe")
        if count > MOST_ARMS:
            raise ValueError(f"arms is {count}; at most {MOST_ARMS} are allowed, since each has a record of its own")
        return tuple(range(count))
    labels = tuple(listed(arms) if isinstance(arms, np.ndarray) else arms)
    names = [str(label) for label in labels]
    twin = _checks.twice(names)
    if twin is not None:
        raise ValueError(f"arms has {twin!r} twice; labels must be all different")
    if not labels:
        raise ValueError("arms is empty; at least 1 arm is needed")
    for label in labels:
        if not isinstance(label, Hashable) or getattr(label, "ndim", False):
            raise TypeError(f"arms has {_checks.shown(label)} of type {type(label).__name__}; a word or a number is "
                            f"needed")
        if label is None or label != label:
            raise ValueError(f"arms has {label!r}, which is no label: give the arm a name")
    if len(set(labels)) < len(labels):          # as 1, 1.0 and True, which Python takes for one key
        raise ValueError(f"arms has labels that are equal, {_checks.shown(labels)}; labels must be all different: "
                         f"give words")
    return labels
