"""A public name says which class it is."""

import collections
import importlib
import inspect
import pkgutil

import catalogue
import fastrace as fr


def classes_of_doors():
    """Public classes of the rooms for other libraries, as far as these are installed."""
    found = {}
    for module in pkgutil.walk_packages(fr.__path__, "fastrace."):
        if f".{catalogue.DOORS}." not in module.name or module.name.rpartition(".")[2].startswith("_"):
            continue
        try:
            room = importlib.import_module(module.name)
            values = {name: getattr(room, name) for name in getattr(room, "__all__", ())}    # some are imported now
        except ImportError:
            continue
        found |= {f"{module.name}.{name}": value for name, value in values.items() if inspect.isclass(value)}
    return found


def test_no_two_public_classes_have_one_name():
    by_name = collections.defaultdict(set)
    for cls in {*catalogue.public_classes().values(), *classes_of_doors().values()}:
        by_name[cls.__name__].add(f"{cls.__module__}.{cls.__qualname__}")
    assert not {name: sorted(found) for name, found in by_name.items() if len(found) > 1}
