"""The flights: all of them, in order, as records."""

import importlib.util
import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparklog.demo import flights as flights_module
from sparklog.demo.flights import ALL_FLIGHTS, VALUE_COLUMNS, airline_names, load_flights
from sparklog.errors import ConfigError

NEW_YEAR_MS = 1357016400000
"""2013-01-01T00:00 in New York."""
YEAR_MS = 365 * 86_400_000


@pytest.fixture(scope="module")
def flights():
    return load_flights()


def test_all_are_there_in_the_order_of_their_times(flights):
    assert len(flights) == len(flights.key) == len(flights.value) == ALL_FLIGHTS == 336_776
    assert (flights.key.type, flights.value.type, flights.timestamp.type) == (pa.binary(), pa.binary(), pa.int64())
    assert flights.value.null_count == flights.timestamp.null_count == 0
    assert pc.all(pc.less_equal(flights.timestamp[:-1], flights.timestamp[1:])).as_py()
    assert flights.timestamp[0].as_py() >= NEW_YEAR_MS
    assert flights.timestamp[-1].as_py() < NEW_YEAR_MS + YEAR_MS


def test_known_figures_of_the_data(flights):
    # From the data's own documentation: 2,512 flights without a tail number, 8,255 that never left.
    assert flights.key.null_count == 2_512
    assert pc.sum(pc.match_substring(flights.value.cast(pa.string()), '"dep_delay":null')).as_py() == 8_255


def test_a_record_is_a_flight(flights):
    assert flights.timestamp[0].as_py() == NEW_YEAR_MS + (5 * 60 + 15) * 60_000
    assert flights.key[0].as_py() == b"N14228"
    value = json.loads(flights.value[0].as_py())
    assert tuple(value) == VALUE_COLUMNS
    assert value == {
        "scheduled": "2013-01-01T10:15:00Z", "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR",
        "dest": "IAH", "distance": 1400, "dep_delay": 2, "arr_delay": 11, "air_time": 227,
    }  # fmt: skip


def test_every_value_is_json_and_its_tail_number_is_the_key(flights):
    for number in range(0, ALL_FLIGHTS, 97):
        key = flights.key[number].as_py()
        assert json.loads(flights.value[number].as_py())["tailnum"] == (None if key is None else key.decode())


def test_the_first_so_many_are_the_same(flights):
    few = load_flights(500)
    assert len(few) == 500
    assert all(part.equals(whole[:500]) for part, whole in zip(few, flights, strict=True))


def test_airlines_have_names(flights):
    carriers = {json.loads(value)["carrier"] for value in flights.value[::97].to_pylist()}
    names = airline_names()
    assert len(names) == 16
    assert carriers <= set(names)
    assert (names["UA"], names["EV"]) == ("United Air Lines", "ExpressJet Airlines")


def test_text_is_escaped():
    table = pa.table({"a": ['say "x\\y"', None], "b": [1, None]})
    objects = flights_module._json_objects(table).to_pylist()
    assert [json.loads(each) for each in objects] == [{"a": 'say "x\\y"', "b": 1}, {"a": None, "b": None}]


def test_without_the_data_it_says_what_to_type(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install '.*\[demo\]'"):
        load_flights(1)
