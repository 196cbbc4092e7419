"""Streams of rewards: rules that stop once a mean is known, confidence sequences, races on streams.

Faces and their loops: `stopping` uses `_mean_stops`, `sequences` and `betting` use `_sequences`, `over_bounds` uses
both, `gbas` uses `_gbas`; all of these loops stand on `_stopping`, and their faces on `_rules`. `estimating` is
`estimate_mean`. `stream_racing` and `betting_race` are races over `stream_race`, which uses `_stream_race` on top of
`_rounds`. `proxies` adjusts dear rewards by cheap scores. `comparison` compares streams that are observed, over
`_observed`, which keeps the arms in `_sequences`, and over `_keys`. `permutation` decides permutation tests, over
`_resampling` and `_counts`. Populations that can be read in full are in `fastrace.races`.
"""
