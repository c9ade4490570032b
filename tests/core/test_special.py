"""The functions of scipy.special, imported without the package around them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import environment

NAMES = [
    "betainc",
    "betaincc",
    "betaincinv",
    "betaln",
    "bdtrc",
    "gammainc",
    "gammaincc",
    "gammaincinv",
    "gammaln",
    "kolmogorov",
    "ndtr",
    "ndtri",
    "ndtri_exp",
    "rel_entr",
    "stdtr",
]


def told(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("alone", [True, False])
def test_the_functions_are_those_of_the_package(alone: bool) -> None:
    code = f"""
import sys
from drrej.core import special
special.alone = {alone}
from drrej.core.special import {", ".join(NAMES)}
functions = [{", ".join(NAMES)}]
print("scipy.special" in sys.modules)
import scipy.special
if {alone}: import scipy.stats  # and with it nearly all of scipy
print(all(function is getattr(scipy.special, name) for name, function in zip({NAMES}, functions)))
print(scipy.special.betainc(2.0, 3.0, 0.5), special.betainc is scipy.special.betainc)
"""
    assert told(code).split() == [str(not alone), "True", "0.6875", "True"]


def test_the_package_is_imported_where_its_inside_has_changed() -> None:
    code = """
import sys
from drrej.core import special
special.alone = True
usual = special.import_module
def fails(name, package=None):
    if name == "scipy.special._ufuncs":
        usual("scipy.special._ellip_harm_2")
        raise ImportError("moved")
    return usual(name, package)
special.import_module = fails
print(special.ndtri(0.5), "scipy.special" in sys.modules)
"""
    assert told(code).split() == ["0.0", "True"]


def test_it_can_be_switched_off() -> None:
    code = """
import os, sys
from drrej.core import special
special.alone, os.environ["DRREJ_WHOLE_SCIPY"] = True, "1"
print(special.ndtri(0.5), "scipy.special" in sys.modules)
"""
    assert told(code).split() == ["0.0", "True"]


def test_names_that_scipy_does_not_have() -> None:
    code = """
from drrej.core import special
special.alone = True
try:
    special.nonsense
except AttributeError:
    print("no")
"""
    assert told(code) == "no"


def test_the_command_line_says_that_it_is_alone() -> None:
    code = """
import sys
from drrej.__main__ import main
sys.argv[1:] = ["--version"]
try:
    main()
except SystemExit:
    from drrej.core import special
    print(special.alone, file=sys.stderr if not special.alone else sys.stdout)
"""
    assert told(code).split()[-1] == "True"
