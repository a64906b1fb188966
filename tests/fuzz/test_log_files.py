"""Files of a log directory that the disk has spoiled: our own errors only, little memory, and nothing kept that was not
written."""

import random
import shutil
import tracemalloc

import pytest
from fuzz.damages import arbitrary, spoiled
from log.samples import SMALL, batch_of, marker_of, open_log, transactional

from sparklog.errors import LogError, SparklogError
from sparklog.log.checkpoints import LOG_START_OFFSETS, META_PROPERTIES, RECOVERY_POINTS, read_topic_id
from sparklog.log.directories.directory import LogDir
from sparklog.log.origin import AppendOrigin
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish

pytestmark = pytest.mark.fuzz

TRIES = 60
"""Of the quick tests; the others make few, and many under ``slow``."""
MOST_MEMORY = 32 << 20
KINDS = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A partition of several segments with transactions, producers, codecs and epochs."""
    home = tmp_path_factory.mktemp("good") / "t-0"
    log = open_log(home, SMALL)
    (home / "partition.metadata").write_text("version: 0\ntopic_id: YWJjZGVmZ2hpamtsbW5vcA\n")
    for number, codec in enumerate([*CompressionType] * 4):
        log.append_as_leader(batch_of(1000 + number, 1001, size=60, codec=codec), number // 5)
        log.append_as_leader(transactional(number % 3, number), number // 5, AppendOrigin.COORDINATOR)
        if number % 3 == 0:
            log.append_as_leader(marker_of(number % 3, ControlType.ABORT), number // 5, AppendOrigin.COORDINATOR)
    log.close()
    return home


def originals(home):
    return [bytes(batch.buffer) for path in sorted(home.glob("*.log")) for batch in iter_batches(path.read_bytes())]


def use(home, **how):
    """Open the log and ask it everything; what it holds, None if it refuses to open."""
    try:
        log = open_log(home, SMALL, **how)
    except LogError:
        return None
    try:
        return ask(log)
    finally:
        closing(log)


def closing(log):
    try:
        log.close()
    except LogError:
        log.abandon()


def ask(log):
    end = log.log_end_offset
    offset, found = log.log_start_offset, []
    questions = (
        lambda: found.extend(bytes(batch.buffer) for view in log.read_all(1 << 16) for batch in iter_batches(view)),
        lambda: finish(log.offset_for_timestamp(1000)),
        lambda: finish(log.latest_timestamp()),
        lambda: log.aborted_transactions(offset, end),
        lambda: log.read((offset + end) // 2, 500, log.end, min_one_batch=True),
        lambda: log.append_as_leader(batch_of(3000), 100),
        lambda: log.truncate_to((offset + end) // 2),
    )
    for question in questions:
        try:
            question()
        except SparklogError:
            continue
    return found


def spoil(home, names, chance):
    name = chance.choice(names)
    path = home / name
    path.write_bytes(arbitrary(chance) if chance.random() < 0.2 else spoiled(path.read_bytes(), chance))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tries", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_a_spoiled_companion_of_the_log(good, tmp_path, kind, clean, tries):
    """After a crash all of the log is there whatever its companions hold, for they are made again.

    But for the topic's id: a log that does not say whose it is is not opened.
    """
    chance, whole = random.Random(f"{kind}{clean}"), originals(good)
    for number in range(tries):
        home = shutil.copytree(good, tmp_path / str(number))
        spoil(home, sorted(path.name for path in home.iterdir() if path.name.endswith(kind)), chance)
        found = use(home, clean=clean)
        unnamed = kind == "partition.metadata" and found is None
        assert clean or unnamed or found == whole
        shutil.rmtree(home)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("tries", [50, pytest.param(600, marks=pytest.mark.slow)])
def test_a_spoiled_log_file(good, tmp_path, clean, tries):
    """What a log keeps that was opened after a crash is what was written, up to some batch, but for spoiled offsets."""
    chance, whole = random.Random(f"log{clean}"), [data[16:] for data in originals(good)]
    names, kept = sorted(path.name for path in good.glob("*.log")), 0
    for number in range(tries):
        home = shutil.copytree(good, tmp_path / str(number))
        spoil(home, names, chance)
        found = use(home, clean=clean)
        if not clean and found is not None:
            kept += len(found)
            assert _in_order([data[16:] for data in found], whole)
        shutil.rmtree(home)
    assert clean or kept > len(whole)


def _in_order(some, all_of_them):
    remaining = iter(all_of_them)
    return all(each in remaining for each in some)


def test_memory_is_bounded_whatever_a_header_claims(good, tmp_path):
    chance = random.Random("claims")
    names = sorted(path.name for path in good.glob("*.log"))
    tracemalloc.start()
    try:
        for number in range(TRIES):
            home = shutil.copytree(good, tmp_path / str(number))
            path = home / chance.choice(names)
            data = bytearray(path.read_bytes())
            batches = list(iter_batches(data))
            position = sum(batch.size_in_bytes for batch in batches[: chance.randrange(len(batches))])
            del batches
            field, size = chance.choice(((8, 4), (23, 4), (57, 4), (61, 5)))
            data[position + field : position + field + size] = (b"\x7f" + b"\xff" * 4)[:size]
            path.write_bytes(data)
            use(home, clean=number % 2 == 0)
            shutil.rmtree(home)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


FILES = {
    RECOVERY_POINTS: b"0\n2\nt 0 5\nu 1 77\n",
    LOG_START_OFFSETS: b"0\n1\nt 0 3\n",
    META_PROPERTIES: b"#\nbroker.id=1\nversion=0\ncluster.id=c\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_spoiled_file_of_a_log_directory(tmp_path, name):
    """The directory is used without it, or its owner is told; what it says of a partition is an offset in any case."""
    chance = random.Random(name)
    for number in range(TRIES * 5):
        home = tmp_path / str(number)
        home.mkdir()
        (home / name).write_bytes(arbitrary(chance) if chance.random() < 0.2 else spoiled(FILES[name], chance))
        log_dir = LogDir(home)
        try:
            log_dir.own("c", 1)
            log_dir.look()
            known = log_dir.known(TopicPartition("t", 0))
            assert 0 <= known.recovery_point < 1 << 63
            assert 0 <= known.log_start_offset < 1 << 63
        except SparklogError:
            assert name == META_PROPERTIES
        finally:
            log_dir.close()


NO_OFFSETS = ["t 0 -1", "t 0 9223372036854775808", "t 0 1_0", "t -1 5", f"t 0 {'9' * 5000}", "t ٣ 5"]


@pytest.mark.parametrize("text", NO_OFFSETS)
def test_a_checkpoint_that_says_what_is_no_offset_is_not_believed(tmp_path, text):
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS):
        (tmp_path / name).write_text(f"0\n1\n{text}\n", encoding="utf-8")
    log_dir = LogDir(tmp_path)
    log_dir.look()
    known = log_dir.known(TopicPartition("t", 0))
    log_dir.close()
    assert (known.recovery_point, known.log_start_offset, known.clean) == (0, 0, False)


def test_a_spoiled_topic_id(tmp_path):
    chance, refused = random.Random("topic id"), 0
    for _ in range(TRIES * 5):
        data = spoiled(b"version: 0\ntopic_id: YWJjZGVmZ2hpamtsbW5vcA\n", chance)
        (tmp_path / "partition.metadata").write_bytes(data)
        try:
            read_topic_id(tmp_path)
        except LogError:
            refused += 1
    assert refused
