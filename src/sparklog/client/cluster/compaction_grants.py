"""Cleaning logs in the place of their brokers: the APIs BeginCompaction and CommitCompaction of sparklog's brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.split import Target
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Failure
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    BeginCompactionRequest,
    BeginCompactionResponse,
    CommitCompactionRequest,
)
from sparklog.structs import BrokerId, TopicPartition, by_topic

_GROUP, _DONE, _GIVEN_UP = range(3)


class Grant(NamedTuple):
    """The cleaning of one replica, ours until it lapses."""

    tp: TopicPartition
    broker: BrokerId
    token: int
    target: Target


class Refusal(NamedTuple):
    """Why a replica is not to be cleaned."""

    tp: TopicPartition
    broker: BrokerId
    why: str
    is_error: bool
    """Whether there was something to clean."""


def begin_cleanings(
    cluster: ClusterMetadata, broker: BrokerId, wanted: Iterable[TopicPartition], *, rolls: bool, duration_ms: int
) -> list[Grant | Refusal]:
    """Ask one broker for the cleaning of its replicas of these; ``rolls``: their active segments end before.

    One request, not repeated: a grant of which nobody learned lapses. Raises ApiError, ConnectionFailed.
    """
    topics = [
        BeginCompactionRequest.GrantedTopic(name=name, partitions=numbers) for name, numbers in by_topic(wanted).items()
    ]
    answer = _ask(cluster, broker, topics, [], duration_ms, rolls=rolls)
    found: list[Grant | Refusal] = []
    for topic in answer.topics:
        for each in topic.partitions:
            tp, said = TopicPartition(topic.name, each.partition_index), each.error_message
            if each.token < 0:
                found.append(Refusal(tp, broker, said or ErrorCode(each.error_code).name, each.error_code != 0))
            else:
                found.append(Grant(tp, broker, each.token, Target.from_json(bytes(each.target).decode())))
    return found


def renew_cleanings(cluster: ClusterMetadata, broker: BrokerId, tokens: Sequence[int], duration_ms: int) -> list[int]:
    """Have these run for ``duration_ms`` from now; those that have lapsed. Raises ApiError, ConnectionFailed."""
    return list(_ask(cluster, broker, [], tokens, duration_ms, rolls=False).lapsed)


def put_in_place(cluster: ClusterMetadata, grant: Grant, group: CleanedGroup, tag: str) -> None:
    """Have the drafts of a group take its place. Raises ApiError, ConnectionFailed."""
    _commit(cluster, grant, _GROUP, tag=tag, group=group)


def finish_cleaning(cluster: ClusterMetadata, grant: Grant, stats: CleanerStats) -> None:
    """Say that all groups are in place, up to ``stats.end_offset``. Raises ApiError, ConnectionFailed."""
    _commit(cluster, grant, _DONE, report=stats.to_dict())


def give_up_cleaning(cluster: ClusterMetadata, grant: Grant, kind: Failure, why: str) -> None:
    """Give the log back as it is. Raises ApiError, ConnectionFailed, which does no harm: the grant lapses."""
    _commit(cluster, grant, _GIVEN_UP, report={"kind": kind, "text": why})


def _ask(
    cluster: ClusterMetadata,
    broker: BrokerId,
    topics: list[BeginCompactionRequest.GrantedTopic],
    renewed: Sequence[int],
    duration_ms: int,
    *,
    rolls: bool,
) -> BeginCompactionResponse:
    request = BeginCompactionRequest(topics=topics, rolls_active=rolls, duration_ms=duration_ms, renewed=[*renewed])
    answer = cluster.request(cluster.brokers[broker], ApiKey.BEGIN_COMPACTION, lambda _: request)
    if answer.error_code != ErrorCode.NONE:
        raise ApiError(ErrorCode(answer.error_code), f"broker {broker} grants no cleaning")
    return answer


def _commit(
    cluster: ClusterMetadata,
    grant: Grant,
    step: int,
    *,
    tag: str = "",
    group: CleanedGroup = CleanedGroup((), ()),  # noqa: B008 (never changed)
    report: object = None,
) -> None:
    """Said until it is answered: what is said twice counts once."""
    request = CommitCompactionRequest(
        token=grant.token,
        step=step,
        tag=tag,
        old=[*group.old],
        new=[*group.new],
        report=json.dumps(report).encode(),
        timeout_ms=cluster.config.request_timeout_ms * 9 // 10,
    )

    def ask() -> None:
        answer = cluster.request(cluster.brokers[grant.broker], ApiKey.COMMIT_COMPACTION, lambda _: request)
        if answer.error_code != ErrorCode.NONE:
            code = ErrorCode(answer.error_code)
            raise ApiError(code, f"{grant.tp} at broker {grant.broker}: {answer.error_message or code.name}")

    cluster.retrying(ask)
