"""Taking, holding and giving back, on both stores."""

import asyncio
import copy
import gc
import math
import os
import pickle
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Callable

import pytest
from conftest import Until
from server import Server

import leasehold_lock as leasehold
from leasehold_lock import _abi, _lock


def test_a_lock_is_held_by_one(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    lease = client.lock(name).try_acquire()
    assert lease is not None and lease.valid and 0 < lease.remaining <= 30
    assert other.lock(name).try_acquire() is None
    lease.release()
    assert not lease.valid and lease.remaining == 0
    later = other.lock(name).try_acquire()
    assert later is not None and later.fence > lease.fence
    later.release()


def test_with_a_with_statement(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    with client.lock(name, ttl=10, wait=5) as lease:
        assert lease.name == name and lease.fence > 0 and len(lease.token) == 32
        assert other.lock(name).try_acquire() is None
    # The end of the block does not wait for the server's reply.
    until(lambda: not other.lock(name).inspect().held)


def test_a_lease_is_a_context_too(client: leasehold.Client, name: str) -> None:
    with client.lock(name).acquire_within(1) as lease:
        assert lease.valid
    assert not client.lock(name).inspect().held


def test_the_exception_of_the_block_comes_through(client: leasehold.Client, name: str) -> None:
    lock = client.lock(name)
    with pytest.raises(ZeroDivisionError):
        with lock:
            1 / 0
    assert not lock.inspect().held


def test_nesting_on_one_lock_is_refused_at_once(client: leasehold.Client, name: str) -> None:
    lock = client.lock(name)
    with lock:
        with pytest.raises(leasehold.WouldDeadlock, match="this thread"):
            lock.__enter__()
        assert lock.inspect().held
    with lock:
        pass


def test_a_block_that_ends_its_lease_itself(client: leasehold.Client, name: str) -> None:
    lock = client.lock(name)
    with lock as lease:
        lease.release()
    with lock as lease:
        lease.let_expire(after=0.01)


def test_a_lost_lease_ends_the_block_with_an_error(server: Server, name: str, until: Until) -> None:
    with leasehold.connect(server.url) as client:
        lock = client.lock(name, ttl=3)

        def lose(lease: leasehold.Lease) -> None:
            server.call("DEL", name)
            until(lambda: not lease.valid)

        with pytest.raises(leasehold.Lost):
            with lock as lease:
                lose(lease)
        with pytest.raises(ZeroDivisionError):  # which is more important
            with lock as lease:
                lose(lease)
                1 / 0
        with pytest.raises(leasehold.Lost):
            with lock.acquire() as lease:
                lose(lease)


def test_a_block_whose_lock_was_broken_ends_with_who_did_it(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    lock = client.lock(name)

    def breaks(lease: leasehold.Lease) -> None:
        assert other.lock(name).break_held("root@desk-3", lease.fence) == lease.fence
        with pytest.raises(leasehold.Lost):
            lease.extend()  # as the next renewal would hear of it

    for in_block in [True, False]:
        with pytest.raises(leasehold.Lost, match="root@desk-3"):
            with lock if in_block else lock.acquire() as lease:
                breaks(lease)
        with pytest.raises(ZeroDivisionError):
            with lock if in_block else lock.acquire() as lease:
                breaks(lease)
                1 / 0

    async def block(raises: bool) -> None:
        async with lock as lease:
            await asyncio.to_thread(breaks, lease)
            if raises:
                1 / 0

    with pytest.raises(leasehold.Lost, match="root@desk-3"):
        asyncio.run(block(False))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(block(True))


def test_two_threads_that_are_the_first_in_a_lock_find_their_own_leases(
    client: leasehold.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, both, made = client.lock(name), threading.Barrier(2, timeout=20), _lock._Held

    def slow() -> _lock._Held:
        both.wait()
        return made()

    monkeypatch.setattr(_lock, "_Held", slow)

    def turn() -> int:
        with lock as lease:
            time.sleep(0.05)
            return lease.fence

    with ThreadPoolExecutor() as pool:
        turns = [pool.submit(turn) for _ in range(2)]
        assert len({each.result() for each in turns}) == 2


def test_what_a_block_raises_comes_before_a_lease_that_another_thread_ends(
    client: leasehold.Client, name: str
) -> None:
    class EndedBetween(list[Any]):
        """There when it is looked for, gone when it is taken."""

        def __getitem__(self, place: Any) -> Any:
            raise IndexError

    for in_block in [True, False]:
        with pytest.raises(ZeroDivisionError):
            with client.lock(name) if in_block else client.lock(name).acquire() as lease:
                lease._rooms = EndedBetween(lease._rooms)
                1 / 0
        with pytest.raises(leasehold.Lost):
            with client.lock(name) as lease:
                lease._rooms = EndedBetween(lease._rooms)


def test_a_key_that_was_deleted_is_told_by_release_or_by_an_event(
    server: Server, name: str
) -> None:
    with leasehold.connect(server.url) as client:
        events, lock = client.events(), client.lock(name)
        for in_block in [True, False]:
            with lock if in_block else lock.acquire() as lease:
                server.call("DEL", name)
            event = events.next_within(20)
            assert event is not None and event.fence == lease.fence
            assert event.kind is leasehold.EventKind.RELEASED_LATE
        with pytest.raises(leasehold.Lost):
            with lock as lease:
                server.call("DEL", name)
                lease.release()
        assert client.counters().released_late == 3


def test_a_block_leaves_the_lock_free(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    for _ in range(50):
        with client.lock(name):
            pass
        with client.lock(name).acquire_within(0):  # for this client, at once
            pass
    until(lambda: not other.lock(name).inspect().held)


def test_waiting_ends_with_a_timeout(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    with client.lock(name):
        start = time.monotonic()
        with pytest.raises(leasehold.Timeout) as caught:
            other.lock(name, wait=0.2).acquire()
        assert 0.15 < time.monotonic() - start < 5
        assert isinstance(caught.value, TimeoutError) and caught.value.retriable
        assert caught.value.name == "timeout"
        with pytest.raises(leasehold.Timeout):
            other.lock(name).acquire_within(0)
        with pytest.raises(leasehold.Timeout):
            other.lock(name, attempts=2, wait_mode="spin").acquire_within(math.inf)
        with pytest.raises(leasehold.Timeout):
            other.lock(name, wait=timedelta(milliseconds=20)).__enter__()


def test_a_wait_gets_the_lock_in_every_mode(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    modes: list[leasehold.WaitMode] = ["auto", "spin"]
    for mode in modes:
        lease = client.lock(name).acquire()
        with ThreadPoolExecutor() as threads:
            later = threads.submit(other.lock(name, wait_mode=mode).acquire)
            with pytest.raises(leasehold.Timeout):
                other.lock(name, wait_mode=mode).acquire_within(0.1)
            lease.release()
            assert later.result().fence > lease.fence
            later.result().release()


def test_waiting_without_limit_for_oneself_is_refused(client: leasehold.Client, name: str) -> None:
    with client.lock(name):
        with pytest.raises(leasehold.WouldDeadlock):
            client.lock(name).acquire_within(math.inf)


def test_what_is_released_twice_is_lost(client: leasehold.Client, name: str) -> None:
    lease = client.lock(name).acquire()
    lease.release()
    calls: list[Callable[[], Any]] = [lease.release, lease.let_expire, lease.extend, lease.detach]
    for call in calls:
        with pytest.raises(leasehold.Lost):
            call()
    with pytest.raises(leasehold.Lost):
        lease.token


def test_extending(client: leasehold.Client, name: str) -> None:
    lease = client.lock(name, ttl=1, renew=False).acquire()
    lease.extend(60)
    assert 50 < lease.remaining <= 60
    lease.extend()  # never makes it shorter
    assert lease.remaining > 50
    lease.release()


def test_a_lease_without_renewal_ends(client: leasehold.Client, name: str, until: Until) -> None:
    lease = client.lock(name, ttl=0.05, renew=False).acquire()
    until(lambda: not lease.valid)
    # The store has it a little longer.
    until(lambda: not client.lock(name).inspect().held)
    with pytest.raises(leasehold.Lost):
        lease.release()


def test_renewal_goes_beyond_the_ttl(client: leasehold.Client, name: str, until: Until) -> None:
    lease = client.lock(name, ttl=3).acquire()
    until(lambda: client.counters().renewed >= 4)
    assert lease.valid
    lease.release()


def test_letting_it_expire(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    lease = client.lock(name).acquire()
    lease.let_expire(after=0.2)
    assert not lease.valid
    assert other.lock(name).try_acquire() is None
    until(lambda: not other.lock(name).inspect().held)
    lease = client.lock(name).acquire()
    with pytest.raises(leasehold.BadArgument):
        lease.let_expire(after=10**9)
    assert lease.valid  # and goes on
    lease.release()


def test_handing_on(client: leasehold.Client, other: leasehold.Client, name: str) -> None:
    token, fence = client.lock(name).acquire().detach()
    lease = other.lock(name).attach(token, fence)
    assert not lease.valid
    lease.extend()
    assert lease.valid and lease.fence == fence and lease.token != token
    lease.release()
    assert not client.lock(name).inspect().held
    for bad in [("0" * 31, 1), ("0" * 32, 0), ("0" * 32, 2**53)]:
        with pytest.raises(leasehold.BadArgument):
            other.lock(name).attach(*bad)


def test_showing(client: leasehold.Client, name: str) -> None:
    lock = client.lock(name, ttl=10)
    assert lock.inspect() == leasehold.LockState(False, "", 0, None, None)
    with lock as lease:
        state = lock.inspect()
        assert state.held and state.fence == state.last_fence == lease.fence
        assert lease.token.startswith(state.token_prefix) and 5 < state.ttl <= 10
        assert state.waiters == () and state.more_waiters == 0


def test_who_it_is(url: str, name: str) -> None:
    def known(client: leasehold.Client) -> leasehold.LockState:
        deadline = time.monotonic() + 20
        while (state := client.lock(name).inspect()).client is None:
            assert time.monotonic() < deadline, "it says so soon after its first lease"
            time.sleep(0.01)
        return state

    with leasehold.connect(url, label="billing") as one, leasehold.connect(url) as other:
        deadline = time.monotonic() + 20
        with one.lock(name) as lease:
            state = known(other)
            info = state.client
            assert info is not None and lease.token.startswith(info.id)
            assert (info.language, info.label, info.pid) == ("python", "billing", os.getpid())
            assert info.program == os.path.basename(sys.argv[0]) or sys.argv[0].endswith(
                "__main__.py"
            )
            assert info.host == socket.gethostname() and info.version == leasehold.__version__
            assert info.started is not None and abs(time.time() - info.started) < 60
            assert state.held_for is None or 0 <= state.held_for < 60
            assert state.who.startswith(
                f"{info.host} (python {info.program}, pid {info.pid}, label"
            )
            said = ""
            while "label billing" not in said:
                with pytest.raises(leasehold.Timeout) as raised:
                    other.lock(name, wait=0.5).acquire()
                said = str(raised.value)
                assert time.monotonic() < deadline, said
    with leasehold.connect(url, register=False) as silent, silent.lock(name):
        assert silent.lock(name).inspect().client is None
    with pytest.raises(leasehold.BadArgument):
        leasehold.connect(url, label="x" * 101)


@pytest.mark.parametrize("text", [b"\x00\xff\x80 binary", "größe:{tag}", b"plain", "\udcff"])
def test_names_are_any_bytes(client: leasehold.Client, other: leasehold.Client, text: Any) -> None:
    with client.lock(text) as lease:
        same = lease.name.encode("utf-8", "surrogateescape")
        assert other.lock(same).try_acquire() is None
        assert other.lock(lease.name).try_acquire() is None


def test_a_failure_of_one_lock_names_it(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    odd = f"{name} \x1b[2J\udcff"
    lock = other.lock(odd)
    with client.lock(odd) as lease:
        with pytest.raises(leasehold.Timeout) as timeout:
            lock.acquire_within(0)
        first, second = (lock.attach(lease.token, lease.fence) for _ in range(2))
    with pytest.raises(leasehold.Lost) as lost:
        first.extend()
    with pytest.raises(leasehold.Lost) as late:
        second.release()
    with pytest.raises(leasehold.Lost) as over:
        second.release()
    for caught in [timeout, lost, late, over]:
        assert name in str(caught.value)
        assert "\x1b" not in str(caught.value) and "\udcff" not in str(caught.value)


def test_a_client_is_not_made_by_hand() -> None:
    """And says so without an exception of its end, which nobody could catch."""
    made: Any = leasehold.Client
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        for arguments in [(), (7,), (None,), ("redis://localhost",)]:
            with pytest.raises(TypeError, match="leasehold.connect"):
                made(*arguments)
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert not ignored


def test_what_can_never_work_is_refused(client: leasehold.Client) -> None:
    lock: Any = client.lock
    options: Any
    for options in [
        {"ttl": -1},
        {"wait": -0.1},
        {"ttl": math.nan},
        {"attempts": -1},
        {"wait_mode": ""},
    ]:
        with pytest.raises(leasehold.BadArgument) as refused:
            lock("x", **options)
        assert refused.value.__context__ is None  # Nothing else is printed before it.
    wrong = [{"ttl": 0}, {"ttl": 10**9}, {"ttl": 0.05, "renew": True}]
    spin = {"wait_mode": "spin", "attempts": 0}
    not_spin = [{"attempts": 2}, {"backoff": leasehold.Backoff(), "wait_mode": "auto"}]
    for options in [*wrong[:2], spin, {"io_timeout": 0}]:
        with pytest.raises(leasehold.BadArgument):
            lock("x", **options)
    for options in [wrong[2], *not_spin]:
        with pytest.raises(leasehold.BadArgument):
            lock("x", **options).acquire()
    with pytest.raises(leasehold.BadArgument, match="the ttl is 2 ms; it goes from 3 ms to 366 d"):
        lock("x", ttl=0.002)
    for options in [{"ttl": "10s"}, {"wait": True}, {"attempts": 1.5}, {"wait_mode": 2}]:
        with pytest.raises(TypeError):
            lock("x", **options)
    with pytest.raises(TypeError):
        lock(42)
    with pytest.raises(leasehold.BadArgument) as caught:
        lock("")
    assert isinstance(caught.value, ValueError) and not caught.value.retriable
    with pytest.raises(leasehold.BadArgument):
        lock("n" * 70000)


def test_nothing_of_it_goes_through_pickle_or_copy(client: leasehold.Client, name: str) -> None:
    with client.events() as events, client.lock(name) as lease:
        for thing in [client, client.lock(name), lease, events]:
            with pytest.raises(TypeError):
                pickle.dumps(thing)
            with pytest.raises(TypeError):
                copy.copy(thing)


def test_errors_go_through_pickle(client: leasehold.Client, name: str) -> None:
    with client.lock(name), pytest.raises(leasehold.Timeout) as caught:
        client.lock(name).acquire_within(0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is leasehold.Timeout and str(again) == str(caught.value)


def test_what_is_printed_shows_no_secret(server: Server, name: str) -> None:
    client = leasehold.connect(f"redis://:hunter2@127.0.0.1:{server.port}")
    assert "hunter2" not in repr(client) + repr(client.lock("x")) + client.store
    with pytest.raises(leasehold.Auth) as caught:
        client.ping()
    assert "hunter2" not in str(caught.value) + caught.value.detail
    client.close()
    with leasehold.connect(server.url) as client, client.lock(name) as lease:
        assert lease.token not in repr(lease)


def test_closing(client: leasehold.Client, other: leasehold.Client, name: str) -> None:
    lease = client.lock(name).acquire()
    client.close()
    client.close()
    assert not lease.valid
    assert not other.lock(name).inspect().held
    calls: list[Callable[[], Any]] = [client.ping, client.lock(name).acquire, lease.release]
    for call in calls:
        with pytest.raises(leasehold.Closed):
            call()


def test_settings_of_a_client(server: Server, name: str) -> None:
    with leasehold.connect(
        server.url,
        prefix="app:",
        io_timeout=0.5,
        pool=2,
        close_timeout=timedelta(seconds=2),
        claim_window=0.5,
    ) as client:
        client.ping()
        with client.lock(name):
            assert server.get(f"app:{name}") is not None
    refused: list[dict[str, Any]] = [{"pool": 0}, {"pool": 2**32}]
    refused += [{"io_timeout": -1}, {"io_timeout": 10**6}, {"claim_window": 0.01}]
    refused += [{"pool": -1}, {"max_ttl": 0.5}]
    for settings in refused:
        with pytest.raises(leasehold.BadArgument):
            leasehold.connect(server.url, **settings)
    with pytest.raises(leasehold.BadArgument, match="pool is 0; it goes from 1 to 1024"):
        leasehold.connect(server.url, pool=0)
    one: Any = 1
    with pytest.raises(TypeError):
        leasehold.connect(server.url, guard_data_loss=one)
    with pytest.raises(leasehold.BadArgument, match="guard"):
        leasehold.connect(server.url).initialize()
    members = ["redis://a", "redis://b", "redis://c"]
    with leasehold.connect(members) as quorum:
        assert quorum.store.split(",") == [f"{member}:6379/0" for member in members]
    with pytest.raises(leasehold.BadArgument):
        leasehold.connect(members[:2])
    for url in ["nonsense", "redis://", "http://localhost", "redis://h?colour=green"]:
        with pytest.raises(leasehold.BadArgument):
            leasehold.connect(url)


def test_metrics_tell_groups_of_names_apart(url: str, name: str) -> None:
    with leasehold.connect(url, metrics_groups=[f"{name}:a*", f'{name}:\0"']) as client:
        for end in ["a1", "a2", '\0"', "b"]:
            with client.lock(f"{name}:{end}"):
                text = client.metrics_text()
        lines = text.splitlines()
        assert f'leasehold_acquisitions_total{{lock="{name}:a*",outcome="granted"}} 2' in lines
        assert f'leasehold_hold_seconds_count{{lock="{name}:\0\\""}} 1' in lines
        assert 'leasehold_held{lock="*"} 1' in lines
    assert 'leasehold_held{lock="*"} 0' in client.metrics_text().splitlines()
    groups: Any
    for groups, error in [(["*"], leasehold.BadArgument), ("stock:*", TypeError), ([7], TypeError)]:
        with pytest.raises(error):
            leasehold.connect(url, metrics_groups=groups)


def test_new_servers_that_guard_are_declared(own_server: Server) -> None:
    with leasehold.connect(own_server.url, max_ttl=5, guard_data_loss=True) as guarded:
        with pytest.raises(leasehold.BadArgument, match="3 ms to 5 s, this store's max_ttl"):
            guarded.lock("n", ttl=6)
        guarded.initialize(force=True)
        with guarded.lock("n", ttl=5):
            pass


def test_without_a_url_the_environment_names_the_store(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with leasehold.connect() as client:
        assert str(tmp_path) in client.store
    monkeypatch.setenv("LEASEHOLD_URL", server.url)
    with leasehold.connect() as client:
        assert str(server.port) in client.store


def test_the_fence_of_a_free_lock_breaks_nothing(client: leasehold.Client, name: str) -> None:
    lock = client.lock(name)
    assert lock.inspect().fence is None
    with lock as lease:
        for fence in (0, -1):
            with pytest.raises(leasehold.BadArgument, match=f"{fence} is no fence"):
                lock.break_held("an operator", fence)
        assert lock.break_held("an operator", lease.fence + 1) is None


def test_no_handle_is_left(url: str, name: str) -> None:
    gc.collect()
    before = _abi.handle_count()
    client = leasehold.connect(url)
    for number in range(300):
        with client.lock(f"{name}:{number}", ttl=5):
            pass
    with client.events() as events:
        events.try_next()
    client.lock(name).inspect()
    client.metrics_text()
    for _ in range(3):
        with pytest.raises(leasehold.BadArgument):
            client.lock("").acquire()
    client.close()
    del client, events
    gc.collect()
    assert _abi.handle_count() == before
