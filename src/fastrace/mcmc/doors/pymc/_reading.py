"""Hierarchical generalised linear models among PyMC models, read part by part; needs PyMC."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from scipy.sparse import csr_matrix

from fastrace._base._words import counted
from fastrace._models.grouping import Groups
from fastrace.mcmc.doors.pymc._coordinates import Factor, Hierarchy
from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._effects import MOST_ASKED, Effects, Probe, effects_of
from fastrace.mcmc.doors.pymc._families import (
    LAWS,
    Family,
    df_of,
    family_of,
    in_pieces,
    outcome_of,
    power_between,
    predictor_of,
    scale_of,
)
from fastrace.mcmc.doors.pymc._graphs import RowGraphs
from fastrace.mcmc.doors.pymc._laws import (
    CORRELATIONS,
    COVARIANCE,
    LOCATIONS,
    SCALES,
    OtherModelError,
    listed,
    locations,
    of_power,
    scales,
)
from fastrace.mcmc.doors.pymc._predictors import evaluated
from fastrace.mcmc.doors.pymc._recognised import posterior_elsewhere
from fastrace.mcmc.doors.pymc._shrinkage import GlobalScale, Shrunk, shrunk_of
from fastrace.mcmc.doors.pymc._words import distribution
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.models.priors import LKJ
from fastrace.mcmc.trace import entry_name

__all__ = ["Reader"]

Array = NDArray[np.float64]
Places = NDArray[np.intp]

MOST_CHOSEN = 64  # entries of variables that codes choose from, each a column


class Term(NamedTuple):
    """What one effect of each group multiplies; weights of None are 1."""

    effects: Effects
    term: int
    weights: Array | None
    codes: NDArray[np.intp]


class Reader:
    """Reads one model; what is of another kind is named.

    Parameters
    ----------
    graphs : RowGraphs
    values : list of value variables
        Its parameters.
    """

    def __init__(self, graphs: RowGraphs, values: list[Any]) -> None:
        self.graphs, self.model, self.values = graphs, graphs.model, values
        self.columns: dict[int, Array] = {}  # by place in theta: what the coefficient multiplies
        self.whole: tuple[NDArray[Any], list[int]] | None = None  # a table that holds the first of them
        self.offset: Any = 0.0
        self.terms: list[Term] = []
        self.chosen: list[Any] = []  # scalars that are coefficients of the predictor
        self.scale_drawn: Any = None  # prior of what the scale is a power of, times a factor
        self.power, self.log_factor = 1.0, 0.0

    def read(self) -> Hierarchy:
        graphs = self.graphs
        self._refuse_other_terms()
        self._sort_variables()
        family, scale = self._family()
        self.scale = scale
        outcome, weights = self._read_outcome(family)
        self._read_coefficients()
        self._read_rows()
        factors, groups, sds = self._factors()
        if not self.columns:
            raise OtherModelError("the predictor has no coefficient beside effects of groups: give it an intercept")
        places = list(self.columns)
        log_scale = -1 if scale is None else int(self.probe.places[self.model.rvs_to_values[scale]][0])
        self._refuse_other_parameters(places, factors, log_scale)
        scale_prior, power, log_factor = None, 1.0, 0.0
        if scale is not None:
            power, log_factor = self.power, self.log_factor
            scale_prior = of_power(self.scale_drawn, power, math.exp(log_factor))
        names = [self.entries[place] for place in places]
        shrunk = self._in_columns(places)
        table, prior = self._table(), {name: self.priors[place] for name, place in zip(names, places, strict=True)}

        def model(*own: Any) -> GLM:
            return GLM(table, outcome, family.name, weights=weights,
                       offset=self.offset if np.any(self.offset) else None, groups=groups or None,
                       prior=[prior, *own] if own else prior, group_prior=sds or None, names=names,
                       scale_prior=scale_prior, **family.options)

        glm = model()
        own = self._global_scales(glm, shrunk, power, log_factor)
        if own:
            glm = model(*own)
        factors = [f._replace(columns=np.array([places.index(p) for p in f.columns], dtype=np.intp)) for f in factors]
        return Hierarchy(glm, np.array(places, dtype=np.intp), factors, log_scale, graphs.dim, power, log_factor,
                         shrunk)

    # What kind of model it is.

    def _refuse_other_terms(self) -> None:
        graphs = self.graphs
        if len(graphs.observed) != 1:
            raise OtherModelError(f"it has {len(graphs.observed)} observed variables, {graphs.names}")
        if self.model.potentials:
            raise OtherModelError(f"it has a potential, {listed(self.model.potentials)}")
        if posterior_elsewhere(self.model, graphs.observed):
            others = [v for v in self.model.observed_RVs if v not in graphs.observed]
            raise OtherModelError(f"it has observed variables whose rows are not subsampled, {listed(others)}")
        if law(graphs.observed[0]) not in LAWS:
            name, instead = distribution(graphs.observed[0])
            known = ", ".join(LAWS).replace("WeibullBeta", "Weibull")
            raise OtherModelError(f"{graphs.names} is {name}; mcmc.GLM has {known}{'; ' if instead else ''}{instead}")
        if graphs.design is None:
            raise OtherModelError(f"the terms of {graphs.names} are no functions of linear predictors, sums of "
                                  f"coefficients times numbers of the row: {graphs.unseen}")

    def _family(self) -> tuple[Family, Any]:
        """The family, and the variable that its scale is, if that is learned; the predictor is kept."""
        observed = self.graphs.observed[0]
        name = law(observed)
        if in_pieces(observed):
            raise OtherModelError(f"the parameters of {self.graphs.names} are in pieces, such as by clip or switch")
        found, scale = family_of(observed), scale_of(observed)
        family = Family(LAWS[name], {}) if found is None else found
        if found is None and name == "WeibullBeta":
            raise OtherModelError(f"{self.graphs.names} is Weibull with an alpha that is learned, or not one number; a "
                                  f"number is needed")
        block, used = predictor_of(self.graphs, family)
        if block is None:
            raise self._no_predictor(scale)
        self.block = block
        self.chosen = [self.graphs.scalars[j] for j in used]
        scalars = [s for s in self.graphs.scalars if s not in self.chosen]
        if found is not None:
            if scalars:
                raise OtherModelError(f"{self.graphs.names} depends on {listed(scalars)} beside the predictor")
            return found, None
        if scale is None:
            raise OtherModelError(f"{self.graphs.names} is Binomial with a number of trials that is learned")
        options: dict[str, Any] = {}
        if family.name == "student-t":
            df = df_of(observed)
            if df is None:
                raise OtherModelError(f"the degrees of freedom of {self.graphs.names} are learned, or not one number")
            options["df"] = df
        behind = [v for v in self.model.free_RVs if self.model.rvs_to_values[v] in scalars]
        others = set(behind).difference(self._behind(scale.node))
        if others and not scale.inverse:
            raise OtherModelError(f"{self.graphs.names} depends on {listed(others)} by another way than a linear "
                                  f"predictor and its {scale.called}")
        if len(behind) != 1 or len(scalars) != 1:
            known = scalars if scale.inverse else self._behind(scale.node)
            each = "" if scale.inverse else ", or a positive one for each row"
            raise OtherModelError(f"the {scale.called} of {self.graphs.names} depends on "
                                  f"{listed(known) if known else 'no variable, and is not one number'}; a "
                                  f"number{each}, or one scalar variable, is needed")
        self.scale_drawn = scales(behind[0], 1)[0]
        self.power, log_factors = self._power(behind[0])
        if len(log_factors) == 1:
            self.log_factor = float(log_factors[0])
            return family._replace(options=options), behind[0]
        if scale.inverse:
            raise OtherModelError(f"the {scale.called} of {self.graphs.names} has another factor in each row")
        spread = np.exp(log_factors)
        self.block = self.block.over(spread)
        return family._replace(options=options, spread=spread), behind[0]

    def _no_predictor(self, scale: Any) -> OtherModelError:
        """Why linear predictors and scalars have no sum that is the predictor of a `GLM`."""
        known = [] if scale is None or all(scale.node.broadcastable) else self._behind(scale.node)
        words = "" if scale is None or not known else (
            f", one of them its {scale.called}, by {listed(known)}: one that is learned for all rows is needed, or one "
            f"that is known for each")
        count = len(self.graphs.design.blocks)
        if not count:
            return OtherModelError(f"{self.graphs.names} depends on {listed(self.graphs.scalars)}, and not by the link "
                                   f"of a family of mcmc.GLM on an intercept")
        return OtherModelError(f"{self.graphs.names} has {counted(count, 'linear predictor')}{words}")

    def _read_outcome(self, family: Family) -> tuple[Array, Array | None]:
        """Outcomes of the rows of the `GLM`, and how often each was seen; the predictor of these rows is kept.

        Trials with a link that `GLM` has for single ones alone are two
        rows: as many successes as there were, and as many failures.
        """
        outcome, _ = outcome_of(self.graphs, family)
        if family.name == "binomial" or "trials" not in family.options:
            return outcome, None
        trials = np.broadcast_to(family.options.pop("trials"), outcome.shape)
        rows, counts = np.tile(np.arange(len(outcome)), 2), np.concatenate([outcome, trials - outcome])
        some = counts != 0
        self.block = self.block.taken(rows[some])
        return np.repeat([1.0, 0.0], len(outcome))[some], np.asarray(counts[some], dtype=np.float64)

    def _power(self, scale: Any) -> tuple[float, Array]:
        """Power k and the logarithm of factors c: the scale of the family is c s^k of the variable s."""
        node = scale_of(self.graphs.observed[0])
        assert node is not None
        function, place = self.probe.numbers([node.node]), self.probe.places[self.model.rvs_to_values[scale]][0]

        def values(t: float) -> Any:
            theta = self.probe.points[0].copy()
            theta[place] = t
            return function(theta)[0]

        found = power_between(values, node.inverse)
        if found is None or found[0] == 0.0:
            raise OtherModelError(f"the {node.called} of {self.graphs.names} is not a power of {scale.name!r} times a "
                                  f"number")
        return found

    def _behind(self, v: Any) -> list[Any]:
        """Free variables that a node depends on, by way of no other free variable."""
        above = set(ancestors([v], blockers=[u for u in self.model.free_RVs if u is not v]))
        return [u for u in self.model.free_RVs if u in above]

    # Which variables are coefficients and effects.

    def _sort_variables(self) -> None:
        """Priors of coefficients, by place; of effects there are none yet."""
        model, graphs = self.model, self.graphs
        kinds = (*LOCATIONS, "MvNormal")
        self.movable = {model.rvs_to_values[v] for v in model.free_RVs
                        if law(v) in kinds and model.rvs_to_transforms.get(v) is None}
        self.probe = Probe(graphs, self.values, self.movable)
        self.priors: dict[int, Any] = {}
        self.entries: dict[int, str] = {}
        self.fixed: set[Any] = set()  # those whose priors have no parameters that are learned
        for value in self.movable:
            shape = np.shape(graphs.starts[value])
            listed_priors = locations(model.values_to_rvs[value], shape)
            if listed_priors is not None:
                self.fixed.add(value)
                self.priors.update(zip(self.probe.places[value].tolist(), listed_priors, strict=True))
                self.entries.update(zip(self.probe.places[value].tolist(),
                                        (entry_name(value.name, index) for index in np.ndindex(shape)), strict=True))

    def _read_coefficients(self) -> None:
        """Each coefficient that rows see as a constant, plus multiples of variables, plus an effect of one group."""
        self.probe.coefficients += self.chosen
        probe = self.probe
        self.constant, other = (probe.seen(point) for point in probe.points)
        beside: dict[Any, set[Any]] = {}  # variables of functions, with what these depend on besides
        for c, part in zip(probe.coefficients, self._parts(), strict=True):
            own = set(ancestors([c])).intersection(self.values)
            moved = own & self.movable
            plain = self.graphs.predictors.rearranges(c)
            if not moved or not np.array_equal(self.constant[part], other[part]):
                self._refuse_function(own)
            for value in moved:
                if not plain or value not in self.fixed:
                    beside.setdefault(value, set()).update(own - self.movable)
        self.linear = self._as_they_are(set(beside)).tolil()
        self.effects: list[Effects] = []
        self.shrunk: list[Shrunk] = []
        for value in sorted(beside, key=self.values.index):
            if value in self.fixed and not self._scaled(value):
                self._add_linear(value)
                continue
            variable, behind = self.model.values_to_rvs[value], sorted(beside[value], key=self.values.index)
            given = variable, value in self.fixed, [self.model.values_to_rvs[v] for v in behind], self._behind
            shrunk = shrunk_of(probe, *given, self.scale)
            if shrunk is None:
                self.effects.append(effects_of(probe, *given))
            else:
                self._add_shrunk(value, shrunk)
        self.linear = self.linear.tocsr()
        self._refuse_other_functions()

    def _parts(self) -> list[slice]:
        """Where each function of the parameters stands among the coefficients."""
        sizes = [int(evaluated(c.size, self.graphs.starts)) for c in self.probe.coefficients]
        ends = np.cumsum([0, *sizes]).tolist()
        return [slice(first, last) for first, last in zip(ends[:-1], ends[1:], strict=True)]

    def _as_they_are(self, functions: set[Any]) -> csr_matrix:
        """Coefficients that are variables themselves: a matrix of ones, by coefficient and place in theta."""
        theta = self.probe.points[0].copy()
        for value in self.movable - functions:
            theta[self.probe.places[value]] = 1.0 + self.probe.places[value]
        found = self.probe.seen(theta) - self.constant
        some = np.flatnonzero(found)
        return csr_matrix((np.ones(len(some)), (some, np.rint(found[some]).astype(np.intp) - 1)),
                          shape=(len(found), self.graphs.dim))

    def _scaled(self, value: Any) -> bool:
        """Whether what a variable adds to coefficients depends on scales."""
        places = self.probe.places[value]
        steps = np.random.default_rng(24).uniform(0.5, 1.5, len(places))
        here, there = (self.probe.moved(places, steps, k) for k in (0, 1))
        return not np.allclose(here, there, rtol=1e-9, atol=1e-12)

    def _add_linear(self, value: Any) -> None:
        places = self.probe.places[value]
        if len(places) > MOST_ASKED:
            raise OtherModelError(f"coefficients are functions of the {len(places)} entries of {value.name!r}; at most "
                                  f"{MOST_ASKED} can be told apart")
        for place in places.tolist():
            slope = self.probe.moved(place)
            some = np.flatnonzero(slope)
            self.linear[some, place] = slope[some]

    def _add_shrunk(self, value: Any, shrunk: Shrunk) -> None:
        """Coefficients with a horseshoe, which are columns."""
        seen, entry, slopes = shrunk.slopes
        if shrunk.standardised:
            self.linear[seen, shrunk.places[entry]] = slopes
        else:
            self._add_linear(value)
        self.shrunk.append(shrunk)
        self.priors.update(dict.fromkeys(shrunk.places.tolist(), shrunk.prior))
        names = (entry_name(value.name, index) for index in np.ndindex(np.shape(self.graphs.starts[value])))
        self.entries.update(zip(shrunk.places.tolist(), names, strict=True))

    def _refuse_other_functions(self) -> None:
        """What was read must be what the rows see at a random point too."""
        theta = self.probe.points[0].copy()
        rng = np.random.default_rng(25)
        for value in sorted(self.movable, key=self.values.index):
            theta[self.probe.places[value]] = rng.normal(size=len(self.probe.places[value]))
        wide = np.ones(len(theta))
        for s in self.shrunk:
            wide[s.places] = s.spread if s.standardised else 1.0
        read = self.constant + self.linear @ np.where(self._loose(), wide * theta, 0.0)
        for e in self.effects:
            read = read + e.added(theta)
        wrong = np.abs(read - self.probe.seen(theta)) > 1e-7 * (1.0 + np.abs(read))
        for c, part in zip(self.probe.coefficients, self._parts(), strict=True):
            if wrong[part].any():
                self._refuse_function(set(ancestors([c])).intersection(self.values))

    def _loose(self) -> NDArray[np.bool_]:
        """Which entries of theta are coefficients and effects."""
        out = np.zeros(self.graphs.dim, dtype=bool)
        for value in self.movable:
            out[self.probe.places[value]] = True
        return out

    def _refuse_function(self, own: set[Any]) -> None:
        variables = [self.model.values_to_rvs[v] for v in own]
        odd = [v for v in variables if law(v) not in (*LOCATIONS, "MvNormal", *SCALES, COVARIANCE, CORRELATIONS)]
        words = f", and {listed(odd)} is {law(odd[0])}" if odd else ""
        raise OtherModelError(f"a coefficient is a function of {listed(variables)}{words}; variables with normal, "
                              f"Student, Cauchy, Laplace or flat priors as they are, their sums and multiples, or "
                              f"effects of groups that are scaled, are needed")

    # What rows see.

    def _read_rows(self) -> None:
        """Columns that coefficients multiply, the offset, and terms of effects."""
        block = self.block
        if block.offset is not None:
            self.offset = block.offset
        if block.table is not None:
            self._read_table(block.table, block.columns)
        chosen: set[int] = set()
        for weights, codes in block.coded:
            times = np.ones(len(codes)) if weights is None else weights
            for e in self.effects:
                group, term = e.group[codes], np.unique(e.term[codes])
                if (group >= 0).any():
                    if (group < 0).any() or len(term) != 1:
                        raise OtherModelError(f"not all rows choose one effect of {e.variable.name!r}")
                    self.terms.append(Term(e, int(term[0]), weights, group))
                    self._add_means(e, int(term[0]), times, group)
            self.offset = self.offset + times * self.constant[codes]
            self._read_chosen(self.linear[codes].tocsc(), times, chosen)

    def _read_chosen(self, slopes: Any, times: Array, chosen: set[int]) -> None:
        """Columns of what codes choose from; an entry that no row chooses is a column of zeros."""
        seen = np.flatnonzero(np.diff(slopes.indptr))
        values = [v for v in self.values if np.isin(self.probe.places[v], seen).any()]
        places = [place for v in values for place in self.probe.places[v].tolist()]
        chosen.update(places)
        if len(chosen) > MOST_CHOSEN:
            raise OtherModelError(f"rows choose from the {len(places)} entries of {listed(values)}, of which none has "
                                  f"a scale that is learned; at most {MOST_CHOSEN} such can be columns: give them a "
                                  f"learned standard deviation")
        for place in places:
            self._add(place, times * slopes[:, [place]].toarray()[:, 0])

    def _read_table(self, table: NDArray[Any], numbers: Places) -> None:
        """Columns that every row has; the table itself where each is that of one variable as it is."""
        for e in self.effects:
            if (e.group[numbers] >= 0).any():
                behind = [s.variable for s in e.spreads]
                raise OtherModelError(f"the prior of the coefficient {e.variable.name!r} depends on {listed(behind)}, "
                                      f"and rows do not choose from it by the numbers of groups")
        slopes = self.linear[numbers]
        places = slopes.indices.tolist()
        if (np.diff(slopes.indptr) == 1).all() and (slopes.data == 1.0).all() and len(set(places)) == len(places):
            self.whole = table, places
            self.columns.update(dict.fromkeys(places, np.empty(0)))
        else:
            for k in range(len(numbers)):
                row = slopes[k]
                for place, slope in zip(row.indices.tolist(), row.data, strict=True):
                    self._add(place, slope * table[:, k])
        if self.constant[numbers].any():
            self.offset = self.offset + table @ self.constant[numbers]

    def _add(self, place: int, column: Array) -> None:
        """More of what a coefficient multiplies."""
        if self.whole is not None and place in self.whole[1]:
            table, places = self.whole
            self.whole = None
            self.columns.update(zip(places, np.asarray(table, dtype=np.float64).T, strict=True))
        known = self.columns.get(place)
        self.columns[place] = column if known is None else known + column

    def _add_means(self, e: Effects, term: int, times: Array, group: Places) -> None:
        """The mean of effects belongs to the predictor: those of `GLM` have mean 0."""
        if e.constants.any():
            self.offset = self.offset + times * e.constants[group, term]
        for k, place in enumerate(e.columns.tolist()):
            if e.slopes[:, term, k].any():
                self._add(place, times * e.slopes[group, term, k])

    def _table(self) -> NDArray[Any]:
        if self.whole is None:
            return np.column_stack(list(self.columns.values()))
        table, places = self.whole
        more = [column for place, column in self.columns.items() if place not in places]
        return np.column_stack([table, *more]) if more else table

    def _in_columns(self, places: list[int]) -> list[Shrunk]:
        """Horseshoes in the order of their first columns, entries in that of columns, as priors of a `GLM` are."""
        found = []
        for s in self.shrunk:
            if not set(s.places.tolist()) <= set(places):
                raise OtherModelError(f"no row sees an entry of "
                                      f"{self.model.values_to_rvs[self._value_at(int(s.places[0]))].name!r}")
            found.append(s.ordered(np.argsort([places.index(p) for p in s.places.tolist()])))
        found.sort(key=lambda s: places.index(int(s.places[0])))
        return [s._replace(columns=np.array([places.index(p) for p in s.places.tolist()], dtype=np.intp))
                for s in found]

    def _value_at(self, place: int) -> Any:
        return next(v for v in self.values if place in self.probe.places[v])

    def _global_scales(self, glm: GLM, shrunk: list[Shrunk], power: float, log_factor: float) -> list[Any]:
        """What priors of global scales are that have the family's scale as a unit, over those of the model."""
        out, hyper = [], glm.n_seen
        for s in shrunk:
            if s.power:
                log_width = math.log(float(s.prior.global_scale or 1.0)) - s.power * log_factor / power
                own = GlobalScale(s.prior.global_df, float(s.prior.global_scale or 1.0), log_width, s.power / power)
                names = glm.names or ()
                out.append(own.density((names[hyper], names[glm.n_seen - 1])))
            hyper += s.n_hyper
        return out

    # Grouping factors.

    def _factors(self) -> tuple[list[Factor], dict[str, Groups], dict[str, Any]]:
        """Of terms: those of one variable with correlations, and others whose rows are of the same groups, together."""
        for e in self.effects:
            own = sorted(t.term for t in self.terms if t.effects is e)
            if own != list(range(e.places.shape[1])):
                missing = set(range(e.places.shape[1])) - set(own)
                words = f"is not in the predictor with all of its {e.places.shape[1]} columns" if missing else (
                    "is in the predictor more than once; each effect of a group needs a standard deviation of its own")
                raise OtherModelError(f"{e.variable.name!r} {words}")
        sets: list[list[Term]] = []
        for e in self.effects:
            for term in sorted((t for t in self.terms if t.effects is e), key=lambda t: t.term):
                for other in sets:
                    if self._together(term, other[0]):
                        other.append(term)
                        break
                else:
                    if e.correlation is not None and term.term:
                        raise OtherModelError(f"rows choose effects of {e.variable.name!r}, which are correlated, from "
                                              f"different groups")
                    sets.append([term])
        factors, groups, sds = [], {}, {}
        for terms in sets:
            if terms[0].effects.correlation is None:
                terms.sort(key=lambda t: t.weights is not None)
            name = "+".join(dict.fromkeys(t.effects.variable.name for t in terms))
            groups[name], sds[name] = self._groups(terms, name)
            factors.append(self._factor(terms))
        return factors, groups, sds

    @staticmethod
    def _together(term: Term, other: Term) -> bool:
        related = term.effects.correlation is not None or other.effects.correlation is not None
        if related and term.effects is not other.effects:
            return False
        return len(term.effects.places) == len(other.effects.places) and np.array_equal(term.codes, other.codes)

    def _groups(self, terms: list[Term], name: str) -> tuple[Groups, dict[str, Any]]:
        """Rows of a factor, and the priors of its effects."""
        first, n_groups = terms[0], len(terms[0].effects.places)
        intercept = first.weights is None
        listed_weights = [np.ones(len(t.codes)) if t.weights is None else t.weights for t in terms[int(intercept):]]
        codes = SimpleNamespace(categories=np.arange(n_groups), codes=first.codes)
        related = first.effects.correlation is not None
        groups = Groups(codes, np.column_stack(listed_weights) if listed_weights else None, intercept,
                        correlated=related, name=name)
        effects = ("1",) * intercept + groups.slope_names
        prior: dict[str, Any] = {"sd": {effect: t.effects.spreads[t.term].prior
                                        for effect, t in zip(effects, terms, strict=True)}}
        return groups, prior | ({"correlation": LKJ(first.effects.eta)} if related else {})

    def _factor(self, terms: list[Term]) -> Factor:
        """Where their effects and standard deviations are among the parameters of PyMC."""
        places = np.stack([t.effects.places[:, t.term] for t in terms], axis=1)
        columns = np.unique(np.concatenate([t.effects.columns for t in terms])).astype(np.intp)
        slopes = np.zeros((*places.shape, len(columns)))
        for k, t in enumerate(terms):
            slopes[:, k, np.searchsorted(columns, t.effects.columns)] = t.effects.slopes[:, t.term]
        used = slopes.any(axis=(0, 1))  # others belong to effects that are in no row
        spreads, correlation = [t.effects.spreads[t.term] for t in terms], terms[0].effects.correlation
        whole = correlation is not None and law(correlation) == COVARIANCE
        none = np.empty(0, dtype=np.intp)
        of_correlation = none if correlation is None else self.probe.places[self.model.rvs_to_values[correlation]]
        return Factor(places, np.array([t.effects.standardised for t in terms]),
                      np.stack([t.effects.constants[:, t.term] for t in terms], axis=1), columns[used],
                      slopes[:, :, used], none if whole else np.array([s.place for s in spreads], dtype=np.intp),
                      of_correlation if whole else none, none if whole else of_correlation)

    def _refuse_other_parameters(self, columns: list[int], factors: list[Factor], log_scale: int) -> None:
        """A parameter that the rows do not see has no draws, and one that is two things has two."""
        places = [*columns, *([log_scale] if log_scale >= 0 else [])]
        for f in factors:
            places += [*f.places.ravel(), *f.log_sds, *f.packed, *f.logits]
        for s in self.shrunk:
            places += [s.log_global, *s.log_local, *([s.log_slab] if s.log_slab >= 0 else [])]
        counts = np.bincount(places, minlength=self.graphs.dim)
        for wrong, words in ((counts == 0, "not seen by the rows, nor a scale of what they see"),
                             (counts > 1, "more than one coefficient or scale")):
            if wrong.any():
                named = {self.model.values_to_rvs[v] for v in self.values if wrong[self.probe.places[v]].any()}
                raise OtherModelError(f"{listed(named)} {'is' if len(named) == 1 else 'are'} {words}")
