"""LUCB over bounds that hold at all times: the rule with a proof, and the default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

import fastrace.select._lucb as _lucb
from fastrace._base import _checks
from fastrace.select._lucb import BOUNDS
from fastrace.select.selection import Selection, scales

SPLITS = ("auto", "equal", "sides")


def shares(bound: str, split: str, n_arms: int, n_best: int, delta: float) -> tuple[float, float]:
    """Errors of every lower and of every upper bound, as log(1 / alpha)."""
    if split == "auto" and bound == "kl-easy":
        return (-math.log(delta),) * 2
    if split == "equal" or (split == "auto" and 4 * n_best > n_arms):
        return (math.log(n_arms / delta),) * 2
    return math.log(2.0 * max(n_arms - n_best, 1) / delta), math.log(2.0 * n_best / delta)


class LUCB(Selection):
    r"""Find the m best of n arms with a proved probability of error: pull the two arms that are hardest to tell apart.

    The m largest means are the choice. Of the chosen, the arm with the smallest lower bound, and of the others, the one
    with the largest upper bound are pulled, until these two bounds are less than epsilon apart. Arms are compared by
    one interval each: where all arms can be asked about the same rows, as in a table, `FiniteRace` compares paired
    differences and needs far fewer evaluations.

    Parameters
    ----------
    {arms}
    epsilon : float, default 0.0
        Accuracy in reward units: an arm whose mean is within `epsilon` of the m-th largest is good enough. With 0 the
        very best are wanted; then it need not stop if the m-th and the next mean are equal, so set `max_pulls`.
    {delta}
    {support}
        Only the widths matter, but for ``"kl"``.
    bound : str, default "eb-mix"
        Bound of each mean that holds at all times at once:

        - ``"eb-mix"``: mean of two gamma-exponential mixtures over the squared errors of predictions [2]_, one for
          arms that are hard to tell apart and one for those that are not. It adapts to the variance, and took the
          fewest pulls in every comparison but those named below.
        - ``"hoeffding-mix"``: normal mixture; does not see the variance.
        - ``"lucb1"``: that of [1]_.
        - ``"kl"``: KL-LUCB [3]_, the proved rate; see `KLLUCB`.
        - ``"kl-easy"``: the rate of their experiments. **It has no proof, and need not stop**; fewest pulls for rewards
          0 and 1 whose means are near an end of the support. See `KLLUCB`.
    split : {"auto", "equal", "sides"}, default "auto"
        How delta is shared out. ``"equal"`` gives every arm delta / n; ``"sides"`` [4]_ half of it to the lower bounds
        of the n - m others and half to the upper bounds of the m best, better where m is small. ``"auto"``: sides
        up to m = n / 4; and delta for each arm with ``"kl-easy"``, whose formula shares nothing.
    batch : int or "auto", default "auto"
        Pulls of either arm per decision. ``"auto"`` is one per cent of what the one with fewer pulls has, at least 1
        and at most 4096. The promise is the same with any batch, as the bounds hold at all times; a fixed batch of k
        may pull either arm up to k - 1 times too often before it stops, and ``"auto"`` 1 % too often.
    {names}
    {no rng}

    {errors}

    Notes
    -----
    {promise}
    If an arm h of the answer is worse, one of the true best is not in it, and then either its upper bound or the lower
    bound of h has failed: one event per arm. Rewards must be independent, or at least have the same mean given all
    before.

    ``result().error_bound`` is the smallest delta at which the rule would have stopped by then, with the same mixtures.
    It is a promise that holds at any time: the probability that it ever falls to x or below while the answer is wrong
    is at most x. So a run with ``epsilon=0`` and `max_pulls` returns the best answer that the budget buys, with a
    number that says how sure to be. ``result().trace`` holds the gap of the two bounds against pulls.

    Two heaps by mean and two by bound are kept, so that a pull costs O(log n). Bounds that grow with the number of
    rounds (``"lucb1"``, ``"kl"``, ``"kl-easy"``) are all renewed at every 2 % more rounds, for a later round.

    References
    ----------
    .. [1] Kalyanakrishnan, Tewari, Auer, Stone, "PAC Subset Selection in Stochastic Multi-armed Bandits", ICML 2012.
    .. [2] Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, Nonparametric, Nonasymptotic Confidence Sequences", Annals
       of Statistics 49(2), 2021, Proposition 9.
    .. [3] Kaufmann, Kalyanakrishnan, "Information Complexity in Bandit Subset Selection", COLT 2013.
    .. [4] Simchowitz, Jamieson, Recht, "The Simulator: Understanding Adaptive Sampling in the Moderate-Confidence
       Regime", COLT 2017.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.LUCB(5, 2, epsilon=0.05, delta=0.05)
    >>> rule.run(BernoulliPulls([0.2, 0.8, 0.3, 0.6, 0.1], rng=1)).best
    array([1, 3])
    """

    _compiled: ClassVar[type[_lucb.LucbSelector]] = _lucb.LucbSelector
    _core: _lucb.LucbSelector
    _bound: str

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        epsilon: float = 0.0,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        bound: str = "eb-mix",
        split: str = "auto",
        batch: int | str = "auto",
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, epsilon, delta, support, names)
        self._bound = _checks.choice(bound, "bound", BOUNDS)
        self._begin(
            LUCB,
            {**self._shared(), "bound": bound, "split": split, "batch": batch},
            rng,
            epsilon=self._epsilon,
            batch=_batch(batch),
            bound=self._bound,
            log_inv_alpha=shares(
                self._bound, _checks.choice(split, "split", SPLITS), self._n_arms, self._n_best, self._delta
            ),
            scales=scales(float(self._widths.max()), self._n_arms, self._epsilon, self._delta),
        )

    def _bounds(self) -> dict[str, Any]:
        core = self._core
        proved = core.stopped_by == "bound"
        known = core.answer()
        chosen = np.zeros(self._n_arms, dtype=bool)
        chosen[known["best"]] = True
        ends = known["upper"][~chosen].max(initial=-math.inf), known["lower"][chosen].min()
        pulled = core.total >= self._n_arms
        return {
            "rule": f"LUCB {self._bound}",
            "error_bound": self._delta if proved else core.error_bound(math.log(self._delta)),
            "cutoff": 0.5 * (ends[0] + ends[1]) if pulled and self._n_best < self._n_arms else math.nan,
            "trace": core.history(),
            "trace_of": "shortfall",
            "shortfall": max(core.shortfall(), 0.0),
            "warnings": self._doubts(),
        }

    def _doubts(self) -> tuple[str, ...]:
        if self._bound == "kl-easy":
            return ("the rate of kl-easy has no proof: delta and the error bound are targets, not promises",)
        return ()


def _batch(batch: int | str) -> int:
    """Pulls of either arm per decision; 0 for a share of those made."""
    if isinstance(batch, str):
        _checks.choice(batch, "batch", ("auto",))
        return 0
    return _checks.integer(batch, "batch", 1, "a decision asks for pulls")
