"""Programs run as their users would run them, in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import sparklog

_SOURCE = str(Path(sparklog.__file__).parents[1])


def find_program(name: str) -> str | None:
    """Where it is; None where it is not installed. Debian has some where users do not look."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))


def run_program(
    command: Sequence[str | Path],
    directory: Path,
    *,
    timeout: float,
    paths: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` in ``directory``; it must end with exit code 0 within ``timeout`` seconds.

    It finds this sparklog and what is at ``paths``; ``environment`` is all of the rest, in place of this process's.
    """
    known = dict(os.environ if environment is None else environment)
    known["PYTHONPATH"] = os.pathsep.join(filter(None, [_SOURCE, *paths]))
    ran = subprocess.run(
        list(map(str, command)), cwd=directory, env=known, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert ran.returncode == 0, f"{command} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
    return ran
