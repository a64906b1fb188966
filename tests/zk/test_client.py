"""What every cluster has in ZooKeeper."""

import pytest

pytestmark = pytest.mark.integration


def test_the_cluster_id_is_made_once(connect):
    (one, _), (two, _) = connect(), connect()
    assert one.cluster_id() == two.cluster_id() == one.cluster_id()
    assert len(one.cluster_id()) == 22
