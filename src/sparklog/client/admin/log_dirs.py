"""Where brokers keep their replicas: their log directories, and moving replicas between those of one broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from sparklog.client.admin.base import AdminBase, error_of, raise_error
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from sparklog.structs import BrokerId, TopicPartition

_Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
_Topic = _Directory.AlterReplicaLogDirTopic


class LogDir(NamedTuple):
    """One log directory of a broker. ``sizes`` are bytes; total and usable are -1 where the broker does not tell."""

    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]


class Replica(NamedTuple):
    """A partition on one broker."""

    tp: TopicPartition
    broker: BrokerId


class ReplicaLogDir(NamedTuple):
    """Where a replica lies, and where it is being moved to; None for nowhere."""

    path: str | None = None
    size: int = 0
    """Bytes."""
    future_path: str | None = None
    future_lag: int = -1
    """Offsets that the copy is behind; -1 where that is not known."""


def _check(answer: DescribeLogDirsResponse) -> None:
    raise_error(answer, "cannot describe log directories, which needs DESCRIBE on the cluster")


class LogDirAdmin(AdminBase):
    """Each broker is asked for its own."""

    async def log_dirs(self) -> dict[BrokerId, list[LogDir]]:
        """Every broker's log directories, with the size of each partition's log in them."""
        answers = await self._ask_every_broker(
            ApiKey.DESCRIBE_LOG_DIRS, lambda version: DescribeLogDirsRequest(version=version, topics=None), _check
        )
        return {broker: [_log_dir(each) for each in answer.results] for broker, answer in answers.items()}

    async def reachable_log_dirs(
        self, *, timeout: float = 5.0
    ) -> tuple[dict[BrokerId, list[LogDir]], dict[BrokerId, SparklogError]]:
        """Those of the brokers that answer within ``timeout`` seconds, and why the others do not."""
        answers = await self._ask_reachable_brokers(
            ApiKey.DESCRIBE_LOG_DIRS,
            lambda version: DescribeLogDirsRequest(version=version, topics=None),
            timeout,
            check=_check,
        )
        failures = {broker: each for broker, each in answers.items() if isinstance(each, SparklogError)}
        found = {
            broker: [_log_dir(each) for each in answer.results]
            for broker, answer in answers.items()
            if not isinstance(answer, SparklogError)
        }
        return found, failures

    async def describe_replica_log_dirs(self, replicas: Iterable[Replica]) -> dict[Replica, ReplicaLogDir]:
        """Where each of the replicas lies, and how far one that is being moved has come."""
        asked: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for each in replicas:
            asked[each.broker].append(each.tp)
        found: dict[Replica, ReplicaLogDir] = {}
        for broker, wanted in asked.items():
            answer = await self._ask_broker(
                broker, ApiKey.DESCRIBE_LOG_DIRS, partial(_describe_request, partitions=wanted), _check
            )
            places = _places(answer)
            found |= {Replica(tp, broker): places.get(tp, ReplicaLogDir()) for tp in wanted}
        return found

    async def alter_replica_log_dirs(self, wishes: Mapping[Replica, str]) -> dict[Replica, ApiError | None]:
        """Have each replica lie in the log directory of that path: what its broker says; None for yes.

        A yes says that the copying has begun; ``describe_replica_log_dirs`` tells how far it is. To ask for where a
        replica lies cancels its move. REPLICA_NOT_AVAILABLE says that the broker has no such replica yet, and will make
        it there.
        """
        asked: defaultdict[BrokerId, dict[TopicPartition, str]] = defaultdict(dict)
        for each, path in wishes.items():
            asked[each.broker][each.tp] = path
        found: dict[Replica, ApiError | None] = {}
        for broker, paths in asked.items():
            build = partial(_alter_request, paths=paths)
            answer = await self._ask_broker(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, build)
            found |= {Replica(tp, broker): error for tp, error in _errors(answer, paths).items()}
        return found


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        found[tp.topic].append(tp.partition)
    return found


def _describe_request(version: int, partitions: Iterable[TopicPartition]) -> DescribeLogDirsRequest:
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=numbers)
        for name, numbers in _by_topic(partitions).items()
    ]
    return DescribeLogDirsRequest(version=version, topics=topics)


def _alter_request(version: int, paths: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    by_path: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for tp, path in paths.items():
        by_path[path].append(tp)
    directories = [
        _Directory(
            path=path,
            topics=[_Topic(name=name, partitions=numbers) for name, numbers in _by_topic(partitions).items()],
        )
        for path, partitions in by_path.items()
    ]
    return AlterReplicaLogDirsRequest(version=version, dirs=directories)


def _errors(
    answer: AlterReplicaLogDirsResponse, paths: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ApiError | None]:
    silent = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker says nothing of the replica")
    found: dict[TopicPartition, ApiError | None] = dict.fromkeys(paths, silent)
    for topic in answer.results:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            found[tp] = error_of(each, f"{tp} cannot be moved to {paths.get(tp)}")
    return found


def _places(answer: DescribeLogDirsResponse) -> dict[TopicPartition, ReplicaLogDir]:
    found: dict[TopicPartition, ReplicaLogDir] = {}
    for directory in answer.results:
        for topic in directory.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                known = found.get(tp, ReplicaLogDir())
                if each.is_future_key:
                    found[tp] = known._replace(future_path=directory.log_dir, future_lag=int(each.offset_lag))
                else:
                    found[tp] = known._replace(path=directory.log_dir, size=int(each.partition_size))
    return found


def _log_dir(each: DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDir:
    error = error_of(each, each.log_dir)
    sizes = {
        TopicPartition(topic.name, partition.partition_index): int(partition.partition_size)
        for topic in each.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    total, usable = (getattr(each, name, None) for name in ("total_bytes", "usable_bytes"))
    return LogDir(
        each.log_dir,
        None if error is None else error.code.name,
        -1 if total is None else int(total),
        -1 if usable is None else int(usable),
        sizes,
    )
