"""Examples in docstrings, in the README and in the guides run and print what they say."""

import ast
import csv
import dataclasses
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import catalogue
import fastrace

ROOT = Path(__file__).resolve().parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SOURCE = ROOT / "src" / "fastrace"
PUBLIC = sorted(
    ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    for file in SOURCE.rglob("*.py*")
    if file.suffix in (".py", ".pyx") and file.stem not in ("__init__", "cli", "demo")
)

FRAMEWORKS = {
    "doors.inspect": ["inspect_ai"],
    "doors.optuna": ["optuna"],
    "mcmc.doors.blackjax": ["blackjax"],
    "mcmc.doors.compressed": ["pymc"],
    "mcmc.doors.emcee": ["emcee"],
    "mcmc.doors.jax._compiled": ["jax"],
    "mcmc.doors.jax._gibbs": ["jax"],
    "mcmc.doors.jax._metropolis": ["jax"],
    "mcmc.doors.jax._races": ["jax"],
    "mcmc.doors.jax._xla": ["jax"],
    "mcmc.doors.jax._xla_chain": ["jax"],
    "mcmc.doors.numpyro": ["numpyro"],
    "mcmc.doors.pymc._constants": ["pymc"],
    "mcmc.doors.pymc._coordinates": ["pymc"],
    "mcmc.doors.pymc._cuts": ["pymc"],
    "mcmc.doors.pymc._draws": ["pymc"],
    "mcmc.doors.pymc._effects": ["pymc"],
    "mcmc.doors.pymc._families": ["pymc"],
    "mcmc.doors.pymc._graphs": ["pymc"],
    "mcmc.doors.pymc._hierarchy": ["pymc"],
    "mcmc.doors.pymc._laws": ["pymc"],
    "mcmc.doors.pymc._links": ["pymc"],
    "mcmc.doors.pymc._predictors": ["pymc"],
    "mcmc.doors.pymc._reading": ["pymc"],
    "mcmc.doors.pymc._recognised": ["pymc"],
    "mcmc.doors.pymc._shrinkage": ["pymc"],
    "mcmc.doors.pymc._without_rows": ["pymc"],
    "mcmc.doors.pymc._words": ["pymc"],
    "mcmc.doors.pymc.models": ["pymc"],
    "mcmc.doors.pymc.steps": ["pymc"],
    "mcmc.models._by_numpy": ["pytensor"],
}  # tests/mcmc/
PAGES_OF_FRAMEWORKS = {"docs/inspect.md": ["inspect_ai"], "docs/optuna.md": ["optuna"]}


def _run(test, **options):
    said = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, **options)
    assert not said, "".join(said)


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_in_docstrings(name):
    for package in FRAMEWORKS.get(name, ()):
        pytest.importorskip(package)
    module = importlib.import_module(f"fastrace.{name}")
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
        _run(test)


def test_public_classes_and_functions_have_an_example():
    """Everything that can be called by a name of `fastrace` shows how."""
    missing = [
        name for name in fastrace.__all__
        if callable(getattr(fastrace, name)) and ">>>" not in (getattr(fastrace, name).__doc__ or "")
        and not hasattr(getattr(fastrace, name), "__dataclass_fields__")
    ]
    assert not missing, f"without an example: {missing}"


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_examples_in_guides(page):
    for package in PAGES_OF_FRAMEWORKS.get(page, ()):
        pytest.importorskip(package)
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert blocks
    names = {}
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"{page}, block {number}", page, 0)
        assert test.examples, block
        _run(test, clear_globs=False)
        names = test.globs


def test_guides_link_to_what_exists():
    pages = [path for path in ROOT.rglob("*.md") if not {".venv", "build"} & set(path.relative_to(ROOT).parts)]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))]
    assert len(links) > 30
    assert [f"{page.name}: {link}" for page, link in links
            if "://" not in link and not (page.parent / link).exists()] == []


def test_goals_of_benchmarks_are_counted_right():
    """What a section says of its table, how many lines reach their goal, is what stands in the table."""
    counted = 0
    for section in (ROOT / "bench/README.md").read_text(encoding="utf-8").split("\n## "):
        said = re.search(r"(\d+) lines reach their goal, (\d+) do not", section)
        if said:
            rows = [line for line in section.splitlines() if line.startswith("| ")]
            assert [sum(word in row for row in rows) for word in ("reached", "MISSED")] == list(map(int, said.groups()))
            counted += 1
    assert counted == 2


def test_figures_of_chains_are_those_of_the_file():
    """Each line of the table of `bench/chains.py` says what `bench/results/chains.csv` holds."""
    with (ROOT / "bench/results/chains.csv").open(encoding="utf-8", newline="") as file:
        measured = list(csv.DictReader(file))
    text = (ROOT / "bench/README.md").read_text(encoding="utf-8")
    table = text[text.index("| posterior | way | set-up, CPU s |"):].split("\n\n")[0].splitlines()[2:]
    assert len(table) == len(measured)
    for row, line in zip(measured, table, strict=True):
        _, way, set_up, rate, with_set_up, words = (cell.strip() for cell in line[1:-1].split("|"))
        rates = [f"{float(row[key]):{',.0f' if float(row[key]) >= 10.0 else '.2g'}}" if row[key] else "-"
                 for key in ("per_second", "per_second_with_set_up")]
        if row["milliseconds"]:
            rates = [f"{float(row['milliseconds']):.3g} ms a sweep", ""]
        assert [way, rate, with_set_up] == [row["way"], *rates]
        assert set_up == (f"{float(row['set_up_seconds']):.2f}" if row["set_up_seconds"] else "-")
        assert words.endswith(row["words"])


def test_readme_opens_with_the_two_commands():
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    assert 'python -m pip install ".[demo]" && fastrace demo' in first_screen
    assert 'python -m pip install ".[test]" && python -m pytest' in first_screen


def test_hints_install_the_missing_library_itself():
    """Another project holds the name `fastrace` on the index, and who has a wheel has no folder to install from."""
    hints = {(path.name, hint) for path in (ROOT / "src").rglob("*.py*") if path.suffix in (".py", ".pyx")
             for hint in re.findall(r"pip install ([^\n`]*)", path.read_text(encoding="utf-8"))}
    assert len(hints) > 10
    assert not {(name, hint) for name, hint in hints if "fastrace" in hint or re.match(r"[\"']?\.", hint)}


# What numpydoc checks of public names. Types stand in the signatures, which mypy checks; "See Also" is for where it
# helps. SS05 is left out: it takes each first word that ends in s, such as "Rows", for a verb.
OF_ALL = {"GL05", "GL06", "GL07", "GL08", "GL09", "SS01", "SS02", "SS03", "SS04", "SS06", "PR02", "PR03", "PR05",
          "PR07", "PR10", "RT02", "RT03", "YD01"}
OF_CLASSES_AND_FUNCTIONS = OF_ALL | {"PR01", "RT01", "EX01"}


def _offered():
    """What stands in the `__all__` of a public module."""
    modules = {importlib.import_module(f"fastrace.{name}".rpartition(".")[0]) for name in catalogue.public()}
    return {id(getattr(module, key)) for module in modules for key in getattr(module, "__all__", ())}


def _documented():
    """Public names, and what numpydoc checks of each."""
    offered = _offered()
    for name, value in sorted(catalogue.public().items()):
        checks = set(OF_CLASSES_AND_FUNCTIONS)
        if dataclasses.is_dataclass(value) or isinstance(value, type) and issubclass(value, BaseException | tuple):
            checks -= {"PR01", "EX01"}                              # made by the package; fields stand under Attributes
        if catalogue.LEFT_OUT.get(name) == catalogue.BASE:
            checks -= {"PR01", "EX01"}                              # subclasses say what they take, and show it
        if id(value) not in offered and "\n    ----" not in (value.__doc__ or ""):
            checks -= {"PR01", "RT01", "YD01", "EX01"}              # a helper that modules of the package share
        if isinstance(value, type) and not _shows_parameters(value):
            checks -= {"PR02", "PR03"}                              # the test below compares these with the stub
        yield f"fastrace.{name}", checks
        for key, member in sorted(vars(value).items()) if isinstance(value, type) else ():
            inherits = not member.__doc__ and inspect.getdoc(member)    # the words of a base, which is checked itself
            if not key.startswith("_") and (callable(member) or isinstance(member, property)) and not inherits:
                yield f"fastrace.{name}.{key}", OF_ALL


def _shows_parameters(cls):
    """Whether inspection sees what the class takes: a compiled class carries no signature."""
    try:
        inspect.signature(cls)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("name", "checks"), [pytest.param(*case, id=case[0]) for case in _documented()])
def test_docstrings_are_complete(name, checks):
    validate = pytest.importorskip("numpydoc.validate").validate
    found = [f"{code}: {words}" for code, words in validate(name)["errors"] if code in checks]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", [
    name for name, cls in sorted(catalogue.public_classes().items())
    if not _shows_parameters(cls) and not issubclass(cls, BaseException)
])
def test_docstrings_of_compiled_classes_are_complete(name):
    """They document the parameters that their stub gives them, in its order."""
    pages = pytest.importorskip("numpydoc.docscrape")
    cls = catalogue.public_classes()[name]
    homes = cls.__module__, f"fastrace.{name}".rpartition(".")[0]       # where it is defined, or where it is offered
    stubs = [(SOURCE.parent / home.replace(".", "/")).with_suffix(".pyi") for home in homes]
    stub = ast.parse(next(file for file in stubs if file.exists()).read_text(encoding="utf-8"))
    body = next(part.body for part in stub.body if isinstance(part, ast.ClassDef) and part.name == cls.__name__)
    arguments = next((part.args for part in body if getattr(part, "name", "") == "__init__"), None)
    names = [] if arguments is None else [part.arg for part in [*arguments.args[1:], *arguments.kwonlyargs]]
    documented = [key.strip() for part in pages.ClassDoc(cls)["Parameters"] for key in part.name.split(",")]
    assert documented == names
