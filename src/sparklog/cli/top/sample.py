"""One look at a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.connection import is_refusal
from sparklog.cli.extents import find_extents
from sparklog.cli.internal import is_internal_group
from sparklog.errors import SparklogError
from sparklog.structs import BrokerId, TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.log_dirs import LogDir
    from sparklog.clock import Clock
    from sparklog.cluster.info import ClusterInfo


class Sample(NamedTuple):
    """``at_s`` is a monotonic time; what could not be asked is left out."""

    at_s: float
    cluster: ClusterInfo
    ends: Mapping[TopicPartition, int]
    directories: Mapping[BrokerId, list[LogDir]]
    states: Mapping[str, str]
    """Of groups."""
    committed: Mapping[str, Mapping[TopicPartition, int]]
    """By group that could be asked."""
    silent: Collection[BrokerId] = ()
    """Brokers that did not answer. A broker that refuses to tell its directories has answered."""


def take_sample(admin: Admin, clock: Clock) -> Sample:
    """Raises SparklogError where the cluster as a whole cannot be asked."""
    cluster = admin.describe_cluster()
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in cluster.topics.values()
        for each in topic.partitions
        if each.leader in cluster.brokers
    ]
    ends = find_extents(admin, partitions).end
    at_s = clock.monotonic()
    listed, _ = admin.reachable_groups()
    states = {each.group_id: each.state for each in listed if not is_internal_group(each.group_id)}
    committed = {}
    for name in states:
        with suppress(SparklogError):  # its coordinator is gone, and the next will tell
            committed[name] = {tp: at.offset for tp, at in admin.group_offsets(name).items()}
    directories, failures = admin.reachable_log_dirs()
    silent = {broker for broker, error in failures.items() if not is_refusal(error)}
    return Sample(at_s, cluster, ends, directories, states, committed, silent)
