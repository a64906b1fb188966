"""Topics that a command names: whether one is missing for certain, so that a misspelt name is refused at once.

A topic that was just created is not known to every broker yet, so clients ask again for seconds. Nobody need wait where
it is certain that there is none: every broker says so for itself, twice with a pause between, and the one that is asked
for all topics knows some. One that knows none may have just started.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from sparklog.config.likeness import alike
from sparklog.errors import ApiError, ErrorCode, SparklogError

if TYPE_CHECKING:
    from sparklog.client.cluster.metadata import ClusterMetadata
    from sparklog.cluster.info import ClusterInfo, TopicInfo
    from sparklog.protocol.messages import MetadataResponse, Request
    from sparklog.structs import Endpoint, TopicPartition

_PAUSE_S = 0.2
_MOST_S = 1.0
"""How long all answers may take. After that nothing is certain, and the client's own patience counts."""
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def require_topics(cluster: ClusterMetadata, names: Collection[str]) -> None:
    """Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) for the first that does not exist for certain."""
    deadline = cluster.clock.monotonic() + _MOST_S
    with cluster.pool.within(lambda: max(deadline - cluster.clock.monotonic(), 0.0)):
        try:
            missing = _missing(cluster, names)
            if missing:
                cluster.clock.sleep(_PAUSE_S)
                missing = _missing(cluster, missing)
            there = _ask(cluster, None).topics if missing else {}
        except SparklogError:  # a broker does not answer: it may know the topic
            return
    if missing and there:
        raise ApiError(_UNKNOWN, f"there is no topic {missing[0]!r}{alike(missing[0], there)}")


def chosen_partitions(topic: TopicInfo, chosen: Collection[int]) -> list[TopicPartition]:
    """The partitions of these numbers, all without any. Raises BadParameter for one that there is not."""
    from sparklog.structs import TopicPartition

    there = [each.partition for each in topic.partitions]
    unknown = sorted(set(chosen) - set(there))
    if unknown:
        raise click.BadParameter(
            f"topic {topic.name!r} has no partition {unknown[0]}, only 0 to {len(there) - 1}",
            param_hint="--partition",
        )
    return [TopicPartition(topic.name, partition) for partition in (sorted(set(chosen)) or there)]


def _missing(cluster: ClusterMetadata, names: Collection[str]) -> list[str]:
    """Those that no broker knows."""
    first = _ask(cluster, names)
    missing = [each for each in names if first.errors.get(each) is _UNKNOWN]
    for endpoint in first.brokers.values():
        if missing:
            told = _ask(cluster, missing, endpoint)
            missing = [each for each in missing if told.errors.get(each) is _UNKNOWN]
    return missing


def _ask(cluster: ClusterMetadata, names: Collection[str] | None, endpoint: Endpoint | None = None) -> ClusterInfo:
    """What one broker knows of the topics, of all for None; any broker, if not said which."""
    from sparklog.cluster.info import metadata_request, read_metadata
    from sparklog.protocol.api_key import ApiKey

    def build(version: int) -> Request[MetadataResponse]:
        return metadata_request(version, names, create=False)

    if endpoint is None:
        return read_metadata(cluster.request_any(ApiKey.METADATA, build))
    return read_metadata(cluster.request(endpoint, ApiKey.METADATA, build))
