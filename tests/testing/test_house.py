"""The house's own files say what the code says."""

import os
import re
from pathlib import Path

from sparklog.config.broker import BrokerConfig, load_properties, parse_broker_config
from sparklog.local.jars import JAR_SETS

HOUSE = Path(__file__).parents[2]


def test_the_example_of_broker_settings_shows_the_defaults():
    assert parse_broker_config(load_properties(HOUSE / "conf" / "broker.properties")) == BrokerConfig()


def test_spark_jobs_use_the_delta_that_tests_use():
    text = (HOUSE / "conf" / "spark-defaults.conf").read_text()
    (packages,) = re.findall(r"^# spark\.jars\.packages +(\S+)$", text, re.MULTILINE)
    assert packages.split(",") == list(JAR_SETS["delta"].roots)


def test_the_check_of_a_change_can_be_run():
    assert os.access(HOUSE / ".ci" / "run", os.X_OK)
