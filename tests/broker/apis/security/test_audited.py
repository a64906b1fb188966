"""What clients change of who may do what is in the audit log, though they hang up before they are answered."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from broker.apis.security.test_alter_user_scram_credentials import upsertion
from broker.apis.security.test_create_acls import creation
from broker.apis.security.test_create_delegation_token import request as creation_of_token
from broker.apis.security.test_delete_acls import READ, TOPIC, wanted
from broker.security import acl_lists, token_store
from broker.users import FakeZk

from sparklog.broker.apis.security import (
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    expire_delegation_token,
)
from sparklog.broker.context import ApiRequest
from sparklog.net.turns import Turns
from sparklog.protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    ExpireDelegationTokenRequest,
)
from sparklog.security.access import AllowEverything
from sparklog.testing.clock import ManualClock


async def hung_up(handler, message, caller, zookeeper, **parts):
    """The client hangs up when ZooKeeper has changed what it asked for, and has yet to say so."""
    change = zookeeper.change

    def change_and_hang_up(*args):
        changed = change(*args)
        serving.cancel()
        return changed

    async def run_zk(call, *args):
        answer = call(*args)
        await asyncio.sleep(0)
        return answer

    zookeeper.change = change_and_hang_up
    broker = SimpleNamespace(
        authorizer=AllowEverything(),
        clock=ManualClock(token_store.NOW_MS),
        controller=SimpleNamespace(is_active=True),
        run_zk=run_zk,
        settings=SimpleNamespace(take_over=lambda entity: asyncio.sleep(0)),
        turns=Turns(asyncio.get_running_loop()),
        zk=zookeeper,
        **parts,
    )
    request = ApiRequest(handler.API, handler.VERSIONS[-1], "c", caller, message)
    serving = asyncio.ensure_future(acl_lists.answered(handler.handle(broker, request)))
    await asyncio.wait([serving])
    assert serving.cancelled()
    for _ in range(20):
        await asyncio.sleep(0)


async def with_lists(handler, message):
    store = acl_lists.FakeStore()
    store.lists = {TOPIC: frozenset({READ})}
    async with acl_lists.following(store) as acls:
        await hung_up(handler, message, acl_lists.ROOT, store, acls=acls)


async def with_tokens(handler, message):
    store = token_store.FakeStore(token_store.OF_ALICE)
    async with token_store.following(store) as tokens:
        await hung_up(handler, message, token_store.caller(), store, tokens=tokens)


async def with_users(handler, message):
    store = acl_lists.FakeStore()
    async with acl_lists.following(store) as acls:
        await hung_up(handler, message, acl_lists.ROOT, FakeZk(), acls=acls)


ENDING = ExpireDelegationTokenRequest(hmac=token_store.KEY.hmac_of("a"), expiry_time_period_ms=-1)


@pytest.mark.parametrize(
    ("scene", "handler", "message", "line"),
    [
        (with_lists, create_acls, CreateAclsRequest(creations=[creation(operation=4)]), "added: 'TOPIC:LITERAL:t"),
        (with_lists, delete_acls, DeleteAclsRequest(filters=[wanted()]), "removed: 'TOPIC:LITERAL:t"),
        (with_tokens, create_delegation_token, creation_of_token(), "created: 'delegation token"),
        (with_tokens, expire_delegation_token, ENDING, "removed: 'delegation token a"),
        (
            with_users,
            alter_user_scram_credentials,
            AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion()]),
            "set: 'SCRAM-SHA-256 of User:alice'",
        ),
    ],
)
def test_what_was_changed_is_told_though_the_client_has_hung_up(scene, handler, message, line, caplog):
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        asyncio.run(scene(handler, message))
    assert [each for each in caplog.messages if each.startswith(line)]
