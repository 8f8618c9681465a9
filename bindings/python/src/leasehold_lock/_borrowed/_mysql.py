"""Settings of MySQL's drivers: the parameters of mysqlclient, PyMySQL, and those made in their image."""

from collections.abc import Mapping
from typing import Any, Optional

from ._words import Parameters, credentials, place, quoted, with_parameters

INSTEAD = "leasehold.connect('mysql://user:password@host/database')"

#: Of the driver's sockets, and of what it makes of statements and results.
_OF_THE_DRIVER = (
    "charset",
    "collation",
    "use_unicode",
    "cursorclass",
    "conv",
    "client_flag",
    "connect_timeout",
    "read_timeout",
    "write_timeout",
    "init_command",
    "sql_mode",
    "autocommit",
    "local_infile",
    "max_allowed_packet",
    "multi_statements",
    "executemany_fallback",
    "binary_prefix",
    "program_name",
    "compress",
    "defer_connect",
    "echo",
    "loop",
)
#: Words that only libpq has.
_LIBPQ = ("dbname", "sslmode", "conninfo")


def from_mapping(given: Mapping[str, Any]) -> str:
    """The URL for parameters that do not say whose they are."""
    theirs = next((name for name in _LIBPQ if name in given), None)
    if theirs is not None:
        raise Parameters(
            {}, "the parameters", "PostgreSQL's as one text, 'host=... dbname=...'"
        ).refused(f"{theirs!r} is none of MySQL's")
    return from_parameters(given, "the parameters", checks_host=True)


def from_parameters(given: Mapping[str, Any], whose: str, checks_host: bool) -> str:
    """The URL. `checks_host`: whether the driver compares the name in a certificate if it knows the
    authority and is told nothing else."""
    known = Parameters(given, whose, INSTEAD)
    host, port, socket = known.text("host"), known.take("port"), known.text("unix_socket")
    user, password = known.text("user"), known.text("password", "passwd")
    database = known.text("database", "db")
    if known.take("read_default_file", "read_default_group"):
        raise known.refused("its read_default_file is not read")
    if not host and not socket:
        raise known.refused("it names neither a host nor a unix_socket")
    if not user or not database:
        raise known.refused(f"it names no {'database' if user else 'user'}")
    pairs = [*_tls(known, checks_host), ("socket", socket or None)]
    known.drop(_OF_THE_DRIVER)
    known.finish()
    # As the drivers have it, a socket comes before a host.
    where = "" if socket else place(host or "", port or 3306)
    return with_parameters(
        f"mysql://{credentials(user, password)}{where}/{quoted(database)}", pairs
    )


def _tls(known: Parameters, checks_host: bool) -> list[tuple[str, Optional[str]]]:
    tls, mode = known.take("ssl"), known.text("ssl_mode")
    one_by_one = {
        "ca": known.text("ssl_ca"),
        "cert": known.text("ssl_cert"),
        "key": known.text("ssl_key"),
        "verify_mode": known.take("ssl_verify_cert"),
        "check_hostname": known.take("ssl_verify_identity"),
    }
    is_off = bool(known.take("ssl_disabled")) or (mode or "").upper() == "DISABLED"
    if is_off:
        return [("ssl-mode", "disabled")]
    if tls is not None and not isinstance(tls, (bool, Mapping)):
        raise known.refused(
            f"its TLS is set up by hand (in an object of type {type(tls).__name__})"
        )
    wanted = tls is True or bool(tls) or any(one_by_one.values()) or mode is not None
    if not wanted:
        return []
    if isinstance(tls, Mapping):
        inner = Parameters(tls, f"{known.whose}, in 'ssl'", known.instead)
        checks = inner.take("check_hostname")
        one_by_one = {
            "ca": inner.text("ca") or one_by_one["ca"],
            "cert": inner.text("cert") or one_by_one["cert"],
            "key": inner.text("key") or one_by_one["key"],
            "verify_mode": inner.take("verify_mode"),
            "check_hostname": checks_host if checks is None else checks,
        }
        inner.finish()
    mode = (mode or _mode(one_by_one)).lower()
    trusts_anybody = mode == "required"
    return [
        ("ssl-mode", mode),
        # Nothing is compared with it there.
        ("ssl-ca", None if trusts_anybody else one_by_one["ca"]),
        ("ssl-cert", one_by_one["cert"]),
        ("ssl-key", one_by_one["key"] or one_by_one["cert"]),
    ]


def _mode(tls: Mapping[str, Any]) -> str:
    """What the drivers do with certificates, in the server's word for it."""
    verify = tls["verify_mode"]
    if isinstance(verify, str):
        verify = verify.lower() not in ("none", "0", "false", "no")
    # CERT_NONE is 0.
    if not (tls["ca"] if verify is None else verify):
        return "required"
    return "verify_identity" if tls["check_hostname"] else "verify_ca"
