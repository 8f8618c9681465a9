"""Builds the library and the command with Cargo."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

from . import elf, metadata, places

#: Names a folder that has libleasehold.so and leasehold already: nothing is built then.
PREBUILT = "PACKAGING_PREBUILT"


class Built(NamedTuple):
    """What a wheel carries."""

    library: Path
    command: Path

    def tag(self) -> str:
        """Where it runs: on any Python 3, with a C library that is new enough for both files."""
        found = [elf.newest_glibc(file) for file in self]
        needed = [version for version in found if version is not None]
        if needed:
            # One of the customary ones, where it is no newer.
            major, minor = max(*needed, (2, 28))
            system = f"manylinux_{major}_{minor}"
        else:
            system = "musllinux_1_2"
        return f"py3-none-{system}_{elf.machine(self.library)}"


def build(scratch: Path) -> Built:
    """Builds both, or says why it cannot."""
    prebuilt = os.environ.get(PREBUILT)
    if prebuilt:
        built = Built(Path(prebuilt) / "libleasehold.so", Path(prebuilt) / "leasehold")
        for file in built:
            if not file.is_file():
                give_up(f"{PREBUILT} is {prebuilt}, where {file.name} is missing")
        return built
    check_platform()
    cargo = find_cargo()
    check_compiler()
    # Word for word what the Makefile says for the library, and `cargo install` for the command: what
    # they have compiled is not compiled again.
    target = os.environ.get("CARGO_TARGET_DIR") or "target"
    library = ["--lib", "--features", "capi,stores,tls"]
    library += ["--crate-type", "cdylib,staticlib", "--"]
    library += ["--print", f"native-static-libs={target}/release/native-static-libs"]
    command = ["--bin", "leasehold", "--features", "cli,tls"]
    return Built(
        _rustc(cargo, library, target, "libleasehold.so", scratch),
        _rustc(cargo, command, target, "leasehold", scratch),
    )


def _rustc(cargo: str, what: list[str], target: str, file: str, scratch: Path) -> Path:
    command = [cargo, "rustc", "--locked", "--release", "--message-format=short"]
    command += ["--target-dir", target, *what]
    print("+", *command, flush=True)
    environment: dict[str, str] = dict(os.environ)
    environment.pop("CARGO_BUILD_TARGET", None)
    if subprocess.run(command, cwd=places.rust(), env=environment).returncode != 0:
        give_up(
            "Cargo failed; what it said stands above. It needs the network for crates that it has "
            "not got yet"
        )
    built = Path(shutil.copy(places.rust() / target / "release" / file, scratch))
    # It comes with the C compiler. Without it the wheel is larger.
    strip = shutil.which("strip")
    if strip is not None:
        subprocess.run([strip, built], check=False)
    return built


def check_platform() -> None:
    """It is built on Linux with glibc, on machines of 64 bits."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        give_up(f"it is for Linux, and this is {system}")
    if sys.maxsize < 2**32 or machine not in ("x86_64", "aarch64"):
        give_up(f"it is for x86_64 and aarch64, and this is a Python for {machine}")
    libc = platform.libc_ver()[0]
    if libc != "glibc":
        give_up(
            f"that needs glibc, and this system has {libc or 'another C library'}. There is a wheel for musl"
        )


def find_cargo() -> str:
    """Cargo, new enough."""
    needed = metadata.in_manifest("rust-version")
    how = f"Get Rust {needed} or later from https://rustup.rs, or install a wheel, which needs none"
    at_home = Path.home() / ".cargo" / "bin" / "cargo"
    cargo = shutil.which("cargo") or (str(at_home) if at_home.exists() else None)
    if cargo is None:
        give_up(f"cargo is missing. {how}")
    said = _output([cargo, "--version"])
    found = re.match(r"cargo (\d+)\.(\d+)", said)
    if found is None:
        give_up(f"'{cargo} --version' says {said!r}. {how}")
    if (int(found[1]), int(found[2])) < _numbers(needed):
        give_up(f"{said} is too old. {how}")
    return cargo


def check_compiler() -> None:
    """SQLite and the cryptography of TLS are written in C."""
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        give_up(
            f"the C compiler '{compiler}' is missing; on Debian, 'apt-get install gcc libc6-dev'"
        )


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return (done.stdout or done.stderr).strip()


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def give_up(reason: str) -> NoReturn:
    """Ends without a traceback, so that the reason is the last thing that pip shows."""
    sys.stdout.flush()
    raise SystemExit(f"Leasehold cannot be built here: {reason}.")
