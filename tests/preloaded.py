"""`drrej` for scripts of tests: each command in a process of its own, copied from one that has imported everything.

A command of a page takes half a second to start and a few hundredths to run. Here a small client, which is what scripts
find as `drrej`, hands its arguments, directory, environment and open files to a server, which copies itself; the copy
runs the program. What starts or ends a process (signals, closed streams, imports) is tested with real ones elsewhere.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Never

CLIENT = """#!{python} -IS
import json, os, socket, sys
files = []
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        os.fstat(number)
        files.append(number)
    except OSError:  # that of the listing
        pass
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"."], files)
server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), files]).encode())
server.shutdown(socket.SHUT_WR)
for number in files:
    os.close(number)
answer = server.recv(1)
os._exit(answer[0] if answer else 99)
"""
LIBRARIES = ("pyarrow.parquet", "pyarrow.compute", "pyarrow.csv", "pyarrow.json", "pyarrow.feather", "jinja2")
PICTURES = ("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg")


@contextlib.contextmanager
def preloaded(folder: Path) -> Iterator[str]:
    """The text of a program `drrej`, for as long as the server runs that it asks."""
    if sys.platform != "linux":
        yield f'#!/bin/sh\nexec "{sys.executable}" -m drrej "$@"\n'
        return
    from running import environment

    address = str(folder / "server")
    command = [sys.executable, __file__, address]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield CLIENT.format(python=sys.executable, address=address)
        server.stdin.close()


def serve(address: str) -> None:
    """Answer until whoever started this is gone."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _load()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            _answer(connection)
        connection.close()


def _load() -> None:
    import drrej

    for name in LIBRARIES:
        import_module(name)
    with contextlib.suppress(ImportError):
        for name in PICTURES:
            import_module(name)
    for module in pkgutil.walk_packages(drrej.__path__, "drrej."):
        if module.name not in ("drrej.__main__", "drrej.sklearn", "drrej.engines.dask"):
            with contextlib.suppress(ImportError):  # extras
                import_module(module.name)
    from drrej.cli.app import execute

    with contextlib.redirect_stderr(io.StringIO()):  # commands are made when they are first asked for
        for command in ("calibrate", "fit", "threshold", "evaluate", "reject", "run", "monitor", "inspect"):
            execute([command, "--none-such"])


def _answer(connection: socket.socket) -> Never:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, received, _, _ = socket.recv_fds(connection, 1, 64)
    text = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    child = os.fork()
    if child == 0:
        try:
            _run(received, *json.loads(text))
        finally:
            os._exit(98)
    for number in received:  # who reads a pipe waits for its end
        os.close(number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _run(received: list[int], words: list[str], folder: str, variables: dict[str, str], files: list[int]) -> None:
    """The program, with the files of the client under their numbers."""
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, 300) for number in received]
    os.closerange(0, 300)
    for number, source in zip(files, high, strict=True):
        os.dup2(source, number)
        os.close(source)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["drrej", *words]
    streams: list[Any] = [
        open(number, mode, encoding="utf-8", closefd=False) if number in files else None  # noqa: SIM115
        for number, mode in enumerate("rww")
    ]
    sys.stdin, sys.stdout, sys.stderr = streams
    code = 0
    try:
        from drrej.__main__ import main

        main()
    except SystemExit as left:
        code = int(left.code or 0)
    atexit._run_exitfuncs()
    for stream in streams[1:]:
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
