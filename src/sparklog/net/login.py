"""SASL from the asking end, without a socket: the requests of one authentication, one after another.

A generator, which the drivers of both kinds run by ``advanced``: it yields what is to be asked and in which version,
and is sent the answer. What it returns is how long the authentication lasts.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple, cast

from sparklog.errors import ApiError, AuthenticationFailed, DelegationTokenRefused, ErrorCode
from sparklog.net.versions import PeerVersions
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    Request,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from sparklog.security.sasl.mechanism import Mechanism
from sparklog.structs import Endpoint

_TOKENS_IN_REQUESTS: Final = 1
"""The version of SaslHandshake after which the tokens come in requests; before it they are bare bytes."""
_USED: Final = 0.85
"""Of its lifetime, when an authentication is made anew. Kafka's clients do it between this and 0.95."""
_NO_SASL: Final = (
    "it asks for no SASL: set security.protocol=PLAINTEXT or SSL, or connect to a listener that asks for it"
)


class Question(NamedTuple):
    """What is to be asked next."""

    api: ApiKey
    version: int
    message: Request[Any]


Login = Generator[Question, Any, float | None]
"""Is sent the decoded answers. Returns after how many seconds to authenticate again; None for never."""


class LoggedIn(NamedTuple):
    """The end of it."""

    lasts_s: float | None
    """After how many seconds to authenticate again; None for never."""


def advanced(steps: Login, answer: object) -> Question | LoggedIn:
    """What comes behind the answer; None begins. May wait where the mechanism may."""
    try:
        return steps.send(answer)
    except StopIteration as end:
        return LoggedIn(end.value)


def login(endpoint: Endpoint, mechanism: Mechanism, versions: PeerVersions) -> Login:
    """Prove to the broker at ``endpoint`` who we are. Raises AuthenticationFailed where it does not believe it."""
    _check_offered(endpoint, versions)
    answer: SaslHandshakeResponse = yield Question(
        ApiKey.SASL_HANDSHAKE, _TOKENS_IN_REQUESTS, SaslHandshakeRequest(mechanism=mechanism.name)
    )
    _check_agreed(endpoint, mechanism.name, answer)
    version = versions.best(ApiKey.SASL_AUTHENTICATE)
    conversation = mechanism.begin(endpoint.host)
    token: bytes | None = conversation.first()
    lifetime_ms = 0
    while token is not None:
        request = SaslAuthenticateRequest(version=version, auth_bytes=token)
        told = cast(SaslAuthenticateResponse, (yield Question(ApiKey.SASL_AUTHENTICATE, version, request)))
        _check_accepted(endpoint, mechanism, told)
        lifetime_ms = told.session_lifetime_ms or 0
        try:
            token = conversation.respond(told.auth_bytes or b"")
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"broker {endpoint} has not proved who it is: {error}") from error
    return lifetime_ms * _USED / 1000 if lifetime_ms > 0 else None


def _check_offered(endpoint: Endpoint, versions: PeerVersions) -> None:
    if versions.highest(ApiKey.SASL_HANDSHAKE) < _TOKENS_IN_REQUESTS or not versions.serves(ApiKey.SASL_AUTHENTICATE):
        raise AuthenticationFailed(f"broker {endpoint} cannot be authenticated to: {_NO_SASL}")


def _check_agreed(endpoint: Endpoint, name: str, answer: SaslHandshakeResponse) -> None:
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(f"broker {endpoint} does not take sasl.mechanism={name}; it takes {offered}")
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(f"broker {endpoint} cannot be authenticated to: {_NO_SASL}")
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"broker {endpoint} answered the SASL handshake")


def _check_accepted(endpoint: Endpoint, mechanism: Mechanism, answer: SaslAuthenticateResponse) -> None:
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.NONE:
        return
    told = answer.error_message or code.name
    text = f"broker {endpoint} refused us ({mechanism.name}): {told}"
    if code.retriable:
        raise ApiError(code, text)
    if mechanism.token_id is not None:
        raise DelegationTokenRefused(
            f"broker {endpoint} refused delegation token {mechanism.token_id}, which has ended or was ended: {told}"
        )
    raise AuthenticationFailed(text)
