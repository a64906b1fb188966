"""The assignors, on random groups."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.config.broker import parse_broker_config
from sparklog.group.consumer.assignment import TopicIdPartition
from sparklog.group.consumer.assignors import ASSIGNORS
from sparklog.group.consumer.assignors.spec import MemberSpec, Spec
from sparklog.testing.steps import finish

TOPICS = [UUID(int=number) for number in range(1, 6)]


def uniform(spec):
    return finish(ASSIGNORS["uniform"](spec))


def ranges(spec):
    return finish(ASSIGNORS["range"](spec))


BOTH = pytest.mark.parametrize("assign", [uniform, ranges])
subscriptions = st.frozensets(st.sampled_from(TOPICS))
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
names = st.text("abcdef", min_size=1, max_size=3)
holdings = st.frozensets(st.builds(TopicIdPartition, st.sampled_from(TOPICS), st.integers(-1, 11)), max_size=12)
members = st.dictionaries(names, st.builds(MemberSpec, st.none() | names, subscriptions, holdings), max_size=8)
specs = st.builds(Spec, members, counts)
SOME = settings(max_examples=50)


def readers(spec, topic):
    return finish(spec.readers()).get(topic, ())


def alike(spec):
    """The same, where everybody subscribes to every topic."""
    return Spec({each: member._replace(topics=frozenset(TOPICS)) for each, member in spec.members.items()}, spec.topics)


def following(spec, shares):
    """The spec after this assignment."""
    known = {each: member._replace(had=shares.get(each, frozenset())) for each, member in spec.members.items()}
    return spec._replace(members=known)


def plain(*member_ids, topics=(1,), count=6):
    wanted = frozenset(UUID(int=number) for number in topics)
    return Spec({each: MemberSpec(None, wanted, frozenset()) for each in member_ids}, dict.fromkeys(wanted, count))


def numbers(share):
    return sorted(each.partition for each in share)


@BOTH
@SOME
@given(spec=specs)
def test_every_partition_goes_to_one_subscriber(assign, spec):
    shares = assign(spec)
    assert shares.keys() == spec.members.keys()
    given_out = Counter(each for share in shares.values() for each in share)
    wanted = {each for member in spec.members.values() for each in member.topics}
    assert given_out == Counter(
        TopicIdPartition(topic, number)
        for topic, count in spec.topics.items()
        if topic in wanted
        for number in range(count)
    )
    for member_id, share in shares.items():
        assert {each.topic_id for each in share} <= spec.members[member_id].topics


@BOTH
@SOME
@given(spec=specs)
def test_nothing_moves_while_nothing_changes(assign, spec):
    shares = assign(spec)
    assert assign(following(spec, shares)) == shares


@SOME
@given(spec=specs)
def test_uniform_leaves_nobody_with_two_more_than_one_who_could_have_one_of_them(spec):
    shares = uniform(spec)
    for share in shares.values():
        for topic in {each.topic_id for each in share}:
            assert all(len(share) - len(shares[other]) < 2 for other in readers(spec, topic))


@SOME
@given(spec=specs.map(alike))
def test_uniform_moves_no_partition_that_need_not_where_all_want_the_same(spec):
    assign = uniform
    shares = assign(spec)
    sizes = [len(share) for share in shares.values()]
    assert not sizes or max(sizes) - min(sizes) <= 1
    before = following(spec, shares)
    for gone in spec.members:
        fewer = before._replace(members={each: member for each, member in before.members.items() if each != gone})
        after = assign(fewer)
        assert all(shares[each] <= after[each] for each in after), "who stays keeps all that it had"


@SOME
@given(spec=specs.map(alike), newcomer=names)
def test_uniform_gives_a_newcomer_what_it_must_have_and_moves_nothing_else(spec, newcomer):
    assign = uniform
    members = {each: member for each, member in spec.members.items() if each != newcomer}
    shares = assign(spec._replace(members=members))
    joined = following(spec._replace(members=members), shares)
    joined.members[newcomer] = MemberSpec(None, frozenset(TOPICS), frozenset())
    after = assign(joined)
    assert all(after[each] <= share for each, share in shares.items()), "from one to another nothing moves"
    total = sum(spec.topics.values())
    assert len(after[newcomer]) == total // (len(shares) + 1)


@SOME
@given(spec=specs)
def test_range_cuts_each_topic_into_runs_of_nearly_one_length(spec):
    shares = ranges(spec)
    for topic in spec.topics:
        subscribers = readers(spec, topic)
        runs = [numbers(each for each in shares[member_id] if each.topic_id == topic) for member_id in subscribers]
        assert [number for run in runs for number in run] == ([*range(spec.topics[topic])] if runs else [])
        assert not runs or len(runs[0]) - len(runs[-1]) in (0, 1)


def test_range_gives_the_same_numbers_of_all_topics_that_are_alike():
    shares = ranges(plain("a", "b", "c", topics=(1, 2), count=7))
    assert [numbers(shares[each]) for each in "abc"] == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4], [5, 5, 6, 6]]


def test_range_goes_by_instance_ids_first():
    spec = plain("a", "b", "c", count=3)
    spec.members["c"] = spec.members["c"]._replace(instance_id="z")
    assert [numbers(ranges(spec)[each]) for each in "cab"] == [[0], [1], [2]]


def test_uniform_fills_those_that_can_have_little_first():
    one, two = UUID(int=1), UUID(int=2)
    spec = Spec(
        {
            "a": MemberSpec(None, frozenset({one}), frozenset()),
            "b": MemberSpec(None, frozenset({one, two}), frozenset()),
        },
        {one: 4, two: 4},
    )
    shares = uniform(spec)
    assert {each.topic_id for each in shares["b"]} == {two}
    assert (len(shares["a"]), len(shares["b"])) == (4, 4)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_setting_takes_the_name_of_each(name):
    assert parse_broker_config({"group.consumer.assignors": name}).group_consumer_assignors == (name,)


def test_uniform_deals_with_many_members_and_partitions():
    """Not a figure, but a bound on the kind of work: it would take hours if it were cubic."""
    spec = plain(*(f"m{number:04}" for number in range(500)), count=5000)
    assert {len(share) for share in uniform(spec).values()} == {10}
