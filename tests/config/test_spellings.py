"""Kafka's older names of a broker's settings."""

import pytest

from sparklog.config.spellings import by_one_name
from sparklog.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"log.retention.hours": "2"}, {"log.retention.ms": "7200000"}),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {"log.retention.ms": "180000"}),
        ({"log.retention.hours": "2", "log.retention.ms": "5"}, {"log.retention.ms": "5"}),
        ({"log.retention.hours": "-1"}, {"log.retention.ms": "-1"}),
        ({"log.roll.hours": "1", "log.roll.jitter.hours": "0"}, {"log.roll.ms": "3600000", "log.roll.jitter.ms": "0"}),
        ({"log.dir": "a"}, {"log.dirs": "a"}),
        ({"log.dir": "a", "log.dirs": "b,c"}, {"log.dirs": "b,c"}),
        ({"delegation.token.master.key": "k"}, {"delegation.token.secret.key": "k"}),
        ({"port": "1"}, {"port": "1"}),
    ],
    ids=str,
)
def test_each_setting_has_one_name(given, meant):
    before = dict(given)
    assert by_one_name(given) == meant
    assert given == before


def test_a_time_that_is_no_number_is_refused_by_the_name_that_was_written():
    with pytest.raises(ConfigError, match=r"log\.retention\.hours"):
        by_one_name({"log.retention.hours": "a day"})
