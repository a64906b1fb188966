"""Where a client gets its token: from a file, or from the issuer for a client id and a secret (RFC 6749, 4.4)."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote_plus, urlencode

from sparklog.clock import Clock
from sparklog.errors import AuthenticationFailed
from sparklog.security.oauth.http import EndpointFailed

_REFRESH_AT = 0.8
"""Of its life, after which a token is replaced (``sasl.login.refresh.window.factor``)."""


class Grant(NamedTuple):
    """A token that the issuer gave."""

    token: str
    lasts_ms: int | None
    """Milliseconds from the grant to its end; None if neither the issuer nor the token says."""


@dataclass(frozen=True)
class TokenFile:
    """A file that somebody else keeps up to date: it is read for each connection. Raises AuthenticationFailed."""

    path: Path

    def __call__(self) -> str:
        try:
            return self.path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise AuthenticationFailed(f"the token in {self.path} cannot be read: {reason}") from None


@dataclass(frozen=True)
class ClientCredentials:
    """Asks the issuer for a token. ``post`` sends a body with headers and gives the answer.

    Raises AuthenticationFailed.
    """

    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    post: Callable[[bytes, dict[str, str]], bytes]
    clock: Clock
    is_url_encoded: bool = False
    """Of the id and the secret, as RFC 6749 has it and many servers do not
    (``sasl.oauthbearer.header.urlencode``).
    """

    def __call__(self) -> Grant:
        pair = [quote_plus(each) if self.is_url_encoded else each for each in (self.client_id, self.client_secret)]
        headers = {
            "Authorization": "Basic " + b64encode(":".join(pair).encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Cache-Control": "no-cache",
        }
        asked = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        return self._granted(self.post(urlencode(asked).encode(), headers))

    def _granted(self, answer: bytes) -> Grant:
        try:
            told = json.loads(answer)
            token = told["access_token"].strip()
            life = told.get("expires_in")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise AuthenticationFailed("the issuer's answer has no access_token") from None
        if isinstance(life, int) and life > 0:
            return Grant(token, life * 1000)
        expires_ms = _expiry(token)
        return Grant(token, None if expires_ms is None else expires_ms - self.clock.now_ms())


def _expiry(token: str) -> int | None:
    """When the token says that it ends; only to know when to ask for another."""
    import jwt

    try:
        expires = jwt.decode(token, options={"verify_signature": False}).get("exp")
    except (jwt.PyJWTError, ValueError):
        return None
    return round(expires * 1000) if isinstance(expires, int | float) else None


class KeptToken:
    """Keeps a token for most of its life, and asks for another then. May be called by several threads.

    A token's life is over when one of two clocks says so: the wall clock may be set back, and the monotonic clock
    stands still while the machine sleeps. Where the issuer fails, the client asks it again for ``patience_s``. After
    that it goes on with the old token while that is valid. Raises AuthenticationFailed where it has no valid token.
    """

    def __init__(self, ask: Callable[[], Grant], clock: Clock, patience_s: float = 10.0, pause_s: float = 0.1) -> None:
        self._ask, self._clock = ask, clock
        self._patience_s, self._pause_s = patience_s, pause_s
        self._lock = threading.Lock()
        self._grant: Grant | None = None
        self._granted = (0.0, 0.0)
        """When, by both clocks."""

    def __call__(self) -> str:
        with self._lock:
            if self._grant is None or self._has_lived(_REFRESH_AT):
                self._renew()
            assert self._grant is not None
            return self._grant.token

    def _renew(self) -> None:
        try:
            self._grant = self._asked()
        except AuthenticationFailed:
            if self._grant is None or self._has_lived(1):
                raise
            return
        self._granted = self._now()

    def _has_lived(self, part: float) -> bool:
        """Whether this part of the token's life is over. A token of unknown life counts as over at once."""
        assert self._grant is not None
        lasts_ms = (self._grant.lasts_ms or 0) * part
        return any(now - then >= lasts_ms for now, then in zip(self._now(), self._granted, strict=True))

    def _now(self) -> tuple[float, float]:
        """In milliseconds."""
        return self._clock.now_ms(), self._clock.monotonic() * 1000

    def _asked(self) -> Grant:
        give_up_at, pause = self._clock.monotonic() + self._patience_s, self._pause_s
        while True:
            try:
                return self._ask()
            except EndpointFailed as error:
                if not error.is_transient or self._clock.monotonic() + pause > give_up_at:
                    raise
            self._clock.sleep(pause)
            pause *= 2
