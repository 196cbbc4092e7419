"""A pruner for Optuna; importing this module needs optuna."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from optuna.pruners import BasePruner
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise ImportError("fastrace.doors.optuna needs optuna: python -m pip install optuna") from error

from fastrace._base import _checks
from fastrace.streams.sequences import ConfidenceSequence

__all__ = ["RacingPruner"]

KEY = "fastrace"        # the user attribute of a trial that holds how its rows are ordered and what it is raced against


class RacingPruner(BasePruner):  # type: ignore[misc]
    r"""Prune a trial once its mean over shared rows is certain to be worse than that of a finished trial.

    Rows are what every trial is evaluated on: folds of a cross-validation, rows of an evaluation set, seeds, instances.
    A trial evaluates them in an order of its own, which `order` draws, and reports the value of each with the row as
    step. The pruner compares it row by row with the best finished trial.

    Parameters
    ----------
    n_rows : int
        Number of rows, the same for all trials.
    epsilon : float, default 0.0
        In units of the values. A gain of less than this does not matter: trials that are certain to gain less are
        pruned.
    delta : float, default 0.05
        Probability that any trial of the study is pruned wrongly, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds the value of every row. The narrower, the earlier the pruner decides.
    rng : None, int, SeedSequence or Generator, optional
        Source of the orders. The seed is kept in each trial; the number of the trial enters too, so that workers with
        the same seed use different orders.

    Raises
    ------
    ValueError
        If a parameter is out of range, the study has several objectives, a reported value lies outside `support`, a
        step is no row, or a trial was begun with another number of rows. Values that were reported stay in the study.

    Notes
    -----
    The promise. Let a trial be pruned wrongly if its mean over all `n_rows` rows is no worse than that of the finished
    trial it was compared with, or with `epsilon` above 0 if it is better by `epsilon` or more. With probability at
    least ``1 - delta``, no trial of the study is pruned wrongly, whatever the sampler, however many trials there are,
    and however often `prune` is asked. So every trial whose mean over all rows is best is evaluated to its end, and
    with `epsilon` no trial is better than the best finished one by `epsilon`. It is a promise about these rows, not
    about new data.

    It needs that the value of a row depends on the trial's parameters and the row alone, not on the order of rows or on
    other trials, that no parameter is suggested after the first value is known, and that rows follow `order`. The
    pruner cannot see the first two. It enforces the last: it uses values up to the first row of the order that is
    missing, and the rest once the gap is filled, so rows may be evaluated in parallel.

    Why it holds. The sampler chooses parameters by values of earlier trials, and has learned something about the rows
    that these read first. With one order for all trials the first rows would favour trials that fit them. Here the
    order of a trial is drawn apart from all that went before. `order` also fixes the trial to compare with: the best of
    those that finished with all rows. Given the past, the differences between both on the `n_rows` rows are then fixed
    numbers, read without replacement in uniformly random order, and a `ConfidenceSequence` with ``n_rows`` holds for
    their mean at all times. A trial that finishes later, in another worker, is not used: its parameters may have been
    chosen by what this trial showed.

    How `delta` is spent. A trial gets :math:`\delta / ((k + 1) (k + 2))`, where k counts the trials whose comparison
    may have been at risk: those that are running, in any worker, and those that ended without being shown to be worse,
    or to gain less than `epsilon`. Only a trial that is not can be pruned wrongly. As long as
    none was, all such trials begun before are among the k, so the j-th of them gets at most
    :math:`\delta / (j (j + 1))`. The sum of these is `delta`. A trial that is worse costs nothing once it has ended, so
    k grows with the improvements of the study, about the logarithm of the number of trials, plus the number of workers.
    Trials that a dead worker left running count for ever, on the safe side.

    Fallback. A trial is never pruned while no trial has finished with all rows, with a warning if it never called
    `order`, and with a warning after a value that is nan or infinite. A trial with such a value, or without a value for
    some row, is not compared with. Nor is a trial pruned after its last row: it may as well finish.

    Samplers. From a trial that raises ``TrialPruned`` a sampler such as TPE learns its last step alone, which is the
    value of one row here. Return the mean of the values so far instead, and it learns that. Such a trial counts as
    finished in Optuna, also in ``study.best_trial``, but the pruner does not compare with it. Take `best_trial`
    then, the best of those with all rows: a mean of few rows is often the largest by luck.

    Distributed studies. All that the pruner knows is in the study: values, and one user attribute, ``"fastrace"``, a
    trial. Workers share trials by the storage, need the same parameters but no common seed, and can be killed and
    replaced.

    When it helps. It needs many rows. Where scores are right or wrong and a trial differs from the best on 30 % of 10^4
    rows, it is pruned after some 350 rows if it is worse by 0.1, after 1,200 if by 0.05, and after 6,000 if by 0.02.
    With 100 folds whose differences have a standard deviation of 0.03 and `support` (0, 1), a trial that is worse by
    0.1 is pruned after some 50, by 0.05 after 80. 5 or 10 folds prune next to nothing: score rows, small groups of rows
    or repeated folds instead. `WilcoxonPruner` decides earlier, by a test of level ``p_threshold`` at every step, which
    does not bound how often the best trial is pruned (``bench/benchmarks/doors.py`` counts that).

    Each call costs O(rows reported), as Optuna's own reading of the trial does; with very many rows ask every few rows.
    `order` costs one pass over the values of the study.

    References
    ----------
    .. [1] Waudby-Smith, Ramdas, "Confidence sequences for sampling without replacement", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import optuna
    >>> from fastrace.doors.optuna import RacingPruner
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> hard = np.random.default_rng(0).random(1000)                # of each row of an evaluation set
    >>> pruner = RacingPruner(n_rows=1000, support=(0, 1), rng=1)
    >>> def objective(trial):
    ...     skill = trial.suggest_float("skill", 0, 1)
    ...     scores = []
    ...     for row in pruner.order(trial):
    ...         scores.append(float(skill > hard[row]))
    ...         trial.report(scores[-1], row)
    ...         if trial.should_prune():
    ...             raise optuna.TrialPruned
    ...     return np.mean(scores)
    >>> study = optuna.create_study(direction="maximize", pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=1))
    >>> study.optimize(objective, n_trials=20)
    >>> read = sum(len(trial.intermediate_values) for trial in study.trials)
    >>> round(study.best_params["skill"], 2), bool(study.best_value == (study.best_params["skill"] > hard).mean())
    (0.88, True)
    >>> read < 0.3 * 20 * 1000
    True
    """

    def __init__(
        self,
        n_rows: int,
        epsilon: float = 0.0,
        delta: float = 0.05,
        support: tuple[float, float] = (0.0, 1.0),
        *,
        rng: _checks.RngLike = None,
    ) -> None:
        self.n_rows = _checks.integer(n_rows, "n_rows", 1, "a trial is evaluated on rows")
        self.epsilon = _checks.real(epsilon, "epsilon")
        if not 0.0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon is {epsilon}; a finite number of at least 0 is needed, in units of the values")
        self.delta = _checks.probability(delta, "delta")
        self.support = _checks.interval(support)
        self._seed = int(_checks.generator(rng).integers(2**63))

    def __repr__(self) -> str:
        return (f"RacingPruner(n_rows={self.n_rows}, epsilon={self.epsilon:g}, delta={self.delta:g}, "
                f"support={self.support})")

    def order(self, trial: Any) -> NDArray[np.int64]:
        """Return the rows in the order in which `trial` is to evaluate them; the first call begins its comparison.

        Parameters
        ----------
        trial : optuna.Trial
            The trial that the objective was given. Call this before the first value is known.

        Returns
        -------
        ndarray of int, shape (n_rows,)
            A permutation of the rows, the same in every call for this trial.
        """
        begun = trial.user_attrs.get(KEY)
        if begun is None or begun["trial"] != trial.number:     # a retried trial comes with the attributes of the old
            study = getattr(trial, "study", None)               # a FixedTrial has none
            begun = {"trial": trial.number, "n_rows": self.n_rows, "seed": self._seed}
            trials = study.get_trials(deepcopy=False) if study is not None else []
            begun["reference"] = None if study is None else self._best(trials, study.direction)
            if begun["reference"] is not None:
                k = sum(self._at_risk(other, study) for other in trials if other.number != trial.number)
                begun["delta"] = self.delta / ((k + 1) * (k + 2))
            trial.set_user_attr(KEY, begun)
        return self._rows(begun)

    def best_trial(self, study: Study) -> FrozenTrial:
        """Return the best of the trials that finished with a value for each row, by the mean of these values.

        Parameters
        ----------
        study : optuna.Study
            The study, of one objective.

        Returns
        -------
        optuna.trial.FrozenTrial
            The first of equals.

        Raises
        ------
        ValueError
            If no trial has finished with all rows.
        """
        trials = study.get_trials(deepcopy=False)
        best = self._best(trials, study.direction)
        if best is None:
            raise ValueError(f"no trial has finished with a value for each of {self.n_rows} rows; evaluate one to its "
                             f"end")
        return study.get_trials()[best]

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial is worse than what it is compared with, or gains less than `epsilon`; Optuna calls this.

        Parameters
        ----------
        study : optuna.Study
            The study, with the values of all workers.
        trial : optuna.trial.FrozenTrial
            The trial so far.

        Returns
        -------
        bool
            Whether to prune it.
        """
        if len(study.directions) != 1:
            raise ValueError(f"the study has {len(study.directions)} objectives; a race needs a single one")
        if not trial.intermediate_values:
            return False
        if self._begun(trial) is None:
            warnings.warn(f"trial {trial.number} is not pruned: its objective has not called order(trial), and the "
                          f"promise is about rows in that order; loop over pruner.order(trial)", stacklevel=2)
            return False
        if not self._check(trial):
            warnings.warn(f"trial {trial.number} is not pruned: one of its values is nan or infinite, and a race "
                          f"cannot skip rows; report the worst value of the support where a row fails", stacklevel=2)
            return False
        return len(trial.intermediate_values) < self.n_rows and self.difference(study, trial)[1] < self.epsilon

    def difference(self, study: Study, trial: Any) -> tuple[float, float]:
        """Interval of how much better the mean of a trial is than that of the trial that it is compared with.

        Parameters
        ----------
        study : optuna.Study
            The study.
        trial : optuna.trial.FrozenTrial
            One of its trials, running or finished.

        Returns
        -------
        tuple of float
            Lower and upper end, positive where the trial is better, be it larger or smaller. It holds at all times
            at once, and misses with a probability of at most the trial's share of `delta`. (-inf, inf) if the trial is
            compared with none.
        """
        begun = self._begun(trial)
        if begun is None or begun["reference"] is None:
            return -np.inf, np.inf
        other = study.get_trials(deepcopy=False)[begun["reference"]]
        gains = (self._values(trial) - self._values(other))[self._rows(begun)]
        if study.direction == StudyDirection.MINIMIZE:
            gains = -gains
        missing = np.flatnonzero(~np.isfinite(gains))
        span = self.support[1] - self.support[0]
        sequence = ConfidenceSequence(delta=begun["delta"], support=(-span, span), n_rows=self.n_rows)
        sequence.update_many(gains[: missing[0]] if missing.size else gains)
        low, high = sequence.interval
        return (low, high) if low <= high else (-np.inf, np.inf)

    def _begun(self, trial: Any) -> dict[str, Any] | None:
        """What `order` fixed for this trial; None if it was not called."""
        begun = trial.user_attrs.get(KEY)
        if begun is None or begun["trial"] != trial.number:
            return None
        if begun["n_rows"] != self.n_rows:
            raise ValueError(f"trial {trial.number} was begun with n_rows={begun['n_rows']}, and this pruner has "
                             f"n_rows={self.n_rows}; trials of one study share their rows, so use one number in all "
                             f"workers, and a new study for other rows")
        return dict(begun)

    def _rows(self, begun: dict[str, Any]) -> NDArray[np.int64]:
        """The order of a trial's rows."""
        seed = np.random.SeedSequence(begun["seed"], spawn_key=(begun["trial"],))
        return np.random.default_rng(seed).permutation(begun["n_rows"])

    def _values(self, trial: Any) -> NDArray[np.float64]:
        """Value of each row, shape (n_rows,); nan where there is none inside the support."""
        steps, found = _reported(trial)
        good = (steps >= 0) & (steps < self.n_rows) & (found >= self.support[0]) & (found <= self.support[1])
        values = np.full(self.n_rows, np.nan)
        values[steps[good]] = found[good]
        return values

    def _check(self, trial: FrozenTrial) -> bool:
        """Refuse steps that are no rows, and values outside the support; whether all values are finite."""
        steps, found = _reported(trial)
        strange = steps[(steps < 0) | (steps >= self.n_rows)]
        if strange.size:
            raise ValueError(f"trial {trial.number} reported step {strange[0]}; a step is a row, from 0 to "
                             f"{self.n_rows - 1}: report(value, row) for each row of order(trial)")
        finite = np.isfinite(found)
        outside = np.flatnonzero(finite & ((found < self.support[0]) | (found > self.support[1])))
        if outside.size:
            raise ValueError(f"the value of row {steps[outside[0]]} of trial {trial.number} is {found[outside[0]]}, "
                             f"outside support={self.support}: the promise holds only for values inside it; begin a "
                             f"study with a wider support")
        return bool(finite.all())

    def _best(self, trials: list[Any], direction: StudyDirection) -> int | None:
        """Number of the best trial that finished with a value for each row; None if there is none."""
        best, largest = None, -np.inf
        for trial in trials:
            if trial.state == TrialState.COMPLETE and len(trial.intermediate_values) == self.n_rows:
                mean = float(self._values(trial).mean())
                score = -mean if direction == StudyDirection.MINIMIZE else mean
                if np.isfinite(score) and score > largest:
                    best, largest = int(trial.number), score
        return best

    def _at_risk(self, trial: Any, study: Study) -> bool:
        """Whether the comparison of another trial may still err, or was of a trial that is not worse."""
        if trial.state == TrialState.WAITING:
            return False
        if trial.state == TrialState.RUNNING:
            return True
        begun = self._begun(trial)
        if begun is None or begun["reference"] is None:
            return False
        rounding = 1e-9 * (self.support[1] - self.support[0])           # of a mean over all rows
        return not self.difference(study, trial)[1] < self.epsilon - rounding


def _reported(trial: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps and values that a trial has reported."""
    values = trial.intermediate_values
    return np.fromiter(values, np.int64, len(values)), np.fromiter(values.values(), np.float64, len(values))
