"""The files of src/fastrace: imports point down the layers, rooms do not lean on each other, the build installs all."""

import ast
import graphlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fastrace"

# From the bottom up; each layer lists its rooms and what they hold. A file may import from lower layers and from its
# own room, never from another room of its layer. Of the rooms with loops and faces, compiled files are the loops.
LAYERS = {
    "base": {"base": ["_base", "results"]},
    "math": {"math": ["_math"]},
    "draws": {"draws": ["_draws", "moments", "bounds"]},
    "data": {"data": ["sources", "pulls", "_pull_source"]},
    "models": {"models": ["_models", "likelihoods", "control_variates"]},
    "loops": {"races": ["_core"], "streams": [], "select": []},
    "faces": {"races": ["races"], "streams": ["streams"], "select": ["select", "baselines"],
              "names": ["__init__", "_public"]},
    "users": {"mcmc": ["mcmc"], "model_selection": ["model_selection"]},
    "doors": {"command": ["cli", "__main__", "commands", "demo"], "doors": ["doors"],
              "mcmc.doors": ["mcmc.doors", "mcmc.__init__"], "boosting": ["boosting"]},
}
HAS_LOOPS = {"races", "streams", "select"}
PLACES = {place: (rank, room) for rank, rooms in enumerate(LAYERS.values())
          for room, places in rooms.items() for place in places}
LOOPS = list(LAYERS).index("loops")
COMPILED = (".pyx", ".pxd", ".pyi")
NAMES = ("__init__", "_public")                          # gather public names: may import from every face


def name_of(file):
    """Dotted name of a module from its file, below `fastrace`."""
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts)


def files(*suffixes):
    return sorted(file for file in SOURCE.rglob("*") if file.suffix in suffixes)


MODULES = {name_of(file) for file in files(".py", ".pyx", ".pxd")}
IN_C = {name_of(file) for file in files(".pyx", ".pxd")}


def place_of(name):
    """Layer and room of a module."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        found = PLACES.get(".".join(parts[:k]))
        if found:
            return (LOOPS, found[1]) if found[1] in HAS_LOOPS and name in IN_C else found
    raise AssertionError(f"{name} has no room: give it a place in LAYERS")


CYTHON_IMPORT = re.compile(r"^\s*from\s+(\S+)\s+c?import\s+(\([^)]*\)|[^\n]*)|^\s*c?import\s+([^\n]*)", re.M)
C_HEADER = re.compile(r'^\s*(?:cdef extern from|#include) "(_\w+)\.[ch]"', re.M)


def _ours(module, names):
    """Modules of the package behind one import of `names` from `module`."""
    if module.split(".")[0] != "fastrace":
        return set()
    inside = module.removeprefix("fastrace").lstrip(".")
    if not names:
        return {inside if inside in MODULES else f"{inside}.__init__".lstrip(".")}
    found = set()
    for name in names:
        full = f"{inside}.{name}".lstrip(".")
        known = [m for m in (full, f"{full}.__init__", inside) if m in MODULES]
        found.add(known[0] if known else f"{inside}.__init__".lstrip("."))
    return found


def _python_imports(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by the full name: from fastrace... import ..."
            yield from _ours(node.module, [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _ours(alias.name, [])


def _cython_imports(text):
    for module, names, modules in CYTHON_IMPORT.findall(text):
        if module:
            names = [part.split()[0] for part in names.strip("()").split("#")[0].split(",") if part.strip()]
            yield from _ours(module, names)
        else:
            for part in modules.split("#")[0].split(","):
                yield from _ours(part.split()[0], [])
    if C_HEADER.search(text):
        yield "_math.__init__"                          # C stands in _math/c


def imports(file):
    read = _python_imports if file.suffix in (".py", ".pyi") else _cython_imports
    return set(read(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("file", files(".py", ".pyi", ".pyx", ".pxd"), ids=name_of)
def test_imports_point_down(file):
    rank, room = place_of(name_of(file))
    for name in imports(file):
        below, other = place_of(name)
        inside = (below, other) == (rank, room) or other == room and below < rank
        assert below < rank or inside or name_of(file) in NAMES and below <= rank, (
            f"{name_of(file)} ({list(LAYERS)[rank]}, {room}) imports {name} ({list(LAYERS)[below]}, {other})")


def test_no_circle_of_imports():
    graph = {}
    for file in files(".py", ".pyx", ".pxd"):
        if file.stem != "__init__":
            near = {name for name in imports(file) if not name.endswith("__init__")}
            graph.setdefault(name_of(file), set()).update(near - {name_of(file)})
    tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("file", files(".c", ".h"), ids=lambda file: file.name)
def test_c_includes_c_of_its_folder_alone(file):
    assert file.parent == SOURCE / "_math" / "c"
    for name in re.findall(r'#include "([^"]+)"', file.read_text(encoding="utf-8")):
        assert (file.parent / name).exists()


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", "from fastrace.races.racing import race\nimport numpy.random", {"races.racing"}),
        ("a.py", "def late():\n    from fastrace.races import sampling, racing", {"races.sampling", "races.racing"}),
        ("a.py", "import fastrace as fr", {"__init__"}),
        ("a.py", "from fastrace import race, bounds", {"__init__", "bounds.__init__"}),
        ("a.py", "from fastrace.mcmc import GLM", {"mcmc.__init__"}),
        ("a.pyx", "from fastrace._math._bounds cimport normal, hoeffding\ncimport numpy as cnp", {"_math._bounds"}),
        ("a.pyx", "from fastrace._draws cimport _rng\nfrom libc.math cimport log", {"_draws._rng"}),
        ("a.pyx", "    from fastrace.races.racing import (race,\n        FiniteRace)", {"races.racing"}),
        ("a.pxd", "cimport fastrace.sources as s", {"sources"}),
        ("a.pyx", 'cdef extern from "_glm.h" nogil:', {"_math.__init__"}),
    ],
)
def test_the_reader_of_imports_sees_each_form(tmp_path, name, text, found):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert imports(file) == found


def test_the_build_names_every_file():
    """Room by room, as `meson.build` lists them."""
    build = re.sub(r"#.*", "", (SOURCE / "meson.build").read_text(encoding="utf-8"))
    named = set()
    for table, suffix in (("compiled", ".pyx"), ("plain", "")):
        body = re.search(rf"^{table} = \{{(.*?)^\}}", build, re.M | re.S).group(1)
        for room, names in re.findall(r"'([\w/]*)': \[(.*?)\]", body, re.S):
            named |= {f"{room}/{name}{suffix}".lstrip("/") for name in re.findall(r"'([\w.]+)'", names)}
    named |= set(re.findall(r"'(_math/c/\w+\.c)'", build))
    present = {str(file.relative_to(SOURCE)) for file in files(".py", ".pyi", ".pxd", ".pyx", ".c", ".typed")}
    present |= {"py.typed"}
    assert present - named == set(), "in the folder, not in meson.build: these would not be installed"
    assert named - present == set(), "in meson.build, not in the folder"


def test_the_top_folder_holds_what_users_name():
    assert len([path for path in SOURCE.iterdir() if path.is_file()]) <= 25


@pytest.mark.parametrize("room", sorted({file.parent for file in files(".py")} - {SOURCE}), ids=name_of)
def test_every_room_says_what_it_holds(room):
    text = (room / "__init__.py").read_text(encoding="utf-8")
    assert len((ast.get_docstring(ast.parse(text)) or "").split()) >= 10


def test_stubs_are_those_of_public_modules_and_of_classes_that_others_inherit_from():
    """Type checkers of users need these, and no others."""
    public = {name_of(file) for file in files(".pyx") if not file.stem.startswith("_")}
    stubs = {name_of(file): file.read_text(encoding="utf-8") for file in files(".pyi")}
    assert public <= stubs.keys() <= IN_C
    texts = {name_of(file): file.read_text(encoding="utf-8") for file in files(".py", ".pyi")}
    bases = {base.split(".")[-1] for text in texts.values() for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.ClassDef) for base in map(ast.unparse, node.bases)}
    for name in stubs.keys() - public:
        classes = {node.name for node in ast.parse(stubs[name]).body if isinstance(node, ast.ClassDef)}
        assert classes & bases, f"{name} has a stub, and no class inherits from {sorted(classes)}: it needs none"


def test_one_version_everywhere():
    places = {
        "pyproject.toml": r'^version = "([^"]+)"',
        "meson.build": r"version: '([^']+)'",
        "CITATION.cff": r"^version: (\S+)",
        "src/fastrace/__init__.py": r'^__version__ = "([^"]+)"',
    }
    stated = {name: re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M).group(1)
              for name, pattern in places.items()}
    assert len(set(stated.values())) == 1, stated


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("nm"), reason="needs nm, of Linux")
@pytest.mark.parametrize("module", [name_of(file) for file in files(".pyx")])
def test_modules_export_their_initialiser_alone(module):
    """What they link, such as NumPy's random_*, must not answer to other libraries of the process."""
    if module.startswith("mcmc.doors.jax."):
        pytest.importorskip("jax", reason="the room is imported on the way to the file")
    library = importlib.util.find_spec(f"fastrace.{module}").origin
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in listed.splitlines() if not line.split()[-1].startswith("__asan")}
    assert exported == {f"PyInit_{module.split('.')[-1]}"}


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "reference").glob("*.py")), ids=lambda path: path.stem)
def test_twins_do_not_use_the_package(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] == "fastrace" for name in names)
