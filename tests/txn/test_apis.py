"""The handlers of the transaction APIs, in every version that they claim, through the wire's bytes."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sparklog import regular_expression
from sparklog.broker.apis.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from sparklog.broker.context import ApiRequest
from sparklog.broker.expressions import Expressions
from sparklog.broker.txn.coordinators import TransactionCoordinators
from sparklog.broker.txn.entry import TransactionEntry
from sparklog.broker.txn.markers import markers_request
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.group.runtime import GroupCoordinator
from sparklog.net.turns import Turns
from sparklog.protocol import messages
from sparklog.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish
from sparklog.txn.markers import Marker
from sparklog.txn.runtime import TransactionCoordinator
from sparklog.txn.state import Producer, TransactionState

HANDLERS = [
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
]
NEW, OLD = Producer(7, 0), Producer(7, -1)

NO_TOPICS = SimpleNamespace(version=0, topic=lambda name: None)


def _codes(topics: list[Any]) -> dict[tuple[str, int], ErrorCode]:
    return {
        (each.name, result.partition_index): ErrorCode(result.partition_error_code)
        for each in topics
        for result in each.results_by_partition
    }


class AtOnce(ThreadPoolExecutor):
    """A thread for a loop whose clock jumps while one is waited for."""

    def submit(self, call: Any, /, *args: Any, **named: Any) -> Any:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Kept(ThreadPoolExecutor):
    """Does what it is given when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []

    def submit(self, call: Any, /, *args: Any, **named: Any) -> Any:
        done: Future[Any] = Future()
        self.calls.append(lambda: done.set_result(call(*args, **named)))
        return done


class Client:
    """Calls handlers as the broker does, through the wire's bytes."""

    def __init__(self, loop: Any, clock: Any, log: Any, markers: Any) -> None:
        config = BrokerConfig()
        ids = iter(range(7, 100))

        async def take() -> int:
            return next(ids)

        groups = GroupCoordinator(config, log, clock, loop, NO_TOPICS)
        existing = {"t": SimpleNamespace(partitions={0: None, 1: None})}
        metadata = SimpleNamespace(
            topic=existing.get,
            knows=lambda tp: tp.topic in existing and tp.partition < 2,
            has_been_told=True,
        )
        self.appended: list[tuple[Marker, list[TopicPartition]]] = []
        self.broker: Any = SimpleNamespace(
            authorizer=AllowEverything(),
            turns=Turns(loop),
            clock=clock,
            expressions=Expressions(),
            metadata=metadata,
            groups=groups,
            transactions=TransactionCoordinator(config, log, markers, take, clock, loop),
            producer_ids=SimpleNamespace(take=take),
            txn_markers=SimpleNamespace(take=self.append),
        )
        replicas: Any = SimpleNamespace(leads=lambda _: True, partition=lambda _: log)
        coordinators = TransactionCoordinators(self.broker.transactions, metadata, None, clock)
        self.broker.txn_entry = TransactionEntry(coordinators, replicas)

    async def append(self, marker: Marker, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        self.appended.append((marker, partitions))
        return {tp: ErrorCode.NOT_LEADER_OR_FOLLOWER if tp.partition else ErrorCode.NONE for tp in partitions}

    async def call(self, module: ModuleType, version: int, request: Any) -> Any:
        body = memoryview(messages.encode(request, version))
        message = messages.decode_request(module.API, version, body)
        answer = module.handle(self.broker, ApiRequest(module.API, version, "app", Caller("/10.0.0.1"), message))
        answer = finish(answer) if inspect.isgenerator(answer) else answer
        answer = await answer if inspect.isawaitable(answer) else answer
        return messages.decode_response(module.API, version, memoryview(messages.encode(answer, version)))

    async def load(self) -> None:
        for partition in range(4):
            await self.broker.transactions.load(partition)
            await self.broker.groups.load(partition)

    async def init(self, version: int = 4, **fields: Any) -> Any:
        asked = {"transactional_id": "x", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
        return await self.call(init_producer_id, version, InitProducerIdRequest(**(asked | fields)))

    async def add(self, version: int, producer: Producer, **topics: list[int]) -> dict[tuple[str, int], ErrorCode]:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        asked = [topic(name=name, partitions=numbers) for name, numbers in topics.items()]
        if version >= 4:
            (codes,) = await self.add_batched(version, [("x", producer, False, asked)])
            return codes
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=asked,
        )
        return _codes((await self.call(add_partitions_to_txn, version, request)).results_by_topic_v3_and_below)

    async def add_batched(
        self, version: int, transactions: list[tuple[str, Producer, bool, list[Any]]]
    ) -> list[dict[tuple[str, int], ErrorCode]]:
        """As brokers ask: id, producer, whether only to verify, topics; the codes of each."""
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
        request = AddPartitionsToTxnRequest(
            transactions=[
                transaction(
                    transactional_id=name,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=verify_only,
                    topics=topics,
                )
                for name, producer, verify_only, topics in transactions
            ]
        )
        answer = await self.call(add_partitions_to_txn, version, request)
        assert [each.transactional_id for each in answer.results_by_transaction] == [each[0] for each in transactions]
        return [_codes(each.topic_results) for each in answer.results_by_transaction]

    async def end(self, version: int, producer: Producer, *, commit: bool = True) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commit
        )
        answer = await self.call(end_txn, version, request)
        self.ended = Producer(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    async def add_offsets(self, version: int, producer: Producer) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
        )
        return ErrorCode((await self.call(add_offsets_to_txn, version, request)).error_code)

    async def commit_offsets(self, version: int, producer: Producer, **fields: Any) -> dict[tuple[str, int], ErrorCode]:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=2, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[topic(name=name, partitions=[partition]) for name in ("t", "unknown")],
            **fields,
        )
        answer = await self.call(txn_offset_commit, version, request)
        return {
            (each.name, result.partition_index): ErrorCode(result.error_code)
            for each in answer.topics
            for result in each.partitions
        }


@pytest.fixture
def client(loop: Any, clock: Any, log: Any, markers: Any) -> Any:
    client = Client(loop, clock, log, markers)
    loop.run_until_complete(client.load())
    yield client
    loop.run_until_complete(client.broker.transactions.close())
    loop.run_until_complete(client.broker.groups.close())


def versions(module: ModuleType) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", list(module.VERSIONS))


def fenced(version: int, first: int) -> ErrorCode:
    """What an older client knows of being fenced."""
    return ErrorCode.PRODUCER_FENCED if version >= first else ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("module", HANDLERS)
def test_the_schema_has_every_version_claimed(module: ModuleType) -> None:
    assert module.VERSIONS.step == 1
    assert module.VERSIONS[-1] <= messages.highest_version(module.API)


@versions(init_producer_id)
def test_init(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        answer = await client.init(version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 7, 0)
        answer = await client.init(version, transactional_id=None)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 8, 0)
        refused = await client.init(version, transaction_timeout_ms=0)
        assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)
        assert (await client.init(version, transactional_id="")).error_code == ErrorCode.INVALID_REQUEST
        if version >= 3:
            half = await client.init(version, producer_id=7)
            assert half.error_code == ErrorCode.INVALID_REQUEST
            zombie = await client.init(version, producer_id=7, producer_epoch=9)
            assert zombie.error_code == fenced(version, 4)

    loop.run_until_complete(body())


@versions(add_partitions_to_txn)
def test_add_partitions(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        await client.init()
        assert await client.add(version, NEW, t=[0, 5], other=[1]) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("other", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await client.add(version, NEW, t=[0, 1]) == {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.NONE}
        assert await client.add(version, OLD, t=[0]) == {("t", 0): fenced(version, 2)}
        assert client.broker.transactions.verify("x", NEW, TopicPartition("t", 1)) is ErrorCode.NONE
        client.broker.metadata.has_been_told = False  # so it is for the coordinator to answer, if it is one by then
        assert await client.add(version, OLD, other=[1]) == {("other", 1): fenced(version, 2)}

    loop.run_until_complete(body())


@pytest.mark.parametrize(
    ("version", "outside"), [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_brokers_ask_for_several_transactions_at_once(
    loop: Any, client: Client, version: int, outside: ErrorCode
) -> None:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

    async def body() -> None:
        await client.init()
        await client.init(transactional_id="y")
        both, one = [topic(name="t", partitions=[0, 1])], [topic(name="t", partitions=[0])]
        other = Producer(8, 0)
        (outside_x, added_y) = await client.add_batched(version, [("x", NEW, True, both), ("y", other, False, one)])
        assert outside_x == {("t", 0): outside, ("t", 1): outside}
        assert added_y == {("t", 0): ErrorCode.NONE}
        (in_y, zombie, unknown) = await client.add_batched(
            version, [("y", other, True, both), ("x", OLD, True, one), ("z", NEW, False, one)]
        )
        assert in_y == {("t", 0): ErrorCode.NONE, ("t", 1): outside}
        assert zombie == {("t", 0): ErrorCode.PRODUCER_FENCED}
        assert unknown == {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    loop.run_until_complete(body())


def test_a_transaction_in_two_phases(loop: Any, client: Client) -> None:
    async def body() -> None:
        first = await client.init(6, enable2_pc=True, transaction_timeout_ms=0)
        assert (first.error_code, first.ongoing_txn_producer_id, first.ongoing_txn_producer_epoch) == (0, -1, -1)
        await client.add(5, NEW, t=[0])
        client.broker.clock.advance(10_000_000)
        finish(client.broker.transactions.abort_timed_out())
        kept = await client.init(6, enable2_pc=True, keep_prepared_txn=True)
        assert (kept.error_code, kept.producer_id, kept.producer_epoch) == (0, 7, 1)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (7, 0)
        assert await client.end(5, NEW) is ErrorCode.PRODUCER_FENCED
        assert await client.end(5, Producer(7, 1)) is ErrorCode.NONE
        assert client.ended == Producer(7, 2)

    loop.run_until_complete(body())


@versions(end_txn)
@pytest.mark.parametrize("commit", [True, False])
def test_end(loop: Any, client: Client, version: int, commit: bool) -> None:
    async def body() -> None:
        await client.init()
        if version < 5 or commit:
            assert await client.end(version, NEW, commit=commit) is ErrorCode.INVALID_TXN_STATE
        await client.add(3, NEW, t=[0])
        assert await client.end(version, OLD, commit=commit) is fenced(version, 2)
        assert await client.end(version, NEW, commit=commit) is ErrorCode.NONE
        assert client.ended == (Producer(7, 1) if version >= 5 else Producer(-1, -1))
        _, found = client.broker.transactions.describe("x")
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        assert found.state in (prepared, prepared + 2)

    loop.run_until_complete(body())


@versions(add_offsets_to_txn)
def test_add_offsets(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        await client.init()
        assert await client.add_offsets(version, OLD) is fenced(version, 2)
        assert await client.add_offsets(version, NEW) is ErrorCode.NONE
        _, found = client.broker.transactions.describe("x")
        assert found.partitions == {TopicPartition("__consumer_offsets", client.broker.groups.partition_for("g"))}

    loop.run_until_complete(body())


@versions(txn_offset_commit)
def test_commit_offsets(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        unknown = {("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await client.init()
        if version < 5:
            outside = ErrorCode.INVALID_TXN_STATE if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
            assert await client.commit_offsets(version, NEW) == {("t", 0): outside} | unknown
            await client.add_offsets(3, NEW)
        assert await client.commit_offsets(version, OLD) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH} | unknown
        assert await client.commit_offsets(version, NEW) == {("t", 0): ErrorCode.NONE} | unknown
        client.broker.metadata.has_been_told = False
        unknown = {("unknown", 0): ErrorCode.NOT_COORDINATOR}
        assert await client.commit_offsets(version, NEW) == {("t", 0): ErrorCode.NONE} | unknown
        home = client.broker.groups.partition_for("g")
        client.broker.groups.end_transaction(home, 7, True)
        _, offsets = client.broker.groups.fetch_offsets("g", None)
        (committed,) = offsets.values()
        assert (committed.offset, committed.leader_epoch, committed.metadata) == (5, 2 if version >= 2 else -1, "")
        if version >= 3:
            answer = await client.commit_offsets(version, NEW, member_id="m", generation_id=4)
            assert answer[("t", 0)] in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

    loop.run_until_complete(body())


@versions(txn_offset_commit)
def test_offsets_for_a_topic_made_anew_since_it_was_looked_up(loop: Any, client: Client, version: int) -> None:
    look_up = client.broker.metadata.topic

    def made_anew(name: str) -> Any:
        found = look_up(name)
        finish(client.broker.groups.forget_topics([TopicPartition(name, 0)]))
        return found

    async def body() -> None:
        await client.init()
        await client.add_offsets(3, NEW)
        client.broker.metadata.topic = made_anew
        assert set((await client.commit_offsets(version, NEW)).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        client.broker.groups.end_transaction(client.broker.groups.partition_for("g"), 7, True)
        assert client.broker.groups.fetch_offsets("g", None) == (ErrorCode.NONE, {})

    loop.run_until_complete(body())


@versions(write_txn_markers)
def test_write_markers(loop: Any, client: Client, version: int) -> None:
    tps = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
    marker = Marker(Producer(7, 3), True, 9, raises_epoch=version >= 2)
    answer = loop.run_until_complete(client.call(write_txn_markers, version, markers_request(marker, tps)))
    assert client.appended == [(marker, tps)]
    (result,) = answer.markers
    codes = {
        (topic.name, each.partition_index): each.error_code for topic in result.topics for each in topic.partitions
    }
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (result.producer_id, codes) == (7, {("t", 0): 0, ("t", 1): refused, ("u", 0): 0})


@versions(list_transactions)
def test_list(loop: Any, client: Client, version: int) -> None:
    async def listed(**filters: Any) -> list[str]:
        asked: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, **filters}
        answer = await client.call(list_transactions, version, ListTransactionsRequest(**asked))
        assert answer.error_code == 0
        assert list(answer.unknown_state_filters) == [each for each in asked["state_filters"] if each == "Odd"]
        return [each.transaction_state for each in answer.transaction_states]

    async def body() -> None:
        client.broker.expressions._thread = AtOnce()
        assert await listed() == []
        await client.init()
        assert await listed(state_filters=["Ongoing"]) == []
        await client.add(3, NEW, t=[0])
        assert await listed(state_filters=["Ongoing", "Odd"]) == ["Ongoing"]
        assert await listed(producer_id_filters=[8]) == []
        assert await listed(producer_id_filters=[7]) == ["Ongoing"]
        if version >= 2:
            assert await listed(transactional_id_pattern="x|y") == ["Ongoing"]
            assert await listed(transactional_id_pattern="y.*") == []
            assert await listed(transactional_id_pattern="") == ["Ongoing"]
            bad = await client.call(list_transactions, version, ListTransactionsRequest(transactional_id_pattern="("))
            assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        if version >= 1:
            client.broker.clock.advance(1)
            assert await listed(duration_filter=1000) == []
            assert await listed(duration_filter=999) == ["Ongoing"]

    loop.run_until_complete(body())


def test_expressions_are_matched_one_at_a_time(loop: Any, client: Client) -> None:
    """Each may take a second of the thread, and groups wait for the same one."""
    threads = Kept()

    async def body() -> None:
        client.broker.expressions._thread = threads
        request = ListTransactionsRequest(transactional_id_pattern="x")
        asked = [loop.create_task(client.call(list_transactions, 2, request)) for _ in range(3)]
        for number in range(3):
            while len(threads.calls) <= number:
                await asyncio.sleep(0)
            await asyncio.sleep(1)  # of the clock of the loop: what could go on has gone on
            assert len(threads.calls) == number + 1
            threads.calls[number]()
        assert [answer.error_code for answer in await asyncio.gather(*asked)] == [0, 0, 0]

    loop.run_until_complete(body())


def test_who_asks_with_an_expression_and_hangs_up_occupies_no_second_thread(
    clock: Any, log: Any, markers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    has_begun, may_end = threading.Event(), threading.Event()

    def match(expression: str, texts: Iterable[str]) -> frozenset[str]:
        begun.append(expression)
        has_begun.set()
        assert may_end.wait(60)
        return frozenset(texts)

    monkeypatch.setattr(regular_expression, "matching", match)

    async def body() -> None:
        client = Client(asyncio.get_running_loop(), clock, log, markers)
        await client.load()

        def ask(expression: str) -> asyncio.Future[Any]:
            request = ListTransactionsRequest(transactional_id_pattern=expression)
            return asyncio.ensure_future(client.call(list_transactions, 2, request))

        for number in range(3):
            asked = ask(f"given up {number}")
            while not has_begun.is_set():
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait([asked])
        last = ask("last")
        await asyncio.sleep(0)
        may_end.set()
        assert (await last).error_code == 0
        assert begun == ["given up 0", "last"]

    asyncio.run(body())


@versions(describe_transactions)
def test_an_id_is_described_once(loop: Any, client: Client, version: int) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["x", "y", "x", "y"])
    answer = loop.run_until_complete(client.call(describe_transactions, version, request))
    assert [each.transactional_id for each in answer.transaction_states] == ["x", "y"]


@versions(describe_transactions)
def test_describe(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        await client.init()
        began = client.broker.clock.now_ms()
        await client.add(3, NEW, t=[1, 0])
        request = DescribeTransactionsRequest(transactional_ids=["x", "y", ""])
        known, unknown, empty = (await client.call(describe_transactions, version, request)).transaction_states
        assert (known.transactional_id, known.transaction_state, known.transaction_timeout_ms) == ("x", "Ongoing", 1000)
        assert (known.producer_id, known.producer_epoch, known.transaction_start_time_ms) == (7, 0, began)
        assert [(each.topic, list(each.partitions)) for each in known.topics] == [("t", [0, 1])]
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST

    loop.run_until_complete(body())


def test_requests_of_one_producer_at_once(loop: Any, client: Client) -> None:
    async def body() -> None:
        await client.init()
        answers = await asyncio.gather(client.add(3, NEW, t=[0]), client.add(3, NEW, t=[1]), client.add_offsets(3, NEW))
        flat = [next(iter(each.values())) if isinstance(each, dict) else each for each in answers]
        assert flat == [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS]

    loop.run_until_complete(body())
