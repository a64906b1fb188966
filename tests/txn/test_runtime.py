"""The coordinator on a loop that jumps from timer to timer, over a log in memory (all from ``conftest``)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.record.partitioning import coordinator_partition
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import counted, finish
from sparklog.txn import runtime
from sparklog.txn.machine import EndRequest, InitRequest
from sparklog.txn.markers import Marker
from sparklog.txn.records import build_batch, read_key, read_value
from sparklog.txn.runtime import EndAnswer, InitAnswer, TransactionCoordinator
from sparklog.txn.state import LAST_EPOCH, ClientVersion, Producer, Transaction, TransactionState

S = TransactionState
E = ErrorCode
V2 = ClientVersion.EPOCH_A_TRANSACTION
ID = "payments"
HOME = coordinator_partition(ID, 4)
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
Body = Callable[["Scene"], Coroutine[Any, Any, None]]


class Scene:
    """A coordinator and what a test does with it."""

    def __init__(self, loop: Any, clock: ManualClock, log: Any, markers: Any) -> None:
        self.loop, self.clock, self.log, self.markers = loop, clock, log, markers
        self.ids = iter(range(100, 150))  # more would be a coordinator that asks for ever
        self.id_failures = 0
        config = BrokerConfig(transaction_max_timeout_ms=60_000, transactional_id_expiration_ms=1_000_000)
        self.txns = TransactionCoordinator(config, log, markers, self._take_id, clock, loop)

    async def _take_id(self) -> int:
        await asyncio.sleep(0.01)
        if self.id_failures:
            self.id_failures -= 1
            raise ApiError(E.REQUEST_TIMED_OUT)
        try:
            return next(self.ids)
        except StopIteration as error:
            raise AssertionError("no id is ever enough") from error

    async def load(self) -> None:
        for partition in sorted(self.log.led):
            await self.txns.load(partition)

    async def restarted(self) -> Scene:
        """The coordinator dies where it stands; another one takes over its log, under the next epoch."""
        await self.txns.close()
        self.log.epoch += 1
        scene = Scene(self.loop, self.clock, self.log, self.markers)
        await scene.load()
        return scene

    async def init(self, expected: Producer | None = None, timeout_ms: int = 10_000) -> Any:
        return await self.txns.init_producer_id(InitRequest(ID, timeout_ms, expected))

    async def producer(self) -> Producer:
        producer: Producer
        error, producer, _ = await self.init()
        assert error is E.NONE
        return producer

    async def opened(self) -> Producer:
        producer = await self.producer()
        assert await self.txns.add_partitions(ID, producer, [A, B]) is E.NONE
        return producer

    async def end(self, producer: Producer, *, commit: bool) -> ErrorCode:
        return (await self.txns.end(ID, EndRequest(producer, commit))).error

    async def end2(self, producer: Producer, *, commit: bool) -> EndAnswer:
        """As a client of the second version does."""
        return await self.txns.end(ID, EndRequest(producer, commit, V2))

    async def settle(self, state: S) -> None:
        async with asyncio.timeout(60):
            while self.state is not state:
                await asyncio.sleep(0.01)

    @property
    def current(self) -> Transaction | None:
        return self.txns.describe(ID)[1]

    @property
    def state(self) -> S | None:
        return self.current.state if self.current else None

    def written(self) -> list[Transaction | None]:
        """The records of the log, in order; None for a tombstone."""
        return [transaction_in(batch) for batch in self.log.logs[HOME]]


def transaction_in(batch: bytes) -> Transaction | None:
    (record,) = (record for each in iter_batches(batch) for record in iter_records(each))
    transactional_id = read_key(record.key or b"")
    assert transactional_id is not None
    return None if record.value is None else read_value(transactional_id, record.value)


@pytest.fixture
def play(loop: Any, clock: ManualClock, log: Any, markers: Any) -> Callable[..., None]:
    """Runs a coroutine function of a Scene."""

    def play(body: Body, *, loaded: bool = True) -> None:
        async def run() -> None:
            scene = Scene(loop, clock, log, markers)
            if loaded:
                await scene.load()
            await body(scene)
            await scene.txns.close()

        loop.run_until_complete(run())

    return play


@pytest.mark.parametrize(("commit", "complete"), [(True, S.COMPLETE_COMMIT), (False, S.COMPLETE_ABORT)])
def test_a_transaction_from_beginning_to_end(play: Any, happened: list[Any], commit: bool, complete: S) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        assert producer == Producer(100, 0)
        assert await scene.end(producer, commit=commit) is E.NONE
        await scene.settle(complete)
        assert await scene.end(producer, commit=commit) is E.NONE
        assert await scene.end(producer, commit=not commit) is E.INVALID_TXN_STATE
        assert await scene.txns.add_partitions(ID, producer, [A]) is E.NONE
        assert scene.markers.written == [(Marker(producer, commit, 5), {A, B})]

    play(body)
    prepare = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
    order = [each if isinstance(each, Marker) else transaction_in(each).state for each in happened]
    assert order == [S.EMPTY, S.ONGOING, prepare, Marker(Producer(100, 0), commit, 5), complete, S.ONGOING]


@pytest.mark.parametrize(("prefix", "decisions"), [(ID, 1), (f"{ID}-of-another", 0)])
@pytest.mark.parametrize("commit", [True, False])
def test_what_ends_is_counted_and_of_deciders_as_a_decision(
    play: Any, monkeypatch: Any, commit: bool, prefix: str, decisions: int
) -> None:
    monkeypatch.setattr(runtime, "DECIDER_PREFIX", prefix)

    async def body(scene: Scene) -> None:
        kind = (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT, False)
        producer = await scene.producer()
        for number in (1, 2):
            assert await scene.txns.add_partitions(ID, producer, [A, B]) is E.NONE
            assert await scene.end(producer, commit=commit) is E.NONE
            async with asyncio.timeout(60):
                while scene.txns.ended != {kind: number}:
                    await asyncio.sleep(0.01)
            assert scene.txns.decisions == number * decisions * commit

    play(body)


def test_no_marker_is_written_before_the_decision_is_replicated(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        gate = scene.loop.create_future()
        scene.log.gate = lambda: gate
        ending = scene.loop.create_task(scene.end(producer, commit=True))
        await asyncio.sleep(1)
        assert scene.written()[-1].state is S.PREPARE_COMMIT
        assert not ending.done()
        assert scene.markers.written == []
        assert scene.state is S.ONGOING
        assert await scene.txns.add_partitions(ID, producer, [A]) is E.CONCURRENT_TRANSACTIONS
        assert (await scene.init()).error is E.CONCURRENT_TRANSACTIONS
        assert scene.txns.verify(ID, producer, A) is E.CONCURRENT_TRANSACTIONS
        scene.log.gate = None
        gate.set_result(None)
        assert await ending is E.NONE
        await scene.settle(S.COMPLETE_COMMIT)

    play(body)


def test_requests_of_one_turn_are_decided_one_after_the_other(play: Any) -> None:
    async def body(scene: Scene) -> None:
        await scene.producer()
        answers = await asyncio.gather(*(scene.init() for _ in range(5)))
        assert [each.error for each in answers].count(E.NONE) == 1
        assert {each.error for each in answers} == {E.NONE, E.CONCURRENT_TRANSACTIONS}

    play(body)


def test_two_producers_of_a_new_id_at_once(play: Any) -> None:
    async def body(scene: Scene) -> None:
        answers = await asyncio.gather(scene.init(), scene.init())
        given = [each.producer for each in answers if each.error is E.NONE]
        assert len(given) == len(set(given)) >= 1
        assert scene.current is not None
        assert scene.current.producer == given[-1]

    play(body)


def test_a_new_producer_aborts_what_the_old_one_left_open(play: Any) -> None:
    async def body(scene: Scene) -> None:
        old = await scene.opened()
        assert await scene.init() == InitAnswer(E.CONCURRENT_TRANSACTIONS)
        await scene.settle(S.COMPLETE_ABORT)
        assert scene.markers.written == [(Marker(Producer(100, 1), False, 5, raises_epoch=True), {A, B})]
        assert await scene.producer() == Producer(100, 2)
        assert await scene.end(old, commit=True) is E.PRODUCER_FENCED
        assert await scene.txns.add_partitions(ID, old, [A]) is E.PRODUCER_FENCED
        assert scene.txns.verify(ID, old, A) is E.PRODUCER_FENCED

    play(body)


def test_epochs_that_are_used_up_cost_a_new_producer_id(play: Any) -> None:
    async def body(scene: Scene) -> None:
        await scene.producer()
        held = scene.txns._find(ID)
        assert held is not None
        held.current = held.current._replace(epoch=LAST_EPOCH - 1)
        assert await scene.producer() == Producer(101, 0)

    play(body)


def test_a_timeout_aborts(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.clock.advance(10)
        finish(scene.txns.abort_timed_out())
        await asyncio.sleep(0)
        assert scene.state is S.ONGOING
        scene.clock.advance(0.002)
        finish(scene.txns.abort_timed_out())
        finish(scene.txns.abort_timed_out())
        await scene.settle(S.COMPLETE_ABORT)
        assert [marker for marker, _ in scene.markers.written] == [
            Marker(Producer(100, 1), False, 5, raises_epoch=True)
        ]
        assert await scene.end(producer, commit=True) is E.PRODUCER_FENCED

    play(body)


def test_ids_are_looked_at_one_a_step_as_long_as_they_are_here(play: Any) -> None:
    async def body(scene: Scene) -> None:
        await scene.producer()
        scene.clock.advance(1000)
        assert counted(scene.txns.abort_timed_out())[0] == 1
        begun = scene.txns.expire_ids()
        await scene.txns.load(scene.txns.partition_for(ID))
        finish(begun)
        await asyncio.sleep(0.01)
        assert scene.written()[-1] is None, "the id that was loaded meanwhile is the one that dies"
        again = scene.txns.expire_ids()
        assert counted(again)[0] == 0

    play(body)


def test_an_id_that_nobody_uses_is_forgotten(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.producer()
        scene.clock.advance(999.9)
        finish(scene.txns.expire_ids())
        await asyncio.sleep(0.01)
        assert scene.state is S.EMPTY
        scene.clock.advance(0.1)
        finish(scene.txns.expire_ids())
        await asyncio.sleep(0.01)
        assert scene.written()[-1] is None
        assert scene.txns.describe(ID) == (E.TRANSACTIONAL_ID_NOT_FOUND, None)
        assert await scene.txns.add_partitions(ID, producer, [A]) is E.INVALID_PRODUCER_ID_MAPPING
        assert (await scene.restarted()).txns.list_transactions() == (E.NONE, [])

    play(body)


def test_markers_are_tried_until_every_partition_has_one(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [
            {A: E.NOT_LEADER_OR_FOLLOWER, B: E.UNKNOWN_TOPIC_OR_PARTITION},
            {A: E.NETWORK_EXCEPTION},
            {},
        ]
        assert await scene.end(producer, commit=True) is E.NONE
        assert scene.state is S.PREPARE_COMMIT
        assert await scene.end(producer, commit=True) is E.CONCURRENT_TRANSACTIONS
        await scene.settle(S.COMPLETE_COMMIT)
        assert [partitions for _, partitions in scene.markers.written] == [{A, B}, {A, B}, {A}]

    play(body)


def test_the_pauses_between_tries_double_up_to_two_seconds(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        write, times = scene.markers.write, []

        async def timed(marker: Any, partitions: Any) -> Any:
            times.append(scene.clock.monotonic())
            return await write(marker, partitions)

        scene.markers.write = timed
        scene.markers.answers = [{A: E.NOT_LEADER_OR_FOLLOWER}] * 8
        await scene.end(producer, commit=True)
        await scene.settle(S.COMPLETE_COMMIT)
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2])

    play(body)


def test_ids_of_a_topic_that_was_given_more_partitions_are_named(
    play: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = next(each for each in range(5, 10) if coordinator_partition(ID, each) != HOME)

    async def body(scene: Scene) -> None:
        await scene.producer()
        again = await scene.restarted()
        assert not caplog.records
        monkeypatch.setattr(type(scene.log), "partition_count", count)
        await again.restarted()

    play(body)
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith(f"__transaction_state-{HOME} holds 1 transactional id(s) that are looked for in other")
    assert f"partitions: {ID}. The topic has {count} partitions" in said


def test_a_load_gives_way_to_others_and_waits_for_nobody(play: Any) -> None:
    async def body(scene: Scene) -> None:
        ids = [each for each in map(str, range(2000)) if coordinator_partition(each, 4) == HOME][:400]
        for each in ids:
            scene.log.logs[HOME].append(build_batch(Transaction(each, 7, 0, 1000), 1))
        before = scene.clock.monotonic()
        await scene.txns.load(HOME)
        assert scene.clock.monotonic() == before
        assert len(scene.txns.list_transactions()[1]) == 400

    play(body)


def test_ids_are_taken_in_some_at_a_time(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_SLICE", 1)

    async def turns(loading: asyncio.Task[None]) -> int:
        number = 0
        while not loading.done():
            number += 1
            await asyncio.sleep(0)
        return number

    async def body(scene: Scene) -> None:
        ids = [each for each in map(str, range(2000)) if coordinator_partition(each, 4) == HOME][:100]
        for each in ids:
            scene.log.logs[HOME].append(build_batch(Transaction(each, 7, 0, 1000), 1))
        assert await turns(scene.loop.create_task(scene.txns.load(HOME))) >= 200
        assert len(scene.txns.list_transactions()[1]) == 100
        loading = scene.loop.create_task(scene.txns.load(HOME))
        for _ in range(150):
            await asyncio.sleep(0)
        assert scene.txns.list_transactions() == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
        scene.txns.unload(HOME)
        await loading
        assert scene.txns.list_transactions() == (E.NONE, [])

    play(body)


def test_a_deleted_partition_holds_nothing_up(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [{B: E.UNKNOWN_TOPIC_OR_PARTITION}]
        scene.markers.gone = {B}
        await scene.end(producer, commit=True)
        await scene.settle(S.COMPLETE_COMMIT)
        assert len(scene.markers.written) == 1

    play(body)


def test_a_replaced_coordinator_stops_when_it_hears_so(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [{A: E.TRANSACTION_COORDINATOR_FENCED}] * 1000
        await scene.end(producer, commit=True)
        await asyncio.sleep(10)
        assert scene.state is S.PREPARE_COMMIT
        scene.txns.unload(scene.txns.partition_for(ID))
        await asyncio.sleep(10)
        written = len(scene.markers.written)
        await asyncio.sleep(100)
        assert len(scene.markers.written) == written

    play(body)


def test_a_leader_that_stays_away_is_told_once_a_minute_and_in_few_words(play: Any, caplog: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.producer()
        partitions = [TopicPartition("a", number) for number in range(3000)]
        assert await scene.txns.add_partitions(ID, producer, partitions) is E.NONE
        scene.markers.answers = [dict.fromkeys(partitions, E.NOT_LEADER_OR_FOLLOWER)] * 100
        await scene.end(producer, commit=True)
        await asyncio.sleep(50)

    play(body)
    (line,) = [each.getMessage() for each in caplog.records if "trying again" in each.getMessage()]
    assert line.endswith("in 3000 partition(s), such as a-0: NOT_LEADER_OR_FOLLOWER")


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_that_has_gone_on_takes_no_marker_from_the_others(play: Any, commit: bool) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [{A: E.INVALID_PRODUCER_EPOCH, B: E.NOT_LEADER_OR_FOLLOWER}]
        await scene.end(producer, commit=commit)
        await scene.settle(S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        assert [tps for _, tps in scene.markers.written] == [{A, B}, {B}]

    play(body)


def test_a_writer_that_fails_is_asked_again(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        write, failures = scene.markers.write, [OSError("odd"), KeyError("odd")]

        async def failing(marker: Any, partitions: Any) -> Any:
            if failures:
                raise failures.pop()
            return await write(marker, partitions)

        scene.markers.write = failing
        await scene.end(producer, commit=True)
        await scene.settle(S.COMPLETE_COMMIT)

    play(body)
    assert "odd" in caplog.text


def test_an_id_whose_record_could_not_be_written_is_not_held_up(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        append = scene.log.append

        async def failing(partition: int, batch: bytes) -> None:
            scene.log.append = append
            raise OSError("odd")

        scene.log.append = failing
        assert await scene.end(producer, commit=True) is E.UNKNOWN_SERVER_ERROR
        assert await scene.end(producer, commit=True) is E.NONE
        await scene.settle(S.COMPLETE_COMMIT)

    play(body)


def test_a_partition_that_was_deceived_holds_no_other_up_and_is_asked_again(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [{A: E.TRANSACTION_COORDINATOR_FENCED}] * 2
        await scene.end(producer, commit=True)
        await scene.settle(S.COMPLETE_COMMIT)
        assert [tps for _, tps in scene.markers.written] == [{A, B}, {A}, {A}]

    play(body)


@pytest.mark.parametrize("commit", [True, False])
def test_a_coordinator_that_dies_between_decision_and_markers_is_succeeded(play: Any, commit: bool) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [{A: E.NOT_LEADER_OR_FOLLOWER, B: E.NOT_LEADER_OR_FOLLOWER}] * 100
        await scene.end(producer, commit=commit)
        await asyncio.sleep(1)
        scene = await _successor(scene)
        await scene.settle(S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        assert scene.markers.written == [(Marker(producer, commit, 6), {A, B})]
        await scene.txns.close()

    play(body)


async def _successor(scene: Scene) -> Scene:
    scene.markers.answers = []
    await scene.txns.close()
    scene.markers.written.clear()
    return await scene.restarted()


def test_a_decision_that_its_followers_have_not_is_carried_out_nowhere(play: Any) -> None:
    """A leader that finds it may die as well: the next one does not, and would end the transaction the other way."""

    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [{A: E.NOT_LEADER_OR_FOLLOWER, B: E.NOT_LEADER_OR_FOLLOWER}] * 100
        await scene.end(producer, commit=True)
        await scene.txns.close()
        scene.markers.written.clear()
        scene.log.commit_gate = scene.loop.create_future()
        loading = asyncio.ensure_future(scene.restarted())
        await asyncio.sleep(1)
        assert not loading.done()
        assert scene.markers.written == []
        loading.cancel()
        scene.log.commit_gate = None
        del scene.log.logs[HOME][2:]  # the next leader's
        scene = await _successor(scene)
        scene.clock.advance(20)
        finish(scene.txns.abort_timed_out())
        await scene.settle(S.COMPLETE_ABORT)
        assert {marker.commit for marker, _ in scene.markers.written} == {False}
        await scene.txns.close()

    play(body)


def test_what_is_loaded_is_said_when_the_followers_have_it(play: Any, caplog: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.log.errors = [E.REQUEST_TIMED_OUT]
        scene.log.commit_gate = scene.loop.create_future()
        loading = asyncio.ensure_future(scene.txns.load(HOME))
        await asyncio.sleep(1)
        assert "is not coordinated before its followers have what it holds" in caplog.text
        assert await scene.txns.add_partitions(ID, producer, [A]) is E.COORDINATOR_LOAD_IN_PROGRESS
        scene.log.commit_gate.set_result(None)
        await loading
        assert await scene.txns.add_partitions(ID, producer, [A]) is E.NONE
        scene.log.commit_gate = scene.loop.create_future()
        loading = asyncio.ensure_future(scene.txns.load(HOME))
        await asyncio.sleep(1)
        scene.txns.unload(HOME)
        scene.log.commit_gate.set_result(None)
        await loading
        assert await scene.txns.add_partitions(ID, producer, [A]) is E.COORDINATOR_LOAD_IN_PROGRESS

    play(body)


@pytest.mark.parametrize("steps", range(5))
def test_whatever_of_the_log_is_left_ends_in_one_outcome(play: Any, steps: int) -> None:
    """The log cut after each record: before the decision it is an abort, from it on a commit."""

    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        await scene.end(producer, commit=True)
        await scene.settle(S.COMPLETE_COMMIT)
        del scene.log.logs[HOME][steps:]
        scene = await _successor(scene)
        await asyncio.sleep(1)
        scene.clock.advance(10)
        finish(scene.txns.abort_timed_out())
        await asyncio.sleep(1)
        decided = {False: [], True: []}
        for marker, partitions in scene.markers.written:
            decided[marker.commit].append(partitions)
        expected = {
            0: (None, [], []),
            1: (S.EMPTY, [], []),
            2: (S.COMPLETE_ABORT, [], [{A, B}]),
            3: (S.COMPLETE_COMMIT, [{A, B}], []),
            4: (S.COMPLETE_COMMIT, [], []),
        }
        assert (scene.state, decided[True], decided[False]) == expected[steps]
        await scene.txns.close()

    play(body)


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.POLICY_VIOLATION, E.POLICY_VIOLATION),
    ],
)
def test_a_record_that_cannot_be_written_changes_nothing(play: Any, refusal: ErrorCode, answer: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.log.errors = [refusal]
        assert await scene.end(producer, commit=True) is answer
        assert scene.state is S.ONGOING
        assert scene.markers.written == []
        assert await scene.end(producer, commit=True) is E.NONE

    play(body)


def test_a_new_id_whose_record_cannot_be_written_does_not_exist(play: Any) -> None:
    async def body(scene: Scene) -> None:
        scene.log.errors = [E.NOT_ENOUGH_REPLICAS]
        assert (await scene.init()).error is E.COORDINATOR_NOT_AVAILABLE
        assert scene.txns.describe(ID)[0] is E.TRANSACTIONAL_ID_NOT_FOUND
        assert await scene.producer() == Producer(101, 0)

    play(body)


def test_a_completion_that_cannot_be_written_is_tried_again(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        gate = scene.loop.create_future()
        scene.log.gate = lambda: gate
        ending = scene.loop.create_task(scene.end(producer, commit=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scene.log.errors = [E.NOT_ENOUGH_REPLICAS]
        scene.log.gate = None
        gate.set_result(None)
        assert await ending is E.NONE
        await scene.settle(S.COMPLETE_COMMIT)

    play(body)


def test_a_completion_that_was_not_confirmed_ends_no_transaction_of_its_successor(play: Any) -> None:
    """The record is in the next coordinator's log, which tells no partition anew: the old one must not either."""

    async def body(scene: Scene) -> None:
        plain, refused = scene.log.append, asyncio.Event()

        async def append(partition: int, batch: bytes) -> None:
            await plain(partition, batch)
            found = transaction_in(batch)
            if found is not None and found.state is S.COMPLETE_COMMIT and not refused.is_set():
                refused.set()
                raise ApiError(E.REQUEST_TIMED_OUT)

        scene.log.append = append
        producer = await scene.opened()
        assert await scene.end(producer, commit=True) is E.NONE
        await refused.wait()
        successor = Scene(scene.loop, scene.clock, scene.log, scene.markers)
        await successor.load()
        assert await successor.txns.add_partitions(ID, producer, [A]) is E.NONE
        await asyncio.sleep(10)
        assert scene.markers.written == [(Marker(producer, True, 5), {A, B})], "a second one would end what was begun"
        assert successor.state is S.ONGOING
        await successor.txns.close()

    play(body)


def test_without_a_producer_id_to_give(play: Any) -> None:
    async def body(scene: Scene) -> None:
        scene.id_failures = 1
        assert (await scene.init()).error is E.COORDINATOR_NOT_AVAILABLE
        assert (await scene.init()).error is E.NONE

    play(body)


@pytest.mark.parametrize("expected", [Producer(100, 0), Producer(100, 5)])
def test_a_producer_that_goes_on_after_an_error(play: Any, expected: Producer) -> None:
    async def body(scene: Scene) -> None:
        await scene.producer()
        error, producer, _ = await scene.init(expected)
        if expected.epoch:
            assert error is E.PRODUCER_FENCED
        else:
            assert (error, producer) == (E.NONE, Producer(100, 1))
            assert (await scene.init(expected)).producer == Producer(100, 1)

    play(body)


def test_requests_before_the_load_and_at_the_wrong_broker(play: Any) -> None:
    async def body(scene: Scene) -> None:
        someone = Producer(1, 0)
        for status in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR):
            assert (await scene.init()).error is status
            assert await scene.txns.add_partitions(ID, someone, [A]) is status
            assert await scene.end(someone, commit=True) is status
            assert scene.txns.describe(ID) == (status, None)
            assert scene.txns.verify(ID, someone, A) is status
            assert not scene.txns.is_elsewhere(ID)
            scene.log.led.clear()
        scene.log.led_elsewhere = {HOME}
        assert scene.txns.is_elsewhere(ID)

    play(body, loaded=False)


def test_a_request_that_makes_no_sense(play: Any) -> None:
    async def body(scene: Scene) -> None:
        assert (await scene.txns.init_producer_id(InitRequest("", 1))).error is E.INVALID_REQUEST
        assert (await scene.init(timeout_ms=60_001)).error is E.INVALID_TRANSACTION_TIMEOUT
        assert (await scene.txns.init_producer_id(InitRequest("é" * 16_384, 1))).error is E.INVALID_REQUEST
        assert (await scene.txns.init_producer_id(InitRequest("é" * 16_383 + "e", 1))).error is E.NONE
        assert await scene.txns.add_partitions("", Producer(1, 0), [A]) is E.INVALID_REQUEST
        assert (await scene.txns.end("", EndRequest(Producer(1, 0), True))).error is E.INVALID_REQUEST

    play(body)


def test_leadership_that_moves_while_a_record_is_written(play: Any) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        gate = scene.loop.create_future()
        scene.log.gate = lambda: gate
        ending = scene.loop.create_task(scene.end(producer, commit=True))
        await asyncio.sleep(1)
        scene.txns.unload(HOME)
        scene.log.gate = None
        gate.set_result(None)
        assert await ending is E.NOT_COORDINATOR
        assert scene.markers.written == []
        await scene.txns.load(HOME)
        await scene.settle(S.COMPLETE_COMMIT)

    play(body)


def test_work_that_fails_unasked_is_told_to_the_log(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.markers.answers = [{A: E.NOT_LEADER_OR_FOLLOWER}] * 2
        failure = OSError("odd")

        async def failing(partitions: Any) -> Any:
            raise failure

        scene.markers.deleted = failing
        await scene.end(producer, commit=True)
        await asyncio.sleep(1)
        assert [each.exc_info[1] for each in caplog.records if each.exc_info] == [failure]
        assert [each.name for each in caplog.records if each.exc_info] == ["sparklog.txn.runtime"]

    play(body)


def test_work_that_ends_or_is_given_up_is_no_failure(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        await scene.end(producer, commit=True)
        await scene.settle(S.COMPLETE_COMMIT)
        assert await scene.txns.add_partitions(ID, producer, [A]) is E.NONE
        scene.log.gate = scene.loop.create_future
        ending = scene.loop.create_task(scene.end(producer, commit=True))
        await asyncio.sleep(1)
        await scene.txns.close()
        await asyncio.gather(ending, return_exceptions=True)

    play(body)
    assert caplog.records == []


def test_what_is_listed(play: Any) -> None:
    async def body(scene: Scene) -> None:
        await scene.opened()
        error, (listed,) = scene.txns.list_transactions()
        assert (error, listed.transactional_id, listed.state) == (E.NONE, ID, S.ONGOING)
        scene.txns._led[HOME].is_loading = True
        assert scene.txns.list_transactions() == (E.COORDINATOR_LOAD_IN_PROGRESS, [])

    play(body)


def test_an_id_with_which_something_is_wrong_holds_up_no_other(play: Any, caplog: Any) -> None:
    async def body(scene: Scene) -> None:
        await scene.opened()
        assert (await scene.txns.init_producer_id(InitRequest("damaged", 10_000, None))).error is E.NONE
        (damaged,) = [
            held for led in scene.txns._led.values() for held in led.held.values() if held is not scene.txns._find(ID)
        ]
        damaged.current = damaged.current._replace(state=S.ONGOING, epoch=LAST_EPOCH, start_ms=0)
        led = next(led for led in scene.txns._led.values() if damaged in led.held.values())
        # first of all
        scene.txns._led = {led.number: led, **scene.txns._led}
        led.held = {"damaged": damaged, **led.held}
        scene.clock.advance(60)
        finish(scene.txns.abort_timed_out())
        await scene.settle(S.COMPLETE_ABORT)
        assert "damaged cannot be looked after" in caplog.text

    play(body)


def test_markers_bear_the_leader_epoch_of_now(play: Any) -> None:
    """Also where this broker is elected again and keeps what it holds."""

    async def body(scene: Scene) -> None:
        producer = await scene.opened()
        scene.log.epoch += 1
        assert await scene.end(producer, commit=True) is E.NONE
        await scene.settle(S.COMPLETE_COMMIT)
        assert {marker.coordinator_epoch for marker, _ in scene.markers.written} == {6}

    play(body)
