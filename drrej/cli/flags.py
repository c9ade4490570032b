"""Parameters as the command line calls them.

The library names a parameter in backquotes, by its Python name: `labels_from`, `risk=0.02`, `force=True`. Here, and
only here, that becomes a flag: --labels-from, --risk 0.02, --force.
"""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"`([a-z][a-z_-]*)(?:=([^`]*))?`")
_FLAGS = {"lam": "--lambda", "output": "-o", "rejector": "-r"}


def in_flags(message: str) -> str:
    """A message of the library with its parameters as flags."""
    return _PARAMETER.sub(lambda found: _flag(found[1], found[2]), message)


def flag_of(name: str) -> str:
    """The flag of a parameter."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def _flag(name: str, value: str | None) -> str:
    flag = flag_of(name)
    if value == "False":
        return flag.replace("--", "--no-", 1)
    return flag if value in (None, "True") else f"{flag} {value}"
