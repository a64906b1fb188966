"""What an OffsetFetch of many topics asks of others, and how much of it in one step."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.apis.groups import offset_fetch
from sparklog.broker.context import ApiRequest
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import CommittedOffset
from sparklog.net.turns import Turns
from sparklog.protocol.messages import OffsetFetchRequest
from sparklog.protocol.slices import SLICE
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.authorizer import ListedRights
from sparklog.testing.steps import watched

NAMES = [f"t{number}" for number in range(4 * SLICE)]
PARTITIONS = [TopicPartition(name, 0) for name in NAMES]
MAY = ("DESCRIBE group g", "DESCRIBE topic t0")


class Groups:
    """One group, which has committed 7 everywhere."""

    def __init__(self, rights):
        self._rights = rights
        self.asked_at = []

    def fetch_offsets(self, group_id, partitions, member_id, epoch):
        self.asked_at.append(len(self._rights.questions))
        offset = CommittedOffset(7, -1, "", 1)
        return ErrorCode.NONE, dict.fromkeys(PARTITIONS if partitions is None else partitions, offset)

    def unstable_offsets(self, group_id, partitions):
        self.asked_at.append(len(self._rights.questions))
        return set()


def request_of(version, names):
    message = OffsetFetchRequest
    if version >= 8:
        asked = message.OffsetFetchRequestGroup
        topics = names and [asked.OffsetFetchRequestTopics(name=each, partition_indexes=[0]) for each in names]
        groups = [asked(group_id="g", member_id=None, member_epoch=-1, topics=topics)]
        return message(groups=groups, require_stable=True)
    topics = names and [message.OffsetFetchRequestTopic(name=each, partition_indexes=[0]) for each in names]
    return message(group_id="g", topics=topics, require_stable=True)


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("names", [NAMES, None], ids=["named", "all"])
def test_a_slice_is_asked_a_step_whether_it_may_be_described(version, names):
    rights = ListedRights(*MAY)
    groups, seen = Groups(rights), [0]
    broker = SimpleNamespace(authorizer=rights, groups=groups)
    request = ApiRequest(offset_fetch.API, version, "me", Caller("h"), request_of(version, names))
    steps = offset_fetch.handle(broker, request)
    answer: Any = watched(steps, lambda: seen.append(len(rights.questions)))
    assert all(now <= before + SLICE + 1 for before, now in pairwise(seen))
    assert len(rights.questions) == len(NAMES) + 1
    assert len(set(groups.asked_at)) == 1, "offsets are stable as of when they are looked up"
    (topics,) = (answer.groups[0].topics,) if version >= 8 else (answer.topics,)
    told = {topic.name: (each.committed_offset, each.error_code) for topic in topics for each in topic.partitions}
    refused = {} if names is None else dict.fromkeys(NAMES, (-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert told == refused | {"t0": (7, ErrorCode.NONE)}


def test_version_0_pauses_while_it_asks(monkeypatch):
    rights, held = ListedRights(*MAY), []

    class Counting(Turns):
        async def paced(self, items):
            async for each in super().paced(items):
                held.append(len(rights.questions))
                yield each

    async def stored(broker, group_id, partitions):
        return dict.fromkeys(partitions, 7), {}

    async def ask():
        monkeypatch.setattr(offset_fetch, "stored_offsets", stored)
        metadata = SimpleNamespace(topic=lambda name: SimpleNamespace(partitions={0}))
        broker = SimpleNamespace(authorizer=rights, turns=Counting(asyncio.get_running_loop()), metadata=metadata)
        request = ApiRequest(offset_fetch.API, 0, "me", Caller("h"), request_of(0, NAMES))
        try:
            next(offset_fetch.handle(broker, request))
        except StopIteration as end:
            return await end.value

    answer = asyncio.run(ask())
    assert held == [*range(1, len(NAMES) + 1)], "each is asked about when its turn has come"
    told = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert told == dict.fromkeys(NAMES, ErrorCode.TOPIC_AUTHORIZATION_FAILED) | {"t0": ErrorCode.NONE}
