"""What systemd is told, on a socket as it makes them."""

import socket

import pytest

from sparklog.local.service_manager import READY, VARIABLE, status, tell


@pytest.fixture(params=["in a directory", "abstract"])
def heard(request, tmp_path, monkeypatch):
    """Asks for the next datagram on the socket of ``NOTIFY_SOCKET``."""
    name = str(tmp_path / "notify") if request.param == "in a directory" else f"@{tmp_path.name}-{id(tmp_path)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        listening.settimeout(60)
        monkeypatch.setenv(VARIABLE, name)
        yield lambda: listening.recv(4096).decode()


def test_what_is_told_is_one_datagram_of_lines(heard):
    assert tell(READY, status("serves two\n lines"))
    assert heard() == "READY=1\nSTATUS=serves two lines"


def test_without_systemd_nothing_is_told(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not tell(READY)


def test_nobody_at_the_socket_is_a_warning_and_no_failure(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nobody"))
    assert not tell(READY)
    assert "cannot be told READY=1" in caplog.text
