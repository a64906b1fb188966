"""Sessions in a tree of the test's own."""

import queue

import pytest

from sparklog.zk.client import ZkClient


@pytest.fixture
def connect(chroot):
    """Opens sessions in this test's own tree."""
    sessions = []

    def open_session():
        events = queue.Queue()
        client = ZkClient(chroot, session_timeout=10.0, on_session=events.put)
        client.ensure_tree()
        sessions.append(client)
        return client, events

    yield open_session
    for client in sessions:
        client.close()


@pytest.fixture
def zk(connect):
    return connect()[0]
