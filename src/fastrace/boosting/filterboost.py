"""FilterBoost: boosting that reads only as many examples as its stopping rules need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import fastrace.boosting._boost as _boost
from fastrace._base import _checks, _frames
from fastrace._base._progress import track
from fastrace.boosting._bins import Bins, Floats, Stump
from fastrace.boosting._committee import Booster, Rows, votes
from fastrace.boosting._rounds import RULES, Rounds, log_inv_share
from fastrace.model_selection._sklearn import check_sample_weight, keep_parameters

__all__ = ["FilterBoostClassifier", "Stump"]

REFUSED = {"sra": "SRA", "aa": "AA", "gbas": "GBAS"}
ROWS_FOR_BINS = 200_000
SMALL_MAP = 2**25       # bytes up to which a memory map is read whole


def _takes_chunks(model: FilterBoostClassifier) -> bool:
    if model.estimator is not None:
        raise AttributeError("streams of chunks are boosted with stumps; use fit for other weak learners")
    return True


class FilterBoostClassifier(Rounds, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Boosting by filtering, whose rounds read as few examples as their stopping rule needs.

    Each round draws examples at random and passes them through a filter that prefers those which the committee gets
    wrong. All weak learners watch what passes, and as soon as a stopping rule knows the edge of one of them to a
    relative accuracy `tau`, the one with the largest edge joins the committee. So the cost of a round depends on how
    good its best weak learner is, not on the number of rows. Missing values (nan) are allowed, see Notes.

    Parameters
    ----------
    estimator : classifier, optional
        Weak learner, fitted to `learner_samples` filtered examples in each round; its edge is then certified on fresh
        ones. By default all stumps on binned features compete on one stream.
    n_estimators : int, default 50
        Most rounds.
    epsilon : float, default 0.01
        Error on the training distribution, in (0, 1), below which boosting may end early: it does once so many
        examples in a row are refused by the filter that the committee's error is certainly smaller.
    delta : float, default 0.1
        Probability that any edge or the statement about the error is wrong, in (0, 1), over all rounds.
    tau : float, default 0.25
        Relative accuracy of the edges, in (0, 1).
    rule : {"target-eb", "nas", "geometric-nas", "ebstop", "ebgstop", "ebgstop-star"}, default "target-eb"
        When an edge is known: by bets aimed at the accuracy asked for, or by one of the rules of [1]_ and [3]_.
        Rules for rewards that are never negative (SRA, AA, GBAS) cannot judge an edge.
    selection : {"first", "leader"}, default "first"
        Stop the round at the first edge that is known to `tau`, or when one is certainly at least (1 - tau) times the
        largest.
    n_bins : int, default 5
        Bins per feature, 2 to 254.
    binning : {"uniform", "quantile"}, default "uniform"
        Bins of equal width or of equal counts.
    categorical_features : array_like of bool, int or str, optional
        Mask, positions or names of features whose numbers are names of categories (at most 254): each has its own bin.
    full_pass : {"auto", "never"}, default "auto"
        Whether a round of `fit` may turn to one exact pass over all rows once it has drawn as many as there are. Later
        rounds then make such a pass at once, as edges get smaller; so do all rounds where there are too few rows for
        any rule to stop earlier. (Never for other weak learners on a memory map.)
    max_samples : int, optional
        Most rows drawn in a fit, for all rounds of one class together; the round that exceeds it is given up.
    learner_samples : int, default 1000
        Filtered examples that a weak learner other than a stump is fitted to.
    min_edge : float, default 0.0
        Boosting ends as soon as all edges are certainly smaller than this, in [0, 0.5).
    random_state : None, int, RandomState or Generator, optional
        Source of randomness.
    verbose : int, default 0
        Show the progress of rounds if positive; needs rich.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    ValueError
        If a parameter is out of range or the data do not fit.
    ImportError
        On import, without scikit-learn: ``python -m pip install "scikit-learn>=1.6"``.

    Notes
    -----
    Let rows be drawn independently from a distribution; in `fit` that is the training set, with `sample_weight`. Then
    with probability at least ``1 - delta``, over all rounds at once, each certified edge :math:`g` of a weak learner
    with edge :math:`\gamma` has :math:`g \le |\gamma|` and the right sign, and if boosting ended by "error", the
    committee's error is at most `epsilon`. Round t uses :math:`\delta_t = \delta / (3 t (t+1))` for each of three
    statements: the filter, edges too low, edges too high. A union over all H stumps costs a summand log H. Edges of an
    exact pass are exact. More than two classes: one committee for each against the rest, each with its own `delta`.

    A row drawn costs one sum per feature in use, one that passes an addition per feature; looks at the bounds follow
    after every example at first, later after every 100th part of them. A memory map is read at the rows drawn only,
    except for the labels, and for at most 200,000 rows from which bins are learnt.

    Stumps take nan for a missing value: where a feature lacks values, they have a bin and a stump of their own; a value
    that is missing in `predict` only lies in none of the feature's bins. Other weak learners get no nan: it is refused.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, section 3.4.
    .. [2] Bradley, Schapire, "FilterBoost: Regression and Classification on Large Datasets", NIPS 20, 2008.
    .. [3] Domingo, Watanabe, "Scaling Up a Boosting-Based Learner via Adaptive Sampling", PAKDD 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.boosting import FilterBoostClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((1_000_000, 4))
    >>> y = X[:, 0] + 0.3 * X[:, 1] > 0.7
    >>> model = FilterBoostClassifier(n_estimators=5, random_state=1).fit(X, y)
    >>> model.score(X, y) > 0.85, int(model.n_samples_read_.sum()) < 50_000
    (True, True)
    >>> print(model.estimators_[0])
    -1 where x0 < 0.6...
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_estimators: int = 50,
        epsilon: float = 0.01,
        delta: float = 0.1,
        tau: float = 0.25,
        rule: str = "target-eb",
        selection: str = "first",
        n_bins: int = 5,
        binning: str = "uniform",
        categorical_features: ArrayLike | None = None,
        full_pass: str = "auto",
        max_samples: int | None = None,
        learner_samples: int = 1000,
        min_edge: float = 0.0,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.estimator is None
        return tags

    # Learning.

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> FilterBoostClassifier:
        """Boost on examples drawn from arrays or a memory map.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
            Features, nan where a value is missing; a NumPy memory map is read only at the rows that are drawn.
        y : array_like of shape (n_rows,)
            Classes.
        sample_weight : array_like of shape (n_rows,), optional
            Rows are drawn in proportion to it.
        """
        self._check_parameters()
        for name, value in (("X", X), ("y", y), ("sample_weight", sample_weight)):
            _checks.unmasked(value, name)
        mapped = _is_mapped(X)
        X, y = validate_data(
            self, X, y, dtype=None if mapped else [np.float64, np.float32],
            ensure_all_finite=False if mapped else ("allow-nan" if self.estimator is None else True),
        )
        check_classification_targets(y)
        weights = None
        if sample_weight is not None:
            weights = np.asarray(check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
            if not weights.all() and not mapped:
                possible = np.flatnonzero(weights)
                y, weights = y[possible], weights[possible]
                X = X[possible]
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only, {self.classes_[0]!r}; two are needed to boost")
        rng = self._generator()
        if self.estimator is None:
            sample = X
            if mapped and X.shape[0] > ROWS_FOR_BINS:
                sample = X[np.sort(rng.choice(X.shape[0], ROWS_FOR_BINS, replace=False))]
            self._learn_bins(sample)
        n_boosters = 1 if len(self.classes_) == 2 else len(self.classes_)
        rngs = _checks.children(rng, 2 * n_boosters)
        self._boosters = [Booster() for _ in range(n_boosters)]
        self._streams: list[_boost.StumpStream] | None = None
        rows = Rows(X, self._bins if self.estimator is None else None, weights, rngs[0], in_memory=not mapped)
        plan = range(n_boosters * self.n_estimators)
        bar = track(plan, _checks.real(self.verbose, "verbose") > 0, "FilterBoost")
        for k in range(n_boosters):
            rows.rng = rngs[2 * k]
            rounds = self._rounds(self._boosters[k], rows, _signs(labels, k, n_boosters), rngs[2 * k + 1])
            for _ in range(self.n_estimators):
                next(bar)
                next(rounds, None)
        next(bar, None)
        return self

    @available_if(_takes_chunks)  # type: ignore[untyped-decorator]
    def fit_chunks(
        self,
        chunks: Iterable[tuple[Any, Any]] | Callable[[], Iterable[tuple[Any, Any]]],
        classes: ArrayLike | None = None,
        max_passes: int = 1,
    ) -> FilterBoostClassifier:
        """Boost on a stream of chunks, each held in memory only while it is read.

        Parameters
        ----------
        chunks : iterable of (X, y), or function that returns one
            The function is called anew for every pass. Rows should come in random order: the promise is for rows that
            are independent. Later passes read rows again, and their promise is for the rows, not for where they came
            from.
        classes : array_like, optional
            All classes, if the first chunk may lack some.
        max_passes : int, default 1
            Most passes over the data.
        """
        max_passes = _checks.integer(max_passes, "max_passes", 1, "it counts passes over the chunks")
        if max_passes > 1 and not callable(chunks) and isinstance(chunks, Iterator):
            raise ValueError("chunks is an iterator and can be read once; for more passes give a list or a function")
        begun = False
        for _ in range(max_passes):
            for X, y in chunks() if callable(chunks) else chunks:
                self._take_chunk(X, y, np.unique(y) if classes is None and not begun else classes, first=not begun)
                begun = True
                if all(booster.stopped_by for booster in self._boosters):
                    return self
        if not begun:
            raise ValueError("chunks is empty; at least one pair (X, y) is needed")
        for booster in self._boosters:
            booster.stopped_by = booster.stopped_by or "exhausted"
        return self

    @available_if(_takes_chunks)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: ArrayLike, classes: ArrayLike | None = None) -> FilterBoostClassifier:
        """Go on with the next rows of a stream; a round may begin in one call and end in another.

        Bins are learnt from the first call's rows, and `classes` must name all classes then. After `fit` it adds rounds
        to what was fitted, up to `n_estimators`.
        """
        self._take_chunk(X, y, classes, first=not hasattr(self, "classes_"))
        return self

    def _take_chunk(self, X: Any, y: Any, classes: Any, *, first: bool) -> None:
        self._check_parameters()
        if first:
            if classes is None:
                raise ValueError("classes is None; the first call of partial_fit needs all classes")
        for name, value in (("X", X), ("y", y), ("classes", classes)):
            _checks.unmasked(value, name)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", reset=first)
        check_classification_targets(y)
        known = np.unique(np.asarray(classes)) if first else self.classes_
        strange = np.setdiff1d(y, known)
        if strange.size:
            raise ValueError(f"y holds {strange[0]!r}, which is not among the classes {known}")
        if first:
            if len(known) < 2:
                raise ValueError(f"classes is {known}; at least two classes are needed")
            self.classes_ = known
            self._learn_bins(X)
            n_boosters = 1 if len(known) == 2 else len(known)
            self._boosters = [Booster() for _ in range(n_boosters)]
            self._streams = None
        if self._streams is None:
            self._streams = [self._stream(rng) for rng in _checks.children(self._generator(), len(self._boosters))]
            for booster, stream in zip(self._boosters, self._streams, strict=True):
                for stump, weight in zip(booster.learners, booster.weights, strict=True):
                    stream.add(self._bins.number(stump), stump.sign * weight)
                stream.restart(log_inv_share(self.delta, len(booster.weights) + 1))
        labels = np.searchsorted(self.classes_, y)
        codes = self._bins.transform(X)
        for booster in self._boosters:
            if booster.stopped_by == "exhausted" or (
                booster.stopped_by == "n_estimators" and len(booster.weights) < self.n_estimators
            ):
                booster.stopped_by = ""
        for k, (booster, stream) in enumerate(zip(self._boosters, self._streams, strict=True)):
            signs = _signs(labels, k, len(self._boosters))
            place = 0
            while place < len(signs) and not booster.stopped_by:
                place = stream.consume(codes, signs, None, place, self._left(stream))
                if stream.status:
                    self._end_of_round(booster, stream)
                elif self._left(stream) == 0:
                    booster.stopped_by = "max_samples"

    def _check_parameters(self) -> None:
        _checks.integer(self.n_estimators, "n_estimators", 1, "it counts rounds")
        if self.estimator is not None and not all(hasattr(self.estimator, name) for name in ("fit", "get_params")):
            raise TypeError(f"estimator is {_checks.shown(self.estimator)}; a classifier of scikit-learn's kind, or "
                            f"None for stumps, is needed")
        for name in ("epsilon", "delta", "tau"):
            _checks.probability(getattr(self, name), name)
        _checks.integer(self.n_bins, "n_bins", 2, "one bin tells nothing")
        if self.n_bins > 254:
            raise ValueError(f"n_bins is {self.n_bins}; at most 254 fit in a byte")
        if not 0.0 <= _checks.real(self.min_edge, "min_edge") < 0.5:
            raise ValueError(f"min_edge is {self.min_edge}; a number in [0, 0.5) is needed, as no edge is above 0.5")
        for name, options in (("binning", ("uniform", "quantile")), ("selection", ("first", "leader")),
                              ("full_pass", ("auto", "never"))):
            _checks.choice(getattr(self, name), name, options)
        _checks.integer(self.learner_samples, "learner_samples", 2, "a weak learner is fitted to them")
        if self.max_samples is not None:
            _checks.integer(self.max_samples, "max_samples", 1, "it counts rows read")
        if isinstance(self.rule, str) and self.rule.lower() in REFUSED:
            raise ValueError(
                f"rule is {self.rule!r}; {REFUSED[self.rule.lower()]} is for rewards that are never negative, and an "
                f"edge has a sign: one of {', '.join(RULES)} is needed"
            )
        _checks.choice(self.rule, "rule", RULES)

    def _generator(self) -> np.random.Generator:
        if isinstance(self.random_state, np.random.Generator):
            return self.random_state
        seed = check_random_state(self.random_state).randint(2**31, size=4)
        return np.random.default_rng(np.random.SeedSequence([int(part) for part in seed]))

    def _learn_bins(self, X: NDArray[Any]) -> None:
        categorical = np.zeros(X.shape[1], dtype=bool)
        if self.categorical_features is not None:
            wanted = _checks.as_array(self.categorical_features, "categorical_features")
            names = getattr(self, "feature_names_in_", None)
            if wanted.dtype.kind == "b" and wanted.shape == categorical.shape:
                categorical = wanted
            elif wanted.dtype.kind in "iu" and wanted.size and 0 <= wanted.min() and wanted.max() < X.shape[1]:
                categorical[wanted] = True
            elif wanted.dtype.kind in "UO" and names is not None and np.isin(wanted, names).all():
                categorical = np.isin(names, wanted)
            elif wanted.size:
                raise ValueError(
                    f"categorical_features is {_checks.shown(self.categorical_features)}; a mask of {X.shape[1]} "
                    f"features, their "
                    f"positions, or names of X's columns are needed"
                )
        self._bins = Bins.learn(X, self.n_bins, self.binning.lower(), categorical)
        self._names = list(getattr(self, "feature_names_in_", [f"x{j}" for j in range(X.shape[1])]))

    # Answers.

    def _ready(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        _checks.unmasked(X, "X")
        mapped = _is_mapped(X)
        X = validate_data(
            self, X, dtype=None if mapped else [np.float64, np.float32], reset=False,
            ensure_all_finite=False if mapped else ("allow-nan" if self.estimator is None else True),
        )
        return self._bins.transform(X) if self.estimator is None else X

    def _scores(self, booster: Booster, block: NDArray[Any]) -> Floats:
        if self.estimator is None:
            table = np.zeros(int(self._bins.offset[-1]))
            for stump, weight in zip(booster.learners, booster.weights, strict=True):
                begin, end = self._bins.offset[stump.feature : stump.feature + 2]
                table[begin:end] -= stump.sign * weight
                table[begin + stump.first : begin + stump.last + 1] += 2.0 * stump.sign * weight
            return _boost.scores(block, self._bins.offset, table)
        total = np.zeros(len(block))
        for learner, weight in zip(booster.learners, booster.weights, strict=True):
            total += weight * votes(learner, block)
        return total

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the committee's scores F(x): log odds of the second class, or of each against the rest."""
        block = self._ready(X)
        found = [self._scores(booster, block) for booster in self._boosters]
        return found[0] if len(found) == 1 else np.column_stack(found)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each row."""
        return self._classes(self.decision_function(X))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class, 1 / (1 + exp(-F)); made to add up to 1 if there are more than two."""
        return _probabilities(self.decision_function(X))

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Return the logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Floats]:
        """Yield the scores after each round.

        Yields
        ------
        ndarray of float, shape (n_rows,) or (n_rows, n_classes)
            What `decision_function` would return after the round.
        """
        block = self._ready(X)
        totals = [np.zeros(len(block)) for _ in self._boosters]
        for t in range(self.n_iter_):
            for total, booster in zip(totals, self._boosters, strict=True):
                if t < len(booster.weights):
                    total += booster.weights[t] * votes(booster.learners[t], block)
            yield totals[0].copy() if len(totals) == 1 else np.column_stack(totals)

    def staged_predict(self, X: ArrayLike) -> Iterator[NDArray[Any]]:
        """Return an iterator of the classes after each round, shape (n_rows,)."""
        return map(self._classes, self.staged_decision_function(X))

    def staged_predict_proba(self, X: ArrayLike) -> Iterator[Floats]:
        """Return an iterator of the probabilities after each round, shape (n_rows, n_classes)."""
        return map(_probabilities, self.staged_decision_function(X))

    def _classes(self, scores: Floats) -> NDArray[Any]:
        places = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0.0).astype(np.intp)
        return np.asarray(self.classes_[places])

    # What was found and what it cost.

    @property
    def n_iter_(self) -> int:
        """Rounds that were made; with more than two classes the most of any class."""
        return max(len(booster.weights) for booster in self._boosters)

    @property
    def estimators_(self) -> list[Any]:
        """The weak learners in order: `Stump` objects, which print in words, or fitted estimators.

        With more than two classes there is a list for each class; the following have shape (n_classes, n_rounds) then,
        filled with zeros, in place of (n_rounds,).
        """
        found = [list(booster.learners) for booster in self._boosters]
        return found[0] if len(found) == 1 else found

    @property
    def estimator_weights_(self) -> Floats:
        """Weight of each weak learner in the vote."""
        return self._by_round("weights", np.float64)

    @property
    def estimator_edges_(self) -> Floats:
        """Certified size of the edge of each weak learner, on the examples that passed its round's filter."""
        return self._by_round("edges", np.float64)

    @property
    def n_samples_(self) -> NDArray[np.int64]:
        """Examples that passed the filter in each round."""
        return self._by_round("n_samples", np.int64)

    @property
    def n_samples_read_(self) -> NDArray[np.int64]:
        """Rows read in each round for the examples that passed its filter."""
        return self._by_round("n_read", np.int64)

    @property
    def stopped_by_(self) -> str | list[str]:
        """Why boosting ended; with more than two classes a list, one word for each class.

        "n_estimators"; "error" (the training error is at most `epsilon`); "no edge"; "max_samples"; "exhausted", the
        chunks ended; "inconsistent", an assumption failed.
        """
        found = [booster.stopped_by for booster in self._boosters]
        return found[0] if len(found) == 1 else found

    @property
    def feature_importances_(self) -> Floats:
        """Share of each feature in the weights of the stumps."""
        if self.estimator is not None:
            raise AttributeError("feature_importances_ is known for stumps only")
        total = np.zeros(len(self._bins.edges))
        for booster in self._boosters:
            for stump, weight in zip(booster.learners, booster.weights, strict=True):
                total[stump.feature] += weight
        return total / total.sum() if total.any() else total

    def _by_round(self, name: str, dtype: type) -> NDArray[Any]:
        out: NDArray[Any] = np.zeros((len(self._boosters), self.n_iter_), dtype=dtype)
        for line, booster in zip(out, self._boosters, strict=True):
            values = getattr(booster, name)
            line[: len(values)] = values
        return out[0] if len(out) == 1 else out


def _probabilities(scores: Floats) -> Floats:
    chances = expit(scores)
    if scores.ndim == 1:
        return np.column_stack([expit(-scores), chances])
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _signs(labels: NDArray[np.intp], k: int, n_boosters: int) -> NDArray[np.int8]:
    """+1 for the class that committee k is about, -1 for the others."""
    return np.where(labels == (1 if n_boosters == 1 else k), 1, -1).astype(np.int8)


def _is_mapped(X: Any) -> bool:
    """Whether an array of numbers lives in a file too large to be read for its own sake."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub" or X.nbytes <= SMALL_MAP:
        return False
    return _frames.is_mapped(X)
