"""Log directories: how full their disks are, and what lies in them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparklog.web.asked import Page
from sparklog.web.context import reading
from sparklog.web.visitors import Visitor


async def disks(visitor: Visitor, _: web.Request) -> list[dict[str, Any]]:
    """Every broker's directories. Sizes are bytes; None where the broker does not tell."""
    return [
        {
            "broker": broker,
            "path": each.path,
            "error": each.error,
            "total": each.total_bytes if each.total_bytes >= 0 else None,
            "usable": each.usable_bytes if each.usable_bytes >= 0 else None,
            "logs": sum(each.sizes.values()),
            "replicas": len(each.sizes),
        }
        for broker, found in sorted((await visitor.fresh.get("disks", visitor.admin.log_dirs)).items())
        for each in found
    ]


async def replicas(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of replicas with their sizes."""
    rows = [
        {"broker": broker, "path": each.path, "topic": tp.topic, "partition": tp.partition, "size": size}
        for broker, found in sorted((await visitor.fresh.get("disks", visitor.admin.log_dirs)).items())
        for each in found
        for tp, size in sorted(each.sizes.items())
    ]
    orders = {"size": lambda row: row["size"], "topic": lambda row: (row["topic"], row["partition"])}
    cut = Page.of(request).cut(rows, lambda row: f"{row['topic']}-{row['partition']}", orders)
    return cut.told(cut.rows)


ROUTES = [web.get("/api/disks", reading(disks)), web.get("/api/disks/replicas", reading(replicas))]
