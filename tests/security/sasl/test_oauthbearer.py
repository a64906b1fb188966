"""OAUTHBEARER: the messages are those of RFC 7628 and Kafka, and only what the validator believes gets in."""

import pytest

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.principal import Principal
from sparklog.security.sasl.mechanism import Authenticated
from sparklog.security.sasl.oauthbearer import OAuthBearer, OAuthBearerServer, TokenRefused, ValidToken


def validate(token):
    if token == "small":
        raise TokenRefused("the token lacks a scope", "produce")
    if token != "good":
        raise TokenRefused("not one of ours")
    return ValidToken("alice", 5000)


def test_a_token_that_is_believed_gets_in():
    client, server = OAuthBearer(lambda: "good", {"traceId": "a b=c"}).begin("log1"), OAuthBearerServer(validate)
    assert client.first() == b"n,,\x01auth=Bearer good\x01traceId=a b=c\x01\x01"
    assert server.authenticated is None
    assert server.respond(client.first()) == b""
    assert client.respond(b"") is None
    assert server.authenticated == Authenticated(Principal("User", "alice"), 5000)
    assert server.extensions == {"traceId": "a b=c"}


@pytest.mark.parametrize(
    ("token", "answer", "reason"),
    [
        ("bad", b'{"status":"invalid_token"}', "not one of ours"),
        ("small", b'{"status":"insufficient_scope","scope":"produce"}', "the token lacks a scope"),
    ],
)
def test_a_token_that_is_not_believed_is_refused_in_json_and_then_the_conversation_fails(token, answer, reason):
    told = []
    client, server = OAuthBearer(lambda: token).begin("log1"), OAuthBearerServer(validate, told.append)
    assert server.respond(client.first()) == answer
    assert told == [reason]
    assert client.respond(answer) == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism OAUTHBEARER"):
        server.respond(b"\x01")
    assert server.authenticated is None
    with pytest.raises(AuthenticationFailed, match="refused our token"):
        client.respond(b"")


def test_a_better_token_comes_too_late():
    server = OAuthBearerServer(validate)
    server.respond(OAuthBearer(lambda: "bad").begin("log1").first())
    with pytest.raises(AuthenticationFailed):
        server.respond(OAuthBearer(lambda: "good").begin("log1").first())
    assert server.authenticated is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,auth=Bearer good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01other=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearergood\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace2=x\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace=\x00\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace=\xff\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01more",
    ],
)
def test_a_malformed_first_message_is_refused(first):
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        OAuthBearerServer(validate).respond(first)


def test_the_scheme_may_be_written_in_any_letters():
    assert OAuthBearerServer(validate).respond(b"n,,\x01auth=bEARER  good\x01\x01") == b""


def test_the_authorization_id_must_be_the_principal():
    assert OAuthBearerServer(validate).respond(b"n,a=alice,\x01auth=Bearer good\x01\x01") == b""
    server = OAuthBearerServer(validate)
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        server.respond(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    assert server.authenticated is None


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "x\x01auth=y"}])
def test_extensions_that_cannot_be_sent_are_refused(extensions):
    with pytest.raises(ConfigError, match="cannot be an extension"):
        OAuthBearer(lambda: "good", extensions)


@pytest.mark.parametrize("token", ["", "good\x01", "hid den", "hidden\n"])
def test_a_token_with_other_characters_is_not_sent_and_not_told(token):
    with pytest.raises(AuthenticationFailed) as caught:
        OAuthBearer(lambda: token).begin("log1")
    assert "hid" not in str(caught.value)
