"""Answers to questions about means from as few samples as possible, with a stated probability of error."""

__version__ = "0.1.0"
