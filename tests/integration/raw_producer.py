"""A transactional producer request by request, of either version: what a test wants sent, and no more."""

from typing import Any

from integration import wire

from sparklog.errors import ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.txn.state import Producer

PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""What is asked again."""
NOBODY = Producer(-1, -1)
UNHURRIED_MS = 900_000
"""The longest timeout that brokers grant a transaction by default: no test lasts as long."""


class RawProducer:
    """``version`` 2 as Kafka 4's clients speak, 1 as those before. ``me`` is who it believes to be."""

    def __init__(self, address: str, transactional_id: str, version: int = 2) -> None:
        self.address, self.id, self.version = address, transactional_id, version
        self.me = self.ongoing = NOBODY
        self._sequences: dict[tuple[Producer, TopicPartition], int] = {}

    def _ask(self, address: str, api: ApiKey, version: int, message: Any) -> Any:
        with wire.connect(address) as connection:
            return wire.ask(connection, api, version, message)

    def coordinator(self) -> str:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id])

        def found() -> Any | None:
            (answer,) = self._ask(self.address, ApiKey.FIND_COORDINATOR, 4, request).coordinators
            return answer if answer.error_code == 0 else None

        answer = eventually(found)
        return f"{answer.host}:{answer.port}"

    def leader(self, tp: TopicPartition) -> str:
        def found() -> str | None:
            with wire.connect(self.address) as connection:
                answer = wire.metadata(connection, tp.topic)
            brokers = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
            leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
            return brokers.get(leaders.get(tp.partition))

        return eventually(found)

    def init(self, *, two_phase: bool = False, keep: bool = False, timeout_ms: int = UNHURRIED_MS) -> ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )

        def once() -> ErrorCode:
            version = 6 if self.version == 2 else 4
            answer = self._ask(self.coordinator(), ApiKey.INIT_PRODUCER_ID, version, request)
            if answer.error_code == 0:
                self.me = Producer(answer.producer_id, answer.producer_epoch)
                self.ongoing = Producer(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
            return ErrorCode(answer.error_code)

        return lasting(once)

    def add(self, *partitions: TopicPartition) -> ErrorCode:
        """Only the first version does."""
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.me.producer_id,
            v3_and_below_producer_epoch=self.me.epoch,
            v3_and_below_topics=[topic(name=tp.topic, partitions=[tp.partition]) for tp in partitions],
        )

        def once() -> ErrorCode:
            answer = self._ask(self.coordinator(), ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
            return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        return lasting(once)

    def send(self, connection: BlockingConnection, tp: TopicPartition, value: bytes) -> None:
        """Put one batch on the wire, the next of its sequence."""
        sequence = self._sequences.setdefault((self.me, tp), 0)
        self._sequences[self.me, tp] += 1
        batch = wire.batch_of(
            value,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = ProduceRequest.TopicProduceData
        partition = data.PartitionProduceData(index=tp.partition, records=bytes(batch))
        request = ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=20_000,
            topic_data=[data(name=tp.topic, partition_data=[partition])],
        )
        version = 12 if self.version == 2 else 11
        connection.send(ApiKey.PRODUCE, version, [wire.encode(request, version)])

    def receive(self, connection: BlockingConnection) -> ErrorCode:
        _, version, body = connection.receive()
        (topic,) = wire.decode_response(ApiKey.PRODUCE, version, body).responses
        (result,) = topic.partition_responses
        return ErrorCode(result.error_code)

    def write(self, tp: TopicPartition, value: bytes) -> ErrorCode:
        def once() -> ErrorCode:
            before, code = dict(self._sequences), None
            try:
                with wire.connect(self.leader(tp)) as connection:
                    self.send(connection, tp, value)
                    code = self.receive(connection)
            finally:
                if code is not ErrorCode.NONE:  # what is asked again is the same batch
                    self._sequences = before
            return code

        return lasting(once)

    def commit_offset(self, group: str, tp: TopicPartition, offset: int) -> ErrorCode:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            topics=[topic(name=tp.topic, partitions=[partition])],
        )

        def once() -> ErrorCode:
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            (found,) = self._ask(self.address, ApiKey.FIND_COORDINATOR, 4, find).coordinators
            if found.error_code:
                return ErrorCode(found.error_code)
            version = 5 if self.version == 2 else 3
            answer = self._ask(f"{found.host}:{found.port}", ApiKey.TXN_OFFSET_COMMIT, version, request)
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        return lasting(once)

    def end(self, *, commit: bool) -> ErrorCode:
        """As ``me``, which in the second version is somebody else afterwards."""
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            committed=commit,
        )

        def once() -> ErrorCode:
            answer = self._ask(self.coordinator(), ApiKey.END_TXN, 5 if self.version == 2 else 3, request)
            if answer.error_code == 0 and self.version == 2:
                self.me = Producer(answer.producer_id, answer.producer_epoch)
            return ErrorCode(answer.error_code)

        return lasting(once)


def lasting(ask) -> ErrorCode:
    """The first answer that is not to be asked for again."""

    def once() -> tuple[ErrorCode] | None:
        code = ask()
        return None if code in PASSING else (code,)

    return eventually(once)[0]
