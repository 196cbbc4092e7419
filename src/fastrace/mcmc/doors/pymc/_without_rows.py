"""A PyMC model with a `Compressed` in place of its rows; needs PyMC."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from fastrace.mcmc.compression import Compressed
from fastrace.mcmc.doors.pymc._mapped import MappedModel
from fastrace.mcmc.doors.pymc.models import PyMCModel

__all__ = ["without_rows"]

_BY_HAND = "write a model without rows, and put the expansion into it by pymc_potential(compressed, psi)"


def without_rows(compressed: Compressed, model: PyMCModel) -> tuple[Any, Any]:
    """A new PyMC model with the priors of another one, and what the rows of that see, made of its variables."""
    form = model._surrogate_form()
    if not isinstance(form, MappedModel):
        raise ValueError("the model was recognised as a GLM, and the Compressed expands in what the rows of that see, "
                         "which PyMC's variables are not by name: name in what to expand it by from_pymc(model, "
                         "through=[...]), such as all free variables, and compress that, or " + _BY_HAND)
    if compressed.names != form.seen_names or compressed.n_rows != model.n_rows:
        raise ValueError(f"{compressed!r} expands in {', '.join(compressed.names[:5])}, ..., and the {model.n_rows} "
                         f"rows of the model see {', '.join(form.seen_names[:5])}, ...; compress(model) of this very "
                         f"model is needed")
    new = _left_of(model)
    return new, _seen(model, new)


def _left_of(model: PyMCModel) -> Any:
    """A copy of the PyMC model without rows, and without variables and data that are functions of them alone."""
    whole, observed, sees = model.pymc_model, set(model._observed), model._graphs.constants.sees
    try:
        graph, copies = fgraph_from_model(whole)
    except (NotImplementedError, ValueError) as error:
        raise ValueError(f"PyMC cannot copy the model ({error}): {_BY_HAND}") from error
    gone = {*observed, *(d for d in whole.deterministics if sees(d) or observed.intersection(ancestors([d])))}
    kept = [v for v in whole.basic_RVs + whole.potentials + whole.deterministics if v not in gone]
    used = set(ancestors([*kept, *(whole.rvs_to_values[v] for v in kept if v in whole.rvs_to_values)]))
    gone |= {v for v in whole.data_vars if v not in used}
    for v in gone:
        graph.remove_output(graph.outputs.index(copies[v]))
    return model_from_fgraph(graph, mutate_fgraph=True)


def _seen(model: PyMCModel, new: Any) -> Any:
    """What the rows see, made of the variables of the new model."""
    graphs, parts = model._graphs, []
    for value in model.values:
        v = new[model.pymc_model.values_to_rvs[value].name]
        transform = new.rvs_to_transforms[v]
        parts.append((v if transform is None else transform.forward(v, *v.owner.inputs)).ravel().astype("float64"))
    theta = pt.concatenate(parts)
    if not graphs.maps:
        return theta
    data = {c: new[c.name] for c in model.pymc_model.data_vars if c.name in new.named_vars}
    return graph_replace([graphs._seen], {graphs._theta: theta, **data}, strict=False)[0]
