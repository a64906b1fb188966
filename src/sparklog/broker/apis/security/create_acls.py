"""CreateAcls: add entries to access control lists; answered when they are in ZooKeeper, and in force on this broker.

All entries of one list are added together. Those of a list that cannot be changed are refused, and the others are
added.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.acl_requests import changed, lists_for
from sparklog.broker.security.acls import Acls
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.tasks import to_its_end
from sparklog.net.turns import Turns
from sparklog.protocol.acls import read_binding
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreateAclsRequest, CreateAclsResponse
from sparklog.security.access import Operation
from sparklog.security.acl.binding import AclBinding
from sparklog.security.acl.checking import complaint_about
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import ResourcePattern
from sparklog.security.caller import Caller

API = ApiKey.CREATE_ACLS
VERSIONS = range(0, 4)
_Result = CreateAclsResponse.AclCreationResult
Answers = list[AclBinding | ApiError | None]
"""What is known of each entry of the request, in its order; None: it is added."""


async def handle(broker: BrokerContext, request: ApiRequest[CreateAclsRequest]) -> CreateAclsResponse:
    try:
        acls = lists_for(broker, request, Operation.ALTER)
        answers: Answers = [_checked(each) async for each in broker.turns.paced(request.message.creations)]
        await _add(acls, broker.turns, request.caller, answers)
    except ApiError as error:
        answers = [error] * len(request.message.creations)
    return CreateAclsResponse(throttle_time_ms=0, results=[_result(each) async for each in broker.turns.paced(answers)])


def _checked(asked: CreateAclsRequest.AclCreation) -> AclBinding | ApiError:
    try:
        binding = read_binding(asked)
    except ApiError as error:
        return error
    complaint = complaint_about(binding)
    return binding if complaint is None else ApiError(ErrorCode.INVALID_REQUEST, complaint)


async def _add(acls: Acls, turns: Turns, caller: Caller, answers: Answers) -> None:
    """Add what was found good, list by list, and put what became of it in its place."""
    places: dict[ResourcePattern, list[int]] = {}
    async for place, each in turns.paced(enumerate(answers)):
        if isinstance(each, AclBinding):
            places.setdefault(each.pattern, []).append(place)
    for pattern, own in places.items():
        entries = frozenset(each.entry for each in map(answers.__getitem__, own) if isinstance(each, AclBinding))
        outcome = await to_its_end(_add_to(acls, turns, caller, pattern, entries))
        for place in own:
            answers[place] = outcome


async def _add_to(
    acls: Acls, turns: Turns, caller: Caller, pattern: ResourcePattern, entries: frozenset[AclEntry]
) -> ApiError | None:
    """Why they could not be added. What was is in the audit log, though the client has hung up."""
    try:
        before = await changed(acls, pattern, entries.union)
    except ApiError as error:
        return error
    async for added in turns.paced(sorted(entries - before)):
        acls.audit.administered(caller, "added", [AclBinding(pattern, added)])
    return None


def _result(answer: AclBinding | ApiError | None) -> _Result:
    if isinstance(answer, ApiError):
        return _Result(error_code=answer.code, error_message=answer.reason)
    return _Result(error_code=ErrorCode.NONE, error_message="")
