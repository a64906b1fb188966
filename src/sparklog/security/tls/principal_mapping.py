"""``ssl.principal.mapping.rules``: which user a certificate's name stands for (``SslPrincipalMapper.java``).

``RULE:pattern/replacement/[L|U]`` or ``DEFAULT``, parted by commas. The first rule whose pattern matches the whole name
decides. ``DEFAULT`` takes the name as it is. In a replacement ``$1`` is the first group, and a backslash takes the next
character as it is. L makes the result lower case, U upper case.
"""

from __future__ import annotations

import re
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
    try:
        pattern = re.compile(match[2])
    except re.error as error:
        raise ConfigError(f"{_SETTING}: {match[2]!r} is no pattern: {error}") from error
    return _Rule(pattern, tuple(_pieces(match[3], pattern)), match[4])


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
        if number <= groups and (end == 1 or not digits.startswith("0")):
            yield number
            yield digits[end:]
            return
    if groups == 0:
        raise ConfigError(f"{_SETTING}: {replacement!r} names a group, and its pattern has none")
    yield f"${digits}"
