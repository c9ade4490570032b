"""Each allocation, open and write fails once: `python -m tests.campaigns fail_calls MOST [KIND...]`.

A library between the program and the system fails the n-th call of a kind, counted from when the command first opens a
file of its folder; n goes through all calls of a run, in steps so that there are about MOST runs of a kind and command.
What is checked is the contract: exit 0 with the whole output, or exit 2 with one line of message and nothing left.
Where standard error fails, code and output are those of a run where it does not. Libraries in C++ may end the process
when they get no memory (a code below 0), as a kill would: then there is no output under the final name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from conftest import make_model, make_rejector, source, write_dump
from running import environment

from drrej.outputs.dataset import MANIFEST

KINDS = ("memory", "open", "write", "stderr")
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
static long counted, wanted; static int started; static const char *kind, *folder;
__attribute__((constructor)) static void setup(void) {
    kind = getenv("FAIL_KIND"); folder = getenv("FAIL_IN"); wanted = atol(getenv("FAIL_AT"));
    unsetenv("LD_PRELOAD");
}
__attribute__((destructor)) static void told(void) {
    const char *path = getenv("FAIL_COUNT");
    if (path) { int fd = (int)syscall(257, -100, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        long n = counted; syscall(1, fd, &n, sizeof n); }
}
static int now(const char *call) {
    return started && kind && !strcmp(kind, call) && __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST) == wanted;
}
static int opened(const char *path) {
    if (!started && folder && path && strstr(path, folder)) started = 1;
    if (now("open")) { errno = EMFILE; return 1; }
    return 0;
}
#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)
#define OPEN(name) int name(const char *path, int flags, ...) { REAL(int, name, const char *, int, ...); \
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
    return opened(path) ? -1 : real(path, flags, mode); }
OPEN(open) OPEN(open64)
#define OPENAT(name) int name(int at, const char *path, int flags, ...) { \
    REAL(int, name, int, const char *, int, ...); \
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
    return opened(path) ? -1 : real(at, path, flags, mode); }
OPENAT(openat) OPENAT(openat64)
ssize_t write(int fd, const void *text, size_t size) { REAL(ssize_t, write, int, const void *, size_t);
    if (fd == 2 ? now("stderr") : now("write")) { errno = ENOSPC; return -1; } return real(fd, text, size); }
void *malloc(size_t size) { REAL(void *, malloc, size_t);
    if (size >= 65536 && now("memory")) { errno = ENOMEM; return NULL; } return real(size); }
void *mmap(void *at, size_t size, int how, int flags, int fd, off_t from) {
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    if ((flags & MAP_ANONYMOUS) && now("memory")) { errno = ENOMEM; return MAP_FAILED; }
    return real(at, size, how, flags, fd, from); }
"""
COMMANDS = {
    "calibrate": ("calibrate {here}/dump.csv -o {here}/out/r.json", "r.json"),
    "reject FILE": ("reject {here}/dump.parquet -r {here}/r.json -o {here}/out/mask.parquet", "mask.parquet"),
    "reject DIR/": ("reject {here}/parts -r {here}/r.json -o {here}/out/masks/", "masks"),
}


def library(folder: Path) -> Path:
    """The library that fails calls."""
    (folder / "fail.c").write_text(SOURCE)
    path = folder / "fail.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", path, folder / "fail.c", "-ldl"], check=True)
    return path


def prepare(here: Path) -> None:
    """Dumps in two formats, and a rejector."""
    logits, labels = make_model(400, 3, 5)
    dump = write_dump(here / "dump.parquet", logits, labels)
    columns = {f"logit_{i}": logits[:, i] for i in range(3)}
    pacsv.write_csv(pa.table({**columns, "label": labels}), here / "dump.csv")
    (here / "parts").mkdir()
    for name in "ab":
        shutil.copy(dump, here / "parts" / f"{name}.parquet")
    (here / "r.json").write_text(make_rejector(source(dump), ("coverage", 0.8)).to_json())


def content(path: Path) -> object:
    """What a target holds: the rows of masks, the text of a document."""
    if not path.exists():
        return None
    return path.read_bytes() if path.suffix == ".json" else pq.read_table(path).to_pydict()


def run(here: Path, fail: Path, command: str, kind: str, number: int) -> tuple[int, int]:
    """Run a command whose n-th call of a kind fails; its exit code, and the calls of the kind. Raises if it broke."""
    words, name = COMMANDS[command]
    out = here / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    count = here / "count"
    count.unlink(missing_ok=True)
    env = {"LD_PRELOAD": str(fail), "FAIL_KIND": kind, "FAIL_AT": str(number), "FAIL_IN": str(here)}
    env |= {"FAIL_COUNT": str(count), "TMPDIR": str(here / "tmp"), "SOURCE_DATE_EPOCH": "0"}
    (here / "tmp").mkdir(exist_ok=True)
    arguments = [sys.executable, "-m", "drrej", *words.format(here=here).split(), "--jobs", "1"]
    done = subprocess.run(arguments, env=environment() | env, capture_output=True, text=True, timeout=120, check=False)
    where = f"{command}, {kind} {number}: exit {done.returncode}, {done.stderr[-600:]}"
    calls = int.from_bytes(count.read_bytes(), "little") if count.exists() else number
    left = sorted(path.name for path in out.iterdir() if not path.name.endswith(MANIFEST))  # which stays on purpose
    if kind == "memory" and done.returncode < 0:  # a library ends the process itself
        assert name not in left, f"{where}: {left}"
        return done.returncode, calls
    assert done.returncode in (0, 2), where
    assert "Traceback" not in done.stderr, where
    if done.returncode:
        assert kind != "stderr", where
        assert left == [], f"{where}: {left}"
        assert done.stderr.count("drrej: error: ") == 1, where
    else:
        assert left == [name], f"{where}: {left}"
    if number and done.returncode == 0:
        assert content(out / name) == content(here / "whole" / name), f"{where}: another output"
    return done.returncode, calls


def campaign(here: Path, most: int, kinds: tuple[str, ...] = KINDS) -> Counter[tuple[str, str, int]]:
    """Fail calls of these kinds in every command; how often each ended with which code."""
    prepare(here)
    fail = library(here)
    found: Counter[tuple[str, str, int]] = Counter()
    for command, (_, name) in COMMANDS.items():
        for kind in kinds:
            _, calls = run(here, fail, command, kind, 0)
            shutil.rmtree(here / "whole", ignore_errors=True)
            shutil.move(here / "out", here / "whole")
            assert content(here / "whole" / name) is not None
            for number in range(1, calls + 1, max(1, calls // most)):
                code, _ = run(here, fail, command, kind, number)
                found[command, kind, code] += 1
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        counts = campaign(Path(folder), int(sys.argv[1]), tuple(sys.argv[2:]) or KINDS)
    for (command, kind, code), times in sorted(counts.items()):
        sys.stdout.write(f"{command}: {kind} failed {times} times with exit {code}\n")
    sys.stdout.write(f"{sum(counts.values())} faults{os.linesep}")
