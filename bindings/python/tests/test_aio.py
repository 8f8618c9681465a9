"""asyncio: waiting without blocking the loop, cancelling, and losses without threads."""

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from conftest import Run, script
from server import Server

import leasehold_lock as leasehold
import leasehold_lock.aio
from leasehold_lock import EventKind, _waits, aio

_T = TypeVar("_T")


def play(story: "Coroutine[Any, Any, _T]") -> _T:
    return asyncio.run(asyncio.wait_for(story, 60))


async def come_true(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def take(lock: leasehold.Lock) -> leasehold.Lease:
    """Takes what is free. The queue of an SQLite file is left in the background, and a try does not
    overtake it."""
    for _ in range(4000):
        lease = await aio.try_acquire(lock)
        if lease is not None:
            return lease
        await asyncio.sleep(0.005)
    raise AssertionError("it is not free")


def test_async_with(client: leasehold.Client, other: leasehold.Client, name: str) -> None:
    async def story() -> None:
        lock = client.lock(name, ttl=10, wait=5)
        async with lock as lease:
            assert lease.valid and other.lock(name).try_acquire() is None
            with pytest.raises(leasehold.WouldDeadlock, match="this task"):
                await lock.__aenter__()
        assert not lease.valid and not lock.inspect().held
        with pytest.raises(ZeroDivisionError):
            async with lock:
                1 / 0
        assert not lock.inspect().held

    play(story())


def test_the_functions(client: leasehold.Client, name: str) -> None:
    async def story() -> None:
        lock = client.lock(name, ttl=5)
        lease = await aio.acquire_within(lock, 1)
        assert await aio.try_acquire(lock) is None
        with pytest.raises(leasehold.Timeout):
            await aio.acquire_within(lock, 0.1)
        await aio.extend(lease, ttl=60)
        assert lease.remaining > 50
        await aio.release(lease)
        with pytest.raises(leasehold.Lost):
            await aio.release(lease)
        second = await take(lock)
        assert second.fence > lease.fence
        await aio.release(second)

    play(story())


def test_each_task_has_its_own_lease(client: leasehold.Client, name: str) -> None:
    async def story() -> None:
        lock = client.lock(name, wait=50)
        inside = 0
        fences: list[int] = []

        async def work() -> None:
            nonlocal inside
            for _ in range(3):
                async with lock as lease:
                    inside += 1
                    assert inside == 1
                    fences.append(lease.fence)
                    await asyncio.sleep(0.001)
                    inside -= 1

        # More than an executor of the usual size has threads.
        await asyncio.gather(*(work() for _ in range(40)))
        assert len(set(fences)) == 120 and fences == sorted(fences)

    play(story())


def test_the_loop_goes_on_while_a_task_waits(client: leasehold.Client, name: str) -> None:
    async def story() -> None:
        lock = client.lock(name)
        async with lock:
            waiting = asyncio.ensure_future(aio.acquire_within(lock, 0.5))
            turns = 0
            while not waiting.done():
                await asyncio.sleep(0.005)
                turns += 1
            assert turns > 10
            with pytest.raises(leasehold.Timeout):
                await waiting

    play(story())


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


#: The threads of a client that ask for all its waits: its pool of connections, and two more.
CREW = 8 + 2


def test_hundreds_of_waiting_tasks_need_no_threads(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    client, other = redis_client, leasehold.connect(server.url)
    names = [f"{name}:{number}" for number in range(600)]
    held = [other.lock(each).acquire() for each in names]
    one = other.lock(name).acquire()

    async def story() -> None:
        turns: list[int] = []

        async def work(number: int) -> None:
            async with client.lock(name):
                turns.append(number)

        before, threads = threading.active_count(), thread_count()
        tasks = [asyncio.ensure_future(aio.acquire(client.lock(each))) for each in names]
        queue = [asyncio.ensure_future(work(number)) for number in range(200)]
        await come_true(lambda: client.counters().attempts > 600)
        assert threading.active_count() == before
        assert thread_count() <= threads + CREW
        assert not any(task.done() for task in tasks + queue)

        one.release()
        await asyncio.gather(*queue)
        assert turns == list(range(200))
        for lease in held:
            lease.release()
        for lease, task in zip(held, tasks):
            mine = await task
            assert mine.valid and mine.name == lease.name and mine.fence > lease.fence

    play(story())


def test_a_loop_that_is_closed_stops_its_waits(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    loop = asyncio.new_event_loop()
    with other.lock(name):
        task = loop.create_task(aio.acquire(client.lock(name, wait=600)))
        loop.run_until_complete(come_true(lambda: client.counters().busy > 0))
        waits = _waits._by_loop[loop]
        loop.close()
        # The task is still there, and its wait is not.
        assert not task.done() and waits() is None
    with other.lock(name, wait=20) as lease:
        assert other.lock(name).inspect().fence == lease.fence
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_loops_of_several_threads_wait_each_for_its_own(
    client: leasehold.Client, name: str
) -> None:
    lock = client.lock(name, wait=50)
    fences: list[int] = []

    async def work() -> None:
        for _ in range(10):
            async with lock as lease:
                fences.append(lease.fence)

    async def story() -> None:
        await asyncio.gather(*(work() for _ in range(5)))

    threads = [threading.Thread(target=asyncio.run, args=[story()]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fences) == 200 and fences == sorted(set(fences))


def test_a_child_waits_in_a_loop_of_its_own(run: Run, url: str, name: str) -> None:
    text = """
        import asyncio, os, sys
        import leasehold_lock as leasehold
        _, url, name = sys.argv
        client = leasehold.connect(url)
        lock = client.lock(name, wait=20)
        loop = asyncio.new_event_loop()

        async def work():
            async with lock as lease:
                return lease.fence

        def children(play):
            pids = []
            for _ in range(3):
                pid = os.fork()
                if pid == 0:
                    play()
                    os._exit(0)
                pids.append(pid)
            for pid in pids:
                assert os.waitpid(pid, 0)[1] == 0

        loop.run_until_complete(work())
        # While nobody waits, and while a task of the parent's does.
        children(lambda: asyncio.run(work()))
        held = client.lock(name).acquire()
        task = loop.create_task(work())
        loop.run_until_complete(asyncio.sleep(0.1))
        other = client.lock(name + ":other", wait=20)

        async def elsewhere():
            async with other:
                pass

        children(lambda: asyncio.run(elsewhere()))
        held.release()
        print(loop.run_until_complete(task) > held.fence, flush=True)
    """
    assert run(text, url, name).stdout == "True\n"


def test_a_cancelled_wait_is_over_when_the_task_is(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    async def story() -> None:
        async with other.lock(name):

            async def wait() -> None:
                async with client.lock(name, wait=600):
                    raise AssertionError("two holders")

            for _ in range(10):
                asked = client.counters().attempts
                task = asyncio.ensure_future(wait())
                await come_true(lambda: client.counters().attempts > asked)
                start = time.monotonic()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert time.monotonic() - start < 5
                # Its wait has ended: nobody asks any more.
                asked = client.counters().attempts
                await asyncio.sleep(0.15)
                assert client.counters().attempts == asked
        # A release that a busy disk holds up is sent again.
        await come_true(lambda: not other.lock(name).inspect().held)

    play(story())


def test_cancelling_again_and_again_changes_nothing(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    async def story() -> None:
        async with other.lock(name):
            asked = client.counters().attempts
            task = asyncio.ensure_future(aio.acquire(client.lock(name, wait=600)))
            await come_true(lambda: client.counters().attempts > asked)
            while not task.done():
                task.cancel()
                await asyncio.sleep(0.001)
            asked = client.counters().attempts
            await asyncio.sleep(0.15)
            assert client.counters().attempts == asked

    play(story())


def test_a_lease_that_comes_with_the_cancellation_is_given_back(
    client: leasehold.Client, name: str
) -> None:
    async def story() -> None:
        lock = client.lock(name, ttl=600)
        for delay in [0.0, 0.0001, 0.0005, 0.001, 0.002, 0.004] * 10:
            task = asyncio.ensure_future(aio.acquire_within(lock, 5))
            await asyncio.sleep(delay)
            if task.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                await aio.release(await task)
            await aio.release(await take(lock))

    play(story())


def test_a_release_is_finished_though_the_task_is_cancelled(
    client: leasehold.Client, name: str
) -> None:
    async def story() -> None:
        lock = client.lock(name, ttl=600)
        for delay in [0.0, 0.0001, 0.0005, 0.001] * 5:
            lease = await aio.acquire(lock)
            task = asyncio.ensure_future(aio.release(lease))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.wait([task])
            if lease.valid:
                assert delay == 0.0  # It was cancelled before it began.
                await aio.release(lease)
            assert not lock.inspect().held

    play(story())


def test_events_without_threads(server: Server, redis_client: leasehold.Client, name: str) -> None:
    async def story() -> None:
        before = set(threading.enumerate())
        stream = aio.events(redis_client)
        waiting = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        lease = redis_client.lock(name, ttl=3).acquire()
        server.call("DEL", name)
        event = await waiting
        assert (event.kind, event.fence) == (EventKind.LOST, lease.fence)
        assert set(threading.enumerate()) <= before
        stream.close()

    play(story())


def test_events_end_with_the_client(server: Server) -> None:
    async def story() -> int:
        client = leasehold.connect(server.url)
        stream = aio.events(client)
        asyncio.get_running_loop().call_later(0.05, client.close)
        return len([event async for event in stream])

    assert play(story()) == 0


def test_a_callback_can_cancel_the_work(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    async def story() -> None:
        lock = redis_client.lock(name, ttl=3)
        losses: list[tuple[str, int]] = []

        async def work() -> None:
            task = asyncio.current_task()
            assert task is not None

            def stop(event: leasehold.Event) -> None:
                losses.append((threading.current_thread().name, event.fence))
                task.cancel()

            async with lock as lease:
                fences.append(lease.fence)
                assert aio.on_lost(lease, stop) == stop
                server.call("DEL", name)
                await asyncio.sleep(50)

        fences: list[int] = []
        with pytest.raises(asyncio.CancelledError):
            await asyncio.ensure_future(work())
        assert losses == [(threading.current_thread().name, fences[0])]

    play(story())


def test_a_callback_that_is_on_its_way_can_be_taken_back(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    async def story() -> None:
        losses: list[leasehold.Event] = []
        taken_back, released, last = [
            await aio.acquire(redis_client.lock(name + end, ttl=1)) for end in "abc"
        ]
        for lease in (taken_back, released, last):
            aio.on_lost(lease, losses.append)
            server.call("DEL", lease.name)
        # The loop stands still until the other thread has passed all of them on to it.
        while redis_client.counters().lost < 3:
            time.sleep(0.01)
        time.sleep(0.2)
        aio.on_lost(taken_back, None)
        with pytest.raises(leasehold.Lost):
            released.release()
        await come_true(lambda: bool(losses))
        assert [event.name for event in losses] == [last.name]

    play(story())


def test_ctrl_c_ends_a_program_that_waits(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    text = """
        import asyncio, sys
        import leasehold_lock as leasehold
        _, url, name = sys.argv

        async def main():
            print("waiting", flush=True)
            async with leasehold.connect(url).lock(name, ttl=600, wait=600):
                pass

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    with redis_client.lock(name):
        command = script(text, server.url, name)
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        start = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n" and child.wait(20) == 0
        assert time.monotonic() - start < 5
    assert not redis_client.lock(name).inspect().held
