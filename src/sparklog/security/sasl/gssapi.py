"""GSSAPI (RFC 4752), both ends, as Kafka speaks it: Kerberos says who the client is, and secures nothing behind that.

First the tokens of a security context, then three more: the broker offers security layers, the client chooses one and
may name whom it acts for, and the broker is content. A client that has its context and nothing more to say for it
sends an empty token. A broker that owes the client's last token no answer offers at once, as ``GssKrb5Server.java``.

What is promised:

- No security layer is offered, and none is taken: TLS is for that.
- The broker takes the principal of the context. The user that the client wants to act for is passed over, as in Kafka,
  whose clients name themselves there.
- The client asks for mutual authentication, and goes on only with a broker that has the service's key.
- What failed is told the broker's log. The client hears that its credentials are invalid, whatever it was.

The contexts are of a library (``kerberos``); nothing here asks a network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from sparklog.errors import AuthenticationFailed
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.mechanism import Authenticated, invalid_credentials

GSSAPI_NAME: Final = "GSSAPI"
_NO_LAYER = 1
"""The bit of an offer, and the choice, for no security layer."""
_NONE_OF_ANY_SIZE = bytes([_NO_LAYER, 0, 0, 0])
"""Without a layer no message of it may come: 0 bytes in three bytes."""


class ContextFailed(AuthenticationFailed):
    """A security context did not come to be, or a message is none of its."""


class Context(Protocol):
    """One end of a security context. All raise ContextFailed."""

    @property
    def is_established(self) -> bool:
        """Whether this end needs no more tokens for it."""

    @property
    def peer(self) -> str:
        """The principal at the other end, once it is established."""

    def step(self, token: bytes) -> bytes:
        """The token to send next, of the peer's last one; either is empty where there is none."""

    def wrap(self, data: bytes) -> bytes:
        """A message to the peer, signed."""

    def unwrap(self, message: bytes) -> bytes:
        """The data of a message that the peer has signed."""


class GssapiServer:
    """The broker's end. ``user_of`` makes a user's name of a principal, or raises AuthenticationFailed; ``refused`` is
    told why a client is not believed.
    """

    def __init__(
        self, context: Context, user_of: Callable[[str], str], refused: Callable[[str], None] = lambda _: None
    ) -> None:
        self._context, self._user_of, self._refused = context, user_of, refused
        self._next: Callable[[bytes], bytes] | None = self._establish
        self.authenticated: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        step, self._next = self._next, None
        if step is None:
            raise invalid_credentials(GSSAPI_NAME)
        try:
            return step(token)
        except ContextFailed as error:
            self._refused(f"a client is not believed by {GSSAPI_NAME}: {error}")
            raise invalid_credentials(GSSAPI_NAME) from None

    def _establish(self, token: bytes) -> bytes:
        answer = self._context.step(token)
        if self._context.is_established:
            self._next = self._offer
            return answer or self.respond(b"")
        if not answer:
            raise ContextFailed("it sent what begins no context")
        self._next = self._establish
        return answer

    def _offer(self, token: bytes) -> bytes:
        if token:
            raise ContextFailed("it sent a token behind the last one of its context")
        self._next = self._take
        return self._context.wrap(_NONE_OF_ANY_SIZE)

    def _take(self, token: bytes) -> bytes:
        chosen = self._context.unwrap(token)
        if len(chosen) < len(_NONE_OF_ANY_SIZE) or chosen[0] != _NO_LAYER:
            raise ContextFailed("it wants a security layer; there is none, use TLS")
        self.authenticated = Authenticated(Principal(USER, self._user_of(self._context.peer)))
        return b""


class Gssapi:
    """What a client does for GSSAPI: a ``Mechanism``. ``initiate`` begins a context with the service on a host."""

    name = GSSAPI_NAME
    token_id: str | None = None
    may_wait = True

    def __init__(self, initiate: Callable[[str], Context]) -> None:
        self._initiate = initiate

    def begin(self, host: str) -> GssapiClient:
        return GssapiClient(self._initiate(host))


class GssapiClient:
    """The client's end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._has_chosen = False

    def first(self) -> bytes:
        return self._context.step(b"")

    def respond(self, challenge: bytes) -> bytes | None:
        if self._has_chosen:
            if challenge:
                raise ContextFailed("the broker said more than it may")
            return None
        if not self._context.is_established:
            return self._context.step(challenge)
        offered = self._context.unwrap(challenge)
        if len(offered) != len(_NONE_OF_ANY_SIZE) or not offered[0] & _NO_LAYER:
            raise ContextFailed("the broker wants a security layer, which there is not in Kafka's protocol")
        self._has_chosen = True
        return self._context.wrap(_NONE_OF_ANY_SIZE)
