"""Adds the library and the command to a wheel: compiles both with Cargo, or takes what is built
already, and tags the wheel with the C library that they need.

maturin and setuptools-rust have a Cargo command of their own, which compiles again what `make` has
compiled, and neither packs a library for ctypes beside a program."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Optional

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Names a folder that has libleasehold.so and leasehold already: nothing is built then.
PREBUILT = "PACKAGING_PREBUILT"
#: Names a profile of Cargo's other than release: `dev` is there sooner, for a test of the package.
PROFILE = "PACKAGING_PROFILE"
#: The machines that it is built for, by the names that pyelftools has for them.
MACHINES = {"x64": "x86_64", "AArch64": "aarch64"}


class Built(NamedTuple):
    """What a wheel carries beside its modules."""

    library: Path
    command: Path

    def tag(self) -> str:
        """Where it runs: on any Python 3, with a C library that is new enough for both files."""
        needed = [version for version in map(newest_glibc, self) if version is not None]
        if needed:
            # One of the customary ones, where it is no newer.
            major, minor = max(*needed, (2, 28))
            system = f"manylinux_{major}_{minor}"
        else:
            system = "musllinux_1_2"
        return f"py3-none-{system}_{machine(self.library)}"


class NativeHook(BuildHookInterface[Any]):
    """What hatchling calls for a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds both files; the wheel gets them from a folder that lasts until `finalize`."""
        if version == "editable":
            give_up("it cannot be edited in place; leave out -e")
        self._scratch = tempfile.TemporaryDirectory()
        built = build(rust(Path(self.root)), Path(self._scratch.name))
        build_data["tag"] = built.tag()
        build_data["pure_python"] = False
        for file in built:
            file.chmod(0o755)
            build_data["force_include"][str(file)] = f"leasehold_lock/_native/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Takes the folder away."""
        self._scratch.cleanup()


def rust(package: Path) -> Path:
    """The folder with the Cargo.toml of the library: in a source package, or in a checkout."""
    for folder in (package / "rust", package.parents[1]):
        if (folder / "Cargo.toml").exists():
            return folder
    give_up(
        "its sources in Rust are missing. Build from a whole checkout, with pip 21.3 or later, or from "
        "a source package"
    )


def build(sources: Path, scratch: Path) -> Built:
    """Builds both, or says why it cannot."""
    built = Built(scratch / "libleasehold.so", scratch / "leasehold")
    prebuilt = os.environ.get(PREBUILT)
    if prebuilt:
        for file in built:
            if not (Path(prebuilt) / file.name).is_file():
                give_up(f"{PREBUILT} is {prebuilt}, where {file.name} is missing")
            shutil.copy(Path(prebuilt) / file.name, file)
        return built
    check_platform()
    cargo = find_cargo((sources / "Cargo.toml").read_text())
    check_compiler()
    # Word for word what the Makefile says for the library, and `cargo install` for the command: what
    # they have compiled is not compiled again.
    target = os.environ.get("CARGO_TARGET_DIR") or "target"
    profile = os.environ.get(PROFILE) or "release"
    out = Path(target) / {"dev": "debug"}.get(profile, profile)
    library = ["--lib", "--features", "capi,stores,tls"]
    library += ["--crate-type", "cdylib,staticlib", "--"]
    library += ["--print", f"native-static-libs={out}/native-static-libs"]
    command = ["--bin", "leasehold", "--features", "cli,tls"]
    for what, file in zip((library, command), built):
        _rustc([cargo, "rustc", "--profile", profile, "--target-dir", target, *what], sources)
        shutil.copy(sources / out / file.name, file)
        # It comes with the C compiler. Without it the wheel is larger.
        if strip := shutil.which("strip"):
            subprocess.run([strip, file], check=False)
    return built


def _rustc(command: list[str], sources: Path) -> None:
    command[2:2] = ["--locked", "--message-format=short"]
    print("+", *command, flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "CARGO_BUILD_TARGET"}
    if subprocess.run(command, cwd=sources, env=environment, check=False).returncode != 0:
        give_up(
            "Cargo failed; what it said stands above. It needs the network for crates that it has "
            "not got yet"
        )


def check_platform() -> None:
    """It is built on Linux with glibc, on machines of 64 bits."""
    system, processor = platform.system(), platform.machine()
    if system != "Linux":
        give_up(f"it is for Linux, and this is {system}")
    if sys.maxsize < 2**32 or processor not in MACHINES.values():
        give_up(f"it is for x86_64 and aarch64, and this is a Python for {processor}")
    libc = platform.libc_ver()[0]
    if libc != "glibc":
        give_up(
            f"that needs glibc, and this system has {libc or 'another C library'}. There is a wheel for musl"
        )


def find_cargo(manifest: str) -> str:
    """Cargo, new enough for what the manifest says."""
    needed = re.findall(r'^rust-version = "(.*)"$', manifest, flags=re.MULTILINE)[0]
    how = f"Get Rust {needed} or later from https://rustup.rs, or install a wheel, which needs none"
    at_home = Path.home() / ".cargo" / "bin" / "cargo"
    cargo = shutil.which("cargo") or (str(at_home) if at_home.exists() else None)
    if cargo is None:
        give_up(f"cargo is missing. {how}")
    try:
        done = subprocess.run(
            [cargo, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
        said = (done.stdout or done.stderr).strip()
    except OSError as error:
        said = str(error)
    found = re.match(r"cargo (\d+)\.(\d+)", said)
    if found is None:
        give_up(f"'{cargo} --version' says {said!r}. {how}")
    if [int(number) for number in found.groups()] < [int(part) for part in needed.split(".")[:2]]:
        give_up(f"{said} is too old. {how}")
    return cargo


def check_compiler() -> None:
    """SQLite and the cryptography of TLS are written in C."""
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        give_up(
            f"the C compiler '{compiler}' is missing; on Debian, 'apt-get install gcc libc6-dev'"
        )


def machine(file: Path) -> str:
    """The processor that a file is for, as `uname -m` says it."""
    with file.open("rb") as stream:
        found = str(ELFFile(stream).get_machine_arch())
    if found not in MACHINES:
        give_up(f"{file.name} is for {found}, and not for {' or '.join(MACHINES.values())}")
    return MACHINES[found]


def newest_glibc(file: Path) -> Optional[tuple[int, int]]:
    """The highest version of a symbol of glibc, as in (2, 34); none in a file for musl."""
    needed = []
    try:
        with file.open("rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    needed += [name.name for _, names in section.iter_versions() for name in names]
    except ELFError as error:
        give_up(f"{file.name} is no library or program ({error})")
    found = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", name) for name in needed]
    return max(((int(match[1]), int(match[2])) for match in found if match), default=None)


def give_up(reason: str) -> NoReturn:
    """Ends without a traceback, so that the reason is the last thing that pip shows."""
    sys.stdout.flush()
    raise SystemExit(f"Leasehold cannot be built here: {reason}.")
