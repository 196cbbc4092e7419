"""Means and variances of streams, and of paired differences between arms."""

from fastrace._accumulate import RunningComoments, RunningMoments

__all__ = ["RunningComoments", "RunningMoments"]
