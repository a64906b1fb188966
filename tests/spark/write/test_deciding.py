"""What a decider asks, writes and ends, step by step, of a cluster in memory: each answer can be made to fail here."""

import logging
import re
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.admin.transactions import TransactionDescription
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.producer.config import ProducerConfig
from sparklog.errors import ApiError, DataSourceError, ErrorCode, SparklogError
from sparklog.record.compression import CompressionType
from sparklog.spark.write import decider as module
from sparklog.spark.write.attempt_names import AttemptName
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import NO_BATCH, Decision, Scope, declaration
from sparklog.spark.write.options import BY_COLUMN
from sparklog.structs import DECISIONS_TOPIC, TopicPartition
from sparklog.testing.clock import ManualClock

PLACE = TopicPartition(DECISIONS_TOPIC, 3)
CONFIG = ClientConfig.from_properties(
    {
        "bootstrap.servers": "b:1",
        "client.id": "me",
        "request.timeout.ms": "4321",
        "retry.backoff.ms": "777",
        "default.api.timeout.ms": "98765",
    }
)
RESUMABLE, PASSING = Scope("a name"), Scope("write-x", is_resumable=False)
OPEN, ENDING = "Ongoing", {True: "PrepareCommit", False: "PrepareAbort"}
ENDED = {True: "CompleteCommit", False: "CompleteAbort"}
_ENDED, _LOST, _UNPROVEN = (
    rf"^\[SPARKLOG_{code}\] " for code in ("TRANSACTION_ENDED", "DECISION_LOST", "DECISION_UNPROVEN")
)


class Cluster:
    """What the brokers hold. An end is accepted at once, and its markers are written when it is asked for again."""

    def __init__(self):
        self.clock = ManualClock()
        self.states = {}
        self.written, self.committed = [], []
        self.group, self.epochs, self.finished = {}, {}, []
        self.ends, self.listed, self.indexed_at, self.retired = [], [], [], set()
        self.lost_records = self.known = False
        self.faults = {}
        self.open_clients = []
        self.settings = []
        self.asked_as_own, self.settled = [], []
        self.topics = {}

    def fault(self, name):
        """Raise what was laid down for this question: once, or always."""
        found = self.faults.get(name)
        if isinstance(found, list):
            found = found.pop(0) if found else None
        if found is not None:
            raise found

    def attempt(self, partition=0, run="run", scope=RESUMABLE, state=OPEN):
        name = AttemptName(scope.name, run, partition, 0, 0).transactional_id
        made = PreparedTransaction(name, 100 + len(self.states), 5)
        self.states[made] = state
        return made

    def decisions(self, scope=RESUMABLE):
        """Those that count, oldest first; None is a record that takes them back."""
        values = [value for key, value in map(self.written.__getitem__, self.committed) if key == scope.key]
        return [None if value is None else Decision.decode(value) for value in values]


class _Client:
    def __init__(self, cluster, config=None):
        self.cluster, self.config, self.clock = cluster, config, cluster.clock
        cluster.open_clients.append(self)

    def describe(self, names):
        self.cluster.fault("describe")
        if missing := names - self.cluster.topics.keys():
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {missing}")
        return {name: SimpleNamespace(topic_id=self.cluster.topics[name]) for name in names}

    def close(self):
        self.cluster.open_clients.remove(self)


class _Admin(_Client):
    def open_transactions(self, ids):
        self.cluster.fault("open_transactions")
        going = (OPEN, *ENDING.values())
        return {
            each.transactional_id: TransactionDescription(each[0], state, each[1], each[2], 0, 0, ())
            for each, state in self.cluster.states.items()
            if each.transactional_id in ids and state in going
        }

    def open_under(self, prefix):
        self.cluster.fault("list_open")
        self.cluster.listed.append(prefix)
        return {
            each
            for each, state in self.cluster.states.items()
            if state == OPEN and each.transactional_id.startswith(prefix)
        }

    def end_prepared(self, transactions, *, commit):
        self.cluster.ends.append((set(transactions), commit))
        return [self._end(each, commit) for each in transactions]

    def retire_prepared(self, transactions):
        self.cluster.fault("retire")
        self.cluster.retired |= set(transactions)

    def _end(self, transaction, commit):
        states = self.cluster.states
        if transaction not in states:
            return None
        if states[transaction] == OPEN:
            states[transaction] = ENDING[commit]
        elif states[transaction] == ENDING[commit]:
            states[transaction] = ENDED[commit]
        return states[transaction] in (ENDING[commit], ENDED[commit])

    def delete_groups(self, names):
        self.cluster.fault("delete_groups")
        for name in names:
            del self.cluster.group[name]


class _Log:
    def __init__(self, metadata, admin):
        assert metadata.config is admin.config
        self._cluster = metadata.cluster

    def partition_of(self, scope):
        return self._of(scope, PLACE)

    def _of(self, scope, answer):
        assert isinstance(scope, Scope)
        return answer

    def last(self, scope, *, is_own):
        self._cluster.asked_as_own.append(is_own)
        found = [each for each in self._cluster.decisions(scope) if each is not None]
        return found[-1] if found and scope.decider_id in self._cluster.group else Decision()

    def settle_partition(self, scope):
        self._cluster.settled.append(self._of(scope, scope))

    def index(self, scope):
        return self._of(scope, self)

    def write_if_due(self, offset):
        self._cluster.fault("write_if_due")
        self._cluster.indexed_at.append(offset)

    def note_finished(self, scope, decision):
        self._cluster.finished.append((scope, decision))

    def is_finished(self, scope, decision):
        return (scope, decision) in self._cluster.finished

    def has_lost_records(self, scope):
        return self._of(scope, self._cluster.lost_records)

    def knows(self, scope):
        return self._of(scope, self._cluster.known)


class _Sent:
    offset = None

    def result(self):
        assert self.offset is not None, "asked before it was flushed"
        return self


class _Producer(_Client):
    def __init__(self, cluster, settings):
        super().__init__(cluster, ProducerConfig.of(settings))
        cluster.settings.append(settings)
        self._epoch, self._waiting, self._offsets = None, None, {}

    def init_transactions(self):
        self.cluster.fault("init")
        name = self.config.transactional_id
        self._epoch = self.cluster.epochs[name] = self.cluster.epochs.get(name, 0) + 1

    def begin_transaction(self):
        assert self._waiting is None
        self._waiting = []

    def send(self, topic, value, *, key, partition):
        assert (topic, partition) == PLACE
        self._waiting.append((key, value, _Sent()))
        return self._waiting[-1][2]

    def flush(self):
        for key, value, sent in self._waiting:
            sent.offset = len(self.cluster.written)
            self.cluster.written.append((key, value))

    def send_offsets_to_transaction(self, offsets, group):
        self._offsets = {group: offsets}

    def commit_transaction(self):
        if self.cluster.epochs[self.config.transactional_id] != self._epoch:
            raise ApiError(ErrorCode.PRODUCER_FENCED, "another has taken over")
        self.cluster.fault("commit")
        self.cluster.committed += [sent.offset for _, _, sent in self._waiting]
        self.cluster.group.update(self._offsets)
        self._waiting = None
        self.cluster.fault("committed")


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster()
    monkeypatch.setattr(module, "ClusterMetadata", lambda config: _Client(cluster, config))
    monkeypatch.setattr(module, "Admin", lambda config: _Admin(cluster, config))
    monkeypatch.setattr(module, "DecisionLog", _Log)
    monkeypatch.setattr(module, "Producer", lambda settings: _Producer(cluster, settings))
    yield cluster
    assert cluster.open_clients == []


@pytest.fixture
def decide(cluster):
    """Makes deciders, of RESUMABLE if nothing else is said, and closes them in the end."""
    made = []

    def make(scope=RESUMABLE, **how):
        made.append(Decider(CONFIG, scope, **how))
        return made[-1]

    yield make
    for each in made:
        each.close()


def fenced():
    return ApiError(ErrorCode.PRODUCER_FENCED, "another has taken over")


def broken():
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a broker has just died")


# A whole batch


def test_a_batch_is_recorded_then_committed_then_noted_and_the_rest_aborted(cluster, decide):
    second, first, orphan = (cluster.attempt(number) for number in (2, 1, 3))
    decided = decide().commit(4, [second, first], "run", rows=17)
    assert decided == Decision(4, (first, second), (orphan,), 17)
    assert cluster.decisions() == [decided]
    assert cluster.group == {RESUMABLE.decider_id: {PLACE: (0, -1, "4")}}
    assert cluster.indexed_at == [0]
    assert cluster.states == {first: ENDED[True], second: ENDED[True], orphan: ENDED[False]}
    assert cluster.ends == [({first, second}, True)] * 2 + [({orphan}, False)] * 2
    assert cluster.finished == [(RESUMABLE, decided)]


def test_a_batch_without_rows_is_recorded_and_ends_nothing(cluster, decide):
    assert decide().commit(0, []) == Decision(0)
    assert cluster.decisions() == [Decision(0)]
    assert cluster.ends == []
    assert cluster.finished == []


def test_a_later_decision_stands_and_what_it_does_not_name_is_aborted(cluster, decide):
    named, other = cluster.attempt(1), cluster.attempt(2)
    decide().commit(7, [named])
    late = cluster.attempt(3)
    cluster.ends.clear()
    assert decide().commit(6, [named, late]).batch == 7
    assert cluster.states == {named: ENDED[True], other: ENDED[False], late: ENDED[False]}
    assert ({late}, False) in cluster.ends
    assert len(cluster.decisions()) == 1


def test_the_batch_after_one_of_the_same_run_finishes_nothing_again(cluster, decide):
    decide().commit(0, [cluster.attempt(1)], "run")
    cluster.ends.clear()
    mine = cluster.attempt(2)
    decide().commit(1, [mine], "run")
    assert cluster.ends == [({mine}, True)] * 2


@pytest.mark.parametrize("run", [None, "another"])
def test_another_run_finishes_what_was_decided_without_noting_it(cluster, decide, run):
    """The decision that follows at once says the same."""
    named = cluster.attempt(1)
    one = decide()
    one.take_over()
    one.record(Decision(0, (named,)))
    mine = cluster.attempt(2, run="another")
    decide().commit(1, [mine], run)
    assert cluster.states == {named: ENDED[True], mine: ENDED[True]}
    assert [each.batch for _, each in cluster.finished] == [1]


def test_a_batch_that_comes_again_is_finished_and_that_is_noted(cluster, decide):
    named = cluster.attempt(1)
    one = decide()
    one.take_over()
    one.record(Decision(3, (named,)))
    assert decide().commit(3, [named], "run").transactions == (named,)
    assert cluster.finished == [(RESUMABLE, Decision(3, (named,)))]
    assert cluster.decisions() == [Decision(3, (named,))]


def test_a_batch_that_is_written_does_not_fail_for_what_cannot_be_aborted(cluster, decide, caplog):
    left, mine = cluster.attempt(1), cluster.attempt(2)
    cluster.faults["retire"] = broken()
    assert decide().commit(0, [mine]).transactions == (mine,)
    assert (cluster.states[mine], cluster.states[left]) == (ENDED[True], ENDED[False])
    assert "left open is left for the next" in caplog.text


def test_a_replay_records_what_it_aborts_before_it_aborts(cluster, decide):
    named, before = cluster.attempt(1), cluster.attempt(2)
    one = decide()
    one.take_over()
    one.record(Decision(3, (named,), (before,), 9))
    cluster.states[before] = ENDED[False]
    left = cluster.attempt(3)
    cluster.faults["commit"] = [broken()]
    with pytest.raises(ApiError):
        decide().commit(3, [left])
    assert (cluster.states[left], cluster.retired) == (OPEN, set())
    assert decide().commit(3, [left]) == Decision(3, (named,), (before,), 9)
    assert (cluster.states[left], cluster.retired) == (ENDED[False], {left})
    assert cluster.decisions()[-1] == Decision(3, (named,), (before, left), 9)
    with pytest.raises(DataSourceError, match=_ENDED + f".*{re.escape(repr(before.transactional_id))}"):
        decide().commit(4, [left, before])


def test_what_a_replay_was_to_abort_is_named_by_no_later_batch(cluster, decide):
    """Whoever replayed has stopped between recording that and aborting it."""
    one = decide()
    one.take_over()
    given_up = tuple(sorted(cluster.attempt(number) for number in (3, 1, 2)))
    one.record(Decision(3, (), given_up))
    fresh = cluster.attempt(0)
    with pytest.raises(DataSourceError, match=_ENDED + f".*{re.escape(repr(given_up[1].transactional_id))}"):
        decide().commit(4, [fresh, given_up[2], given_up[1]], "run")
    assert {*cluster.states.values()} == {OPEN}
    assert decide().commit(4, [fresh], "run").transactions == (fresh,)


def test_what_a_batch_is_about_to_abort_is_named_by_no_later_batch(cluster, decide):
    """Two write under one name at once; the first is between recording its batch and aborting what it found beside."""
    mine, theirs = cluster.attempt(1, "one"), cluster.attempt(2, "two")
    slow = decide()

    def paused(orphans):
        assert orphans == {theirs}
        told = f".*{re.escape(repr(theirs.transactional_id))}.*another write at the same time under the same txnAppId"
        with pytest.raises(DataSourceError, match=_ENDED + told):
            decide().commit(6, [theirs], rows=1)

    slow.abort_orphans = paused
    assert slow.commit(5, [mine], rows=1).batch == 5
    assert cluster.decisions() == [Decision(5, (mine,), (theirs,), 1)]
    assert cluster.states == {mine: ENDED[True], theirs: OPEN}


def test_what_is_about_to_be_aborted_stays_told_while_brokers_do_not_tell_what_is_open(cluster, decide):
    """Three write under one name at once; the first is amid aborting when the second cannot know what that is."""
    first, second, third = (cluster.attempt(number, f"run {number}") for number in (1, 2, 3))
    one = decide()
    one.take_over()
    one.record(Decision(5, (first,), (third,)))
    cluster.faults["list_open"] = [broken()]
    assert decide().commit(6, [second]) == Decision(6, (second,), (third,))
    with pytest.raises(DataSourceError, match=_ENDED + f".*{re.escape(repr(third.transactional_id))}"):
        decide().commit(7, [third])
    assert cluster.decisions()[-1].batch == 6


# What cannot be committed


def test_a_batch_of_which_tasks_kept_rows_back_is_not_decided(cluster, decide):
    mine = cluster.attempt()
    with pytest.raises(DataSourceError, match=_ENDED + r".*batch 2 of 'a name'"):
        decide().commit(2, [mine], is_whole=False)
    assert cluster.decisions() == []
    assert cluster.states == {mine: OPEN}


def test_rows_kept_back_are_no_matter_once_the_batch_is_decided(cluster, decide):
    decide().commit(2, [cluster.attempt()])
    assert decide().commit(2, [], is_whole=False).batch == 2


@pytest.mark.parametrize("state", ["PrepareAbort", "CompleteAbort", "CompleteCommit", "PrepareCommit"])
def test_what_ended_before_its_batch_was_decided_fails_the_batch(cluster, decide, state):
    kept, ended = cluster.attempt(1), cluster.attempt(2, state=state)
    with pytest.raises(DataSourceError, match=_ENDED + f".*{re.escape(repr(ended.transactional_id))}"):
        decide().commit(0, [kept, ended])
    assert cluster.decisions() == []
    assert cluster.states[kept] == OPEN


@pytest.mark.parametrize("change", [{"producer_id": 1}, {"epoch": 6}])
def test_a_later_transaction_of_the_same_id_is_not_taken_for_it(cluster, decide, change):
    mine = cluster.attempt()
    with pytest.raises(DataSourceError, match=_ENDED):
        decide().commit(0, [mine._replace(**change)])
    assert cluster.decisions() == []


def test_a_transaction_of_another_name_is_asked_for_by_its_id(cluster, decide):
    """It is open, and not among what the scope has open."""
    strange = PreparedTransaction("strange", 9, 9)
    cluster.states[strange] = OPEN
    decide().commit(0, [strange])
    assert cluster.states[strange] == ENDED[True]


def test_a_batch_is_decided_though_its_orphans_cannot_be_listed(cluster, decide, caplog):
    mine, orphan = cluster.attempt(1), cluster.attempt(2)
    cluster.faults["list_open"] = [broken()]
    decide().commit(0, [mine])
    assert cluster.states == {mine: ENDED[True], orphan: OPEN}
    assert "a name" in caplog.text
    assert "a broker has just died" in caplog.text


@pytest.mark.parametrize(
    ("before", "now", "is_refused"),
    [("there", "here", True), ("there", "there", False), (None, "here", False), ("there", None, False)],
)
def test_a_batch_goes_where_the_last_one_went_as_far_as_that_is_known(cluster, decide, before, now, is_refused):
    decide().commit(0, [], target=before)
    mine = cluster.attempt(1)
    if is_refused:
        with pytest.raises(DataSourceError, match=r"^\[SPARKLOG_OTHER_TOPIC\] .*topic 'here'.* to topic 'there'"):
            decide().commit(1, [mine], target=now)
    else:
        decide().commit(1, [mine], target=now)
    assert cluster.states[mine] == (OPEN if is_refused else ENDED[True])
    assert [each.batch for each in cluster.decisions()] == ([0] if is_refused else [0, 1])


GONE = pytest.mark.parametrize(
    ("topics", "code", "said"),
    [
        ({}, "SPARKLOG_UNKNOWN_TOPIC", r"there is no topic \{'here'\}: it was deleted after tasks had written to it"),
        ({"here": UUID(int=2)}, "SPARKLOG_TOPIC_RECREATED", "topic 'here' was deleted and created again after tasks"),
    ],
)
HERE = ("here", UUID(int=1))


@GONE
def test_a_batch_is_not_decided_whose_topic_is_gone(cluster, decide, topics, code, said):
    cluster.topics = topics
    mine = cluster.attempt(1)
    with pytest.raises(DataSourceError, match=rf"^\[{code}\] {said}.*: write it again$"):
        decide().commit(0, [mine], topics={HERE})
    assert (cluster.decisions(), cluster.states[mine]) == ([], OPEN)


@GONE
def test_a_replay_whose_topic_is_gone_says_how_to_go_on(cluster, decide, topics, code, said):
    cluster.topics = dict([HERE])
    assert decide().commit(4, [cluster.attempt(1)], topics={HERE}, target="here").topic_id == HERE[1]
    cluster.topics = topics
    advice = rf".*; batch 4 of 'a name' is not written again; .* now: {declaration(RESUMABLE, 3)}; .*: "
    with pytest.raises(DataSourceError, match=rf"^\[{code}\] {said}{advice}{declaration(RESUMABLE, 4)}$"):
        decide().commit(4, [cluster.attempt(2)], target="here")


@pytest.mark.parametrize("target", [None, BY_COLUMN, "elsewhere"])
def test_a_replay_asks_for_no_topic_that_its_decision_does_not_know(cluster, decide, target):
    cluster.topics = dict([HERE])
    assert decide().commit(4, [cluster.attempt(1)], topics={HERE}, target=target).topic_id is None
    cluster.topics = {}
    assert decide().commit(4, [cluster.attempt(2)], target=target).target == target


def test_topics_that_cannot_be_asked_for_are_not_taken_for_gone(cluster, decide):
    cluster.faults["describe"] = broken()
    with pytest.raises(ApiError, match="a broker has just died"):
        decide().commit(0, [cluster.attempt(1)], topics={HERE})


@pytest.mark.parametrize(("batch", "run", "is_told"), [(3, "run", True), (0, "run", False), (3, None, False)])
def test_a_run_that_begins_in_the_middle_is_told_of(cluster, decide, caplog, batch, run, is_told):
    decide().commit(batch, [cluster.attempt(1)], run)
    assert ("nothing is known of what scope a name wrote before batch 3" in caplog.text) is is_told


def lost(cluster):
    cluster.lost_records = True
    return cluster.attempt(9, run="before")


@pytest.mark.parametrize("act", ["commit", "finish_all"])
def test_nothing_is_aborted_where_a_record_that_is_gone_may_have_decided_it(cluster, decide, act):
    mine, theirs = cluster.attempt(1), lost(cluster)
    one = decide()
    with pytest.raises(DataSourceError, match=_LOST + r".*'a name'.*--last-batch BATCH; it is -1 where"):
        one.commit(0, [mine], "run") if act == "commit" else one.finish_all()
    assert cluster.states == {mine: OPEN, theirs: OPEN}
    assert cluster.decisions() == []


def test_what_the_run_itself_has_left_was_decided_by_nobody(cluster, decide):
    cluster.lost_records = True
    mine, left, sibling = cluster.attempt(1), cluster.attempt(2), cluster.attempt(3, run="asked")
    decide().commit(0, [mine], "asked")
    assert cluster.states == {mine: ENDED[True], left: ENDED[False], sibling: ENDED[False]}


def test_a_name_that_is_no_attempts_is_anothers(cluster, decide):
    cluster.lost_records = True
    strange = PreparedTransaction("sparklog-spark/a%20name/odd", 1, 1)
    cluster.states[strange] = OPEN
    with pytest.raises(DataSourceError, match=_LOST):
        decide().commit(0, [cluster.attempt()], "run")
    assert cluster.states[strange] == OPEN


def test_what_others_left_is_aborted_where_records_are_all_there(cluster, decide):
    theirs = lost(cluster)
    cluster.lost_records = False
    decide().commit(0, [cluster.attempt(1)], "run")
    assert cluster.states[theirs] == ENDED[False]


def test_what_others_left_is_aborted_where_the_scope_is_known_to_have_no_batch(cluster, decide):
    theirs = lost(cluster)
    cluster.known = True
    decide().commit(0, [cluster.attempt(1)], "run")
    assert cluster.states[theirs] == ENDED[False]


def test_what_others_left_is_aborted_where_a_decision_was_found(cluster, decide):
    one = decide()
    one.take_over()
    one.record(Decision(0))
    theirs = lost(cluster)
    decide().commit(1, [cluster.attempt(1)], "run")
    assert cluster.states[theirs] == ENDED[False]


# Fenced, or too slow


@pytest.mark.parametrize(
    "code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE]
)
def test_who_has_lost_the_scope_reads_again(cluster, decide, code):
    mine = cluster.attempt()
    cluster.faults["commit"] = [ApiError(code, "too late")]
    assert decide().commit(0, [mine]).transactions == (mine,)
    assert cluster.epochs[RESUMABLE.decider_id] == 2
    assert 0 <= cluster.clock.monotonic() <= 0.2


@pytest.mark.parametrize("error", [broken(), SparklogError("no")], ids=["another code", "no code"])
def test_another_error_is_raised_at_once(cluster, decide, error):
    cluster.faults["init"] = [error]
    with pytest.raises(SparklogError) as caught:
        decide().commit(0, [])
    assert caught.value is error


def test_two_who_take_the_scope_from_one_another_without_end_are_told_so(cluster, decide):
    cluster.faults["commit"] = fenced()
    with pytest.raises(ApiError, match="'a name'") as caught:
        decide().commit(0, [cluster.attempt()])
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert cluster.epochs[RESUMABLE.decider_id] == 50
    assert 0 < cluster.clock.monotonic() <= 10


def test_who_was_fenced_can_record_nothing(cluster, decide):
    first = decide()
    first.take_over()
    decide().take_over()
    with pytest.raises(ApiError) as caught:
        first.record(Decision(0))
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert cluster.decisions() == []


# A scope that leaves no trace


def test_a_decision_recorded_unheard_and_finished_by_another_is_over(cluster, decide):
    """The driver's commit of its record was not answered; somebody took it for dead, and left no trace."""
    mine = cluster.attempt(scope=PASSING)
    driver, another = decide(PASSING), decide(PASSING, for_dead_driver=True)

    cluster.faults["committed"] = [fenced()]
    cluster.clock.sleep = lambda _: another.finish_all()
    assert driver.commit(0, [mine]) == Decision(0, (mine,))
    assert cluster.states == {mine: ENDED[True]}
    assert cluster.decisions(PASSING) == [Decision(0, (mine,)), None]


@pytest.mark.parametrize("state", ["CompleteAbort", None])
def test_an_unheard_decision_whose_transactions_did_not_end_so_is_not_over(cluster, decide, state):
    mine = cluster.attempt(scope=PASSING)

    def ends(_):
        cluster.group.clear()
        del cluster.states[mine]
        if state is not None:
            cluster.states[mine] = state

    cluster.faults["commit"] = [fenced()]
    cluster.clock.sleep = ends
    with pytest.raises(DataSourceError, match=_ENDED):
        decide(PASSING).commit(0, [mine])


def test_an_unheard_decision_whose_transactions_are_open_is_recorded_again(cluster, decide):
    mine = cluster.attempt(scope=PASSING)
    cluster.faults["commit"] = [fenced()]
    decide(PASSING).commit(0, [mine])
    assert cluster.decisions(PASSING) == [Decision(0, (mine,))]


@pytest.mark.parametrize("scope", [RESUMABLE, PASSING])
def test_a_decision_that_was_never_recorded_is_not_over(cluster, decide, scope):
    """Somebody has committed the transactions by hand."""
    mine = cluster.attempt(scope=scope, state=ENDED[True])
    with pytest.raises(DataSourceError, match=_ENDED):
        decide(scope).commit(0, [mine])


def test_of_a_resumable_scope_no_decision_is_over_unseen(cluster, decide):
    mine = cluster.attempt()

    def ends(_):
        cluster.states[mine] = ENDED[True]

    cluster.faults["commit"] = [fenced()]
    cluster.clock.sleep = ends
    with pytest.raises(DataSourceError, match=_ENDED):
        decide().commit(0, [mine])


def test_an_unheard_decision_without_rows_is_recorded_again(cluster, decide):
    cluster.faults["commit"] = [fenced()]
    assert decide(PASSING).commit(0, []) == Decision(0)
    assert cluster.decisions(PASSING) == [Decision(0)]


def test_a_passing_scope_notes_nothing_as_finished(cluster, decide):
    decide(PASSING).commit(0, [cluster.attempt(scope=PASSING)])
    assert cluster.finished == []


# Abort


def test_an_abort_ends_what_the_run_has_open_and_what_it_is_given(cluster, decide):
    given, left, other = cluster.attempt(1, "gone"), cluster.attempt(2), cluster.attempt(3, "another")
    assert decide().abort(0, [given], "run") == Decision()
    assert cluster.states == {given: ENDED[False], left: ENDED[False], other: OPEN}
    assert cluster.decisions() == []


def test_an_abort_without_a_run_ends_what_it_is_given_alone(cluster, decide):
    given, left = cluster.attempt(1), cluster.attempt(2)
    decide().abort(0, [given], None)
    assert cluster.states == {given: ENDED[False], left: OPEN}


def test_an_abort_finishes_what_was_decided_and_spares_it(cluster, decide):
    named, orphan = cluster.attempt(1), cluster.attempt(2)
    one = decide()
    one.take_over()
    one.record(Decision(0, (named,)))
    assert decide().abort(0, [named, orphan], "run").transactions == (named,)
    assert cluster.states == {named: ENDED[True], orphan: ENDED[False]}
    assert not [each for each, commit in cluster.ends if named in each and not commit]
    assert len(cluster.finished) == 1


def test_an_abort_of_a_passing_scope_says_that_it_has_no_rows_and_leaves_no_trace(cluster, decide):
    mine = cluster.attempt(scope=PASSING)
    assert decide(PASSING).abort(0, [mine], "run") == Decision(0)
    assert cluster.decisions(PASSING) == [Decision(0), None]
    assert cluster.group == {}
    assert cluster.states == {mine: ENDED[False]}


@pytest.mark.parametrize("batch", [2, 3])
def test_an_abort_of_what_a_passing_scope_has_decided_records_nothing_new(cluster, decide, batch):
    one = decide(PASSING)
    one.take_over()
    one.record(Decision(3))
    assert decide(PASSING).abort(batch, [], "run") == Decision(3)
    assert cluster.decisions(PASSING) == [Decision(3), None]


def test_an_abort_that_is_fenced_begins_again(cluster, decide):
    cluster.faults["init"] = [fenced()]
    mine = cluster.attempt()
    decide().abort(0, [mine], None)
    assert cluster.states == {mine: ENDED[False]}


# In place of a dead driver


def test_a_dead_driver_is_finished_for(cluster, decide):
    named, undecided = cluster.attempt(1), cluster.attempt(2, "later")
    one = decide()
    one.take_over()
    one.record(Decision(0, (named,)))
    cluster.faults["init"] = [fenced()]
    assert decide(for_dead_driver=True).finish_all() == (Decision(0, (named,)), {undecided})
    assert cluster.states == {named: ENDED[True], undecided: ENDED[False]}
    assert cluster.finished == [(RESUMABLE, Decision(0, (named,)))]
    assert cluster.decisions()[-1].aborted == (undecided,)
    assert RESUMABLE.decider_id in cluster.group


@pytest.mark.parametrize("fault", ["commit", "delete_groups"])
def test_a_trace_that_cannot_be_removed_stays(cluster, decide, fault):
    one = decide(PASSING)
    one.take_over()
    one.record(Decision(0))
    cluster.faults[fault] = [broken()]
    assert decide(PASSING, for_dead_driver=True).finish_all() == (Decision(0), set())
    assert PASSING.decider_id in cluster.group


def test_a_forgotten_scope_leaves_its_group_no_offset(cluster, decide):
    """The record that takes the decision back is no decision: no offset of it is the group's."""
    one = decide(PASSING)
    one.take_over()
    one.record(Decision(0))
    cluster.faults["delete_groups"] = [broken()]
    one.forget()
    assert cluster.group == {PASSING.decider_id: {PLACE: (0, -1, "0")}}
    assert cluster.indexed_at == [0, 1]


@pytest.mark.parametrize(
    ("scope", "for_dead_driver", "is_own"),
    [(RESUMABLE, False, False), (RESUMABLE, True, False), (PASSING, False, True), (PASSING, True, False)],
)
def test_only_who_made_a_scope_up_knows_that_nothing_else_was_decided(cluster, decide, scope, for_dead_driver, is_own):
    decide(scope, for_dead_driver=for_dead_driver).take_over()
    assert cluster.asked_as_own == [is_own]


def test_who_is_not_said_to_be_another_decides_for_itself(cluster, decide):
    decide(PASSING).take_over()
    assert cluster.asked_as_own == [True]


def test_a_person_declares_the_last_batch(cluster, decide):
    left = cluster.attempt()
    cluster.faults["init"] = [fenced()]
    decide().declare(7)
    assert cluster.decisions() == [Decision(7)]
    assert (cluster.asked_as_own, cluster.settled) == ([], [RESUMABLE])
    assert cluster.states == {left: OPEN}


# Steps


def test_the_deciders_own_producer(cluster, decide):
    decide().take_over()
    config = ProducerConfig.of(cluster.settings[0])
    assert (config.bootstrap_servers, config.client_id, config.request_timeout_ms) == ("b:1", "me", 4321)
    assert (config.transactional_id, config.transaction_timeout_ms) == (RESUMABLE.decider_id, 10_000)
    assert (config.linger_ms, config.retry_backoff_ms, config.max_block_ms) == (0, 20, 98765)
    assert config.compression_type is CompressionType.GZIP


def test_what_it_asks_is_asked_again_soon_and_with_its_own_settings(cluster, decide):
    decide()
    for each in cluster.open_clients:
        assert (each.config.bootstrap_servers, each.config.client_id) == ("b:1", "me")
        assert each.config.retry_backoff_ms == 20


def test_open_transactions_are_listed_of_the_scope_or_of_one_run(cluster, decide):
    mine, other = cluster.attempt(1), cluster.attempt(2, "other run")
    cluster.attempt(3, scope=Scope("a name2"))
    assert decide().list_open() == {mine, other}
    assert decide().list_open("other run") == {other}


def test_taking_over_again_hangs_up_first(cluster, decide):
    one = decide()
    one.take_over()
    one.take_over()
    assert len([each for each in cluster.open_clients if isinstance(each, _Producer)]) == 1
    one.record(Decision(0))
    assert cluster.decisions() == [Decision(0)]


def test_with_closes_all_it_has_opened(cluster):
    with Decider(CONFIG, RESUMABLE) as one:
        one.take_over()
        assert len(cluster.open_clients) == 3
    assert cluster.open_clients == []


def test_an_index_that_cannot_be_written_is_left_to_the_next(cluster, decide):
    one = decide()
    one.take_over()
    cluster.faults["write_if_due"] = [broken()]
    one.record(Decision(0))
    assert cluster.decisions() == [Decision(0)]


def finished_as(cluster, decide, *states, is_noted=False, scope=RESUMABLE):
    named = tuple(cluster.attempt(number, scope=scope, state=state) for number, state in enumerate(states))
    for each in named:
        if cluster.states[each] is None:
            del cluster.states[each]
    decision = Decision(6, named)
    if is_noted:
        cluster.finished.append((scope, decision))
    decide(scope).finish(decision)
    return named


def test_what_brokers_have_forgotten_is_proven_by_a_note(cluster, decide, caplog):
    finished_as(cluster, decide, OPEN, None, ENDED[False], is_noted=True)
    assert len(cluster.finished) == 1
    assert caplog.records == []


def test_what_brokers_have_forgotten_and_nobody_has_noted_is_unproven(cluster, decide):
    with pytest.raises(DataSourceError, match=_UNPROVEN + r".*batch 6 of scope 'a name'") as caught:
        finished_as(cluster, decide, OPEN, None, ENDED[False], None)
    assert "2 of its 4 transactions" in str(caught.value)
    assert repr(AttemptName("a name", "run", 1, 0, 0).transactional_id)[1:-1] in str(caught.value)
    assert "sparklog writes declare 'a name' --last-batch 6" in str(caught.value)
    assert cluster.finished == []


def test_rows_that_the_brokers_aborted_are_told_and_the_batch_is_over(cluster, decide, caplog):
    """Their transaction had a timeout; nobody can help."""
    with caplog.at_level(logging.ERROR):
        named = finished_as(cluster, decide, OPEN, ENDED[False], ENDED[True], ENDED[False])
    (told,) = caplog.records
    lost_ids = ", ".join(each.transactional_id for each in (named[1], named[3]))
    assert told.levelno == logging.ERROR
    assert told.args == (6, "a name", lost_ids)
    assert cluster.finished == [(RESUMABLE, Decision(6, named))]


def test_nothing_is_decided_at_first(cluster, decide):
    assert decide().take_over().batch == NO_BATCH
