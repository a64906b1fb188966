"""The broker's part of an erasure, with a real worker process and real logs: what may come between."""

import asyncio
import functools
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
from compaction.erasures import raw
from compaction.keyed import Producer, append, fill, leftovers, mark, records_of, table_of

from sparklog.compaction.erased_keys import digest_of, pack_keys
from sparklog.compaction.process import Worker
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import LOG_SUFFIX, segment_path
from sparklog.log.lease import Lease
from sparklog.log.loader import Knowledge
from sparklog.record.control import ControlType
from sparklog.replica import cleaning, erasing
from sparklog.replica.cleaning import LogCleaner
from sparklog.replica.erasing import FORGOTTEN_S, LogEraser, RoundId, RoundRefused, State
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "1000", "index.interval.bytes": "100"}
CONFIG = parse(TopicConfig, SETTINGS)
COMPACTED = parse(TopicConfig, SETTINGS | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
BROKER = replace(BrokerConfig(), log_cleaner_enable=False)
FIRST, SECOND = RoundId(UUID(int=5), 1), RoundId(UUID(int=5), 2)
SECRET = b"k1"
PATIENCE_S = 60
"""For what has to come, on whatever machine."""


class Gate:
    """Where a worker's answer stops until it is let on."""

    def __init__(self):
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def stop(self):
        self.reached.set()
        await self.open.wait()


class Stage:
    """A log directory, a cleaner and an eraser over it."""

    def __init__(self, home, config):
        self.clock = ManualClock()
        self.executor = ThreadPoolExecutor(1)
        self.logs = LogManager(
            [home / "a"], CONFIG, self.clock, self.executor, defaults=Knowledge(high_watermark=2**62)
        )
        self.logs.load({TP.topic: CONFIG})
        loop = asyncio.get_running_loop()
        self.changing = asyncio.Lock()
        self.cleaner = LogCleaner(self.logs, self.changing, loop, self.clock, config)
        self.eraser = LogEraser(self.logs, self.cleaner, loop, self.clock, lambda: config)
        self.before_begin: Gate | None = None
        self.before_group: Gate | None = None
        self.workers: list[Worker] = []

    def make(self, tp=TP, config=CONFIG):
        log = self.logs.get_or_create(tp, config, UUID(int=1))
        if not log.log_end_offset:
            fill(log)
        return log

    def begin(self, round_id=FIRST, keys=(SECRET,), *, scan_only=False):
        packed = pack_keys(keys)
        self.eraser.begin(round_id, packed, digest_of(packed), scan_only=scan_only)

    async def on_disk(self, work, *arguments):
        return await asyncio.wrap_future(self.executor.submit(work, *arguments))

    async def over(self, end, tp=TP, round_id=FIRST):
        """How it ends, asked again and again."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := self.eraser.ask(round_id, tp, end)).is_over:
                await asyncio.sleep(0.01)
        return found

    async def erased(self, keys=(SECRET,), tp=TP, round_id=FIRST, *, scan_only=False):
        self.begin(round_id, keys, scan_only=scan_only)
        found = await self.over(self.logs.logs[tp].log_end_offset, tp, round_id)
        assert found.state is State.DONE, found.why
        return found

    async def gated(self):
        """A log with an erasure under way, of which one segment waits to be put in place; and its end."""
        log = self.make()
        self.before_group = Gate()
        self.begin()
        end = log.log_end_offset
        self.eraser.ask(FIRST, TP, end)
        async with asyncio.timeout(PATIENCE_S):
            await self.before_group.reached.wait()
        return log, end

    def let_go(self):
        gate, self.before_group = self.before_group, None
        gate.open.set()


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaning, "_LEASE_PAUSE_S", 0.01)

    @asynccontextmanager
    async def opened(config=BROKER):
        built = Stage(tmp_path, config)

        class Gated(Worker):
            def __init__(self):
                super().__init__()
                built.workers.append(self)

            async def erase(self, task):
                if built.before_begin is not None:
                    await built.before_begin.stop()
                async with aclosing(super().erase(task)) as steps:
                    async for step in steps:
                        if isinstance(step, CleanedGroup) and built.before_group is not None:
                            await built.before_group.stop()
                        yield step

        monkeypatch.setattr(erasing, "Worker", Gated)
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield built
        finally:
            for gate in (built.before_begin, built.before_group):
                if gate is not None:
                    gate.open.set()
            await built.eraser.close()
            await built.cleaner.close()
            built.executor.shutdown()
            built.logs.close()

    return opened


def on_loop(test):
    """Run a test that is a coroutine function on a loop of its own."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run


def others_of(log):
    return [each for each in records_of(log) if each[1] != SECRET]


# An erasure that nothing disturbs


@on_loop
async def test_every_record_of_the_keys_goes_the_active_segment_among_them(stage, caplog):
    caplog.set_level(logging.DEBUG)
    async with stage() as built:
        log = built.make()
        append(log, (SECRET, b"in the active segment"))
        others, count, end = others_of(log), len(records_of(log)), log.log_end_offset
        found = await built.erased()
        assert records_of(log) == others
        assert (found.stats.records_found, found.stats.records_scanned) == (count - len(others), count)
        assert (found.log_start_offset, log.log_end_offset) == (0, end)
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        assert SECRET + b"\x00" not in raw(log.directory)
        search = await built.erased(round_id=SECOND, scan_only=True)
        assert (search.stats.records_found, search.stats.segments_rewritten) == (0, 0)
        assert [each.size for each in search.stats.segments] == [each.size for each in log.segment_facts()[:-1]]
        assert append(log, (SECRET, b"later")) == end
        assert f"erased below offset {end} of t-0 5 records of 1 keys (SHA-256 " in caplog.text


@on_loop
async def test_keys_are_told_to_nobody_and_forgotten_when_all_is_done(stage, caplog):
    caplog.set_level(logging.DEBUG)
    secret = b"not-to-be-told"
    async with stage() as built:
        log = built.make()
        append(log, (secret, b"v"))
        built.begin(keys=[secret])
        assert secret.decode() not in repr(vars(built.eraser))
        assert (await built.over(log.log_end_offset)).state is State.DONE
        assert secret not in b"".join(each.keys or b"" for each in built.eraser._rounds.values())
        built.make(OTHER)
        assert built.eraser.ask(FIRST, OTHER, 3) is None, "the keys are needed"
        assert built.eraser.ask(FIRST, TP, log.log_end_offset).state is State.DONE
        built.begin(keys=[secret])
        assert (await built.over(3, OTHER)).state is State.DONE
    assert secret.decode() not in caplog.text
    assert secret.hex() not in caplog.text


@on_loop
async def test_replicas_are_erased_one_after_another(stage):
    async with stage() as built:
        logs = [built.make(tp) for tp in (TP, OTHER)]
        others = [others_of(log) for log in logs]
        built.begin()
        ends = [log.log_end_offset for log in logs]
        for tp, end in zip((TP, OTHER), ends, strict=True):
            built.eraser.ask(FIRST, tp, end)
        assert "its turn" in built.eraser.ask(FIRST, OTHER, ends[1]).why
        for tp, end in zip((TP, OTHER), ends, strict=True):
            await built.over(end, tp)
        assert [records_of(log) for log in logs] == others


@on_loop
async def test_a_search_changes_nothing_and_looks_into_the_active_segment_up_to_the_end(stage):
    async with stage() as built:
        log = built.make()
        append(log, (SECRET, b"below"))
        end, size = log.log_end_offset, log.size
        append(log, (SECRET, b"beyond"))
        before, segments = logs_of(log), log.segment_count
        built.begin(scan_only=True)
        found = await built.over(end)
        assert found.stats.records_found == sum(key == SECRET for _, key, _ in records_of(log)) - 1
        assert sum(each.size for each in found.stats.segments) == found.stats.bytes_scanned == size
        assert (logs_of(log), log.segment_count) == (before, segments)


@on_loop
async def test_a_search_that_ends_within_a_batch_looks_into_that_batch(stage):
    async with stage() as built:
        log = built.make()
        first = append(log, (SECRET, b"below"), (SECRET, b"below"), (b"k", b"v"), (SECRET, b"at"), (SECRET, b"beyond"))
        size = log.size
        append(log, (SECRET, b"beyond"))
        known = sum(key == SECRET for offset, key, _ in records_of(log) if offset < first)
        built.begin(scan_only=True)
        for end, found, scanned in ((first + 3, 2, size), (first + 4, 3, size), (first + 1, 1, size)):
            result = await built.over(end)
            assert (result.stats.records_found, result.stats.bytes_scanned) == (known + found, scanned)
            built.begin(scan_only=True)


def logs_of(log):
    """What the log files hold, by name; indexes may still be on their way to the disk."""
    return {path.name: path.read_bytes() for path in log.directory.glob("*.log")}


@on_loop
async def test_a_compacted_log_keeps_its_table_and_how_far_it_is_clean(stage):
    async with stage(replace(BROKER, log_cleaner_enable=True, log_cleaner_dedupe_buffer_size=1 << 21)) as built:
        log = built.make(config=COMPACTED)
        append(log, (b"gone", None), (SECRET, None), (SECRET, b"last"))
        built.cleaner.start()
        await built.cleaner.clean(TP)
        point, table = built.logs.cleaner_point(TP), table_of(log)
        await built.erased()
        del table[SECRET]
        assert table_of(log) == table
        assert (b"gone", None) in {(key, value) for _, key, value in records_of(log)}
        assert built.logs.cleaner_point(TP) == point
        append(log, (b"k0", b"new"))
        await built.cleaner.clean(TP)
        assert table_of(log) == table | {b"k0": b"new"}


# What it waits for


@on_loop
async def test_what_is_not_replicated_is_waited_for(stage):
    async with stage() as built:
        log = built.make()
        end = log.log_end_offset
        log.on_high_watermark(end - 1)
        built.begin()
        waiting = built.eraser.ask(FIRST, TP, end)
        assert (waiting.state, waiting.why) == (
            State.WAITING,
            f"only what lies below offset {end - 1} is known to be replicated, not yet up to {end}",
        )
        log.on_high_watermark(end)
        assert (await built.over(end)).state is State.DONE
        more = built.eraser.ask(FIRST, TP, end + 5)
        assert more is None, "another end is another question"
        built.begin()
        assert built.eraser.ask(FIRST, TP, end + 5).why == (
            f"this replica has the log up to offset {end}, and not yet up to {end + 5}"
        )


@on_loop
async def test_the_end_of_the_segment_has_to_be_replicated_too(stage):
    """Or a reader would be bounded by a place in a file that has become another."""
    async with stage() as built:
        log = built.make()
        end = log.log_end_offset
        append(log, (b"beyond", b"v"))
        log.on_high_watermark(end)
        built.begin()
        assert f"not yet up to {end + 1}" in built.eraser.ask(FIRST, TP, end).why
        assert SECRET in {key for _, key, _ in records_of(log)}
        log.on_high_watermark(end + 1)
        others = others_of(log)
        assert (await built.over(end)).state is State.DONE
        assert records_of(log) == others


@on_loop
async def test_an_open_transaction_is_waited_for_and_named(stage):
    async with stage() as built:
        log = built.make()
        producer = Producer(77, 0, 0, is_transactional=True)
        first = append(log, (SECRET, b"open"), producer=producer)
        end = log.log_end_offset
        built.begin()
        waiting = built.eraser.ask(FIRST, TP, end)
        assert waiting.why == (
            f"producer 77 has had a transaction open since offset {first}: it has to end;"
            f" 'sparklog txn abort --topic t --partition 0 --start-offset {first}' ends it"
        )
        mark(log, producer, ControlType.ABORT)
        others = others_of(log)
        assert (await built.over(end)).state is State.DONE
        assert records_of(log) == others
        append(log, (b"k", b"v"), producer=producer._replace(sequence=1))  # its sequence numbers are known


@pytest.mark.parametrize(("where", "why"), [("cleaner", "being cleaned"), ("logs", "being cut")])
@on_loop
async def test_who_changes_the_log_is_waited_for(stage, where, why):
    async with stage() as built:
        log = built.make()
        busy = built.cleaner.under_way if where == "cleaner" else built.logs.being_cut
        busy.add(TP)
        built.begin()
        assert why in built.eraser.ask(FIRST, TP, log.log_end_offset).why
        busy.discard(TP)
        assert (await built.over(log.log_end_offset)).state is State.DONE


@on_loop
async def test_a_log_that_is_being_moved_is_refused(stage, tmp_path):
    async with stage() as built:
        log = built.make()
        built.logs.dormant[TP] = tmp_path / "elsewhere"
        built.begin()
        found = built.eraser.ask(FIRST, TP, log.log_end_offset)
        assert (found.state, "another log directory: erase again when that is done" in found.why) == (
            State.FAILED,
            True,
        )


@on_loop
async def test_a_log_that_is_not_here_is_waited_for(stage):
    async with stage() as built:
        built.begin()
        assert built.eraser.ask(FIRST, TP, 3).why == "its log is not open here now"
        assert (await built.over(built.make().log_end_offset and 3)).state is State.DONE


@on_loop
async def test_segments_that_readers_hold_are_waited_for(stage):
    async with stage() as built:
        log, end = await built.gated()
        lease = Lease(built.clock.monotonic(), 30.0)
        lease.hold(next(iter(log._segments)).leases)
        others = others_of(log)
        built.let_go()
        await asyncio.sleep(0)
        assert built.eraser.ask(FIRST, TP, end).state is State.RUNNING
        built.clock.advance(31.0)
        assert (await built.over(end)).state is State.DONE
        assert records_of(log) == others


@on_loop
async def test_readers_that_lease_again_and_again_do_not_keep_a_segment(stage):
    async with stage() as built:
        log, end = await built.gated()

        def leases():
            return bool(log.extents(0, 1, None, Lease(built.clock.monotonic(), 30.0)).files)

        assert leases()
        built.let_go()
        async with asyncio.timeout(PATIENCE_S):
            while leases():
                await asyncio.sleep(0.01)
        assert built.eraser.ask(FIRST, TP, end).state is State.RUNNING
        built.clock.advance(31.0)
        assert (await built.over(end)).state is State.DONE
        assert leases()


@on_loop
async def test_an_erasure_that_is_given_up_keeps_no_reader_off(stage):
    async with stage() as built:
        log, _ = await built.gated()
        lease = Lease(built.clock.monotonic(), 30.0)
        assert log.extents(0, 1, None, lease).files
        built.let_go()
        async with asyncio.timeout(PATIENCE_S):
            while log.extents(0, 1, None, Lease(built.clock.monotonic(), 30.0)).files:
                await asyncio.sleep(0.01)
        await built.eraser.close()
        assert log.extents(0, 1, None, Lease(built.clock.monotonic(), 30.0)).files


# What may come between


@on_loop
async def test_a_log_that_is_cut_meanwhile_begins_anew(stage):
    async with stage() as built:
        log, end = await built.gated()
        cut_at = log.segment_facts()[1].base_offset
        await built.on_disk(built.logs.truncate_to, TP, cut_at)
        built.let_go()
        async with asyncio.timeout(PATIENCE_S):
            while "this replica has the log up to offset" not in (found := built.eraser.ask(FIRST, TP, end)).why:
                await asyncio.sleep(0.01)
        assert (found.state, found.attempts) == (State.WAITING, 1)
        assert leftovers(log.directory) == []
        while log.log_end_offset < end:
            append(log, (SECRET, b"copied anew"), (b"other", b"v"))
        others = others_of(log)
        assert (await built.over(end)).state is State.DONE
        assert [each for each in records_of(log) if each[0] < end] == [each for each in others if each[0] < end]


@on_loop
async def test_what_a_worker_finds_in_a_log_that_was_cut_is_no_damage(stage):
    async with stage() as built:
        log, gate = built.make(), Gate()
        built.before_begin = gate
        built.begin()
        end = log.log_end_offset
        built.eraser.ask(FIRST, TP, end)
        async with asyncio.timeout(PATIENCE_S):
            await gate.reached.wait()
        await built.on_disk(built.logs.truncate_to, TP, log.segment_facts()[1].base_offset + 1)
        while log.log_end_offset < end:
            append(log, (SECRET, b"copied anew"), (b"other", b"v"))
        others = others_of(log)
        built.before_begin = None
        gate.open.set()
        found = await built.over(end)
        assert (found.state, found.attempts) == (State.DONE, 1), found.why
        assert [each for each in records_of(log) if each[0] < end] == [each for each in others if each[0] < end]


@on_loop
async def test_a_log_that_never_stands_still_is_given_up(stage, monkeypatch):
    monkeypatch.setattr(erasing, "_MOST_ATTEMPTS", 2)
    async with stage() as built:
        log, end = await built.gated()
        log.lower_recovery_point(log.log_end_offset)
        gate, built.before_group = built.before_group, Gate()
        gate.open.set()
        async with asyncio.timeout(PATIENCE_S):
            while not built.before_group.reached.is_set():
                built.eraser.ask(FIRST, TP, end)
                await asyncio.sleep(0.01)
        log.lower_recovery_point(log.log_end_offset)
        built.let_go()
        found = await built.over(end)
        assert (found.state, found.why) == (State.FAILED, "it was cut, and it was begun anew 2 times")


@on_loop
async def test_a_segment_that_retention_deletes_meanwhile_begins_it_anew(stage):
    async with stage() as built:
        log, end = await built.gated()
        log.advance_start(log.segment_facts()[3].base_offset)
        for path in log.delete_old_segments(log.high_watermark):
            path.unlink()
        built.let_go()
        others = others_of(log)
        found = await built.over(end)
        assert (found.state, found.attempts) == (State.DONE, 1)
        assert records_of(log) == others


@on_loop
async def test_a_policy_that_changes_meanwhile_does_not_matter(stage):
    async with stage() as built:
        log, end = await built.gated()
        log.config = COMPACTED
        others = others_of(log)
        built.let_go()
        assert (await built.over(end)).state is State.DONE
        assert records_of(log) == others


@on_loop
async def test_a_log_that_is_deleted_meanwhile_is_let_alone(stage):
    async with stage() as built:
        _, end = await built.gated()
        async with built.changing:
            built.logs.delete(TP)
        built.let_go()
        async with asyncio.timeout(PATIENCE_S):
            while built.eraser.ask(FIRST, TP, end).why != "its log is not open here now":
                await asyncio.sleep(0.01)


@on_loop
async def test_another_topic_of_the_name_that_comes_while_a_replica_waits_for_its_turn_is_let_alone(stage):
    async with stage() as built:
        await built.gated()
        end = built.make(OTHER).log_end_offset
        assert "its turn" in built.eraser.ask(FIRST, OTHER, end).why
        async with built.changing:
            built.logs.delete(OTHER)
            other = built.logs.get_or_create(OTHER, CONFIG, UUID(int=2))
        fill(other)
        before = records_of(other)
        assert {each[1] for each in before} >= {SECRET}
        waiting = built.eraser.ask(FIRST, OTHER, end)
        built.let_go()
        async with asyncio.timeout(PATIENCE_S):
            while waiting.is_queued:
                await asyncio.sleep(0.01)
        assert (waiting.state, waiting.why) == (State.WAITING, "its log is not open here now")
        assert records_of(other) == before


@on_loop
async def test_a_move_that_begins_meanwhile_ends_it(stage, tmp_path):
    async with stage() as built:
        log, end = await built.gated()
        before = records_of(log)
        built.logs.dormant[TP] = tmp_path / "elsewhere"
        built.let_go()
        found = await built.over(end)
        assert (found.state, "being moved" in found.why) == (State.FAILED, True)
        assert records_of(log) == before


@on_loop
async def test_a_worker_that_is_killed_leaves_nothing_and_the_next_round_finishes(stage):
    async with stage() as built:
        log, end = await built.gated()
        (pid,) = [each.pid for each in built.workers if each.pid is not None]
        os.kill(pid, signal.SIGKILL)
        built.let_go()
        found = await built.over(end)
        assert (found.state, "the worker process ended with status -9" in found.why) == (State.FAILED, True)
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        others = others_of(log)
        await built.erased(round_id=SECOND)
        assert records_of(log) == others


@on_loop
async def test_a_segment_that_cannot_be_read_is_told_and_nothing_changes(stage):
    async with stage() as built:
        log = built.make()
        path = segment_path(log.directory, log.segment_facts()[1].base_offset, LOG_SUFFIX)
        damaged = bytearray(path.read_bytes())
        damaged[-3] ^= 1
        path.write_bytes(damaged)
        log.roll()
        before = {each.name: each.read_bytes() for each in log.directory.glob("*.log")}
        built.begin()
        found = await built.over(log.log_end_offset)
        assert found.state is State.FAILED
        assert f"nothing was erased here: {path}, at byte 0 or soon behind it: batch at offset" in found.why
        assert {each.name: each.read_bytes() for each in log.directory.glob("*.log")} == before
        assert TP not in built.cleaner.under_way


@on_loop
async def test_a_stop_in_the_middle_leaves_the_log_as_it_is(stage):
    async with stage() as built:
        log, _ = await built.gated()
        before = records_of(log)
        await built.eraser.close()
        assert built.cleaner.under_way == set()
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        assert records_of(log) == before
        built.before_group = None


@on_loop
async def test_an_erasure_that_nobody_asks_about_is_forgotten(stage):
    async with stage() as built:
        log = built.make()
        log.on_high_watermark(0)
        built.begin()
        assert built.eraser.ask(FIRST, TP, 3).state is State.WAITING
        built.clock.advance(FORGOTTEN_S - 1)
        built.begin(SECOND)
        assert built.eraser.ask(FIRST, TP, 3) is not None
        built.clock.advance(FORGOTTEN_S)
        built.begin(RoundId(UUID(int=6), 1))
        assert built.eraser.ask(FIRST, TP, 3) is None
        assert built.eraser.ask(SECOND, TP, 3) is None


@on_loop
async def test_a_cleaning_that_is_asked_for_waits_for_the_erasure(stage):
    async with stage(replace(BROKER, log_cleaner_enable=True, log_cleaner_dedupe_buffer_size=1 << 21)) as built:
        built.make(config=COMPACTED)
        log, end = await built.gated()
        built.cleaner.start()
        wish = asyncio.create_task(built.cleaner.clean(TP))
        await asyncio.sleep(0)
        assert not wish.done()
        built.let_go()
        await built.over(end)
        await wish
        assert SECRET not in table_of(log)


@on_loop
async def test_a_round_keeps_its_keys_and_all_rounds_have_bounded_ones(stage, monkeypatch):
    async with stage() as built:
        built.begin()
        built.begin()
        for other in ({"keys": (b"another",)}, {"scan_only": True}):
            with pytest.raises(RoundRefused, match="other keys, or for something else"):
                built.begin(**other)
        monkeypatch.setattr(erasing, "_MOST_KEY_BYTES", 100)
        with pytest.raises(RoundRefused, match="take 100 bytes already"):
            built.begin(RoundId(UUID(int=9), 1), keys=(bytes(100),))
        built.clock.advance(FORGOTTEN_S + 1)
        built.eraser._expire()
        built.begin(RoundId(UUID(int=9), 1), keys=(bytes(50),))


@pytest.mark.parametrize("bound", ["_MOST_ROUNDS", "_MOST_REPLICAS"])
@on_loop
async def test_of_many_rounds_the_one_gives_way_that_nobody_has_asked_about_for_longest(stage, monkeypatch, bound):
    monkeypatch.setattr(erasing, bound, 3)
    others = [RoundId(UUID(int=6), number) for number in range(3)]
    async with stage() as built:
        log, end = await built.gated()  # FIRST is being done, and stays
        log.on_high_watermark(0)
        for number, each in enumerate(others):
            built.clock.advance(1)
            built.begin(each)
            assert built.eraser.ask(each, TP, end) is not None
            if number == 1:
                built.clock.advance(1)
                assert built.eraser.ask(others[0], TP, end) is not None
        assert built.eraser.ask(others[1], TP, end) is None, "its keys are needed"
        assert None not in [built.eraser.ask(each, TP, end) for each in (FIRST, others[0], others[2])]
        monkeypatch.setattr(erasing, bound, 1)
        with pytest.raises(RoundRefused, match="1 rounds of other erasures are under way here, in 1 replicas"):
            built.begin(SECOND)
        built.let_go()
        log.on_high_watermark(end)
        assert (await built.over(end)).state is State.DONE
