"""Ways in from libraries that run trials and evaluations: Optuna, Inspect. Importing one needs its library.

Each module is a face over intervals of `fastrace.streams`; ways in for chains stand in `fastrace.mcmc.doors`.
"""
