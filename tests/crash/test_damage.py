"""Files of a log directory damaged by hand: the log opens with all that the damage left, or says which file to mend."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from crash.workload import DEFAULTS, Later, let_go
from log.samples import batch_of, marker_of, transactional, whole

from sparklog.errors import LogDirFailed, SparklogError
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import CLEAN_SHUTDOWN_MARKER
from sparklog.log.origin import AppendOrigin
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles

TP = TopicPartition("plain", 0)
BATCHES = 14
ACTIVE = "00000000000000000010"
KNOWN_AGAIN = (
    "00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex", f"{ACTIVE}.index",
    f"{ACTIVE}.timeindex", f"{ACTIVE}.snapshot", "leader-epoch-checkpoint",
)  # fmt: skip
"""Files that are made again from the batches."""
TOLD_ONCE = ("partition.metadata", "../meta.properties", "../recovery-point-offset-checkpoint",
             "../log-start-offset-checkpoint")  # fmt: skip
"""Files that hold what nothing else knows."""


def opened(home: Path) -> LogManager:
    manager = LogManager([home], DEFAULTS, ManualClock(), Later())
    try:
        manager.own("cluster", 1)
        manager.load({})
    except BaseException:
        let_go(manager)
        raise
    return manager


def fill(home: Path) -> list[bytes]:
    manager = opened(home)
    log = manager.get_or_create(TP, None, None)
    log.assign_topic_id(UUID(int=7))
    log.append_as_leader(transactional(5, 0), 1, AppendOrigin.COORDINATOR)
    log.append_as_leader(marker_of(5, ControlType.ABORT), 1, AppendOrigin.COORDINATOR)
    for number in range(BATCHES - 2):
        if number == 8:
            log.roll()
        log.append_as_leader(batch_of(2000 + number, size=300 if number < BATCHES - 3 else 20), 1 + number // 4)
    manager.checkpoint()
    batches = [bytes(batch.buffer) for batch in iter_batches(whole(log))]
    manager.close()
    return batches


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A directory after a clean stop, and the batches in it."""
    home = tmp_path_factory.mktemp("damage") / "data"
    home.mkdir()
    return home, fill(home)


@pytest.fixture(params=[True, False], ids=["stopped", "crashed"])
def is_clean(request):
    return request.param


@pytest.fixture
def home(stopped, is_clean, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(stopped[0], copy)
    if not is_clean:
        (copy / CLEAN_SHUTDOWN_MARKER).unlink()
        (copy / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return copy


def found_in(manager: LogManager) -> list[bytes]:
    log = manager.logs[TP]
    return [bytes(batch.buffer) for batch in iter_batches(whole(log), partial_tail=False)]


def contents(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*.log") if path.is_file()}


def outcome(home: Path, damaged: Path) -> list[bytes] | None:
    """What a start finds; None if it refuses in the words it should. A second start finds the same."""
    answers = []
    for _ in range(2):
        found, reason = start(home)
        assert found is not None or damaged.name in reason, f"{reason!r} does not name {damaged.name}"
        answers.append((found, contents(home)))
    assert answers[0] == answers[1], "the second start found something else"
    return answers[0][0]


def start(home: Path) -> tuple[list[bytes] | None, str]:
    """The batches found, or why none can be."""
    try:
        manager = opened(home)
    except SparklogError as error:
        return None, str(error)
    try:
        return (found_in(manager), "") if TP in manager.logs else (None, manager.unusable.get(TP, "nothing found"))
    finally:
        let_go(manager)


def takes_appends(home: Path) -> None:
    manager = opened(home)
    log = manager.logs[TP]
    end = log.log_end_offset
    assert log.append_as_leader(batch_of(9999), 9).first_offset == end
    manager.close()
    again = opened(home)
    assert again.logs[TP].log_end_offset == end + 1
    let_go(again)


def last_batch(home: Path, batches: list[bytes]) -> tuple[Path, int]:
    path = home / str(TP) / f"{ACTIVE}.log"
    return path, path.stat().st_size - len(batches[-1])


@pytest.mark.parametrize("is_clean", [False], ids=["crashed"], indirect=True)
def test_a_tail_torn_at_any_byte_costs_the_torn_batch(stopped, home, tmp_path):
    batches = stopped[1]
    path, begin = last_batch(home, batches)
    whole_file = path.read_bytes()
    for size in range(begin, len(whole_file)):
        path.write_bytes(whole_file[:size])
        assert outcome(home, path) == batches[:-1], size
    takes_appends(home)


@pytest.mark.parametrize("size", [1, 11, 12, 60, 61, 4096, 70_000])
@pytest.mark.parametrize("tail", [b"\0", b"\xff", b"a"], ids=["zeros", "ones", "letters"])
def test_a_tail_of_nothing_costs_nothing(stopped, home, tail, size):
    path, _ = last_batch(home, stopped[1])
    with open(path, "ab") as file:
        file.write(tail * size)
    assert outcome(home, path) == stopped[1]
    takes_appends(home)


@pytest.mark.parametrize("is_clean", [False], ids=["crashed"], indirect=True)
@pytest.mark.parametrize("name", ["00000000000000000000.log", f"{ACTIVE}.log"])
def test_a_flipped_bit_in_a_batch_ends_the_log_before_it(stopped, home, name):
    batches, path = stopped[1], home / str(TP) / name
    chance, whole_file = Random(1), path.read_bytes()
    original = saved(home)
    first = int(path.stem)
    sizes = [len(batch) for batch in batches[first:]]
    for _ in range(60):
        position = chance.randrange(len(whole_file))
        index = next(n for n in range(len(sizes)) if position < sum(sizes[: n + 1]))
        offset_in_batch = position - sum(sizes[:index])
        if 12 <= offset_in_batch < 16:  # the leader epoch, which no CRC covers
            continue
        damaged = bytearray(whole_file)
        damaged[position] ^= 1 << chance.randrange(8)
        restore(home, original)
        path.write_bytes(damaged)
        assert outcome(home, path) == batches[: first + index], (position, index)
        kept = b"".join(each.read_bytes() for each in home.rglob("*.corrupt"))
        for batch in batches[first + index + 1 :]:
            assert batch in kept, f"a good batch behind position {position} is gone"
    takes_appends(home)


def saved(home: Path) -> dict[Path, bytes]:
    return {each.relative_to(home): each.read_bytes() for each in home.rglob("*") if each.is_file()}


def restore(home: Path, original: dict[Path, bytes]) -> None:
    for path in home.rglob("*"):
        if path.is_file():
            path.unlink()
    for relative, data in original.items():
        (home / relative).write_bytes(data)


def test_a_flipped_bit_in_an_older_segment_is_not_cut_out_after_a_clean_stop(stopped, home, is_clean):
    """The batch that cannot be read is left out of what is read; the file stays as it is."""
    if not is_clean:
        pytest.skip("after a crash it is: see above")
    path = home / str(TP) / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[len(stopped[1][0]) + 16] ^= 1  # the magic of the second batch
    path.write_bytes(damaged)
    manager = opened(home)
    assert manager.logs[TP].log_end_offset == BATCHES
    assert found_in(manager) == [stopped[1][0], *stopped[1][2:]]
    let_go(manager)
    assert path.read_bytes() == bytes(damaged)


def flipped(data: bytes, chance: Random) -> bytes:
    damaged = bytearray(data)
    damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


DAMAGES = {
    "empty": lambda data, chance: b"",
    "short": lambda data, chance: data[: len(data) // 2],
    "zeros": lambda data, chance: bytes(len(data)),
    "garbage": lambda data, chance: chance.randbytes(100),
    "long": lambda data, chance: data + chance.randbytes(50),
    **{f"bit {n}": lambda data, chance: flipped(data, chance) if data else b"x" for n in range(8)},
}


def damaged(home: Path, name: str) -> Iterator[tuple[str, Path]]:
    """The directory with that one file damaged, in one way after another."""
    original = saved(home)
    path = (home / str(TP) / name).resolve()
    data = path.read_bytes() if path.exists() else b"0\n0\n"
    for damage, work in DAMAGES.items():
        restore(home, original)
        path.write_bytes(work(data, Random(f"{name} {damage}")))
        yield damage, path


@pytest.mark.parametrize("name", KNOWN_AGAIN)
def test_what_the_batches_tell_is_made_again(stopped, home, name):
    for damage, path in damaged(home, name):
        assert outcome(home, path) == stopped[1], damage
        takes_appends(home)


@pytest.mark.parametrize("name", TOLD_ONCE)
def test_a_file_that_nothing_else_knows_is_believed_or_named(stopped, home, name):
    for damage, path in damaged(home, name):
        found = outcome(home, path)
        assert found is None or found == stopped[1], damage


@pytest.mark.parametrize("name", [*KNOWN_AGAIN, *TOLD_ONCE, "00000000000000000000.log", f"{ACTIVE}.log"])
def test_a_directory_where_a_file_should_be_is_named(stopped, home, name):
    path = (home / str(TP) / name).resolve()
    path.unlink(missing_ok=True)
    path.mkdir()
    found = outcome(home, path)
    assert found is None or found == stopped[1]
    assert path.is_dir() or found is not None


@pytest.mark.parametrize("name", ["00000000000000000000.log", f"{ACTIVE}.log"])
def test_an_empty_segment_ends_the_log_where_it_begins(stopped, home, name, is_clean):
    path = home / str(TP) / name
    path.write_bytes(b"")
    first = int(path.stem)
    # After a clean stop an older segment is not looked at: what is gone is gone, but nothing is cut away behind it.
    second = int(sorted(path.parent.glob("*.log"))[1].stem)
    expected = stopped[1][second:] if is_clean and not first else stopped[1][:first]
    assert outcome(home, path) == expected


@pytest.mark.parametrize("error", [errno.EROFS, errno.EIO])
def test_a_disk_that_takes_no_writes_is_named(stopped, home, error):
    before = contents(home)
    with FaultyFiles(home, fail_at=0, error=error, lasting=True), pytest.raises(LogDirFailed, match=home.name):
        let_go(opened(home))
    assert contents(home) == before
    assert outcome(home, home) == stopped[1]


def test_the_sample_has_every_kind_of_file(stopped):
    names = {path.name for path in stopped[0].rglob("*") if path.is_file()}
    wanted = {Path(name).name for name in (*KNOWN_AGAIN, *TOLD_ONCE)}
    assert wanted <= names, wanted - names
    assert [RecordBatch(batch).base_offset for batch in stopped[1]] == list(range(BATCHES))
