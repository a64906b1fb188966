"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), both ends, as Kafka speaks them.

Four messages: the client's name and nonce; the salt, the number of iterations and the client's nonce with the broker's
behind it; the client's proof; the broker's signature. There is no channel binding, and an authorization id is
either empty or the user's name.

What is promised:

- A user that does not exist is answered as one that does: with a salt that is always the same for that name, and with a
  refusal where a wrong password would be refused, after the same work.
- No message has more than 16 KiB.
- The broker takes a proof only for the nonce that it made in this conversation, and only once.
- The client takes no fewer iterations than 4096, for a peer that pretends to be the broker could ask for one and try
  passwords; and so many at most that a peer cannot keep it busy. It believes only a broker that has the server key.

A client that authenticates by a delegation token says ``tokenauth=true`` in its first message, and gives the token's id
for its name and the token's HMAC for a password.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sparklog.errors import AuthenticationFailed
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.mechanism import Authenticated, invalid_credentials
from sparklog.security.sasl.scram_credential import MIN_ITERATIONS, ScramCredential, ScramMechanism, salt_of

CredentialLookup = Callable[[str, str], ScramCredential | None]
"""The credential for a mechanism (``SCRAM-SHA-256``) and a user; None where there is none. Answers from memory."""

_MOST_ITERATIONS = 1_000_000
_LONGEST = 16 << 10
"""Bytes of a message. Strangers send them, and to take one apart is paid for by everybody."""
_SASL_NAME = r"(?:[^=,\0]++|=2C|=3D)++"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
_NONCE = r"(?P<nonce>[!-+\--~]+)"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)(?P<bare>n=(?P<user>{_SASL_NAME}),r={_NONCE}{_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(rf"r={_NONCE},s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(rf"(?P<bare>c=(?P<channel>{_BASE64}),r={_NONCE}{_EXTENSIONS}),p=(?P<proof>{_BASE64})")
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^=,\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")
TOKEN_AUTH = "tokenauth"


class TokenOwner(NamedTuple):
    """Of a delegation token: whose it is, and what proves that a client has it."""

    principal: Principal
    credential: ScramCredential
    expires_ms: int


TokenLookup = Callable[[str, str], TokenOwner | None]
"""The delegation token for a mechanism and a token's id; None where there is none, or none that is valid now."""


def no_tokens(mechanism: str, token_id: str) -> TokenOwner | None:  # noqa: ARG001
    """Where delegation tokens are not enabled."""
    return None


@dataclass(frozen=True)
class ScramSource:
    """Where a broker's conversations find credentials.

    ``decoy_secret`` makes the salts of users that do not exist. With a secret that all brokers share, a stranger cannot
    tell such a user by two brokers' answers; with one that stays, not by those before and after a restart either.
    """

    credentials: CredentialLookup = field(repr=False)
    tokens: TokenLookup = field(default=no_tokens, repr=False)
    decoy_secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)


class ScramServer:
    """The broker's end. ``nonce`` makes its part of the nonce."""

    def __init__(self, mechanism: ScramMechanism, source: ScramSource, nonce: Callable[[], str] | None = None) -> None:
        self._mechanism, self._source = mechanism, source
        self._nonce = nonce or _new_nonce
        self._next: Callable[[bytes], bytes] | None = self._first
        self.extensions: dict[str, str] = {}
        """What the client has said beyond its name; Kafka knows ``tokenauth``, and passes over others."""
        self.authenticated: Authenticated | None = None
        self._candidate: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        step, self._next = self._next, None
        if step is None:
            raise invalid_credentials(self._mechanism.title)
        return step(token)

    def _first(self, token: bytes) -> bytes:
        first = self._matched(_CLIENT_FIRST, token)
        user = _user_name(first["user"])
        if first["authzid"] is not None and _user_name(first["authzid"]) != user:
            raise AuthenticationFailed("authentication failed: the authorization id must be the user's name")
        self.extensions = _extensions(first["extensions"])
        self._gs2, self._client_first = first["gs2"], first["bare"]
        self._credential = self._find(user)
        self._whole_nonce = first["nonce"] + self._nonce()
        salt, iterations = b64encode(self._credential.salt).decode(), self._credential.iterations
        self._server_first = f"r={self._whole_nonce},s={salt},i={iterations}"
        self._next = self._final
        return self._server_first.encode()

    def _find(self, user: str) -> ScramCredential:
        """The user's credential, or one like it that nobody has."""
        if self.extensions.get(TOKEN_AUTH, "").lower() == "true":
            owner = self._source.tokens(self._mechanism.title, user)
            credential = None if owner is None else owner.credential
            found = None if owner is None else Authenticated(owner.principal, owner.expires_ms, user)
        else:
            credential = self._source.credentials(self._mechanism.title, user)
            found = Authenticated(Principal(USER, user))
        decoy = self._decoy(user)  # made whether it is needed or not, for both to take as long
        if credential is None or credential.iterations < MIN_ITERATIONS:
            return decoy
        self._candidate = found
        return credential

    def _decoy(self, user: str) -> ScramCredential:
        def made(what: str) -> bytes:
            return self._mechanism.hmac(self._source.decoy_secret, f"{self._mechanism.title},{what},{user}".encode())

        return ScramCredential(salt_of(made("salt")), made("stored"), made("server"), MIN_ITERATIONS)

    def _final(self, token: bytes) -> bytes:
        final = self._matched(_CLIENT_FINAL, token)
        message = f"{self._client_first},{self._server_first},{final['bare']}".encode()
        is_proved = self._is_proof(b64decode(final["proof"]), message)
        is_ours = final["nonce"] == self._whole_nonce and b64decode(final["channel"]) == self._gs2.encode()
        signature = b64encode(self._mechanism.hmac(self._credential.server_key, message))
        if not is_proved or not is_ours or self._candidate is None:
            raise invalid_credentials(self._mechanism.title)
        self.authenticated = self._candidate
        return b"v=" + signature

    def _is_proof(self, proof: bytes, message: bytes) -> bool:
        stored_key = self._credential.stored_key
        signature = self._mechanism.hmac(stored_key, message)
        if len(proof) != len(signature):
            return False
        return hmac.compare_digest(self._mechanism.hash(_xor(signature, proof)), stored_key)

    def _matched(self, pattern: re.Pattern[str], token: bytes) -> re.Match[str]:
        found = _match(pattern, token)
        if found is None:
            raise invalid_credentials(self._mechanism.title)
        return found


class Scram:
    """What a client does for SCRAM: a ``Mechanism``. With ``is_token`` the user is a delegation token's id, and the
    password its HMAC in base64.
    """

    may_wait = False

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] | None = None,
    ) -> None:
        self.name = mechanism.title
        self.token_id = user if is_token else None
        self._mechanism, self._user, self._password = mechanism, user, password
        self._extensions = {TOKEN_AUTH: "true"} if is_token else {}
        self._nonce = nonce or _new_nonce
        self._salted: tuple[tuple[bytes, int], bytes] | None = None

    def begin(self, host: str) -> ScramClient:  # noqa: ARG002 (its password is for every host)
        return ScramClient(self._mechanism, self._user, self._extensions, self._salt, self._nonce())

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        """The salted password; the last one is kept, for most connections have the same."""
        if self._salted is None or self._salted[0] != (salt, iterations):
            self._salted = ((salt, iterations), self._mechanism.salted(self._password, salt, iterations))
        return self._salted[1]


class ScramClient:
    """The client's end; ``salted`` makes the salted password of a salt and a number of iterations."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        extensions: Mapping[str, str],
        salted: Callable[[bytes, int], bytes],
        nonce: str,
    ) -> None:
        self._mechanism, self._salt, self._nonce = mechanism, salted, nonce
        told = "".join(f",{name}={value}" for name, value in extensions.items())
        self._client_first = f"n={_sasl_name(user)},r={nonce}{told}"
        self._next: Callable[[bytes], bytes | None] | None = self._proof

    def first(self) -> bytes:
        return f"n,,{self._client_first}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        step, self._next = self._next, None
        if step is None:
            raise self._distrust("said more than it may")
        return step(challenge)

    def _proof(self, challenge: bytes) -> bytes:
        first = self._matched(_SERVER_FIRST, challenge)
        nonce, iterations = first["nonce"], int(first["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._distrust("answered with a nonce that is not ours")
        if not MIN_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise self._distrust(f"asked for {iterations} iterations: {MIN_ITERATIONS} to {_MOST_ITERATIONS} are done")
        salted = self._salt(b64decode(first["salt"]), iterations)
        client_key, bare = self._mechanism.hmac(salted, b"Client Key"), f"c=biws,r={nonce}"
        message = f"{self._client_first},{challenge.decode()},{bare}".encode()
        signature = self._mechanism.hmac(self._mechanism.hash(client_key), message)
        self._expected = self._mechanism.hmac(self._mechanism.hmac(salted, b"Server Key"), message)
        self._next = self._verify
        return f"{bare},p={b64encode(_xor(client_key, signature)).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        final = self._matched(_SERVER_FINAL, challenge)
        if final["error"] is not None:
            raise AuthenticationFailed(f"the broker refused us by {self._mechanism.title}: {final['error']}")
        if not hmac.compare_digest(b64decode(final["signature"]), self._expected):
            raise self._distrust("does not know our password: it is not who it pretends to be")

    def _matched(self, pattern: re.Pattern[str], challenge: bytes) -> re.Match[str]:
        found = _match(pattern, challenge)
        if found is None:
            raise self._distrust("answered what is no message of that mechanism")
        return found

    def _distrust(self, what: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"{self._mechanism.title}: the broker {what}")


def _match(pattern: re.Pattern[str], token: bytes) -> re.Match[str] | None:
    if len(token) > _LONGEST:
        return None
    try:
        return pattern.fullmatch(token.decode())
    except UnicodeDecodeError:
        return None


def _new_nonce() -> str:
    return secrets.token_urlsafe(24)


def _sasl_name(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _user_name(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def _extensions(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name: value for name, _, value in pairs}


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
