"""Starting and stopping a broker: what a start that fails leaves behind, and a stop of which steps fail."""

import asyncio
import queue
import socket
import threading
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.broker import server
from sparklog.broker.lifecycle import assembly
from sparklog.broker.lifecycle.predecessor import SessionFiles
from sparklog.broker.lifecycle.registration import Registration
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.preparation import Preparation
from sparklog.broker.server import Broker
from sparklog.broker.settings import Settings
from sparklog.broker.txn.coordinators import TransactionCoordinators
from sparklog.config.broker import parse_broker_config
from sparklog.controller.runtime import Controller
from sparklog.errors import ConfigError, CoordinationError
from sparklog.group.runtime import GroupCoordinator
from sparklog.local.ports import free_port
from sparklog.log.checkpoints import write_topic_id
from sparklog.log.directories.manager import LogManager
from sparklog.net.peers import Peers
from sparklog.net.server import SocketServer
from sparklog.testing.broker import QUICK_SETTINGS
from sparklog.txn.runtime import TransactionCoordinator
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

STAGES = [
    (SocketServer, "bind"),
    (ZkClient, "ensure_tree"),
    (ZkClient, "cluster_id"),
    (Settings, "load"),
    (LogManager, "own"),
    (LogManager, "load"),
    (server, "SessionFiles"),
    (assembly, "GroupCoordinator"),
    (SocketServer, "start"),
    (Settings, "follow"),
    (Registration, "register"),
    (Registration, "follow"),
    (Controller, "start"),
    (MetadataCache, "wait_for"),
]
"""What a start asks to be done, in this order."""

STEPS = [
    Registration,
    GroupCoordinator,
    Controller,
    Peers,  # the controller's own
    Settings,
    ZkClient,
    SocketServer,
    TransactionCoordinator,
    Peers,
    TransactionCoordinators,
    Preparation,
    LogManager,
    SessionFiles,
]
"""What a stop closes, in this order."""


@pytest.fixture
def config(tmp_path, chroot):
    return parse_broker_config(
        {
            **QUICK_SETTINGS,
            "broker.id": "0",
            "zookeeper.connect": chroot,
            "log.dirs": str(tmp_path),
            "host.name": "127.0.0.1",
            "port": str(free_port()),
        }
    )


async def live(config):
    """A broker's life, a short one."""
    broker = Broker(config)
    await broker.start()
    await broker.stop()


def refuse(*_args, **_how):
    raise ConfigError("it is refused")


def fail_after(patch, kind, closed):
    """Let ``close`` of ``kind`` fail when it has done its work, and note that it was called."""
    close = kind.close

    def failing(self):
        closed.append(kind)
        outcome = close(self)
        if outcome is None:
            raise RuntimeError(kind.__name__)
        return then_fail(outcome)

    async def then_fail(outcome):
        await outcome
        raise RuntimeError(kind.__name__)

    patch.setattr(kind, "close", failing)


def test_a_start_that_fails_leaves_nothing_behind(config, monkeypatch):
    before = set(threading.enumerate())
    for owner, name in STAGES:  # each on the same port, in the same directory, under the same id as the one before
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refuse)
            with pytest.raises(ConfigError, match="it is refused"):
                asyncio.run(live(config))
        assert set(threading.enumerate()) <= before, name
    asyncio.run(live(config))


def test_a_start_that_waits_for_a_controller_is_given_up_at_once(config, monkeypatch):
    """The session of the last controller has not ended yet, and nobody else may be one."""
    monkeypatch.setattr(server, "_READY_TIMEOUT", 3600)

    async def given_up():
        waits = asyncio.Event()
        monkeypatch.setattr(Controller, "start", lambda _: waits.set())
        broker = Broker(config)
        starting = asyncio.ensure_future(broker.start())
        await waits.wait()
        broker.give_up_start()
        with pytest.raises(CoordinationError, match="broker 0 was stopped before a controller took notice of it"):
            await starting

    asyncio.run(given_up())


def test_each_step_of_a_stop_is_taken_though_those_before_it_fail(config, monkeypatch):
    closed = []
    with monkeypatch.context() as patch:
        for kind in dict.fromkeys(STEPS):
            fail_after(patch, kind, closed)
        with pytest.raises(RuntimeError, match="SessionFiles"):
            asyncio.run(live(config))
    assert closed == STEPS
    asyncio.run(live(config))


def test_what_a_failed_start_says_is_not_hidden_by_the_stop_behind_it(config, monkeypatch):
    monkeypatch.setattr(SocketServer, "start", refuse)
    fail_after(monkeypatch, Settings, [])
    with pytest.raises(ConfigError, match="it is refused"):
        asyncio.run(live(config))


def test_a_start_asks_zookeeper_about_a_partition_that_is_in_two_directories(config, tmp_path):
    homes = [tmp_path / "a", tmp_path / "b"]
    for number, home in enumerate(homes, 1):
        (home / "gone-0").mkdir(parents=True)
        (home / "gone-0" / f"{0:020d}.log").write_bytes(b"what is left of a topic")
        write_topic_id(home / "gone-0", UUID(int=number))
    asyncio.run(live(replace(config, log_dirs=tuple(map(str, homes)))))
    for home in homes:
        (stray,) = home.glob("gone-0*")
        assert stray.name.endswith("-stray")


def test_a_host_that_a_limit_names_is_looked_up_beside_the_loop(config, monkeypatch):
    asked, answer, look_up = queue.Queue(), threading.Event(), socket.getaddrinfo

    def slow(host, *rest, **how):
        if host != "far.invalid":
            return look_up(host, *rest, **how)
        thread = threading.current_thread()
        asked.put(thread)
        if thread is not threading.main_thread():
            assert answer.wait(60)
        return look_up("127.0.0.7", *rest, **how)

    async def limit():
        broker = Broker(config)
        await broker.start()
        try:
            broker._limit_connections(replace(config, max_connections_per_ip_overrides="far.invalid:3"))
            looking = await asyncio.to_thread(asked.get, timeout=60)
            assert looking is not threading.current_thread()
            assert broker._server.limits.per_host_overrides == {}
            answer.set()
            while not broker._server.limits.per_host_overrides:
                await asyncio.sleep(0)
            assert broker._server.limits.per_host_overrides == {"127.0.0.7": 3}
        finally:
            answer.set()
            await broker.stop()

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asyncio.run(limit())
