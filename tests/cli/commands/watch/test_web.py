"""``sparklog web``: it says where the page is, and ends when it is told to."""

import re
import signal
import subprocess
import urllib.request

import pytest
from click.testing import CliRunner

from sparklog.cli.main import cli

pytestmark = pytest.mark.integration


def test_it_serves_the_page_until_it_is_told_to_end(spawn, bootstrap):
    program = spawn("web", "--port", 0, "-b", bootstrap, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = program.stdout.readline()
    url = re.fullmatch(r"the page is at (http://127\.0\.0\.1:\d+/); Ctrl-C ends it\n", line)[1]
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert b"<title>sparklog</title>" in answer.read()
    program.send_signal(signal.SIGTERM)
    assert program.communicate(timeout=60) == ("", "")
    assert program.returncode == 0


def test_passwords_are_not_sent_in_the_clear(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    told = CliRunner().invoke(cli, ["web", "--host", "10.1.2.3", "--command-config", str(file)])
    assert "in the clear" in str(told.exception)
