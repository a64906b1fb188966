"""What the brokers' key makes of a token's id: Kafka's HMAC, and credentials of SCRAM that all brokers agree on."""

import hmac
from base64 import b64encode

import pytest

from sparklog.security.delegation.key import TokenKey, password_of, trace_of
from sparklog.security.principal import Principal
from sparklog.security.sasl.scram import Scram, ScramServer, ScramSource, TokenOwner
from sparklog.security.sasl.scram_credential import MIN_ITERATIONS, ScramMechanism

KEY, OWNER = TokenKey("s3cret-ö"), Principal("User", "alice")


def test_the_hmac_is_the_one_that_kafka_makes():
    assert KEY.hmac_of("id") == hmac.digest("s3cret-ö".encode(), b"id", "sha512")
    assert password_of(KEY.hmac_of("id")) == b64encode(KEY.hmac_of("id")).decode()


def test_an_hmac_is_of_one_token_and_one_key():
    shown = KEY.hmac_of("id")
    assert KEY.is_hmac_of(shown, "id")
    assert not KEY.is_hmac_of(shown, "id2")
    assert not TokenKey("another").is_hmac_of(shown, "id")
    assert not any(KEY.is_hmac_of(each, "id") for each in (b"", shown[:-1], shown + b"\0"))
    assert trace_of(shown) != shown


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_brokers_make_the_same_credential_and_no_two_tokens_have_the_same_salt(mechanism):
    credential = KEY.credential_of("id", mechanism)
    assert credential == TokenKey("s3cret-ö").credential_of("id", mechanism)
    assert credential.iterations == MIN_ITERATIONS
    assert credential.salt != KEY.credential_of("id2", mechanism).salt


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("shown_id", ["id", "id2"])
def test_who_has_the_hmac_proves_it_by_scram(mechanism, shown_id):
    owner = TokenOwner(OWNER, KEY.credential_of("id", mechanism), 1)
    server = ScramServer(mechanism, ScramSource(lambda *_: None, lambda *_: owner))
    client = Scram(mechanism, "id", password_of(KEY.hmac_of(shown_id)), is_token=True).begin("log1")
    proof = client.respond(server.respond(client.first()))
    if shown_id == "id":
        client.respond(server.respond(proof))
        assert server.authenticated == (OWNER, 1, "id")
    else:
        with pytest.raises(Exception, match="invalid credentials"):
            server.respond(proof)


def test_the_secret_is_not_shown():
    assert "s3cret" not in f"{KEY!r} {KEY} {vars(KEY).keys()}"


def test_hmacs_are_compared_in_a_time_that_tells_nothing_of_them(compared):
    assert not KEY.is_hmac_of(b"guessed", "id")
    assert compared == [(b"guessed", KEY.hmac_of("id"))]
