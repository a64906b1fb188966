"""Small answers from a server of OAuth. A redirection is not followed: it would take the secret elsewhere."""

from __future__ import annotations

import http.client
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from sparklog.errors import AuthenticationFailed, ConfigError

_LONGEST_ANSWER: Final = 1 << 20
_SERVER_ERROR = 500
_BUSY = 429


class EndpointFailed(AuthenticationFailed):
    """The server did not answer as it should; ``is_transient`` where it may later."""

    def __init__(self, reason: str, *, is_transient: bool) -> None:
        super().__init__(reason)
        self.is_transient = is_transient


class _Unmoved(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Nothing else is asked; the answer counts as an error."""


def check_url(setting: str, url: str) -> None:
    """Raises ConfigError for what is no address of a web server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{setting} must be an http or https URL with a host, or a file URL")


def fetch(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """What the server answers, of 1 MiB at most. A body makes it a POST. ``timeout`` is in seconds, for each step.

    Raises EndpointFailed, which tells nothing of headers and bodies.
    """
    asked = urllib.request.Request(url, body, {"Accept": "application/json", **(headers or {})})
    opener = urllib.request.build_opener(_Unmoved(), urllib.request.HTTPSHandler(context=tls))
    place = urlsplit(url)._replace(query="", fragment="", netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
    try:
        with opener.open(asked, timeout=timeout) as answer:
            data: bytes = answer.read(_LONGEST_ANSWER + 1)
    except HTTPError as error:
        error.close()
        is_transient = error.code >= _SERVER_ERROR or error.code == _BUSY
        raise EndpointFailed(f"{place} answered with HTTP status {error.code}", is_transient=is_transient) from None
    except (URLError, OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise EndpointFailed(f"{place} cannot be asked: {reason}", is_transient=True) from None
    if len(data) > _LONGEST_ANSWER:
        raise EndpointFailed(f"{place} answered with more than {_LONGEST_ANSWER} bytes", is_transient=False)
    return data
