"""Dataclasses that are finished when they are first used.

`dataclasses.dataclass` compiles six functions for every class that is imported, which was a third of the start-up of a
short command, and mostly for classes that the command never makes. Here the comparison, the hash, the text and the
refusal of changes are written once for all classes, the fields are worked out when they are first asked for, and
`__init__` is compiled for classes of which many objects are made. What classes do is the same.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import threading
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_FIELDS = "__dataclass_fields__"
_lock = threading.RLock()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, kw_only=False):
        """Like that of the standard library, with the options that this package uses."""
        if cls is None:
            return lambda given: dataclass(given, frozen=frozen, eq=eq, kw_only=kw_only)
        own = set(cls.__dict__)
        given = {name: value for name, value in cls.__dict__.items() if isinstance(value, dataclasses.Field)}
        for name, field in given.items():
            if field.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, field.default)
        made: dict[str, Any] = {"__init__": _first_init(cls), "__repr__": _text(cls)}
        if eq:
            made["__eq__"] = _equality(cls)
            if frozen:
                made["__hash__"] = _hash(cls)
                if cls.__dict__.get("__hash__") is None:  # where a class has its own __eq__ Python puts None there
                    own.discard("__hash__")
            else:
                made["__hash__"] = None
        if frozen:
            made["__setattr__"], made["__delattr__"] = _refusals(cls)
        for name, value in made.items():
            if name not in own:
                setattr(cls, name, value)
        for name in (_FIELDS, "__dataclass_params__", "__match_args__", "__signature__"):
            setattr(cls, name, _Pending(cls, name, {"frozen": frozen, "kw_only": kw_only}, given))
        return cls


class _Pending:
    """Stands for an attribute of a class that is not there yet."""

    def __init__(self, owner: type, name: str, options: dict[str, bool], given: dict[str, Any]) -> None:
        self.owner, self.name = owner, name
        self.options = options
        self.given = given

    def __get__(self, instance: object, owner: type) -> Any:
        if self.name == "__signature__":
            _compile(self.owner)
        else:
            _settle(self.owner)
        return getattr(owner, self.name)


def _twin(cls: type, fields: dict[str, Any], options: dict[str, bool]) -> Any:
    """A class with these fields (name: type and default) for the standard library to work on."""
    annotations = {name: given[0] for name, given in fields.items()}
    defaults = {name: given[1] for name, given in fields.items() if len(given) > 1}
    body = {"__module__": cls.__module__, "__doc__": "twin", "__annotations__": annotations, **defaults}
    if hasattr(cls, "__post_init__"):
        body["__post_init__"] = None
    return dataclasses.dataclass(**options, eq=False, repr=False)(type(cls.__name__, (), body))


def _settle(cls: type) -> None:
    """Work out the fields. Attributes go from old to new in one step: other threads may be about to use the class."""
    with _lock:
        pending = cls.__dict__[_FIELDS]
        if not isinstance(pending, _Pending):
            return
        fields: dict[str, Any] = {}
        for base in reversed(cls.__mro__[1:]):
            if _FIELDS in base.__dict__:
                fields |= _copies(base)
        for name, annotation in inspect.get_annotations(cls).items():
            fields[name] = (annotation,)
            if name in pending.given or hasattr(cls, name):
                fields[name] += (pending.given[name] if name in pending.given else getattr(cls, name),)
        twin = _twin(cls, fields, {"kw_only": pending.options["kw_only"], "init": False})
        twin.__dataclass_params__.frozen = pending.options["frozen"]
        for attribute in ("__dataclass_params__", "__match_args__", _FIELDS):
            setattr(cls, attribute, getattr(twin, attribute))


def _copies(cls: type) -> dict[str, Any]:
    return {field.name: (field.type, copy.copy(field)) for field in dataclasses.fields(cls)}


_compiled: dict[type, Callable[..., None]] = {}


def _compile(cls: Any) -> Callable[..., None]:
    """Have `__init__` made, as the standard library does it; somebody may have put another in its place meanwhile."""
    _settle(cls)
    with _lock:
        if cls not in _compiled:
            init = _twin(cls, _copies(cls), {"frozen": cls.__dataclass_params__.frozen}).__init__
            init.__qualname__ = f"{cls.__qualname__}.__init__"
            if getattr(cls.__dict__["__init__"], "_is_first", False):
                cls.__init__ = init
            del cls.__signature__
            _compiled[cls] = init
        return _compiled[cls]


_OFTEN = 16
"""Objects that are made before it pays to compile."""


def _first_init(cls: Any) -> Callable[..., None]:
    """An `__init__` that does without compiling, for right calls of a class that is seldom used."""
    calls = 0
    plan: tuple[tuple[str, Any, Any], ...] | None = None

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        nonlocal calls, plan
        calls += 1
        if plan is None:  # set in one step: other threads may be here
            plan = tuple((field.name, field.default, field.default_factory) for field in dataclasses.fields(cls))
        values = dict(zip(cls.__match_args__, args, strict=False))
        expected = len(args) + len(kwargs)
        values |= kwargs
        made: dict[str, Any] = {}
        for name, default, factory in plan:
            if name in values:
                made[name] = values[name]
                expected -= 1
            elif default is not dataclasses.MISSING:
                made[name] = default
            elif factory is not dataclasses.MISSING:
                made[name] = factory()
        if calls > _OFTEN or expected or len(made) < len(plan):  # too many, unknown or missing: it says so
            _compile(cls)(self, *args, **kwargs)
            return
        self.__dict__.update(made)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    __init__._is_first = True  # type: ignore[attr-defined]
    return __init__


def _values(cls: type, instance: object) -> tuple[Any, ...]:
    return tuple(getattr(instance, field.name) for field in dataclasses.fields(cls) if field.compare)


def _equality(cls: type) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(cls, self) == _values(cls, other)

    return __eq__


def _hash(cls: type) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(_values(cls, self))

    return __hash__


def _text(cls: type) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        shown = (field.name for field in dataclasses.fields(cls) if field.repr)
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    return __repr__


def _refusals(cls: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    def refuse(instance: object, what: str, name: str) -> None:
        if type(instance) is cls or name in getattr(cls, _FIELDS):
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        refuse(self, "assign to", name)
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        refuse(self, "delete", name)
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
