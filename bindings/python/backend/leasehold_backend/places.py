"""Where things are: in a checkout, or in a source package that was unpacked."""

from pathlib import Path

#: The folder with pyproject.toml.
PACKAGE = Path(__file__).resolve().parents[2]
SOURCES = PACKAGE / "src" / "leasehold"
#: Where a source package has the sources in Rust.
IN_SDIST = "rust"


def rust() -> Path:
    """The folder with the Cargo.toml of the library."""
    unpacked = PACKAGE / IN_SDIST
    return unpacked if (unpacked / "Cargo.toml").exists() else PACKAGE.parents[1]
