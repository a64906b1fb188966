import pytest

pytestmark = pytest.mark.integration


def test_directories_and_replicas_are_those_of_the_admin_client(browser, admin, make):
    name = make(2)
    told = browser.rows("/api/disks")
    found = {(broker, each.path): each for broker, some in admin.log_dirs().items() for each in some}
    assert {(each["broker"], each["path"]) for each in told} == set(found)
    for each in told:
        directory = found[each["broker"], each["path"]]
        assert each["total"] == directory.total_bytes > each["usable"] > 0
        assert each["replicas"] == len(directory.sizes)
    replicas = browser.rows(f"/api/disks/replicas?search={name}&sort=size")
    assert [(each["topic"], each["partition"], each["size"]) for each in replicas["rows"]] == [
        (name, 0, 0),
        (name, 1, 0),
    ]
