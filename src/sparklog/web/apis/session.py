"""Which user the visitor is; logging in and out."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from aiohttp import web

from sparklog import __version__
from sparklog.errors import AuthenticationFailed
from sparklog.web.asked import body, text
from sparklog.web.context import CONTEXT, WebContext
from sparklog.web.protection import check_token, refusal
from sparklog.web.visitors import Visitor


async def session(request: web.Request) -> web.Response:
    """What the page must know first."""
    context = request.app[CONTEXT]
    visitor = None
    if context.settings.is_open or context.cookie in request.cookies:
        with suppress(web.HTTPUnauthorized):
            visitor = await context.visitor(request)
    return web.json_response(_told(context, visitor))


async def log_in(request: web.Request) -> web.Response:
    """Try a user's password at the brokers; it answers with a new session's cookie.

    Raises ValueError where the cluster asks for no password.
    """
    context = request.app[CONTEXT]
    if context.settings.is_open:
        raise ValueError("this cluster asks for no password")
    asked = await body(request)
    user, password = text(asked, "user"), text(asked, "password")
    address = request.remote or ""
    async with context.trying:
        wait = context.throttle.wait_s(user, address)
        if wait > 0:
            told = f"too many wrong passwords: try again in {math.ceil(wait)} s"
            return refusal(429, "TRY_LATER", told, {"Retry-After": str(math.ceil(wait))})
        try:
            cookie, visitor = await context.visitors.log_in(user, password)
        except AuthenticationFailed:
            context.throttle.failed(user, address)
            return refusal(401, "WRONG_LOGIN", "the brokers accept no such user with this password")
    context.throttle.succeeded(user, address)
    await context.visitors.log_out(request.cookies.get(context.cookie, ""))
    answer = web.json_response(_told(context, visitor))
    answer.set_cookie(
        context.cookie, cookie, path="/", httponly=True, samesite="Strict", secure=context.settings.is_tls
    )
    return answer


async def log_out(request: web.Request) -> web.Response:
    """End the session, and close its connections."""
    context = request.app[CONTEXT]
    if not context.settings.is_open:
        check_token(request, (await context.visitor(request)).token)
        await context.visitors.log_out(request.cookies.get(context.cookie, ""))
    answer = web.json_response(_told(context, None))
    answer.del_cookie(context.cookie, path="/", secure=context.settings.is_tls, httponly=True, samesite="Strict")
    return answer


def _told(context: WebContext, visitor: Visitor | None) -> dict[str, Any]:
    return {
        "version": __version__,
        "login_needed": visitor is None,
        "can_log_in": not context.settings.is_open,
        "user": None if visitor is None else visitor.user,
        "token": None if visitor is None else visitor.token,
        "changes_allowed": context.settings.allow_changes,
    }


ROUTES = [
    web.get("/api/session", session),
    web.post("/api/login", log_in),
    web.post("/api/logout", log_out),
]
