"""Compiled likelihoods beyond the public ones, and the residuals of second-order expansions of any of them.

`_softmax.pyx` and `_arch.pyx` serve `fastrace.mcmc.models`, `_arch.pyx` also the demonstration. `_softmax.pyx` is
public as a source of `fastrace.control_variates`. `_expanded.pyx` is the one residual source of all models,
`_binned.pyx` the public expansion in the data, `_group_expansions.pyx` those of the groups of a mixture. `_arrow.pyx`
holds curvatures of models with grouped effects, their factors, and quadratic functions with such a curvature;
`_priors.pyx` the joint priors of these models, with `_factors.pxd`. GLMs stand in `fastrace.likelihoods`, with
`glm_inputs`, `grouping` and `_seen.pyx`; control variates in `fastrace.control_variates`, with the bounds of
`_cubic.pyx`.
"""
