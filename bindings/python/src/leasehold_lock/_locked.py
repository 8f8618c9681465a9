"""The decorator `Client.locked()`: a function that is called with a lock held."""

import difflib
import functools
import inspect
import string
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Callable, Optional, TypeVar, Union

from ._errors import BadArgument, Timeout, bad_argument
from ._lease import Lease
from ._lock import Lock

F = TypeVar("F", bound=Callable[..., Any])

#: What a text in place of an annotation says.
_ANNOTATIONS = ("Lease", "leasehold.Lease", "leasehold_lock.Lease")
#: What says nothing of a parameter's kind.
_ANYTHING = (inspect.Parameter.empty, Any, "Any", "typing.Any")
#: Have done nothing yet when they are returned.
_LATER = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)


def decorator(
    name: str, make_lock: Callable[[str], Lock], on_busy: Optional[Callable[..., Any]]
) -> Callable[[F], F]:
    """The decorator for locks of a name, which may be made from arguments."""

    def decorate(function: F) -> F:
        if isinstance(function, (classmethod, staticmethod)):
            return type(function)(decorate(function.__func__))
        return typing.cast(F, _Decorated(function, name, make_lock, on_busy).wrapper())

    return decorate


class _Decorated:
    """A function, and what is known of it before it is called."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        make_lock: Callable[[str], Lock],
        on_busy: Optional[Callable[..., Any]],
    ) -> None:
        self._function = function
        self._called = getattr(function, "__qualname__", repr(function))
        self._is_async = _check(function, self._called, on_busy)
        self._full = _signature(function, self._called)
        self._lease = _lease_parameter(function, self._full, self._called)
        self._signature = self._full.replace(
            parameters=[one for one in self._full.parameters.values() if one.name != self._lease]
        )
        self._formatter = Formatter(name, self._signature, self._called, self._lease)
        self._make_lock = make_lock
        self._on_busy = on_busy

    def wrapper(self) -> Callable[..., Any]:
        """What is called in the function's place."""

        @functools.wraps(self._function)
        def plain(*arguments: Any, **named: Any) -> Any:
            return self._call(arguments, named)

        @functools.wraps(self._function)
        async def coroutine(*arguments: Any, **named: Any) -> Any:
            return await self._await(arguments, named)

        made: Any = coroutine if self._is_async else plain
        # Nobody passes a lease: frameworks look at this to know what to pass.
        made.__signature__ = self._signature
        if self._lease is not None and self._lease in getattr(made, "__annotations__", {}):
            made.__annotations__ = {
                name: kind for name, kind in made.__annotations__.items() if name != self._lease
            }
        return typing.cast(Callable[..., Any], made)

    def _call(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        bound = self._signature.bind(*arguments, **named)
        lease = None
        try:
            lease = self._lock(bound).acquire()
        except Timeout:
            if self._on_busy is None:
                raise
        if lease is None:
            assert self._on_busy is not None, "it was raised"
            return self._on_busy(*arguments, **named)
        with lease:
            result = self._with(lease, bound, arguments, named)
            if isinstance(result, _LATER):
                if not isinstance(result, types.AsyncGeneratorType):
                    result.close()
                raise TypeError(
                    f"{self._called}() has returned a {type(result).__name__}, which would run without the "
                    f"lock: decorate the function that it comes from"
                )
            return result

    async def _await(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        bound = self._signature.bind(*arguments, **named)
        async with AsyncExitStack() as stack:
            lease = None
            try:
                lease = await stack.enter_async_context(self._lock(bound))
            except Timeout:
                if self._on_busy is None:
                    raise
            if lease is not None:
                return await self._with(lease, bound, arguments, named)
        assert self._on_busy is not None, "it was raised"
        result = self._on_busy(*arguments, **named)
        return await result if inspect.isawaitable(result) else result

    def _lock(self, bound: inspect.BoundArguments) -> Lock:
        return self._make_lock(self._formatter.name(bound))

    def _with(
        self,
        lease: Lease,
        bound: inspect.BoundArguments,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:
        if self._lease is None:
            return self._function(*arguments, **named)
        # In the order of the parameters, among which the lease may be anywhere.
        values: Any = {
            name: lease if name == self._lease else bound.arguments[name]
            for name in self._full.parameters
            if name == self._lease or name in bound.arguments
        }
        call = inspect.BoundArguments(self._full, values)
        return self._function(*call.args, **call.kwargs)


def _check(
    function: Callable[..., Any], called: str, on_busy: Optional[Callable[..., Any]]
) -> bool:
    """Refuses what cannot be called with a lock held. Whether it is a coroutine function."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"locked() decorates a function or a method, not {function!r}")
    call = function if hasattr(function, "__code__") else getattr(function, "__call__", function)  # noqa: B004
    if any(
        inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one)
        for one in (function, call)
    ):
        raise TypeError(
            f"{called}() is a generator, which runs after it was called: write 'with client.lock(...)' "
            f"inside it"
        )
    is_async = any(inspect.iscoroutinefunction(one) for one in (function, call))
    if on_busy is not None:
        if not callable(on_busy):
            raise TypeError(
                f"on_busy is {on_busy!r}; it is a function with the arguments of {called}()"
            )
        if inspect.iscoroutinefunction(on_busy) and not is_async:
            raise TypeError(f"on_busy is a coroutine function, and {called}() is none")
    return is_async


def _signature(function: Callable[..., Any], called: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        raise TypeError(f"{called}() does not say what its arguments are") from None


def _lease_parameter(
    function: Callable[..., Any], signature: inspect.Signature, called: str
) -> Optional[str]:
    """The parameter that gets the lease: annotated so, or named so and not annotated as anything else."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # A name that is only there for type checkers.
        hints = {}
    annotated, named = [], []
    for one in signature.parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if _is_lease(hints.get(one.name, one.annotation)):
            annotated.append(one)
        elif one.name == "lease" and one.annotation in _ANYTHING:
            named.append(one)
    found = annotated or named
    if len(found) > 1:
        raise TypeError(f"{called}() has {len(found)} parameters for the lease: annotate one")
    return found[0].name if found else None


def _is_lease(annotation: Any) -> bool:
    """`Lease` or `Optional[Lease]`, written in any way."""
    if isinstance(annotation, str):
        kinds = [one.strip() for one in annotation.split("|")]
        if len(kinds) == 1 and annotation.replace("typing.", "").startswith("Optional["):
            kinds = [annotation.partition("[")[2].rstrip("] ")]
        return any(kind in _ANNOTATIONS for kind in kinds)
    if annotation is Lease:
        return True
    union = (Union, getattr(types, "UnionType", Union))
    return typing.get_origin(annotation) in union and Lease in typing.get_args(annotation)


class Formatter(string.Formatter):
    """Makes the name of a lock from arguments, as `str.format()` does, but not of None."""

    def __init__(
        self, text: str, signature: inspect.Signature, called: str, lease: Optional[str]
    ) -> None:
        self._text, self._called = text, called
        kinds = {one.name: one.kind for one in signature.parameters.values()}
        self._rest = next(
            (n for n, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None
        )
        try:
            fields = list(_fields(text))
        except ValueError as error:
            raise bad_argument(
                f"the name {text!r} has a brace too few or too many ({error})"
            ) from None
        for field in fields:
            if not field or field.isdigit():
                raise bad_argument(
                    f"the name {text!r} has braces without a name: write an argument of {called}()"
                )
            if field == lease:
                raise bad_argument(
                    f"the name {text!r} cannot be made from the lease, which comes later"
                )
            if field not in kinds and self._rest is None:
                near = difflib.get_close_matches(field, kinds, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise bad_argument(
                    f"{called}() has no argument {field!r} for the name {text!r}{hint}"
                )
        self._has_fields = bool(fields)

    def name(self, bound: inspect.BoundArguments) -> str:
        """The name for a call."""
        if not self._has_fields:
            return self._text.format()
        whole = inspect.BoundArguments(bound.signature, bound.arguments.copy())
        whole.apply_defaults()
        values = dict(whole.arguments)
        values.update(values.get(self._rest, {}) if self._rest is not None else {})
        try:
            return self.vformat(self._text, (), values)
        except BadArgument:
            raise
        except Exception as error:
            raise bad_argument(
                f"the name {self._text!r} cannot be made in this call of {self._called}(): "
                f"{type(error).__name__} {error}"
            ) from error

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        """An argument, or what is in it. All calls with None would share one lock."""
        found = super().get_field(field_name, args, kwargs)
        if found[0] is None:
            raise bad_argument(
                f"{field_name} is None in this call of {self._called}(), so there is no name for "
                f"{self._text!r}"
            )
        return found


def _fields(text: str) -> Iterator[str]:
    """The arguments that a text to be formatted names."""
    for _, field, spec, _ in string.Formatter().parse(text):
        if field is not None:
            yield field.replace("[", ".").partition(".")[0]
            yield from _fields(spec or "")
