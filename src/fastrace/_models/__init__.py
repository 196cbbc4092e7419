"""Compiled likelihoods beyond the public ones, and what an expansion leaves of them.

`_softmax.pyx` and `_arch_logs.pyx` serve `fastrace.mcmc.models`, `_expansion.pyx` serves models of PyMC, `_arch.pyx`
the demonstration. GLMs stand in `fastrace.likelihoods`, control variates in `fastrace.control_variates`.
"""
