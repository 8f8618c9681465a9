"""Builds the package: a wheel with the library and the command in it, or a source package.

The functions are the hooks of PEP 517. They need nothing from the network themselves; Cargo gets
the crates that it has not yet.
"""

import tempfile
from pathlib import Path
from typing import Any, Optional

from . import archive, metadata, native

Settings = Optional["dict[str, Any]"]


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Nothing."""
    return []


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """Nothing."""
    return []


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """What pip wants to know before it builds."""
    folder = Path(metadata_directory) / metadata.dist_info()
    folder.mkdir()
    (folder / "METADATA").write_text(metadata.metadata())
    (folder / "entry_points.txt").write_text(metadata.ENTRY_POINTS)
    return folder.name


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: Optional[str] = None,
) -> str:
    """Builds library and command, and packs them; says why where that cannot be."""
    with tempfile.TemporaryDirectory() as scratch:
        built = native.build(Path(scratch))
        return archive.write_wheel(Path(wheel_directory), built)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Packs the sources, those in Rust too."""
    return archive.write_sdist(Path(sdist_directory))
