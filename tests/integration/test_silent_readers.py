"""Clients that ask without end and read no answer: what they take of the broker's memory has a bound."""

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration import wire

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import MetadataRequest, encode
from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.integration, pytest.mark.slow]
CLIENTS, REQUESTS, TOPICS, PARTITIONS = 200, 50, 16, 100
MOST_BYTES = 100 << 20
"""Ten thousand answers about 1,600 partitions are a gigabyte. Measured: 11 MB."""


@pytest.fixture
def broker(tmp_path):
    with ClusterHarness(tmp_path) as harness:
        with Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
            for number in range(TOPICS):
                admin.create_topics([NewTopic(f"t{number}", PARTITIONS, 1)])
        yield harness


def resident(pid):
    """Bytes of memory that the process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def asked(address):
    """A client that has asked ``REQUESTS`` times for the metadata of all topics, and reads nothing."""
    sock = socket.create_connection(wire.endpoint_of(address), 60)
    one = wire.request_bytes(ApiKey.METADATA, 8, bytes(encode(MetadataRequest(topics=None), 8)), flexible=False)
    sock.sendall(one * REQUESTS)
    return sock


def test_they_take_little_memory_and_others_are_served(broker):
    address, pid = broker.bootstrap_servers, broker.broker(0).pid
    before = resident(pid)
    with wire.connect(address) as other, ExitStack() as clients:
        for _ in range(CLIENTS):
            clients.enter_context(asked(address))
            other.request(ApiKey.METADATA, lambda _: MetadataRequest(topics=[]))
        grown = resident(pid) - before
    assert grown < MOST_BYTES
