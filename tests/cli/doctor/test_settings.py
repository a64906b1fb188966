"""Settings by which records may be lost."""

from cli.doctor.clusters import cluster, partition

from sparklog.cli.doctor.settings import setting_findings
from sparklog.client.admin.reassignments import PartitionReassignment
from sparklog.structs import TopicPartition


def told(topics, min_isr, unclean=None, **more):
    found = cluster({name: [partition(0, each[0], each)] for name, each in topics.items()}, **more)
    return [(each.where, each.advice) for each in setting_findings(found, min_isr, unclean or {}, {})]


def test_three_replicas_of_which_one_may_have_it_all():
    advice = "sparklog topic alter a --config min.insync.replicas=2"
    topics = {"a": [0, 1, 2], "b": [0, 1, 2], "c": [1, 0, 2]}
    assert told(topics, {"a": 1, "b": 2, "c": 1}) == [(("a", "c"), advice)]


def test_the_brokers_own_topics_have_the_settings_that_brokers_give_them():
    assert told({"__offsets": [0, 1, 2]}, {"__offsets": 1}, internal=["__offsets"]) == []


def test_all_replicas_must_have_it():
    ((where, advice),) = told({"a": [0, 1]}, {"a": 2})
    assert where == ("a",)
    assert advice.endswith("sparklog cluster reassign --topic a --replication 3")


def test_more_are_asked_for_than_there_are_replicas():
    lower = "sparklog topic alter a --config min.insync.replicas=1"
    assert told({"a": [0], "b": [0, 1]}, {"a": 2, "b": 3}, live=(0, 1))[0] == (
        ("a", "b"),
        f"{lower}, or sparklog cluster reassign --topic a --replication 2",
    )
    assert told({"a": [0, 1]}, {"a": 3}) == [
        (("a",), f"{lower}, or sparklog cluster reassign --topic a --replication 3")
    ]
    assert told({"a": [0, 1]}, {"a": 3}, live=(0, 1)) == [(("a",), f"{lower}; more replicas need more brokers")]


def test_unclean_leaders():
    assert told({"a": [0, 1]}, {"a": 1}, {"a": "true", "b": "false"}) == [
        (("a",), "sparklog topic alter a --config unclean.leader.election.enable=false")
    ]


def test_one_replica_is_told_of_where_there_could_be_more():
    assert told({"a": [0]}, {"a": 1}, live=(0,)) == []
    assert told({"a": [0]}, {"a": 1}, live=(0, 1)) == [(("a",), "sparklog cluster reassign --topic a --replication 2")]
    assert told({"a": [0]}, {"a": 1}, live=range(5)) == [
        (("a",), "sparklog cluster reassign --topic a --replication 3")
    ]


def test_a_topic_on_the_move_has_the_replicas_that_it_is_to_have():
    found = cluster({"a": [partition(0, 0, [1, 2, 0], [0, 1])]})
    another_place = {TopicPartition("a", 0): PartitionReassignment((1, 2, 0), (2,), (0,))}
    one_more = {TopicPartition("a", 0): PartitionReassignment((1, 2, 0), (2,), ())}
    assert list(setting_findings(found, {"a": 1}, {}, another_place)) == []
    assert [each.where for each in setting_findings(found, {"a": 1}, {}, one_more)] == [("a",)]
