"""Names of certificates, Kerberos principals, and the rules about them: a JVM and Kafka's classes say what we do."""

import base64
import shutil
from functools import partial
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from sparklog.errors import ConfigError, SparklogError
from sparklog.security.sasl.kerberos_name import ShortNames
from sparklog.security.tls.distinguished_name import subject_name
from sparklog.security.tls.principal_mapping import PrincipalMapping
from sparklog.testing.certificates import Authority
from sparklog.testing.kafka import run_kafka_tool

pytestmark = pytest.mark.peer
PROGRAM = Path(__file__).parent / "Names.java"
KINDS = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.SURNAME,
    NameOID.TITLE,
    NameOID.DN_QUALIFIER,
    NameOID.POSTAL_CODE,
    ObjectIdentifier("1.3.6.1.4.1.99999.1.16384"),
    ObjectIdentifier("2.999.1"),
)
TEXTS = (
    "anna",
    " ",
    "  both  ",
    'a,b=c+d<e>f#g;h"i\\j',
    "#hash",
    "\\",
    "two  blanks",
    "tab\tin",
    "line\nend\n",
    "\rback\r",
    "nul\0in",
    "ä",
    "Jörg",
    "日本",
    "🐘",
    "e\u0301",
    "\u00a0hard\u00a0",
    "\u3000wide\u3000",
    "=",
    "+",
    ",",
    "",
    "a" * 64,
    "/slash\\/",
    "\x7f",
    "\u200b",
    " \t",
    "trailing\\",
    "'",
    '"quoted"',
)
ENCODINGS = (
    _ASN1Type.UTF8String,
    _ASN1Type.PrintableString,
    _ASN1Type.T61String,
    _ASN1Type.IA5String,
    _ASN1Type.BMPString,
    _ASN1Type.UniversalString,
    _ASN1Type.VisibleString,
    _ASN1Type.NumericString,
)
RULES = (
    "DEFAULT",
    "",
    " , ",
    ",,DEFAULT",
    "default",
    "DEFAULT/L",
    "DEFAULT,",
    "DEFAULT DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/",
    "RULE:^CN=(.*?),.*$/$1/L",
    "RULE:^CN=(.*?),.*$/$1/U",
    "RULE:^CN=(.*?),.*$/$1/l",
    "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT",
    "RULE:(.*)/$0-$1/",
    "RULE:(.*)/$12/",
    "RULE:(.*)/$2/",
    "RULE:(.*)/$01/",
    "RULE:.*/x/",
    "RULE:.+/x/",
    "RULE:CN=(.*)/$1",
    "RULE:CN=(.*/$1/",
    "RULE:.*/$1/",
    "RULE:.*/$x/",
    "RULE:.*/a\\$b/",
    "RULE:.*/a\\/b/",
    "RULE:.*/a\\\\b/",
    "RULE:^(?<who>CN=.*?),.*$/${who}/",
    "RULE:(.*)/${who}/",
    "RULE:^.*a\\/b.*$/slash/,DEFAULT",
    "RULE:^CN=([A-Z]+).*$/up/L,RULE:^CN=([a-z]+).*$/down/U,DEFAULT",
    " RULE:^(O=.*)$/$1/ ,  DEFAULT ",
    "RULE:^CN=(.*?), *OU=.*$/$1/",
    "RULE:^(?i)cn=(.*?),.*$/$1/",
    "RULE:(?i)^cn=(.*?),.*$/$1/",
    "RULE:^CN=\\p{Lu}.*$/upper/,DEFAULT",
    "RULE:[a-z&&[^b]]*/x/",
    "RULE:^CN=(\\w++).*$/$1/",
    "RULE:^CN=(\\S*+).*\\z/$1/",
    "RULE:\\QCN=\\E.*/x/",
    "RULE:(.*)/$1/LU",
    "RULE:^CN=(?>.*?),.*$/x/",
    "RULE:(a)|(b).*/$2x/",
    "RULE:(.*)/ $1 /",
    "RULE:(.*)/$1/ L",
    "RULE:(.*)//",
    "RULE://x/",
    "RULE:(.*)/ı$1İß/U",
    "RULE:\\w+=\\w+/w/,DEFAULT",
    "RULE:CN=.+$/dot/,DEFAULT",
    "RULE:^CN=\\h.*/h/",
    "RULE:[[a]/x/",
    "RULE:.*\\Z/x/",
)
OF_JAVA_ALONE = (
    "RULE:^(?i)cn=(.*?),.*$/$1/",
    "RULE:^CN=\\p{Lu}.*$/upper/,DEFAULT",
    "RULE:[a-z&&[^b]]*/x/",
    "RULE:\\QCN=\\E.*/x/",
)
NAMES = (
    "",
    "CN=anna",
    "CN=Anna,OU=readers,O=Example,C=DE",
    "CN=Jörg,O=x",
    "CN=\\ Jörg\\ ,O=x",
    "CN=a\\,b,OU=a/b,O=x",
    "O=x,CN=Anna+UID=7",
    "1.2.840.113549.1.9.1=#16066140622e6465,CN=a",
    "CN=İstanbul,O=ıß",
    "cn=anna,O=x",
    "CN=a\nb,O=x",
    "CN=DZǅ,O=ﬀ",
    "CN=日本,O=x",
    "CN=a\r",
    "CN=a\n",
    "CN=a\u2028",
)

KERBEROS_RULES = (
    "DEFAULT",
    "",
    " ",
    "DEFAULT,",
    "DEFAULT/L",
    "RULE:[1:$1],RULE:[2:$2.$1.$0]",
    "RULE:[1:$1]/L,RULE:[2:$1]/U",
    "RULE:[1:$1]L,RULE:[2:$1]/",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L , RULE:[1:$1]s/a/b/, DEFAULT",
    "RULE:[1:$1]s/(.)(.)/$2$1$3/g,RULE:[2:$1]s/a*/-/g",
    "RULE:[1:$1]s/a*/-/,RULE:[2:$1](.*)s///g",
    "RULE:[1:$1@$0],DEFAULT",
    "RULE:[2:$1/$2],RULE:[1:$1]s/n/@/",
    "RULE:[0:$0],RULE:[3:$3],DEFAULT",
    "RULE:[1:$2],RULE:[2:$a]",
    "RULE:[1:]",
    "RULE:[:$1]",
    "RULE:[1:$1]s/a/$1/,DEFAULT",
    "RULE:[1:$1](a",
    "RULE:[1:$1](*)",
    "RULE:[1:$1](.*n.)s/a/\\$/g,DEFAULT",
    "RULE:[1:$1]()",
    "RULE:[1:$01]",
    "RULE:[01:$1]",
    "RULE:[1:$1]/gL",
)
PRINCIPALS = (
    "anna@REALM.COM",
    "anna/host@REALM.COM",
    "Anna@OTHER",
    "App.service-name/example.com@REALM.COM",
    "aaXaa@REALM.COM",
    "baac/h@OTHER",
    "@REALM.COM",
    "a/@REALM.COM",
    "a/b/c@REALM.COM",
    "a@b@REALM.COM",
    "İıß@REALM.COM",
    "a\nb@REALM.COM",
)


def b64(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def asked_of_java(questions):
    """The answers to lines of words; None where it refuses."""
    if shutil.which("javac") is None:
        pytest.skip("a Java without a compiler cannot run a source file")
    said = run_kafka_tool(str(PROGRAM), stdin="".join("\t".join(words) + "\n" for words in questions)).splitlines()
    return [None if line == "!" else base64.b64decode(line[1:]).decode() for line in said]


def or_none(ask):
    try:
        return ask()
    except SparklogError:
        return None


def attribute(random):
    kind, text, encoding = random.choice(KINDS), random.choice(TEXTS), random.choice(ENCODINGS)
    if random.random() < 0.4:
        encoding = _ASN1Type.UTF8String
    try:
        return x509.NameAttribute(kind, text, encoding)
    except ValueError:
        return x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x")


def certificates():
    """In DER; a subject that the library will not write is left out."""
    random, authority = Random(37), Authority()
    for _ in range(400):
        relative = []
        for _ in range(random.randrange(4)):
            drawn = {each.oid: each for each in (attribute(random) for _ in range(random.choice((1, 1, 1, 2))))}
            relative.append(x509.RelativeDistinguishedName(list(drawn.values())))
        try:
            yield authority.issue(x509.Name(relative), ()).certificate_der
        except (ValueError, UnicodeEncodeError):
            continue


def test_names_of_certificates_are_printed_as_by_a_jvm():
    """A JVM reads no certificate without a subject, unless other names in it are critical."""
    found = [each for each in certificates() if subject_name(each)]
    assert len(found) > 200
    theirs = asked_of_java([("name", b64(each)) for each in found])
    assert [subject_name(each) for each in found] == theirs


def test_rules_make_the_same_users_as_kafkas_mapper():
    """Rules that only Java can have are refused when the broker starts."""
    questions = [(rules, name) for rules in RULES for name in NAMES]
    theirs = asked_of_java([("map", b64(rules), b64(name)) for rules, name in questions])
    ours = [
        or_none(lambda rules=rules, name=name: PrincipalMapping(rules).principal(name).name)
        for rules, name in questions
    ]
    different = [
        (rules, name, java, own)
        for (rules, name), java, own in zip(questions, theirs, ours, strict=True)
        if java != own and not (own is None and is_refused(rules))
    ]
    assert different == []
    assert {rules for rules in RULES if is_refused(rules)} >= set(OF_JAVA_ALONE)


def test_rules_make_the_same_users_of_principals_as_kafkas():
    questions = [(rules, name) for rules in KERBEROS_RULES for name in PRINCIPALS]
    theirs = asked_of_java([("kerberos", b64(rules), b64(name)) for rules, name in questions])
    ours = [or_none(lambda rules=rules, name=name: ShortNames("REALM.COM", rules)(name)) for rules, name in questions]
    different = [
        (rules, name, java, own)
        for (rules, name), java, own in zip(questions, theirs, ours, strict=True)
        if java != own and not (own is None and is_refused(rules, partial(ShortNames, "REALM.COM")))
    ]
    assert different == []


def is_refused(rules, make=PrincipalMapping):
    try:
        make(rules)
    except ConfigError:
        return True
    return False
