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
from sparklog.structs import NO_EPOCH, OFFSETS_TOPIC, Endpoint, OffsetAndEpoch, TopicPartition
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


EPOCHS = [(0, 0), (1, 30), (4, 50)]
"""Which leader epochs the logs know, and where they begin: what 2 and 3 had from 30 or beyond on was cut off."""


def served(tp, config, topic_id=ID, *, is_leader=True, leader_epoch=4):
    """A partition of 100 records."""

    def end_offset_for_epoch(epoch):
        (latest, _), ends = EPOCHS[-1], [*(start for _, start in EPOCHS[1:]), 100]
        found = [OffsetAndEpoch(end, known) for (known, _), end in zip(EPOCHS, ends, strict=True) if known <= epoch]
        return found[-1] if epoch <= latest else None

    return SimpleNamespace(
        tp=tp,
        config=config,
        is_leader=is_leader,
        topic_id=topic_id,
        leader_epoch=leader_epoch,
        end_offset_for_epoch=end_offset_for_epoch,
    )


class Scene:
    """A broker of four partitions of one topic; the group is coordinated by ``coordinator``, of whom ``answer`` is."""

    def __init__(self, coordinator, answer, epoch=NO_EPOCH):
        self._epoch = epoch
        self.retention, self.asked = Retention(), []
        self.replicas = SimpleNamespace(
            broker_id=HERE,
            retention=self.retention,
            served=[
                served(TP, WAITS),
                served(SECOND, TopicConfig(retention_policies=("offload",))),
                served(FOLLOWED, WAITS, is_leader=False),
                served(PLAIN, TopicConfig()),
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
        offsets = {
            tp: SimpleNamespace(offset=at, leader_epoch=self._epoch, metadata=text)
            for tp, (at, text) in self._answer.items()
        }
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
                committed_leader_epoch=self._epoch,
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


@pytest.mark.parametrize("coordinator", [HERE, ELSEWHERE])
@pytest.mark.parametrize(("epoch", "counts"), [(NO_EPOCH, 70), (4, 70), (3, 50), (1, 50), (0, 30)])
def test_a_log_that_was_cut_off_and_has_grown_again_is_offloaded_up_to_where_it_was_cut(coordinator, epoch, counts):
    """Beyond that it has other records than the place."""
    assert Scene(coordinator, {TP: (70, NOTE), SECOND: (9, NOTE)}, epoch).run() == {TP: counts, SECOND: 9}


@pytest.mark.parametrize("coordinator", [HERE, ELSEWHERE])
def test_nothing_counts_of_an_epoch_that_the_broker_does_not_know_yet(coordinator):
    """Another has led since, and this one does not know what it has in common with that."""
    assert Scene(coordinator, {TP: (7, NOTE), SECOND: (9, NOTE)}, 5).run() == {}


def test_what_is_answered_while_another_leader_epoch_begins_counts_for_nothing():
    scene = Scene(ELSEWHERE, {TP: (7, NOTE), SECOND: (9, NOTE)})
    answer = scene.request

    async def meanwhile(*asked, **timeout):
        scene.replicas.served[1].leader_epoch += 2
        return await answer(*asked, **timeout)

    scene.request = meanwhile
    assert scene.run() == {TP: 7}


def test_what_is_answered_of_a_topic_that_was_made_again_meanwhile_is_none_of_its_offload():
    scene = Scene(ELSEWHERE, {TP: (7, NOTE), SECOND: (9, NOTE)})
    answer = scene.request

    async def meanwhile(*asked, **timeout):
        scene.replicas.served[1] = served(SECOND, WAITS, UUID(int=3))
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
