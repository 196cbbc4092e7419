"""Errors that begin with the class or function that the user called, whichever of ours raised them."""

import contextlib
import contextvars
import functools
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_caller: contextvars.ContextVar[str] = contextvars.ContextVar("_caller", default="")
_face: contextvars.ContextVar[str] = contextvars.ContextVar("_face", default="")


@contextlib.contextmanager
def options_of(caller: str) -> Iterator[None]:
    """Let errors about options begin with the class or function that the user called: the outermost of these."""
    if _caller.get():
        yield
        return
    caller = _face.get() or caller
    token = _caller.set(caller)
    try:
        yield
    except (TypeError, ValueError) as error:
        # Functions of users raise classes of their own. Python names a class itself where its arguments do not fit.
        if type(error) in (TypeError, ValueError) and len(error.args) == 1 and isinstance(error.args[0], str):
            if not error.args[0].startswith((f"{caller}.", f"{caller}()")):
                error.args = (f"{caller}: {without_class(error.args[0])}",)
        raise
    finally:
        _caller.reset(token)


def without_class(text: str) -> str:
    """What Python says of an argument that a class does not have, without the class, which the user did not call."""
    return re.sub(r"^[\w.]+\.__init__\(\) got an (?=unexpected keyword argument )", "", text)


@contextlib.contextmanager
def called_by(face: str) -> Iterator[None]:
    """Let `options_of` name this class or function in what is called inside; other errors stay as they are."""
    token = _face.set(face)
    try:
        yield
    finally:
        _face.reset(token)


def names_caller(build: Callable[P, T]) -> Callable[P, T]:
    """Decorate an ``__init__``: its errors begin with the class that the user called."""

    @functools.wraps(build)
    def named(*args: P.args, **options: P.kwargs) -> T:
        with options_of(type(args[0]).__name__):
            return build(*args, **options)

    return named


def own_init(cls: Any) -> None:
    """Give a class its own copy of an inherited ``__init__``: Python's errors about arguments then name this class."""
    found = cls.__init__
    if "__init__" in vars(cls) or not isinstance(found, types.FunctionType):
        return
    init = types.FunctionType(found.__code__, found.__globals__, "__init__", found.__defaults__, found.__closure__)
    init.__kwdefaults__, init.__annotations__ = found.__kwdefaults__, found.__annotations__
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init


class OwnInit:
    """A class whose subclasses go by their own names in Python's errors about arguments."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own_init(cls)
