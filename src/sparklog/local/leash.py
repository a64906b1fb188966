"""Run a command that dies when the process that asked for it dies, even by SIGKILL.

Run as a script: ``python leash.py PARENT_PID COMMAND...``. It asks the kernel for SIGKILL at the parent's death
(``prctl(PR_SET_PDEATHSIG)``, which outlives exec) and then becomes the command: no process is added. The kernel
means the parent *thread* that started us, so ``process.py`` starts children from one thread that never ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """From now on the death of the parent thread kills this process. A parent that died before is not noticed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")


def main(parent: int, command: list[str]) -> None:
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the parent died before its child had started")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
