"""The library's log is that of `logging`, without a call of the user's."""

import logging
import math
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Until, script
from server import Server

import leasehold_lock as leasehold

#: Something that is logged on the thread that calls.
LOSE = """
    import os, sys, leasehold_lock as leasehold
    _, url, name = sys.argv
    def lose(client):
        try:
            client.lock(name).attach("0123456789abcdef0123456789abcdef", 1).extend()
        except leasehold.Lost:
            pass
"""


def run(text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = script(LOSE + text, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


def test_records_reach_the_logger_of_the_package(
    server: Server, redis_client: leasehold.Client, name: str, until: Until
) -> None:
    handler, logger = Records(), logging.getLogger("leasehold")
    logger.addHandler(handler)
    try:
        lease = redis_client.lock(name, ttl=3).acquire()
        server.call("DEL", name)
        until(lambda: [one for one in handler.seen if f"lock={name} " in one.getMessage()])
    finally:
        logger.removeHandler(handler)
    (told,) = [one for one in handler.seen if f"lock={name} " in one.getMessage()]
    assert (told.levelno, told.name) == (logging.WARNING, "leasehold")
    assert told.getMessage() == f"lost lock={name} fence={lease.fence} reason=not_held"


def test_a_thread_that_waits_for_itself_is_told(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    """Also where it holds the lock by another client of the same store, here a file."""
    holder = other if client.store.startswith("sqlite:") else client
    handler, logger = Records(), logging.getLogger("leasehold")
    logger.addHandler(handler)

    def told() -> list[str]:
        lines = [one.getMessage() for one in handler.seen]
        return [line for line in lines if line.startswith(f"waits-for-itself lock={name} ")]

    def release() -> None:
        try:
            until(told)
        finally:
            first.release()

    try:
        first = holder.lock(name).acquire()
        with ThreadPoolExecutor() as threads:
            releasing = threads.submit(release)
            client.lock(name).acquire_within(600).release()
            releasing.result()
        fields = re.fullmatch(r"waits-for-itself lock=(\S+) fence=(\d+) since_ms=(\d+)", told()[0])
        assert fields is not None and fields[2] == str(first.fence) and int(fields[3]) >= 3000
        assert len(told()) == 1
    finally:
        logger.removeHandler(handler)


def test_a_wait_without_limit_for_what_the_thread_holds_by_another_client_is_refused(
    redis_client: leasehold.Client, server: Server, name: str
) -> None:
    """Not at once: what is asked for a Ctrl-C meanwhile could release it."""
    with leasehold.connect(server.url) as other, redis_client.lock(name) as lease:
        with pytest.raises(leasehold.WouldDeadlock, match=f"with fence {lease.fence}"):
            other.lock(name).acquire_within(math.inf)


def test_a_wait_that_runs_out_says_that_it_was_for_the_thread_itself(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    with client.lock(name):
        for one in [client, other]:
            with pytest.raises(
                leasehold.Timeout, match="held by .*this very thread, not free within"
            ):
                one.lock(name).acquire_within(0.1)
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(lambda: other.lock(name).acquire_within(0.1))
            error = waiting.exception()
        assert isinstance(error, leasehold.Timeout) and "this very thread" not in str(error)


@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        ("", "lost lock=NAME fence=1 reason=not_held\n"),
        (
            "import logging; logging.basicConfig()",
            "WARNING:leasehold:lost lock=NAME fence=1 reason=not_held\n",
        ),
        ("import logging; logging.getLogger('leasehold').setLevel(logging.CRITICAL)", ""),
        ("import logging; logging.getLogger('leasehold').disabled = True", ""),
    ],
)
def test_what_is_logged_last_is_printed_before_the_end(
    server: Server, name: str, setting: str, printed: str
) -> None:
    text = f"""
    {setting}
    lose(leasehold.connect(url))
    """
    assert run(text, server.url, name).stderr == printed.replace("NAME", name)


@pytest.mark.parametrize("used", ["client", "leasehold.connect(url)"])
def test_a_child_has_a_log_of_its_own(server: Server, name: str, used: str) -> None:
    text = f"""
    client = leasehold.connect(url)
    child = os.fork()
    if child == 0:
        lose({used})
        print("child", flush=True)
        sys.exit()
    os.waitpid(child, 0)
    print("parent")
    """
    done = run(text, server.url, name)
    assert done.stdout == "child\nparent\n"
    assert done.stderr.count(f"lost lock={name} fence=1 ") == 1


def test_a_handler_may_fail_and_may_use_the_library(server: Server, name: str) -> None:
    text = """
    import logging
    client = leasehold.connect(url)
    class Handler(logging.Handler):
        def emit(self, record):
            with client.lock(name + ":in the handler"):
                print("told", flush=True)
            try:
                raise ValueError("on purpose")
            except ValueError:
                self.handleError(record)
    logging.getLogger("leasehold").addHandler(Handler())
    lose(client)
    lose(client)
    """
    done = run(text, server.url, name)
    assert done.stdout == "told\ntold\n" and done.stderr.count("ValueError: on purpose") == 2
