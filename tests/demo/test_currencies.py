"""The currencies: a changelog that makes, day by day, the table that the data say."""

import random
import sys
from datetime import date, timedelta

import pytest

from sparklog.demo.currencies import (
    NAMED_SCHEMA,
    SCHEMA,
    Change,
    load_changes,
    replayed,
    tender_on,
    territory_names,
)
from sparklog.errors import ConfigError
from sparklog.registry import AvroDeserializer, AvroSerializer, SchemaRegistry
from sparklog.testing.registry import schema_registry


@pytest.fixture(scope="module")
def changes():
    pytest.importorskip("babel")
    return load_changes()


def test_known_changes(changes):
    assert Change(date(1999, 1, 1), "DE", ("DEM", "EUR")) in changes
    assert Change(date(2002, 3, 1), "DE", ("EUR",)) in changes
    assert Change(date(1990, 10, 3), "DD", ()) in changes
    assert min(changes) == Change(date(1694, 7, 27), "GB", ("GBP",))
    assert len(changes) > 600


def test_replayed_up_to_any_day_they_make_the_table_of_that_day(changes):
    chance = random.Random(7)
    first = changes[0].day
    for _ in range(40):
        day = first + timedelta(days=chance.randrange((date(2026, 1, 1) - first).days))
        assert replayed(each for each in changes if each.day <= day) == tender_on(day)


def test_there_are_inserts_updates_and_deletes_and_no_change_of_nothing(changes):
    table, kinds = {}, set()
    for change in changes:
        assert change.currencies != table.get(change.territory, ())
        kinds.add("delete" if not change.currencies else "update" if change.territory in table else "insert")
        table = replayed([*(Change(change.day, *each) for each in table.items()), change])
    assert kinds == {"insert", "update", "delete"}


def test_values_of_both_versions_are_written_and_read(changes):
    pytest.importorskip("fastavro")
    assert territory_names()["DE"] == "Germany"
    with schema_registry() as (url, _):
        registry = SchemaRegistry(schema_registry_url=url)
        old, new = AvroSerializer(registry, SCHEMA), AvroSerializer(registry, NAMED_SCHEMA)
        read = AvroDeserializer(registry, NAMED_SCHEMA)
        for change in changes[:50]:
            value = {**change.value(), "currencies": list(change.currencies)}
            assert read(old.serialize("t", change.value())) == {**value, "name": None}
            assert read(new.serialize("t", {**change.value(), "name": "N"})) == {**value, "name": "N"}


def test_a_tombstone_has_no_value():
    assert Change(date(2000, 1, 1), "XX", ()).value() is None


def test_without_the_package_it_is_said_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel.core", None)
    with pytest.raises(ConfigError, match="currencies are not installed; type: pip install"):
        load_changes()
