"""Topics, members and heartbeats to try the consumer protocol with."""

import itertools
from uuid import UUID, uuid5

from sparklog.group.classic.group import Protocol
from sparklog.group.classic.requests import JoinRequest
from sparklog.group.consumer.assignment import TopicIdPartition
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.machine import ConsumerMachine, ConsumerSettings
from sparklog.group.consumer.requests import ConsumerHeartbeat
from sparklog.group.consumer.topics import TopicDescription, matching
from sparklog.protocol.wire import WireWriter
from sparklog.testing.steps import finish

NAMESPACE = UUID(int=42)


class FakeTopics:
    """The cluster's topics, for a test to change."""

    def __init__(self, **counts):
        self.version = 1
        self.described = {}
        self.births = itertools.count()
        for name, count in counts.items():
            self.make(name, count)

    def make(self, name, count):
        """A topic, or more partitions for it."""
        known = self.described.get(name)
        topic_id = known.topic_id if known else uuid5(NAMESPACE, f"{name} {next(self.births)}")
        self.described[name] = TopicDescription(topic_id, name, count)
        self.version += 1

    def delete(self, name):
        self.described.pop(name, None)
        self.version += 1

    def topic(self, name):
        return self.described.get(name)

    def name_of(self, topic_id):
        return next((each.name for each in self.described.values() if each.topic_id == topic_id), None)

    def matching(self, regex):
        return matching(regex, self.described)

    async def look_up(self, regexes):
        pass

    def tips(self, name, *numbers):
        return frozenset(TopicIdPartition(self.described[name].topic_id, number) for number in numbers)


def subscription(topics, owned=(), version=1):
    """As a classic consumer says it; ``owned`` are (topic, partition)."""
    said = WireWriter()
    said.int16(version)
    said.array_length(len(topics))
    for name in sorted(topics):
        said.string(name)
    said.int32(-1)
    if version >= 1:
        said.array_length(len(owned))
        for name, number in sorted(owned):
            said.string(name)
            said.array_length(1)
            said.int32(number)
    return b"".join(said.chunks())


def join_request(member_id="", topics=("t",), owned=(), **fields):
    """A classic consumer's JoinGroup."""
    protocols = (Protocol("cooperative-sticky", subscription(topics, owned)),)
    return JoinRequest(member_id, None, "c", "/h", 10_000, 60_000, "consumer", protocols)._replace(**fields)


def machine(**settings):
    ids = itertools.count(1)
    return ConsumerMachine(ConsumerSettings(**settings), lambda: f"m{next(ids)}")


class Play:
    """A group, its topics, and members that say what a client would."""

    def __init__(self, topics=None, **settings):
        self.topics = topics or FakeTopics(t=6)
        self.machine = machine(**settings)
        self.group = ConsumerGroup("g")

    def beat(self, member_id="", epoch=0, **said):
        """One heartbeat, taken over; the answer."""
        if epoch == 0:
            said = {"rebalance_timeout_ms": 60_000, "topics": frozenset({"t"}), "owned": frozenset(), **said}
        request = ConsumerHeartbeat("g", member_id, epoch, "c", "/h", **said)
        self.machine.check(request)
        act = self.machine.leave if request.leaves else self.machine.heartbeat
        decision = finish(act(self.group, request, self.topics))
        self.group = decision.group
        return decision.answer

    def again(self, member_id, **said):
        """A heartbeat of a member that knows its epoch."""
        return self.beat(member_id, self.member(member_id).epoch, **said)

    def member(self, member_id):
        return self.group.members[member_id]

    def settle(self):
        """Everybody does as told, until all is as it shall be."""
        for _ in range(20):
            for member_id in [*self.group.members]:
                self.again(member_id, owned=self.member(member_id).assigned)
            if self.group.state.value == "Stable":
                return
        raise AssertionError(f"it does not converge: {self.group}")
