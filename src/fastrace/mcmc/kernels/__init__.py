"""Kernels, one file each: over the rows of a model, and Gibbs kernels over categorical variables.

`_rows` is the base of the former: reference, coordinates, states, tuning, engines. `_metropolis` adds proposals,
`slice` sweeps along coordinates, `_racing` the options of races; the Gibbs kernels stand on `gibbs`. Of
`surrogate_metropolis`, `_surrogate_moves` says how it moves and `_surrogate_decisions` by which rows it decides; `hmc`
is set up as it is, and moves by the gradients of all rows.
Compiled: `_chain` (decisions by all rows or by races), `_minibatch` (by Poisson minibatches), `_proposal` and `_slice`
(moves), `_surrogate` (moves on prior times expansion) with `_nested_normal`, `_scaled` and `_hamiltonian`,
`_row_hamiltonian` (trajectories on the posterior itself),
`_group_blocks` (effects, one group at a time), `_pieces` (minibatches of several factors), `_inclusion` (which
coefficients are in), `_surrogate_gibbs` (mixtures) with `_mixture_memory`, `_classes` and `_class_at`. `_choice` picks
the kernel of a model that comes without one. A new kernel says in `_move` which points a chain tries and in `_chain`
how it decides. Models are in `mcmc.models`.
"""
