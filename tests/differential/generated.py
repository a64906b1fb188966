"""Sequences drawn by lot from requests that make sense, more or less, after one another."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from differential.asking import (
    T0,
    add_partitions,
    await_end,
    batch,
    batch_of,
    commit_offset,
    end,
    fetch,
    fetch_offsets,
    init_producer,
    join,
    list_offset,
    make_topic,
    produce,
    read_back,
    sync,
)
from differential.pair import Both, Pair

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey

STEPS = 80
PARTITIONS = 2
VERSIONS = 17
WAIT_MS = 30_000


class Wanderer:
    """What has been made so far, on both sides, and the next step from there."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.chance = Random(seed)
        self.number = 0
        self.topic = make_topic(pair, "t", PARTITIONS)
        self.group = pair.name("g")
        self.worker = pair.name("worker")
        self.plain = init_producer(pair, "a producer")
        self.sequences = [0] * PARTITIONS
        self.transactional = init_producer(pair, "a transactional producer", self.worker)
        self.added: set[int] = set()
        self.written = [0] * PARTITIONS
        self.joined: Both | None = None

    def step(self) -> None:
        self.number += 1
        self.pair.level = self.chance.randrange(VERSIONS)
        kinds: list[Callable[[], None]] = [
            self.produce, self.produce, self.produce_in_sequence, self.produce_in_sequence, self.fetch, self.fetch,
            self.list_offsets, self.delete_records, self.add, self.write, self.write, self.end, self.init_again,
            self.commit, self.fetch_offsets, self.join, self.sync, self.heartbeat, self.leave, self.describe,
        ]  # fmt: skip
        self.chance.choice(kinds)()

    def called(self, what: str) -> str:
        return f"{self.number} {what}"

    def partition(self) -> int:
        return self.chance.randrange(PARTITIONS)

    def modern(self, api: ApiKey, least: int) -> int:
        return max(self.pair.version(api), least)

    def produce(self) -> None:
        values = [b"v" * self.chance.randrange(60) for _ in range(self.chance.randint(1, 4))]
        records = batch(*values, time=T0 + self.chance.randrange(-1000, 1000))
        version = self.modern(ApiKey.PRODUCE, 3)
        where = {"acks": self.chance.choice((-1, 1)), "partition": self.partition(), "version": version}
        produce(self.pair, self.called("produce"), self.topic, records, **where)

    def produce_in_sequence(self) -> None:
        partition = self.partition()
        due, count = self.sequences[partition], self.chance.randint(1, 3)
        sequence = max(0, due + self.chance.choice((0, 0, 0, 0, -1, -2, 1, 7)))
        records = batch_of(self.plain, sequence, *[b"%d" % each for each in range(count)])
        version = self.modern(ApiKey.PRODUCE, 3)
        step = self.called(f"sequence {sequence}, {due} is due")
        answer = produce(self.pair, step, self.topic, records, partition=partition, version=version)
        code = answer.values[0].responses[0].partition_responses[0].error_code
        if sequence == due and code == ErrorCode.NONE:
            self.sequences[partition] += count

    def fetch(self) -> None:
        limits = {"partition_max_bytes": self.chance.choice((0, 1, 150, 400, 1 << 20)), "partition": self.partition()}
        limits |= {"isolation_level": self.chance.randrange(2), "max_bytes": self.chance.choice((1, 300, 1 << 20))}
        fetch(self.pair, self.called("fetch"), self.topic, self.chance.randrange(-1, 60), **limits)

    def list_offsets(self) -> None:
        when = self.chance.choice((-1, -2, -3, -4, 0, T0 + self.chance.randrange(-1500, 1500)))
        where = {"partition": self.partition(), "isolation_level": self.chance.randrange(2)}
        list_offset(self.pair, self.called(f"list {when - T0 if when > 0 else when}"), self.topic, when, **where)

    def delete_records(self) -> None:
        place = {"partition_index": self.partition(), "offset": self.chance.randrange(-2, 40)}
        asked = [{"name": self.topic, "partitions": [place]}]
        self.pair.ask(self.called("delete records"), ApiKey.DELETE_RECORDS, topics=asked, timeout_ms=WAIT_MS)

    def add(self) -> None:
        partition = self.partition()
        add_partitions(self.pair, self.called("add"), self.worker, self.transactional, self.topic, partition)
        self.added.add(partition)

    def write(self) -> None:
        partition = self.partition()
        sequence = self.written[partition]
        records = batch_of(self.transactional, sequence, b"w", is_transactional=True)
        how = {"transactional_id": self.worker, "partition": partition, "version": self.modern(ApiKey.PRODUCE, 3)}
        answer = produce(self.pair, self.called("write"), self.topic, records, **how)
        code = answer.values[0].responses[0].partition_responses[0].error_code
        self.written[partition] += code == ErrorCode.NONE

    def end(self) -> None:
        end(self.pair, self.called("end"), self.worker, self.transactional, self.chance.random() < 0.6)
        if self.added:
            self.added.clear()
            await_end(self.pair, self.called("ended"), self.worker)

    def init_again(self) -> None:
        self.transactional = init_producer(self.pair, self.called("init"), self.worker)
        self.added.clear()
        self.written = [0] * PARTITIONS

    def commit(self) -> None:
        who: dict[str, Any] = {}
        if self.joined is not None and self.chance.random() < 0.7:
            wrong = self.chance.choice((0, 0, 1))
            generation = self.joined.generation_id.map(lambda each: each + wrong)
            who = {"member_id": self.joined.member_id, "generation_id_or_member_epoch": generation}
        commit_offset(
            self.pair, self.called("commit"), self.group, self.topic, self.chance.randrange(50),
            partition=self.partition(), **who,
        )  # fmt: skip

    def fetch_offsets(self) -> None:
        asked = [(self.topic, list(range(self.chance.randint(1, PARTITIONS))))]
        fetch_offsets(self.pair, self.called("fetch offsets"), self.group, asked)

    def join(self) -> None:
        member = self.joined.member_id if self.joined is not None else ""
        self.joined = join(self.pair, self.called("join"), self.group, member)

    def sync(self) -> None:
        if self.joined is not None:
            sync(self.pair, self.called("sync"), self.group, self.joined, {0: b"all"})

    def heartbeat(self) -> None:
        if self.joined is not None:
            who = {"generation_id": self.joined.generation_id, "member_id": self.joined.member_id}
            self.pair.ask(self.called("heartbeat"), ApiKey.HEARTBEAT, group_id=self.group, **who)

    def leave(self) -> None:
        if self.joined is not None and self.chance.random() < 0.4:
            member, self.joined = self.joined.member_id, None
            members = [{"member_id": member}]
            step = self.called("leave")
            self.pair.ask(step, ApiKey.LEAVE_GROUP, group_id=self.group, member_id=member, members=members)

    def describe(self) -> None:
        self.pair.ask(self.called("describe the group"), ApiKey.DESCRIBE_GROUPS, groups=[self.group])
        self.pair.ask(
            self.called("describe the transaction"), ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[self.worker]
        )
        asked = [{"name": self.topic, "partition_indexes": list(range(PARTITIONS))}]
        self.pair.ask(self.called("describe producers"), ApiKey.DESCRIBE_PRODUCERS, topics=asked)


def wander(pair: Pair, seed: int) -> None:
    """Some steps from ``seed``, then all that is there is read."""
    wanderer = Wanderer(pair, seed)
    for _ in range(STEPS):
        wanderer.step()
    for partition in range(PARTITIONS):
        read_back(pair, wanderer.topic, partition)
