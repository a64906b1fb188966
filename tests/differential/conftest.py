"""Kafka 3.9.1 and a broker of ours beside each other, with the same settings."""

from functools import partial

import pytest
from differential.pair import Pair

from sparklog.broker.registry import OFFERED
from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.net.connection import BlockingConnection
from sparklog.net.versions import PeerVersions
from sparklog.protocol.api_key import ApiKey
from sparklog.structs import Endpoint
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.kafka import KafkaBroker

SETTINGS = {
    "transaction.max.timeout.ms": 900_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
OF_OLD_SHAPE = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""Where newer versions are of another shape: the newest that the sequences ask in."""


@pytest.fixture(scope="session")
def addresses(zookeeper, tmp_path_factory):
    """Kafka's endpoint, then ours; both coordinate groups and transactions."""
    try:
        jar_set("kafka")
    except ConfigError as error:
        pytest.skip(str(error))
    home = tmp_path_factory.mktemp("differential")
    kafka = KafkaBroker(home / "kafka", f"{zookeeper.connect_string}/kafka-of-two", extra_props=SETTINGS)
    ours = BrokerHarness(home, f"{zookeeper.connect_string}/ours-of-two", settings=SETTINGS)
    with kafka, ours:
        found = [Endpoint(kafka.host, kafka.port), Endpoint(ours.spec.host, ours.spec.port)]
        with Pair(found, {}, "start") as pair:
            for kind in (0, 1):
                asked = {"key_type": kind, "coordinator_keys": ["somebody"]}
                ready = {"until": lambda answer: answer.coordinators[0].error_code == 0, "version": 4}
                pair.main.ask("coordinators", ApiKey.FIND_COORDINATOR, compared=False, **ready, **asked)
            settled = partial(all_led, count=8)
            pair.main.ask("leaders", ApiKey.METADATA, version=9, topics=None, until=settled, compared=False)
        yield found


def all_led(answer, count):
    """Whether the broker knows its controller, and a leader of this many partitions."""
    led = [each.error_code == 0 for topic in answer.topics for each in topic.partitions]
    return answer.controller_id == 0 and len(led) == count and all(led)


@pytest.fixture(scope="session")
def versions(addresses):
    """The versions that both serve."""
    with BlockingConnection(addresses[0]) as connection:
        theirs = ranges_of(connection.versions)
    shared = {}
    for api, ours in OFFERED.items():
        served = theirs.get(api, range(0))
        newest = min(ours.stop, served.stop, OF_OLD_SHAPE.get(api, ours.stop) + 1)
        shared[api] = range(max(ours.start, served.start), newest)
    return shared


def ranges_of(peer: PeerVersions):
    return {api: range(low, high + 1) for api, (low, high) in peer._ranges.items()}
