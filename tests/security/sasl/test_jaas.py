"""Texts of login modules, as Kafka's ``JaasContextTest.java`` has them."""

import pytest

from sparklog.errors import ConfigError
from sparklog.security.sasl.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, option, options_of, parse_jaas


def only(text):
    (module,) = parse_jaas(text)
    return module


def test_a_module_with_its_options():
    module = only(f'{SCRAM_MODULE} required username="alice" password="a b;=\'c";')
    assert (module.name, module.flag) == (SCRAM_MODULE, "required")
    assert module.options == {"username": "alice", "password": "a b;='c"}
    assert only("test.Module SUFFICIENT;").options == {}
    assert only("a.B$C_1 optional x=y-z_1.2$3;").options == {"x": "y-z_1.2$3"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"a\"b\\c"', 'a"b\\c'),
        (r"'a\'b\"c\"'", 'a\'b"c"'),
        (r'"\t\n\r\b\f\a\v\q"', "\t\n\r\b\f\a\vq"),
        (r'"\101\60\7x\400"', "A0\x07x 0"),
        ('"// no comment /* either */"', "// no comment /* either */"),
        ('""', ""),
        ('"ä€"', "ä€"),
    ],
)
def test_quotes_and_escapes_are_javas(written, meant):
    assert only(f"a.B required x={written};").options == {"x": meant}


def test_blanks_lines_and_comments_do_not_count():
    text = """
    // the first; x="1"
    a.B   required  /* among; x
    them */ x = "1"
      y='2' ;
    c.D requisite
    ;"""
    assert [(each.name, each.flag, dict(each.options)) for each in parse_jaas(text)] == [
        ("a.B", "required", {"x": "1", "y": "2"}),
        ("c.D", "requisite", {}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  // nothing",
        "a.B",
        "a.B;",
        "a.B needed;",
        "a.B required",
        'a.B required password="hidden"',
        'a.B required password="hidden;',
        "a.B required password='hidden\n';",
        "a.B required password=hid@den;",
        "a.B required password=hid den;",
        "a.B required password hidden;",
        "a.B required password=;",
        'a.B required "hidden"="x";',
        'a.B required password="hidden"; hidden',
        'a.B required password="hidden"; hidden hidden;',
        "a.B required password=hidden = x;",
    ],
)
def test_what_is_wrong_is_refused_without_telling_a_secret(text):
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config") as caught:
        parse_jaas(text)
    assert "hid" not in str(caught.value)
    assert "den" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_error_tells_where_it_is():
    with pytest.raises(ConfigError, match="character 23: here must be = behind the name"):
        parse_jaas("a.B required password hidden;")


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", PLAIN_MODULE),
        ("SCRAM-SHA-256", SCRAM_MODULE),
        ("SCRAM-SHA-512", SCRAM_MODULE),
        ("OAUTHBEARER", OAUTHBEARER_MODULE),
    ],
)
def test_each_mechanism_has_its_module(mechanism, module):
    others = f'a.B required x="1"; {module} required x="2";'
    assert options_of(others, mechanism) == {"x": "2"}
    with pytest.raises(ConfigError, match="must have"):
        options_of('a.B required x="hidden";', mechanism)
    with pytest.raises(ConfigError, match="of its 2 modules 2 are that"):
        options_of(f"{module} required; {module} required;", mechanism)


def test_an_option_that_is_missing_is_named():
    assert option({"username": "a"}, "username", "PLAIN") == "a"
    for options in ({}, {"username": ""}):
        with pytest.raises(ConfigError, match="option username, which PLAIN needs"):
            option(options, "username", "PLAIN")


def test_no_option_is_in_a_repr():
    assert "hidden" not in repr(parse_jaas('a.B required password="hidden";'))
