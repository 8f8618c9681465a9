"""A plugin of pytest for redis-py's own tests of its locks: the drop-in stands in the place of the
classes. What has to fail is listed, and fails the run if it passes."""

import importlib
from typing import Any

import pytest

import leasehold_lock.compat.aio

NO_TTL = "no lock is left without a ttl: a holder without a timeout has 30 s, and is renewed"
CLOCK = "it looks into redis-py's own loop, by a clock of its own in place of the module's `time`"
#: Also in leasehold_lock.compat and docs/how-to/libraries-on-redis-py.md, as "one difference".
ON_PURPOSE = {
    "tests/test_lock.py::TestLock::test_lock": NO_TTL,
    "tests/test_lock.py::TestLock::test_blocking_timeout": CLOCK,
    "tests/test_lock.py::TestLock::test_context_manager_blocking_timeout": CLOCK,
    "tests/test_asyncio/test_lock.py::TestLock::test_lock": NO_TTL,
    "tests/test_asyncio/test_lock.py::TestLock::test_blocking_timeout": CLOCK,
}

for name in ("redis.lock", "redis.client"):
    setattr(importlib.import_module(name), "Lock", leasehold_lock.compat.Lock)  # noqa: B010
for name in ("redis.asyncio.lock", "redis.asyncio.client"):
    setattr(importlib.import_module(name), "Lock", leasehold_lock.compat.aio.Lock)  # noqa: B010


def pytest_collection_modifyitems(items: list[Any]) -> None:
    missing = set(ON_PURPOSE)
    for item in items:
        place = item.nodeid.split("[")[0]
        if place in ON_PURPOSE:
            item.add_marker(pytest.mark.xfail(strict=True, reason=ON_PURPOSE[place]))
            missing.discard(place)
    assert not missing, f"redis-py has no such tests any more: {sorted(missing)}"
