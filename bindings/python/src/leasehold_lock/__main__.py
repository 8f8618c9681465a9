"""``python -m leasehold_lock run ...``: the command line, which came with the package."""

import os
import sys
from typing import NoReturn

from ._loader import NATIVE

COMMAND = NATIVE / "leasehold"


def main() -> NoReturn:
    """Becomes the command: its exit code and its signals are those of this process."""
    try:
        os.execv(COMMAND, ["leasehold", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"leasehold: the command did not come with this package ({error})")


if __name__ == "__main__":
    main()
