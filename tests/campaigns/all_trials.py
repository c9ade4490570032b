"""Simulations with all of their trials, properties with five times the examples, and whatever is thorough.

    python -m tests.campaigns all_trials [OPTION OF PYTEST...]

The usual run has a third of the trials.
"""

import os
import sys

import pytest

if __name__ == "__main__":
    os.environ["TRIALS"] = "all"
    sys.exit(pytest.main(["-m", "trials or thorough", *(sys.argv[1:] or ["-n", "auto"])]))
