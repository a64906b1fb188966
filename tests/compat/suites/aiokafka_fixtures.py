"""The fixtures that aiokafka's integration tests ask for, about a broker that runs already, without security.

A pytest plugin, loaded in place of that suite's own conftest. The address is in ``SPARKLOG_PEER_ADDRESS``.
"""

import asyncio
import gc
import os
from pathlib import Path

import pytest
from compat.suites.foreign import KAFKA_VERSION


class Absent:
    """Stands for what only a secured broker has; a test that touches it is skipped."""

    def __getattr__(self, name):
        pytest.skip(f"no security here: {name}")


@pytest.fixture(scope="class")
def loop():
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    yield own
    if not own.is_closed():
        own.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    host, port = os.environ["SPARKLOG_PEER_ADDRESS"].rsplit(":", 1)
    wanted = {
        "loop": loop,
        "kafka_host": host,
        "kafka_port": int(port),
        "hosts": [f"{host}:{port}"],
        "kafka_version": KAFKA_VERSION,
        "ssl_folder": Path("absent"),
        **dict.fromkeys(("kafka_ssl_port", "kafka_sasl_plain_port", "kafka_sasl_ssl_port")),
        **dict.fromkeys(("acl_manager", "kerberos_utils", "kafka_config"), Absent()),
    }
    for name, value in wanted.items():
        setattr(request.cls, name, value)
