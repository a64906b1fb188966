"""The cluster as a whole, and its brokers."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparklog.cluster.info import ClusterInfo, PartitionInfo
from sparklog.structs import BrokerId
from sparklog.web.apis.settings import entries
from sparklog.web.asked import number
from sparklog.web.context import reading
from sparklog.web.visitors import Visitor


async def metadata(visitor: Visitor) -> ClusterInfo:
    """What a broker tells of all that the visitor may see; two seconds old at most."""
    return await visitor.fresh.get("metadata", visitor.admin.describe_cluster)


def has_too_few(partition: PartitionInfo) -> bool:
    """Whether a replica is out of sync."""
    return len(partition.isr) < len(partition.replicas)


async def cluster(visitor: Visitor, _: web.Request) -> dict[str, Any]:
    """Brokers with what they hold, and how many partitions are not well."""
    info = await metadata(visitor)
    releases, silent = await visitor.fresh.get("releases", visitor.admin.releases)
    partitions = [each for topic in info.topics.values() for each in topic.partitions]
    return {
        "cluster_id": info.cluster_id,
        "controller": info.controller,
        "topics": len(info.topics),
        "partitions": len(partitions),
        "under_replicated": sum(map(has_too_few, partitions)),
        "without_leader": sum(each.leader < 0 for each in partitions),
        "brokers": [
            {
                "id": broker,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": info.racks.get(broker),
                "protocol": releases.get(broker),
                "error": str(silent[broker]) if broker in silent else None,
                "is_controller": broker == info.controller,
                **_held(broker, partitions),
            }
            for broker, endpoint in sorted(info.brokers.items())
        ],
    }


def _held(broker: BrokerId, partitions: list[PartitionInfo]) -> dict[str, int]:
    return {
        "leads": sum(each.leader == broker for each in partitions),
        "replicas": sum(broker in each.replicas for each in partitions),
        "out_of_sync": sum(broker in each.replicas and broker not in each.isr for each in partitions),
    }


async def broker_settings(visitor: Visitor, request: web.Request) -> list[dict[str, Any]]:
    """Every setting of a broker."""
    broker = BrokerId(number(request.query, "id", most=2**31 - 1))
    return entries(await visitor.fresh.get(("broker", broker), lambda: visitor.admin.broker_configs(broker)))


ROUTES = [
    web.get("/api/cluster", reading(cluster)),
    web.get("/api/broker/settings", reading(broker_settings)),
]
