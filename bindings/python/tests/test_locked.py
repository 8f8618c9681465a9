"""The decorator: a function that is called with a lock held."""

import asyncio
import functools
import inspect
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import pytest
from conftest import Until
from server import Server

import leasehold_lock as leasehold
from leasehold_lock import Lease


class Order:
    def __init__(self, number: Any) -> None:
        self.id = number


def held(client: leasehold.Client, name: str) -> bool:
    return client.lock(name).inspect().held


def test_the_name_is_made_from_the_arguments(client: leasehold.Client, name: str) -> None:
    @client.locked(name + ":{order}:{kind}", ttl=10)
    def work(order: int, kind: str = "sale", *more: int, last: int = 3) -> Any:
        """Works."""
        assert held(client, f"{name}:{order}:{kind}")
        return order, kind, more, last

    assert work(1) == (1, "sale", (), 3)
    assert work(2, "gift", 7, last=4) == (2, "gift", (7,), 4)
    assert work(kind="x", order=3) == (3, "x", (), 3)
    assert not held(client, f"{name}:1:sale")
    assert (work.__name__, work.__doc__) == ("work", "Works.")
    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        work()  # type: ignore[call-arg]


def test_what_is_in_an_argument_is_named_too(client: leasehold.Client, name: str) -> None:
    @client.locked(name + ":{order.id:04}:{tags[0]!r}:{{}}:{extra}")
    def work(order: Order, tags: list[str], **options: str) -> bool:
        return held(client, f"{name}:0042:'a':{{}}:yes")

    assert work(Order(42), ["a"], extra="yes")

    @client.locked(name + "{{}}")
    def fixed() -> bool:
        return held(client, name + "{}")

    assert fixed()


def test_the_lease_is_passed(client: leasehold.Client, name: str) -> None:
    @client.locked(name)
    def anything(number: int, *, lease: Any = None) -> Any:
        return lease.valid, number

    # Annotated as something else, it is the program's own.
    @client.locked(name)
    def theirs(lease: str) -> str:
        return lease

    @client.locked(name)
    def plain(lease: Any, number: int = 0) -> Any:
        return lease.valid, number

    @client.locked(name)
    def positional(number: int, held: Optional[Lease] = None, /, *rest: int) -> Any:
        return held is not None and held.valid, number

    assert theirs("a house") == "a house"
    call: Any = plain  # Whose lease no caller passes, which no type says.
    assert call(7) == call(number=7) == anything(7) == positional(7) == (True, 7)


def test_the_lease_is_found_by_its_annotation(client: leasehold.Client, name: str) -> None:
    def first(number: int, held: Lease, *rest: int) -> Any:
        return held.valid, number, rest

    def second(number: int, *, held: "Optional[Lease]" = None) -> Any:
        return held is not None and held.valid, number, ()

    def third(number: int, held: "Lease | None" = None) -> Any:
        return held is not None and held.valid, number, ()

    def with_module(number: int, held: "leasehold.Lease", *rest: "Unknown") -> Any:  # type: ignore[name-defined]  # noqa: F821
        return held.valid, number, rest

    def fourth(held: "Lease", number: "Unknown") -> Any:  # type: ignore[name-defined]  # noqa: F821
        return held.valid, number, ()

    for function in (first, second, third, fourth, with_module):
        made: Any = client.locked(name)(function)
        assert made(5) == (True, 5, ()), function
        # Frameworks pass what the signature has.
        assert next(iter(inspect.signature(made).parameters)) == "number"
        assert "held" not in inspect.signature(made).parameters
        assert "held" not in made.__annotations__
    assert client.locked(name)(first)(5, 6, 7) == (True, 5, (6, 7))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'held'"):
        client.locked(name)(second)(5, held=None)


def test_calls_wait_for_each_other(client: leasehold.Client, name: str) -> None:
    running: list[int] = []

    @client.locked(name, wait=50)
    def work(lease: Lease) -> int:
        running.append(1)
        assert len(running) == 1
        running.pop()
        return lease.fence

    with ThreadPoolExecutor(8) as pool:
        fences = list(pool.map(lambda _: work(), range(40)))  # type: ignore[call-arg]
    assert len(set(fences)) == 40


def test_a_call_that_finds_the_lock_held_raises(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    @client.locked(name, wait=0)
    def work() -> None:
        raise AssertionError

    with other.lock(name):
        with pytest.raises(leasehold.Timeout):
            work()


def test_or_calls_another_function(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    def instead(order: int, *, kind: str) -> str:
        return f"{kind} {order} is busy"

    @client.locked(name + ":{order}", wait=0, on_busy=instead)
    def work(order: int, *, kind: str) -> str:
        if kind == "timeout":
            raise leasehold.Timeout("of the function")
        return "done"

    assert work(1, kind="sale") == "done"
    with other.lock(f"{name}:1"):
        assert work(1, kind="sale") == "sale 1 is busy"
        assert work(2, kind="sale") == "done"
    # One of the function's own is no busy lock.
    with pytest.raises(leasehold.Timeout, match="of the function"):
        work(3, kind="timeout")
    assert not held(client, f"{name}:3")


def test_what_the_function_raises_releases_the_lock(client: leasehold.Client, name: str) -> None:
    @client.locked(name)
    def work() -> None:
        1 / 0

    with pytest.raises(ZeroDivisionError):
        work()
    assert not held(client, name)


def test_a_lost_lease_ends_the_call_with_an_error(
    redis_client: leasehold.Client, name: str, until: Until
) -> None:
    @redis_client.locked(name, ttl=0.3)
    def work(lease: Optional[Lease] = None) -> None:
        assert lease is not None
        redis_client.lock(name).break_held("ada")
        until(lambda: not lease.valid)

    with pytest.raises(leasehold.Lost):
        work()


def test_coroutines(client: leasehold.Client, other: leasehold.Client, name: str) -> None:
    async def instead(order: int) -> str:
        await asyncio.sleep(0)
        return "busy"

    @client.locked(name + ":{order}", wait=0, on_busy=instead)
    async def work(order: int, lease: Optional[Lease] = None) -> Any:
        assert lease is not None and held(client, f"{name}:{order}")
        await asyncio.sleep(0)
        return lease.fence

    @client.locked(name + ":{order}", wait=0, on_busy=lambda order: order)
    async def plain_instead(order: int) -> int:
        raise AssertionError

    @client.locked(name + ":all", wait=50)
    async def one_by_one() -> None:
        running.append(1)
        await asyncio.sleep(0)
        assert len(running) == 1
        running.pop()

    running: list[int] = []

    async def story() -> None:
        assert await work(1) > 0
        with other.lock(f"{name}:1"):
            assert await work(1) == "busy"
            assert await plain_instead(1) == 1
        await asyncio.gather(*(one_by_one() for _ in range(20)))
        task = asyncio.ensure_future(client.locked(name)(asyncio.sleep)(60))
        while not held(other, name):
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not held(other, name)

    assert inspect.iscoroutinefunction(work)
    asyncio.run(story())


def test_methods(client: leasehold.Client, name: str) -> None:
    class Shelf:
        def __init__(self) -> None:
            self.path = name

        @client.locked("{self.path}:{sku}")
        def count(self, sku: int) -> bool:
            return held(client, f"{self.path}:{sku}")

        @client.locked(name + ":class")
        @classmethod
        def inside(cls) -> Any:
            return cls, held(client, name + ":class")

        @classmethod
        @client.locked(name + ":{cls.__name__}")
        def outside(cls, lease: Optional[Lease] = None) -> Any:
            return cls, lease is not None and held(client, f"{name}:{cls.__name__}")

        @client.locked(name + ":{sku}")
        @staticmethod
        def static(sku: int) -> bool:
            return held(client, f"{name}:{sku}")

    class Wide(Shelf):
        pass

    assert Shelf().count(17)
    assert Wide.inside() == (Wide, True) and Wide().outside() == (Wide, True)
    assert Shelf.static(3) and Shelf().static(sku=4)


def test_other_callables(client: leasehold.Client, name: str) -> None:
    class Work:
        def __call__(self, number: int) -> Any:
            return number, held(client, f"{name}:{number}")

    decorate = client.locked(name + ":{number}")
    assert decorate(Work())(5) == (5, True)
    assert decorate(functools.partial(Work(), number=6))() == (6, True)
    assert decorate(lambda number: held(client, f"{name}:{number}"))(7)


def test_threads_of_a_function_that_was_decorated_once(client: leasehold.Client, name: str) -> None:
    @client.locked(name + ":{number}")
    def work(number: int) -> None:
        meet.wait(20)

    meet = threading.Barrier(4)  # Different names do not wait for each other.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


# ---- bad input ---------------------------------------------------------------------------------


def generator(order: int) -> Iterator[int]:
    yield order


async def async_generator(order: int) -> AsyncIterator[int]:
    yield order


def two(first: Lease, second: Lease) -> None: ...


def plain(order: int, lease: Any = None) -> Any:
    return order


def with_lease(order: int, lease: Optional[Lease] = None) -> Any:
    return order


@pytest.mark.parametrize(
    "name, function, kind, why",
    [
        ("n", generator, TypeError, "generator.. is a generator"),
        ("n", async_generator, TypeError, "async_generator.. is a generator"),
        ("n", Order, TypeError, "a function or a method"),
        ("n", 5, TypeError, "a function or a method, not 5"),
        ("n", two, TypeError, "two.. has 2 parameters for the lease"),
        ("{ordr}", plain, leasehold.BadArgument, "no argument 'ordr' .*did you mean 'order'"),
        ("{order", plain, leasehold.BadArgument, "a brace too few or too many"),
        ("{}", plain, leasehold.BadArgument, "braces without a name"),
        ("{0}", plain, leasehold.BadArgument, "braces without a name"),
        ("{order:{width}}", plain, leasehold.BadArgument, "no argument 'width'"),
        ("{lease.fence}", with_lease, leasehold.BadArgument, "cannot be made from the lease"),
    ],
)
def test_a_function_that_cannot_be_decorated(
    name: str, function: Any, kind: type[Exception], why: str, client: leasehold.Client
) -> None:
    with pytest.raises(kind, match=why):
        client.locked(name)(function)


def test_arguments_of_the_decorator(client: leasehold.Client, name: str) -> None:
    wrong: Any = client.locked
    with pytest.raises(TypeError, match="needs a name: write @client.locked"):
        wrong(plain)

    for options, kind, why in [
        ({"ttl": -1}, leasehold.BadArgument, "ttl"),
        ({"ttl": 1e9}, leasehold.BadArgument, "ttl"),
        ({"attempts": -1}, leasehold.BadArgument, "attempts"),
        ({"wait": "5"}, TypeError, "wait"),
        ({"timeout": 5}, TypeError, "write ttl=10"),
        ({"on_bussy": 5}, TypeError, "did you mean 'on_busy'"),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", leasehold.UnitWarning)
            with pytest.raises(kind, match=why):
                wrong(name, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a str, not bytes"):
        wrong(b"name")
    with pytest.raises(TypeError, match="on_busy is 5"):
        wrong(name, on_busy=5)(plain)

    async def later() -> None: ...

    with pytest.raises(TypeError, match="on_busy is a coroutine function"):
        wrong(name, on_busy=later)(plain)


def test_a_long_ttl_warns_where_it_is_written(client: leasehold.Client, name: str) -> None:
    with pytest.warns(leasehold.UnitWarning) as told:
        made = client.locked(name + ":{order}", ttl=10_000)(plain)
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(1)


def test_calls_that_have_no_name(client: leasehold.Client, name: str) -> None:
    def work(order: Optional[Order] = None) -> None:
        raise AssertionError

    made = client.locked(name + ":{order.id}")(work)
    for order, why in [
        (None, "NoneType"),
        (Order(None), "order.id is None in this call of .*work"),
        (5, "AttributeError .*'id'"),
    ]:
        with pytest.raises(leasehold.BadArgument, match=why):
            made(order)  # type: ignore[arg-type]
    with pytest.raises(leasehold.BadArgument, match="order is None"):
        client.locked(name + ":{order}")(work)()
    rest: Any = client.locked(name + ":{extra}")(lambda **more: None)
    with pytest.raises(leasehold.BadArgument, match="KeyError 'extra'"):
        rest(other=1)


def test_what_runs_later_is_refused(client: leasehold.Client, server: Server, name: str) -> None:
    async def coroutine() -> None: ...

    for function in (coroutine, lambda: generator(1), lambda: async_generator(1)):
        made: Any = client.locked(name)(lambda function=function: function())
        with pytest.raises(TypeError, match="has returned a .*without the lock"):
            made()
        assert not held(client, name)
