"""Where things are: in a checkout, or in a source package that was unpacked."""

from pathlib import Path

#: The folder with pyproject.toml.
PACKAGE = Path(__file__).resolve().parents[2]
SOURCES = PACKAGE / "src" / "leasehold"
#: Where a source package has the sources in Rust.
IN_SDIST = "rust"


def rust() -> Path:
    """The folder with the Cargo.toml of the library."""
    for folder in [PACKAGE / IN_SDIST, PACKAGE.parents[1]]:
        if (folder / "Cargo.toml").exists():
            return folder
    raise SystemExit(
        "Leasehold cannot be built here: its sources in Rust are missing. Build from a whole "
        "checkout, with pip 21.3 or later, or from a source package."
    )
