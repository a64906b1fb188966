"""Numbers on the command line, and what is said of those that are none."""

import click
import pytest

from sparklog.cli.numbers import Number, WholeNumber


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (WholeNumber(0), "x", "'x' is not a whole number from 0"),
        (WholeNumber(1, 99), "1.5", "'1.5' is not a whole number from 1 to 99"),
        (WholeNumber(1, 99), "100", "'100' is not a whole number from 1 to 99"),
        (WholeNumber(max=9), "10", "'10' is not a whole number to 9"),
        (Number(0, min_open=True), "0", "'0' is not a number above 0"),
        (Number(0), "", "'' is not a number from 0"),
        (Number(0, min_open=True), "nan", "'nan' is not a number above 0"),
        (Number(0), "inf", "'inf' is not a number from 0"),
    ],
)
def test_what_is_none_of_those_that_are_allowed(kind, text, said):
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(text, None, None)
    assert refused.value.message == said


def test_what_is_one():
    assert (WholeNumber(0).convert("7", None, None), Number(0).convert("0.5", None, None)) == (7, 0.5)
