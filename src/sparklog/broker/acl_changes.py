"""What CreateAcls and DeleteAcls share: who may, and changes list by list, each told of in the audit log."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.broker.acls import Acls
from sparklog.broker.context import ApiRequest, BrokerContext, M
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.security.access import CLUSTER, Operation
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import ResourcePattern

Change = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]


def changeable(broker: BrokerContext, request: ApiRequest[M]) -> Acls:
    """The broker's lists. Raises ApiError where the caller may not change them, or where there are none."""
    if not broker.authorizer.allows(request.caller, Operation.ALTER, CLUSTER):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not ALTER the cluster")
    if broker.acls is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured on the broker (authorizer.class.name)")
    return broker.acls


async def changed(acls: Acls, pattern: ResourcePattern, change: Change) -> frozenset[AclEntry]:
    """``Acls.change``, with the errors that a client is told."""
    try:
        return await acls.change(pattern, change)
    except MalformedZnode as error:  # asking again does not help
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{error}; mend or delete it in ZooKeeper") from error
    except CoordinationError as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer the broker: {error}") from error
