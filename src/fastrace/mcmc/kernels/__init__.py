"""Kernels, one file each; `_chain.pyx` and `_minibatch.pyx` hold their compiled steps."""
