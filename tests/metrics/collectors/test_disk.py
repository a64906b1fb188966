"""What the kernel tells of disks."""

from metrics.pages import collected

from sparklog.metrics.collectors.disk import DiskCollector

NAME = "kafka_server_kafkaserver_linux_disk_"
TOLD = """\
rchar: 323934931
wchar: 323929600
syscr: 632687
syscw: 632675
read_bytes: 4096
write_bytes: 323932160
cancelled_write_bytes: 12288
"""


def test_bytes_of_disks_are_those_of_the_process(tmp_path):
    account = tmp_path / "io"
    account.write_text(TOLD)
    page = collected(DiskCollector(account))
    assert page.value(NAME + "read_bytes") == 4096
    assert page.value(NAME + "write_bytes") == 323932160


def test_where_the_kernel_does_not_tell_there_are_none(tmp_path):
    page = collected(DiskCollector(tmp_path / "io"))
    assert page.of(NAME + "read_bytes") == page.of(NAME + "write_bytes") == {}


def test_this_kernel_tells():
    assert collected(DiskCollector()).value(NAME + "write_bytes") >= 0
