"""TLS beneath a connection: the same frames, files and flow control, and peers that fail in the handshake."""

import contextlib
import math
import os
import socket
import ssl
import struct

import pytest
from net.listening import Server, answer, assert_hung_up, framed, read_exactly, read_frame

from sparklog import rate_limit
from sparklog.log.file_records import FileRecords
from sparklog.net import server as net_server
from sparklog.net.limits import Limits
from sparklog.net.server import Entrance
from sparklog.net.turns import TURN_S
from sparklog.security.principal import Principal
from sparklog.security.tls.contexts import client_context, server_context
from sparklog.security.tls.distinguished_name import subject_name
from sparklog.security.tls.settings import TlsSettings
from sparklog.structs import FileSlice
from sparklog.testing.certificates import Certificates
from sparklog.testing.clock import jump
from sparklog.testing.eventually import eventually

MANY = 1 << 30


@pytest.fixture(scope="module")
def certificates():
    return Certificates()


def settings(certified, trusted, **more):
    return TlsSettings.from_properties(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": certified.key_pem(),
            "ssl.keystore.certificate.chain": certified.chain_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": trusted.pem,
            **more,
        }
    )


@pytest.fixture
def entrance(certificates):
    tls = server_context(settings(certificates.server, certificates.authority, **{"ssl.client.auth": "requested"}))
    return Entrance(
        "SSL", tls=tls, principal_of=lambda host, der: Principal("User", subject_name(der) if der else "nobody")
    )


@pytest.fixture
def server(monkeypatch, entrance):
    monkeypatch.setattr(rate_limit, "_REPEATED_S", math.inf)  # what it says once it says once on a slow machine too
    running = Server(Limits(MANY, 4), entrance)
    yield running
    running.stop()


@pytest.fixture
def client(server, certificates):
    context = client_context(settings(certificates.client, certificates.authority))
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
        yield secured


def test_frames_of_every_size_go_both_ways(server, client):
    sizes = (0, 1, 100, (16 << 10) - 4, 16 << 10, 1_000_003, 9 << 20)
    for size in sizes:
        payload = os.urandom(size)
        client.sendall(framed(payload))
        assert read_frame(client) == payload


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("last", [b"", framed(b"\0\0" * 4)])
def test_a_muted_one_that_says_goodbye_is_forgotten_unless_it_has_left_something(server, certificates, version, last):
    def dispatch(frame, caller):
        caller.mute(1000.0)
        return answer(bytes(frame))

    server.dispatch = dispatch
    context = client_context(settings(certificates.client, certificates.authority))
    context.maximum_version = version
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
        secured.sendall(framed(b"slow down"))
        assert read_frame(secured) == b"slow down"
        if last:
            secured.sendall(last)
        secured.setblocking(False)
        with contextlib.suppress(ssl.SSLWantReadError):
            secured.unwrap()
    server.call(jump, server.loop, 31.0)
    for _ in range(3):  # rounds of the loop, in which it looks
        server.call(int)
    eventually(lambda: server.server.connections == bool(last))


def test_many_requests_in_one_record_are_all_answered(server, client):
    client.sendall(b"".join(framed(b"%d" % number) for number in range(200)))
    assert [read_frame(client) for _ in range(200)] == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize("slow", [False, True])
def test_pieces_of_files_arrive_whole_between_bytes(server, client, tmp_path, slow):
    path = tmp_path / "segment"
    path.write_bytes(content := os.urandom(3 << 20))
    file = FileRecords(path)
    pieces = []
    for number, size in enumerate((0, 1, (16 << 10) - 1, 65536, 1_000_003)):
        pieces += [b"<%d>" % size, FileSlice(file, number * 7, size), memoryview(b"more"), b""]
    expected = b"".join(
        content[each.position : each.position + each.size] if isinstance(each, FileSlice) else bytes(each)
        for each in pieces
    )
    server.dispatch = lambda frame, host: [len(expected).to_bytes(4, "big"), *pieces]
    if slow:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    client.sendall(framed(b"a") + framed(b"b"))
    assert [read_frame(client), read_frame(client)] == [expected, expected]


def test_the_peer_is_who_its_certificate_says(server, client):
    server.dispatch = lambda frame, caller: answer(str(caller.principal).encode())
    client.sendall(framed(b"who am I?"))
    assert read_frame(client) == b"User:CN=alice,O=sparklog"


def test_a_peer_without_a_certificate_is_anonymous_where_none_is_required(server, certificates):
    server.dispatch = lambda frame, caller: answer(str(caller.principal).encode())
    context = ssl.create_default_context(cadata=certificates.authority.pem)
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
        secured.sendall(framed(b"who am I?"))
        assert read_frame(secured) == b"User:nobody"


@pytest.mark.parametrize(
    "opening",
    [framed(b"\0\x12\0\0" + bytes(30)), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(4000)],
    ids=["kafka", "http", "garbage"],
)
def test_what_is_no_handshake_is_hung_up_on(server, opening):
    with server.connect() as peer:
        peer.sendall(opening)
        with contextlib.suppress(ConnectionResetError):
            while peer.recv(1 << 16):
                pass
    assert not server.seen


def test_a_certificate_that_is_not_trusted_is_no_way_in(server, certificates):
    context = client_context(settings(certificates.stranger, certificates.authority))
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 the client believes to be through
    with server.connect() as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="localhost")
    assert not server.seen


def test_a_certificate_that_is_shown_again_and_again_is_one_line_in_the_log(server, certificates, caplog):
    """As of a broker whose certificate has expired, to which the controller turns until it is renewed."""
    context = client_context(settings(certificates.expired, certificates.authority))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    for _ in range(5):
        with server.connect() as plain, pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname="localhost")
    eventually(lambda: server.call(lambda: server.server.turned_away) == 5)
    (line,) = [each for each in caplog.messages if "closing the connection of" in each]
    assert "its certificate is not accepted: certificate has expired" in line


def test_an_older_tls_is_not_spoken(server, certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with server.connect() as plain, pytest.raises(OSError, match=r"."):
        context.wrap_socket(plain)


def test_another_certificate_is_for_the_next_handshake(server, entrance, client, certificates):
    entrance.tls = server_context(settings(certificates.elsewhere, certificates.authority))
    client.sendall(framed(b"still here"))
    assert read_frame(client) == b"still here"
    context = ssl.create_default_context(cadata=certificates.authority.pem)
    with server.connect() as plain, pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        context.wrap_socket(plain, server_hostname="localhost")


def test_who_does_not_end_a_handshake_is_hung_up_on_in_time(server, caplog):
    with server.connect() as peer:
        peer.sendall(b"\x16\x03\x01\x02")
        eventually(lambda: any(not each.is_silent for each in server.server._strangers))
        server.call(jump, server.loop, net_server._KNOWN_WITHIN_S + 1)
        assert_hung_up(peer)
    eventually(lambda: "it has not authenticated within 30 s" in caplog.text)
    assert not server.server._handshakes


@pytest.mark.parametrize("opening", [b"", b"\x16\x03\x01\x02"], ids=["silent", "begun"])
def test_peers_that_are_gone_before_they_are_let_in_take_no_place(server, caplog, opening):
    def come_and_go():
        with socket.create_connection(server.endpoint, timeout=60) as peer:
            peer.sendall(opening)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends by a reset

    server.call(come_and_go)  # on the loop: nobody is let in meanwhile
    with server.connect():
        eventually(lambda: server.server._handshakes)
        assert server.server._by_host == {"127.0.0.1": 1}
    eventually(lambda: not server.server._by_host)
    assert "Exception" not in caplog.text


def test_who_says_nothing_is_hung_up_on_in_time_without_a_line(server, caplog):
    with server.connect() as peer:
        eventually(lambda: server.server._strangers)
        server.call(jump, server.loop, net_server._KNOWN_WITHIN_S + 1)
        assert_hung_up(peer)
    assert "authenticated" not in caplog.text


def test_a_handshake_goes_on_when_it_is_its_turn(server, certificates):
    context = ssl.create_default_context(cadata=certificates.authority.pem)
    with server.connect() as plain:
        eventually(lambda: server.server._handshakes)

        def come_when_the_turn_is_used_up():
            turns = server.server.turns
            turns.spend(turns.time() - 2 * TURN_S)
            for handshake in server.server._handshakes:
                handshake._go_on()
            return turns.waiting

        assert server.call(come_when_the_turn_is_used_up) == 1
        with context.wrap_socket(plain, server_hostname="localhost") as secured:
            secured.sendall(framed(b"a"))
            assert read_frame(secured) == b"a"


def test_a_handshake_that_is_dismissed_while_it_waits_takes_no_turn(server, caplog):
    with server.connect() as peer:
        eventually(lambda: server.server._handshakes)

        def go_on_and_dismiss():
            turns = server.server.turns
            turns.spend(turns.time() - 2 * TURN_S)
            for handshake in list(server.server._handshakes):
                handshake._go_on()
                server.server._dismiss(handshake, "")

        server.call(go_on_and_dismiss)
        assert_hung_up(peer)
    eventually(lambda: not server.server.turns.waiting)
    assert "failed in its turn" not in caplog.text


def test_of_too_many_strangers_the_first_gives_way(server, certificates, monkeypatch):
    monkeypatch.setattr(net_server, "_MOST_STRANGERS", 3)
    with server.connect() as first:
        eventually(lambda: len(server.server._strangers) == 1)
        others = [socket.create_connection(server.endpoint, timeout=60) for _ in range(3)]
        assert_hung_up(first)
        context = ssl.create_default_context(cadata=certificates.authority.pem)
        with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
            secured.sendall(framed(b"let me in"))
            assert read_frame(secured) == b"let me in"
        for each in others:
            each.close()


def test_a_client_that_reads_slowly_is_sent_everything(server, client):
    payload = os.urandom(20 << 20)
    server.dispatch = lambda frame, host: answer(payload)
    client.sendall(framed(b"a"))
    eventually(lambda: server.server.answer_bytes > 0)
    client.sendall(framed(b"b"))
    for _ in range(2):
        assert read_exactly(client, 4) == len(payload).to_bytes(4, "big")
        assert read_exactly(client, len(payload)) == payload


def test_the_end_is_told(server, client):
    client.sendall(framed(b"a"))
    assert read_frame(client) == b"a"
    server.call(server.server.close)
    assert client.recv(1) == b""
