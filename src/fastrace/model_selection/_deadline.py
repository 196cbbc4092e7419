"""Calls that are given up after some seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def within(limit: float, call: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether ``call()`` ended within `limit` seconds, and what it returned; what it raises is raised here.

    Python cannot kill a call: one that is given up goes on in a thread of its own until it ends.
    """
    box: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            box.append((call(), None))
        except BaseException as error:
            box.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit)
    if not box:
        return False, None
    answer, error = box[0]
    if error is not None:
        raise error
    return True, answer
