"""Programs that a few tests need, and the end of a run: one line that says what was not run and what to type.

``make test`` installs them where it may, as the Makefile's ``programs``.
"""

import re
from collections import Counter
from importlib.util import find_spec

import pytest

from sparklog.testing.programs import find_program

PACKAGES = {
    "chromium": "chromium",
    "curl": "curl",
    "fish": "fish",
    "jq": "jq",
    "kcat": "kcat",
    "logrotate": "logrotate",
    "krb5kdc": "krb5-kdc krb5-admin-server krb5-user gcc libkrb5-dev libsasl2-modules-gssapi-mit",
    "mkfs.ext4": "e2fsprogs",
    "prometheus": "prometheus",
    "psql": "postgresql",
    "zsh": "zsh",
}
"""The Debian packages that have each program."""


def lack_of(program):
    """Why a test that needs ``program`` is skipped; empty where it is there."""
    if find_program(program) is not None:
        return ""
    return f"{program} is missing; type: sudo apt-get install -y {PACKAGES[program]}"


def lack_of_kerberos():
    """Why a test that needs a KDC is skipped; empty where it can be run."""
    if find_spec("gssapi") is None:
        return "gssapi is missing; type: sudo apt-get install -y gcc libkrb5-dev && .venv/bin/pip install gssapi"
    return lack_of("krb5kdc")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    result = yield
    if line := not_run(report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line, yellow=True)
    return result


def not_run(reasons):
    """The line for the tests that were skipped although something could be typed; empty if there are none."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons if re.search("; type: ", reason))
    told = [f"{number} test{'s' * (number > 1)}: {reason}" for reason, number in sorted(counts.items())]
    return f"not run: {'; '.join(told)}" if told else ""
