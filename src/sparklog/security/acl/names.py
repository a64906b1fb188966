"""What Kafka calls types, operations and permissions where people and znodes read them (``SecurityUtils.java``)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.entry import ALL, AclOperation, Permission

E = TypeVar("E", bound=IntEnum)


def pascal_case(member: IntEnum) -> str:
    """``TRANSACTIONAL_ID`` is ``TransactionalId``."""
    return "".join(word.capitalize() for word in member.name.split("_"))


def _by_name(members: Iterable[E]) -> dict[str, E]:
    return {pascal_case(each).upper(): each for each in members}


OPERATIONS: Final[dict[str, AclOperation]] = {**_by_name(Operation), **_by_name((ALL,))}
RESOURCE_TYPES: Final = _by_name(ResourceType)
PERMISSIONS: Final = _by_name(Permission)
"""Names in capitals and without underscores, as Kafka looks them up whatever their case."""
