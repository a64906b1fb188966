"""Expressions over topics' names."""

import pytest

from sparklog.errors import ApiError, ErrorCode
from sparklog.group.consumer.topics import matching

NAMES = ["a", "ab", "b", "a.b", "A", "x\n"]


@pytest.mark.parametrize(
    ("regex", "hits"),
    [
        ("a", {"a"}),
        ("a.*", {"a", "ab", "a.b"}),
        ("a|b", {"a", "b"}),
        (r"a\.b", {"a.b"}),
        ("(?i)a", {"a", "A"}),
        ("", set()),
        ("^a$", {"a"}),
        ("x", set()),
    ],
)
def test_it_matches_whole_names(regex, hits):
    assert matching(regex, NAMES) == hits


def test_where_there_are_no_topics_nothing_matches():
    assert matching("a", []) == frozenset()


@pytest.mark.parametrize("regex", ["(", "a)|(b", "[", r"(?=a)", r"\Qa"])
def test_what_is_no_expression_is_refused(regex):
    with pytest.raises(ApiError) as refusal:
        matching(regex, NAMES)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_wicked_expression_takes_no_longer_than_another():
    assert matching("(a+)+b", ["a" * 249]) == frozenset()
