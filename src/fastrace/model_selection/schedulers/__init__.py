"""Which learner to train next, and on how many rows: methods that see scores and costs alone."""
