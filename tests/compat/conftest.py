"""The real Kafka's JARs, and the allow-list: what is not in ``allow.txt`` must fail (``FINDINGS.md`` says why)."""

from pathlib import Path

import pytest
from compat import secured
from compat.kafka_tools import MOVED, TOPICS

from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.testing.kafka import run_kafka_tool

HERE = Path(__file__).parent


def allowed():
    lines = (HERE / "allow.txt").read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def pytest_collection_modifyitems(items):
    passing = allowed()
    for item in items:
        if not item.get_closest_marker("peer") or HERE not in item.path.parents:
            continue
        if not {f"{item.path.name}::{item.name}", f"{item.path.name}::{item.originalname}"} & passing:
            item.add_marker(pytest.mark.xfail(strict=True, reason="not in allow.txt; see FINDINGS.md"))


@pytest.fixture(autouse=True)
def _kafka_jars(request):
    if request.node.get_closest_marker("peer"):
        _present("kafka")


@pytest.fixture(params=MOVED)
def java(request):
    """Run a class of Kafka's: its standard output. Every test that uses it runs with each release."""
    _present(request.param)

    def run(main_class, *arguments, stdin=""):
        return run_kafka_tool(
            MOVED[request.param].get(main_class, main_class), *arguments, stdin=stdin, jars=request.param
        )

    return run


def _present(jars):
    try:
        jar_set(jars)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def tool(java, bootstrap):
    """Run a tool that is told of our broker in the usual way."""
    return lambda main_class, *arguments, stdin="": java(
        main_class, "--bootstrap-server", bootstrap, *arguments, stdin=stdin
    )


@pytest.fixture
def made(tool, topic):
    """A topic of two partitions that TopicCommand has created."""
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2", "--config", "segment.bytes=2000000")
    return topic


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Keys and certificates of the two below."""
    return secured.Stores(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def secured_kafka(zookeeper, tmp_path_factory, stores):
    """Kafka with every protocol and mechanism, which tests share."""
    _present("kafka")
    with secured.kafka(tmp_path_factory.mktemp("kafka"), f"{zookeeper.connect_string}/secured-kafka", stores) as found:
        yield found


@pytest.fixture(scope="session")
def secured_ours(zookeeper, tmp_path_factory, stores):
    """A broker of ours with the same settings."""
    with secured.ours(tmp_path_factory.mktemp("ours"), f"{zookeeper.connect_string}/secured-ours", stores) as found:
        yield found
