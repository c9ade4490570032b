"""A report page with everything in it, and nasty names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from conftest import make_model, succeed, write_dump

SCRIPT = "<script>alert(1)</script>"
NAMES = [SCRIPT, 'say "hi" & <b>go</b>', "$x_1$", "naïve ☃ 猫", "x" * 120, *(f"class {number}" for number in range(35))]
TITLE = "Weekly <b>check</b> & more"
ROWS = 3000


def make_page(folder: Path) -> Path:
    """Groups, scores, a baseline, gates of both kinds, more than thirty classes."""
    logits, labels = make_model(ROWS, len(NAMES), 11)
    extra = {
        "group <i>": pa.array([f"site {number % 4} <img src=x onerror=alert(2)>" for number in range(ROWS)]),
        "_score": pa.array(logits.max(axis=1)),
        "by hand": pa.array([number % 5 == 0 for number in range(ROWS)]),
    }
    dump = write_dump(folder / "dump.parquet", logits, labels, extra=extra)
    (folder / "names.txt").write_text("\n".join(NAMES), encoding="utf-8")
    for command, source, options in (
        ("calibrate", [], ["--classes", folder / "names.txt"]),
        ("fit", ["-r", folder / "r.json"], []),
        ("threshold", ["-r", folder / "r.json"], ["--coverage", "0.7"]),
    ):
        succeed(command, dump, *source, *options, "-o", folder / "r.json")
    succeed("evaluate", dump, "-r", folder / "r.json", "-o", folder / "old.json")
    asked = ["--report-by", "group <i>", "--compare", "--rival", "_score", "--rival", "by hand"]
    asked += ["--baseline", folder / "old.json", "--gate", "coverage >= 0.5", "--gate", "accuracy < 1"]
    asked += ["--title", TITLE, "--examples", "group <i>,id"]
    succeed("evaluate", dump, "-r", folder / "r.json", *asked, "-o", folder / "page.html", "-o", folder / "page.json")
    return folder / "page.html"
