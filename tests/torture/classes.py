"""One small test for each class of bugs. The first line of a test says where the bug was seen, and what it is.

The methods that are named after a library are controls: each shows the bug in that library, and returns what
was seen. `ours` is the same story with Leasehold.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
import redis_lock
from servers import CUT, Link, Server, World, line, show, until

import leasehold_lock as leasehold
from leasehold_lock import EventKind, aio

NAME = "job"
#: No other request has this name in it.
OURS = "torture:job"
READONLY = b"-READONLY You can't write against a read only replica.\r\n"


def asks_for(name: str, requests: "list[bytes]") -> int:
    return sum(name.encode() in request for request in requests)


def losses(events: leasehold.Events) -> "list[leasehold.Event]":
    seen = []
    while event := events.try_next():
        seen.append(event)
    return [event for event in seen if event.kind is not EventKind.AT_RISK]


def expire(server: Server, key: str) -> None:
    """Its ttl is over, and nobody has to wait for that."""
    server.look.pexpire(key, 1)
    until(lambda: server.pttl(key) == -2, "the key has expired")


class RenewalOutlivesRelease:
    """redisson#7272, redisson#1626, redisson#4368: a released lock is renewed for ever"""

    def redis_semaphore(self, world: World) -> str:
        server = world.server()
        link, node, key = world.link(server), world.node(), f"mutex:{NAME}"
        arrived = threading.Event()
        link.on_reply = lambda request: arrived if key.encode() in request else None
        node.ask(
            f"kept.lock = new semaphore.Mutex(new Redis({link.port}), '{NAME}', "
            "{ lockTimeout: 60000, refreshInterval: 500 });"
            "kept.acquired = kept.lock.tryAcquire(); return null"
        )
        until(lambda: server.get(key), "the lock is acquired")
        node.ask("await kept.lock.release(); return null")
        arrived.set()
        show(node.ask("return await kept.acquired"), "the lock is held after its release")
        before = asks_for(key, link.requests)
        until(lambda: asks_for(key, link.requests) >= before + 3, "three renewals")
        show(server.get(key), "the lock is still there")
        return "`release()` during `acquire()` did nothing, and the lock was renewed without end"

    def ours(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        client = world.leasehold(link.port)
        events, lease = client.events(), client.lock(OURS, ttl=6).acquire()
        before, arrived = asks_for(OURS, link.requests), threading.Event()
        held: list[bytes] = []

        def hold_the_renewal(request: bytes) -> Any:
            if OURS.encode() in request and not held:
                held.append(request)
                return arrived
            return None

        link.on_request = hold_the_renewal
        until(lambda: held, "a renewal is under way")
        release = threading.Thread(target=lease.release)
        release.start()
        # It may overtake the renewal, or wait for it.
        release.join(0.5)
        arrived.set()
        release.join()
        until(lambda: server.get(OURS) is None, "it is free")
        sent = asks_for(OURS, link.requests)
        time.sleep(7)  # A ttl and more, in which a renewal would come.
        assert asks_for(OURS, link.requests) == sent > before, "it was renewed after its release"
        assert server.get(OURS) is None and not losses(events)
        return (
            "the server ignored a renewal that arrived after the release, and no other one followed"
        )


class RenewalTakesAgain:
    """redis-semaphore#175, redis-semaphore#177, redisson#3636: a renewal acquires again what another client held in between"""

    def by_hand(self, world: World) -> str:
        server = world.server()
        mine = world.redis_py(server.port)
        mine.set(NAME, "mine", nx=True, ex=60)
        expire(server, NAME)
        with world.redis_py(server.port).lock(NAME, timeout=60):
            pass
        mine.set(NAME, "mine", ex=60)
        show(server.get(NAME) == b"mine", "the lock is there again")
        return "a renewal with `SET` made the lock again, after another client had held it"

    def redsync(self, world: World) -> str:
        server, go = world.server(), world.go()
        go.ask({"Do": "mutex", "Port": server.port, "Name": NAME, "TTL": 60_000})
        show(go.ask({"Do": "lock"}), "the lock is acquired")
        expire(server, NAME)
        with world.redis_py(server.port).lock(NAME, timeout=60):
            pass
        show(go.ask({"Do": "extend"}), "the extension succeeds")
        show(server.get(NAME), "the lock is there again")
        return "with the option `WithSetNXOnExtend`, `Extend()` succeeded after another client had held the lock"

    def ours(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        client, other = world.leasehold(link.port), world.leasehold(server.port)
        events, lease = client.events(), client.lock(OURS, ttl=2).acquire()
        healed = threading.Event()
        link.on_request = lambda request: healed
        with other.lock(OURS, ttl=60, wait=50) as second:
            assert not lease.valid, "two leases are valid at once"
            assert second.fence > lease.fence
        healed.set()
        until(lambda: losses(events), "the holder is told")
        try:
            lease.release()
            raise AssertionError("a release of what was lost has succeeded")
        except leasehold.Lost:
            pass
        client.ping()
        assert server.get(OURS) is None, "the lock was taken again"
        return "the server rejected the renewal, the holder was told, and the lock stayed free"


class RenewalStops:
    """redisson#775, redisson#3194, redisson#5698, redisson#6516: renewal stops after one error"""

    def python_redis_lock(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        lock = redis_lock.Lock(world.redis_py(link.port), NAME, expire=3, auto_renewal=True)
        lock.acquire()
        link.on_request = lambda request: READONLY if NAME.encode() in request else None
        before = asks_for(NAME, link.requests)
        until(lambda: asks_for(NAME, link.requests) > before, "a renewal is refused")
        link.heal()
        until(lambda: server.pttl(f"lock:{NAME}") == -2, "the lock has expired", 20)
        return (
            "one READONLY error ended the renewing thread, and the lock expired while it was held"
        )

    def ours(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        client = world.leasehold(link.port)
        events, lease = client.events(), client.lock(OURS, ttl=6).acquire()
        refused: list[bool] = []

        def refuse_every_second(request: bytes) -> Any:
            if OURS.encode() not in request:
                return None
            refused.append(not (refused and refused[-1]))
            return READONLY if refused[-1] else None

        link.on_request = refuse_every_second
        start = time.monotonic()
        until(
            lambda: len(refused) >= 6 and time.monotonic() > start + 7, "renewals go on for a ttl"
        )
        assert lease.valid and not losses(events), "a lease was lost"
        assert server.get(OURS) == lease.token.encode()
        link.heal()
        lease.release()
        return "the server rejected every second renewal, and the holder kept its lease"


class ReleaseForgetsItsToken:
    """redis-py#3847, redis-py#4258, redis-py#3900, node-redlock#11: a release that fails forgets its token"""

    def redis_py(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        lock = world.redis_py(link.port).lock(NAME)
        lock.acquire()
        link.on_request = lambda request: CUT if NAME.encode() in request else None
        try:
            lock.release()
            show(False, "the release fails")
        except redis.ConnectionError:
            link.heal()
        try:
            lock.release()
            show(False, "the second release fails, too")
        except redis.exceptions.LockError:
            show(server.pttl(NAME) == -1, "the lock stays for ever")
        return "the second `release()` raised `LockError`, and the lock without timeout stayed for ever"

    def ours(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        client = world.leasehold(link.port, io_timeout=2)
        for failure in (CUT, READONLY):
            lease = client.lock(OURS, ttl=600, wait=60, io_timeout=20).acquire()
            link.on_request = lambda request, failure=failure: (
                failure if OURS.encode() in request else None
            )
            try:
                lease.release()
                raise AssertionError("a release that failed has succeeded")
            except leasehold.Error:
                assert server.get(OURS)
            link.heal()
            until(lambda: server.get(OURS) is None, "it is released in the background")
        return "the client repeated the release in the background, long before the ttl had passed"


class ReleaseOfAnothers:
    """redbeat#127: a client releases the lock of another client"""

    def by_hand(self, world: World) -> str:
        server = world.server()
        mine, others = world.redis_py(server.port), world.redis_py(server.port)
        mine.set(NAME, "mine", nx=True, ex=60)
        found = mine.get(NAME)
        expire(server, NAME)
        others.set(NAME, "others", nx=True, ex=60)
        if found == b"mine":
            mine.delete(NAME)
        show(server.get(NAME) is None, "the other's lock is deleted")
        return "`GET`, then `DEL`: the client deleted the lock of another client"

    def ours(self, world: World) -> str:
        server = world.server()
        first, other = world.leasehold(server.port), world.leasehold(server.port)
        lease = first.lock(OURS, ttl=60).acquire()
        expire(server, OURS)
        second = other.lock(OURS, ttl=60).acquire()
        for call in (lease.extend, lease.release):
            try:
                call()
                raise AssertionError(f"{call} has succeeded on another's lock")
            except leasehold.Lost:
                pass
        assert server.get(OURS) == second.token.encode()
        second.release()
        return "extend and release raised `Lost`, and the lock of the other client was untouched"


class HeldForEver:
    """sidekiq-unique-jobs#379, gocraft/work#231, liquibase#1311: a holder that crashed holds the lock for ever"""

    def redis_py(self, world: World) -> str:
        server = world.server()
        holder = world.python(
            """
            import sys, redis
            redis.Redis(port=int(sys.argv[1])).lock(sys.argv[2]).acquire()
            print("held", flush=True)
            sys.stdin.read()
            """,
            server.port,
            NAME,
        )
        line(holder)
        holder.kill()
        holder.wait()
        show(server.pttl(NAME) == -1, "the lock has no ttl")
        return "a Lock without timeout, which is the default, was held for ever"

    def by_hand(self, world: World) -> str:
        server = world.server()
        holder = world.python(
            """
            import sys, redis
            client = redis.Redis(port=int(sys.argv[1]))
            client.setnx(sys.argv[2], "mine")
            print("held", flush=True)
            sys.stdin.read()
            client.expire(sys.argv[2], 1)
            """,
            server.port,
            NAME,
        )
        line(holder)
        holder.kill()
        holder.wait()
        show(server.pttl(NAME) == -1, "the lock has no ttl")
        return "`SETNX`, then a crash before `EXPIRE`: held for ever"

    def ours(self, world: World) -> str:
        server = world.server()
        holder = world.python(OUR_HOLDER, server.port, OURS, 6)
        line(holder)
        assert 0 < server.pttl(OURS) <= 6000
        holder.kill()
        holder.wait()
        world.leasehold(server.port).lock(OURS, wait=60).acquire().release()
        return "the lock had its ttl from the first moment, and was free after that"


OUR_HOLDER = """
    import sys, leasehold_lock as leasehold
    client = leasehold.connect(f"redis://127.0.0.1:{sys.argv[1]}?io_timeout=20s")
    lease = client.lock(sys.argv[2], ttl=float(sys.argv[3])).acquire()
    print("held", flush=True)
    sys.stdin.readline()
    print(lease.valid, flush=True)
"""


class LostWakeUp:
    """redisson#3730, redisson#2007, redisson#6026, redisson#85: the lock is free, and its waiter sleeps"""

    def python_redis_lock(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        redis_lock.Lock(world.redis_py(server.port), NAME, expire=60).acquire()
        waiter = redis_lock.Lock(world.redis_py(link.port), NAME)
        thread = threading.Thread(target=waiter.acquire, daemon=True)
        thread.start()
        until(lambda: any(b"BLPOP" in request for request in link.requests), "it waits")
        expire(server, f"lock:{NAME}")
        thread.join(3)
        show(thread.is_alive() and server.pttl(f"lock:{NAME}") == -2, "it sleeps on")
        return "the ttl of the holder passed, and the waiter of the free lock did not wake up"

    def ours(self, world: World) -> str:
        server = world.server()
        holder = world.python(OUR_HOLDER, server.port, OURS, 6)
        line(holder)
        client = world.leasehold(server.port)
        got: list[leasehold.Lease] = []
        lock = client.lock(OURS, wait=60)
        thread = threading.Thread(target=lambda: got.append(lock.acquire()))
        thread.start()
        until(lambda: client.lock(OURS).inspect().waiters, "it waits in the queue")
        holder.kill()
        thread.join()
        assert got and got[0].valid
        return "the holder was killed, and the waiter acquired the lock after the ttl"


class NobodyIsTold:
    """madelson/DistributedLock#133, kubernetes#44887: the lock is lost, and its holder is not told"""

    def python_redis_lock(self, world: World) -> str:
        server = world.server()
        lock = redis_lock.Lock(world.redis_py(server.port), NAME, expire=3, auto_renewal=True)
        raised: list[Any] = []
        threading.excepthook = raised.append
        lock.acquire()
        server.look.flushall()
        until(lambda: raised, "the thread that renews has failed")
        show(raised[0].exc_type is redis_lock.NotAcquired, "it says so to nobody but a log")
        return "the renewing thread ended with an exception, and no callback tells the holder"

    def ours(self, world: World) -> str:
        server = world.server()
        client = world.leasehold(server.port)
        lease = client.lock(OURS, ttl=6).acquire()
        told: list[leasehold.Event] = []
        lease.on_lost(told.append)
        server.look.flushall()
        until(lambda: told, "the holder is told")
        assert told[0].kind is EventKind.LOST and not lease.valid
        return f"`on_lost` was called with the reason `{told[0].reason.name}`"


class ByAnothersSettings:
    """fabric8#7258, kubernetes#114872: a lease ends by the settings of a waiter"""

    def redis_semaphore(self, world: World) -> str:
        server, node = world.server(), world.node()
        node.ask(
            f"kept.redis = new Redis({server.port});"
            f"kept.one = new semaphore.Semaphore(kept.redis, '{NAME}', 1, {{ lockTimeout: 60000, refreshInterval: 0 }});"
            "await kept.one.acquire(); return null"
        )
        time.sleep(1.2)
        show(
            node.ask(
                f"kept.two = new semaphore.Semaphore(kept.redis, '{NAME}', 1, {{ lockTimeout: 1000 }});"
                "return await kept.two.tryAcquire()"
            ),
            "the other acquires",
        )
        return "a client with `lockTimeout` 1 s acquired a Semaphore of 1 that another client held with 60 s"

    def ours(self, world: World) -> str:
        server = world.server()
        holder, other = world.leasehold(server.port), world.leasehold(server.port)
        lease = holder.lock(OURS, ttl=60, renew=False).acquire()
        for mode in ("auto", "spin"):
            try:
                other.lock(OURS, ttl=1, wait_mode=mode).acquire_within(1.5)
                raise AssertionError("the lock was stolen")
            except leasehold.Timeout:
                assert lease.valid and server.get(OURS) == lease.token.encode()
        return "a waiter with a ttl of 1 s did not get the lock of a holder with 60 s"


class ClockOfANode:
    """ShedLock#231, ShedLock#1439, with_advisory_lock#141: the clock of a client decides"""

    def redis_semaphore(self, world: World) -> str:
        server, node, ahead = world.server(), world.node(), world.node()
        acquire = (
            f"kept.lock = new semaphore.Semaphore(new Redis({server.port}), '{NAME}', 1,"
            "{ lockTimeout: 60000, refreshInterval: 0, acquireTimeout: 5000 });"
            "return await kept.lock.tryAcquire()"
        )
        node.ask(acquire)
        ahead.ask("const now = Date.now; Date.now = () => now() + 180000; return null")
        show(ahead.ask(acquire), "the other acquires")
        return "a client whose clock was 3 minutes ahead acquired a Semaphore of 1 that another client held"

    def ours(self, world: World) -> str:
        server = world.server()
        client = world.leasehold(server.port)
        lease = client.lock(OURS, ttl=60).acquire()
        with tempfile.TemporaryDirectory() as folder:
            shim, source = f"{folder}/clock.so", Path(__file__).with_name("clock.c")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, str(source)], check=True)
            text = """
                import sys, time, leasehold_lock as leasehold
                port, name, now = sys.argv[1:]
                assert time.time() > float(now) + 170, "the clock is not ahead"
                client = leasehold.connect(f"redis://127.0.0.1:{port}?io_timeout=20s")
                assert client.lock(name, ttl=2).try_acquire() is None, "the lock was stolen"
                with client.lock(name + ":own", ttl=6) as own:
                    time.sleep(6.5)
                    assert own.valid, "it was lost"
                print("good", flush=True)
            """
            os.environ["LD_PRELOAD"] = shim
            try:
                ahead = world.python(text, server.port, OURS, time.time())
            finally:
                del os.environ["LD_PRELOAD"]
            assert line(ahead) == "good", ahead.communicate()[1]
        assert lease.valid
        lease.release()
        return "a client whose clock was 3 minutes ahead did not get a held lock, and kept its own"


class JanitorFrees:
    """sidekiq-unique-jobs#580, spring-integration#11044: a cleaner frees a lock that is held"""

    def python_redis_lock(self, world: World) -> str:
        server = world.server()
        lock = redis_lock.Lock(world.redis_py(server.port), NAME, expire=60)
        lock.acquire()
        redis_lock.reset_all(world.redis_py(server.port))
        other = redis_lock.Lock(world.redis_py(server.port), NAME, expire=60)
        show(other.acquire(blocking=False), "another acquires")
        return "`reset_all()`, meant for locks that crashes leave behind, freed a held lock"

    def ours(self, world: World) -> str:
        server = world.server()
        client = world.leasehold(server.port)
        before = client.lock(OURS, ttl=60).acquire()
        before.release()
        lease = client.lock(OURS, ttl=60).acquire()
        for _ in range(20):
            with leasehold.connect(f"redis://127.0.0.1:{server.port}", io_timeout=20) as other:
                lock = other.lock(OURS)
                assert lock.try_acquire() is None
                lock.break_held("a janitor", if_fence=before.fence)
        lease.extend()
        assert lease.valid and server.get(OURS) == lease.token.encode()
        return "20 other clients opened, closed, and broke the fence of an earlier holder, and the lease stayed valid"


class Forks:
    """CERT-Polska/Artemis#2632, redis-py#863, gunicorn#2895: a forked child releases the lock of its parent"""

    def redis_py(self, world: World) -> str:
        server = world.server()
        with_it = world.redis_py(server.port).lock(NAME, timeout=60)
        with_it.acquire()
        in_child(with_it.release)
        show(server.get(NAME) is None, "the parent's lock is gone")
        return "`release()` in a forked child freed the lock of its parent"

    def ours(self, world: World) -> str:
        server = world.server()
        client = world.leasehold(server.port)
        lock = client.lock(OURS, ttl=60)
        with lock as lease:

            def child() -> None:
                assert not lease.valid
                with contextlib.suppress(leasehold.Error):
                    lock.__exit__(None, None, None)
                assert lock.try_acquire() is None
                for _ in range(200):
                    with client.lock(OURS + ":child") as own:
                        assert own.name == OURS + ":child"

            assert in_child(child, lambda: [use(client) for _ in range(200)]) == 0
            assert lease.valid and server.get(OURS) == lease.token.encode()
        return "the child could not release it, and both processes could use the client"


def use(client: leasehold.Client) -> None:
    with client.lock(OURS + ":parent") as own:
        assert own.name == OURS + ":parent"


def in_child(work: Any, meanwhile: Any = lambda: None) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    meanwhile()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Suspended:
    """redis-semaphore#24, redis-semaphore#9, redbeat#218, node-redlock#283: a process pauses, and continues without its lock"""

    def python_redis_lock(self, world: World) -> str:
        server = world.server()
        holder = world.python(
            """
            import sys, redis, redis_lock
            client = redis.Redis(port=int(sys.argv[1]))
            lock = redis_lock.Lock(client, sys.argv[2], expire=1, auto_renewal=True)
            lock.acquire()
            print("held", flush=True)
            sys.stdin.readline()
            print(lock.locked(), flush=True)
            """,
            server.port,
            NAME,
        )
        line(holder)
        holder.send_signal(signal.SIGSTOP)
        until(lambda: server.pttl(f"lock:{NAME}") == -2, "the lock has expired")
        redis_lock.Lock(world.redis_py(server.port), NAME, expire=60).acquire()
        show(went_on(holder) == "True", "the lock that is another's is taken for its own")
        return "`locked()` returned True, because another client held the lock by then"

    def redis_semaphore(self, world: World) -> str:
        server, node = world.server(), world.node()
        node.ask(
            f"kept.lock = new semaphore.Mutex(new Redis({server.port}), '{NAME}', {{ lockTimeout: 1000 }});"
            "await kept.lock.acquire(); return null"
        )
        node.process.send_signal(signal.SIGSTOP)
        until(lambda: server.pttl(f"mutex:{NAME}") == -2, "the lock has expired")
        node.process.send_signal(signal.SIGCONT)
        until(lambda: node.process.poll() is not None, "the process ends", 20)
        show(node.process.returncode != 0, "it has crashed")
        return "without `onLockLost`, an exception in the background ended the process"

    def ours(self, world: World) -> str:
        server = world.server()
        holder = world.python(OUR_HOLDER, server.port, OURS, 1)
        line(holder)
        holder.send_signal(signal.SIGSTOP)
        second = world.leasehold(server.port).lock(OURS, ttl=60, wait=60).acquire()
        assert went_on(holder) == "False", "two leases are valid at once"
        assert holder.wait() == 0 and second.valid
        return "the first statement after the pause saw an invalid lease, and no exception came from the background"


def went_on(holder: "subprocess.Popen[str]") -> str:
    holder.send_signal(signal.SIGCONT)
    assert holder.stdin is not None
    print("go on", file=holder.stdin, flush=True)
    return line(holder)


class Identity:
    """aredis#119, redisson#6878, redisson#2224: the lock belongs to a thread or an object, not to one acquisition"""

    def redis_py(self, world: World) -> str:
        server = world.server()

        async def story() -> None:
            async with redis.asyncio.Redis(port=server.port) as client:
                lock = client.lock(NAME, timeout=60)
                await asyncio.create_task(lock.acquire())
                expire(server, NAME)
                await asyncio.create_task(lock.acquire())
                await asyncio.create_task(lock.release())

        asyncio.run(story())
        show(server.get(NAME) is None, "the second task's lock is gone")
        return (
            "two asyncio tasks shared a Lock, and the first one released what the second one held"
        )

    def ours(self, world: World) -> str:
        server = world.server()
        lock = world.leasehold(server.port).lock(OURS, ttl=60, wait=60)

        async def story() -> None:
            first = await asyncio.create_task(aio.acquire(lock))
            expire(server, OURS)
            second = await asyncio.create_task(aio.acquire(lock))
            try:
                await asyncio.create_task(aio.release(first))
                raise AssertionError("the first task has released it")
            except leasehold.Lost:
                assert server.get(OURS) == second.token.encode(), "the second task's lock is gone"
            # And what one thread has acquired, another one releases.
            await asyncio.to_thread(second.release)
            assert server.get(OURS) is None

        asyncio.run(story())
        return "the release of the first task raised `Lost`, and another thread could release the lease of the second one"


class CancelledGrant:
    """spring-integration#11412, rueidis#1010, redis-py#3847: a cancelled acquire leaves the lock held"""

    def redis_py(self, world: World) -> str:
        server = world.server()
        link = world.link(server)

        async def acquire() -> None:
            async with redis.asyncio.Redis(port=link.port) as client:
                await client.lock(NAME).acquire()

        asyncio.run(cancelled(link, acquire, NAME, "reply"))
        until(lambda: server.pttl(NAME) == -1, "the lock is held")
        return "an asyncio task was cancelled before the reply came, and the lock without timeout stayed for ever"

    def ours(self, world: World) -> str:
        server = world.server()
        for moment in ("request", "reply"):
            link = world.link(server)
            lock = world.leasehold(link.port).lock(f"{OURS}:{moment}", ttl=600)

            async def acquire(lock: leasehold.Lock = lock) -> None:
                await aio.acquire(lock)

            asyncio.run(cancelled(link, acquire, lock.name, moment))
            seen = asks_for(lock.name, link.requests)
            assert seen, "nothing was asked"
            # Where the request was kept, it arrives at last, and is followed by a release.
            server_saw = world.leasehold(server.port).lock(lock.name, wait=50).acquire()
            server_saw.release()
        return "the client released the lock in the background, 10 minutes before its ttl, whichever message was on its way"


async def cancelled(link: Link, acquire: Any, name: str, moment: str) -> None:
    """Cancels a task while its request, or the reply, is on its way; then that arrives."""
    arrived = threading.Event()
    setattr(link, f"on_{moment}", lambda request: arrived if name.encode() in request else None)
    task = asyncio.create_task(acquire())
    while not asks_for(name, link.requests):
        await asyncio.sleep(0.01)
    if moment == "reply":
        await asyncio.sleep(0.3)  # The server has answered by then, or answers later.
    task.cancel()
    await asyncio.sleep(0.05)
    arrived.set()
    link.heal()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    assert isinstance(result, asyncio.CancelledError), result


class SlotsOfACluster:
    """python-redis-lock#59, python-redis-lock#75, redisson#1098: the keys of one lock lie in two slots of a Cluster"""

    def python_redis_lock(self, world: World) -> str:
        server = world.server("cluster")
        lock = redis_lock.Lock(server.look, NAME, expire=60, strict=False)
        lock.acquire()
        try:
            lock.release()
            show(False, "the release fails")
        except redis.exceptions.RedisClusterException:
            show(server.get(f"lock:{NAME}"), "it stays held")
        return "every `release()` failed, and the lock was held until its ttl passed"

    def ours(self, world: World) -> str:
        server = world.server("cluster")
        url = f"redis+cluster://127.0.0.1:{server.port}?io_timeout=20s"
        names = ["job", "{job}:1", "a}b{c", "{}", "{", "}", "\0", "x" * 65536]
        with leasehold.connect(url) as client, leasehold.connect(url) as other:
            for name in names:
                lease = client.lock(name, ttl=60).acquire()
                waiter = threading.Thread(target=pass_on, args=(other.lock(name, wait=60),))
                waiter.start()
                until(lambda name=name: client.lock(name).inspect().waiters, "it waits")
                lease.release()
                waiter.join()
                assert server.get(name) is None, "it was not released"
        return f"{len(names)} names of odd shapes were acquired, waited for and released"


def pass_on(lock: leasehold.Lock) -> None:
    lock.acquire().release()


class ValidityOfAQuorum:
    """node-redlock#369: a quorum grants a lock after its ttl has passed"""

    def redlock(self, world: World) -> str:
        links, servers = quorum(world)
        node = world.node()
        ports = [link.port for link in links]
        node.ask(
            f"kept.redlock = new Redlock({ports}.map((port) => new Redis(port)), {{ retryCount: 0 }});"
            "await (await kept.redlock.acquire(['warm'], 60000)).release(); return null"
        )
        arrived = hold_replies(links, NAME)
        node.ask(f"kept.lock = kept.redlock.acquire(['{NAME}'], 1000); return null")
        expired(links, servers, NAME)
        arrived.set()
        left = node.ask("return (await kept.lock).expiration - Date.now()")
        show(left < 0, "the lock that is returned has expired")
        return "`acquire()` returned a lock that had expired already, without an error"

    def redis_semaphore(self, world: World) -> str:
        links, servers = quorum(world)
        node = world.node()
        ports = [link.port for link in links]
        arrived = hold_replies(links, NAME)
        node.ask(
            f"kept.lock = new semaphore.RedlockMutex({ports}.map((port) => new Redis(port)), '{NAME}',"
            "{ lockTimeout: 1000, acquireTimeout: 60000, refreshInterval: 0 });"
            "kept.acquired = kept.lock.tryAcquire(); return null"
        )
        expired(links, servers, f"mutex:{NAME}")
        arrived.set()
        show(node.ask("return await kept.acquired"), "the lock is acquired")
        show(all(server.pttl(f"mutex:{NAME}") == -2 for server in servers), "it is free everywhere")
        return (
            "tryAcquire() of a RedlockMutex returned true for a lock that was free on all servers"
        )

    def ours(self, world: World) -> str:
        links, servers = quorum(world)
        client = world.leasehold(*(link.port for link in links))
        client.initialize()
        client.lock("warm", ttl=60).acquire().release()
        arrived = hold_replies(links, OURS)
        got: list[Any] = []

        def acquire() -> None:
            try:
                got.append(client.lock(OURS, ttl=1).try_acquire())
            except leasehold.Error as error:
                got.append(error)

        thread = threading.Thread(target=acquire)
        thread.start()
        expired(links, servers, OURS)
        arrived.set()
        thread.join()
        lease = got[0]
        if isinstance(lease, leasehold.Lease):
            held = sum(server.get(OURS) == lease.token.encode() for server in servers)
            assert held >= 2 or not lease.valid, "it is said to be valid, and free on most servers"
            lease.release()
        until(lambda: not any(server.get(OURS) for server in servers), "nothing is left behind")
        return "the late replies did not count as a grant, and no server kept anything of them"


def quorum(world: World) -> "tuple[list[Link], list[Server]]":
    servers = [world.server() for _ in range(3)]
    return [world.link(server) for server in servers], servers


def hold_replies(links: "list[Link]", name: str) -> threading.Event:
    arrived = threading.Event()
    for link in links:
        link.on_reply = lambda request: arrived if name.encode() in request else None
    return arrived


def expired(links: "list[Link]", servers: "list[Server]", key: str) -> None:
    until(lambda: all(asks_for(key, link.requests) for link in links), "all servers are asked")
    time.sleep(1.2)
    until(
        lambda: all(server.pttl(key) == -2 for server in servers), "the ttl has passed everywhere"
    )


class BusyWait:
    """rueidis#602, rueidis#604, OpenCTI#17341: waiters poll without end"""

    SECONDS, WAITERS = 3, 10

    def redis_py(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        world.redis_py(server.port).lock(NAME).acquire()
        for _ in range(self.WAITERS):
            lock = world.redis_py(link.port).lock(NAME)
            threading.Thread(target=lock.acquire, daemon=True).start()
        return self.asked(link, NAME)

    def redis_semaphore(self, world: World) -> str:
        server = world.server()
        link, node = world.link(server), world.node()
        server.look.set(f"mutex:{NAME}", "another")
        node.ask(
            f"for (let i = 0; i < {self.WAITERS}; i++)"
            f"new semaphore.Mutex(new Redis({link.port}), '{NAME}', {{ acquireTimeout: 60000 }}).tryAcquire();"
            "return null"
        )
        return self.asked(link, NAME)

    def asked(self, link: Link, name: str) -> str:
        until(lambda: asks_for(name, link.requests) >= self.WAITERS, "all wait")
        before, start = asks_for(name, link.requests), time.monotonic()
        time.sleep(self.SECONDS)
        each = (asks_for(name, link.requests) - before) / (time.monotonic() - start) / self.WAITERS
        # Beside load, those who ask less have to be found as well.
        show(each > 4, f"more than 4 commands a second of each waiter, here {each:.1f}")
        return f"each of 10 waiters sent {each:.0f} commands a second"

    def ours(self, world: World) -> str:
        server = world.server()
        link = world.link(server)
        lease = world.leasehold(server.port).lock(OURS, ttl=60).acquire()
        clients = [world.leasehold(link.port) for _ in range(self.WAITERS)]
        threads = [
            threading.Thread(target=lambda one=one: one.lock(OURS, wait=60).acquire().release())
            for one in clients
        ]
        for thread in threads:
            thread.start()
        look = world.leasehold(server.port).lock(OURS)
        until(lambda: len(look.inspect().waiters) == self.WAITERS, "all wait")
        before, start = asks_for(OURS, link.requests), time.monotonic()
        time.sleep(self.SECONDS)
        each = (asks_for(OURS, link.requests) - before) / (time.monotonic() - start) / self.WAITERS
        assert each <= 1.5, f"each waiter sent {each:.1f} commands a second"
        before = asks_for(OURS, link.requests)
        lease.release()
        for thread in threads:
            thread.join()
        turns = (asks_for(OURS, link.requests) - before) / self.WAITERS
        return f"each of 10 waiters sent {each:.1f} commands a second, and {turns:.0f} to acquire and release"
