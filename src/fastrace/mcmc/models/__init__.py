"""Models that kernels sample from: log-likelihoods over rows, and what is known of their derivatives.

`base` is what kernels ask of a model; each public model has a file. `glm` stands on `_glm_rows` (terms and bounds) and
`_joint` (priors), and is written as a formula by `_formula` and `_design`. `own_terms` takes functions of users, with
derivatives from `_curves` and bounds from `_row_bounds`, which stands on `_jets`. `_modes` finds modes. `_pieces`,
`_sites`, `_unseen` and `_alike` say what rows and groups see of grouped effects. `priors` are the priors that users
name. `model` holds all models under one name, by which saved ones are found. Compiled terms are in `fastrace._models`.
"""
