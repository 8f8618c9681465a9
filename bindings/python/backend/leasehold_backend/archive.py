"""Writes wheels and source packages. The same sources give the same bytes."""

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from . import metadata, places
from .native import Built

#: The earliest date that a zip file can have.
_DATE = (1980, 1, 1, 0, 0, 0)
_EPOCH = 315532800

#: What of the Rust project a source package carries, where it is there.
_RUST = ["Cargo.toml", "Cargo.lock", "build.rs", "README.md", "CHANGELOG.md", "LICENSE-*"]
_RUST += ["build/*", "src/**/*", "include/*", "docs/findings.md"]
# Cargo reads the manifest of each member of the workspace, though it builds none of these.
_RUST += ["benches/Cargo.toml", "benches/src/*", "benches/tests/*"]
_RUST += ["benches/steps/Cargo.toml", "benches/steps/src/*"]
_RUST += ["tests/kit/Cargo.toml", "tests/kit/src/**/*"]


def write_wheel(folder: Path, built: Built) -> str:
    """Packs the package with what was built for it."""
    tag = built.tag()
    info = metadata.dist_info()
    entries: list[tuple[str, bytes, int]] = []
    for file in _files(places.SOURCES):
        name = f"leasehold/{file.relative_to(places.SOURCES).as_posix()}"
        entries.append((name, file.read_bytes(), 0o644))
    entries.append(("leasehold/_native/libleasehold.so", built.library.read_bytes(), 0o755))
    entries.append(("leasehold/_native/leasehold", built.command.read_bytes(), 0o755))
    for file in sorted(places.rust().glob("LICENSE-*")):
        entries.append((f"{info}/licenses/{file.name}", file.read_bytes(), 0o644))
    about = (
        f"Wheel-Version: 1.0\nGenerator: leasehold_backend\nRoot-Is-Purelib: false\nTag: {tag}\n"
    )
    entries.append((f"{info}/METADATA", metadata.metadata().encode(), 0o644))
    entries.append((f"{info}/WHEEL", about.encode(), 0o644))
    entries.append((f"{info}/entry_points.txt", metadata.ENTRY_POINTS.encode(), 0o644))
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data, _ in entries)
    entries.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))

    wheel = f"{metadata.NAME}-{metadata.version()}-{tag}.whl"
    with zipfile.ZipFile(folder / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in entries:
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def write_sdist(folder: Path) -> str:
    """Packs all that a wheel is built from."""
    base = f"{metadata.NAME}-{metadata.version()}"
    sdist = f"{base}.tar.gz"
    own = [places.PACKAGE / "pyproject.toml", places.PACKAGE / "README.md"]
    own += [*_files(places.PACKAGE / "backend"), *_files(places.SOURCES)]
    with open(folder / sdist, "wb") as file:
        with gzip.GzipFile("", "wb", mtime=_EPOCH, fileobj=file) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                _add(archive, f"{base}/PKG-INFO", metadata.metadata().encode())
                for source in own:
                    name = source.relative_to(places.PACKAGE).as_posix()
                    _add(archive, f"{base}/{name}", source.read_bytes())
                for source in _rust_files():
                    name = source.relative_to(places.rust()).as_posix()
                    _add(archive, f"{base}/{places.IN_SDIST}/{name}", source.read_bytes())
    return sdist


def _files(folder: Path) -> Iterator[Path]:
    """What lies in a folder, but for what Python, or somebody who builds here, leaves there."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not {"__pycache__", "_native", ".mypy_cache"} & set(file.parts):
            yield file


def _rust_files() -> Iterator[Path]:
    root = places.rust()
    for pattern in _RUST:
        for file in sorted(root.glob(pattern)):
            if file.is_file():
                yield file


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), _EPOCH, 0o644
    archive.addfile(entry, io.BytesIO(data))


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
