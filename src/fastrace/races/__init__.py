"""Races over finite populations: the largest mean, a mean against a threshold, the largest sum, one exact draw.

Faces and their loops: `racing` and `sampling` use `fastrace._core`, the loop on top of `_judge` (who is out),
`_memory`, `_scores` (rewards less what a proxy says of them) and `_answers` (what is known at any time); `_settings`
checks what they are asked for. `flight` runs a race, or a rule of `fastrace.select`, by requests under way at once,
with `_in_flight` (what is out and what is held back), `_journal` and `_receipts`, which keep what was paid for;
`planning` simulates races before they are paid for; `acceptance` uses `_threshold`; `unequal` uses `_unequal` on top of
`_unequal_judge`; `lil_ucb` uses `_lil`. `_weighted` draws rows by their weights. `_reading` says how all races read
rows, `_options` checks the options that several of them take, `_schedules` says when a test looks, and `_ragged` is a
source of vectors of different lengths. Streams without an end are in `fastrace.streams`.
"""
