"""Kerberos by the library of the system (MIT's, or one like it) through the package ``gssapi``, which is optional.

Our own principal is said by the options of ``com.sun.security.auth.module.Krb5LoginModule``: ``useKeyTab`` with
``keyTab`` and ``principal``, and for clients also ``useTicketCache``, with ``ticketCache`` for one that is not the
environment's. A ticket cache is tried first, as by Java. Which KDC is asked, for how long, and what a host's name is
made of say the system's ``krb5.conf`` and ``KRB5_CONFIG``.

The library gets tickets by a keytab when there are none, and new ones when half of their time is over; they are kept in
memory, for each login apart. It reads a keytab each time that it needs a key. A ticket that was shown is remembered
(the replay cache, below ``KRB5RCACHEDIR`` or ``/var/tmp``) and not taken again.

A client asks a KDC over the network, so what it does here may wait. A broker that accepts asks nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from sparklog.errors import AuthenticationFailed, ConfigError, ConnectionFailed
from sparklog.security.sasl.gssapi import GSSAPI_NAME, Context, ContextFailed
from sparklog.security.sasl.jaas import option

_UNREACHABLE: Final = frozenset(code & 0xFFFFFFFF for code in (-1765328228, -1765328164))
"""KRB5_KDC_UNREACH and KRB5_REALM_CANT_RESOLVE: another attempt may succeed."""
_WHAT_TO_GIVE = 'useKeyTab=true keyTab="..." principal="..."'
_logins = count(1)


def _library() -> Any:
    """Raises ConfigError where it is not there."""
    try:
        import gssapi
    except ImportError as error:
        raise ConfigError(
            f"{GSSAPI_NAME} (Kerberos) needs the package gssapi; type: pip install gssapi. It is built"
            f" with a C compiler and the headers of Kerberos (Debian: gcc libkrb5-dev). Importing it: {error}"
        ) from None
    return gssapi


def initiator(options: Mapping[str, str], service: str) -> Callable[[str], Context]:
    """What begins a context with a service on a host, as a client; it raises AuthenticationFailed without a ticket, and
    ConnectionFailed where no KDC can be reached.

    Raises ConfigError for options that name no credentials, and where the library is not there.
    """
    gssapi = _library()
    principal = options.get("principal") or None
    stores = []
    if _is_true(options, "useTicketCache"):
        stores.append({"ccache": options["ticketCache"]} if options.get("ticketCache") else {})
    if _is_true(options, "useKeyTab"):
        keytab = option(options, "keyTab", GSSAPI_NAME)
        principal = option(options, "principal", GSSAPI_NAME)
        stores.append({"client_keytab": keytab, "ccache": f"MEMORY:sparklog-{next(_logins)}"})
    if not stores:
        raise ConfigError(f"{GSSAPI_NAME} needs the options {_WHAT_TO_GIVE}, or useTicketCache=true: none asks a user")

    def initiate(host: str) -> Context:
        with _failing(AuthenticationFailed, "we have no ticket"):
            context = gssapi.SecurityContext(
                name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
                creds=_first_of(gssapi, principal, stores),
                mech=gssapi.MechType.kerberos,
                flags=(gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity),
                usage="initiate",
            )
        return _LibrarysContext(context)

    return initiate


def _first_of(gssapi: Any, principal: str | None, stores: list[dict[str, str]]) -> Any:
    """The credentials of the first store that has some."""
    *others, last = stores
    for store in others:
        try:
            return _credentials(gssapi, principal, "initiate", store)
        except gssapi.exceptions.GSSError:
            continue
    return _credentials(gssapi, principal, "initiate", last)


def _credentials(gssapi: Any, principal: str | None, usage: str, store: dict[str, str]) -> Any:
    name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    found = gssapi.Credentials(name=name, usage=usage, mechs=[gssapi.MechType.kerberos], store=store or None)
    if usage == "initiate":
        found.inquire()  # now is when the store is looked into
    return found


def acceptor(options: Mapping[str, str]) -> Callable[[], Context]:
    """What begins a context as the service that the options name. Raises ConfigError for a keytab that has no key of
    it, and where the library is not there.
    """
    gssapi = _library()
    if not _is_true(options, "useKeyTab"):
        raise ConfigError(f"a broker with {GSSAPI_NAME} needs the options {_WHAT_TO_GIVE}")
    principal, keytab = (option(options, each, GSSAPI_NAME) for each in ("principal", "keyTab"))
    with _failing(ConfigError, "the option keyTab cannot be used"):
        credentials = _credentials(gssapi, principal, "accept", {"keytab": keytab})
    return lambda: _LibrarysContext(gssapi.SecurityContext(creds=credentials, usage="accept"))


def default_realm() -> str:
    """This machine's; empty where it has none."""
    gssapi = _library()
    try:
        name = gssapi.Name("any", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).partition("@")[2]


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


class _LibrarysContext:
    def __init__(self, context: Any) -> None:
        context.__DEFER_STEP_ERRORS__ = False  # an error is raised by the call that it is of
        self._context = context

    @property
    def is_established(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        with _failing():
            name = bytes(self._context.initiator_name)
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise ContextFailed("Kerberos: the principal's name is not in UTF-8") from None

    def step(self, token: bytes) -> bytes:
        with _failing():
            return self._context.step(token or None) or b""

    def wrap(self, data: bytes) -> bytes:
        with _failing():
            return bytes(self._context.wrap(data, encrypt=False).message)

    def unwrap(self, message: bytes) -> bytes:
        with _failing():
            return bytes(self._context.unwrap(message).message)


@contextmanager
def _failing(
    kind: type[AuthenticationFailed] | type[ConfigError] = ContextFailed, what: str = "Kerberos"
) -> Iterator[None]:
    """Errors of the library as ours: ConnectionFailed where no KDC answers, else ``kind``."""
    import gssapi

    try:
        yield
    except gssapi.exceptions.GSSError as error:
        failure = ConnectionFailed if error.min_code & 0xFFFFFFFF in _UNREACHABLE else kind
        raise failure(f"{what}: {_reason(error)}") from None


def _reason(error: Any) -> str:
    """What the mechanism says, or else what the GSS-API does."""
    code, is_major = (error.min_code, False) if error.min_code else (error.maj_code, True)
    return "; ".join(error.get_all_statuses(code, is_major)) or str(error)
