"""Kafka's own cleaner, for whoever compares with it: one JVM a run."""

import pytest

from sparklog.errors import ConfigError
from sparklog.testing.kafka_cleaner import KafkaCleaner


@pytest.fixture(scope="session")
def kafka_cleaner():
    try:
        cleaner = KafkaCleaner()
    except ConfigError as error:
        pytest.skip(str(error))
    with cleaner:
        yield cleaner
