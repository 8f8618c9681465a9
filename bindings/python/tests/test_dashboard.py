"""The dashboard of examples/metrics is one that Grafana knows, by the types that Grafana publishes."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).resolve().parents[3] / "examples/metrics/dashboard.json"


def _read_by_grafana(text: str) -> Any:
    """What is left of a dashboard when those types have read it and written it down."""
    sdk = "grafana_foundation_sdk."
    importlib.import_module(sdk + "cog.plugins").register_default_plugins()
    dashboard = importlib.import_module(sdk + "models.dashboard").Dashboard.from_json(
        json.loads(text)
    )
    return json.loads(importlib.import_module(sdk + "cog.encoder").JSONEncoder().encode(dashboard))


def _lost(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where the second one lacks, or has otherwise, what the first one says."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from _lost(value, theirs.get(key, "nothing"), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, value in enumerate(ours):
            yield from _lost(value, theirs[index], f"{path}[{index}]")
    elif ours != theirs:
        yield path


def test_grafana_knows_every_word_of_the_dashboard() -> None:
    text = DASHBOARD.read_text()
    assert list(_lost(json.loads(text), _read_by_grafana(text))) == []


def test_control_a_word_that_grafana_does_not_know_is_found() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    dashboard["panels"][1]["fieldConfig"]["defaults"]["colour"] = "red"
    lost = list(_lost(dashboard, _read_by_grafana(json.dumps(dashboard))))
    assert lost == [".panels[1].fieldConfig.defaults.colour"]
