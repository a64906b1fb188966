"""What is known of leaders: the newest epoch wins, whoever tells it."""

from uuid import UUID

from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ErrorCode
from sparklog.structs import BrokerId, Endpoint, TopicPartition

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


def test_an_answer_that_could_not_describe_the_topic_leaves_its_epochs():
    failed = _answer(1, 5, topics={}, errors={"t": ErrorCode.LEADER_NOT_AVAILABLE})
    assert _knowing(_answer(2, 6), failed, _answer(1, 5)).leader(_TP) == 2
    assert _knowing(_answer(2, 6), failed, _answer(1, 7)).leader(_TP) == 1
    assert _knowing(_answer(2, 6), failed, _answer(1, 0, topic_id=2)).leader(_TP) == 1


def test_an_answer_without_epochs_leaves_those_that_are_known():
    assert _knowing(_answer(2, 6), _answer(3, -1), _answer(1, 5)).leader(_TP) == 2
    assert _knowing(_answer(2, 6), _answer(3, -1), _answer(1, 6)).leader(_TP) == 1


def test_an_answer_without_topic_ids_leaves_the_epochs_of_the_topic_that_has_one():
    assert _knowing(_answer(2, 6), _answer(1, 5, topic_id=0)).leader(_TP) == 1
    assert _knowing(_answer(2, 6), _answer(1, 5, topic_id=0), _answer(1, 5)).leader(_TP) == 2


def test_an_answer_with_fewer_partitions_leaves_the_epochs_of_the_others():
    leaders = _knowing(_partitions((0, 1, 5), (1, 2, 5)), _partitions((0, 1, 5)), _partitions((0, 1, 5), (1, 1, 4)))
    assert leaders.leader(TopicPartition("t", 1)) == 2


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


def _partitions(*partitions):
    """An answer about ``t``, its partitions as (number, leader, epoch)."""
    described = tuple(PartitionInfo(number, leader, epoch, (1, 2), (1, 2)) for number, leader, epoch in partitions)
    return _answer(1, 1, topics={"t": TopicInfo("t", UUID(int=1), False, described)})


def test_each_partition_is_judged_by_its_own_epoch():
    leaders = _knowing(_partitions((0, 1, 5), (1, 1, 5)), _partitions((0, 2, 4), (1, 2, 6), (2, 2, 0)))
    assert [leaders.leader(TopicPartition("t", number)) for number in range(3)] == [1, 2, 2]


def test_the_same_epoch_and_an_unknown_one_are_taken_and_the_first_one_is_older():
    assert _knowing(_answer(1, 5), _answer(2, 5)).leader(_TP) == 2
    assert _knowing(_answer(1, 5), _answer(2, -1)).leader(_TP) == 2
    assert _knowing(_answer(1, 5), _answer(2, 0)).leader(_TP) == 1


def test_each_answer_is_counted_and_brings_the_cluster():
    leaders = Leaders()
    assert (leaders.generation, leaders.cluster_id, leaders.controller, leaders.brokers) == (0, None, None, {})
    for generation in (1, 2):
        leaders.apply(_answer(1, 5))
        assert leaders.generation == generation
    assert (leaders.cluster_id, leaders.brokers) == ("c", _BROKERS)


def test_what_was_invalidated_is_still_there_for_what_hardly_changes():
    leaders = _knowing(_answer(1, 5))
    known = leaders.topic("t")
    leaders.invalidate("t")
    assert (leaders.topic("t"), leaders.partition(_TP), leaders.last_known("t")) == (None, None, known)
    assert list(leaders.topics) == ["t"]
    leaders.invalidate("other")
    leaders.apply(_answer(1, 5, topics={"other": TopicInfo("other", UUID(int=2), False, ())}))
    assert leaders.topic("other") is not None
    assert leaders.topic("t") is None


def test_what_a_broker_leads_is_invalidated_with_it():
    (partition,) = _answer(2, 5).topics["t"].partitions
    other = TopicInfo("other", UUID(int=2), False, (partition._replace(partition=1), partition._replace(leader=1)))
    leaders = _knowing(_answer(2, 5), _answer(2, 5, topics={"other": other}))
    leaders.invalidate_led_by(BrokerId(1))
    assert (leaders.topic("t") is not None, leaders.topic("other")) == (True, None)
    leaders.invalidate_led_by(BrokerId(2))
    assert leaders.topic("t") is None


def test_a_topic_that_comes_back_is_known_at_once_though_it_was_invalidated_before_it_went():
    gone = _answer(1, 5, topics={}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "never": ErrorCode.NONE})
    leaders = _knowing(_answer(1, 5))
    leaders.invalidate("t")
    leaders.apply(gone)
    assert (leaders.last_known("t"), list(leaders.topics)) == (None, [])
    leaders.invalidate("t")  # nothing is known of it
    leaders.apply(_answer(2, 5))
    assert leaders.leader(_TP) == 2


def test_why_there_is_no_leader():
    assert "'t' does not exist" in _knowing().why_no_leader(_TP)
    leaders = _knowing(_answer(-1, 5))
    assert "no broker leads partition t-0" in leaders.why_no_leader(_TP)
    assert "no broker leads" not in leaders.why_no_leader(TopicPartition("t", 1))
