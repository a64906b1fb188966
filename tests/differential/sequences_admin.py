"""Sequences about topics, settings and the cluster."""

from __future__ import annotations

from typing import Any

from differential.asking import WAIT_MS, batch, make_topic, produce, topic_id_of
from differential.pair import Both, Pair
from differential.table import sequence

from sparklog.config.dynamic import Source
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.wire import ZERO_UUID

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
UNKNOWN_ID = "11111111-2222-3333-4444-555555555555"


def create(pair: Pair, step: str, name: str, **how: Any) -> Both:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    topic |= {key: how.pop(key) for key in list(how) if key in ("num_partitions", "replication_factor", "assignments")}
    topic["configs"] = [{"name": key, "value": value} for key, value in how.pop("configs", {}).items()]
    return pair.ask(step, ApiKey.CREATE_TOPICS, topics=[topic] * how.pop("times", 1), timeout_ms=WAIT_MS, **how)


def look(pair: Pair, step: str, *topics: str, **how: Any) -> Both:
    asked = [{"name": name, "topic_id": ZERO_UUID} for name in topics]
    return pair.ask(step, ApiKey.METADATA, topics=asked, **{"allow_auto_topic_creation": False, **how})


@sequence(ApiKey.CREATE_TOPICS)
def create_topics(pair: Pair) -> None:
    create(pair, "plain", pair.name("plain"))
    create(pair, "once more", pair.name("plain"))
    create(pair, "twice at once", pair.name("twice"), times=2)
    create(pair, "three partitions", pair.name("three"), num_partitions=3)
    create(pair, "the default count", pair.name("default"), num_partitions=-1, replication_factor=-1)
    for count in (0, -2):
        create(pair, f"{count} partitions", pair.name("bad"), num_partitions=count)
    for factor in (0, 2, -2):
        create(pair, f"{factor} replicas", pair.name("bad"), replication_factor=factor)
    for name in ("", ".", "..", "a b", "a/b", "x" * 250, "ä"):
        create(pair, f"called {name[:10]!r}", name)
    create(pair, "the longest name", (pair.name("l") + "x" * 249)[:249])
    create(pair, "dots", f"{pair.name('same')}.x")
    create(pair, "which collides", f"{pair.name('same')}_x")
    for number, replicas in enumerate(([0], [0, 0])):
        chosen = [{"partition_index": 0, "broker_ids": replicas}]
        name = pair.name(f"chosen{number}")
        auto = {"num_partitions": -1, "replication_factor": -1}
        create(pair, f"on brokers {replicas}", name, assignments=chosen, **auto)
    gap = [{"partition_index": each, "broker_ids": [0]} for each in (0, 2)]
    create(pair, "with a gap", pair.name("gap"), assignments=gap, num_partitions=-1, replication_factor=-1)
    chosen = [{"partition_index": 0, "broker_ids": [0]}]
    create(pair, "chosen and counted", pair.name("both"), assignments=chosen)
    create(pair, "only to see", pair.name("seen"), validate_only=True)
    create(pair, "only to see what is there", pair.name("plain"), validate_only=True)
    create(pair, "only to see what is wrong", pair.name("seen"), validate_only=True, num_partitions=0)
    pair.ask("none", ApiKey.CREATE_TOPICS, topics=[], timeout_ms=WAIT_MS)
    create(pair, "an internal one", "__consumer_offsets")
    look(pair, "what is there", *(pair.name(each) for each in ("plain", "three", "default", "chosen0", "seen", "bad")))


BAD_SETTINGS = {
    "no such setting": {"nonsense": "1"},
    "not a number": {"retention.ms": "soon"},
    "empty": {"retention.ms": ""},
    "below its range": {"retention.ms": "-5"},
    "at its bound": {"retention.ms": "-1"},
    "null": {"retention.ms": None},
    "too large for an int": {"segment.bytes": "99999999999"},
    "too small": {"segment.bytes": "13"},
    "small enough": {"segment.bytes": "14"},
    "no such policy": {"cleanup.policy": "burn"},
    "two policies": {"cleanup.policy": "compact,delete"},
    "no policy": {"cleanup.policy": ""},
    "no such compression": {"compression.type": "rar"},
    "a compression": {"compression.type": "zstd"},
    "a level": {"compression.gzip.level": "9"},
    "a level out of range": {"compression.gzip.level": "17"},
    "not a boolean": {"preallocate": "perhaps"},
    "a boolean in capitals": {"preallocate": "TRUE"},
    "a ratio": {"min.cleanable.dirty.ratio": "0.7"},
    "a ratio above 1": {"min.cleanable.dirty.ratio": "1.5"},
    "no such time": {"message.timestamp.type": "SomeTime"},
    "blanks around": {"retention.ms": " 1000 "},
    "more than retention": {"retention.ms": "1000", "local.retention.ms": "2000"},
    "remote storage": {"remote.storage.enable": "true"},
    "throttled replicas": {"leader.replication.throttled.replicas": "0:1,1:1"},
    "throttled nonsense": {"leader.replication.throttled.replicas": "abc"},
    "throttled all": {"follower.replication.throttled.replicas": "*"},
    "an old format": {"message.format.version": "0.10.0"},
    "no format": {"message.format.version": "17"},
    "the old name of a bound": {"message.timestamp.difference.max.ms": "1000"},
    "lag that cannot be": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    "min isr": {"min.insync.replicas": "2"},
    "min isr of 0": {"min.insync.replicas": "0"},
    "max message bytes": {"max.message.bytes": "-1"},
    "unclean": {"unclean.leader.election.enable": "true"},
    "delay": {"file.delete.delay.ms": "0"},
    "index": {"segment.index.bytes": "3"},
    "jitter": {"segment.jitter.ms": "-1"},
    "flush": {"flush.messages": "0"},
}


@sequence(ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS)
def create_topics_with_settings(pair: Pair) -> None:
    for number, (what, configs) in enumerate(BAD_SETTINGS.items()):
        create(pair, what, pair.name(f"t{number}"), configs=configs)
    describe(pair, "what came of blanks", TOPIC, pair.name("t21"), ["retention.ms"])


def describe(pair: Pair, step: str, kind: int, name: str, keys: list[str] | None = None, **how: Any) -> Both:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return pair.ask(step, ApiKey.DESCRIBE_CONFIGS, resources=[resource], **how)


@sequence(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(pair: Pair) -> None:
    topic = make_topic(pair, retention_ms="1000", cleanup_policy="compact")
    describe(pair, "a topic", TOPIC, topic)
    describe(pair, "its synonyms", TOPIC, topic, include_synonyms=True)
    describe(pair, "with documentation", TOPIC, topic, ["retention.ms"], include_documentation=True)
    describe(pair, "two of its settings", TOPIC, topic, ["retention.ms", "segment.bytes"])
    describe(pair, "nonsense", TOPIC, topic, ["nonsense"])
    describe(pair, "no settings", TOPIC, topic, [])
    describe(pair, "no such topic", TOPIC, pair.name("nowhere"))
    describe(pair, "an impossible topic", TOPIC, "a/b")
    describe(pair, "no name", TOPIC, "")
    describe(pair, "another broker", BROKER, "77")
    describe(pair, "a broker without a number", BROKER, "first")
    describe(pair, "all brokers", BROKER, "")
    for kind in (0, 1, 3, 99):
        describe(pair, f"a resource of type {kind}", kind, "x")
    keys = ["log.retention.ms", "num.partitions", "broker.id", "log.segment.bytes", "message.max.bytes"]
    describe(pair, "the broker", BROKER, "0", keys)
    describe(pair, "the broker's synonyms", BROKER, "0", keys, include_synonyms=True)
    twice = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["retention.ms"]}] * 2
    pair.ask("the same twice", ApiKey.DESCRIBE_CONFIGS, resources=twice)
    pair.ask("nothing", ApiKey.DESCRIBE_CONFIGS, resources=[])


@sequence(ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS)
def alter_configs(pair: Pair) -> None:
    topic = make_topic(pair)
    set_, delete, append, subtract = range(4)

    def alter(step: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = topic, **how: Any):
        configs = [{"name": key, "config_operation": kind, "value": value} for key, kind, value in changes]
        asked = [{"resource_type": kind, "resource_name": name, "configs": configs}] * how.pop("times", 1)
        pair.ask(step, ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=asked, **how)

    alter("set", ("retention.ms", set_, "1000"))
    alter("set two", ("retention.ms", set_, "2000"), ("segment.bytes", set_, "20000"))
    alter("delete", ("retention.ms", delete, None))
    alter("delete what is not set", ("retention.bytes", delete, None))
    alter("append", ("cleanup.policy", append, "compact"))
    alter("append it again", ("cleanup.policy", append, "compact"))
    alter("subtract", ("cleanup.policy", subtract, "delete"))
    alter("subtract what is not there", ("cleanup.policy", subtract, "delete"))
    alter("subtract all", ("cleanup.policy", subtract, "compact"))
    alter("append to a number", ("retention.ms", append, "1"))
    alter("a value that is wrong", ("retention.ms", set_, "soon"))
    alter("nonsense", ("nonsense", set_, "1"))
    alter("delete nonsense", ("nonsense", delete, None))
    alter("no value", ("retention.ms", set_, None))
    alter("no such operation", ("retention.ms", 9, "1"))
    alter("one twice", ("retention.ms", set_, "1"), ("retention.ms", set_, "2"))
    alter("the topic twice", ("retention.ms", set_, "5"), times=2)
    alter("only to see", ("retention.ms", set_, "77"), validate_only=True)
    alter("no changes")
    alter("no such topic", ("retention.ms", set_, "1"), name=pair.name("nowhere"))
    alter("an impossible topic", ("retention.ms", set_, "1"), name="a/b")
    alter("no topic", ("retention.ms", set_, "1"), name="")
    alter("another broker", ("log.retention.ms", set_, "1"), kind=BROKER, name="55")
    alter("a broker without a number", ("log.retention.ms", set_, "1"), kind=BROKER, name="x")
    alter("what only the start reads", ("broker.id", set_, "5"), kind=BROKER, name="0")
    alter("what brokers do not know", ("retention.ms", set_, "5"), kind=BROKER, name="0")
    for value in ("12", "none", "0"):
        alter(f"{value} threads in the background", ("background.threads", set_, value), kind=BROKER, name="0")
    _threads(pair, "the broker's threads")
    alter("the default again", ("background.threads", delete, None), kind=BROKER, name="0")
    alter("what only Kafka's start reads", ("offsets.load.buffer.size", set_, "5"), kind=BROKER, name="0")
    alter("a wrong value for a broker", ("log.retention.ms", set_, "soon"), kind=BROKER, name="0")
    alter("only to see, for all brokers", ("log.retention.ms", set_, "9"), kind=BROKER, name="", validate_only=True)
    alter("no such resource", ("x", set_, "y"), kind=99, name="x")
    _described(pair, "in between", topic)

    def replace(step: str, configs: dict[str, str | None], kind: int = TOPIC, name: str = topic, **how: Any) -> None:
        listed = [{"name": key, "value": value} for key, value in configs.items()]
        asked = [{"resource_type": kind, "resource_name": name, "configs": listed}]
        pair.ask(step, ApiKey.ALTER_CONFIGS, resources=asked, **how)

    replace("replace", {"retention.ms": "3000"})
    replace("with a wrong value", {"retention.ms": "soon"})
    replace("with nonsense", {"nonsense": "1"})
    replace("with null", {"retention.ms": None})
    replace("only to see it", {"retention.ms": "5"}, validate_only=True)
    replace("of no topic", {"retention.ms": "5"}, name=pair.name("nowhere"))
    replace("of nothing", {"x": "5"}, kind=99, name="x")
    _described(pair, "in the end", topic)
    replace("with nothing", {})
    _described(pair, "at last", topic)


def _described(pair: Pair, step: str, topic: str) -> None:
    """What is set. Kafka takes changes over some time after it has answered, so this asks ZooKeeper's reader."""
    describe(pair, step, TOPIC, topic, ["retention.ms", "segment.bytes", "cleanup.policy"])


def _threads(pair: Pair, step: str) -> None:
    """How many work in Kafka's background, once the broker tells of what is set for it alone."""
    asked = [{"resource_type": BROKER, "resource_name": "0", "configuration_keys": ["background.threads"]}]

    def is_set(answer: Any) -> bool:
        return [each.config_source for each in answer.results[0].configs] == [Source.BROKER]

    pair.ask(step, ApiKey.DESCRIBE_CONFIGS, version=1, resources=asked, until=is_set)


@sequence(ApiKey.CREATE_PARTITIONS)
def create_partitions(pair: Pair) -> None:
    topic = make_topic(pair, partitions=2)

    def grow(step: str, count: int, name: str = topic, **how: Any) -> None:
        given = how.pop("assignments", None)
        asked = {"name": name, "count": count, "assignments": given and [{"broker_ids": each} for each in given]}
        pair.ask(step, ApiKey.CREATE_PARTITIONS, topics=[asked] * how.pop("times", 1), timeout_ms=WAIT_MS, **how)

    for count in (2, 1, 0, -1):
        grow(f"to {count}", count)
    grow("only to see", 3, validate_only=True)
    grow("to 3", 3)
    grow("to 4, on the broker", 4, assignments=[[0]])
    grow("on another broker", 5, assignments=[[9]])
    grow("on too many brokers", 5, assignments=[[0, 1]])
    grow("twice on one broker", 5, assignments=[[0, 0]])
    grow("on no broker", 5, assignments=[[]])
    grow("too few assignments", 6, assignments=[[0]])
    grow("too many assignments", 5, assignments=[[0], [0]])
    grow("no assignments", 5, assignments=[])
    grow("no such topic", 3, pair.name("nowhere"))
    grow("an impossible topic", 3, "a/b")
    grow("twice at once", 7, times=2)
    grow("an internal topic", 60, "__transaction_state", validate_only=True)
    pair.ask("nothing", ApiKey.CREATE_PARTITIONS, topics=[], timeout_ms=WAIT_MS, validate_only=False)
    look(pair, "what is there", topic)


@sequence(ApiKey.DELETE_TOPICS)
def delete_topics(pair: Pair) -> None:
    doomed = [make_topic(pair, each) for each in ("a", "b", "c")]
    identity = topic_id_of(pair, doomed[1])

    def delete(step: str, *names: Any) -> None:
        topics = [{"name": each, "topic_id": ZERO_UUID} for each in names]
        pair.ask(step, ApiKey.DELETE_TOPICS, topics=topics, topic_names=list(names), timeout_ms=WAIT_MS)

    delete("one", doomed[0])
    delete("it again", doomed[0])
    delete("one that is nowhere", pair.name("nowhere"))
    delete("an impossible name", "a/b")
    delete("one with two that are not", doomed[2], "x", "y")
    delete("nothing")
    if pair.version(ApiKey.DELETE_TOPICS) >= 6:
        by_id = [{"name": None, "topic_id": identity}]
        pair.ask("by id", ApiKey.DELETE_TOPICS, topics=by_id, timeout_ms=WAIT_MS)
        pair.ask("by id again", ApiKey.DELETE_TOPICS, topics=by_id, timeout_ms=WAIT_MS)
        both = [{"name": doomed[0], "topic_id": identity}]
        pair.ask("by name and id", ApiKey.DELETE_TOPICS, topics=both, timeout_ms=WAIT_MS)
        neither = [{"name": None, "topic_id": ZERO_UUID}]
        pair.ask("by neither", ApiKey.DELETE_TOPICS, topics=neither, timeout_ms=WAIT_MS)
        again = make_topic(pair, "d")
        named = [{"name": again, "topic_id": ZERO_UUID}] * 2
        pair.ask("twice at once", ApiKey.DELETE_TOPICS, topics=named, timeout_ms=WAIT_MS)
    look(pair, "what is there", *doomed)


@sequence(ApiKey.METADATA)
def metadata(pair: Pair) -> None:
    topic = make_topic(pair, partitions=2)
    look(pair, "a topic", topic)
    look(pair, "a topic twice", topic, topic)
    look(pair, "an unknown one", pair.name("nowhere"))
    look(pair, "impossible ones", "a/b", ".", "", "x" * 250)
    version = pair.version(ApiKey.METADATA)
    look(pair, "one to be made", pair.name("made"), allow_auto_topic_creation=True, until=_is_there)
    look(pair, "one that cannot be made", "a/b", allow_auto_topic_creation=True)
    look(pair, "what one may do", topic, include_topic_authorized_operations=True)
    look(pair, "what one may do in the cluster", topic, include_cluster_authorized_operations=True)
    look(pair, "internal ones", "__consumer_offsets", "__transaction_state")
    if version >= 1:
        look(pair, "none")
    if version >= 10:
        by_id = {"topic_id": topic_id_of(pair, topic), "name": None}
        pair.ask("by id", ApiKey.METADATA, topics=[by_id])
        pair.ask("by an unknown id", ApiKey.METADATA, topics=[{**by_id, "topic_id": UNKNOWN_ID}])
        pair.ask("by no id", ApiKey.METADATA, topics=[{**by_id, "topic_id": ZERO_UUID}])


def _is_there(answer: Any) -> bool:
    return isinstance(answer, str) or all(
        topic.error_code == 0 and all(each.error_code == 0 for each in topic.partitions) for topic in answer.topics
    )


@sequence(ApiKey.ELECT_LEADERS)
def elect_leaders(pair: Pair) -> None:
    topic = make_topic(pair, partitions=2)
    version = pair.version(ApiKey.ELECT_LEADERS)
    for kind in (0, 1):
        for name, partitions in ((topic, [0, 1]), (topic, [7]), (pair.name("nowhere"), [0])):
            asked = [{"topic": name, "partitions": partitions}]
            step = f"kind {kind} in {name[-7:]} {partitions}"
            pair.ask(step, ApiKey.ELECT_LEADERS, election_type=kind, topic_partitions=asked, timeout_ms=WAIT_MS)
    pair.ask("nothing", ApiKey.ELECT_LEADERS, topic_partitions=[], timeout_ms=WAIT_MS)
    if version >= 1:
        asked = [{"topic": topic, "partitions": [0]}]
        pair.ask("no such kind", ApiKey.ELECT_LEADERS, election_type=7, topic_partitions=asked, timeout_ms=WAIT_MS)


@sequence(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS)
def reassignments(pair: Pair) -> None:
    topic = make_topic(pair)

    def move(step: str, replicas: list[int] | None, name: str = topic, partition: int = 0) -> None:
        places = [{"partition_index": partition, "replicas": replicas}]
        asked = [{"name": name, "partitions": places}]
        pair.ask(step, ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=asked, timeout_ms=WAIT_MS)

    move("to where it is", [0])
    move("to nowhere", [])
    move("to a broker that is not", [5])
    move("twice to one", [0, 0])
    move("to a negative one", [-1])
    move("stop moving", None)
    move("no such partition", [0], partition=4)
    move("no such topic", [0], pair.name("nowhere"))
    pair.ask("nothing", ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=[], timeout_ms=WAIT_MS)
    pair.ask("all that move", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None, timeout_ms=WAIT_MS)
    asked = [{"name": topic, "partition_indexes": [0, 9]}]
    pair.ask("some", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=asked, timeout_ms=WAIT_MS)


@sequence(ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS)
def described(pair: Pair) -> None:
    topic = make_topic(pair, partitions=2)
    produce(pair, "some records", topic, batch(b"a", b"b"), version=9)
    for name, partitions in ((topic, [0, 1]), (topic, [9]), (pair.name("nowhere"), [0])):
        asked = [{"topic": name, "partitions": partitions}]
        pair.ask(f"directories of {name[-7:]} {partitions}", ApiKey.DESCRIBE_LOG_DIRS, topics=asked)
        asked = [{"name": name, "partition_indexes": partitions}]
        pair.ask(f"producers of {name[-7:]} {partitions}", ApiKey.DESCRIBE_PRODUCERS, topics=asked)
    pair.ask("no directories", ApiKey.DESCRIBE_LOG_DIRS, topics=[])
    pair.ask("no producers", ApiKey.DESCRIBE_PRODUCERS, topics=[])
    for kind in (1, 2, 3):
        pair.ask(f"the cluster, endpoints {kind}", ApiKey.DESCRIBE_CLUSTER, endpoint_type=kind)
    pair.ask("what one may do there", ApiKey.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)


@sequence(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
def greetings(pair: Pair) -> None:
    for name, version in (("librdkafka", "2.0"), ("", ""), ("a b", "1"), ("x", "-")):
        step = f"calls itself {name!r} {version!r}"
        pair.ask(step, ApiKey.API_VERSIONS, client_software_name=name, client_software_version=version)
    pair.ask("proves who it is", ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
