"""How transactions enter partitions: permits, turns, and what is asked of other brokers together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.txn import coordinators, entry
from sparklog.broker.txn.coordinators import Entry, TransactionCoordinators
from sparklog.broker.txn.entry import TransactionEntry
from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.protocol.messages import AddPartitionsToTxnResponse
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.txn.state import ClientVersion, Producer

E = ErrorCode
V = ClientVersion
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
PRODUCER = Producer(7, 3)
HOME = Endpoint("elsewhere", 9092)


class Coordinator:
    """The one in this broker. ``codes`` are given first, then NONE."""

    def __init__(self) -> None:
        self.elsewhere = False
        self.codes: list[ErrorCode] = []
        self.asked: list[object] = []

    def is_elsewhere(self, _id: str) -> bool:
        return self.elsewhere

    def partition_for(self, _id: str) -> int:
        return 0

    def verify(self, transactional_id: str, producer: Producer, tp: TopicPartition) -> ErrorCode:
        self.asked.append(tp)
        return self.codes.pop(0) if self.codes else E.NONE

    async def add_partitions(self, _id: str, _producer: Producer, partitions: Any, version: V) -> ErrorCode:
        self.asked.append((set(partitions), version))
        await asyncio.sleep(0)
        return self.codes.pop(0) if self.codes else E.NONE


class Peers:
    """The other brokers, which answer when they are let."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.gate = asyncio.Event()
        self.fails = False

    async def request(self, _endpoint: Endpoint, _lane: str, _api: object, build: Callable[[int], Any]) -> Any:
        request = build(5)
        self.requests.append(request)
        await self.gate.wait()
        if self.fails:
            raise ConnectionFailed("it is away")
        topic = AddPartitionsToTxnResponse.AddPartitionsToTxnResult.AddPartitionsToTxnTopicResult
        result = topic.AddPartitionsToTxnPartitionResult
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        topic(
                            name=asked.name,
                            results_by_partition=[
                                result(partition_index=number, partition_error_code=int(E.TRANSACTION_ABORTABLE))
                                for number in asked.partitions
                            ],
                        )
                        for asked in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )


class Broker:
    """Everything around a TransactionEntry. ``markers``: the last marker of every producer in each partition."""

    def __init__(self) -> None:
        self.markers = {A: -1, B: -1}
        self.open: set[TopicPartition] = set()
        self.leader: Any = SimpleNamespace(endpoint=HOME)
        self.here = Coordinator()
        self.peers = Peers()
        metadata: Any = SimpleNamespace(leader=lambda _tp: self.leader)
        self.coordinators = TransactionCoordinators(self.here, metadata, self.peers, ManualClock())
        replicas: Any = SimpleNamespace(leads=self.markers.__contains__, partition=self._partition)
        self.entry = TransactionEntry(self.coordinators, replicas)

    def _partition(self, tp: TopicPartition) -> Any:
        return SimpleNamespace(
            last_marker=lambda _producer_id: self.markers[tp],
            has_open_transaction=lambda _producer_id, _epoch: tp in self.open,
        )


@pytest.fixture
def broker() -> Broker:
    return Broker()


def run(body: Callable[[], Any]) -> Any:
    return asyncio.run(body())


@pytest.mark.parametrize("version", list(V))
def test_a_permit_ends_with_the_next_marker(broker: Broker, version: V) -> None:
    async def body() -> None:
        permits = await broker.entry.ask("x", PRODUCER, [A, B], version)
        broker.markers[B] = 5
        assert broker.entry.check(A, PRODUCER, permits[A]) is E.NONE
        assert broker.entry.check(B, PRODUCER, permits[B]) is E.CONCURRENT_TRANSACTIONS
        again = await broker.entry.ask("x", PRODUCER, [B], version)
        assert broker.entry.check(B, PRODUCER, again[B]) is E.NONE

    run(body)
    adds = version is V.EPOCH_A_TRANSACTION
    assert broker.here.asked[-1] == (({B}, version) if adds else B)


def test_what_the_coordinator_refuses_stays_refused(broker: Broker) -> None:
    async def body() -> None:
        broker.here.codes = [E.PRODUCER_FENCED]
        permits = await broker.entry.ask("x", PRODUCER, [A], V.EPOCH_A_TRANSACTION)
        assert broker.entry.check(A, PRODUCER, permits[A]) is E.PRODUCER_FENCED

    run(body)


def test_who_must_ask(broker: Broker) -> None:
    async def body() -> None:
        assert broker.entry.must_ask("x", V.EPOCH_A_TRANSACTION)
        assert not broker.entry.must_ask("x", V.CLASSIC)
        async with broker.entry.turn("x"):
            assert broker.entry.must_ask("x", V.CLASSIC)  # behind what is waiting
            assert not broker.entry.must_ask("y", V.CLASSIC)
        assert not broker.entry.must_ask("x", V.CLASSIC)
        broker.here.elsewhere = True
        assert broker.entry.must_ask("x", V.CLASSIC)

    run(body)
    broker.open = {A}
    assert broker.entry.has_entered(A, PRODUCER)
    assert not broker.entry.has_entered(B, PRODUCER)


def test_turns_come_in_order_and_a_failure_passes_them_on(broker: Broker) -> None:
    order = []

    async def take(number: int) -> None:
        async with broker.entry.turn("x"):
            await asyncio.sleep(0)
            order.append(number)
            if number == 1:
                raise ConnectionFailed("it hung up")

    async def body() -> None:
        await asyncio.gather(*(take(number) for number in range(4)), return_exceptions=True)
        assert not broker.entry.must_ask("x", V.CLASSIC)

    run(body)
    assert order == [0, 1, 2, 3]


async def answer_of(broker: Broker, version: V = V.EPOCH_A_TRANSACTION) -> ErrorCode:
    permits = await broker.entry.ask("x", PRODUCER, [A], version)
    return broker.entry.check(A, PRODUCER, permits[A])


def test_a_transaction_that_is_just_ending_is_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_PAUSE_S", 0)

    async def body() -> None:
        broker.here.codes = [E.CONCURRENT_TRANSACTIONS] * 3
        assert await answer_of(broker) is E.NONE
        broker.here.codes = [E.CONCURRENT_TRANSACTIONS] * 100
        assert await answer_of(broker) is E.CONCURRENT_TRANSACTIONS
        assert len(broker.here.codes) == 94
        assert await answer_of(broker, V.CLASSIC) is E.CONCURRENT_TRANSACTIONS
        assert len(broker.here.codes) == 93

    run(body)


@pytest.mark.parametrize("told", [E.CONCURRENT_TRANSACTIONS, E.NONE])
def test_the_last_marker_of_the_transaction_before_may_come_while_the_next_is_begun(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, told: ErrorCode
) -> None:
    """``told``: by the coordinator, before the marker is written here. Its next answer stands."""
    monkeypatch.setattr(entry, "_PAUSE_S", 0)
    first = broker.coordinators.ask

    async def ask(entry: Entry) -> dict[TopicPartition, ErrorCode]:
        monkeypatch.setattr(broker.coordinators, "ask", first)
        broker.markers[A] = 5
        return {A: told}

    async def body() -> None:
        monkeypatch.setattr(broker.coordinators, "ask", ask)
        assert await answer_of(broker) is E.NONE
        monkeypatch.setattr(broker.coordinators, "ask", ask)
        broker.markers[A], broker.here.codes = -1, [E.PRODUCER_FENCED]
        assert await answer_of(broker) is E.PRODUCER_FENCED

    run(body)


def test_a_partition_may_be_taken_away_while_the_coordinator_is_asked(broker: Broker) -> None:
    first = broker.coordinators.ask

    async def ask(entry: Entry) -> dict[TopicPartition, ErrorCode]:
        broker.markers.pop(A, None)
        return await first(entry)

    async def body() -> None:
        broker.coordinators.ask = ask
        broker.markers[A] = 5
        assert await answer_of(broker) is E.NONE  # the append will say that the partition is not led here

    run(body)
    assert len(broker.here.asked) == 1


def ask_in_turn(broker: Broker, asked: list[tuple[str, TopicPartition]]) -> Any:
    """The answers; all but the first are asked while that one is under way."""

    async def body() -> Any:
        entries = [Entry(name, PRODUCER, frozenset({tp}), adds=False) for name, tp in asked]
        first = asyncio.create_task(broker.coordinators.ask(entries[0]))
        while not broker.peers.requests:
            await asyncio.sleep(0)
        rest = [asyncio.create_task(broker.coordinators.ask(each)) for each in entries[1:]]
        await asyncio.sleep(0)
        broker.peers.gate.set()
        answers = await asyncio.gather(first, *rest)
        await broker.coordinators.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return answers

    return run(body)


@pytest.mark.parametrize("fails", [False, True])
def test_what_waits_is_asked_together_each_id_once(broker: Broker, fails: bool) -> None:
    broker.here.elsewhere, broker.peers.fails = True, fails
    asked = [("x", A), ("x", B), ("y", A), ("x", A)]
    code = E.NETWORK_EXCEPTION if fails else E.TRANSACTION_ABORTABLE
    assert ask_in_turn(broker, asked) == [{tp: code} for _, tp in asked]
    together = [[each.transactional_id for each in request.transactions] for request in broker.peers.requests]
    assert together == [["x"], ["x", "y"], ["x"]]
    assert all(each.verify_only for request in broker.peers.requests for each in request.transactions)


def test_no_more_wait_for_a_coordinator_than_may(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "MAX_WAITING", 2)
    broker.here.elsewhere = True
    answers = ask_in_turn(broker, [("v", A), ("w", A), ("x", A), ("y", A)])
    assert answers == [{A: E.TRANSACTION_ABORTABLE}] * 3 + [{A: E.NETWORK_EXCEPTION}]


def test_after_a_mistake_of_ours_nobody_waits_for_ever(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.here.elsewhere = True
    monkeypatch.setattr(coordinators, "_request_of", lambda _entries: 1 / 0)

    async def body() -> None:
        entry = Entry("x", PRODUCER, frozenset({A}), adds=False)
        assert await broker.coordinators.ask(entry) == {A: E.NETWORK_EXCEPTION}
        monkeypatch.undo()
        broker.peers.gate.set()
        assert await broker.coordinators.ask(entry) == {A: E.TRANSACTION_ABORTABLE}

    run(body)


def test_without_a_coordinator_the_producer_is_to_come_again(broker: Broker) -> None:
    broker.here.elsewhere, broker.leader = True, None
    entry = Entry("x", PRODUCER, frozenset({A}), adds=True)
    assert run(lambda: broker.coordinators.ask(entry)) == {A: E.COORDINATOR_NOT_AVAILABLE}
