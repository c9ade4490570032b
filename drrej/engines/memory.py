"""How much memory there is, and how it is kept warm between blocks."""

from __future__ import annotations

import contextlib
import ctypes
import os


def available_memory() -> int:
    """Bytes of memory: the machine's, or the control group's limit where that is lower."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


def keep_freed_memory() -> None:
    """Let malloc reuse the arrays of one block for the next instead of giving them back to be cleared again."""
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, 1 << 28)
        libc.mallopt(mmap_threshold, 1 << 25)


def prefer_jemalloc() -> None:
    """Let Arrow reuse memory between blocks: the other allocators give it back and have it cleared again."""
    import pyarrow as pa

    with contextlib.suppress(NotImplementedError):  # a pyarrow built without it: slower, not wrong
        pa.set_memory_pool(pa.jemalloc_memory_pool())
