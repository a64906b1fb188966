"""The options of a query as Spark hands them over: text under lower-case keys."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import ConfigError, DataSourceError
from sparklog.registry.setting_names import is_of_registry
from sparklog.spark.options.definition import Option, Use, invalid, option_fields, unsupported
from sparklog.spark.options.table import (
    BOOTSTRAP_SERVERS,
    CLIENT_PREFIX,
    OPTIONS,
    POLL_TIMEOUT_MS,
    REFUSED_SETTINGS,
    TASK_TOKEN,
)

_log = logging.getLogger(__name__)
T = TypeVar("T")


class RawOptions:
    """Text by option name, looked up without regard to case; ``value`` parses it as the table says."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {key.lower(): value for key, value in options.items()}

    def has(self, option: Option[object]) -> bool:
        return option.name.lower() in self._options

    def text(self, option: Option[object]) -> str | None:
        """The text of an option as it was given; None where it was not."""
        return self._options.get(option.name.lower())

    def value(self, option: Option[T], use: Use = Use.BATCH_READ) -> T:
        """The option's value, or its default in a query of this use. Raises DataSourceError for a text that is none."""
        text = self.text(option)
        return option.default_for(use) if text is None else option.parse(text)

    def fields_of(self, cls: type) -> dict[str, Any]:
        """The values of the fields of ``cls`` that are options. Raises DataSourceError."""
        return {attribute: self.value(option) for attribute, option in option_fields(cls).items()}

    def kafka(self) -> dict[str, str]:
        """The client's settings: what starts with ``kafka.``, without that."""
        return {
            key[len(CLIENT_PREFIX) :]: value for key, value in self._options.items() if key.startswith(CLIENT_PREFIX)
        }

    def registry(self) -> dict[str, str]:
        """The settings of a schema registry, by the names that Kafka's serializers give to them."""
        return {key: value for key, value in self._options.items() if is_of_registry(key)}

    def refuse_elsewhere(self, use: Use) -> None:
        """Raises DataSourceError for an option that a query of this use must not have."""
        for option in _without(use):
            if option.elsewhere is not None and self.has(option):
                raise unsupported(option.name, option.elsewhere)

    def warn_of_stream_options(self) -> None:
        """Log the options that only a streaming read obeys."""
        for option in _without(Use.BATCH_READ):
            if self.has(option):
                _log.warning("option '%s' means nothing to a batch query", option.name)

    def warn_of_unknown(self) -> None:
        """Log the names that look like misspelled ones; others may be another layer's."""
        known = {each.name.lower(): each.name for each in OPTIONS if not each.name.startswith(CLIENT_PREFIX)}
        for key in sorted(self._options.keys() - known.keys()):
            near = difflib.get_close_matches(key, known, n=1)
            if not key.startswith(CLIENT_PREFIX) and near:
                _log.warning("option '%s' is not known; did you mean '%s'?", key, known[near[0]])


def _without(use: Use) -> list[Option[object]]:
    """The options of queries of the same direction, reading or writing, that this use has not."""
    direction = Use.READ if use in Use.READ else Use.WRITE
    return [each for each in OPTIONS if each.uses & direction and not each.uses & use]


def client_config(raw: RawOptions, use: Use, also: Collection[Option[object]] = ()) -> ClientConfig:
    """The client's settings, without those of ``also``, which only look like them.

    Raises DataSourceError for a setting that queries of this use refuse, or that the client does.
    """
    own = {each.name.removeprefix(CLIENT_PREFIX) for each in also}
    properties = {name: text for name, text in raw.kafka().items() if name not in own}
    for each in REFUSED_SETTINGS:
        if each.uses & use and each.name in properties:
            raise unsupported(f"{CLIENT_PREFIX}{each.name}", each.advice)
    if not properties.get("bootstrap.servers", "").strip():
        raise DataSourceError(
            "SPARKLOG_MISSING_OPTION", f"option '{BOOTSTRAP_SERVERS.name}' is required: host:port,host:port"
        )
    timeout = raw.value(POLL_TIMEOUT_MS)
    if timeout is not None:
        properties.setdefault("default.api.timeout.ms", str(timeout))
    try:
        config = ClientConfig.from_properties(properties)
    except ConfigError as error:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", f"option {CLIENT_PREFIX}{error}") from error
    check_task_token(config, raw.value(TASK_TOKEN))
    return config


def check_task_token(config: ClientConfig, lifetime_ms: int | None) -> None:
    """Raises DataSourceError for a token that tasks could not show; ``lifetime_ms`` is how long it is to last."""
    if lifetime_ms is not None and not config.has_sasl:
        why = f"tokens are shown by SASL, and security.protocol is {config.security_protocol}"
        raise invalid(TASK_TOKEN.name, TASK_TOKEN.kind.format(lifetime_ms), why)
