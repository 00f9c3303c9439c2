"""The packages of a wheel, the folder `configs` among them as `nmt.configs`, and their data files."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["nmt*"]), "nmt.configs"],
    package_dir={"nmt.configs": "configs"},
    package_data={
        "nmt.configs": ["**/*.yaml"],
        "nmt.commands": ["other_names.txt"],
        "nmt.data.grammar": ["words/*.tsv"],
        "nmt": ["page/*", "py.typed"],
    },
)
