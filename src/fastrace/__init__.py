"""Answers to questions about means from as few samples as possible, with a stated probability of error."""

from fastrace.lil_ucb import LilUCB

__all__ = ["LilUCB"]
__version__ = "0.1.0"
