"""What a registry is asked, how often, and what becomes of its refusals."""

import contextlib
import http.server
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from sparklog.errors import ConfigError, IncompatibleSchema, RegistryError, RegistryUnavailable, SchemaNotFound
from sparklog.registry import AvroSerializer, Reference, Schema, SchemaRegistry
from sparklog.registry.schema import number_of
from sparklog.security.tls.contexts import server_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.testing.certificates import Certificates
from sparklog.testing.clock import ManualClock
from sparklog.testing.registry import Refusal, schema_registry

_ONE = Schema('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
_TWO = Schema(
    '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}'
)


def test_a_schema_is_asked_once(registry, server):
    number = registry.register("s", _ONE)
    threads = [threading.Thread(target=registry.schema, args=(number,)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert registry.schema(number) == _ONE
    assert registry.register("s", _ONE) == number
    assert server.requests == {"POST /subjects/s/versions": 1, f"GET /schemas/ids/{number}": 1}


def test_an_id_that_is_not_there_is_asked_again_later(served):
    url, server = served
    clock = ManualClock()
    registry = SchemaRegistry(schema_registry_url=url, clock=clock)
    for _ in range(2):
        with pytest.raises(SchemaNotFound, match="404: Schema not found"):
            registry.schema(1)
    assert server.requests["GET /schemas/ids/1"] == 1
    SchemaRegistry(schema_registry_url=url).register("s", _ONE)
    clock.advance(5)
    assert registry.schema(1) == _ONE


def test_a_schema_that_does_not_go_with_the_earlier_is_refused_in_words(registry):
    registry.register("s", _ONE)
    assert registry.complaints("s", _TWO) == ["READER_FIELD_MISSING_DEFAULT_VALUE: b"]
    with pytest.raises(
        IncompatibleSchema, match=r"version of s, whose compatibility is BACKWARD: .*needs a default.* b"
    ):
        registry.register("s", _TWO)
    assert registry.versions("s") == [1]


def test_what_may_not_be_asked_for_hides_no_refusal(registry, monkeypatch):
    """Some registries let a producer register schemas, and tell it of no compatibility."""

    def refuse(_):
        raise RegistryError("403", 403)

    registry.register("s", _ONE)
    monkeypatch.setattr(registry, "compatibility", refuse)
    with pytest.raises(IncompatibleSchema, match=r"^the schema cannot become a version of s: .* 409"):
        registry.register("s", _TWO)


def test_what_is_not_registered_is_not_by_asking_for_its_id(registry):
    with pytest.raises(SchemaNotFound, match=r"not registered under s: .*auto_register_schemas"):
        registry.id_of("s", _ONE)
    assert registry.subjects() == []


def test_versions_of_a_subject(registry):
    first = registry.register("a/b", _ONE)
    assert registry.latest("a/b") == ("a/b", 1, first, _ONE)
    assert registry.version("a/b", 1) == registry.latest("a/b")
    assert registry.compatibility("a/b") == "BACKWARD"


def test_references_come_before_what_refers_to_them(registry):
    registry.register("inner", _ONE)
    middle = Schema("{}", "JSON", (Reference("inner.json", "inner", 1),))
    registry.register("middle", middle)
    outer = Schema("{}", "JSON", (Reference("middle.json", "middle", 1),))
    assert list(registry.referenced(outer).items()) == [("inner.json", _ONE), ("middle.json", middle)]


def test_servers_that_cannot_answer_are_tried_again_after_a_wait(served):
    url, server = served
    clock = ManualClock()
    answers = [Refusal(503, 50301, "electing"), Refusal(500, 50001, "no store"), None]
    server.broken = lambda: answers.pop(0)
    registry = SchemaRegistry(schema_registry_url=url, clock=clock)
    assert registry.subjects() == []
    assert clock.monotonic() == ManualClock().monotonic() + 3


def test_the_next_server_is_asked_where_one_is_away(served):
    registry = SchemaRegistry(schema_registry_url=f"http://127.0.0.1:1,{served[0]}", schema_registry_max_retries=0)
    assert registry.subjects() == []


def test_a_registry_that_is_away_is_said_to_be(served):
    registry = SchemaRegistry(schema_registry_url="http://127.0.0.1:1", clock=ManualClock())
    with pytest.raises(RegistryUnavailable, match=r"registry at http://127.0.0.1:1 does not answer"):
        registry.schema(1)


class Asleep(ManualClock):
    """A sleep ends when two threads sleep, and fails if no second one comes."""

    def __init__(self):
        super().__init__()
        self.both = threading.Barrier(2, timeout=20)

    def sleep(self, seconds):
        self.both.wait()


def test_a_registry_that_is_away_keeps_threads_no_longer_than_one():
    away = {"schema_registry_url": "http://127.0.0.1:1", "schema_registry_max_retries": 1}
    serializer = AvroSerializer(SchemaRegistry(**away, clock=Asleep()), _ONE.text)
    asks = [
        SchemaRegistry(**away, clock=Asleep()).schema,
        partial(SchemaRegistry(**away, clock=Asleep()).version, "s"),
        lambda each: serializer.serialize(f"topic-{each}", {"a": each}),
    ]
    for ask in asks:
        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(ask, each) for each in (1, 2)]
        assert [type(each.exception()) for each in asked] == [RegistryUnavailable] * 2


def test_a_question_that_was_interrupted_is_asked_by_the_next(served, monkeypatch):
    url, _ = served
    registry = SchemaRegistry(schema_registry_url=url)
    number = registry.register("s", _ONE)
    with monkeypatch.context() as patch:
        patch.setattr(registry._http, "ask", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            registry.schema(number)
    assert registry.schema(number) == _ONE


def test_a_user_must_be_shown(served):
    url, server = served
    server.user = "ann:secret"
    with pytest.raises(RegistryError, match=r"401: Unauthorized; set basic\.auth\.user\.info") as caught:
        SchemaRegistry(schema_registry_url=url, basic_auth_user_info="ann:other").subjects()
    assert "other" not in str(caught.value)
    assert SchemaRegistry(schema_registry_url=url, basic_auth_user_info="ann:secret").subjects() == []


def test_a_refusal_is_told_in_the_registrys_words(registry, server):
    server.broken = lambda: Refusal(422, 42201, "Invalid schema")
    with pytest.raises(RegistryError, match=r"answers 422: Invalid schema$") as caught:
        registry.register("s", _ONE)
    assert (caught.value.status, caught.value.code) == (422, 42201)


def test_a_registry_with_tls():
    certificates = Certificates()
    server = TlsSettings(
        keystore_key=certificates.server.key_pem(), keystore_chain=certificates.server.chain_pem, client_auth="none"
    )
    with schema_registry(server_context(server)) as (url, _):
        trusted = {"schema.registry.ssl.truststore.certificates": certificates.authority.pem}
        assert SchemaRegistry({"schema.registry.url": url, **trusted}).subjects() == []
        with pytest.raises(RegistryUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            SchemaRegistry(schema_registry_url=url, schema_registry_max_retries=0).subjects()


@pytest.mark.parametrize(
    ("status", "body", "complaint"),
    [
        (302, b"", "302: without a reason; is this its address"),
        (404, b"<html>", "is this its address"),
        (200, b"<html>", "is this its address"),
        (200, b'{"schema": 1}', "no answer of a schema registry"),
        (200, b"[]", "no answer of a schema registry"),
        (200, b" " * (16 << 20) + b"1", "more than 16,777,216 bytes"),
    ],
)
def test_what_is_no_registry_is_found_out(status, body, complaint):
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        registry = SchemaRegistry(
            schema_registry_url=f"http://127.0.0.1:{server.server_port}", schema_registry_max_retries=0
        )
        with pytest.raises(RegistryError, match=complaint) as caught:
            registry.schema(1)
        thread.join()
    assert not isinstance(caught.value, RegistryUnavailable | SchemaNotFound)


@pytest.mark.parametrize(
    "begin", ["", "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Long: "]
)
def test_an_answer_that_comes_byte_by_byte_for_ever_is_given_up(begin):
    """Each byte comes a second after the one before, by the clock that the client reads."""
    clock, waits = ManualClock(), threading.Event()

    def answer(listening):
        peer = listening.accept()[0]
        with peer, contextlib.suppress(OSError):
            peer.recv(65_536)
            peer.sendall(begin.encode())
            while not waits.is_set():
                peer.sendall(b"1")
                clock.advance(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        registry = SchemaRegistry(
            schema_registry_url=f"http://127.0.0.1:{listening.getsockname()[1]}",
            schema_registry_max_retries=0,
            clock=clock,
        )
        with pytest.raises(RegistryUnavailable, match=r"in time \(schema\.registry\.request\.timeout\.ms\)"):
            registry.schema(1)
        waits.set()
        thread.join()


def test_a_registry_needs_an_address():
    with pytest.raises(ConfigError, match=r"schema\.registry\.url is not set"):
        SchemaRegistry()


@pytest.mark.parametrize("answer", [True, 1 << 31, "1", None])
def test_an_id_that_no_value_could_begin_with_is_no_answer(answer):
    with pytest.raises(RegistryError, match="no answer"):
        number_of({"id": answer}, "id")


@pytest.mark.parametrize("answer", [5, {"a": 1}, ["x", 1]])
def test_lists_that_are_none_are_no_answers(registry, monkeypatch, answer):
    monkeypatch.setattr(registry._http, "ask", lambda *_: answer)
    with pytest.raises(RegistryError, match="no answer"):
        registry.versions("s")
    with pytest.raises(RegistryError, match="no answer"):
        registry.subjects()


def test_a_schema_that_refers_to_itself_through_others_is_refused(registry, monkeypatch):
    told = {"subject": "s", "version": 1, "id": 1, "schema": '"A"'}
    told["references"] = [{"name": "A", "subject": "s", "version": 1}]
    monkeypatch.setattr(registry._http, "ask", lambda *_: told)
    with pytest.raises(RegistryError, match="refers to itself"):
        registry.referenced(Schema('"A"', references=(Reference("A", "s", 1),)))
