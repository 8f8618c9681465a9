"""Credentials that a program looks up while it runs, and that end."""

import re
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from server import Server

import leasehold_lock as leasehold
from leasehold_lock import Credentials, Endpoint

#: A new password comes so often, is told to be good for so long, and so many come.
EVERY_S, LIFE_S, ROUNDS = 2, 6, 5
RIGHTS = ("on", "allkeys", "allchannels", "allcommands")


class Maker:
    """Stands in for the maker of tokens of a cloud: each is for a user of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.asked: list[Endpoint] = []
        self.newest = Credentials(None, "")
        self.lock = threading.Lock()

    def next(self, number: int) -> None:
        with self.lock:
            user, secret = f"app{number}", f"p{number}"
            self.server.call("ACL", "SETUSER", user, ">" + secret, *RIGHTS)
            self.newest = Credentials(user, secret, time.time() + LIFE_S)

    def end(self, number: int) -> None:
        """A Redis hangs up on each connection of that user."""
        self.server.call("ACL", "DELUSER", f"app{number}")

    def __call__(self, to: Endpoint) -> Credentials:
        with self.lock:
            self.asked.append(to)
            return self.newest


def connect(server: Server, provider: Any) -> leasehold.Client:
    return leasehold.connect(server.url, credentials=provider, io_timeout=20)


def test_no_lease_is_lost_and_no_acquire_fails_while_they_change(server: Server, name: str) -> None:
    maker = Maker(server)
    maker.next(0)
    over = threading.Event()
    turns: list[int] = []
    failed: list[BaseException] = []

    def take_turns(client: leasehold.Client) -> None:
        try:
            while not over.is_set():
                with client.lock(name, wait=20) as lease:
                    turns.append(lease.fence)
                    time.sleep(0.005)
        except BaseException as error:
            failed.append(error)

    with connect(server, maker) as client:
        held = client.lock(name + ":held", ttl=3).acquire()
        threads = [threading.Thread(target=take_turns, args=(client,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(1, ROUNDS + 1):
            time.sleep(EVERY_S)
            maker.next(number)
            if number >= 3:
                maker.end(number - 3)
        over.set()
        for thread in threads:
            thread.join()
        assert not failed
        assert len(turns) > 20
        assert held.valid
        held.release()
    assert len(maker.asked) >= 3
    assert maker.asked[0].host == "127.0.0.1" and maker.asked[0].user is None


def raises(_: Endpoint) -> Any:
    raise PermissionError("the vault is sealed")


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (raises, "PermissionError: the vault is sealed"),
        (lambda _: ("app", "a", 1), "a secret that ended at 1970-01-01T00:00:01Z"),
        (lambda _: ("app", "a", datetime(2020, 1, 1)), "without a time zone"),
        (lambda _: "a", "TypeError: it returned str, and not a tuple"),
        (lambda _: ("app", b"a"), "are no str"),
        (lambda _: ("app", "a", "soon"), "valid_until is seconds since 1970"),
        (lambda _: ("app", ""), "returned an empty secret"),
    ],
)
def test_what_it_does_wrong_is_the_text_of_one_error(
    server: Server, name: str, provider: Any, says: str
) -> None:
    with connect(server, provider) as client:
        with pytest.raises(leasehold.Auth, match=says):
            client.lock(name, wait=0).acquire()


def test_it_is_a_function_for_a_server_and_a_url_without_a_password(server: Server) -> None:
    with pytest.raises(TypeError, match="it is a function of an Endpoint"):
        connect(server, "s3cret")
    for url in ("redis://:hunter2@h", "memory:"):
        with pytest.raises(leasehold.BadArgument, match="credentials"):
            leasehold.connect(url, credentials=raises)


def test_an_end_may_be_a_datetime(server: Server, name: str) -> None:
    end = datetime.now(timezone.utc) + timedelta(hours=1)
    calls: list[Endpoint] = []

    def provider(to: Endpoint) -> Any:
        calls.append(to)
        return ("default", "any", end)

    with connect(server, provider) as client:
        client.lock(name, wait=0).acquire().release()
        assert len(calls) == 1


PROGRAM = """
import sys, time, leasehold_lock as leasehold
def slow(to):
    time.sleep(0.3)
    return ("default", "any", time.time() + 0.4)
client = leasehold.connect(sys.argv[1], credentials=slow)
client.lock("n").acquire()
time.sleep(0.4)
"""


def test_a_program_that_exits_in_the_midst_of_a_call_exits_well(server: Server) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, server.url], check=True, timeout=60)


# ---- the recipes of the documentation ----------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs/how-to/credentials-that-expire.md"
BLOCK = re.compile(r"^```python recipe=(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPES = dict(BLOCK.findall(PAGE.read_text())) if PAGE.exists() else {}


def stand_ins() -> dict[str, Any]:
    """Modules of the clouds, whose makers of tokens know one token."""
    token = SimpleNamespace(token="any", expires_on=time.time() + 900)

    def sign(request: Any) -> None:
        request.url = "https://any"

    google_credentials = SimpleNamespace(
        token="any",
        expiry=datetime.now(timezone.utc).replace(tzinfo=None) + timedelta(hours=1),
        refresh=lambda request: None,
    )
    google_auth = SimpleNamespace(default=lambda scopes: (google_credentials, "project"))
    return {
        "boto3": SimpleNamespace(
            client=lambda service: SimpleNamespace(
                generate_db_auth_token=lambda host, port, user: "any"
            )
        ),
        "botocore.session": SimpleNamespace(
            Session=lambda: SimpleNamespace(get_credentials=lambda: "of the machine")
        ),
        "botocore.auth": SimpleNamespace(
            SigV4QueryAuth=lambda key, service, region, expires: SimpleNamespace(add_auth=sign)
        ),
        "botocore.awsrequest": SimpleNamespace(
            AWSRequest=lambda method, url, params: SimpleNamespace(url=url)
        ),
        "azure.identity": SimpleNamespace(
            DefaultAzureCredential=lambda: SimpleNamespace(get_token=lambda scope: token)
        ),
        "google": SimpleNamespace(auth=google_auth),
        "google.auth": google_auth,
        "google.auth.transport.requests": SimpleNamespace(Request=lambda: None),
    }


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not here")
@pytest.mark.parametrize("recipe", ["elasticache", "rds", "azure", "cloudsql"])
def test_a_recipe_of_the_documentation_logs_in(
    server: Server, name: str, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, stand_in in stand_ins().items():
        monkeypatch.setitem(sys.modules, module, stand_in)
    opened: list[Any] = []
    monkeypatch.setattr(leasehold, "connect", lambda url, credentials: opened.append(credentials))
    exec(RECIPES[recipe], {"leasehold": leasehold})
    monkeypatch.undo()
    # The server lets everybody in as the default user, with any password.
    (callback,) = opened
    user, secret, end = callback(Endpoint("db.example.com", 5432, "app"))
    assert user and secret == "any"
    with connect(server, lambda to: ("default", secret, end)) as client:
        client.lock(name, wait=0).acquire().release()
