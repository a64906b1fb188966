"""Where simulated brokers keep their files."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def disk(tmp_path):
    """A directory in memory, if there is one: what a power cut leaves the cluster decides, not a disk, and waiting for
    one took nine tenths of the time."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        yield tmp_path
        return
    home = Path(tempfile.mkdtemp(dir=SHARED_MEMORY))
    yield home
    shutil.rmtree(home)
