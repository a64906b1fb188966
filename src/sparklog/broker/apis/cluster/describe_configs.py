"""DescribeConfigs: the settings of topics, of this broker, of all brokers and of loggers, with where each comes from.

A resource at a time, so that others are served in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling import loggers
from sparklog.broker.handling.config_alteration import (
    BROKER,
    BROKER_LOGGER,
    TOPIC,
    check_own_loggers,
    check_settings,
)
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import ConfigType, Definition, definitions
from sparklog.config.dynamic import DYNAMIC_DEFINITIONS, TOPIC_DEFINITIONS, Source, Synonym
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.files import check_topic_name
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from sparklog.security.access import Operation

API = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(0, 5)
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult
_BROKER_DEFINITIONS = {name: each for name, (_, each) in definitions(BrokerConfig).items()} | DYNAMIC_DEFINITIONS


async def handle(broker: BrokerContext, request: ApiRequest[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    message = request.message
    times = Counter((each.resource_type, each.resource_name) for each in message.resources)
    entries, results = _Entries(message), []
    async for resource in broker.turns.paced(message.resources):
        code, text, configs = ErrorCode.NONE, "", []
        try:
            if times[resource.resource_type, resource.resource_name] > 1:  # or a short request had a huge answer
                raise ApiError(ErrorCode.INVALID_REQUEST, "each resource must stand in the request once only")
            check_settings(broker, request, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            configs = await _describe(broker, resource, entries)
        except ApiError as error:
            code, text = error.code, error.reason
        results.append(
            _Result(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


async def _describe(
    broker: BrokerContext, resource: DescribeConfigsRequest.DescribeConfigsResource, entries: _Entries
) -> list[_Entry]:
    layers, name = broker.settings.layers, resource.resource_name
    if resource.resource_type == BROKER_LOGGER:
        check_own_loggers(broker, name)
        return _levels(resource.configuration_keys)
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        if broker.metadata.topic(name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        own = await broker.run_zk(broker.zk.configs.of_topic, name)
        table, found = TOPIC_DEFINITIONS, {each: layers.of_topic(each, own) for each in TOPIC_DEFINITIONS}
    elif resource.resource_type == BROKER:
        if name not in ("", str(broker.config.broker_id)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.config.broker_id}, ask that one itself")
        table, found = _BROKER_DEFINITIONS, {each: layers.of_broker(each) for each in _BROKER_DEFINITIONS}
        if not name:
            found = _only_of_cluster(found)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings here")
    wanted = set(resource.configuration_keys or found)  # to name none is to name all, as in Kafka
    fixed = resource.resource_type == BROKER
    return [
        entries.of(each, table[each], synonyms, read_only=fixed and each not in DYNAMIC_DEFINITIONS)
        for each, synonyms in found.items()
        if each in wanted and synonyms
    ]


def _levels(names: Sequence[str] | None) -> list[_Entry]:
    """Kafka gives them neither a type nor documentation, and a source of their own."""
    return [
        _Entry(name=name, value=level, read_only=False, config_source=Source.BROKER_LOGGER, synonyms=[])
        for name, level in loggers.levels().items()
        if not names or name in names
    ]


def _only_of_cluster(found: dict[str, list[Synonym]]) -> dict[str, list[Synonym]]:
    """What every broker has by default: the settings stored for all of them, and nothing else."""
    return {name: [each for each in synonyms if each.source is Source.CLUSTER] for name, synonyms in found.items()}


class _Entries:
    """Settings as they are told; what is the same for many resources is one message."""

    def __init__(self, asked: DescribeConfigsRequest) -> None:
        self._asked = asked
        self._made: dict[tuple[object, ...], _Entry] = {}

    def of(self, name: str, definition: Definition, synonyms: list[Synonym], *, read_only: bool) -> _Entry:
        """One setting; ``synonyms`` from the one in force down to the default."""
        key = (name, read_only, *synonyms)
        if key not in self._made:
            self._made[key] = self._make(name, definition, synonyms, read_only=read_only)
        return self._made[key]

    def _make(self, name: str, definition: Definition, synonyms: list[Synonym], *, read_only: bool) -> _Entry:
        is_secret = definition.kind is ConfigType.PASSWORD
        described = [
            _Entry.DescribeConfigsSynonym(name=each.name, value=None if is_secret else each.text, source=each.source)
            for each in synonyms
        ]
        return _Entry(
            name=name,
            value=None if is_secret else synonyms[0].text,
            read_only=read_only,
            config_source=synonyms[0].source,
            is_default=synonyms[0].source is Source.DEFAULT,
            is_sensitive=is_secret,
            synonyms=described if self._asked.include_synonyms else [],
            config_type=definition.kind,
            documentation=definition.doc if self._asked.include_documentation else None,
        )
