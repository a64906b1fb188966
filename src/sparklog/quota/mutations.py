"""The quota of changes that the controller makes (KIP-599, ``ControllerMutationQuotaManager.scala``).

A request takes a token for each partition that it makes or deletes. Strict: with the bucket overdrawn nothing is taken,
and the change is refused; the change that overdraws it is made, and does not wait. Permissive, for clients that do not
know the refusal: every change is made, and a client that overdraws the bucket waits.
"""

from __future__ import annotations

from sparklog.quota.limits import Limits, Tags
from sparklog.quota.rate import TokenBucket, Windows, refill_ms
from sparklog.quota.sensors import Sensors


class Mutations:
    """What one request may change."""

    def __init__(self, bucket: TokenBucket, bound: float, windows: Windows, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._bound = bound
        self._windows = windows
        self._is_strict = is_strict
        self._until_ms = 0

    def take(self, partitions: int, now_ms: int) -> bool:
        """Whether so many partitions may be made or deleted; then they count."""
        left = self._bucket.tokens(self._bound, now_ms)
        is_refused = self._is_strict and left < 0
        if not is_refused:
            left = self._bucket.take(partitions, self._bound, now_ms)
        if is_refused or (not self._is_strict and left < 0):
            self._until_ms = now_ms + refill_ms(left, self._bound, self._windows)
        return not is_refused

    def throttle_ms(self, now_ms: int) -> int:
        """How long the client is still to wait."""
        return max(self._until_ms - now_ms, 0)


class MutationQuota:
    """The buckets of all clients."""

    def __init__(self, windows: Windows) -> None:
        self.limits = Limits()
        self._windows = windows
        self._buckets: Sensors[Tags | bytes, TokenBucket] = Sensors(lambda: TokenBucket(windows))

    @property
    def is_set(self) -> bool:
        """Whether anybody has a quota."""
        return self.limits.is_set

    def begin(self, user: str, client_id: str, now_ms: int, *, is_strict: bool) -> Mutations | None:
        """A request of this client; None where it has no bound."""
        tags = self.limits.tags(user, client_id)
        bound = self.limits.bound(tags)
        if bound is None:
            return None
        return Mutations(self._buckets.of(tags.key, now_ms), bound, self._windows, is_strict=is_strict)
