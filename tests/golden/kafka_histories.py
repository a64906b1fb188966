"""What is written to the topics of the golden log directories, batch by batch, through librdkafka."""

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.testing.eventually import eventually

SETTINGS = {"segment.bytes": "1500", "index.interval.bytes": "200", "retention.ms": "-1"}
OPEN_AT_THE_END = "b"

TRANSACTIONS = [
    # (who, what, how many records); "plain" and "idempotent" know no transactions, the others are transactional ids.
    ("plain", "send", 2),
    ("a", "begin", 0),
    ("a", "send", 3),
    ("b", "begin", 0),
    ("b", "send", 2),
    ("idempotent", "send", 2),
    ("a", "send", 1),
    ("a", "abort", 0),
    ("plain", "send", 1),
    ("b", "commit", 0),
    # One that stays open over several segments, and others that end, either way, while it does.
    ("c", "begin", 0),
    ("c", "send", 4),
    ("a", "begin", 0),
    ("a", "send", 2),
    ("a", "commit", 0),
    ("c", "send", 3),
    ("b", "begin", 0),
    ("b", "send", 1),
    ("b", "send", 3),
    ("b", "abort", 0),
    ("plain", "send", 3),
    ("c", "send", 3),
    ("a", "begin", 0),
    ("a", "send", 1),
    ("a", "abort", 0),
    ("c", "abort", 0),
    ("idempotent", "send", 3),
    # Two that are open at once; the one that began last ends first.
    ("b", "begin", 0),
    ("b", "send", 1),
    ("a", "begin", 0),
    ("a", "send", 2),
    ("b", "send", 2),
    ("a", "abort", 0),
    ("b", "abort", 0),
    # The coordinator aborts it, with the next producer epoch, when another takes the same transactional id.
    ("c", "begin", 0),
    ("c", "send", 2),
    ("c", "take over", 0),
    ("c", "begin", 0),
    ("c", "send", 2),
    ("c", "commit", 0),
    ("d", "begin", 0),
    ("d", "send", 1),
    ("d", "take over", 0),
    (OPEN_AT_THE_END, "begin", 0),
    (OPEN_AT_THE_END, "send", 2),
    ("plain", "send", 2),
    ("a", "begin", 0),
    ("a", "send", 2),
    ("a", "abort", 0),
    ("idempotent", "send", 1),
]

_alive = []


class Topic:
    """One partition being written. Each ``send`` is one batch, there when it returns."""

    def __init__(self, bootstrap, name, config=None):
        self.name = name
        self._bootstrap = bootstrap
        admin = self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        eventually(lambda: 0 in admin.list_topics(timeout=10).brokers, 60)
        topic = NewTopic(name, 1, replica_assignment=[[0]], config={**SETTINGS, **(config or {})})
        created = admin.create_topics([topic])[name]
        try:
            created.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        eventually(self._is_led, 60)
        self._producers = {}
        watching = {"group.id": "watch", "isolation.level": "read_uncommitted", "log_level": 0}
        self._watch = Consumer({"bootstrap.servers": bootstrap, **watching})
        self._sent = 0

    def _is_led(self):
        found = self._admin.list_topics(self.name, timeout=10).topics[self.name].partitions
        return 0 in found and found[0].leader == 0

    def producer(self, who):
        if who not in self._producers:
            self._producers[who] = self._new_producer(who)
        return self._producers[who]

    def _new_producer(self, who):
        kinds = {"plain": {}, "idempotent": {"enable.idempotence": True}}
        kind = kinds.get(who, {"transactional.id": f"{self.name}-{who}", "transaction.timeout.ms": 900_000})
        settings = {"bootstrap.servers": self._bootstrap, "linger.ms": 500, "log_level": 0}
        producer = Producer({**settings, **kind})
        _alive.append(producer)
        if who not in kinds:
            producer.init_transactions(60)
        return producer

    def end(self):
        """The offset behind the last batch."""
        return self._watch.get_watermark_offsets(TopicPartition(self.name, 0), timeout=10, cached=False)[1]

    def send(self, who, records):
        producer = self.producer(who)
        for key, value in records:
            producer.produce(self.name, value, key, 0)
        assert producer.flush(30) == 0

    def send_numbered(self, who, count):
        records = []
        for _ in range(count):
            self._sent += 1
            records.append((f"{who}-{self._sent % 5}".encode(), f"record {self._sent} of {who} ".encode() * 3))
        self.send(who, records)

    def delete_before(self, offset):
        self._admin.delete_records([TopicPartition(self.name, 0, offset)])[TopicPartition(self.name, 0)].result(30)

    def begin(self, who):
        self.producer(who).begin_transaction()

    def finish(self, who, *, commit):
        """End the transaction and wait until its marker is in the partition."""
        before = self.end()
        producer = self.producer(who)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        eventually(lambda: self.end() == before + 1, 30)

    def take_over(self, who):
        """Another producer of the same transactional id, which ends what the first one left open."""
        before = self.end()
        self._producers[who] = self._new_producer(who)
        eventually(lambda: self.end() == before + 1, 30)


def write_transactions(topic):
    """Each ended transaction as [who, how, offset of the marker]; the one left open ends in no line."""
    ends = []
    for who, what, count in TRANSACTIONS:
        if what == "send":
            topic.send_numbered(who, count)
            continue
        if what == "begin":
            topic.begin(who)
            continue
        if what == "take over":
            topic.take_over(who)
        else:
            topic.finish(who, commit=what == "commit")
        ends.append([who, what, topic.end() - 1])
    return ends


def write_under_one_epoch(topic, run):
    """Three batches; the second of an idempotent producer, new with each run."""
    for who, count in (("plain", 2), ("idempotent", 3), ("plain", 1 + run)):
        topic.send_numbered(who, count)


def write_compacted(topic, await_cleaner):
    """Repeated keys, tombstones, batches that lose records or all of them, transactions; cleaned twice."""
    for version in range(4):
        topic.send("plain", [(b"key-%d" % key, _value(version, key)) for key in range(5)])
    topic.send("idempotent", [(b"key-1", _value(4, 1)), (b"key-2", _value(4, 2)), (b"once", b"kept for ever")])
    topic.send("idempotent", [(b"key-1", _value(5, 1)), (b"key-2", _value(5, 2))])
    for commit in (True, False):
        topic.begin("a")
        topic.send("a", [(b"key-3", _value(6 + commit, 3)), (b"in-a", _value(6 + commit, 9))])
        topic.finish("a", commit=commit)
    topic.send("plain", [(b"key-1", _value(8, 1)), (b"key-2", None), (b"key-4", None), (b"last", b"of its batch")])
    topic.send("plain", [(b"last", b"of another batch"), (b"other", b"x")])
    _fill(topic, 1)
    await_cleaner()
    topic.send("plain", [(b"key-0", _value(9, 0)), (b"key-4", _value(9, 4)), (b"fill-1", None)])
    _fill(topic, 2)
    await_cleaner()


def write_trimmed(topic, offset):
    """An open transaction, and an idempotent producer's only batch, before ``offset``, where the log then begins."""
    topic.send_numbered("idempotent", 3)
    topic.begin("a")
    topic.send_numbered("a", 2)
    for _ in range(8):
        topic.send_numbered("plain", 3)
    topic.delete_before(offset)


def _fill(topic, round_):
    """Enough to begin a new segment: the cleaner leaves the active one alone."""
    for part in range(4):
        topic.send("plain", [(b"fill-%d" % round_, b"%d" % part * 300)])


def _value(version, key):
    return b"version %d of %d, and some more bytes " % (version, key) * 3


def let_go_of_producers():
    """At the very end: destroying a producer whose transaction is open would otherwise wait for a broker."""
    while _alive:
        _alive.pop().purge()
