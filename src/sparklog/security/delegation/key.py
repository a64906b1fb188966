"""The key that all brokers of a cluster share, and what it makes of a token's id (``DelegationTokenManager.scala``).

The HMAC of a token is HMAC-SHA-512 of its id. In base64 it is the password of SCRAM that goes with the id as the user.
The salt is derived from the HMAC: so it is the same on every broker, and a client that has salted the password once
need not again. It tells nothing of the HMAC.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode

from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism, salt_of


class TokenKey:
    """``delegation.token.secret.key``. Not to be shown, and has no ``repr`` that shows it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def hmac_of(self, token_id: str) -> bytes:
        """What whoever has the token knows: 64 bytes."""
        return hmac.digest(self._secret, token_id.encode(), hashlib.sha512)

    def is_hmac_of(self, shown: bytes, token_id: str) -> bool:
        """Whether this is the token's; takes as long for a wrong one."""
        return hmac.compare_digest(shown, self.hmac_of(token_id))

    def credential_of(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """What proves that a client has the token. Takes milliseconds, on purpose."""
        secret = self.hmac_of(token_id)
        salt = salt_of(hmac.digest(secret, b"salt", hashlib.sha256))
        return ScramCredential.of_password(mechanism, password_of(secret), salt=salt)


def password_of(token_hmac: bytes) -> str:
    """The password of SCRAM that an HMAC is."""
    return b64encode(token_hmac).decode()


def trace_of(token_hmac: bytes) -> bytes:
    """By what a token can be looked up when its HMAC is shown: how long that takes tells nothing of an HMAC."""
    return hashlib.sha256(token_hmac).digest()
