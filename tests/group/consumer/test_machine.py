"""What the machine answers to each heartbeat, step by step."""

import pytest
from group.consumer.samples import FakeTopics, Play

from sparklog.errors import ApiError, ErrorCode

EMPTY = frozenset()
T = frozenset({"t"})


@pytest.fixture
def play():
    return Play()


def refused(play, code, *said, **more):
    before = play.group
    with pytest.raises(ApiError) as refusal:
        play.beat(*said, **more)
    assert refusal.value.code is code
    assert play.group is before
    return refusal.value.reason


def test_the_first_member_gets_everything(play):
    answer = play.beat()
    assert (answer.member_id, answer.epoch, answer.heartbeat_interval_ms) == ("m1", 1, 5000)
    assert answer.assigned == play.topics.tips("t", *range(6))
    assert play.group.state.value == "Stable"


def test_a_second_gets_what_the_first_has_let_go_of_and_not_before(play):
    play.beat()
    assert play.beat().assigned == EMPTY
    assert play.group.state.value == "Reconciling"
    told = play.again("m1")
    assert (told.epoch, len(told.assigned)) == (1, 3), "it stays in its epoch until it has revoked"
    assert play.again("m2").assigned is None
    assert play.again("m1", owned=play.topics.tips("t", *range(6))).epoch == 1
    assert play.again("m1", owned=told.assigned).epoch == 2
    given = play.again("m2")
    assert given.assigned == play.topics.tips("t", *range(6)) - told.assigned
    assert play.group.state.value == "Stable"


def test_the_assignment_is_told_once_and_again_to_who_asks_for_all(play):
    play.beat()
    assert play.again("m1").assigned is None
    everything = {"rebalance_timeout_ms": 9, "topics": T, "owned": EMPTY}
    assert len(play.again("m1", **everything).assigned) == 6


def test_a_lost_answer_is_given_again_and_older_epochs_are_fenced(play):
    play.beat()
    play.beat()
    kept = play.again("m1").assigned
    assert play.again("m1", owned=kept).epoch == 2
    assert play.beat("m1", 1, owned=kept).epoch == 2
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    refused(play, fenced, "m1", 1, owned=play.topics.tips("t", *range(6)))
    refused(play, fenced, "m1", 1)
    refused(play, fenced, "m1", 3)


def test_a_member_that_joins_anew_under_its_id_is_taken_back(play):
    play.beat("mine")
    play.beat("other")
    play.settle()
    epoch = play.member("mine").epoch
    answer = play.beat("mine", 0)
    assert (answer.epoch, len(answer.assigned)) == (epoch, 3)


def test_who_leaves_leaves_its_partitions(play):
    play.beat()
    play.beat()
    play.settle()
    assert play.beat("m1", -1).epoch == -1
    assert play.group.state.value == "Assigning"
    assert len(play.again("m2").assigned) == 6
    refused(play, ErrorCode.UNKNOWN_MEMBER_ID, "m1", -1)
    refused(play, ErrorCode.UNKNOWN_MEMBER_ID, "m1", 2)


def test_a_static_member_that_will_be_back_keeps_its_place(play):
    play.beat(instance_id="i")
    play.beat(instance_id="j")
    play.settle()
    had, epoch = play.member("m1").assigned, play.group.epoch
    assert play.beat("m1", -2, instance_id="i").epoch == -2
    assert play.again("m2").assigned is None
    answer = play.beat("", 0, instance_id="i")
    assert (answer.assigned, play.group.epoch) == (had, epoch)
    assert answer.member_id != "m1"
    assert "m1" not in play.group.members
    refused(play, ErrorCode.FENCED_INSTANCE_ID, "m1", 2, instance_id="i")
    refused(play, ErrorCode.FENCED_INSTANCE_ID, "m1", -1, instance_id="i")


def test_an_instance_id_is_held_until_its_holder_leaves(play):
    play.beat(instance_id="i")
    refused(play, ErrorCode.UNRELEASED_INSTANCE_ID, "", 0, instance_id="i")
    refused(play, ErrorCode.UNKNOWN_MEMBER_ID, "m1", 1, instance_id="j")
    play.beat("m1", -1, instance_id="i")
    assert play.beat("", 0, instance_id="i").epoch == 3


def test_a_full_group_takes_nobody_but_who_has_a_place():
    play = Play(max_size=1)
    play.beat(instance_id="i")
    refused(play, ErrorCode.GROUP_MAX_SIZE_REACHED)
    refused(play, ErrorCode.UNKNOWN_MEMBER_ID, "gone", 3)
    play.beat("m1", -2, instance_id="i")
    assert play.beat("", 0, instance_id="i").error is ErrorCode.NONE


def test_a_member_that_joins_anew_under_its_id_has_a_place_in_a_full_group():
    play = Play(max_size=1)
    play.beat()
    assert play.beat("m1", 0).error is ErrorCode.NONE
    refused(play, ErrorCode.GROUP_MAX_SIZE_REACHED, "m2", 0)


def test_more_partitions_and_new_topics_make_a_new_target(play):
    play.beat(topics=frozenset({"t", "later"}))
    play.topics.make("t", 8)
    assert play.again("m1").assigned == play.topics.tips("t", *range(8))
    play.topics.make("later", 1)
    assert len(play.again("m1").assigned) == 9
    play.topics.make("other", 1)
    epoch = play.group.epoch
    assert play.again("m1").assigned is None
    assert play.group.epoch == epoch


def test_a_deleted_topic_is_taken_away_and_made_anew_is_another(play):
    play.beat()
    old = play.member("m1").assigned
    play.topics.delete("t")
    assert play.again("m1").assigned == EMPTY
    play.topics.make("t", 6)
    play.again("m1", owned=EMPTY)
    fresh = play.member("m1").assigned
    assert len(fresh) == 6
    assert fresh.isdisjoint(old)


def test_an_expression_is_matched_against_the_topics_that_there_are():
    play = Play(FakeTopics(t1=1, t2=1, u=1))
    play.beat(topics=None, regex="t.*|v")
    assert play.member("m1").assigned == play.topics.tips("t1", 0) | play.topics.tips("t2", 0)
    play.topics.make("v", 1)
    assert len(play.again("m1").assigned) == 3
    assert len(play.again("m1", regex="", topics=frozenset({"u"})).assigned) == 0
    assert play.again("m1", owned=EMPTY).assigned == play.topics.tips("u", 0)
    refused(play, ErrorCode.INVALID_REGULAR_EXPRESSION, topics=None, regex="a)|(b")
    assert play.group.reads("u")


def test_the_assignor_that_most_want_is_asked(play):
    play.beat(assignor="range")
    play.beat()
    play.beat(assignor="uniform")
    assert play.group.assignor(("uniform", "range")) == "uniform"
    play.beat(assignor="range")
    assert play.group.assignor(("uniform", "range")) == "range"
    assert "uniform, range" in refused(play, ErrorCode.UNSUPPORTED_ASSIGNOR, assignor="mine")


@pytest.mark.parametrize(
    ("said", "more"),
    [
        (("", 1), {}),
        (("", -1), {}),
        (("m", -2), {}),
        (("m", -3), {}),
        (("m", 1), {"instance_id": " "}),
        (("m", 1), {"rack_id": ""}),
        (("", 0), {"rebalance_timeout_ms": -1}),
        (("", 0), {"owned": None}),
        (("", 0), {"topics": None}),
        (("", 0), {"brings_id": True}),
    ],
)
def test_what_makes_no_sense_is_refused(play, said, more):
    refused(play, ErrorCode.INVALID_REQUEST, *said, **more)


def test_who_joins_claims_nothing(play):
    refused(play, ErrorCode.INVALID_REQUEST, "", 0, owned=play.topics.tips("t", 0))


def test_offsets_are_for_members_in_their_epoch(play):
    def commit(member_id, epoch, *, knows=True, txn=False):
        return play.machine.commit_error(play.group, member_id, epoch, knows_epochs=knows, in_transaction=txn)

    assert commit("", -1) is ErrorCode.NONE
    assert commit("m1", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    play.beat()
    assert commit("m1", 1) is ErrorCode.NONE
    assert commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("m1", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m1", 2, txn=True) is ErrorCode.ILLEGAL_GENERATION
    assert commit("m1", 1, knows=False) is ErrorCode.UNSUPPORTED_VERSION
    assert commit("m1", 1, knows=False, txn=True) is ErrorCode.NONE
    fetch = play.machine.fetch_error
    assert fetch(play.group, None, -1) is ErrorCode.NONE
    assert fetch(play.group, "m1", 1) is ErrorCode.NONE
    assert fetch(play.group, "m1", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(play.group, "m2", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(play.group, None, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(play.group, "m1", -1) is ErrorCode.STALE_MEMBER_EPOCH


def test_what_a_group_reads_is_what_its_members_name_and_what_they_match():
    play = Play(FakeTopics(t1=1))
    play.beat(topics=frozenset({"later"}))
    play.beat(topics=None, regex="t.*")
    assert [play.group.reads(each) for each in ("later", "t1", "other")] == [True, True, False]
