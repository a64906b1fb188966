"""A swap of segments cut short at every step: the old ones or the new ones, whole, and the next start settles which."""

import shutil

import pytest
from crash.steps import crash_at
from log.samples import SMALL, abandon, batch_of, open_log, whole, write_cleaned

from sparklog.log.drafts import adopt_drafts
from sparklog.log.files import draft_suffix
from sparklog.record.records import iter_batches

MOST_STEPS = 100
COMPACTED = SMALL | {"cleanup.policy": "compact"}  # so that holes between segments are no damage


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A log with a finished rewrite of its first three segments into two, and its batches before and after."""
    home = tmp_path_factory.mktemp("prepared") / "t-0"
    log = open_log(home, COMPACTED)
    while log.segment_count < 5:
        log.append_as_leader(batch_of(1000 + log.log_end_offset, size=100, key=b"k"), 0)
    first, second, third, fourth, _ = log._segments.bases
    before = [bytes(batch.buffer) for batch in iter_batches(whole(log))]
    kept = [data for data in before if offset(data) < fourth][::2]
    after = kept + [data for data in before if offset(data) >= fourth]
    write_cleaned(home, first, [data for data in kept if offset(data) < third], log.config)
    write_cleaned(home, third, [data for data in kept if offset(data) >= third], log.config)
    abandon(log)
    return home, ([first, third], [first, second, third]), before, after


def offset(data):
    return int.from_bytes(data[:8], "big")


def test_taking_over_drafts(prepared, tmp_path):
    """Drafts of other attempts and of other groups lie beside those that are taken."""
    source, (new, old), before, after = prepared
    outcomes = []
    for n in range(MOST_STEPS):
        home = tmp_path / f"try-{n}" / "t-0"
        shutil.copytree(source, home)
        held = {path.name.removesuffix(".cleaned"): path.read_bytes() for path in home.glob("*.cleaned")}
        log = open_log(home, COMPACTED, clean=False)
        for tag in ("mine", "another"):
            for name, data in held.items():
                (home / f"{name}{draft_suffix(tag)}").write_bytes(data)
        (home / f"{0:020d}.log{draft_suffix('theirs')}").write_bytes(b"half of")

        def take(log=log, home=home):
            adopt_drafts(home, new, "mine")
            log.replace_segments(new, old)

        crashed = crash_at(home, n, take)
        abandon(log)
        log = open_log(home, COMPACTED, clean=False)
        found = [bytes(batch.buffer) for batch in iter_batches(whole(log), partial_tail=False)]
        assert found in (before, after)
        outcomes.append(found == after)
        assert not [path for path in home.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted", ".tmp")]
        log.close()
        if not crashed:
            break
    assert not crashed
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


@pytest.mark.parametrize("crash_again", [False, True])
def test_swapping(prepared, tmp_path, crash_again):
    source, (new, old), before, after = prepared
    outcomes = []
    for n in range(MOST_STEPS):
        home = tmp_path / f"try-{n}" / "t-0"
        shutil.copytree(source, home)
        held = {path.name: path.read_bytes() for path in home.glob("*.cleaned")}
        log = open_log(home, COMPACTED, clean=False)  # removes the .cleaned files, for nobody is at work on them
        for name, data in held.items():
            (home / name).write_bytes(data)
        crashed = crash_at(home, n, lambda log=log: log.replace_segments(new, old))
        abandon(log)
        if crash_again:
            crash_at(home, n // 2, lambda home=home: abandon(open_log(home, COMPACTED, clean=False)))
        log = open_log(home, COMPACTED, clean=False)
        found = [bytes(batch.buffer) for batch in iter_batches(whole(log), partial_tail=False)]
        assert found in (before, after)
        outcomes.append(found == after)
        assert not [path for path in home.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")]
        log.close()
        again = open_log(home, COMPACTED)
        assert [bytes(batch.buffer) for batch in iter_batches(whole(again))] == found
        again.close()
        if not crashed:
            break
    else:
        raise AssertionError("the operation has no end of steps")
    assert outcomes[-1]
    assert outcomes == sorted(outcomes), "once the swap is certain it is never undone"
    assert not outcomes[0]
