"""One cleaning of an open log by the tasks of a job, in this process, put in place as the broker does it."""

from compaction import ours

from sparklog.compaction.rewriting import groups_of
from sparklog.compaction.split import (
    RewriteStretch,
    Target,
    TraceStretch,
    index_tasks,
    states_between,
    stretches_of,
    within,
)
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.walk import number_of
from sparklog.log.drafts import adopt_drafts, check_drafts
from sparklog.log.files import LOG_SUFFIX, remove_drafts, segment_path
from sparklog.testing.clock import ManualClock

CLOCK = ManualClock()


def target_of(log, sections, now_ms, map_bytes):
    task = CleaningTask.from_json(ours.task_of(log, sections, now_ms, buffer_bytes=map_bytes).to_json())
    bases = [each.base_offset for each in task.segments[:-1]]
    return Target(task, {base: number_of(segment_path(log.directory, base, LOG_SUFFIX)) for base in bases})


def split_clean(log, target, parts, stretch_bytes):
    """As the job does it, one task after another, the last stretch first; the end of what was cleaned."""
    map_bytes = target.task.buffers.map_bytes
    indexed = [each.run(CLOCK) for each in index_tasks(target, ours.SEED, map_bytes, parts)]
    end = max(each.stats.end_offset for each in indexed)
    stretches = stretches_of(target, groups_of(target.task, end), stretch_bytes)
    traced = [
        TraceStretch(target, tuple(base for group in stretch for base in group)).run(CLOCK) for stretch in stretches
    ]
    states = states_between(traced)
    written = [
        RewriteStretch(
            target,
            tuple(path for each in indexed for path in each.paths),
            tuple(map(tuple, stretch)),
            tuple(within(traced[0].aborted, target, stretch)),
            states[number],
        ).run(CLOCK)
        for number, stretch in reversed([*enumerate(stretches)])
    ]
    for each in written[::-1]:
        for group in each.groups:
            behind = min(base for base in log._segments.bases if base > max(group.old))
            check_drafts(log.directory, group.new, behind, each.tag, log.config)
            adopt_drafts(log.directory, group.new, each.tag)
            for path in log.replace_segments(group.new, group.old):
                path.unlink()
    remove_drafts(log.directory)
    return end, len(stretches)
