"""Blocks of producer ids in a real ZooKeeper."""

import pytest

pytestmark = pytest.mark.integration


def test_producer_ids_are_given_once(connect):
    (one, _), (two, _) = connect(), connect()
    blocks = [client.producer_ids.take(1, 100) for client in (one, two, one)]
    assert [(block.start, block.stop) for block in blocks] == [(0, 100), (100, 200), (200, 300)]
