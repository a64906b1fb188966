"""Texts of ``sasl.jaas.config``: which login module, and its options (``JaasConfig.java``).

``org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";`` and so on,
each module to its semicolon. A value is a word of letters, digits, ``_``, ``-``, ``$`` and ``.``, or stands in single
or double quotes with the escapes of Java. Comments are ``//`` and ``/* */``.

An error tells where it is and what must stand there, and nothing of the text: with a quote forgotten any word of it may
be a part of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sparklog.errors import ConfigError
from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
LOGIN_MODULES: Final = {
    "PLAIN": PLAIN_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_MODULE),
    "OAUTHBEARER": OAUTHBEARER_MODULE,
    "GSSAPI": KERBEROS_MODULE,
}
"""For each mechanism the class, Kafka's or Java's, that has its options. We know it by its name; no Java is run."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKENS = re.compile(
    r"""
    (?P<blank> \s+ | //[^\n\r]* | /\*.*?\*/ )
  | (?P<word> [\w$.-]+ )
  | "(?P<double> (?: [^"\\\n\r] | \\. )* )"
  | '(?P<single> (?: [^'\\\n\r] | \\. )* )'
  | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_TO_ESCAPE = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class LoginModule:
    """One entry: the class of the module, its flag in small letters, and its options, which no ``repr`` shows."""

    name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_jaas(text: str) -> list[LoginModule]:
    """The modules in their order, one at least. Raises ConfigError that tells where, never what stands there."""
    tokens = _Tokens(text)
    modules = []
    while tokens.is_more:
        modules.append(_module(tokens))
    if not modules:
        raise ConfigError("sasl.jaas.config names no login module")
    return modules


def options_of(text: str, mechanism: str) -> Mapping[str, str]:
    """The options for a mechanism: those of the one module that belongs to it.

    Raises ConfigError where there is no such module, or several.
    """
    wanted = LOGIN_MODULES[mechanism]
    modules = parse_jaas(text)
    found = [each.options for each in modules if each.name == wanted]
    if len(found) != 1:
        raise ConfigError(
            f"sasl.jaas.config must have {wanted} once, for mechanism {mechanism}; of its {len(modules)} modules"
            f" {len(found)} are that"
        )
    return found[0]


def login_of(mechanism: str, user: str, password: str) -> str:
    """The text for a user with a password. Raises ConfigError for a mechanism that has no passwords."""
    if mechanism not in (*SCRAM_MECHANISMS, "PLAIN"):
        raise ConfigError("a user and a password are for the mechanisms SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN")
    user, password = (each.translate(_TO_ESCAPE) for each in (user, password))
    return f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'


def login_of_token(mechanism: str, token_id: str, password: str) -> str:
    """The text for a delegation token. Raises ConfigError for a mechanism other than those of SCRAM."""
    if mechanism not in SCRAM_MECHANISMS:
        raise ConfigError(f"a delegation token is for {' and '.join(SCRAM_MECHANISMS)}, not for {mechanism!r}")
    return f'{login_of(mechanism, token_id, password).removesuffix(";")} tokenauth="true";'


def option(options: Mapping[str, str], name: str, mechanism: str) -> str:
    """An option that must be given. Raises ConfigError."""
    if not options.get(name):
        raise ConfigError(f'sasl.jaas.config lacks the option {name}, which {mechanism} needs: write {name}="..."')
    return options[name]


def _module(tokens: _Tokens) -> LoginModule:
    name = tokens.next("word", "the class of a login module").text
    flag = tokens.next("word", "one of " + ", ".join(_FLAGS))
    if flag.text.lower() not in _FLAGS:
        raise tokens.error(f"one of {', '.join(_FLAGS)}", flag.at)
    options = dict[str, str]()
    while not tokens.skip(";"):
        key = tokens.next("word", "an option, or a semicolon at the end of the module").text
        if not tokens.skip("="):
            raise tokens.error("= behind the name of an option")
        options[key] = tokens.next("value", "the value of an option, in quotes").text
    return LoginModule(name, flag.text.lower(), options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._found = list(self._scan(text))

    def _scan(self, text: str) -> Iterator[_Token]:
        at = 0
        while at < len(text):
            found = _TOKENS.match(text, at)
            if found is None:
                raise self.error("a word, a text in quotes that is closed on its line, = or ;", at)
            kind = found.lastgroup or ""
            if kind in ("double", "single"):
                yield _Token("quoted", _ESCAPE.sub(_unescaped, found[kind]), at)
            elif kind != "blank":
                yield _Token(kind, found[kind], at)
            at = found.end()

    @property
    def is_more(self) -> bool:
        return bool(self._found)

    def next(self, kind: str, wanted: str) -> _Token:
        """The next token, if it is what must come now; a value may be a word or be quoted."""
        kinds = ("word", "quoted") if kind == "value" else (kind,)
        if not self._found or self._found[0].kind not in kinds:
            raise self.error(wanted)
        return self._found.pop(0)

    def skip(self, sign: str) -> bool:
        """Pass over a sign, if it comes now."""
        is_next = bool(self._found) and self._found[0][:2] == ("sign", sign)
        if is_next:
            self._found.pop(0)
        return is_next

    def error(self, wanted: str, at: int | None = None) -> ConfigError:
        if at is None:
            at = self._found[0].at if self._found else len(self._text)
        return ConfigError(f"sasl.jaas.config, character {at + 1}: here must be {wanted}")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)
