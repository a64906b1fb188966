"""Static members, as librdkafka plays them: who restarts in time disturbs nobody, and an instance id has one holder."""

from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

PARTITIONS = 4


class StaticMember:
    """A consumer with an instance id. ``assigned`` holds the partitions of each assignment that it was given.

    Closing it does not leave the group: that is what its instance id is for.
    """

    def __init__(self, bootstrap, topic, instance_id):
        self.assigned = []
        self.error = None
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "group.instance.id": instance_id,
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 200,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, _, partitions):
        self.assigned.append(sorted(each.partition for each in partitions))

    def poll(self):
        try:
            message = self.consumer.poll(0.05)
        except KafkaException as error:
            self.error = error.args[0]
            return
        if message is not None and message.error() is not None:
            self.error = message.error()


@pytest.fixture
def join():
    with ExitStack() as stack:

        def make(bootstrap, topic, instance_id):
            member = StaticMember(bootstrap, topic, instance_id)
            stack.callback(member.consumer.close)
            return member

        yield make


def poll_until(members, condition, what):
    def look():
        for each in members:
            each.poll()
        return condition()

    eventually(look, 60, what)


def share(members):
    """All partitions, each with one member, and none without."""
    owned = [each.assigned[-1] if each.assigned else [] for each in members]
    return all(owned) and sorted(number for each in owned for number in each) == list(range(PARTITIONS))


def described(bootstrap, group):
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([group], request_timeout=20)[group].result(20)


@pytest.mark.parametrize("who", [0, 1])
def test_a_restart_causes_no_rebalance(bootstrap, make_topic, topic, join, who):
    make_topic(partitions=PARTITIONS)
    members = [join(bootstrap, topic, each) for each in ("a", "b")]
    poll_until(members, lambda: share(members), "two partitions each")
    before = [each.assigned[-1] for each in members]
    stays, rebalances = members[1 - who], len(members[1 - who].assigned)
    members[who].consumer.close()
    again = join(bootstrap, topic, "ab"[who])
    poll_until([again, stays], lambda: again.assigned, "the place that it had")
    assert again.assigned == [before[who]]
    assert len(stays.assigned) == rebalances
    group = described(bootstrap, topic)
    assert group.state is ConsumerGroupState.STABLE
    assert sorted(each.group_instance_id for each in group.members) == ["a", "b"]


def test_a_second_holder_fences_the_first(bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    first = join(bootstrap, topic, "a")
    poll_until([first], lambda: share([first]), "all partitions")
    second = join(bootstrap, topic, "a")
    poll_until([first, second], lambda: share([second]) and first.error, "the second in the place of the first")
    assert first.error.code() == KafkaError._FATAL
    assert "fenced" in first.error.str()
    assert second.error is None


def test_a_broker_that_restarts_knows_them_again(chroot, tmp_path, join):
    with BrokerHarness(tmp_path, chroot) as broker:
        with wire.connect(broker.address) as connection:
            error, message = wire.create_topic(connection, "t", PARTITIONS, {})
            assert error is ErrorCode.NONE, message
        members = [join(broker.address, "t", each) for each in ("a", "b")]
        poll_until(members, lambda: share(members), "two partitions each")
        before, rebalances = members[0].assigned[-1], len(members[1].assigned)
        ids = {each.group_instance_id: each.member_id for each in described(broker.address, "t").members}
        members[0].consumer.close()
        broker.restart()
        again = join(broker.address, "t", "a")
        poll_until([again, members[1]], lambda: again.assigned, "the place that it had")
        assert again.assigned == [before]
        assert len(members[1].assigned) == rebalances
        now = {each.group_instance_id: each.member_id for each in described(broker.address, "t").members}
        assert (now["b"], now.keys()) == (ids["b"], ids.keys())
        assert now["a"] != ids["a"]
        for each in (again, members[1]):
            each.consumer.close()
