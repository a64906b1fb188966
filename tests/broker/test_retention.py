"""A round of retention: whom a broker asks what is offloaded, and which answers count."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker.retention import RetentionRounds
from sparklog.cluster.offload_group import OffloadNote
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.messages import OffsetFetchResponse
from sparklog.structs import OFFSETS_TOPIC, Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

TP, SECOND, FOLLOWED, PLAIN = (TopicPartition("t", number) for number in range(4))
ID, FORMER = UUID(int=1), UUID(int=2)
WAITS = TopicConfig(offload_required=True, offload_max_bytes=9)
GROUP = "sparklog-offload.t"
HERE, ELSEWHERE = 1, 2
NOTE = OffloadNote(ID, "table /x").to_metadata()


class Retention:
    """What it was told, in order."""

    def __init__(self):
        self.told = []

    def begin(self, offloaded, served):
        self.told.append(("begin", offloaded, [each.tp for each in served]))

    async def consult(self, partition):
        self.told.append(("consult", partition.tp))


class Scene:
    """A broker of four partitions of one topic; the group is coordinated by ``coordinator``, of whom ``answer`` is."""

    def __init__(self, coordinator, answer):
        self.retention, self.asked = Retention(), []
        self.replicas = SimpleNamespace(
            broker_id=HERE,
            retention=self.retention,
            served=[
                SimpleNamespace(tp=TP, config=WAITS, is_leader=True, topic_id=ID),
                SimpleNamespace(
                    tp=SECOND, config=TopicConfig(retention_policies=("offload",)), is_leader=True, topic_id=ID
                ),
                SimpleNamespace(tp=FOLLOWED, config=WAITS, is_leader=False, topic_id=ID),
                SimpleNamespace(tp=PLAIN, config=TopicConfig(), is_leader=True, topic_id=ID),
            ],
            apply_retention=self._apply,
        )
        self._answer = answer
        broker = SimpleNamespace(id=coordinator, endpoint=Endpoint("h", 1)) if coordinator else None
        topics = {} if coordinator is None else {OFFSETS_TOPIC: SimpleNamespace()}
        self.metadata = SimpleNamespace(leader=lambda _: broker, topic=topics.get)

    def _apply(self):
        self.retention.told.append(("apply",))
        yield

    def partition_for(self, _group):
        return 0

    def fetch_offsets(self, group, partitions):
        self.asked.append((HERE, group, partitions))
        if isinstance(self._answer, ErrorCode):
            return self._answer, {}
        offsets = {tp: SimpleNamespace(offset=at, metadata=text) for tp, (at, text) in self._answer.items()}
        return ErrorCode.NONE, {tp: offsets.get(tp) for tp in partitions}

    async def request(self, endpoint, lane, _api, build, *, timeout):
        message = build(9)
        (group,) = message.groups
        named = [TopicPartition(topic.name, number) for topic in group.topics for number in topic.partition_indexes]
        self.asked.append((endpoint, group.group_id, named))
        assert (lane, timeout, message.require_stable) == ("retention", 10.0, False)
        if isinstance(self._answer, Exception):
            raise self._answer
        told = OffsetFetchResponse.OffsetFetchResponseGroup
        topic = told.OffsetFetchResponseTopics
        partitions = [
            topic.OffsetFetchResponsePartitions(
                partition_index=tp.partition,
                committed_offset=at,
                committed_leader_epoch=-1,
                metadata=text,
                error_code=0,
            )
            for tp, (at, text) in self._answer.items()
        ]
        groups = [told(group_id=GROUP, topics=[topic(name="t", partitions=partitions)], error_code=0)]
        return OffsetFetchResponse(throttle_time_ms=0, groups=groups)

    def run(self):
        """What is known to be offloaded in the round."""

        async def scene():
            clock = ManualClock()
            turns = Turns(asyncio.get_running_loop(), clock)
            await RetentionRounds(self.replicas, self, self.metadata, self, turns, clock).run()

        asyncio.run(scene())
        (begun, *consulted, applied) = self.retention.told
        assert begun[2] == [TP, SECOND, FOLLOWED, PLAIN]
        assert consulted == [("consult", each) for each in begun[2]]
        assert applied == ("apply",)
        return begun[1]


@pytest.mark.parametrize("coordinator", [HERE, ELSEWHERE])
def test_the_coordinator_is_asked_about_what_is_led_here_and_waits(coordinator):
    scene = Scene(coordinator, {TP: (7, NOTE), SECOND: (9, NOTE)})
    assert scene.run() == {TP: 7, SECOND: 9}
    at = HERE if coordinator == HERE else Endpoint("h", 1)
    assert scene.asked == [(at, GROUP, [TP, SECOND])]


@pytest.mark.parametrize("coordinator", [HERE, ELSEWHERE])
def test_an_offset_that_does_not_name_this_topic_is_none_of_its_offload(coordinator, caplog):
    former = OffloadNote(FORMER, "table /x").to_metadata()
    assert Scene(coordinator, {TP: (7, former), SECOND: (9, "")}).run() == {}
    assert f"counts for nothing: its metadata does not name topic id {ID}" in caplog.text


def test_what_is_answered_of_a_topic_that_was_made_again_meanwhile_is_none_of_its_offload():
    scene = Scene(ELSEWHERE, {TP: (7, NOTE), SECOND: (9, NOTE)})
    answer = scene.request

    async def meanwhile(*asked, **timeout):
        scene.replicas.served[1] = SimpleNamespace(tp=SECOND, config=WAITS, is_leader=True, topic_id=UUID(int=3))
        return await answer(*asked, **timeout)

    scene.request = meanwhile
    assert scene.run() == {TP: 7}


@pytest.mark.parametrize(
    ("coordinator", "answer"),
    [(HERE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (ELSEWHERE, ConnectionFailed("it is away")), (0, {})],
)
def test_without_an_answer_nothing_is_known(coordinator, answer, caplog):
    assert Scene(coordinator, answer).run() == {}
    assert "what is offloaded is not known now: group 'sparklog-offload.t'" in caplog.text


def test_without_any_group_there_is_nobody_to_ask(caplog):
    assert Scene(None, {}).run() == {}
    assert caplog.text == ""
