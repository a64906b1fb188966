"""Topics that a command names: which there are like a pattern, and whether one is missing for certain, so that a
misspelt name is refused at once.

A topic that was just created is not known to every broker yet, so clients ask again for seconds. Nobody need wait where
it is certain that there is none: every broker says so for itself, twice with a pause between, and the one that is asked
for all topics knows some. One that knows none may have just started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from sparklog.cli.internal import is_internal_topic
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
_OF_PATTERNS = frozenset("*?[")


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


def is_pattern(name: str) -> bool:
    """Whether it stands for the topics that are like it, as in a shell: no topic has such a character in its name."""
    return not _OF_PATTERNS.isdisjoint(name)


def plain_names(names: Collection[str]) -> list[str]:
    """Those that are no patterns."""
    return [each for each in names if not is_pattern(each)]


def matched_topics(names: Collection[str], there: Mapping[str, TopicInfo]) -> list[str]:
    """The names, with the topics in place of each pattern that match it; each once.

    What the brokers and Spark's sinks keep for themselves matches only where the pattern begins with an underscore.
    Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) for a pattern that no topic matches.
    """
    found: list[str] = []
    for name in names:
        matches = [each for each in sorted(there.values(), key=_name) if _is_meant(each, name)]
        if is_pattern(name) and not matches:
            raise ApiError(_UNKNOWN, f"no topic matches {name!r}")
        found += map(_name, matches) if is_pattern(name) else [name]
    return list(dict.fromkeys(found))


def named_topics(cluster: ClusterMetadata, names: Collection[str]) -> list[str]:
    """``matched_topics``, of those that there are now."""
    is_asked = any(map(is_pattern, names))
    return matched_topics(names, _ask(cluster, None).topics if is_asked else {})


def is_listed(topic: TopicInfo, names: Collection[str], *, internal: bool) -> bool:
    """Whether a list of these names and patterns has the topic; without any it has all but internal ones."""
    if not names:
        return internal or not is_internal_topic(topic)
    return any(_is_meant(topic, name, internal) for name in names)


def _is_meant(topic: TopicInfo, pattern: str, internal: bool = False) -> bool:
    is_open = internal or pattern.startswith("_") or not is_internal_topic(topic)
    return is_open and fnmatchcase(topic.name, pattern)


def _name(topic: TopicInfo) -> str:
    return topic.name


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
