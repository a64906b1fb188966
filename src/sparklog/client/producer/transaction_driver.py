"""What a transactional producer asks its coordinators; ``transaction`` says when, and what the answers mean.

Each of the program's calls takes ``max.block.ms`` at most, with all that it asks and what it waits for. One that is
not done by then leaves the transaction as it is, so that the call can be made again; a request that is refused spoils
it, or ends the producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from sparklog.client.cluster.session import COORDINATOR, Check, CoordinatorKind, Session, raise_error_code
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.consumer.group.offset_messages import txn_commit_topics
from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.sender import ADDING_PARTITIONS, Sender
from sparklog.client.producer.sequences import ProducerId
from sparklog.client.producer.transaction import NO_TRANSACTION, Severity, Step, Transaction, severity
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    A,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    Request,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from sparklog.structs import TopicPartition, by_topic

_TWO_PHASE_VERSION = 6
_PRODUCE_OF_SECOND_VERSION = 12
_CEILINGS = {ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.END_TXN: 4, ApiKey.TXN_OFFSET_COMMIT: 4}
"""The newest versions of a client that speaks the first protocol."""
_AddedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


Positions = Mapping[TopicPartition, "int | tuple[int, int, str]"]


class TransactionDriver:
    """The I/O of one producer's transactions."""

    def __init__(
        self,
        session: Session,
        config: ProducerConfig,
        transaction: Transaction,
        accumulator: Accumulator,
        sender: Sender,
    ) -> None:
        self._session = session
        self._config = config
        self._transaction = transaction
        self._accumulator = accumulator
        self._sender = sender
        self._ending = asyncio.Lock()
        self._sending: set[asyncio.Future[None]] = set()
        """Calls that send offsets; each is done when its call has ended, well or badly."""
        sender.add_partitions = self._add_partitions

    async def init(self, keep_prepared: bool = False) -> None:
        """Take over the transactional id: fence its last holder, and end what it left open unless that is kept.

        Raises ApiError: INVALID_TXN_STATE the second time, what the coordinator refuses, REQUEST_TIMED_OUT.
        """
        transaction = self._transaction
        if transaction.step is not Step.UNINITIALIZED:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "transactions were initialized already")
        async with self._in_time("init_transactions"):
            producer, prepared = await self._init_producer_id(NO_TRANSACTION, keep_prepared)
            await self._settle_protocol()
        transaction.initialized(producer, prepared)

    @asynccontextmanager
    async def _in_time(self, call: str) -> AsyncIterator[None]:
        """What is done in here ends after ``max.block.ms``. Raises ApiError(REQUEST_TIMED_OUT) then."""
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"{call} was not done within max.block.ms={self._config.max_block_ms}; call it again"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    async def _settle_protocol(self) -> None:
        coordinator = await self._session.coordinator(CoordinatorKind.TRANSACTION, self._config.transactional_id)
        versions = await (await self._session.connection(coordinator, COORDINATOR)).versions()
        self._transaction.second_version = (
            versions.features.get("transaction.version", 0) >= 2
            and versions.best(ApiKey.PRODUCE) >= _PRODUCE_OF_SECOND_VERSION
        )

    async def _init_producer_id(self, current: ProducerId, keep_prepared: bool) -> tuple[ProducerId, ProducerId]:
        two_phase = self._config.two_phase_commit

        def build(version: int) -> InitProducerIdRequest:
            if version < _TWO_PHASE_VERSION and (two_phase or keep_prepared):
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION, "the coordinator does not know two-phase commit (InitProducerId 6)"
                )
            return InitProducerIdRequest(
                version=version,
                transactional_id=self._config.transactional_id,
                transaction_timeout_ms=self._config.transaction_timeout_ms,
                producer_id=current.producer_id,
                producer_epoch=current.epoch,
                enable2_pc=two_phase,
                keep_prepared_txn=keep_prepared,
            )

        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, build)
        kept = ProducerId(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        return ProducerId(answer.producer_id, answer.producer_epoch), kept

    async def _add_partitions(self) -> None:
        """Every partition that was sent to since the last time, in one request."""
        transaction = self._transaction
        wanted = sorted(transaction.pending)
        if not wanted:
            return
        await self._add(
            ApiKey.ADD_PARTITIONS_TO_TXN, lambda version: self._add_request(version, wanted), _check_partitions
        )
        transaction.partitions_added(wanted)

    def _add_request(self, version: int, partitions: list[TopicPartition]) -> AddPartitionsToTxnRequest:
        producer = self._producer
        return AddPartitionsToTxnRequest(
            version=version,
            v3_and_below_transactional_id=self._config.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                _AddedTopic(name=name, partitions=numbers) for name, numbers in by_topic(partitions).items()
            ],
        )

    async def send_offsets(self, offsets: Positions, group: GroupMetadata) -> None:
        """Make the group's offsets part of the transaction. An end of it that comes meanwhile waits for that."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending.add(over)
        try:
            async with self._in_time("send_offsets_to_transaction"):
                await self._send_offsets(offsets, group)
        finally:
            self._sending.discard(over)
            over.set_result(None)

    async def offsets_sent(self) -> None:
        """Return when no call is sending offsets."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def _send_offsets(self, offsets: Positions, group: GroupMetadata) -> None:
        transaction = self._transaction
        transaction.sends_offsets()
        if not transaction.second_version:
            await self._add(
                ApiKey.ADD_OFFSETS_TO_TXN,
                lambda version: AddOffsetsToTxnRequest(
                    version=version,
                    transactional_id=self._config.transactional_id,
                    producer_id=self._producer.producer_id,
                    producer_epoch=self._producer.epoch,
                    group_id=group.group_id,
                ),
            )
        await self._ask(
            ApiKey.TXN_OFFSET_COMMIT,
            lambda version: self._offsets_request(version, offsets, group),
            _check_partitions,
            group=group.group_id,
        )

    def _offsets_request(self, version: int, offsets: Positions, group: GroupMetadata) -> TxnOffsetCommitRequest:
        given = {
            tp: OffsetAndMetadata(at) if isinstance(at, int) else OffsetAndMetadata(*at) for tp, at in offsets.items()
        }
        return TxnOffsetCommitRequest(
            version=version,
            transactional_id=self._config.transactional_id,
            group_id=group.group_id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=txn_commit_topics(given),
        )

    async def end(self, commit: bool) -> None:
        """Commit, once everything is written, or abort: what was not sent yet is not sent any more.

        A spoiled transaction ends in two questions, EndTxn and InitProducerId for the next epoch. A call that is made
        again asks what is not answered yet, and nothing else: EndTxn has no place under an epoch that InitProducerId
        may have raised, nor has the next transaction.

        One at a time: a call that comes meanwhile, from another thread maybe, finds the transaction ended, and ends no
        later one.
        """
        async with self._in_time("commit_transaction" if commit else "abort_transaction"), self._ending:
            await self._end_transaction(commit)

    async def _end_transaction(self, commit: bool) -> None:
        transaction = self._transaction
        transaction.end(commit)
        self._sender.wake()
        await self._sender.flush()
        await self._sender.finish_errand(ADDING_PARTITIONS)  # or it would begin the next transaction
        await self.offsets_sent()  # or they would be refused, or spoil the next one
        transaction.check()
        told = None
        if transaction.has_begun:
            told = await self._end(commit)
            transaction.end_answered()
        if told is None and (transaction.is_spoiled or self._accumulator.needs_new_epoch(self._producer)):
            told, _ = await self._init_producer_id(self._producer, keep_prepared=False)
        transaction.ended(told)

    async def _end(self, commit: bool) -> ProducerId | None:
        """The next epoch, where the coordinator has raised it with the end of the transaction.

        INVALID_TXN_STATE says of one that is aborted, and of which only a doubt is known, that it never began.
        """
        transaction = self._transaction

        def check(answer: EndTxnResponse) -> None:
            if answer.error_code == ErrorCode.INVALID_TXN_STATE and not commit and not transaction.is_known:
                transaction.never_began()
            else:
                raise_error_code(answer)

        answer = await self._ask(
            ApiKey.END_TXN,
            lambda version: EndTxnRequest(
                version=version,
                transactional_id=self._config.transactional_id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                committed=commit,
            ),
            check,
        )
        return ProducerId(answer.producer_id, answer.producer_epoch) if answer.producer_id >= 0 else None

    async def _add(self, api: ApiKey, build: Callable[[int], Request[A]], check: Check[A] = raise_error_code) -> None:
        """``_ask`` for what the coordinator adds to the transaction.

        What it refused is not in it, if that was its first answer: an attempt before may have been taken.
        """
        attempts = 0

        def attempt(version: int) -> Request[A]:
            nonlocal attempts
            attempts += 1
            return build(version)

        added: bool | None = None
        self._transaction.asks_to_add()
        try:
            await self._ask(api, attempt, check)
            added = True
        except SparklogError as error:
            added = False if attempts == 1 and severity(error) is Severity.ABORTABLE else None
            raise
        finally:
            self._transaction.add_answered(added if attempts else False)

    @property
    def _producer(self) -> ProducerId:
        assert self._transaction.producer is not None
        return self._transaction.producer

    async def _ask(
        self,
        api: ApiKey,
        build: Callable[[int], Request[A]],
        check: Check[A] = raise_error_code,
        *,
        group: str | None = None,
    ) -> A:
        kind = CoordinatorKind.TRANSACTION if group is None else CoordinatorKind.GROUP
        key = self._config.transactional_id if group is None else group
        ceiling = None if self._transaction.second_version else _CEILINGS.get(api)
        patience = self._config.max_block_ms
        try:
            return await self._session.coordinator_request(
                kind, key, api, build, check=check, ceiling=ceiling, patience_ms=patience
            )
        except SparklogError as error:
            if severity(error) is Severity.RETRIABLE:
                raise
            told = self._transaction.explained(error)
            self._transaction.failed(told)
            raise told from error


def _check_partitions(answer: AddPartitionsToTxnResponse | TxnOffsetCommitResponse) -> None:
    """Raises what went wrong with a partition: first what will pass by itself, so that all is asked for again."""
    topics = getattr(answer, "results_by_topic_v3_and_below", None) or getattr(answer, "topics", None) or []
    refused: ApiError | None = None
    for topic in topics:
        for each in getattr(topic, "results_by_partition", None) or topic.partitions:
            code = ErrorCode(getattr(each, "partition_error_code", 0) or getattr(each, "error_code", 0))
            if code is ErrorCode.NONE:
                continue
            error = ApiError(code, f"topic {topic.name!r} in the transaction")
            if code.retriable:
                raise error
            if refused is None or refused.code is ErrorCode.OPERATION_NOT_ATTEMPTED:
                refused = error
    if refused is not None:
        raise refused
