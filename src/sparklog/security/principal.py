"""Principals, by the names that Kafka's access control lists have (``KafkaPrincipal.java``)."""

from __future__ import annotations

from typing import NamedTuple, Self

from sparklog.errors import ConfigError

USER = "User"


class Principal(NamedTuple):
    """A kind, which is ``User`` unless a principal builder says otherwise, and a name. Written ``User:alice``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``User:alice``; the name may have colons. Raises ConfigError for what has no kind or no name."""
        kind, separator, name = text.partition(":")
        if not separator or not kind or not name:
            raise ConfigError(f"{text!r} is no principal; write it as User:NAME")
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Everybody on a listener that asks for no credentials."""
EVERYBODY = Principal(USER, "*")
"""Of an entry in an access control list: whoever asks."""


def parse_super_users(text: str) -> frozenset[Principal]:
    """Those of ``super.users``, which are separated by semicolons, for names of certificates have commas.

    Raises ConfigError.
    """
    try:
        return frozenset(Principal.parse(each.strip()) for each in text.split(";") if each.strip())
    except ConfigError as error:
        raise ConfigError(f"super.users: {error}; between two of them stands a semicolon") from error
