"""What AlterConfigs and IncrementalAlterConfigs share: whose settings, which are allowed, and where they go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling import loggers
from sparklog.broker.handling.authorization import check
from sparklog.broker.handling.permissions import check_settings_keep_state
from sparklog.config.broker import check_cleaner
from sparklog.config.dynamic import (
    DYNAMIC_DEFINITIONS,
    TOPIC_DEFINITIONS,
    Change,
    Operation,
    apply_changes,
    check_dynamic,
)
from sparklog.config.topic import check_together, parse_stored
from sparklog.errors import ApiError, ConfigError, CoordinationError, ErrorCode
from sparklog.protocol.messages import AlterConfigsResponse, IncrementalAlterConfigsResponse
from sparklog.protocol.slices import Steps
from sparklog.replica.policies import check_installed
from sparklog.security import access
from sparklog.zk.znodes import CLUSTER_ENTITY, broker_entity, topic_entity

TOPIC, BROKER, BROKER_LOGGER, _CLIENT_METRICS = 2, 4, 8, 16
"""Kafka's numbers for what has settings (``ConfigResource.java``)."""
_OF_CLUSTER = (BROKER, BROKER_LOGGER, _CLIENT_METRICS)
"""Those to which a right on the cluster is one."""

_OPERATIONS = frozenset(Operation)
_OF_CLEANER = ("log.cleaner.threads", "log.cleaner.dedupe.buffer.size")
_OF_STRATEGY = ("log.cleaner.compaction.strategy", "log.cleaner.compaction.strategy.header")
_POLICIES = "sparklog.retention.policies"
R = TypeVar("R", AlterConfigsResponse, IncrementalAlterConfigsResponse)


class Resource(NamedTuple):
    """What a request has changed of one resource: its settings as the wire has them (name, operation, value)."""

    kind: int
    name: str
    changes: Sequence[tuple[str, int, str | None]]


class Asked(NamedTuple):
    """The same, if it makes sense; ``afresh``: what is stored now counts for nothing."""

    kind: int
    name: str
    changes: list[Change]
    afresh: bool = False


class Outcome(NamedTuple):
    """What became of it."""

    code: ErrorCode
    message: str | None


def check_settings(
    broker: BrokerContext, request: ApiRequest[Any], operation: access.Operation, kind: int, name: str
) -> None:
    """Raises ApiError if the caller may not do so with the settings; what has none needs no right, and is refused."""
    if kind == TOPIC:
        check(broker, request, operation, access.Resource(access.ResourceType.TOPIC, name))
    elif kind in _OF_CLUSTER:
        check(broker, request, operation)


def altered(
    broker: BrokerContext,
    request: ApiRequest[Any],
    resources: Iterable[Resource],
    response: type[R],
    *,
    afresh: bool,
    validate_only: bool,
) -> Steps[Awaitable[R]]:
    """Understand what is asked in steps, a setting each, and then do it; ``response`` is the class of the answer."""
    keys, asked = [], []
    for each in resources:
        keys.append((each.kind, each.name))
        asked.append((yield from _asked_for(*each, afresh=afresh)))
        yield
    return _answer(broker, request, asked, keys, response, validate_only=validate_only)


async def _answer(
    broker: BrokerContext,
    request: ApiRequest[Any],
    asked: list[Asked | ApiError],
    keys: list[tuple[int, str]],
    response: type[R],
    *,
    validate_only: bool,
) -> R:
    outcomes = await _alter_each(broker, request, asked, keys, validate_only=validate_only)
    result = response.AlterConfigsResourceResponse
    results = [
        result(error_code=outcome.code, error_message=outcome.message, resource_type=kind, resource_name=name)
        async for (kind, name), outcome in broker.turns.paced(zip(keys, outcomes, strict=True))
    ]
    return response(throttle_time_ms=0, responses=results)


async def _alter_each(
    broker: BrokerContext,
    request: ApiRequest[Any],
    resources: list[Asked | ApiError],
    keys: list[tuple[int, str]],
    *,
    validate_only: bool,
) -> list[Outcome]:
    """Change the settings of each resource, or say why not; ``keys`` name them all, in the same order."""
    times = Counter(keys)
    outcomes = []
    async for asked, key in broker.turns.paced(zip(resources, keys, strict=True)):
        try:
            if isinstance(asked, ApiError):
                raise asked
            if times[key] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "each resource must stand in the request once only")
            check_settings(broker, request, access.Operation.ALTER_CONFIGS, *key)
            await _alter(broker, asked, validate_only=validate_only)
            outcomes.append(Outcome(ErrorCode.NONE, None))
        except ApiError as error:
            outcomes.append(Outcome(error.code, error.reason))
    return outcomes


def _asked_for(
    kind: int, name: str, changes: Sequence[tuple[str, int, str | None]], *, afresh: bool
) -> Steps[Asked | ApiError]:
    """A resource of a request, if it makes sense; a setting a step."""
    if afresh and kind == BROKER_LOGGER:
        text = "AlterConfigs does not change the levels of loggers: IncrementalAlterConfigs does"
        return ApiError(ErrorCode.INVALID_REQUEST, text)
    twice = sorted(key for key, times in Counter(each for each, _, _ in changes).items() if times > 1)
    if twice:
        return ApiError(ErrorCode.INVALID_REQUEST, f"these settings stand there twice: {', '.join(twice)}")
    understood = []
    for key, operation, value in changes:
        yield
        if operation not in _OPERATIONS:
            return ApiError(ErrorCode.INVALID_REQUEST, f"{key}: there is no operation {operation}")
        if value is None and operation != Operation.DELETE:
            return ApiError(ErrorCode.INVALID_REQUEST, f"{key} needs a value")
        understood.append(Change(key, Operation(operation), value or ""))
    return Asked(kind, name, understood, afresh)


def check_own_loggers(broker: BrokerContext, name: str) -> None:
    """Raises ApiError unless the resource of loggers has this broker's id for its name."""
    if name != str(broker.config.broker_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"these are the loggers of broker {broker.config.broker_id}, not of {name!r}"
        )


async def _alter(broker: BrokerContext, asked: Asked, *, validate_only: bool) -> None:
    if asked.kind == BROKER_LOGGER:
        check_own_loggers(broker, asked.name)
        loggers.change_levels(asked.changes, validate_only=validate_only)
        return
    entity, change = _target(broker, asked)
    if validate_only:
        change(await broker.run_zk(broker.zk.configs.of, entity))
        return
    await broker.run_zk(broker.zk.configs.change, entity, change)
    with suppress(CoordinationError):  # it is stored; this broker will follow as the others do
        await broker.settings.take_over(entity)


def _target(broker: BrokerContext, asked: Asked) -> tuple[str, Callable[[dict[str, str]], dict[str, str]]]:
    """Where the settings are stored, and what is to be made of those stored there."""
    if asked.kind == TOPIC:
        if not asked.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "topics have no settings in common: name one")
        if broker.metadata.topic(asked.name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}")
        return topic_entity(asked.name), _change_of_topic(asked, broker)
    if asked.kind == BROKER:
        return _broker_entity(broker, asked.name), _change_of_broker(asked, broker)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {asked.kind} has no settings that change here")


def _broker_entity(broker: BrokerContext, name: str) -> str:
    if name and name != str(broker.config.broker_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.config.broker_id}, ask {name} itself")
    return broker_entity(broker.config.broker_id) if name else CLUSTER_ENTITY


def _change_of_topic(asked: Asked, broker: BrokerContext) -> Callable[[dict[str, str]], dict[str, str]]:
    def change(stored: dict[str, str]) -> dict[str, str]:
        try:
            changed = apply_changes({} if asked.afresh else stored, asked.changes, TOPIC_DEFINITIONS)
            config = parse_stored(asked.name, changed, broker.settings.topic_defaults)
            check_together(config)
            if stored.get(_POLICIES) != changed.get(_POLICIES):
                check_installed(config.retention_policies)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        check_settings_keep_state(broker.config, asked.name, stored, changed)
        return changed

    return change


def _change_of_broker(asked: Asked, broker: BrokerContext) -> Callable[[dict[str, str]], dict[str, str]]:
    def change(stored: dict[str, str]) -> dict[str, str]:
        try:
            check_dynamic(each.name for each in asked.changes if each.operation is not Operation.DELETE)
            changed = apply_changes({} if asked.afresh else stored, asked.changes, DYNAMIC_DEFINITIONS)
            layers, names = broker.settings.layers, {each.name for each in asked.changes}
            then = replace(layers, broker=changed) if asked.name else replace(layers, cluster=changed)
            if names & set(_OF_CLEANER):
                check_cleaner(then.in_force)
            if names & set(_OF_STRATEGY):
                check_together(then.topic_defaults)
            return changed
        except ConfigError as error:  # Kafka's code for brokers, whatever is wrong
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error

    return change
