"""A small sample of the campaign of `fuzz_readers`."""

from __future__ import annotations

from pathlib import Path

import fuzz_readers
import pytest


@pytest.mark.parametrize("ending", fuzz_readers.ENDINGS)
def test_mutated_files_are_read_or_refused(ending: str, tmp_path: Path) -> None:
    counts = fuzz_readers.campaign(ending, 25, tmp_path, first=100_000)
    assert counts["refused"] > 0
