"""Users' settings in a ZooKeeper that is none, and a broker that serves a request about them."""

import asyncio
from types import SimpleNamespace

from sparklog.broker.context import ApiRequest
from sparklog.errors import MalformedZnode
from sparklog.net.turns import Turns
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller


class FakeZk:
    """``stored``: an entity's settings; None for a znode that is malformed."""

    def __init__(self, stored=None):
        self.stored = stored or {}
        self.configs = self

    def of(self, entity):
        found = self.stored.get(entity, {})
        if found is None:
            raise MalformedZnode(f"znode /config/{entity} does not hold JSON")
        return found

    def of_kind(self, kind):
        return {entity: found for entity, found in self.stored.items() if entity.startswith(f"{kind}/")}

    def change(self, entity, change):
        self.stored[entity] = change(self.of(entity))


def asked(handler, message, zk, *, is_active=True, authorizer=None, acls=None):
    """The answer, and the entities that the broker has looked at again."""
    seen = []

    async def main():
        async def run_zk(call, *args):
            return call(*args)

        async def take_over(entity):
            seen.append(entity)

        broker = SimpleNamespace(
            authorizer=authorizer or AllowEverything(),
            acls=acls,
            turns=Turns(asyncio.get_running_loop()),
            zk=zk,
            run_zk=run_zk,
            controller=SimpleNamespace(is_active=is_active),
            settings=SimpleNamespace(take_over=take_over),
        )
        return await handler.handle(broker, ApiRequest(handler.API, 0, "c", Caller("h"), message))

    return asyncio.run(main()), seen
