"""The plugin for pytest that comes with Leasehold: the fixture ``leasehold_memory``, a fresh store in memory
for each test.

A package of its own, since pytest imports it in every run: the library is loaded when a test first asks for
the fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leasehold_lock.testing import Memory

_MARKER = "leasehold_released"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting for all tests."""
    parser.addini(
        _MARKER,
        "fail each test that leaves a lock of leasehold_memory held at its end",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker for one test, class or module."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(on=True): the test fails if it leaves a lock of leasehold_memory held at its end",
    )


@pytest.fixture
def leasehold_memory(request: pytest.FixtureRequest) -> "Iterator[Memory]":
    """A store in memory that no other test has, with controls: leasehold_lock.testing.Memory."""
    from leasehold_lock.testing import Memory

    on = _is_on(request)
    with Memory() as memory:
        yield memory
        if on:
            memory.assert_nothing_held()


def _is_on(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker(_MARKER)
    if marker is None:
        return bool(request.config.getini(_MARKER))
    (on,) = marker.args or (marker.kwargs.get("on", True),)
    if not isinstance(on, bool):
        raise pytest.UsageError(f"{_MARKER}({on!r}): it is True or False")
    return on
