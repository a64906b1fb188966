"""What a client that asks may do, as answers tell it: without security, all that can be done with such a thing.

Source: Kafka 3.9, ``AclOperation``, ``AclEntry`` and ``AuthHelper.authorizedOperations``.
"""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """What can be done with a thing. On the wire a set of them is a bit field, bit ``n`` for operation ``n``."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
ON_TOPIC = frozenset(
    {
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        *_CONFIGS,
    }
)
ON_GROUP = frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE})
ON_CLUSTER = frozenset(
    {
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE),
        *_CONFIGS,
    }
)


Allowed = frozenset[Operation] | None


def authorized_operations(asked: bool, possible: frozenset[Operation]) -> Allowed:
    """All that is possible; None, which is another thing than nothing, for a client that did not ask."""
    return possible if asked else None
