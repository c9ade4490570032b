"""What CI does, as sessions: nox -l lists them."""

from __future__ import annotations

import hashlib
import re
import shutil
import tomllib
from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
SOURCE_DATE_EPOCH = "1704067200"
"""The time in the archives of a wheel: the same for every build, so that the same sources give the same bytes."""


@nox.session
def tests(session: nox.Session) -> None:
    """The suite, with the newest dependencies."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """The suite, with the lowest dependencies that pyproject.toml promises."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [re.sub(r">=\s*", "==", requirement) for requirement in project["dependencies"]]
    session.install("-e", ".[test]", *pins)
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Lint, format, types."""
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage of the package."""
    session.install("-e", ".[test]", "pytest-cov")
    session.run("python", "-m", "pytest", "-n", "auto", "--cov=drrej", "--cov-branch", "--cov-report=term:skip-covered")


@nox.session
def ratios(session: nox.Session) -> None:
    """Costs as multiples of Arrow's decode, against the recorded ones."""
    session.install("-e", ".")
    session.run("python", "-m", "benchmarks.ratios", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The site; warnings are errors."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", "build", "--strict")


@nox.session
def build(session: nox.Session) -> None:
    """Wheel and source archive, built twice: the bytes must be equal."""
    session.install("build")
    made = []
    for _ in range(2):
        shutil.rmtree("dist", ignore_errors=True)
        session.run("python", "-m", "build", env={"SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH}, silent=True)
        made.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path("dist").iterdir()})
    if made[0] != made[1]:
        session.error(f"two builds differ: {made}")
    session.log(f"the same bytes twice: {made[0]}")
