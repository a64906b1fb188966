"""Cleaning logs in the place of their brokers: the APIs BeginCompaction and CommitCompaction of sparklog's brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.clock import SystemClock
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.split import Target
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Failure
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    BeginCompactionRequest,
    BeginCompactionResponse,
    CommitCompactionRequest,
)
from sparklog.structs import BrokerId, TopicPartition, by_topic

_GROUP, _DONE, _GIVEN_UP = range(3)
_GIVING_UP_S = 5.0
_LONGEST_REASON = 1000
"""Characters. A broker keeps no more, and refuses a report that is far longer."""


class Grant(NamedTuple):
    """The cleaning of one replica, ours until it lapses."""

    tp: TopicPartition
    broker: BrokerId
    token: int
    target: Target


class _Held(NamedTuple):
    """A replica that is granted."""

    tp: TopicPartition
    broker: BrokerId
    token: int


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
                found.append(_granted(cluster, _Held(tp, broker, each.token), bytes(each.target)))
    return found


def _granted(cluster: ClusterMetadata, held: _Held, target: bytes) -> Grant | Refusal:
    """What a broker of another version tells may not be understood: then its log is given back."""
    try:
        return Grant(*held, Target.from_json(target.decode()))
    except (ValueError, TypeError, KeyError) as error:
        why = f"what its broker tells of it is of another version: {error}"
    with suppress(SparklogError):
        _give_up(cluster, held, Failure.GONE, why)
    return Refusal(held.tp, held.broker, why, is_error=True)


def renew_cleanings(cluster: ClusterMetadata, broker: BrokerId, tokens: Sequence[int], duration_ms: int) -> list[int]:
    """Have these run for ``duration_ms`` from now; those that have lapsed. Raises ApiError, ConnectionFailed."""
    return list(_ask(cluster, broker, [], tokens, duration_ms, rolls=False).lapsed)


def put_in_place(cluster: ClusterMetadata, grant: Grant, group: CleanedGroup, tag: str) -> None:
    """Have the drafts of a group take its place. Raises ApiError, ConnectionFailed.

    It waits as long as the broker waits for readers of these segments.
    """
    _commit(cluster, _held(grant), _GROUP, tag=tag, group=group)


def finish_cleaning(cluster: ClusterMetadata, grant: Grant, stats: CleanerStats) -> None:
    """Say that all groups are in place, up to ``stats.end_offset``. Raises ApiError, ConnectionFailed."""
    _commit(cluster, _held(grant), _DONE, report=stats.to_dict())


def give_up_cleaning(cluster: ClusterMetadata, grant: Grant, kind: Failure, why: str) -> None:
    """Give the log back as it is. Raises ApiError, ConnectionFailed, which does no harm: the grant lapses.

    It is said once, and waits for an answer for some seconds only.
    """
    _give_up(cluster, _held(grant), kind, why)


def _held(grant: Grant) -> _Held:
    return _Held(grant.tp, grant.broker, grant.token)


def _give_up(cluster: ClusterMetadata, held: _Held, kind: Failure, why: str) -> None:
    with cluster.pool.within(seconds_until(_GIVING_UP_S)):
        _ask_once(cluster, held, _step(cluster, held, _GIVEN_UP, report={"kind": kind, "text": why[:_LONGEST_REASON]}))


def seconds_until(seconds: float) -> Callable[[], float]:
    """What is left of so many seconds from now on."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    return lambda: max(deadline - clock.monotonic(), 0.0)


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
    held: _Held,
    step: int,
    *,
    tag: str = "",
    group: CleanedGroup | None = None,
    report: object = None,
) -> None:
    """Said until it is answered: what is said twice counts once. A broker that is still at it is asked on."""
    request = _step(cluster, held, step, tag=tag, group=group, report=report)
    while not cluster.retrying(lambda: _ask_once(cluster, held, request)):
        pass


def _step(
    cluster: ClusterMetadata,
    held: _Held,
    step: int,
    *,
    tag: str = "",
    group: CleanedGroup | None = None,
    report: object = None,
) -> CommitCompactionRequest:
    old, new = group or ((), ())
    return CommitCompactionRequest(
        token=held.token,
        step=step,
        tag=tag,
        old=[*old],
        new=[*new],
        report=json.dumps(report).encode(),
        timeout_ms=cluster.config.request_timeout_ms * 9 // 10,
    )


def _ask_once(cluster: ClusterMetadata, held: _Held, request: CommitCompactionRequest) -> bool:
    """Whether it is done; false as long as the broker is at it. Raises ApiError, ConnectionFailed."""
    answer = cluster.request(cluster.brokers[held.broker], ApiKey.COMMIT_COMPACTION, lambda _: request)
    if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
        return False
    if answer.error_code != ErrorCode.NONE:
        code = ErrorCode(answer.error_code)
        raise ApiError(code, f"{held.tp} at broker {held.broker}: {answer.error_message or code.name}")
    return True
