"""``sparklog consume`` on a real cluster."""

import json
import os
import signal
import subprocess
from datetime import UTC, datetime

import pytest
from fix_programs import lack_of

from sparklog.client import NewTopic, Producer
from sparklog.registry import AvroSerializer, SchemaRegistry
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.registry import schema_registry

LACK = lack_of("kcat")
pytestmark = pytest.mark.integration


@pytest.fixture
def numbers(here, topic):
    """A topic with one partition and the records 0 to 9."""
    assert here("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(10))).status == 0
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], range(10)),
        (["--from", "earliest"], range(10)),
        (["--from", "latest"], []),
        (["--from", "7"], range(7, 10)),
        (["--from", "99"], []),
        (["--to", "3"], range(3)),
        (["--from", "2", "--to", "5"], range(2, 5)),
        (["--max", "4"], range(4)),
        (["--from", "8", "--max", "4"], range(8, 10)),
        (["--from", "2013-07-04"], range(10)),
        (["--to", "2013-07-04T12:00"], []),
        (["--partition", "0", "--partition", "0"], range(10)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_range(here, numbers, options, expected):
    result = here("consume", numbers, *options)
    assert result[:2] == (0, "".join(f"{number}\n" for number in expected))
    nothing = "" if expected else f"no records there: {numbers}-0 holds offsets 0 to 9\n"
    assert result.err == nothing


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--from", "5", "--to", "2"], "--to 2 is not after --from 5: there is nothing between them"),
        (["--from", "5", "--to", "5"], "--to 5 is not after --from 5"),
        (["--from", "2013-07-05", "--to", "2013-07-04"], "--to 2013-07-04T00:00:00+00:00 is not after"),
        (["--from", "latest", "--to", "9"], "--to 9 is not after --from latest"),
        (["--to", "earliest"], "--to earliest is not after --from earliest"),
        (["--max", "0"], "'0' is not a whole number from 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_range_that_can_hold_nothing_is_refused(run, options, told):
    result = run("consume", "any", *options)
    assert (result.status, result.out) == (2, "")
    assert told in result.err


def test_a_time_divides_what_was_before_from_what_came_after(here, topic):
    here("produce", topic, stdin=b"before\n")
    here("produce", topic, stdin=b"after\n")
    first, second = (json.loads(line)["timestamp"] for line in here("consume", topic, "--json").out.splitlines())
    assert first < second
    moment = datetime.fromtimestamp(second / 1000, UTC).isoformat()
    assert here("consume", topic, "--from", moment).out == "after\n"
    assert here("consume", topic, "--to", moment).out == "before\n"


def test_keys_are_printed_where_asked(here, topic):
    here("produce", topic, "-k", ":", stdin=b"a:1\nnone\n")
    assert here("consume", topic).out == "1\nnone\n"
    assert here("consume", topic, "--keys").out == "a\t1\n\\N\tnone\n"
    assert here("consume", topic, "--keys", "--key-separator", " => ").out == "a => 1\n\\N => none\n"
    no_text = os.fsdecode(b"\xff")
    assert here("consume", topic, "--keys", "--key-separator", no_text, "--max", 1).status == 0


def test_null_is_not_printed_as_what_is_empty(here, topic):
    here("produce", topic, "-k", ":", "--null-empty", stdin=b"a:\nb\n")
    here("produce", topic, "-k", ":", stdin=b"c:\n:d\n")
    assert here("consume", topic, "-k").out == "a\t\\N\n\\N\tb\nc\t\n\td\n"
    rows = [json.loads(line) for line in here("consume", topic, "--json").out.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [("a", None), (None, "b"), ("c", ""), ("", "d")]


def test_json_has_all_of_a_record_and_shows_bytes_that_are_no_text(here, topic):
    here("produce", topic, "-k", ":", stdin=b"k\xff:caf\xc3\xa9\n\x80\n")
    first, second = map(json.loads, here("consume", topic, "--json").out.splitlines())
    assert first.pop("timestamp") > 1_500_000_000_000
    assert first == {"topic": topic, "partition": 0, "offset": 0, "key_base64": "a/8=", "value": "café"}
    assert (second["offset"], second["key"], second["value_base64"]) == (1, None, "gA==")


def test_partitions_can_be_chosen_and_one_that_is_not_there_is_named(here, topic):
    here("topic", "create", topic, "--partitions", 3)
    for partition in range(3):
        here("produce", topic, "--partition", partition, stdin=b"in %d\n" % partition)
    assert here("consume", topic, "-p", 2, "-p", 0).out == "in 0\nin 2\n"
    result = here("consume", topic, "--partition", 3)
    assert (result.status, result.out) == (2, "")
    assert result.err.endswith(f"--partition: topic '{topic}' has no partition 3, only 0 to 2\n")


def test_an_unknown_topic_is_named_and_not_made(here, topic):
    result = here("consume", topic)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"topic '{topic}'" in result.err
    assert topic not in here("topic", "list").out


def test_where_nothing_is_it_is_said_what_there_is(here, topic):
    here("topic", "create", topic, "--partitions", 5)
    here("produce", topic, "--partition", 1, stdin=b"a\nb\n")
    result = here("consume", topic, "--from", 2)
    assert (result.status, result.out) == (0, "")
    holding = f"{topic}-0 holds none, {topic}-1 holds offsets 0 to 1, {topic}-2 holds none, and 2 more"
    assert result.err == f"no records there: {holding}\n"


def test_follow_goes_on_until_it_is_interrupted_and_is_quiet_then(here, spawn, interrupt, numbers):
    follower = spawn("consume", numbers, "--from", "9", "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert follower.stdout.readline() == b"9\n"
    here("produce", numbers, stdin=b"10\n")
    assert follower.stdout.readline() == b"10\n"
    out, err = interrupt(follower)
    # click may end the line that a terminal shows ^C on.
    assert (follower.returncode, out, err.strip()) == (130, b"", b"")


def test_follow_waits_for_a_broker_that_was_stopped_and_says_so(run, spawn, interrupt, topic, tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot) as broker:
        at = ("--bootstrap", broker.address)
        assert run("produce", topic, *at, stdin=b"before\n").status == 0
        follower = spawn("consume", topic, "--follow", *at, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert follower.stdout.readline() == "before\n"
        broker.stop()
        said = follower.stderr.readline()
        assert broker.address in said
        assert said.endswith("; still trying, until Ctrl-C\n")
        broker.start()
        assert run("produce", topic, *at, stdin=b"after\n").status == 0
        assert follower.stdout.readline() == "after\n"
        assert follower.stderr.readline() == "going on\n"
        interrupt(follower)
        assert follower.returncode == 130


def test_follow_ends_where_its_topic_is_deleted(here, spawn, numbers):
    follower = spawn("consume", numbers, "--from", "9", "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert follower.stdout.readline() == b"9\n"
    assert here("topic", "delete", numbers, "--yes").status == 0
    _, err = follower.communicate(timeout=60)
    assert (follower.returncode, err.count(b"\n")) == (1, 1)
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in err


def test_follow_ends_after_so_many(here, numbers):
    assert here("consume", numbers, "--follow", "--max", "3").out == "0\n1\n2\n"


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["plain", "json"])
def test_a_reader_that_goes_away_ends_it_quietly(here, spawn, topic, options, unbuffered):
    # Far more than a pipe holds, so that the command is still writing when nobody reads any more.
    here("produce", topic, "--compression", "zstd", stdin=b"a line of some length\n" * 100_000)
    environ = {"PYTHONUNBUFFERED": unbuffered}
    consumer = spawn("consume", topic, *options, environ=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"a line of some length" in consumer.stdout.readline()
    consumer.stdout.close()
    assert consumer.stderr.read() == b""
    assert consumer.wait(60) == 141


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_full_disk_is_one_line(here, spawn, numbers, unbuffered):
    environ = {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        consumer = spawn("consume", numbers, environ=environ, stdout=full, stderr=subprocess.PIPE, text=True)
        _, err = consumer.communicate(timeout=60)
    assert (consumer.returncode, err) == (1, "sparklog: no space left on device\n")


@pytest.fixture
def damaged(run, topic, tmp_path):
    """A topic of two partitions, 30 records in each, and damage in the third of ten batches of the first."""
    with ClusterHarness(tmp_path / "cluster") as cluster:
        run("topic", "create", topic, "--partitions", 2, "-b", cluster.bootstrap_servers)
        for partition in (0, 1):
            for batch in range(10):
                lines = b"".join(b"%d.%02d\n" % (partition, batch * 3 + number) for number in range(3))
                run("produce", topic, "-p", partition, "-b", cluster.bootstrap_servers, stdin=lines)
        (log,) = (tmp_path / "cluster" / "broker-0" / f"{topic}-0").glob("*.log")
        size = log.stat().st_size // 10
        with log.open("r+b") as file:
            file.seek(2 * size + size - 1)
            last = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([last[0] ^ 1]))
        yield cluster.bootstrap_servers


ALL_BUT_WHAT_IS_BEHIND_DAMAGE = [f"0.{number:02}" for number in range(6)] + [f"1.{number:02}" for number in range(30)]


def test_what_is_before_damage_is_printed_and_the_other_partitions_too(run, damaged, topic):
    result = run("consume", topic, "-b", damaged)
    assert result.status == 1
    assert result.out.split() == ALL_BUT_WHAT_IS_BEHIND_DAMAGE
    (line,) = result.err.splitlines()
    assert line.startswith(f"partition {topic}-0 at offset 6: ")
    assert line.endswith(f"{topic}-0 is not read further; --partition 0 --from OFFSET reads on behind it")
    behind = run("consume", topic, "-b", damaged, "--partition", 0, "--from", 9)
    assert behind.out.split() == [f"0.{number:02}" for number in range(9, 30)]


def test_follow_goes_on_with_the_partitions_without_damage(spawn, damaged, topic):
    follower = spawn("consume", topic, "--follow", "-b", damaged, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = [follower.stdout.readline().decode().strip() for _ in ALL_BUT_WHAT_IS_BEHIND_DAMAGE]
    assert sorted(lines) == sorted(ALL_BUT_WHAT_IS_BEHIND_DAMAGE)
    assert b"is not read further" in follower.stderr.readline()
    follower.send_signal(signal.SIGINT)
    assert follower.wait(60) == 130


@pytest.fixture
def trips(bootstrap, topic):
    """The URL of a registry, and what it knows; the topic has a value of it, a null, and one that is none of it."""
    pytest.importorskip("fastavro")
    with schema_registry() as served:
        trip = {"type": "record", "name": "Trip", "fields": [{"name": "place", "type": "string"}]}
        written = AvroSerializer(SchemaRegistry(schema_registry_url=served[0]), trip).serialize(topic, {"place": "Zug"})
        with Producer(bootstrap_servers=bootstrap) as producer:
            for value in (written, None, b"plain"):
                producer.send(topic, value, key=b"k").result()
        yield served


def test_values_of_a_registry_are_printed_as_json(here, topic, trips, tmp_path):
    result = here("consume", topic, "--keys", "--registry", trips[0])
    assert result[:2] == (0, 'k\t{"place": "Zug"}\nk\t\\N\nk\tplain\n')
    assert result.err == (
        "1 value printed as written, not by a schema; of the first: it begins with byte 112, not with 0:"
        " it was not written by a schema registry's serializer\n"
    )
    assert here("consume", topic, "--registry", trips[0], "--max", "2") == (0, '{"place": "Zug"}\n\n', "")
    trips[1].user = "ann:secret"
    config = tmp_path / "registry.properties"
    config.write_text(f"schema.registry.url={trips[0]}\nbasic.auth.user.info=ann:secret\n")
    (line,) = here("consume", topic, "--max", "1", "--json", "--registry-config", config).out.splitlines()
    assert json.loads(line)["value"] == '{"place": "Zug"}'


def test_a_registry_that_refuses_ends_the_command(here, topic, trips):
    trips[1].user = "ann:secret"
    result = here("consume", topic, "--registry", trips[0])
    assert (result.status, result.out) == (1, "")
    assert "401: Unauthorized; set basic.auth.user.info" in result.err


@pytest.fixture
def varied(topic, bootstrap, admin):
    """Keys, values and headers, null, empty and not, that begin at offset 0 of partition 0."""
    admin.create_topics([NewTopic(topic, 1, 1)])
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"one", b"k", headers=[("a", b"1"), ("b", None)], timestamp=1_700_000_000_000)
        producer.send(topic, None, b"", headers=[("c", b"")], timestamp=1_700_000_000_001)
        producer.send(topic, b"%s\\n", None, timestamp=1_700_000_000_002)
    return topic


ALL_TOKENS = r"%t %p %o %T %K:%k %S:%s [%h]%%\t\x41\n"


def test_a_format_prints_what_it_says(here, varied):
    done = here("consume", varied, "--format", ALL_TOKENS)
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        f"{varied} 0 0 1700000000000 1:k 3:one [a=1,b=NULL]%\tA\n"
        f"{varied} 0 1 1700000000001 0: -1: [c=]%\tA\n"
        f"{varied} 0 2 1700000000002 -1: 4:%s\\n []%\tA\n"
    )
    assert here("consume", varied, "-f", "x", "--max", "2").out == "xx"


@pytest.mark.skipif(LACK != "", reason=LACK)
@pytest.mark.parametrize("form", [r"%t %p %o %T %K:%k %S:%s [%h]\t\x41\n", "%R|", "%s"])
def test_kcat_prints_the_same(here, bootstrap, varied, form):
    kcat = ["kcat", "-C", "-q", "-e", "-b", bootstrap, "-t", varied, "-o", "beginning", "-f", form]
    theirs = subprocess.run(kcat, capture_output=True, check=True, timeout=120)
    assert here("consume", varied, "-f", form).out == theirs.stdout.decode(errors="replace")


def test_json_has_the_headers_of_a_record(here, varied):
    first, second, third = (json.loads(line) for line in here("consume", varied, "--output", "json").out.splitlines())
    assert first["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": None}]
    assert second["headers"] == [{"key": "c", "value": ""}]
    assert "headers" not in third


def test_a_format_stands_alone(here, topic):
    for more in ("--keys", "--json", "--output=json"):
        done = here("consume", topic, "-f", "%s", more)
        assert (done.status, "leave out" in done.err) == (2, True)
    assert here("consume", topic, "-f", "%z").status == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "-3"], range(7, 10)),
        (["--tail", "3"], range(7, 10)),
        (["--from", "-99"], range(10)),
        (["--tail", "5", "--to", "7"], range(5, 7)),
        (["--tail", "5", "--max", "2"], range(5, 7)),
        (["--tail", "2", "--follow", "--max", "2"], range(8, 10)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_last_records(here, numbers, options, expected):
    assert here("consume", numbers, *options) == (0, "".join(f"{number}\n" for number in expected), "")


def test_the_last_records_of_each_partition(here, topic):
    here("topic", "create", topic, "--partitions", 2)
    for partition in range(2):
        lines = b"".join(b"%d.%d\n" % (partition, number) for number in range(4))
        here("produce", topic, "-p", partition, stdin=lines)
    here("topic", "trim", topic, "--partition", 1, "--before", 3, "--yes")
    assert here("consume", topic, "--tail", 2).out.split() == ["0.2", "0.3", "1.3"]


@pytest.mark.skipif(LACK != "", reason=LACK)
def test_kcat_prints_the_same_last_records(here, bootstrap, numbers):
    kcat = ["kcat", "-C", "-q", "-e", "-b", bootstrap, "-t", numbers, "-o", "-4"]
    theirs = subprocess.run(kcat, capture_output=True, check=True, timeout=120)
    assert here("consume", numbers, "--from", "-4").out == theirs.stdout.decode()


def test_several_topics_and_those_that_a_pattern_matches(here, topic):
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        here("produce", name, stdin=name[-1].encode() + b"\n")
    assert here("consume", names[2], names[0]).out == "c\na\n"
    assert here("consume", names[2], f"{topic}-?").out == "c\na\nb\n"
    assert here("consume", f"{topic}-[bc]", "-f", "%t=%s ").out == f"{names[1]}=b {names[2]}=c "
    none = here("consume", f"{topic}-x*")
    assert (none.status, none.out) == (1, "")
    assert f"no topic matches '{topic}-x*'; see \"sparklog topic list\"" in none.err


def test_what_is_not_committed_is_left_out_where_asked(here, topic, bootstrap, admin):
    admin.create_topics([NewTopic(topic, 1, 1)])
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for value, ends in ((b"committed", True), (b"aborted", False)):
            producer.begin_transaction()
            producer.send(topic, value)
            producer.flush()
            producer.commit_transaction() if ends else producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        assert here("consume", topic).out.split() == ["committed", "aborted", "open"]
        assert here("consume", topic, "--committed").out.split() == ["committed"]
        member = here("consume", topic, "--committed", "--group", topic)
        assert (member.status, member.out.split()) == (0, ["committed"])
        producer.abort_transaction()


@pytest.fixture
def read(here, numbers):
    """``read(*options)``: what a member of a group gets of the ten numbers, as numbers."""

    def call(*options):
        done = here("consume", numbers, "--group", numbers, *options)
        assert done.status == 0, done.err
        return [int(line) for line in done.out.split()]

    return call


def committed(admin, group):
    return sum(each.offset for each in admin.group_offsets(group).values())


def test_a_group_reads_on_where_it_was(here, read, numbers, admin):
    assert read("--max", 3) == [0, 1, 2]
    assert committed(admin, numbers) == 3
    assert read() == list(range(3, 10))
    nothing = here("consume", numbers, "--group", numbers)
    assert nothing == (0, "", f"nothing to read: group {numbers} has read what there is\n")
    here("produce", numbers, stdin=b"10\n")
    assert read("--follow", "--max", 1) == [10]
    assert not admin.describe_groups([numbers])[numbers].members


def test_a_new_group_begins_where_it_is_told(here, read, numbers, admin):
    assert read("--from", "latest") == []
    assert committed(admin, numbers) == 10
    here("produce", numbers, stdin=b"10\n")
    assert read("--from", "earliest") == [10]


def test_what_a_member_has_printed_is_committed_when_it_is_interrupted(here, spawn, interrupt, numbers, read, admin):
    """But for the last round: the signal may come before it counts as printed."""
    at = ("consume", numbers, "--group", numbers, "--follow")
    member = spawn(*at, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert [int(member.stdout.readline()) for _ in range(10)] == list(range(10))
    here("produce", numbers, stdin=b"10\n")
    assert member.stdout.readline() == b"10\n"
    out, err = interrupt(member)
    assert (member.returncode, out, err.strip()) == (130, b"", b"")
    reached = committed(admin, numbers)
    assert reached in (10, 11)
    here("produce", numbers, stdin=b"11\n")
    assert read() == list(range(reached, 12))


def test_what_a_member_could_not_print_is_read_again(spawn, numbers, read):
    with open("/dev/full", "wb") as full:
        member = spawn("consume", numbers, "--group", numbers, stdout=full, stderr=subprocess.PIPE)
        _, err = member.communicate(timeout=60)
    assert (member.returncode, err) == (1, b"sparklog: no space left on device\n")
    assert read() == list(range(10))


@pytest.mark.slow
def test_members_that_come_and_go_leave_out_no_record(here, spawn, interrupt, topic, tmp_path, admin):
    """One reads alone, another joins and is killed, a third ends by Ctrl-C: each record was printed by one of them."""
    here("topic", "create", topic, "--partitions", 4)
    wanted, printed = set(), {}

    def write(count):
        lines = [f"{number}" for number in range(len(wanted), len(wanted) + count)]
        assert here("produce", topic, stdin="".join(f"{each}\n" for each in lines).encode()).status == 0
        wanted.update(lines)

    def member(name):
        printed[name] = tmp_path / name
        with printed[name].open("wb") as file:
            return spawn("consume", topic, "--group", topic, "--follow", stdout=file, stderr=subprocess.PIPE)

    def found():
        return [line for path in printed.values() for line in path.read_text().split()]

    def members(count):
        assert eventually(lambda: len(admin.describe_groups([topic])[topic].members) == count)

    first = member("first")
    members(1)
    write(400)
    eventually(lambda: len(found()) == 400)
    second, third = member("second"), member("third")
    members(3)
    write(400)
    eventually(lambda: set(found()) == wanted)
    second.kill()
    interrupt(third)
    write(400)
    eventually(lambda: set(found()) == wanted)
    interrupt(first)
    assert (first.returncode, third.returncode) == (130, 130)
    assert set(found()) == wanted
    assert len(found()) < 2 * len(wanted)


def test_a_member_prints_all_of_its_records_in_any_form(here, varied):
    plain = here("consume", varied, "--output", "json").out
    assert here("consume", varied, "--group", f"{varied}-1", "--output", "json").out == plain
    form = here("consume", varied, "--format", ALL_TOKENS).out
    assert here("consume", varied, "--group", f"{varied}-2", "--format", ALL_TOKENS).out == form


def test_a_member_of_several_partitions_stops_at_so_many(here, topic):
    here("topic", "create", topic, "--partitions", 3)
    for partition in range(3):
        here("produce", topic, "-p", partition, stdin=b"".join(b"%d.%d\n" % (partition, n) for n in range(4)))
    found = []
    for most in (5, 2, 5):
        lines = here("consume", topic, "--group", topic, "--max", most).out.split()
        assert len(lines) == most
        found += lines
    assert sorted(found) == [f"{partition}.{number}" for partition in range(3) for number in range(4)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--group", ""], "'--group': must not be empty"),
        (["--group", "g", "--from", "5"], "--group reads on where the group is"),
        (["--group", "g", "--tail", "5"], "--group reads on where the group is"),
        (["--group", "g", "--to", "5"], "--group reads to the end: leave out --to"),
        (["--group", "g", "--partition", "5"], "leave out --partition"),
        (["--tail", "5", "--from", "3"], "--tail says where to begin: leave out --from"),
        (["--from", "-0"], "'-0' is none of"),
        (["other", "--partition", "5"], "--partition needs the one TOPIC that it is of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_together_is_refused(run, options, told):
    result = run("consume", "any", *options)
    assert (result.status, result.out) == (2, "")
    assert told in result.err.splitlines()[-1]
