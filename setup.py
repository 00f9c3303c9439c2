"""What pyproject.toml cannot say: the folder `configs` is the package `nmt.configs` of a wheel."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["nmt*"]), "nmt.configs"],
    package_dir={"nmt.configs": "configs"},
    package_data={"nmt.configs": ["**/*.yaml"]},
)
