"""What DescribeAcls, CreateAcls and DeleteAcls share: who may, and what a client is told of a change that failed."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.broker.context import ApiRequest, BrokerContext, M
from sparklog.broker.handling.authorization import check
from sparklog.broker.security.acls import Acls
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.security.access import Operation
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import ResourcePattern

Change = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]


def lists_for(broker: BrokerContext, request: ApiRequest[M], operation: Operation) -> Acls:
    """The broker's lists, for a caller that may do this with the cluster. Raises ApiError."""
    check(broker, request, operation)
    if broker.acls is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured on the broker (authorizer.class.name)")
    return broker.acls


async def changed(acls: Acls, pattern: ResourcePattern, change: Change) -> frozenset[AclEntry]:
    """``Acls.change``. Raises ApiError, as a client is told it."""
    try:
        return await acls.change(pattern, change)
    except MalformedZnode as error:  # asking again does not help
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{error}; mend or delete it in ZooKeeper") from error
    except CoordinationError as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer the broker: {error}") from error
