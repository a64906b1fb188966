"""What handlers share when they ask whether the caller may (``AuthHelper.scala``).

Invariants:

- A handler asks before it looks up, changes or tells what a request names. The name of a topic that is given by its id
  is looked up first, for ids are no secret.
- Each thing is asked for once in a request, however many partitions of it are named.
- What is refused tells nothing of the thing, not even whether it is there.
- What a listing leaves out is asked for quietly: nobody tried to get at it.

Which API asks for what: the table in ``docs/security.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.permissions import ON_CLUSTER, ON_GROUP, ON_TOPIC, Allowed
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import CLUSTER, AllowEverything, Operation, Resource, ResourceType

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_NOT_ASKED: Final = -(1 << 31)
_POSSIBLE = {ResourceType.TOPIC: ON_TOPIC, ResourceType.GROUP: ON_GROUP, ResourceType.CLUSTER: ON_CLUSTER}


def is_open(broker: BrokerContext) -> bool:
    """Whether everybody may do everything, so that there is nothing to ask."""
    return isinstance(broker.authorizer, AllowEverything)


def refusal(
    broker: BrokerContext, request: ApiRequest[Any], operation: Operation, resource: Resource = CLUSTER
) -> ErrorCode:
    """What a request is answered with that needs this; NONE if the caller may."""
    allowed = broker.authorizer.allows(request.caller, operation, resource)
    return ErrorCode.NONE if allowed else REFUSALS[resource.kind]


def check(broker: BrokerContext, request: ApiRequest[Any], operation: Operation, resource: Resource = CLUSTER) -> None:
    """Raises ApiError with the code of ``refusal`` if the caller may not."""
    code = refusal(broker, request, operation, resource)
    if code is not ErrorCode.NONE:
        raise ApiError(code, _why(request, operation, resource))


def _why(request: ApiRequest[Any], operation: Operation, resource: Resource) -> str:
    kind = resource.kind.name.lower().replace("_", " ")
    return f"{request.caller.principal} needs {operation.name} on {kind} {resource.name!r}"


class Rights:
    """The things of one kind, topics as a rule, with which a request's caller may do something."""

    __slots__ = ("_ask", "_kind", "_known", "_operation", "_request")

    def __init__(
        self,
        broker: BrokerContext,
        request: ApiRequest[Any],
        operation: Operation,
        kind: ResourceType = ResourceType.TOPIC,
        *,
        quietly: bool = False,
    ) -> None:
        """``quietly``: the caller has named none of them."""
        self._ask = broker.authorizer.allows_quietly if quietly else broker.authorizer.allows
        self._request = request
        self._operation = operation
        self._kind = kind
        self._known: dict[str, bool] = {}

    def allows(self, name: str) -> bool:
        """Whether the caller may with this one."""
        allowed = self._known.get(name)
        if allowed is None:
            allowed = self._ask(self._request.caller, self._operation, Resource(self._kind, name))
            self._known[name] = allowed
        return allowed

    def check(self, name: str) -> None:
        """Raises ApiError with the code of the kind if the caller may not."""
        if not self.allows(name):
            raise ApiError(REFUSALS[self._kind], _why(self._request, self._operation, Resource(self._kind, name)))


def creation_rights(broker: BrokerContext, request: ApiRequest[Any]) -> Callable[[str], bool]:
    """Says of a topic's name whether the caller may create it: on the cluster a right to create is one for all."""
    if broker.authorizer.allows_quietly(request.caller, Operation.CREATE, CLUSTER):
        return lambda _: True
    return Rights(broker, request, Operation.CREATE).allows


class Described:
    """Of which topics the caller may hear: of those that it names, all or none; else of those that it may describe."""

    def __init__(self, broker: BrokerContext, request: ApiRequest[Any], named: Collection[str] | None) -> None:
        """``named``: None where all are asked for."""
        self._named = None if named is None else frozenset(named)
        self._rights = Rights(broker, request, Operation.DESCRIBE, quietly=named is None)

    def check(self) -> Steps[None]:
        """In steps, since to ask takes some µs a topic. Raises ApiError(TOPIC_AUTHORIZATION_FAILED) for the first that
        is named and may not be described.
        """
        yield from each_of(self._rights.check, sorted(self._named or ()))

    def __contains__(self, topic: str) -> bool:
        return (self._named is None or topic in self._named) and self._rights.allows(topic)


def authorized_operations(
    broker: BrokerContext, request: ApiRequest[Any], resource: Resource, *, asked: bool = True
) -> Allowed:
    """All that the caller may do with the resource: an empty set if that is nothing, None if it did not ask."""
    if not asked:
        return None
    possible = _POSSIBLE[resource.kind]
    if is_open(broker):
        return possible
    allows = broker.authorizer.allows_quietly
    return frozenset(each for each in possible if allows(request.caller, each, resource))


def authorized_on_cluster(broker: BrokerContext, request: ApiRequest[Any], *, asked: bool) -> Allowed:
    """The same of the cluster, of which it is told to those alone that may describe it."""
    if asked and not broker.authorizer.allows(request.caller, Operation.DESCRIBE, CLUSTER):
        return frozenset()
    return authorized_operations(broker, request, CLUSTER, asked=asked)


def bits_of(allowed: Allowed) -> int:
    """The operations as the wire has them, for the messages whose schema says no more than that it is a number."""
    return _NOT_ASKED if allowed is None else sum(1 << each for each in allowed)
