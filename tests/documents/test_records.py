"""Dataclasses that are finished late, against those of the standard library."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import pytest
from conftest import environment

from drrej import records

Decorator = Callable[..., Any]


def family(dataclass: Decorator) -> dict[str, Any]:
    """The same classes by either decorator."""

    @dataclass(frozen=True)
    class Base:
        """A base."""

        a: int
        b: list[int] = field(default_factory=list)
        kind: ClassVar[str] = "base"

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True)
    class Derived(Base):
        """It has a default of its own, and one more field."""

        b: tuple[int, ...] = (1,)  # type: ignore[assignment]
        c: float = field(default=0.5, compare=False)

        def __post_init__(self) -> None:
            if self.c < 0:
                raise ValueError("below 0")

    @dataclass(frozen=True, kw_only=True)
    class Named(Base):
        """Fields by name, after those of the base."""

        d: str
        e: str = field(default="e", repr=False)

    @dataclass
    class Open:
        """Can be changed."""

        x: int = 1

    @dataclass(frozen=True, eq=False)
    class Single:
        """Equal to itself alone."""

        x: int

    @dataclass(frozen=True)
    class Own:
        """Has its own methods."""

        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    return {cls.__name__: cls for cls in (Base, Derived, Named, Open, Single, Own)}


LATE, USUAL = family(records.dataclass), family(dataclasses.dataclass)


def tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return type(error), str(error)


STEPS: list[Callable[[dict[str, Any]], Any]] = [
    lambda of: repr(of["Base"](1)),
    lambda of: repr(of["Derived"](1)),
    lambda of: repr(of["Named"](1, [2], d="x")),
    lambda of: of["Base"](),
    lambda of: of["Base"](1, 2, 3),
    lambda of: of["Named"](1, [2], "x"),
    lambda of: of["Base"](1, nonsense=2),
    lambda of: of["Derived"](1, c=-1.0),
    lambda of: setattr(of["Base"](1), "a", 2),
    lambda of: setattr(of["Base"](1), "other", 2),
    lambda of: delattr(of["Derived"](1), "c"),
    lambda of: setattr(of["Open"](), "x", 2),
    lambda of: of["Base"](1).twice,
    lambda of: of["Base"](1) == of["Base"](1),
    lambda of: of["Base"](1) == of["Base"](2),
    lambda of: of["Base"](1, (1,)) == of["Derived"](1),
    lambda of: of["Derived"](1, c=1.0) == of["Derived"](1, c=2.0),
    lambda of: hash(of["Derived"](1)),
    lambda of: hash(of["Base"](1)),
    lambda of: hash(of["Open"](1)),
    lambda of: of["Single"](1) == of["Single"](1),
    lambda of: hash(of["Own"](3)),
    lambda of: (repr(of["Own"](1)), of["Own"](1) == of["Own"](2)),
    lambda of: repr(dataclasses.replace(of["Named"](1, d="x"), d="y")),
    lambda of: dataclasses.asdict(of["Derived"](4)),
    lambda of: [(f.name, f.type, f.default, f.kw_only, f.compare) for f in dataclasses.fields(of["Named"])],
    lambda of: [f.name for f in dataclasses.fields(of["Derived"])],
    lambda of: dataclasses.is_dataclass(of["Base"]),
    lambda of: of["Named"].__match_args__,
    lambda of: str(inspect.signature(of["Named"])),
    lambda of: [repr(of["Derived"](number)) for number in range(40)],
    lambda of: of["Base"](1, a=2),
    lambda of: list(vars(of["Named"](d="x", a=1))),
    lambda of: (of["Derived"].b, of["Derived"].c, hasattr(of["Base"], "b"), of["Base"].kind),
    lambda of: of["Base"](1).b is of["Base"](1).b,
]


@pytest.mark.parametrize("number", range(len(STEPS)))
@pytest.mark.parametrize("fresh", [True, False])
def test_late_classes_do_what_the_usual_ones_do(number: int, fresh: bool) -> None:
    """Whichever is the first thing that is asked of them."""
    late = family(records.dataclass) if fresh else LATE
    assert tried(lambda: STEPS[number](late)) == tried(lambda: STEPS[number](USUAL))


@pytest.mark.parametrize("frozen", [True, False])
def test_usual_classes_may_inherit(frozen: bool) -> None:
    base = family(records.dataclass)["Base"]
    if not frozen:
        with pytest.raises(TypeError, match="cannot inherit non-frozen"):
            dataclasses.make_dataclass("Sub", [("z", int, 3)], bases=(base,))
        return
    sub: Any = dataclasses.make_dataclass("Sub", [("z", int, 3)], bases=(base,), frozen=True)
    assert (sub(1).a, sub(1).z) == (1, 3)


def test_threads_that_use_a_class_first_at_once() -> None:
    for _ in range(20):
        cls = family(records.dataclass)["Derived"]
        start, made = threading.Barrier(4), []

        def use(cls: Any = cls, start: threading.Barrier = start, made: list[Any] = made) -> None:
            start.wait()
            made.append(cls(1))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [cls(1)] * 4


@records.dataclass(frozen=True)
class Sent:
    """One that another process gets."""

    x: int


def test_an_unpickled_object_can_be_used_before_any_other() -> None:
    code = "import pickle, sys; a = pickle.load(sys.stdin.buffer); b = type(a)(3); print(a, a == b, hash(a) == hash(b))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        input=pickle.dumps(Sent(3)),
        capture_output=True,
        env=environment(),
        timeout=60,
    )
    assert done.stdout.decode().strip() == "Sent(x=3) True True", done.stderr


@pytest.mark.parametrize("before", [0, 40])
def test_an_init_that_is_replaced_for_a_while(before: int) -> None:
    """As a mock does: the class is compiled meanwhile, and is as it was afterwards."""
    made = family(records.dataclass)["Base"]
    for number in range(before):
        made(number)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        own = made.__init__

        def spy(self: Any, *args: Any) -> None:
            seen.append(args)
            own(self, *args)

        patch.setattr(made, "__init__", spy)
        assert [made(number).a for number in range(40)] == list(range(40))
    assert len(seen) == 40
    assert [made(number, [1]).b for number in range(40)] == [[1]] * 40
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        made(1, c=2)
