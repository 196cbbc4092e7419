"""The priors of a model in words, as printed models show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["with_priors"]

_SHOWN = 4  # names that share a prior


def with_priors(model: Any) -> str:
    """The model in one line, and a line for each of its priors."""
    names = list(model.names or [f"theta[{j}]" for j in range(model.dim)])
    shared: dict[str, list[str]] = {}
    for name, prior in _of_joint(model, names) if model.joint_prior is not None else _of_normals(model, names):
        shared.setdefault(prior, []).append(name)
    lines = [f"  {_listed(some)} ~ {prior}" for prior, some in shared.items()]
    own = model.joint_prior.given[4] if model.joint_prior is not None else [model.log_prior] * bool(model.log_prior)
    return "\n".join([repr(model), *lines, *["  and a log density of your own"] * bool(own)])


def _listed(names: list[str]) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _centred(model: Any) -> dict[int, str]:
    """Priors of intercepts that stand on the predictor where columns have their means."""
    known = () if model.prior_part is None else model.prior_part.centred
    return {j: f"Normal({mean:.4g}, {sd:.4g}), of centred columns" for j, mean, sd in known}


def _of_normals(model: Any, names: list[str]) -> Iterator[tuple[str, str]]:
    centred = _centred(model)
    for j, (mean, precision) in enumerate(zip(model.prior_mean, model.prior_precision, strict=True)):
        yield names[j], centred.get(j) or (f"Normal({mean:.4g}, {precision**-0.5:.4g})" if precision > 0.0 else "flat")


def _of_joint(model: Any, names: list[str]) -> Iterator[tuple[str, str]]:
    coefficients, pools, factors, aux, _ = model.joint_prior.given
    hyper, centred, scales = iter(names[model.n_seen :]), _centred(model), []
    behind: list[tuple[str, str]] = []
    for number, pool in enumerate(pools):
        scales.append(next(hyper))
        behind.append((scales[-1], _of_scale(pool[1])))
        if pool[0] == "horseshoe":
            behind += [(next(hyper), _of_scale(pool[3]))] if pool[3] is not None else []
            behind += [(next(hyper), _of_scale(pool[2])) for c in coefficients if c[4] == number]
    for j, (kind, mean, width, df, number) in enumerate(coefficients):
        of_pool = number >= 0 and pools[number][0]
        wide = scales[number] if of_pool else f"{width:.4g}"
        word = {"normal": f"Normal({mean:.4g}, {wide})", "laplace": f"Laplace({mean:.4g}, {wide})",
                "student": f"StudentT({df:.4g}, {mean:.4g}, {wide})", "flat": "flat"}[kind]
        yield names[j], "Horseshoe" if of_pool == "horseshoe" else centred.get(j) or word
    if aux is not None:
        yield model.scale_name, _of_scale(aux)
    yield from behind
    for _, sds, eta in factors:
        for sd in sds:
            yield next(hyper), _of_scale(sd)
        if eta is not None:
            yield from ((next(hyper), f"LKJ({eta:.4g})") for _ in range(len(sds) * (len(sds) - 1) // 2))


def _of_scale(triple: tuple[Any, ...]) -> str:
    kind, a, b, *power = triple
    if power:
        return f"{_of_scale((kind, a, b))} of its power {power[0]:.4g}"
    if kind == "half-student":
        return f"HalfCauchy({a:.4g})" if b == 1.0 else f"HalfStudentT({b:.4g}, {a:.4g})"
    if kind == "gamma" and a == 1.0:
        return f"Exponential({b:.4g})"
    return {"half-normal": f"HalfNormal({a:.4g})", "gamma": f"Gamma({a:.4g}, {b:.4g})",
            "log-normal": f"LogNormal({a:.4g}, {b:.4g})",
            "inverse-gamma-of-square": f"InverseGamma({a:.4g}, {b:.4g}) of its square"}[kind]
