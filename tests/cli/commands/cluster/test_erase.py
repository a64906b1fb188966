"""``sparklog erase`` on a real cluster."""

import errno
import hashlib
import json

import pytest

from sparklog.cli.commands.cluster import erase
from sparklog.client import Producer
from sparklog.client.admin.admin import Admin, NewTopic

pytestmark = pytest.mark.integration

SECRET = b"the-one-to-forget"
RECORDS = 60


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Reports are written where the command runs."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def users(bootstrap, topic):
    """Two partitions; every third record of 0 is to be forgotten, 1 is empty."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, {"segment.bytes": "1000"})])
    write(bootstrap, topic)
    return topic


def write(bootstrap, topic):
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(RECORDS):
            key = SECRET if number % 3 == 0 else b"k%d" % number
            producer.send(topic, b"v%d" % number + b"." * 40, key=key, partition=0)


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_bytes(SECRET + b"\nnobody\n")
    return path


def rows(text):
    lines = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def keys_read(here, topic):
    return {line.split("\t")[0] for line in here("consume", topic, "--keys").out.splitlines()}


def test_records_are_erased_and_a_report_tells_of_it(here, users, keys, tmp_path):
    done = here("erase", users, "--keys", keys, "--yes", "--report", "proof.json")
    assert (done.status, done.err) == (0, "the report: proof.json\n")
    full, empty = rows(done.out)
    assert (full["partition"], full["up to"], full["erased"], full["left"]) == ("0", str(RECORDS), "20", "0")
    assert (full["records scanned"], full["result"]) == ("40", "nothing left")
    assert (empty["partition"], empty["records scanned"], empty["result"]) == ("1", "0", "nothing left")
    assert keys_read(here, users) == {f"k{n}" for n in range(RECORDS) if n % 3}

    report = json.loads((tmp_path / "proof.json").read_text())
    assert (report["topic"], report["complete"], report["searched_only"]) == (users, True, False)
    assert report["keys"]["count"] == 2
    packed = b"".join(len(key).to_bytes(4, "big") + key for key in sorted([SECRET, b"nobody"]))
    assert report["keys"]["sha256"] == hashlib.sha256(packed).hexdigest()
    assert SECRET.decode() not in json.dumps(report)
    replica = report["replicas"][0]
    assert (replica["records_erased"], replica["records_left"], replica["obstacle"]) == (20, 0, None)
    assert sum(each["size"] for each in replica["segments"]) == replica["bytes_scanned"] > 0
    assert replica["segments"][0]["file"] == "0" * 20 + ".log"
    assert here("erase", users, "--keys", keys, "--check", "proof.json").status == 0


def test_a_dry_run_counts_and_erases_nothing(here, users, keys, tmp_path):
    done = here("erase", users, "--keys", keys, "--dry-run")
    assert (done.status, done.err) == (0, "")
    assert [(each["erased"], each["left"], each["result"]) for each in rows(done.out)] == [
        ("0", "20", "20 records to erase"),
        ("0", "0", "0 records to erase"),
    ]
    assert SECRET.decode() in keys_read(here, users)
    assert list(tmp_path.glob("erasure-*")) == []
    told = json.loads(here("erase", users, "--keys", keys, "--dry-run", "--output", "json").out)
    assert [each["records_left"] for each in told["replicas"]] == [20, 0]


def test_what_is_written_later_stays_and_a_check_looks_no_further_than_the_report(here, users, keys, bootstrap):
    assert here("erase", users, "--keys", keys, "--yes", "--report", "proof.json").status == 0
    write(bootstrap, users)
    assert here("erase", users, "--keys", keys, "--check", "proof.json").status == 0
    assert SECRET.decode() in keys_read(here, users)
    again = here("erase", users, "--keys", keys, "--yes")
    assert rows(again.out)[0]["erased"] == "20"
    assert again.err.startswith(f"the report: erasure-{users}-")


def test_a_check_that_finds_something_fails(here, users, keys, tmp_path):
    assert here("erase", users, "--keys", keys, "--dry-run", "--report", "before.json").status == 0
    checked = here("erase", users, "--keys", keys, "--check", "before.json")
    assert (checked.status, rows(checked.out)[0]["result"]) == (1, "20 records to erase")
    assert checked.err == "sparklog: 20 records of these keys left, counting every replica: erase again\n"


def test_a_check_wants_the_keys_and_the_topic_of_the_report(here, users, keys, tmp_path):
    assert here("erase", users, "--keys", keys, "--dry-run", "--report", "before.json").status == 0
    other = here("erase", users, "--keys", "-", "--check", "before.json", stdin=b"nobody\n")
    assert (other.status, "is of other keys: of 2 keys with SHA-256" in other.err) == (2, True)
    elsewhere = here("erase", "another", "--keys", keys, "--check", "before.json")
    assert (elsewhere.status, f"is of topic {users}, not of another" in elsewhere.err) == (2, True)
    no_report = here("erase", users, "--keys", keys, "--check", keys)
    assert (no_report.status, "is not the report of an erasure" in no_report.err) == (2, True)
    both = here("erase", users, "--keys", keys, "--check", "before.json", "--dry-run")
    assert (both.status, "takes no --dry-run" in both.err) == (2, True)


def test_a_topic_that_was_made_anew_is_another_one(here, users, keys, bootstrap):
    assert here("erase", users, "--keys", keys, "--yes", "--report", "proof.json").status == 0
    here("topic", "delete", users, "--yes")
    here("topic", "create", users)
    checked = here("erase", users, "--keys", keys, "--check", "proof.json")
    assert (checked.status, "is another one by now" in checked.err) == (1, True)


@pytest.mark.parametrize(
    ("spelling", "line"), [("hex", SECRET.hex().encode()), ("base64", b"dGhlLW9uZS10by1mb3JnZXQ=")]
)
def test_keys_may_be_spelled_and_come_from_standard_input(here, users, spelling, line):
    done = here("erase", users, "--keys", "-", "--keys-as", spelling, "--yes", "--partition", "0", stdin=line)
    assert done.status == 0, done.err
    assert [(each["partition"], each["erased"]) for each in rows(done.out)] == [("0", "20")]


def test_it_asks_first(here, users, keys):
    done = here("erase", users, "--keys", keys)
    assert (done.status, "add --yes" in done.err) == (2, True)
    assert SECRET.decode() in keys_read(here, users)


def test_a_report_is_never_written_over_another(here, users, keys, tmp_path):
    (tmp_path / "proof.json").write_text("precious")
    done = here("erase", users, "--keys", keys, "--yes", "--report", "proof.json")
    assert (done.status, "is there already" in done.err) == (2, True)
    nowhere = here("erase", users, "--keys", keys, "--yes", "--report", "no/proof.json")
    assert (nowhere.status, "there is no directory no" in nowhere.err) == (2, True)


@pytest.mark.parametrize("output", ["json", "table"])
def test_a_report_that_cannot_be_written_is_on_standard_output(here, users, keys, tmp_path, monkeypatch, output):
    """Nothing else tells how far each partition was erased, and what each file then was."""

    def full(path, _report):
        path.write_text('{"format": 1, "comp')
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(erase, "write_report", full)
        done = here("erase", users, "--keys", keys, "--yes", "--report", "proof.json", "--output", output)
    assert done.status == 1
    assert done.err == (
        "sparklog: the report could not be written to proof.json: no space left on device; it is what standard output"
        " has\n"
    )
    assert not (tmp_path / "proof.json").exists()
    assert SECRET.decode() not in keys_read(here, users)
    (tmp_path / "saved.json").write_text(done.out)
    assert json.loads(done.out)["complete"]
    assert here("erase", users, "--keys", keys, "--check", "saved.json").status == 0


def test_nothing_is_erased_where_no_report_can_be_written(here, users, keys):
    done = here("erase", users, "--keys", keys, "--yes", "--report", "/proc/proof.json")
    assert (done.status, done.out) == (2, "")
    assert "/proc/proof.json cannot be written: " in done.err
    assert SECRET.decode() in keys_read(here, users)


def test_a_command_that_erases_nothing_leaves_no_empty_report(here, users, keys, tmp_path):
    assert here("erase", users, "--keys", keys, "--report", "proof.json").status == 2
    assert here("erase", users, "--keys", keys, "--yes", "--report", "proof.json", "-p", "7").status == 1
    assert not (tmp_path / "proof.json").exists()
    assert here("erase", users, "--keys", keys, "--yes", "--report", "proof.json").status == 0


def test_what_there_is_not_is_named_and_what_is_internal_is_refused(here, users, keys):
    missing = here("erase", "no-such-topic", "--keys", keys, "--yes")
    assert (missing.status, "no-such-topic" in missing.err) == (1, True)
    partition = here("erase", users, "--keys", keys, "--yes", "--partition", "7")
    assert (partition.status, "has no partition 7" in partition.err) == (1, True)
    here("consume", users, "--group", "g")
    internal = here("erase", "__consumer_offsets", "--keys", keys, "--yes")
    assert internal.status in (1, 2)
    assert "erased" not in internal.out


def test_an_open_transaction_is_named_and_nothing_is_claimed(here, users, keys, bootstrap):
    from confluent_kafka import Producer as Transactional

    producer = Transactional({"bootstrap.servers": bootstrap, "transactional.id": users})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(users, b"open", key=SECRET, partition=0)
    producer.flush(60)
    done = here("erase", users, "--keys", keys, "--yes", "--wait", "0", "--report", "first.json")
    assert done.status == 1
    assert f"has had a transaction open since offset {RECORDS}: it has to end" in done.err
    assert f"sparklog txn abort --topic {users} --partition 0 --start-offset {RECORDS}" in done.err
    assert SECRET.decode() in keys_read(here, users)
    producer.abort_transaction(60)
    again = here("erase", users, "--keys", keys, "--yes")
    assert (again.status, rows(again.out)[0]["erased"]) == (0, "21")
