"""What everything else stands on: types, guards, argument checks, checkpoints on disk, progress.

Nothing here knows of a reward or an arm. `_guard.pxd` and `_types.pxd` serve compiled code, the Python files serve both
faces and doors. What a user calls by name lives elsewhere.
"""
