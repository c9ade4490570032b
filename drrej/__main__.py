"""`drrej` and `python -m drrej`: settings that must be made before anything heavy is imported."""

from __future__ import annotations

import gc
import os
from typing import Never


def main() -> Never:
    """Run the command line."""
    gc.set_threshold(100_000, 20, 20)  # imports make many objects and no garbage
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the work is split by block, not inside a dot product
    from drrej.engines.memory import keep_freed_memory

    keep_freed_memory()
    from drrej.cli import main as run

    run()


if __name__ == "__main__":
    main()
