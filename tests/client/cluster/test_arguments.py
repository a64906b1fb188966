"""What programs name instead of a list of names: it is refused before any broker is asked."""

import asyncio
import inspect

import pytest

from sparklog import client
from sparklog.client import AsyncAdmin
from sparklog.client.cluster.arguments import checked_names, checked_partitions
from sparklog.errors import LocalProtocolError
from sparklog.structs import TopicPartition

_TP = TopicPartition("t", 0)


class _NoSession:
    """Fails whoever asks it for anything."""

    def __getattr__(self, name):
        raise AssertionError(f"a broker was to be asked: {name}")


@pytest.fixture
def admin():
    admin = AsyncAdmin(bootstrap_servers="h:1")
    admin.__dict__["_session"] = _NoSession()
    return admin


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.delete_topics("zebra"),
        lambda admin: admin.describe_topics("zebra"),
        lambda admin: admin.create_topics("zebra"),
        lambda admin: admin.create_topics(["zebra"]),
        lambda admin: admin.create_topics({"zebra": 3}),
        lambda admin: admin.create_topics([client.NewTopic(None)]),
        lambda admin: admin.topic_configs(None),
        lambda admin: admin.alter_topic_configs(None, {"retention.ms": "1"}),
        lambda admin: admin.create_partitions("zebra"),
        lambda admin: admin.list_groups(states="Empty"),
        lambda admin: admin.describe_groups("zebra"),
        lambda admin: admin.delete_groups("zebra"),
        lambda admin: admin.list_transactions(states="Ongoing"),
        lambda admin: admin.describe_transactions("zebra"),
        lambda admin: admin.group_offsets("zebra", _TP),
        lambda admin: admin.alter_group_offsets("zebra", {"t": 5}),
        lambda admin: admin.delete_group_offsets("zebra", _TP),
        lambda admin: admin.elect_leaders(_TP),
        lambda admin: admin.list_offsets({"t": 5}),
        lambda admin: admin.delete_records({"t": 5}),
        lambda admin: admin.describe_producers(_TP),
    ],
)
def test_no_call_takes_a_name_apart(admin, call):
    with pytest.raises(LocalProtocolError):
        asyncio.run(call(admin))


def test_the_refusal_says_what_to_write():
    with pytest.raises(LocalProtocolError, match=r"write \['zebra'\]"):
        checked_names("zebra", "topics")
    with pytest.raises(LocalProtocolError, match=r"write \[TopicPartition"):
        checked_partitions(_TP)
    with pytest.raises(LocalProtocolError, match="b'zebra' is no str"):
        checked_names([b"zebra"], "topics")
    with pytest.raises(LocalProtocolError, match="as a list, not as 5"):
        checked_names(5, "topics")
    with pytest.raises(LocalProtocolError, match=r"TopicPartition\(topic, number\), not \('t', 0\)"):
        checked_partitions([("t", 0)])


def test_topics_to_create_are_new_topics(admin):
    with pytest.raises(LocalProtocolError, match=r'NewTopic\("name", partitions=3\)'):
        asyncio.run(admin.create_topics(["zebra"]))


def test_any_collection_will_do():
    assert checked_names(iter(("a", "b")), "topics") == ["a", "b"]
    assert checked_partitions({_TP: 1}) == [_TP]


def test_what_there_is_can_be_found():
    assert {"Admin", "Consumer", "Producer"} <= set(dir(client))
    assert str(inspect.signature(client.Admin.create_topics)).startswith("(self, topics: ")
    assert "NewTopic" in client.Admin.create_topics.__doc__
    assert not inspect.iscoroutinefunction(client.Admin.create_topics)
