"""Delegation tokens in a ZooKeeper that is none, and a broker that follows them."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

from broker.fake_notifications import FakeNotifications, Unsteady
from broker.security.acl_lists import answered, at_once

from sparklog.broker.context import ApiRequest
from sparklog.broker.security.tokens import DelegationTokens
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import MalformedZnode
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.security.delegation.key import TokenKey
from sparklog.security.delegation.token import DelegationToken, TokenRules
from sparklog.security.principal import Principal
from sparklog.testing.clock import ManualClock
from sparklog.zk.tokens import Found

NOW_MS = 1_700_000_000_000
KEY = TokenKey("key")
ALICE, BOB, CAROL = (Principal("User", each) for each in ("alice", "bob", "carol"))
OF_ALICE = DelegationToken("a", ALICE, ALICE, (CAROL,), NOW_MS, NOW_MS + 7000, NOW_MS + 1000)


class FakeStore(Unsteady):
    """What ``TokenStore`` would find; ``tell`` writes a token as somebody else, and fires the watch if not ``lost``."""

    def __init__(self, *tokens):
        self.tokens = {each.id: each for each in tokens}
        self.malformed = set()
        self.readings = 0
        self.changes = FakeNotifications(self.speak)

    def read(self, token_id):
        self.speak()
        if token_id in self.malformed:
            raise MalformedZnode(f"znode of {token_id} does not hold a delegation token")
        return self.tokens.get(token_id)

    def read_all(self):
        self.speak()
        self.readings += 1
        whole = {each: token for each, token in self.tokens.items() if each not in self.malformed}
        return Found(whole, {each: f"znode of {each} does not hold a token" for each in self.malformed})

    def change(self, token_id, change):
        before = self.read(token_id)
        after = change(before)
        if after != before:
            self.tell(token_id, after)
        return after

    def tell(self, token_id, token, *, lost=False):
        self.tokens.pop(token_id, None)
        if token is not None:
            self.tokens[token_id] = token
        self.changes.tell(token_id, lost=lost)


@asynccontextmanager
async def following(store, clock=None):
    """A broker's tokens that follow the store."""
    tokens = DelegationTokens(KEY, TokenRules(7000, 1000), store, at_once, clock or ManualClock(NOW_MS))
    await tokens.load()
    tokens.follow()
    try:
        yield tokens
    finally:
        await tokens.close()


def caller(principal=ALICE, protocol=SecurityProtocol.SASL_SSL, token_id=None):
    return Caller("10.0.0.1", "CLIENTS", protocol, principal, token_id)


def asked(handler, message, by=None, store=None, authorizer=None, version=None):
    """What a broker with the tokens of the store answers; without a store, one without a key."""

    async def main():
        clock = ManualClock(NOW_MS)
        broker = SimpleNamespace(authorizer=authorizer or AllowEverything(), clock=clock, tokens=None)
        request = ApiRequest(handler.API, version or handler.VERSIONS[-1], "c", by or caller(), message)
        if store is None:
            return await answered(handler.handle(broker, request))
        async with following(store, clock) as broker.tokens:
            return await answered(handler.handle(broker, request))

    return asyncio.run(main())
