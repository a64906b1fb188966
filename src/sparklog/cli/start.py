"""The console script. Ctrl-C ends it without a traceback, also while it is imported, and while Python ends."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

from sparklog.cli.exit_status import INTERRUPTED


def main() -> NoReturn:
    """``sparklog.cli.main.main``, which is imported here: that takes a third of a second.

    While a command runs Ctrl-C raises KeyboardInterrupt, as ever. A signal that is ignored stays so, as nohup wants it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    from sparklog.cli.main import main as run

    try:
        try:
            signal.signal(signal.SIGINT, before)
            run()
        finally:
            if before is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, _end)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Nothing is to be done in order: no command runs."""
    os._exit(INTERRUPTED)
