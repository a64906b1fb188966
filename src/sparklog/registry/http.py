"""One question to a registry over HTTP, blocking. It goes to one server after another, and again after a wait.

A redirection is not followed: user and password are for the addresses that are set.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from typing import Any

from sparklog.clock import Clock
from sparklog.errors import (
    IncompatibleSchema,
    RegistryError,
    RegistryUnavailable,
    SchemaNotFound,
)
from sparklog.registry.settings import Address, RegistrySettings

_CONTENT = "application/vnd.schemaregistry.v1+json"
_ACCEPTED = f"{_CONTENT}, application/vnd.schemaregistry+json, application/json"
_MOST_BYTES = 16 << 20
_LATER = frozenset({408, 429, 500, 502, 503, 504})
"""Answers that another server, or the same one later, may give otherwise."""
_NOT_FOUND, _CONFLICT = 404, 409
_REFUSED = frozenset({401, 403})


class HttpRegistry:
    """``ask`` is for any thread."""

    def __init__(self, settings: RegistrySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._addresses = settings.addresses()
        self._tls = settings.tls_context() if any(each.is_tls for each in self._addresses) else None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, from JSON. Raises RegistryUnavailable when no server answers, and else another RegistryError."""
        wait_ms = self._settings.retries_wait_ms
        failure = RegistryUnavailable("")
        for attempt in range(self._settings.max_retries + 1):
            if attempt:
                self._clock.sleep(min(wait_ms, self._settings.retries_max_wait_ms) / 1000)
                wait_ms *= 2
            for address in self._addresses:
                try:
                    return self._ask(address, method, path, body)
                except RegistryUnavailable as error:
                    failure = error
        raise failure

    def _ask(self, address: Address, method: str, path: str, body: Any) -> Any:
        connection = self._connection(address)
        until_s = self._clock.monotonic() + self._settings.timeout_ms / 1000
        connection.response_class = partial(  # type: ignore[assignment]
            _TimedResponse, left_s=lambda: until_s - self._clock.monotonic()
        )
        try:
            connection.request(
                method, address.path + path, None if body is None else json.dumps(body), self._headers(address)
            )
            with connection.getresponse() as response:
                data = response.read(_MOST_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise RegistryUnavailable(f"the schema registry at {address} does not answer: {_reason(error)}") from error
        finally:
            connection.close()
        return _answer(address, response, data)

    def _connection(self, address: Address) -> HTTPConnection:
        timeout_s = self._settings.timeout_ms / 1000
        if not address.is_tls:
            return HTTPConnection(address.host, address.port, timeout=timeout_s)
        return HTTPSConnection(address.host, address.port, timeout=timeout_s, context=self._tls)

    def _headers(self, address: Address) -> dict[str, str]:
        found = {"Accept": _ACCEPTED, "Content-Type": _CONTENT}
        authorization = self._settings.authorization(address)
        return found if authorization is None else {**found, "Authorization": authorization}


class _TimedResponse(HTTPResponse):
    """An answer that must be whole in time, however often a byte of it comes."""

    def __init__(self, sock: socket.socket, *args: Any, left_s: Callable[[], float], **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = BufferedReader(_TimedReads(sock, self.fp.detach(), left_s))


class _TimedReads(RawIOBase):
    """``raw``, a file of ``sock``, as long as there are seconds left."""

    def __init__(self, sock: socket.socket, raw: RawIOBase, left_s: Callable[[], float]) -> None:
        self._sock, self._raw, self._left_s = sock, raw, left_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_s = self._left_s()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no whole answer came in time (schema.registry.request.timeout.ms)"
    if isinstance(error, socket.gaierror):
        return "its host is not known"
    return str(error) or type(error).__name__


def _answer(address: Address, response: HTTPResponse, data: bytes) -> Any:
    if len(data) > _MOST_BYTES:
        raise RegistryError(f"the schema registry at {address} answers with more than {_MOST_BYTES:,} bytes")
    try:
        found = json.loads(data) if data else None
    except (ValueError, RecursionError):
        found = None
    if response.status < 300 and found is not None:
        return found
    raise _refusal(address, response.status, found)


def _refusal(address: Address, status: int, found: Any) -> RegistryError:
    said = found if isinstance(found, dict) else {}
    code = said.get("error_code", 0)
    code = code if isinstance(code, int) else 0
    words = f"the schema registry at {address} answers {status}: {said.get('message') or 'without a reason'}"
    if status in _LATER:
        return RegistryUnavailable(words, status, code)
    if status in _REFUSED:
        return RegistryError(f"{words}; set basic.auth.user.info or bearer.auth.token", status, code)
    if status == _CONFLICT:
        return IncompatibleSchema(words, status, code)
    if status == _NOT_FOUND and code:
        return SchemaNotFound(words, status, code)
    advice = "" if code else "; is this its address (schema.registry.url)?"
    return RegistryError(words + advice, status, code)
