"""``ssl.principal.mapping.rules``: which user a certificate's name stands for (``SslPrincipalMapper.java``).

``RULE:pattern/replacement/[L|U]`` or ``DEFAULT``, parted by commas. The first rule whose pattern matches the whole name
decides. ``DEFAULT`` takes the name as it is. In a replacement ``$1`` is the first group, and a backslash takes the next
character as it is. L makes the result lower case, U upper case. Patterns are Java's (``java_pattern``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.java_pattern import Replacement, pattern_of
from sparklog.security.principal import USER, Principal

_SETTING = "ssl.principal.mapping.rules"
_FORM = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_FORM})\s*(?:,\s*|$)")
_RULE = re.compile(_FORM)


class _Rule(NamedTuple):
    """``pattern`` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: Replacement | None = None
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None or self.replacement is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        mapped = self.pattern.sub(self.replacement, name)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


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
    pattern = pattern_of(match[2], _SETTING)
    return _Rule(pattern, Replacement(match[3], pattern, _SETTING, keeps_unknown=True), match[4])
