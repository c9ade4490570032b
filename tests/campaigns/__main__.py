"""Campaigns that take longer than a test should: `python -m tests.campaigns NAME [ARGUMENT...]`; no name lists them."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("[a-z]*.py"))

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        sys.exit("usage: python -m tests.campaigns NAME [ARGUMENT...]\n" + "\n".join(NAMES))
    rooms = [HERE.parent / name for name in ("pipeline", "data", "core", "campaigns", ".")]
    sys.path[:0] = [str(room) for room in rooms]
    sys.argv = sys.argv[1:]
    runpy.run_path(str(HERE / f"{sys.argv[0]}.py"), run_name="__main__")
