"""What handlers are given: the server's parts, and who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from sparklog.clock import Clock
from sparklog.web.decoding import Decoding
from sparklog.web.protection import check_token
from sparklog.web.settings import WebSettings
from sparklog.web.throttle import LoginThrottle
from sparklog.web.visitors import Visitor, Visitors

_TRIED_AT_ONCE: Final = 4


@dataclass(frozen=True)
class WebContext:
    """Of one server; ``port`` is known when it listens."""

    settings: WebSettings
    clock: Clock
    visitors: Visitors
    throttle: LoginThrottle
    port: int
    decoding: Decoding
    trying: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_TRIED_AT_ONCE))
    """Passwords that are tried at the same time."""

    @property
    def cookie(self) -> str:
        """Its name. Cookies of one host are shared by all ports, so the port is in it."""
        return f"{'__Host-' if self.settings.is_tls else ''}sparklog-{self.port}"

    async def visitor(self, request: web.Request) -> Visitor:
        """The visitor that asks. Raises HTTPUnauthorized where that is not known, and must be."""
        if self.settings.is_open:
            return await self.visitors.anybody()
        found = self.visitors.of_cookie(request.cookies.get(self.cookie, ""))
        if found is None:
            raise web.HTTPUnauthorized(text="log in first")
        return found


CONTEXT: Final = web.AppKey("context", WebContext)
Answering = Callable[[Visitor, web.Request], Coroutine[Any, Any, Any]]
Handling = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


def reading(answer: Answering) -> Handling:
    """A handler that answers a visitor in JSON."""

    async def handle(request: web.Request) -> web.StreamResponse:
        visitor = await request.app[CONTEXT].visitor(request)
        return web.json_response(await answer(visitor, request))

    return handle


def changing(answer: Answering) -> Handling:
    """A handler that changes something for a visitor whose page knows the session's token."""

    async def handle(request: web.Request) -> web.StreamResponse:
        visitor = await request.app[CONTEXT].visitor(request)
        check_token(request, visitor.token)
        try:
            # What was begun is not cut short by a browser that goes away.
            return web.json_response(await asyncio.shield(answer(visitor, request)))
        finally:
            visitor.fresh.forget()

    return handle
