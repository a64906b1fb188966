"""Kerberos by the system's library, with a real KDC: who gets a context, and who does not."""

import os
import struct
import subprocess
import sys

import pytest
from fix_programs import lack_of_kerberos

from sparklog.clock import SystemClock
from sparklog.errors import AuthenticationFailed, ConfigError, ConnectionFailed
from sparklog.local.ports import free_port
from sparklog.security.mechanisms import client_mechanism, server_mechanism
from sparklog.security.sasl.gssapi import Gssapi, GssapiServer
from sparklog.security.sasl.kerberos import acceptor, default_realm, initiator
from sparklog.security.sasl.kerberos_name import ShortNames
from sparklog.security.sasl.scram import ScramSource
from sparklog.testing.eventually import eventually
from sparklog.testing.kdc import REALM
from sparklog.testing.programs import find_program

LACK = lack_of_kerberos()
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(LACK), reason=LACK)]
SERVICE = "kafka/localhost"
SCRAM = ScramSource(lambda _mechanism, _user: None)


@pytest.fixture(scope="module")
def keytab(kdc):
    """Of the service."""
    return kdc.add(SERVICE)


@pytest.fixture(scope="module")
def alice(kdc):
    """Of a client."""
    return kdc.add("alice")


def by_keytab(keytab, principal="alice"):
    return {"useKeyTab": "true", "keyTab": str(keytab), "principal": f"{principal}@{REALM}"}


def talk(client, server):
    """Who the broker says that it is, at the end."""
    message = client.first()
    while message is not None:
        message = client.respond(server.respond(message))
    return str(server.authenticated.principal)


class Ends:
    """The two ends; what the broker's log is told is in ``told``."""

    def __init__(self, client, keytab, host="localhost", service="kafka"):
        self.told = []
        self.accept = acceptor(by_keytab(keytab, SERVICE))
        self.mechanism = Gssapi(initiator(client, service))
        self.host = host

    def server(self):
        return GssapiServer(self.accept(), ShortNames(default_realm()), self.told.append)

    def talk(self):
        return talk(self.mechanism.begin(self.host), self.server())


def test_a_keytab_and_a_ticket_cache_get_a_client_in(kdc, keytab, alice):
    assert default_realm() == REALM
    assert Ends(by_keytab(alice), keytab).talk() == "User:alice"
    cache = kdc.ticket("alice", alice)
    for options in (
        {"useTicketCache": "true", "ticketCache": f"FILE:{cache}"},
        {"useTicketCache": "TRUE", "ticketCache": str(cache), "principal": f"alice@{REALM}"},
    ):
        assert Ends(options, keytab).talk() == "User:alice"


def test_the_environments_ticket_cache_is_the_one_where_none_is_named(kdc, keytab, alice, monkeypatch):
    ends = Ends({"useTicketCache": "true"}, keytab)
    with pytest.raises(AuthenticationFailed, match=r"we have no ticket: .*nobody.cache"):
        ends.talk()
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.ticket('alice', alice)}")
    assert ends.talk() == "User:alice"


def test_a_ticket_cache_is_tried_before_a_keytab(kdc, keytab, alice):
    both = {**by_keytab(alice), "useTicketCache": "true", "ticketCache": str(kdc.directory / "none.cache")}
    assert Ends(both, keytab).talk() == "User:alice"
    bob = kdc.ticket("bob", kdc.add("bob"))
    both = {**by_keytab(alice), "useTicketCache": "true", "ticketCache": str(bob)}
    assert Ends(both, keytab).talk() == "User:alice"
    del both["useKeyTab"]
    with pytest.raises(AuthenticationFailed, match="we have no ticket"):
        Ends(both, keytab).talk()


def test_a_login_keeps_its_tickets_and_shows_another_token_each_time(kdc, keytab, alice):
    mechanism = Gssapi(initiator(by_keytab(alice), "kafka"))
    first = mechanism.begin("localhost").first()
    kdc.stop()
    try:
        assert mechanism.begin("localhost").first() != first
    finally:
        kdc.start()


def test_a_kdc_that_cannot_be_reached_is_a_failed_connection(kdc, keytab, alice, tmp_path, monkeypatch):
    settings = (kdc.directory / "krb5.conf").read_text().replace(str(kdc.port), str(free_port()))
    (tmp_path / "krb5.conf").write_text(settings)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    with pytest.raises(ConnectionFailed, match="Cannot contact any KDC"):
        Ends(by_keytab(alice), keytab).talk()


def test_an_unknown_service_is_said(keytab, alice):
    with pytest.raises(AuthenticationFailed, match="not found in Kerberos database"):
        Ends(by_keytab(alice), keytab, service="nobody").talk()
    with pytest.raises(AuthenticationFailed, match="not found in Kerberos database"):
        Ends(by_keytab(alice), keytab, host="another.example.org").talk()


def test_a_wrong_keytab_of_a_client_is_said(kdc, keytab):
    with pytest.raises(AuthenticationFailed, match="we have no ticket"):
        Ends(by_keytab(kdc.directory / "none.keytab"), keytab).talk()
    old = kdc.add("carol")
    copy = kdc.directory / "carol.old"
    copy.write_bytes(old.read_bytes())
    kdc.add("carol")
    with pytest.raises(AuthenticationFailed, match="we have no ticket"):
        Ends(by_keytab(copy, "carol"), keytab).talk()


def test_a_broker_whose_keytab_has_not_the_services_key_does_not_start(kdc, alice):
    for keytab in (alice, kdc.directory / "none.keytab"):
        with pytest.raises(ConfigError, match="the option keyTab cannot be used"):
            acceptor(by_keytab(keytab, SERVICE))


def test_a_keytab_that_is_replaced_counts_from_then_on(kdc, alice):
    """The KDC gives tickets for the new key; the broker finds it in its file without a restart."""
    keytab = kdc.add("renewed/localhost")
    accept = acceptor(by_keytab(keytab, "renewed/localhost"))
    kdc.add("renewed/localhost")
    client = Gssapi(initiator(by_keytab(alice), "renewed"))
    server = GssapiServer(accept(), ShortNames(REALM))
    assert talk(client.begin("localhost"), server) == "User:alice"


def refused(ends, token):
    server = ends.server()
    with pytest.raises(AuthenticationFailed, match=r"^authentication failed: invalid credentials with") as caught:
        server.respond(token)
    assert "keytab" not in str(caught.value)
    assert server.authenticated is None
    return ends.told[-1]


def test_a_ticket_for_another_service_is_not_taken(kdc, keytab, alice):
    kdc.add("other/localhost")
    token = Gssapi(initiator(by_keytab(alice), "other")).begin("localhost").first()
    assert "Kerberos: " in refused(Ends(by_keytab(alice), keytab), token)


def test_a_token_that_was_shown_is_not_taken_again(keytab, alice):
    ends = Ends(by_keytab(alice), keytab)
    token = ends.mechanism.begin("localhost").first()
    assert ends.server().respond(token)
    assert "replay" in refused(ends, token)


def test_garbage_is_not_taken(keytab, alice):
    ends = Ends(by_keytab(alice), keytab)
    good = ends.mechanism.begin("localhost").first()
    cut = good[: len(good) // 2]
    flipped = bytearray(good)
    flipped[-20] ^= 1
    unknown = bytearray(good)
    unknown[15] = 7  # of the kind of the token, behind the mechanism
    random = os.urandom(200)
    for token in (bytes(unknown), b"", b"\0", b"garbage", b"\x60" * 1000, random, cut, bytes(flipped), good[:-1]):
        assert "GSSAPI" in refused(ends, token)
    assert ends.server().respond(good)


def test_an_offer_and_a_choice_that_were_changed_on_the_way_are_not_taken(keytab, alice):
    ends = Ends(by_keytab(alice), keytab)
    client, server = ends.mechanism.begin("localhost"), ends.server()
    offer = server.respond(client.respond(server.respond(client.first())))
    changed = bytearray(offer)
    changed[-1] ^= 1
    with pytest.raises(AuthenticationFailed):
        client.respond(bytes(changed))
    choice = client.respond(offer)
    with pytest.raises(AuthenticationFailed):
        server.respond(choice[:-1] + bytes([choice[-1] ^ 1]))


def test_a_ticket_that_has_ended_gets_nobody_in(kdc, keytab):
    cache = kdc.ticket("dora", kdc.add("dora"), "-l", "1s")

    def has_ended():
        return subprocess.run([find_program("klist"), "-s", f"FILE:{cache}"], check=False).returncode != 0

    eventually(has_ended)
    with pytest.raises(AuthenticationFailed, match="we have no ticket"):
        Ends({"useTicketCache": "true", "ticketCache": str(cache)}, keytab).talk()


def test_a_clock_that_is_wrong_gets_nobody_in(kdc, keytab):
    """The library takes the KDC's time for the time, and keeps in a cache by how much this machine's differs."""
    cache = kdc.ticket("erik", kdc.add("erik"))
    client = {"useTicketCache": "true", "ticketCache": str(cache)}
    Ends(client, keytab).talk()  # now the cache has a ticket for the service
    set_ahead(cache, 3600)
    ends = Ends(client, keytab)
    assert "Clock skew too great" in refused(ends, ends.mechanism.begin("localhost").first())


def set_ahead(cache, seconds):
    """In a cache of version 4, behind the version and the length of its header, a tag and its length."""
    held = bytearray(cache.read_bytes())
    assert held[:8] == b"\x05\x04\x00\x0c\x00\x01\x00\x08"
    held[8:12] = struct.pack(">i", seconds)
    cache.write_bytes(held)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "useKeyTab=true .* or useTicketCache=true: none asks a user"),
        ({"useKeyTab": "false", "keyTab": "x", "principal": "a"}, "useKeyTab=true"),
        ({"useKeyTab": "true", "principal": "a"}, "lacks the option keyTab"),
        ({"useKeyTab": "true", "keyTab": "x"}, "lacks the option principal"),
    ],
)
def test_options_that_name_no_credentials_are_refused(options, said):
    for make in (lambda: initiator(options, "kafka"), lambda: acceptor(options)):
        with pytest.raises(ConfigError, match=said.partition(" .* ")[0]):
            make()
    with pytest.raises(ConfigError, match=said):
        initiator(options, "kafka")


def test_a_client_of_a_ticket_cache_is_no_broker():
    with pytest.raises(ConfigError, match="a broker with GSSAPI needs the options useKeyTab"):
        acceptor({"useTicketCache": "true"})


def settings_of(options):
    told = " ".join(f'{name}="{value}"' for name, value in options.items())
    return {"sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {told};"}


def test_mechanisms_are_made_of_kafkas_settings(keytab, alice):
    """Those that say when Java's clients get tickets anew change nothing."""
    told = []
    rules = {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](al.*)s/$/-of-rules/U"}
    server = server_mechanism(
        "GSSAPI", settings_of(by_keytab(keytab, SERVICE)) | rules, SCRAM, SystemClock(), told.append
    )
    anew = {"kinit.cmd": "x", "ticket.renew.jitter": "1", "min.time.before.relogin": "9"}
    settings = settings_of(by_keytab(alice)) | {f"sasl.kerberos.{name}": value for name, value in anew.items()}
    for service in ({"sasl.kerberos.service.name": "kafka"}, settings_of({**by_keytab(alice), "serviceName": "kafka"})):
        client = client_mechanism("GSSAPI", settings | service, SystemClock())
        assert (client.name, client.token_id, client.may_wait) == ("GSSAPI", None, True)
        assert talk(client.begin("localhost"), server.begin()) == "User:ALICE-OF-RULES"
    with pytest.raises(AuthenticationFailed):
        server.begin().respond(b"garbage")
    assert len(told) == 1
    bad = settings_of(by_keytab(keytab, SERVICE)) | {"sasl.kerberos.principal.to.local.rules": "default"}
    with pytest.raises(ConfigError, match="is no rule"):
        server_mechanism("GSSAPI", bad, SCRAM, SystemClock())


def test_a_machine_without_a_realm(tmp_path, monkeypatch):
    (tmp_path / "krb5.conf").write_text("[libdefaults]\n")
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    assert default_realm() == ""


def test_the_library_is_imported_where_it_is_needed_alone():
    code = "import sys; import sparklog.security.mechanisms; sys.exit('gssapi' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
