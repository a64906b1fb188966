"""Who calls a controller gone, and takes its office."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.controller import succession as module
from sparklog.controller.succession import Succession
from sparklog.net.vigil import Sight
from sparklog.structs import Endpoint
from sparklog.zk.znodes import BrokerInfo

HOLDER = 1
OFFICE = SimpleNamespace(holder=HOLDER)
BROKERS = {HOLDER: BrokerInfo(HOLDER, Endpoint("127.0.0.1", 9092))}


class Witnesses:
    """They confirm what they are asked."""

    async def confirm(self, broker, brokers):
        return True


@pytest.fixture
def succession(monkeypatch):
    """That of broker 2; the controller, broker 1, refuses connections."""

    async def look_at(endpoint):
        return Sight.REFUSED

    async def run_zk(value):
        return value

    monkeypatch.setattr(module, "look_at", look_at)
    zk = SimpleNamespace(office=SimpleNamespace(read=OFFICE), brokers=SimpleNamespace(live=BROKERS))
    return Succession(2, zk, run_zk, Witnesses())


def test_a_controller_that_refuses_connections_is_gone(succession, caplog):
    found = asyncio.run(succession._verify(HOLDER, Witnesses()))
    assert (found.office, found.broker) == (OFFICE, BROKERS[HOLDER])
    assert "broker 1, the controller, is gone" in caplog.text


def test_a_broker_that_stops_calls_nobody_gone(succession, caplog):
    succession.leave()
    assert asyncio.run(succession._verify(HOLDER, Witnesses())) is None
    assert caplog.text == ""
