"""The first design's topic registry, kept by real brokers; Kafka's tools over it are in tests/compat."""

import pytest

from sparklog.client import Admin, NewTopic
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.zookeeper_security import OPEN
from sparklog.errors import ConfigError
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.holding import HoldingClient

pytestmark = pytest.mark.integration


@pytest.fixture
def zk(chroot):
    client = HoldingClient(chroot, session_timeout=6.0, on_session=lambda _: None, security=OPEN)
    yield client
    client.close()


def registry(zk, folder, topic):
    """Broker to number of partitions."""
    names = [each for each in zk.names(f"{folder}/{topic}") if each.isdigit()]
    return {int(name): int(zk.data(f"{folder}/{topic}/{name}")) for name in names}


@pytest.mark.parametrize(
    ("place", "folder"), [("beside", "/brokers/topics"), ("/first/design", "/first/design/brokers/topics")]
)
def test_it_follows_the_topics_and_goes_with_the_session(zk, chroot, tmp_path, place, folder):
    settings = {"sparklog.first.registry": place}
    with (
        BrokerHarness(tmp_path, chroot, 3, settings=settings) as broker,
        Admin(bootstrap_servers=broker.address) as admin,
    ):
        admin.create_topics([NewTopic("a", 2, 1, {}), NewTopic("b", 1, 1, {})])
        eventually(lambda: [registry(zk, folder, each) for each in "ab"] == [{3: 2}, {3: 1}], what="new topics")
        (seen,) = zk.seen_each([f"{folder}/a/3"])
        assert seen.session == zk.brokers.owner(3)
        admin.create_partitions({"a": 5})
        eventually(lambda: registry(zk, folder, "a") == {3: 5}, what="new partitions")
        admin.delete_topics(["b"])
        eventually(lambda: not zk.names("/brokers/topics/b") and not registry(zk, folder, "b"), what="its end")
        broker.restart()
        eventually(lambda: registry(zk, folder, "a") == {3: 5}, what="the start")
        broker.stop()
        assert registry(zk, folder, "a") == {}


@pytest.mark.parametrize("place", ["besides", "first", "/", "/a//b", "/a/"])
def test_another_place_is_refused(place):
    with pytest.raises(ConfigError, match=r"sparklog\.first\.registry"):
        parse(BrokerConfig, {"sparklog.first.registry": place})
