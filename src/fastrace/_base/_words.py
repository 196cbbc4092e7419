"""Words that every printed answer shares."""


def counted(number: float, noun: str, spec: str = "") -> str:
    """The number, formatted by `spec`, with its noun: in the plural unless it reads as 1."""
    text = f"{number:{spec}}"
    return f"{text} {noun}" if text == "1" else f"{text} {noun}s"


def ending(stopped_by: str) -> str:
    """How a run ended, in words."""
    return f"stopped by {stopped_by}" if stopped_by else "still running"
