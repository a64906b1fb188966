"""A topic that is missing for certain is refused without the client's patience; one that may be there is not."""

from contextlib import ExitStack

import pytest

from sparklog.cli.existing import require_topics
from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.cluster.info import ClusterInfo
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.structs import BrokerId, Endpoint
from sparklog.testing.clock import ManualClock

pytestmark = pytest.mark.integration
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_BROKERS = {BrokerId(number): Endpoint("broker", number) for number in (1, 2)}


@pytest.fixture
def cluster(bootstrap):
    """By a clock that stands still: whoever waits, waits by it."""
    with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap), ManualClock()) as found:
        yield found


def test_a_misspelt_name_is_refused_after_one_pause(cluster):
    AdminClient(cluster).create_topics([NewTopic("existing-clicks", 1, 1)])
    before = cluster.clock.monotonic()
    with pytest.raises(
        ApiError, match=r"there is no topic 'existing-click'; did you mean 'existing-clicks'\?"
    ) as refused:
        require_topics(cluster, ["existing-clicks", "existing-click"])
    assert refused.value.code is _UNKNOWN
    assert cluster.clock.monotonic() - before < 1
    require_topics(cluster, ["existing-clicks"])


@pytest.fixture
def told(cluster, monkeypatch):
    """What each endpoint answers: a set of topics that it knows, or an error. The first one asked is broker 1."""
    known = {}

    def ask(_, names, endpoint=None):
        answer = known[1 if endpoint is None else endpoint.port]
        if isinstance(answer, Exception):
            raise answer
        errors = {each: _UNKNOWN for each in names or () if each not in answer}
        return ClusterInfo("c", BrokerId(1), _BROKERS, dict.fromkeys(answer), errors)

    monkeypatch.setattr("sparklog.cli.existing._ask", ask)
    return known


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        ({"a"}, {"a"}, True),
        ({"a"}, {"a", "new"}, False),
        (set(), set(), False),
        ({"a"}, ConnectionFailed("away"), False),
    ],
    ids=["nobody knows it", "one broker knows it", "it may just have started", "one is away"],
)
def test_only_what_every_broker_says_is_certain(cluster, told, first, second, is_refused):
    told.update({1: first, 2: second})
    with ExitStack() as stack:
        if is_refused:
            stack.enter_context(pytest.raises(ApiError, match="there is no topic 'new'"))
        require_topics(cluster, ["new"])


def test_what_is_known_after_the_pause_is_there(cluster, told, monkeypatch):
    told.update({1: {"a"}, 2: {"a"}})
    monkeypatch.setattr(cluster.clock, "sleep", lambda _: told[2].add("new"))
    require_topics(cluster, ["new"])
