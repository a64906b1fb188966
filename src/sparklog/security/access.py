"""What can be done, with what, and the question whether somebody may (``AclOperation.java``, ``ResourceType.java``).

The numbers are those of the wire and of the znodes. ``acl/snapshot.py`` says which operation is allowed with another;
what each request needs stands in ``docs/security.md``, what each command needs in ``cli/rights.py``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from sparklog.security.caller import Caller


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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """The kinds of things."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Resource(NamedTuple):
    """One thing, by kind and name."""

    kind: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""The only cluster there is, by the name that Kafka gives it."""


_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
OPERATIONS_ON: Final[dict[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
            *(Operation.DESCRIBE, *_CONFIGS),
        }
    ),
    ResourceType.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE}),
    ResourceType.CLUSTER: frozenset(
        {
            *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
            *(Operation.IDEMPOTENT_WRITE, *_CONFIGS),
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.DESCRIBE, Operation.WRITE}),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}
"""What can be done with a thing of each type (``AclEntry.supportedOperations``)."""


class Authorizer(Protocol):
    """Says what somebody may do. It answers from memory: it may be asked for each topic of each request."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether the caller may; a refusal goes into the audit log."""

    def allows_quietly(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """``allows`` where a refusal is no attempt that somebody should hear of: what a listing leaves out."""

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a thing of this kind with which the caller may (KIP-679)."""


class AllowEverything:
    """Where no authorizer is configured."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:  # noqa: ARG002
        return True

    allows_quietly = allows

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:  # noqa: ARG002
        return True
