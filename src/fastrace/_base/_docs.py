"""Paragraphs that several docstrings share, so that each stands once and every page is complete."""

import re
from collections.abc import Mapping
from textwrap import indent


def filled(page: str | None, texts: Mapping[str, str]) -> str | None:
    """A docstring, each line of which that holds nothing but a name in braces gives way to the text of that name."""
    if page is None:                        # python -OO drops docstrings
        return None
    return re.sub(r"^( *)\{([\w ]+)\}$", lambda line: indent(texts[line[2]], line[1]), page, flags=re.M)
