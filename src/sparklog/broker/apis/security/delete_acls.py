"""DeleteAcls: remove the entries of access control lists that filters find, and tell which these were.

An entry is told of by the first filter that finds it. A filter that names its list is asked of ZooKeeper; any other
finds the lists that are in force on this broker. Answered when the entries are gone from ZooKeeper, and in force no
more on this broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.acl_requests import changed, lists_for
from sparklog.broker.security.acls import Acls
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.tasks import to_its_end
from sparklog.net.turns import Turns
from sparklog.protocol.acls import read_filter
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteAclsRequest, DeleteAclsResponse
from sparklog.protocol.slices import Steps, each_in_steps, each_of
from sparklog.security.access import Operation
from sparklog.security.acl.binding import AclBinding, AclFilter
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import ResourcePattern
from sparklog.security.acl.znode import is_storable
from sparklog.security.caller import Caller

API = ApiKey.DELETE_ACLS
VERSIONS = range(0, 4)
_Result = DeleteAclsResponse.DeleteAclsFilterResult
_Asked = DeleteAclsRequest.DeleteAclsFilter


class _Outcome:
    """What became of one filter."""

    def __init__(self, asked: _Asked) -> None:
        self.filter: AclFilter | None = None
        self.error: ApiError | None = None
        self.deleted: list[AclBinding] = []
        try:
            self.filter = read_filter(asked)
        except ApiError as error:
            self.error = error


async def handle(broker: BrokerContext, request: ApiRequest[DeleteAclsRequest]) -> DeleteAclsResponse:
    outcomes = [_Outcome(each) async for each in broker.turns.paced(request.message.filters)]
    try:
        acls = lists_for(broker, request, Operation.ALTER)
        for pattern, finding in (await _targets(acls, broker.turns, outcomes)).items():
            await to_its_end(_delete(acls, broker.turns, request.caller, pattern, finding))
    except ApiError as error:
        for each in outcomes:
            each.error = error
    results = await broker.turns.drive(each_in_steps(_result, outcomes), lambda: "a DeleteAcls")
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


async def _targets(acls: Acls, turns: Turns, outcomes: Sequence[_Outcome]) -> dict[ResourcePattern, list[_Outcome]]:
    """The lists in which filters may find something, each with these filters in their order."""
    targets: dict[ResourcePattern, list[_Outcome]] = {}
    for outcome in outcomes:
        filter_ = outcome.filter
        if filter_ is None:
            continue
        for pattern in filter_.patterns:
            if is_storable(pattern.name):
                targets.setdefault(pattern, []).append(outcome)
        if not filter_.patterns:
            async for pattern, entries in turns.paced(acls.snapshot.lists.items()):
                if filter_.matches_pattern(pattern) and any(map(filter_.matches_entry, entries)):
                    targets.setdefault(pattern, []).append(outcome)
    return targets


async def _delete(
    acls: Acls, turns: Turns, caller: Caller, pattern: ResourcePattern, finding: Sequence[_Outcome]
) -> None:
    """What is removed is in the audit log, though the client has hung up."""
    found: dict[AclEntry, _Outcome] = {}

    def remaining(entries: frozenset[AclEntry]) -> frozenset[AclEntry]:
        found.clear()
        for entry in entries:
            for outcome in finding:
                if outcome.filter is not None and outcome.filter.matches_entry(entry):
                    found[entry] = outcome
                    break
        return entries - found.keys()

    try:
        await changed(acls, pattern, remaining)
    except ApiError as error:
        for outcome in finding:
            outcome.error = error
        return
    async for entry in turns.paced(sorted(found)):
        found[entry].deleted.append(AclBinding(pattern, entry))
        acls.audit.administered(caller, "removed", [AclBinding(pattern, entry)])


def _result(outcome: _Outcome) -> Steps[_Result]:
    error = outcome.error
    return _Result(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.reason,
        matching_acls=(yield from each_of(_matching, outcome.deleted)),
    )


def _matching(deleted: AclBinding) -> _Result.DeleteAclsMatchingAcl:
    pattern, entry = deleted
    return _Result.DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=pattern.kind,
        resource_name=pattern.name,
        pattern_type=pattern.type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
