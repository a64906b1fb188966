"""How the admin client asks leaders to adopt segments: which brokers can, and when the next is asked for."""

import asyncio
from types import SimpleNamespace

from sparklog.client.admin.adoption import AdoptionAdmin, OfferedSegments
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.retry import Backoff
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AdoptSegmentsResponse
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

OFFERED = OfferedSegments(TopicPartition("clicks", 0), 1, "tag", (0,), 4)


class Versions:
    """What a broker speaks."""

    def __init__(self, *served):
        self.served = served

    def serves(self, api):
        return api in self.served


class Session:
    """One of ours, which has asked for silence twice, and one of Kafka's."""

    config = ClientConfig(bootstrap_servers="h:1")

    def __init__(self, *codes):
        self.leaders = SimpleNamespace(brokers={1: None, 2: None})
        self.events = []
        self.silences = [0.001, 0.002]
        self.codes = list(codes)
        self.speaks = {1: Versions(ApiKey.PRODUCE, ApiKey.ADOPT_SEGMENTS), 2: Versions(ApiKey.PRODUCE)}

    async def refresh(self, _topics):
        return self.leaders

    async def connection(self, broker, lane):
        assert lane == "adoption"

        async def versions():
            return self.speaks[broker]

        seconds = self.silences.pop(0) if self.silences else 0.0
        self.events.append("silence" if seconds else "heard")
        return SimpleNamespace(versions=versions, silent_seconds=seconds)

    async def request(self, broker, api, build, *, lane):
        assert (broker, api, lane) == (1, ApiKey.ADOPT_SEGMENTS, "adoption")
        self.events.append(f"asked for {build(0).tag}")
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        return AdoptSegmentsResponse(
            throttle_time_ms=0, error_code=code, error_message=None, first_offset=7, last_offset=10, log_start_offset=0
        )

    def backoff(self):
        self.events.append("a limit begins")
        return Backoff(self.config, ManualClock(), 60_000)


def adopt(session):
    return asyncio.run(AdoptionAdmin(session).adopt(OFFERED, "id"))


def test_a_broker_is_asked_when_its_silence_is_over_and_the_limit_of_the_call_begins_then():
    session = Session()
    assert adopt(session) == (7, 10, 0)
    assert session.events[-3:] == ["heard", "a limit begins", "asked for tag"]
    assert session.events.count("silence") == 2


def test_what_takes_long_is_asked_for_again_under_its_tag():
    session = Session(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT)
    assert adopt(session) == (7, 10, 0)
    assert session.events.count("asked for tag") == 3


def test_which_brokers_can():
    assert asyncio.run(AdoptionAdmin(Session()).adopting_brokers()) == {1}
