"""Transactions of a cluster, looked at and ended from outside: for when a producer does not come back.

A transaction is *hanging* in a partition when its producer has it open there and no coordinator will ever end it: no
transactional id has that producer with a transaction that reaches the partition. Source: Kafka 3.9,
``TransactionsCommand``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple
from uuid import uuid4

from sparklog.client.admin.base import AdminBase, Answers, error_of, raise_error
from sparklog.client.cluster.arguments import checked_names, checked_partitions
from sparklog.client.cluster.session import Build, Check, CoordinatorKind
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    A,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
)
from sparklog.structs import BrokerId, TopicPartition, by_topic

_FIRST_LIST_BY_DURATION, _FIRST_LIST_BY_PATTERN = 1, 2
_FIRST_INIT_TO_KEEP = 6
_WHOEVER = (-1, -1)
"""In place of a pair: the id's producer, whichever it is."""
_KEEPER_TIMEOUT_MS = 60_000
"""Of the transactions after the one that is ended: none will begin under the epoch that is given."""
ONGOING = "Ongoing"
"""The state of an id whose transaction is open."""
_ENDING = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""Its outcome is decided, and markers are yet to be written."""
_NAMED = 5
_Marker = WriteTxnMarkersRequest.WritableTxnMarker


class TransactionListing(NamedTuple):
    """A transactional id as its coordinator lists it; ``state`` by Kafka's name."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator has it; ``start_ms`` is -1 where no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """A producer that a partition's leader remembers; ``open_since`` is its transaction's first offset, or -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    open_since: int


_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""As Kafka names them (``TransactionState``)."""


class TransactionAdmin(AdminBase):
    """Asks coordinators for transactions, leaders for producers."""

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_longer_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that pass every filter, by name; ``pattern`` is a regular expression for the whole id.

        Raises ApiError(INVALID_REQUEST) for a state that does not exist, UNSUPPORTED_VERSION for a filter that a
        broker does not know.
        """
        build = _list_request(states, producer_ids, open_longer_ms, pattern)
        return _listings(await self._ask_every_broker(ApiKey.LIST_TRANSACTIONS, build, _check_listed))

    async def reachable_transactions(
        self,
        *,
        states: Collection[str] = (),
        open_longer_ms: int = -1,
        pattern: str | None = None,
        timeout: float = 5.0,
    ) -> tuple[list[TransactionListing], dict[BrokerId, SparklogError]]:
        """What ``list_transactions`` finds at the brokers that answer within ``timeout`` seconds, and why the others do
        not: the ids that these coordinate are missing."""
        build = _list_request(states, (), open_longer_ms, pattern)
        answers = await self._ask_reachable_brokers(ApiKey.LIST_TRANSACTIONS, build, timeout, check=_check_listed)
        failures = {broker: each for broker, each in answers.items() if isinstance(each, SparklogError)}
        heard = {broker: each for broker, each in answers.items() if not isinstance(each, SparklogError)}
        return _listings(heard), failures

    async def sees_all_transactions(self) -> bool:
        """Whether we may describe a transaction of any id; else lists leave out those that we may not, and do not tell.

        A broker is asked for one of an id that nobody has chosen. What we may not describe by its own id is not told by
        that. Raises ApiError: UNSUPPORTED_VERSION.
        """
        name = uuid4().hex
        answer = await self._session.any_broker_request(
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda version: DescribeTransactionsRequest(version=version, transactional_ids=[name]),
            check=lambda _: None,
        )
        return bool(answer.transaction_states[0].error_code != ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """These ids as their coordinators have them; the first unknown one raises."""
        names = checked_names(transactional_ids, "transactional ids")
        return {each: await self._describe_transaction(each) for each in names}

    async def _describe_transaction(self, transactional_id: str, *, settled: bool = False) -> TransactionDescription:
        """``settled``: wait until no transaction of the id is on the way to its end."""

        def check(answer: DescribeTransactionsResponse) -> None:
            described = answer.transaction_states[0]
            _check_described(described, transactional_id)
            if settled and described.transaction_state in _ENDING:
                text = f"the transaction of {transactional_id!r} is about to end: {described.transaction_state}"
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, text)

        answer = await self._ask_transaction_coordinator(
            transactional_id,
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda version: DescribeTransactionsRequest(version=version, transactional_ids=[transactional_id]),
            check,
        )
        found = answer.transaction_states[0]
        return TransactionDescription(
            transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            tuple(sorted(TopicPartition(each.topic, number) for each in found.topics for number in each.partitions)),
        )

    async def end_transaction(self, transactional_id: str, *, commit: bool) -> TransactionDescription:
        """Take the open transaction from its holder, and end it; returns what it was.

        The former holder is fenced. Raises ApiError(INVALID_TXN_STATE) where no transaction is open, or where its
        holder, until it was fenced, has ended it and begun another: that one is left open.
        """
        found = await self._describe_transaction(transactional_id)
        if found.state != ONGOING:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{transactional_id!r} has no transaction open, it is in state {found.state}",
            )
        kept = await self._take_over(transactional_id)
        held = await self._describe_transaction(transactional_id)
        if _identity(held) != _identity(found):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{transactional_id!r} has ended its transaction meanwhile and begun another, which is left open; its"
                " producer is fenced and will not end it",
            )
        await self._end(transactional_id, kept.producer_id, kept.producer_epoch, commit=commit)
        return held

    async def _take_over(self, transactional_id: str) -> InitProducerIdResponse:
        """Become the producer under a new epoch, and leave the transaction open."""
        answer = await self._init_producer(
            transactional_id,
            f"cannot take over the transaction of {transactional_id!r}",
            timeout_ms=_KEEPER_TIMEOUT_MS,
            keep=True,
        )
        if answer.ongoing_txn_producer_id < 0:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} has ended its transaction meanwhile")
        return answer

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that each partition's leader remembers."""
        form = DescribeProducersRequest.TopicRequest

        async def ask(broker: BrokerId, tps: list[TopicPartition]) -> Answers[list[ActiveProducer]]:
            topics = [form(name=name, partition_indexes=numbers) for name, numbers in by_topic(tps).items()]
            answer = await self._session.request(
                broker,
                ApiKey.DESCRIBE_PRODUCERS,
                lambda version: DescribeProducersRequest(version=version, topics=topics),
            )
            return {
                TopicPartition(topic.name, each.partition_index): error_of(each, f"{topic.name}-{each.partition_index}")
                or [_active_producer(producer) for producer in each.active_producers]
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._ask_leaders(checked_partitions(partitions), ask)

    async def hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, silent_since_ms: int
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Producers with an open transaction that no coordinator will end, silent since then; by ``open_since``.

        Partitions in which none hangs are left out. Raises ApiError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED) where some
        seem to hang, and the user may not describe every transactional id: a coordinator may know of theirs.
        """
        suspects = {
            tp: [each for each in producers if each.open_since >= 0 and each.last_timestamp_ms <= silent_since_ms]
            for tp, producers in (await self.describe_producers(partitions)).items()
        }
        producer_ids = {each.producer_id for producers in suspects.values() for each in producers}
        listed = await self.list_transactions(producer_ids=producer_ids) if producer_ids else []
        reached = {each.producer_id: await self._partitions_reached(each.transactional_id) for each in listed}
        hanging = {
            tp: sorted(
                (each for each in producers if tp not in reached.get(each.producer_id, ())),
                key=lambda each: each.open_since,
            )
            for tp, producers in sorted(suspects.items())
        }
        found = {tp: producers for tp, producers in hanging.items() if producers}
        if found and not await self.sees_all_transactions():
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                f"transactions are open in {', '.join(map(str, list(found)[:_NAMED]))}, and whether they hang cannot be"
                " told: that needs DESCRIBE on all transactional ids",
            )
        return found

    async def _partitions_reached(self, transactional_id: str) -> tuple[TopicPartition, ...]:
        try:
            return (await self._describe_transaction(transactional_id)).partitions
        except ApiError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return ()
            raise

    async def abort_transaction(self, tp: TopicPartition, start_offset: int) -> ActiveProducer:
        """Abort the transaction that is open in ``tp`` since ``start_offset``, there only; returns whose it was.

        For one that hangs: the marker is written straight into the partition, past any coordinator. Raises
        ApiError(INVALID_TXN_STATE) if none is open since there.
        """
        producers = (await self.describe_producers([tp]))[tp]
        found = next((each for each in producers if each.open_since == start_offset), None)
        if found is None:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"no transaction is open in {tp} since offset {start_offset}")
        topic = _Marker.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])
        marker = _Marker(
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(found.coordinator_epoch, 0),
        )

        async def ask(broker: BrokerId, _: list[TopicPartition]) -> Answers[bool]:
            answer = await self._session.request(
                broker,
                ApiKey.WRITE_TXN_MARKERS,
                lambda version: WriteTxnMarkersRequest(version=version, markers=[marker]),
            )
            result = answer.markers[0].topics[0].partitions[0]
            return {tp: error_of(result, f"cannot abort at offset {start_offset} of {tp}") or True}

        await self._ask_leaders([tp], ask)
        return found

    async def _init_producer(
        self,
        transactional_id: str,
        refused: str,
        *,
        timeout_ms: int,
        two_phase: bool = False,
        keep: bool = False,
        pair: tuple[int, int] = _WHOEVER,
    ) -> InitProducerIdResponse:
        """A new epoch for the id, if the ``pair`` is still its own; ``keep`` leaves its open transaction open, which
        older clusters cannot. ``refused`` is what an error begins with.
        """

        def build(version: int) -> InitProducerIdRequest:
            if keep and version < _FIRST_INIT_TO_KEEP:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION, "this cluster cannot hand a transaction on: it knows no KIP-939"
                )
            return InitProducerIdRequest(
                version=version,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=pair[0],
                producer_epoch=pair[1],
                enable2_pc=two_phase,
                keep_prepared_txn=keep,
            )

        return await self._ask_transaction_coordinator(
            transactional_id, ApiKey.INIT_PRODUCER_ID, build, lambda answer: raise_error(answer, refused)
        )

    async def _end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, ceiling: int | None = None
    ) -> None:
        await self._ask_transaction_coordinator(
            transactional_id,
            ApiKey.END_TXN,
            lambda version: EndTxnRequest(
                version=version,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=commit,
            ),
            lambda answer: raise_error(answer, f"cannot end the transaction of {transactional_id!r}"),
            ceiling,
        )

    async def _ask_transaction_coordinator(
        self, transactional_id: str, api: ApiKey, build: Build[A], check: Check[A], ceiling: int | None = None
    ) -> A:
        return await self._session.coordinator_request(
            CoordinatorKind.TRANSACTION, transactional_id, api, build, check=check, ceiling=ceiling
        )


def _list_request(
    states: Collection[str], producer_ids: Collection[int], open_longer_ms: int, pattern: str | None
) -> Build[ListTransactionsResponse]:
    states = checked_names(states, "states")

    def build(version: int) -> ListTransactionsRequest:
        if open_longer_ms >= 0 and version < _FIRST_LIST_BY_DURATION:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a broker cannot list transactions by how long they last")
        if pattern is not None and version < _FIRST_LIST_BY_PATTERN:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a broker cannot list transactions by a pattern")
        return ListTransactionsRequest(
            version=version,
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=open_longer_ms,
            transactional_id_pattern=pattern,
        )

    return build


def _check_listed(answer: ListTransactionsResponse) -> None:
    raise_error(answer, "cannot list transactions")


def _listings(answers: dict[BrokerId, ListTransactionsResponse]) -> list[TransactionListing]:
    unknown = {state for answer in answers.values() for state in answer.unknown_state_filters}
    if unknown:
        text = f"no transaction is ever in a state {', '.join(sorted(unknown))}, only in {', '.join(_STATES)}"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    return sorted(
        TransactionListing(each.transactional_id, broker, each.producer_id, each.transaction_state)
        for broker, answer in answers.items()
        for each in answer.transaction_states
    )


def _identity(found: TransactionDescription) -> tuple[int, int, int]:
    """Of an open transaction: two in a row of the first protocol have the same producer id and epoch."""
    return found.producer_id, found.producer_epoch, found.start_ms


def _check_described(each: DescribeTransactionsResponse.TransactionState, transactional_id: str) -> None:
    if ErrorCode(each.error_code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        text = f"no transaction was ever made under {transactional_id!r}, or it is long past"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text)
    raise_error(each, f"transactional id {transactional_id!r}")


def _active_producer(each: DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        each.producer_id,
        each.producer_epoch,
        each.last_sequence,
        each.last_timestamp,
        each.coordinator_epoch,
        each.current_txn_start_offset,
    )
