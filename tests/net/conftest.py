"""A peer that answers as it is told."""

import contextlib
import socket
import threading

import pytest

from sparklog.protocol.connection import parse_request
from sparklog.protocol.messages import ApiVersionsResponse, encode
from sparklog.structs import Endpoint


class ScriptedPeer:
    """Accepts connections one after another and hands each request to ``reply``, which returns the bytes to send.

    ApiVersions is answered with ``ranges``: api → (lowest, highest). Bytes go out as they are, frame and all; None
    hangs up.
    """

    def __init__(self):
        self.ranges = {}
        self.requests = []
        self.reply = lambda request: None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream, contextlib.suppress(ConnectionError):
                self._serve(connection, stream)

    def _serve(self, connection, stream):
        while head := stream.read(4):
            request = parse_request(memoryview(stream.read(int.from_bytes(head, "big"))))
            self.requests.append(request)
            data = self._versions(request) if request.api == 18 else self.reply(request)
            if data is None:
                return
            connection.sendall(data)

    def _versions(self, request):
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=api, min_version=low, max_version=high)
            for api, (low, high) in self.ranges.items()
        ]
        message = ApiVersionsResponse(
            error_code=0,
            api_keys=keys,
            throttle_time_ms=0,
            supported_features=[],
            finalized_features_epoch=-1,
            finalized_features=[],
        )
        return self.framed(request, encode(message, request.version))

    @staticmethod
    def framed(request, body):
        data = request.correlation_id.to_bytes(4, "big") + body
        return len(data).to_bytes(4, "big") + data

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def peer():
    peer = ScriptedPeer()
    peer.ranges = {12: (0, 3), 3: (0, 8), 18: (0, 4)}
    yield peer
    peer.close()
