import pytest

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.tls.principal_mapping import PrincipalMapping

NAME = "CN=Anna.Adler,OU=readers,O=Example,C=DE"


def mapped(rules: str, name: str = NAME) -> str:
    return str(PrincipalMapping(rules).principal(name))


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),.*$/$1/", "Anna.Adler"),
        ("RULE:^CN=(.*?),.*$/$1/L", "anna.adler"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ANNA.ADLER"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L", "anna.adler@readers"),
        ("RULE:^CN=(.*?),OU=writers.*$/$1/ , DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=writers.*$/w/,RULE:^CN=(.*?),OU=readers.*$/r/", "r"),
        (",, RULE:^CN=(\\w+).(\\w+),.*$/$2 $1/ ,,", "Adler Anna"),
        ("RULE:^CN=(.*?),.*$/$1\\/$9\\$/", "Anna.Adler/$9$"),
        ("RULE:^CN=(.*?),.*$/$12/", "Anna.Adler2"),
        ("RULE:^CN=(?P<who>.*?),.*$/${who}/", "Anna.Adler"),
        ("RULE:.*/$0/", NAME),
        ("RULE:CN=.*/x/", "x"),
        ("RULE:.*/x/", "xx"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", "Anna.Adler"),
        ("RULE:^CN=(.*?),.*$/$01/", "Anna.Adler"),
        ("RULE:[^.]+[.].*/x/", "x"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, user: str) -> None:
    assert mapped(rules) == f"User:{user}"


@pytest.mark.parametrize("name", ["CN=J\u00f6rg", "CN=Anna\r", "CN=Anna\u2028", "CN=Anna\x85"])
def test_letters_and_dots_are_what_they_are_in_java(name: str) -> None:
    """Letters are those of ASCII, and a dot is no end of a line."""
    assert mapped(r"RULE:^CN=(\w+.?)$/$1/,DEFAULT", name) == f"User:{name}"


def test_a_dot_may_be_told_to_be_anything() -> None:
    assert mapped("RULE:(?s)^CN=(.*)$/$1/", "CN=Anna\r") == "User:Anna\r"


@pytest.mark.parametrize("rules", ["", " , ", "RULE:^CN=(.*?)$/nobody/L,RULE:O=/part/"])
def test_a_name_without_a_rule_is_nobody(rules: str) -> None:
    with pytest.raises(AuthenticationFailed, match=r"no rule of ssl.principal.mapping.rules applies to O=Example"):
        mapped(rules, "O=Example")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*)/$1",
        "rule:CN=(.*)/$1/",
        "RULE:CN=(.*)/$1/L/U",
        "RULE:CN=(.*)/$1/LU",
        "RULE:CN=(.*/$1/",
        "RULE:CN=.*/$1/",
        "RULE:CN=(.*)/$x/",
        "RULE:CN=(.*)/${x}/",
        "RULE:CN=[a-z&&[^b]]/x/",
        "RULE:CN=[a[b]]/x/",
        "RULE:(?u)CN=(.*)/$1/",
        "RULE:CN=\\p{Lu}/x/",
    ],
)
def test_rules_that_cannot_be_are_refused_when_they_are_read(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl.principal.mapping.rules"):
        PrincipalMapping(rules)


def test_commas_and_slashes_in_a_pattern() -> None:
    assert mapped("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT", "CN=Adler\\, Anna,O=Example") == "User:Adler\\, Anna"
    assert mapped("RULE:^CN=a\\/(b),.*$/$1/", "CN=a/b,C=DE") == "User:b"
