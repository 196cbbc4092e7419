"""Which learner to train next, and on how many rows: methods that see scores and costs alone, and train nothing.

`_scheduler` is the frame: what was asked for, what came back, what it cost, who was dropped. `_daub`, `_halving` and
`_budgeted` are the methods, `_baselines` those to compare with; grids of sizes and plans of rounds are in `_sizes`.
A new method says what comes next (`_propose`) and takes scores (`_take`). scikit-learn is not needed.
"""
