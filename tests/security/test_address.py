import pytest

from sparklog.security.address import plain_address


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("log1.example.org", None),
        ("*", None),
    ],
)
def test_an_address_is_one_text_however_it_was_written(written, plain):
    assert plain_address(written) == plain
