"""Rates between two samples that are given."""

from uuid import UUID

import pytest
from cli.doctor.clusters import cluster, partition

from sparklog.cli.top.sample import Sample
from sparklog.cli.top.view import SORTS, BrokerRow, GroupRow, TopicRow, compare, sorted_rows
from sparklog.client.admin.log_dirs import LogDir
from sparklog.structs import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TOPICS = {"a": [partition(0, 0, [0, 1]), partition(1, 1, [1, 0])], "b": [partition(0, 1, [1])], "__b": []}


def sample(at_s, ends, sizes, committed):
    directories = {broker: [LogDir("/d", None, 1000, 400, each)] for broker, each in sizes.items()}
    found = cluster(TOPICS, live=(0, 1), internal=["__b"])
    return Sample(at_s, found, ends, directories, dict.fromkeys(committed, "Stable"), committed)


@pytest.fixture
def view():
    before = sample(10, {A0: 100, A1: 50, B0: 7}, {0: {A0: 1000}, 1: {A0: 1000, B0: 70}}, {"g": {A0: 90, A1: 50}})
    after = sample(
        12, {A0: 300, A1: 60, B0: 7}, {0: {A0: 3000}, 1: {A0: 2900, B0: 70}}, {"g": {A0: 190, A1: 60}, "new": {B0: 3}}
    )
    return compare(before, after)


def test_brokers(view):
    assert view.seconds == 2
    assert view.brokers == [
        BrokerRow(0, "up", 1, 2, 100.0, 1000.0, 3000, 60.0),
        BrokerRow(1, "up", 2, 3, 5.0, 950.0, 2970, 60.0),
    ]


def test_topics(view):
    assert view.topics == [TopicRow("a", 2, 105.0, 1950.0, 55.0, 5900), TopicRow("b", 1, 0.0, 0.0, 0.0, 70)]


def test_groups(view):
    assert view.groups == [GroupRow("g", "Stable", 55.0, 110, 50.0), GroupRow("new", "Stable", 0.0, 4, 0.0)]


def test_brokers_that_are_gone_or_silent_are_rows_too_and_so_is_a_group_without_a_coordinator():
    there = sample(0, {}, {0: {A0: 5}, 1: {B0: 7}}, {"g": {A0: 90}})
    alone = cluster(TOPICS, live=(0,), internal=["__b"])
    after = there._replace(at_s=1, cluster=alone, directories={0: there.directories[0]}, committed={})
    found = compare(there, after)
    assert [(each.broker, each.state, each.replicas, each.bytes) for each in found.brokers] == [
        (0, "up", 2, 5),
        (1, "gone", 3, None),
    ]
    assert found.groups == [GroupRow("g", "Stable", None, None, None)]
    assert sorted_rows([*found.groups, GroupRow("h", "", 1.0, 1, 1.0)], "lag")[0].group == "h"
    silent = compare(there, after._replace(cluster=there.cluster, silent={1}))
    assert [(each.broker, each.state, each.bytes_per_s) for each in silent.brokers] == [
        (0, "up", 0),
        (1, "silent", None),
    ]


def test_internal_topics_are_shown_when_asked_for():
    empty = sample(0, {}, {}, {})
    assert [each.topic for each in compare(empty, empty, internal=True).topics] == ["__b", "a", "b"]


def test_what_shrinks_is_not_written():
    before, after = (sample(at, {A0: end}, {0: {A0: end}}, {"g": {A0: end}}) for at, end in ((0, 100), (1, 5)))
    found = compare(before, after)
    assert (found.brokers[0].records_per_s, found.brokers[0].bytes_per_s, found.groups[0].read_per_s) == (0, 0, 0)


def test_a_partition_that_could_not_be_asked_has_no_rate_and_a_new_topic_has():
    before, after = sample(0, {}, {}, {}), sample(1, {A0: 500, B0: 7}, {}, {})
    assert [each.records_per_s for each in compare(before, after).topics] == [0, 0]
    unknown = before._replace(cluster=cluster({"a": TOPICS["a"]}))
    assert [each.records_per_s for each in compare(unknown, after).topics] == [0, 7]


@pytest.mark.parametrize("sort", SORTS)
def test_the_highest_come_first_and_equal_ones_by_name(sort):
    rows = [TopicRow("c", 1, 1, 1, 1, 1), TopicRow("b", 1, 2, 2, 2, 2), TopicRow("a", 1, 1, 1, 1, 1)]
    assert [each.topic for each in sorted_rows(rows, sort)] == (["a", "b", "c"] if sort == "name" else ["b", "a", "c"])
    groups = [GroupRow("c", "", 1, 1, 1), GroupRow("b", "", 2, 2, 2), GroupRow("a", "", 1, 1, 1)]
    assert [each.group for each in sorted_rows(groups, sort)] == (
        ["a", "b", "c"] if sort == "name" else ["b", "a", "c"]
    )
    assert sorted_rows([], sort) == []


def test_what_could_not_be_asked_the_last_time_has_not_come_since():
    """A broker that was silent tells of all its bytes, and a leader that was away of all that a group lags."""
    before = sample(0, {A0: 100}, {0: {A0: 1000}}, {"g": {A0: 90, A1: 40}})
    after = sample(1, {A0: 100, A1: 9000}, {0: {A0: 1000}, 1: {A0: 5000, A1: 5000}}, {"g": {A0: 90, A1: 40}})
    found = compare(before, after)
    topic = found.topics[0]
    assert (topic.records_per_s, topic.bytes_per_s, topic.bytes) == (0, 0, 11000)
    assert found.groups == [GroupRow("g", "Stable", 0, 8970, 0)]


def test_a_topic_that_was_made_again_has_come_with_all_that_it_has():
    before = sample(0, {A0: 100, B0: 7}, {0: {A0: 1000}}, {"g": {A0: 90}})
    after = sample(1, {A0: 150, B0: 7}, {0: {A0: 1200}}, {"g": {A0: 95}})
    made = {name: each._replace(topic_id=UUID(int=1)) for name, each in before.cluster.topics.items()}
    again = {**made, "a": made["a"]._replace(topic_id=UUID(int=2))}
    former, present = (
        each._replace(cluster=each.cluster._replace(topics=topics)) for each, topics in ((before, made), (after, again))
    )
    assert [each.records_per_s for each in compare(former, present).topics] == [150, 0]
    assert compare(former, present).topics[0].bytes_per_s == 1200
    assert [each.records_per_s for each in compare(former, after).topics] == [50, 0], "where no id is told"
