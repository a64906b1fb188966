"""Access control lists: which entries there are, adding some, removing some."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from sparklog.client.admin.base import AdminBase, raise_error, raise_first
from sparklog.protocol.acls import wire_number
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from sparklog.security.access import ResourceType
from sparklog.security.acl.binding import AclBinding, AclFilter
from sparklog.security.acl.entry import AclEntry, Permission, operation_by_number
from sparklog.security.acl.pattern import PatternType, ResourcePattern


class AclAdmin(AdminBase):
    """Any broker answers. A change is in force on the broker that made it, and on the others moments later."""

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """The entries that are ``wanted``, sorted; by default all. They are those in force on the broker that answers.

        Raises ApiError: SECURITY_DISABLED where the brokers have no authorizer, CLUSTER_AUTHORIZATION_FAILED where the
        caller may not DESCRIBE the cluster.
        """
        answer = await self._session.any_broker_request(
            ApiKey.DESCRIBE_ACLS,
            lambda _: DescribeAclsRequest(**_fields(wanted or AclFilter())),
            check=lambda answer: raise_error(answer, "cannot describe access control lists"),
        )
        return sorted(
            _binding(found.resource_type, found.resource_name, found.pattern_type, each)
            for found in answer.resources
            for each in found.acls
        )

    async def create_acls(self, bindings: Collection[AclBinding]) -> None:
        """Add entries; one that is there already stays. Those of one list are added together.

        Raises ApiError, which names the first entry that was refused; the others are added. INVALID_REQUEST: it cannot
        be made; SECURITY_DISABLED and CLUSTER_AUTHORIZATION_FAILED (ALTER) as ``describe_acls``.
        """
        asked = list(bindings)
        creation = CreateAclsRequest.AclCreation
        creations = [
            creation(
                resource_type=pattern.kind,
                resource_name=pattern.name,
                resource_pattern_type=pattern.type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in asked
        ]

        def check(answer: CreateAclsResponse) -> None:
            for binding, each in zip(asked, answer.results, strict=True):
                raise_error(each, f"cannot add {binding}")

        await self._session.any_broker_request(
            ApiKey.CREATE_ACLS, lambda _: CreateAclsRequest(creations=creations), check=check
        )

    async def delete_acls(self, filters: Collection[AclFilter]) -> list[AclBinding]:
        """Remove the entries that any of the filters finds; these, sorted. ``AclFilter.of(binding)`` finds just one.

        Raises ApiError as ``create_acls``. An entry that was removed though the answer was lost is not among those
        that are returned.
        """
        asked = list(filters)

        def check(answer: DeleteAclsResponse) -> None:
            for each in answer.filter_results:
                raise_error(each, "cannot remove entries of access control lists")
                raise_first(each.matching_acls, lambda failed: f"cannot remove an entry of {failed.resource_name!r}")

        answer = await self._session.any_broker_request(
            ApiKey.DELETE_ACLS,
            lambda _: DeleteAclsRequest(
                filters=[DeleteAclsRequest.DeleteAclsFilter(**_fields(each)) for each in asked]
            ),
            check=check,
        )
        return sorted(
            _binding(each.resource_type, each.resource_name, each.pattern_type, each)
            for found in answer.filter_results
            for each in found.matching_acls
        )


class _WireFilter(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def _fields(filter_: AclFilter) -> _WireFilter:
    return {
        "resource_type_filter": wire_number(filter_.kind),
        "resource_name_filter": filter_.name,
        "pattern_type_filter": filter_.pattern_type,
        "principal_filter": filter_.principal,
        "host_filter": filter_.host,
        "operation": wire_number(filter_.operation),
        "permission_type": wire_number(filter_.permission),
    }


def _binding(
    kind: int,
    name: str,
    type_: int,
    each: DescribeAclsResponse.DescribeAclsResource.AclDescription
    | DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl,
) -> AclBinding:
    entry = AclEntry(each.principal, each.host, operation_by_number(each.operation), Permission(each.permission_type))
    return AclBinding(ResourcePattern(ResourceType(kind), name, PatternType(type_)), entry)
