"""PLAIN: one message, and one answer to all that is wrong."""

import hashlib

import pytest

from sparklog.errors import AuthenticationFailed
from sparklog.security.principal import Principal
from sparklog.security.sasl.mechanism import Authenticated
from sparklog.security.sasl.plain import Plain, PlainServer, PlainUsers

USERS = PlainUsers({"user_alice": "secret", "user_": "nobody", "user_a=b": "ä", "username": "me", "password": "mine"})


@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("a=b", "ä")])
def test_who_has_the_password_gets_in(user, password):
    client, server = Plain(user, password).begin("log1"), PlainServer(USERS)
    assert client.first() == f"\0{user}\0{password}".encode()
    assert server.authenticated is None
    assert server.respond(client.first()) == b""
    assert client.respond(b"") is None
    assert server.authenticated == Authenticated(Principal("User", user))


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0Secret",
        b"\0bob\0secret",
        b"\0me\0mine",
        b"bob\0bob\0secret",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\0alice\0secret\xff",
        b"",
    ],
)
def test_all_that_is_wrong_has_one_answer(token):
    server = PlainServer(USERS)
    with pytest.raises(AuthenticationFailed) as caught:
        server.respond(token)
    assert str(caught.value) == "authentication failed: invalid credentials with SASL mechanism PLAIN"
    assert server.authenticated is None


@pytest.mark.parametrize("token", [b"\0\0nobody", b"\0alice\0"])
def test_name_and_password_must_be_given(token):
    with pytest.raises(AuthenticationFailed, match="needs a user name and a password"):
        PlainServer(USERS).respond(token)


def test_the_authorization_id_must_be_the_user():
    server = PlainServer(USERS)
    assert server.respond(b"alice\0alice\0secret") == b""
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        PlainServer(USERS).respond(b"admin\0alice\0secret")
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):  # not: such a password it is
        PlainServer(USERS).respond(b"admin\0alice\0wrong")


def test_a_conversation_is_for_one_message():
    server = PlainServer(USERS)
    with pytest.raises(AuthenticationFailed):
        server.respond(b"\0alice\0wrong")
    with pytest.raises(AuthenticationFailed):
        server.respond(b"\0alice\0secret")
    with pytest.raises(AuthenticationFailed):
        Plain("alice", "secret").respond(b"more")


def test_no_secret_is_in_a_repr():
    assert "secret" not in f"{Plain('alice', 'secret')!r} {USERS!r} {PlainServer(USERS)!r}"


@pytest.mark.parametrize(("user", "right"), [("alice", b"secret"), ("bob", b"")])
def test_passwords_are_compared_in_a_time_that_tells_nothing_of_them(compared, user, right):
    with pytest.raises(AuthenticationFailed):
        PlainServer(USERS).respond(f"\0{user}\0Secret".encode())
    assert compared == [(hashlib.sha256(b"Secret").digest(), hashlib.sha256(right).digest())]
