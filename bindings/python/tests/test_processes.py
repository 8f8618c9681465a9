"""Forks, other processes, threads, and the end of the interpreter."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import Run, Until, script
from server import Server

import leasehold_lock as leasehold

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(check: Callable[[], None]) -> int:
    """Runs it in a forked child; 0 if it returned."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_a_child_goes_on_with_client_and_locks_and_owns_no_lease(url: str, name: str) -> None:
    client = leasehold.connect(url)
    lock, mine = client.lock(name, wait=0.15), client.lock(name + ":child")
    events = client.events()
    with lock as lease:

        def child() -> None:
            assert not lease.valid and lease.remaining == 0 and events.fileno() == -1
            ends = [lease.release, lease.let_expire, lease.detach, lease.release]
            calls: list[Callable[[], Any]] = [lease.extend, *ends, lease.extend, events.try_next]
            for call in calls:
                with pytest.raises(leasehold.Forked):
                    call()
            assert client.counters().granted == 0
            client.ping()
            assert lock.try_acquire() is None and lock.inspect().held
            with pytest.raises(leasehold.Timeout):
                lock.__enter__()  # The parent's thread holds it; this one does not.
            with mine as own:
                assert own.valid
                with pytest.raises(leasehold.WouldDeadlock):
                    mine.__enter__()
                # A child of the child, too.
                assert in_child(lambda: leave(mine)) == 0
            assert client.events().try_next() is None
            with leasehold.connect(url) as another:
                assert another.lock(name).try_acquire() is None
            client.close()
            with pytest.raises(leasehold.Closed):
                mine.acquire()

        for _ in range(3):
            assert in_child(child) == 0
        assert lease.valid
    assert not lock.inspect().held
    client.close()


def leave(lock: leasehold.Lock) -> None:
    """In a child that was forked in a block."""
    with pytest.raises(leasehold.Timeout):
        lock.acquire_within(0)
    with pytest.raises(leasehold.Forked):
        lock.__exit__(None, None, None)


def test_callbacks_in_a_child(server: Server, redis_client: leasehold.Client, name: str) -> None:
    """A child calls what is registered there, and never what its parent has registered."""
    lock, told = redis_client.lock(name, ttl=1), threading.Event()
    parents = redis_client.lock(name + ":parent's").acquire()
    parents.on_lost(lambda event: told.set())

    def child() -> None:
        with pytest.raises(leasehold.Forked):
            parents.on_lost(print)
        lease = lock.acquire()
        lease.on_lost(lambda event: told.set())
        assert server.call("DEL", name) == b":1\r\n"
        assert told.wait(20) and not lease.valid

    def after_a_failure() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(redis_client._watcher, "_subscribe", lambda: 1 / 0)
            with lock as lease, pytest.raises(ZeroDivisionError):
                lease.on_lost(print)
        child()

    def grandchild() -> None:
        assert in_child(child) == 0

    for work in (child, after_a_failure, grandchild):
        assert in_child(work) == 0
    assert parents.valid and not told.is_set()
    parents.release()


def test_the_end_of_a_with_block_in_a_child(server: Server, name: str) -> None:
    client = leasehold.connect(server.url)
    child = None
    try:
        with client.lock(name):
            child = os.fork()
            if child == 0:
                pass  # goes on to the end of the block, and gives nothing back
        if child == 0:
            os._exit(1)
    except leasehold.Forked:
        os._exit(0 if child == 0 else 1)
    assert child is not None
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.close()


def test_a_child_forked_while_other_threads_use_the_client(url: str, name: str) -> None:
    client = leasehold.connect(url)
    over = threading.Event()

    def work(number: int) -> None:
        lock = client.lock(f"{name}:{number % 2}", wait=60)
        while not over.is_set():
            with lock:
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:

        def child() -> None:
            with client.lock(name + ":0", wait=60):  # In line behind the parent's threads.
                pass

        for _ in range(20):
            assert in_child(child) == 0
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    client.close()


COUNT = """
    import multiprocessing, sys
    import leasehold_lock as leasehold

    _, url, name, path, method = sys.argv
    lock = leasehold.connect(url).lock(name, wait=60)

    def count_up(times):
        for _ in range(times):
            with lock:
                with open(path) as file:
                    number = int(file.read())
                with open(path, "w") as file:
                    file.write(str(number + 1))

    if __name__ == "__main__":
        context = multiprocessing.get_context(method)
        children = [
            context.Process(target=count_up, args=(25,)) for _ in range(4)
        ]
        count_up(10)
        for child in children:
            child.start()
        count_up(15)
        for child in children:
            child.join()
        print([child.exitcode for child in children])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(url: str, name: str, method: str, tmp_path: Path) -> None:
    """Several processes add to the number in a file, which only a lock keeps right."""
    program, number = tmp_path / "count.py", tmp_path / "number"
    program.write_text(textwrap.dedent(COUNT))
    number.write_text("0")
    command = [sys.executable, "-W", "ignore", str(program), url, name, str(number), method]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.stdout, result.stderr) == ("[0, 0, 0, 0]\n", "")
    assert number.read_text() == "125"


def test_threads_exclude_each_other(client: leasehold.Client, name: str) -> None:
    lock = client.lock(name, wait=60)
    inside: list[int] = []
    most: list[int] = []
    fences: list[int] = []

    def work() -> None:
        for _ in range(20):
            with lock as lease:
                inside.append(1)
                most.append(len(inside))
                fences.append(lease.fence)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(most) == 1 and len(fences) == 160 and fences == sorted(set(fences))


def test_another_thread_may_release(client: leasehold.Client, name: str) -> None:
    lease = client.lock(name).acquire()
    failures: list[BaseException] = []

    def release() -> None:
        try:
            lease.release()
        except leasehold.Lost as error:
            failures.append(error)

    threads = [threading.Thread(target=release) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(failures) == 7 and not client.lock(name).inspect().held


def test_closing_wakes_those_who_wait(server: Server, name: str, until: Until) -> None:
    client = leasehold.connect(server.url)
    lock = client.lock(name, wait=600)
    lease = lock.acquire()
    outcomes: list[tuple[type, float]] = []

    def wait() -> None:
        try:
            lock.acquire()
        except leasehold.Error as error:
            outcomes.append((type(error), time.monotonic()))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: client.counters().busy >= 2)
    client.close()
    for thread in threads:
        thread.join(20)
    assert [kind for kind, _ in outcomes] == [leasehold.Closed] * 3
    assert not lease.valid


EXIT = """
    import sys, threading, time, asyncio
    import leasehold_lock as leasehold, leasehold_lock.aio
    _, url, name, how = sys.argv
    client = leasehold.connect(url)
    lock = client.lock(name, ttl=5)
    kept = lock.acquire()
    kept.on_lost(print)
    iterator = iter(client.events())
    more = [client.lock(f"{name}:{n}").acquire() for n in range(50)]
    if how == "cycle":
        class Node: pass
        node = Node()
        node.me, node.lease, node.client = node, client.lock(name + ":node").acquire(), client
        del node
    if how == "with":
        lock.__class__.__enter__(client.lock(name + ":with"))
    if how == "waiting":
        for wait in (lambda: lock.acquire_within(600), lambda: next(iterator)):
            threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
    if how == "asyncio":
        async def main():
            asyncio.ensure_future(leasehold_lock.aio.acquire_within(lock, 600))
            leasehold_lock.aio.on_lost(kept, print)
            await asyncio.sleep(0.2)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
    if how == "error":
        raise SystemExit("the end")
    print("done")
"""


@pytest.mark.parametrize("how", ["plain", "cycle", "with", "waiting", "asyncio", "error"])
def test_the_end_of_the_interpreter(
    run: Run, server: Server, redis_client: leasehold.Client, name: str, how: str
) -> None:
    start = time.monotonic()
    result = run(EXIT, server.url, name, how)
    assert time.monotonic() - start < 10
    if how == "error":
        assert (result.stderr, result.returncode) == ("the end\n", 1)
    elif how == "asyncio":
        # Python itself complains of the task that nobody waits for; it names nothing of ours.
        assert result.returncode == 0 and "Exception ignored" not in result.stderr
    else:
        assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)
    # It asks nobody: the ttl frees what was held.
    assert redis_client.lock(name).inspect().held


def test_the_end_while_the_server_sleeps(run: Run, own_server: Server, name: str) -> None:
    text = """
        import os, signal, sys
        import leasehold_lock as leasehold
        _, url, name, server = sys.argv
        lease = leasehold.connect(url).lock(name).acquire()
        os.kill(int(server), signal.SIGSTOP)
    """
    start = time.monotonic()
    try:
        result = run(text, own_server.url, name, str(own_server.pid))
    finally:
        own_server.wake_up()
    assert (result.stderr, result.returncode) == ("", 0) and time.monotonic() - start < 10


def test_a_killed_holder_frees_its_lock_by_the_ttl(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    text = """
        import sys, time
        import leasehold_lock as leasehold
        lease = leasehold.connect(sys.argv[1]).lock(sys.argv[2], ttl=1).acquire()
        print("held", flush=True)
        time.sleep(600)
    """
    command = script(text, server.url, name)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    child.kill()
    child.wait()
    redis_client.lock(name).acquire_within(20).release()
