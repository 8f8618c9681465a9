"""The examples in docstrings and in the README do what they say."""

import asyncio
import doctest
import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import Server

import leasehold_lock as leasehold
import leasehold_lock.aio
import leasehold_lock.compat
from leasehold_lock.testing import Memory

README = Path(__file__).resolve().parents[1] / "README.md"


def _modules() -> Iterator[Any]:
    yield leasehold
    for found in pkgutil.walk_packages(leasehold.__path__, "leasehold_lock."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = [test for module in _modules() for test in finder.find(module, module.__name__)]
    return [test for test in tests if test.examples]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the examples take as given."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    url = f"sqlite://{tmp_path}/locks.db"
    with leasehold.connect(url) as client, leasehold.connect(url) as other:
        yield {
            "asyncio": asyncio,
            "leasehold": leasehold,
            "leasehold_lock": leasehold,
            "client": client,
            "other_client": other,
            "lock": client.lock("orders:42"),
            "memory": Memory(),
            "folder": tmp_path,
            "order": None,
            "charge": lambda order, fence: None,
            "collect": lambda fence: None,
        }


@pytest.mark.parametrize("example", _examples(), ids=lambda example: example.name)
def test_a_docstring(example: doctest.DocTest, words: dict[str, Any]) -> None:
    example.globs.update(words)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    result = runner.run(example, out=said.append)
    assert result.attempted and not result.failed, "".join(said)


def test_there_are_examples_for_what_people_use_most() -> None:
    names = {example.name for example in _examples()}
    for name in ["leasehold_lock", "leasehold_lock._client.connect", "leasehold_lock._lock.Lock"]:
        assert name in names
    assert {"leasehold_lock.aio", "leasehold_lock.compat"} <= names


def _blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), flags=re.DOTALL | re.MULTILINE)


_counter = itertools.count()


@pytest.mark.parametrize("block", _blocks())
def test_the_readme(
    block: str, words: dict[str, Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is a program of its own, but for what the one before has explained."""
    monkeypatch.setenv("LEASEHOLD_URL", server.url)
    text = block.replace("redis://127.0.0.1", server.url)
    text = text.replace("orders:42", f"orders:42:{next(_counter)}")
    exec(compile(text, str(README), "exec"), words)
