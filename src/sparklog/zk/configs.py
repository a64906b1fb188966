"""The settings of entities, ``/config``, and word of their changes, ``/config/changes``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from kazoo.exceptions import BadVersionError, NoNodeError, NotEmptyError

from sparklog.errors import MalformedZnode
from sparklog.zk import znodes
from sparklog.zk.entities import CLIENTS, ENTITY_KINDS, USERS
from sparklog.zk.znode_client import Told, ZnodeClient, readable

_logger = logging.getLogger(__name__)


class Configs:
    """The settings of topics, brokers, users, client ids and addresses."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk

    def of(self, entity: str) -> dict[str, str]:
        """The settings stored for an entity (``znodes.topic_entity`` and its neighbours)."""
        node = self._zk.read(znodes.config_path(entity))
        return {} if node is None else znodes.decode_entity_config(entity, node[0])

    def of_topic(self, topic: str) -> dict[str, str]:
        """The settings that the topic has of its own."""
        return self.of(znodes.topic_entity(topic))

    def of_topics(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """``of_topic`` of each of them; one that cannot be read is left out, and named in the log."""
        asked = [(topic, self._zk.kazoo.get_async(znodes.topic_config_path(topic))) for topic in topics]
        found = dict[str, dict[str, str]]()
        for topic, answer in asked:
            path = znodes.topic_config_path(topic)
            try:
                with readable(path):
                    found[topic] = znodes.decode_config(path, answer.get()[0])
            except NoNodeError:
                found[topic] = {}
            except MalformedZnode as error:
                _logger.error("the settings of topic %s are left alone: %s", topic, error)
        return found

    def of_kind(self, kind: str) -> dict[str, dict[str, str] | None]:
        """The settings of every entity of a kind (``entities.ENTITY_KINDS``), by its path; None for one that cannot be
        read, which is named in the log. With the users come the client ids of users.
        """
        paths = [f"{kind}/{name}" for name in self._zk.names(znodes.config_path(kind))]
        if kind == USERS:
            asked = [
                (path, self._zk.kazoo.get_children_async(znodes.config_path(f"{path}/{CLIENTS}"))) for path in paths
            ]
            for path, answer in asked:
                with suppress(NoNodeError):
                    paths += [f"{path}/{CLIENTS}/{name}" for name in sorted(answer.get())]
        return self._of_each(paths)

    def _of_each(self, entities: list[str]) -> dict[str, dict[str, str] | None]:
        asked = [(entity, self._zk.kazoo.get_async(znodes.config_path(entity))) for entity in entities]
        found = dict[str, dict[str, str] | None]()
        for entity, answer in asked:
            with suppress(NoNodeError):
                try:
                    with readable(znodes.config_path(entity)):
                        found[entity] = znodes.decode_entity_config(entity, answer.get()[0])
                except MalformedZnode as error:
                    _logger.error("stored settings are not taken over: %s", error)
                    found[entity] = None
        return found

    def update(self, entity: str, changes: Mapping[str, str | None]) -> None:
        """Set some of an entity's settings, and take away those that are None; what else it has stays as it is."""

        def change(stored: dict[str, str]) -> dict[str, str]:
            return {name: value for name, value in {**stored, **changes}.items() if value is not None}

        self.change(entity, change)

    def change(self, entity: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Store what ``change`` makes of the entity's settings and tell every broker of it, both or neither.

        ``change`` may be called again. A user, client id or address of which no setting is left goes itself.
        """
        path = znodes.config_path(entity)
        told = Told(f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}", znodes.encode_config_change(entity))
        while True:
            found = self._zk.stored(path)
            properties = change({} if found is None else znodes.decode_entity_config(entity, found.data))
            data = None if self._may_go(entity, properties) else znodes.encode_config(properties)
            if found is None and data is None:
                return
            if self._zk.exchange(path, found, data, told):
                break  # else another broker was faster: look again
        if data is None and entity.startswith(f"{USERS}/"):
            self._tidy_up_above(entity)

    def _tidy_up_above(self, entity: str) -> None:
        """Remove what stood there only for the last client id of a user, which is gone."""
        above = entity.rpartition("/")[0]
        with suppress(NoNodeError, NotEmptyError, BadVersionError):
            while above != USERS:
                node = self._zk.kazoo.get(znodes.config_path(above))
                if znodes.decode_entity_config(above, node[0]):
                    return
                self._zk.kazoo.delete(znodes.config_path(above), version=node[1].version)
                above = above.rpartition("/")[0]

    def _may_go(self, entity: str, properties: Mapping[str, str]) -> bool:
        """Whether the znode of an entity is needed no more, when it has these settings."""
        has_defaults_elsewhere = entity.partition("/")[0] in ENTITY_KINDS
        return has_defaults_elsewhere and not properties and not self._zk.names(znodes.config_path(entity))
