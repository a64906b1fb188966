"""Ports."""

import socket
import struct
import sys

import pytest

from sparklog.errors import ConfigError
from sparklog.local.ports import free_port, keep_port, require_free


def test_a_free_port_can_be_listened_on():
    port = free_port()
    require_free("127.0.0.1", port, "a test", "unused")
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port be held for a server to come")
def test_a_chosen_port_is_given_to_nobody_else():
    """Not to a connection of another process either: one in 28,000 ephemeral ports, so the range is made small."""
    port = free_port()
    with socket.socket() as other:
        narrow = getattr(socket, "IP_LOCAL_PORT_RANGE", 51)
        try:
            other.setsockopt(socket.IPPROTO_IP, narrow, struct.pack("I", port << 16 | port))
        except OSError:
            pytest.skip("this kernel, older than 6.3, does not narrow the range of one socket")
        with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(OSError):
            other.connect(server.getsockname())


def test_the_holder_of_a_port_is_no_obstacle_to_its_server():
    port = free_port()
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match="is in use"):
            require_free("127.0.0.1", port, "a test", "unused")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port be held for a server to come")
def test_a_port_is_kept_once():
    with pytest.raises(OSError, match="in use"):
        keep_port(free_port())


def test_a_taken_port_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1, wanted by broker 0, is in use; try --port"):
            require_free("127.0.0.1", port, "broker 0", "try --port")


def test_an_address_of_another_machine_is_not_called_in_use():
    with pytest.raises(ConfigError, match="is not an address of this machine"):
        require_free("192.0.2.1", 9092, "broker 0", "choose another host")


@pytest.mark.parametrize("port", [-1, 0, 65_536])
def test_what_is_no_port_is_said(port):
    with pytest.raises(ConfigError, match=f"port {port}, wanted by a test, is not one of 1 to 65535; choose another"):
        require_free("127.0.0.1", port, "a test", "choose another")
