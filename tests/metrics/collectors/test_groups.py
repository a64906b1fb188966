"""Groups and their lag, of groups as a coordinator hosts them."""

from types import SimpleNamespace

from metrics.pages import collected

from sparklog.group.classic.group import CommittedOffset, Group, GroupState
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.hosted import Hosted, LedPartition
from sparklog.metrics.collectors.groups import GroupCollector
from sparklog.structs import TopicPartition

LED = LedPartition(0)
MANAGER = "kafka_coordinator_group_groupmetadatamanager_"


def hosted(name, offsets, *, consumer=None):
    group = Group(name)
    group.offsets.update({TopicPartition(*tp): CommittedOffset(offset, -1, "", 0) for tp, offset in offsets.items()})
    return Hosted(group, LED, consumer)


class Ends:
    """Those of a test."""

    def __init__(self, **ends):
        self.ends = ends

    def end(self, tp):
        return self.ends.get(tp.topic)

    def behind_s(self, tp, offset, end):
        return 2.5

    def bytes_behind(self, group, tp, offset, end):
        return None if group == "unknown" else 100 * (end - offset)


def page_of(*groups, most=100, **ends):
    return collected(GroupCollector(SimpleNamespace(each=lambda: iter(groups)), Ends(**ends), most))


def of(page, name):
    return {tuple(sorted(dict(labels).items())): value for labels, value in page.of(name).items()}


def test_lag_is_the_way_from_the_offset_to_the_end():
    page = page_of(hosted("g", {("t", 0): 7, ("u", 3): 40}), t=10, u=40)
    labels = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert page.value("kafka_consumergroup_lag", **labels) == 3
    assert page.value("kafka_consumergroup_current_offset", **labels) == 7
    assert page.value("sparklog_group_lag_seconds", **labels) == 2.5
    assert page.value("sparklog_group_lag_bytes", **labels) == 300
    labels |= {"topic": "u", "partition": "3"}
    assert page.value("kafka_consumergroup_lag", **labels) == 0
    assert page.value("sparklog_group_lag_seconds", **labels) == 0
    assert page.value("sparklog_group_lag_bytes", **labels) == 0


def test_bytes_that_are_not_known_are_left_out():
    page = page_of(hosted("unknown", {("t", 0): 7}), t=10)
    assert [*page.of("kafka_consumergroup_lag").values()] == [3]
    assert page.of("sparklog_group_lag_bytes") == {}


def test_a_group_that_is_ahead_of_a_topic_made_anew_lags_by_nothing():
    page = page_of(hosted("g", {("t", 0): 7}), t=2)
    assert [*page.of("kafka_consumergroup_lag").values()] == [0]


def test_where_the_end_is_not_known_the_offset_is_told_and_no_lag():
    page = page_of(hosted("g", {("t", 0): 7}))
    assert [*page.of("kafka_consumergroup_current_offset").values()] == [7]
    assert page.of("kafka_consumergroup_lag") == {}


def test_groups_by_their_states():
    consumer = ConsumerGroup("c")
    page = page_of(hosted("a", {("t", 0): 1}), hosted("b", {}), hosted("c", {("t", 0): 1}, consumer=consumer))
    assert page.value(MANAGER + "numgroups") == 3
    assert page.value(MANAGER + "numoffsets") == 2
    assert page.value(MANAGER + "numgroupsempty") == 2
    assert page.value(MANAGER + "numgroupsstable") == 0
    assert page.value("sparklog_groups", protocol="consumer", state=consumer.state.value) == 1
    assert page.value("sparklog_groups", protocol="classic", state=GroupState.EMPTY.value) == 2
    assert page.value("kafka_consumergroup_members", consumergroup="c") == 0


def test_beyond_the_limit_offsets_count_and_have_no_series():
    groups = [hosted(f"g{number}", {("t", each): 1 for each in range(10)}) for number in range(3)]
    page = page_of(*groups, most=15, t=5)
    for name in ("kafka_consumergroup_current_offset", "kafka_consumergroup_lag"):
        assert len(page.of(name)) == 15
    assert page.value("sparklog_metrics_offsets_left_out") == 15
    assert page.value(MANAGER + "numoffsets") == 30


def test_beyond_the_limit_groups_count_and_have_no_series():
    page = page_of(*(hosted(f"g{number}", {}) for number in range(7)), most=3)
    assert len(page.of("kafka_consumergroup_members")) == 3
    assert page.value(MANAGER + "numgroups") == 7
