"""Other projects' test suites, run against us and against a real Kafka at once: what passes there must pass here.

What does not is named in ``suites/named/SUITE.txt``, and explained in ``FINDINGS.md``. A test that fails here alone
is run once more by itself before it counts. The figures are printed, and kept with every test's output under the
test's temporary directory.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from compat.suites.foreign import PeerMissing
from compat.suites.librdkafka import LibrdKafka, LibrdKafkaOnThree, LibrdKafkaWithoutAutoCreation
from compat.suites.outcomes import Comparison, named_in
from compat.suites.python_suites import AioKafka, AioKafkaBySasl, KafkaPython, KafkaPythonOnThree

from sparklog.local.ports import free_port
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

NAMED = Path(__file__).parent / "suites" / "named"
SUITES = [
    *(KafkaPython(), AioKafka(), LibrdKafka(), LibrdKafkaWithoutAutoCreation()),
    *(LibrdKafkaOnThree(), KafkaPythonOnThree()),
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_what_passes_on_kafka_passes_here(suite, zookeeper, tmp_path, capsys):
    with (
        ClusterHarness(tmp_path / "ours", suite.brokers, settings=suite.settings, racks=suite.racks) as ours,
        brokers_of_kafka(suite, tmp_path, f"{zookeeper.connect_string}/{suite.name}") as kafka,
    ):
        try:
            comparison = compare(suite, kafka, ours.bootstrap_servers, tmp_path)
        except PeerMissing as missing:
            pytest.skip(str(missing))
    assert_same(suite, comparison, tmp_path, capsys)


@pytest.mark.timeout(3600)
def test_what_passes_on_a_secured_kafka_passes_here(zookeeper, tmp_path, capsys):
    ports = {f"127.0.0.1:{free_port()}": free_port() for _ in range(2)}
    place = f"{zookeeper.connect_string}/secured"
    kafka, ours = ports
    (port, settings), (own_port, own_settings) = (secured(*each) for each in ports.items())
    with (
        KafkaBroker(tmp_path / "kafka", f"{place}-kafka", port, extra_props=settings),
        BrokerHarness(tmp_path / "ours", f"{place}-ours", port=own_port, settings=own_settings),
    ):
        suite = AioKafkaBySasl(ports)
        try:
            comparison = compare(suite, kafka, ours, tmp_path)
        except PeerMissing as missing:
            pytest.skip(str(missing))
    assert_same(suite, comparison, tmp_path, capsys)


def secured(address, sasl_port):
    """The port and the settings of a broker."""
    listeners = f"PLAINTEXT://{address},SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
    settings = {**AioKafkaBySasl.settings, "listeners": listeners, "advertised.listeners": listeners}
    return int(address.rpartition(":")[2]), settings


def assert_same(suite, comparison, tmp_path, capsys):
    """What passes on Kafka passes here, but for what is named; the figures are printed."""
    with capsys.disabled():
        sys.stdout.write(f"\n{suite.name}: {comparison.summary}\n")
    assert len(comparison.passed_on_kafka) >= len(comparison.on_kafka) // 2, (
        "too little passes on Kafka to tell anything"
    )
    assert comparison.broken == {}, f"pass on Kafka, not here; see {tmp_path}"
    assert comparison.mended == [], "pass here after all; drop them from the list and from FINDINGS.md"


@contextmanager
def brokers_of_kafka(suite, directory, zookeeper):
    """As many as the suite wants: their addresses."""
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(
                KafkaBroker(
                    directory / f"kafka-{id_}",
                    zookeeper,
                    broker_id=id_,
                    extra_props={**suite.settings, "broker.rack": rack},
                    java=("-Xmx512m",),
                )
            )
            for id_, rack in enumerate(suite.racks)
        ]
        yield ",".join(each.bootstrap_servers for each in brokers)


def compare(suite, kafka, ours, directory):
    """Run the suite on both at once, then once more here what went wrong here alone."""
    named = named_in(NAMED / f"{suite.name}.txt")
    scratches = {place: directory / f"{place}-output" for place in ("kafka", "here", "again")}
    for scratch in scratches.values():
        scratch.mkdir()
    with ThreadPoolExecutor(2) as runners:
        there = runners.submit(suite.run, kafka, scratches["kafka"])
        here = runners.submit(suite.run, ours, scratches["here"])
        comparison = Comparison(there.result(), here.result(), named)
    if not comparison.broken:
        return comparison
    again = suite.run(ours, scratches["again"], only=list(comparison.broken))
    return Comparison(comparison.on_kafka, {**comparison.here, **again}, named)
