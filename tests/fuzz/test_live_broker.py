"""A live broker under requests that no client should send: it lives, it keeps to its memory, it serves the others.

Not sent: what only a controller sends (LeaderAndIsr, StopReplica, UpdateMetadata). Without security anyone may give
orders in its name, and a broker that obeys them is right.
"""

import contextlib
import random
import socket
from collections import deque

import pytest
from fuzz.hostile import HostileEncoder, HostileFill, framed, mutated
from integration import wire

from sparklog.broker.registry import HANDLERS
from sparklog.clock import SystemClock
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SCHEMAS, is_flexible
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.fuzz, pytest.mark.integration]

ORDERS = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
SERVED = [
    (handler.api, version) for handler in HANDLERS.values() if handler.api not in ORDERS for version in handler.versions
]
LARGEST = 2 << 20
SETTINGS = {
    "socket.request.max.bytes": LARGEST,
    "queued.max.request.bytes": 32 << 20,
    "auto.create.topics.enable": "false",
    "max.incremental.fetch.session.cache.slots": 20,
}
GROWTH = 150 << 20
"""More memory than the broker may take for all of it."""
KEPT_OPEN = 25
GOOD, VICTIM = "good", "victim"
KEPT = {"retention.ms": "-1"}
"""The records of these tests have times of years ago."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("fuzzed"), settings=SETTINGS) as harness:
        with wire.connect(harness.bootstrap_servers) as connection:
            for name in (GOOD, VICTIM):
                assert wire.create_topic(connection, name, configs=KEPT)[0] is ErrorCode.NONE
        yield harness


def resident(pid):
    """Bytes of memory that the process has."""
    with open(f"/proc/{pid}/status") as status:
        line = next(each for each in status if each.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


class Attack:
    """Sends to the broker on ever new connections, and lets some of them stay."""

    def __init__(self, harness, seed):
        self.address = harness.bootstrap_servers
        self.chance = random.Random(seed)
        self._open = deque()

    def request(self, api, version):
        """A request of the API, in form."""
        body = HostileEncoder(SCHEMAS[api].request, version, HostileFill(self.chance)).encode()
        return wire.request_bytes(api, version, body, flexible=is_flexible(api, version))

    def send(self, data):
        """Send it; then hang up at once, or stay for a while without reading."""
        sock = socket.create_connection(wire.endpoint_of(self.address), 20)
        with contextlib.suppress(OSError):
            sock.sendall(data)
        self._open.append(sock)
        if self.chance.random() < 0.3 or len(self._open) > KEPT_OPEN:
            self._open.popleft().close()

    def structured(self, api, version):
        self.send(b"".join(self.request(api, version) for _ in range(self.chance.choice((1, 1, 1, 3)))))

    def mutated(self, api, version):
        data = self.request(api, version)
        head, body = data[4:8], data[8:]  # the API and its version stay, or all would end there
        self.send(framed(head + mutated(body, self.chance)))

    def raw(self, _api, _version):
        chance = self.chance
        data = chance.randbytes(chance.choice((0, 1, 3, 4, 5, 100, 5000)))
        match chance.randrange(4):
            case 0:
                data = framed(data)[: chance.randrange(len(data) + 5)]
            case 1:
                data = chance.choice((-1, 0, 5, LARGEST)).to_bytes(4, "big", signed=True) + data
            case 2:
                data = b"\0\0\0\0" * chance.randrange(5000)
        self.send(data)

    def close(self):
        while self._open:
            self._open.popleft().close()


def assert_serves(harness, written):
    """A good client's records are taken and given back."""
    tp = TopicPartition(GOOD, 0)
    with wire.connect(harness.bootstrap_servers) as good:
        value = b"good %d" % len(written)
        error, offset, _ = wire.produce(good, tp, wire.batch_of(value))
        assert (error, offset) == (ErrorCode.NONE, len(written))
        written.append(value)
        assert wire.values_in(wire.fetch(good, tp, offset)) == [value]


def attack(harness, seed, rounds, seconds):
    """Every version of every API ``rounds`` times, or as long as there is time; the first round is always whole."""
    clock = SystemClock()
    until = clock.monotonic() + seconds
    fuzz, written, before = (
        Attack(harness, seed),
        harness.__dict__.setdefault("written", []),
        resident(harness.broker(0).pid),
    )
    for number in range(rounds):
        fuzz.chance.shuffle(order := list(SERVED))
        for count, served in enumerate(order):
            fuzz.chance.choice((fuzz.structured, fuzz.structured, fuzz.mutated, fuzz.raw))(*served)
            if count % 50 == 0:
                assert_serves(harness, written)
            if number and clock.monotonic() > until:
                break
    fuzz.close()
    assert_serves(harness, written)
    with wire.connect(harness.bootstrap_servers) as good:
        assert wire.read_all(good, TopicPartition(GOOD, 0)) == written
    eventually(lambda: resident(harness.broker(0).pid) < before + GROWTH, what="memory given back")
    output = harness.broker(0).output()
    assert "Traceback" not in output, output[output.index("Traceback") - 1000 :][:6000]


def test_hostile_requests(target):
    attack(target, seed=20, rounds=10, seconds=4)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(8))
def test_hostile_requests_for_long(target, seed):
    attack(target, seed, rounds=200, seconds=60)


def test_many_clients_that_claim_much(target):
    """A hundred of the largest requests begun and not ended: memory goes by what was sent, not by what was said."""
    pid = target.broker(0).pid
    before = resident(pid)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            sock = stack.enter_context(socket.create_connection(wire.endpoint_of(target.bootstrap_servers), 20))
            sock.sendall(LARGEST.to_bytes(4, "big") + b"\0\1" + b"x" * 100)
        assert_serves(target, target.__dict__.setdefault("written", []))
        assert resident(pid) < before + (130 << 20)
