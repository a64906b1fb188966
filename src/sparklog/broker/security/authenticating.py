"""What the listeners with SASL ask of their peers, by the broker's settings.

``sasl.enabled.mechanisms`` says which mechanisms a listener has; each has its settings for all listeners, for one, or
for itself on one. Kafka enables GSSAPI where nothing is said; here a listener must name its own.

The credentials of SCRAM are users' settings in ZooKeeper. They are kept in memory, where an authentication finds them;
a credential that cannot be read lets nobody in. Delegation tokens are found in memory too, where the broker has any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from sparklog.broker.security.tokens import DelegationTokens
from sparklog.clock import Clock
from sparklog.config.listeners import Listener
from sparklog.errors import ConfigError
from sparklog.net.authentication import SaslGate, SaslTerms
from sparklog.security.caller import Caller, Gate
from sparklog.security.mechanisms import MECHANISMS, ServerMechanism, server_mechanism, settings_of, whole_number
from sparklog.security.principal_builder import PrincipalBuilder, builder_of_listener
from sparklog.security.sasl.scram import ScramSource, TokenOwner
from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS, ScramCredential
from sparklog.zk.entities import USERS, parts

_logger = logging.getLogger(__name__)
_ENABLED = "sasl.enabled.mechanisms"
_MAX_SIZE = "sasl.server.max.receive.size"
_MAX_REAUTH = "connections.max.reauth.ms"
_FAILURE_DELAY = "connection.failed.authentication.delay.ms"


class ScramCredentials:
    """Of all users, by mechanism and name; empty until ZooKeeper has been read."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], ScramCredential] = {}

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential; None for a user that has none."""
        return self._found.get((mechanism, user))

    def take_over(self, entity: str, properties: Mapping[str, str]) -> None:
        """These are the settings of the entity now."""
        try:
            found = parts(entity)
        except ConfigError:  # somebody has put it there who is not Kafka
            return
        if len(found) != 1 or found[0].kind != USERS or found[0].name is None:
            return
        for mechanism in SCRAM_MECHANISMS:
            key = mechanism, found[0].name
            self._found.pop(key, None)
            if mechanism in properties:
                try:
                    self._found[key] = ScramCredential.parse(properties[mechanism])
                except ConfigError as error:
                    _logger.error("user %r cannot come by %s: %s", found[0].name, mechanism, error)


class Gates:
    """Makes the gates of a broker's connections. ``warn`` tells the log of an authentication that has failed."""

    def __init__(self, builder: PrincipalBuilder, clock: Clock, warn: Callable[[str], None]) -> None:
        self.credentials = ScramCredentials()
        self.tokens: DelegationTokens | None = None
        """None until they are read, and where there are none."""
        self._builder = builder
        self._scram = ScramSource(self.credentials.find, self._find_token)
        self._clock = clock
        self._warn = warn
        self._mechanisms: list[ServerMechanism] = []

    def of_listener(self, listener: Listener, settings: Mapping[str, str]) -> Callable[[Caller], Gate]:
        """What makes the gate of each connection of a listener, by its settings. Raises ConfigError."""
        names = [each for each in map(str.strip, settings.get(_ENABLED, "").split(",")) if each]
        if not names:
            raise ConfigError(
                f"listener {listener.name} has SASL and no mechanism: set {_ENABLED} to some of {', '.join(MECHANISMS)}"
            )
        mechanisms = [self._mechanism(listener, settings, name) for name in names]
        terms = SaslTerms(
            {each.name: each.begin for each in mechanisms},
            self._clock,
            self._warn,
            max_size=whole_number(settings, _MAX_SIZE, 524_288),
            max_reauth_ms={each: whole_number(settings_of(settings, each), _MAX_REAUTH, 0) for each in names},
            failure_delay_s=whole_number(settings, _FAILURE_DELAY, 100) / 1000,
            builder=builder_of_listener(listener.name, settings, self._builder),
            token_stands=self._token_stands,
        )
        return lambda caller: SaslGate(terms, caller)

    def _mechanism(self, listener: Listener, settings: Mapping[str, str], name: str) -> ServerMechanism:
        try:
            mechanism = server_mechanism(name, settings_of(settings, name), self._scram, self._clock, self._warn)
        except ConfigError as error:
            raise ConfigError(f"listener {listener.name}: {error}") from error
        self._mechanisms.append(mechanism)
        return mechanism

    def _find_token(self, mechanism: str, token_id: str) -> TokenOwner | None:
        return None if self.tokens is None else self.tokens.find(mechanism, token_id)

    def _token_stands(self, token_id: str) -> bool:
        return self.tokens is not None and self.tokens.stands(token_id)

    def close(self) -> None:
        """End what runs for the mechanisms."""
        for each in self._mechanisms:
            each.close()
