"""Everything on a device that is not the CPU, in a process of its own: a device that is written in Python stays."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("standin_cases.py")


@pytest.mark.slow
def test_all_cases_hold_on_a_device_that_is_not_the_cpu():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-o",
            "addopts=",
            CASES,
        ],
        cwd=CASES.parents[1],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 30
