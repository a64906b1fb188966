"""What is kept of a password, and its text in ZooKeeper (``ScramCredentialUtilsTest.java``)."""

from base64 import b64decode

import pytest

from sparklog.errors import ConfigError
from sparklog.security.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    new_salt,
    salt_of,
)

TEXT = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


def test_the_mechanisms_have_kafkas_names_and_numbers():
    assert {name: int(each) for name, each in SCRAM_MECHANISMS.items()} == {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
    assert [each.digest for each in ScramMechanism] == ["sha256", "sha512"]


def test_the_text_is_kafkas():
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    assert credential.format() == TEXT
    assert ScramCredential.parse(TEXT) == credential
    assert ScramCredential.parse("iterations=5,server_key=,salt=,stored_key=") == ScramCredential(b"", b"", b"", 5)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_of_a_password_comes_back_from_its_text(mechanism):
    credential = ScramCredential.of_password(mechanism, "pencil")
    assert ScramCredential.parse(credential.format()) == credential
    assert credential.iterations == MIN_ITERATIONS
    assert credential != ScramCredential.of_password(mechanism, "pencil")  # of another salt
    again = ScramCredential.of_password(mechanism, "pencil", salt=credential.salt)
    assert again == credential


def test_the_keys_are_those_of_the_rfc():
    """RFC 7677: the server's signature of its example is made with this key."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.of_password(ScramMechanism.SHA_256, "pencil", 4096, salt)
    message = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = ScramMechanism.SHA_256.hmac(credential.server_key, message.encode())
    assert signature == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        TEXT.replace("4096", "many"),
        TEXT.replace("c2FsdA==", "c2FsdA"),
        TEXT.replace("c2FsdA==", "!"),
        TEXT.removesuffix(",iterations=4096"),
        TEXT + ",more=1",
        TEXT + ",salt=",
        TEXT.replace("salt=", "pepper="),
    ],
)
def test_a_malformed_text_is_refused_without_being_told(text):
    with pytest.raises(ConfigError) as caught:
        ScramCredential.parse(text)
    assert "c3RvcmVk" not in str(caught.value)


@pytest.mark.parametrize("iterations", [0, MIN_ITERATIONS - 1, MAX_ITERATIONS + 1])
def test_other_numbers_of_iterations_than_kafkas_are_refused(iterations):
    with pytest.raises(ConfigError, match="4096 to 16384"):
        ScramCredential.of_password(ScramMechanism.SHA_256, "pencil", iterations)


def test_an_empty_password_is_refused():
    with pytest.raises(ConfigError):
        ScramCredential.of_password(ScramMechanism.SHA_256, "")


def test_nothing_of_a_credential_is_in_its_repr():
    assert repr(ScramCredential(b"salt", b"stored", b"server", 4096)) == "ScramCredential(iterations=4096)"


def test_no_salt_comes_twice():
    assert len({new_salt() for _ in range(200)}) == 200


@pytest.mark.parametrize(
    ("seed", "salt"),
    [
        (bytes(32), b"0"),
        (bytes(16) + b"\x40" + bytes(15), b"1"),
        (b"\xff" * 32, b"1omfro7zwmumr3umxudzyj6scf"),
        (b"\xff" * 16 + b"\xc0" + bytes(15), b"1omfro7zwmumr3umxudzyj6scf"),
    ],
    ids=["the least", "one", "the greatest", "130 bits of it count"],
)
def test_a_salt_is_130_bits_in_base_36_as_kafkas_tools_write_it(seed, salt):
    assert int(salt, 36) == int.from_bytes(seed) >> 126
    assert salt_of(seed) == salt
