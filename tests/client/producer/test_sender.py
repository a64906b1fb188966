"""The sender against brokers that answer as they are told: what cannot be made to happen with real ones."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.producer import Producer
from sparklog.client.producer.transaction import Step
from sparklog.errors import ApiError, ClientClosed, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.protocol.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
)
from sparklog.record.batch import RecordBatch
from sparklog.record.records import iter_records
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock, jump
from sparklog.testing.scripted import HangUp, ScriptedCluster

_E = ErrorCode
_ONE = TopicPartition("t", 0)


def _run(test):
    async def limited():
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


class Scene(ScriptedCluster):
    """Brokers that keep what they acknowledge: ``log`` of each partition, and each batch's stamp."""

    def __init__(self, brokers=1):
        super().__init__(brokers)
        self.topics["t"] = [0]
        self.log = {}
        self.stamps = []
        self.script = []  # what comes instead of an acknowledgement, in turn: a code, an exception, an event to await
        self.epoch = 0
        self.ongoing = (-1, -1)
        self.throttle_ms = 0
        self.refusal = _E.NONE  # of a producer id
        self.on[ApiKey.PRODUCE] = self._produce
        self.on[ApiKey.INIT_PRODUCER_ID] = self._init
        self.on[ApiKey.ADD_PARTITIONS_TO_TXN] = self._add
        self.on[ApiKey.END_TXN] = self._end

    def producer(self, **settings):
        quick = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 5, "linger.ms": 0}
        return AsyncProducer(quick, bootstrap_servers=self.bootstrap_servers, **settings)

    async def _produce(self, asked):
        results = {}
        each = self.script.pop(0) if self.script else None
        if isinstance(each, asyncio.Event):
            await each.wait()
            each = None
        if isinstance(each, Exception):
            raise each
        for tp, records in asked.message.records:
            batch = RecordBatch(records)
            self.stamps.append((batch.producer_epoch, batch.base_sequence))
            if each is not None:
                results[tp] = ProduceResult(each, message="as told")
                continue
            log = self.log.setdefault(tp, [])
            results[tp] = ProduceResult(_E.NONE, len(log))
            log += [record.value for record in iter_records(batch)]
        throttle_ms, self.throttle_ms = self.throttle_ms, 0
        return produce.encode_response(results, asked.version, throttle_ms) if asked.message.acks else None

    def _init(self, asked):
        self.epoch += 1
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=self.refusal.value,
            producer_id=7,
            producer_epoch=self.epoch,
            ongoing_txn_producer_id=self.ongoing[0] if asked.message.keep_prepared_txn else -1,
            ongoing_txn_producer_epoch=self.ongoing[1] if asked.message.keep_prepared_txn else -1,
        )

    def _add(self, asked):
        topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        results = [
            topic(
                name=each.name,
                results_by_partition=[
                    topic.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=0)
                    for number in each.partitions
                ],
            )
            for each in asked.message.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=0, results_by_topic_v3_and_below=results)

    def _end(self, asked):
        if asked.version >= 5:
            self.epoch += 1
            return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=self.epoch)
        return EndTxnResponse(throttle_time_ms=0, error_code=0)


@pytest.mark.parametrize(
    "trouble", [_E.NOT_LEADER_OR_FOLLOWER, _E.NOT_ENOUGH_REPLICAS, _E.REQUEST_TIMED_OUT, HangUp(), HangUp("again")]
)
def test_what_passes_by_itself_is_sent_again_as_it_was(trouble):
    async def test():
        async with Scene() as scene, scene.producer() as producer:
            scene.script = [trouble, trouble]
            future = await producer.send("t", b"x")
            assert (await future).offset == 0
            assert len(set(scene.stamps)) == 1
            assert scene.log == {_ONE: [b"x"]}

    _run(test)


def test_a_user_that_may_not_number_records_is_told_what_it_takes():
    async def test():
        async with Scene() as scene, scene.producer() as producer:
            scene.refusal = _E.CLUSTER_AUTHORIZATION_FAILED
            with pytest.raises(ApiError, match=r"no producer id is given: .* takes WRITE on a topic") as caught:
                await (await producer.send("t", b"x"))
            assert caught.value.code is scene.refusal

    _run(test)


def test_one_request_a_broker_for_many_partitions():
    async def test():
        async with Scene(brokers=2) as scene, scene.producer(linger_ms=60_000) as producer:
            scene.topics["t"] = [0, 1] * 4
            for number in range(8):
                await producer.send("t", b"x", partition=number)
            await producer.flush()
            assert len(scene.asked(ApiKey.PRODUCE)) == 2

    _run(test)


def test_a_moved_leader_is_followed():
    async def test():
        async with Scene(brokers=2) as scene, scene.producer() as producer:
            await (await producer.send("t", b"1"))
            scene.topics["t"] = [1]
            scene.leader_epoch = 1
            scene.script = [_E.NOT_LEADER_OR_FOLLOWER]
            await (await producer.send("t", b"2"))
            assert scene.log[_ONE] == [b"1", b"2"]
            assert [asked.broker for asked in scene.asked(ApiKey.PRODUCE)] == [0, 0, 1]

    _run(test)


def _refuse_unanswered(broker):
    """As a broker that does not lead: it can only hang up on what wants no answer."""

    def hang_up(_asked):
        raise HangUp

    broker.on[ApiKey.PRODUCE] = hang_up


def _produced_to(scene, broker):
    return sum(asked.broker == broker for asked in scene.asked(ApiKey.PRODUCE))


def test_without_answers_too_a_moved_leader_is_followed():
    async def test():
        async with Scene(brokers=2) as scene, scene.producer(acks="0") as producer:
            scene.topics["u"] = [0]
            for topic in ("t", "u"):
                await (await producer.send(topic, b"1"))
            while len(scene.log) < 2:
                await asyncio.sleep(0.01)
            _refuse_unanswered(scene.brokers[0])
            scene.topics = {"t": [1], "u": [1]}
            scene.leader_epoch = 1
            while b"2" not in scene.log[_ONE]:
                await producer.send("t", b"2")
                await asyncio.sleep(0.01)
            refused = _produced_to(scene, 0)
            while b"2" not in scene.log[TopicPartition("u", 0)]:
                await producer.send("u", b"2")
                await asyncio.sleep(0.01)
            assert _produced_to(scene, 0) == refused, "what else it led is looked for too"

    _run(test)


def test_a_leader_that_hangs_up_every_time_is_not_asked_all_the_time():
    async def test():
        async with Scene() as scene:
            producer = scene.producer(acks="0", retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
            await producer.start()
            _refuse_unanswered(scene.brokers[0])
            await (await producer.send("t", b"x"))
            while len(scene.asked(ApiKey.METADATA)) < 2:
                await producer.send("t", b"x")
                await asyncio.sleep(0.01)
            for _ in range(20):
                await producer.send("t", b"x")
                await asyncio.sleep(0.01)
            assert scene.brokers[0].connections == 2, "one for records, one for metadata"
            assert len(scene.asked(ApiKey.METADATA)) == 2
            await producer.close(0)

    _run(test)


def test_a_leader_whose_address_cannot_be_one_is_looked_for_again():
    async def test():
        async with Scene(brokers=2) as scene, scene.producer() as producer:
            scene.topics["t"] = [1]
            right = scene.brokers[1].endpoint
            answers = iter([right._replace(host="x" * 64), right._replace(port=70000)])

            def metadata(asked):
                scene.brokers[1].endpoint = next(answers, right)
                return scene._metadata(asked)

            scene.brokers[0].on[ApiKey.METADATA] = metadata
            scene.brokers[1].on[ApiKey.METADATA] = metadata
            assert (await (await producer.send("t", b"x"))).offset == 0

    _run(test)


@pytest.mark.parametrize("obstacle", ["cannot reach a broker at 127.0.0.1:1", "no broker leads partition t-0"])
def test_what_keeps_a_record_waiting_is_told(obstacle, caplog):
    async def test():
        clock = ManualClock()
        async with Scene(brokers=2) as scene, scene.producer(clock=clock, delivery_timeout_ms=100_000) as producer:
            scene.topics["t"] = [1]
            if "reach" in obstacle:
                scene.brokers[1].endpoint = Endpoint("127.0.0.1", 1)
            else:
                scene.topics["t"] = [7]
            future = await producer.send("t", b"x")
            while obstacle not in caplog.text:
                clock.advance(0.1)
                await asyncio.sleep(0.001)
            clock.advance(100)
            with pytest.raises(ApiError, match=rf"delivery\.timeout\.ms=100000: .*{obstacle}"):
                await future

    _run(test)


def test_what_nobody_foresaw_is_not_tried_again_without_a_pause():
    async def test():
        async with Scene() as scene:
            producer = scene.producer(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
            await producer.start()
            tried = []

            async def connection(broker):
                tried.append(broker)
                raise ZeroDivisionError

            producer._session.connection = connection
            await producer.send("t", b"x")
            while not tried:
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert tried == [0]
            await producer.close(0)

    _run(test)


def test_a_batch_that_is_never_answered_fails_in_time():
    async def test():
        settings = {"request_timeout_ms": 50, "delivery_timeout_ms": 500}
        async with Scene() as scene, scene.producer(**settings) as producer:
            scene.script = [asyncio.Event() for _ in range(1000)]
            future = await producer.send("t", b"x")
            with pytest.raises(ApiError, match=r"not acknowledged within delivery\.timeout\.ms=500"):
                await future
            scene.script = []
            while scene.log.get(_ONE) is None:  # it goes on, however slow this machine is
                await producer.send("t", b"y")
                await asyncio.sleep(0.05)
            assert scene.log[_ONE][0] == b"y"

    _run(test)


def test_without_answers_what_a_broker_does_not_read_is_sent_over_another_connection():
    async def test():
        async with Scene() as scene:
            producer = scene.producer(acks="0", request_timeout_ms=200, batch_size=1 << 20)
            await producer.start()
            await (await producer.send("t", b"x"))
            for writer in scene.brokers[0]._open.values():
                transport: Any = writer.transport
                transport.pause_reading()
            futures = [await producer.send("t", bytes(1 << 20)) for _ in range(24)]
            await producer.close()
            assert all(each.exception() is None for each in futures)
            while scene.log[_ONE][-1] != bytes(1 << 20):
                await asyncio.sleep(0.01)

    _run(test)


def test_a_broker_that_stands_still_does_not_hold_up_what_goes_to_others():
    async def test():
        loop = asyncio.get_running_loop()
        async with Scene(brokers=2) as scene:
            producer = scene.producer()
            await producer.start()
            scene.topics["t"] = [0, 1]
            for partition in (0, 1):
                await (await producer.send("t", b"x", partition=partition))
            held = asyncio.Event()

            async def never(_asked):
                held.set()
                await asyncio.Event().wait()

            scene.brokers[0].on = dict.fromkeys((ApiKey.PRODUCE, ApiKey.METADATA), never)
            await producer.send("t", b"y", partition=0)
            await held.wait()
            jump(loop, producer.config.request_timeout_ms / 1000 + 1)
            while not scene.brokers[0].connections > 2:  # it is given up, and tried again
                await asyncio.sleep(0.01)
            assert (await (await producer.send("t", b"y", partition=1))).offset == 1
            await producer.close(0)

    _run(test)


def test_what_expires_fails_though_nobody_can_say_why(monkeypatch):
    async def test():
        clock = ManualClock()
        async with Scene() as scene, scene.producer(clock=clock) as producer:
            scene.topics["t"] = [7, 7]  # no broker
            futures = [await producer.send("t", b"x", partition=number) for number in range(2)]
            tell = producer._sender._why_unsent

            def fail(tp):
                if tp == _ONE:
                    raise ZeroDivisionError
                return tell(tp)

            monkeypatch.setattr(producer._sender, "_why_unsent", fail)
            clock.advance(producer.config.delivery_timeout_ms / 1000)
            producer._sender.wake()
            await producer.flush()
            assert "why cannot be told: ZeroDivisionError()" in str(futures[0].exception())
            assert "not acknowledged within delivery.timeout.ms" in str(futures[1].exception())

    _run(test)


def test_nothing_is_sent_to_a_topic_that_nobody_knows():
    async def test():
        async with Scene() as scene, scene.producer(max_block_ms=60) as producer:
            with pytest.raises(ApiError, match=r"UNKNOWN_TOPIC_OR_PARTITION|REQUEST_TIMED_OUT"):
                await producer.send("nowhere", b"x")

    _run(test)


async def _sent_without_a_pause(scene, producer, send, pause=lambda: None):
    """Send, waiting for nothing else, until the first record was acknowledged; there was room all the while."""
    first = await send()
    while not first.done():
        pause()
        await send()
        assert producer._accumulator.used < producer.config.buffer_memory // 2
    assert scene.log


def test_a_loop_of_sends_that_never_waits_lets_full_batches_go():
    async def test():
        async with Scene() as scene, scene.producer(batch_size=1000, clock=ManualClock()) as producer:
            await _sent_without_a_pause(scene, producer, lambda: producer.send("t", bytes(100)))

    _run(test)


def test_a_slow_loop_of_sends_that_never_waits_lets_records_go():
    async def test():
        clock = ManualClock()
        async with Scene() as scene, scene.producer(clock=clock) as producer:
            await _sent_without_a_pause(
                scene, producer, lambda: producer.send("t", bytes(100)), lambda: clock.advance(0.01)
            )

    _run(test)


def test_a_loop_of_columns_that_never_waits_lets_them_go():
    async def test():
        rows = pa.RecordBatch.from_pydict({"value": pa.array([bytes(100)] * 10, pa.binary())})

        async def send():
            return (await producer.send_arrow("t", rows))[0]

        async with Scene() as scene, scene.producer() as producer:
            await _sent_without_a_pause(scene, producer, send)

    _run(test)


def test_a_send_that_is_cancelled_while_it_rests_queues_nothing():
    async def test():
        async with Scene() as scene, scene.producer(batch_size=100, linger_ms=60_000) as producer:
            kept = await producer.send("t", bytes(100))
            resting = asyncio.create_task(producer.send("t", b"never"))
            await asyncio.sleep(0)
            resting.cancel()
            await asyncio.gather(resting, return_exceptions=True)
            await producer.flush()
            assert kept.done()
            assert scene.log == {_ONE: [bytes(100)]}

    _run(test)


def test_send_waits_for_room_and_then_raises():
    async def test():
        async with Scene() as scene, scene.producer(buffer_memory=200) as producer:
            hold = asyncio.Event()
            scene.script = [hold]
            first = await producer.send("t", bytes(120))
            _let_block(producer, 50)
            with pytest.raises(ApiError, match=r"no room in buffer\.memory=200"):
                await producer.send("t", bytes(120))
            _let_block(producer, 60_000)
            waiting = asyncio.create_task(producer.send("t", b"y"))
            hold.set()
            await first
            assert (await (await waiting)).offset == 1

    _run(test)


def _let_block(producer, milliseconds):
    """Change ``max.block.ms``: what comes before has all the time that a busy machine needs."""
    object.__setattr__(producer.config, "max_block_ms", milliseconds)


def test_closing_in_time_fails_what_is_left():
    async def test():
        async with Scene() as scene:
            producer = scene.producer()
            await producer.start()
            scene.script = [asyncio.Event()]
            future = await producer.send("t", b"x")
            await producer.close(timeout=0.05)
            with pytest.raises(ClientClosed):
                await future

    _run(test)


async def _held_back(scene, producer):
    """A record that the broker acknowledges when the event is set, while a first close waits for it."""
    await producer.start()
    hold = asyncio.Event()
    scene.script = [hold]
    future = await producer.send("t", b"x")
    first = asyncio.create_task(producer.close())
    while not producer._appender.is_closed:
        await asyncio.sleep(0)
    return hold, future, first


def test_a_second_close_waits_for_the_first():
    async def test():
        async with Scene() as scene:
            producer = scene.producer()
            hold, future, first = await _held_back(scene, producer)
            second = asyncio.create_task(producer.close())
            await asyncio.sleep(0.05)
            assert not second.done()
            hold.set()
            await asyncio.gather(first, second)
            assert (await future).offset == 0
            await producer.close()

    _run(test)


def test_a_second_close_waits_for_its_own_time():
    async def test():
        async with Scene() as scene:
            producer = scene.producer()
            _, future, first = await _held_back(scene, producer)
            await asyncio.gather(first, producer.close(timeout=0.05), producer.close(timeout=60))
            with pytest.raises(ClientClosed):
                await future

    _run(test)


def test_a_second_close_in_another_thread_waits_for_the_first():
    async def test():
        async with Scene() as scene:
            hold = asyncio.Event()
            scene.script = [hold]
            producer = await asyncio.to_thread(Producer, bootstrap_servers=scene.bootstrap_servers, linger_ms=0)
            future = await asyncio.to_thread(producer.send, "t", b"x")
            first = asyncio.create_task(asyncio.to_thread(producer.close))
            while not producer._appender.is_closed:
                await asyncio.sleep(0.001)
            second = asyncio.create_task(asyncio.to_thread(producer.close))
            await asyncio.sleep(0.1)
            hold.set()
            await asyncio.gather(first, second)
            assert future.result(0).offset == 0

    _run(test)


def test_another_producer_of_the_same_id_ends_this_one():
    async def test():
        async with Scene() as scene, scene.producer() as producer:
            scene.script = [_E.PRODUCER_FENCED]
            future = await producer.send("t", b"x")
            with pytest.raises(ApiError, match="PRODUCER_FENCED"):
                await future
            with pytest.raises(ApiError, match="PRODUCER_FENCED"):
                await producer.send("t", b"y")

    _run(test)


# Transactions.


async def _transactional(scene, **settings):
    producer = scene.producer(transactional_id="x", **settings)
    await producer.start()
    await producer.init_transactions(keep_prepared=settings.get("transaction_two_phase_commit_enable", False))
    return producer


def test_the_first_protocol_adds_partitions_in_one_request():
    async def test():
        async with Scene() as scene:
            scene.topics["t"] = [0] * 5
            producer = await _transactional(scene, linger_ms=60_000)
            await producer.begin_transaction()
            for number in range(5):
                await producer.send("t", b"x", partition=number)
            await producer.commit_transaction()
            (added,) = scene.asked(ApiKey.ADD_PARTITIONS_TO_TXN)
            assert sorted(added.message.v3_and_below_topics[0].partitions) == list(range(5))
            assert added.version == 3
            assert all(asked.version <= 11 for asked in scene.asked(ApiKey.PRODUCE))
            assert [asked.version for asked in scene.asked(ApiKey.END_TXN)] == [4]
            await producer.close()

    _run(test)


def test_the_second_protocol_adds_nothing_and_takes_over_epochs(monkeypatch):
    monkeypatch.setattr(produce, "MAX_VERSION", max(produce.MAX_VERSION, 12))

    async def test():
        async with Scene() as scene:
            scene.features["transaction.version"] = 2
            producer = await _transactional(scene)
            for _ in range(2):
                await producer.begin_transaction()
                await producer.send("t", b"x")
                await producer.commit_transaction()
            assert not scene.asked(ApiKey.ADD_PARTITIONS_TO_TXN)
            assert scene.stamps == [(1, 0), (2, 0)]
            assert [asked.message.producer_epoch for asked in scene.asked(ApiKey.END_TXN)] == [1, 2]
            assert all(asked.version == 12 for asked in scene.asked(ApiKey.PRODUCE))
            await producer.close()

    _run(test)


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_whose_send_was_interrupted_is_in_the_transaction_all_the_same(version, monkeypatch):
    monkeypatch.setattr(produce, "MAX_VERSION", max(produce.MAX_VERSION, 12))

    def interrupt(tp):
        raise KeyboardInterrupt

    async def test():
        async with Scene() as scene:
            scene.features["transaction.version"] = version
            producer = await _transactional(scene, linger_ms=60_000)
            await producer.begin_transaction()
            with monkeypatch.context() as patch:
                patch.setattr(producer._transaction, "joins", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    await producer.send("t", b"x")
            await producer.commit_transaction()
            assert scene.log == {_ONE: [b"x"]}
            assert len(scene.asked(ApiKey.END_TXN)) == 1
            await producer.close()

    _run(test)


def test_nobody_is_asked_to_abort_what_was_never_sent(monkeypatch):
    monkeypatch.setattr(produce, "MAX_VERSION", max(produce.MAX_VERSION, 12))

    async def test():
        async with Scene() as scene:
            scene.features["transaction.version"] = 2
            producer = await _transactional(scene, linger_ms=60_000)
            await producer.begin_transaction()
            future = await producer.send("t", b"x")
            await producer.abort_transaction()
            assert isinstance(future.exception(), ApiError)
            assert not scene.asked(ApiKey.END_TXN)
            assert not scene.asked(ApiKey.PRODUCE)
            await producer.close()

    _run(test)


def test_a_commit_that_is_not_answered_can_be_repeated():
    async def test():
        async with Scene() as scene:
            producer = await _transactional(scene)
            end, scene.on[ApiKey.END_TXN] = scene.on[ApiKey.END_TXN], _raise_hang_up
            await producer.begin_transaction()
            await producer.send("t", b"x")
            await producer.flush()
            _let_block(producer, 50)
            with pytest.raises(SparklogError, match=r"did not answer|not done within max\.block\.ms"):
                await producer.commit_transaction()
            with pytest.raises(ApiError, match="being ended"):
                await producer.abort_transaction()
            _let_block(producer, 60_000)
            scene.on[ApiKey.END_TXN] = end
            await producer.commit_transaction()
            assert producer._transaction.step is Step.READY
            await producer.close()

    _run(test)


def test_two_who_end_a_transaction_at_once_end_it_once(monkeypatch):
    monkeypatch.setattr(produce, "MAX_VERSION", max(produce.MAX_VERSION, 12))

    async def test():
        async with Scene() as scene:
            scene.features["transaction.version"] = 2
            end, is_asked, may_end = scene.on[ApiKey.END_TXN], asyncio.Event(), asyncio.Event()

            async def waits(asked):
                is_asked.set()
                await may_end.wait()
                return end(asked)

            scene.on[ApiKey.END_TXN] = waits
            producer = await _transactional(scene)
            await producer.begin_transaction()
            await (await producer.send("t", b"x"))
            both = [asyncio.create_task(producer.abort_transaction()) for _ in range(2)]
            await is_asked.wait()
            may_end.set()
            first, second = await asyncio.gather(*both, return_exceptions=True)
            assert first is None
            assert "call begin_transaction first" in str(second)
            assert len(scene.asked(ApiKey.END_TXN)) == 1
            await producer.close()

    _run(test)


def _raise_hang_up(asked):
    raise HangUp


def test_what_is_waiting_when_a_transaction_is_aborted_is_not_sent():
    async def test():
        async with Scene() as scene:
            producer = await _transactional(scene, linger_ms=100_000)
            await producer.begin_transaction()
            future = await producer.send("t", b"x")
            await producer.abort_transaction()
            with pytest.raises(ApiError, match="aborted"):
                await future
            assert scene.log == {}
            await producer.close()

    _run(test)


def test_after_a_spoiled_transaction_the_epoch_is_raised():
    async def test():
        async with Scene() as scene:
            producer = await _transactional(scene)
            await producer.begin_transaction()
            scene.script = [_E.OUT_OF_ORDER_SEQUENCE_NUMBER]
            await producer.send("t", b"x")
            with pytest.raises(ApiError, match="call abort_transaction"):
                await producer.commit_transaction()
            await producer.abort_transaction()
            await producer.begin_transaction()
            await (await producer.send("t", b"y"))
            assert scene.stamps == [(1, 0), (2, 0)]
            asked = scene.asked(ApiKey.INIT_PRODUCER_ID)[-1].message
            assert (asked.producer_id, asked.producer_epoch) == (7, 1)
            await producer.close()

    _run(test)


def test_a_partition_that_spoiled_a_transaction_costs_later_ones_no_epoch():
    async def test():
        async with Scene() as scene:
            scene.topics["u"] = [0]
            producer = await _transactional(scene)
            await producer.begin_transaction()
            scene.script = [_E.OUT_OF_ORDER_SEQUENCE_NUMBER]
            await producer.send("t", b"x")
            with pytest.raises(ApiError, match="call abort_transaction"):
                await producer.commit_transaction()
            await producer.abort_transaction()
            for _ in range(2):
                await producer.begin_transaction()
                await producer.send("u", b"y")
                await producer.commit_transaction()
            assert scene.stamps == [(1, 0), (2, 0), (2, 1)]
            await producer.begin_transaction()
            await producer.send("t", b"y")
            await producer.commit_transaction()
            assert scene.stamps[3:] == [(2, 0)]
            await producer.close()

    _run(test)


def test_offsets_that_the_group_refuses_spoil_the_transaction():
    async def test():
        async with Scene() as scene:
            topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
            refused = topic.TxnOffsetCommitResponsePartition(partition_index=0, error_code=22)
            scene.on[ApiKey.ADD_OFFSETS_TO_TXN] = scene.on[ApiKey.END_TXN]
            scene.on[ApiKey.TXN_OFFSET_COMMIT] = lambda asked: TxnOffsetCommitResponse(
                throttle_time_ms=0, topics=[topic(name="t", partitions=[refused])]
            )
            producer = await _transactional(scene)
            await producer.begin_transaction()
            with pytest.raises(ApiError, match=r"ILLEGAL_GENERATION: .*: abort the transaction, poll, and go on"):
                await producer.send_offsets_to_transaction({_ONE: 5}, "g")
            with pytest.raises(ApiError, match="call abort_transaction"):
                await producer.commit_transaction()
            await producer.abort_transaction()
            await producer.close()

    _run(test)


@pytest.mark.parametrize("ends", ["commit_transaction", "abort_transaction", "prepare_transaction"])
def test_a_transaction_ends_when_the_offsets_that_another_task_sends_are_there(ends):
    async def test():
        async with Scene() as scene:
            let, order, end = asyncio.Event(), [], scene.on[ApiKey.END_TXN]

            async def take_offsets(asked):
                await let.wait()
                order.append("offsets")
                return TxnOffsetCommitResponse(throttle_time_ms=0, topics=[])

            def end_transaction(asked):
                order.append("end")
                return end(asked)

            scene.on[ApiKey.ADD_OFFSETS_TO_TXN] = end
            scene.on[ApiKey.TXN_OFFSET_COMMIT], scene.on[ApiKey.END_TXN] = take_offsets, end_transaction
            producer = await _transactional(scene, transaction_two_phase_commit_enable=True)
            await producer.begin_transaction()
            sending = asyncio.ensure_future(producer.send_offsets_to_transaction({_ONE: 5}, "g"))
            while not scene.asked(ApiKey.TXN_OFFSET_COMMIT):
                await asyncio.sleep(0)
            ending = asyncio.ensure_future(getattr(producer, ends)())
            for _ in range(200):  # more than it takes to ask and be answered
                await asyncio.sleep(0)
            assert not ending.done()
            let.set()
            await asyncio.gather(sending, ending)
            assert order == (["offsets"] if ends.startswith("prepare") else ["offsets", "end"])
            await producer.close()

    _run(test)


def test_what_another_task_sends_while_a_transaction_is_prepared_is_written_too():
    async def test():
        async with Scene() as scene:
            producer = await _transactional(scene, transaction_two_phase_commit_enable=True)
            scene.script = [first, second] = [asyncio.Event(), asyncio.Event()]
            await producer.begin_transaction()
            await producer.send("t", b"x")
            preparing = asyncio.ensure_future(producer.prepare_transaction())
            while not scene.asked(ApiKey.PRODUCE):
                await asyncio.sleep(0)
            sent = await producer.send("t", b"y")
            first.set()
            for _ in range(200):  # more than it takes to ask and be answered
                await asyncio.sleep(0)
            assert not preparing.done()
            second.set()
            await preparing
            assert sent.done()
            await producer.close()

    _run(test)


@pytest.mark.parametrize(("state", "committed"), [("7:1", True), ("7:0", False)])
def test_two_phases_over_a_restart(state, committed):
    async def test():
        async with Scene() as scene:
            scene.ongoing = (7, 1)
            producer = await _transactional(scene, transaction_two_phase_commit_enable=True)
            assert scene.asked(ApiKey.INIT_PRODUCER_ID)[0].message.enable2_pc
            assert await producer.complete_transaction(state) is committed
            (end,) = scene.asked(ApiKey.END_TXN)
            assert end.message.committed is committed
            await producer.begin_transaction()
            await producer.send("t", b"x")
            assert await producer.prepare_transaction() == f"7:{scene.epoch}"
            assert await producer.complete_transaction(f"7:{scene.epoch}")
            await producer.close()

    _run(test)


def test_two_phases_need_a_coordinator_that_knows_them():
    async def test():
        async with Scene() as scene:
            scene.ceilings[ApiKey.INIT_PRODUCER_ID] = 5
            producer = scene.producer(transactional_id="x", transaction_two_phase_commit_enable=True)
            await producer.start()
            with pytest.raises(ApiError, match="does not know two-phase commit"):
                await producer.init_transactions()
            await producer.close()

    _run(test)


async def _let_others_run():
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_broker_that_wants_silence_is_sent_nothing():
    async def test():
        async with Scene() as scene, scene.producer() as producer:
            scene.throttle_ms = 20_000
            await (await producer.send("t", b"x"))
            future = await producer.send("t", b"y")
            await _let_others_run()
            jump(asyncio.get_running_loop(), 19)
            await _let_others_run()
            assert not future.done()
            assert scene.log[_ONE] == [b"x"]
            jump(asyncio.get_running_loop(), 2)
            assert (await future).offset == 1

    _run(test)


def test_a_record_expires_in_a_silence_as_it_would_else():
    async def test():
        clock = ManualClock()
        async with Scene() as scene, scene.producer(clock=clock) as producer:
            scene.throttle_ms = 3_600_000
            await (await producer.send("t", b"x"))
            future = await producer.send("t", b"y")
            await _let_others_run()
            clock.advance(producer.config.delivery_timeout_ms / 1000)
            producer._sender.wake()
            with pytest.raises(ApiError, match=r"not acknowledged within delivery\.timeout\.ms"):
                await future
            assert len(scene.asked(ApiKey.PRODUCE)) == 1

    _run(test)


def test_a_producer_is_closed_in_a_silence():
    async def test():
        async with Scene() as scene:
            producer = scene.producer()
            await producer.start()
            scene.throttle_ms = 3_600_000
            await (await producer.send("t", b"x"))
            future = await producer.send("t", b"y")
            await producer.close(timeout=0)
            assert isinstance(future.exception(), ClientClosed)
            assert scene.log[_ONE] == [b"x"]

    _run(test)


async def _never(_asked):
    await asyncio.Event().wait()


async def _ends_with_max_block(producer, scene, api, work):
    """``work``, during which ``api`` is asked and not answered, ends when ``max.block.ms`` is over."""
    before = len(scene.asked(api))
    task = asyncio.create_task(work)
    while len(scene.asked(api)) == before:
        await asyncio.sleep(0)
    jump(asyncio.get_running_loop(), 11)
    with pytest.raises(ApiError, match=r"REQUEST_TIMED_OUT"):
        await task


_PATIENT = {"max_block_ms": 10_000, "request_timeout_ms": 100_000}


@pytest.mark.parametrize("call", ["send", "partitions_for"])
def test_metadata_that_is_not_told_ends_a_call_in_its_time(call):
    async def test():
        async with Scene() as scene, scene.producer(**_PATIENT) as producer:
            scene.on[ApiKey.METADATA] = _never
            work = producer.send("t", b"x") if call == "send" else producer.partitions_for("t")
            await _ends_with_max_block(producer, scene, ApiKey.METADATA, work)

    _run(test)


@pytest.mark.parametrize(
    "api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.END_TXN], ids=lambda api: api.name
)
def test_a_call_of_a_transaction_ends_in_its_time_and_can_be_repeated(api):
    async def test():
        async with Scene() as scene:
            answer = scene.on[api]
            producer = scene.producer(transactional_id="x", **_PATIENT)
            await producer.start()
            call = producer.init_transactions
            if api in (ApiKey.PRODUCE, ApiKey.END_TXN):
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send("t", b"x")
                call = producer.commit_transaction
            scene.on[api] = _never
            await _ends_with_max_block(producer, scene, api, call())
            scene.on[api] = answer
            await scene.brokers[0].stop()
            await scene.brokers[0].start()
            await call()
            assert producer._transaction.step is Step.READY
            assert scene.log.get(_ONE, [b"x"]) == [b"x"]
            await producer.close()

    _run(test)


@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_that_is_repeated_asks_for_what_was_not_answered(version):
    async def test():
        clock = ManualClock()
        async with Scene() as scene:
            scene.features["transaction.version"] = version
            scene.topics["t"] = [7]  # no broker: the record expires unsent
            producer = await _transactional(scene, clock=clock, **_PATIENT)
            await producer.begin_transaction()
            record = await producer.send("t", b"x")
            while version == 1 and not producer._transaction.has_begun:
                await asyncio.sleep(0)
            clock.advance(producer.config.delivery_timeout_ms / 1000)
            producer._sender.wake()
            with pytest.raises(ApiError, match=r"delivery\.timeout\.ms"):
                await record

            scene.on[ApiKey.INIT_PRODUCER_ID] = _never
            await _ends_with_max_block(producer, scene, ApiKey.INIT_PRODUCER_ID, producer.abort_transaction())
            scene.on[ApiKey.INIT_PRODUCER_ID] = scene._init
            await scene.brokers[0].stop()
            await scene.brokers[0].start()
            await producer.abort_transaction()

            asked = [each.message for each in scene.asked(ApiKey.INIT_PRODUCER_ID)[1:]]
            assert [(each.producer_id, each.producer_epoch) for each in asked] == [(7, 1), (7, 1)]
            assert len(scene.asked(ApiKey.END_TXN)) == (1 if version == 1 else 0)
            scene.topics["t"] = [0]
            await producer.begin_transaction()
            await (await producer.send("t", b"y"))
            assert scene.stamps == [(2, 0)]
            await producer.close()

    _run(test)


class _Coordinator(Scene):
    """Ends only what was begun, as Kafka's does under the first protocol; adds no topic ``secret``, and no group."""

    def __init__(self):
        super().__init__()
        self.topics["secret"] = [0]
        self.has_begun = self.is_lost = False
        self.on[ApiKey.ADD_OFFSETS_TO_TXN] = lambda asked: AddOffsetsToTxnResponse(
            throttle_time_ms=0, error_code=int(_E.GROUP_AUTHORIZATION_FAILED)
        )

    def _add(self, asked):
        if self.is_lost:
            raise HangUp
        answer = super()._add(asked)
        is_refused = any(each.name == "secret" for each in answer.results_by_topic_v3_and_below)
        self.has_begun = self.has_begun or not is_refused
        for topic in answer.results_by_topic_v3_and_below if is_refused else []:
            code = _E.TOPIC_AUTHORIZATION_FAILED if topic.name == "secret" else _E.OPERATION_NOT_ATTEMPTED
            topic.results_by_partition[0].partition_error_code = int(code)
        return answer

    def _end(self, asked):
        has_begun, self.has_begun = self.has_begun, False
        return EndTxnResponse(throttle_time_ms=0, error_code=0 if has_begun else int(_E.INVALID_TXN_STATE))


@pytest.mark.parametrize(("refused", "ends"), [("topic", 0), ("group", 0), ("lost", 1)])
def test_a_transaction_to_which_nothing_could_be_added_is_aborted(refused, ends):
    async def test():
        clock = ManualClock()
        async with _Coordinator() as scene:
            producer = await _transactional(scene, clock=clock)
            await producer.begin_transaction()
            if refused == "group":
                with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED"):
                    await producer.send_offsets_to_transaction({_ONE: 1}, "theirs")
            else:
                scene.is_lost = refused == "lost"
                future = await producer.send("secret" if refused == "topic" else "t", b"x")
                while scene.is_lost and len(scene.asked(ApiKey.ADD_PARTITIONS_TO_TXN)) < 2:
                    clock.advance(0.1)
                    await asyncio.sleep(0.001)
                clock.advance(producer.config.delivery_timeout_ms / 1000 if scene.is_lost else 0)
                producer._sender.wake()
                with pytest.raises(ApiError):
                    await future
                scene.is_lost = False
            await producer.abort_transaction()
            assert len(scene.asked(ApiKey.END_TXN)) == ends
            await producer.begin_transaction()
            await producer.send("t", b"y")
            await producer.commit_transaction()
            assert (scene.log, scene.stamps) == ({_ONE: [b"y"]}, [(2, 0)])
            await producer.close()

    _run(test)
