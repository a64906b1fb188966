"""Connections to other brokers: one each, whoever asks, and none that is left over."""

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparklog.errors import ConnectionFailed, PeerBusy
from sparklog.net import peers as peers_module
from sparklog.net.async_connection import AsyncConnection
from sparklog.net.peers import Peer, Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatRequest, HeartbeatResponse
from sparklog.structs import Endpoint
from sparklog.testing.scripted import HangUp, ScriptedCluster

LANE = "lane"


def heartbeat(_version):
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)


class Answers:
    """The first ``held`` requests are answered when ``gate`` is set, and ``came`` says that all of them are there."""

    def __init__(self, held=0):
        self.held = held
        self.asked = 0
        self.came, self.gate = asyncio.Event(), asyncio.Event()

    async def __call__(self, _asked):
        self.asked += 1
        if self.asked == self.held:
            self.came.set()
        if self.asked <= self.held:
            await self.gate.wait()
        return HeartbeatResponse(throttle_time_ms=0, error_code=0)


@asynccontextmanager
async def broker_and_peer(answer=None):
    async with asyncio.timeout(60), ScriptedCluster() as cluster:
        broker = cluster.brokers[0]
        broker.on[ApiKey.HEARTBEAT] = answer or Answers()
        peer = Peer(broker.endpoint, "us")
        try:
            yield broker, peer
        finally:
            await peer.close()


@asynccontextmanager
async def cluster_and_peers(brokers=1):
    async with asyncio.timeout(60), ScriptedCluster(brokers) as cluster:
        for broker in cluster.brokers:
            broker.on[ApiKey.HEARTBEAT] = Answers()
        peers = Peers("us")
        try:
            yield cluster, peers
        finally:
            await peers.close()


def ask(peer):
    return asyncio.create_task(peer.request(ApiKey.HEARTBEAT, heartbeat))


def ask_at(peers, broker, lane=LANE):
    return asyncio.create_task(peers.request(broker.endpoint, lane, ApiKey.HEARTBEAT, heartbeat))


@pytest.fixture
def gated_open(monkeypatch):
    """Connections are opened when the event is set; returns (event, how often one was asked for)."""
    open_, gate, openings = AsyncConnection.open, asyncio.Event(), []

    async def opened(endpoint, **options):
        openings.append(endpoint)
        await gate.wait()
        return await open_(endpoint, **options)

    monkeypatch.setattr(AsyncConnection, "open", opened)
    return gate, openings


def test_many_who_ask_at_once_share_one_connection():
    async def test():
        async with broker_and_peer() as (broker, peer):
            await asyncio.gather(*(ask(peer) for _ in range(5)))
            await ask(peer)
            assert broker.connections == 1

    asyncio.run(test())


def test_one_that_failed_is_replaced_once():
    async def test():
        def hang_up(_asked):
            raise HangUp

        async with broker_and_peer(hang_up) as (broker, peer):
            lost = await asyncio.gather(ask(peer), ask(peer), return_exceptions=True)
            assert [type(each) for each in lost] == [ConnectionFailed] * 2
            broker.on[ApiKey.HEARTBEAT] = Answers()
            await asyncio.gather(ask(peer), ask(peer))
            assert broker.connections == 2

    asyncio.run(test())


def test_an_address_that_nobody_listens_at_is_tried_again_with_the_next_request():
    async def test():
        async with broker_and_peer() as (broker, peer):
            await broker.stop()
            for _ in range(2):
                with pytest.raises(ConnectionFailed, match=f"cannot reach a broker at {broker.endpoint}"):
                    await ask(peer)
            await broker.start()
            await ask(peer)
            assert broker.connections == 1

    asyncio.run(test())


def test_who_is_cancelled_leaves_the_opening_to_the_others(gated_open):
    gate, openings = gated_open

    async def test():
        async with broker_and_peer() as (broker, peer):
            first, second = ask(peer), ask(peer)
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait((first,))
            gate.set()
            await second
            assert (len(openings), broker.connections) == (1, 1)

    asyncio.run(test())


def test_nobody_complains_of_an_opening_that_failed_after_the_last_who_waited(gated_open):
    gate, openings = gated_open
    complaints = []

    async def test():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        peer = Peer(Endpoint("127.0.0.1", 1), "us")
        asked = ask(peer)
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait((asked,))
        gate.set()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert (len(openings), len(others)) == (1, 1)
        await asyncio.wait(others)
        del peer, others
        gc.collect()

    asyncio.run(test())
    assert complaints == []


def test_closing_ends_an_opening_and_who_waits_for_it(gated_open):
    async def test():
        async with broker_and_peer() as (broker, peer):
            waiting = [ask(peer), ask(peer)]
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks() - {*waiting}) == 2  # this one, and the opening
            await peer.close()
            assert asyncio.all_tasks() - {*waiting} == {asyncio.current_task()}
            for each in waiting:
                with pytest.raises(ConnectionFailed, match="was closed"):
                    await each
            assert broker.connections == 0

    asyncio.run(test())


def test_closing_fails_who_waits_for_an_answer_and_who_asks_later():
    async def test():
        answers = Answers(held=2)
        async with broker_and_peer(answers) as (broker, peer):
            waiting = [ask(peer), ask(peer)]
            await answers.came.wait()
            await peer.close()
            for each in [*waiting, ask(peer)]:
                with pytest.raises(ConnectionFailed, match="was closed"):
                    await each
            assert broker.connections == 1

    asyncio.run(test())


@pytest.mark.parametrize("turns", range(12))
def test_closing_leaves_no_connection_in_whatever_turn_it_opens(turns, gated_open):
    gate, _ = gated_open
    opened = []

    async def test():
        async with broker_and_peer(Answers(held=1)) as (_, peer):
            loop: Any = asyncio.get_running_loop()
            connect = loop.create_connection

            async def create_connection(*args, **_):
                made = await connect(*args)
                opened.append(made[0])
                return made

            loop.create_connection = create_connection
            waiting = ask(peer)
            gate.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            await peer.close()
            await asyncio.wait((waiting,))
            assert isinstance(waiting.exception(), ConnectionFailed)
            assert all(transport.is_closing() for transport in opened)

    asyncio.run(test())


def test_no_more_wait_than_may(monkeypatch):
    monkeypatch.setattr(peers_module, "MAX_WAITING", 2)

    async def test():
        answers = Answers(held=2)
        async with broker_and_peer(answers) as (_, peer):
            waiting = [ask(peer), ask(peer)]
            await answers.came.wait()
            with pytest.raises(PeerBusy, match="2 requests wait"):
                await ask(peer)
            waiting[0].cancel()
            await asyncio.wait(waiting[:1])
            last = ask(peer)  # the place is free again
            with pytest.raises(PeerBusy):
                await ask(peer)
            answers.gate.set()
            await asyncio.gather(waiting[1], last)
            assert answers.asked == 3

    asyncio.run(test())


def test_a_lane_does_not_wait_for_another():
    async def test():
        async with cluster_and_peers() as (cluster, peers):
            (broker,) = cluster.brokers
            answers = broker.on[ApiKey.HEARTBEAT] = Answers(held=1)
            slow = ask_at(peers, broker, "slow")
            await answers.came.wait()
            await ask_at(peers, broker, "fast")
            assert not slow.done()
            answers.gate.set()
            await slow
            assert broker.connections == 2

    asyncio.run(test())


def test_a_broker_that_comes_back_elsewhere_is_asked_there_and_its_old_place_is_forgotten():
    async def test():
        async with cluster_and_peers(3) as (cluster, peers):
            old, other, new = cluster.brokers
            answers = old.on[ApiKey.HEARTBEAT] = Answers(held=2)
            waiting = [ask_at(peers, old), ask_at(peers, old, "another")]
            await asyncio.gather(ask_at(peers, other), answers.came.wait())
            peers.retain({other.endpoint, new.endpoint})
            for each in waiting:
                with pytest.raises(ConnectionFailed, match="was closed"):
                    await each
            await asyncio.gather(ask_at(peers, new), ask_at(peers, other))
            await ask_at(peers, old)  # or at the old place after all
            assert [each.connections for each in cluster.brokers] == [3, 1, 1]

    asyncio.run(test())


def test_when_all_are_closed_nothing_is_opened_any_more():
    async def test():
        async with cluster_and_peers(2) as (cluster, peers):
            first, second = cluster.brokers
            answers = first.on[ApiKey.HEARTBEAT] = Answers(held=1)
            waiting = ask_at(peers, first)
            await answers.came.wait()
            await peers.close()
            for each in (waiting, ask_at(peers, first), ask_at(peers, second)):
                with pytest.raises(ConnectionFailed, match="was closed"):
                    await each
            assert [each.connections for each in cluster.brokers] == [1, 0]

    asyncio.run(test())
