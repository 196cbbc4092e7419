"""Log-likelihoods by row out of unchanged PyMC models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._checks import shown
from fastrace._base._words import counted
from fastrace.mcmc.doors.pymc._draws import NamedDraws
from fastrace.mcmc.doors.pymc._expansions import FEW_ROWS, ExpandedReference, JointReference, hat_of
from fastrace.mcmc.models.base import Model, Reference
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.models.own_terms import terms_of_arms
from fastrace.mcmc.trace import Part, entry_name
from fastrace.sources import CallableSource, Source

__all__ = ["ExpandedReference", "JointReference", "PyMCModel", "from_pymc"]

NUTS = "the model was not recognised as a GLM, and has few rows: NUTS of PyMC, which reads all of them, may be cheaper"
_UNRECOGNISED = "the model was not recognised as a GLM: "


def from_pymc(
    model: Any = None,
    observed: Any = None,
    *,
    rows: Any = None,
    through: Any = None,
    third_derivatives: str | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> PyMCModel:
    """The log-likelihood of an unchanged PyMC model, row by row, for the kernels of `fastrace.mcmc`.

    Parameters
    ----------
    model : pymc.Model, optional
        By default the one whose ``with`` block this is in. All its free variables must be continuous;
        `fastrace.mcmc.doors.pymc.CategoricalStep` is for discrete ones.
    observed : variable or sequence of variables, optional
        The observed variables whose terms are subsampled, all with the same number of rows, or their names. By default
        every observed variable; those left out belong to the prior, which is computed whole at each step.
    rows : sequence of pm.Data, optional
        The containers whose first axis runs over rows, or their names. By default those that the terms depend on and
        that are as long as there are rows. Plain arrays that run over rows are found whatever is named.
    through : variable or sequence of variables, optional
        What the rows see: free and deterministic variables through which alone the terms depend on parameters, or their
        names. `SurrogateMetropolis` expands the rows in these. A free variable counts on the scale on which PyMC moves
        it, such as the logarithm of a standard deviation. By default it is found; see Notes.
    third_derivatives : {None, "auto"}, default None
        With "auto" bounds on the third derivative of each row's term are found from the model's graph, by way of JAX,
        so that `PoissonMinibatchMetropolis` and other kernels that are exact take a model that is not recognised. See
        `FunctionModel` for what the terms may be, and for what set-up then takes.
    compile_kwargs : dict, optional
        For `pytensor.function`, such as ``{"mode": "NUMBA"}``.
    progress : bool, default False
        Whether `PyMCModel.reference` shows on standard error how many rows it has differentiated, with a bar by rich.
        Otherwise it says so in a line where standard error is a terminal and it takes more than two seconds.

    Returns
    -------
    PyMCModel
        Its parameters are PyMC's value variables, raveled and joined: on transformed scales, with the Jacobian in the
        prior. `PyMCModel.unpack` gives draws their names and their own scales.

    Raises
    ------
    ImportError
        Without PyMC: ``python -m pip install "pymc>=5.26"``.
    TypeError
        If `model` is no `pymc.Model`, or none came outside a ``with`` block.
    ValueError
        If the likelihood is not one factor for each row; if outcomes are missing, which PyMC imputes; if the rows are a
        minibatch, or see a sparse array. The message names the variable.

    Notes
    -----
    Data may be `pm.Data`, arrays or pandas objects. An array runs over rows where its entries meet those of the
    outcome, entry by entry, in products, as index arrays or by slices such as ``X[:, 0]``. One that rows choose from
    stays whole, however long it is. The terms of all rows are compared with the model's own, once, at a random point,
    in parts of random rows; a model that differs is refused. An array that is found takes no second copy, where
    `pm.Data` keeps one of its own; what an operation that mixes rows, such as a cumulative sum of an array, makes of
    arrays alone is kept.

    Asked for k rows, the model hands k rows of each container to PyTensor: the cost does not grow with the number of
    rows in the data. Both the log-likelihood and the prior are expanded to second order at the posterior mode, as far
    as PyTensor can differentiate them. That takes ``dim`` passes over the data for each of a few Newton steps, once.

    A generalised linear model is recognised, and runs compiled, as `mcmc.GLM` does: logistic, binomial, probit,
    complementary log-log, Poisson, negative binomial, gamma, Gaussian and Student-t regressions of columns, intercepts,
    effects of groups and offsets, or an intercept alone. A known positive factor beside exp(eta), such as an exposure,
    in the mean of counts and times, or in ``1 - exp(-t * exp(eta))``, is an offset; products and powers of exponentials
    are sums and multiples of predictors. Exponential times are gamma times of shape 1, Weibull times to the power of a
    known `alpha` are exponential, logarithms of log-normal outcomes normal, and Cauchy outcomes Student-t ones. A
    `sigma` of such outcomes that is known for each row divides outcomes and predictors; `tau` and `lam` do as well, and
    so does a known factor of each row beside a learned `sigma`. PyMC's probit has the root of 2 in single precision, so
    that predictors differ by 3e-8 of their size. The terms of every row are compared with PyMC's at random points, and
    a model that differs stays with PyTensor; `PyMCModel.describe` says which. Where a prior is not normal, or a scale
    is learned, kernels over rows move what `PyMCModel.as_glm` returns, and record draws as parameters of this model. A
    proposal, covariance or `Reference` of one's own is in the coordinates of this model, so that PyTensor evaluates the
    prior then, and rows whose scale is learned: 10 to 160 times as long a step. Where groups are many their effects are
    the last parameters. Data are those of the call: `pm.set_data` comes too late.

    Hierarchies are hard for chains that follow the joint mode: with the standard deviation of group effects among the
    parameters it lies far from the posterior (not centred), or there is none and an error says so (centred). Chains
    then move slowly or stay away, and `fastrace.mcmc.sample` warns. So `fastrace.mcmc.sample`, `SurrogateMetropolis`
    and `laplace` move a hierarchy that `PyMCModel.as_glm` recognises in the coordinates of that `GLM`, whether PyMC's
    are centred or not, and record draws as parameters of this model. Any other model `SurrogateMetropolis` expands in
    what its rows see: coefficients of linear predictors and scalars, as functions of the parameters. Where the terms
    are nothing of the kind it takes the last variables, free or deterministic, on the way from the parameters to the
    rows, if these are fewer numbers than the parameters, else all parameters. With `through` the user says what to
    take, and no regression or hierarchy is recognised. Rows of a family above run compiled all the same, unless
    `through` came; what the model has beside them, such as a potential, may be anything. Hamiltonian moves on prior
    times expansion then take a call of PyTensor for each gradient and no row; a race or a pass over the rows decides.
    `fastrace.mcmc.sample` does so where parameters stand behind what the rows see. Pilots take at most 30,000
    gradients, which `progress` shows: .06 ms each with a C compiler, 2 ms without one, where ``compile_kwargs={"mode":
    "JAX"}``, .2 ms each, helps. Where so many do not settle how long trajectories should be, a warning says what to do.
    Then each chain begins with 50 trajectories.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 2))
    >>> y = x @ [1.0, -0.5] + rng.standard_t(4, size=2000)
    >>> with pm.Model() as model:
    ...     b = pm.Normal("b", 0.0, 10.0, shape=2)
    ...     obs = pm.StudentT("obs", nu=4.0, mu=x @ b, sigma=1.0, observed=y)
    >>> kernel = mcmc.RacingMetropolis(mcmc.from_pymc(model))
    >>> trace = mcmc.sample(kernel, n_draws=200, n_chains=1, n_tune=100, rng=1)
    >>> bool(np.abs(trace.draws.mean(axis=(0, 1)) - [1.0, -0.5]).max() < 0.1)
    True
    """
    try:
        import pymc
    except ImportError as error:
        raise ImportError('from_pymc needs PyMC: python -m pip install "pymc>=5.26"') from error
    if model is not None and not isinstance(model, pymc.Model):
        raise TypeError(f"model is {shown(model)}; a pymc.Model is needed, such as m after `with pm.Model() as m:`, or "
                        f"nothing within such a block")
    try:
        model = pymc.modelcontext(model)
    except TypeError as error:
        words = "no model came, and this is not within a `with pm.Model():` block: give a pymc.Model"
        raise TypeError(words) from error
    discrete = [v.name for v in model.free_RVs if np.dtype(v.dtype).kind != "f"]
    if discrete:
        raise ValueError(f"{', '.join(discrete)}: a model whose free variables are all continuous is needed; for "
                         f"discrete ones give pymc.sample a step of fastrace.mcmc.doors.pymc.CategoricalStep")
    return PyMCModel(model, observed, rows=rows, through=through, third_derivatives=third_derivatives,
                     compile_kwargs=compile_kwargs, progress=progress)


class PyMCModel(NamedDraws):
    """The model that `from_pymc` and the steps of `fastrace.mcmc.doors.pymc` make.

    Parameters
    ----------
    model : pymc.Model
        As in `from_pymc`; free variables outside `variables` may be discrete.
    observed : variable or sequence of variables, optional
        As in `from_pymc`.
    variables : sequence of variables, optional
        Those that make up the parameters, in this order, or their names; by default all free ones. What the others are
        is said by `set_others`.
    rows, through, third_derivatives, compile_kwargs, progress
        As in `from_pymc`; `through` and `third_derivatives` only where the parameters are all free variables.

    Attributes
    ----------
    values : list of value variables
        Value variables of PyMC that make up the parameters.
    shapes : list of tuple
        Their shapes.
    names : tuple of str
        What each parameter is called, such as "b[0]" and "b[1]" if ``b`` has two entries.
    others : dict
        The other free value variables, as they are at present.
    around : ndarray
        The continuous ones among them, raveled and joined.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> with pm.Model() as model:
    ...     mean, sd = pm.Normal("mean", 0.0, 10.0), pm.HalfNormal("sd", 5.0)
    ...     obs = pm.Normal("obs", mu=mean, sigma=sd, observed=rng.normal(0.5, 2.0, size=200))
    >>> part = mcmc.PyMCModel(model, variables=["mean"])    # given sd, which set_others changes
    >>> part.names, list(part.others)
    (('mean',), ['sd_log__'])
    """

    _glm: GLM | None = None  # of models saved before there was one
    _seen_glm: GLM | None = None  # the same in what the rows see, where that is a function of the parameters
    _left_out: Any = 0.0  # of each row's log density by the compiled terms, beside constants of the family
    _normal = False
    _finds_bounds = False
    _whole_model = False  # whether the parameters are all free variables, as chains of this package move them
    _hierarchy: Any = None
    _through: Any = None
    _computed = (*Model._computed, "progress", "_hierarchy", "_left_out", "_read", "_show", "_asked", "_tell")

    def __init__(
        self, model: Any, observed: Any = None, variables: Any = None, *, rows: Any = None,
        through: Any = None, third_derivatives: str | None = None,
        compile_kwargs: Mapping[str, Any] | None = None, progress: bool = False,
    ) -> None:
        self.pymc_model, self.progress = model, progress
        self._read = 0
        self._show: Callable[[int], Any] = int  # or what shows the rows read
        self._asked = 0  # gradients of prior times expansion,
        self._tell: Callable[[int], Any] = int  # and what shows them
        chosen = list(model.observed_RVs) if observed is None else self._variables(observed, "observed")
        if not chosen or not set(chosen) <= set(model.observed_RVs):
            potentials = [v.name for v in model.potentials]
            named = f"observed is {[v.name for v in chosen]}" if chosen or observed is not None else (
                "the model has no observed variable, of whose rows some could be read")
            raise ValueError(
                f"{named}; observed variables of the model, at least one, are needed"
                + (f": a potential, such as {potentials[0]!r}, does not say which of its factors is which row's"
                   if potentials and not chosen else "")
            )
        free = list(model.free_RVs)
        values = [model.rvs_to_values[v] for v in free]
        listed = free if variables is None else self._variables(variables, "variables")
        self.values = [model.rvs_to_values.get(v, v) for v in listed]
        if not self.values or not set(self.values) <= set(values):
            raise ValueError(f"variables is {[v.name for v in listed]}; free variables of the model are needed")
        point = model.initial_point()
        self._measure(point)
        others = [v for v in values if v not in set(self.values)]
        self._beside = [v for v in others if np.dtype(v.dtype).kind == "f"]
        self._fixed = [v for v in others if np.dtype(v.dtype).kind != "f"]
        self.others = {v.name: np.array(point[v.name], dtype=v.dtype) for v in others}
        self.around = self._continuous_others()
        self._whole_model = variables is None
        self._observed, self.compile_kwargs = chosen, dict(compile_kwargs or {})
        self._rows = None if rows is None else self._variables(rows, "rows")
        if through is not None:
            if variables is not None:
                raise ValueError("through came with variables, and chains of some of a model's variables are not "
                                 "expanded in what the rows see: leave one of them out")
            self._through = self._variables(through, "through")
        if third_derivatives is not None:
            _checks.choice(third_derivatives, "third_derivatives", ("auto",))
            if variables is not None:
                raise ValueError("third_derivatives came with variables, and bounds hold while the model's other "
                                 "variables stay as they are: leave one of them out")
            self._finds_bounds = True
        self._graphs = self._new_graphs()
        if variables is None:
            self._put_effects_last(point)
        names = [entry_name(value.name, index) for value, shape in zip(self.values, self.shapes, strict=True)
                 for index in np.ndindex(shape)]
        super().__init__(sum(self.sizes), self._graphs.n_rows, log_prior=self.rest, names=names)
        self._graphs.check(self._probe(point), list(self._fixed_values()))
        self._find_compiled(self._probe(point))
        self._derivable = self._has_derivatives()

    def _measure(self, point: Mapping[str, Any]) -> None:
        """Shapes, dtypes and sizes of the variables in their order."""
        self.shapes = [np.shape(point[v.name]) for v in self.values]
        self.dtypes = [np.dtype(v.dtype) for v in self.values]
        self.sizes = [int(math.prod(shape)) for shape in self.shapes]

    def _put_effects_last(self, point: Mapping[str, Any]) -> None:
        """The order of a compiled model with many groups, whose effects follow everything else."""
        from fastrace.mcmc.doors.pymc._recognised import effects_last

        order = effects_last(self._graphs, self.values)
        if order != self.values:
            self.values = order
            self._measure(point)
            self._graphs = self._new_graphs()

    def _find_compiled(self, at: NDArray[np.float64]) -> None:
        """Compiled terms, if they are those of a generalised linear model; whether the rest is a normal prior."""
        from fastrace.mcmc.doors.pymc import _recognised

        if not self.others and all(dtype.kind == "f" for dtype in self.dtypes):
            self._glm = _recognised.compiled_terms(self._graphs, at)
            self._seen_glm = None if self._glm is not None else _recognised.compiled_seen(self._graphs, at)
            self._left_out = 0.0 if self._glm is None else _recognised.left_out(self._graphs)
        if self._glm is not None and not _recognised.posterior_elsewhere(self.pymc_model, self._observed):
            self._normal = _recognised.normal_prior(self.rest, lambda: self._rest_expanded(at), at)

    def _variables(self, given: Any, name: str) -> list[Any]:
        """Variables, some of them by name."""
        listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        try:
            return [self.pymc_model[v] if isinstance(v, str) else v for v in listed]
        except KeyError as error:
            variables = ", ".join(sorted(self.pymc_model.named_vars))
            raise ValueError(f"{name} names {error}; the model has {variables}") from None

    def _new_graphs(self) -> Any:
        from fastrace.mcmc.doors.pymc._graphs import RowGraphs

        values = self.values + self._beside
        return RowGraphs(self.pymc_model, self._observed, values, self._fixed, self._rows, self.compile_kwargs,
                         self._through)

    def _probe(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        """Near the initial point, where symmetries do not hide what the terms depend on."""
        theta = self._whole(self.pack(point))
        whole = np.concatenate([np.full(size, dtype.kind == "f") for size, dtype in
                                zip(self.sizes, self.dtypes, strict=True)] + [np.full(len(self.around), True)])
        return theta + whole * np.random.default_rng(1).uniform(0.05, 0.15, len(theta))

    def __repr__(self) -> str:
        return f"PyMCModel({', '.join(self._value_names)}; {counted(self.n_rows, 'row')}; {self._path})"

    def describe(self) -> str:
        """What the model is, and which code evaluates its rows and its prior, in words."""
        moved, why = None, "some of its variables are discrete, or are moved by other steps"
        if not self.others and all(dtype.kind == "f" for dtype in self.dtypes):
            try:
                moved = self._recognised().glm
            except ValueError as error:
                why = str(error).removeprefix(_UNRECOGNISED)
        switched = moved is not None and self._row_form() is not self
        if self._glm is not None:
            agree = "; the terms agree with PyMC's at random points" if moved is None else ""
            rows = f"compiled code, as {self._family} regression{agree}"
        elif moved is not None and switched:
            rows = f"compiled code, as {moved._glm.family} regression"
        elif moved is not None:
            rows = "PyTensor, one call for each set of rows, in kernels other than SurrogateMetropolis"
        elif self._seen_glm is not None and self._through is None:
            rows = (f"compiled code, as {self._seen_glm._glm.family} regression in what the rows see, in "
                    f"SurrogateMetropolis, and the terms agree with PyMC's at random points; PyTensor, one call for "
                    f"each set of rows, in other kernels. The rest is no generalised linear model ({why})")
        else:
            rows = f"PyTensor, one call for each set of rows: no generalised linear model was recognised ({why})"
        prior = "PyTensor, one call for each step"
        if self._normal or (switched and moved is not None and moved.joint_prior is None):
            prior = "normal, and so part of the expansion"
        elif switched:
            prior = "compiled code, one call for each step"
        chains = ""
        if moved is not None:
            who = ("kernels do not call PyTensor, unless a proposal, covariance or Reference of one's own came. They "
                   "move" if switched else
                   "SurrogateMetropolis does not call PyTensor, and sample tries it first. It moves")
            if moved.n_hyper:
                who = "sample, laplace and SurrogateMetropolis do not call PyTensor. They move"
            chains = (f"\nChains: {who} the model as {moved!r} with priors, which as_glm() returns; its log-posterior "
                      f"agrees with PyMC's at random points. Draws are recorded as parameters of the PyMC model.")
        elif self._glm is None and not self.others:
            chains = f"\nChains: {self._unrecognised_chains()}."
        return (f"PyMCModel of {counted(self.n_rows, 'row')} in {counted(self.dim, 'parameter')}: "
                f"{', '.join(self._value_names)}.\nRows: {rows}.\nPrior: {prior}.{chains}")

    def _unrecognised_chains(self) -> str:
        """What moves a model that is no `GLM`, and how to make that faster, in words."""
        from fastrace.mcmc.doors.pymc._words import pace

        form = self._surrogate_form()
        if not self._derivable:
            who = "PyTensor has no derivatives of the rows, so that sample takes RacingMetropolis, which reads most"
        elif form is not self and form.is_hierarchy:  # type: ignore[attr-defined]
            who = (f"sample takes SurrogateMetropolis, which expands the rows in the "
                   f"{counted(self._graphs.n_seen, 'number')} that they see of the {counted(self.dim, 'parameter')}")
        elif self._finds_bounds:
            who = "sample takes the cheaper of PoissonMinibatchMetropolis and RacingMetropolis"
        else:
            who = "sample takes RacingMetropolis, which expands the rows in all parameters and reads some at each step"
        return (f"{who}. Draws are as right as those of a model that is recognised, at the pace of PyTensor. What is "
                f"faster: {pace(self.n_rows, self.compile_kwargs.get('mode'))}")

    @property
    def outcome_name(self) -> str:
        """Of the observed variable; "rows" where there are several, whose terms are added row by row."""
        return str(self._observed[0].name) if len(self._observed) == 1 else "rows"

    @property
    def _family(self) -> str:
        return "" if self._glm is None else str(self._glm._glm.family)

    @property
    def _path(self) -> str:
        return "PyTensor" if self._glm is None else f"compiled {self._family} regression"

    def __getstate__(self) -> dict[str, Any]:
        """Compiled functions stay behind; a copy compiles its own when first asked."""
        return {name: value for name, value in self.__dict__.items() if name != "_graphs"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._graphs = self._new_graphs()

    # Points.

    def set_others(self, point: Mapping[str, Any]) -> bool:
        """Take the other variables from a point of PyMC; whether one of them has changed."""
        changed = False
        for name, old in self.others.items():
            if not np.array_equal(old, point[name]):
                self.others[name] = np.array(point[name], dtype=old.dtype)
                changed = True
        if changed:
            self.around = self._continuous_others()
        return changed

    def _continuous_others(self) -> NDArray[np.float64]:
        parts = [np.ravel(np.asarray(self.others[v.name], dtype=np.float64)) for v in self._beside]
        return np.concatenate([*parts, np.empty(0)])

    def _fixed_values(self) -> list[NDArray[Any]]:
        return [self.others[v.name] for v in self._fixed]

    def _whole(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The parameters with the other continuous variables behind them; a copy."""
        return np.concatenate([theta, self.around])

    # What kernels ask.

    def terms(self, theta: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log-likelihood terms of these rows, shape (len(rows),)."""
        parts = self._graphs.call("terms", self._whole(theta), np.asarray(rows, dtype=np.int64), *self._fixed_values())
        return np.asarray(parts[0] if len(parts) == 1 else sum(parts), dtype=np.float64)

    def left(self, theta: NDArray[np.float64], rows: NDArray[np.int64], hat: Any) -> NDArray[np.float64]:
        """What their second-order expansion at `hat`, other continuous variables included, leaves of these terms.

        A graph of its own: a table of each row's derivatives, as `FunctionModel` keeps, would take
        1 + d + d (d + 1) / 2 numbers a row and d (d + 3) / 2 passes to make, and would not follow the other variables.
        """
        rows = np.asarray(rows, dtype=np.int64)
        return np.asarray(self._graphs.call("left", self._whole(theta), hat, rows, *self._fixed_values()))

    def rest(self, theta: NDArray[np.float64]) -> float:
        """All that is not a term: prior, Jacobian, potentials, observed variables left out."""
        return float(self._graphs.call("rest", self._whole(theta), *self._fixed_values()))

    def as_glm(self) -> GLM:
        """The same posterior as a `GLM` with priors, for `SurrogateMetropolis` and chains of hierarchies.

        Recognised are coefficients with normal, Student, Cauchy, Laplace or flat priors; normal effects of groups,
        intercepts and slopes; horseshoes, see below; a learned sigma, or alpha of counts and times, as a power of a
        variable times a number, whose prior becomes that of the scale of `GLM`; and priors of scales that `GLM` has
        (HalfNormal, HalfCauchy, HalfStudentT, Exponential, Gamma, LogNormal, InverseGamma). Effects are centred or
        standardised, with standard deviations of their own or a covariance: `LKJCholeskyCov` with any `sd_dist` among
        these priors, or `LKJCorr`, in `MvNormal` or as ``chol @ z``. Their mean may be any sum of coefficients times
        numbers of the groups. A horseshoe, regularised (Piironen & Vehtari) or plain, has HalfCauchy or HalfStudentT
        global and local scales and a slab whose square is InverseGamma or a number, and is standardised, as in
        ``z * tau * lam``, or the standard deviation of normal coefficients; the global scale, or its prior, may be in
        units of a learned sigma. It becomes `mcmc.Horseshoe`, with the same density. The log-posteriors are compared at
        random points.

        Returns
        -------
        GLM
            Its parameters: coefficients, effects, standard deviations. `unpack` brings a trace of it back. Outcomes and
            columns are those of the model over `sigma`, or its factor, where that is known for each row; outcomes are
            logarithms of log-normal ones, and Weibull ones to the power `alpha`. The trials of a row with a probit or
            complementary log-log link are two rows, their successes and their failures, with `weights`.

        Raises
        ------
        ValueError
            If the model is of another kind; the message names the part that is.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from fastrace import mcmc
        >>> rng = np.random.default_rng(0)
        >>> g, y = rng.integers(0, 6, 500), rng.integers(0, 2, 500)
        >>> with pm.Model() as model:
        ...     a, tau, z = pm.Normal("a"), pm.HalfNormal("tau"), pm.Normal("z", shape=6)
        ...     obs = pm.Bernoulli("obs", logit_p=a + tau * z[g], observed=y)
        >>> ours = mcmc.from_pymc(model)
        >>> trace = mcmc.sample(mcmc.SurrogateMetropolis(ours.as_glm()), n_draws=100, n_chains=2, rng=1)
        >>> ours.unpack(trace)["z"].shape
        (2, 100, 6)
        """
        return self._recognised().glm

    def from_glm(self, draws: ArrayLike) -> NDArray[np.float64]:
        """Draws of shape (..., dim) of the model that `as_glm` gives, as parameters of this one."""
        return np.asarray(self._recognised().from_glm(np.asarray(draws, dtype=np.float64)))

    def _surrogate_form(self) -> Model:
        """A hierarchy as a `GLM` that records its draws as parameters of this model, or expanded in what rows see."""
        from fastrace.mcmc.doors.pymc._hierarchy import HierarchyModel
        from fastrace.mcmc.doors.pymc._mapped import MappedModel

        if self.others or any(dtype.kind != "f" for dtype in self.dtypes):
            return self
        try:
            found = self._recognised()
        except ValueError:
            return MappedModel(self) if self._derivable else self
        return HierarchyModel(found, self._parts(), self.names or ())

    def _row_form(self) -> Model:
        """The `GLM` of a model without hyperparameters, but where this model's own terms and prior are as quick."""
        from fastrace.mcmc.doors.pymc._hierarchy import HierarchyModel

        if not self._whole_model or (self._glm is not None and self._normal):
            return self
        form = self._surrogate_form()
        return form if isinstance(form, HierarchyModel) and not form.n_hyper else self

    def _parts(self) -> tuple[Part, ...]:
        """The value variables as parts of the vector of parameters, with the dims and coords of the PyMC model."""
        model, parts = self.pymc_model, []
        for value, shape in zip(self.values, self.shapes, strict=True):
            dims = list(model.named_vars_to_dims.get(model.values_to_rvs[value].name) or ())
            axes, labels = [], []
            for k, n in enumerate(shape):
                known = model.coords.get(dims[k]) if len(dims) == len(shape) else None
                fits = known is not None and len(known) == n
                axes.append(dims[k] if fits else f"{value.name}_dim_{k}")
                labels.append(tuple(known) if known is not None and fits else tuple(range(n)))
            parts.append(Part(value.name, shape, tuple(axes), tuple(labels)))
        return tuple(parts)

    @property
    def _remedy(self) -> str:
        """What to do where chains go wrong: of a hierarchy that `as_glm` gives, or of few rows; else empty."""
        try:
            found = self._recognised()
        except ValueError:
            return NUTS if self.n_rows <= FEW_ROWS else ""
        return "hierarchy: take SurrogateMetropolis(model), or NUTS" if found.factors or found.shrunk else ""

    def _recognised(self) -> Any:
        from fastrace.mcmc.doors.pymc._hierarchy import hierarchy
        from fastrace.mcmc.doors.pymc._laws import OtherModelError

        if self._through is not None:
            raise ValueError("the model was not looked at as a GLM: through says what its rows see; leave it out")
        if self._hierarchy is None:
            try:
                self._hierarchy = hierarchy(self._graphs, self.values)
            except OtherModelError as error:
                self._hierarchy = str(error)
        if isinstance(self._hierarchy, str):
            raise ValueError(f"{_UNRECOGNISED}{self._hierarchy}")
        return self._hierarchy

    def _has_derivatives(self) -> bool:
        if any(dtype.kind != "f" for dtype in self.dtypes) or self._graphs.feel_fixed:
            return False  # the sums of an expansion would have to be made anew whenever a discrete variable moves
        return self._glm is not None or bool(self._graphs.derivable)

    @property
    def has_derivatives(self) -> bool:
        return self._derivable

    def engine(self, reference: Reference | None) -> tuple[Source, NDArray[np.float64]]:
        if self._glm is not None:
            return self._glm.engine(reference)
        theta = np.zeros((2, self.dim))
        terms = self.terms if reference is None else partial(self.left, hat=hat_of(reference))
        return CallableSource(partial(terms_of_arms, terms, theta), 2, self.n_rows), theta

    def slopes(self, reference: Reference) -> NDArray[np.float64]:
        return super().slopes(reference) if self._glm is None else self._glm.slopes(reference)

    def _arms(self, count: int) -> tuple[Source, NDArray[np.float64]]:
        return super()._arms(count) if self._glm is None else self._glm._arms(count)
