"""Fixtures of the integration tests: raw connections and topics on the shared cluster."""

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition


@pytest.fixture
def connection(bootstrap):
    """A connection to the shared broker."""
    with wire.connect(bootstrap) as opened:
        yield opened


@pytest.fixture
def make_topic(connection, topic):
    """Makes this test's topic on the shared cluster and returns its name."""

    def make(partitions=1, **configs):
        settings = {name.replace("_", "."): str(value) for name, value in configs.items()}
        error, message = wire.create_topic(connection, topic, partitions, settings)
        assert error is ErrorCode.NONE, message
        return topic

    return make


@pytest.fixture
def tp(make_topic):
    """The only partition of this test's topic."""
    return TopicPartition(make_topic(), 0)
