"""Models under one name: saved models are found here."""

from fastrace.mcmc.models._modes import NoModeError
from fastrace.mcmc.models.base import LogPrior, Model, Reference
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.models.own_terms import FunctionModel, SourceModel

__all__ = ["GLM", "FunctionModel", "LogPrior", "Model", "NoModeError", "Reference", "SourceModel"]
