"""What a quota is set for.

A user and a client id, a user, a client id, or an address; in place of each name there may be the default, which is for
everybody without a quota of his own.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple


class Default(Enum):
    """In place of a name."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
Name = str | Literal[Default.DEFAULT]


class Entity(NamedTuple):
    """What quotas of bytes, time and changes are for; one of the two is given at least."""

    user: Name | None = None
    client_id: Name | None = None


class IpEntity(NamedTuple):
    """What the rate of new connections is for."""

    ip: Name
