"""Expressions of strangers: what they match, and that they end."""

from __future__ import annotations

import pytest

from sparklog.regular_expression import MOST_CHARACTERS, are_found, matching


def test_a_part_of_a_text_is_found() -> None:
    assert are_found("b+$", ["abb", "bba", "", "b\n"]) == [True, False, False, False]
    assert are_found("b", []) == []


def test_whole_texts_are_matched() -> None:
    assert matching("a|b.*", ["a", "ab", "bc", "x\na"]) == {"a", "bc"}


@pytest.mark.parametrize(
    "expression", ["(", "a)|(b", "(?=a)", r"(a)\1", "a{1001}", "\ud800", "a" * (MOST_CHARACTERS + 1)]
)
def test_what_is_no_expression_or_too_long_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"expression|characters|surrogates"):
        matching(expression, ["a"])


@pytest.mark.parametrize("expression", ["(a|a)*$", "^(a+)+$", "^a*a*a*a*a*a*a*a*$", "^((a{0,9}){0,9})*$"])
def test_an_expression_that_takes_re_for_ever_ends(expression: str) -> None:
    assert matching(expression, ["a" * 10_000 + "b"]) == frozenset()
