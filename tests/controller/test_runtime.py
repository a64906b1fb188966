"""A controller at work: a real ZooKeeper, and brokers that do as the test says."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.clock import SystemClock
from sparklog.config.topic import TopicConfig
from sparklog.controller import runtime
from sparklog.controller.isr_change import IsrChange
from sparklog.controller.runtime import _LEAVES_WITHIN_S, Controller
from sparklog.errors import ApiError, CoordinationError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import frame_response, parse_request
from sparklog.protocol.messages import (
    FULL,
    INCREMENTAL,
    ApiVersionsResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
    decode_request,
    encode,
)
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish
from sparklog.zk import znodes
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import BrokerInfo, TopicAssignment

pytestmark = pytest.mark.integration

VERSIONS = {ApiKey.LEADER_AND_ISR: 6, ApiKey.STOP_REPLICA: 3, ApiKey.UPDATE_METADATA: 8}
ANSWERS: dict[ApiKey, Callable[[], Any]] = {
    ApiKey.LEADER_AND_ISR: lambda: LeaderAndIsrResponse(error_code=0, topics=[]),
    ApiKey.STOP_REPLICA: lambda: StopReplicaResponse(error_code=0, partition_errors=[]),
    ApiKey.UPDATE_METADATA: lambda: UpdateMetadataResponse(error_code=0),
}


class FakeBroker:
    """Registered in ZooKeeper under a session of its own; notes what the controller says."""

    def __init__(self, stage, broker_id):
        self.id = broker_id
        self.heard = []
        self.silent = set()
        """Requests to leave unanswered."""
        self.refuses = {}
        """What it answers about a partition, by topic and number."""
        self.refuses_whole = {}
        self.refused = Counter()
        """What it answers to a kind of request."""
        self.unbroken_since = None
        """What it says of itself when it registers."""
        self._stage = stage
        self._serving = {}

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = Endpoint(*self._server.sockets[0].getsockname())
        await self.register()

    async def refuse(self):
        """Its address refuses connections, and those there are break; its session goes on."""
        await self.close()
        await self._server.wait_closed()

    async def accept_again(self):
        self._server = await asyncio.start_server(self._serve, *self.endpoint)

    async def register(self):
        self._zk = await self._stage.session()
        info = BrokerInfo(self.id, self.endpoint, unbroken_since=self.unbroken_since)
        self.epoch = await self._stage.run_zk(self._zk.brokers.register, info, 1)

    async def leave(self):
        """The session ends; the port goes on answering."""
        await self._stage.run_zk(self._zk.close)

    async def _serve(self, reader, writer):
        self._serving[asyncio.current_task()] = writer
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                request = parse_request(memoryview(frame))
                api = ApiKey(request.api)
                asked = None if api is ApiKey.API_VERSIONS else decode_request(api, request.version, request.body)
                if api in self.refuses_whole:
                    self.refused[api] += 1
                elif asked is not None:
                    self.heard.append((api, asked))
                if api not in self.silent:
                    message = _versions() if asked is None else self._answer(api, asked)
                    body = encode(message, request.version)
                    writer.writelines(frame_response(api, request.version, request.correlation_id, [body]))
        writer.close()
        del self._serving[asyncio.current_task()]

    def _answer(self, api, request):
        answer = ANSWERS[api]()
        answer.error_code = self.refuses_whole.get(api, 0)
        if answer.error_code:
            return answer
        if api is ApiKey.LEADER_AND_ISR:
            kind = LeaderAndIsrResponse.LeaderAndIsrTopicError
            answer.topics = [
                kind(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        kind.LeaderAndIsrPartitionError(partition_index=number, error_code=code)
                        for number, code in self._codes(topic)
                    ],
                )
                for topic in request.topic_states
            ]
        elif api is ApiKey.STOP_REPLICA:
            answer.partition_errors = [
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=number, error_code=code
                )
                for topic in request.topic_states
                for number, code in self._codes(topic)
            ]
        return answer

    def _codes(self, topic):
        numbers = [each.partition_index for each in topic.partition_states]
        return [(number, self.refuses.get((topic.topic_name, number), 0)) for number in numbers]

    async def close(self):
        self._server.close()
        for task, writer in self._serving.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def count(self, kind):
        """How many requests of a kind it was sent."""
        return sum(api is kind for api, _ in self.heard)

    @property
    def leads(self):
        """Partition → leader, as this broker was told last."""
        leaders = {}
        for api, message in self.heard:
            if api is ApiKey.UPDATE_METADATA:
                for topic in message.topic_states:
                    for each in topic.partition_states:
                        leaders[TopicPartition(topic.topic_name, each.partition_index)] = each.leader
        return leaders

    def states(self, asked):
        """Each partition's state that it was told by requests of this API, one after the other."""
        for api, message in self.heard:
            if api is asked:
                for topic in message.topic_states:
                    for each in topic.partition_states:
                        yield TopicPartition(topic.topic_name, each.partition_index), each

    @property
    def told_to_lead(self):
        return {tp: each.leader_epoch for tp, each in self.states(ApiKey.LEADER_AND_ISR) if each.leader == self.id}

    @property
    def told_to_hold(self):
        """The partitions that it was told to lead or to follow."""
        return {tp for tp, _ in self.states(ApiKey.LEADER_AND_ISR)}

    @property
    def followed(self):
        """Each leader that it was told to follow, and the brokers of which it knew then."""
        found, living = [], set()
        for api, message in self.heard:
            if api is ApiKey.UPDATE_METADATA:
                living = {each.id for each in message.live_brokers}
            elif api is ApiKey.LEADER_AND_ISR:
                states = [each for topic in message.topic_states for each in topic.partition_states]
                found += [(each.leader, living) for each in states if each.leader not in (-1, self.id)]
        return found

    @property
    def led(self):
        """The partitions of which it was ever told a leader."""
        return {tp for tp, each in self.states(ApiKey.UPDATE_METADATA) if each.leader >= 0}

    @property
    def newness(self):
        """What it was told of each partition's being new, one after the other."""
        told = {}
        for api, message in self.heard:
            for topic in message.topic_states if api is ApiKey.LEADER_AND_ISR else ():
                for each in topic.partition_states:
                    told.setdefault((topic.topic_name, each.partition_index), []).append(each.is_new)
        return told

    @property
    def told_to_stop(self):
        return {
            (topic.topic_name, each.partition_index)
            for api, message in self.heard
            if api is ApiKey.STOP_REPLICA
            for topic in message.topic_states
            for each in topic.partition_states
        }


def _versions():
    key = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[key(api_key=api, min_version=0, max_version=version) for api, version in VERSIONS.items()],
        throttle_time_ms=0,
        supported_features=[],
        finalized_features_epoch=-1,
        finalized_features=[],
    )


class Stage:
    """Everything that one test starts, on one loop."""

    def __init__(self, chroot):
        self._chroot = chroot
        self._sessions = []
        self._parts = []
        self._thread = ThreadPoolExecutor(4)
        self.clock = SystemClock()

    async def run_zk(self, call, *args):
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    async def session(self):
        opened = await self.run_zk(lambda: ZkClient(self._chroot, session_timeout=10.0, on_session=lambda _: None))
        await self.run_zk(opened.ensure_tree)
        self._sessions.append(opened)
        return opened

    async def broker(self, broker_id):
        broker = FakeBroker(self, broker_id)
        await broker.start()
        self._parts.append(broker)
        return broker

    async def controller(self, broker_id, witnesses=None, **settings):
        zk = await self.session()

        async def run_zk(call, *args):
            return await self.run_zk(zk.guarded, call, *args)

        async def topic_configs(topics):
            return dict.fromkeys(topics, TopicConfig(**settings))

        controller: Any = Controller(broker_id, zk, run_zk, self.clock, topic_configs, witnesses)
        controller.session = zk
        controller.start()
        self._parts.append(controller)
        return controller

    async def close(self):
        for part in reversed(self._parts):
            closing = part.close()
            if closing is not None:
                await closing
        for session in self._sessions:
            await self.run_zk(session.close)
        self._thread.shutdown()


async def until(condition, what=""):
    """Give the loop its turns until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def on_stage(chroot):
    """Runs ``test(stage, zk)`` with a session of the test's own, and closes everything."""

    def run(test):
        async def main():
            stage = Stage(chroot)
            try:
                await test(stage, await stage.session())
            finally:
                await stage.close()

        asyncio.run(main())

    return run


def topic(name, *leaders):
    return TopicAssignment(name, {number: (leader,) for number, leader in enumerate(leaders)})


def test_everyone_is_told_of_a_new_topic_and_its_leaders_to_lead(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 1, 2, 2), {})
        expected = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2, TopicPartition("t", 2): 2}
        await until(lambda: one.leads == two.leads == expected)
        await until(lambda: one.told_to_lead == {("t", 0): 0} and two.told_to_lead == {("t", 1): 0, ("t", 2): 0})
        states = await stage.run_zk(zk.states.read, expected)
        assert {tp: (state.leader, state.isr) for tp, state in states.items()} == {
            tp: (leader, (leader,)) for tp, leader in expected.items()
        }

    on_stage(test)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/brokers/topics/no name", b'{"partitions":{"0":[1]}}'),
        ("/brokers/topics/odd", b'{"partitions":{"-1":[1]}}'),
        ("/brokers/topics/odd", b'{"partitions":{"4294967296":[1]}}'),
        ("/brokers/topics/odd", b'{"partitions":{"0":[[1]]}}'),
        ("/brokers/topics/odd", b'{"partitions":{"0":[1,4294967296]}}'),
        ("/brokers/topics/t/partitions/1/state", b"{}"),
        ("/brokers/ids/9", b'{"host":null,"port":-1}'),
        ("/brokers/ids/-9", b'{"host":"h","port":1}'),
        ("/brokers/ids/nobody", b'{"host":"h","port":1}'),
    ],
)
def test_what_cannot_be_told_of_holds_up_nothing_else(on_stage, path, content):
    async def test(stage, zk):
        one = await stage.broker(1)
        await stage.run_zk(lambda: zk.kazoo.create(path, content, makepath=True))
        if "/t/" in path:
            await stage.run_zk(lambda: zk.kazoo.set("/brokers/topics/t", b'{"partitions":{"0":[1],"1":[1]}}'))
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("new", 1), {})
        await until(lambda: one.leads == {TopicPartition("new", 0): 1})
        told = [message for api, message in one.heard if api is ApiKey.UPDATE_METADATA]
        assert {broker.id for message in told for broker in message.live_brokers} == {1}

    on_stage(test)


T0 = TopicPartition("t", 0)


async def standing_of(stage, zk):
    found = (await stage.run_zk(lambda: zk.states.beside(zk.states.read([T0])))).get(T0)
    return found and (found.leader, found.isr, found.eligible)


async def comes_to(stage, zk, expected):
    async with asyncio.timeout(60):
        while await standing_of(stage, zk) != expected:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_same", [True, False], ids=["the same controller", "another"])
def test_who_left_the_isr_leads_if_it_has_lost_nothing(on_stage, is_clean, is_same):
    async def test(stage, zk):
        _, one, two = [await stage.broker(number) for number in (0, 1, 2)]
        controller = await stage.controller(0, min_insync_replicas=2)
        await stage.run_zk(zk.topics.create, TopicAssignment("t", {0: (1, 2)}), {})
        await comes_to(stage, zk, (1, (1, 2), ()))
        two.unbroken_since = two.epoch if is_clean else None
        await two.leave()
        await comes_to(stage, zk, (1, (1,), (2,)))
        await one.leave()
        await comes_to(stage, zk, (-1, (1,), (2,)))
        if not is_same:
            await controller.close()
            await stage.run_zk(controller.session.close)
            await stage.controller(0, min_insync_replicas=2)
        await two.register()
        await comes_to(stage, zk, (2, (2,), (1,)) if is_clean else (-1, (1,), ()))
        if not is_clean:
            await one.register()
            await comes_to(stage, zk, (1, (1,), ()))

    on_stage(test)


def test_a_setting_that_was_lowered_makes_nobody_eligible(on_stage):
    """Also where the controller has not been told of it: who is to be elected is looked at once more."""
    config = {"min_insync_replicas": 2}

    async def test(stage, zk):
        _, one, two = [await stage.broker(number) for number in (0, 1, 2)]
        controller = await stage.controller(0)

        async def topic_configs(topics):
            return dict.fromkeys(topics, TopicConfig(**config))

        controller._settings._read = topic_configs
        await stage.run_zk(zk.topics.create, TopicAssignment("t", {0: (1, 2)}), {})
        await comes_to(stage, zk, (1, (1, 2), ()))
        two.unbroken_since, one.unbroken_since = two.epoch, one.epoch
        await two.leave()
        await comes_to(stage, zk, (1, (1,), (2,)))
        config["min_insync_replicas"] = 1
        await one.leave()
        await comes_to(stage, zk, (-1, (1,), (2,)))
        await two.register()
        await until(lambda: controller.context.min_isrs == {"t": 1} and 2 in controller.context.brokers)
        assert (await standing_of(stage, zk))[0] == -1
        await one.register()
        await comes_to(stage, zk, (1, (1,), ()))

    on_stage(test)


def test_a_topic_that_cannot_be_read_and_is_to_be_deleted_ends_no_term(on_stage, caplog):
    async def test(stage, zk):
        one = await stage.broker(1)
        controller = await stage.controller(1)
        await stage.run_zk(zk.kazoo.create, znodes.topic_path("odd"), b"[]", None, False, False, True)
        await stage.run_zk(zk.topics.request_deletion, "odd")
        await stage.run_zk(zk.topics.create, topic("t", 1), {})
        await until(lambda: one.told_to_lead == {("t", 0): 0})
        for _ in range(2):
            await controller.elect_preferred([])  # a look that comes to its end
        assert controller.context.epoch == 1
        (told,) = [each.message for each in caplog.records if "is not deleted, as was asked" in each.message]
        assert told.startswith("topic odd")
        await stage.run_zk(zk.kazoo.delete, znodes.topic_path("odd"))
        await controller.elect_preferred([])
        assert await stage.run_zk(zk.topics.to_delete) == {}

    on_stage(test)


def test_added_partitions_get_leaders_and_the_old_ones_keep_theirs(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        controller = await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 1), {})
        await until(lambda: one.told_to_lead == {("t", 0): 0})
        await stage.run_zk(zk.topics.add_partitions, topic("t", 1, 2, 1), controller.context.epoch_version)
        controller.look_at("t")
        everything = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2, TopicPartition("t", 2): 1}
        await until(lambda: one.leads == two.leads == everything)
        await until(lambda: one.told_to_lead.keys() == {("t", 0), ("t", 2)} and two.told_to_lead == {("t", 1): 0})
        states = await stage.run_zk(zk.states.read, everything)
        assert {state.leader_epoch for state in states.values()} == {0}

    on_stage(test)


def test_a_broker_that_comes_is_told_of_the_whole_cluster_and_then_of_what_changes(on_stage):
    async def test(stage, zk):
        await stage.broker(1)
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 1), {})
        two = await stage.broker(2)
        await until(lambda: TopicPartition("t", 0) in two.leads)
        await stage.run_zk(zk.topics.create, topic("u", 1), {})
        await until(lambda: TopicPartition("u", 0) in two.leads)
        brokers_alone, whole, *others = [message for api, message in two.heard if api is ApiKey.UPDATE_METADATA]
        assert (brokers_alone.type, brokers_alone.topic_states, whole.type) == (INCREMENTAL, [], FULL)
        assert {each.type for each in others} == {INCREMENTAL}

    on_stage(test)


def test_a_broker_hears_which_brokers_live_before_it_is_to_follow_one(on_stage):
    async def test(stage, zk):
        two = await stage.broker(2)
        await stage.controller(2)
        await stage.run_zk(zk.topics.create, TopicAssignment("t", {0: (2, 1)}, UUID(int=1)), {})
        await until(lambda: two.leads.get(T0) == 2)
        await two.leave()
        one = await stage.broker(1)
        await until(lambda: one.leads.get(T0) == -1)
        await two.register()
        await until(lambda: one.leads.get(T0) == 2)
        assert [leader for leader, _ in one.followed] == [2]
        assert all(leader in living for leader, living in one.followed), "a broker of Kafka's would not follow it"

    on_stage(test)


def test_a_partition_without_its_broker_has_no_leader_until_it_is_back(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 2), {})
        await until(lambda: two.told_to_lead == {("t", 0): 0})
        await two.leave()
        await until(lambda: one.leads == {TopicPartition("t", 0): -1})
        await two.register()
        await until(lambda: one.leads == {TopicPartition("t", 0): 2})
        await until(lambda: two.told_to_lead == {("t", 0): 2})

    on_stage(test)


def test_a_deleted_topic_is_stopped_where_it_was_and_forgotten(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1)
        for each in (topic("t", 1, 2), topic("u", 1)):
            await stage.run_zk(zk.topics.create, each, {})
        await until(lambda: len(two.leads) == 3)
        await stage.run_zk(zk.topics.request_deletion, "t")
        await until(lambda: one.told_to_stop == {("t", 0)} and two.told_to_stop == {("t", 1)})
        while zk.topics.names() != ["u"] or zk.topics.to_delete():
            await asyncio.sleep(0.01)
        assert one.leads[TopicPartition("t", 1)] == -2

    on_stage(test)


def test_a_broker_that_does_not_answer_a_deletion_holds_up_nothing_else(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 2), {})
        await until(lambda: TopicPartition("t", 0) in one.leads)
        two.silent.add(ApiKey.STOP_REPLICA)
        await stage.run_zk(zk.topics.request_deletion, "t")
        await until(lambda: two.told_to_stop)
        await stage.run_zk(zk.topics.create, topic("u", 1), {})
        await until(lambda: ("u", 0) in one.told_to_lead)
        await two.leave()
        await stage.run_zk(zk.topics.create, topic("v", 1), {})
        await until(lambda: ("v", 0) in one.told_to_lead)
        two.silent.clear()
        await two.register()
        while zk.topics.names() != ["u", "v"]:
            await asyncio.sleep(0.01)

    on_stage(test)


def test_a_controller_that_failed_in_office_vacates_it_and_is_elected_again(on_stage):
    async def test(stage, zk):
        one = await stage.broker(1)
        controller = await stage.controller(1)
        await until(lambda: controller.is_active)
        epoch, fine = controller.context.epoch, controller.session.topics.to_delete

        def failing(on_change=None):
            controller.session.topics.to_delete = fine
            raise CoordinationError("once")

        controller.session.topics.to_delete = failing
        await stage.run_zk(zk.topics.create, topic("t", 1), {})
        await until(lambda: one.told_to_lead == {("t", 0): 0})
        assert controller.context.epoch > epoch

    on_stage(test)


def test_the_next_controller_takes_over_with_a_higher_epoch_and_tells_everyone(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        first = await stage.controller(1)
        await until(lambda: first.is_active)
        second = await stage.controller(2)
        await stage.run_zk(zk.topics.create, topic("t", 1, 2), {})
        await until(lambda: len(two.leads) == 2)
        assert not second.is_active
        await stage.run_zk(first.session.close)
        await until(lambda: second.is_active)
        await until(lambda: two.heard[-1][1].controller_id == 2)
        epochs = [message.controller_epoch for _, message in two.heard]
        assert epochs == sorted(epochs)
        assert epochs[-1] == epochs[0] + 1
        await until(lambda: [api for api, message in one.heard if message.controller_id == 2])
        await stage.run_zk(zk.topics.create, topic("u", 1), {})
        await until(lambda: ("u", 0) in one.told_to_lead)

    on_stage(test)


def test_a_controller_whose_office_was_taken_decides_nothing_more(on_stage):
    async def test(stage, zk):
        one = await stage.broker(1)
        first = await stage.controller(1)
        await until(lambda: first.is_active)

        def usurp():
            # At once, or the controller would win the vacant office back.
            change = zk.kazoo.transaction()
            change.delete("/controller")
            change.create("/controller", znodes.encode_controller(9, 1), ephemeral=True)
            change.set_data("/controller_epoch", b"50")
            return change.commit()

        await stage.run_zk(usurp)
        await until(lambda: not first.is_active)
        await stage.run_zk(zk.topics.create, topic("t", 1), {})
        heard = len(one.heard)
        await stage.run_zk(zk.kazoo.delete, "/controller")
        await until(lambda: ("t", 0) in one.told_to_lead)
        assert {message.controller_epoch for _, message in one.heard[heard:]} == {51}

    on_stage(test)


STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("topic_id", [None, UUID(int=9)])
def test_a_partition_that_its_broker_does_not_hold_has_no_leader_until_it_does(on_stage, topic_id):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        two.refuses = {("t", 0): STORAGE}
        await stage.controller(1)
        made = TopicAssignment("t", {0: (2,), 1: (2,), 2: (1,)}, topic_id)
        await stage.run_zk(zk.topics.create, made, {})
        others = {TopicPartition("t", 1): 2, TopicPartition("t", 2): 1}
        await until(lambda: one.leads == two.leads == {T0: -1} | others)
        asked = two.count(ApiKey.LEADER_AND_ISR)
        await until(lambda: two.count(ApiKey.LEADER_AND_ISR) > asked + 1)
        assert one.led == others.keys(), "nobody was ever told of a leader that does not lead"
        states = await stage.run_zk(zk.states.read, [T0])
        assert (states[T0].leader, states[T0].isr, states[T0].leader_epoch) == (-1, (2,), 1), (
            "and asking writes nothing"
        )
        two.refuses.clear()
        await until(lambda: one.leads == two.leads == {T0: 2} | others)
        assert two.told_to_lead[("t", 0)] == 2

    on_stage(test)


def test_a_partition_stays_new_to_its_broker_until_it_holds_it(on_stage):
    async def test(stage, zk):
        one = await stage.broker(1)
        one.refuses = {("t", 0): STORAGE}
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 1, 1), {})
        await until(lambda: one.leads == {T0: -1, TopicPartition("t", 1): 1})
        one.refuses.clear()
        await until(lambda: one.leads[T0] == 1)
        assert one.newness[("t", 0)][-2:] == [True, False], "it held it when it was to lead"
        one.heard.clear()
        await one.leave()
        await one.register()
        await until(lambda: len(one.newness) == 2)
        assert not any(flag for flags in one.newness.values() for flag in flags)

    on_stage(test)


def test_clients_are_told_of_a_leader_once_it_has_answered(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1)
        await until(lambda: two.count(ApiKey.UPDATE_METADATA) > 1)  # the last of what it is told first
        two.silent.add(ApiKey.LEADER_AND_ISR)
        await stage.run_zk(zk.topics.create, topic("t", 2), {})
        await until(lambda: ("t", 0) in two.told_to_lead)
        await stage.run_zk(zk.topics.create, topic("u", 1), {})
        await until(lambda: one.leads == {T0: -1, TopicPartition("u", 0): 1})

    on_stage(test)


def test_a_broker_that_comes_back_answers_anew(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        two.refuses = {("t", 0): STORAGE}
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 2), {})
        await until(lambda: one.leads == {T0: -1})
        await two.leave()
        two.refuses.clear()
        await two.register()
        await until(lambda: one.leads == two.leads == {T0: 2})

    on_stage(test)


def test_a_failed_log_directory_takes_the_leadership_of_what_was_in_it(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 2, 2), {})
        await until(lambda: set(one.leads.values()) == {2} and len(one.leads) == 2)
        two.refuses = {("t", 0): STORAGE}
        await stage.run_zk(zk.brokers.report_log_dir_failure, 2)
        await until(lambda: one.leads == two.leads == {T0: -1, TopicPartition("t", 1): 2})
        assert zk.brokers.log_dir_events() == {}

    on_stage(test)


@pytest.mark.parametrize("api", [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA])
def test_a_broker_that_refuses_a_request_whole_is_told_everything_again(on_stage, api):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        two.refuses_whole = {api: ErrorCode.STALE_CONTROLLER_EPOCH}
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 2), {})
        await until(lambda: two.refused[api] > 3)
        two.refuses_whole.clear()
        await until(lambda: two.leads == {T0: 2} and ("t", 0) in two.told_to_lead)
        await until(lambda: one.leads == {T0: 2})

    on_stage(test)


@pytest.mark.parametrize("api", [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA])
def test_what_a_broker_refused_to_hear_is_said_again_though_it_has_heard_something_else_since(on_stage, api):
    async def test(stage, zk):
        one = await stage.broker(1)
        controller = await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("a", 1), {})
        await until(lambda: ("a", 0) in one.told_to_lead and TopicPartition("a", 0) in one.leads)
        take_due, controller._retries.take_due = controller._retries.take_due, set
        one.refuses_whole = {api: ErrorCode.STALE_CONTROLLER_EPOCH}
        heard = one.count(api)
        await stage.run_zk(zk.topics.create, topic("b", 1), {})
        await until(lambda: controller._unheard)
        one.refuses_whole.clear()
        await stage.run_zk(zk.topics.create, topic("c", 1), {})
        await until(lambda: ("c", 0) in one.told_to_lead and TopicPartition("c", 0) in one.leads)
        assert one.refused[api]
        assert one.count(api) > heard
        one.heard.clear()
        controller._retries.take_due = take_due
        await until(lambda: ("b", 0) in one.told_to_lead and TopicPartition("b", 0) in one.leads)
        await until(lambda: not controller._unheard)

    on_stage(test)


def test_a_topic_made_anew_is_not_deleted_for_one_of_its_name(on_stage):
    async def test(stage, zk):
        one = await stage.broker(1)
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, TopicAssignment("t", {0: (1,)}, UUID(int=6)), {})
        await until(lambda: ("t", 0) in one.told_to_lead)
        await stage.run_zk(zk.topics.request_deletion, "t", UUID(int=5))
        while zk.topics.to_delete():
            await asyncio.sleep(0.01)
        assert zk.topics.names() == ["t"]
        assert not one.told_to_stop
        await stage.run_zk(zk.topics.request_deletion, "t", UUID(int=6))
        while zk.topics.names():
            await asyncio.sleep(0.01)

    on_stage(test)


def test_a_topic_is_not_forgotten_before_all_of_it_is_deleted(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 1, 2, 2), {})
        await until(lambda: len(two.leads) == 3)
        two.refuses = {("t", 1): STORAGE}
        await stage.run_zk(zk.topics.request_deletion, "t")
        await until(lambda: two.count(ApiKey.STOP_REPLICA) >= 3)
        assert (zk.topics.names(), zk.topics.to_delete()) == (["t"], {"t": None})
        await stage.run_zk(zk.topics.create, topic("u", 1), {})
        await until(lambda: ("u", 0) in one.told_to_lead)
        two.refuses.clear()
        while zk.topics.names() != ["u"] or zk.topics.to_delete():
            await asyncio.sleep(0.01)

    on_stage(test)


def test_a_deposed_controller_forgets_no_topic(on_stage):
    async def test(stage, zk):
        one = await stage.broker(1)
        first = await stage.controller(1)
        await stage.run_zk(zk.topics.create, topic("t", 1), {})
        await until(lambda: ("t", 0) in one.told_to_lead)
        one.silent.add(ApiKey.STOP_REPLICA)
        await stage.run_zk(zk.topics.request_deletion, "t")
        await until(lambda: one.told_to_stop)
        version = first.context.epoch_version
        await stage.run_zk(zk.kazoo.set, "/controller_epoch", b"50")
        with pytest.raises(CoordinationError, match="another controller"):
            await stage.run_zk(first.session.topics.forget, "t", version)
        assert zk.topics.names() == ["t"]

    on_stage(test)


def test_a_topic_asked_to_go_that_never_was_is_forgotten(on_stage):
    async def test(stage, zk):
        await stage.controller(1)
        await stage.run_zk(zk.topics.request_deletion, "never")
        while zk.topics.to_delete():
            await asyncio.sleep(0.01)

    on_stage(test)


T0 = TopicPartition("t", 0)


def replicated(*replicas):
    return TopicAssignment("t", dict(enumerate(replicas)), UUID(int=7))


async def replicas_on_stage(stage, zk, *replicas, brokers=(1, 2)):
    """The brokers, the controller that knows them, and the topic with its partitions on these."""
    made = [await stage.broker(each) for each in brokers]
    controller = await stage.controller(1)
    await stage.run_zk(zk.topics.create, replicated(*replicas), {})
    await until(lambda: all(T0 in each.leads and each.leads[T0] >= 0 for each in made))
    return controller, made


async def state_in_zookeeper(stage, zk, tp=T0):
    return (await stage.run_zk(zk.states.read, [tp]))[tp]


def wish(controller, *isr, tp=T0, **changes):
    """The change that the leader of the partition asks for, if it knows all that the controller knows."""
    state = controller.context.states[tp]
    epochs = tuple(controller.context.brokers[each].epoch for each in isr)
    return IsrChange(state.leader, state.leader_epoch, isr, epochs, state.version)._replace(**changes)


async def ask(controller, *isr, leader=1, tp=T0, **changes):
    epoch = controller.context.brokers[leader].epoch
    return (await controller.change_isrs(leader, epoch, {tp: wish(controller, *isr, tp=tp, **changes)}))[tp]


async def refusal(asking):
    with pytest.raises(ApiError) as caught:
        await asking
    return caught.value.code


def test_a_leader_has_its_isr_written_and_clients_are_told(on_stage):
    async def test(stage, zk):
        controller, (_, two) = await replicas_on_stage(stage, zk, (1, 2))
        before = await state_in_zookeeper(stage, zk)
        assert (before.leader, before.isr) == (1, (1, 2))
        told = two.count(ApiKey.UPDATE_METADATA)
        written = await ask(controller, 1)
        assert (written.isr, written.leader_epoch, written.version) == ((1,), before.leader_epoch, before.version + 1)
        found = await state_in_zookeeper(stage, zk)
        assert (found, found.version) == (written, written.version)
        await until(lambda: two.count(ApiKey.UPDATE_METADATA) > told)
        grown = await ask(controller, 1, 2)
        assert (grown.isr, grown.version) == ((1, 2), before.version + 2)

    on_stage(test)


def test_an_isr_whose_answer_was_lost_is_told_again_and_not_written_again(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        asked = wish(controller, 1)
        epoch = controller.context.brokers[1].epoch
        first = (await controller.change_isrs(1, epoch, {T0: asked}))[T0]
        again = (await controller.change_isrs(1, epoch, {T0: asked}))[T0]
        assert again.version == first.version == (await state_in_zookeeper(stage, zk)).version

    on_stage(test)


def test_an_isr_is_known_though_the_leader_hangs_up_while_it_is_written(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        go_on, run_zk = asyncio.Event(), stage.run_zk

        async def slowly(call, *args):
            found = await run_zk(call, *args)
            await go_on.wait()
            return found

        stage.run_zk = slowly
        asking = asyncio.ensure_future(ask(controller, 1))
        while (await run_zk(zk.states.read, [T0]))[T0].isr != (1,):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        go_on.set()
        await until(lambda: controller.context.states[T0].isr == (1,))

    on_stage(test)


def test_an_isr_is_not_written_over_a_state_that_the_leader_does_not_know(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        before = await state_in_zookeeper(stage, zk)
        stale = ErrorCode.INVALID_UPDATE_VERSION
        assert await ask(controller, 1, partition_epoch=before.version - 1) is stale
        assert await ask(controller, 1, leader_epoch=before.leader_epoch - 1) is ErrorCode.FENCED_LEADER_EPOCH
        assert await state_in_zookeeper(stage, zk) == before

    on_stage(test)


def test_a_write_that_another_came_before_is_refused_and_what_it_wrote_is_known(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        before = await state_in_zookeeper(stage, zk)
        other = znodes.encode_partition_state(replace(before, controller_epoch=before.controller_epoch))
        await stage.run_zk(zk.kazoo.set, znodes.partition_state_path(T0), other)
        assert await ask(controller, 1) is ErrorCode.INVALID_UPDATE_VERSION
        assert controller.context.states[T0].version == before.version + 1
        assert (await ask(controller, 1)).isr == (1,)

    on_stage(test)


def test_a_leader_that_knows_a_later_state_has_the_controller_look_again(on_stage):
    """Else the ISR would never change again: the controller looks at a state where it wants another."""

    async def test(stage, zk):
        controller, (_, two) = await replicas_on_stage(stage, zk, (1, 2))
        before = await state_in_zookeeper(stage, zk)
        data = znodes.encode_partition_state(before)
        await stage.run_zk(zk.kazoo.set, znodes.partition_state_path(T0), data)
        told = two.count(ApiKey.UPDATE_METADATA)
        assert await ask(controller, 1, partition_epoch=before.version + 1) is ErrorCode.NOT_CONTROLLER
        await until(lambda: two.count(ApiKey.UPDATE_METADATA) > told)
        assert (await ask(controller, 1, partition_epoch=before.version + 1)).isr == (1,)
        assert await ask(controller, 1, partition_epoch=before.version + 9) is ErrorCode.NOT_CONTROLLER

    on_stage(test)


def test_an_isr_that_is_written_while_its_topic_is_read_stays_known(on_stage, monkeypatch):
    """The topic is read again when it has grown: the state that was read first is not the last."""

    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        await ask(controller, 1)
        read, written = controller._states.read, []

        async def slow(replicas):
            states = await read(replicas)
            written.append(await ask(controller, 1, 2))
            return states

        monkeypatch.setattr(controller._states, "read", slow)
        controller.look_at("t")
        await until(lambda: written)
        await controller.elect_preferred([])  # a look has ended
        assert controller.context.states[T0] == written[0] == await state_in_zookeeper(stage, zk)
        assert controller.context.states[T0].version == written[0].version

    on_stage(test)


def test_a_write_whose_answer_was_lost_is_found_done(on_stage):
    """ZooKeeper has the very state that was to be written, in a later version."""

    async def test(stage, zk):
        controller, (_, two) = await replicas_on_stage(stage, zk, (1, 2))
        before = await state_in_zookeeper(stage, zk)
        done = znodes.encode_partition_state(replace(before, isr=(1,), controller_epoch=controller.context.epoch))
        await stage.run_zk(zk.kazoo.set, znodes.partition_state_path(T0), done)
        told = two.count(ApiKey.UPDATE_METADATA)
        assert (await ask(controller, 1)).version == before.version + 1
        await until(lambda: two.count(ApiKey.UPDATE_METADATA) > told)

    on_stage(test)


def test_only_a_broker_that_is_registered_under_this_epoch_changes_isrs_or_is_let_go(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        stale, epoch = ErrorCode.STALE_BROKER_EPOCH, controller.context.brokers[1].epoch
        assert await refusal(controller.change_isrs(1, epoch - 1, {})) is stale
        assert await refusal(controller.change_isrs(9, epoch, {})) is stale
        assert await refusal(controller.let_go(1, epoch - 1)) is stale
        assert await refusal(controller.let_go(9, epoch)) is stale
        assert not controller.context.leaving

    on_stage(test)


def test_many_isrs_are_judged_in_steps(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        asked = {TopicPartition("unknown", number): wish(controller, 1) for number in range(2000)}
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        outcomes = await controller.change_isrs(1, controller.context.brokers[1].epoch, asked)
        beside.cancel()
        assert outcomes == dict.fromkeys(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert turns >= 2 * 2000 // 50

    on_stage(test)


def test_who_is_not_the_controller_says_so(on_stage):
    async def test(stage, zk):
        await replicas_on_stage(stage, zk, (1, 2))
        other = await stage.controller(2)
        for asking in (other.change_isrs(1, 0, {}), other.let_go(1, 0), other.elect_preferred([T0])):
            assert await refusal(asking) is ErrorCode.NOT_CONTROLLER

    on_stage(test)


def test_a_broker_that_is_about_to_stop_leads_nothing_that_another_can(on_stage):
    async def test(stage, zk):
        controller, (_, two) = await replicas_on_stage(stage, zk, (1, 2), (1, 2), (1,))
        alone = TopicPartition("t", 1)
        await ask(controller, 1, tp=alone)
        left = await controller.let_go(1, controller.context.brokers[1].epoch)
        assert left == [alone], "one whose other replica is not in sync; one without others is not told of"
        moved = await state_in_zookeeper(stage, zk)
        assert (moved.leader, moved.isr) == (2, (2,))
        assert (await state_in_zookeeper(stage, zk, alone)).leader == 1
        await until(lambda: two.told_to_lead == {("t", 0): moved.leader_epoch})
        assert await ask(controller, 2, 1, leader=2) is ErrorCode.INELIGIBLE_REPLICA, (
            "it does not join before it is gone"
        )
        grown = await ask(controller, 1, 2, tp=alone)
        assert grown.isr == (1, 2)
        assert await controller.let_go(1, controller.context.brokers[1].epoch) == []

    on_stage(test)


def test_a_broker_that_came_back_may_be_in_sync_and_lead_again(on_stage):
    async def test(stage, zk):
        controller, (_, two) = await replicas_on_stage(stage, zk, (2, 1))
        await controller.let_go(2, controller.context.brokers[2].epoch)
        assert (await state_in_zookeeper(stage, zk)).leader == 1
        await two.leave()
        await until(lambda: 2 not in controller.context.brokers)
        await two.register()
        await until(lambda: 2 in controller.context.brokers and 2 not in controller.context.leaving)
        assert (await ask(controller, 1, 2)).isr == (1, 2)
        await controller.elect_preferred([T0])
        state = await state_in_zookeeper(stage, zk)
        assert (state.leader, state.isr) == (2, (1, 2))

    on_stage(test)


def test_a_broker_that_said_it_would_stop_and_did_not_is_counted_on_again(on_stage):
    """Somebody else may have said it in its name."""

    async def test(stage, zk):
        stage.clock = ManualClock()
        controller, _ = await replicas_on_stage(stage, zk, (2, 1))
        for _ in range(2):  # each time that it says so counts
            stage.clock.advance(_LEAVES_WITHIN_S - 1)
            await controller.let_go(2, controller.context.brokers[2].epoch)
            assert await ask(controller, 1, 2) is ErrorCode.INELIGIBLE_REPLICA
        stage.clock.advance(_LEAVES_WITHIN_S)
        await controller.elect_preferred([])
        assert not controller.context.leaving
        assert (await ask(controller, 1, 2)).isr == (1, 2)

    on_stage(test)


def test_a_broker_that_starts_again_unseen_is_in_sync_no_more(on_stage):
    """It may have lost what was not on its disk; what it led goes on under another epoch."""

    async def test(stage, zk):
        controller, (one, _) = await replicas_on_stage(stage, zk, (1, 2), (2, 1), (1,))
        before = {tp: controller.context.states[tp] for tp in controller.context.states}
        at_once = zk.kazoo.transaction()  # so that no look falls between
        at_once.delete(znodes.broker_path(1))
        at_once.create(znodes.broker_path(1), znodes.encode_broker(BrokerInfo(1, one.endpoint), 2), ephemeral=True)
        await stage.run_zk(at_once.commit)
        await until(lambda: all(controller.context.states[tp].leader_epoch > before[tp].leader_epoch for tp in before))
        found = {tp.partition: (state.leader, state.isr) for tp, state in controller.context.states.items()}
        assert found == {0: (2, (2,)), 1: (2, (2,)), 2: (1, (1,))}

    on_stage(test)


def test_only_who_may_lead_is_elected_as_preferred(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2), (1, 2))
        other = TopicPartition("t", 1)
        epochs = {id_: info.epoch for id_, info in controller.context.brokers.items()}
        assert await controller.let_go(1, epochs[1]) == []
        await controller.elect_preferred([T0, TopicPartition("unknown", 0)])
        assert (await state_in_zookeeper(stage, zk)).leader == 2, "it is about to stop"
        controller.context.leaving.clear()
        await ask(controller, 2, 1, leader=2)
        await controller.elect_preferred([T0, other])
        assert (await state_in_zookeeper(stage, zk)).leader == 1
        assert (await state_in_zookeeper(stage, zk, other)).leader == 2, "it is not in sync"
        await ask(controller, 2, 1, leader=2, tp=other)
        finish(controller.rebalance(60))
        await controller.elect_preferred([])
        assert (await state_in_zookeeper(stage, zk, other)).leader == 2, "one of two is less than that"
        finish(controller.rebalance(10))
        await until(lambda: controller.context.states[other].leader == 1)

    on_stage(test)


def test_who_waits_for_a_look_hears_when_the_office_is_lost(on_stage):
    async def test(stage, zk):
        controller, _ = await replicas_on_stage(stage, zk, (1, 2))
        await stage.run_zk(zk.kazoo.set, "/controller_epoch", b"50")
        epoch = controller.context.brokers[1].epoch
        assert await refusal(controller.let_go(1, epoch)) is ErrorCode.NOT_CONTROLLER

    on_stage(test)


class QuietZk:
    """A ZooKeeper that holds nothing but the office, and answers without a turn of the loop."""

    def __init__(self):
        self.brokers = self.office = self.topics = self
        self._holder = None
        self.watches = []

    def holder(self, _on_change):
        return self._holder

    def take(self, broker_id, _now_ms, _after):
        self._holder = broker_id
        return 1, 0

    def lives(self):
        return {}

    def foreign_terms(self, _epoch):
        return range(0)

    def live(self, _on_change):
        return {}

    def names(self, on_change):
        self.watches.append(on_change)
        return []

    def to_delete(self, _on_change):
        return {}

    def log_dir_events(self, _on_change):
        return {}

    def reassignments(self, _on_change):
        return None


async def quiet_controller():
    """A controller in office, with nothing left to do, and its ZooKeeper."""

    async def run_zk(call, *args):
        return call(*args)

    zk = QuietZk()
    controller = Controller(1, zk, run_zk, SystemClock())
    controller.start()
    await spin(20)
    assert controller.is_active
    return controller, zk


async def spin(turns):
    for _ in range(turns):
        await asyncio.sleep(0)


def test_every_look_sets_the_same_watch():
    async def test():
        controller, zk = await quiet_controller()
        zk.watches[0]()
        await spin(20)
        await controller.close()
        assert len(zk.watches) == 2
        assert len(set(zk.watches)) == 1

    asyncio.run(test())


@pytest.mark.parametrize("turns", range(8))
def test_closing_ends_it_in_whatever_turn_of_the_loop_a_watch_fires(turns):
    async def test():
        controller, _ = await quiet_controller()
        controller.on_session_expired()
        await spin(turns)
        async with asyncio.timeout(60):
            await controller.close()
        assert not controller.is_active

    asyncio.run(test())


class Others:
    """They confirm everything, or nothing."""

    def __init__(self, confirm=True):
        self.confirms = confirm
        self.asked = asyncio.Event()

    async def confirm(self, _broker, _live):
        self.asked.set()
        return self.confirms


REPLICATED = TopicAssignment("t", {0: (1, 2), 1: (2, 1)})
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


async def state_of(stage, zk, tp):
    return (await stage.run_zk(zk.states.read, [tp])).get(tp)


def test_the_death_of_a_leader_of_many_is_one_request_to_each_broker(on_stage):
    """However many partitions it led: they are decided together, and told together."""

    async def test(stage, zk):
        one, two, three = [await stage.broker(number) for number in (1, 2, 3)]
        await stage.controller(1)
        names, numbers = ("t", "u"), range(20)
        led = {TopicPartition(name, number) for name in names for number in numbers}
        for name in names:
            await stage.run_zk(zk.topics.create, TopicAssignment(name, dict.fromkeys(numbers, (3, 1, 2))), {})
        await until(lambda: one.leads == two.leads == three.leads == dict.fromkeys(led, 3))
        one.heard.clear()
        two.heard.clear()
        await three.leave()
        await until(lambda: one.leads == two.leads == dict.fromkeys(led, 1))
        for each in (one, two):
            assert each.count(ApiKey.LEADER_AND_ISR) == 1
            assert each.told_to_hold == led

    on_stage(test)


def test_a_broker_that_refuses_connections_is_not_waited_for_and_comes_back_as_it_was(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        await stage.controller(1, Others())
        await stage.run_zk(zk.topics.create, REPLICATED, {})
        await until(lambda: one.leads == two.leads == {FIRST: 1, SECOND: 2})
        epoch = (await stage.run_zk(zk.brokers.live))[2].epoch
        await two.refuse()
        await until(lambda: one.leads == {FIRST: 1, SECOND: 1})
        state = await state_of(stage, zk, SECOND)
        assert (state.leader, state.isr) == (1, (1,))
        two.heard.clear()
        await two.accept_again()
        await until(lambda: two.count(ApiKey.LEADER_AND_ISR) and two.leads == {FIRST: 1, SECOND: 1})
        assert [message.type for api, message in two.heard if api is ApiKey.LEADER_AND_ISR] == [FULL]
        assert all(message.broker_epoch == epoch for _, message in two.heard)

    on_stage(test)


def test_the_last_in_sync_is_waited_for_until_its_session_ends(on_stage):
    """An unclean election would lose what only that broker has, which may be back any moment."""

    async def test(stage, zk):
        two = await stage.broker(2)
        await stage.controller(9, Others(), unclean_leader_election_enable=True)
        await stage.run_zk(zk.topics.create, TopicAssignment("t", {0: (2, 1)}), {})
        await until(lambda: two.leads == {FIRST: 2})
        one = await stage.broker(1)
        await until(lambda: one.leads == {FIRST: 2})
        await two.refuse()
        await until(lambda: one.leads == {FIRST: -1})
        state = await state_of(stage, zk, FIRST)
        assert (state.leader, state.isr) == (-1, (2,))
        await two.leave()
        await until(lambda: one.leads == {FIRST: 1})

    on_stage(test)


@pytest.mark.parametrize("told_of", ["t", None], ids=["the topic's", "the cluster's"])
def test_a_replica_out_of_sync_leads_at_once_when_that_is_allowed(on_stage, monkeypatch, told_of):
    """A setting of the topic, or of all brokers, that comes while the partition has no leader."""
    monkeypatch.setattr(runtime, "_LOOK_AT_LEAST_EVERY_S", 3600)
    config = {"unclean_leader_election_enable": False}

    async def test(stage, zk):
        two = await stage.broker(2)
        controller = await stage.controller(9)

        async def topic_configs(topics):
            return dict.fromkeys(topics, TopicConfig(**config))

        controller._settings._read = topic_configs
        await stage.run_zk(zk.topics.create, TopicAssignment("t", {0: (2, 1)}), {})
        await until(lambda: two.leads == {FIRST: 2})
        one = await stage.broker(1)
        await until(lambda: one.leads == {FIRST: 2})
        await two.leave()
        await until(lambda: one.leads == {FIRST: -1})
        await controller.elect_preferred([])  # a look that ends
        assert (await state_of(stage, zk, FIRST)).leader == -1
        config["unclean_leader_election_enable"] = True
        controller.settings_changed(told_of)
        await until(lambda: one.leads == {FIRST: 1})
        state = await state_of(stage, zk, FIRST)
        assert (state.leader, state.isr) == (1, (1,))

    on_stage(test)


def test_a_refusal_that_nobody_confirms_changes_nothing(on_stage):
    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        others = Others(confirm=False)
        controller = await stage.controller(1, others)
        await stage.run_zk(zk.topics.create, REPLICATED, {})
        await until(lambda: one.leads == two.leads == {FIRST: 1, SECOND: 2})
        await two.refuse()
        await others.asked.wait()
        assert controller.context.brokers.keys() == {1, 2}
        assert (await state_of(stage, zk, SECOND)).leader == 2
        await two.accept_again()

    on_stage(test)


def test_the_place_of_a_controller_that_refuses_connections_is_taken(on_stage):
    """One that lives after all is in office no longer, and does not take it back."""

    async def test(stage, zk):
        one, two = await stage.broker(1), await stage.broker(2)
        old = await stage.controller(1, Others())
        await until(lambda: old.is_active)
        await stage.run_zk(zk.topics.create, REPLICATED, {})
        await until(lambda: two.leads == {FIRST: 1, SECOND: 2})
        epoch = old.context.epoch
        new = await stage.controller(2, Others())
        await one.refuse()
        await until(lambda: new.is_active and not old.is_active)
        assert new.context.epoch == epoch + 1
        assert (await stage.run_zk(zk.office.read)) == (2, epoch + 1)
        await until(lambda: two.leads == {FIRST: 2, SECOND: 2})
        await one.accept_again()
        await until(lambda: one.leads == {FIRST: 2, SECOND: 2})
        assert new.is_active
        assert not old.is_active

    on_stage(test)


def test_of_many_that_would_succeed_one_does(on_stage):
    async def test(stage, zk):
        brokers = [await stage.broker(number) for number in (1, 2, 3, 4)]
        old = await stage.controller(1)
        await until(lambda: old.is_active)
        epoch = old.context.epoch
        others = [await stage.controller(number, Others()) for number in (2, 3, 4)]
        await brokers[0].refuse()
        await until(lambda: not old.is_active and sum(each.is_active for each in others) == 1)
        (new,) = (each for each in others if each.is_active)
        assert new.context.epoch == epoch + 1

    on_stage(test)


def test_a_controller_that_nobody_else_misses_stays(on_stage):
    async def test(stage, zk):
        one, _ = await stage.broker(1), await stage.broker(2)
        old = await stage.controller(1)
        await until(lambda: old.is_active)
        others = Others(confirm=False)
        new = await stage.controller(2, others)
        await one.refuse()
        await others.asked.wait()
        assert (await stage.run_zk(zk.office.read)).holder == 1
        assert not new.is_active
        await one.accept_again()

    on_stage(test)
