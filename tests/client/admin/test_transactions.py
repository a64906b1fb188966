"""Transactions seen and ended from outside, against brokers that answer as they are told."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sparklog.client import AsyncAdmin
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    ListTransactionsResponse,
    WriteTxnMarkersResponse,
)
from sparklog.structs import TopicPartition
from sparklog.testing.scripted import HangUp, ScriptedCluster

_TP, _OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def _admin(brokers=1):
    async with ScriptedCluster(brokers) as cluster:
        cluster.topics["t"] = [0, brokers - 1]
        settings = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers, **settings) as admin:
            yield admin, cluster


def _run(test):
    async def limited():
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


async def _refused(call):
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


def _listed(*found, error=ErrorCode.NONE, unknown=()):
    """``found`` are pairs of a transactional id and its producer."""
    form = ListTransactionsResponse.TransactionState
    states = [form(transactional_id=name, producer_id=each, transaction_state="Ongoing") for name, each in found]
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=int(error), unknown_state_filters=list(unknown), transaction_states=states
    )


def _described(name, *, state="Ongoing", producer_id=7, epoch=0, start_ms=5, partitions=(), error=ErrorCode.NONE):
    form = DescribeTransactionsResponse.TransactionState
    found = form(
        error_code=int(error),
        transactional_id=name,
        transaction_state=state,
        transaction_timeout_ms=1000,
        transaction_start_time_ms=start_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[form.TopicData(topic="t", partitions=list(partitions))] if partitions else [],
    )
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[found])


def _producers(by_partition):
    """For each partition the producers: an id, when it wrote last, where its transaction begins."""
    form = DescribeProducersResponse.TopicResponse

    def answer(asked):
        (topic,) = asked.message.topics
        partitions = [
            form.PartitionResponse(
                partition_index=number,
                error_code=0,
                error_message=None,
                active_producers=[
                    form.PartitionResponse.ProducerState(
                        producer_id=producer_id,
                        producer_epoch=3,
                        last_sequence=0,
                        last_timestamp=timestamp,
                        coordinator_epoch=-1,
                        current_txn_start_offset=offset,
                    )
                    for producer_id, timestamp, offset in by_partition[number]
                ],
            )
            for number in topic.partition_indexes
        ]
        return DescribeProducersResponse(throttle_time_ms=0, topics=[form(name=topic.name, partitions=partitions)])

    return answer


def test_every_coordinator_lists_what_it_has():
    async def test():
        async with _admin(brokers=2) as (admin, cluster):
            cluster.brokers[0].on[ApiKey.LIST_TRANSACTIONS] = lambda _: _listed(("b", 2))
            cluster.brokers[1].on[ApiKey.LIST_TRANSACTIONS] = lambda _: _listed(("a", 1))
            found = await admin.list_transactions(
                states=["Ongoing"], producer_ids={1, 2}, open_longer_ms=9, pattern="[ab]"
            )
            assert found == [("a", 1, 1, "Ongoing"), ("b", 0, 2, "Ongoing")]
            for asked in cluster.asked(ApiKey.LIST_TRANSACTIONS):
                assert asked.message.state_filters == ["Ongoing"]
                assert sorted(asked.message.producer_id_filters) == [1, 2]
                assert (asked.message.duration_filter, asked.message.transactional_id_pattern) == (9, "[ab]")

    _run(test)


def test_what_a_broker_coordinated_that_dies_meanwhile_is_listed_by_the_next():
    """The other one may have answered before it took over, so it is asked again."""

    async def test():
        async with _admin(brokers=2) as (admin, cluster):
            survivor, dying = cluster.brokers

            def die(_):
                cluster.brokers.remove(dying)
                survivor.on[ApiKey.LIST_TRANSACTIONS] = lambda _: _listed(("a", 1), ("b", 2))
                raise HangUp

            survivor.on[ApiKey.LIST_TRANSACTIONS] = lambda _: _listed(("b", 2))
            dying.on[ApiKey.LIST_TRANSACTIONS] = die
            try:
                found = await admin.list_transactions()
            finally:
                await dying.stop()
            assert [(each.transactional_id, each.coordinator) for each in found] == [("a", 0), ("b", 0)]

    _run(test)


@pytest.mark.parametrize(("version", "filters"), [(0, {"open_longer_ms": 0}), (1, {"pattern": "a"})])
def test_a_filter_that_a_broker_does_not_know_is_not_left_out(version, filters):
    async def test():
        async with _admin() as (admin, cluster):
            cluster.on[ApiKey.LIST_TRANSACTIONS] = lambda _: _listed(("b", 2))
            cluster.ceilings[ApiKey.LIST_TRANSACTIONS] = version
            assert (await _refused(admin.list_transactions(**filters))).code is ErrorCode.UNSUPPORTED_VERSION
            assert len(await admin.list_transactions()) == 1

    _run(test)


def test_what_nothing_can_match_is_refused():
    async def test():
        async with _admin() as (admin, cluster):
            cluster.on[ApiKey.LIST_TRANSACTIONS] = lambda _: _listed(unknown=["Lost"])
            error = await _refused(admin.list_transactions(states=["Lost"]))
            assert (error.code, error.reason) == (
                ErrorCode.INVALID_REQUEST,
                "no transaction is ever in a state Lost, only in Empty, Ongoing, PrepareCommit, PrepareAbort,"
                " CompleteCommit, CompleteAbort, PrepareEpochFence, Dead",
            )
            cluster.on[ApiKey.LIST_TRANSACTIONS] = lambda _: _listed(error=ErrorCode.INVALID_REGULAR_EXPRESSION)
            error = await _refused(admin.list_transactions(pattern="("))
            assert str(error) == "cannot list transactions: INVALID_REGULAR_EXPRESSION"

    _run(test)


def test_an_id_that_nobody_knows_is_said_to_be_none():
    async def test():
        async with _admin() as (admin, cluster):
            unknown = _described("nope", error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            cluster.on[ApiKey.DESCRIBE_TRANSACTIONS] = lambda _: unknown
            error = await _refused(admin.describe_transactions(["nope"]))
            assert error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert "no transaction was ever made under 'nope'" in str(error)

    _run(test)


def _scene_of_hanging(cluster):
    """Of the producers that are silent and have a transaction open, one will end it; of the others, no coordinator
    knows the first, has the second elsewhere, and has forgotten the third between two questions.
    """
    transactions = {
        "known": _described("known", producer_id=1, partitions=[0]),
        "elsewhere": _described("elsewhere", producer_id=3, partitions=[0]),
        "forgotten": _described("forgotten", error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    }
    nobody = _described("drawn", error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    cluster.on |= {
        ApiKey.DESCRIBE_PRODUCERS: _producers(
            {
                0: [(4, 100, 30), (1, 100, 10), (2, 100, 20), (5, 101, 40), (6, 100, -1)],
                1: [(3, 100, 0), (6, 100, -1)],
            }
        ),
        ApiKey.LIST_TRANSACTIONS: lambda _: _listed(("known", 1), ("elsewhere", 3), ("forgotten", 4)),
        ApiKey.DESCRIBE_TRANSACTIONS: lambda asked: transactions.get(asked.message.transactional_ids[0], nobody),
    }


def test_what_nobody_will_end_hangs():
    async def test():
        async with _admin(brokers=2) as (admin, cluster):
            _scene_of_hanging(cluster)
            found = await admin.hanging_transactions([_OTHER, _TP], silent_since_ms=100)
            assert [(tp, [(each.producer_id, each.open_since) for each in found[tp]]) for tp in found] == [
                (_TP, [(2, 20), (4, 30)]),
                (_OTHER, [(3, 0)]),
            ]
            assert await admin.hanging_transactions([_OTHER], silent_since_ms=99) == {}

    _run(test)


@pytest.mark.parametrize("sees_all", [True, False])
def test_what_belongs_to_an_id_that_may_not_be_described_is_not_told_to_hang(sees_all):
    async def test():
        async with _admin() as (admin, cluster):
            nobody = _described(
                "x", error=ErrorCode[f"TRANSACTIONAL_ID_{'NOT_FOUND' if sees_all else 'AUTHORIZATION_FAILED'}"]
            )
            cluster.on |= {
                ApiKey.DESCRIBE_PRODUCERS: _producers({0: [(7, 100, 30)], 1: [(7, 100, -1)]}),
                ApiKey.LIST_TRANSACTIONS: lambda _: _listed(),
                ApiKey.DESCRIBE_TRANSACTIONS: lambda _: nobody,
            }
            assert await admin.hanging_transactions([_OTHER], silent_since_ms=100) == {}
            if sees_all:
                assert list(await admin.hanging_transactions([_TP], silent_since_ms=100)) == [_TP]
                return
            error = await _refused(admin.hanging_transactions([_TP], silent_since_ms=100))
            assert error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert "open in t-0, and whether they hang cannot be told" in str(error)

    _run(test)


def test_the_marker_goes_into_one_partition():
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = result.WritableTxnMarkerTopicResult
    errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    def mark(_):
        partition = topic.WritableTxnMarkerPartitionResult(partition_index=0, error_code=int(errors.pop(0)))
        topics = [topic(name="t", partitions=[partition])]
        return WriteTxnMarkersResponse(markers=[result(producer_id=8, topics=topics)])

    async def test():
        async with _admin() as (admin, cluster):
            cluster.on[ApiKey.DESCRIBE_PRODUCERS] = _producers({0: [(8, 100, 5), (9, 100, 6)]})
            cluster.on[ApiKey.WRITE_TXN_MARKERS] = mark
            assert (await _refused(admin.abort_transaction(_TP, 4))).code is ErrorCode.INVALID_TXN_STATE
            assert (await admin.abort_transaction(_TP, 5)).producer_id == 8
            _, asked = cluster.asked(ApiKey.WRITE_TXN_MARKERS)
            (marker,) = asked.message.markers
            assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (8, 3, False)
            assert [(each.name, each.partition_indexes) for each in marker.topics] == [("t", [0])]

    _run(test)


def _taken_over(ongoing=7, error=ErrorCode.NONE):
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=int(error),
        producer_id=7,
        producer_epoch=1,
        ongoing_txn_producer_id=ongoing,
        ongoing_txn_producer_epoch=0 if ongoing >= 0 else -1,
    )


def _ended(error=ErrorCode.NONE):
    return EndTxnResponse(throttle_time_ms=0, error_code=int(error), producer_id=-1, producer_epoch=-1)


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_is_taken_over_and_ended(commit):
    takeovers = [_taken_over(error=ErrorCode.CONCURRENT_TRANSACTIONS), _taken_over()]
    ends = [_ended(ErrorCode.NOT_COORDINATOR), _ended()]

    async def test():
        async with _admin() as (admin, cluster):
            cluster.on |= {
                ApiKey.DESCRIBE_TRANSACTIONS: lambda _: _described("id", partitions=[0, 1]),
                ApiKey.INIT_PRODUCER_ID: lambda _: takeovers.pop(0),
                ApiKey.END_TXN: lambda _: ends.pop(0),
            }
            ended = await admin.end_transaction("id", commit=commit)
            assert (ended.producer_id, ended.producer_epoch, ended.partitions) == (7, 0, (_TP, _OTHER))
            assert all(each.message.keep_prepared_txn for each in cluster.asked(ApiKey.INIT_PRODUCER_ID))
            for asked in cluster.asked(ApiKey.END_TXN):
                request = asked.message
                assert (request.producer_id, request.producer_epoch, request.committed) == (7, 1, commit)
            assert (takeovers, ends) == ([], [])

    _run(test)


@pytest.mark.parametrize(
    ("state", "takeover", "version", "code", "says"),
    [
        ("CompleteAbort", _taken_over(), 6, ErrorCode.INVALID_TXN_STATE, "no transaction open"),
        ("Ongoing", _taken_over(ongoing=-1), 6, ErrorCode.INVALID_TXN_STATE, "meanwhile"),
        ("Ongoing", _taken_over(), 5, ErrorCode.UNSUPPORTED_VERSION, "KIP-939"),
        ("Ongoing", _taken_over(error=ErrorCode.PRODUCER_FENCED), 6, ErrorCode.PRODUCER_FENCED, "cannot take over"),
    ],
)
def test_what_cannot_be_taken_over_is_not_ended(state, takeover, version, code, says):
    async def test():
        async with _admin() as (admin, cluster):
            cluster.ceilings[ApiKey.INIT_PRODUCER_ID] = version
            cluster.on |= {
                ApiKey.DESCRIBE_TRANSACTIONS: lambda _: _described("id", state=state),
                ApiKey.INIT_PRODUCER_ID: lambda _: takeover,
                ApiKey.END_TXN: lambda _: _ended(),
            }
            error = await _refused(admin.end_transaction("id", commit=True))
            assert error.code is code
            assert says in str(error)
            assert cluster.asked(ApiKey.END_TXN) == []

    _run(test)


@pytest.mark.parametrize("later", [{"start_ms": 6}, {"epoch": 1}, {"producer_id": 8}])
def test_a_transaction_that_follows_until_it_is_taken_over_is_left_open(later):
    """Of the first protocol it differs from the one before only in when it began."""

    async def test():
        async with _admin() as (admin, cluster):
            cluster.on |= {
                ApiKey.DESCRIBE_TRANSACTIONS: lambda _: _described(
                    "id", **(later if cluster.asked(ApiKey.INIT_PRODUCER_ID) else {})
                ),
                ApiKey.INIT_PRODUCER_ID: lambda _: _taken_over(),
                ApiKey.END_TXN: lambda _: _ended(),
            }
            error = await _refused(admin.end_transaction("id", commit=True))
            assert error.code is ErrorCode.INVALID_TXN_STATE
            assert "begun another, which is left open" in str(error)
            assert cluster.asked(ApiKey.END_TXN) == []

    _run(test)
