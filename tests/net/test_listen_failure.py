"""What is said of an address that cannot be had."""

import asyncio
import socket

import pytest

from sparklog.errors import ConfigError
from sparklog.net.http_connections import http_socket
from sparklog.net.listen_failure import remedy


def test_that_a_port_is_taken_is_said_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            http_socket("127.0.0.1", port, f"--port {port}")
    why = "Address already in use; stop what holds it, or choose another port"
    assert str(refused.value) == f"cannot listen for --port {port} at 127.0.0.1: {why}"


def test_a_loops_words_are_not_told_either():
    async def listen(host, port):
        await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use") as failed:
        asyncio.run(listen(*taken.getsockname()))
    assert remedy("127.0.0.1", failed.value) == "Address already in use; stop what holds it, or choose another port"


def test_an_address_that_is_none_of_ours_is_said_to_be():
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 is not an address of this machine; choose one that is"):
        http_socket("192.0.2.1", 0, "--port 0")
