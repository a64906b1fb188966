"""Sequences about groups: members that come and go, step by step, and their offsets."""

from __future__ import annotations

from typing import Any

from differential.asking import commit_offset, fetch_offsets, join, join_fields, make_topic, sync, sync_fields
from differential.pair import Both, Client, Pair
from differential.table import sequence

from sparklog.protocol.api_key import ApiKey

GROUP_APIS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.DESCRIBE_GROUPS)


def heartbeat(client: Client | Pair, step: str, group: str, joined: Any, **how: Any) -> Both:
    who = {"generation_id": joined.generation_id, "member_id": joined.member_id, **how}
    return client.ask(step, ApiKey.HEARTBEAT, group_id=group, **who)


def leave(client: Client | Pair, step: str, group: str, member: Any, **how: Any) -> Both:
    members = [{"member_id": member, **how}]
    return client.ask(step, ApiKey.LEAVE_GROUP, group_id=group, member_id=member, members=members)


def describe(pair: Pair, step: str, group: str) -> None:
    pair.ask(step, ApiKey.DESCRIBE_GROUPS, groups=[group])


@sequence(*GROUP_APIS)
def a_group_of_one(pair: Pair) -> None:
    group = pair.name("g")
    describe(pair, "before", group)
    pair.ask("a heartbeat before", ApiKey.HEARTBEAT, group_id=group, generation_id=0, member_id="m")
    asked = {"generation_id": 0, "member_id": "m", "assignments": []}
    pair.ask("a sync before", ApiKey.SYNC_GROUP, group_id=group, **asked)
    leave(pair, "a leave before", group, "m")
    joined = join(pair, "join", group)
    describe(pair, "joined", group)
    heartbeat(pair, "a heartbeat before the sync", group, joined)
    sync(pair, "sync", group, joined, {0: b"everything"})
    describe(pair, "stable", group)
    sync(pair, "sync again", group, joined, {0: b"something else"})
    heartbeat(pair, "a heartbeat", group, joined)
    heartbeat(pair, "a heartbeat of a wrong generation", group, joined, generation_id=9)
    heartbeat(pair, "a heartbeat of an older generation", group, joined, generation_id=0)
    heartbeat(pair, "a heartbeat of nobody", group, joined, member_id="nobody")
    sync(pair, "a sync of a wrong generation", group, joined, generation_id=9)
    sync(pair, "a sync of nobody", group, joined, member_id="nobody")
    sync(pair, "a sync of another type", group, joined, protocol_type="connect")
    sync(pair, "a sync of another protocol", group, joined, protocol_name="sticky")
    again = join(pair, "join again", group, joined.member_id)
    heartbeat(pair, "the old generation", group, joined)
    sync(pair, "sync again after that", group, again, {0: b"everything"})
    leave(pair, "nobody leaves", group, "nobody")
    leave(pair, "leave", group, joined.member_id)
    describe(pair, "empty", group)
    heartbeat(pair, "a heartbeat of one who left", group, again)
    leave(pair, "leave again", group, joined.member_id)
    pair.ask("delete", ApiKey.DELETE_GROUPS, groups_names=[group])
    describe(pair, "deleted", group)


@sequence(*GROUP_APIS)
def joining_wrongly(pair: Pair) -> None:
    group = pair.name("g")
    join(pair, "an unknown member id", group, "somebody")
    join(pair, "no group id", "")
    join(pair, "a session that is too short", group, session_timeout_ms=1)
    join(pair, "a session that is too long", group, session_timeout_ms=100_000_000)
    join(pair, "no protocols", group, protocols=[])
    join(pair, "no type", group, protocol_type="")
    describe(pair, "nobody has joined", group)
    joined = join(pair, "join", group)
    sync(pair, "sync", group, joined, {0: b"all"})
    other = pair.client("other")
    join(other, "another type", group, protocol_type="connect")
    join(other, "other protocols", group, protocols=[{"name": "sticky", "metadata": b""}])
    join(other, "an unknown id in a living group", group, "somebody")
    describe(pair, "as it was", group)
    heartbeat(pair, "not disturbed", group, joined)
    leave(pair, "leave", group, joined.member_id)


@sequence(*GROUP_APIS)
def a_group_of_two(pair: Pair) -> None:
    group = pair.name("g")
    topic = make_topic(pair)
    first, second = pair.client("first"), pair.client("second")
    one = join(first, "the first joins", group, protocols=[{"name": "range", "metadata": b"a"}])
    sync(first, "the first syncs", group, one, {0: b"all"})
    two = _come_second(pair, second, group)
    heartbeat(first, "the first is told to join again", group, one)
    commit_offset(first, "it commits meanwhile", group, topic, 3, **_who(one))
    describe(pair, "preparing", group)
    protocols = [{"name": "range", "metadata": b"a"}]
    one = first.ask(
        "the first joins again", ApiKey.JOIN_GROUP, **join_fields(group, one.member_id, protocols=protocols)
    )
    two = two()
    describe(pair, "completing", group)
    commit_offset(first, "it commits before the sync", group, topic, 4, **_who(one))
    second.send("the second syncs first", ApiKey.SYNC_GROUP, **sync_fields(group, two))
    sync(first, "the leader syncs", group, one, {0: b"half", 1: b"other half"})
    second.receive()
    describe(pair, "stable", group)
    commit_offset(first, "it commits", group, topic, 5, **_who(one))
    commit_offset(second, "the second commits", group, topic, 6, **_who(two))
    commit_offset(second, "of a wrong generation", group, topic, 7, **{**_who(two), "generation_id_or_member_epoch": 1})
    commit_offset(second, "of nobody", group, topic, 7, **{**_who(two), "member_id": "nobody"})
    commit_offset(second, "from outside", group, topic, 7)
    fetch_offsets(pair, "what is committed", group, [(topic, [0])])
    leave(second, "the second leaves", group, two.member_id)
    heartbeat(first, "the first hears of it", group, one)
    one = first.ask("the first joins", ApiKey.JOIN_GROUP, **join_fields(group, one.member_id, protocols=protocols))
    sync(first, "it syncs", group, one, {0: b"all"})
    leave(first, "the first leaves", group, one.member_id)
    describe(pair, "empty", group)


def _come_second(pair: Pair, second: Client, group: str) -> Any:
    """Let another member ask to join a group whose first has to join again; its answer comes later."""
    fields = join_fields(group, protocols=[{"name": "range", "metadata": b"b"}])
    if pair.version(ApiKey.JOIN_GROUP) >= 4:
        given = second.ask("the second asks for an id", ApiKey.JOIN_GROUP, **fields)
        fields["member_id"] = given.member_id
    second.send("the second joins", ApiKey.JOIN_GROUP, **fields)
    _await_state(pair, group, "PreparingRebalance")
    return second.receive


def _await_state(pair: Pair, group: str, state: str) -> None:
    """A request on another connection may overtake: wait until each broker has taken it in."""
    pair.client("watcher").ask(
        f"the group is {state}",
        ApiKey.DESCRIBE_GROUPS,
        groups=[group],
        until=lambda answer: answer.groups[0].group_state == state,
        compared=False,
    )


def _who(joined: Both) -> dict[str, Any]:
    return {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}


@sequence(*GROUP_APIS)
def static_members(pair: Pair) -> None:
    if pair.version(ApiKey.JOIN_GROUP) < 5:
        return  # which knows no instances
    group = pair.name("g")
    named = {"group_instance_id": "left-hand"}
    joined = join(pair, "join", group, **named)
    sync(pair, "sync", group, joined, {0: b"all"}, **named)
    describe(pair, "stable", group)
    heartbeat(pair, "a heartbeat", group, joined, **named)
    heartbeat(pair, "a heartbeat of another instance", group, joined, group_instance_id="right-hand")
    heartbeat(pair, "a heartbeat without a member id", group, joined, member_id="", **named)
    back = join(pair, "come back", group, **named)
    heartbeat(pair, "its old id", group, joined, **named)
    sync(pair, "sync of the old id", group, joined, **named)
    sync(pair, "sync of the new id", group, back, **named)
    join(pair, "the old id joins", group, joined.member_id, **named)
    heartbeat(pair, "the new id", group, back, **named)
    describe(pair, "still stable", group)
    leave(pair, "a wrong member id leaves", group, "nobody", **named)
    leave(pair, "an unknown instance leaves", group, "", group_instance_id="right-hand")
    leave(pair, "it leaves by its instance", group, "", **named)
    leave(pair, "it leaves by its id", group, back.member_id)
    describe(pair, "in the end", group)


@sequence(ApiKey.LEAVE_GROUP)
def several_leave_at_once(pair: Pair) -> None:
    group = pair.name("g")
    joined = join(pair, "join", group)
    sync(pair, "sync", group, joined, {0: b"all"})
    members = [{"member_id": each, "group_instance_id": None} for each in ("nobody", joined.member_id)]
    pair.ask("leave", ApiKey.LEAVE_GROUP, group_id=group, member_id=joined.member_id, members=members)
    pair.ask("nobody named", ApiKey.LEAVE_GROUP, group_id=group, member_id="", members=[])
    pair.ask("no group", ApiKey.LEAVE_GROUP, group_id="", member_id="m", members=[{"member_id": "m"}])
    describe(pair, "in the end", group)


@sequence(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)
def offsets_of_nobody(pair: Pair) -> None:
    topic, group = make_topic(pair, partitions=2), pair.name("g")
    fetch_offsets(pair, "of an unknown group", group, [(topic, [0])])
    fetch_offsets(pair, "all of an unknown group", group, None if _may_ask_all(pair) else [(topic, [0, 1])])
    commit_offset(pair, "a commit from outside", group, topic, 5)
    commit_offset(pair, "with metadata", group, topic, 6, committed_metadata="what I know")
    commit_offset(pair, "with an epoch", group, topic, 6, partition=1, committed_leader_epoch=0)
    commit_offset(pair, "metadata that is too large", group, topic, 7, committed_metadata="x" * 5000)
    commit_offset(pair, "just small enough", group, topic, 7, committed_metadata="x" * 4096)
    commit_offset(pair, "a negative offset", group, topic, -7)
    commit_offset(pair, "no such partition", group, topic, 7, partition=9)
    commit_offset(pair, "no such topic", group, pair.name("nowhere"), 7)
    commit_offset(pair, "back to 2", group, topic, 2)
    commit_offset(
        pair, "of a member that nobody knows", group, topic, 7, member_id="m", generation_id_or_member_epoch=3
    )
    commit_offset(pair, "a generation without a member", group, topic, 7, generation_id_or_member_epoch=3)
    commit_offset(pair, "a member without a generation", group, topic, 8, member_id="m")
    commit_offset(pair, "of no group", "", topic, 7)
    commit_offset(pair, "of an unknown group's member", pair.name("other"), topic, 7, member_id="m")
    pair.ask("of no topics", ApiKey.OFFSET_COMMIT, group_id=group, topics=[], **_nobody())
    fetch_offsets(pair, "one", group, [(topic, [0])])
    fetch_offsets(pair, "some that are not there", group, [(topic, [0, 1, 9]), (pair.name("nowhere"), [0])])
    fetch_offsets(pair, "all", group, None if _may_ask_all(pair) else [(topic, [0])])
    fetch_offsets(pair, "nothing", group, [])
    fetch_offsets(pair, "stable ones only", group, [(topic, [0])], require_stable=True)
    fetch_offsets(pair, "of no group", "", [(topic, [0])])
    describe(pair, "the group is", group)
    pair.ask("delete its offset", ApiKey.OFFSET_DELETE, group_id=group, topics=[_place(topic, 0)])
    pair.ask("delete it again", ApiKey.OFFSET_DELETE, group_id=group, topics=[_place(topic, 0)])
    pair.ask("delete one that is nowhere", ApiKey.OFFSET_DELETE, group_id=group, topics=[_place(topic, 9)])
    pair.ask("delete in no group", ApiKey.OFFSET_DELETE, group_id=pair.name("x"), topics=[_place(topic, 0)])
    pair.ask("delete in a group without a name", ApiKey.OFFSET_DELETE, group_id="", topics=[_place(topic, 0)])
    fetch_offsets(pair, "what is left", group, [(topic, [0, 1])])


def _may_ask_all(pair: Pair) -> bool:
    return pair.version(ApiKey.OFFSET_FETCH) >= 2


def _nobody() -> dict[str, Any]:
    return {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}


def _place(topic: str, partition: int) -> dict[str, Any]:
    return {"name": topic, "partitions": [{"partition_index": partition}]}


@sequence(ApiKey.LEAVE_GROUP)
def offsets_in_zookeeper(pair: Pair) -> None:
    """Version 0, whatever the level; only the member's requests change with that."""
    topic = make_topic(pair, partitions=3)
    every = [(topic, [0, 1, 2])]

    def store(step: str, group: str, offset: int, **how: Any) -> None:
        commit_offset(pair, step, group, topic, offset, version=0, **how)

    def stored(step: str, group: str, topics: Any = every) -> None:
        pair.ask(step, ApiKey.OFFSET_FETCH, group_id=group, topics=_named(topics), version=0)

    group = pair.name("g")
    stored("nothing yet", group)
    store("a first one", group, 5)
    store("another of the partition", group, 3)
    store("with metadata", group, 4, partition=1, committed_metadata="lost")
    store("metadata that is too large", group, 9, committed_metadata="x" * 5000)
    store("a negative offset", group, -7, partition=2)
    store("the largest", group, (1 << 63) - 1, partition=1)
    store("no such partition", group, 7, partition=9)
    commit_offset(pair, "no such topic", group, pair.name("nowhere"), 7, version=0)
    stored("what is there", group)
    stored("what is not there", group, [(topic, [0, 9]), (pair.name("nowhere"), [0])])
    stored("nothing asked", group, [])
    pair.ask("of no topics", ApiKey.OFFSET_COMMIT, group_id=group, topics=[], version=0)
    pair.ask("the coordinator knows nothing", ApiKey.OFFSET_FETCH, group_id=group, topics=_named(every), version=1)
    commit_offset(pair, "one at the coordinator", group, topic, 8, version=2)
    stored("as it was", group)
    for number, name in enumerate(
        ("", "a/b", "/", "a/", "//a", "..", ".", "a/../b", "\x00", "\x07", "é", "\ue000", "😀", "n n")
    ):
        store(f"group name {number}", name and pair.name("n") + name, 7)
        stored(f"of group name {number}", name and pair.name("n") + name)
    joined = join(pair, "join", pair.name("member"))
    sync(pair, "sync", pair.name("member"), joined, {0: b"all"})
    store("of a group with a member", pair.name("member"), 2)
    stored("of the group with a member", pair.name("member"))
    leave(pair, "leave", pair.name("member"), joined.member_id)


def _named(topics: list[tuple[str, list[int]]]) -> list[dict[str, Any]]:
    return [{"name": name, "partition_indexes": indexes} for name, indexes in topics]


@sequence(ApiKey.OFFSET_FETCH)
def offsets_of_several_groups(pair: Pair) -> None:
    topic = make_topic(pair)
    groups = [pair.name(each) for each in "ab"]
    for number, group in enumerate(groups):
        commit_offset(pair, f"commit {number}", group, topic, number)
    if pair.version(ApiKey.OFFSET_FETCH) < 8:
        return
    asked = [{"group_id": each, "topics": None} for each in groups]
    pair.ask("all of both", ApiKey.OFFSET_FETCH, groups=asked)
    mixed = [{"group_id": groups[0], "topics": [{"name": topic, "partition_indexes": [0]}]}, asked[1]]
    pair.ask("some of one, all of the other", ApiKey.OFFSET_FETCH, groups=mixed)
    pair.ask("the same twice", ApiKey.OFFSET_FETCH, groups=[asked[0], asked[0]])


@sequence(ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS)
def groups_listed_and_deleted(pair: Pair) -> None:
    topic, group, simple = make_topic(pair), pair.name("g"), pair.name("simple")
    commit_offset(pair, "a simple group", simple, topic, 1)
    joined = join(pair, "a living group", group)
    sync(pair, "its sync", group, joined, {0: b"all"})
    pair.ask("list", ApiKey.LIST_GROUPS)
    for states in (["Stable"], ["Empty"], ["stable"], ["Dead"], ["Nonsense"], ["Stable", "Empty"]):
        pair.ask(f"list those that are {states}", ApiKey.LIST_GROUPS, states_filter=states)
    for types in (["classic"], ["Classic"], ["consumer"], ["nonsense"]):
        pair.ask(f"list those of type {types}", ApiKey.LIST_GROUPS, types_filter=types)
    names = [group, simple, pair.name("nowhere"), ""]
    pair.ask("describe", ApiKey.DESCRIBE_GROUPS, groups=names)
    pair.ask("describe none", ApiKey.DESCRIBE_GROUPS, groups=[])
    pair.ask("what one may do", ApiKey.DESCRIBE_GROUPS, groups=[group], include_authorized_operations=True)
    pair.ask("delete", ApiKey.DELETE_GROUPS, groups_names=names)
    pair.ask("delete one twice", ApiKey.DELETE_GROUPS, groups_names=[simple, simple])
    pair.ask("delete none", ApiKey.DELETE_GROUPS, groups_names=[])
    pair.ask("its offset, while it reads nothing", ApiKey.OFFSET_DELETE, group_id=group, topics=[_place(topic, 0)])
    leave(pair, "leave", group, joined.member_id)
    pair.ask("delete the empty one", ApiKey.DELETE_GROUPS, groups_names=[group])
    pair.ask("list in the end", ApiKey.LIST_GROUPS)


@sequence(ApiKey.FIND_COORDINATOR)
def coordinators(pair: Pair) -> None:
    version = pair.version(ApiKey.FIND_COORDINATOR)
    for kind in (0, 1, 2, -1):
        for key in (pair.name("g"), ""):
            step = f"kind {kind}, key {key or 'empty'!r}"
            pair.ask(step, ApiKey.FIND_COORDINATOR, key=key, key_type=kind, coordinator_keys=[key])
    if version >= 4:
        pair.ask("two", ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["a", "b"])
        pair.ask("none", ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=[])
