"""Topics and what is in them: made, changed, described, emptied."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from sparklog.client.admin.base import AdminBase, Answers, Judged, error_of, raise_first
from sparklog.client.cluster.arguments import checked_names, checked_partitions
from sparklog.client.cluster.offsets import OffsetAndTimestamp, list_offsets_request, listed_offsets
from sparklog.client.cluster.retry import retrying_async
from sparklog.client.cluster.session import Build
from sparklog.cluster.info import ClusterInfo, TopicInfo, metadata_request
from sparklog.cluster.lag import described_lags, lag_request
from sparklog.errors import ApiError, ErrorCode, LocalProtocolError, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    A,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    Request,
)
from sparklog.security.access import Operation
from sparklog.structs import BrokerId, IsolationLevel, TopicPartition, by_topic

_PARTITIONS_AN_ANSWER = 2000
_Cursor = DescribeTopicPartitionsRequest.Cursor
_CreatableTopic = CreateTopicsRequest.CreatableTopic
_DeletableTopic = DeleteTopicsRequest.DeleteTopicState
_RecordsTopic = DeleteRecordsRequest.DeleteRecordsTopic


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves partitions or replicas to the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicAdmin(AdminBase):
    """Asks the controller for changes, leaders for what only they know, any broker for the rest."""

    async def describe_cluster(self) -> ClusterInfo:
        """Brokers, controller and every topic."""
        return await self._session.refresh(None)

    async def controllers(
        self, *, timeout: float = 5.0
    ) -> tuple[dict[BrokerId, BrokerId], dict[BrokerId, SparklogError]]:
        """The controller that each broker names (-1: none), and why the others name none within ``timeout`` s."""
        answers = await self._ask_reachable_brokers(
            ApiKey.METADATA, lambda version: metadata_request(version, [], False), timeout
        )
        failures = {broker: each for broker, each in answers.items() if isinstance(each, SparklogError)}
        told = {
            broker: BrokerId(each.controller_id)
            for broker, each in answers.items()
            if not isinstance(each, SparklogError)
        }
        return told, failures

    async def cluster_operations(self) -> frozenset[Operation]:
        """What the caller may do with the cluster; everything, if the brokers have no authorizer.

        Without ``DESCRIBE`` a list of groups has only those for which it has that right of their own.
        """
        answer = await self._session.any_broker_request(
            ApiKey.DESCRIBE_CLUSTER, lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
        told = answer.authorized_operations or ()
        return frozenset(each for each in Operation if each in told)

    async def sees_all_topics(self) -> bool:
        """Whether we may describe a topic of any name; else lists leave out those that we may not, and do not tell.

        It asks a broker for a topic with a random name. An entry of the access control lists that denies us one topic
        by its name does not count.
        """
        name = uuid4().hex
        answer = await self._session.any_broker_request(
            ApiKey.METADATA, lambda version: metadata_request(version, [name], False), check=lambda _: None
        )
        return all(each.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in answer.topics)

    async def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """Every topic by name, the cluster's own only when asked for."""
        topics = (await self._session.refresh(None)).topics
        return [topic for _, topic in sorted(topics.items()) if internal or not topic.internal]

    async def describe_topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """These topics as they are now; the first unknown one raises."""
        names = checked_names(names, "topics")

        async def describe() -> dict[str, TopicInfo]:
            info = await self._session.refresh(names)
            for name, code in info.errors.items():
                raise ApiError(code, f"topic {name!r}: {code.name}")
            return {name: info.topics[name] for name in names}

        return await retrying_async(self._session.backoff(), describe)

    async def eligible_replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        """By partition the replicas that are out of sync, have all that was acknowledged, and may lead: the partitions
        that have any. They stand in while fewer than ``min.insync.replicas`` are in sync.
        """
        found = dict[int, tuple[int, ...]]()
        cursor: _Cursor | None = None
        while True:
            answer = await self._describe_page(topic, cursor)
            for described in answer.topics:
                for each in described.partitions:
                    if each.eligible_leader_replicas:
                        found[each.partition_index] = tuple(each.eligible_leader_replicas)
            if answer.next_cursor is None:
                return found
            cursor = _Cursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )

    async def _describe_page(self, topic: str, cursor: _Cursor | None) -> DescribeTopicPartitionsResponse:
        request = DescribeTopicPartitionsRequest
        asked = request(
            topics=[request.TopicRequest(name=topic)],
            response_partition_limit=_PARTITIONS_AN_ANSWER,
            cursor=cursor,
        )
        return await self._session.any_broker_request(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            lambda _: asked,
            check=lambda answer: raise_first(answer.topics, lambda each: f"topic {each.name!r}"),
        )

    async def create_topics(self, topics: Collection[NewTopic], *, validate_only: bool = False) -> None:
        """Create them all, or raise the first error; those before it in the answer then exist.

        Each is a ``NewTopic``. Returns when every partition has a leader.
        """
        topics = new_topics(topics)
        wanted = {topic.name: topic for topic in topics}

        async def is_made(name: str, code: ErrorCode) -> bool:
            return code is ErrorCode.TOPIC_ALREADY_EXISTS and not validate_only and await self._is_like(wanted[name])

        await self._change(
            ApiKey.CREATE_TOPICS,
            lambda version: _create_request(version, topics, self._timeout_ms, validate_only),
            lambda answer: [(each.name, each) for each in answer.topics],
            "cannot create topic",
            is_made,
        )
        if not validate_only:
            await self._await_leaders([topic.name for topic in topics])

    async def delete_topics(self, names: Collection[str]) -> None:
        """Delete them all, or raise the first error; returns when they are gone from the cluster's metadata."""
        names = checked_names(names, "topics")

        async def is_gone(_: str, code: ErrorCode) -> bool:
            return code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        await self._change(
            ApiKey.DELETE_TOPICS,
            lambda version: _delete_request(version, names, self._timeout_ms),
            lambda answer: [(str(each.name), each) for each in answer.responses],
            "cannot delete topic",
            is_gone,
        )

        async def check() -> None:
            left = (await self._session.refresh(names)).topics
            if left:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"topic {next(iter(left))!r} is still being deleted")

        await retrying_async(self._session.backoff(), check)

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Let each topic have so many partitions, more than now; returns when the new ones have leaders."""
        checked_names(counts, "topics")
        topic = CreatePartitionsRequest.CreatePartitionsTopic

        async def are_there(name: str, code: ErrorCode) -> bool:
            is_done = code is ErrorCode.INVALID_PARTITIONS and not validate_only
            return is_done and await self._is_like(NewTopic(name, counts[name]))

        await self._change(
            ApiKey.CREATE_PARTITIONS,
            lambda version: CreatePartitionsRequest(
                version=version,
                topics=[topic(name=name, count=count, assignments=None) for name, count in counts.items()],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            ),
            lambda answer: [(each.name, each) for each in answer.results],
            "cannot add partitions to topic",
            are_there,
        )
        if not validate_only:
            await self._await_leaders(counts, counts)

    async def _change(
        self,
        api: ApiKey,
        build: Build[A],
        results: Callable[[A], list[tuple[str, Judged]]],
        what: str,
        is_done: Callable[[str, ErrorCode], Awaitable[bool]],
    ) -> None:
        """Have the controller make a change. Raises the first error of the answer, named after ``what``.

        Where the answer to an attempt before was lost, that one may have made the change: then an error is none if
        ``is_done`` says so of the topic and the error.
        """
        unanswered = 0

        def attempt(version: int) -> Request[A]:
            nonlocal unanswered
            unanswered += 1
            return build(version)

        def check(answer: A) -> None:
            nonlocal unanswered
            unanswered -= 1
            _check_controller([each for _, each in results(answer)])

        answer = await self._session.controller_request(api, attempt, check=check)
        for name, each in results(answer):
            error = error_of(each, f"{what} {name!r}")
            if error is not None and not (unanswered and await is_done(name, error.code)):
                raise error

    async def _is_like(self, wanted: NewTopic) -> bool:
        """Whether a topic has the partitions and replicas that are wanted, as far as that is said."""
        partitions = (await self.describe_topics([wanted.name]))[wanted.name].partitions
        shape = len(partitions), len(partitions[0].replicas)
        asked = wanted.partitions, wanted.replication_factor
        return all(each in (-1, found) for each, found in zip(asked, shape, strict=True))

    async def _await_leaders(self, names: Collection[str], counts: Mapping[str, int] | None = None) -> None:
        async def check() -> None:
            for topic in (await self.describe_topics(names)).values():
                least = 1 if counts is None else counts[topic.name]
                if len(topic.partitions) < least or any(each.leader < 0 for each in topic.partitions):
                    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name!r} has no leaders yet")

        await retrying_async(self._session.backoff(), check)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]:
        """Let preferred replicas lead (``unclean``: any that is alive); None stands for all partitions.

        What became of each: None for elected, or why not; ELECTION_NOT_NEEDED is such a reason.
        """
        asked = None if partitions is None else by_topic(checked_partitions(partitions))
        form = ElectLeadersRequest.TopicPartitions

        def build(version: int) -> ElectLeadersRequest:
            if unclean and version == 0:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the controller knows no unclean election")
            topics = None if asked is None else [form(topic=name, partitions=each) for name, each in asked.items()]
            return ElectLeadersRequest(
                version=version, election_type=int(unclean), topic_partitions=topics, timeout_ms=self._timeout_ms
            )

        answer = await self._session.controller_request(ApiKey.ELECT_LEADERS, build)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(each, f"{topic.topic}-{each.partition_id}")
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offset each partition has for ``offsets.EARLIEST``, ``LATEST``, or the first record at or after a time.

        Times are ms; None where no record is that young. LATEST is the last stable offset for read_committed.
        """
        checked_partitions(wanted)
        level = self._session.config.isolation_level if isolation is None else isolation

        async def ask(broker: BrokerId, tps: list[TopicPartition]) -> Answers[OffsetAndTimestamp | None]:
            return await self._offsets_of(broker, {tp: wanted[tp] for tp in tps}, level)

        return await self._ask_leaders(wanted, ask)

    async def _offsets_of(
        self, broker: BrokerId, wanted: Mapping[TopicPartition, int], level: IsolationLevel
    ) -> dict[TopicPartition, OffsetAndTimestamp | ApiError | None]:
        request = list_offsets_request(wanted, level, self._timeout_ms)
        answer = await self._session.request(broker, ApiKey.LIST_OFFSETS, request)
        return {
            tp: at if code is ErrorCode.NONE else ApiError(code, f"{tp}: {code.name}")
            for tp, code, at in listed_offsets(answer)
        }

    async def reachable_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel | None = None,
        timeout: float = 5.0,
        patience: float = 1.0,
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, SparklogError]]:
        """What ``list_offsets`` finds for the partitions that can be asked now, and why the others cannot.

        All leaders are asked at once. One that has not answered after ``timeout`` seconds counts as out of reach;
        leaders that move, or are not there yet, are followed for ``patience`` seconds.
        """
        checked_partitions(wanted)
        level = self._session.config.isolation_level if isolation is None else isolation
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        failures: dict[TopicPartition, SparklogError] = {}

        async def ask(broker: BrokerId, tps: list[TopicPartition]) -> None:
            try:
                async with asyncio.timeout(timeout):
                    answers = await self._offsets_of(broker, {tp: wanted[tp] for tp in tps}, level)
            except (SparklogError, TimeoutError) as error:
                failures.update(dict.fromkeys(tps, self._silence(broker, timeout, error)))
                return
            for tp, answer in answers.items():
                if isinstance(answer, ApiError):
                    failures[tp] = answer
                else:
                    found[tp] = answer
                    failures.pop(tp, None)

        async def ask_what_is_left() -> None:
            left = [tp for tp in wanted if tp not in found and _may_pass(failures.get(tp))]
            await self._session.refresh(sorted({tp.topic for tp in left}))
            await asyncio.gather(*(ask(broker, tps) for broker, tps in self._led(left, failures).items()))
            passing = next((each for each in failures.values() if _may_pass(each)), None)
            if passing is not None:
                raise passing

        with suppress(ApiError):  # it is among the failures
            await retrying_async(self._session.backoff(round(patience * 1000)), ask_what_is_left, cut=False)
        return found, failures

    def _led(
        self, partitions: Iterable[TopicPartition], failures: dict[TopicPartition, SparklogError]
    ) -> dict[BrokerId, list[TopicPartition]]:
        """The partitions under their leaders; those without one go to ``failures``."""
        leaders = self._session.leaders
        groups: dict[BrokerId, list[TopicPartition]] = {}
        for tp in sorted(partitions):
            leader = leaders.leader(tp)
            if leader is not None:
                groups.setdefault(leader, []).append(tp)
            elif leaders.partition(tp) is None:
                failures[tp] = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, leaders.why_no_leader(tp))
            else:
                failures[tp] = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, self._why_no_leader(tp))
        return groups

    def _why_no_leader(self, tp: TopicPartition) -> str:
        info = self._session.leaders.partition(tp)
        gone = [
            str(each) for each in (() if info is None else info.replicas) if each not in self._session.leaders.brokers
        ]
        text = self._session.leaders.why_no_leader(tp)
        return f"{text}; start broker {', '.join(gone)}, which has it" if gone else text

    async def lag_bytes(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float = 5.0
    ) -> dict[TopicPartition, int]:
        """How many bytes each partition has from its offset to the high watermark, as its leader tells it.

        From sizes and the index: up to ``index.interval.bytes`` and a batch too many. A partition is left out whose
        leader is not there within ``timeout`` s, or is a broker of Kafka's, which cannot tell.
        """
        checked_partitions(offsets)
        found: dict[TopicPartition, int] = {}
        failures: dict[TopicPartition, SparklogError] = {}

        async def ask(broker: BrokerId, tps: list[TopicPartition]) -> None:
            with suppress(SparklogError, TimeoutError):
                async with asyncio.timeout(timeout):
                    request = lag_request({tp: [offsets[tp]] for tp in tps})
                    answer = await self._session.request(broker, ApiKey.DESCRIBE_LAG, lambda _: request)
                found.update({each.tp: each.bytes for each in described_lags(answer)})

        await self._session.refresh(sorted({tp.topic for tp in offsets}))
        await asyncio.gather(*(ask(broker, tps) for broker, tps in self._led(offsets, failures).items()))
        return found

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what is before these offsets (-1: everything); returns each partition's first offset then."""

        async def ask(broker: BrokerId, tps: list[TopicPartition]) -> Answers[int]:
            topics = [
                _RecordsTopic(
                    name=name,
                    partitions=[
                        _RecordsTopic.DeleteRecordsPartition(
                            partition_index=number, offset=before[TopicPartition(name, number)]
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in by_topic(tps).items()
            ]
            answer = await self._session.request(
                broker,
                ApiKey.DELETE_RECORDS,
                lambda version: DeleteRecordsRequest(version=version, topics=topics, timeout_ms=self._timeout_ms),
            )
            return {
                TopicPartition(topic.name, each.partition_index): error_of(each, f"{topic.name}-{each.partition_index}")
                or int(each.low_watermark)
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._ask_leaders(checked_partitions(before), ask)


def _may_pass(failure: SparklogError | None) -> bool:
    """Whether a partition is to be asked about (again): a broker that was silent once is not."""
    return failure is None or (isinstance(failure, ApiError) and failure.code.retriable)


def new_topics(given: Iterable[NewTopic]) -> list[NewTopic]:
    """The topics to create. Raises LocalProtocolError for anything else than a collection of ``NewTopic``."""
    topics = [] if isinstance(given, str | Mapping) or not isinstance(given, Iterable) else list(given)
    if not all(isinstance(each, NewTopic) for each in topics) or (given and not topics):
        raise LocalProtocolError(
            f'topics to create are a list, such as [NewTopic("name", partitions=3)], not {given!r}'
        )
    checked_names([each.name for each in topics], "topics")
    return topics


def _check_controller(results: Iterable[Judged]) -> None:
    if any(ErrorCode(each.error_code) is ErrorCode.NOT_CONTROLLER for each in results):
        raise ApiError(ErrorCode.NOT_CONTROLLER, "that broker is not the controller any more")


def _create_request(
    version: int, topics: Collection[NewTopic], timeout_ms: int, validate_only: bool
) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        version=version,
        topics=[
            _CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    _CreatableTopic.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def _delete_request(version: int, names: Collection[str], timeout_ms: int) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(version=version, topic_names=list(names), timeout_ms=timeout_ms)
    topics = [_DeletableTopic(name=name, topic_id=None) for name in names]
    return DeleteTopicsRequest(version=version, topics=topics, timeout_ms=timeout_ms)
