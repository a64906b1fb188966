"""DescribeConfigs: the settings of topics and of this broker, with where each comes from."""

from __future__ import annotations

from typing import Any

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import Definition, definitions
from sparklog.config.topic import TopicConfig, parse_stored
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeConfigsResponse, Message

API = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(1, 5)
_TOPIC, _BROKER = 2, 4
_SOURCE_TOPIC, _SOURCE_STATIC_BROKER, _SOURCE_DEFAULT = 1, 4, 5
_Result = DescribeConfigsResponse.DescribeConfigsResult


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    results = []
    for resource in request.message.resources:
        code, text, configs = ErrorCode.NONE, None, []
        try:
            configs = await _describe(broker, resource, request.message)
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


async def _describe(broker: BrokerContext, resource: Message, asked: Message) -> list[Message]:
    wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
    if resource.resource_type == _TOPIC:
        if broker.metadata.topic(resource.resource_name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.resource_name!r}")
        properties = await broker.run_zk(broker.zk.topic_config, resource.resource_name)
        return _describe_topic(broker, resource.resource_name, properties, wanted, asked)
    if resource.resource_type == _BROKER:
        if resource.resource_name not in ("", str(broker.config.broker_id)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.config.broker_id}, ask that one itself")
        return _describe_broker(broker, wanted, asked)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings here")


def _describe_topic(
    broker: BrokerContext, topic: str, properties: dict[str, str], wanted: set[str] | None, asked: Message
) -> list[Message]:
    defaults = broker.config.topic_defaults
    effective = parse_stored(topic, properties, defaults)
    entries = []
    for name, (attribute, definition) in definitions(TopicConfig).items():
        if wanted is not None and name not in wanted:
            continue
        synonyms = []
        if name in properties:
            synonyms.append((name, getattr(effective, attribute), _SOURCE_TOPIC))
        broker_name = definition.broker_synonym or name
        if getattr(defaults, attribute) != definition.default:
            synonyms.append((broker_name, getattr(defaults, attribute), _SOURCE_STATIC_BROKER))
        synonyms.append((broker_name, definition.default, _SOURCE_DEFAULT))
        entries.append(_entry(definition, synonyms, asked, read_only=False))
    return entries


def _describe_broker(broker: BrokerContext, wanted: set[str] | None, asked: Message) -> list[Message]:
    tables: tuple[tuple[type, Any], ...] = (
        (BrokerConfig, broker.config),
        (TopicConfig, broker.config.topic_defaults),
    )
    entries = []
    for cls, instance in tables:
        for own_name, (attribute, definition) in definitions(cls).items():
            name = definition.broker_synonym or own_name
            if wanted is not None and name not in wanted:
                continue
            value = getattr(instance, attribute)
            synonyms = [(name, definition.default, _SOURCE_DEFAULT)]
            if value != definition.default:
                synonyms.insert(0, (name, value, _SOURCE_STATIC_BROKER))
            entries.append(_entry(definition, synonyms, asked, read_only=True, name=name))
    return entries


def _entry(
    definition: Definition, synonyms: list[tuple[str, Any, int]], asked: Message, *, read_only: bool, name: str = ""
) -> Message:
    """One setting; ``synonyms`` from the one in force down to the default."""
    _, value, source = synonyms[0]
    described = [
        _Result.DescribeConfigsResourceResult.DescribeConfigsSynonym(
            name=other, value=definition.format(each), source=where
        )
        for other, each, where in synonyms
    ]
    return _Result.DescribeConfigsResourceResult(
        name=name or definition.name,
        value=definition.format(value),
        read_only=read_only,
        config_source=source,
        is_sensitive=False,
        synonyms=described if asked.include_synonyms else [],
        config_type=definition.kind,
        documentation=definition.doc if asked.include_documentation else None,
    )
