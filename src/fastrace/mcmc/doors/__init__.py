"""Ways in from other libraries: PyMC, JAX, NumPyro, BlackJAX, emcee. Importing one needs its library."""
