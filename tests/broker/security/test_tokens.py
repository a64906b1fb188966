"""A broker follows the tokens in ZooKeeper: it misses no change, and nobody comes by what has ended."""

import asyncio
from dataclasses import replace

import pytest
from broker.security.acl_lists import until
from broker.security.token_store import ALICE, BOB, CAROL, KEY, NOW_MS, OF_ALICE, FakeStore, following

from sparklog.broker.security.tokens import configured
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, CoordinationError, ErrorCode
from sparklog.security.sasl.scram_credential import ScramMechanism
from sparklog.testing.clock import ManualClock

OF_BOB = replace(OF_ALICE, id="b", owner=BOB)
SHA_256 = ScramMechanism.SHA_256


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr("sparklog.broker.following._LOOK_AT_LEAST_EVERY_S", 0.01)


def run(test, store, clock=None):
    async def main():
        async with following(store, clock) as tokens:
            await test(tokens)

    asyncio.run(main())


@pytest.mark.parametrize(("key", "are_some"), [("", False), ("k", True)])
def test_without_a_key_there_are_none(key, are_some):
    async def main():
        return configured(BrokerConfig(delegation_token_secret_key=key), None, None, ManualClock())

    assert (asyncio.run(main()) is not None) is are_some


def test_tokens_that_were_there_before_the_start_let_their_owners_in():
    async def test(tokens):
        found = tokens.find(SHA_256.title, "a")
        assert found == (ALICE, KEY.credential_of("a", SHA_256), OF_ALICE.expires_ms)
        assert tokens.find(SHA_256.title, "x") is None
        assert tokens.stands("a")
        assert not tokens.stands("x")

    run(test, FakeStore(OF_ALICE))


@pytest.mark.parametrize("lost", [False, True])
def test_what_others_change_is_in_force_here(lost):
    store = FakeStore()

    async def test(tokens):
        store.tell("a", OF_ALICE, lost=lost)
        await until(lambda: tokens.stands("a"))
        store.tell("a", replace(OF_ALICE, expires_ms=NOW_MS + 5), lost=lost)
        await until(lambda: tokens.find(SHA_256.title, "a").expires_ms == NOW_MS + 5)
        store.tell("a", None, lost=lost)
        await until(lambda: not tokens.stands("a"))
        assert store.readings == 1
        await until(lambda: store.changes.kept_ms == 900_000)

    run(test, store)


def test_a_token_ends_by_the_clock_before_its_znode_goes():
    clock = ManualClock(NOW_MS)

    async def test(tokens):
        clock.advance(1.0)
        assert tokens.find(SHA_256.title, "a")
        clock.advance(0.001)
        assert tokens.find(SHA_256.title, "a") is None
        assert not tokens.stands("a")
        assert tokens.all == (OF_ALICE,)

    run(test, FakeStore(OF_ALICE), clock)


def test_what_has_ended_is_removed_and_what_was_renewed_meanwhile_is_not():
    clock = ManualClock(NOW_MS)
    store = FakeStore(OF_ALICE, OF_BOB)

    async def test(tokens):
        store.tokens["b"] = replace(OF_BOB, expires_ms=NOW_MS + 5000)  # this broker has not heard of it yet
        clock.advance(1.001)
        await tokens.remove_ended()
        assert store.tokens.keys() == {"b"}
        assert tokens.stands("b")

    run(test, store, clock)


def test_a_token_is_in_force_when_it_is_created_and_no_two_are_the_same():
    store = FakeStore()

    async def test(tokens):
        first, second = [await tokens.create(ALICE, BOB, [CAROL], -1) for _ in range(2)]
        assert store.tokens == {first.id: first, second.id: second}
        assert first == replace(OF_ALICE, id=first.id, requester=BOB)
        assert tokens.stands(first.id)
        assert len(first.id) == 22

    run(test, store)


def test_who_shows_the_hmac_changes_the_token():
    store = FakeStore(OF_ALICE)

    async def test(tokens):
        before, after = await tokens.change(KEY.hmac_of("a"), CAROL, tokens.rules.renewed, 4000)
        assert (before, after.expires_ms) == (OF_ALICE, NOW_MS + 4000)
        assert tokens.find(SHA_256.title, "a").expires_ms == NOW_MS + 4000
        _, after = await tokens.change(KEY.hmac_of("a"), ALICE, tokens.rules.ended, -1)
        assert after is None
        assert store.tokens == {}
        assert not tokens.stands("a")

    run(test, store)


@pytest.mark.parametrize("shown", [b"", KEY.hmac_of("other"), KEY.hmac_of("a")[:-1]])
def test_another_hmac_is_none(shown):
    async def test(tokens):
        with pytest.raises(ApiError) as refused:
            await tokens.change(shown, ALICE, tokens.rules.ended, -1)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    run(test, FakeStore(OF_ALICE))


def test_a_token_that_another_broker_has_just_made_is_looked_for():
    store = FakeStore()

    async def test(tokens):
        store.tell("a", OF_ALICE, lost=True)
        _, after = await tokens.change(KEY.hmac_of("a"), ALICE, tokens.rules.renewed, 4000)
        assert after.expires_ms == NOW_MS + 4000

    run(test, store)


def test_what_another_broker_has_just_ended_is_judged_by_zookeeper():
    store = FakeStore(OF_ALICE)

    async def test(tokens):
        del store.tokens["a"]
        with pytest.raises(ApiError) as refused:
            await tokens.change(KEY.hmac_of("a"), ALICE, tokens.rules.renewed, 4000)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert store.tokens == {}

    run(test, store)


def test_all_is_read_again_where_a_number_is_missing():
    store = FakeStore()

    async def test(tokens):
        store.tokens["a"] = OF_ALICE
        store.changes.next_number += 1  # told of and forgotten while this broker was away
        store.tell("b", OF_BOB)
        await until(lambda: tokens.stands("a") and tokens.stands("b"))
        assert store.readings == 2

    run(test, store)


def test_all_is_read_again_in_another_session_and_until_then_what_was_known_holds():
    store = FakeStore(OF_ALICE)

    async def test(tokens):
        store.failures = 1 << 30
        store.changes.session_id = 2
        store.tokens = {"b": OF_BOB}
        with pytest.raises(CoordinationError):
            await tokens.create(ALICE, ALICE, [], -1)
        assert tokens.stands("a")
        store.failures = 0
        await until(lambda: tokens.stands("b") and not tokens.stands("a"))

    run(test, store)


def test_nobody_comes_by_what_cannot_be_read(caplog):
    store = FakeStore(OF_ALICE, OF_BOB)
    store.malformed.add("b")

    async def test(tokens):
        assert not tokens.stands("b")
        store.malformed.add("a")
        store.changes.tell("a")
        await until(lambda: not tokens.stands("a"))
        assert "znode of a" in caplog.text
        assert "znode of b" in caplog.text

    run(test, store)
