"""What is seen at an address: only a refusal is one, and a connection is kept until it breaks."""

import asyncio
import errno
import socket
from contextlib import asynccontextmanager

import pytest
from net.listening import IMPOSSIBLE

from sparklog.net import vigil as vigil_module
from sparklog.net.vigil import Looks, Sight, Vigil, look_at, sight_of
from sparklog.structs import Endpoint
from sparklog.testing.scripted import ScriptedCluster

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
NO_SUCH_FAMILY = OSError(errno.EADDRNOTAVAIL, "no IPv6 here")
UNREACHABLE = OSError(errno.EHOSTUNREACH, "no route")


@pytest.mark.parametrize(
    ("failures", "sight"),
    [
        ([REFUSED], Sight.REFUSED),
        ([REFUSED, REFUSED], Sight.REFUSED),
        ([NO_SUCH_FAMILY, REFUSED], Sight.REFUSED),
        ([UNREACHABLE, REFUSED], Sight.UNKNOWN),
        ([REFUSED, OSError(errno.ENETUNREACH, "no network")], Sight.UNKNOWN),
        ([TimeoutError()], Sight.UNKNOWN),
        ([ConnectionResetError(errno.ECONNRESET, "reset")], Sight.UNKNOWN),
        ([NO_SUCH_FAMILY], Sight.UNKNOWN),
        ([], Sight.UNKNOWN),
    ],
)
def test_a_host_refuses_when_none_of_its_addresses_may_take_connections(failures, sight):
    assert sight_of(failures) is sight


@asynccontextmanager
async def a_broker():
    async with asyncio.timeout(60), ScriptedCluster() as cluster:
        yield cluster.brokers[0]


def test_a_listener_is_reached_and_a_free_port_refuses():
    async def main():
        async with a_broker() as broker:
            assert await look_at(broker.endpoint) is Sight.REACHED
            await broker.stop()
            assert await look_at(broker.endpoint) is Sight.REFUSED

    asyncio.run(main())


def test_a_name_of_several_addresses_refuses_as_one():
    async def main():
        async with a_broker() as broker:
            named = Endpoint("localhost", broker.endpoint.port)
            assert await look_at(named) is Sight.REACHED
            await broker.stop()
            assert await look_at(named) is Sight.REFUSED

    asyncio.run(main())


@pytest.mark.parametrize("address", IMPOSSIBLE)
def test_of_an_impossible_address_nothing_is_known(address):
    assert asyncio.run(look_at(Endpoint(*address))) is Sight.UNKNOWN


def test_a_process_that_takes_no_connections_from_its_queue_does_not_refuse():
    """So does one that is stopped: the kernel answers for it, or nobody does."""

    async def main(endpoint):
        return {await look_at(endpoint) for _ in range(4)}

    with socket.create_server(("127.0.0.1", 0), backlog=8) as listener:
        assert asyncio.run(main(Endpoint(*listener.getsockname()))) == {Sight.REACHED}


def test_a_silent_host_is_not_known(monkeypatch):
    monkeypatch.setattr(vigil_module, "_TIMEOUT_S", 0.05)

    async def never(*_):
        await asyncio.Event().wait()

    async def main():
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never, raising=False)
        return await look_at(Endpoint("127.0.0.1", 9))

    assert asyncio.run(main()) is Sight.UNKNOWN


def test_those_who_ask_together_share_a_look():
    async def main():
        async with a_broker() as broker:
            looks = Looks()
            assert await asyncio.gather(*(looks.at(broker.endpoint) for _ in range(5))) == [Sight.REACHED] * 5
            assert broker.connections <= 1
            await broker.stop()
            assert await looks.at(broker.endpoint) is Sight.REFUSED
            await looks.close()

    asyncio.run(main())


def test_a_vigil_tells_of_the_end_of_a_listener_and_of_its_return():
    async def main():
        async with a_broker() as broker:
            sights = asyncio.Queue()
            vigil = Vigil(broker.endpoint, sights.put_nowait)
            assert await sights.get() is Sight.REACHED
            await broker.stop()
            assert await sights.get() is Sight.UNKNOWN
            while await sights.get() is not Sight.REFUSED:  # the connection may have been in the queue still
                pass
            await broker.start()
            while await sights.get() is not Sight.REACHED:
                pass
            await vigil.close()

    asyncio.run(main())
