"""Which replica a reader asks: as long as the leader said, and not one that was no use."""

import pytest

from sparklog.fetch.read_replica import LEADER_ALONE_S, ReadReplicas
from sparklog.structs import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, NEAR = 1, 2
BROKERS = {LEADER, NEAR}


@pytest.fixture
def replicas():
    return ReadReplicas("here", 300.0)


def test_the_leader_is_asked_until_it_names_another(replicas):
    assert replicas.choose(TP, LEADER, BROKERS, 0.0) == LEADER
    replicas.named(TP, NEAR, 1.0)
    assert replicas.choose(TP, LEADER, BROKERS, 2.0) == NEAR
    assert replicas.choose(OTHER, LEADER, BROKERS, 2.0) == LEADER


def test_what_was_named_is_asked_no_longer_than_metadata_lives(replicas):
    replicas.named(TP, NEAR, 1.0)
    assert replicas.choose(TP, LEADER, BROKERS, 301.0) == NEAR
    assert replicas.choose(TP, LEADER, BROKERS, 301.5) == LEADER
    assert not replicas.back_to_leader(TP)


def test_one_that_has_left_the_cluster_is_not_asked_nor_when_it_is_back(replicas):
    replicas.named(TP, NEAR, 1.0)
    assert replicas.choose(TP, LEADER, {LEADER}, 2.0) == LEADER
    assert replicas.choose(TP, LEADER, BROKERS, 3.0) == LEADER


def test_what_a_follower_refuses_is_asked_of_the_leader(replicas):
    replicas.named(TP, NEAR, 1.0)
    assert replicas.back_to_leader(TP)
    assert not replicas.back_to_leader(TP), "the leader's refusal is a verdict"
    assert replicas.choose(TP, LEADER, BROKERS, 2.0) == LEADER
    assert replicas.rack(2.0) == "here"


def test_after_one_failed_the_leader_serves_for_a_while(replicas):
    """Or it would name that one again, for as long as the cluster takes it for alive."""
    replicas.named(TP, NEAR, 1.0)
    assert replicas.failed(TP, 5.0)
    assert replicas.rack(5.0 + LEADER_ALONE_S - 0.1) == ""
    assert replicas.rack(5.0 + LEADER_ALONE_S) == "here"


def test_a_leader_that_fails_changes_nothing(replicas):
    assert not replicas.failed(TP, 5.0)
    assert replicas.rack(5.0) == "here"
