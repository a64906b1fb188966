"""What a controller knows, as it is told."""

from types import SimpleNamespace

from metrics.pages import collected

from sparklog.controller.context import ControllerContext
from sparklog.controller.elections import Elections
from sparklog.metrics.collectors.controller import ControllerCollector
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

NAME = "kafka_controller_kafkacontroller_"


def told(context):
    page = collected(ControllerCollector(SimpleNamespace(context=context, elections=Elections())))
    return {name.removeprefix(NAME): page.value(name) for name in page.names if name.startswith(NAME)}


def test_partitions_without_a_live_leader_and_those_led_by_others_than_their_first():
    context = ControllerContext(1, 1)
    context.brokers = {each: BrokerInfo(each, Endpoint("h", each)) for each in (1, 2)}
    context.assign(TopicAssignment("t", dict.fromkeys(range(4), (1, 2))))
    context.assign(TopicAssignment("gone", {0: (1, 2)}))
    for tp, leader in (
        (TopicPartition("t", 0), 1),
        (TopicPartition("t", 1), 2),
        (TopicPartition("t", 2), int(NO_LEADER)),
        (TopicPartition("t", 3), 9),
        (TopicPartition("gone", 0), int(NO_LEADER)),
    ):
        context.states[tp] = PartitionState(leader, 0, (1, 2), 1)
    context.deleting.add("gone")
    assert told(context) == {
        "activecontrollercount": 1,
        "activebrokercount": 2,
        "globaltopiccount": 2,
        "globalpartitioncount": 5,
        "offlinepartitionscount": 2,
        "preferredreplicaimbalancecount": 3,
        "topicstodeletecount": 1,
    }


def test_a_broker_that_is_not_the_controller_tells_zeros():
    assert set(told(None).values()) == {0}


def test_a_topic_that_is_made_again_with_fewer_partitions_meanwhile_ends_no_scrape():
    context = ControllerContext(1, 1)
    context.brokers = {1: BrokerInfo(1, Endpoint("h", 1))}
    context.assign(TopicAssignment("t", dict.fromkeys(range(1000), (1,))))
    context.states |= {TopicPartition("t", each): PartitionState(int(NO_LEADER), 0, (1,), 1) for each in range(1000)}
    collector = ControllerCollector(SimpleNamespace(context=context, elections=Elections()))

    class Interrupted:
        def collect(self, page):
            steps = collector.collect(page)
            next(steps)
            context.forget("t")
            context.assign(TopicAssignment("t", {0: (1,)}))
            yield from steps

    assert collected(Interrupted()).value(f"{NAME}offlinepartitionscount") == 500
