"""One line of a list: who, from where, what, and whether they may (``AccessControlEntry.java``)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from sparklog.security.access import Operation
from sparklog.security.principal import EVERYBODY

ANY_HOST: Final = "*"


class Permission(IntEnum):
    """What an entry says. A denial counts before any number of grants."""

    DENY = 2
    ALLOW = 3


class Every(IntEnum):
    """``ALL`` in an entry is every operation that there is."""

    ALL = 2


ALL: Final = Every.ALL
AclOperation: TypeAlias = Operation | Every


def operation_by_number(number: int) -> AclOperation:
    """The operation by its number on the wire. Raises ValueError for any other, that of "any operation" among them."""
    return ALL if number == ALL else Operation(number)


class AclEntry(NamedTuple):
    """``principal`` is a text such as ``User:alice`` (``User:*``: everybody), ``host`` an address (``*``: all)."""

    principal: str
    host: str = ANY_HOST
    operation: AclOperation = ALL
    permission: Permission = Permission.ALLOW

    def __str__(self) -> str:
        verb = "may" if self.permission is Permission.ALLOW else "may not"
        return f"{self.principal} {verb} {self.operation.name} from {self.host}"


DENY_EVERYBODY: Final = AclEntry(str(EVERYBODY), ANY_HOST, ALL, Permission.DENY)
