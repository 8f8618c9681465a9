"""Libraries that programs use with redis-py, each used once for real with the drop-in: in the place of
redis-py's classes, before the library is imported, and as a lock on the connection that the library
has. docs/how-to/libraries-on-redis-py.md has the table of what this shows.

LEASEHOLD_LIBRARIES=all tries all of them; else those are that the other tests need."""

import os
import textwrap
from pathlib import Path

import pytest
from conftest import Run
from server import Server

#: What a program does that replaces the classes for all that it imports.
PATCH = """
import redis.asyncio.client, redis.asyncio.lock, redis.client, redis.lock
import leasehold_lock.compat.aio
redis.lock.Lock = redis.client.Lock = leasehold_lock.compat.Lock
redis.asyncio.lock.Lock = redis.asyncio.client.Lock = leasehold_lock.compat.aio.Lock
"""

#: Before each of them.
BEGIN = """
import asyncio, sys, time
import redis, redis.asyncio
import leasehold_lock.compat.aio

url, name = sys.argv[1:]
mine = redis.Redis.from_url(url)

def excluded(connection):
    "The drop-in on the connection of a library keeps redis-py's own class out, and the other way."
    with leasehold_lock.compat.Lock(connection, name, timeout=20) as lock:
        assert lock.owned() and mine.pttl(name) > 0
        assert not mine.set(name, "x", nx=True)
    mine.set(name, "x", px=20_000)
    assert not leasehold_lock.compat.Lock(connection, name, timeout=20).acquire(blocking=False)
    mine.delete(name)

async def excluded_in_loop(connection):
    async with leasehold_lock.compat.aio.Lock(connection, name, timeout=20) as lock:
        assert await lock.owned() and not await connection.set(name, "x", nx=True)
    await connection.set(name, "x", px=20_000)
    lock = leasehold_lock.compat.aio.Lock(connection, name, timeout=20)
    assert not await lock.acquire(blocking=False)
    await connection.delete(name)
"""

#: They use redis-py's class; `Kind` is the drop-in where it takes that one's place.
WITH_REDIS_PYS_LOCK: dict[str, str] = {
    "celery-redbeat": """
        from celery import Celery, beat
        from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock
        app = Celery("shop", broker=url)
        app.conf.update(redbeat_redis_url=url, beat_max_loop_interval=1, redbeat_key_prefix=name)
        app.conf.beat_schedule = {"count": {"task": "shop.count", "schedule": 3600.0}}
        service = beat.Service(app, scheduler_cls=RedBeatScheduler)
        acquire_distributed_beat_lock(sender=service)
        scheduler = service.scheduler
        assert type(scheduler.lock) is Kind and scheduler.lock.owned()
        mine.pexpire(scheduler.lock_key, 2000)
        scheduler.tick()
        scheduler.tick()
        assert 3000 < mine.pttl(scheduler.lock_key) <= scheduler.lock_timeout * 1000
        key = scheduler.lock_key
        scheduler.close()
        assert not mine.exists(key)
        from redbeat.schedulers import get_redis
        excluded(get_redis(app))
    """,
    "celery-once": """
        import celery_once.backends.redis as backend
        from celery import Celery
        from celery_once import AlreadyQueued, QueueOnce
        assert backend.Lock is Kind
        app = Celery("shop", broker=url)
        app.conf.ONCE = {"backend": "celery_once.backends.Redis",
                         "settings": {"url": url, "default_timeout": 60}}

        @app.task(base=QueueOnce, name=name)
        def count(): return 1

        count.apply_async()
        try:
            count.apply_async()
        except AlreadyQueued as error:
            assert 0 < error.countdown <= 60
        else:
            raise AssertionError("queued twice")
        count.once_backend.clear_lock(count.get_key())
        count.apply_async()
        excluded(count.once_backend.redis)
    """,
    "django-redis": """
        from django.conf import settings
        backend = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}
        settings.configure(CACHES={"default": backend})
        from django.core.cache import cache
        with cache.lock(name, timeout=20) as lock:
            assert type(lock) is Kind and lock.owned()
            assert not cache.lock(name, timeout=20).acquire(blocking=False)
            assert lock.extend(20) and lock.reacquire()
        assert cache.lock(name, timeout=20, blocking_timeout=0).acquire()
        cache.set("key", 5)
        assert cache.get("key") == 5
        connection = cache.client.get_client(write=True)
        mine.delete(cache.make_key(name))
        excluded(connection)
    """,
}
#: They have locks of their own, or none: all goes on as it did.
WITHOUT: dict[str, str] = {
    "rq": """
        from rq import Queue, SimpleWorker
        queue = Queue(name, connection=mine)
        job = queue.enqueue(max, 1, 5)
        SimpleWorker([queue], connection=mine).work(burst=True, with_scheduler=False)
        assert job.get_status().value == "finished" and job.return_value() == 5
        excluded(queue.connection)
    """,
    "rq-scheduler": """
        import datetime
        from rq import Queue
        from rq_scheduler import Scheduler
        scheduler = Scheduler(name, connection=mine, interval=1)
        other = Scheduler(name, connection=mine, interval=1)
        scheduler.enqueue_at(datetime.datetime(2020, 1, 1), max, 1, 5)
        assert scheduler.acquire_lock() and not other.acquire_lock()
        scheduler.enqueue_jobs()
        assert Queue(name, connection=mine).count == 1
        scheduler.remove_lock()
        excluded(scheduler.connection)
    """,
    "huey": """
        from huey import RedisHuey
        from huey.exceptions import TaskLockedException
        huey = RedisHuey(name, url=url)

        @huey.task()
        @huey.lock_task("count")
        def count(): return 5

        result = count()
        assert huey.execute(huey.dequeue()) == 5 and result() == 5
        with huey.lock_task("count"):
            assert huey.is_locked("count")
        excluded(huey.storage.conn)
    """,
    "dramatiq": """
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker
        from dramatiq.rate_limits import ConcurrentRateLimiter, RateLimitExceeded
        from dramatiq.rate_limits.backends import RedisBackend
        broker = RedisBroker(url=url, namespace=name)
        dramatiq.set_broker(broker)
        limiter = ConcurrentRateLimiter(RedisBackend(url=url), name + ":limit", limit=1)
        done = []

        @dramatiq.actor
        def count():
            with limiter.acquire():
                done.append(1)

        count.send()
        worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
        worker.start()
        broker.join(count.queue_name)
        worker.stop()
        assert done == [1]
        excluded(broker.client)
    """,
    "limits": """
        from limits import parse
        from limits.storage import storage_from_string
        from limits.strategies import MovingWindowRateLimiter
        storage = storage_from_string(url)
        limiter, once = MovingWindowRateLimiter(storage), parse("1/hour")
        assert limiter.hit(once, name) and not limiter.hit(once, name)
        excluded(storage.storage)
    """,
    "apscheduler": """
        from apscheduler.jobstores.redis import RedisJobStore
        from apscheduler.schedulers.background import BackgroundScheduler
        import threading
        ran = threading.Event()
        def count(): ran.set()
        sys.modules["shop"] = sys.modules["__main__"]
        port = int(url.rsplit(":", 1)[1])
        store = RedisJobStore(port=port, jobs_key=name + ":jobs", run_times_key=name + ":times")
        scheduler = BackgroundScheduler(jobstores={"default": store})
        scheduler.add_job("shop:count", id=name)
        scheduler.start()
        assert ran.wait(60)
        scheduler.shutdown()
        excluded(mine)
    """,
    "cashews": """
        from cashews import cache
        async def work():
            cache.setup(url)
            calls = []

            @cache.locked(ttl="20s", key=name + ":function")
            async def count():
                calls.append(1)
                return len(calls)

            assert sorted(await asyncio.gather(count(), count())) == [1, 2]
            async with cache.lock(name, "20s"):
                assert await cache.is_locked(name)
            await cache.close()
            async with redis.asyncio.Redis.from_url(url) as client:
                await excluded_in_loop(client)
        asyncio.run(work())
    """,
    "aiocache": """
        from aiocache import RedisCache
        from aiocache.lock import RedLock
        port = int(url.rsplit(":", 1)[1])
        async def work():
            try:
                cache = RedisCache(endpoint="127.0.0.1", port=port)
            except TypeError:  # From 1.0 on it is given a client.
                cache = RedisCache(redis.asyncio.Redis.from_url(url))
            async with RedLock(cache, name, lease=20):
                await cache.set("key", 5)
            assert str(await cache.get("key")) == "5"
            async with redis.asyncio.Redis.from_url(url) as client:
                await excluded_in_loop(client)
        asyncio.run(work())
    """,
    "taskiq": """
        from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend
        from taskiq.receiver import Receiver
        broker = ListQueueBroker(url, queue_name=name).with_result_backend(RedisAsyncResultBackend(url))

        @broker.task
        async def count(): return 5

        async def work():
            await broker.startup()
            task = await count.kiq()
            async for message in broker.listen():
                await Receiver(broker).callback(message)
                break
            result = await task.wait_result(timeout=60)
            assert result.return_value == 5
            await broker.shutdown()
            async with redis.asyncio.Redis.from_url(url) as client:
                await excluded_in_loop(client)
        asyncio.run(work())
    """,
    "arq": """
        from arq import create_pool
        from arq.connections import RedisSettings
        from arq.worker import Worker

        async def count(context): return 5

        async def work():
            settings = RedisSettings.from_dsn(url)
            pool = await create_pool(settings, default_queue_name=name)
            job = await pool.enqueue_job("count", _job_id=name + ":once")
            assert await pool.enqueue_job("count", _job_id=name + ":once") is None
            worker = Worker([count], queue_name=name, redis_pool=pool, burst=True,
                            poll_delay=0.01, handle_signals=False)
            await worker.main()
            assert await job.result(timeout=60) == 5
            lock = pool.lock(name, timeout=20)
            async with lock:
                assert type(lock) is AsyncKind
            await excluded_in_loop(pool)
            await worker.close()
        asyncio.run(work())
    """,
}

LIBRARIES = {**WITH_REDIS_PYS_LOCK, **WITHOUT}
#: What the normal run has.
FEW = ["celery-redbeat", "django-redis", "rq", "huey"]
TRIED = list(LIBRARIES) if os.environ.get("LEASEHOLD_LIBRARIES") == "all" else FEW

#: The page with the table of what this shows.
PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/libraries-on-redis-py.md"

KINDS = {
    "patched": PATCH
    + "Kind, AsyncKind = leasehold_lock.compat.Lock, leasehold_lock.compat.aio.Lock\n",
    "beside": "import redis.asyncio.lock\n"
    "Kind, AsyncKind = redis.lock.Lock, redis.asyncio.lock.Lock\n",
}


@pytest.mark.parametrize("how", list(KINDS))
@pytest.mark.parametrize("library", TRIED)
def test_a_library(library: str, how: str, run: Run, server: Server, name: str) -> None:

    program = KINDS[how] + BEGIN + textwrap.dedent(LIBRARIES[library])
    result = run(
        "import redis, redis.lock\n" + program + "\nprint('done')\n", server.url, f"{name}:{how}"
    )
    assert result.returncode == 0 and result.stdout.endswith("done\n"), result.stderr


def test_the_page_names_each_of_them() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for library in LIBRARIES:
        assert any(library in row for row in rows), library
