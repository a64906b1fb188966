"""SCRAM: the examples of the RFCs, and that nobody gets in, or is believed, who should not be."""

import random
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import AuthenticationFailed
from sparklog.security.principal import Principal
from sparklog.security.sasl.mechanism import Authenticated
from sparklog.security.sasl.scram import Scram, ScramServer, ScramSource, TokenOwner
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism
CREDENTIALS = {
    (mechanism.title, user): ScramCredential.of_password(mechanism, password)
    for mechanism in ScramMechanism
    for user, password in (("alice", "secret"), ("a,b=c", "päss,=word"))
}
OWNER = Principal("User", "alice")


def token(mechanism, token_id):
    if token_id != "id-1":
        return None
    return TokenOwner(OWNER, ScramCredential.of_password(SHA_512, "hmac"), 5000)


SOURCE = ScramSource(lambda mechanism, user: CREDENTIALS.get((mechanism, user)), token)


def talk(client, server, between=lambda number, message: message):
    """All messages, each as ``between`` passes it on; whether the client holds the broker for what it is."""
    conversation = client.begin("log1")
    message, number = conversation.first(), 0
    while message is not None:
        message = between(number, message)
        message = server.respond(message) if number % 2 == 0 else conversation.respond(message)
        number += 1


def test_the_example_of_rfc_7677():
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.of_password(SHA_256, "pencil", 4096, salt)
    source = ScramSource(lambda *_: credential)
    server = ScramServer(SHA_256, source, lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    messages = []
    talk(
        Scram(SHA_256, "user", "pencil", nonce=lambda: "rOprNGfwEbeRWgbNEkqO"),
        server,
        lambda _, m: messages.append(m) or m,
    )
    assert [each.decode() for each in messages] == [
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]
    assert server.authenticated == Authenticated(Principal("User", "user"))


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("a,b=c", "päss,=word")])
def test_who_has_the_password_gets_in(mechanism, user, password):
    client = Scram(mechanism, user, password)
    for _ in range(2):
        server = ScramServer(mechanism, SOURCE)
        assert server.authenticated is None
        talk(client, server)
        assert server.authenticated == Authenticated(Principal("User", user))


@pytest.mark.parametrize(("user", "password"), [("alice", "Secret"), ("alice", ""), ("bob", "secret"), ("bob", "")])
def test_a_wrong_password_and_a_wrong_name_are_answered_alike(user, password):
    server, messages = ScramServer(SHA_256, SOURCE), []
    with pytest.raises(AuthenticationFailed) as caught:
        talk(Scram(SHA_256, user, password), server, lambda _, message: messages.append(message) or message)
    assert str(caught.value) == "authentication failed: invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert server.authenticated is None
    assert len(messages) == 3
    assert messages[1].endswith(b",i=4096")


def test_a_user_that_is_not_there_has_one_salt_of_its_own():
    def salt(user, source=SOURCE):
        return ScramServer(SHA_256, source).respond(f"n,,n={user},r=abc".encode()).decode().split(",")[1]

    assert salt("bob") == salt("bob")
    assert len({salt("bob"), salt("carol"), salt("alice")}) == 3
    assert abs(len(salt("bob")) - len(salt("alice"))) <= 4
    assert salt("bob") != salt("bob", ScramSource(lambda *_: None))
    shared = [ScramSource(lambda *_: None, decoy_secret=b"shared") for _ in range(2)]
    assert salt("bob", shared[0]) == salt("bob", shared[1])


def test_a_stored_credential_of_too_few_iterations_lets_nobody_in():
    weak = ScramCredential.of_salted(SHA_256, SHA_256.salted("secret", b"salt", 4095), b"salt", 4095)
    with pytest.raises(AuthenticationFailed):
        talk(Scram(SHA_256, "alice", "secret"), ScramServer(SHA_256, ScramSource(lambda *_: weak)))


def test_a_delegation_token_stands_for_its_owner():
    server = ScramServer(SHA_512, SOURCE)
    talk(Scram(SHA_512, "id-1", "hmac", is_token=True), server)
    assert server.authenticated == Authenticated(OWNER, 5000, "id-1")
    assert server.extensions == {"tokenauth": "true"}


@pytest.mark.parametrize(
    ("user", "password", "is_token"),
    [("id-1", "hmac", False), ("id-2", "hmac", True), ("id-1", "secret", True), ("alice", "secret", True)],
)
def test_a_token_is_no_user_and_a_user_no_token(user, password, is_token):
    server = ScramServer(SHA_512, SOURCE)
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        talk(Scram(SHA_512, user, password, is_token=is_token), server)
    assert server.authenticated is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n=alice,r=abc",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=abc",
        b"n,,n=al=2cice,r=abc",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=abc,=x",
        b"n,,n=alice\x00,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=alice,r=abc\n",
    ],
)
def test_a_malformed_first_message_is_refused(first):
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        ScramServer(SHA_256, SOURCE).respond(first)


def test_a_message_of_a_size_that_nobody_needs_is_not_taken_apart():
    short, long = (f"n,,n={'x' * size},r=abc".encode() for size in (16_000, 17_000))
    assert ScramServer(SHA_256, SOURCE).respond(short)
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        ScramServer(SHA_256, SOURCE).respond(long)
    with pytest.raises(AuthenticationFailed, match="no message"):
        Scram(SHA_256, "alice", "secret").begin("log1").respond(b"r=" + b"x" * 17_000 + b",s=AAAA,i=4096")


def test_the_authorization_id_must_be_the_user_whether_there_is_such_a_user_or_not():
    for user in ("alice", "nobody"):
        with pytest.raises(AuthenticationFailed, match="authorization id"):
            ScramServer(SHA_256, SOURCE).respond(f"n,a=admin,n={user},r=abc".encode())
    assert ScramServer(SHA_256, SOURCE).respond(b"n,a=alice,n=alice,r=abc,unknown=1").startswith(b"r=abc")


def test_an_authorization_id_is_bound_into_the_proof():
    def final_of(channel):
        server = ScramServer(SHA_256, SOURCE, lambda: "xyz")
        first, bare = server.respond(b"n,a=alice,n=alice,r=abc").decode(), f"c={b64encode(channel).decode()},r=abcxyz"
        credential = CREDENTIALS["SCRAM-SHA-256", "alice"]
        client_key = SHA_256.hmac(SHA_256.salted("secret", credential.salt, 4096), b"Client Key")
        signature = SHA_256.hmac(credential.stored_key, f"n=alice,r=abc,{first},{bare}".encode())
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return server.respond(f"{bare},p={b64encode(proof).decode()}".encode())

    assert final_of(b"n,a=alice,").startswith(b"v=")
    with pytest.raises(AuthenticationFailed):
        final_of(b"n,,")


def test_a_proof_counts_once_and_in_its_own_conversation():
    heard = []
    server = ScramServer(SHA_256, SOURCE)
    talk(Scram(SHA_256, "alice", "secret"), server, lambda _, message: heard.append(message) or message)
    another = ScramServer(SHA_256, SOURCE)
    another.respond(heard[0])
    for again in (server, another, ScramServer(SHA_256, SOURCE)):
        with pytest.raises(AuthenticationFailed):
            again.respond(heard[2])


def test_after_a_failure_nothing_is_answered():
    server = ScramServer(SHA_256, SOURCE)
    server.respond(b"n,,n=alice,r=abc")
    for _ in range(2):
        with pytest.raises(AuthenticationFailed):
            server.respond(b"n,,n=alice,r=abc")


@pytest.mark.parametrize("number", range(4))
@given(seed=st.integers(0, 2**32))
def test_no_changed_message_ends_well_at_both_ends(number, seed):
    """Whichever bit of whichever message is turned on its way, one end refuses. The last character before the padding
    is left alone: base64 has bits there that mean nothing.
    """
    rng = random.Random(seed)

    def turned(at, message):
        if at != number:
            return message
        bit = 8 * rng.choice([*range(len(message) - 2), len(message) - 1]) + rng.randrange(8)
        return message[: bit // 8] + bytes([message[bit // 8] ^ 1 << bit % 8]) + message[bit // 8 + 1 :]

    client = Scram(SHA_256, "alice", "secret")
    with pytest.raises(AuthenticationFailed):
        talk(client, ScramServer(SHA_256, SOURCE), turned)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"r=abcxyz,s=c2FsdA==,i=4095", "4095 iterations"),
        (b"r=abcxyz,s=c2FsdA==,i=1", "1 iterations"),
        (b"r=abcxyz,s=c2FsdA==,i=1000001", "iterations"),
        (b"r=abc,s=c2FsdA==,i=4096", "nonce"),
        (b"r=xyzabc,s=c2FsdA==,i=4096", "nonce"),
        (b"r=abcxyz,s=c2FsdA,i=4096", "no message"),
        (b"r=abcxyz,i=4096,s=c2FsdA==", "no message"),
        (b"m=x,r=abcxyz,s=c2FsdA==,i=4096", "no message"),
        (b"\xff", "no message"),
        (b"", "no message"),
    ],
)
def test_the_client_does_not_trust_a_first_answer_like_this(answer, complaint):
    conversation = Scram(SHA_256, "alice", "secret", nonce=lambda: "abc").begin("log1")
    conversation.first()
    with pytest.raises(AuthenticationFailed, match=complaint):
        conversation.respond(answer)
    with pytest.raises(AuthenticationFailed, match="more than it may"):
        conversation.respond(b"r=abcxyz,s=c2FsdA==,i=4096")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"v=AAAA", "does not know our password"),
        (b"v=", "does not know our password"),
        (b"", "no message"),
        (b"v=!", "no message"),
        (b"e=invalid-proof", "refused us by SCRAM-SHA-256: invalid-proof"),
    ],
)
def test_the_client_does_not_trust_a_broker_without_the_key(answer, complaint):
    conversation = Scram(SHA_256, "alice", "secret", nonce=lambda: "abc").begin("log1")
    conversation.first()
    conversation.respond(b"r=abcxyz,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationFailed, match=complaint):
        conversation.respond(answer)


def test_no_secret_is_in_a_repr():
    client = Scram(SHA_256, "alice", "secret")
    assert "secret" not in f"{client!r} {client.begin('log1')!r} {ScramServer(SHA_256, SOURCE)!r} {SOURCE!r}"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_keys_and_signatures_are_compared_in_a_time_that_tells_nothing_of_them(compared, mechanism):
    messages, credential = [], CREDENTIALS[mechanism.title, "alice"]
    talk(Scram(mechanism, "alice", "secret"), ScramServer(mechanism, SOURCE), lambda _, m: messages.append(m) or m)
    (_, stored_key), (signature, expected) = compared
    assert stored_key == credential.stored_key
    assert signature == expected == b64decode(messages[-1].removeprefix(b"v="))
