"""Which entries may be made: what Kafka's broker refuses, and what it lets through and cannot store."""

from __future__ import annotations

from sparklog.security.access import CLUSTER, OPERATIONS_ON, ResourceType
from sparklog.security.acl.binding import AclBinding
from sparklog.security.acl.entry import ALL, AclOperation
from sparklog.security.acl.znode import checked_principal, is_storable


def complaint_about(binding: AclBinding) -> str | None:
    """Why the entry cannot be made; None if it can.

    An operation that its resource does not have is let through, as by Kafka's broker: it grants nothing. Tools that
    people use ask ``complaint_about_operation`` too.
    """
    kind, name, _ = binding.pattern
    if kind is ResourceType.CLUSTER and name != CLUSTER.name:
        return f"the only name of a CLUSTER is {CLUSTER.name}"
    if not is_storable(name):
        return f"{name!r} is no name of a resource that a list can be kept of" if name else "the name is empty"
    try:
        checked_principal(binding.entry.principal)
    except ValueError as error:
        return str(error)
    return None


def complaint_about_operation(kind: ResourceType, operation: AclOperation) -> str | None:
    """Why nothing would come of it; None if the resource has the operation."""
    possible = OPERATIONS_ON[kind]
    if operation is ALL or operation in possible:
        return None
    names = ", ".join(sorted(each.name for each in possible))
    return f"{operation.name} is no operation of a {kind.name}; there are {names}, ALL"
