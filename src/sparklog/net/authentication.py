"""SASL on an accepted connection: what stands before all requests until the peer has said who it is, and proved it.

Kafka's own order (``SaslServerAuthenticator.java``): ApiVersions, if the peer likes; SaslHandshake, which names a
mechanism; then the mechanism's tokens, in SaslAuthenticate requests, or as bare frames after a SaslHandshake of version
0. Nothing else is served before the end of it.

Invariants: the principal is set once; authenticating again (KIP-368) proves the same principal by the same mechanism. A
session that has a lifetime ends with it, and one by a delegation token with the token: the next request after that is
not served. What went wrong is answered no earlier than ``failure_delay_s`` after it did, and nothing more is read
meanwhile; then the connection ends. A peer that guesses has one guess a connection, and that long to wait, whatever
else it has sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import cast

from sparklog.clock import Clock
from sparklog.errors import AuthenticationFailed, ErrorCode, RemoteProtocolError
from sparklog.net.answer import Answer, Served
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import Request, frame_response, parse_request
from sparklog.protocol.messages import (
    Message,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_request,
    encode,
)
from sparklog.security.caller import Caller
from sparklog.security.principal_builder import Peer, PrincipalBuilder, as_it_is
from sparklog.security.sasl.mechanism import Authenticated, ServerConversation
from sparklog.structs import Chunk

HANDSHAKE_VERSIONS = range(0, 2)
AUTHENTICATE_VERSIONS = range(0, 3)
_ITS_APIS = frozenset({ApiKey.SASL_HANDSHAKE.value, ApiKey.SASL_AUTHENTICATE.value})
_LONGEST_LIFETIME_MS = (1 << 63) - 1


@dataclass(frozen=True)
class SaslTerms:
    """What a listener asks for. ``begin`` makes the broker's end of a conversation by the mechanism's name."""

    begin: Mapping[str, Callable[[], ServerConversation]]
    clock: Clock
    warn: Callable[[str], None]
    """Tells the log of a failure."""
    max_size: int = 524_288
    """``sasl.server.max.receive.size``: bytes of a frame of somebody who has not authenticated."""
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """``connections.max.reauth.ms`` of each mechanism: how long an authentication lasts; 0, or a mechanism that is not
    named: as long as the connection."""
    failure_delay_s: float = 0.1
    """``connection.failed.authentication.delay.ms``"""
    builder: PrincipalBuilder = as_it_is
    token_stands: Callable[[str], bool] = lambda _: True
    """Whether the delegation token of this id stands for its owner still."""


class _State(Enum):
    BEGINNING = auto()
    """ApiVersions or SaslHandshake is to come."""
    AGREED = auto()
    """A mechanism is agreed on; its tokens come in requests."""
    BARE = auto()
    """Its tokens come as they are."""
    PASSED = auto()
    FAILED = auto()


class SaslGate:
    """One connection's."""

    def __init__(self, terms: SaslTerms, caller: Caller) -> None:
        self._terms = terms
        self._caller = caller
        self.max_size = terms.max_size
        self._state = _State.BEGINNING
        self._mechanism = ""
        self._conversation: ServerConversation | None = None
        self._known: Authenticated | None = None
        self._ends_at_s: float | None = None

    def takes(self, frame: memoryview) -> bool:
        """Whether the frame is of the authentication. Raises RemoteProtocolError where it cannot be served yet."""
        api = _api_of(frame)
        if self._state is _State.BARE:
            return True
        if self._state is _State.BEGINNING and self._known is None:
            return api != ApiKey.API_VERSIONS.value
        if self._known is None or self._state is _State.FAILED:
            return True
        if api in _ITS_APIS:
            return self._may_again or self._state is _State.AGREED
        if self._state is _State.AGREED:
            raise RemoteProtocolError("it asks for something else in the middle of authenticating again")
        if self._ends_at_s is not None and self._terms.clock.monotonic() > self._ends_at_s:
            raise RemoteProtocolError("its authentication has expired (connections.max.reauth.ms, or its credentials)")
        if self._known.token_id is not None and not self._terms.token_stands(self._known.token_id):
            raise RemoteProtocolError("its delegation token has ended")
        return False

    @property
    def _may_again(self) -> bool:
        return self._ends_at_s is not None

    def serve(self, frame: memoryview) -> Served:
        """The next step of the conversation. Raises RemoteProtocolError for a frame that is none."""
        if self._state is _State.FAILED:
            return self._answer_late(None)  # to hang up now would tell before its time that it has failed
        if self._state is _State.BARE:
            return self._take_bare(frame)
        if _api_of(frame) not in _ITS_APIS:
            raise RemoteProtocolError(
                f"it asks for API {_api_of(frame)} before it has authenticated; set security.protocol and"
                " sasl.mechanism in the client"
            )
        request = parse_request(frame)
        if request.api == ApiKey.SASL_HANDSHAKE.value and request.version in HANDSHAKE_VERSIONS:
            named = decode_request(ApiKey.SASL_HANDSHAKE, request.version, request.body)
            return self._agree(request, cast(SaslHandshakeRequest, named))
        if request.api == ApiKey.SASL_AUTHENTICATE.value and request.version in AUTHENTICATE_VERSIONS:
            shown = decode_request(ApiKey.SASL_AUTHENTICATE, request.version, request.body)
            return self._take(request, cast(SaslAuthenticateRequest, shown))
        raise RemoteProtocolError(f"it asks for {ApiKey(request.api).name} version {request.version}")

    def _agree(self, request: Request, asked: SaslHandshakeRequest) -> Served:
        offered = sorted(self._terms.begin)
        again = self._known is not None
        code = ErrorCode.NONE
        if self._state is _State.AGREED:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif asked.mechanism not in self._terms.begin or (again and asked.mechanism != self._mechanism):
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = _framed(
            ApiKey.SASL_HANDSHAKE, request, SaslHandshakeResponse(error_code=int(code), mechanisms=offered)
        )
        if code is not ErrorCode.NONE:
            return self._fail(f"{code.name}, asked for {asked.mechanism[:64]!r}", answer)
        self._mechanism = asked.mechanism
        self._conversation = self._terms.begin[asked.mechanism]()
        self._state = _State.AGREED if request.version else _State.BARE
        return answer

    def _take(self, request: Request, asked: SaslAuthenticateRequest) -> Served:
        conversation = self._conversation
        if conversation is None:
            wrong = _refusal(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
            return self._fail("SaslAuthenticate before SaslHandshake", _framed(_AUTHENTICATE, request, wrong))
        try:
            token = conversation.respond(bytes(asked.auth_bytes))
            lifetime = self._pass(conversation.authenticated)
        except AuthenticationFailed as error:
            refusal = _refusal(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
            return self._fail(str(error), _framed(_AUTHENTICATE, request, refusal))
        answer = SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime
        )
        return _framed(_AUTHENTICATE, request, answer)

    def _take_bare(self, frame: memoryview) -> Served:
        conversation = self._conversation
        assert conversation is not None
        try:
            token = conversation.respond(bytes(frame))
            self._pass(conversation.authenticated)
        except AuthenticationFailed as error:
            return self._fail(str(error), None)
        return [len(token).to_bytes(4, "big"), token]

    def _pass(self, found: Authenticated | None) -> int:
        """Milliseconds for which it lasts, 0 for ever; 0 too where it has not come to its end."""
        if found is None:
            return 0
        caller = self._caller
        peer = Peer(caller.listener, caller.protocol, caller.host, found.principal, None)
        found = found._replace(principal=self._terms.builder(peer))
        if self._known is not None and self._known.principal != found.principal:
            raise AuthenticationFailed("the connection is another principal's")
        lifetime = self._lifetime(found)
        self._ends_at_s = self._terms.clock.monotonic() + lifetime / 1000 if lifetime else None
        if self._known is None and caller.connection is not None:
            caller.connection.admit()
        self._known = found
        caller.principal, caller.token_id = found.principal, found.token_id
        self._state, self._conversation = _State.PASSED, None
        return lifetime

    def _lifetime(self, found: Authenticated) -> int:
        most = self._terms.max_reauth_ms.get(self._mechanism, 0)
        ends = [most] if most > 0 else []
        if found.expires_ms is not None:
            left = found.expires_ms - self._terms.clock.now_ms()
            if left <= 0:
                raise AuthenticationFailed("the credentials have expired")
            ends.append(left)
        return min(min(ends), _LONGEST_LIFETIME_MS) if ends else 0

    def _fail(self, why: str, answer: Answer) -> Served:
        self._state, self._conversation = _State.FAILED, None
        if self._caller.connection is not None:
            self._caller.connection.refuse()
        self._terms.warn(f"authentication of {self._caller.host} on {self._caller.listener} failed: {why}")
        return self._answer_late(answer)

    async def _answer_late(self, answer: Answer) -> Answer:
        if self._caller.connection is not None:  # which waits for this answer by now
            self._caller.connection.drain()
        await asyncio.sleep(self._terms.failure_delay_s)
        return answer


_AUTHENTICATE = ApiKey.SASL_AUTHENTICATE


def _api_of(frame: memoryview) -> int:
    return int.from_bytes(frame[:2], "big", signed=True)


def _refusal(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=int(code), error_message=message, auth_bytes=b"", session_lifetime_ms=0)


def _framed(api: ApiKey, request: Request, answer: Message) -> list[Chunk]:
    return frame_response(api, request.version, request.correlation_id, [encode(answer, request.version)])
