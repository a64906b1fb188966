"""One setting: its text parsed and written, its limits kept."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.definition import (
    ConfigType,
    Definition,
    any_of,
    at_least,
    between,
    definitions,
    describe,
    one_of,
    parse,
    setting,
)
from sparklog.errors import ConfigError


def of(kind, check=None):
    return Definition("some.setting", kind, None, "", check)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " True ", True),
        (ConfigType.BOOLEAN, "FALSE", False),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.INT, " -12 ", -12),
        (ConfigType.INT, "2147483647", 2**31 - 1),
        (ConfigType.SHORT, "-32768", -(2**15)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.LIST, " a , b,,c ", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
    ],
)
def test_text_becomes_a_value(kind, text, value):
    assert of(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        (ConfigType.BOOLEAN, "yes", "true or false"),
        (ConfigType.BOOLEAN, "", "true or false"),
        (ConfigType.INT, "", "a whole number of 32 bits"),
        (ConfigType.INT, "1.0", "a whole number of 32 bits"),
        (ConfigType.INT, "2147483648", "a whole number of 32 bits"),
        (ConfigType.INT, "-2147483649", "a whole number of 32 bits"),
        (ConfigType.SHORT, "32768", "a whole number of 16 bits"),
        (ConfigType.LONG, "9223372036854775808", "a whole number of 64 bits"),
        (ConfigType.LONG, "twelve", "a whole number of 64 bits"),
        (ConfigType.LONG, "1_000", "a whole number of 64 bits"),
        (ConfigType.INT, "\u0661", "a whole number of 32 bits"),
        (ConfigType.DOUBLE, "1,5", "a number"),
    ],
)
def test_text_of_another_type_is_refused_by_name(kind, text, wanted):
    with pytest.raises(ConfigError, match=rf"some\.setting='{text}' is not {wanted}"):
        of(kind).parse(text)


@pytest.mark.parametrize(
    ("kind", "check", "good", "bad", "complaint"),
    [
        (ConfigType.INT, at_least(3), "3", "2", "must be at least 3"),
        (ConfigType.INT, between(1, 5), "5", "6", "must be from 1 to 5"),
        (ConfigType.INT, between(1, 5), "1", "0", "must be from 1 to 5"),
        (ConfigType.STRING, one_of("a", "b"), "b", "c", "must be one of a, b"),
        (ConfigType.LIST, any_of("a", "b"), "b,a", "a,c", "must list only a, b"),
        (ConfigType.LIST, any_of("a", "b"), "a", "", "must list only a, b"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_the_bounds(kind, check, good, bad, complaint):
    of(kind, check).parse(good)
    with pytest.raises(ConfigError, match=complaint):
        of(kind, check).parse(bad)


@given(
    st.one_of(
        st.tuples(st.just(ConfigType.BOOLEAN), st.booleans()),
        st.tuples(st.just(ConfigType.STRING), st.text().map(str.strip)),
        st.tuples(st.just(ConfigType.INT), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(ConfigType.SHORT), st.integers(-(2**15), 2**15 - 1)),
        st.tuples(st.just(ConfigType.LONG), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(ConfigType.DOUBLE), st.floats(allow_nan=False)),
        st.tuples(st.just(ConfigType.LIST), st.lists(st.sampled_from(["a", "b-c", "d.e"])).map(tuple)),
    )
)
def test_what_is_written_is_read_back(typed):
    kind, value = typed
    assert of(kind).parse(of(kind).format(value)) == value


@dataclass(frozen=True)
class Example:
    retention: int = setting("retention.ms", ConfigType.LONG, 7, "How long.", at_least(-1))
    cleanup: tuple[str, ...] = setting("cleanup.policy", ConfigType.LIST, ("delete",), "What becomes of it.")
    not_a_setting: int = 3


def test_settings_are_those_fields_that_define_one():
    assert list(definitions(Example)) == ["retention.ms", "cleanup.policy"]


def test_what_is_not_given_keeps_its_default_or_the_base():
    assert parse(Example, {}) == Example()
    base = parse(Example, {"retention.ms": "9"})
    assert parse(Example, {"cleanup.policy": "compact"}, base) == Example(9, ("compact",))


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown setting 'retention\.msec'; did you mean retention\.ms\?"):
        parse(Example, {"retention.msec": "1"})
    with pytest.raises(ConfigError, match=r"^unknown setting 'zzz'$"):
        parse(Example, {"zzz": "1"})


def test_a_description_is_text_for_every_setting():
    assert describe(Example(5, ("a", "b"))) == {"retention.ms": "5", "cleanup.policy": "a,b"}


def test_not_a_number_is_within_no_bounds():
    assert at_least(0)(math.nan)
    assert between(0, 1)(math.nan)
