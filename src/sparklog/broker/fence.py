"""Which controller this broker obeys: the one with the highest epoch it has heard of."""

from __future__ import annotations

from sparklog.errors import ErrorCode
from sparklog.protocol.messages import Message


class ControllerFence:
    """Refuses requests of a controller that has been replaced, or that are meant for this broker's former life."""

    def __init__(self) -> None:
        self._epoch = -1
        self.broker_epoch = -1

    def check(self, request: Message) -> ErrorCode:
        """NONE, or the code to answer to an outdated request."""
        if request.controller_epoch < self._epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if 0 <= request.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self._epoch = request.controller_epoch
        return ErrorCode.NONE
