"""The leader's arithmetic: every history of a small partition, and single cases."""

from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field, replace

import pytest

from sparklog.replica.in_sync import UNKNOWN, FollowerProgress, InSyncReplicas

LEADER, LEFT, RIGHT = 1, 2, 3
MAX_LAG = 10


def in_sync(isr=(LEADER, LEFT, RIGHT), *, partition_epoch=0, epoch_start=0, now=0, before=None, epoch=5):
    return InSyncReplicas(
        LEADER,
        epoch,
        (LEADER, LEFT, RIGHT),
        isr,
        partition_epoch=partition_epoch,
        epoch_start=epoch_start,
        now=now,
        before=before,
    )


@dataclass
class World:
    """A leader with two followers, ZooKeeper's truth, and the answer that the leader has yet to hear."""

    leader: InSyncReplicas
    ends: dict[int, int] = field(default_factory=lambda: {LEADER: 0, LEFT: 0, RIGHT: 0})
    zk_isr: tuple[int, ...] = (LEADER, LEFT, RIGHT)
    zk_version: int = 0
    answered: bool = False
    """The controller has written the proposal, and its answer is on its way."""
    high_watermark: int = 0
    now: int = 0
    least: int = 1
    """So many replicas must be in sync for readers to be shown more."""

    def advance(self):
        if not self.leader.may_show(self.least):
            return
        common = self.leader.common_end(self.ends[LEADER], self.now, MAX_LAG)
        self.high_watermark = max(self.high_watermark, common)

    def key(self):
        followers = tuple(
            (each.end_offset, min(self.now - each.caught_up_at, MAX_LAG + 1)) for each in self.leader.followers.values()
        )
        proposal = self.leader.proposal and set(self.leader.proposal.isr)
        return (
            tuple(self.ends.values()),
            frozenset(self.zk_isr),
            self.answered,
            self.high_watermark,
            followers,
            frozenset(self.leader.isr),
            frozenset(proposal or ()),
            self.zk_version == self.leader.partition_epoch,
        )


def steps(world):
    """All that may happen next, each in a world of its own."""

    def other():
        return replace(world, leader=deepcopy(world.leader), ends=dict(world.ends))

    if world.ends[LEADER] < 2:
        after = other()
        after.ends[LEADER] += 1
        after.advance()
        yield "append", after
    for follower in (LEFT, RIGHT):
        for end in range(world.ends[follower], world.ends[LEADER] + 1):
            after = other()
            after.ends[follower] = end
            after.leader.followers[follower].fetched(end, after.ends[LEADER], after.now, 1)
            after.advance()
            yield f"{follower} fetches at {end}", after
        if world.leader.proposal is None and world.leader.may_join(follower, world.high_watermark):
            after = other()
            after.leader.propose((*after.leader.isr, follower))
            yield f"{follower} is to join", after
    lagging = world.leader.lagging(world.ends[LEADER], world.now, MAX_LAG)
    if world.leader.proposal is None and lagging:
        after = other()
        after.leader.propose(each for each in after.leader.isr if each not in lagging)
        yield f"{lagging} are to leave", after
    proposal = world.leader.proposal
    if proposal is not None and not world.answered and proposal.partition_epoch == world.zk_version:
        after = other()
        after.zk_isr, after.zk_version, after.answered = proposal.isr, world.zk_version + 1, True
        yield "the controller writes it", after
        after = other()
        after.leader.refused()
        after.advance()
        yield "the controller refuses it", after
    if world.answered:
        after = other()
        after.leader.settled(world.zk_isr, world.zk_version)
        after.answered = False
        after.advance()
        yield "the answer comes", after
    if world.now == 0:
        after = other()
        after.now = MAX_LAG + 1
        after.advance()
        yield "time passes", after


def histories(least=1):
    """Every step of every history: the world before it, the one after it, and how it came to that."""
    start = World(in_sync(), least=least)
    seen, queue = {start.key()}, deque([(start, ())])
    while queue:
        world, history = queue.popleft()
        for name, after in steps(world):
            told = (*history, name)
            yield world, after, told
            if after.key() not in seen:
                seen.add(after.key())
                queue.append((after, told))
    assert len(seen) > 1_000, "the histories were not tried"


def holders(world):
    """How many replicas have all that is shown."""
    return sum(end >= world.high_watermark for end in world.ends.values())


@pytest.mark.parametrize("least", [1, 2])
def test_no_history_shows_what_a_replica_in_sync_does_not_have(least):
    for before, after, told in histories(least):
        for member in after.zk_isr:
            assert after.ends[member] >= after.high_watermark, told
        assert after.high_watermark >= before.high_watermark, told


def test_what_is_shown_is_on_as_many_replicas_as_must_be_in_sync():
    for _, after, told in histories(least=2):
        assert holders(after) >= 2, told


def test_without_that_rule_a_history_shows_what_one_replica_alone_has():
    """What ``sparklog.min.isr.visibility=immediate`` gives away."""
    assert any(holders(after) == 1 for _, after, _ in histories(least=1))


def test_a_history_is_found_where_what_is_proposed_does_not_count(monkeypatch):
    """The enumeration is worth something: a leader that counts only those that are in sync already is caught."""
    monkeypatch.setattr(InSyncReplicas, "maximal", property(lambda self: frozenset(self.isr)))
    monkeypatch.setattr(FollowerProgress, "has_caught_up", lambda self, end, now, lag: self.end_offset == end)
    with pytest.raises(AssertionError):
        test_no_history_shows_what_a_replica_in_sync_does_not_have(least=1)


def test_a_follower_that_was_never_heard_of_holds_back_what_it_is_to_have():
    assert in_sync().common_end(7, 0, MAX_LAG) == UNKNOWN


def test_one_that_is_about_to_join_holds_the_end_back():
    leader = in_sync((LEADER,))
    leader.followers[LEFT].fetched(5, 5, now=100, broker_epoch=1)
    assert leader.common_end(9, 100 + MAX_LAG, MAX_LAG) == 5
    assert leader.common_end(9, 101 + MAX_LAG, MAX_LAG) == 9, "it lags by now"


def test_a_follower_joins_once_it_has_what_is_committed_and_what_the_epoch_began_with():
    leader = in_sync((LEADER,), epoch_start=6)
    for end, joins in ((4, False), (5, False), (6, True)):
        leader.followers[LEFT].fetched(end, 9, now=0, broker_epoch=1)
        assert leader.may_join(LEFT, 5) is joins, end
    assert not leader.may_join(LEFT, 7)
    assert not in_sync().may_join(LEFT, 0), "it is in already"


def test_a_follower_that_fetches_what_there_was_at_its_last_fetch_keeps_up():
    """It is always a step behind a leader that is written to all the time."""
    progress = FollowerProgress(0)
    for number in range(1, 50):
        progress.fetched((number - 1) * 10, number * 10, now=number * 100, broker_epoch=1)
    assert progress.has_caught_up(1_000, 49 * 100, 100)
    assert not progress.has_caught_up(1_000, 49 * 100, 99)


def test_a_follower_that_falls_behind_is_left_out_of_the_isr():
    leader = in_sync()
    leader.followers[LEFT].fetched(3, 3, now=0, broker_epoch=1)
    leader.followers[RIGHT].fetched(3, 3, now=0, broker_epoch=1)
    leader.followers[RIGHT].fetched(9, 9, now=MAX_LAG, broker_epoch=1)
    assert leader.lagging(9, MAX_LAG, MAX_LAG) == []
    assert leader.lagging(9, MAX_LAG + 1, MAX_LAG) == [LEFT]


def test_a_proposal_names_the_epochs_under_which_the_members_fetched():
    leader = in_sync((LEADER, LEFT), partition_epoch=8)
    leader.followers[RIGHT].fetched(0, 0, now=0, broker_epoch=77)
    found = leader.propose((LEADER, LEFT, RIGHT))
    assert found == ((LEADER, LEFT, RIGHT), (UNKNOWN, UNKNOWN, 77), 5, 8)
    assert leader.maximal == {LEADER, LEFT, RIGHT}
    leader.refused()
    assert leader.maximal == {LEADER, LEFT}


def test_a_leader_that_stays_knows_what_its_followers_have():
    before = in_sync()
    before.followers[LEFT].fetched(4, 9, now=3, broker_epoch=1)
    after = in_sync((LEADER, LEFT), now=50, before=before, epoch=6)
    assert after.followers[LEFT].end_offset == 4
    assert after.followers[LEFT].has_caught_up(9, 50 + MAX_LAG, MAX_LAG), "in sync when the epoch began"
    assert not after.followers[RIGHT].has_caught_up(9, 50, MAX_LAG)
    assert after.first_epoch == 5


def test_of_the_followers_that_are_asked_for_the_one_that_came_furthest_is_named():
    leader = in_sync()

    def furthest(offset, *among):
        return leader.furthest_with(offset, among.__contains__)

    assert furthest(0, LEFT, RIGHT) is None, "nothing is known of them"
    leader.followers[LEFT].fetched(5, 9, now=0, broker_epoch=1, start=2)
    leader.followers[RIGHT].fetched(7, 9, now=0, broker_epoch=1, start=0)
    assert furthest(3, LEFT, RIGHT) == RIGHT
    assert furthest(3, LEFT) == LEFT
    assert furthest(1, LEFT) is None, "its log begins later"
    assert furthest(6, LEFT) is None, "its log ends before"
    assert furthest(3) is None
    leader.followers[LEFT].fetched(7, 7, now=3, broker_epoch=1, start=2)
    assert furthest(3, LEFT, RIGHT) == LEFT, "as far as the other, and caught up later"
    leader.settled((LEADER, RIGHT), 1)
    assert furthest(3, LEFT, RIGHT) == RIGHT, "one that is not in sync is not asked"
