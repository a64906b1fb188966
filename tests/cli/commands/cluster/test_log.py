"""``sparklog log``: what is printed, the exit codes, and a look at a broker at work."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparklog.cli.main import cli
from sparklog.log.inspection.locks import is_in_use

GOLDEN = Path(__file__).parents[3] / "golden"
STOPPED = GOLDEN / "kafka-3.9-stopped"
SEGMENT = GOLDEN / "kafka-3.9" / "none-0" / "00000000000000000000.log"


@pytest.fixture
def partition(tmp_path):
    """A copy of a partition that Kafka wrote, damaged by whoever wants to."""
    return Path(shutil.copytree(GOLDEN / "kafka-3.9" / "none-0", tmp_path / "none-0"))


def damage(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_the_commands_have_help(command):
    result = CliRunner().invoke(cli, ["log", command, "--help"], prog_name="sparklog")
    assert result.exit_code == 0
    assert "Exit code: 0 " in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("dump",),
        ("verify",),
        ("dump", SEGMENT, "--from-offset", "-1"),
        ("dump", SEGMENT, "--max-batches", "x"),
        ("verify", STOPPED, "--threads", "0"),
    ],
    ids=lambda each: " ".join(map(str, each[::2])),
)
def test_misuse_is_refused(run, arguments):
    assert run("log", *arguments)[:2] == (2, "")


def test_a_dump_is_read_as_kafkas_is(run):
    status, out, err = run("log", "dump", SEGMENT)
    assert (status, err) == (0, "")
    first, batch = out.splitlines()
    assert first == f"Dumping {SEGMENT}"
    assert batch.startswith(
        "baseOffset: 0 lastOffset: 7 count: 8 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1"
        " partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: null position: 0"
        " CreateTime: "
    )
    assert batch.endswith(" isvalid: true")


def test_records_are_shown_as_text(run):
    lines = run("log", "dump", "--records", SEGMENT).out.splitlines()
    assert lines[2:7] == [
        "| offset: 0 CreateTime: 1700000000000 keySize: 3 valueSize: 5 sequence: -1 headers: [] key: key value: value",
        "| offset: 1 CreateTime: 1700000000037 keySize: -1 valueSize: 6 sequence: -1 headers: [] value: no key",
        "| offset: 2 CreateTime: 1700000000074 keySize: 9 valueSize: -1 sequence: -1 headers: [] key: tombstone",
        "| offset: 3 CreateTime: 1700000000009 keySize: 0 valueSize: 0 sequence: -1 headers: [] key:  value: ",
        "| offset: 4 CreateTime: 1700000000057 keySize: 1 valueSize: 7 sequence: -1 "
        "headers: [a=1,empty=,null=null,a=2,gr\u00fc\u00df=\\x00\\xff] key: k value: headers",
    ]


def test_json_is_a_line_an_entry(run):
    lines = [json.loads(line) for line in run("log", "dump", "--records", "--json", SEGMENT).out.splitlines()]
    assert [line["kind"] for line in lines] == ["batch"] + ["record"] * 8
    assert {line["file"] for line in lines} == {str(SEGMENT)}
    assert lines[0]["deleteHorizonMs"] is None
    assert (lines[2]["key"], lines[2]["value"]) == (None, "no key")
    assert ["gr\u00fc\u00df", {"base64": "AP8="}] in lines[5]["headers"]


def test_nothing_in_a_record_reaches_the_terminal_unprintable(run, tmp_path):
    from sparklog.record.builder import RecordBatchBuilder

    builder = RecordBatchBuilder()
    builder.append(1, b"\x1b[31mred\n", b"caf\xc3\xa9\xff\x00\xe2\x80\xae", [("a\x07", b"\r")])
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(builder.build())
    line = run("log", "dump", "-r", path).out.splitlines()[2]
    assert line.endswith(r"headers: [a\x07=\r] key: \x1b[31mred\n value: caf" + "\u00e9" + r"\xff\x00\u202e")


def test_a_range_is_shown(run, partition):
    out = run("log", "dump", "-r", "--from-offset", 10, "--to-offset", 12, "--json", partition).out
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["offset"] for line in lines if line["kind"] == "record"] == [10, 11, 12]
    out = run("log", "dump", "--max-batches", 1, *sorted(partition.glob("*.log"))[:2]).out
    assert out.count("baseOffset: ") == 2


def test_damage_is_shown_with_its_place_and_first_bytes(run, partition):
    path = partition / SEGMENT.name
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"not a batch at all, not by a long way, and long enough to be none: 61 bytes")
    status, out, _ = run("log", "dump", path)
    assert status == 1
    assert out.splitlines()[2:] == [
        f"Found 75 invalid bytes at position {size}: no batch header",
        f"  {size:012d}  6e 6f 74 20 61 20 62 61 74 63 68 20 61 74 20 61  not a batch at a",
        f"  {size + 16:012d}  6c 6c 2c 20 6e 6f 74 20 62 79 20 61 20 6c 6f 6e  ll, not by a lon",
    ]


def test_a_wrong_crc_ends_with_1(run, partition):
    damage(partition / SEGMENT.name, 80)
    status, out, _ = run("log", "dump", partition / SEGMENT.name)
    assert status == 1
    assert "isvalid: false" in out
    assert "\nerror: batch at offset 0 has CRC 0x" in out


@pytest.mark.parametrize("name", ["none.log", "README"])
def test_a_file_that_cannot_be_shown_ends_with_2_and_others_are(run, tmp_path, name):
    (tmp_path / "README").touch()
    status, out, err = run("log", "dump", tmp_path / name, SEGMENT)
    assert status == 2
    assert "baseOffset: 0" in out
    assert err.count("\n") == 1
    assert err.startswith("sparklog: ")
    assert name in err


def test_a_sound_directory_ends_with_0_and_a_summary(run):
    status, out, err = run("log", "verify", GOLDEN / "kafka-3.9", "--records")
    assert (status, err) == (0, "")
    (summary,) = out.splitlines()
    assert summary.startswith("sound: 5 partitions, 15 segments, 25 batches, 200 records, 6,233 bytes in ")
    assert summary.endswith(" MB/s); 0 errors, 0 warnings, 0 notes")


def test_problems_end_with_1_and_say_what_to_do(run, partition):
    path = partition / SEGMENT.name
    damage(path, 80)
    path.with_suffix(".timeindex").unlink()
    status, out, err = run("log", "verify", partition)
    assert (status, err) == (1, "")
    noted, told, error, advice, summary = out.splitlines()
    assert noted == f"note: {path.with_suffix('.timeindex')}: the index is missing"
    assert told == "  nothing: the next start rebuilds it from the .log file"
    assert error.startswith(f"error: {path} (position 0, offset 0): a batch of ")
    assert advice.startswith("  restore the file from a replica or a backup before a broker starts here: ")
    assert ", so the start cuts the log at offset 0. The good records behind the damage, 32, go with it; " in advice
    assert summary.startswith("PROBLEMS FOUND: 1 partition, ")
    assert summary.endswith("1 error, 0 warnings, 1 note")


def test_a_name_that_is_no_text_ends_neither_a_verification_nor_a_dump(spawn, partition):
    """And one that the terminal would obey is shown in escapes."""
    here = os.fsencode(partition)
    names = [b"notes\xff", b"notes\x1b[2J"]
    for name in names:
        Path(os.fsdecode(here + b"/" + name)).touch()
    segment = Path(os.fsdecode(here + b"-\xff.log"))
    shutil.copy(SEGMENT, segment)
    for arguments, shown in [
        (("verify", partition), ("notes\\xff", "notes\\x1b[2J")),
        (("dump", segment), ("-\\xff.log",)),
    ]:
        environment = {"PYTHONIOENCODING": "utf-8:strict"}
        process = spawn("log", *arguments, environ=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=60)
        assert "unexpected" not in err.decode()
        assert all(each in out.decode() for each in shown), (out, err)
        assert b"\x1b" not in out


def test_findings_as_json(run, partition):
    damage(partition / SEGMENT.name, 80)
    status, out, _ = run("log", "verify", "--json", partition)
    finding, whole = (json.loads(line) for line in out.splitlines())
    assert status == 1
    assert list(finding) == ["severity", "path", "position", "offset", "what", "advice"]
    assert (finding["severity"], finding["path"]) == ("error", str(partition / SEGMENT.name))
    summary = whole["summary"]
    assert (summary["partitions"], summary["errors"], summary["segments"]) == (1, 1, 5)
    assert summary["seconds"] >= 0
    assert summary["megabytesPerSecond"] >= 0


@pytest.mark.parametrize("name", ["empty", "none", "a-file"])
def test_a_directory_that_is_none_ends_with_2(run, tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a-file").touch()
    status, out, err = run("log", "verify", tmp_path / name)
    assert (status, out) == (2, "")
    assert err.startswith("sparklog: ")
    assert name in err


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_a_path_that_is_not_there_is_told_in_words(run, tmp_path, command):
    status, out, err = run("log", command, tmp_path / "nope")
    assert (status, out, err) == (2, "", f"sparklog: {tmp_path / 'nope'}: no such file or directory\n")


def test_a_reader_that_goes_away_is_no_error(spawn):
    process = spawn("log", "dump", "-r", *[SEGMENT] * 400, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""


@pytest.mark.peer
def test_kafkas_own_tool_says_the_same(run):
    from compat.dumped import dump

    for directory in (STOPPED / "txn-0", STOPPED / "compacted-0", GOLDEN / "kafka-3.9" / "zstd-0"):
        files = sorted(each for each in directory.iterdir() if each.suffix in (".log", ".txnindex"))
        theirs, complaints = dump(files)
        assert complaints == []
        out = run("log", "dump", *files).out.replace("deleteHorizonMs: null", "deleteHorizonMs: OptionalLong.empty")
        ours = re.sub(r"deleteHorizonMs: (\d+)", r"deleteHorizonMs: OptionalLong[\1]", out).splitlines()
        assert ours == [each for each in theirs.splitlines() if not each.startswith("Log starting offset: ")]


@pytest.mark.integration
def test_a_broker_at_work_is_looked_at(here, cluster, topic):
    assert here("topic", "create", topic, "--partitions", 2).status == 0
    assert here("produce", topic, stdin=b"".join(b"line %d\n" % number for number in range(1000))).status == 0
    log_dir = cluster.directory.broker(0)
    assert is_in_use(log_dir)

    status, out, _ = here("log", "verify", "--records", log_dir)
    assert status == 0, out
    assert out.splitlines()[-1].startswith("sound: ")

    shown = []
    for number in range(2):
        status, out, _ = here("log", "dump", "--json", "--records", log_dir / f"{topic}-{number}")
        assert status == 0, out
        shown += [json.loads(line) for line in out.splitlines()]
    values = {each["value"] for each in shown if each["kind"] == "record"}
    assert values == {f"line {number}" for number in range(1000)}

    assert here("produce", topic, stdin=b"one more\n").status == 0
    status, out, _ = here("consume", topic)
    assert (status, len(out.splitlines())) == (0, 1001)


@pytest.mark.integration
def test_directories_are_shown_with_the_replicas_of_a_topic(here, topic, cluster):
    assert here("topic", "create", topic, "--partitions", 2).status == 0
    here("produce", topic, stdin=b"one\n")
    rows = json.loads(here("log", "dirs", "--topic", topic, "--output", "json").out)
    assert [(each["topic"], each["partition"]) for each in rows] == [(topic, 0), (topic, 1)]
    assert sum(each["bytes"] for each in rows) > 60
    lines = here("log", "dirs", "--topic", topic).out.splitlines()
    assert lines[0].split("\t") == ["topic", "partition", "broker", "directory", "bytes"]
    assert lines[1].split("\t") == [topic, "0", "0", rows[0]["directory"], str(rows[0]["bytes"])]
    assert here("log", "dirs", "--topic", f"{topic}-not").status == 1
