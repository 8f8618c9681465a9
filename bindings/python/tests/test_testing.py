"""A store for tests: each control, with the client that it happens to and another one; and the plugin for
pytest, in a pytest of its own."""

import asyncio
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, Until

import leasehold_lock as leasehold
import leasehold_lock.aio
from leasehold_lock.testing import Memory

HOUR = 3600


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory() as made:
        yield made


@pytest.fixture
def client(memory: Memory) -> leasehold.Client:
    return memory.client()


@pytest.fixture
def other(memory: Memory) -> leasehold.Client:
    return memory.client()


def held(client: leasehold.Client, name: str = "a", **options: Any) -> leasehold.Lease:
    lease = client.lock(name, **options).try_acquire()
    assert lease is not None
    return lease


def is_free(client: leasehold.Client, name: str = "a") -> bool:
    lease = client.lock(name).try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


# ---- The store ---------------------------------------------------------------------------------------


def test_each_memory_is_a_store_of_its_own_and_its_clients_exclude_each_other(
    memory: Memory, client: leasehold.Client
) -> None:
    with leasehold.connect(memory.url) as other, Memory() as apart, client.lock("a"):
        assert not is_free(other)
        assert is_free(apart.client())
    assert is_free(memory.client())


def test_clients_of_several_threads_are_never_inside_at_once(memory: Memory) -> None:
    inside: list[int] = []
    most: list[int] = []

    def contend(number: int) -> None:
        with leasehold.connect(memory.url + "?io_timeout=20s") as own:
            for _ in range(25):
                with own.lock("shared"):
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 100


def test_tasks_of_asyncio_exclude_each_other_and_a_thread(
    memory: Memory, client: leasehold.Client, other: leasehold.Client
) -> None:
    seen: list[str] = []

    async def work(name: str, own: leasehold.Client) -> None:
        async with own.lock("shared"):
            seen.append(name)
            await asyncio.sleep(0)
            seen.append(name)

    async def all_of_them() -> None:
        busy = memory.busy("shared")
        tasks = [
            asyncio.ensure_future(work(str(number), own))
            for number, own in enumerate([client, other] * 5)
        ]
        await asyncio.sleep(0.01)
        assert not seen
        busy.end()
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())
    assert seen[::2] == seen[1::2] and sorted(seen[::2]) == sorted(map(str, range(10)))


def test_a_memory_that_has_a_name_is_the_store_of_this_url(run: Run) -> None:
    done = run(
        """
        import os, leasehold_lock as leasehold
        from leasehold_lock.testing import Memory
        memory, again = Memory("orders"), Memory("50 %?")
        os.environ["LEASEHOLD_URL"] = "memory:orders"   # as a file with settings has it
        with leasehold.connect() as client, client.lock("a"):
            memory.assert_held("a")
            Memory("orders").assert_held("a")
        print(memory.url, again.url)
        """
    )
    assert (done.stdout, done.stderr) == ("memory:orders memory:50%20%25%3F\n", "")


# ---- The controls ------------------------------------------------------------------------------------


def test_a_lost_lease_is_told_at_once_and_the_lock_is_anothers(
    memory: Memory, client: leasehold.Client, other: leasehold.Client
) -> None:
    events, lease, kept = client.events(), held(client), held(client, "b")
    told = threading.Event()
    lease.on_lost(lambda event: told.set())
    memory.lose("a")
    assert not lease.valid and kept.valid
    event = next(events)
    assert (event.name, event.reason) == ("a", leasehold.LossReason.NOT_HELD)
    assert told.wait(20)
    following = held(other)
    assert following.fence > lease.fence
    with pytest.raises(leasehold.Lost):
        lease.release()
    assert following.valid


def test_a_task_is_cancelled_when_the_test_loses_its_lease(
    memory: Memory, client: leasehold.Client
) -> None:
    async def ship() -> None:
        async with client.lock("a") as lease, lease.scope():
            memory.lose("a")
            await asyncio.sleep(60)

    with pytest.raises(leasehold.Lost):
        asyncio.run(ship())
    memory.assert_free("a")


def test_a_busy_lock_is_held_until_its_end(
    memory: Memory, client: leasehold.Client, other: leasehold.Client, until: Until
) -> None:
    memory.busy("for long")  # It needs no variable.
    with memory.busy("a"):
        assert not is_free(client) and not is_free(other)
        with pytest.raises(leasehold.Timeout):
            client.lock("a", wait=0.02).acquire()
        memory.advance(timedelta(days=1000))
        assert not is_free(client)
        waiter = threading.Thread(target=lambda: held_and_released(client))
        waiter.start()
        until(lambda: client.lock("a").inspect().waiters)
    waiter.join(20)
    assert is_free(other) and memory.held() == ["for long"]


def held_and_released(client: leasehold.Client) -> None:
    with client.lock("a"):
        pass


def test_one_request_fails(memory: Memory, client: leasehold.Client) -> None:
    memory.fail_next(leasehold.Permission)
    memory.fail_next(leasehold.Auth)
    with pytest.raises(leasehold.Permission, match="the test lets this request fail"):
        client.lock("a").try_acquire()
    with pytest.raises(leasehold.Auth):
        client.lock("a").acquire()
    memory.fail_next(leasehold.Unavailable)
    with client.lock("a"):  # It was tried again.
        pass


KINDS = leasehold.Error.__subclasses__()
THE_CLIENTS = [
    leasehold.Timeout,
    leasehold.Interrupted,
    leasehold.Lost,
    leasehold.BadArgument,
    leasehold.BadHandle,
    leasehold.Closed,
    leasehold.Forked,
    leasehold.Sealed,
    leasehold.Panic,
    leasehold.WouldDeadlock,
]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in THE_CLIENTS])
def test_all_requests_fail_until_the_end(memory: Memory, kind: type[leasehold.Error]) -> None:
    hasty = memory.client(io_timeout=0.06)
    with memory.failing(kind), pytest.raises(kind):
        hasty.lock("a").try_acquire()
    memory.client().lock("a", wait=20).acquire().release()


def test_a_reply_that_is_lost_leaves_the_outcome_unknown(memory: Memory) -> None:
    lease = held(memory.client(io_timeout=0.06))
    with memory.failing(leasehold.Unknown), pytest.raises(leasehold.Unknown):
        lease.release()
    memory.assert_free("a")


def test_a_paused_store_answers_nobody_until_it_is_resumed(memory: Memory) -> None:
    hasty = memory.client(io_timeout=0.06)
    memory.pause()
    with pytest.raises(leasehold.Unknown):
        hasty.lock("a").try_acquire()
    memory.resume()
    hasty.lock("a", wait=20).acquire().release()


def test_leases_end_as_the_clock_of_the_store_goes_on(
    memory: Memory, client: leasehold.Client, other: leasehold.Client
) -> None:
    short, long = held(client, "short", ttl=60), held(client, "long", ttl=HOUR)
    memory.advance(HOUR / 2)
    assert not short.valid and long.valid
    assert memory.held() == ["long"]
    assert held(other, "short").fence > short.fence


def test_names_are_told_as_the_store_has_them(memory: Memory) -> None:
    client = memory.client(prefix="shop:")
    leases = [client.lock(name).acquire() for name in ("b", b"\0\xff", "é")]
    assert memory.held() == ["shop:\0\udcff", "shop:b", "shop:é"]
    memory.assert_held(b"shop:\0\xff")
    memory.assert_held("shop:\0\udcff")
    memory.assert_free("b")
    memory.lose("shop:b")
    assert [lease.valid for lease in leases] == [False, True, True]


def test_closing_ends_what_the_test_had_begun(memory: Memory) -> None:
    with leasehold.connect(memory.url) as client:
        with memory as same:
            own, _ = same.client(), same.busy("a")
            effect = same.failing(leasehold.Auth)
            same.pause()
        assert is_free(client)
        effect.end()
        with pytest.raises(leasehold.Closed):
            own.lock("a").acquire()


# ---- Mistakes of the test ----------------------------------------------------------------------------


def test_a_mistaken_control_says_what_is_held(memory: Memory) -> None:
    memory.busy("orders:24")
    ends = f"; locks held in {memory.url}: 'orders:24'"
    with pytest.raises(leasehold.BadArgument) as lose:
        memory.lose("orders:42")
    assert str(lose.value).endswith("lose('orders:42'): no client holds this lock" + ends)
    with pytest.raises(leasehold.BadArgument, match="this lock is held already"):
        memory.busy("orders:24")
    for assertion, name, what in [
        (memory.assert_held, "orders:42", "no client holds 'orders:42'"),
        (memory.assert_free, "orders:24", "'orders:24' is held"),
    ]:
        with pytest.raises(AssertionError) as failed:
            assertion(name)
        assert str(failed.value) == what + ends
    with pytest.raises(AssertionError, match="^not every lock was released; .*: 'orders:24'$"):
        memory.assert_nothing_held()
    with pytest.raises(leasehold.BadArgument, match="by is -1; it cannot be negative"):
        memory.advance(-1)
    with pytest.raises(TypeError, match="the name of a lock is str or bytes"):
        memory.lose(42)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", THE_CLIENTS)
def test_a_kind_that_no_store_gives_is_refused(
    memory: Memory, client: leasehold.Client, kind: type[leasehold.Error]
) -> None:
    for control in (memory.fail_next, memory.failing):
        with pytest.raises(leasehold.BadArgument, match="no store gives th"):
            control(kind)
    assert is_free(client)


@pytest.mark.parametrize("kind", [leasehold.Error, ValueError, "refused", leasehold.Refused()])
def test_what_is_no_kind_is_refused(memory: Memory, kind: Any) -> None:
    with pytest.raises(TypeError, match="such as leasehold.Refused, not "):
        memory.fail_next(kind)


def test_a_forked_child_has_none_of_it(run: Run) -> None:
    done = run(
        """
        import os, leasehold_lock as leasehold
        from leasehold_lock.testing import Memory
        memory = Memory()
        busy = memory.busy("a")
        if os.fork() == 0:
            for what in (memory.held, Memory, lambda: memory.lose("a")):
                try:
                    what()
                except leasehold.Error as error:
                    print(error.name, flush=True)
            busy.end()
            os._exit(0)
        os.wait()
        print(memory.held())
        """
    )
    assert (done.stdout, done.stderr) == ("forked\nstorage\nforked\n['a']\n", "")


# ---- The plugin for pytest ---------------------------------------------------------------------------

SHOP = """
    import leasehold_lock as leasehold

    def ship(client, order):
        lease = client.lock(f"orders:{order}").try_acquire()
        if lease is None:
            return False
        lease.release()
        return True

    def forget(client):
        return client.lock("forgotten").acquire()
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=SHOP)
    return pytester


def outcomes(project: pytest.Pytester, *arguments: str, **counts: int) -> pytest.RunResult:
    """What a pytest of its own says, which has the plugin by its entry point."""
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers", *arguments)
    result.assert_outcomes(**counts)
    return result


def test_the_plugin_is_an_entry_point_of_the_package() -> None:
    found: Any = entry_points()
    plugins = found.select(group="pytest11") if hasattr(found, "select") else found["pytest11"]
    assert "leasehold_pytest" in [plugin.value for plugin in plugins if plugin.name == "leasehold"]


def test_each_test_has_a_fresh_store(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import asyncio
        import leasehold_lock as leasehold, pytest
        from shop import forget, ship

        @pytest.fixture
        def client(leasehold_memory):
            with leasehold.connect(leasehold_memory.url) as client:
                yield client

        @pytest.mark.parametrize("time", range(2))
        def test_a_shipment(leasehold_memory, client, time):
            assert leasehold_memory.held() == []
            assert ship(client, 42)
            leasehold_memory.busy("orders:42")
            assert not ship(client, 42)
            leasehold_memory.fail_next(leasehold.Refused)
            with pytest.raises(leasehold.Refused):
                ship(client, 43)
            forget(client)

        def test_a_task(leasehold_memory):
            async def work():
                async with leasehold_memory.client().lock("a") as lease:
                    leasehold_memory.lose("a")
                    return lease.valid
            with pytest.raises(leasehold.Lost):
                assert not asyncio.run(work())
        """
    )
    outcomes(project, passed=3)


LEAVES = """
    import pytest
    from shop import forget, ship

    def test_leaves_nothing(leasehold_memory):
        ship(leasehold_memory.client(), 42)

    def test_leaves_one(leasehold_memory):
        forget(leasehold_memory.client())

    @pytest.mark.leasehold_released(False)
    def test_may(leasehold_memory):
        forget(leasehold_memory.client())

    @pytest.mark.leasehold_released
    def test_is_asked(leasehold_memory):
        forget(leasehold_memory.client())
"""


def test_what_is_left_held_fails_the_test_if_that_is_asked(project: pytest.Pytester) -> None:
    project.makepyfile(LEAVES)
    result = outcomes(project, passed=4, errors=1)
    result.stdout.fnmatch_lines(["E *not every lock was released; * memory:testing-*: 'forgotten'"])
    result = outcomes(project, "-o", "leasehold_released=true", passed=4, errors=2)
    result.stdout.fnmatch_lines(["ERROR *::test_leaves_one*", "ERROR *::test_is_asked*"])


def test_the_example_of_the_guide(project: pytest.Pytester) -> None:
    guide = Path(__file__).resolve().parents[3] / "docs/how-to/test-your-code.md"
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)
    project.makepyfile(*blocks)
    outcomes(project, passed=3)


def test_a_marker_that_says_neither_is_refused(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.leasehold_released("often")
        def test_it(leasehold_memory):
            pass
        """
    )
    result = outcomes(project, errors=1)
    result.stdout.fnmatch_lines(["*leasehold_released('often'): it is True or False*"])


def test_a_run_without_the_fixture_loads_no_library(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEASEHOLD_LIBRARY", str(tmp_path / "none.so"))
    project.makepyfile(
        """
        import sys

        def test_it():
            assert "leasehold_lock" not in sys.modules

        def test_that_asks(leasehold_memory):
            pass
        """
    )
    result = outcomes(project, passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the Leasehold library cannot be loaded*"])
