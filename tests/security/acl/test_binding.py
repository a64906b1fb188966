"""Filters find what Kafka's find (``ResourcePatternFilterTest.java`` has these cases and more)."""

import pytest

from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.binding import AclBinding, AclFilter
from sparklog.security.acl.entry import ALL, AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ANY, MATCH, LITERAL, PREFIXED = PatternType
ENTRY = AclEntry("User:alice", "10.0.0.1", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (AclFilter(), {"T abc", "T *", "T a+", "T ab+", "G abc", "T *+"}),
        (AclFilter(kind=GROUP), {"G abc"}),
        (AclFilter(name="abc"), {"T abc", "G abc"}),
        (AclFilter(kind=TOPIC, name="ab", pattern_type=LITERAL), set()),
        (AclFilter(kind=TOPIC, name="ab", pattern_type=PREFIXED), {"T ab+"}),
        (AclFilter(kind=TOPIC, name="ab"), {"T ab+"}),
        (AclFilter(kind=TOPIC, pattern_type=PREFIXED), {"T a+", "T ab+", "T *+"}),
        (AclFilter(kind=TOPIC, pattern_type=MATCH), {"T abc", "T *", "T a+", "T ab+", "T *+"}),
        (AclFilter(kind=TOPIC, name="abc", pattern_type=MATCH), {"T abc", "T *", "T a+", "T ab+"}),
        (AclFilter(kind=TOPIC, name="a", pattern_type=MATCH), {"T *", "T a+"}),
        (AclFilter(kind=TOPIC, name="*", pattern_type=MATCH), {"T *", "T *+"}),
        (AclFilter(kind=TOPIC, name="*", pattern_type=LITERAL), {"T *"}),
        (AclFilter(kind=GROUP, name="x", pattern_type=MATCH), set()),
    ],
)
def test_a_filter_finds_the_patterns_of_its_type_and_name(asked, found):
    patterns = {
        "T abc": ResourcePattern(TOPIC, "abc"),
        "T *": ResourcePattern(TOPIC, "*"),
        "T a+": ResourcePattern(TOPIC, "a", PREFIXED),
        "T ab+": ResourcePattern(TOPIC, "ab", PREFIXED),
        "T *+": ResourcePattern(TOPIC, "*", PREFIXED),
        "G abc": ResourcePattern(GROUP, "abc"),
    }
    assert {name for name, each in patterns.items() if asked.matches_pattern(each)} == found


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        (AclFilter(), True),
        (AclFilter(principal="User:alice", host="10.0.0.1", operation=Operation.READ), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="*"), False),
        (AclFilter(operation=ALL), False),
        (AclFilter(permission=Permission.DENY), False),
        (AclFilter(permission=Permission.ALLOW), True),
    ],
)
def test_a_filter_compares_entries_as_they_are_written(asked, matches):
    assert asked.matches_entry(ENTRY) is matches


def test_the_filter_of_a_binding_finds_it_alone():
    binding = AclBinding(ResourcePattern(TOPIC, "a", PREFIXED), ENTRY)
    lists = {
        binding.pattern: frozenset({ENTRY, ENTRY._replace(host="*")}),
        ResourcePattern(TOPIC, "a"): frozenset({ENTRY}),
    }
    assert list(AclFilter.of(binding).found_in(lists)) == [binding]


def test_a_filter_that_names_its_patterns_lists_them():
    assert AclFilter(TOPIC, "a").patterns == (ResourcePattern(TOPIC, "a"), ResourcePattern(TOPIC, "a", PREFIXED))
    assert AclFilter(TOPIC, "a", PREFIXED).patterns == (ResourcePattern(TOPIC, "a", PREFIXED),)
    for vague in (AclFilter(), AclFilter(TOPIC), AclFilter(name="a"), AclFilter(TOPIC, "a", MATCH)):
        assert vague.patterns == ()
