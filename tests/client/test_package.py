"""What ``sparklog.client`` exports."""

import pytest

import sparklog.client


@pytest.mark.parametrize("name", sparklog.client.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(sparklog.client, name).__name__ == name
    assert name in dir(sparklog.client)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'Cluster'"):
        _ = sparklog.client.Cluster
