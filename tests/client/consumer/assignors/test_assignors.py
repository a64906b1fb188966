import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.consumer.assignors import ASSIGNORS, GroupMember, assignors_named
from sparklog.errors import ConfigError
from sparklog.protocol.subscription import Subscription
from sparklog.structs import TopicPartition

TOPICS = ("a", "b", "c", "d")
_FEW = settings(max_examples=40)


def tps(text):
    """ "a0 b12" as partitions."""
    return [TopicPartition(word[0], int(word[1:])) for word in text.split()]


def member(name, topics="a", owned="", generation=-1, instance=None, **more):
    claim = tuple(tps(owned))
    data = ASSIGNORS["sticky"].user_data(claim, generation) if more.pop("eager", False) else None
    return GroupMember(name, instance, Subscription(tuple(topics), data, claim, generation, **more))


@st.composite
def groups(draw):
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7)))
    owned = st.lists(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)), max_size=9, unique=True)
    subscription = st.builds(
        Subscription,
        st.lists(st.sampled_from(TOPICS), unique=True).map(tuple),
        st.none() | st.binary(max_size=6),
        owned.map(tuple),
        st.integers(-1, 3),
        st.none(),
        st.integers(0, 3),
    )
    members = draw(st.dictionaries(st.text("mn", min_size=1, max_size=3), subscription, min_size=1, max_size=6))
    static = draw(st.booleans())
    return counts, [GroupMember(name, f"i{name}" if static else None, each) for name, each in members.items()]


def same_wishes(members):
    return len({frozenset(each.subscription.topics) for each in members}) == 1


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@_FEW
@given(groups())
def test_each_partition_has_exactly_one_reader_who_wants_it(name, group):
    counts, members = group
    assigned = ASSIGNORS[name].assign(counts, members)
    assert assigned.keys() == {each.member_id for each in members}
    wanted = {topic for each in members for topic in each.subscription.topics}
    given_out = [tp for partitions in assigned.values() for tp in partitions]
    assert sorted(given_out) == sorted(
        TopicPartition(topic, number) for topic, count in counts.items() if topic in wanted for number in range(count)
    )
    for each in members:
        assert {tp.topic for tp in assigned[each.member_id]} <= set(each.subscription.topics)


@pytest.mark.parametrize("name", list(ASSIGNORS))
@_FEW
@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(name, group, random):
    counts, members = group
    shuffled = random.sample(members, len(members))
    assert ASSIGNORS[name].assign(counts, shuffled) == ASSIGNORS[name].assign(counts, members)


@_FEW
@given(groups())
def test_sticky_is_as_even_as_one_move_can_make_it(group):
    counts, members = group
    assigned = ASSIGNORS["sticky"].assign(counts, members)
    for giver in members:
        for taker in members:
            if any(tp.topic in taker.subscription.topics for tp in assigned[giver.member_id]):
                assert len(assigned[giver.member_id]) - len(assigned[taker.member_id]) <= 1


@_FEW
@given(groups())
def test_a_balanced_group_stays_as_it_is(group):
    counts, members = group
    first = ASSIGNORS["sticky"].assign(counts, members)
    again = [
        each._replace(
            subscription=Subscription(
                each.subscription.topics, ASSIGNORS["sticky"].user_data(first[each.member_id], 9), (), 9
            )
        )
        for each in members
    ]
    assert ASSIGNORS["sticky"].assign(counts, again) == first


@_FEW
@given(groups())
def test_who_leaves_moves_only_what_was_its_own(group):
    counts, members = group
    everything = frozenset(topic for each in members for topic in each.subscription.topics)
    alike = [each._replace(subscription=Subscription(tuple(everything))) for each in members]
    first = ASSIGNORS["sticky"].assign(counts, alike)
    stay = [
        each._replace(subscription=Subscription(tuple(everything), ASSIGNORS["sticky"].user_data(first[each[0]], 1)))
        for each in alike[1:]
    ]
    if stay:
        second = ASSIGNORS["sticky"].assign(counts, stay)
        for each in stay:
            assert set(first[each.member_id]) <= set(second[each.member_id])


@_FEW
@given(groups())
def test_cooperative_gives_nothing_that_another_member_claims(group):
    counts, members = group
    members = [each for each in members if each.subscription.version >= 2] or [member("m")]
    assigned = ASSIGNORS["cooperative-sticky"].assign(counts, members)
    for each in members:
        for other in members:
            if other is not each:
                handed_over = set(assigned[each.member_id]) & set(other.subscription.owned)
                assert handed_over <= set(each.subscription.owned)
                assert all(each.subscription.generation > other.subscription.generation for _ in handed_over)


@_FEW
@given(groups())
def test_cooperative_rebalances_come_to_rest_with_everything_assigned(group):
    counts, members = group
    for generation in range(10, 20):
        assigned = ASSIGNORS["cooperative-sticky"].assign(counts, members)
        after = [
            each._replace(
                subscription=Subscription(each.subscription.topics, None, tuple(assigned[each[0]]), generation)
            )
            for each in members
        ]
        if all(set(b.subscription.owned) >= set(a.subscription.owned) for a, b in zip(members, after, strict=True)):
            break
        members = after
    wanted = {topic for each in members for topic in each.subscription.topics}
    assert sum(map(len, assigned.values())) == sum(counts[topic] for topic in wanted & counts.keys())


def test_range_is_co_partitioned():
    members = [member("m1", "ab"), member("m2", "ab")]
    assert ASSIGNORS["range"].assign({"a": 3, "b": 3}, members) == {
        "m1": tps("a0 a1 b0 b1"),
        "m2": tps("a2 b2"),
    }


def test_static_members_come_first_and_by_instance():
    members = [member("m1"), member("m3", instance="y"), member("m9", instance="x")]
    assert ASSIGNORS["range"].assign({"a": 3}, members) == {"m9": tps("a0"), "m3": tps("a1"), "m1": tps("a2")}


def test_round_robin_deals_the_topics_out_in_turn():
    members = [member("m1", "ab"), member("m2", "ab"), member("m3", "b")]
    assert ASSIGNORS["roundrobin"].assign({"a": 3, "b": 3}, members) == {
        "m1": tps("a0 a2 b2"),
        "m2": tps("a1 b0"),
        "m3": tps("b1"),
    }


@pytest.mark.parametrize("newer", ["m1", "m2"])
def test_of_two_claims_the_newer_generation_counts(newer):
    members = [member(name, owned="a0 a1", generation=5 if name == newer else 4, eager=True) for name in ("m1", "m2")]
    assigned = ASSIGNORS["sticky"].assign({"a": 4}, members)
    assert assigned[newer] == tps("a0 a1")


def test_who_has_most_and_can_give_nothing_keeps_nobody_else_from_giving():
    members = [
        member("m1", "a", "a0 a1 a2 a3", 1, eager=True),
        member("m2", "b", "b0 b1 b2", 1, eager=True),
        member("m3", "b"),
    ]
    assigned = ASSIGNORS["sticky"].assign({"a": 4, "b": 3}, members)
    assert assigned == {"m1": tps("a0 a1 a2 a3"), "m2": tps("b0 b1"), "m3": tps("b2")}


def test_what_has_to_move_twice_does_not_go_home_to_who_has_more():
    members = [member("m1", "bcd", "b0 c1 d0", 1, eager=True), member("m2", "bd"), member("m3", "d")]
    assigned = ASSIGNORS["sticky"].assign({"b": 1, "c": 2, "d": 1}, members)
    assert assigned == {"m1": tps("c0 c1"), "m2": tps("b0"), "m3": tps("d0")}


def test_cooperative_moves_in_two_steps():
    sticky = ASSIGNORS["cooperative-sticky"]
    first = sticky.assign({"a": 4}, [member("m1", owned="a0 a1 a2 a3", generation=1), member("m2")])
    assert first == {"m1": tps("a0 a1"), "m2": []}
    second = sticky.assign({"a": 4}, [member("m1", owned="a0 a1", generation=2), member("m2", generation=2)])
    assert second == {"m1": tps("a0 a1"), "m2": tps("a2 a3")}


def test_what_two_members_claim_in_one_generation_is_given_up_by_both():
    members = [member("m1", owned="a0", generation=3), member("m2", owned="a0", generation=3)]
    assert ASSIGNORS["cooperative-sticky"].assign({"a": 1}, members) == {"m1": [], "m2": []}


def test_javas_class_names_are_known():
    names = ["org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range", "cooperative-sticky"]
    assert [each.name for each in assignors_named(names)] == ["cooperative-sticky", "range"]


@pytest.mark.parametrize("names", [[], ["range", "best"]])
def test_unknown_strategies_are_refused(names):
    with pytest.raises(ConfigError, match="choose from range, roundrobin"):
        assignors_named(names)


def test_sticky_user_data_is_javas():
    sticky = ASSIGNORS["sticky"]
    assert sticky.user_data(tps("a0 a2 b1"), 7) == bytes.fromhex(
        "00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001 00000007"
    )
    assert sticky.user_data((), -1) is None


def test_sticky_user_data_without_a_generation_is_read_too():
    data = bytes.fromhex("00000001 0001 61 00000001 00000001")
    old = GroupMember("m2", None, Subscription(("a",), data))
    assert ASSIGNORS["sticky"].assign({"a": 2}, [member("m1"), old]) == {"m1": tps("a0"), "m2": tps("a1")}


def test_a_cooperative_member_of_the_first_versions_says_its_generation_in_its_user_data():
    def holder(name, generation):
        data = generation.to_bytes(4, "big")
        return GroupMember(name, None, Subscription(("a",), data, tuple(tps("a0")), -1, version=1))

    sticky = ASSIGNORS["cooperative-sticky"]
    assert sticky.assign({"a": 1}, [holder("m1", 7), holder("m2", 8)]) == {"m1": [], "m2": tps("a0")}
    assert sticky.assign({"a": 1}, [holder("m1", 8), holder("m2", 7)]) == {"m1": tps("a0"), "m2": []}


def test_user_data_of_another_form_is_a_member_without_a_past():
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

    theirs = StickyAssignorUserData([("a", [1])], 7).encode()  # kafka-python puts a version before it
    other = GroupMember("m2", None, Subscription(("a",), theirs))
    assert ASSIGNORS["sticky"].assign({"a": 2}, [member("m1"), other]) == {"m1": tps("a0"), "m2": tps("a1")}


def test_the_subscription_says_the_generation_where_it_can_whatever_the_user_data_say():
    def holder(name, generation, said):
        data = said.to_bytes(4, "big")
        return GroupMember(name, None, Subscription(("a",), data, tuple(tps("a0")), generation, version=2))

    sticky = ASSIGNORS["cooperative-sticky"]
    assert sticky.assign({"a": 1}, [holder("m1", 7, 9), holder("m2", 8, 1)]) == {"m1": [], "m2": tps("a0")}


def test_user_data_that_are_too_short_say_no_generation():
    def holder(name, data):
        return GroupMember(name, None, Subscription(("a",), data, tuple(tps("a0")), -1, version=1))

    sticky = ASSIGNORS["cooperative-sticky"]
    for data in (None, b"", b"\0\0\0"):
        members = [holder("m1", data), holder("m2", (0).to_bytes(4, "big"))]
        assert sticky.assign({"a": 1}, members) == {"m1": [], "m2": tps("a0")}


def test_what_is_not_even_told_is_owned_by_nobody():
    broken = GroupMember("m2", None, Subscription(("a",), b"\0\0\0\1"))
    assert ASSIGNORS["sticky"].assign({"a": 2}, [member("m1", owned="a0", generation=1, eager=True), broken]) == {
        "m1": tps("a0"),
        "m2": tps("a1"),
    }


def test_strategies_that_tell_nothing_and_are_eager():
    for name in ("range", "roundrobin"):
        assert ASSIGNORS[name].user_data(tps("a0"), 3) is None
    assert {name: each.cooperative for name, each in ASSIGNORS.items()} == {
        "range": False,
        "roundrobin": False,
        "sticky": False,
        "cooperative-sticky": True,
    }
    assert ASSIGNORS["cooperative-sticky"].user_data(tps("a0"), 7) == (7).to_bytes(4, "big")


def test_what_is_chosen_from_is_said():
    with pytest.raises(ConfigError, match=r"^partition\.assignment\.strategy: an empty list is not known;"):
        assignors_named([])
    with pytest.raises(ConfigError, match=r": best, worst is not known; choose from range, roundrobin, sticky, coop"):
        assignors_named(["best", "range", "worst"])
