"""Transactions that one process writes and another ends: begun here, named by a pair, ended by a program that knows the
pair.

The first protocol is spoken throughout (AddPartitionsToTxn 3, EndTxn 4): in it a transaction keeps the producer id and
epoch of its batches to its end, and may be ended again with the same outcome. An epoch has one transaction only here:
a program that begins one asks for an epoch first, and one that aborts another's retires its pair, or its holder could
open another one by going on. So the pair names that transaction and no later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sparklog.client.admin.base import raise_error
from sparklog.client.admin.transactions import ONGOING, TransactionAdmin, TransactionDescription
from sparklog.client.cluster.session import CoordinatorKind
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.client.consumer.group.offset_messages import txn_commit_topics
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from sparklog.structs import TopicPartition, by_topic

_E = ErrorCode
_LAST_ADD_PARTITIONS, _LAST_ADD_OFFSETS, _LAST_END, _LAST_TXN_OFFSET_COMMIT = 3, 3, 4, 4
_RETIRED_TIMEOUT_MS = 1
"""The least there is, which no ``transaction.max.timeout.ms`` forbids: no transaction follows in that epoch."""
_NOT_TWO_PHASE = frozenset({_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _E.UNSUPPORTED_VERSION, _E.INVALID_REQUEST})
_OTHERS = frozenset(
    {
        _E.PRODUCER_FENCED,
        _E.INVALID_PRODUCER_EPOCH,
        _E.INVALID_PRODUCER_ID_MAPPING,
        _E.INVALID_TXN_STATE,
        _E.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""What an end is refused with where the pair's transaction is not open, or not the pair's to end."""
_EMPTY = "Empty"
_COMMITTED = "CompleteCommit"
_COMMITTING = "PrepareCommit"
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class PreparedTransaction(NamedTuple):
    """One transaction: its id, and the pair of its batches, which no other transaction of that id has."""

    transactional_id: str
    producer_id: int
    epoch: int


class PreparedAdmin(TransactionAdmin):
    """Begins transactions that others end, and ends those that others began."""

    async def init_prepared(self, transactional_id: str, timeout_ms: int) -> PreparedTransaction | None:
        """A new transaction under the id, not open yet; None where the id has one open, which is left as it is.

        It has no timeout where the cluster knows two-phase commit and allows it; else ``timeout_ms`` is its timeout,
        and two that ask for the same id at the same moment may abort one another.
        """
        try:
            return await self._init(transactional_id, timeout_ms, two_phase=True)
        except ApiError as error:
            if error.code not in _NOT_TWO_PHASE:
                raise
        found = await self._found(transactional_id)
        if found is not None and found.state == ONGOING:
            return None
        return await self._init(transactional_id, timeout_ms, two_phase=False)

    async def _init(self, transactional_id: str, timeout_ms: int, *, two_phase: bool) -> PreparedTransaction | None:
        answer = await self._init_producer(
            transactional_id,
            f"cannot begin a transaction as {transactional_id!r}",
            timeout_ms=timeout_ms,
            two_phase=two_phase,
            keep=two_phase,
        )
        if two_phase and answer.ongoing_txn_producer_id >= 0:
            return None
        return PreparedTransaction(transactional_id, answer.producer_id, answer.producer_epoch)

    async def add_to_prepared(self, transaction: PreparedTransaction, partitions: Iterable[TopicPartition]) -> None:
        """The partitions belong to the transaction from now on; the first ones open it."""
        topics = [_Topic(name=name, partitions=numbers) for name, numbers in by_topic(partitions).items()]

        def check(answer: AddPartitionsToTxnResponse) -> None:
            refused = [
                (f"{topic.name}-{each.partition_index}", _E(each.partition_error_code))
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
                if each.partition_error_code
            ]
            for where, code in sorted(refused, key=lambda each: each[1] is _E.OPERATION_NOT_ATTEMPTED):
                raise ApiError(code, f"partition {where} cannot be written in a transaction: {code.name}")

        await self._ask_transaction_coordinator(
            transaction.transactional_id,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            lambda version: AddPartitionsToTxnRequest(
                version=version,
                v3_and_below_transactional_id=transaction.transactional_id,
                v3_and_below_producer_id=transaction.producer_id,
                v3_and_below_producer_epoch=transaction.epoch,
                v3_and_below_topics=topics,
            ),
            check,
            _LAST_ADD_PARTITIONS,
        )

    async def begin_anew(self, transactional_id: str, timeout_ms: int) -> PreparedTransaction:
        """A new transaction under the id, not open yet. What the id has open is aborted, and its holder is fenced.

        The coordinator aborts it when it was open for ``timeout_ms``.
        """
        begun = await self._init(transactional_id, timeout_ms, two_phase=False)
        assert begun is not None
        return begun

    async def add_offsets(
        self, transaction: PreparedTransaction, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """The group's offsets are stored when the transaction is committed. Raises ApiError."""
        await self._ask_transaction_coordinator(
            transaction.transactional_id,
            ApiKey.ADD_OFFSETS_TO_TXN,
            lambda version: AddOffsetsToTxnRequest(
                version=version,
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                group_id=group_id,
            ),
            lambda answer: raise_error(answer, f"group {group_id!r} cannot be part of the transaction"),
            _LAST_ADD_OFFSETS,
        )

        def check(answer: TxnOffsetCommitResponse) -> None:
            for topic in answer.topics:
                for each in topic.partitions:
                    raise_error(each, f"offset of group {group_id!r} for {topic.name}-{each.partition_index}")

        topics = txn_commit_topics(offsets)
        await self._session.coordinator_request(
            CoordinatorKind.GROUP,
            group_id,
            ApiKey.TXN_OFFSET_COMMIT,
            lambda version: TxnOffsetCommitRequest(
                version=version,
                transactional_id=transaction.transactional_id,
                group_id=group_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                topics=topics,
            ),
            check=check,
            ceiling=_LAST_TXN_OFFSET_COMMIT,
        )

    async def open_transactions(
        self, transactional_ids: Collection[str], *, also_ended: bool = False
    ) -> dict[str, TransactionDescription]:
        """Those of the ids that have a transaction open or on the way to its end; ``also_ended``: all known ids."""
        found = await asyncio.gather(*(self._found(each) for each in transactional_ids))
        return {each.transactional_id: each for each in found if each is not None and (also_ended or each.partitions)}

    async def open_under(self, prefix: str) -> set[PreparedTransaction]:
        """The open transactions whose ids begin so. The broker that lists an id is its coordinator, so it need not be
        looked up.
        """
        listed = await self.list_transactions(states=[ONGOING])
        mine = [each for each in listed if each.transactional_id.startswith(prefix)]
        for each in mine:
            self._session.remember_coordinator(CoordinatorKind.TRANSACTION, each.transactional_id, each.coordinator)
        found = await self.open_transactions([each.transactional_id for each in mine])
        return {PreparedTransaction(key, *_pair(each)) for key, each in found.items() if each.state == ONGOING}

    async def committed_under(self, prefix: str) -> list[str]:
        """Ids that begin so whose last transaction was committed, or is on its way to it; by name.

        A coordinator forgets an id that was not used for ``transactional.id.expiration.ms``.
        """
        listed = await self.list_transactions(states=[_COMMITTING, _COMMITTED])
        return [each.transactional_id for each in listed if each.transactional_id.startswith(prefix)]

    async def end_prepared(self, transactions: Collection[PreparedTransaction], *, commit: bool) -> list[bool | None]:
        """End these, each by its pair; whether each has ended so, now or before.

        False where it has ended otherwise, or never was open. None where the id is known no more, or has a new epoch
        and no transaction yet: nothing is left to end, but how it ended cannot be told. A transaction that another
        program has taken over (``keepPreparedTxn``) is taken back; if that program has ended it already, the markers
        are waited for, and the id's last transaction is taken for this one. Else this returns when the coordinator has
        accepted every end: markers may follow a moment later.
        """
        return list(await asyncio.gather(*(self._end_prepared(each, commit) for each in transactions)))

    async def retire_prepared(self, transactions: Collection[PreparedTransaction]) -> None:
        """Let no transaction be opened again under these pairs. One that is open is aborted.

        Where the id has another pair by now, nothing is left to do; the coordinator itself would abort what that has
        open (Kafka's too), so no other may begin one under the id at the same moment.
        """
        await asyncio.gather(*(self._retire(each) for each in transactions))

    async def _retire(self, transaction: PreparedTransaction) -> None:
        found = await self._found(transaction.transactional_id)
        if found is None or _pair(found) != transaction[1:]:
            return
        refused = f"cannot retire the epoch of {transaction.transactional_id!r}"
        try:
            await self._init_producer(
                transaction.transactional_id, refused, timeout_ms=_RETIRED_TIMEOUT_MS, pair=transaction[1:]
            )
        except ApiError as error:
            if error.code not in _OTHERS:
                raise

    async def _end_prepared(self, transaction: PreparedTransaction, commit: bool) -> bool | None:
        if await self._end_by_pair(transaction, commit):
            return True
        found = await self._found(transaction.transactional_id, settled=True)
        is_its_own = found is not None and _pair(found) == transaction[1:]
        if found is None or (found.state == _EMPTY and not is_its_own):
            return None
        if found.state != ONGOING or not is_its_own:
            return commit and found.state == _COMMITTED
        kept = await self._take_over(transaction.transactional_id)
        if (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) != transaction[1:]:
            return False
        holder = PreparedTransaction(transaction.transactional_id, kept.producer_id, kept.producer_epoch)
        return await self._end_by_pair(holder, commit)

    async def _end_by_pair(self, transaction: PreparedTransaction, commit: bool) -> bool:
        try:
            await self._end(*transaction, commit=commit, ceiling=_LAST_END)
        except ApiError as error:
            if error.code in _OTHERS:
                return False
            raise
        return True

    async def _found(self, transactional_id: str, *, settled: bool = False) -> TransactionDescription | None:
        try:
            return await self._describe_transaction(transactional_id, settled=settled)
        except ApiError as error:
            if error.code is _E.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise


def _pair(found: TransactionDescription) -> tuple[int, int]:
    return found.producer_id, found.producer_epoch
