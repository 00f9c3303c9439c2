"""The packages: what is pinned fits the declared ranges."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.commands import ROOT


def test_every_declared_package_is_pinned_within_its_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    text = (ROOT / "requirements.lock").read_text("utf-8") + (ROOT / "Makefile").read_text("utf-8")
    pinned = {
        canonicalize_name(name): version
        for name, version in re.findall(r"^(?:TORCH = )?([\w.-]+)==([\w.]+)", text, re.M)
    }
    for requirement in map(Requirement, declared):
        if requirement.name != "attention-nmt":
            version = pinned[canonicalize_name(requirement.name)]
            assert version in requirement.specifier, f"{requirement} is pinned to {version}: run `make lock`"


def test_the_main_job_has_the_packages_of_all():
    """With the same versions and hashes."""
    core, every = (
        set(re.findall(r"^(\w.+?==[\w.]+)[^\\]*(\\[^=]*)$", (ROOT / name).read_text("utf-8"), re.M))
        for name in ("requirements-core.lock", "requirements.lock")
    )
    assert len(core) > 50
    assert core < every
