"""Every test starts from the same seed, on one thread: many small tensors gain nothing from more."""

import os

# NumPy and torch read it when they are imported, also in processes that tests start
os.environ["OMP_NUM_THREADS"] = "1"

import functools
import pickle
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf

from nmt.data import grammar
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings
from nmt.run.data import read_splits
from nmt.run.model import build_translator
from nmt.run.run import Run
from nmt.run.scores import write_scores
from nmt.training.vocabulary import make_tokenizer
from tests.commands import CONFIGS, by_choices, compose
from tests.small import BPE, FEW_PAIRS, SIZES, TINY, copied, save_weights

# Processes that end by Unix's signals, and a file that shares their helpers
UNIX = ("averaging", "ddp", "interrupt", "resume", "trackers")
collect_ignore = [f"test_{name}.py" for name in UNIX if os.name == "nt"]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def started_by_script() -> Iterator[None]:
    """The variable by which `nmt COMMAND` names itself outlives no test."""
    yield
    os.environ.pop("NMT_COMMAND", None)


@pytest.fixture(autouse=True, scope="session")
def compose_once() -> Iterator[None]:
    """Composing takes longer than most tests: a file is read once, and Hydra is asked once for each set of choices."""
    load = OmegaConf.load

    @functools.cache
    def content(file: str) -> bytes:
        return pickle.dumps(load(file))

    def load_once(file: Any) -> Any:
        name = str(getattr(file, "name", file))
        return pickle.loads(content(name)) if CONFIGS in Path(name).parents else load(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", load_once)
        patch.setattr(hydra, "compose", by_choices)
        yield


@pytest.fixture(scope="session")
def opened() -> Iterator[Callable[..., AbstractContextManager[Any]]]:
    """A function that opens an address in a browser, in a block; an error of a script there fails the test."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[dev]'")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the path")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])

        @contextmanager
        def open_page(address: str, **options: Any) -> Iterator[Any]:
            page, errors = chromium.new_page(viewport={"width": 1280, "height": 1000}, **options), []
            page.on("pageerror", lambda error: errors.append(error))
            page.goto(address)
            yield page
            page.close()
            assert not errors

        yield open_page
        chromium.close()


@pytest.fixture(scope="session")
def runtime(tmp_path_factory) -> Path:
    """The folder dist of onnxruntime-web: that of NMT_ONNXRUNTIME_WEB, else installed by npm."""
    from nmt.export.web import VERSION

    if given := os.environ.get("NMT_ONNXRUNTIME_WEB"):
        return Path(given)
    if (npm := shutil.which("npm")) is None:
        pytest.skip("no npm, and no NMT_ONNXRUNTIME_WEB=FOLDER of onnxruntime-web's files")
    there = tmp_path_factory.mktemp("npm")
    command = [
        npm,
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--prefix",
        there,
        f"onnxruntime-web@{VERSION}",
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    except subprocess.SubprocessError:
        pytest.skip(f"npm cannot install onnxruntime-web@{VERSION}")
    return there / "node_modules/onnxruntime-web/dist"


@pytest.fixture(scope="session")
def untrained(tmp_path_factory) -> Path:
    """A run directory as training leaves it, but for the training."""
    directory = tmp_path_factory.mktemp("run")
    cache = f"data.cache_dir={directory / 'cache'}"
    cfg = compose("train", *SIZES, *FEW_PAIRS, cache, "name=untrained", f"run_dir={directory}")
    pairs = grammar.corpus(num_train=100, num_val=0, num_test=0, max_words=12, seed=1)["train"]
    english, vietnamese = [pair.en for pair in pairs], [pair.vi for pair in pairs]
    tokenizer = Tokenizer.train(english, vietnamese, **BPE, vocab_size=300)
    tokenizer.save(directory / "tokenizer")
    OmegaConf.save(OmegaConf.create(OmegaConf.to_container(cfg, resolve=True)), directory / "config.yaml")
    torch.manual_seed(0)
    save_weights(directory, build_translator(cfg.model, tokenizer).state_dict())
    return directory


@pytest.fixture(scope="session")
def small_cache(tmp_path_factory) -> Path:
    """A cache that has the text and the tokenizer of TINY."""
    directory = tmp_path_factory.mktemp("cache")
    data = compose("train", *TINY, f"data.cache_dir={directory}", "name=cached").data
    make_tokenizer(data, read_splits(data)["train"])
    return directory


@pytest.fixture(scope="session")
def untrained_scored(untrained, tmp_path_factory) -> Path:
    """`untrained`, as the scores of an untrained run leave it."""
    run = copied(untrained, tmp_path_factory.mktemp("scored"))
    loaded = Run.load(run)
    scores, translations = loaded.score(loaded.split("test"), DecodingSettings(beam_size=1), num_bootstrap=0)
    write_scores(run, "test", scores, translations)
    return run


@pytest.fixture(scope="session")
def corpus() -> tuple[list[str], list[str]]:
    """Hypotheses and references."""
    rng = random.Random(5)
    words = "the a small old cat dog sees reads , book . don't U.S. 3.5 Straße nhà".split()  # noqa: SIM905
    references = [" ".join(rng.choices(words, k=rng.randint(1, 15))) for _ in range(120)]
    hypotheses = [" ".join(w for w in line.split() if rng.random() < 0.8) for line in references]
    return hypotheses, references
