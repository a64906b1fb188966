"""DescribeAcls: the entries of access control lists that a filter finds, as they are in force on this broker."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.acl_requests import lists_for
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.acls import read_filter
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeAclsRequest, DescribeAclsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.security.acl.binding import AclFilter, AclLists
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import ResourcePattern

API = ApiKey.DESCRIBE_ACLS
VERSIONS = range(0, 4)
_Resource = DescribeAclsResponse.DescribeAclsResource


def handle(broker: BrokerContext, request: ApiRequest[DescribeAclsRequest]) -> Steps[DescribeAclsResponse]:
    try:
        lists = lists_for(broker, request, Operation.DESCRIBE).snapshot.lists
        filter_ = read_filter(request.message)
    except ApiError as error:
        yield from ()
        return DescribeAclsResponse(throttle_time_ms=0, error_code=error.code, error_message=error.reason, resources=[])
    found = [] if filter_ is None else (yield from _found(lists, filter_))
    return DescribeAclsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", resources=found)


def _found(lists: AclLists, filter_: AclFilter) -> Steps[list[_Resource]]:
    found = []
    for pattern, entries in lists.items():
        yield
        if filter_.matches_pattern(pattern):
            chosen = [each for each in entries if filter_.matches_entry(each)]
            if chosen:
                found.append((yield from _described(pattern, chosen)))
    return found


def _described(pattern: ResourcePattern, entries: list[AclEntry]) -> Steps[_Resource]:
    return _Resource(
        resource_type=pattern.kind,
        resource_name=pattern.name,
        pattern_type=pattern.type,
        acls=(yield from each_of(_entry, sorted(entries))),
    )


def _entry(each: AclEntry) -> _Resource.AclDescription:
    return _Resource.AclDescription(
        principal=each.principal, host=each.host, operation=each.operation, permission_type=each.permission
    )
