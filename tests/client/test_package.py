"""What ``sparklog.client`` exports."""

import subprocess
import sys

import pytest

import sparklog.client


@pytest.mark.parametrize("name", sparklog.client.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(sparklog.client, name).__name__ == name
    assert name in dir(sparklog.client)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'Cluster'"):
        _ = sparklog.client.Cluster


def test_a_client_without_keys_or_tokens_loads_no_cryptography():
    """It would take a seventh of the start of a Python process of Spark."""
    imports = "import sys, sparklog.spark.stream.reader, sparklog.client.producer.producer"
    program = f"{imports}; sys.exit(sorted({{'cryptography', 'jwt'}} & sys.modules.keys()) or None)"
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
