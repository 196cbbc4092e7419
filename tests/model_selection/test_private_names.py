"""One file uses private names of scikit-learn, which may change with any of its versions."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from fastrace.model_selection import _sklearn

SOURCE = Path(_sklearn.__file__).parents[1]
FILES = [file for file in SOURCE.rglob("*.py") if file.name != "_sklearn.py"]


def private(name):
    return name.startswith("_") and not name.endswith("__")


def attributes():
    """Private names of the objects of scikit-learn that searches are made of or work with."""
    from sklearn.base import ClassifierMixin
    from sklearn.metrics import get_scorer

    scorers = _sklearn.MultimetricScorer(scorers={"accuracy": get_scorer("accuracy")})
    objects = (_sklearn.BaseSearchCV, _sklearn.Composition.__base__, ClassifierMixin, scorers, get_scorer("accuracy"))
    found = {name for thing in objects for name in dir(thing) if private(name)} | {"_validate_params", "_abc_impl"}
    return found - {"_repr_html_"}      # of IPython


def uses(text, names):
    """Private names that a module takes from scikit-learn: by import, or as attributes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sklearn":
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            yield from (part for part in parts if private(part))
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names if alias.name.startswith("sklearn")
                        for part in alias.name.split(".") if private(part))
        elif isinstance(node, ast.Attribute) and node.attr in names:
            yield node.attr


def test_private_names_of_scikit_learn_stand_in_one_file():
    names = attributes()
    assert {"_format_results", "_get_scorers", "_score_func", "_scorers", "_parameter_constraints"} <= names
    found = {f"{file.relative_to(SOURCE)}: {name}" for file in FILES
             for name in uses(file.read_text(encoding="utf-8"), names)}
    assert not found, f"{found}: let model_selection/_sklearn.py give these under names of our own"


@pytest.mark.parametrize(("text", "found"), [
    ("from sklearn.utils import _safe_indexing", ["_safe_indexing"]),
    ("from sklearn.model_selection._search import GridSearchCV", ["_search"]),
    ("import sklearn.metrics._scorer as scorer", ["_scorer"]),
    ("def f(search):\n    return search._format_results()", ["_format_results"]),
    ("from sklearn.utils import check_random_state\nsearch._own = search.__class__", []),
])
def test_the_reader_of_private_names_sees_each_form(text, found):
    assert list(uses(text, {"_format_results"})) == found
