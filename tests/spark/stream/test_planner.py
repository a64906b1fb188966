"""What a streaming query decides on the planner, with a cluster that does as it is told."""

import json
from uuid import UUID

import pytest

from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.stream import truncation
from sparklog.spark.stream.offset import StreamOffset
from sparklog.spark.stream.planner import StreamPlanner
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

_A, _B, _C = (TopicPartition("t", number) for number in range(3))
_ID = UUID(int=1)


def _at(offsets, topic_id=_ID, epochs=None):
    return StreamOffset(dict(offsets), {"t": topic_id}, epochs or {})


class _Resolver:
    """Partitions and their ends as the test sets them."""

    def __init__(self, **ends):
        self.ids = {}
        self.ends = {}
        self.firsts = {}
        self.epochs = {}
        self.others = {}

    def set(self, ends, firsts=None, topic_id=_ID, epochs=None):
        self.ends = dict(ends)
        self.epochs = epochs or {}
        self.ids = dict.fromkeys(ends, topic_id)
        self.firsts = firsts or {}

    def partitions(self, read_before=()):
        return dict(self.ids)

    def existing(self, topics):
        return dict(self.others or self.ids)

    def latest(self, partitions):
        return {tp: self.ends[tp] for tp in partitions}

    def ends_and_epochs(self, partitions):
        return self.latest(partitions), {tp: self.epochs[tp] for tp in partitions if tp in self.epochs}

    def earliest(self, partitions):
        return {tp: self.firsts.get(tp, 0) for tp in partitions}

    def starting(self):
        return dict(self.ends)


@pytest.fixture
def clock():
    return ManualClock()


class _Planner(StreamPlanner):
    """Takes and gives offsets of the one topic."""

    def end(self, start, unlimited=True):
        return self.end_of_batch(_at(start), unlimited=unlimited).offsets


@pytest.fixture
def make_planner(clock):
    def make(**options):
        settings = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
        planner = _Planner(ReadOptions.for_stream(settings), clock)
        resolver = planner.__dict__["_resolver"] = _Resolver()
        return planner, resolver

    return make


def test_the_initial_offset_is_resolved_once(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 5})
    assert planner.initial().offsets == {_A: 5}
    cluster.set({_A: 9})
    assert planner.initial().offsets == {_A: 5}


def test_a_first_batch_that_runs_again_reads_the_same_though_the_log_has_grown(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 5, _B: 7})
    start = planner.initial()
    cluster.set({_A: 9, _B: 7, _C: 3})
    end = planner.end_of_batch(start, unlimited=True)
    read = [OffsetRange(_A, 5, 9, _ID), OffsetRange(_C, 0, 3, _ID)]
    assert planner.ranges(start, end) == read
    logged = json.dumps(end.to_json())
    restarted, cluster = make_planner()
    cluster.set({_A: 20, _B: 20, _C: 20})
    end = StreamOffset.from_json(json.loads(logged))
    assert restarted.ranges(restarted.initial(), end) == read
    later = restarted.end_of_batch(end, unlimited=True)
    assert restarted.ranges(end, later) == [
        OffsetRange(_A, 9, 20, _ID),
        OffsetRange(_B, 7, 20, _ID),
        OffsetRange(_C, 3, 20, _ID),
    ]
    assert restarted.end_of_batch(later, unlimited=True) == later, (
        "it is where the initial offset was, and no first batch"
    )


def test_only_the_end_of_the_first_batch_says_where_it_began(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 5})
    first = planner.end_of_batch(planner.initial(), unlimited=True)
    assert first == _at({_A: 5})._replace(begins={_A: 5})
    assert planner.end_of_batch(first, unlimited=True) == first, "another text would be another batch"
    cluster.set({_A: 6})
    second = planner.end_of_batch(first, unlimited=True)
    assert second == _at({_A: 6})
    assert planner.ranges(first, second) == [OffsetRange(_A, 5, 6, _ID)]


def test_a_first_batch_that_runs_again_is_of_the_topic_that_it_was_of(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 20}, topic_id=UUID(int=9))
    end = _at({_A: 9})._replace(begins={_A: 5})
    assert planner.ranges(planner.initial(), end) == [OffsetRange(_A, 5, 9, _ID)], "tasks see that it is another"


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_that_runs_again_reads_a_new_topic_that_is_selected_no_more(make_planner, fail):
    planner, cluster = make_planner(failOnDataLoss=fail)
    cluster.set({_A: 10})
    new = TopicPartition("dropped", 0)
    cluster.others = {new: UUID(int=2)}
    end = StreamOffset({_A: 10, new: 7}, {"t": _ID, "dropped": UUID(int=2)}, {})
    assert planner.ranges(_at({_A: 10}), end) == [OffsetRange(new, 0, 7, UUID(int=2))]


def test_a_first_batch_that_began_later_does_not_read_all_of_a_topic_that_is_selected_no_more(make_planner):
    planner, cluster = make_planner(startingOffsets="latest", failOnDataLoss="false")
    cluster.set({_A: 10})
    new = TopicPartition("dropped", 0)
    cluster.others = {new: UUID(int=2)}
    end = StreamOffset({_A: 10, new: 7}, {"t": _ID, "dropped": UUID(int=2)}, {})
    assert planner.ranges(planner.initial(), end) == []


def test_an_end_never_goes_back(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 10, _B: 10})
    assert planner.end({_A: 0, _B: 0}) == {_A: 10, _B: 10}
    cluster.set({_A: 7, _B: 12})
    assert planner.end({_A: 10, _B: 10}) == {_A: 10, _B: 12}


def test_an_end_that_stays_behind_is_data_loss(make_planner, clock):
    planner, cluster = make_planner()
    cluster.set({_A: 7})
    planner.end({_A: 10})
    clock.advance(2.9)
    planner.end({_A: 10})
    clock.advance(0.2)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS.*t-0 ends at offset 7, before 10"):
        planner.end({_A: 10})


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_partition_has_its_time_to_catch_up_whichever_were_behind_before_it(make_planner, clock, fail):
    planner, cluster = make_planner(failOnDataLoss=fail)
    read = {_A: 10, _B: 10}
    for _ in range(2):
        cluster.set({_A: 7, _B: 10})
        assert planner.end(read) == read
        clock.advance(1.6)
    cluster.set({_A: 10, _B: 9})
    assert planner.end(read) == read


def test_the_loss_of_one_partition_is_not_that_of_another_that_is_behind_too(make_planner, clock):
    planner, cluster = make_planner(failOnDataLoss="false")
    read = {_A: 10, _B: 10}
    cluster.set({_A: 7, _B: 10})
    planner.end(read)
    clock.advance(1.6)
    cluster.set({_A: 7, _B: 9})
    planner.end(read)
    clock.advance(1.6)
    assert planner.end(read) == {_A: 7, _B: 10}
    clock.advance(1.6)
    assert planner.end({_A: 7, _B: 10}) == {_A: 7, _B: 9}


def test_an_end_that_was_behind_for_a_moment_is_forgotten(make_planner, clock):
    planner, cluster = make_planner()
    for end in (7, 10, 7, 10):
        cluster.set({_A: end})
        planner.end({_A: 10})
        clock.advance(2)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_partition_that_is_gone(make_planner, fail):
    planner, cluster = make_planner(failOnDataLoss=fail)
    cluster.set({_A: 10})
    start = {_A: 3, _B: 4}
    if fail == "true":
        with pytest.raises(
            DataSourceError, match=r"SPARKLOG_DATA_LOSS_DELETED.*t-1, read up to offset 4, does not exist"
        ):
            planner.end(start)
    else:
        assert planner.end(start) == {_A: 10, _B: 4}, "the checkpoint remembers it"
        assert planner.latest == {_A: 10}
        assert planner.ranges(_at(start), _at({_A: 10, _B: 4})) == [OffsetRange(_A, 3, 10, _ID)]


class _OldMetadata(_Resolver):
    """Some brokers do not know yet how the topic has grown: the first ``late`` answers lack its last partition."""

    late = 2

    def partitions(self, read_before=()):
        self.late -= 1
        self.others = {} if self.late < 0 else {_A: _ID}
        return dict(self.others or self.ids)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_partition_that_a_broker_does_not_know_yet_is_not_gone(make_planner, fail, clock, caplog):
    planner, _ = make_planner(failOnDataLoss=fail)
    cluster = planner.__dict__["_resolver"] = _OldMetadata()
    cluster.set({_A: 10, _B: 9})
    assert planner.end({_A: 3, _B: 4}) == {_A: 10, _B: 9}
    assert cluster.late < 0 < clock.monotonic()
    assert "DATA_LOSS" not in caplog.text


def test_what_may_not_be_described_any_more_is_gone(make_planner, clock):
    planner, cluster = make_planner(failOnDataLoss="false")
    cluster.set({_A: 10})

    def refuse(_):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")

    cluster.existing = refuse
    assert planner.end({_A: 3, _B: 4}) == {_A: 10, _B: 4}
    assert clock.monotonic() == ManualClock().monotonic(), "nothing is waited for"


def test_a_new_partition_that_a_broker_does_not_know_yet_is_read_when_a_batch_runs_again(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 10, _B: 9})
    asked = iter([{_A: _ID}] * 4)
    cluster.existing = lambda _: next(asked, dict(cluster.ids))
    assert planner.ranges(_at({_A: 3}), _at({_A: 10, _B: 4})) == [
        OffsetRange(_A, 3, 10, _ID),
        OffsetRange(_B, 0, 4, _ID),
    ]


def test_a_topic_created_again_is_noticed(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 10})
    planner.end({_A: 0})
    cluster.set({_A: 50}, topic_id=UUID(int=2))
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS.*created again"):
        planner.end({_A: 10})


def test_a_new_partition_is_read_from_its_beginning(make_planner):
    planner, cluster = make_planner(maxOffsetsPerTrigger="4")
    cluster.set({_A: 10, _B: 100})
    end = planner.end({_A: 10}, unlimited=False)
    assert end == {_A: 10, _B: 4}
    assert planner.ranges(_at({_A: 10}), _at(end)) == [OffsetRange(_B, 0, 4, _ID)]


def test_a_new_partition_that_has_lost_its_beginning(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 10, _B: 100}, firsts={_B: 60})
    with pytest.raises(DataSourceError, match="t-1 begins at offset 60"):
        planner.ranges(_at({_A: 10}), _at({_A: 10, _B: 100}))


def test_the_limit_is_for_all_partitions_together(make_planner):
    planner, cluster = make_planner(maxOffsetsPerTrigger="10")
    cluster.set({_A: 100, _B: 100})
    end = planner.end({_A: 0, _B: 0}, unlimited=False)
    assert sum(end.values()) == 10
    assert planner.end({_A: 0, _B: 0}) == {_A: 100, _B: 100}


def test_too_little_is_waited_on_until_the_delay_has_passed(make_planner, clock):
    planner, cluster = make_planner(minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    cluster.set({_A: 1})
    assert planner.end({_A: 0}, unlimited=False) == {_A: 1}, "the first batch of a run waits for nothing"
    cluster.set({_A: 9})
    assert planner.end({_A: 1}, unlimited=False) == {_A: 1}
    clock.advance(31)
    assert planner.end({_A: 1}, unlimited=False) == {_A: 9}
    cluster.set({_A: 18})
    assert planner.end({_A: 9}, unlimited=False) == {_A: 9}
    cluster.set({_A: 19})
    assert planner.end({_A: 9}, unlimited=False) == {_A: 19}


@pytest.mark.parametrize(
    "happens",
    [
        {"ends": {_A: 3}, "topic_id": UUID(int=2)},
        {"ends": {_A: 12}, "epochs": {_A: 9}},
        {"ends": {_A: 8}},
    ],
    ids=["made again", "cut off and grown again", "cut off"],
)
def test_a_loss_is_told_once_while_a_query_waits_for_more_records(make_planner, clock, caplog, monkeypatch, happens):
    monkeypatch.setattr(truncation, "ends_of_epochs", lambda cluster, wanted: dict.fromkeys(wanted, 8))
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h", "fetchOffset.numRetries": "0"}
    planner, cluster = make_planner(failOnDataLoss="false", **options)
    cluster.set({_A: 10}, epochs={_A: 3})
    start = planner.end_of_batch(_at({_A: 9}, epochs={_A: 3}), unlimited=False)
    cluster.set(**happens)
    for _ in range(3):
        assert planner.end_of_batch(start, unlimited=False) == start, "too few records: it waits"
        clock.advance(60)
    assert caplog.text.count("SPARKLOG_DATA_LOSS") == 1


def test_what_came_after_the_freeze_is_left(make_planner):
    planner, cluster = make_planner(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="6")
    cluster.set({_A: 10})
    planner.freeze()
    cluster.set({_A: 99})
    seen = []
    at = {_A: 0}
    while (end := planner.end(at, unlimited=False)) != at:
        seen.append(end[_A])
        at = end
    assert seen == [6, 10]


def test_a_query_that_is_ahead_of_the_freeze_ends_at_once(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 10})
    planner.freeze()
    cluster.set({_A: 12})
    assert planner.end({_A: 12}, unlimited=False) == {_A: 12}


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_that_was_cut_off_before_the_freeze(make_planner, fail):
    planner, cluster = make_planner(failOnDataLoss=fail)
    cluster.set({_A: 10})
    planner.freeze()
    if fail == "true":
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS_TRUNCATED.*t-0 ends at offset 10, before 12"):
            planner.end({_A: 12})
    else:
        assert planner.end({_A: 12}) == {_A: 10}


def test_a_log_that_was_cut_off_is_read_on_from_its_end_if_loss_is_accepted(make_planner, clock, caplog):
    planner, cluster = make_planner(failOnDataLoss="false")
    cluster.set({_A: 7})
    assert planner.end({_A: 10}) == {_A: 10}
    clock.advance(3)
    assert planner.end({_A: 10}) == {_A: 7}
    assert "SPARKLOG_DATA_LOSS_TRUNCATED" in caplog.text
    cluster.set({_A: 9})
    assert planner.end({_A: 7}) == {_A: 9}
    assert planner.ranges(_at({_A: 10}), _at({_A: 7})) == []


def test_a_topic_created_again_between_two_runs_is_noticed_by_its_id(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 50}, topic_id=UUID(int=2))
    with pytest.raises(
        DataSourceError, match=r"SPARKLOG_DATA_LOSS_RECREATED.*'t', read up to \{0: 10\}.*created again"
    ):
        planner.end({_A: 10})


def test_a_topic_created_again_is_read_from_its_beginning_if_loss_is_accepted(make_planner):
    planner, cluster = make_planner(failOnDataLoss="false")
    cluster.set({_A: 5}, topic_id=UUID(int=2))
    end = planner.end_of_batch(_at({_A: 10}), unlimited=True)
    assert end == _at({_A: 5}, UUID(int=2))
    assert planner.ranges(_at({_A: 10}), end) == [OffsetRange(_A, 0, 5, UUID(int=2))]
    assert planner.end_of_batch(end, unlimited=True) == end


def test_a_topic_created_again_after_the_freeze_is_left_to_the_next_run(make_planner):
    planner, cluster = make_planner(failOnDataLoss="false")
    cluster.set({_A: 10})
    planner.freeze()
    cluster.set({_A: 50}, topic_id=UUID(int=2))
    end = planner.end_of_batch(_at({_A: 3}), unlimited=True)
    assert end.offsets == {}
    assert planner.end_of_batch(end, unlimited=True) == end


def test_a_checkpoint_without_ids_is_taken_as_it_is(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 12})
    before = StreamOffset({_A: 10}, {})
    end = planner.end_of_batch(before, unlimited=True)
    assert planner.ranges(before, end) == [OffsetRange(_A, 10, 12, _ID)]


def test_a_limit_in_bytes_leaves_every_partition_a_record(make_planner, monkeypatch):
    planner, cluster = make_planner(maxBytesPerTrigger="10k")
    weights = {_A: 1000.0, _B: 10.0}
    monkeypatch.setattr(planner.sizes, "bytes_per_offset", lambda tps, starts: {tp: weights[tp] for tp in tps})
    cluster.set({_A: 100, _B: 10_000})
    end = planner.end({_A: 0, _B: 0}, unlimited=False)
    assert 0 < end[_A] < 10
    assert 0 < end[_B] < 1000
    assert sum(end[tp] * weights[tp] for tp in end) <= 10 * 1024
    weights[_A] = 1_000_000.0
    assert planner.end({_A: 0, _B: 0}, unlimited=False) == {_A: 1, _B: 1}


def test_limits_in_offsets_and_in_bytes_hold_together(make_planner, monkeypatch):
    planner, cluster = make_planner(maxBytesPerTrigger="500", maxOffsetsPerTrigger="20")
    monkeypatch.setattr(planner.sizes, "bytes_per_offset", lambda tps, starts: dict.fromkeys(tps, 50.0))
    cluster.set({_A: 100})
    assert planner.end({_A: 0}, unlimited=False) == {_A: 10}
    monkeypatch.setattr(planner.sizes, "bytes_per_offset", lambda tps, starts: dict.fromkeys(tps, 1.0))
    assert planner.end({_A: 0}, unlimited=False) == {_A: 20}


def test_progress_is_committed_once_spark_goes_on_from_it(make_planner, monkeypatch):
    planner, cluster = make_planner(commitToGroup="mine")
    stored = []
    monkeypatch.setattr(planner._group, "commit", stored.append)
    cluster.set({_A: 10})
    planner.end({_A: 0})
    cluster.set({_A: 12})
    planner.end({_A: 10})
    assert stored == [{_A: 0}, {_A: 10}]


@pytest.fixture
def leader_says(monkeypatch):
    """``leader_says({tp: {epoch: end}})``: what leaders answer of the ends of epochs; returns what they are asked."""

    def say(ends):
        asked = []

        def answer(cluster, wanted):
            asked.append(dict(wanted))
            return {tp: ends[tp].get(epoch, -1) for tp, epoch in wanted.items()}

        monkeypatch.setattr(truncation, "ends_of_epochs", answer)
        return asked

    return say


def _led(offsets, **epochs):
    return _at(offsets, epochs={TopicPartition("t", int(name[1:])): each for name, each in epochs.items()})


def test_a_log_that_was_cut_off_and_has_grown_again_is_data_loss(make_planner, leader_says):
    planner, cluster = make_planner()
    leader_says({_A: {3: 60}})
    cluster.set({_A: 500}, epochs={_A: 5})
    message = (
        r"SPARKLOG_DATA_LOSS_TRUNCATED.*t-0 was cut off at offset 60, before 100.*epoch was 3; it is 5.*offset 500"
    )
    with pytest.raises(DataSourceError, match=message):
        planner.end_of_batch(_led({_A: 100}, p0=3), unlimited=True)


@pytest.mark.parametrize("regrown", [500, 100, 80, 60])
def test_what_stands_where_a_log_was_cut_off_is_read(make_planner, leader_says, regrown):
    planner, cluster = make_planner(failOnDataLoss="false")
    leader_says({_A: {3: 60}})
    cluster.set({_A: regrown}, epochs={_A: 5})
    start = _led({_A: 100}, p0=3)
    end = planner.end_of_batch(start, unlimited=True)
    assert end == _led({_A: regrown}, p0=5)
    expected = [OffsetRange(_A, 60, regrown, _ID)] if regrown > 60 else []
    assert planner.ranges(start, end) == expected
    again, cluster = make_planner(failOnDataLoss="false")
    cluster.set({_A: 1000}, epochs={_A: 5})
    assert again.ranges(start, end) == expected, "after a restart"


def test_a_cut_in_some_partitions_with_a_limit(make_planner, leader_says):
    planner, cluster = make_planner(failOnDataLoss="false", maxOffsetsPerTrigger="20")
    leader_says({_A: {3: 60}, _B: {3: 100}})
    cluster.set({_A: 300, _B: 110}, epochs={_A: 4, _B: 4})
    start = _led({_A: 100, _B: 100}, p0=3, p1=3)
    end = planner.end_of_batch(start, unlimited=False)
    assert end.offsets[_A] < 100
    (first, second) = planner.ranges(start, end)
    assert (first.start, second.start) == (60, 100)
    assert 19 <= first.size + second.size <= 20


def test_a_new_leader_that_has_all_is_no_loss_and_is_asked_once(make_planner, leader_says):
    planner, cluster = make_planner()
    asked = leader_says({_A: {3: 100}})
    cluster.set({_A: 100}, epochs={_A: 4})
    start = _led({_A: 100}, p0=3)
    for _ in range(3):
        assert planner.end_of_batch(start, unlimited=True) == start, "another offset would make an empty batch"
    cluster.set({_A: 120}, epochs={_A: 4})
    end = planner.end_of_batch(start, unlimited=True)
    assert end == _led({_A: 120}, p0=4)
    assert planner.ranges(start, end) == [OffsetRange(_A, 100, 120, _ID)]
    planner.end_of_batch(end, unlimited=True)
    assert asked == [{_A: 3}]


@pytest.mark.parametrize(("before", "now"), [({}, {_A: 4}), ({_A: 4}, {}), ({_A: 4}, {_A: 3}), ({_A: 4}, {_A: 4})])
def test_without_a_later_epoch_nobody_is_asked(make_planner, leader_says, before, now):
    planner, cluster = make_planner()
    asked = leader_says({})
    cluster.set({_A: 120}, epochs=now)
    assert planner.end_of_batch(_at({_A: 100}, epochs=before), unlimited=True).epochs == ({_A: 4} if now else {})
    assert asked == []


def test_an_epoch_that_the_leader_does_not_know_says_nothing(make_planner, leader_says):
    planner, cluster = make_planner()
    leader_says({_A: {}})
    cluster.set({_A: 120}, epochs={_A: 4})
    assert planner.end_of_batch(_led({_A: 100}, p0=3), unlimited=True).offsets == {_A: 120}


def test_a_topic_created_again_is_not_judged_by_the_epochs_of_the_first(make_planner, leader_says):
    planner, cluster = make_planner(failOnDataLoss="false")
    asked = leader_says({})
    cluster.set({_A: 0}, topic_id=UUID(int=2), epochs={_A: 9})
    end = planner.end_of_batch(_led({_A: 0}, p0=7), unlimited=True)
    assert end == _at({_A: 0}, UUID(int=2), {_A: 9})
    assert asked == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_planned_before_a_restart_is_judged_again(make_planner, leader_says, fail):
    planner, cluster = make_planner(failOnDataLoss=fail)
    leader_says({_A: {3: 60, 2: 60}})
    cluster.set({_A: 500}, epochs={_A: 5})
    start, end = _led({_A: 40}, p0=2), _led({_A: 100}, p0=3)
    if fail == "true":
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS_TRUNCATED.*cut off at offset 60, before 100"):
            planner.ranges(start, end)
        return
    assert planner.ranges(start, end) == [OffsetRange(_A, 40, 60, _ID)]
    later = planner.end_of_batch(end, unlimited=True)
    assert planner.ranges(end, later) == [OffsetRange(_A, 60, 500, _ID)], "each record that is there once"


def test_available_now_reads_to_where_it_began(make_planner, leader_says):
    planner, cluster = make_planner()
    leader_says({_A: {3: 100}})
    cluster.set({_A: 120}, epochs={_A: 4})
    planner.freeze()
    cluster.set({_A: 150}, epochs={_A: 5})
    end = planner.end_of_batch(_led({_A: 100}, p0=3), unlimited=True)
    assert end == _led({_A: 120}, p0=4)
    assert planner.end_of_batch(end, unlimited=True) == end


def test_the_initial_offset_has_epochs(make_planner):
    planner, cluster = make_planner()
    cluster.set({_A: 5}, epochs={_A: 2})
    assert planner.initial() == _led({_A: 5}, p0=2)
