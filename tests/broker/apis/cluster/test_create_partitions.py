"""CreatePartitions: on which brokers, and in which racks, the added partitions lie."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.cluster import create_partitions
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.config.broker import BrokerConfig
from sparklog.controller.context import ControllerContext
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.messages import CreatePartitionsRequest
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import BrokerInfo, TopicAssignment

PRESENT = {0: (0, 2), 1: (1, 3)}


async def grow(racks, count, run_zk, look_at=lambda topic: None):
    """Have topic t, of the partitions that are PRESENT, grow to ``count`` on brokers in ``racks``."""

    async def at_once(condition, timeout):
        return True

    context = ControllerContext(epoch=1, epoch_version=1)
    context.assign(TopicAssignment("t", PRESENT))
    brokers = {id_: BrokerInfo(id_, Endpoint("localhost", 9091 + id_), rack) for id_, rack in racks.items()}
    broker = SimpleNamespace(
        authorizer=AllowEverything(),
        config=BrokerConfig(),
        controller=SimpleNamespace(is_active=True, context=context, look_at=look_at),
        metadata=SimpleNamespace(brokers=brokers, wait_for=at_once),
        quotas=ClientQuotas(BrokerConfig(), ManualClock()),
        run_zk=run_zk,
        turns=Turns(asyncio.get_running_loop()),
        zk=SimpleNamespace(topics=SimpleNamespace(add_partitions=None)),
    )
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=count, assignments=None)
    message = CreatePartitionsRequest(topics=[topic], timeout_ms=0, validate_only=False)
    return await create_partitions.handle(broker, ApiRequest(create_partitions.API, 3, "c", Caller("h"), message))


def grown(racks, count):
    """What is written then."""
    written = []

    async def run_zk(add_partitions, assignment, version):
        written.append(assignment)

    (answer,) = asyncio.run(grow(racks, count, run_zk)).results
    assert answer.error_code == ErrorCode.NONE
    (assignment,) = written
    assert {number: assignment.partitions[number] for number in PRESENT} == PRESENT, "what was there stays"
    return {number: replicas for number, replicas in assignment.partitions.items() if number not in PRESENT}


def test_all_are_made_before_one_is_waited_for_and_have_one_time_together():
    """The leaders of the first did not come, and the client gave up before the second was made."""
    done, clock = [], ManualClock()

    async def run_zk(add_partitions, assignment, version):
        done.append(assignment.topic)

    async def wait_for(condition, timeout):
        done.append(timeout)
        clock.advance(timeout)
        return timeout <= 0

    async def handled():
        context = ControllerContext(epoch=1, epoch_version=1)
        for name in "tu":
            context.assign(TopicAssignment(name, PRESENT))
        brokers = {id_: BrokerInfo(id_, Endpoint("localhost", 9091 + id_), None) for id_ in range(4)}
        broker = SimpleNamespace(
            authorizer=AllowEverything(),
            config=BrokerConfig(),
            controller=SimpleNamespace(
                is_active=True, context=context, look_at=lambda topic: None, refusals=lambda topic: {}
            ),
            metadata=SimpleNamespace(brokers=brokers, wait_for=wait_for),
            quotas=ClientQuotas(BrokerConfig(), clock),
            run_zk=run_zk,
            turns=Turns(asyncio.get_running_loop(), clock),
            zk=SimpleNamespace(topics=SimpleNamespace(add_partitions=None)),
        )
        asked = CreatePartitionsRequest.CreatePartitionsTopic
        topics = [asked(name=name, count=4, assignments=None) for name in ("t", "nothing", "u")]
        message = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=False)
        return await create_partitions.handle(broker, ApiRequest(create_partitions.API, 3, "c", Caller("h"), message))

    results = {each.name: each.error_code for each in asyncio.run(handled()).results}
    assert done == ["t", "u", 30.0, 0.0]
    codes = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert results == dict(zip(("t", "nothing", "u"), codes, strict=True))


def test_added_partitions_have_their_replicas_in_different_racks():
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    added = grown(racks, 8)
    assert sorted(added) == [2, 3, 4, 5, 6, 7]
    assert [{racks[each] for each in replicas} for replicas in added.values()] == [{"a", "b"}] * 6


def test_added_partitions_go_on_round_the_racks_where_the_first_began():
    """By hand from Kafka's AdminUtils: by turns the brokers are 0, 2, 1, 3, and partition 2 has the third of them."""
    assert grown({0: "a", 1: "a", 2: "b", 3: "b"}, 4) == {2: (1, 3), 3: (3, 0)}


@pytest.mark.parametrize("racks", [dict.fromkeys(range(4)), {0: "a", 1: "a", 2: "b", 3: None}], ids=["none", "three"])
def test_racks_that_not_all_brokers_tell_of_count_for_nothing(racks):
    assert grown(racks, 4) == {2: (2, 3), 3: (3, 0)}


def test_the_controller_looks_at_what_was_written_though_the_client_has_hung_up():
    """Nothing else tells it of more partitions."""
    told = []

    async def scenario():
        begun, writes = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def run_zk(add_partitions, assignment, version):
            begun.set()
            await asyncio.shield(writes)  # ZooKeeper's thread does not stop at what it is
            told.append("written")

        serving = asyncio.ensure_future(grow(dict.fromkeys(range(4)), 4, run_zk, told.append))
        await begun.wait()
        serving.cancel()
        await asyncio.wait([serving])
        assert not told
        writes.set_result(None)
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert told == ["written", "t"]


def test_the_controller_looks_though_zookeeper_did_not_answer():
    looked = []

    async def run_zk(add_partitions, assignment, version):
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)

    (answer,) = asyncio.run(grow(dict.fromkeys(range(4)), 4, run_zk, looked.append)).results
    assert (answer.error_code, looked) == (ErrorCode.REQUEST_TIMED_OUT, ["t"])
