"""Make docs/example-report.html from sample_data, and with Chromium its picture: python docs/make_example.py."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = Path("docs/example-report.html"), Path("docs/example-report.png")
CLASSES = "WALKING,WALKING_UPSTAIRS,WALKING_DOWNSTAIRS,SITTING,STANDING,LAYING"
COMMANDS = (
    "drrej run --val sample_data/val.parquet --test sample_data/test.parquet --split 60,40 --accuracy 0.98 "
    f"--classes {CLASSES} --compare --title 'Activity recognition' --gate 'coverage >= 0.9' -o out",
)


def make_page() -> str:
    """The page that these commands write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sample_data").symlink_to(ROOT / "sample_data")
        for command in COMMANDS:
            words = shlex.split(command)
            subprocess.run([sys.executable, "-m", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        return Path(folder, "out", "report.html").read_text(encoding="utf-8")


def take_picture() -> None:
    """The top of the page as Chromium shows it."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium here: the picture stays as it is")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        size = ["--window-size=1180,1120", f"--screenshot={ROOT / PICTURE}"]
        subprocess.run([browser, *flags, *size, (ROOT / PAGE).as_uri()], check=True, capture_output=True)  # noqa: S603


if __name__ == "__main__":
    (ROOT / PAGE).write_text(make_page(), encoding="utf-8")
    take_picture()
