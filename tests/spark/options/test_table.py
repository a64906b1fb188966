import difflib

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.options.definition import Use, option_fields
from sparklog.spark.options.limits import Edge
from sparklog.spark.options.raw import RawOptions
from sparklog.spark.options.table import DELIVERY, OPTIONS, PATH, STARTING_OFFSETS
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.write.options import WriteOptions


def test_no_two_options_have_the_same_name():
    names = [each.name.lower() for each in OPTIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda each: each.name)
def test_every_option_says_what_it_does_in_one_line(option):
    assert option.help.endswith(".")
    assert "\n" not in option.help
    assert "|" not in option.help + option.kind.looks


@pytest.mark.parametrize("cls", [ReadOptions, WriteOptions])
def test_every_field_is_an_option_of_the_table(cls):
    fields = option_fields(cls).values()
    assert fields
    assert set(map(id, fields)) <= set(map(id, OPTIONS))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda each: each.name)
def test_a_default_is_written_as_it_is_read(option):
    if option.default not in (None, ()):
        assert option.parse(option.kind.format(option.default)) == option.default


def test_a_stream_may_have_another_default():
    raw = RawOptions({})
    assert raw.value(STARTING_OFFSETS) is raw.value(STARTING_OFFSETS, Use.BATCH_READ) is Edge.EARLIEST
    assert raw.value(STARTING_OFFSETS, Use.STREAM_READ) is Edge.LATEST
    assert raw.value(DELIVERY, Use.STREAM_WRITE) is raw.value(DELIVERY, Use.BATCH_WRITE) is True


def test_only_queries_of_the_same_direction_refuse_an_option():
    raw = RawOptions({PATH.name: "/x"})
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_OPTION.*'path'"):
        raw.refuse_elsewhere(Use.STREAM_READ)
    for use in (Use.BATCH_READ, Use.STREAM_WRITE, Use.BATCH_WRITE):
        raw.refuse_elsewhere(use)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda each: each.name)
def test_every_option_is_suggested_for_a_misspelt_one(option, caplog):
    misspelt = option.name.lower()[:-1]
    names = [each.name.lower() for each in OPTIONS if not each.name.startswith("kafka.")]
    RawOptions({misspelt: "x"}).warn_of_unknown()
    if not option.name.startswith("kafka.") and misspelt not in names:
        nearest = difflib.get_close_matches(misspelt, names, n=1)
        assert nearest == [option.name.lower()]
        assert f"did you mean '{option.name}'?" in caplog.text
