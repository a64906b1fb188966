"""``sasl.kerberos.principal.to.local.rules``: which user a Kerberos principal stands for.

The rules are Kafka's (``KerberosShortNamer.java``, ``KerberosRule.java``), parted by commas; the first one that applies
decides. A principal is ``service@REALM`` or ``service/host@REALM``.

- ``DEFAULT`` takes the first component of a principal of the default realm.
- ``RULE:[n:format](match)s/from/to/g/L`` is for principals of n components. The format makes a text: ``$0`` is the
  realm, ``$1`` and ``$2`` the components. The text must match as a whole, where ``(match)`` is given. Then ``to``
  stands for the first ``from`` in it, with ``g`` for each. L makes the result lower case, U upper case. All but the
  brackets may be left out.

Invariant: a user's name has neither ``/`` nor ``@``. A rule that would make one is an error, and no later rule is
tried.

Stricter than Kafka: a pattern must mean the same in Java and here (``java_pattern``). A format or a replacement that
refers to what is not there is refused with the setting, not at the first login. A principal with an escaped character,
which could pass one component for two, stands for nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Self

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.java_pattern import Replacement, pattern_of

RULES_SETTING = "sasl.kerberos.principal.to.local.rules"
_NAME = re.compile(r"([^/@\\]*)(?:/([^/@\\]*))?@([^/@\\]*)")
_RULE = re.compile(
    r"DEFAULT|RULE:\[(?P<count>[0-9]+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_FORM = "write DEFAULT, or RULE:[n:format](match)s/from/to/g/L, of which all behind the brackets may be left out"
_PIECE = re.compile(r"\$([0-9]*)|([^$]+)")
_NOT_SIMPLE = re.compile(r"[/@]")


class KerberosName(NamedTuple):
    """A principal in its parts."""

    service: str
    host: str | None
    realm: str

    @classmethod
    def parse(cls, principal: str) -> Self:
        """Raises AuthenticationFailed for what is no principal of one or two components and a realm."""
        found = _NAME.fullmatch(principal)
        if found is None:
            raise AuthenticationFailed(f"{principal!r} is no name that a rule of {RULES_SETTING} can be for")
        return cls(found[1], found[2], found[3])

    def __str__(self) -> str:
        return f"{self.service}{'' if self.host is None else f'/{self.host}'}@{self.realm}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The realm and the components, as ``$0``, ``$1`` and ``$2`` name them."""
        return (self.realm, self.service) if self.host is None else (self.realm, self.service, self.host)


@dataclass(frozen=True)
class _Default:
    realm: str

    def apply(self, parts: tuple[str, ...]) -> str | None:
        return parts[1] if parts[0] == self.realm else None


@dataclass(frozen=True)
class _Rule:
    count: int
    format: tuple[str | int, ...]
    match: re.Pattern[str] | None
    sought: re.Pattern[str] | None
    replacement: Replacement | None
    is_for_all: bool
    case: str | None

    def apply(self, parts: tuple[str, ...]) -> str | None:
        if len(parts) - 1 != self.count:
            return None
        text = "".join(piece if isinstance(piece, str) else parts[piece] for piece in self.format)
        if self.match is not None and not self.match.fullmatch(text):
            return None
        if self.sought is not None and self.replacement is not None:
            text = self.sought.sub(self.replacement, text, count=0 if self.is_for_all else 1)
        return {"L": text.lower(), "U": text.upper()}.get(self.case or "", text)


class ShortNames:
    """The rules of a listener. ``default_realm`` is this machine's."""

    def __init__(self, default_realm: str, rules: str = "DEFAULT") -> None:
        """Raises ConfigError for rules that cannot be."""
        texts = [each.strip() for each in rules.split(",")] if rules.strip() else []
        self._rules = [_parsed(text, default_realm) for text in texts]

    def __call__(self, principal: str) -> str:
        """The user's name. Raises AuthenticationFailed for a principal that stands for nobody."""
        name = KerberosName.parse(principal)
        for rule in self._rules:
            user = rule.apply(name.parts)
            if user is None:
                continue
            if _NOT_SIMPLE.search(user):
                raise AuthenticationFailed(f"{RULES_SETTING}: a rule makes {user!r} of {name}, which is no user's name")
            return user
        raise AuthenticationFailed(f"no rule of {RULES_SETTING} applies to {name}")


def _parsed(text: str, default_realm: str) -> _Default | _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{RULES_SETTING}: {text!r} is no rule; {_FORM}")
    if found["count"] is None:
        return _Default(default_realm)
    count = int(found["count"])
    sought = None if found["from"] is None else pattern_of(found["from"], RULES_SETTING)
    return _Rule(
        count,
        tuple(_pieces(found["format"], count)),
        None if found["match"] is None else pattern_of(found["match"], RULES_SETTING),
        sought,
        None if sought is None else Replacement(found["to"], sought, RULES_SETTING),
        found["all"] is not None,
        found["case"],
    )


def _pieces(text: str, count: int) -> list[str | int]:
    """Of a format: texts, and the numbers of parts of a principal."""
    pieces: list[str | int] = []
    for number, plain in _PIECE.findall(text):
        if plain:
            pieces.append(plain)
        elif number and int(number) <= count:
            pieces.append(int(number))
        else:
            raise ConfigError(f"{RULES_SETTING}: ${number} in [{count}:{text}] is none of $0 to ${count}")
    return pieces
