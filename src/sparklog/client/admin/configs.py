"""Settings of topics and brokers, features: what brokers say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from sparklog.client.admin.base import AdminBase, raise_first
from sparklog.client.cluster.arguments import checked_names
from sparklog.client.cluster.session import CONTROL
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeUserScramCredentialsRequest,
    IncrementalAlterConfigsRequest,
)
from sparklog.structs import BrokerId

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LOGGER_RESOURCE = 8
_SET, _DELETE = 0, 1
_ANY_SETTING = "cleanup.policy"
_ASIDE = "settings"
"""A lane of its own: what waits in it for ZooKeeper holds up nothing else."""
_RELEASES = {7: "1.1", 8: "2.0", 10: "2.1", 11: "2.3", 12: "2.7", 13: "3.1", 15: "3.5", 16: "3.7", 17: "3.9", 18: "4.1"}
"""The first Kafka release with this version of Fetch. No answer of the protocol names the program or its version."""
_Resource = DescribeConfigsRequest.DescribeConfigsResource
_Altered = IncrementalAlterConfigsRequest.AlterConfigsResource


class ConfigEntry(NamedTuple):
    """One setting as a broker describes it; ``source`` is Kafka's number (1 topic, 4 static broker, 5 default)."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool


class ConfigAdmin(AdminBase):
    """Topics' settings from any broker, a broker's own from itself."""

    async def topic_configs(self, name: str) -> list[ConfigEntry]:
        """Every setting of a topic, in force."""
        checked_names([name], "topics")
        return await self._configs(TOPIC_RESOURCE, name, None)

    async def topics_setting(self, names: Collection[str], setting: str) -> dict[str, str]:
        """One setting of many topics; a topic that cannot be described, since it is just deleted, is left out."""
        if not names:
            return {}
        resources = [
            _Resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[setting]) for name in names
        ]
        answer = await self._session.any_broker_request(ApiKey.DESCRIBE_CONFIGS, _describing(resources))
        return {
            each.resource_name: str(each.configs[0].value)
            for each in answer.results
            if each.error_code == 0 and each.configs
        }

    async def unread_settings(self, topic: str | None, *, timeout: float = 5.0) -> dict[BrokerId, SparklogError]:
        """The brokers that do not tell the settings of a topic within ``timeout`` seconds, and why; for None those of a
        user, where there is no topic.

        A broker asks ZooKeeper for them: so these have no ZooKeeper, where they answer otherwise.
        """
        answers: Mapping[BrokerId, object]
        if topic is None:
            names = [DescribeUserScramCredentialsRequest.UserName(name=uuid4().hex)]
            answers = await self._ask_reachable_brokers(
                ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
                lambda _: DescribeUserScramCredentialsRequest(users=names),
                timeout,
                check=lambda answer: _check_in_time((answer, *answer.results)),
                lane=_ASIDE,
            )
        else:
            resource = _Resource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_ANY_SETTING])
            answers = await self._ask_reachable_brokers(
                ApiKey.DESCRIBE_CONFIGS,
                _describing([resource]),
                timeout,
                check=lambda answer: _check_in_time(answer.results),
                lane=_ASIDE,
            )
        return {
            broker: each for broker, each in answers.items() if isinstance(each, SparklogError) and not _is_old(each)
        }

    async def broker_configs(self, broker_id: BrokerId | None) -> list[ConfigEntry]:
        """Every setting of a broker, as that broker tells it; for None what is set for all brokers at once."""
        return await self._configs(BROKER_RESOURCE, "" if broker_id is None else str(broker_id), broker_id)

    async def broker_loggers(self, broker_id: BrokerId) -> list[ConfigEntry]:
        """The level in force for each logger of a broker: TRACE, DEBUG, INFO, WARN, ERROR or FATAL."""
        return await self._configs(LOGGER_RESOURCE, str(broker_id), broker_id)

    async def _configs(self, kind: int, name: str, broker_id: BrokerId | None) -> list[ConfigEntry]:
        resource = _Resource(resource_type=kind, resource_name=name, configuration_keys=None)
        build = _describing([resource])

        def check(answer: DescribeConfigsResponse) -> None:
            raise_first(answer.results, lambda _: f"cannot describe {_title(kind, name)}")

        if broker_id is None:
            answer = await self._session.any_broker_request(ApiKey.DESCRIBE_CONFIGS, build, check=check)
        else:
            answer = await self._ask_broker(broker_id, ApiKey.DESCRIBE_CONFIGS, build, check)
        return sorted(_config_entry(each) for each in answer.results[0].configs)

    async def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set these settings of a topic, or with None go back to the default; the others stay."""
        checked_names([name], "topics")
        await self._alter(TOPIC_RESOURCE, name, changes, None, validate_only)

    async def alter_broker_configs(
        self, broker_id: BrokerId | None, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set these settings of one broker, or of all brokers for None; a value of None takes the setting back."""
        name = "" if broker_id is None else str(broker_id)
        await self._alter(BROKER_RESOURCE, name, changes, broker_id, validate_only)

    async def alter_broker_loggers(
        self, broker_id: BrokerId, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set the levels of loggers of a broker until it stops; with None the logger above decides again."""
        await self._alter(LOGGER_RESOURCE, str(broker_id), changes, broker_id, validate_only)

    async def _alter(
        self, kind: int, name: str, changes: Mapping[str, str | None], broker_id: BrokerId | None, validate_only: bool
    ) -> None:
        altered = _Altered(
            resource_type=kind,
            resource_name=name,
            configs=[
                _Altered.AlterableConfig(name=each, config_operation=_DELETE if value is None else _SET, value=value)
                for each, value in changes.items()
            ],
        )
        broker = (await self._every_broker())[0] if broker_id is None else broker_id
        await self._ask_broker(
            broker,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            lambda version: IncrementalAlterConfigsRequest(
                version=version, resources=[altered], validate_only=validate_only
            ),
            check=lambda answer: raise_first(answer.responses, lambda _: f"cannot change {_title(kind, name)}"),
        )

    async def features(self) -> dict[str, int]:
        """The features on which the cluster has settled, by their levels; none in a cluster without such."""
        broker = (await self._every_broker())[0]
        connection = await self._session.connection(broker, CONTROL)
        return dict((await connection.versions()).features)

    async def releases(self, *, timeout: float = 5.0) -> tuple[dict[BrokerId, str], dict[BrokerId, SparklogError]]:
        """The Kafka release whose protocol each broker speaks, and why the others do not tell within ``timeout`` s."""
        found: dict[BrokerId, str] = {}
        failures: dict[BrokerId, SparklogError] = {}

        async def ask(broker: BrokerId) -> None:
            try:
                async with asyncio.timeout(timeout):
                    connection = await self._session.connection(broker, CONTROL)
                    found[broker] = _release((await connection.versions()).highest(ApiKey.FETCH))
            except (SparklogError, TimeoutError) as error:
                failures[broker] = self._silence(broker, timeout, error)

        await asyncio.gather(*map(ask, await self._every_broker()))
        return found, failures


def _is_old(error: SparklogError) -> bool:
    """Whether the broker has said that it knows no such request."""
    return isinstance(error, ApiError) and error.code is ErrorCode.UNSUPPORTED_VERSION


def _check_in_time(results: Iterable[Any]) -> None:
    """Any answer will do but that ZooKeeper did not give one."""
    for each in results:
        if each.error_code == ErrorCode.REQUEST_TIMED_OUT:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, each.error_message or "")


def _describing(resources: list[_Resource]) -> Callable[[int], DescribeConfigsRequest]:
    def build(version: int) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            version=version, resources=resources, include_synonyms=False, include_documentation=False
        )

    return build


def _release(fetch_version: int) -> str:
    return next((_RELEASES[each] for each in sorted(_RELEASES, reverse=True) if each <= fetch_version), "before 1.1")


def _title(kind: int, name: str) -> str:
    if kind == LOGGER_RESOURCE:
        return f"the loggers of broker {name}"
    return "all brokers" if kind == BROKER_RESOURCE and not name else repr(name)


def _config_entry(each: DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(each.name, each.value, each.config_source, each.read_only, each.is_sensitive)
