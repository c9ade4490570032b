"""The name of a file of tests leads to the module that it tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT

ROOMS = [room for room in sorted((ROOT / "tests").iterdir()) if (ROOT / "drrej" / room.name).is_dir()]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_files_of_tests_are_named_after_modules(room: Path) -> None:
    """`test_MODULE.py` or `test_MODULE_TOPIC.py`, in the room of the module; `test_ROOM.py` is about all of it."""
    modules = {path.stem for path in (ROOT / "drrej" / room.name).iterdir()} | {room.name}
    if room.name == "api":
        modules.add("sklearn")  # beside the rooms, as `import drrej.sklearn` wants it
    for path in room.glob("test_*.py"):
        words = path.stem.split("_")[1:]
        assert any("_".join(words[:number]) in modules for number in range(1, len(words) + 1)), path.name


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports them by name alone."""
    names = [path.name for path in (ROOT / "tests").glob("*/test_*.py")]
    assert len(names) == len(set(names))
