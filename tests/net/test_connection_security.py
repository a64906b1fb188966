"""TLS and SASL beneath both kinds of connection that we open, against brokers that answer as they are told."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DelegationTokenRefused,
    RemoteProtocolError,
    SparklogError,
)
from sparklog.net.async_connection import AsyncConnection
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatRequest, HeartbeatResponse, encode
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.security.sasl.mechanism import ClientConversation
from sparklog.security.tls.contexts import client_context, server_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.structs import Endpoint
from sparklog.testing.authenticating import PasswordMechanism, PasswordServer
from sparklog.testing.certificates import Certificates, Certified
from sparklog.testing.clock import ManualClock, jump
from sparklog.testing.scripted import Asked, HangUp, ScriptedCluster

CERTIFICATES = Certificates()


def beat(_version: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g" * 10, generation_id=1, member_id="m", group_instance_id=None)


def long_beat(_version: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g" * 30_000, generation_id=1, member_id="m", group_instance_id=None)


async def ask_async(endpoint: Endpoint, security: ConnectionSecurity, requests: Any = (beat,)) -> int:
    connection = await AsyncConnection.open(endpoint, security=security)
    try:
        asked = [connection.request(ApiKey.HEARTBEAT, each) for each in requests]
        return sum(answer.error_code == 0 for answer in await asyncio.gather(*asked))
    finally:
        connection.abort()
        await asyncio.sleep(0)


async def ask_blocking(endpoint: Endpoint, security: ConnectionSecurity, requests: Any = (beat,)) -> int:
    def ask() -> int:
        with BlockingConnection(endpoint, security=security) as connection:
            return sum(connection.request(ApiKey.HEARTBEAT, each).error_code == 0 for each in requests)

    return await asyncio.to_thread(ask)


BOTH = pytest.mark.parametrize("ask", [ask_async, ask_blocking])
Ask = Callable[..., Awaitable[int]]


@asynccontextmanager
async def broker(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedCluster]:
    async with ScriptedCluster(tls=tls) as cluster:
        cluster.on[ApiKey.HEARTBEAT] = lambda _: HeartbeatResponse(throttle_time_ms=0, error_code=0)
        yield cluster


def tls_of(tmp_path: Path, certified: Certified, **said: str) -> ssl.SSLContext:
    settings = {f"ssl.{name.replace('_', '.')}": value for name, value in said.items()}
    settings["ssl.keystore.location"] = str(certified.write_pem(tmp_path / "broker.pem"))
    return server_context(TlsSettings.from_properties(settings))


def our_tls(**said: str) -> ssl.SSLContext:
    settings = {f"ssl.{name.replace('_', '.')}": value for name, value in said.items()}
    return client_context(
        TlsSettings.from_properties({"ssl.truststore.certificates": CERTIFICATES.authority.pem} | settings)
    )


@contextmanager
def refusing(tls: ssl.SSLContext) -> Iterator[Endpoint]:
    """A listener that tells its clients why it does not let them in, as brokers do and asyncio's own does not.

    It reads what a client sends before it knows: by a reset that could miss why.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connected, _ = listener.accept()
            with tls.wrap_socket(connected, server_side=True, do_handshake_on_connect=False) as peer:
                with suppress(ssl.SSLError):
                    peer.do_handshake()
                    raise AssertionError("a client was let in")
                while socket.socket.recv(peer, 1 << 16):
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Endpoint(*listener.getsockname())
    finally:
        thread.join()
        listener.close()


def test_what_asks_for_no_answer_is_with_the_socket_over_tls_too(tmp_path: Path) -> None:
    """The peer reads nothing until the request was found to be held back, and on when the client is gone."""
    tls = tls_of(tmp_path, CERTIFICATES.server)
    listener = socket.create_server(("127.0.0.1", 0))
    may_read = threading.Event()
    received = bytearray()

    def serve() -> None:
        connected, _ = listener.accept()
        with tls.wrap_socket(connected, server_side=True) as peer:
            may_read.wait(60)
            while data := peer.recv(1 << 16):
                received.extend(data)

    async def send() -> None:
        connection = await AsyncConnection.open(
            Endpoint(*listener.getsockname()), security=ConnectionSecurity(our_tls())
        )
        beneath = connection._beneath
        assert beneath is not None
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        connection.ask(
            ApiKey.PRODUCE,
            3,
            [bytes(16 << 20)],
            lambda _: written.set_result(beneath.get_write_buffer_size()),
            expect_response=False,
        )
        assert beneath.get_write_buffer_size() > 0
        may_read.set()
        async with asyncio.timeout(60):
            assert await written == 0
        connection.abort()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        asyncio.run(send())
    finally:
        may_read.set()
        thread.join()
        listener.close()
    assert len(received) == 4 + int.from_bytes(received[:4], "big")


def test_an_opening_that_is_cancelled_behind_the_handshake_leaves_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio alone would wait for the peer to end TLS, and the loop may end before."""
    sockets: list[socket.socket] = []
    openings: list[asyncio.Task[AsyncConnection]] = []
    whole = AsyncConnection.connection_made

    def connection_made(self: AsyncConnection, transport: asyncio.BaseTransport) -> None:
        whole(self, transport)
        sockets.append(transport.get_extra_info("socket"))
        openings[0].cancel()

    async def run() -> None:
        async with broker(tls_of(tmp_path, CERTIFICATES.server)) as cluster:
            security = ConnectionSecurity(our_tls())
            openings.append(asyncio.create_task(AsyncConnection.open(cluster.brokers[0].endpoint, security=security)))
            with pytest.raises(asyncio.CancelledError):
                await openings[0]
            await asyncio.sleep(0)
            assert [each.fileno() for each in sockets] == [-1]

    monkeypatch.setattr(AsyncConnection, "connection_made", connection_made)
    asyncio.run(run())


async def refused(
    ask: Ask, cluster: ScriptedCluster, security: ConnectionSecurity, kind: type[SparklogError], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        await ask(cluster.brokers[0].endpoint, security)


@BOTH
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("with_sasl", [False, True])
def test_requests_of_any_size_over_tls_and_sasl(tmp_path: Path, ask: Ask, version: str, with_sasl: bool) -> None:
    async def run() -> None:
        tls = tls_of(tmp_path, CERTIFICATES.server, enabled_protocols=version)
        mechanism = PasswordMechanism() if with_sasl else None
        async with broker(tls) as cluster:
            server = PasswordServer(cluster)
            requests = [beat, long_beat] * 20
            security = ConnectionSecurity(our_tls(), mechanism)
            assert await ask(cluster.brokers[0].endpoint, security, requests) == len(requests)
            assert server.sessions == int(with_sasl)
            apis = [each.api for each in cluster.brokers[0].asked if each.api is not ApiKey.HEARTBEAT]
            logged_in = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE] if with_sasl else []
            assert apis == [ApiKey.API_VERSIONS, *logged_in]

    asyncio.run(run())


@BOTH
def test_sasl_without_tls(ask: Ask) -> None:
    async def run() -> None:
        async with broker() as cluster:
            server = PasswordServer(cluster)
            security = ConnectionSecurity(None, PasswordMechanism())
            assert await ask(cluster.brokers[0].endpoint, security) == 1
            assert server.sessions == 1

    asyncio.run(run())


@BOTH
@pytest.mark.parametrize(
    ("shown", "complaint"),
    [
        ("elsewhere", "not accepted: IP address mismatch.*Connect by a name in it"),
        ("expired", "not accepted: certificate has expired; its owner must renew it"),
        ("stranger", r"not accepted: .*; ssl.truststore.location must hold the certificate of the authority"),
    ],
)
def test_a_certificate_that_is_not_accepted(tmp_path: Path, ask: Ask, shown: str, complaint: str) -> None:
    async def run() -> None:
        async with broker(tls_of(tmp_path, getattr(CERTIFICATES, shown))) as cluster:
            await refused(ask, cluster, ConnectionSecurity(our_tls()), AuthenticationFailed, complaint)

    asyncio.run(run())


@BOTH
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("shown", "advice"),
    [
        (None, r"wants .*ssl.keystore.location"),
        ("stranger", r"set ssl.keystore.location"),
        ("expired", r"which has expired .*: renew it"),
    ],
)
def test_a_certificate_of_ours_that_is_not_accepted(
    tmp_path: Path, ask: Ask, version: str, shown: str | None, advice: str
) -> None:
    said = {"enabled_protocols": version}
    if shown:
        said["keystore_location"] = str(getattr(CERTIFICATES, shown).write_pem(tmp_path / "client.pem"))

    async def run() -> None:
        trusted = str(CERTIFICATES.authority.write_pem(tmp_path / "ca.pem"))
        tls = tls_of(tmp_path, CERTIFICATES.server, client_auth="required", truststore_location=trusted)
        with refusing(tls) as endpoint, pytest.raises(AuthenticationFailed, match=advice):
            await ask(endpoint, ConnectionSecurity(our_tls(**said)))

    asyncio.run(run())


@BOTH
def test_no_version_in_common(tmp_path: Path, ask: Ask) -> None:
    async def run() -> None:
        tls = tls_of(tmp_path, CERTIFICATES.server, enabled_protocols="TLSv1.3")
        with refusing(tls) as endpoint, pytest.raises(AuthenticationFailed, match=r"ssl.enabled.protocols"):
            await ask(endpoint, ConnectionSecurity(our_tls(enabled_protocols="TLSv1.2")))

    asyncio.run(run())


@BOTH
def test_a_plain_client_at_a_listener_with_tls(tmp_path: Path, ask: Ask) -> None:
    async def run() -> None:
        async with broker(tls_of(tmp_path, CERTIFICATES.server)) as cluster:
            await refused(ask, cluster, PLAIN, SparklogError, r"security.protocol")

    asyncio.run(run())


@BOTH
@pytest.mark.parametrize(
    ("answer", "kind", "complaint"),
    [
        (bytes.fromhex("15030100020228"), AuthenticationFailed, "has no TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", RemoteProtocolError, "does not speak TLS"),
        (b"", ConnectionFailed, r"does its listener have TLS \(security.protocol\)"),
    ],
)
def test_a_client_with_tls_at_a_listener_without(
    ask: Ask, answer: bytes, kind: type[SparklogError], complaint: str
) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        writer.write(answer)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            with pytest.raises(kind, match=complaint):
                await ask(Endpoint(*server.sockets[0].getsockname()), ConnectionSecurity(our_tls()))
        finally:
            server.close()

    asyncio.run(run())


@BOTH
def test_a_wrong_password_is_told_in_the_brokers_words(ask: Ask) -> None:
    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster)
            security = ConnectionSecurity(None, PasswordMechanism("hidden-1"))
            with pytest.raises(AuthenticationFailed, match=r"refused us .PASSWORD.: .*Invalid username") as told:
                await ask(cluster.brokers[0].endpoint, security)
            assert "hidden-1" not in str(told.value)

    asyncio.run(run())


@BOTH
def test_a_delegation_token_that_is_not_taken_is_named(ask: Ask) -> None:
    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster)
            security = ConnectionSecurity(None, PasswordMechanism("hidden-1", token_id="T1"))
            with pytest.raises(DelegationTokenRefused, match=r"refused delegation token T1, which has ended") as told:
                await ask(cluster.brokers[0].endpoint, security)
            assert "hidden-1" not in str(told.value)

    asyncio.run(run())


@BOTH
def test_a_broker_that_cannot_prove_itself_is_not_believed(ask: Ask) -> None:
    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster)
            security = ConnectionSecurity(None, PasswordMechanism(proof=b"signed"))
            await refused(ask, cluster, security, AuthenticationFailed, "has not proved who it is: its proof is wrong")

    asyncio.run(run())


@BOTH
def test_a_mechanism_that_is_not_offered(ask: Ask) -> None:
    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster)
            security = ConnectionSecurity(None, PasswordMechanism(name="PLAIN"))
            await refused(ask, cluster, security, AuthenticationFailed, r"sasl.mechanism=PLAIN; it takes PASSWORD")

    asyncio.run(run())


@BOTH
def test_a_listener_without_sasl(ask: Ask) -> None:
    async def run() -> None:
        async with broker() as cluster:
            security = ConnectionSecurity(None, PasswordMechanism())
            await refused(ask, cluster, security, AuthenticationFailed, "asks for no SASL")

    asyncio.run(run())


@BOTH
def test_a_plain_client_that_is_hung_up_on_hears_what_may_be_the_reason(ask: Ask) -> None:
    def hang_up(_: Asked) -> Any:
        raise HangUp

    async def run() -> None:
        async with broker() as cluster:
            cluster.on[ApiKey.HEARTBEAT] = hang_up
            await refused(ask, cluster, PLAIN, ConnectionFailed, r"TLS or SASL \(security.protocol\)")

    asyncio.run(run())


@BOTH
def test_a_broker_that_says_nothing_in_the_middle_of_it(ask: Ask) -> None:
    """The time for connecting is that for authenticating too."""

    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster)
            never = asyncio.get_running_loop().create_future()
            cluster.on[ApiKey.SASL_AUTHENTICATE] = lambda _: never
            security = ConnectionSecurity(None, PasswordMechanism())
            endpoint = cluster.brokers[0].endpoint
            opening: Awaitable[object] = (
                AsyncConnection.open(endpoint, security=security, timeout=0.2)
                if ask is ask_async
                else asyncio.to_thread(BlockingConnection, endpoint, security=security, connect_timeout=0.2)
            )
            with pytest.raises(ConnectionFailed):
                await opening

    asyncio.run(run())


class SlowMechanism(PasswordMechanism):
    """Gets its password from somebody who takes until ``answered``."""

    def __init__(self) -> None:
        super().__init__(may_wait=True)
        self.asked, self.answered = threading.Event(), threading.Event()

    def begin(self, host: str) -> ClientConversation:
        self.asked.set()
        if not self.answered.wait(30):
            raise ConnectionFailed("nobody has answered")
        return super().begin(host)


def test_an_asynchronous_connection_waits_for_credentials_beside_the_loop() -> None:
    async def run() -> None:
        async with broker() as cluster:
            server, mechanism = PasswordServer(cluster), SlowMechanism()
            asking = asyncio.ensure_future(ask_async(cluster.brokers[0].endpoint, ConnectionSecurity(None, mechanism)))
            while not mechanism.asked.is_set():
                await asyncio.sleep(0)
            mechanism.answered.set()
            assert await asking == 1
            assert server.sessions == 1

    asyncio.run(run())


def test_a_connection_that_is_given_up_leaves_nobody_waiting_for_credentials() -> None:
    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster)
            mechanism = SlowMechanism()
            opening = asyncio.ensure_future(
                AsyncConnection.open(cluster.brokers[0].endpoint, security=ConnectionSecurity(None, mechanism))
            )
            while not mechanism.asked.is_set():
                await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            asyncio.get_running_loop().call_later(0.0, mechanism.answered.set)

    asyncio.run(run())


def test_credentials_that_do_not_come_in_time_to_authenticate_again() -> None:
    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster, lifetime_ms=10_000)
            mechanism, loop = SlowMechanism(), asyncio.get_running_loop()
            mechanism.answered.set()
            security = ConnectionSecurity(None, mechanism)
            connection = await AsyncConnection.open(cluster.brokers[0].endpoint, security=security)
            mechanism.answered.clear()
            mechanism.asked.clear()
            jump(loop, 8.6)
            while not mechanism.asked.is_set():
                await asyncio.sleep(0)
            kept = asyncio.ensure_future(connection.request(ApiKey.HEARTBEAT, beat))
            await asyncio.sleep(0)
            jump(loop, 31.0)
            with pytest.raises(ConnectionFailed, match="no credentials to authenticate again with in time"):
                await kept
            mechanism.answered.set()
            assert connection.closed

    asyncio.run(run())


@BOTH
def test_credentials_that_cannot_be_had_now_are_a_failed_connection(ask: Ask) -> None:
    class Unreachable(PasswordMechanism):
        def begin(self, host: str) -> ClientConversation:
            raise ConnectionFailed(f"no ticket for {host}")

    async def run() -> None:
        async with broker() as cluster:
            PasswordServer(cluster)
            security = ConnectionSecurity(None, Unreachable(may_wait=True))
            await refused(ask, cluster, security, ConnectionFailed, "no ticket for 127.0.0.1")

    asyncio.run(run())


def test_a_blocking_connection_authenticates_again_in_front_of_the_next_request() -> None:
    clock = ManualClock()

    def ask(endpoint: Endpoint, server: PasswordServer) -> None:
        security = ConnectionSecurity(None, PasswordMechanism())
        with BlockingConnection(endpoint, security=security, clock=clock) as connection:
            connection.request(ApiKey.HEARTBEAT, beat)
            clock.advance(8)
            assert server.sessions == 1
            version = connection.versions.best(ApiKey.HEARTBEAT)
            for _ in range(2):  # the answer to the first is read when we authenticate, and kept
                connection.send(ApiKey.HEARTBEAT, version, [encode(beat(version), version)])
                clock.advance(1)
            assert server.sessions == 2
            assert [connection.receive()[0] for _ in range(2)] == [ApiKey.HEARTBEAT] * 2
            server.password = b"another"
            clock.advance(9)
            with pytest.raises(AuthenticationFailed, match="Invalid username"):
                connection.request(ApiKey.HEARTBEAT, beat)
            assert connection.closed

    async def run() -> None:
        async with broker() as cluster:
            server = PasswordServer(cluster, lifetime_ms=10_000)
            await asyncio.to_thread(ask, cluster.brokers[0].endpoint, server)
            apis = [each.api for each in cluster.brokers[0].asked][1:-2]
            again = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
            assert apis == [*again, ApiKey.HEARTBEAT, ApiKey.HEARTBEAT, *again, ApiKey.HEARTBEAT]

    asyncio.run(run())


def test_an_asynchronous_connection_authenticates_again_in_order_with_requests() -> None:
    async def run() -> None:
        async with broker() as cluster:
            server = PasswordServer(cluster, lifetime_ms=10_000)
            held = asyncio.get_running_loop().create_future()
            security = ConnectionSecurity(None, PasswordMechanism())
            connection = await AsyncConnection.open(cluster.brokers[0].endpoint, security=security)
            cluster.on[ApiKey.HEARTBEAT] = lambda _: held
            before = asyncio.ensure_future(connection.request(ApiKey.HEARTBEAT, beat, timeout=60))
            while not cluster.asked(ApiKey.HEARTBEAT):
                await asyncio.sleep(0)
            jump(asyncio.get_running_loop(), 8.6)
            while len(cluster.asked(ApiKey.SASL_HANDSHAKE)) < 2:
                await asyncio.sleep(0)
            after = asyncio.ensure_future(connection.request(ApiKey.HEARTBEAT, beat))
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(cluster.asked(ApiKey.HEARTBEAT)) == 1
            held.set_result(HeartbeatResponse(throttle_time_ms=0, error_code=0))
            await asyncio.gather(before, after)
            assert server.sessions == 2
            assert [each.api for each in cluster.brokers[0].asked][-4:] == [
                ApiKey.HEARTBEAT,
                ApiKey.SASL_HANDSHAKE,
                ApiKey.SASL_AUTHENTICATE,
                ApiKey.HEARTBEAT,
            ]
            server.password = b"another"
            jump(asyncio.get_running_loop(), 8.6)
            while not connection.closed:
                await asyncio.sleep(0)
            with pytest.raises(AuthenticationFailed, match="Invalid username"):
                await connection.request(ApiKey.HEARTBEAT, beat)

    asyncio.run(run())
