"""Having ISRs written by a scripted controller: what is asked, how often, and what each answer does."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker.replication.isr_changes import IsrChanges
from sparklog.errors import ErrorCode
from sparklog.net.peers import Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionResponse
from sparklog.replica.in_sync import Proposal
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.scripted import HangUp, ScriptedCluster
from sparklog.zk.znodes import BrokerInfo

US, OTHER, OUR_EPOCH = 1, 2, 77
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": UUID(int=1), "u": UUID(int=2)}
Topic = AlterPartitionResponse.TopicData


def proposal(*isr, version=3):
    return Proposal(isr, tuple(-1 if each == US else 100 + each for each in isr), 5, version)


class Replicas:
    """Takes note of what it is told. ``proposed`` is what each partition waits for."""

    broker_id = US

    def __init__(self):
        self.proposed, self.told = {}, []

    def proposes(self, tp, proposal):
        return self.proposed.get(tp) == proposal

    def topic_id(self, tp):
        return IDS.get(tp.topic)

    def settle(self, tp, proposal, isr, partition_epoch):
        self._end(tp, proposal, ("settled", tp, isr, partition_epoch))

    def give_up(self, tp, proposal):
        self._end(tp, proposal, ("given up", tp))

    def _end(self, tp, proposal, word):
        assert self.proposed.pop(tp) == proposal
        self.told.append(word)


class Stage:
    def __init__(self, cluster, peers):
        self.cluster = cluster
        self.replicas = Replicas()
        self.epoch = OUR_EPOCH
        brokers = {each.broker_id: BrokerInfo(each.broker_id, each.endpoint) for each in cluster.brokers}
        self.metadata = SimpleNamespace(brokers=brokers, controller_id=0)
        self.changes = IsrChanges(self.replicas, self.metadata, peers, ManualClock(), lambda: self.epoch)
        self._asked, self._answers = asyncio.Queue(), asyncio.Queue()
        for broker in cluster.brokers:
            broker.on[ApiKey.ALTER_PARTITION] = self._answer

    async def _answer(self, asked):
        self._asked.put_nowait(asked)
        answer = await self._answers.get()
        if answer is HangUp:
            raise HangUp
        return answer

    def propose(self, tp, proposal):
        self.replicas.proposed[tp] = proposal
        self.changes.propose(tp, proposal)

    async def asked(self):
        return (await self._asked.get()).message

    def tell(self, **told):
        """A code for each partition, or its ISR, by topic and number as in ``t0``."""
        topics = []
        for name, word in told.items():
            code = word if isinstance(word, ErrorCode) else ErrorCode.NONE
            isr = [] if code else list(word)
            each = Topic.PartitionData(
                partition_index=int(name[1:]),
                error_code=code,
                leader_id=US,
                leader_epoch=5,
                isr=isr,
                leader_recovery_state=0,
                partition_epoch=4,
            )
            topics.append(Topic(topic_id=IDS[name[0]], partitions=[each]))
        self._answers.put_nowait(AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics))

    def refuse(self, code):
        self._answers.put_nowait(AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[]))

    def hang_up(self):
        self._answers.put_nowait(HangUp)

    async def until(self, condition):
        while not condition():
            await asyncio.sleep(0.005)

    async def is_silent(self):
        """Whether nothing is asked in more turns than a loop over what is left would need, and a pause."""
        await asyncio.sleep(0.15)
        return self._asked.empty()


@asynccontextmanager
async def on_stage(brokers=1):
    async with asyncio.timeout(60), ScriptedCluster(brokers) as cluster:
        peers = Peers("us")
        stage = Stage(cluster, peers)
        try:
            yield stage
        finally:
            await stage.changes.close()
            await peers.close()


def run(test):
    asyncio.run(test())


def members(message):
    """By partition: the brokers of the ISR asked for, and their epochs."""
    return {
        (topic.topic_id, each.partition_index): [(m.broker_id, m.broker_epoch) for m in each.new_isr_with_epochs]
        for topic in message.topics
        for each in topic.partitions
    }


def test_a_proposal_is_written_and_settled():
    async def test():
        async with on_stage() as stage:
            stage.propose(T0, proposal(US, OTHER))
            asked = await stage.asked()
            assert (asked.broker_id, asked.broker_epoch) == (US, OUR_EPOCH)
            assert members(asked) == {(IDS["t"], 0): [(US, OUR_EPOCH), (OTHER, 102)]}
            (partition,) = asked.topics[0].partitions
            assert (partition.leader_epoch, partition.partition_epoch) == (5, 3)
            stage.tell(t0=(US, OTHER))
            await stage.until(lambda: stage.replicas.told)
            assert stage.replicas.told == [("settled", T0, (US, OTHER), 4)]
            assert await stage.is_silent()

    run(test)


def test_what_is_proposed_while_one_is_asked_goes_with_the_next_together():
    async def test():
        async with on_stage() as stage:
            stage.propose(T0, proposal(US))
            await stage.asked()
            stage.propose(T1, proposal(US))
            stage.propose(U0, proposal(US, OTHER))
            stage.tell(t0=(US,))
            asked = await stage.asked()
            assert members(asked).keys() == {(IDS["t"], 1), (IDS["u"], 0)}
            stage.tell(t1=(US,), u0=(US, OTHER))
            await stage.until(lambda: len(stage.replicas.told) == 3)
            assert len(stage.cluster.asked(ApiKey.ALTER_PARTITION)) == 2

    run(test)


@pytest.mark.parametrize(
    "code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_REQUEST]
)
def test_what_will_never_be_written_is_given_up(code):
    async def test():
        async with on_stage() as stage:
            stage.propose(T0, proposal(US, OTHER))
            stage.propose(T1, proposal(US))
            await stage.asked()
            stage.tell(t0=code, t1=(US,))
            await stage.until(lambda: len(stage.replicas.told) == 2)
            assert stage.replicas.told == [("given up", T0), ("settled", T1, (US,), 4)]
            assert await stage.is_silent()

    run(test)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_may_have_been_written_is_asked_again_until_it_is_known_or_proposed_no_more(code):
    async def test():
        async with on_stage() as stage:
            stage.propose(T0, proposal(US, OTHER))
            stage.propose(T1, proposal(US))
            await stage.asked()
            stage.tell(t0=code, t1=(US,))
            assert members(await stage.asked()).keys() == {(IDS["t"], 0)}
            assert stage.replicas.told == [("settled", T1, (US,), 4)], "the other goes on counting on both"
            stage.replicas.proposed.clear()  # the controller has decided anew
            stage.tell(t0=code)
            assert await stage.is_silent()
            assert len(stage.replicas.told) == 1

    run(test)


@pytest.mark.parametrize("word", [(US,), ErrorCode.INELIGIBLE_REPLICA], ids=["written", "never"])
def test_an_answer_about_a_topic_that_was_made_anew_meanwhile_counts_for_nothing(monkeypatch, word):
    """The new one may have proposed the same: every topic begins with the same epochs."""

    async def test():
        async with on_stage() as stage:
            stage.propose(T0, proposal(US))
            former = members(await stage.asked())
            stage.tell(t0=word)
            monkeypatch.setitem(IDS, "t", UUID(int=9))
            again = members(await stage.asked())
            assert (former.keys(), again.keys()) == ({(UUID(int=1), 0)}, {(UUID(int=9), 0)})
            assert not stage.replicas.told
            stage.tell(t0=(US,))
            await stage.until(lambda: stage.replicas.told)

    run(test)


@pytest.mark.parametrize("how", ["hang up", "refuse", "leave out"])
def test_an_answer_that_is_lost_is_asked_for_again(how):
    async def test():
        async with on_stage() as stage:
            stage.propose(T0, proposal(US, OTHER))
            first = await stage.asked()
            if how == "hang up":
                stage.hang_up()
            elif how == "refuse":
                stage.refuse(ErrorCode.STALE_BROKER_EPOCH)
            else:
                stage.tell()
            assert members(await stage.asked()) == members(first)
            assert not stage.replicas.told
            stage.tell(t0=(US, OTHER))
            await stage.until(lambda: stage.replicas.told)

    run(test)


def test_the_next_controller_is_asked_as_soon_as_it_is_known():
    async def test():
        async with on_stage(2) as stage:
            stage.propose(T0, proposal(US, OTHER))
            await stage.asked()
            stage.metadata.controller_id = 1
            stage.refuse(ErrorCode.NOT_CONTROLLER)
            await stage.asked()
            assert [each.broker for each in stage.cluster.asked(ApiKey.ALTER_PARTITION)] == [0, 1]

    run(test)


@pytest.mark.parametrize("lacking", ["a controller", "a registration"])
def test_while_there_is_no_controller_or_registration_it_is_waited(lacking):
    async def test():
        async with on_stage() as stage:
            if lacking == "a controller":
                stage.metadata.controller_id = -1
            else:
                stage.epoch = None
            stage.propose(T0, proposal(US, OTHER))
            assert await stage.is_silent()
            stage.metadata.controller_id, stage.epoch = 0, 78
            asked = await stage.asked()
            assert members(asked)[IDS["t"], 0][0] == (US, 78)

    run(test)


def test_a_newer_proposal_takes_an_older_ones_place_and_its_answer_counts_for_nothing():
    async def test():
        async with on_stage() as stage:
            stage.propose(T0, proposal(US, OTHER))
            await stage.asked()
            stage.propose(T0, proposal(US, version=9))
            stage.replicas.settle = lambda tp, each, *_: stage.replicas.told.append((tp, each))
            stage.tell(t0=(US, OTHER))
            asked = await stage.asked()
            assert asked.topics[0].partitions[0].partition_epoch == 9
            assert stage.replicas.told == [(T0, proposal(US, OTHER))], "the partition knows that it waits for another"

    run(test)


def test_a_partition_whose_topic_has_no_id_is_given_up_for_it_cannot_be_asked_for():
    """It waits for the answer else, and proposes nothing any more."""

    async def test():
        async with on_stage() as stage:
            nameless = TopicPartition("no id", 0)
            stage.propose(nameless, proposal(US, OTHER))
            stage.propose(T0, proposal(US))
            assert members(await stage.asked()).keys() == {(IDS["t"], 0)}
            assert stage.replicas.told == [("given up", nameless)]

    run(test)


def test_a_controller_that_is_not_there_is_tried_again():
    async def test():
        async with on_stage() as stage:
            there = stage.metadata.brokers[0]
            async with ScriptedCluster() as closed:
                gone = closed.brokers[0].endpoint
            stage.metadata.brokers[0] = BrokerInfo(0, Endpoint(*gone))
            stage.propose(T0, proposal(US))
            assert await stage.is_silent()
            stage.metadata.brokers[0] = there
            await stage.asked()

    run(test)
