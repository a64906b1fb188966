"""Access control lists as requests and answers have them: numbers for types, operations and permissions.

Numbers that are none of ours are those of a newer Kafka: a filter with one of them finds nothing, and no entry is made
with it.
"""

from __future__ import annotations

from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from sparklog.security.access import ResourceType
from sparklog.security.acl.binding import AclBinding, AclFilter
from sparklog.security.acl.entry import AclEntry, Permission, operation_by_number
from sparklog.security.acl.pattern import SPECIFIC, PatternType, ResourcePattern

_UNKNOWN, _ANY = 0, 1
WireFilter = DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter


def read_filter(asked: WireFilter) -> AclFilter | None:
    """None where it finds nothing. Raises ApiError for numbers that Kafka's clients keep for what they do not know."""
    kind, operation, permission = asked.resource_type_filter, asked.operation, asked.permission_type
    if _UNKNOWN in (kind, asked.pattern_type_filter, operation, permission):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a filter has an unknown type, operation or permission")
    try:
        return AclFilter(
            None if kind == _ANY else ResourceType(kind),
            asked.resource_name_filter,
            PatternType(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            None if operation == _ANY else operation_by_number(operation),
            None if permission == _ANY else Permission(permission),
        )
    except ValueError:
        return None


def read_binding(asked: CreateAclsRequest.AclCreation) -> AclBinding:
    """Raises ApiError for numbers that are not those of one type, operation or permission."""
    try:
        type_ = PatternType(asked.resource_pattern_type)
        if type_ not in SPECIFIC:
            raise ValueError(f"{type_.name} is for filters")
        return AclBinding(
            ResourcePattern(ResourceType(asked.resource_type), asked.resource_name, type_),
            AclEntry(
                asked.principal,
                asked.host,
                operation_by_number(asked.operation),
                Permission(asked.permission_type),
            ),
        )
    except ValueError as error:
        reason = f"an entry is of one type, operation and permission: {error}"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason) from error


def wire_number(member: int | None) -> int:
    """The number of a filter's field, of which None is any."""
    return _ANY if member is None else int(member)
