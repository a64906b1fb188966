"""The cluster as a whole, and its brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from sparklog.cluster.info import ClusterInfo, PartitionInfo
from sparklog.errors import SparklogError
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
    """Brokers with what they hold, those that are gone as well, and how many partitions are not well."""
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
                **_reached(info, broker),
                "protocol": releases.get(broker),
                "error": _error(info, broker, silent),
                **_held(broker, partitions),
            }
            for broker in sorted({*info.brokers, *_holders(partitions)})
        ],
    }


def _holders(partitions: list[PartitionInfo]) -> set[BrokerId]:
    return {BrokerId(broker) for each in partitions for broker in each.replicas}


def _reached(info: ClusterInfo, broker: BrokerId) -> dict[str, Any]:
    """Where it is; no host and no port if it is gone, and known by its replicas alone."""
    endpoint = info.brokers.get(broker)
    return {
        "host": None if endpoint is None else endpoint.host,
        "port": None if endpoint is None else endpoint.port,
        "rack": info.racks.get(broker),
        "is_controller": broker == info.controller,
    }


def _error(info: ClusterInfo, broker: BrokerId, silent: Mapping[BrokerId, SparklogError]) -> str | None:
    if broker not in info.brokers:
        return "it is not there"
    return str(silent[broker]) if broker in silent else None


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
