"""What chains leave behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base._checks import shown
from fastrace._base._words import counted
from fastrace.mcmc._convergence import each_effective_size, each_rhat
from fastrace.mcmc._moving import moving
from fastrace.mcmc._pointwise import expanded_log_posterior, pointwise
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.models.model import Model
from fastrace.mcmc.protocol import STATISTICS, Steps
from fastrace.results import Column, Result, Table
from fastrace.results.base import draw, plain

_SHOWN = 20  # coordinates printed
_STATISTICS = {"mean": (".4g", 11), "sd": (".4g", 11), "5%": (".4g", 11), "95%": (".4g", 11), "included": (".3f", 9),
               "ess": (".0f", 9), "rhat": (".4f", 7)}  # of a coordinate, each with its format and width
_LEAST = 8  # draws of a chain, below which nothing is said of them
ENOUGH = 100  # draws of a chain, below which effective sizes and acceptance are not judged, and R-hat is rough


@dataclass(frozen=True)
class Part:
    """A variable within the flat vector of what a kernel draws.

    Attributes
    ----------
    name : str
    shape : tuple of int
        As many numbers of the vector as their product, in C order.
    dims : tuple of str
        Name of each axis.
    coords : tuple of tuples
        Labels along each axis.
    whole : bool, default False
        Whether the numbers are whole, such as labels of classes.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    coords: tuple[tuple[Any, ...], ...]
    whole: bool = False

    def names(self) -> tuple[str, ...]:
        """What each of the numbers is called."""
        return tuple(entry_name(self.name, place) for place in product(*self.coords))


def entry_name(name: str, place: Sequence[Any]) -> str:
    """What an entry of a variable is called, such as "b[0, 1]"; the name itself where there is one entry."""
    return f"{name}[{', '.join(map(str, place))}]" if place else name


@dataclass(frozen=True, eq=False)
class Trace(Result):
    """Draws of several chains, and what each step took.

    ``print(trace)`` is the summary: mean, standard deviation, 5 % and 95 % quantile, effective sample size and R-hat of
    the first coordinates, and the share of draws in which a coefficient is included where `VariableSelection` chose.
    ``trace.to_frame()`` has a row for each of all.

    Attributes
    ----------
    chains : tuple of Steps
        One per chain; chains that were cut short may differ in length.
    kernel : dict
        What the kernel says of itself.
    states, rngs : tuple
        Where each chain stands: give the trace to `sample` as `init` and it goes on, draw for draw as if it had never
        stopped.
    seconds : float
        Wall time of sampling, without tuning and set-up.
    variable : str
        Name of what is drawn.
    names : tuple of str
        Names of its coordinates, such as the columns of a frame that a `GLM` was made of; empty if they have none. A
        learned scale is "scale" or "dispersion", whatever the kernel. Only under a prior given by `prior_sd` it is
        "log(scale)" or "log(dispersion)", since that prior is one of the logarithm, and draws hold the logarithm.
    warnings : tuple of str
        Problems with the draws, one sentence each: chains that disagree, move too slowly, refuse nearly all proposals,
        are far from where the posterior was expected, or all began at one point. `sample` gives each as a warning too.
        What the model said of doubtful groups when it was made, such as one group alone, is the last of them.
    parts : tuple of Part
        The variables that the vector of draws is made of, in their order, where a kernel draws several; else empty.
    shown_last : tuple of int
        Coordinates that are printed after all others, such as the effects of groups.
    variables : tuple of Variable
        The variables that `to_arviz` makes of the coordinates, of models that name them; else empty.
    set_up_seconds : float
        Wall time before the first step. Where `sample` made the kernel, it is that of choosing it: modes, expansions
        and pilots. Of a `SurrogateMetropolis` that came, it is that of making it; of other kernels it is not known, and
        nan. It is 0 where a kernel that came goes on from a trace, so that times of both add up.
    nameless : dict of ndarray of shape (n_chains, n_draws), or None
        Where the classes of a `MixtureOf` exchange names, what draws say whatever classes are called, as
        `MixtureOf.nameless` gives it: `sample` judges chains by it, and it is printed first.
    """

    chains: tuple[Steps, ...] = field(repr=False)
    kernel: dict[str, Any] = field(repr=False)
    states: tuple[Any, ...] = field(repr=False)
    rngs: tuple[np.random.Generator, ...] = field(repr=False)
    seconds: float
    variable: str = "theta"
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)
    parts: tuple[Part, ...] = field(default=(), repr=False)
    shown_last: tuple[int, ...] = field(default=(), repr=False)
    variables: tuple[Variable, ...] = field(default=(), repr=False)
    set_up_seconds: float = math.nan
    nameless: dict[str, NDArray[np.float64]] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        shape = self.chains[0].draws.shape[1:] if self.chains else ()
        return (f"Trace({self.kernel.get('kernel', 'chain')}: {self._size()} of {self.variable}, "
                f"each of shape {shape}; {counted(len(self.warnings), 'warning')})")

    def _size(self) -> str:
        return f"{counted(self.n_chains, 'chain')} of {counted(self.n_draws, 'draw')}"

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self.chains)

    @property
    def n_draws(self) -> int:
        """Draws that every chain has."""
        return min((len(chain) for chain in self.chains), default=0)

    def _stacked(self, name: str) -> NDArray[Any]:
        n = self.n_draws
        return np.stack([getattr(chain, name)[:n] for chain in self.chains])

    @property
    def draws(self) -> NDArray[Any]:
        """Shape (n_chains, n_draws, ...)."""
        return self._stacked("draws")

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows read in each step, shape (n_chains, n_draws); so for the other statistics."""
        return self._stacked("rows")

    @property
    def looks(self) -> NDArray[np.int32]:
        """Looks taken at them."""
        return self._stacked("looks")

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Whether the step was accepted."""
        return self._stacked("accepted")

    @property
    def full_pass(self) -> NDArray[np.bool_]:
        """Whether all rows were read in one pass."""
        return self._stacked("full_pass")

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Whether the bound had not decided when all rows had been read."""
        return self._stacked("undecided")

    @property
    def diverging(self) -> NDArray[np.bool_]:
        """Whether the trajectory of `HMC` met an energy more than 1000 above that at its start, or none."""
        return self._stacked("diverging")

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Draws of one coordinate by its name, or of a variable as `to_arrays` names it.

        Parameters
        ----------
        name : str
            Out of `names`, such as "age" or "sd(1|clinic)", or a variable such as "1|clinic", which has an axis for its
            groups.

        Returns
        -------
        ndarray of shape (n_chains, n_draws, ...)

        Raises
        ------
        KeyError
            If nothing is called so.
        TypeError
            If `name` is no str.

        Examples
        --------
        >>> from fastrace import mcmc
        >>> model = mcmc.GLM({"one": [1.0] * 4, "age": [1.0, 2.0, 3.0, 4.0]}, [0, 1, 0, 1], prior_sd=1.0)
        >>> trace = mcmc.sample(model, n_draws=20, n_chains=2, rng=1)
        >>> trace["age"].shape
        (2, 20)
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a coordinate is needed, and {shown(name)} came; trace.draws[:, :, j] has "
                            f"them by number, and trace.chains the chains")
        if name in self.names:
            return np.asarray(self._flat()[:, :, self.names.index(name)])
        variables = self._variables()
        if name not in variables:
            known = list(dict.fromkeys([*variables, *self.names]))
            raise KeyError(f"nothing is called {name!r}; there are {', '.join(map(repr, known[:20]))}"
                           f"{', ...' if len(known) > 20 else ''}")
        return variables[name]

    __iter__ = None  # or Python would count from 0

    def _name(self, j: int) -> str:
        """What coordinate j is called."""
        return self.names[j] if self.names else f"{self.variable}[{j}]"

    def _judged(self) -> NDArray[np.bool_]:
        """Which coordinates are judged: all but whole numbers such as labels, whose names may be exchanged."""
        if not self.parts:
            return np.ones(math.prod(self._shape()), dtype=bool)
        return np.concatenate([np.full(math.prod(part.shape), not part.whole) for part in self.parts])

    def _shape(self) -> tuple[int, ...]:
        """Shape of a draw."""
        return self.chains[0].draws.shape[1:] if self.chains else (0,)

    def _flat(self) -> NDArray[Any]:
        """Shape (n_chains, n_draws, n_coordinates)."""
        draws = self.draws
        return draws.reshape(*draws.shape[:2], int(np.prod(draws.shape[2:])))

    def ess(self) -> NDArray[np.float64]:
        """Effective sample size of each coordinate: of its mean, not of its tails."""
        return self._once("ess", each_effective_size).copy()

    def rhat(self) -> NDArray[np.float64]:
        """Potential scale reduction of each coordinate, rank-normalised, chains split in halves.

        It is the larger of two: of the normal scores of the ranks of the draws, which sees chains that differ in place,
        and of those of their distances from the median, which sees chains that differ in spread [1]_. Infinite where
        each half is constant and they differ, 1 where all draws are alike, nan where a draw is not finite.

        References
        ----------
        .. [1] Vehtari, Gelman, Simpson, Carpenter, Buerkner, "Rank-normalization, folding, and localization: An
           improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16(2), 2021.
        """
        return self._once("rhat", each_rhat).copy()

    def _once(
        self, name: str, function: Callable[[NDArray[Any]], NDArray[np.float64]], values: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """A function of the draws, (n_chains, n_draws, n), computed once: `sample` needs it, and so does the table.

        `values` take the place of the draws; they follow from them.
        """
        known = self.__dict__.setdefault("_known", {})
        if name not in known:
            known[name] = function(self._flat() if values is None else values)
        return np.asarray(known[name])

    def _told(self, **changes: Any) -> Trace:
        """The same draws with other words about them; what was computed of the draws stays."""
        other = replace(self, **changes)
        assert other.chains is self.chains
        other.__dict__["_known"] = self.__dict__.get("_known", {})
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    def to_arrays(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Groups "posterior" and "sample_stats", as ArviZ names them: each name to an array of (chain, draw, ...)."""
        return {
            "posterior": self._variables(),
            "sample_stats": {f"n_{name}" if name in ("rows", "looks") else name: getattr(self, name)
                             for name in STATISTICS if name != "diverging" or self._has_trajectories},
        }

    def _variables(self) -> dict[str, NDArray[Any]]:
        """The draws by variable."""
        draws = self.draws
        if self.variables:
            return {variable.name: variable.of(draws) for variable in self.variables}
        if not self.parts:
            return {self.variable: draws}
        out, first = {}, 0
        for part in self.parts:
            last = first + math.prod(part.shape)
            values = draws[:, :, first:last].reshape(*draws.shape[:2], *part.shape)
            out[part.name] = np.rint(values).astype(np.int64) if part.whole else values
            first = last
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return draws and statistics as plain values that ``json.dumps`` accepts.

        Returns
        -------
        dict
            The groups of `to_arrays` as nested lists, and "kernel", "seconds", "set_up_seconds", "names" and
            "warnings". Where the chains stand is left out: pickle the trace to go on with it. JSON has no nan and no
            infinity: both are None.
        """
        about = {"kernel": self.kernel, "seconds": self.seconds, "set_up_seconds": self.set_up_seconds,
                 "names": self.names, "warnings": self.warnings}
        return dict(plain({**self.to_arrays(), **about}))

    def to_arviz(self, model: Any = None, *, log_likelihood: bool = False) -> Any:
        """As ArviZ keeps chains: a DataTree with ArviZ 1.x, InferenceData with 0.x.

        Parameters
        ----------
        model : PyMCModel, GLM or other Model, optional
            The model of the draws, or the PyMCModel whose `as_glm` theirs is. Draws of a PyMCModel then have the names,
            dimensions and coordinates of its PyMC model, free and deterministic variables on their own scales. Of a
            PyMCModel, `GLM`, `Softmax` or `ARCH` the group "sample_stats" then has `lp`; see Notes.
        log_likelihood : bool, default False
            Add the group "log_likelihood", the log density of each row at each draw with all constants, by which
            ``arviz.loo`` and ``arviz.compare`` judge models. That takes a pass over the rows for each draw, and 8 bytes
            for each draw and row; where this is more than 0.4 GB every k-th draw is taken, with a warning. The density
            of a row with a weight counts as often as the row was seen.

        Raises
        ------
        ImportError
            If ArviZ is not there; `to_arrays` needs nothing.
        TypeError
            If the model has no variables of its own, or `log_likelihood` came without a model.
        ValueError
            If the draws are not of the model, or `log_likelihood` would not fit into 0.4 GB at 25 draws a chain.

        Warns
        -----
        UserWarning
            If `log_likelihood` leaves draws out, or the expansion is too far off for `lp`, which is then left out.

        Notes
        -----
        Draws of a `GLM` have a variable for each term, called as bambi calls them. That is each column by its name, or
        each term of a formula, with an axis "h_dim" of levels where "h" is a category; columns without names are one
        variable, "theta", with an axis "column". An effect that varies among groups is a variable such as "1|g", with
        an axis "g__factor_dim" of the groups, and its standard deviation is "1|g_sigma". The scale of the "gaussian"
        and "student-t" families is "sigma"; that of the others is "alpha", which is 1 / dispersion. Scales are scales,
        also where draws hold their logarithms. Columns of a `Softmax` have an axis "class". `VariableSelection` adds
        "included", 1 for coefficients that are not 0. Draws of other models are one variable, labelled by `names`.

        Attributes of the groups say what `kernel` does, and have `seconds` as "sampling_time" and `set_up_seconds`, if
        it is known, as "set_up_time".

        "sample_stats" has what each step did: "accepted", and "n_rows", the rows that were read; of `HMC` "diverging"
        too, as ArviZ's plots look for. A chain that reads few
        rows does not know its log-posterior. So `lp` is the log prior and the second-order expansion of the
        log-likelihood at the mean of the draws, in the coordinates in which chains move, up to a constant; of a PyMC
        model in those of PyMC, as its own samplers have it. That takes two passes over the rows: one to expand, and one
        to compare it with the log-likelihood itself at 16 draws; of a PyMC model a call of its log prior for each draw
        too.
        """
        groups = self.to_arrays()
        if log_likelihood:
            groups["log_likelihood"] = {getattr(model, "outcome_name", "y"): pointwise(model, moving(model, self))}
        if model is None or not hasattr(model, "labelled"):
            if model is not None and not isinstance(model, Model):
                raise TypeError(f"model is {shown(model)}; a PyMCModel, a GLM or another Model is needed")
            lp = None if model is None else expanded_log_posterior(model, moving(model, self))
            if lp is not None:
                groups["sample_stats"]["lp"] = lp
            return arviz_tree(groups, self._about(), self.variable, self.names, self.variables or self.parts)
        groups["posterior"], labels = model.labelled(self)
        lp = expanded_log_posterior(model, moving(model, self))
        if lp is not None:
            groups["sample_stats"]["lp"] = lp
        return arviz_tree(groups, self._about(), self.variable, (), labels=labels)

    def _about(self) -> dict[str, Any]:
        """Attributes for ArviZ, which has a name for the time of sampling."""
        known = {} if math.isnan(self.set_up_seconds) else {"set_up_time": self.set_up_seconds}
        return {**self.kernel, "sampling_time": self.seconds, **known}

    def _title(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.kernel.items()
                            if name not in ("kernel", "chosen"))
        return f"{self.kernel.get('kernel', 'chain')}({options}): {self._size()}, {self._time()}"

    def _time(self) -> str:
        set_up = f"{self.set_up_seconds:.2f} s of set-up and " if self.set_up_seconds > 0.0 else ""
        return f"{set_up}{self.seconds:.2f} s of sampling"

    def to_frame(self) -> Any:
        """Return a table with one row per coordinate of the draws.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Of pandas where it is installed, of polars otherwise. Columns are "coordinate", the name; "mean" and "sd";
            "5%" and "95%", quantiles of the draws of all chains; "ess" and "rhat", as `Trace.ess` and `Trace.rhat` give
            them. Draws of `VariableSelection` have "included" too, the share of draws in which a coefficient is not 0.
            Quantities of `nameless`, if there are any, are the first rows, and what belongs to a class by number then
            has neither "ess" nor "rhat". Of fewer than 8 draws a chain all numbers are nan.

        Raises
        ------
        ImportError
            If neither is installed.

        Examples
        --------
        >>> from fastrace import mcmc
        >>> model = mcmc.GLM({"one": [1.0] * 4, "age": [1.0, 2.0, 3.0, 4.0]}, [0, 1, 0, 1], prior_sd=1.0)
        >>> frame = mcmc.sample(model, n_draws=50, n_chains=2, rng=1).to_frame()
        >>> list(frame.columns)
        ['coordinate', 'mean', 'sd', '5%', '95%', 'ess', 'rhat']
        >>> list(frame["coordinate"])
        ['one', 'age']
        """
        return super().to_frame()

    def _switching(self) -> NDArray[np.bool_]:
        """Which coordinates belong to a class by its number, where classes exchange numbers."""
        if self.nameless is None:
            return np.zeros(math.prod(self._shape()), dtype=bool)
        return np.concatenate([np.full(math.prod(part.shape), part.whole or "class" in part.dims)
                               for part in self.parts])

    def _included(self) -> NDArray[np.float64] | None:
        """The share of draws in which each coordinate is not 0; None where this is of no interest."""
        if not self.n_draws or not any(variable.scale == "nonzero" for variable in self.variables):
            return None
        return (self._flat() != 0.0).mean(axis=(0, 1))

    def _columns(self, which: NDArray[np.intp] | None = None) -> dict[str, Any]:
        """Mean, deviation, quantiles, effective size and R-hat of nameless quantities, and of some coordinates."""
        size = math.prod(self._shape()) if self.n_draws else 0
        which = np.arange(size) if which is None else which
        beside = self.nameless or {}
        names = [*beside, *(self._name(int(j)) for j in which)]
        if self.n_draws < _LEAST:
            of_all = [name for name in _STATISTICS if name != "included"]
            return {"coordinate": names} | {name: np.full(len(names), np.nan) for name in of_all}
        first = np.stack([*beside.values()], axis=2) if beside else np.empty((self.n_chains, self.n_draws, 0))
        values = np.concatenate([first, self._flat()[:, :, which]], axis=2).reshape(-1, len(names))
        with np.errstate(invalid="ignore"):  # of draws that are not finite
            low, high = np.quantile(values, [0.05, 0.95], axis=0)
        switching = self._switching()
        out = {"coordinate": names, "mean": values.mean(axis=0), "sd": values.std(axis=0), "5%": low, "95%": high}
        included = self._included()
        if included is not None:
            out["included"] = np.concatenate([np.full(len(beside), np.nan), included[which]])
        for name, function, own in (("ess", each_effective_size, self.ess()), ("rhat", each_rhat, self.rhat())):
            there = self._once(f"{name} of nameless", function, first)
            out[name] = np.concatenate([there, np.where(switching, np.nan, own)[which]])
        return out

    def _table(self) -> Table:
        if self.n_draws < _LEAST:
            return Table((), ())
        order = printed_first(math.prod(self._shape()), self.shown_last, self._judged())
        values = self._columns(order)
        columns = [Column(name, values[name], *_STATISTICS[name]) for name in _STATISTICS if name in values]
        names = values["coordinate"]
        width = max(12, *map(len, names))
        rows: list[Any] = [[f"{name:>{width}}", *(column.cell(j) for column in columns)]
                           for j, name in enumerate(names)]
        count = len(self._judged())
        if count > _SHOWN:
            ess = self.ess()[~self._switching()]
            rows.append(f"{'':>{width}}  ... and {count - _SHOWN} more;"
                        f"{f' smallest ess {ess.min():.0f};' if ess.size else ''} to_frame() has all")
        return Table([f"{'':>{width}}", *(f"{column.head:>{column.width}}" for column in columns)], rows)

    def _divergent(self) -> str:
        """How many draws are divergent, for the printed table of a kernel that may have such."""
        return f", divergent {int(self.diverging.sum())}" if self._has_trajectories else ""

    @property
    def _has_trajectories(self) -> bool:
        """Whether the kernel can mark steps as divergent."""
        return self.kernel.get("kernel") == "HMC"

    def _notes(self) -> list[str]:
        if not self.n_draws:
            return super()._notes()
        return [
            f"accepted {self.accepted.mean():.3f}, rows a step {self.rows.mean():.1f}, full passes "
            f"{self.full_pass.mean():.4f}, undecided {self.undecided.mean():.4f}{self._divergent()}",
            *([f"kernel chosen: {self.kernel['chosen']}"] if "chosen" in self.kernel else []),
            *([f"rhat and ess say little after {counted(self.n_draws, 'draw')} a chain; at least {ENOUGH} are needed"]
              if self.n_draws < ENOUGH else []),
            *([f"classes exchange names, so that what is shown of label, theta[k] and weight[k] says nothing of class "
               f"k{'' if self.nameless is None else ', and has no ess and rhat, which the first rows have'}"
               f": SurrogateGibbs(order_by=...) names classes, and MixtureOf.nameless has what depends on no name"]
              if self.kernel.get("classes_named") is False else []),
            *super()._notes(),
        ]

    def plot(self, what: str = "all", ax: Any = None, coordinates: Any = (0,)) -> Any:
        """Draw the chains; a chain has one colour in every panel.

        Parameters
        ----------
        what : {"all", "draws", "rows"} or name of a coordinate, default "all"
            Draws of some coordinates along the chains, rows read in each step, or both; or draws of the one that is
            named.
        ax : matplotlib Axes, or sequence of them for "all", optional
            Where to draw; a new figure by default.
        coordinates : int, str, or sequence of them, default (0,)
            Numbers or names of the coordinates to draw.

        Returns
        -------
        matplotlib Axes, or list of them for "all"
            What was drawn on, one per panel.
        """
        if what in self.names:
            what, coordinates = "draws", what
        listed = [coordinates] if isinstance(coordinates, str) else np.atleast_1d(coordinates)
        unknown = [j for j in listed if isinstance(j, str) and j not in self.names]
        if unknown:
            raise ValueError(f"coordinates has {unknown[0]!r}; numbers, or names out of {list(self.names)}, are needed")
        numbers = [self.names.index(j) if isinstance(j, str) else int(j) for j in listed]
        return draw({"draws": partial(self._draw_draws, numbers), "rows": self._draw_rows}, what, ax)

    def _draw_draws(self, coordinates: list[int], ax: Any) -> None:
        flat = self._flat()
        for c in range(self.n_chains):
            for k, j in enumerate(coordinates):
                ax.plot(flat[c, :, j], linewidth=0.5, color=f"C{c % 10}", alpha=1.0 / (k + 1),
                        label=f"chain {c}, {self._name(j)}")
        ax.set(xlabel="draw", ylabel=self.variable)

    def _draw_rows(self, ax: Any) -> None:
        for c in range(self.n_chains):
            ax.plot(np.maximum(self.rows[c], 0.5), ".", color=f"C{c % 10}", markersize=1)
        ax.set(yscale="log", xlabel="draw", ylabel="rows read")


def printed_first(count: int, last: tuple[int, ...], judged: NDArray[np.bool_] | None = None) -> NDArray[np.intp]:
    """Which of so many coordinates are printed, and in which order: effects of groups late, labels last."""
    late = np.zeros(count, dtype=np.int8) if judged is None else np.where(judged, 0, 2)
    late[list(last)] = 1
    return np.argsort(late, kind="stable")[:_SHOWN]


def arviz_tree(
    groups: dict[str, dict[str, NDArray[Any]]], about: dict[str, Any], variable: str, names: tuple[str, ...],
    parts: Sequence[Part | Variable] = (), labels: dict[str, Any] | None = None,
) -> Any:
    """Groups of arrays (chain, draw, ...) as the installed ArviZ keeps them, labelled by `parts`, or else `names`."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: python -m pip install arviz") from error
    except AttributeError as error:     # such as ArviZ 0.23 beside Matplotlib 3.11
        raise ImportError(f"to_arviz needs ArviZ, and the one installed cannot be imported beside what else is "
                          f"({error}): python -m pip install --upgrade arviz, or an older matplotlib, such as "
                          f"\"matplotlib<3.11\"") from error
    attributes = {"inference_library": "fastrace", **{key: _plain(value) for key, value in about.items()}}
    axis = f"{variable}_dim_0"
    if labels is not None:
        pass
    elif parts:
        labels = {"coords": {axis: list(at) for part in parts for axis, at in zip(part.dims, part.coords, strict=True)},
                  "dims": {part.name: list(part.dims) for part in parts}}
    elif names:
        labels = {"coords": {axis: list(names)}, "dims": {variable: [axis]}}
    else:
        labels = {}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups, attrs={"posterior": attributes}, **labels)
    return arviz.from_dict(**groups, attrs=attributes, **labels)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
