"""Principals of Kerberos and the users that rules make of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.sasl.kerberos_name import KerberosName, ShortNames

APPS = r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g,RULE:[2:$1](App\..*)s/App\.(.*)/$1/g,DEFAULT"
IN_CASES = (
    r"RULE:[1:$1]/{0}, RULE:[2:$1](Test.*)s/ABC///{0}, RULE:[2:$1](ABC.*)s/ABC/XYZ/g/{0},"
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/{0}, RULE:[2:$1]/{0}, DEFAULT"
)


def user(principal, rules="DEFAULT"):
    return ShortNames("REALM.COM", rules)(principal)


@pytest.mark.parametrize(
    ("text", "service", "host", "realm"),
    [
        ("App.service-name/example.com@REALM.COM", "App.service-name", "example.com", "REALM.COM"),
        ("App.service-name@REALM.COM", "App.service-name", None, "REALM.COM"),
        ("@R", "", None, "R"),
        ("a/@R", "a", "", "R"),
    ],
)
def test_a_principal_has_one_or_two_components_and_a_realm(text, service, host, realm):
    name = KerberosName.parse(text)
    assert name == (service, host, realm)
    assert str(name) == text


@pytest.mark.parametrize("text", ["a/b/c@R", "a@b@R", r"a\@b@R", r"admin\/x@R", "a", "a/b", "", "a@R/b"])
def test_other_names_stand_for_nobody(text):
    with pytest.raises(AuthenticationFailed, match=r"principal\.to\.local\.rules"):
        ShortNames("R", "RULE:[1:$1],RULE:[2:$1]")(text)


@pytest.mark.parametrize(
    ("principal", "rules", "expected"),
    [
        ("user/host@REALM.COM", "DEFAULT", "user"),
        ("user@REALM.COM", "DEFAULT", "user"),
        ("App.service-name/example.com@REALM.COM", APPS, "service-name"),
        ("App.service-name@REALM.COM", APPS, "service-name"),
        ("user/host@REALM.COM", APPS, "user"),
        ("a/b@ELSEWHERE", "RULE:[2:$2.$1.$0](.*ELSEWHERE)", "b.a.ELSEWHERE"),
        ("aXbXc@R", "RULE:[1:$1]s/X/-/", "a-bXc"),
        ("aXbXc@R", "RULE:[1:$1]s/X/-/g", "a-b-c"),
        ("aXbXc@R", "RULE:[1:$1]s/(X)(.)/$2$1/g/L", "abxcx"),
        ("Anna@R", "RULE:[1:$1]L", "anna"),
        ("Anna@R", "RULE:[1:$1]/", "Anna"),
        ("Anna@R", "RULE:[1:same]", "same"),
        ("Anna@R", "RULE:[2:$1],RULE:[1:$1](anna),RULE:[1:$1.x](Anna.x)", "Anna.x"),
    ],
)
def test_the_first_rule_that_applies_decides(principal, rules, expected):
    assert user(principal, rules) == expected


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ("User@REALM.COM", "User"),
        ("TestABC/host@FOO.COM", "Test"),
        ("ABC_User_ABC/host@FOO.COM", "XYZ_User_XYZ"),
        ("App.SERVICE-name/example.com@REALM.COM", "SERVICE-name"),
        ("User/root@REALM.COM", "User"),
    ],
)
def test_a_rule_may_say_the_case(principal, expected):
    assert user(principal, IN_CASES.format("L")) == expected.lower()
    assert user(principal, IN_CASES.format("U")) == expected.upper()


@pytest.mark.parametrize(
    ("principal", "rules", "said"),
    [
        ("user@OTHER.COM", "DEFAULT", "no rule .* applies to user@OTHER.COM"),
        ("user@REALM.COM", "", "no rule"),
        ("user/host@REALM.COM", "RULE:[1:$1]", "no rule"),
        ("user@REALM.COM", "RULE:[1:$1@$0],DEFAULT", "a rule makes 'user@REALM.COM' of user@REALM.COM"),
        ("user/host@REALM.COM", "RULE:[2:$1/$2],DEFAULT", "no user's name"),
    ],
)
def test_a_principal_to_which_no_rule_applies_stands_for_nobody(principal, rules, said):
    with pytest.raises(AuthenticationFailed, match=said):
        user(principal, rules)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/g",
        "rule:[1:$1]",
        "rule:[1:$1]/L/U",
        "RULE:[1:$1]/LU",
        "RULE:[1:$1/L",
        "RULE:[1:$1]/l",
        "RULE:[:$1]",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g",
        "RULE:[1:$1](a",
        "DEFAULT,",
        ",",
        "RULE:[1:$1]s/[/x/",
        "RULE:[1:$1](*)",
        "RULE:[1:$2]",
        "RULE:[1:hello $a]",
        "RULE:[1:$]",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/(a)/$2/",
        "RULE:[1:$1]([a-z&&[^b]]*)",
    ],
)
def test_rules_that_cannot_be_are_refused(rules):
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        ShortNames("REALM.COM", rules)


@given(st.text(alphabet="ab/@\\$.", max_size=12), st.sampled_from([APPS, IN_CASES.format("L"), "RULE:[2:$2$1]"]))
def test_a_user_has_never_a_slash_or_a_realm(principal, rules):
    try:
        found = user(principal, rules)
    except AuthenticationFailed:
        return
    assert not set("/@\\") & set(found)
