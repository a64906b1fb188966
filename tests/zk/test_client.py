"""What every cluster has in ZooKeeper."""

import pytest

from sparklog.errors import CoordinationError
from sparklog.testing.eventually import eventually
from sparklog.zk import znodes

pytestmark = pytest.mark.integration


def test_the_cluster_id_is_made_once(connect):
    (one, _), (two, _) = connect(), connect()
    assert one.cluster_id() == two.cluster_id() == one.cluster_id()
    assert len(one.cluster_id()) == 22


@pytest.mark.parametrize("other", [None, "another"], ids=["without its tree", "of another cluster"])
def test_nothing_is_read_of_a_zookeeper_that_is_not_the_clusters_any_more(connect, other):
    """As after the loss of its data directory: topics, settings and lists that are not there are not taken for gone."""
    (operator, _), (broker, _) = connect(), connect()
    own = broker.cluster_id()
    assert broker.guarded(broker.topics.names) == []
    operator.kazoo.delete(znodes.CLUSTER_ID)
    if other is not None:
        operator.kazoo.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(other))
    assert broker.guarded(broker.topics.names) == [], "a session is of one ZooKeeper"
    lost = broker.session
    operator.end_session(lost)
    eventually(lambda: broker.session_id not in (0, lost.id), 60, "another session")
    for _ in range(2):
        with pytest.raises(CoordinationError, match=f"not that of cluster.id={own}"):
            broker.guarded(broker.topics.names)
    operator.kazoo.ensure_path(znodes.CLUSTER_ID)
    operator.kazoo.set(znodes.CLUSTER_ID, znodes.encode_cluster_id(own))
    assert broker.guarded(broker.topics.names) == []
