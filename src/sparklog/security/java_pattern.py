"""Patterns of Java and what replaces their matches, as settings of Kafka's have them.

Invariant: a pattern stands for what it does in Java, or is refused. So a dot is no end of a line, letters and digits
are those of ASCII, and classes within classes, which Python reads otherwise, are refused.

In a replacement ``$1`` is the first group, ``${name}`` one with a name, and a backslash takes the next character as it
is. A setting is its operator's own: a pattern that takes long is not looked for.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from sparklog.errors import ConfigError

_PIECE = re.compile(
    r"\\(?P<literal>.)|\$(?P<group>[0-9]+)|\$\{(?P<name>\w+)\}|(?P<bad>[\\$])|(?P<plain>[^\\$]+)", re.DOTALL
)
_OF_JAVA = re.compile(
    r"\\.|(?P<nested>\[\^?\]?(?:\\.|[^\]\\[])*\[)|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<dot>\.)|(?P<name>\(\?<(?=[A-Za-z]))",
    re.DOTALL,
)
"""Of a pattern: an escape, a class, or what Python writes otherwise."""
_DOTS_ARE_ALL = re.compile(r"\(\?[a-z]*s")
_NO_END_OF_LINE = "[^\n\r\x85\u2028\u2029]"


def pattern_of(text: str, setting: str) -> re.Pattern[str]:
    """Raises ConfigError for what is no pattern, and for what would not mean the same as in Java."""
    dot = "." if _DOTS_ARE_ALL.search(text) else _NO_END_OF_LINE
    try:
        written = _OF_JAVA.sub(lambda found: _as_in_python(found, dot), text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(written, re.ASCII)
    except (ValueError, re.error, Warning) as error:
        raise ConfigError(f"{setting}: {text!r} is no pattern that can be used here: {error}") from error


def _as_in_python(found: re.Match[str], dot: str) -> str:
    """A piece of a pattern; ``dot`` is what a dot stands for."""
    if found["nested"]:
        raise ValueError("it has a class within a class")
    if found["dot"]:
        return dot
    return "(?P<" if found["name"] else found[0]


class Replacement:
    """What stands in the place of a match: called with it. Raises ConfigError for a text that cannot be one.

    ``keeps_unknown``: a number of no group is text, if the pattern has groups at all.
    """

    def __init__(self, text: str, pattern: re.Pattern[str], setting: str, *, keeps_unknown: bool = False) -> None:
        groups = pattern.groups
        self._pieces = tuple(_pieces(text, pattern, setting, keeps_unknown=keeps_unknown and groups > 0))

    def __call__(self, match: re.Match[str]) -> str:
        return "".join(piece if isinstance(piece, str) else match[piece] or "" for piece in self._pieces)


def _pieces(text: str, pattern: re.Pattern[str], setting: str, *, keeps_unknown: bool) -> Iterator[str | int]:
    """Texts, and the numbers of groups."""
    for piece in _PIECE.finditer(text):
        if piece["bad"] is not None or (piece["name"] and piece["name"] not in pattern.groupindex):
            raise ConfigError(f"{setting}: {text!r} has a $ that stands for no group; write \\$ for a $")
        if piece["group"] is not None:
            if int(piece["group"][0]) > pattern.groups and not keeps_unknown:
                raise ConfigError(f"{setting}: {text!r} names a group that its pattern does not have")
            yield from _reference(piece["group"], pattern.groups)
        elif piece["name"] is not None:
            yield pattern.groupindex[piece["name"]]
        else:
            yield piece["literal"] or piece["plain"]


def _reference(digits: str, groups: int) -> Iterator[str | int]:
    """As many digits as name a group; the others are text, and so are those that name none."""
    for end in range(len(digits), 0, -1):
        number = int(digits[:end])
        if number <= groups:
            yield number
            yield digits[end:]
            return
    yield f"${digits}"
