"""Searches in the manner of scikit-learn; importing this package needs scikit-learn.

`_base` is the frame of every `fit`: data, candidates and splits before the search, the last training after it.
`_daub_search` lets a scheduler ask for trainings; `_racing_search` races trained models over `_held_out` rows, whose
scores `_predictions` keeps for a `fit` that goes on.
Both train through `_trainings`, by the `_workers` of joblib, and keep what is finished in a `_checkpoint`.
"""
