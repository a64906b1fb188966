"""Quotas of users, client ids and addresses: what is set, and changing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklog.client.admin.base import AdminBase
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
)
from sparklog.quota.entity import DEFAULT, Entity, IpEntity, Name
from sparklog.quota.requests import CLIENT_ID, IP, USER, Match, entity_of, parts_of

ANY: Final = Match.ANY
"""In place of a name: whatever it is."""
Wanted = Name | Match
_Component = DescribeClientQuotasRequest.ComponentData
_Altered = AlterClientQuotasRequest.EntryData


class ClientQuota(NamedTuple):
    """What is set for one entity: numbers by the names of quotas (``quota.keys``)."""

    entity: Entity | IpEntity
    quotas: dict[str, float]


class QuotaAdmin(AdminBase):
    """Any broker knows them."""

    async def describe_client_quotas(
        self,
        *,
        user: Wanted | None = None,
        client_id: Wanted | None = None,
        ip: Wanted | None = None,
        strict: bool = False,
    ) -> list[ClientQuota]:
        """The quotas that are set for these, each a name, ``DEFAULT`` or ``ANY``; all where nothing is said.

        ``strict``: not for those that have another part besides.
        """
        wanted = ((USER, user), (CLIENT_ID, client_id), (IP, ip))
        components = [_component(kind, each) for kind, each in wanted if each is not None]
        answer = await self._session.any_broker_request(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            lambda _: DescribeClientQuotasRequest(components=components, strict=strict),
        )
        found = (
            ClientQuota(
                entity_of((part.entity_type, part.entity_name) for part in entry.entity),
                {each.key: each.value for each in entry.values},
            )
            for entry in answer.entries or ()
        )
        return sorted(found, key=lambda each: [(kind, _told(name) or "") for kind, name in parts_of(each.entity)])

    async def alter_client_quotas(
        self, changes: Mapping[Entity | IpEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set these quotas, and take away those that are None; the others stay.

        Raises the first refusal; an entity that is refused keeps no other from being changed.
        """
        entries = [_altered(entity, quotas) for entity, quotas in changes.items()]
        await self._session.any_broker_request(
            ApiKey.ALTER_CLIENT_QUOTAS,
            lambda _: AlterClientQuotasRequest(entries=entries, validate_only=validate_only),
            check=_raise_first,
        )


def _component(kind: str, wanted: Wanted) -> _Component:
    if isinstance(wanted, Match):
        return _Component(entity_type=kind, match_type=wanted, match=None)
    if wanted is DEFAULT:
        return _Component(entity_type=kind, match_type=Match.DEFAULT, match=None)
    return _Component(entity_type=kind, match_type=Match.EXACT, match=wanted)


def _altered(entity: Entity | IpEntity, quotas: Mapping[str, float | None]) -> _Altered:
    return _Altered(
        entity=[_Altered.EntityData(entity_type=kind, entity_name=_told(name)) for kind, name in parts_of(entity)],
        ops=[
            _Altered.OpData(key=name, value=0.0 if value is None else value, remove=value is None)
            for name, value in quotas.items()
        ],
    )


def _told(name: Name) -> str | None:
    return None if name is DEFAULT else name


def _raise_first(answer: AlterClientQuotasResponse) -> None:
    for entry in answer.entries:
        if entry.error_code != ErrorCode.NONE:
            code = ErrorCode(entry.error_code)
            named = ", ".join(f"{part.entity_type} {part.entity_name or '(default)'}" for part in entry.entity)
            raise ApiError(code, f"cannot change the quotas of {named}: {entry.error_message or code.name}")
