"""Order and exactly once, against a model of a partition's leader: whatever is refused, lost, late or given up."""

import itertools
from collections import deque

import pytest
from client.producer.leader_model import Leader
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.sequences import (
    FORGOTTEN_AFTER,
    LAST_EPOCH,
    Numbering,
    PartitionSequences,
    ProducerId,
    Verdict,
)
from sparklog.errors import ApiError, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_records
from sparklog.structs import TopicPartition

_TP = TopicPartition("t", 0)
_E = ErrorCode
_PATIENCE = 10.0


class Scene:
    """A producer's half without its I/O, a connection that answers in order, and a leader."""

    def __init__(self, **config):
        self.config = ProducerConfig.of(
            bootstrap_servers="h:1", linger_ms=0, batch_size=130, retry_backoff_ms=10, **config
        )
        self.accumulator = Accumulator(self.config)
        self.leader = Leader()
        self.producer = ProducerId(7, 0)
        self.now = 0.0
        self.sent = 0
        self.futures = {}
        self.wire = deque()  # of [batch, data, answer or None]
        self.refused = set()
        self.doubtful = {}  # batch whose fate is unknown → the stamp that it must keep
        self.stranded = 0

    def append(self):
        future = self.accumulator.append(_TP, 0, None, str(self.sent).encode(), (), self.now)
        assert future is not None
        self.futures[self.sent] = future
        self.sent += 1

    def send(self):
        if self.accumulator.needs_new_id(self.producer):
            self.producer = ProducerId(self.producer.producer_id + 1, 0)
        for batch in self.accumulator.stranded():
            assert batch in self.doubtful
            self.stranded += 1
            batch.delivery.fail(ApiError(_E.OUT_OF_ORDER_SEQUENCE_NUMBER))
        for queue in list(self.accumulator.due(self.now)):
            if len(self.wire) < self.config.max_in_flight:
                batch = self.accumulator.take(queue, self.producer)
                if batch is not None:
                    assert queue.open is not batch
                    assert batch.stamp == self.doubtful.get(batch, batch.stamp), "numbered anew in doubt"
                    self.wire.append([batch, bytes(batch.encode(CompressionType.NONE, False)), None])

    def process(self, outcome=None):
        """The leader looks at the oldest request that it has not seen."""
        for entry in self.wire:
            if entry[2] is None:
                entry[2] = self.leader.append(entry[1]) if outcome is None else (outcome, -1)
                return

    def answer(self):
        if self.wire and self.wire[0][2] is not None:
            batch, _, (code, offset) = self.wire.popleft()
            self._settle(batch, code, offset)

    def break_connection(self):
        wire, self.wire = self.wire, deque()
        for batch, _, _ in wire:
            self._settle(batch, _E.NETWORK_EXCEPTION, -1)

    def late(self):
        """The leader takes the requests, their answers are lost."""
        while any(entry[2] is None for entry in self.wire):
            self.process()
        self.break_connection()

    def restart(self):
        self.break_connection()
        self.leader.restart()

    def sleep(self):
        """When all is settled the program pauses, for so long that the leader forgets the producer."""
        self.settle_everything()
        self.now += 86_400
        self.leader.forget()

    def _settle(self, batch, code, offset):
        first_attempt = batch.attempts == 1
        if code in (_E.NETWORK_EXCEPTION, _E.NOT_LEADER_OR_FOLLOWER, _E.KAFKA_STORAGE_ERROR):
            self.doubtful.setdefault(batch, batch.stamp)
        verdict = self.accumulator.answered(batch, code, self.now)
        if verdict is Verdict.DONE:
            batch.delivery.succeed(offset, -1)
        elif verdict is Verdict.FAIL:
            if first_attempt:
                self.refused.add(batch.delivery)
            batch.delivery.fail(ApiError(code))

    def advance(self, seconds):
        self.now += seconds
        for batch in self.accumulator.expire(self.now):
            batch.delivery.fail(ApiError(_E.REQUEST_TIMED_OUT))

    def settle_everything(self):
        for _ in range(2000):
            if self.accumulator.is_empty:
                return
            self.advance(0.011)
            self.send()
            self.process()
            self.answer()
        raise AssertionError("it does not come to rest")

    def check(self):
        log = self.leader.log
        assert log == sorted(set(log)), "out of order, or twice"
        for value, future in self.futures.items():
            assert future.done()
            if future.exception() is None:
                offset = future.result().offset
                assert value in log
                assert offset == -1 or log[offset] == value
            elif future.delivery in self.refused:
                assert value not in log
        assert self.accumulator.used == 0


_STEPS = st.lists(
    st.sampled_from(
        ["put"] * 8
        + ["append", "send", "send"]
        + ["process"] * 4
        + ["answer"] * 4
        + ["ack"] * 3
        + ["wait", "wait", "expire", "break", "late", "restart", "not leader", "storage", "too large", "invalid"]
        + ["sleep"]
    ),
    min_size=15,
    max_size=100,
)
_REFUSALS = {
    "not leader": _E.NOT_LEADER_OR_FOLLOWER,
    "storage": _E.KAFKA_STORAGE_ERROR,
    "too large": _E.MESSAGE_TOO_LARGE,
    "invalid": _E.INVALID_RECORD,
}


def _play(scene, steps):
    for step in ["put", "ack", *steps]:
        if step == "put":
            scene.append()
            scene.accumulator.incomplete()  # closes the batch
            scene.send()
        elif step == "ack":
            scene.process()
            scene.answer()
        elif step == "wait":
            scene.advance(0.02)
        elif step == "expire":
            scene.advance(_PATIENCE + 1)
        elif step == "break":
            scene.break_connection()
        elif step in _REFUSALS:
            scene.process(_REFUSALS[step])
        else:
            getattr(scene, step)()


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(steps=_STEPS)
def test_each_record_once_and_in_order(steps):
    scene = Scene(delivery_timeout_ms=int(_PATIENCE * 1000), request_timeout_ms=1000)
    _play(scene, steps)
    scene.settle_everything()
    scene.check()


@pytest.mark.parametrize("first", ["process", "late", "break", "restart", "not leader", "invalid", "answer"])
def test_no_batch_in_doubt_is_numbered_anew_however_four_are_met(first):
    """Every order of what can happen to four batches in flight; ``Scene.send`` looks at the stamps."""
    meetings = ("process", "late", "break", "restart", "not leader", "invalid", "answer", "wait")
    for steps in itertools.product(meetings, repeat=3):
        scene = Scene()
        _play(scene, ["put"] * 4 + [first, *steps])
        scene.settle_everything()
        scene.check()


@settings(deadline=None, max_examples=settings().max_examples)
@given(steps=_STEPS)
def test_and_when_epochs_run_out(steps):
    scene = Scene(delivery_timeout_ms=int(_PATIENCE * 1000), request_timeout_ms=1000)
    scene.producer = ProducerId(7, LAST_EPOCH - 1)
    _play(scene, steps)
    scene.settle_everything()
    scene.check()


@settings(deadline=None, max_examples=settings().max_examples)
@given(steps=_STEPS)
def test_without_idempotence_nothing_acknowledged_is_missing(steps):
    scene = Scene(
        delivery_timeout_ms=int(_PATIENCE * 1000), request_timeout_ms=1000, enable_idempotence=False, retries=3
    )
    scene.leader.append = lambda data: (
        scene.leader.log.extend(int(record.value) for record in iter_records(RecordBatch(data))) or (_E.NONE, 0)
    )
    _play(scene, steps)
    scene.settle_everything()
    for value, future in scene.futures.items():
        assert future.exception() is not None or value in scene.leader.log


def _sending(count=3):
    """``count`` batches of one record, the first proven, so that the rest are in flight together."""
    scene = Scene()
    for _ in range(count):
        scene.append()
        scene.accumulator.incomplete()  # closes the batch
    for _ in range(count):
        scene.send()
        if len(scene.wire) == 1 and not scene.leader.log:
            scene.process()
            scene.answer()
    return scene


def test_the_first_batch_goes_alone():
    scene = Scene()
    for _ in range(3):
        scene.append()
        scene.accumulator.incomplete()
    for _ in range(3):
        scene.send()
    assert len(scene.wire) == 1
    scene.process()
    scene.answer()
    for _ in range(3):
        scene.send()
    assert len(scene.wire) == 2


def test_after_a_pause_the_first_batch_goes_alone_for_the_leader_may_have_forgotten_the_producer():
    scene = _sending(1)
    scene.sleep()
    for _ in range(2):
        scene.append()
        scene.append()
        scene.accumulator.incomplete()  # closes the batch
    for _ in range(2):
        scene.send()
    scene.process(_E.MESSAGE_TOO_LARGE)
    scene.process()
    scene.answer()
    scene.settle_everything()
    scene.check()
    assert scene.leader.log == [0, 1, 2, 3, 4]


def test_without_a_pause_batches_are_under_way_together():
    scene = _sending(1)
    scene.now += FORGOTTEN_AFTER
    for _ in range(2):
        scene.append()
        scene.accumulator.incomplete()
        scene.send()
    assert len(scene.wire) == 2


def test_what_is_sent_again_keeps_its_number():
    scene = _sending()
    stamps = [entry[0].stamp for entry in scene.wire]
    scene.break_connection()
    scene.advance(1)
    scene.send()
    scene.send()
    assert [entry[0].stamp for entry in scene.wire] == stamps[:1]  # one by one
    scene.settle_everything()
    scene.check()
    assert scene.leader.producers[7][0] == 0


def test_a_number_that_the_broker_had_is_a_success():
    scene = _sending()
    scene.process()
    scene.break_connection()
    scene.advance(1)
    scene.send()
    scene.process(_E.DUPLICATE_SEQUENCE_NUMBER)
    scene.answer()
    assert scene.futures[1].result(0).offset == -1


def test_what_a_broker_has_forgotten_fails_and_is_not_written_again():
    scene = _sending(4)
    scene.late()
    scene.leader.restart()
    scene.settle_everything()
    scene.check()
    assert scene.leader.log == [0, 1, 2, 3]
    assert [scene.futures[number].exception(0).code for number in (1, 2)] == [_E.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2
    assert [scene.futures[number].result(0).offset for number in (0, 3)] == [0, 3]
    scene.append()
    scene.settle_everything()
    assert scene.futures[4].result(0).offset == 4


@pytest.mark.parametrize("code", [_E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.UNKNOWN_PRODUCER_ID, _E.INVALID_PRODUCER_EPOCH])
def test_a_refusal_decides_by_whether_the_batch_may_have_been_written(code):
    surely_not, in_doubt = _sending(2), _sending(2)
    in_doubt.break_connection()
    in_doubt.advance(1)
    in_doubt.send()
    for scene in (surely_not, in_doubt):
        scene.process(code)
        scene.answer()
        scene.settle_everything()
    assert surely_not.futures[1].result(0).offset == 1
    assert surely_not.leader.producers[7][0] == 1
    assert in_doubt.futures[1].exception(0).code is code
    assert in_doubt.leader.log == [0]


def test_what_is_in_doubt_behind_a_batch_that_was_refused_fails():
    scene = _sending(4)
    scene.process(_E.INVALID_RECORD)
    scene.answer()
    scene.break_connection()
    scene.append()
    scene.settle_everything()
    scene.check()
    assert [scene.futures[number].exception(0).code for number in (1, 2, 3)] == [
        _E.INVALID_RECORD,
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]
    assert scene.stranded == 2
    assert scene.leader.log == [0, 4]


@pytest.mark.parametrize(
    ("code", "may_be_written"),
    [(_E.NOT_ENOUGH_REPLICAS, False), (_E.CORRUPT_MESSAGE, False), (_E.NOT_LEADER_OR_FOLLOWER, True)],
)
def test_an_error_from_before_the_append_leaves_no_doubt(code, may_be_written):
    scene = _sending(2)
    batch = scene.wire[0][0]
    scene.process(code)
    scene.answer()
    assert batch.is_doubtful is may_be_written


def test_a_refused_batch_raises_the_epoch_and_those_behind_it_go_on():
    scene = _sending(4)
    scene.process(_E.INVALID_RECORD)
    scene.answer()
    assert scene.futures[1].exception(0).code is _E.INVALID_RECORD
    scene.settle_everything()
    scene.check()
    assert scene.leader.log == [0, 2, 3]
    assert scene.leader.producers[7][0] == 1


def test_a_batch_that_is_too_large_is_halved():
    scene = Scene()
    for _ in range(2):
        scene.append()
    scene.send()
    scene.process(_E.MESSAGE_TOO_LARGE)
    scene.answer()
    scene.settle_everything()
    scene.check()
    assert [future.result(0).offset for future in scene.futures.values()] == [0, 1]


def test_a_numbering_goes_on_where_the_last_batch_ended():
    numbering = Numbering(ProducerId(7, 3))
    assert [numbering.stamp(count) for count in (2, 3)] == [(7, 3, 0), (7, 3, 2)]
    assert not numbering.is_proven
    numbering.acknowledge(0, 2)
    assert (numbering.is_proven, numbering.is_settled) == (True, False)
    numbering.acknowledge(2, 3)
    assert numbering.is_settled


def test_a_transaction_is_not_mended_but_spoiled():
    sequences = PartitionSequences()
    scene = _sending()
    batch = scene.wire[0][0]
    for code, verdict in [
        (_E.OUT_OF_ORDER_SEQUENCE_NUMBER, Verdict.GAP),
        (_E.INVALID_PRODUCER_EPOCH, Verdict.FENCED),
        (_E.PRODUCER_FENCED, Verdict.FENCED),
        (_E.INVALID_RECORD, Verdict.FAIL),
        (_E.NOT_ENOUGH_REPLICAS, Verdict.RETRY),
    ]:
        assert sequences.judge(code, batch, [], is_transactional=True) is verdict


@pytest.mark.parametrize("code", [_E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.UNKNOWN_PRODUCER_ID])
def test_a_sequence_is_refused_for_good_only_where_nothing_is_before_it(code):
    scene = _sending()
    first, second = (entry[0] for entry in scene.wire)
    sequences = PartitionSequences()
    assert sequences.judge(code, second, [first], is_transactional=False) is Verdict.RETRY
    assert not sequences.is_broken
    assert sequences.judge(code, first, [second], is_transactional=False) is Verdict.RETRY
    assert sequences.is_broken


def _next_stamp(scene):
    """The number that another batch is sent with; None if it is not sent now."""
    scene.append()
    scene.accumulator.incomplete()
    before = len(scene.wire)
    scene.send()
    return scene.wire[-1][0].stamp if len(scene.wire) > before else None


def test_five_batches_of_a_partition_are_under_way_at_most():
    scene = _sending(1)
    (queue,) = scene.accumulator._queues.values()
    for _ in range(7):
        scene.append()
        scene.accumulator.incomplete()
    taken = [scene.accumulator.take(queue, scene.producer) for _ in range(7)]
    assert [batch is not None for batch in taken] == [True] * 5 + [False] * 2
    assert [batch.stamp.sequence for batch in taken[:5]] == [1, 2, 3, 4, 5]


def test_a_retry_behind_one_that_is_to_come_again_keeps_its_number():
    scene = _sending(3)
    stamps = [entry[0].stamp for entry in scene.wire]
    scene.process(_E.NOT_ENOUGH_REPLICAS)
    scene.process()  # out of order: the one before it is not there
    scene.answer()
    scene.answer()
    scene.advance(1)
    scene.send()
    assert [entry[0].stamp for entry in scene.wire] == stamps[:1]
    scene.settle_everything()
    scene.check()
    assert (scene.leader.log, scene.leader.producers[7][0]) == ([0, 1, 2], 0)


def test_doubt_stays_whatever_the_next_answer_is():
    scene = _sending(2)
    (batch, _, _) = scene.wire[0]
    scene.break_connection()
    scene.advance(1)
    scene.send()
    scene.process(_E.NOT_ENOUGH_REPLICAS)
    scene.answer()
    assert batch.is_doubtful


def test_what_is_given_up_in_doubt_leaves_no_gap_if_what_was_sent_behind_it_is_written():
    scene = _sending(3)
    scene.process()
    scene.wire[0][2] = _E.NOT_LEADER_OR_FOLLOWER, -1  # written, and not known to be
    scene.answer()
    scene.advance(scene.config.delivery_timeout_ms / 1000 + 1)
    assert _next_stamp(scene) is None  # until those that were sent before are settled
    scene.process()
    scene.answer()
    scene.send()
    assert scene.wire[-1][0].stamp == (7, 0, 3)
    scene.settle_everything()
    assert scene.leader.log == [0, 1, 2, 3]


def test_what_is_given_up_in_doubt_as_the_last_one_raises_the_epoch():
    scene = _sending(2)
    scene.break_connection()
    scene.advance(scene.config.delivery_timeout_ms / 1000 + 1)
    assert _next_stamp(scene) == (7, 1, 0)
    scene.settle_everything()
    assert scene.leader.log == [0, 2]


def test_each_refusal_raises_the_epoch_by_one():
    scene = _sending(1)
    for epoch in (1, 2, 3):
        scene.append()
        scene.send()
        scene.process(_E.INVALID_RECORD)
        scene.answer()
        assert _next_stamp(scene) == (7, epoch, 0)
        scene.process()
        scene.answer()
    assert not scene.accumulator.needs_new_epoch(scene.producer)


def test_two_refusals_leave_the_gap_where_the_first_of_them_is():
    scene = _sending(3)
    scene.process(_E.UNKNOWN_PRODUCER_ID)
    scene.process(_E.INVALID_RECORD)
    scene.answer()
    scene.answer()
    scene.advance(1)
    scene.send()
    assert [entry[0].stamp for entry in scene.wire] == [(7, 1, 0)]
    scene.settle_everything()
    assert scene.leader.log == [0, 1]


def test_a_refusal_for_good_of_what_is_in_doubt_fails_it_and_the_producer_goes_on():
    scene = _sending(2)
    scene.break_connection()
    scene.advance(1)
    scene.send()
    scene.process(_E.MESSAGE_TOO_LARGE)
    scene.answer()
    assert scene.futures[1].exception(0).code is _E.MESSAGE_TOO_LARGE
    assert _next_stamp(scene) == (7, 1, 0)


def test_nothing_is_sent_when_the_last_epoch_is_spoiled_until_there_is_another_id():
    scene = Scene()
    scene.producer = ProducerId(7, LAST_EPOCH)
    scene.append()
    scene.send()
    scene.process(_E.INVALID_RECORD)
    scene.answer()
    scene.append()
    (queue,) = scene.accumulator.due(1e3)
    assert scene.accumulator.take(queue, ProducerId(7, LAST_EPOCH)) is None
    assert scene.accumulator.take(queue, ProducerId(8, 3)).stamp == (8, 3, 0)
