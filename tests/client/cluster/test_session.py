"""The way to a cluster, against brokers that answer as they are told."""

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.session import COORDINATOR, CoordinatorKind, Session
from sparklog.errors import ApiError, ClientClosed, ConnectionFailed, ErrorCode, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse, HeartbeatRequest, HeartbeatResponse
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock, jump
from sparklog.testing.scripted import HangUp, ScriptedCluster, no_kafka

_GROUP = CoordinatorKind.GROUP


@asynccontextmanager
async def _session(brokers=1, clock=None, **settings):
    async with ScriptedCluster(brokers) as cluster:
        quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **settings}
        session = Session(ClientConfig(bootstrap_servers=cluster.bootstrap_servers, **quick), clock)
        await session.start()
        try:
            yield session, cluster
        finally:
            await session.close()


def _heartbeat(_version):
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)


def _beat(error=ErrorCode.NONE):
    return HeartbeatResponse(throttle_time_ms=0, error_code=int(error))


def _in_turn(*answers):
    left = list(answers)

    def answer(asked):
        each = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(each, Exception):
            raise each
        return each

    return answer


def _run(test):
    async def limited():
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


def test_many_ask_and_one_connection_is_made():
    async def test():
        async with _session() as (session, cluster):
            cluster.topics["t"] = [0]
            cluster.on[ApiKey.HEARTBEAT] = _in_turn(_beat())
            await session.refresh(["t"])
            await asyncio.gather(*(session.request(0, ApiKey.HEARTBEAT, _heartbeat) for _ in range(20)))
            assert cluster.brokers[0].connections == 2  # the bootstrap's, and one for data
            assert len(cluster.asked(ApiKey.API_VERSIONS)) == 2

    _run(test)


def test_the_same_refresh_is_asked_once():
    async def test():
        async with _session() as (session, cluster):
            cluster.topics["t"] = [0]
            found = await asyncio.gather(*(session.topic("t") for _ in range(10)))
            assert {each.name for each in found} == {"t"}
            assert len(cluster.asked(ApiKey.METADATA)) == 1

    _run(test)


def test_a_bootstrap_server_that_is_no_broker_is_passed_over():
    async def test():
        async with no_kafka() as other, ScriptedCluster() as cluster:
            cluster.topics["t"] = [0]
            for servers in (f"{other},{cluster.bootstrap_servers}", str(other)):
                session = Session(ClientConfig(bootstrap_servers=servers))
                try:
                    if servers == str(other):
                        with pytest.raises(RemoteProtocolError, match=f"tried {other}.*Kafka listener"):
                            await session.topic("t")
                    else:
                        assert (await session.topic("t")).name == "t"
                finally:
                    await session.close()

    _run(test)


def test_a_close_that_is_cancelled_has_hung_up():
    """A question of metadata takes its time to end, and the close is given up meanwhile."""

    async def test():
        async with _session() as (session, _):
            broker = next(iter((await session.refresh([])).brokers))
            connection = await session.connection(broker)
            cancelled, may_end = asyncio.Event(), asyncio.Event()

            async def stubborn():
                try:
                    await asyncio.Future()
                except asyncio.CancelledError:
                    cancelled.set()
                    await may_end.wait()

            session._refreshing.add(asyncio.create_task(stubborn()))
            await asyncio.sleep(0)
            closing = asyncio.create_task(session.close())
            await cancelled.wait()
            closing.cancel()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert connection.closed

    _run(test)


def test_a_failure_that_nobody_waits_for_any_more_is_no_complaint():
    async def test():
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        async with _session() as (session, cluster):
            asked, answered = asyncio.Event(), asyncio.Event()

            async def hang_up(_):
                asked.set()
                await answered.wait()
                raise HangUp

            cluster.on[ApiKey.METADATA] = hang_up
            caller = asyncio.create_task(session._refresh_once(["t"], create=False))
            await asked.wait()
            caller.cancel()
            await asyncio.wait([caller])
            answered.set()
            while session._refreshing:
                await asyncio.sleep(0)
        del caller
        gc.collect()
        await asyncio.sleep(0)
        assert complaints == []

    _run(test)


def test_a_malformed_answer_names_its_broker():
    async def test():
        async with _session() as (session, cluster):
            cluster.on[ApiKey.METADATA] = lambda asked: [b"\0"]
            with pytest.raises(RemoteProtocolError, match=f"{cluster.brokers[0].endpoint}.*malformed Metadata"):
                await session.refresh()

    _run(test)


def test_an_answer_that_leaves_the_topic_out():
    async def test():
        clock = ManualClock()
        async with _session(clock=clock) as (session, cluster):

            def empty(asked):
                clock.advance(2)
                message = cluster._metadata(asked)
                message.topics = []
                return message

            cluster.on[ApiKey.METADATA] = empty
            with pytest.raises(ApiError, match="leaves topic 't' out"):
                await session.topic("t")

    _run(test)


def test_a_coordinator_is_followed_where_it_moves():
    async def test():
        async with _session(brokers=2) as (session, cluster):
            first, second = cluster.brokers

            def move(asked):
                cluster.coordinators[_GROUP] = 1
                return _beat(ErrorCode.NOT_COORDINATOR)

            first.on[ApiKey.HEARTBEAT] = move
            second.on[ApiKey.HEARTBEAT] = _in_turn(_beat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), HangUp(), _beat())
            answer = await session.coordinator_request(_GROUP, "g", ApiKey.HEARTBEAT, _heartbeat)
            assert answer.error_code == 0
            asked = [each.broker for each in cluster.asked(ApiKey.HEARTBEAT)]
            assert asked == [0, 1, 1, 1]
            assert await session.coordinator(_GROUP, "g") == 1

    _run(test)


def test_an_error_that_is_the_callers_is_not_retried():
    async def test():
        async with _session() as (session, cluster):
            cluster.on[ApiKey.HEARTBEAT] = _in_turn(_beat(ErrorCode.ILLEGAL_GENERATION))
            with pytest.raises(ApiError, match="ILLEGAL_GENERATION"):
                await session.coordinator_request(_GROUP, "g", ApiKey.HEARTBEAT, _heartbeat)
            assert len(cluster.asked(ApiKey.HEARTBEAT)) == 1

    _run(test)


def test_the_controller_is_followed_where_it_moves():
    async def test():
        async with _session(brokers=2) as (session, cluster):

            def ask(asked):
                cluster.controller = 1
                return DeleteGroupsResponse(throttle_time_ms=0, results=[])

            cluster.on[ApiKey.DELETE_GROUPS] = ask

            def check(answer):
                if len(cluster.asked(ApiKey.DELETE_GROUPS)) == 1:
                    raise ApiError(ErrorCode.NOT_CONTROLLER)

            def build(version):
                return DeleteGroupsRequest(groups_names=[])

            await session.controller_request(ApiKey.DELETE_GROUPS, build, check=check)
            assert [each.broker for each in cluster.asked(ApiKey.DELETE_GROUPS)] == [0, 1]

    _run(test)


def test_a_leader_is_awaited():
    async def test():
        async with _session(brokers=2) as (session, cluster):
            cluster.topics["t"] = [-1]

            def elect(asked):
                if len(cluster.asked(ApiKey.METADATA)) > 2:
                    cluster.topics["t"] = [1]
                return cluster._metadata(asked)

            cluster.on[ApiKey.METADATA] = elect
            info = await session.leader(TopicPartition("t", 0))
            assert info.leader == 1

    _run(test)


def test_a_partition_that_is_not_there_is_given_up():
    async def test():
        async with _session(api_timeout_ms=1000) as (session, cluster):
            cluster.topics["t"] = [0]
            with pytest.raises(ApiError, match="has no partition 3, only 0 to 0"):
                await session.leader(TopicPartition("t", 3))

    _run(test)


def test_another_broker_answers_when_the_first_is_down():
    async def test():
        class Hasty(ManualClock):
            def monotonic(self):
                self.advance(1)
                return super().monotonic()

        async with _session(brokers=2, clock=Hasty()) as (session, cluster):
            await cluster.brokers[0].stop()
            info = await session.refresh([])
            assert set(info.brokers) == {0, 1}
            await cluster.brokers[1].stop()
            with pytest.raises(ConnectionFailed, match="no broker can be reached; tried"):
                await session.refresh([])
            await cluster.brokers[0].start()
            assert set((await session.refresh([])).brokers) == {0, 1}

    _run(test)


def test_a_request_waits_its_own_time_and_no_longer():
    async def test():
        async with _session() as (session, cluster):
            never = asyncio.Event()

            async def hold(asked):
                await never.wait()

            cluster.on[ApiKey.HEARTBEAT] = hold
            await session.refresh([])
            patient = asyncio.create_task(session.request(0, ApiKey.HEARTBEAT, _heartbeat, lane=COORDINATOR))
            with pytest.raises(ConnectionFailed, match="did not answer HEARTBEAT: timed out"):
                await session.request(0, ApiKey.HEARTBEAT, _heartbeat, timeout=0.05)
            assert not patient.done()
            await session.close()
            with pytest.raises(ConnectionFailed, match="closed"):
                await patient
            with pytest.raises(ClientClosed):
                await session.refresh([])

    _run(test)


def test_metadata_is_renewed_as_it_ages():
    async def test():
        async with _session(metadata_max_age_ms=10) as (session, cluster):
            cluster.topics["t"] = [0]
            await session.topic("t")
            cluster.topics["t"] = [0, 0]
            while len(session.leaders.topic("t").partitions) < 2:
                await asyncio.sleep(0.01)

    _run(test)


def test_a_close_ends_while_metadata_is_renewed():
    async def test():
        async with _session(metadata_max_age_ms=10, request_timeout_ms=100_000) as (session, cluster):
            asked = asyncio.Event()

            async def never(_):
                asked.set()
                await asyncio.Event().wait()

            await session.refresh([])
            cluster.on[ApiKey.METADATA] = never
            await asked.wait()
            await session.close()

    _run(test)


def _delete(_version):
    return DeleteGroupsRequest(groups_names=[])


@pytest.mark.parametrize(
    ("api", "call"),
    [
        (ApiKey.METADATA, lambda session: session.refresh(["t"])),
        (ApiKey.METADATA, lambda session: session.topic("t")),
        (ApiKey.METADATA, lambda session: session.leader(TopicPartition("t", 0))),
        (ApiKey.FIND_COORDINATOR, lambda session: session.coordinator(_GROUP, "g")),
        (ApiKey.HEARTBEAT, lambda session: session.coordinator_request(_GROUP, "g", ApiKey.HEARTBEAT, _heartbeat)),
        (ApiKey.DELETE_GROUPS, lambda session: session.controller_request(ApiKey.DELETE_GROUPS, _delete)),
        (ApiKey.DELETE_GROUPS, lambda session: session.any_broker_request(ApiKey.DELETE_GROUPS, _delete)),
    ],
)
def test_a_call_ends_in_its_time_and_its_late_answer_is_no_other_ones(api, call):
    async def test():
        async with _session(api_timeout_ms=10_000, request_timeout_ms=100_000) as (session, cluster):
            cluster.topics["t"] = [0]
            asked, release = asyncio.Event(), asyncio.Event()
            cluster.on[ApiKey.HEARTBEAT] = lambda _: _beat()
            cluster.on[ApiKey.DELETE_GROUPS] = lambda _: DeleteGroupsResponse(throttle_time_ms=0, results=[])
            answer = cluster.on[api]

            async def hold(request):
                asked.set()
                await release.wait()
                return answer(request)

            cluster.on[api] = hold
            task = asyncio.create_task(call(session))
            await asked.wait()
            jump(asyncio.get_running_loop(), 11)
            with pytest.raises(ApiError, match=r"REQUEST_TIMED_OUT: no answer within 10 s"):
                await task
            connections = cluster.brokers[0].connections
            cluster.on[api] = answer
            release.set()
            await call(session)
            assert cluster.brokers[0].connections == connections

    _run(test)


@pytest.mark.parametrize("topics", [["t"], []], ids=["another question", "the same"])
def test_a_broker_that_owes_an_answer_is_asked_behind_the_others(topics):
    async def test():
        async with _session(brokers=2, api_timeout_ms=10_000, request_timeout_ms=100_000) as (session, cluster):
            asked = asyncio.Event()

            async def never(_):
                asked.set()
                await asyncio.Event().wait()

            cluster.brokers[0].on[ApiKey.METADATA] = never
            task = asyncio.create_task(session.refresh([]))
            await asked.wait()
            jump(asyncio.get_running_loop(), 11)
            with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
                await task
            assert set((await session.refresh(topics)).brokers) == {0, 1}

    _run(test)


@pytest.mark.parametrize("is_given_up", [False, True], ids=["it waits still", "its time was over"])
def test_a_broker_that_owes_something_else_for_long_is_asked_behind_the_others(is_given_up):
    async def test():
        async with _session(brokers=2, request_timeout_ms=100_000) as (session, cluster):
            asked = asyncio.Event()

            async def never(_):
                asked.set()
                await asyncio.Event().wait()

            cluster.brokers[0].on[ApiKey.HEARTBEAT] = never
            await session.refresh([])
            seconds = 10 if is_given_up else 100
            other = asyncio.create_task(session.request(0, ApiKey.HEARTBEAT, _heartbeat, timeout=seconds))
            await asked.wait()
            await session.refresh([])
            jump(asyncio.get_running_loop(), 15)
            if is_given_up:
                await asyncio.wait([other])
            await session.refresh([])
            assert [each.broker for each in cluster.asked(ApiKey.METADATA)] == [0, 0, 1]

    _run(test)


def test_a_question_that_one_gave_up_still_answers_those_who_wait_for_it():
    async def test():
        async with _session(brokers=2, request_timeout_ms=100_000) as (session, cluster):
            asked, release = asyncio.Event(), asyncio.Event()

            async def hold(request):
                asked.set()
                await release.wait()
                return cluster._metadata(request)

            cluster.brokers[0].on[ApiKey.METADATA] = hold
            hasty, patient = (asyncio.create_task(session.refresh([])) for _ in range(2))
            await asked.wait()
            hasty.cancel()
            await asyncio.wait([hasty])
            await session.refresh([])
            assert [each.broker for each in cluster.asked(ApiKey.METADATA)] == [0, 1]
            assert not patient.done()
            release.set()
            assert set((await patient).brokers) == {0, 1}

    _run(test)


def test_where_every_broker_owes_an_answer_the_question_is_not_asked_again():
    async def test():
        async with _session(request_timeout_ms=100_000) as (session, cluster):
            asked, release = asyncio.Event(), asyncio.Event()

            async def hold(request):
                asked.set()
                await release.wait()
                return cluster._metadata(request)

            cluster.on[ApiKey.METADATA] = hold
            hasty = asyncio.create_task(session.refresh([]))
            await asked.wait()
            hasty.cancel()
            await asyncio.wait([hasty])
            later = asyncio.create_task(session.refresh([]))
            await asyncio.sleep(0)
            release.set()
            await later
            assert len(cluster.asked(ApiKey.METADATA)) == 1

    _run(test)


def test_closing_ends_a_question_that_everyone_gave_up():
    async def test():
        async with ScriptedCluster(2) as cluster:
            session = Session(ClientConfig(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=100_000))
            asked = asyncio.Event()

            async def never(_):
                asked.set()
                await asyncio.Event().wait()

            cluster.brokers[0].on[ApiKey.METADATA] = never
            hasty = asyncio.create_task(session.refresh([]))
            await asked.wait()
            hasty.cancel()
            await asyncio.wait([hasty])
            (question,) = session._refreshing
            await session.close()
            assert question.cancelled()

    _run(test)
