"""OAUTHBEARER (RFC 7628), both ends, as Kafka speaks it: the client shows a token, the broker has it validated.

The client's message is ``n,,^Aauth=Bearer TOKEN^A^A`` (``^A`` is the byte 1), with extensions ``NAME=VALUE^A`` before
the last byte. A broker that refuses the token says so in JSON; the client answers with one byte 1, and then the broker
ends the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.mechanism import Authenticated, invalid_credentials

OAUTHBEARER_NAME: Final = "OAUTHBEARER"
_AUTH = "auth"
_END = b"\x01"
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_SASL_NAME = r"(?:[^=,\0\x01]++|=2C|=3D)++"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]+\x01)*)\x01")
_TOKEN = r"[-_~+/.a-zA-Z0-9]+=*"
_BEARER = re.compile(rf"bearer +(?P<token>{_TOKEN})", re.IGNORECASE)


class ValidToken(NamedTuple):
    """What a token says, once it was believed."""

    name: str
    expires_ms: int


class TokenRefused(AuthenticationFailed):
    """A token that is not valid. ``status`` and ``scope`` are what RFC 7628 has the client told."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = "invalid_token" if scope is None else "insufficient_scope"
        self.scope = scope


Validator = Callable[[str], ValidToken]
"""What a token says; raises TokenRefused. Answers from memory."""


class OAuthBearerServer:
    """The broker's end. ``refused`` is told why, for the broker's log: the client hears no more than it must."""

    def __init__(self, validate: Validator, refused: Callable[[str], None] = lambda _: None) -> None:
        self._validate, self._refused = validate, refused
        self._is_used = False
        self.extensions: Mapping[str, str] = {}
        self.authenticated: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        if self._is_used:  # behind a refusal that is the client's byte 1; anything else is no better
            raise invalid_credentials(OAUTHBEARER_NAME)
        self._is_used = True
        authorization_id, extensions, bearer = _understood(token)
        try:
            found = self._validate(bearer)
        except TokenRefused as error:
            self._refused(str(error))
            return _refusal(error)
        if authorization_id not in ("", found.name):
            raise AuthenticationFailed("authentication failed: the authorization id must be the token's principal")
        self.extensions = extensions
        self.authenticated = Authenticated(Principal(USER, found.name), found.expires_ms)
        return b""


def _refusal(error: TokenRefused) -> bytes:
    told = {"status": error.status} | ({} if error.scope is None else {"scope": error.scope})
    return json.dumps(told, separators=(",", ":")).encode()


def _understood(token: bytes) -> tuple[str, dict[str, str], str]:
    """The authorization id, the extensions and the token of a client's first message."""
    try:
        first = _FIRST.fullmatch(token.decode())
    except UnicodeDecodeError:
        first = None
    pairs = [] if first is None else [each.partition("=")[::2] for each in first["pairs"].split("\x01") if each]
    extensions = dict(pairs)
    bearer = _BEARER.fullmatch(extensions.pop(_AUTH, ""))
    if first is None or bearer is None or not all(_VALUE.fullmatch(value) for value in extensions.values()):
        raise invalid_credentials(OAUTHBEARER_NAME)
    authorization_id = (first["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, extensions, bearer["token"]


class OAuthBearer:
    """What a client does for OAUTHBEARER: a ``Mechanism``. ``token`` gives the token of now, and may fetch a new one.

    Raises ConfigError for extensions that cannot be sent.
    """

    name = OAUTHBEARER_NAME
    token_id: str | None = None
    may_wait = True

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        self._token, self._extensions = token, dict(extensions or {})
        for name, value in self._extensions.items():
            if name == _AUTH or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ConfigError(f"{name} cannot be an extension of OAUTHBEARER: letters only, and not auth")

    def begin(self, host: str) -> OAuthBearerClient:  # noqa: ARG002 (its token is for every host)
        token = self._token()
        if not re.fullmatch(_TOKEN, token):
            raise AuthenticationFailed("our token for OAUTHBEARER has characters that no token has")
        return OAuthBearerClient(token, self._extensions)


class OAuthBearerClient:
    """The client's end."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        told = "".join(f"{name}={value}\x01" for name, value in extensions.items())
        self._first = f"n,,\x01auth=Bearer {token}\x01{told}\x01".encode()
        self._is_refused = False

    def first(self) -> bytes:
        return self._first

    def respond(self, challenge: bytes) -> bytes | None:
        if self._is_refused:
            raise AuthenticationFailed("the broker refused our token")
        if not challenge:
            return None
        self._is_refused = True  # now the broker fails, in words of its own
        return _END
