"""The README's commands: every line composes as written, every file that it names exists."""

import re
import shlex
from pathlib import Path

import hydra
import pytest
import torch

from nmt.attention.masks import masked_softmax

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")
COMMANDS = sorted(
    set(re.findall(r"^ {4}(?:.*\| )?(?:\.venv/bin/)?python scripts/(\w+)\.py(.*)$", TEXT, re.M))
)


def test_there_are_commands_of_every_script():
    assert {script for script, _ in COMMANDS} == {path.stem for path in (ROOT / "scripts").glob("*.py")}


@pytest.mark.parametrize(("script", "arguments"), COMMANDS)
def test_every_command_composes(script, arguments):
    if "hydra/launcher=" in arguments:
        pytest.importorskip(
            "hydra_plugins.hydra_submitit_launcher", reason="the cluster extra is not installed"
        )
    words = [word[1:-1] if word.startswith("[") else word for word in shlex.split(arguments.split("#")[0])]
    if "-m" in words:
        words = [word.split(",")[0] for word in words if word != "-m"]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        hydra.compose(script, overrides=[word for word in words if not word.startswith("--")])


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^make (\w+)|`make (\w+)`| {4}make (\w+)", TEXT))))
def test_every_make_target_exists(target):
    assert re.search(rf"^{''.join(target)}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:nmt|scripts|configs|data)/[\w/.]*)`", TEXT))))
def test_every_path_exists(path):
    assert (ROOT / path).exists()


def test_the_example_of_a_new_mechanism_is_one():
    [code] = [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.S) if "Attention" in block]
    names: dict = {}
    exec(code, names)
    attention = names["CosineAttention"](query_size=3, key_size=3, temperature=0.1, normalizer=masked_softmax)
    query, states = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    real = torch.ones(2, 5, dtype=torch.bool)
    attended = attention(query, states, states, real, positions=torch.arange(4).expand(2, 4), past=None)
    cosines = torch.nn.functional.cosine_similarity(query[:, :, None], states[:, None], dim=-1)
    torch.testing.assert_close(attended.weights, (cosines / 0.1).softmax(dim=-1))
