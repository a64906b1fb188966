"""The conversation of GSSAPI over contexts that are no library's: the order of tokens, and who is not believed."""

from dataclasses import dataclass, field

import pytest

from sparklog.errors import AuthenticationFailed
from sparklog.security.principal import Principal
from sparklog.security.sasl.gssapi import ContextFailed, Gssapi, GssapiClient, GssapiServer


@dataclass
class ScriptedContext:
    """Sends ``sends`` one after another, and is established with the last; what is wrapped begins with ``!``."""

    sends: list[bytes]
    takes: list[bytes] = field(default_factory=list)
    peer: str = "alice/host@R"

    @property
    def is_established(self):
        return not self.sends

    def step(self, token):
        self.takes.append(token)
        if token == b"garbage":
            raise ContextFailed("the keytab /etc/secret has no such key")
        return self.sends.pop(0)

    def wrap(self, data):
        return b"!" + data

    def unwrap(self, message):
        if message[:1] != b"!":
            raise ContextFailed("no signature")
        return message[1:]


def first_part(principal):
    return principal.partition("/")[0]


def server_of(*sends, told=None):
    return GssapiServer(ScriptedContext(list(sends)), first_part, [].append if told is None else told.append)


@pytest.mark.parametrize("last", [b"proof", b""], ids=["mutual", "one-sided"])
def test_both_ends_come_to_an_end(last):
    """With an answer of the broker's to the client's last token, and without one."""
    server = server_of(last)
    client = Gssapi(lambda host: ScriptedContext([b"hello", b""] if last else [b"hello"])).begin("log1")
    said = [client.first()]
    while said[-1] is not None:
        said.append(client.respond(server.respond(said[-1])))
    assert said == [b"hello", *([b""] if last else []), b"!\1\0\0\0", None]
    assert server.authenticated == (Principal("User", "alice"), None, None)


def test_a_client_that_has_nothing_to_say_is_offered_at_once():
    assert server_of(b"").respond(b"x") == b"!\1\0\0\0"


def test_a_context_may_take_several_tokens():
    server = server_of(b"1", b"2", b"")
    assert [server.respond(b"x") for _ in range(3)] == [b"1", b"2", b"!\1\0\0\0"]


def test_a_token_that_leads_nowhere_is_refused():
    """Of some tokens the library says that more must come, and has nothing to answer."""
    told = []
    server = server_of(b"", b"2", told=told)
    with pytest.raises(AuthenticationFailed):
        server.respond(b"x")
    assert told == ["a client is not believed by GSSAPI: it sent what begins no context"]


@pytest.mark.parametrize("choice", [b"!\1\0\0\0", b"!\1\0\1\0", b"!\1\0\0\0root", b"!\1\0\0\0alice/host@R"])
def test_whom_it_acts_for_is_passed_over(choice):
    server = server_of(b"")
    server.respond(b"x")
    assert server.respond(choice) == b""
    assert server.authenticated.principal.name == "alice"


@pytest.mark.parametrize(
    "tokens",
    [
        [b"garbage"],
        [b"x", b"!\2\0\0\0"],
        [b"x", b"!\3\0\0\0"],
        [b"x", b"!\0\0\0\0"],
        [b"x", b"!\1\0\0"],
        [b"x", b"!"],
        [b"x", b"\1\0\0\0"],
        [b"x", b""],
    ],
)
def test_who_is_not_believed_is_told_nothing_more(tokens):
    told = []
    server = server_of(b"", told=told)
    for token in tokens[:-1]:
        server.respond(token)
    with pytest.raises(AuthenticationFailed, match=r"^authentication failed: invalid credentials with .* GSSAPI$"):
        server.respond(tokens[-1])
    assert server.authenticated is None
    (why,) = told
    assert why.startswith("a client is not believed by GSSAPI: ")
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        server.respond(b"!\1\0\0\0")
    assert server.authenticated is None


def test_a_token_behind_the_last_one_is_refused():
    server = server_of(b"proof")
    server.respond(b"x")
    with pytest.raises(AuthenticationFailed):
        server.respond(b"more")


def test_nothing_more_is_taken_behind_the_end():
    server = server_of(b"")
    server.respond(b"x")
    server.respond(b"!\1\0\0\0")
    with pytest.raises(AuthenticationFailed):
        server.respond(b"!\1\0\0\0")


def test_a_principal_that_stands_for_nobody_is_not_let_in():
    def nobody(principal):
        raise AuthenticationFailed(f"no rule applies to {principal}")

    server = GssapiServer(ScriptedContext([b""]), nobody)
    server.respond(b"x")
    with pytest.raises(AuthenticationFailed, match="no rule applies to alice/host@R"):
        server.respond(b"!\1\0\0\0")
    assert server.authenticated is None


@pytest.mark.parametrize(
    "challenges",
    [
        [b"!\2\0\0\0"],
        [b"!\6\0\0\0"],
        [b"!\1\0\0"],
        [b"!\1\0\0\0\0"],
        [b"\1\0\0\0"],
        [b""],
        [b"!\1\0\0\0", b"more"],
    ],
)
def test_a_broker_that_says_something_else_is_not_believed(challenges):
    client = GssapiClient(ScriptedContext([b"hello"]))
    client.first()
    for challenge in challenges[:-1]:
        client.respond(challenge)
    with pytest.raises(AuthenticationFailed):
        client.respond(challenges[-1])


def test_a_broker_that_offers_layers_too_gets_none():
    client = GssapiClient(ScriptedContext([b"hello"]))
    client.first()
    assert client.respond(b"!\7\1\0\0") == b"!\1\0\0\0"
