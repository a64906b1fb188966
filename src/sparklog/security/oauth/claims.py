"""What a token must say to be believed, once its signature was: whose it is, how long, from whom and for whom.

The rules are Kafka's (``ValidatorAccessTokenValidator.java`` and jose4j below it, ``OAuthBearerValidationUtils.java``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.security.sasl.oauthbearer import TokenRefused, ValidToken

Claims = Mapping[str, Any]


@dataclass(frozen=True)
class ClaimRules:
    """``audiences``: a token must name one of these, and must name none where it is empty; None: that is not looked
    at. ``required_scopes``: a token must have all of them.
    """

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_ms: int = 0
    issuer: str | None = None
    audiences: frozenset[str] | None = None
    required_scopes: frozenset[str] = frozenset()
    needs_issue_time: bool = False

    def believe(self, claims: Claims, now_ms: int) -> ValidToken:
        """What the token says. Raises TokenRefused."""
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenRefused(f"claim {self.principal_claim} names nobody")
        expires_ms = self._check_times(claims, now_ms)
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenRefused("claim iss is another issuer")
        self._check_audience(claims)
        self._check_scopes(claims)
        return ValidToken(name.strip(), expires_ms)

    def _check_times(self, claims: Claims, now_ms: int) -> int:
        expires, issued, begins = (_ms(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or (issued is None and self.needs_issue_time):
            raise TokenRefused(
                "claims exp and iat must be given" if self.needs_issue_time else "claim exp must be given"
            )
        if now_ms - self.clock_skew_ms >= expires:
            raise TokenRefused("the token has expired")
        if max(issued or 0, begins or 0) > now_ms + self.clock_skew_ms:
            raise TokenRefused("the token is of the future")
        if issued is not None and issued >= expires:
            raise TokenRefused("the token ends before it was issued")
        return expires

    def _check_audience(self, claims: Claims) -> None:
        if self.audiences is None:
            return
        named = set(_words(claims.get("aud"), "aud"))
        if not (named & self.audiences if self.audiences else not named):
            raise TokenRefused("claim aud names others (sasl.oauthbearer.expected.audience)")

    def _check_scopes(self, claims: Claims) -> None:
        scopes = {each for item in _words(claims.get(self.scope_claim), self.scope_claim) for each in item.split()}
        if not self.required_scopes <= scopes:
            raise TokenRefused("the token lacks a scope", " ".join(sorted(self.required_scopes)))


def _ms(claims: Claims, name: str) -> int | None:
    """A time of the claims, which have seconds, in milliseconds."""
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1 << 40:
        raise TokenRefused(f"claim {name} is no time")
    return round(seconds * 1000)


def _words(value: object, name: str) -> list[str]:
    """A claim that is a text, a list of texts, or not there."""
    words = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(each, str) and each.strip() for each in words):
        raise TokenRefused(f"claim {name} must be a text or a list of texts")
    return words
