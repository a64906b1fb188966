"""What clients may do, and how much: access control lists and quotas."""

from __future__ import annotations

from math import inf
from typing import Any

from aiohttp import web

from sparklog.client.admin.quotas import ClientQuota
from sparklog.quota.entity import DEFAULT
from sparklog.quota.keys import json_value
from sparklog.quota.requests import parts_of
from sparklog.security.acl.binding import AclBinding
from sparklog.web.asked import Page
from sparklog.web.context import reading
from sparklog.web.visitors import Visitor


async def acls(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of entries."""
    rows = [_entry(each) for each in await visitor.fresh.get("acls", visitor.admin.describe_acls)]
    orders = {each: lambda row, each=each: row[each] for each in ("resource", "name", "principal", "operation")}
    cut = Page.of(request).cut(rows, lambda row: f"{row['resource']} {row['name']} {row['principal']}", orders)
    return cut.told(cut.rows)


async def quotas(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of quotas, a row for each number."""
    found = await visitor.fresh.get("quotas", visitor.admin.describe_client_quotas)
    rows = [row for each in found for row in _quotas(each)]
    orders = {"name": lambda row: row["name"], "value": lambda row: inf if row["value"] is None else row["value"]}
    cut = Page.of(request).cut(rows, lambda row: f"{row['whose']} {row['name']}", orders)
    return cut.told(cut.rows)


def _entry(each: AclBinding) -> dict[str, Any]:
    return {
        "resource": _word(each.pattern.kind.name),
        "name": each.pattern.name,
        "pattern": _word(each.pattern.type.name),
        "principal": each.entry.principal,
        "host": each.entry.host,
        "operation": _word(each.entry.operation.name),
        "permission": _word(each.entry.permission.name),
    }


def _quotas(each: ClientQuota) -> list[dict[str, Any]]:
    whose = ", ".join(
        f"every other {kind}" if name is DEFAULT else f"{kind} {name}" for kind, name in parts_of(each.entity)
    )
    return [{"whose": whose, "name": name, "value": json_value(value)} for name, value in sorted(each.quotas.items())]


def _word(name: str) -> str:
    return name.lower().replace("_", " ")


ROUTES = [web.get("/api/acls", reading(acls)), web.get("/api/quotas", reading(quotas))]
