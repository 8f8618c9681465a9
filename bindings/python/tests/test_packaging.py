"""What adds the library and the command to the package: what is packed, and what it says when it cannot
build."""

import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import hatchling.build
import pytest

import leasehold_lock as leasehold

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]
sys.path.insert(0, str(PACKAGE))

import hatch_build  # noqa: E402

LIBRARY = leasehold._loader.BUNDLED
VERSION = leasehold.__version__


@pytest.fixture(autouse=True)
def in_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a frontend calls the functions of a backend."""
    monkeypatch.chdir(PACKAGE)


@pytest.fixture
def prebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for what Cargo would build."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    for name in ("libleasehold.so", "leasehold"):
        (folder / name).write_bytes(Path(sys.executable).resolve().read_bytes())
    monkeypatch.setenv(hatch_build.PREBUILT, str(folder))
    return folder


def test_a_wheel(prebuilt: Path, tmp_path: Path) -> None:
    name = hatchling.build.build_wheel(str(tmp_path))
    pattern = rf"leasehold_lock-{VERSION}-py3-none-manylinux_2_\d+_{platform.machine()}\.whl"
    assert re.fullmatch(pattern, name)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        assert wheel.testzip() is None
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
        record = wheel.read(f"leasehold_lock-{VERSION}.dist-info/RECORD").decode().splitlines()
        about = wheel.read(f"leasehold_lock-{VERSION}.dist-info/METADATA").decode()
        tag = wheel.read(f"leasehold_lock-{VERSION}.dist-info/WHEEL").decode()
    assert modes["leasehold_lock/_native/leasehold"] == 0o755
    assert modes["leasehold_lock/_native/libleasehold.so"] == 0o755
    assert {"leasehold_lock/py.typed", "leasehold_lock/compat/_lock.py"} <= set(modes)
    assert {"leasehold_pytest/__init__.py", "leasehold_pytest/py.typed"} <= set(modes)
    assert {line.split(",")[0] for line in record} == set(modes)
    # An extra asks for what it is named after; the package itself needs nothing.
    assert all("; extra == " in line for line in about.splitlines() if "Requires-Dist" in line)
    assert "Requires-Python: >=3.9" in about
    assert f"Tag: {'-'.join(name[:-4].split('-')[2:])}" in tag
    first = (tmp_path / name).read_bytes()
    hatchling.build.build_wheel(str(tmp_path))
    assert (tmp_path / name).read_bytes() == first


def test_metadata_before_the_wheel(tmp_path: Path) -> None:
    name = hatchling.build.prepare_metadata_for_build_wheel(str(tmp_path))
    text = (tmp_path / name / "METADATA").read_text()
    assert f"Version: {VERSION}\n" in text and "# Leasehold for Python" in text


def test_a_source_package_has_all_that_a_wheel_is_built_from(tmp_path: Path) -> None:
    name = hatchling.build.build_sdist(str(tmp_path))
    assert name == f"leasehold_lock-{VERSION}.tar.gz"
    with tarfile.open(tmp_path / name) as sdist:
        names = {entry.name.split("/", 1)[1] for entry in sdist}
    rust = {f"rust/{file}" for file in ["Cargo.toml", "Cargo.lock"]}
    workspace = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    members = re.findall(r'"([^"]+)"', workspace.split("\nmembers = ", 1)[1].split("\n", 1)[0])
    rust |= {f"rust/{member}/Cargo.toml" for member in members}
    scripts = ROOT.glob("src/**/*.*")
    rust |= {f"rust/{file.relative_to(ROOT).as_posix()}" for file in scripts}
    own = {"pyproject.toml", "PKG-INFO", "README.md", "LICENSE-MIT", "hatch_build.py"}
    own |= {"src/leasehold_pytest/__init__.py"}
    assert rust | own | {"src/leasehold_lock/py.typed"} <= names
    assert not [name for name in names if "target/" in name or ".so" in name or ".pyc" in name]


def from_source_package(tmp_path: Path, **environment: str) -> str:
    """What building a wheel from an unpacked source package says."""
    name = hatchling.build.build_sdist(str(tmp_path))
    subprocess.run(["tar", "-xzf", tmp_path / name, "-C", tmp_path], check=True)
    build = "import hatchling.build; hatchling.build.build_wheel('.')"
    variables: dict[str, str] = {"HOME": str(tmp_path), **environment}
    result = subprocess.run(
        [sys.executable, "-c", build],
        cwd=tmp_path / name[: -len(".tar.gz")],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    return result.stderr


def test_without_cargo_it_says_so(tmp_path: Path) -> None:
    said = from_source_package(tmp_path, PATH=str(tmp_path))
    assert said.startswith("Leasehold cannot be built here: cargo is missing. Get Rust 1.")
    assert "https://rustup.rs" in said and "Traceback" not in said


def fake(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return str(folder)


def test_an_old_cargo_is_refused(tmp_path: Path) -> None:
    path = fake(tmp_path, "cargo", "echo cargo 1.56.0")
    said = from_source_package(tmp_path, PATH=path)
    assert "cargo 1.56.0 is too old. Get Rust" in said and "Traceback" not in said


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    path = fake(tmp_path, "cargo", "echo cargo 1.999.0")
    said = from_source_package(tmp_path, PATH=path, CC="no-such-compiler")
    assert "the C compiler 'no-such-compiler' is missing" in said and "Traceback" not in said


def test_when_cargo_fails_its_words_come_first(tmp_path: Path) -> None:
    path = fake(tmp_path, "cargo", '[ "$1" = --version ] && echo cargo 1.999.0 || exit 101')
    fake(tmp_path, "cc", "true")
    said = from_source_package(tmp_path, PATH=path)
    assert "Cargo failed; what it said stands above" in said and "Traceback" not in said


def test_without_the_sources_in_rust_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="its sources in Rust are missing"):
        hatch_build.rust(tmp_path / "bindings" / "python")


@pytest.mark.parametrize(
    "function, answer, reason",
    [
        ("system", "Windows", "it is for Linux, and this is Windows"),
        ("machine", "i686", "it is for x86_64 and aarch64, and this is a Python for i686"),
        ("libc_ver", ("", ""), "needs glibc, .* a wheel for musl"),
    ],
)
def test_another_platform_is_refused(
    monkeypatch: pytest.MonkeyPatch, function: str, answer: Any, reason: str
) -> None:
    monkeypatch.setattr(platform, function, lambda: answer)
    with pytest.raises(SystemExit, match=reason):
        hatch_build.check_platform()


def test_what_is_prebuilt_must_be_there(prebuilt: Path, tmp_path: Path) -> None:
    (prebuilt / "leasehold").unlink()
    with pytest.raises(SystemExit, match="leasehold is missing"):
        hatchling.build.build_wheel(str(tmp_path))


def test_it_is_not_edited_in_place(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="leave out -e"):
        hatchling.build.build_editable(str(tmp_path))


def test_the_glibc_that_a_file_needs() -> None:
    file = Path(sys.executable).resolve()
    newest = hatch_build.newest_glibc(file)
    assert newest is not None and newest >= (2, 4)
    shown = subprocess.run(["readelf", "-V", str(file)], capture_output=True, text=True)
    if shown.returncode == 0:
        found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)\S*  Flags", shown.stdout)
        assert newest == max((int(major), int(minor)) for major, minor in found)
    assert hatch_build.machine(file) == platform.machine()
    with pytest.raises(SystemExit, match="no library or program"):
        hatch_build.newest_glibc(Path(__file__))


def test_files_that_need_no_glibc_are_for_musl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hatch_build, "newest_glibc", lambda file: None)
    program = Path(sys.executable).resolve()
    tag = hatch_build.Built(program, program).tag()
    assert tag == f"py3-none-musllinux_1_2_{platform.machine()}"


@pytest.mark.skipif(not LIBRARY.exists(), reason="only a wheel has the library")
def test_the_wheel_that_is_installed_shows_only_the_functions_of_the_header() -> None:
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True)
    names = [line.split()[-1] for line in shown.stdout.splitlines()]
    symbols = (ROOT / "tests/languages/abi/symbols.txt").read_text().split()
    assert sorted(names) == sorted(symbols)
