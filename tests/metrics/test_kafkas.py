"""The table of what Kafka's operators watch, against the families that there are."""

from sparklog.metrics.families import FAMILIES
from sparklog.metrics.kafkas import WATCHED


def test_every_name_of_the_table_is_told_by_a_broker():
    known = {each.name for each in FAMILIES}
    assert [name for each in WATCHED for name in each.names if name not in known] == []


def test_every_name_of_kafkas_is_in_the_table():
    listed = {name for each in WATCHED for name in each.names}
    assert [each.name for each in FAMILIES if each.name.startswith("kafka_") and each.name not in listed] == []


def test_what_is_not_here_says_why():
    assert [each.bean for each in WATCHED if not each.names and not each.note] == []
    assert len({each.bean for each in WATCHED}) == len(WATCHED)
