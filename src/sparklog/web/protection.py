"""What every request must pass, and what every answer bears (invariants 4, 6 and 7 of ``docs/adr/0039``)."""

from __future__ import annotations

import hmac
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from aiohttp import web

from sparklog.errors import (
    ApiError,
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ErrorCode,
    LocalProtocolError,
    SparklogError,
)

_log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

TOKEN: Final = "X-Sparklog-Token"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_READING: Final = frozenset({"GET", "HEAD"})
_STATUS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.UNSUPPORTED_VERSION: 501,
    ErrorCode.SECURITY_DISABLED: 501,
}


def refusal(status: int, code: str, text: str, headers: dict[str, str] | None = None) -> web.Response:
    """An answer that says what is wrong, as all of the API's do."""
    return web.json_response({"error": {"code": code, "message": text}}, status=status, headers=headers)


def guarded(origins: frozenset[str]) -> Any:
    """The middleware that lets pass what may be answered; ``origins`` are the server's own."""
    names = {each.partition("://")[2] for each in origins}

    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        for check, own in ((_misdirected, names), (_foreign, origins)):
            refused = check(request, own)
            if refused is not None:  # an answer may count as false
                return refused
        return await _answered(request, handler)

    return web.middleware(guard)


class GuardedConnection(web.RequestHandler):  # type: ignore[misc]
    """aiohttp's connection, whose own answers, to what is no request, bear the headers of all."""

    __slots__ = ()

    def handle_error(self, *args: Any, **more: Any) -> web.StreamResponse:
        answer = super().handle_error(*args, **more)
        answer.headers.update(HEADERS)
        return answer


async def add_headers(_: web.Request, answer: web.StreamResponse) -> None:
    """Before an answer goes out."""
    answer.headers.update(HEADERS)


def check_token(request: web.Request, token: str) -> None:
    """Raises HTTPForbidden where a change does not come with its session's token."""
    told = request.headers.get(TOKEN, "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(told, token.encode()):
        raise web.HTTPForbidden(text="the page is of another session: load it again")


def _misdirected(request: web.Request, own: Collection[str]) -> web.StreamResponse | None:
    """A name that is not ours may have been pointed at us by a foreign page."""
    if request.headers.get("Host", "").lower() in own:
        return None
    return refusal(421, "WRONG_HOST", "this server has another name; start it with --origin to give it this one")


def _foreign(request: web.Request, own: Collection[str]) -> web.StreamResponse | None:
    """The API is for our own page alone, and what may change something must be what no form can send."""
    if not request.path.startswith("/api/"):
        return None
    origin = request.headers.get("Origin")
    is_ours = origin is None or origin.lower() in own
    if not is_ours or request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return refusal(403, "FOREIGN_ORIGIN", "another page may not ask for this")
    if request.method not in _READING and request.content_type != "application/json":
        return refusal(415, "NOT_JSON", "a change is asked for in JSON")
    return None


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return refusal(error.status, error.reason.upper().replace(" ", "_"), error.text or error.reason)
    except AuthenticationFailed:
        return refusal(401, "LOGIN_NEEDED", "the brokers do not accept this user's password any more: log in again")
    except ApiError as error:
        return refusal(_STATUS.get(error.code, 400), error.code.name, error.reason or error.code.name)
    except ConnectionFailed as error:
        return refusal(502, "NO_BROKER", str(error))
    except (ConfigError, LocalProtocolError, ValueError) as error:
        return refusal(400, "INVALID_REQUEST", str(error))
    except SparklogError as error:
        return refusal(502, type(error).__name__, str(error))
    except Exception as error:
        _log.error("unexpected error at %s: %s", request.method, _place_of(error))
        return refusal(500, "UNEXPECTED", "unexpected error: the server's log says where; please report it")


class WithoutWords(logging.Filter):
    """For the log of aiohttp: of an exception its kind and its place, not its text, which may hold what was sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text, record.exc_info = _place_of(record.exc_info[1]), None
        return True


def _place_of(error: BaseException) -> str:
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"
