"""Dumping: every kind of file is shown whole, damage with its place, and nothing is changed."""

import fcntl
import shutil
import struct

import crc32c
import pytest
from golden.samples import golden_records
from log.inspection.damage import GOLDEN, STOPPED, copy_of, flip, state_of
from log.samples import batch_of, in_a_row, marker_of, transactional

from sparklog.errors import LogError
from sparklog.log.inspection.batch_walk import BatchWalk
from sparklog.log.inspection.dump import dump_file, expand
from sparklog.log.inspection.dump_batches import DumpOptions
from sparklog.log.producer_snapshot import BatchMetadata, ProducerEntry, encode_snapshot
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType

ALL = DumpOptions()
RECORDS = DumpOptions(records=True)
NONE = GOLDEN / "kafka-3.9" / "none-0"
FIELDS = [
    *("baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId", "producerEpoch"),
    *("partitionLeaderEpoch", "isTransactional", "isControl", "deleteHorizonMs", "position", "CreateTime", "size"),
    *("magic", "compresscodec", "crc", "isvalid"),
]


def entries(path, options=ALL, *kinds):
    return [each for each in dump_file(path, options) if not kinds or each.kind in kinds]


def fields(path, options=ALL, *kinds):
    return [each.fields for each in entries(path, options, *kinds)]


@pytest.fixture
def segment(tmp_path):
    """A log of four batches, of three records each."""
    path = tmp_path / "00000000000000000000.log"
    data = bytearray()
    for number in range(4):
        batch = batch_of(1000, 1001, 1002)
        patch_header(batch, 0, 3 * number, 5)
        data += batch
    path.write_bytes(data)
    return path


def positions(path):
    with BatchWalk(path) as walk:
        return [position for position, _, _ in walk.batches()]


def test_every_header_field_is_shown():
    path = NONE / "00000000000000000008.log"
    batch = RecordBatch(path.read_bytes())
    (shown,) = fields(path)[:1]
    assert list(shown) == FIELDS
    assert shown == {
        "baseOffset": 8,
        "lastOffset": 15,
        "count": 8,
        "baseSequence": -1,
        "lastSequence": -1,
        "producerId": -1,
        "producerEpoch": -1,
        "partitionLeaderEpoch": 0,
        "isTransactional": False,
        "isControl": False,
        "deleteHorizonMs": None,
        "position": 0,
        "CreateTime": batch.max_timestamp,
        "size": len(path.read_bytes()),
        "magic": 2,
        "compresscodec": "none",
        "crc": batch.crc,
        "isvalid": True,
    }


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_shown(name):
    logs = sorted((GOLDEN / "kafka-3.9" / f"{name}-0").glob("*.log"))
    shown = [each for path in logs for each in fields(path, RECORDS, "record")]
    expected = golden_records()[: len(shown)]
    assert len(shown) == 40
    assert [
        (each["offset"], each["CreateTime"], each["key"], each["value"], tuple(each["headers"])) for each in shown
    ] == [tuple(record) for record in expected]
    assert {each["compresscodec"] for path in logs for each in fields(path)} == {name}


def test_sizes_tell_null_from_empty():
    shown = fields(NONE / "00000000000000000000.log", RECORDS, "record")
    assert [(each["keySize"], each["valueSize"]) for each in shown[:4]] == [(3, 5), (-1, 6), (9, -1), (0, 0)]


def test_markers_and_sequences_are_read():
    logs = sorted((STOPPED / "txn-0").glob("*.log"))
    shown = [each for path in logs for each in fields(path, RECORDS, "record", "batch")]
    markers = [each for each in shown if "endTxnMarker" in each]
    assert {each["endTxnMarker"] for each in markers} == {"COMMIT", "ABORT"}
    assert all("key" not in each and "value" not in each for each in markers)
    assert len(markers) == sum(each.get("isControl", False) for each in shown)
    aborted = {each["offset"] for each in markers if each["endTxnMarker"] == "ABORT"}
    listed = [each for path in (STOPPED / "txn-0").glob("*.txnindex") for each in fields(path)]
    assert aborted == {each["lastOffset"] for each in listed} != set()


def test_a_sequence_is_counted_on_and_wraps(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    builder = RecordBatchBuilder(producer_id=9, producer_epoch=1, base_sequence=2**31 - 2)
    for number in range(3):
        builder.append(number, None, b"")
    path.write_bytes(builder.build())
    assert [each["sequence"] for each in fields(path, RECORDS, "record")] == [2**31 - 2, 2**31 - 1, 0]


def changed(batch, *changes):
    """The batch with other fields in its header, and the CRC that these have: (form, place, value) of each."""
    data = bytearray(batch)
    for form, place, value in changes:
        form.pack_into(data, place, value)
    layout.UINT32.pack_into(data, layout.CRC, crc32c.crc32c(data[layout.ATTRIBUTES :]))
    return bytes(data)


def test_whose_a_batch_is_and_what_its_attributes_say_is_shown(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    append_time = layout.TRANSACTIONAL_BIT | layout.LOG_APPEND_TIME_BIT | layout.DELETE_HORIZON_BIT
    marker = marker_of(7, ControlType.ABORT, epoch=2, coordinator_epoch=5)
    kept = changed(transactional(7, 3, 2, epoch=2), (layout.INT16, layout.ATTRIBUTES, append_time))
    path.write_bytes(b"".join(in_a_row([kept, marker])))
    batch, first, second, control, ended = fields(path, RECORDS)
    assert [batch[name] for name in ("producerId", "producerEpoch", "baseSequence", "lastSequence")] == [7, 2, 3, 4]
    assert (batch["isTransactional"], batch["isControl"], control["isControl"]) == (True, False, True)
    assert (batch["deleteHorizonMs"], control["deleteHorizonMs"]) == (RecordBatch(kept).base_timestamp, None)
    assert (batch["LogAppendTime"], "CreateTime" in batch) == (RecordBatch(kept).max_timestamp, False)
    assert [(each["offset"], each["sequence"], "LogAppendTime" in each) for each in (first, second)] == [
        (0, 3, True),
        (1, 4, True),
    ]
    assert (ended["offset"], ended["endTxnMarker"], ended["coordinatorEpoch"]) == (2, "ABORT", 5)


def test_a_control_record_that_is_no_marker_is_shown_with_its_key_and_value(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    builder = RecordBatchBuilder(is_control=True)
    builder.append(1, b"k", b"v")
    path.write_bytes(builder.build())
    (record,) = fields(path, RECORDS, "record")
    assert (record["key"], record["value"], "endTxnMarker" in record) == (b"k", b"v", False)


def test_a_codec_that_nobody_knows_is_shown_by_its_number_and_is_damage(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(changed(batch_of(1), (layout.INT16, layout.ATTRIBUTES, 5)))
    batch, problem = entries(path, RECORDS)
    assert (batch.fields["compresscodec"], batch.is_damage) == ("unknown-5", True)
    assert (problem.kind, problem.fields["severity"], problem.fields["position"]) == ("problem", "error", 0)
    assert "unknown compression code 5" in problem.fields["what"]


def test_records_that_cannot_be_read_are_a_problem_of_their_batch(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    broken = bytearray(batch_of(1, 2))
    broken[layout.RECORDS] = 0x7E  # the first record's length
    path.write_bytes(b"".join(in_a_row([batch_of(1), changed(broken)])))
    *_, batch, problem = entries(path, RECORDS)
    assert (batch.kind, batch.is_damage, batch.fields["isvalid"]) == ("batch", False, True)
    assert (problem.kind, problem.is_damage, problem.fields["severity"]) == ("problem", True, "error")
    assert problem.fields["position"] == batch.fields["position"] == len(batch_of(1))
    assert not any(each.is_damage for each in entries(path)), "without the records nothing is wrong with it"


@pytest.mark.parametrize(
    ("tail", "is_written"), [(bytes(batch_of())[:-1], True), (bytes(80), True), (b"?" * 80, False)]
)
def test_what_a_broker_is_just_writing_is_no_damage(tmp_path, tail, is_written):
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(bytes(batch_of()) + tail)
    with (tmp_path / ".lock").open("w") as lock:
        assert entries(path)[-1].is_damage
        fcntl.flock(lock, fcntl.LOCK_EX)
        last = entries(path)[-1]
    assert (last.kind, last.is_damage) == ("damage", not is_written)
    assert last.fields["what"].endswith(" (being written)") == is_written


def test_a_range_of_offsets_is_shown(segment):
    def shown(**how):
        found = fields(segment, DumpOptions(records=True, **how))
        return [each["baseOffset"] for each in found if "baseOffset" in each], [
            each["offset"] for each in found if "offset" in each
        ]

    assert shown(first=4, last=7) == ([3, 6], [4, 5, 6, 7])
    assert shown(first=11) == ([9], [11])
    assert shown(last=0) == ([0], [0])
    assert shown(batches=2) == ([0, 3], [0, 1, 2, 3, 4, 5])
    assert shown(batches=0) == ([], [])
    assert shown(first=12) == ([], [])


def test_a_wrong_crc_is_shown_and_the_dump_goes_on(segment):
    flip(segment, positions(segment)[1] + 70)
    shown = entries(segment, RECORDS)
    assert [each.fields["isvalid"] for each in shown if each.kind == "batch"] == [True, False, True, True]
    assert [each.is_damage for each in shown if each.kind == "batch"] == [False, True, False, False]
    assert [each.fields["offset"] for each in shown if each.kind == "record"] == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    (problem,) = (each.fields for each in shown if each.kind == "problem")
    assert problem["position"] == positions(segment)[1]


def test_a_corrupt_middle_is_shown_and_the_dump_goes_on(segment):
    _, second, third, _ = positions(segment)
    data = bytearray(segment.read_bytes())
    data[second : second + 40] = b"\xab" * 40
    segment.write_bytes(data)
    shown = entries(segment)
    assert [each.fields.get("baseOffset") for each in shown] == [0, None, 6, 9]
    damage = shown[1]
    assert damage.is_damage
    assert damage.fields == {
        "position": second,
        "size": third - second,
        "what": "no batch header",
        "nextGood": third,
        "head": b"\xab" * 32,
    }


@pytest.mark.parametrize(
    ("tail", "what"),
    [
        (b"\0" * 100, "zeros only"),
        (b"?" * 100, "no batch header"),
        (None, "a batch that is cut short"),
        (b"!", "a batch that is cut short"),
    ],
    ids=["zeros", "garbage", "cut", "one-byte"],
)
def test_a_bad_tail_is_shown(segment, tail, what):
    sound = segment.read_bytes()
    tail = bytes(batch_of())[:-1] if tail is None else tail
    segment.write_bytes(sound + tail)
    damage = entries(segment)[-1]
    assert (damage.kind, damage.is_damage) == ("damage", True)
    assert damage.fields == {
        "position": len(sound),
        "size": len(tail),
        "what": what,
        "nextGood": None,
        "head": tail[:32],
    }


def test_what_was_cut_out_of_a_log_is_shown(segment):
    second = positions(segment)[1]
    rest = segment.with_name(f"{segment.name}.{second}.corrupt")
    data = bytearray(segment.read_bytes()[second:])
    data[:40] = b"\xab" * 40
    rest.write_bytes(data)
    assert [each.fields.get("baseOffset") for each in entries(rest)] == [None, 6, 9]
    deleted = segment.rename(segment.with_name(f"{segment.name}.deleted"))
    assert len(fields(deleted, ALL, "batch")) == 4


@pytest.mark.parametrize("path", sorted((GOLDEN / "kafka-legacy").glob("*.*")), ids=lambda each: each.name)
def test_old_formats_are_shown(path):
    if path.suffix not in (".log", ".kafka"):
        pytest.skip("not a segment")
    shown = entries(path, RECORDS)
    assert not any(each.is_damage for each in shown)
    batches = [each.fields for each in shown if each.kind == "batch"]
    assert {each["isvalid"] for each in batches} == {True}
    assert sum(each["size"] for each in batches) == path.stat().st_size
    assert [each["position"] for each in batches][:2] == [0, batches[0]["size"]]
    records = [each.fields for each in shown if each.kind == "record"]
    if path.suffix == ".log":
        assert [each["offset"] for each in records] == list(range(len(records)))
        assert records[0]["value"] == b"value"


@pytest.mark.parametrize("name", ["magic-0-gzip.log", "magic-1-none.log", "magic-1-gzip.log"])
def test_a_range_of_offsets_of_an_old_format_is_shown(name):
    path = GOLDEN / "kafka-legacy" / name

    def shown(**how):
        return [each["offset"] for each in fields(path, DumpOptions(records=True, **how), "record")]

    every = shown()
    assert len(every) > 6
    assert (shown(first=3, last=5), shown(first=5), shown(last=1)) == ([3, 4, 5], every[5:], [0, 1])
    assert entries(path, DumpOptions(first=every[-1] + 1)) == []
    batches = fields(path)
    assert fields(path, DumpOptions(batches=2)) == batches[:2]


def test_messages_before_a_range_of_an_old_format_are_not_shown():
    path = GOLDEN / "kafka-legacy" / "magic-1-none.log"
    assert [each["offset"] for each in fields(path, DumpOptions(first=3, last=5))] == [3, 4, 5]


def test_damage_in_an_old_format_is_shown(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    sound = (GOLDEN / "kafka-legacy" / "magic-1-none.log").read_bytes()
    last = fields(GOLDEN / "kafka-legacy" / "magic-1-none.log")[-1]
    path.write_bytes(sound[:-3])
    damage = entries(path)[-1]
    assert (damage.kind, damage.is_damage) == ("damage", True)
    assert damage.fields == {
        "position": last["position"],
        "size": last["size"] - 3,
        "what": "a batch that is cut short",
        "nextGood": None,
        "head": sound[last["position"] :][:32],
    }
    path.write_bytes(sound)
    flip(path, 60)
    assert [each.fields["isvalid"] for each in entries(path)][:3] == [True, False, True]


def test_the_indexes_are_shown():
    index, times = NONE / "00000000000000000000.index", STOPPED / "txn-0" / "00000000000000000013.timeindex"
    path = STOPPED / "txn-0" / "00000000000000000013.index"
    expected = [{"offset": 13 + offset, "position": at} for offset, at in struct.iter_unpack(">ii", path.read_bytes())]
    assert fields(path) == expected != []
    expected = [
        {"timestamp": at, "offset": 13 + offset} for at, offset in struct.iter_unpack(">qi", times.read_bytes())
    ]
    assert fields(times) == expected != []
    assert fields(index) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_is_held_against_its_log(tmp_path, suffix):
    partition = copy_of(STOPPED / "txn-0", tmp_path)
    path = partition / f"00000000000000000013{suffix}"
    flip(path, -2)
    problem = entries(path)[-1]
    assert (problem.kind, problem.is_damage, problem.fields["severity"]) == ("problem", True, "error")
    assert problem.fields["what"].startswith("entry ")
    path.with_suffix(".log").unlink()
    alone = entries(path)[-1]
    assert (alone.is_damage, alone.fields["what"]) == (
        False,
        "00000000000000000013.log is not beside it: the entries are not checked",
    )


def test_room_set_aside_in_an_index_is_said(tmp_path):
    path = copy_of(STOPPED / "txn-0", tmp_path) / "00000000000000000013.index"
    shown = fields(path)
    with path.open("ab") as file:
        file.write(bytes(8000))
    assert fields(path)[: len(shown)] == shown
    assert fields(path)[len(shown) :] == [
        {"severity": "note", "what": "1000 unused entries at the end, set aside for more"}
    ]
    assert not any(each.is_damage for each in entries(path))


def test_an_aborted_transaction_is_shown_as_it_stands(tmp_path):
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 7, 28, 30, 31))
    shown = {"version": 0, "producerId": 7, "firstOffset": 28, "lastOffset": 30, "lastStableOffset": 31}
    assert [(each.kind, each.fields, each.is_damage) for each in entries(path)] == [("txnindex", shown, False)]


def test_the_small_files_are_shown():
    partition = STOPPED / "txn-0"
    assert fields(partition / "leader-epoch-checkpoint") == [{"epoch": 0, "startOffset": 0}]
    text = (partition / "partition.metadata").read_text()
    assert [each["topicId"] for each in fields(partition / "partition.metadata")] == [text.split()[-1]]
    assert {"topic": "txn", "partition": 0, "offset": 63} in fields(STOPPED / "recovery-point-offset-checkpoint")
    (properties,) = fields(STOPPED / "meta.properties")
    assert (properties["broker.id"], properties["version"]) == ("0", "0")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("txn-0/00000000000000000013.index", "index"),
        ("txn-0/00000000000000000013.timeindex", "timeindex"),
        ("txn-0/00000000000000000013.snapshot", "producer"),
        ("txn-0/leader-epoch-checkpoint", "epoch"),
        ("txn-0/partition.metadata", "metadata"),
        ("recovery-point-offset-checkpoint", "checkpoint"),
        ("meta.properties", "properties"),
    ],
)
def test_what_is_shown_of_each_file_has_a_word_of_its_own(name, kind):
    assert {each.kind for each in entries(STOPPED / name)} == {kind}


def test_snapshots_are_shown():
    (producer, *_) = fields(max((STOPPED / "txn-0").glob("*.snapshot")))
    assert list(producer) == [
        *("producerId", "producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset", "lastTimestamp"),
        *("firstSequence", "lastSequence", "lastOffset", "offsetDelta", "timestamp"),
    ]


def test_a_producer_is_shown_with_its_last_batch(tmp_path):
    path = tmp_path / f"{9:020d}.snapshot"
    with_batch = ProducerEntry(7, 2, (BatchMetadata(10, 14, 100, 104, 1234),), 1234, 3, 90)
    path.write_bytes(encode_snapshot([with_batch, ProducerEntry(8, 0)]))
    producer, without = fields(path)
    assert producer == {
        "producerId": 7,
        "producerEpoch": 2,
        "coordinatorEpoch": 3,
        "currentTxnFirstOffset": 90,
        "lastTimestamp": 1234,
        "firstSequence": 10,
        "lastSequence": 14,
        "lastOffset": 104,
        "offsetDelta": 4,
        "timestamp": 1234,
    }
    assert (without["producerId"], "lastOffset" in without) == (8, False)


@pytest.mark.parametrize(
    "name",
    [
        *("00000000000000000013.txnindex", "00000000000000000013.snapshot", "leader-epoch-checkpoint"),
        *("partition.metadata", "../recovery-point-offset-checkpoint", "../meta.properties"),
    ],
)
def test_a_small_file_of_garbage_is_a_problem(tmp_path, name):
    path = copy_of(STOPPED, tmp_path) / "txn-0" / name
    path.write_bytes(b"\xff\xfe\xfd")
    (problem,) = entries(path)
    assert (problem.kind, problem.is_damage) == ("problem", True)


def test_a_directory_is_its_files(tmp_path):
    partition = copy_of(STOPPED / "epochs-0", tmp_path)
    (partition / "notes.txt").touch()
    assert expand(partition) == sorted(each for each in partition.iterdir() if each.name != "notes.txt")
    assert {each.name for each in expand(STOPPED)} >= {"meta.properties", "recovery-point-offset-checkpoint"}
    assert all(each.is_file() for each in expand(STOPPED))


def test_what_is_no_file_of_a_log_is_refused(tmp_path):
    with pytest.raises(LogError, match="holds no file of a log"):
        expand(tmp_path)
    with pytest.raises(FileNotFoundError):
        expand(tmp_path / "00000000000000000000.log")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(LogError, match="is not named like a file of a log"):
        expand(tmp_path / "notes.txt")
    with pytest.raises(LogError, match="is not named like a file of a log"):
        entries(tmp_path / "notes.txt")


def test_nothing_is_changed(tmp_path):
    partition = copy_of(STOPPED / "txn-0", tmp_path)
    shutil.copy(partition / "00000000000000000013.log", partition / "00000000000000000999.log.deleted")
    before = state_of(partition)
    for path in expand(partition):
        assert entries(path, RECORDS)
    assert state_of(partition) == before
