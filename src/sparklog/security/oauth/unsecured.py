"""Tokens without a signature (RFC 7515, appendix A.5), which prove nothing: for trying things out.

Both ends are set up by options of the login module, as in Kafka (``OAuthBearerUnsecuredLoginCallbackHandler.java``,
``OAuthBearerUnsecuredValidatorCallbackHandler.java``).
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

from sparklog.clock import Clock
from sparklog.errors import ConfigError
from sparklog.security.oauth.claims import ClaimRules
from sparklog.security.sasl.oauthbearer import TokenRefused, ValidToken

LOGIN_PREFIX = "unsecuredLogin"
VALIDATOR_PREFIX = "unsecuredValidator"
_EXTENSION = "unsecuredLoginExtension_"


class UnsecuredValidator:
    """Believes whatever is not out of date: a ``Validator``. Raises ConfigError for options that make no sense."""

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._rules = ClaimRules(
            options.get(f"{VALIDATOR_PREFIX}PrincipalClaimName", "").strip() or "sub",
            options.get(f"{VALIDATOR_PREFIX}ScopeClaimName", "").strip() or "scope",
            _whole(options, f"{VALIDATOR_PREFIX}AllowableClockSkewMs", 0),
            required_scopes=frozenset(options.get(f"{VALIDATOR_PREFIX}RequiredScope", "").split()),
        )

    def __call__(self, token: str) -> ValidToken:
        header, _, rest = token.partition(".")
        claims, _, signature = rest.partition(".")
        if signature or _decoded(header).get("alg") != "none":
            raise TokenRefused("only tokens without a signature are taken here")
        return self._rules.believe(_decoded(claims), self._clock.now_ms())


class UnsecuredLogin:
    """Makes a token of what the options claim, a new one each time."""

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        """Raises ConfigError where the options claim no principal."""
        self._clock = clock
        self._lifetime_s = _whole(options, f"{LOGIN_PREFIX}LifetimeSeconds", 3600)
        self._claims = dict(_claims(options))
        principal = options.get(f"{LOGIN_PREFIX}PrincipalClaimName", "").strip() or "sub"
        if not isinstance(self._claims.get(principal), str) or not self._claims[principal]:
            raise ConfigError(f"sasl.jaas.config lacks the option {LOGIN_PREFIX}StringClaim_{principal}")

    def __call__(self) -> str:
        now = self._clock.now_ms() / 1000
        return f"{_encoded({'alg': 'none'})}.{_encoded(self._claims | {'iat': now, 'exp': now + self._lifetime_s})}."


def unsecured_extensions(options: Mapping[str, str]) -> dict[str, str]:
    """The extensions that the options have the client send."""
    return {name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)}


def _claims(options: Mapping[str, str]) -> list[tuple[str, Any]]:
    made: dict[str, Callable[[str], Any]] = {"StringClaim_": str, "NumberClaim_": _number, "ListClaim_": _list}
    found = []
    for option, value in options.items():
        for kind, make in made.items():
            prefix = f"{LOGIN_PREFIX}{kind}"
            if option.startswith(prefix) and option != prefix:
                found.append((option.removeprefix(prefix), make(value)))
    if {"iat", "exp"} & {name for name, _ in found}:
        raise ConfigError("the claims iat and exp are set by themselves")
    return found


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"an option {LOGIN_PREFIX}NumberClaim_... is no number") from None


def _list(value: str) -> list[str]:
    """A list begins with the sign that stands between its items."""
    return value[1:].split(value[0]) if len(value) > 1 else []


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise ConfigError(f"the option {name} must be a whole number, not negative")
    return int(text)


def _encoded(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _decoded(part: str) -> dict[str, Any]:
    try:
        value = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise TokenRefused("this is no JSON web token")
    return value
