"""`drrej` and `python -m drrej`: settings that must be made before anything heavy is imported."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from typing import Never


def main() -> Never:
    """Run the command line."""
    gc.set_threshold(100_000, 20, 20)  # imports make many objects and no garbage
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the work is split by block, not inside a dot product
    keep_freed_memory()
    from drrej.cli import main as run

    run()


def keep_freed_memory() -> None:
    """Let malloc reuse the arrays of one block for the next instead of giving them back to be cleared again."""
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, 1 << 28)
        libc.mallopt(mmap_threshold, 1 << 25)


if __name__ == "__main__":
    main()
