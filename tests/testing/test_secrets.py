"""What the run's own search for secrets finds, and what it passes over."""

import shutil
import subprocess
import sys

import fix_secrets
import pytest

from sparklog.testing.certificates import Authority

SECRET = "B" * 32


@pytest.fixture
def home(tmp_path):
    """With a file of settings that has a secret. Nothing is left of it, or the run would be found guilty."""
    file = tmp_path / "secure" / "admin.properties"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(f'sasl.jaas.config=Module required username="a" password="{SECRET}";\n')
    yield tmp_path
    shutil.rmtree(tmp_path)


def test_a_secret_is_known_by_the_file_that_holds_it(home):
    assert fix_secrets.held_below(home) == {SECRET.encode()}
    assert fix_secrets.files_with({SECRET.encode()}, home) == []


def test_so_is_the_key_of_a_secure_cluster(home):
    made = Authority("authority").issue("broker")
    key, copy = home / "secure" / "broker.pem", home / "broker.log"
    key.touch(0o600)
    made.write_pem(key)
    (home / "client.pem").touch(0o600)
    Authority("other").issue("client").write_pem(home / "client.pem")
    (secret,) = fix_secrets.held_below(home) - {SECRET.encode()}
    assert secret.decode() in made.key_pem()
    assert fix_secrets.files_with({secret}, home) == []
    copy.write_text(made.key_pem())
    assert fix_secrets.files_with({secret}, home) == [str(copy)]
    copy.write_text(made.chain_pem)
    assert fix_secrets.files_with({secret}, home) == []


@pytest.mark.parametrize("name", ["broker.log", "checkpoint/offsets/0", "events/app", "open.properties"])
def test_it_is_found_in_any_other_file(home, name):
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\0\xff {" + SECRET.encode() + b"}\n")
    file.chmod(0o644)
    assert fix_secrets.files_with({SECRET.encode()}, home) == [str(file)]


def test_it_is_found_in_the_command_line_of_what_was_started():
    with fix_secrets._command_lines() as lines:
        subprocess.run([sys.executable, "-c", "pass", "--password=another"], check=True)
    (found,) = fix_secrets.lines_with({b"another"}, lines)
    assert found.endswith("--password=[secret]")
