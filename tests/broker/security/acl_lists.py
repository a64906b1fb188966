"""Access control lists in a ZooKeeper that is none, and a broker that follows them."""

import asyncio
import inspect
from contextlib import asynccontextmanager
from types import SimpleNamespace

from broker.fake_notifications import FakeNotifications, Unsteady

from sparklog.broker.context import ApiRequest
from sparklog.broker.security.acls import Acls
from sparklog.errors import MalformedZnode
from sparklog.net.turns import Turns
from sparklog.security.access import AllowEverything
from sparklog.security.acl.authorizer import AclAuthorizer
from sparklog.security.acl.pattern import SPECIFIC
from sparklog.security.audit import AuditLog
from sparklog.security.caller import Caller
from sparklog.security.principal import Principal
from sparklog.testing.steps import finish
from sparklog.zk.acls import Found

ROOT = Caller("10.0.0.1", principal=Principal("User", "root"))
ALICE = Caller("10.0.0.1", principal=Principal("User", "alice"))


class FakeStore(Unsteady):
    """What ``AclStore`` would find; ``tell`` writes a list as somebody else, and fires the watch if not ``lost``."""

    def __init__(self):
        self.lists = {}
        self.malformed = set()
        self.readings = 0
        self.told = {type_: FakeNotifications(self.speak) for type_ in SPECIFIC}
        self.changes = tuple(self.told.values())

    def read(self, pattern):
        self.speak()
        if pattern in self.malformed:
            raise MalformedZnode(f"znode of {pattern} does not hold an access control list")
        return self.lists.get(pattern, frozenset())

    def read_all(self):
        self.speak()
        self.readings += 1
        whole = {each: entries for each, entries in self.lists.items() if each not in self.malformed}
        return Found(whole, {each: f"znode of {each} does not hold a list" for each in self.malformed})

    def change(self, pattern, change):
        before = self.read(pattern)
        after = change(before)
        if after != before:
            self.tell(pattern, *after)
        return before

    def tell(self, pattern, *entries, lost=False):
        self.lists[pattern] = frozenset(entries)
        self.told[pattern.type].tell(pattern, lost=lost)


async def at_once(call, *args):
    await asyncio.sleep(0)
    return call(*args)


@asynccontextmanager
async def following(store):
    """A broker's lists that follow the store; ``User:root`` may do everything."""
    audit = AuditLog(lambda: 0.0)
    acls = Acls(AclAuthorizer([ROOT.principal], audit, allow_without_acl=False), audit, store, at_once)
    await acls.load()
    acls.follow()
    try:
        yield acls
    finally:
        await acls.close()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def answered(served):
    """The answer of a handler, whether it is awaited or comes in steps."""
    return await served if inspect.isawaitable(served) else finish(served)


def asked(handler, message, caller=ROOT, store=None, version=3):
    """What a broker with the lists of the store answers; without a store, one without an authorizer."""

    async def main():
        loop = asyncio.get_running_loop()
        turns = Turns(loop)
        request = ApiRequest(handler.API, version, "c", caller, message)
        if store is None:
            broker = SimpleNamespace(authorizer=AllowEverything(), acls=None, turns=turns)
            return await answered(handler.handle(broker, request))
        async with following(store) as acls:
            broker = SimpleNamespace(authorizer=acls.authorizer, acls=acls, turns=turns)
            return await answered(handler.handle(broker, request))

    return asyncio.run(main())
