"""PLAIN (RFC 4616): name and password in one message, as they are. Only for connections with TLS.

The broker's users stand in its own settings, as Kafka has them: options ``user_NAME="password"`` of the login module.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.errors import AuthenticationFailed
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.mechanism import Authenticated, invalid_credentials

PLAIN_NAME: Final = "PLAIN"
_USER_OPTION = "user_"

PasswordCheck = Callable[[str, str], bool]
"""Whether this is the password of this user. Takes as long for a user that does not exist."""


class PlainUsers:
    """The users that the options of a login module name: a ``PasswordCheck``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._digests = {
            name.removeprefix(_USER_OPTION): _digest(password)
            for name, password in options.items()
            if name.startswith(_USER_OPTION)
        }

    def __call__(self, user: str, password: str) -> bool:
        kept = self._digests.get(user)
        is_same = hmac.compare_digest(_digest(password), kept or _digest(""))
        return is_same and kept is not None


def _digest(password: str) -> bytes:
    """Of one length, so that a comparison tells nothing of the password's."""
    return hashlib.sha256(password.encode(errors="surrogatepass")).digest()


class PlainServer:
    """The broker's end."""

    def __init__(self, check: PasswordCheck) -> None:
        self._check = check
        self._is_used = False
        self.authenticated: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        if self._is_used:
            raise invalid_credentials(PLAIN_NAME)
        self._is_used = True
        authorization_id, user, password = _parts(token)
        if not self._check(user, password):
            raise invalid_credentials(PLAIN_NAME)
        if authorization_id not in ("", user):
            raise AuthenticationFailed("authentication failed: the authorization id must be the user's name")
        self.authenticated = Authenticated(Principal(USER, user))
        return b""


def _parts(token: bytes) -> tuple[str, str, str]:
    try:
        authorization_id, user, password = token.decode().split("\0")
    except ValueError:
        raise invalid_credentials(PLAIN_NAME) from None
    if not user or not password:
        raise AuthenticationFailed("authentication failed: PLAIN needs a user name and a password")
    return authorization_id, user, password


class Plain:
    """What a client does for PLAIN: a ``Mechanism``, and its own conversation, for there is nothing to remember."""

    name = PLAIN_NAME
    token_id: str | None = None
    may_wait = False

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def begin(self, host: str) -> Plain:  # noqa: ARG002 (its password is for every host)
        return self

    def first(self) -> bytes:
        return self._token

    def respond(self, challenge: bytes) -> None:
        if challenge:
            raise AuthenticationFailed("PLAIN: the broker answered what is no message of that mechanism")
