"""`drrej` and `python -m drrej`: what must be settled before anything heavy is imported."""

import os


def leave(*_signal: object) -> None:
    """Ctrl-C while nothing is open yet, or all is closed again: there is nothing to tidy up."""
    os._exit(130)


try:
    import gc
    import signal
    import sys
except KeyboardInterrupt:
    leave()


LEAST_MEMORY = 3 << 29
"""Below this limit of address space (`ulimit -v`) the libraries crash, or wait for ever, while they are loaded."""


def check_memory() -> None:
    """Leave where the process may not have the address space that it needs."""
    try:
        from resource import RLIMIT_AS, getrlimit
    except ImportError:  # Windows has no such limit
        return
    limit, _ = getrlimit(RLIMIT_AS)
    if 0 <= limit < LEAST_MEMORY:
        has, needs = limit >> 10, LEAST_MEMORY >> 10
        sys.stderr.write(f"drrej: error: the address space is limited to {has} kB; allow {needs} or more (ulimit -v)\n")
        sys.exit(2)


def main() -> None:
    """Run the command line."""
    check_memory()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
        signal.signal(signal.SIGINT, leave)
    gc.set_threshold(100_000, 20, 20)  # imports make many objects and no garbage
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a backend that matplotlib does not know would stop it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the work is split by block, not inside a dot product
    from drrej.cli.app import main as run
    from drrej.core import special

    special.alone = True
    run()


if __name__ == "__main__":
    main()
