"""Sequences about transactions, step by step, errors included."""

from __future__ import annotations

from typing import Any

from differential.asking import (
    T0,
    add_partitions,
    await_end,
    batch_of,
    end,
    fetch_offsets,
    init_producer,
    join,
    make_topic,
    produce,
    read_back,
    settle,
    sync,
)
from differential.pair import Both, Pair
from differential.table import sequence

from sparklog.protocol.api_key import ApiKey

TXN_APIS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.PRODUCE,
)


def write(pair: Pair, step: str, who: str | None, producer: Both, topic: str, number: int, **how: Any) -> Both:
    """One transactional batch."""
    partition = how.pop("partition", 0)
    records = batch_of(producer, number, b"%d" % number, is_transactional=True, **how)
    version = max(pair.version(ApiKey.PRODUCE), 3)
    return produce(pair, step, topic, records, transactional_id=who, partition=partition, version=version)


def add_offsets(pair: Pair, step: str, who: str, producer: Both, group: str) -> Both:
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "group_id": group}
    return pair.ask(step, ApiKey.ADD_OFFSETS_TO_TXN, transactional_id=who, until=settle, **fields)


def commit_offsets(pair: Pair, step: str, who: str, producer: Both, group: str, topic: str, offset: int, **how: Any):
    place = {"partition_index": how.pop("partition", 0), "committed_offset": offset}
    place["committed_metadata"] = how.pop("committed_metadata", "")
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "group_id": group}
    topics = [{"name": topic, "partitions": [place]}]
    fields = {"transactional_id": who, "topics": topics, "generation_id": -1, "member_id": "", **fields, **how}
    return pair.ask(step, ApiKey.TXN_OFFSET_COMMIT, **fields)


def look(pair: Pair, step: str, who: str, topic: str) -> None:
    """What is told of the transaction and of the producers in the partition."""
    pair.ask(f"{step}: the transaction", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[who])
    asked = [{"name": topic, "partition_indexes": [0]}]
    pair.ask(f"{step}: the producers", ApiKey.DESCRIBE_PRODUCERS, topics=asked)


@sequence(*TXN_APIS)
def commit_and_abort(pair: Pair) -> None:
    topic, who = make_topic(pair, partitions=2), pair.name("worker")
    producer = init_producer(pair, "init", who)
    look(pair, "before", who, topic)
    for number, committed in enumerate((True, False, True)):
        add_partitions(pair, f"add ({committed})", who, producer, topic, 0, 1)
        write(pair, f"write ({committed})", who, producer, topic, number)
        write(pair, f"write elsewhere ({committed})", who, producer, topic, number, partition=1)
        look(pair, f"open ({committed})", who, topic)
        end(pair, f"end ({committed})", who, producer, committed)
        end(pair, f"end again ({committed})", who, producer, committed)
        end(pair, f"the other end ({committed})", who, producer, not committed)
        await_end(pair, f"ended ({committed})", who)
        look(pair, f"ended ({committed})", who, topic)
    read_back(pair, topic)
    read_back(pair, topic, 1)


@sequence(*TXN_APIS)
def init_again_and_again(pair: Pair) -> None:
    topic, who = make_topic(pair), pair.name("worker")
    init_producer(pair, "no id", "")
    init_producer(pair, "a timeout that is too long", who, transaction_timeout_ms=100_000_000)
    init_producer(pair, "a timeout of 0", who, transaction_timeout_ms=0)
    init_producer(pair, "a timeout of -1", who, transaction_timeout_ms=-1)
    init_producer(pair, "a producer id without an epoch", who, producer_id=5)
    init_producer(pair, "an epoch without a producer id", who, producer_epoch=5)
    init_producer(pair, "an unknown producer id", who, producer_id=500_000, producer_epoch=5)
    first = init_producer(pair, "the first", who)
    second = init_producer(pair, "the second", who)
    add_partitions(pair, "the first is fenced", who, first, topic)
    add_partitions(pair, "the second is not", who, second, topic)
    write(pair, "the second writes", who, second, topic, 0)
    write(pair, "the first writes", who, first, topic, 0)
    third = init_producer(pair, "the third aborts the second", who)
    end(pair, "the second ends", who, second, True)
    write(pair, "the second writes on", who, second, topic, 1)
    add_partitions(pair, "the third adds", who, third, topic)
    write(pair, "the third writes", who, third, topic, 0)
    end(pair, "the third ends", who, third, True)
    await_end(pair, "the end of the third", who)
    named = {"producer_id": third.producer_id, "producer_epoch": third.producer_epoch}
    fourth = init_producer(pair, "the third raises its own epoch", who, **named)
    init_producer(pair, "it does so again with the old epoch", who, **named)
    older = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    init_producer(pair, "the first raises its epoch", who, **older)
    add_partitions(pair, "the last adds", who, fourth, topic)
    look(pair, "in the end", who, topic)
    end(pair, "the last ends", who, fourth, False)
    await_end(pair, "the end", who)
    init_producer(pair, "an idempotent one")
    init_producer(pair, "an idempotent one with an id", None, producer_id=5, producer_epoch=1)
    read_back(pair, topic)


@sequence(*TXN_APIS)
def transactions_gone_wrong(pair: Pair) -> None:
    topic, who = make_topic(pair, partitions=2), pair.name("worker")
    stranger = init_producer(pair, "a stranger", pair.name("stranger"))
    add_partitions(pair, "add before init", who, stranger, topic)
    end(pair, "end before init", who, stranger, True)
    add_offsets(pair, "offsets before init", who, stranger, "g")
    producer = init_producer(pair, "init", who)
    end(pair, "commit without a transaction", who, producer, True)
    end(pair, "abort without a transaction", who, producer, False)
    add_partitions(pair, "another's producer id", who, stranger, topic)
    add_partitions(pair, "an older epoch", who, producer, topic, epoch=-1)
    add_partitions(pair, "a newer epoch", who, producer, topic, epoch=9)
    add_partitions(pair, "no such partition", who, producer, topic, 0, 7)
    add_partitions(pair, "no such topic", who, producer, pair.name("nowhere"))
    add_partitions(pair, "an empty id", "", producer, topic)
    write(pair, "write without adding", who, producer, topic, 0)
    write(pair, "write without an id", None, producer, topic, 0)
    write(pair, "write in the name of another", pair.name("other"), producer, topic, 0)
    add_partitions(pair, "add", who, producer, topic)
    add_partitions(pair, "add again", who, producer, topic)
    write(pair, "write elsewhere", who, producer, topic, 0, partition=1)
    write(pair, "write", who, producer, topic, 0)
    write(pair, "write again", who, producer, topic, 0)
    write(pair, "a gap", who, producer, topic, 5)
    end(pair, "an older epoch ends", who, producer, True, producer_epoch=-1)
    end(pair, "a newer epoch ends", who, producer, True, producer_epoch=9)
    end(pair, "another's producer id ends", who, producer, True, producer_id=stranger.producer_id)
    end(pair, "end", who, producer, True)
    await_end(pair, "ended", who)
    write(pair, "write after the end", who, producer, topic, 1)
    plain = batch_of(producer, 0, b"plain")
    produce(pair, "without the transaction's bit", topic, plain, partition=1, version=9)
    fields = {"v3_and_below_transactional_id": who, "v3_and_below_producer_id": producer.producer_id}
    fields["v3_and_below_producer_epoch"] = producer.producer_epoch
    pair.ask("add nothing", ApiKey.ADD_PARTITIONS_TO_TXN, v3_and_below_topics=[], **fields)
    names = [who, pair.name("nowhere"), ""]
    pair.ask("describe", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)
    read_back(pair, topic)


@sequence(*TXN_APIS)
def offsets_in_transactions(pair: Pair) -> None:
    topic, who, group = make_topic(pair), pair.name("worker"), pair.name("g")
    producer = init_producer(pair, "init", who)
    commit_offsets(pair, "before they are added", who, producer, group, topic, 1)
    for committed in (False, True):
        add_offsets(pair, f"add ({committed})", who, producer, group)
        commit_offsets(pair, f"commit ({committed})", who, producer, group, topic, 7)
        commit_offsets(pair, f"further ({committed})", who, producer, group, topic, 8, committed_metadata="why")
        fetch_offsets(pair, f"unseen ({committed})", group, [(topic, [0])])
        fetch_offsets(pair, f"unstable ({committed})", group, [(topic, [0])], require_stable=True)
        end(pair, f"end ({committed})", who, producer, committed)
        await_end(pair, f"ended ({committed})", who)
        pair.ask(
            f"seen ({committed})",
            ApiKey.OFFSET_FETCH,
            version=7,
            group_id=group,
            topics=[{"name": topic, "partition_indexes": [0]}],
            require_stable=True,
            until=lambda answer: answer.topics[0].partitions[0].error_code == 0,
        )
    add_offsets(pair, "add", who, producer, group)
    add_offsets(pair, "no group", who, producer, "")
    commit_offsets(pair, "no such partition", who, producer, group, topic, 1, partition=9)
    commit_offsets(pair, "no such topic", who, producer, group, pair.name("nowhere"), 1)
    commit_offsets(pair, "too large", who, producer, group, topic, 1, committed_metadata="x" * 5000)
    commit_offsets(pair, "of no group", who, producer, "", topic, 1)
    commit_offsets(pair, "an older epoch", who, producer, group, topic, 1, producer_epoch=-1)
    commit_offsets(pair, "of a member that nobody knows", who, producer, group, topic, 1, member_id="m")
    commit_offsets(pair, "of a generation", who, producer, group, topic, 1, member_id="m", generation_id=4)
    end(pair, "abort", who, producer, False)
    await_end(pair, "aborted", who)


@sequence(ApiKey.TXN_OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN)
def offsets_of_transactions_that_are_made_up(pair: Pair) -> None:
    """None of a newer epoch: Kafka takes it once the group's partition is in the transaction, which then never ends."""
    topic, who, group = make_topic(pair), pair.name("worker"), pair.name("g")
    stranger = init_producer(pair, "a stranger", pair.name("stranger"))
    commit_offsets(pair, "of an id that nobody began", who, stranger, group, topic, 1)
    commit_offsets(pair, "and of a producer id", who, stranger, group, topic, 1, producer_id=500_000)
    producer = init_producer(pair, "init", who)
    add_offsets(pair, "add", who, producer, group)
    commit_offsets(pair, "another's producer id", who, stranger, group, topic, 2)
    commit_offsets(pair, "a producer id that nobody has", who, producer, group, topic, 2, producer_id=500_000)
    commit_offsets(pair, "another's id", pair.name("stranger"), producer, group, topic, 2)
    commit_offsets(pair, "no id", "", producer, group, topic, 2)
    commit_offsets(pair, "no producer", who, producer, group, topic, 2, producer_id=-1, producer_epoch=-1)
    commit_offsets(pair, "as it is", who, producer, group, topic, 3)
    commit_offsets(pair, "an older epoch, later", who, producer, group, topic, 4, producer_epoch=-1)
    end(pair, "commit", who, producer, True)
    await_end(pair, "committed", who)
    fetch_offsets(pair, "what is committed", group, [(topic, [0])])


@sequence(ApiKey.TXN_OFFSET_COMMIT, ApiKey.JOIN_GROUP)
def offsets_of_members_in_transactions(pair: Pair) -> None:
    topic, who, group = make_topic(pair), pair.name("worker"), pair.name("g")
    joined = join(pair, "join", group)
    sync(pair, "sync", group, joined, {0: b"all"})
    producer = init_producer(pair, "init", who)
    add_offsets(pair, "add", who, producer, group)
    right = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    commit_offsets(pair, "a member's", who, producer, group, topic, 1, **right)
    commit_offsets(pair, "of a wrong generation", who, producer, group, topic, 2, **{**right, "generation_id": 9})
    commit_offsets(pair, "of nobody", who, producer, group, topic, 2, **{**right, "member_id": "nobody"})
    commit_offsets(pair, "from outside", who, producer, group, topic, 3)
    commit_offsets(pair, "of an unknown instance", who, producer, group, topic, 4, group_instance_id="i", **right)
    end(pair, "commit", who, producer, True)
    await_end(pair, "committed", who)
    fetch_offsets(pair, "what is committed", group, [(topic, [0])])


@sequence(ApiKey.LIST_TRANSACTIONS)
def transactions_listed(pair: Pair) -> None:
    topic, who = make_topic(pair), pair.name("worker")
    producer = init_producer(pair, "init", who)
    add_partitions(pair, "add", who, producer, topic)
    mine = {"producer_id_filters": [producer.producer_id], "duration_filter": -1}
    for states in ([], ["Ongoing"], ["Empty"], ["ongoing"], ["Nonsense"], ["Ongoing", "Nonsense"]):
        pair.ask(f"those that are {states}", ApiKey.LIST_TRANSACTIONS, state_filters=states, **mine)
    asked = {"state_filters": [], "producer_id_filters": [987_654], "duration_filter": -1}
    pair.ask("of another producer", ApiKey.LIST_TRANSACTIONS, **asked)
    long = {"state_filters": [], **mine, "duration_filter": 1_000_000}
    pair.ask("that run for long", ApiKey.LIST_TRANSACTIONS, **long)
    end(pair, "abort", who, producer, False)
    await_end(pair, "aborted", who)


@sequence(ApiKey.WRITE_TXN_MARKERS)
def markers(pair: Pair) -> None:
    topic, who = make_topic(pair), pair.name("worker")
    producer = init_producer(pair, "init", who)
    add_partitions(pair, "add", who, producer, topic)
    write(pair, "write", who, producer, topic, 0, time=T0 + 1)

    def mark(step: str, result: bool, coordinator: int, name: str = topic, partition: int = 0, **how: Any) -> None:
        places = [{"name": name, "partition_indexes": [partition]}]
        marker = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, **how}
        marker |= {"transaction_result": result, "topics": places, "coordinator_epoch": coordinator}
        pair.ask(step, ApiKey.WRITE_TXN_MARKERS, markers=[marker])

    mark("no such topic", True, 0, pair.name("nowhere"))
    mark("no such partition", True, 0, partition=7)
    mark("commit", True, 0)
    mark("commit again", True, 0)
    mark("an older coordinator", True, -1)
    mark("an older epoch", False, 0, producer_epoch=-1)
    mark("a newer epoch", False, 0, producer_epoch=4)
    mark("the older epoch then", False, 0)
    pair.ask("none", ApiKey.WRITE_TXN_MARKERS, markers=[])
    read_back(pair, topic)
    pair.ask("remembered", ApiKey.DESCRIBE_PRODUCERS, topics=[{"name": topic, "partition_indexes": [0, 5]}])
    mark("a coordinator that there is not", True, 1_000, producer_epoch=5)
