"""From a request frame to the frame that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from sparklog.broker.apis import api_versions
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.registry import HANDLERS, Handler
from sparklog.errors import ErrorCode, RemoteProtocolError
from sparklog.net.server import Answer
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import Request, frame_response, parse_request
from sparklog.protocol.messages import encode


class Dispatcher:
    """Serves the frames of every connection.

    A malformed one raises RemoteProtocolError: the connection is beyond repair.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    def __call__(self, frame: memoryview, client_host: str) -> Answer | Awaitable[Answer]:
        request = parse_request(frame)
        handler = HANDLERS.get(request.api)
        if handler is None:
            raise RemoteProtocolError(f"client {request.client_id!r} asks for API {request.api}, which is not served")
        if request.version not in handler.versions:
            return self._unsupported(request, handler)
        message = handler.decode(request.body, request.version)
        asked = ApiRequest(handler.api, request.version, request.client_id, client_host, message)
        answer = handler.handle(self._broker, asked)
        if isinstance(answer, Awaitable):
            return self._later(request, handler, answer)
        return self._frame(request, handler, answer)

    def _later(self, request: Request, handler: Handler, answer: Awaitable[Any]) -> asyncio.Future[Answer]:
        """The frame, when there is an answer; who cancels it cancels the work, begun or not."""
        work = asyncio.ensure_future(answer)
        framed: asyncio.Future[Answer] = work.get_loop().create_future()

        def settle(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if framed.done():
                return
            if done.cancelled():
                framed.cancel()
            elif error is not None:
                framed.set_exception(error)
            else:
                self._settle(framed, request, handler, done.result())

        work.add_done_callback(settle)
        framed.add_done_callback(lambda _: work.cancel())
        return framed

    def _settle(self, framed: asyncio.Future[Answer], request: Request, handler: Handler, answer: Any) -> None:
        try:
            framed.set_result(self._frame(request, handler, answer))
        except Exception as error:
            framed.set_exception(error)

    @staticmethod
    def _frame(request: Request, handler: Handler, answer: Any) -> Answer:
        body = handler.encode(answer, request.version)
        return None if body is None else frame_response(handler.api, request.version, request.correlation_id, body)

    def _unsupported(self, request: Request, handler: Handler) -> Answer:
        """ApiVersions is answered in version 0, which every client reads; for the rest the protocol has no answer."""
        if handler.api is not ApiKey.API_VERSIONS:
            raise RemoteProtocolError(
                f"client {request.client_id!r} asks for {handler.api.name} version {request.version}; "
                f"{handler.versions.start} to {handler.versions.stop - 1} are served"
            )
        response = api_versions.response(self._broker.offered, ErrorCode.UNSUPPORTED_VERSION, 0)
        return frame_response(handler.api, 0, request.correlation_id, [encode(response, 0)])
