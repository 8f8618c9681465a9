"""What a package says of itself."""

import re

from . import places

NAME = "leasehold"

#: The command line, as a program of the environment that the wheel is installed into.
ENTRY_POINTS = "[console_scripts]\nleasehold = leasehold.__main__:main\n"

_FIELDS = """\
Metadata-Version: 2.1
Name: leasehold
Version: {version}
Summary: {summary}
License: MIT OR Apache-2.0
Home-page: {homepage}
Project-URL: Repository, {repository}
Keywords: lock,lease,redis,mutex,fencing
Requires-Python: >=3.9
Classifier: Development Status :: 4 - Beta
Classifier: Intended Audience :: Developers
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Programming Language :: Python :: Implementation :: CPython
Classifier: Programming Language :: Rust
Classifier: Topic :: System :: Distributed Computing
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{readme}"""


def in_manifest(key: str) -> str:
    """What Cargo.toml says."""
    text = (places.rust() / "Cargo.toml").read_text()
    found = re.search(rf'^{key} = "(.*)"$', text, flags=re.MULTILINE)
    if found is None:
        raise SystemExit(f"{places.rust()}/Cargo.toml says no {key}")
    return found.group(1)


def version() -> str:
    """The crate's."""
    return in_manifest("version")


def dist_info() -> str:
    """The folder of a wheel in which it describes itself."""
    return f"{NAME}-{version()}.dist-info"


def metadata() -> str:
    """The file METADATA of a wheel, and PKG-INFO of a source package."""
    readme = (places.PACKAGE / "README.md").read_text()
    summary = in_manifest("description")
    at = {key: in_manifest(key) for key in ("homepage", "repository")}
    return _FIELDS.format(version=version(), summary=summary, readme=readme, **at)
