"""Settings that change while this broker runs: read from ZooKeeper at the start, followed from then on.

A broker that changes settings writes them, then a notification under ``/config/changes``; every broker takes over what
notifications name, or reads all settings again (``broker.following``). A lost watch costs seconds. A znode that is
malformed is named in the log and keeps no other from being taken over; what it said before stays in force. At the start
there is no before: a broker does not start where its own settings or those of a topic are malformed.

Two rules keep older settings from coming back over newer ones. What changes is taken over by one at a time, for a
request and a notification may tell of two changes at once: what is read last is in force last. And a partition that was
made with settings read before a change, but after that change had gone round, has them read again
(``changes_taken_over``, ``look_again_at``).

Users, client ids and addresses have settings too, which are other modules' concern: these are told what each of them
has now, all at first and then whatever has changed (``tell_of_entities``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from sparklog.broker.following import ChangeFolder, Following, NamedChanges, RunZk
from sparklog.config.broker import BrokerConfig
from sparklog.config.dynamic import Layers
from sparklog.config.topic import TopicConfig, parse_stored
from sparklog.errors import MalformedZnode
from sparklog.replica.manager import ReplicaManager
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import ENTITY_KINDS
from sparklog.zk.znodes import CLUSTER_ENTITY, broker_entity, topic_entity

_logger = logging.getLogger(__name__)

OnEntity = Callable[[str, Mapping[str, str]], None]
"""Told the path of an entity (``zk.entities``) and all its settings of now, none where it is gone; on the loop."""


class Settings:
    """``layers`` is always current; a topic's settings are set on its logs."""

    def __init__(self, config: BrokerConfig, zk: ZkClient, changes: ChangeFolder[str], run_zk: RunZk) -> None:
        self.layers = Layers(config)
        self._zk = zk
        self._run_zk = run_zk
        self._own_entity = broker_entity(config.broker_id)
        self._replicas: ReplicaManager | None = None
        self._following = Following(self._catch_up, "settings", _logger)
        self._on_own_change: Callable[[BrokerConfig], None] = lambda _: None
        self._on_topic_change: Callable[[str | None], None] = lambda _: None
        self.changes_taken_over = 0
        """Counts them; settings that were read under another count may be old."""
        self._changes = NamedChanges((changes,), self.take_over, run_zk, self._following)
        self._doubted: set[str] = set()
        self._entities: dict[str, Mapping[str, str]] = {}
        self._on_entities: list[OnEntity] = []
        self._one_at_a_time = asyncio.Lock()

    @property
    def topic_defaults(self) -> TopicConfig:
        """What a topic without settings of its own has on this broker."""
        return self.layers.topic_defaults

    async def topic(self, topic: str) -> TopicConfig:
        """The topic's settings over the broker's."""
        return parse_stored(topic, await self._run_zk(self._zk.configs.of_topic, topic), self.topic_defaults)

    async def topics(self, names: Collection[str]) -> dict[str, TopicConfig]:
        """``topic`` of each of them, without those whose settings cannot be read."""
        found = {}
        for name, properties in (await self._run_zk(self._zk.configs.of_topics, names)).items():
            with _leaving_out_what_is_malformed():
                found[name] = parse_stored(name, properties, self.topic_defaults)
        return found

    async def load(self) -> None:
        """Read the broker's own settings; what changes after this call began will be followed."""
        await self._changes.read_all(self._read_all)

    async def _read_all(self) -> None:
        await self._read_broker()
        await self._read_cluster()
        await self._read_entities()

    def tell_of_entities(self, told: OnEntity) -> None:
        """Tell of every user, client id and address that has settings, now and whenever they change."""
        self._on_entities.append(told)
        for entity, properties in self._entities.items():
            told(entity, properties)

    async def _read_entities(self) -> None:
        """Read all of them again. Of one that cannot be read what it had before stays."""
        found = dict[str, Mapping[str, str]]()
        for kind in ENTITY_KINDS:
            for entity, properties in (await self._run_zk(self._zk.configs.of_kind, kind)).items():
                found[entity] = self._entities.get(entity, {}) if properties is None else properties
        for entity in found.keys() | self._entities.keys():
            self._set_entity(entity, found.get(entity, {}))

    async def _read_entity(self, entity: str) -> None:
        self._set_entity(entity, await self._run_zk(self._zk.configs.of, entity))

    def _set_entity(self, entity: str, properties: Mapping[str, str]) -> None:
        if properties == self._entities.get(entity, {}):
            return
        self._entities.pop(entity, None)
        if properties:
            self._entities[entity] = properties
        for told in self._on_entities:
            told(entity, properties)

    async def _read_broker(self) -> None:
        found = await self._run_zk(self._zk.configs.of, self._own_entity)
        self.layers = replace(self.layers, broker=found)

    async def _read_cluster(self) -> None:
        found = await self._run_zk(self._zk.configs.of, CLUSTER_ENTITY)
        self.layers = replace(self.layers, cluster=found)

    def follow(
        self,
        replicas: ReplicaManager,
        on_own_change: Callable[[BrokerConfig], None] = lambda _: None,
        on_topic_change: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """Take over what changes, from now on; ``on_own_change`` is told the broker's own settings, now and then, and
        ``on_topic_change`` of which topic there are others; None: of all.
        """
        self._replicas = replicas
        self._on_own_change = on_own_change
        self._on_topic_change = on_topic_change
        on_own_change(self.layers.in_force)
        self._following.look()
        self._following.start()

    async def close(self) -> None:
        await self._following.close()

    def look_again_at(self, topics: Collection[str]) -> None:
        """Read these topics' settings again, soon, and put them in force here."""
        self._doubted.update(topics)
        self._following.look()

    async def _catch_up(self) -> None:
        await self._changes.catch_up(self._take_over_all)
        for topic in tuple(self._doubted):
            await self.take_over(topic_entity(topic))
            self._doubted.discard(topic)

    async def _take_over_all(self) -> None:
        async with self._one_at_a_time:
            await self._read_entities()
            await self._take_over(CLUSTER_ENTITY)

    async def take_over(self, entity: str) -> None:
        """Read the entity's settings again and put them in force here; the cluster's with all others."""
        async with self._one_at_a_time:
            await self._take_over(entity)

    async def _take_over(self, entity: str) -> None:
        if self._replicas is None:
            return
        if entity.partition("/")[0] in ENTITY_KINDS:
            with _leaving_out_what_is_malformed():
                await self._read_entity(entity)
            return
        concerns_all = entity in (self._own_entity, CLUSTER_ENTITY)
        if concerns_all:
            for read in (self._read_broker, self._read_cluster):
                with _leaving_out_what_is_malformed():
                    await read()
            self._on_own_change(self.layers.in_force)
            self._replicas.remember_producers(self.layers.in_force.producer_id_expiration_ms)
            self._on_topic_change(None)
        elif entity.startswith(topic_entity("")):
            self._on_topic_change(entity.removeprefix(topic_entity("")))
        self.changes_taken_over += 1  # in one turn with the look at what is here: what comes later sees the count
        concerned = [each for each in self._replicas.topics() if concerns_all or topic_entity(each) == entity]
        for topic, config in (await self.topics(concerned)).items():
            self._replicas.configure(topic, config)


@contextmanager
def _leaving_out_what_is_malformed() -> Iterator[None]:
    try:
        yield
    except MalformedZnode as error:
        _logger.error("%s; nothing is taken over from it", error)
