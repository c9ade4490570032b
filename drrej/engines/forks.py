"""Worker processes that are copies of this one: each does the tasks that it is given and sends back what it made.

Threads share one interpreter. A pass is thousands of short calls of numpy, each of which gives the interpreter away and
has to wait for it again: on two cores, threads cost half as much again as one thread alone and gain next to nothing.
Copies of a process have an interpreter each and are there in milliseconds, all imports done.

Large arrays come back through memory that both sides see. It has room for two answers of a worker: the one that is
being taken and the one that is being made. So a worker has at most `OPEN` tasks that are not answered and taken.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import select
import signal
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Never

from drrej.errors import ClusterError

OPEN = 2
"""Tasks that a worker may have at a time."""

ROOM = 16 << 20
"""Bytes of an answer's arrays that go through shared memory; what does not fit goes through the pipe."""

_SMALL = 1 << 12
"""Arrays below so many bytes are not worth a place of their own."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIZE = struct.Struct("<Q")


class Worker:
    """A copy of this process, made at once; `serve` makes of each order an answer. Both must be possible to pickle."""

    def __init__(self, serve: Callable[[Any], Any], others: Sequence[Worker]) -> None:
        self._room = mmap.mmap(-1, OPEN * ROOM)
        self._given = self._taken = self.pid = 0
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # nothing may break off a copy's first steps
        try:
            with warnings.catch_warnings():  # of threads that do nothing: a BLAS starts some when numpy is imported
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
            if not self.pid:
                # Open ends in the hands of others would hide from a worker that nobody gives orders any more.
                _live(orders, answers, self._room, serve, [end for one in (self, *others) for end in one.ends])
        except OSError:
            self.end()
            raise
        finally:
            os.close(orders)
            os.close(answers)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def ends(self) -> tuple[int, int]:
        """The ends of the pipes that are not the worker's."""
        return self._orders, self._answers

    def fileno(self) -> int:
        """What can be read when there is an answer."""
        return self._answers

    @property
    def free(self) -> bool:
        """Whether it may be given another order."""
        return self._given - self._taken < OPEN

    @property
    def busy(self) -> bool:
        """Whether it owes an answer."""
        return self._given > self._taken

    def give(self, packed: bytes) -> None:
        """An order, pickled."""
        try:
            _send(self._orders, packed)
        except BrokenPipeError:
            raise self._lost() from None
        self._given += 1

    def take(self) -> Any:
        """The next answer; waits for it. Raises what `serve` raised."""
        packed = _receive(self._answers)
        if packed is None:
            raise self._lost()
        sizes, data = pickle.loads(packed)  # noqa: S301 - from our own copy
        place = self._taken % OPEN * ROOM
        arrays = []
        for size in sizes:
            arrays.append(bytearray(memoryview(self._room)[place : place + size]))  # writable, as what is unpickled is
            place += _aligned(size)
        self._taken += 1
        answer, error = pickle.loads(data, buffers=arrays)  # noqa: S301 - from our own copy
        if error is not None:
            raise error
        return answer

    def _lost(self) -> ClusterError:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ClusterError(f"a worker process {how}; if memory ran out, `jobs=1` needs least of it")

    def end(self, kill: bool = False) -> None:
        """Wait until it has done what it was given, or end it at once."""
        for end in (self._orders, self._answers):
            with contextlib.suppress(OSError):
                os.close(end)
        if self.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                if kill:
                    os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            self.pid = 0
        self._room.close()


def ready(workers: Sequence[Worker], wait: bool) -> Iterator[Worker]:
    """Workers whose answer is there; of those that owe one, some worker, if it is worth waiting."""
    poll = select.poll()
    by_number = {worker.fileno(): worker for worker in workers if worker.busy}
    for number in by_number:
        poll.register(number, select.POLLIN)
    for number, _ in poll.poll(None if wait else 0):
        yield by_number[number]


def _live(orders: int, answers: int, room: mmap.mmap, serve: Callable[[Any], Any], unused: Iterable[int]) -> Never:
    """What a worker does until nobody gives orders any more."""
    code = 1
    try:
        gc.freeze()  # what was there before belongs to the other process: nothing of it may be closed here
        for end in unused:
            os.close(end)
        for number in _SIGNALS:  # a terminal sends Ctrl-C to all: whoever gives the orders decides
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        count = 0
        while (packed := _receive(orders)) is not None:
            _send(answers, _packed(_served(serve, packed), room, count % OPEN * ROOM))
            count += 1
        code = 0
    except BrokenPipeError:
        code = 0
    finally:
        os._exit(code)


def _served(serve: Callable[[Any], Any], packed: bytes) -> tuple[Any, BaseException | None]:
    try:
        return serve(pickle.loads(packed)), None  # noqa: S301 - from our own parent
    except BaseException as error:
        import traceback

        error.add_note(traceback.format_exc())  # for DRREJ_DEBUG: it is raised elsewhere
        return None, error


def _packed(outcome: tuple[Any, BaseException | None], room: mmap.mmap, place: int) -> bytes:
    """An answer: the sizes of the arrays that are in `room` from `place` on, and all the rest."""
    sizes: list[int] = []
    end = place + ROOM

    def stays(buffer: pickle.PickleBuffer) -> bool:
        """Whether a buffer goes with the rest; else it is put into the room."""
        nonlocal place
        with buffer.raw() as raw:
            if raw.nbytes < _SMALL or place + raw.nbytes > end:
                return True
            room[place : place + raw.nbytes] = raw
            sizes.append(raw.nbytes)
            place += _aligned(raw.nbytes)
        return False

    try:
        data = pickle.dumps(outcome, protocol=5, buffer_callback=stays)
    except Exception as error:  # an error of somebody else's that cannot be pickled
        sizes.clear()
        reason = outcome[1] or error
        data = pickle.dumps((None, RuntimeError(f"{type(reason).__name__}: {reason}")))
    return pickle.dumps((sizes, data))


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


def _send(end: int, packed: bytes) -> None:
    data = memoryview(_SIZE.pack(len(packed)) + packed)
    while data:
        data = data[os.write(end, data) :]


def _receive(end: int) -> bytes | None:
    """What was sent; None at the end."""
    head = _exactly(end, _SIZE.size)
    return None if head is None else _exactly(end, *_SIZE.unpack(head))


def _exactly(end: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = os.read(end, min(size - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)
