"""The numbers of the command line, of the page and of the metrics beside those of Kafka's tools, on one cluster.

Two of its three brokers live. It has deleted records, a group with a member and one without, an open transaction and
one that ended, quotas, access control lists, and settings of every kind.
"""

import json
import re
import subprocess
import sys

import confluent_kafka
import pytest
from compat.kafka_tools import CONFIGS, GROUPS, OFFSETS, TOPICS
from metrics.pages import Page, get
from web.serving import Served

from sparklog.client import Admin, NewTopic, Producer
from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

ACLS = "kafka.admin.AclCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PATIENT = ("--timeout", "60000")
DEAD = 2
SETTINGS = {
    "authorizer.class.name": ACL_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": 3000,
}


class Watched(ClusterHarness):
    """Its brokers have metrics."""

    metrics_port = 0


class Views:
    """One cluster, seen in every way."""

    def __init__(self, cluster, browser):
        self.cluster = cluster
        self._bootstrap = cluster.bootstrap_servers
        self.browser = browser

    def tool(self, main_class, *arguments):
        return run_kafka_tool(main_class, "--bootstrap-server", self._bootstrap, *arguments)

    def cli(self, *arguments):
        command = (sys.executable, "-m", "sparklog.cli.main", *arguments)
        given = ("--output", "json", "--bootstrap", self._bootstrap)
        done = subprocess.run([*command, *given], check=True, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout)

    def web(self, path):
        return self.browser.rows(path)

    def pages(self):
        """The metrics of each broker that lives."""
        return {
            number: Page(get(f"{each.metrics_url}/metrics")[1])
            for number, each in enumerate(self.cluster.brokers)
            if number != DEAD
        }


def fill(cluster):
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(settings) as admin:
        configs = {"min.insync.replicas": "2", "retention.ms": "3600000"}
        admin.create_topics([NewTopic("a", 3, 3, configs), NewTopic("b", 2, 2)])
        with Producer(settings) as producer:
            for number in range(300):
                producer.send("a", f"value {number}", key=f"k{number}", partition=number % 3)
            for number in range(40):
                producer.send("b", f"value {number}", partition=number % 2)
        admin.delete_records({TopicPartition("a", 1): 30})
        admin.alter_group_offsets("still", {TopicPartition("a", number): 10 * number for number in range(3)})


def set_up(cluster):
    def tool(*arguments):
        run_kafka_tool(arguments[0], "--bootstrap-server", cluster.bootstrap_servers, *arguments[1:])

    def set_to(what, *settings):
        tool(CONFIGS, "--alter", *what, "--add-config", ",".join(settings))

    client = ("--entity-type", "clients", "--entity-name", "cl")
    set_to(client, "producer_byte_rate=100000", "consumer_byte_rate=2000")
    set_to(("--entity-type", "users", "--entity-name", "ann", *client), "request_percentage=50")
    set_to(("--entity-type", "users", "--entity-default"), "producer_byte_rate=1500")
    set_to(("--entity-type", "brokers", "--entity-name", "1"), "log.retention.ms=7200000")
    set_to(("--entity-type", "brokers", "--entity-default"), "log.cleaner.threads=2")
    tool(ACLS, "--add", "--allow-principal", "User:ann", "--consumer", "--topic", "a", "--group", "still")
    denied = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Write")
    tool(ACLS, "--add", *denied, "--topic", "pre", "--resource-pattern-type", "prefixed")


def consuming(bootstrap):
    """A member of the group ``live`` that has committed five records."""
    given = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "live", "client.id": "reader", **given}
    )
    consumer.subscribe(["a"])
    read = 0
    while read < 5:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        read += 1
        consumer.commit(message, asynchronous=False)
    return consumer


def transaction(bootstrap, name, partition):
    """One open in that partition of ``b``."""
    given = {"transaction.timeout.ms": 600_000, "log_level": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **given})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("b", name, partition=partition)
    assert producer.flush(60) == 0
    return producer


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    with Watched(tmp_path_factory.mktemp("cluster"), 3, SETTINGS) as cluster:
        bootstrap = cluster.bootstrap_servers
        fill(cluster)
        set_up(cluster)
        member = consuming(bootstrap)
        held = transaction(bootstrap, "held", 0)
        transaction(bootstrap, "ended", 1).commit_transaction(60)
        with Admin(bootstrap_servers=bootstrap) as admin:
            eventually(lambda: is_complete(admin, "ended"), what="the next coordinator has no marker to write again")
            cluster.kill_broker(DEAD)
            eventually(lambda: all(DEAD not in each.isr for each in partitions(admin)), what="the dead one is out")
        try:
            with Served({"bootstrap.servers": bootstrap}) as served:
                yield Views(cluster, served.browser())
        finally:
            member.close()
            del held


def is_complete(admin, transactional_id):
    return admin.describe_transactions([transactional_id])[transactional_id].state == "CompleteCommit"


def partitions(admin):
    return [each for topic in admin.list_topics(internal=True) for each in topic.partitions]


def fields(text):
    """Of a table with one line of titles and no blanks in its cells: the values of each line by their titles."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:] if line != lines[0]]


def number(text):
    return None if text == "-" else int(text)


def described_by_kafka(views):
    said = views.tool(TOPICS, "--describe")
    form = r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)"
    return {
        (topic, int(partition)): (int(leader), [*map(int, replicas.split(","))], [*map(int, isr.split(","))])
        for topic, partition, leader, replicas, isr in re.findall(form, said)
    }, dict(re.findall(r"Topic: (\S+)\s+TopicId: (\S+)", said))


def test_leaders_replicas_and_ids(views):
    placed, ids = described_by_kafka(views)
    assert len(placed) == 13
    by_cli, by_web = {}, {}
    for topic, topic_id in ids.items():
        described = views.cli("topic", "describe", topic)
        assert described["id"] == views.web(f"/api/topic?name={topic}")["id"] == topic_id
        for each in described["partitions"]:
            by_cli[topic, each["partition"]] = (each["leader"], each["replicas"], each["in_sync"])
        for each in views.web(f"/api/topic/partitions?name={topic}")["rows"]:
            by_web[topic, each["partition"]] = (each["leader"], each["replicas"], each["isr"])
    assert by_cli == by_web == placed
    leads = {broker: sum(leader == broker for leader, *_ in placed.values()) for broker in range(3)}
    assert {each["broker"]: each["leads"] for each in views.cli("cluster", "describe")["brokers"]} == leads
    assert {each["id"]: each["leads"] for each in views.web("/api/cluster")["brokers"]} == leads
    for broker, page in views.pages().items():
        assert page.value("kafka_server_replicamanager_leadercount") == leads[broker]
        held = sum(broker in replicas for _, replicas, _ in placed.values())
        assert page.value("kafka_server_replicamanager_partitioncount") == held


@pytest.mark.parametrize(
    ("option", "flag", "counted", "metric"),
    [
        ("--under-replicated-partitions", "--under-replicated", "under_replicated", "underreplicatedpartitions"),
        ("--under-min-isr-partitions", "--under-min-isr", "under_min_isr", "underminisrpartitioncount"),
        ("--at-min-isr-partitions", "--at-min-isr", "at_min_isr", "atminisrpartitioncount"),
        ("--unavailable-partitions", "--unavailable", "without_leader", None),
    ],
)
def test_partitions_that_are_not_well(views, option, flag, counted, metric):
    said = views.tool(TOPICS, "--describe", option)
    found = {(topic, int(each)) for topic, each in re.findall(r"Topic: (\S+)\s+Partition: (\d+)", said)}
    assert {(each["topic"], each["partition"]) for each in views.cli("topic", "describe", flag)} == found
    assert views.cli("cluster", "describe")[counted] == len(found)
    assert views.web("/api/cluster").get(counted, len(found)) == len(found)
    if metric is not None:
        told = [page.value(f"kafka_server_replicamanager_{metric}") for page in views.pages().values()]
        assert sum(told) == len(found)
    else:
        told = [
            page.value("kafka_controller_kafkacontroller_offlinepartitionscount") for page in views.pages().values()
        ]
        assert max(told) == len(found)


def test_offsets(views):
    def by_kafka(when):
        lines = views.tool(OFFSETS, "--time", when).split()
        return {(topic, int(each)): int(at) for topic, each, at in (line.rsplit(":", 2) for line in lines)}

    ends = by_kafka("-1")
    extents = {key: (first, ends[key]) for key, first in by_kafka("-2").items()}
    by_cli, by_web = {}, {}
    for topic in {topic for topic, _ in extents}:
        for each in views.cli("topic", "describe", topic)["partitions"]:
            by_cli[topic, each["partition"]] = (each["first_offset"], each["end_offset"])
        for each in views.web(f"/api/topic/partitions?name={topic}")["rows"]:
            by_web[topic, each["partition"]] = (each["first"], each["end"])
    assert by_cli == by_web == extents
    assert (extents["a", 1], extents["b", 1]) == ((30, 100), (0, 22))
    records = {
        topic: sum(end - first for (name, _), (first, end) in extents.items() if name == topic) for topic in "ab"
    }
    listed = {each["topic"]: each["records"] for each in views.cli("topic", "list")}
    assert listed == records
    for page in views.pages().values():
        starts, log_ends = (page.of(f"kafka_log_log_log{each}offset") for each in ("start", "end"))
        for labels, start in starts.items():
            named = dict(labels)
            assert (start, log_ends[labels]) == extents[named["topic"], int(named["partition"])]


def test_groups_their_lag_and_members(views):
    listed = {each["GROUP"]: each["STATE"] for each in fields(views.tool(GROUPS, "--list", "--state", *PATIENT))}
    assert {each["group"]: each["state"] for each in views.cli("group", "list")} == listed
    assert {each["id"]: each["state"] for each in views.web("/api/groups")["rows"]} == listed
    lags = {}
    for group in ("live", "still"):
        rows = fields(views.tool(GROUPS, "--describe", "--group", group, *PATIENT))
        of_kafka = sorted(
            (int(each["PARTITION"]), *map(number, (each["CURRENT-OFFSET"], each["LOG-END-OFFSET"], each["LAG"])))
            for each in rows
        )
        told, shown = views.cli("group", "describe", group), views.web(f"/api/group?id={group}")
        by_cli = [(each["partition"], each["committed"], each["end_offset"], each["lag"]) for each in told["offsets"]]
        by_web = [(each["partition"], each["committed"], each["end"], each["lag"]) for each in shown["rows"]]
        assert by_cli == by_web == of_kafka
        lags |= {(group, partition): lag for partition, *_, lag in of_kafka if lag is not None}
        assert shown["lag"] == sum(lag for (name, _), lag in lags.items() if name == group)
        members = fields(views.tool(GROUPS, "--describe", "--group", group, "--members", *PATIENT))
        named = sorted((each["CONSUMER-ID"], each["HOST"].lstrip("/"), each["CLIENT-ID"]) for each in members)
        assert [(each["member"], each["host"], each["client"]) for each in told["members"]] == named
        assert [(each["id"], each["host"], each["client"]) for each in shown["members"]] == named
    by_page = {}
    for page in views.pages().values():
        for labels, lag in page.of("kafka_consumergroup_lag").items():
            labelled = dict(labels)
            by_page[labelled["consumergroup"], int(labelled["partition"])] = lag
    assert by_page == lags


def test_log_directories_and_the_size_of_every_replica(views):
    said = views.tool(LOG_DIRS, "--describe")
    (line,) = [line for line in said.splitlines() if line.startswith("{")]
    sizes = {
        (broker["broker"], home["logDir"], *each["partition"].rsplit("-", 1)): each["size"]
        for broker in json.loads(line)["brokers"]
        for home in broker["logDirs"]
        for each in home["partitions"]
    }
    placed, _ = described_by_kafka(views)
    alive = {
        (broker, topic, str(partition))
        for (topic, partition), (_, replicas, _) in placed.items()
        for broker in replicas
        if broker != DEAD
    }
    assert {(broker, topic, partition) for broker, _, topic, partition in sizes} == alive
    assert len(sizes) == len(alive)
    totals = {}
    for (broker, path, *_), size in sizes.items():
        totals[broker, path] = totals.get((broker, path), 0) + size
    assert {(each["broker"], each["directory"]): each["bytes"] for each in views.cli("log", "dirs")} == totals
    assert {(each["broker"], each["path"]): each["logs"] for each in views.web("/api/disks")} == totals
    topics = [word for topic in {topic for *_, topic, _ in sizes} for word in ("--topic", topic)]
    by_cli = views.cli("log", "dirs", *topics)
    by_web = views.web("/api/disks/replicas?limit=200")["rows"]
    for rows, path, size in ((by_cli, "directory", "bytes"), (by_web, "path", "size")):
        keys = ((each["broker"], each[path], each["topic"], str(each["partition"])) for each in rows)
        assert dict(zip(keys, (each[size] for each in rows), strict=True)) == sizes
    for broker, page in views.pages().items():
        told = {
            tuple(dict(labels)[each] for each in ("topic", "partition")): size
            for labels, size in page.of("kafka_log_log_size").items()
        }
        assert told == {(topic, each): size for (at, _, topic, each), size in sizes.items() if at == broker}


def test_transactions_and_producers(views):
    listed = {
        each["TransactionalId"]: (int(each["Coordinator"]), int(each["ProducerId"]), each["TransactionState"])
        for each in fields(views.tool(TRANSACTIONS, "list"))
    }
    assert set(listed) == {"held", "ended"}
    by_cli = views.cli("txn", "list")
    assert {e["transactional_id"]: (e["coordinator"], e["producer_id"], e["state"]) for e in by_cli} == listed
    by_web = {each["id"]: each for each in views.web("/api/transactions")["rows"]}
    assert {name: (e["coordinator"], e["producer"], e["state"]) for name, e in by_web.items()} == listed
    (told,) = fields(views.tool(TRANSACTIONS, "describe", "--transactional-id", "held"))
    described = views.cli("txn", "describe", "held")
    assert [described[each] for each in ("producer_id", "producer_epoch", "timeout_ms", "start_ms")] == [
        int(told[each])
        for each in ("ProducerId", "ProducerEpoch", "TransactionTimeoutMs", "CurrentTransactionStartTimeMs")
    ]
    assert told["TopicPartitions"] == by_web["held"]["partitions"] == "b-0"
    assert [f"{each['topic']}-{each['partition']}" for each in described["partitions"]] == ["b-0"]
    states = [page.value("sparklog_transactions", state="Ongoing") for page in views.pages().values()]
    assert sum(states) == [state for *_, state in listed.values()].count("Ongoing")
    names = ("ProducerId", "ProducerEpoch", "LastSequence", "LastTimestamp", "CurrentTransactionStartOffset")
    for partition in ("0", "1"):
        rows = fields(views.tool(TRANSACTIONS, "describe-producers", "--topic", "b", "--partition", partition))
        active = [[None if each[name] == "None" else int(each[name]) for name in names] for each in rows]
        found = views.cli("txn", "producers", "b", "--partition", partition)
        keys = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp_ms", "open_since")
        assert sorted([each[key] for key in keys] for each in found) == sorted(active)


def test_hanging_transactions_are_looked_for_on_one_broker(views):
    """Kafka's tool then asks a broker about partitions that it follows too."""
    for broker in ("0", "1"):
        assert fields(views.tool(TRANSACTIONS, "find-hanging", "--broker-id", broker)) == []
    assert views.cli("txn", "find-hanging") == []


@pytest.mark.parametrize(
    ("entity", "flags", "path"),
    [
        (("topics", "--entity-name", "a"), ("--topic", "a"), "/api/topic/settings?name=a"),
        (("brokers", "--entity-name", "1"), ("--broker", "1"), "/api/broker/settings?id=1"),
    ],
    ids=["a topic", "a broker"],
)
def test_settings(views, entity, flags, path):
    said = views.tool(CONFIGS, "--describe", "--entity-type", *entity, "--all")
    form = r"^  (\S+?)=(.*) sensitive=(\S+) synonyms=\{(?:(\w+):)?"
    told = {name: (value, source) for name, value, sensitive, source in re.findall(form, said, re.MULTILINE)}
    assert len(told) > 30
    values = {name: None if value == "null" else value for name, (value, _) in told.items()}
    assert {each["name"]: each["value"] for each in views.cli("config", "describe", *flags, "--all")} == values
    shown = views.web(path)
    assert {each["name"]: each["value"] for each in shown} == values
    assert {each["name"] for each in shown if not each["is_default"]} == {
        name for name, (_, source) in told.items() if source != "DEFAULT_CONFIG"
    }


def test_quotas(views):
    found = set()
    for kind in (("clients",), ("users",), ("users", "--entity-type", "clients")):
        for line in views.tool(CONFIGS, "--describe", "--entity-type", *kind).splitlines():
            whose, settings = re.fullmatch(r"Quota configs for (.+) are (.*)", line).groups()
            entity = tuple(sorted(re.findall(r"(?:(user|client-id)\S*) '([^']+)'", whose)))
            entity = entity or (("user", None),) if "default" in whose else entity
            found |= {(entity, *setting.split("=")) for setting in settings.split(", ")}
    found = {(entity, name, float(value)) for entity, name, value in found}
    listed = {
        (tuple(sorted(each["entity"].items())), name, value)
        for each in views.cli("quota", "list")
        for name, value in each["quotas"].items()
    }
    assert listed == found
    assert len(views.web("/api/quotas")["rows"]) == len(found) == 4
    assert {(each["name"], each["value"]) for each in views.web("/api/quotas")["rows"]} == {each[1:] for each in found}


def test_access_control_lists(views):
    found, pattern = set(), tuple[str, ...]()
    for line in views.tool(ACLS, "--list").splitlines():
        if named := re.search(r"resourceType=(\w+), name=(\S+), patternType=(\w+)", line):
            pattern = named.groups()
        elif entry := re.search(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)", line):
            found.add((*pattern, *entry.groups()))
    assert len(found) == 4
    names = ("type", "name", "pattern", "principal", "host", "operation", "permission")
    assert {tuple(each[name] for name in names) for each in views.cli("acl", "list")} == found
    shown = views.web("/api/acls")["rows"]
    same = {
        (e["resource"].upper(), e["name"], e["pattern"].upper(), e["principal"], e["host"], e["operation"].upper(),
         e["permission"].upper())
        for e in shown
    }  # fmt: skip
    assert same == found


def test_the_cluster_s_id(views):
    bootstrap = ("--bootstrap-server", views.cluster.bootstrap_servers)
    said = run_kafka_tool("org.apache.kafka.tools.ClusterTool", "cluster-id", *bootstrap)
    described = views.cli("cluster", "describe")
    assert said.split()[-1] == described["cluster"] == views.web("/api/cluster")["cluster_id"]
