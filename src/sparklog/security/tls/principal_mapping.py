"""``ssl.principal.mapping.rules``: which user a certificate's name stands for (``SslPrincipalMapper.java``).

``RULE:pattern/replacement/[L|U]`` or ``DEFAULT``, parted by commas. The first rule whose pattern matches the whole name
decides. ``DEFAULT`` takes the name as it is. In a replacement ``$1`` is the first group, and a backslash takes the next
character as it is. L makes the result lower case, U upper case.

Patterns are Java's. Invariant: a pattern stands for what it does in Java, or is refused. So a dot is no end of a line,
letters and digits are those of ASCII, and classes within classes, which Python reads otherwise, are refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.principal import USER, Principal

_SETTING = "ssl.principal.mapping.rules"
_FORM = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_FORM})\s*(?:,\s*|$)")
_RULE = re.compile(_FORM)
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

Piece = str | int
"""Of a replacement: a text, or the number of a group."""


class _Rule(NamedTuple):
    """``pattern`` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: tuple[Piece, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        mapped = self.pattern.sub(self._expand, name)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(piece if isinstance(piece, str) else match[piece] or "" for piece in self.replacement)


class PrincipalMapping:
    """The rules of a listener."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Raises ConfigError for rules that cannot be."""
        self._rules = [rule for text in _split(rules) if (rule := _parse(text)) is not None]

    def principal(self, distinguished_name: str) -> Principal:
        """Raises AuthenticationFailed for a name to which no rule applies."""
        for rule in self._rules:
            mapped = rule.apply(distinguished_name)
            if mapped is not None:
                return Principal(USER, mapped)
        raise AuthenticationFailed(f"no rule of {_SETTING} applies to {distinguished_name}")


def _split(rules: str) -> Iterator[str]:
    return (match[1] for match in _SPLITTER.finditer(rules.strip()))


def _parse(text: str) -> _Rule | None:
    """None for an empty rule."""
    match = _RULE.match(text)
    if match is None or match.end() != len(text):
        raise ConfigError(
            f"{_SETTING}: {text!r} is no rule; write DEFAULT, or RULE:pattern/replacement/ and L, U or nothing"
        )
    if match[1] is not None:
        return _Rule(None)
    if match[2] is None:
        return None
    pattern = _compiled(match[2])
    return _Rule(pattern, tuple(_pieces(match[3], pattern)), match[4])


def _compiled(pattern: str) -> re.Pattern[str]:
    """Raises ConfigError for what is no pattern, and for what would not mean the same as in Java."""
    dot = "." if _DOTS_ARE_ALL.search(pattern) else _NO_END_OF_LINE
    try:
        written = _OF_JAVA.sub(lambda found: _as_in_python(found, dot), pattern)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(written, re.ASCII)
    except (ValueError, re.error, Warning) as error:
        raise ConfigError(f"{_SETTING}: {pattern!r} is no pattern that can be used here: {error}") from error


def _as_in_python(found: re.Match[str], dot: str) -> str:
    """A piece of a pattern; ``dot`` is what a dot stands for."""
    if found["nested"]:
        raise ValueError("it has a class within a class")
    if found["dot"]:
        return dot
    return "(?P<" if found["name"] else found[0]


def _pieces(replacement: str, pattern: re.Pattern[str]) -> Iterator[Piece]:
    for piece in _PIECE.finditer(replacement):
        if piece["bad"] is not None or (piece["name"] and piece["name"] not in pattern.groupindex):
            raise ConfigError(f"{_SETTING}: {replacement!r} has a $ that stands for no group; write \\$ for a $")
        if piece["group"] is not None:
            yield from _reference(piece["group"], pattern.groups, replacement)
        elif piece["name"] is not None:
            yield pattern.groupindex[piece["name"]]
        else:
            yield piece["literal"] or piece["plain"]


def _reference(digits: str, groups: int, replacement: str) -> Iterator[Piece]:
    """As many digits as name a group; the others are text. One that names none is text, where there are groups."""
    for end in range(len(digits), 0, -1):
        number = int(digits[:end])
        if number <= groups:
            yield number
            yield digits[end:]
            return
    if groups == 0:
        raise ConfigError(f"{_SETTING}: {replacement!r} names a group, and its pattern has none")
    yield f"${digits}"
