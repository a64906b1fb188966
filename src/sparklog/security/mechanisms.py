"""The mechanisms of SASL by their names, made from Kafka's settings: ``sasl.jaas.config``, ``sasl.oauthbearer.*`` and
``sasl.kerberos.*``.

Some of the last say when and how Kafka's clients get tickets anew (``sasl.kerberos.kinit.cmd``,
``sasl.kerberos.ticket.renew.*``, ``sasl.kerberos.min.time.before.relogin``). They are taken, and change nothing: the
library does that by itself.

Errors name settings and options, never their values.
"""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sparklog.clock import Clock
from sparklog.errors import ConfigError
from sparklog.security.oauth.claims import ClaimRules
from sparklog.security.oauth.http import check_url, fetch
from sparklog.security.oauth.login import ClientCredentials, KeptToken, TokenFile
from sparklog.security.oauth.unsecured import (
    LOGIN_PREFIX,
    VALIDATOR_PREFIX,
    UnsecuredLogin,
    UnsecuredValidator,
    unsecured_extensions,
)
from sparklog.security.sasl.gssapi import GSSAPI_NAME, Gssapi, GssapiServer
from sparklog.security.sasl.jaas import option, options_of
from sparklog.security.sasl.kerberos import acceptor, default_realm, initiator
from sparklog.security.sasl.kerberos_name import RULES_SETTING, ShortNames
from sparklog.security.sasl.mechanism import Mechanism, ServerConversation
from sparklog.security.sasl.oauthbearer import OAUTHBEARER_NAME, OAuthBearer, OAuthBearerServer, Validator
from sparklog.security.sasl.plain import PLAIN_NAME, Plain, PlainServer, PlainUsers
from sparklog.security.sasl.scram import TOKEN_AUTH, Scram, ScramServer, ScramSource
from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS

MECHANISMS: Final = (*SCRAM_MECHANISMS, PLAIN_NAME, OAUTHBEARER_NAME, GSSAPI_NAME)
"""Those that there are, the best first."""
JAAS: Final = "sasl.jaas.config"
_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_OF_KAFKA = "org.apache.kafka.common.security.oauthbearer."
_LOGIN_HANDLERS = tuple(f"{_OF_KAFKA}{each}OAuthBearerLoginCallbackHandler" for each in ("", "secured."))
_VALIDATOR_HANDLERS = tuple(f"{_OF_KAFKA}{each}OAuthBearerValidatorCallbackHandler" for each in ("", "secured."))
_EXTENSION = "extension_"
_SERVICE, _SERVICE_OPTION = "sasl.kerberos.service.name", "serviceName"

Settings = Mapping[str, str]


@dataclass(frozen=True)
class ServerMechanism:
    """What a listener has of a mechanism: ``begin`` makes a conversation, ``close`` ends what runs for it."""

    name: str
    begin: Callable[[], ServerConversation]
    close: Callable[[], None] = lambda: None


def check_mechanism(name: str) -> None:
    """Raises ConfigError for a mechanism that there is not."""
    if name not in MECHANISMS:
        raise ConfigError(f"there is no SASL mechanism {name!r}; there are {', '.join(MECHANISMS)}")


def settings_of(of_listener: Settings, mechanism: str) -> dict[str, str]:
    """A listener's settings for one mechanism: ``MECHANISM.NAME``, in small letters, counts before ``NAME``."""
    prefix = f"{mechanism.lower()}."
    return {**of_listener} | {
        name.removeprefix(prefix): value for name, value in of_listener.items() if name.startswith(prefix)
    }


def client_mechanism(name: str, settings: Settings, clock: Clock) -> Mechanism:
    """What a client does for the mechanism. Raises ConfigError."""
    check_mechanism(name)
    options = options_of(_jaas(settings, name), name)
    if name == OAUTHBEARER_NAME:
        return _oauthbearer(options, settings, clock)
    if name == GSSAPI_NAME:
        return Gssapi(initiator(options, _service(options, settings)))
    user, password = (option(options, each, name) for each in ("username", "password"))
    if name == PLAIN_NAME:
        return Plain(user, password)
    return Scram(SCRAM_MECHANISMS[name], user, password, is_token=_is_token(options))


def token_id_of(name: str, settings: Settings) -> str | None:
    """Of the delegation token that a client of the mechanism shows; None where it shows something else.

    Raises ConfigError for a text that names no login.
    """
    if name not in SCRAM_MECHANISMS:
        return None
    options = options_of(_jaas(settings, name), name)
    return options.get("username") if _is_token(options) else None


def _is_token(options: Mapping[str, str]) -> bool:
    return options.get(TOKEN_AUTH, "").lower() == "true"


def server_mechanism(
    name: str,
    settings: Settings,
    scram: ScramSource,
    clock: Clock,
    refused: Callable[[str], None] = lambda _: None,
) -> ServerMechanism:
    """A broker's end of the mechanism, with the settings of its listener (``settings_of``); ``refused`` is told why
    tokens and tickets are not believed. Reads the keys of an issuer where there is one. Raises ConfigError.
    """
    check_mechanism(name)
    if name in SCRAM_MECHANISMS:
        return ServerMechanism(name, partial(ScramServer, SCRAM_MECHANISMS[name], scram))
    if name == PLAIN_NAME:
        users = PlainUsers(options_of(_jaas(settings, name), name))
        return ServerMechanism(name, partial(PlainServer, users))
    if name == GSSAPI_NAME:
        accept = acceptor(options_of(_jaas(settings, name), name))
        user_of = ShortNames(default_realm(), settings.get(RULES_SETTING, "DEFAULT"))
        return ServerMechanism(name, lambda: GssapiServer(accept(), user_of, refused))
    validate, close = _validator(settings, clock)
    return ServerMechanism(name, partial(OAuthBearerServer, validate, refused), close)


def _jaas(settings: Settings, mechanism: str) -> str:
    if not settings.get(JAAS):
        raise ConfigError(f"{JAAS} must be given for mechanism {mechanism}")
    return settings[JAAS]


def _service(options: Settings, settings: Settings) -> str:
    """The first component of the brokers' principals."""
    told = {each for each in (options.get(_SERVICE_OPTION), settings.get(_SERVICE)) if each}
    if not told:
        raise ConfigError(
            f"{GSSAPI_NAME} needs {_SERVICE}: the first part of the brokers' principals, most often kafka"
        )
    if len(told) > 1:
        raise ConfigError(f"{_SERVICE} and the option {_SERVICE_OPTION} of {JAAS} are not the same")
    return told.pop()


def _oauthbearer(options: Settings, settings: Settings, clock: Clock) -> OAuthBearer:
    _check_handler(settings, "sasl.login.callback.handler.class", _LOGIN_HANDLERS)
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    if _TOKEN_URL in settings:
        return OAuthBearer(_login(options, settings, clock), extensions)
    if "token" in options:
        return OAuthBearer(lambda: options["token"], extensions)
    if any(each.startswith(LOGIN_PREFIX) for each in options):
        return OAuthBearer(UnsecuredLogin(options, clock), unsecured_extensions(options))
    raise ConfigError(f"OAUTHBEARER needs {_TOKEN_URL}, or the option token of {JAAS}")


def _login(options: Settings, settings: Settings, clock: Clock) -> Callable[[], str]:
    url = settings[_TOKEN_URL]
    path = _path(url)
    if path is not None:
        return TokenFile(path)
    check_url(_TOKEN_URL, url)
    timeout = (
        max(whole_number(settings, f"sasl.login.{each}.timeout.ms", 10_000) for each in ("connect", "read")) / 1000
    )
    tls = _trust(options)
    credentials = ClientCredentials(
        option(options, "clientId", OAUTHBEARER_NAME),
        option(options, "clientSecret", OAUTHBEARER_NAME),
        options.get("scope", ""),
        lambda body, headers: fetch(url, body=body, headers=headers, timeout=timeout, tls=tls),
        clock,
        settings.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true",
    )
    patience = whole_number(settings, "sasl.login.retry.backoff.max.ms", 10_000) / 1000
    return KeptToken(credentials, clock, patience, whole_number(settings, "sasl.login.retry.backoff.ms", 100) / 1000)


def _validator(settings: Settings, clock: Clock) -> tuple[Validator, Callable[[], None]]:
    _check_handler(settings, "sasl.server.callback.handler.class", _VALIDATOR_HANDLERS)
    options = options_of(settings[JAAS], OAUTHBEARER_NAME) if settings.get(JAAS) else {}
    url = settings.get(_JWKS_URL, "")
    if not url:
        if not any(each.startswith((LOGIN_PREFIX, VALIDATOR_PREFIX)) for each in options):
            raise ConfigError(
                f"OAUTHBEARER needs {_JWKS_URL}; to take tokens that nobody has signed, for tests alone, give"
                f" the option {VALIDATOR_PREFIX}PrincipalClaimName of {JAAS}"
            )
        return UnsecuredValidator(options, clock), lambda: None

    from sparklog.security.oauth.signed import IssuerKeys, KeyRefresher, SignedValidator

    pause = whole_number(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000) / 1000
    keys = IssuerKeys(_key_reader(url, options), clock, pause)
    refresher = KeyRefresher(
        keys, whole_number(settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000) / 1000
    )
    return SignedValidator(keys, _rules(settings), clock), refresher.close


def _key_reader(url: str, options: Settings) -> Callable[[], bytes]:
    path = _path(url)
    if path is not None:
        return path.read_bytes
    check_url(_JWKS_URL, url)
    return partial(fetch, url, tls=_trust(options))


def _rules(settings: Settings) -> ClaimRules:
    audiences = settings.get("sasl.oauthbearer.expected.audience", "").split(",")
    return ClaimRules(
        settings.get("sasl.oauthbearer.sub.claim.name", "sub"),
        settings.get("sasl.oauthbearer.scope.claim.name", "scope"),
        whole_number(settings, "sasl.oauthbearer.clock.skew.seconds", 30) * 1000,
        settings.get("sasl.oauthbearer.expected.issuer") or None,
        frozenset(each.strip() for each in audiences if each.strip()),
        needs_issue_time=True,
    )


def _check_handler(settings: Settings, name: str, known: tuple[str, ...]) -> None:
    """Kafka's own handlers are named by their classes; what they do is decided by the other settings."""
    if settings.get(name) and settings[name] not in known:
        raise ConfigError(f"{name} must be {known[0]} or not be set: no Java is run here")


def whole_number(settings: Settings, name: str, default: int) -> int:
    """A setting that is a number from 0. Raises ConfigError."""
    text = settings.get(name, str(default)).strip()
    if not text.isdecimal():
        raise ConfigError(f"{name} must be a whole number, not negative")
    return int(text)


def _path(url: str) -> Path | None:
    """Of a ``file:`` URL."""
    parts = urlsplit(url)
    return Path(urllib.request.url2pathname(parts.path)) if parts.scheme == "file" else None


def _trust(options: Settings) -> ssl.SSLContext | None:
    """Whose certificates an issuer's server may have, if the login module says so."""
    path = options.get("ssl.truststore.location")
    if path is None:
        return None
    if options.get("ssl.truststore.type", "").upper() != "PEM":
        raise ConfigError("the options ssl.truststore.* for an issuer take a file in PEM: ssl.truststore.type='PEM'")
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError):
        raise ConfigError("the option ssl.truststore.location names no file with certificates in PEM") from None
