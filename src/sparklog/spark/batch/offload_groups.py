"""Tells the brokers how far an offload has come, of topics whose retention waits for that.

What waits is looked up now and then in the topics' settings. The committed offset is never ahead of the place: it is
committed after the place has it. A group tells of one place: where it tells of another one already, this job leaves it
alone, with a warning. See ``docs/adr/0035-retention.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.obstacles import Obstacles
from sparklog.clock import Clock
from sparklog.cluster.offload_group import OffloadNote, group_of
from sparklog.config.job_clients import Rights
from sparklog.errors import SparklogError
from sparklog.spark.failures import rights_named
from sparklog.spark.read.offsets import Offsets
from sparklog.spark.read.resolver import TopicIds
from sparklog.spark.stream.group_progress import GroupProgress
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 60.0


class OffloadGroups:
    """Of one job. It belongs to one thread. Close it."""

    def __init__(self, config: ClientConfig, identity: Callable[[], str | None], clock: Clock) -> None:
        """``identity``: of the place (``Destination.identity``), None while nothing is in it."""
        self._config = config
        self._identity = identity
        self._clock = clock
        self._obstacles = Obstacles(clock)
        self._groups: dict[tuple[str, UUID, str], GroupProgress] = {}
        self._look_at = float("-inf")

    def commit(self, offsets: Offsets, epochs: Mapping[TopicPartition, int], topic_ids: TopicIds) -> None:
        """All below ``offsets`` is in the place, of the log as it was in these leader epochs.

        A failure is logged; the brokers keep more then.
        """
        self._look_now_and_then(topic_ids)
        for (topic, topic_id, _), progress in self._groups.items():
            progress.commit(
                {tp: at for tp, at in offsets.items() if (tp.topic, topic_ids.get(tp)) == (topic, topic_id)}, epochs
            )

    def close(self) -> None:
        for progress in self._groups.values():
            progress.close()

    def _look_now_and_then(self, topic_ids: TopicIds) -> None:
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        try:
            place = self._identity()
            if place is None:
                return
            self._look_at = now + _LOOK_AGAIN_S
            with rights_named(Rights("DESCRIBE_CONFIGS")), Admin(self._config) as admin:
                self._look(admin, place, topic_ids)
        except SparklogError as error:
            self._obstacles.met("look", f"it is not known which topics wait for their offload: {error}", at_once=True)
            return
        self._obstacles.over("look")

    def _look(self, admin: Admin, place: str, topic_ids: TopicIds) -> None:
        wanted = {}
        for topic, topic_id in {tp.topic: each for tp, each in topic_ids.items()}.items():
            group = _group_that_waits(admin, topic)
            if group is not None and _is_of(place, admin, group, topic, topic_id, topic_ids):
                wanted[topic, topic_id, group] = group
        for key in self._groups.keys() - wanted.keys():
            self._groups.pop(key).close()
        for key, group in wanted.items():
            if key in self._groups:
                self._groups[key].repeat()
            else:
                note = OffloadNote(key[1], place).to_metadata()
                self._groups[key] = GroupProgress(self._config, group, self._clock, note)


def _is_of(
    place: str, admin: Admin, group: str, topic: str, topic_id: UUID, partitions: Collection[TopicPartition]
) -> bool:
    """Whether the group tells of this place, or of none."""
    committed = admin.group_offsets(group, [tp for tp in partitions if tp.topic == topic])
    for at in committed.values():
        note = OffloadNote.from_metadata(at.metadata)
        if note is not None and note.topic_id == topic_id and not note.is_of(place):
            _log.warning(
                "topic %s waits for its offload to %s, as group %r says, not for this one to %s. If it is to wait"
                " for this one instead, delete the group: sparklog group delete %s",
                topic,
                note.place,
                group,
                place,
                group,
            )
            return False
    return True


def _group_that_waits(admin: Admin, topic: str) -> str | None:
    """The group that the brokers ask about the topic; None where they do not ask."""
    settings = {each.name: each.value or "" for each in admin.topic_configs(topic)}
    waits = settings.get("sparklog.offload.required") == "true"
    if waits or "offload" in settings.get("sparklog.retention.policies", "").split(","):
        return group_of(topic, settings.get("sparklog.offload.group", ""))
    return None
