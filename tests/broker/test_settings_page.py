"""The page of the settings, against their definitions."""

from pathlib import Path

import pytest

from sparklog.broker.settings_page import allowed, page
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import definitions
from sparklog.config.topic import TopicConfig

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_the_table():
    assert PAGE.read_text() == page(), "stale: python -m sparklog.broker.settings_page > docs/settings.md"


@pytest.mark.parametrize(
    ("table", "name", "told"),
    [
        (BrokerConfig, "port", "from 0 to 65535"),
        (BrokerConfig, "num.partitions", "at least 1"),
        (BrokerConfig, "log.cleaner.io.buffer.load.factor", "more than 0, and at most 1"),
        (BrokerConfig, "log.dirs", ""),
        (BrokerConfig, "delegation.token.secret.key", ""),
        (TopicConfig, "cleanup.policy", "delete, compact"),
        (TopicConfig, "compression.gzip.level", "-1, or from 1 to 9"),
        (TopicConfig, "preallocate", "false"),
        (TopicConfig, "message.timestamp.type", "one of CreateTime, LogAppendTime"),
    ],
)
def test_it_tells_what_the_check_allows(table, name, told):
    assert allowed(definitions(table)[name][1]) == told


def test_what_it_says_of_a_bound_is_what_is_refused():
    number = definitions(BrokerConfig)["fetch.max.bytes"][1]
    least = int(allowed(number).removeprefix("at least "))
    assert number.check(least) is None
    assert number.check(least - 1)


def test_it_says_what_changes_while_brokers_run():
    rows = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    assert "| live |" in rows["max.connections"]
    assert "live" not in rows["log.dirs"]
    assert rows["retention.ms"].endswith("| `log.retention.ms` |")
