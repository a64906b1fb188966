"""What a broker keeps of a password for SCRAM (RFC 5802, RFC 7677), and the text that ZooKeeper has of it.

From it a proof can be checked, and neither the password nor a proof can be made. The text is Kafka's
(``ScramCredentialUtils.java``): ``salt=S,stored_key=K,server_key=K,iterations=N``, bytes in base64.

As in Kafka (``ScramFormatter.java``) a password is hashed as its UTF-8 is, without SASLprep: a password whose
characters can be written in several ways must be given in the same one each time.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from sparklog.errors import ConfigError

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""More are not taken from administrators: each authentication would cost a client so much."""
_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_FIELDS = ("salt", "stored_key", "server_key", "iterations")


class ScramMechanism(IntEnum):
    """The mechanisms, by Kafka's numbers (``ScramMechanism.java``)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def title(self) -> str:
        """As in SaslHandshake and in ZooKeeper: ``SCRAM-SHA-256``."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def digest(self) -> str:
        """The hash by the name that ``hashlib`` has for it."""
        return self.name.replace("_", "").lower()

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.digest, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.digest)

    def salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """The salted password, ``Hi`` in RFC 5802."""
        return hashlib.pbkdf2_hmac(self.digest, password.encode(), salt, iterations)


SCRAM_MECHANISMS: Final = {each.title: each for each in ScramMechanism}


@dataclass(frozen=True)
class ScramCredential:
    """What is kept of one password for one mechanism. Nothing of it is in its ``repr``."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """From a salted password, as administrators send it."""
        client_key = mechanism.hmac(salted, b"Client Key")
        return cls(salt, mechanism.hash(client_key), mechanism.hmac(salted, b"Server Key"), iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, iterations: int = MIN_ITERATIONS, salt: bytes | None = None
    ) -> ScramCredential:
        """With a new salt unless one is given. Raises ConfigError for an empty password or another number of
        iterations than Kafka takes.
        """
        check_iterations(iterations)
        if not password:
            raise ConfigError("a password must not be empty")
        salt = new_salt() if salt is None else salt
        return cls.of_salted(mechanism, mechanism.salted(password, salt, iterations), salt, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """From the text in ZooKeeper. Raises ConfigError, which tells nothing of it."""
        pairs = [item.partition("=") for item in text.split(",")]
        found = {name: value for name, _, value in pairs}
        if len(pairs) != len(_FIELDS) or found.keys() != set(_FIELDS):
            raise ConfigError(f"a SCRAM credential must have {', '.join(_FIELDS)}")
        try:
            salt, stored_key, server_key = (b64decode(found[name], validate=True) for name in _FIELDS[:3])
            return cls(salt, stored_key, server_key, int(found["iterations"]))
        except (ValueError, binascii.Error):
            raise ConfigError("a SCRAM credential is malformed") from None

    def format(self) -> str:
        """The text in ZooKeeper."""
        salt, stored_key, server_key = (
            b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"


def check_iterations(iterations: int) -> None:
    """Raises ConfigError."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ConfigError(f"SCRAM takes from {MIN_ITERATIONS} to {MAX_ITERATIONS} iterations, not {iterations}")


def new_salt() -> bytes:
    """Like those that Kafka's tools make: 130 random bits as digits of base 36."""
    return salt_of(secrets.token_bytes(32))


def salt_of(seed: bytes) -> bytes:
    """The salt that 130 bits of the seed make."""
    number, digits = int.from_bytes(seed) >> (8 * len(seed) - _SALT_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode() or b"0"
