"""The topics in which brokers and sinks keep what they know are not lost to a request, unless an operator allows it."""

import pytest

from sparklog.client import Admin, NewTopic
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness

pytestmark = pytest.mark.integration

OFFSETS, DECISIONS = "__consumer_offsets", "__spark_decisions"
TP = TopicPartition("t", 0)
TYPE_TOPIC = 2


@pytest.fixture(params=["true", "false"])
def protects(request):
    return request.param == "true"


@pytest.fixture
def admin(tmp_path, chroot, protects):
    settings = {"sparklog.internal.topics.protect": "true" if protects else "false"}
    with (
        BrokerHarness(tmp_path, chroot, settings=settings) as broker,
        Admin({"bootstrap.servers": broker.address}) as admin,
    ):
        admin.create_topics([NewTopic("t", 1), NewTopic(DECISIONS, 1, 1, {"cleanup.policy": "compact"})])
        admin.alter_group_offsets("g", {TP: 3})
        yield admin


def outcome(act):
    try:
        act()
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def test_what_would_lose_state_is_refused_unless_it_is_allowed(admin, protects):
    refused = ErrorCode.POLICY_VIOLATION if protects else ErrorCode.NONE
    for topic in (OFFSETS, DECISIONS):
        for change in ({"cleanup.policy": "delete"}, {"retention.ms": "1000"}, {"retention.bytes": "1"}):
            assert outcome(lambda at=topic, to=change: admin.alter_topic_configs(at, to)) is refused, (topic, change)
        assert (
            outcome(lambda at=topic: admin.alter_topic_configs(at, {"max.message.bytes": "2000000"})) is ErrorCode.NONE
        )
        assert outcome(lambda at=topic: admin.alter_topic_configs(at, {"cleanup.policy": "compact"})) is ErrorCode.NONE
    assert outcome(lambda: admin.create_partitions({DECISIONS: 2})) is refused
    beginning = {TopicPartition(DECISIONS, 0): 0}
    assert outcome(lambda: admin.delete_records(beginning)) is ErrorCode.POLICY_VIOLATION, "it is compacted"
    assert outcome(lambda: admin.alter_group_offsets("spark-decisions.x", {TP: 1})) is (
        ErrorCode.GROUP_AUTHORIZATION_FAILED if protects else ErrorCode.NONE
    )
    assert outcome(lambda: admin.delete_topics([DECISIONS])) is refused
    assert admin.group_offsets("g")[TP].offset == 3
    assert outcome(lambda: admin.delete_topics([OFFSETS])) is refused
    if protects:
        with pytest.raises(
            ApiError, match=r"so it cannot be deleted; brokers with sparklog\.internal\.topics\.protect=false"
        ):
            admin.delete_topics([OFFSETS])
    assert outcome(lambda: admin.delete_topics(["t"])) is ErrorCode.NONE
