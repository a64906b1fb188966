"""What is known of leaders: the newest epoch wins, whoever tells it."""

from uuid import UUID

from sparklog.client.cluster_info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.client.leaders import Leaders
from sparklog.errors import ErrorCode
from sparklog.structs import Endpoint, TopicPartition

_TP = TopicPartition("t", 0)
_BROKERS = {1: Endpoint("one", 1), 2: Endpoint("two", 2)}


def _answer(leader, epoch, topic_id=1, **changes):
    topic = TopicInfo("t", UUID(int=topic_id), False, (PartitionInfo(0, leader, epoch, (1, 2), (1, 2)),))
    return ClusterInfo("c", 1, _BROKERS, {"t": topic}, {})._replace(**changes)


def _knowing(*answers):
    leaders = Leaders()
    for answer in answers:
        leaders.apply(answer)
    return leaders


def test_nothing_is_known_at_first():
    assert _knowing().leader(_TP) is None
    assert _knowing().topic("t") is None


def test_the_newer_epoch_wins_whatever_comes_last():
    assert _knowing(_answer(1, 5), _answer(2, 6)).leader(_TP) == 2
    assert _knowing(_answer(2, 6), _answer(1, 5)).leader(_TP) == 2


def test_what_was_invalidated_is_asked_for_again_but_not_believed_to_be_older():
    leaders = _knowing(_answer(2, 6))
    leaders.invalidate("t")
    assert leaders.leader(_TP) is None
    leaders.apply(_answer(1, 5))
    assert leaders.leader(_TP) == 2


def test_a_topic_that_was_made_anew_starts_over():
    assert _knowing(_answer(2, 6), _answer(1, 0, topic_id=2)).leader(_TP) == 1
    assert _knowing(_answer(2, 6, topic_id=0), _answer(1, 0, topic_id=0)).leader(_TP) == 1


def test_a_topic_that_cannot_be_described_is_known_no_more():
    gone = _answer(1, 5, topics={}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert _knowing(_answer(1, 5), gone).topic("t") is None


def test_a_leader_must_be_a_broker_of_the_cluster():
    assert _knowing(_answer(3, 1)).leader(_TP) is None
    assert _knowing(_answer(-1, 1)).leader(_TP) is None
    assert _knowing(_answer(1, 1)).leader(TopicPartition("t", 1)) is None


def test_the_controller_must_be_one_too():
    assert _knowing(_answer(1, 1)).controller == 1
    assert _knowing(_answer(1, 1, controller=-1)).controller is None
