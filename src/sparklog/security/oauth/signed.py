"""Signed tokens: the keys of the issuer (JWKS, RFC 7517), and tokens verified with them (RFC 7519).

Keys are read at the start, and again in a thread: from time to time, and soon after a token has named a key that is not
known, for issuers change their keys. Verifying a token waits for nothing: a token with a new key is refused until that
key has been read. Strangers choose what their tokens name, so that such a reading is begun at most once in a while.

Only algorithms with a public key are taken: with a secret one, whoever can verify could also sign.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import jwt

from sparklog.clock import Clock
from sparklog.errors import ConfigError, SparklogError
from sparklog.security.oauth.claims import ClaimRules
from sparklog.security.oauth.http import EndpointFailed
from sparklog.security.sasl.oauthbearer import TokenRefused, ValidToken

_logger = logging.getLogger(__name__)
_ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512", "ES256K"),
    "OKP": ("EdDSA",),
}
_UNVERIFIED = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False, "verify_iss": False}
"""What ``ClaimRules`` decides."""


class IssuerKeys:
    """The public keys by which an issuer signs. ``read`` gives the JSON text of the set.

    Raises ConfigError if it gives no keys at first.
    """

    def __init__(self, read: Callable[[], bytes], clock: Clock, least_pause_s: float = 10.0) -> None:
        self._read, self._clock, self._least_pause_s = read, clock, least_pause_s
        self._keys = self._read_keys()
        self._read_at = clock.monotonic()
        self.wanted = threading.Event()
        """Set when a key is asked for that is not known, and it is time to read again."""

    def find(self, key_id: str | None, algorithm: str) -> list[Any]:
        """The keys that may have signed: the one of that id, or all where no id is given."""
        named = [key for key in self._keys if key_id is None or key.key_id == key_id]
        if not named and self._clock.monotonic() - self._read_at >= self._least_pause_s:
            self.wanted.set()
        return [key.key for key in named if algorithm in _ALGORITHMS.get(key.key_type or "", ())]

    def refresh(self) -> None:
        """Read the keys again; where that fails those that are known stay."""
        self.wanted.clear()
        self._read_at = self._clock.monotonic()
        try:
            self._keys = self._read_keys()
        except SparklogError as error:
            _logger.warning("the keys of the tokens' issuer stay as they are: %s", error)

    def _read_keys(self) -> list[jwt.PyJWK]:
        try:
            found = jwt.PyJWKSet.from_json(self._read().decode()).keys
        except (jwt.PyJWTError, EndpointFailed, ValueError, AttributeError, TypeError, OSError) as error:
            raise ConfigError(f"no keys of an issuer (sasl.oauthbearer.jwks.endpoint.url): {error}") from None
        return [key for key in found if key.key_type in _ALGORITHMS]


class KeyRefresher:
    """The thread that reads keys again: each ``every_s``, and when they are wanted."""

    def __init__(self, keys: IssuerKeys, every_s: float) -> None:
        self._keys, self._every_s = keys, every_s
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="sparklog-issuer-keys", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._keys.wanted.wait(self._every_s)
            if self._is_closed:
                return
            try:
                self._keys.refresh()
            except Exception:  # whatever the keys are made of: this thread alone reads the next ones
                _logger.exception("the keys of the tokens' issuer stay as they are")

    def close(self) -> None:
        self._is_closed = True
        self._keys.wanted.set()
        self._thread.join()


class SignedValidator:
    """Believes what the issuer has signed: a ``Validator``."""

    def __init__(self, keys: IssuerKeys, rules: ClaimRules, clock: Clock) -> None:
        self._keys, self._rules, self._clock = keys, rules, clock

    def __call__(self, token: str) -> ValidToken:
        return self._rules.believe(self._claims(token), self._clock.now_ms())

    def _claims(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError) as error:
            raise TokenRefused(f"this is no signed JSON web token: {error}") from None
        algorithm, key_id = str(header.get("alg")), header.get("kid")
        for key in self._keys.find(key_id, algorithm):
            try:
                found: dict[str, Any] = jwt.decode(token, key, algorithms=[algorithm], options=_UNVERIFIED)  # type: ignore[arg-type]
            except (jwt.PyJWTError, ValueError, TypeError):
                continue
            return found
        raise TokenRefused("no key of the issuer has signed this token")
