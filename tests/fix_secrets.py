"""No secret of the secure brokers of a run is left anywhere but in the files that are made to hold it."""

import contextlib
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_HELD = re.compile(rb'(?:password="|delegation\.token\.secret\.key=)([A-Za-z0-9_-]{24,})')
"""In a file of settings. The passwords that tests write down are shorter, and no secrets."""
_KEY = re.compile(rb"-----BEGIN (?:EC )?PRIVATE KEY-----\n[^\n]+\n([A-Za-z0-9+/]{64})\n")
"""In a file of a private key, its second line: the first one is mostly the same in all keys."""
_PRIVATE = {".properties", ".pem", ".key"}
_NUMBERS = ("*.index", "*.timeindex", "*.jar")
"""Files that hold no text: large, and mostly empty."""


@pytest.fixture(scope="session", autouse=True)
def _secrets_stay_where_they_are(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Looked for when all is over: in what was left on the disk, and in the command lines of what was started."""
    with _command_lines() as lines:
        yield
    if secrets := held_below(tmp_path_factory.getbasetemp()):
        found = [*files_with(secrets, tmp_path_factory.getbasetemp()), *lines_with(secrets, lines)]
        assert not found, "secrets of brokers were found in\n" + "\n".join(found)


def held_below(directory: Path) -> set[bytes]:
    """What the files of settings in the directory hold that nobody else may read, and the keys of secure clusters."""
    named = _grep(directory, "-lE", 'password="|delegation[.]token[.]secret[.]key=', "--include=*.properties")
    keys = _grep(directory, "-lE", "BEGIN (EC )?PRIVATE KEY", "--include=*.pem", "--include=*.key")
    found = {secret for path in named if is_private(path) for secret in _HELD.findall(path.read_bytes())}
    of_clusters = (path for path in keys if path.parent.name == "secure" and is_private(path))
    return found | {secret for path in of_clusters for secret in _KEY.findall(path.read_bytes())}


def is_private(path: Path) -> bool:
    """Whether it is a file of settings, or of a key, of its owner alone."""
    return path.suffix in _PRIVATE and not stat.S_IMODE(path.stat().st_mode) & 0o077


def files_with(secrets: set[bytes], directory: Path) -> list[str]:
    """The files that have one, but for the private ones of settings and keys."""
    left_out = [f"--exclude={each}" for each in _NUMBERS]
    found = _grep(directory, "-lFf", "-", *left_out, patterns=b"\n".join(sorted(secrets)))
    return [str(path) for path in found if not is_private(path)]


def lines_with(secrets: set[bytes], lines: set[str]) -> list[str]:
    """The command lines that have one; the secret itself is not told."""
    found = []
    for line in sorted(lines):
        for secret in secrets:
            if secret.decode() in line:
                found.append(line.replace(secret.decode(), "[secret]")[:500])
    return found


def _grep(directory: Path, how: str, pattern: str, *more: str, patterns: bytes = b"") -> list[Path]:
    command = ["grep", "-rs", "--null", how, pattern, *more, str(directory)]
    told = subprocess.run(command, input=patterns, stdout=subprocess.PIPE, check=False).stdout
    return [path for name in told.split(b"\0") if name and (path := Path(name.decode())).is_file()]


@contextlib.contextmanager
def _command_lines() -> Iterator[set[str]]:
    """Those of the programs that are started meanwhile, as ``ps`` would show them."""
    lines: set[str] = set()
    start = subprocess.Popen.__init__

    def noted(self: Any, args: Any, *more: Any, **how: Any) -> None:
        lines.add(_line(args))
        start(self, args, *more, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", noted)
        yield lines


def _line(args: Any) -> str:
    words = [args] if isinstance(args, str | bytes | Path) else list(args)
    return " ".join(each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in words)
