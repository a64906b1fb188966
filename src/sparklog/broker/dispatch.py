"""From a request frame to the frame that answers it.

Whatever takes long is done in steps, so that others are served in between (``net/turns.py``): a large request is
decoded so, a large answer encoded so, and a handler may be a generator that stops after each element that it deals
with. Between two steps other requests are served and may change what a handler looks at: what it promises it promises
of each element. A handler that is a coroutine is begun in the turn in which its request is; what it does after it has
waited is timed like every other piece of work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any

from sparklog.broker.apis.cluster import api_versions
from sparklog.broker.client_quotas import metered
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.registry import HANDLERS, Handler
from sparklog.errors import ErrorCode, RemoteProtocolError
from sparklog.net.answer import Answer, Ordered, Served, Waiting, Work
from sparklog.net.request_meter import RequestMeter
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import Request, describe_request, frame_response, parse_request
from sparklog.protocol.messages import Encoded, encode, throttled
from sparklog.protocol.slices import LARGE_REQUEST, Steps, encoding_in_pieces, is_large_answer
from sparklog.security.caller import Caller
from sparklog.structs import Chunk


class Dispatcher:
    """Serves the frames of every connection.

    A malformed one raises RemoteProtocolError: the connection is beyond repair.
    """

    def __init__(self, broker: BrokerContext, turns: Turns) -> None:
        self._broker = broker
        self._turns = turns
        self.meters: dict[int, RequestMeter] = {
            each.api.value: RequestMeter(each.name, each.versions.stop) for each in HANDLERS.values()
        }
        """What counts the requests of each API, by its number; of Fetch those of consumers."""
        fetches = HANDLERS[ApiKey.FETCH].versions.stop
        self.meters[ApiKey.FETCH.value] = RequestMeter("FetchConsumer", fetches)
        self.follower_meter = RequestMeter("FetchFollower", fetches)
        """What counts the fetches of followers."""

    def __call__(self, frame: memoryview, caller: Caller, after: asyncio.Future[Any] | None = None) -> Served | Work:
        gate = caller.gate
        if gate is not None and gate.takes(frame):
            caller.meter = None
            served: Served = gate.serve(frame)
            return served
        request = parse_request(frame)
        handler = HANDLERS.get(request.api)
        if handler is None:
            raise RemoteProtocolError(f"client {request.client_id!r} asks for API {request.api}, which is not served")
        if request.version not in handler.versions:
            caller.meter = None
            return self._unsupported(request, handler)
        if len(request.body) > LARGE_REQUEST and handler.decoding is not None:
            message = handler.decoding(request.body, request.version)
            if isinstance(message, Generator):
                caller.meter = self.meters[request.api]
                return self._serve_large(frame, request, handler, caller, message, after)
        else:
            message = handler.decode(request.body, request.version)
        return self._handle(frame, request, handler, caller, message, after)

    def _serve_large(
        self,
        frame: memoryview,
        request: Request,
        handler: Handler,
        caller: Caller,
        decoding: Steps[Any],
        after: asyncio.Future[Any] | None,
    ) -> Work:
        message = yield from decoding
        served = self._handle(frame, request, handler, caller, message, after)
        return (yield from served) if isinstance(served, Generator) else served

    def _handle(
        self,
        frame: memoryview,
        request: Request,
        handler: Handler,
        caller: Caller,
        message: Any,
        after: asyncio.Future[Any] | None = None,
    ) -> Served | Work:
        caller.api = handler.api
        caller.client_id = request.client_id or ""
        is_of_follower = handler.api is ApiKey.FETCH and message.replica_id >= 0
        meter = self.follower_meter if is_of_follower else self.meters[request.api]
        meter.begin(request.version, len(frame))
        caller.meter = meter
        asked = ApiRequest(handler.api, request.version, request.client_id, caller, message, after)
        answer = handler.handle(self._broker, asked)
        if isinstance(answer, (Awaitable, Ordered)):
            return self._awaited(frame, request, handler, caller, answer)
        if isinstance(answer, Generator):
            return self._go_on(frame, request, handler, caller, answer)
        return self._framed(request, handler, caller, len(frame), answer)

    def _go_on(self, frame: memoryview, request: Request, handler: Handler, caller: Caller, steps: Steps[Any]) -> Work:
        answer = yield from steps
        served = (
            self._awaited(frame, request, handler, caller, answer)
            if isinstance(answer, (Awaitable, Ordered))
            else self._framed(request, handler, caller, len(frame), answer)
        )
        return (yield from served) if isinstance(served, Generator) else served

    def _awaited(
        self,
        frame: memoryview,
        request: Request,
        handler: Handler,
        caller: Caller,
        answer: Awaitable[Any] | Ordered[Any],
    ) -> Served:
        """The frame, where the handler waits for nothing; else a future of it, and to cancel that cancels the work."""
        what = partial(describe_request, frame)
        given = answer.answer if isinstance(answer, Ordered) else answer
        work: Any = self._await(request, handler, caller, len(frame), given, what)
        if isinstance(given, Coroutine):
            if self._broker.quotas.counts_time:
                work = metered(work, caller, self._turns.time)
            later = self._turns.begin(work, what)
        else:
            later = asyncio.ensure_future(work)
            if isinstance(given, asyncio.Future):
                later.add_done_callback(lambda _: given.cancel())  # where the work was cancelled before it began
        if isinstance(answer, Ordered):
            return Ordered(later, answer.placed)
        if later.done():
            done: Served = later.result()
            return done
        return Waiting(later) if handler.waits_for_others else later

    async def _await(
        self,
        request: Request,
        handler: Handler,
        caller: Caller,
        size: int,
        answer: Awaitable[Any],
        what: Callable[[], str],
    ) -> Answer:
        framed = self._framed(request, handler, caller, size, await answer)
        return await self._turns.drive(framed, what) if isinstance(framed, Generator) else framed

    def _framed(
        self, request: Request, handler: Handler, caller: Caller, size: int, answer: Any
    ) -> Answer | Steps[Answer]:
        throttle_ms = 0
        self._count_errors(handler.api, answer)
        if self._broker.quotas.is_on:
            throttle_ms = self._broker.quotas.charge(
                handler.api, request.version, caller, request.client_id, size, answer
            )
            if throttle_ms:
                caller.throttle(request.correlation_id, throttle_ms)
            if throttle_ms and handler.by_schema:
                answer = throttled(answer, request.version, throttle_ms)
        by_schema = handler.by_schema and not isinstance(answer, Encoded)
        if by_schema and is_large_answer(answer, request.version):
            return self._frame_large(request, handler, encoding_in_pieces(answer, request.version))
        body = handler.encode(answer, request.version, throttle_ms)
        if body is None or isinstance(body, list):
            return self._frame(request, handler, body)
        return self._frame_large(request, handler, body)

    def _count_errors(self, api: ApiKey, answer: Any) -> None:
        """Those of the whole answer, and of each partition of a Produce."""
        if api is ApiKey.PRODUCE:
            for each in (answer or {}).values():
                if each.error:
                    self.meters[api.value].fail(each.error)
        elif code := getattr(answer, "error_code", 0):
            self.meters[api.value].fail(code)

    def _frame_large(
        self, request: Request, handler: Handler, encoding: Steps[list[bytes]] | Steps[list[Chunk]]
    ) -> Steps[Answer]:
        body: Any = yield from encoding
        return self._frame(request, handler, body)

    def _frame(self, request: Request, handler: Handler, body: list[Chunk] | None) -> Answer:
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
