"""Random lives of one transactional id, with producers of both versions, over the rules of a partition's leader."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.errors import ApiError, ErrorCode
from sparklog.log.origin import AppendOrigin
from sparklog.log.producer_state import ProducerStateManager
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.structs import TopicPartition
from sparklog.txn.machine import Decision, EndRequest, InitRequest, TransactionMachine, TransactionSettings
from sparklog.txn.markers import Marker, marker_of
from sparklog.txn.records import read_value, value_of
from sparklog.txn.state import (
    COMPLETION,
    LAST_EPOCH,
    NO_EPOCH,
    PREDECESSORS,
    ClientVersion,
    HeldTransaction,
    Producer,
    Transaction,
    TransactionState,
)

S = TransactionState
E = ErrorCode
V = ClientVersion
MACHINE = TransactionMachine(TransactionSettings(900_000, 10_000, allows_two_phase=True))
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
VERSIONS = st.sampled_from(list(V))


class Leader:
    """What a partition's leader takes: the real rules over a log that remembers whose batches each marker ended."""

    def __init__(self) -> None:
        self.state = ProducerStateManager(Path("nowhere"))
        self.open: int | None = None
        self.ended: dict[int, bool] = {}

    def take(self, batch: bytes, origin: AppendOrigin) -> bool:
        parsed = RecordBatch(bytearray(batch))
        try:
            self.state.check(parsed, 0, origin)
        except ApiError:
            return False
        parsed.assign(self.state.end_offset, 0)
        self.state.update(parsed, 0)
        return True

    def write(self, producer: Producer, sequence: int, transaction: int) -> bool:
        builder = RecordBatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.append(0, None, b"v")
        taken = self.take(builder.build(), AppendOrigin.CLIENT)
        if taken:
            assert self.open in (None, transaction), "a transaction's batch beside another's that is open"
            self.open = transaction
        return taken

    def mark(self, marker: Marker) -> None:
        kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
        batch = build_marker(
            EndTransactionMarker(kind, marker.coordinator_epoch), ProducerIdAndEpoch(*marker.producer), 0
        )
        origin = AppendOrigin.RAISED_MARKER if marker.raises_epoch else AppendOrigin.COORDINATOR
        if self.take(batch, origin) and self.open is not None:
            assert self.ended.setdefault(self.open, marker.commit) == marker.commit
            self.open = None


class TransactionalLife(RuleBasedStateMachine):
    """Producers of both versions come and go, and may not hear what they are told; writes succeed or fail; markers
    come twice, and late; the coordinator starts again from its log; time passes.

    Whatever happens: a transaction ends once, as was decided first, in every partition; nothing is open that no marker
    will reach; whoever is not the client of now changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: HeldTransaction | None = None
        self.now = 100_000
        self.ids = iter(range(100, 1 << 30))
        self.told: list[Producer] = []
        self.log: list[Transaction] = []
        self.leaders = {A: Leader(), B: Leader()}
        self.number = 0
        self.decided: dict[int, bool] = {}
        self.sent: list[tuple[Marker, TopicPartition]] = []

    # What the coordinator does.

    def write(self, decision: Decision, works: bool) -> Transaction | None:
        record = decision.record
        if record is None:
            return None
        if self.held is None:
            self.held = HeldTransaction(record._replace(epoch=NO_EPOCH))
        before = self.held.current
        self.held.begin(record)
        if not works:
            self.held.failed()
            if self.held.current.epoch == NO_EPOCH:
                self.held = None
            return None
        self.log.append(self.held.written())
        if record.state is S.ONGOING and before.state is not S.ONGOING:
            self.number += 1
        if record.state in COMPLETION:
            if before.state is not S.ONGOING:
                self.number += 1  # an abort of nothing
            assert self.decided.setdefault(self.number, record.state is S.PREPARE_COMMIT) == (
                record.state is S.PREPARE_COMMIT
            )
        return record

    def somebody(self) -> st.SearchStrategy[Producer]:
        """Whoever was told last, more often than one of those before."""
        return st.sampled_from([self.told[-1], self.told[-1], self.told[-1], *self.told[-3:]])

    @property
    def client(self) -> Producer | None:
        return self.log[-1].client if self.log else None

    @rule(works=st.booleans(), heard=st.booleans(), going_on=st.booleans(), keeps=st.booleans(), two=st.booleans())
    def begin(self, works: bool, heard: bool, going_on: bool, keeps: bool, two: bool) -> None:
        expected = self.told[-1] if going_on and self.told else None
        asked = InitRequest("id", 5000, expected, two, keeps)
        decision = MACHINE.init(self.held, asked, next(self.ids), self.now)
        open_before = self.log[-1] if self.log and self.log[-1].state is S.ONGOING else None
        record = self.write(decision, works)
        if record is None or decision.error is not E.NONE:
            return
        if open_before is not None:
            assert keeps
            assert record.is_kept
            assert record.producer == open_before.producer
            assert record.partitions == open_before.partitions
        if heard and record.client not in self.told:
            self.told.append(record.client)

    @rule()
    def wear_out(self) -> None:
        """As many producers as there are epochs but one."""
        if self.held is not None and self.held.current.state is S.EMPTY and self.held.current.epoch < LAST_EPOCH - 3:
            worn = self.held.current._replace(epoch=LAST_EPOCH - 3, last_epoch=NO_EPOCH)
            self.held.current = worn
            self.log.append(worn)
            self.told.append(worn.producer)

    @rule(data=st.data(), works=st.booleans(), tp=st.sampled_from([A, B]), version=VERSIONS)
    def write_to(self, data: st.DataObject, works: bool, tp: TopicPartition, version: V) -> None:
        """A batch begins or goes on: it is added in the second version, verified in the first."""
        if not self.told:
            return
        producer = data.draw(self.somebody())
        leader = self.leaders[tp]
        if not leader.state.has_open_transaction(*producer):
            decision = MACHINE.add_partitions(self.held, producer, [tp], self.now, version)
            self.write(decision, works)
            if MACHINE.verify(self.held, producer, tp) is not E.NONE:
                return
            assert self.held is not None
            assert producer == self.held.current.client == self.held.current.producer
        entry = next((each for each in leader.state.entries if each.producer_id == producer.producer_id), None)
        same = entry is not None and entry.epoch == producer.epoch
        leader.write(producer, entry.last_sequence + 1 if entry is not None and same else 0, self.number)

    @rule(data=st.data(), works=st.booleans(), commit=st.booleans(), heard=st.booleans(), version=VERSIONS)
    def end(self, data: st.DataObject, works: bool, commit: bool, heard: bool, version: V) -> None:
        if not self.told or self.held is None:
            return
        producer = data.draw(self.somebody())
        before = self.held.current
        decision = MACHINE.end(self.held, EndRequest(producer, commit, version), next(self.ids), now_ms=self.now)
        if decision.record is not None:
            assert producer == before.client
        elif decision.error is E.NONE:
            assert producer == before.client or before.was_ended_by(producer)
            assert commit == (before.state is S.COMPLETE_COMMIT)
        self.write(decision, works)
        if heard and self.client is not None and decision.error is E.NONE and (works or decision.record is None):
            assert version is V.CLASSIC or self.client != producer
            if self.client not in self.told:
                self.told.append(self.client)

    @rule(works=st.booleans(), reached=st.sets(st.sampled_from([A, B])))
    def markers_are_written(self, works: bool, reached: set[TopicPartition]) -> None:
        """To all partitions before the complete record; a coordinator that dies has reached some."""
        if self.held is None or self.held.current.state not in COMPLETION:
            return
        prepared = self.held.current
        marker = marker_of(prepared, 0)
        assert marker.commit == self.decided[self.number]
        for tp in prepared.partitions if works else prepared.partitions & reached:
            self.leaders[tp].mark(marker)
            self.sent.append((marker, tp))
        self.write(Decision(record=MACHINE.complete(prepared, self.now)), works)

    @rule(data=st.data())
    def a_marker_comes_again(self, data: st.DataObject) -> None:
        """Late, perhaps when the next transaction is open. One of the first version then ends what it should not."""
        raised = [each for each in self.sent if each[0].raises_epoch]
        if raised:
            marker, tp = data.draw(st.sampled_from(raised))
            self.leaders[tp].mark(marker)

    @rule(ms=st.integers(0, 100_000), works=st.booleans())
    def time_passes(self, ms: int, works: bool) -> None:
        self.now += ms
        if self.held is not None:
            aborted = MACHINE.time_out(self.held, self.now)
            assert aborted is None or not self.held.current.is_two_phase
            self.write(Decision(record=aborted), works)

    @rule()
    def the_coordinator_starts_again(self) -> None:
        if self.log:
            value = value_of(self.log[-1])
            assert value is not None
            last = read_value("id", value)
            assert (last.client, last.producer, last.state) == (
                self.log[-1].client, self.log[-1].producer, self.log[-1].state
            )  # fmt: skip
            self.held = HeldTransaction(last)

    @invariant()
    def every_step_in_the_log_is_one_of_the_table(self) -> None:
        for before, after in zip(self.log[-2:], self.log[-1:], strict=False):
            assert before.state in PREDECESSORS[after.state]
            if before.state in COMPLETION:
                assert after.producer == before.client
            if after.producer_id == before.producer_id:
                assert after.epoch >= before.epoch
            assert after.client.epoch <= LAST_EPOCH

    @invariant()
    def what_is_open_will_get_a_marker(self) -> None:
        for tp, leader in self.leaders.items():
            if leader.open is not None:
                assert self.log[-1].state is S.ONGOING or self.log[-1].state in COMPLETION
                assert tp in self.log[-1].partitions
                assert leader.open == self.number
            for number, commit in leader.ended.items():
                assert self.decided[number] == commit


TestTransactionalLife = TransactionalLife.TestCase
