"""The line to one broker, which answers in memory and when the test says: so the loop's turns can be counted."""

import asyncio

import pytest

from sparklog.controller import channel as channel_module
from sparklog.controller.channel import BrokerChannel
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import frame_response, parse_request
from sparklog.protocol.messages import ApiVersionsResponse, UpdateMetadataRequest, UpdateMetadataResponse, encode
from sparklog.structs import Endpoint
from sparklog.testing.scripted import HangUp, ScriptedCluster
from sparklog.zk.znodes import BrokerInfo


class Peer(asyncio.Transport):
    """What an AsyncConnection writes to: answers ApiVersions at once, and the rest on ``answer``."""

    def __init__(self, endpoint, client_id):
        super().__init__()
        self.asked = asyncio.Event()
        self._data = bytearray()
        self._closed = False
        self.connection = AsyncConnection(endpoint, client_id)
        self.connection.connection_made(self)

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def write(self, data):
        self._data += data
        if len(self._data) < 4 + int.from_bytes(self._data[:4], "big"):
            return
        frame, self._data = self._data, bytearray()
        self._request = parse_request(memoryview(frame)[4:])
        if self._request.api == ApiKey.API_VERSIONS:
            asyncio.get_running_loop().call_soon(self._feed, _versions())
        else:
            self.asked.set()

    def answer(self):
        self._feed(UpdateMetadataResponse(error_code=0))

    def _feed(self, message):
        asked = self._request
        body = encode(message, asked.version)
        for chunk in frame_response(ApiKey(asked.api), asked.version, asked.correlation_id, [body]):
            self.connection.get_buffer(-1)[: len(chunk)] = bytes(chunk)
            self.connection.buffer_updated(len(chunk))

    def close(self):
        self._closed = True

    abort = close

    def is_closing(self):
        return self._closed


def _versions():
    key = ApiVersionsResponse.ApiVersion(api_key=ApiKey.UPDATE_METADATA, min_version=0, max_version=7)
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[key],
        throttle_time_ms=0,
        supported_features=[],
        finalized_features_epoch=-1,
        finalized_features=[],
    )


@pytest.mark.parametrize("turns", range(8))
def test_closing_ends_it_in_whatever_turn_of_the_loop_the_answer_comes(turns, monkeypatch):
    async def test():
        endpoint = Endpoint("broker", 9092)
        peer = Peer(endpoint, "controller")

        async def opened(endpoint, **_):
            return peer.connection

        monkeypatch.setattr(AsyncConnection, "open", opened)
        channel = BrokerChannel(BrokerInfo(1, endpoint), "controller")
        message = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=channel.broker.epoch)
        answers = [channel.send(ApiKey.UPDATE_METADATA, message) for _ in range(3)]
        async with asyncio.timeout(60):
            await peer.asked.wait()
            peer.answer()
            for _ in range(turns):
                await asyncio.sleep(0)
            await channel.close()
        assert answers[0].done()
        assert answers[2].cancelled()
        assert peer.is_closing()

    asyncio.run(test())


def test_each_request_is_tried_until_it_is_answered_and_none_overtakes_another(monkeypatch):
    monkeypatch.setattr(channel_module, "_RETRY_SECONDS", 0.0)

    async def test():
        asked = []

        def answer(request):
            asked.append(request.message.controller_epoch)
            if len(asked) % 2:
                raise HangUp
            return UpdateMetadataResponse(error_code=0)

        async with asyncio.timeout(60), ScriptedCluster() as cluster:
            (broker,) = cluster.brokers
            broker.on[ApiKey.UPDATE_METADATA] = answer
            channel = BrokerChannel(BrokerInfo(1, broker.endpoint), "controller")
            messages = [UpdateMetadataRequest(controller_id=1, controller_epoch=n, broker_epoch=1) for n in range(3)]
            answers = [channel.send(ApiKey.UPDATE_METADATA, each) for each in messages]
            await asyncio.gather(*answers)
            await channel.close()
            assert asked == [0, 0, 1, 1, 2, 2]
            assert broker.connections == 4

    asyncio.run(test())


def test_what_a_broker_refuses_for_the_same_reason_is_one_line(monkeypatch, caplog):
    monkeypatch.setattr(channel_module, "_RETRY_SECONDS", 0.0)
    tries = []

    async def test():
        def answer(_):
            tries.append(1)
            if len(tries) <= 20:
                raise HangUp
            return UpdateMetadataResponse(error_code=0)

        async with asyncio.timeout(60), ScriptedCluster() as cluster:
            (broker,) = cluster.brokers
            broker.on[ApiKey.UPDATE_METADATA] = answer
            channel = BrokerChannel(BrokerInfo(1, broker.endpoint), "controller")
            await channel.send(
                ApiKey.UPDATE_METADATA, UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=1)
            )
            await channel.close()

    asyncio.run(test())
    assert len(tries) == 21
    assert len([each for each in caplog.messages if "did not take UPDATE_METADATA" in each]) == 1
