"""The rules of a group in ZooKeeper, without one: shares, names, and what each znode holds."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.zookeeper import group
from sparklog.client.zookeeper.group import Layout, Member, Pattern, Subscription
from sparklog.errors import ConfigError, MalformedZnode

_homes = st.dictionaries(st.integers(0, 60), st.integers(0, 5), max_size=40)
_owners = st.lists(st.text("abz019-_.", min_size=1, max_size=6), min_size=1, max_size=12, unique=True).map(sorted)
_layouts = st.sampled_from(Layout)
_subscriptions = st.one_of(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1).map(group.static_subscription),
    st.builds(
        group.filter_subscription,
        st.sampled_from([Pattern.WHITE_LIST, Pattern.BLACK_LIST]),
        st.sampled_from(["a", "a|b", ".*", "[bc]"]),
        st.integers(1, 4),
    ),
)


@given(_layouts, _homes, _owners)
def test_each_partition_has_exactly_one_owner(layout, homes, owners):
    found = group.assign(layout, homes, owners)
    assert set(found) == set(homes)
    assert set(found.values()) <= set(owners)


@given(_homes, _owners)
def test_the_first_design_gives_owner_i_the_range_of_the_ceiling(homes, owners):
    found = group.assign(Layout.BROKER_PARTITION, homes, owners)
    order = sorted((home, partition) for partition, home in homes.items())
    size = math.ceil(len(order) / len(owners))
    for place, owner in enumerate(owners):
        expected = [partition for _, partition in order[place * size : (place + 1) * size]]
        assert [partition for _, partition in order if found[partition] == owner] == expected


@given(_homes, _owners)
def test_kafka_gives_the_first_owners_one_more(homes, owners):
    found = group.assign(Layout.KAFKA, homes, owners)
    sizes = [list(found.values()).count(owner) for owner in owners]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
    assert list(found) == sorted(homes)


def test_the_two_layouts_differ_where_it_does_not_divide():
    homes, owners = dict.fromkeys(range(5), 0), ["a", "b", "c", "d"]
    assert list(group.assign(Layout.BROKER_PARTITION, homes, owners).values()) == ["a", "a", "b", "b", "c"]
    assert list(group.assign(Layout.KAFKA, homes, owners).values()) == ["a", "a", "b", "c", "d"]


def test_partitions_of_one_broker_lie_together():
    homes = {0: 2, 1: 1, 2: 2, 3: 1}
    assert group.assign(Layout.BROKER_PARTITION, homes, ["a", "b"]) == {1: "a", 3: "a", 0: "b", 2: "b"}


@given(_layouts, st.lists(_subscriptions, min_size=1, max_size=6), _homes, st.randoms(use_true_random=False))
def test_all_members_compute_the_same_share(layout, subscriptions, homes, random):
    members = [Member(f"g_host-{place}", each, layout) for place, each in enumerate(subscriptions)]
    shuffled, shuffled_homes = random.sample(members, len(members)), random.sample(sorted(homes.items()), len(homes))
    for topic in "abc":
        owners = group.owners_of(members, topic)
        assert owners == group.owners_of(shuffled, topic)
        assert group.assign(layout, homes, owners) == group.assign(layout, dict(shuffled_homes), owners)
        assert len(owners) == sum(each.subscription.streams_of(topic) for each in members)


def test_no_owners_own_nothing():
    assert group.assign(Layout.KAFKA, {0: 1}, []) == {}


def test_owners_are_sorted_as_java_sorts_texts():
    members = [Member(name, group.static_subscription({"t": 1})) for name in ("\U0001f600", "\uffe6", "B", "a")]
    assert group.owners_of(members, "t") == ["B-0", "a-0", "\U0001f600-0", "\uffe6-0"]


def test_the_eleventh_stream_is_sorted_by_its_text():
    owners = group.owners_of([Member("c", group.static_subscription({"t": 11}))], "t")
    assert owners[:3] == ["c-0", "c-1", "c-10"]


@given(_layouts, _subscriptions)
def test_a_registration_is_read_as_it_was_written(layout, subscription):
    member = Member("g_host-1-abcdef01", subscription, layout)
    assert group.decode_member(f"/consumers/g/ids/{member.id}", group.encode_member(member, 5)) == member


def test_a_registration_is_kafkas_json():
    member = Member("c", group.static_subscription({"t": 2}))
    assert group.encode_member(member, 7) == b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"7"}'
    first = group.encode_member(member._replace(layout=Layout.BROKER_PARTITION), 7)
    assert json.loads(first)["layout"] == "broker-partition"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"subscription":{"t":0},"pattern":"static"}',
        b'{"subscription":{"t":"1"},"pattern":"static"}',
        b'{"subscription":{"t":1},"pattern":"other"}',
        b'{"subscription":{"a":1,"b":1},"pattern":"white_list"}',
        b'{"subscription":{"(":1},"pattern":"black_list"}',
        b'{"subscription":{"t":1},"pattern":"static","layout":"third"}',
        b'{"subscription":{"t":10001},"pattern":"static"}',
        b'{"subscription":{"a{1001}":1},"pattern":"white_list"}',
        b'{"subscription":{"(?=a)a":1},"pattern":"white_list"}',
    ],
)
def test_a_registration_that_is_none_is_malformed(data):
    with pytest.raises(MalformedZnode, match="/consumers/g/ids/c"):
        group.decode_member("/consumers/g/ids/c", data)


def test_filters_choose_whole_names_and_leave_internal_topics_out():
    topics = ["clicks", "clicks2", "views", "__consumer_offsets"]
    white = group.filter_subscription(Pattern.WHITE_LIST, " 'clicks, views' ", 1)
    assert white.streams == {"clicks|views": 1}
    assert white.topics(topics) == ("clicks", "views")
    black = group.filter_subscription(Pattern.BLACK_LIST, "clicks.*", 1)
    assert black.topics(topics) == ("views",)
    assert black.topics(topics, exclude_internal=False) == ("__consumer_offsets", "views")


def test_a_members_expression_cannot_hold_the_others_for_ever():
    data = b'{"subscription":{"(a|a)*(a|a)*(a|a)*b":1},"pattern":"white_list"}'
    member = group.decode_member("/consumers/g/ids/c", data)
    assert group.owners_of([member], "a" * 249) == []
    assert group.owners_of([member], "a" * 248 + "b") == ["c-0"]


@pytest.mark.parametrize("expression", ["", "''", "(", "a)|(b", "(?!a).*"])
def test_a_filter_that_is_none_is_refused(expression):
    with pytest.raises(ConfigError):
        group.filter_subscription(Pattern.WHITE_LIST, expression, 1)


@pytest.mark.parametrize("streams", [{}, {"t": 0}, {"t": True}, {"t": 10_001}, {"a/b": 1}, {"": 1}])
def test_a_subscription_that_is_none_is_refused(streams):
    with pytest.raises(ConfigError):
        group.static_subscription(streams)


@given(_layouts, st.integers(0, 1000), st.integers(0, 1000))
def test_the_partition_is_found_in_its_name(layout, home, partition):
    assert group.partition_of(group.partition_name(layout, home, partition)) == partition


@pytest.mark.parametrize("name", ["", "a", "1-", "-", "1-2-3", "1-a", "٣", "9" * 5000])
def test_a_strangers_name_is_of_no_partition(name):
    assert group.partition_of(name) is None


@given(st.integers(0, (1 << 63) - 1))
def test_an_offset_is_read_as_it_was_written(offset):
    assert group.decode_offset("/o", group.encode_offset(offset)) == offset


@pytest.mark.parametrize("data", [b"", b"-1", b"x", b"1.5", b"9223372036854775808", b" 1"])
def test_an_offset_that_is_none_is_malformed(data):
    with pytest.raises(MalformedZnode, match="/consumers"):
        group.decode_offset("/consumers/g/offsets/t/0", data)


def test_ids_and_paths():
    assert group.consumer_id("g", "host", 1400000000000, 0xABC) == "g_host-1400000000000-00000abc"
    assert group.owner_name("g_host-1-a", 3) == "g_host-1-a-3"
    assert group.id_path("g", "c") == "/consumers/g/ids/c"
    assert group.owners_path("g", "t") == "/consumers/g/owners/t"
    assert group.offsets_path("g", "t") == "/consumers/g/offsets/t"


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\x00"])
def test_a_group_that_no_znode_can_be_named_after_is_refused(name):
    with pytest.raises(ConfigError, match=r"group\.id"):
        group.ids_path(name)
    with pytest.raises(ConfigError, match=r"consumer\.id"):
        group.id_path("g", name)


def test_a_member_of_the_other_layout_is_found():
    member = Member("c", Subscription(Pattern.STATIC, {"t": 1}), Layout.KAFKA)
    assert group.other_layout([member], Layout.BROKER_PARTITION) is member
    assert group.other_layout([member], Layout.KAFKA) is None
