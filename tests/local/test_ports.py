"""Ports."""

import socket

import pytest

from sparklog.errors import ConfigError
from sparklog.local.ports import free_port, require_free


def test_a_free_port_can_be_listened_on():
    port = free_port()
    require_free("127.0.0.1", port, "a test", "unused")
    socket.create_server(("127.0.0.1", port)).close()


def test_a_taken_port_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1, wanted by broker 0, is in use; try --port"):
            require_free("127.0.0.1", port, "broker 0", "try --port")


def test_an_address_of_another_machine_is_not_called_in_use():
    with pytest.raises(ConfigError, match="cannot be used"):
        require_free("192.0.2.1", 9092, "broker 0", "choose another host")
