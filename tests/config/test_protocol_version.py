import pytest

from sparklog.config.broker import parse_broker_config
from sparklog.config.protocol_version import FIRST_WITHOUT_KAFKA, NEWEST, parse_protocol_version
from sparklog.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.8", (2, 8, 1)), ("2.8-IV1", (2, 8, 1)), ("3.3", (3, 3, 3)), ("3.9-IV0", (3, 9, 0)), ("3.9.1", (3, 9, 0))],
)
def test_a_version_is_written_as_kafka_writes_it(text, version):
    assert parse_protocol_version(text) == version


@pytest.mark.parametrize("text", ["", "3", "3.x", "3.9-IV1", "9.9", "2.8-IV0", "2.7", "0.10.2-IV0", "3.9 IV0"])
def test_another_is_refused(text):
    with pytest.raises(ConfigError):
        parse_broker_config({"inter.broker.protocol.version": text})


def test_the_default_counts_on_no_broker_of_kafkas():
    assert parse_protocol_version(parse_broker_config({}).inter_broker_protocol_version) == NEWEST
    assert NEWEST >= FIRST_WITHOUT_KAFKA > parse_protocol_version("3.9")
