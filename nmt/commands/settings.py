"""The settings of each command, with their types and ranges, and their check."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_type_hints

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict, is_typeddict

from nmt.alignment import Units
from nmt.settings import Count, NonNegative, Positive, Seed, Share, Whole, check_value, key_of

_PATH = "a path"  # what marks the type of one
PathText = Annotated[str, Field(min_length=1), _PATH]
Page = Annotated[PathText, Field(pattern=r"\.html$")]
Weights = Annotated[PathText, Field(pattern=r"\.npz$")]
Split = Literal["train", "val", "test"] | Annotated[str, Field(pattern="^test")]
Kernels = Literal["fast", "plain"]
Counts = Annotated[list[Count], Field(min_length=1)]
ZeroToOne = Annotated[float, Field(ge=0, le=1)]
Portion = Annotated[float, Field(gt=0, le=1)]


class Vocabulary(TypedDict, total=False):
    model_type: Literal["unigram", "bpe"]
    vocab_size: Count
    joint: bool
    character_coverage: Annotated[float, Field(ge=0.98, le=1)]
    normalization: Literal["nmt_nfkc", "nfkc", "identity"]
    max_pairs: Count
    sampling: NonNegative
    lowercase: bool
    documents: bool
    model: PathText | Annotated[list[PathText], Field(min_length=1, max_length=2)] | None


class Data(TypedDict, total=False):
    """What every corpus shares; the arguments of `data.reader` say what the others are."""

    path: PathText | None
    cache_dir: PathText | None
    max_length: Annotated[int, Field(ge=2)]  # a piece and the end of sentence
    max_ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    max_tokens: Count
    buffer_pairs: Count
    tokenizer: Vocabulary


def _time(value: str) -> str:
    if not re.fullmatch(r"\d+:\d\d:\d\d:\d\d", value) or not re.search("[1-9]", value):
        raise ValueError("give DD:HH:MM:SS, above zero")
    return value


class Trainer(TypedDict, total=False):
    """The ranges of numbers that Lightning does not check."""

    max_epochs: Literal[-1] | Count | None
    min_epochs: Whole | None
    max_steps: Literal[-1] | Count
    min_steps: Whole | None
    max_time: Annotated[str, AfterValidator(_time)] | None
    gradient_clip_val: NonNegative | None
    accumulate_grad_batches: Count
    val_check_interval: Count | Portion | None
    check_val_every_n_epoch: Count | None
    limit_train_batches: Count | Portion | None
    limit_val_batches: Whole | ZeroToOne | None
    log_every_n_steps: Whole | None
    num_nodes: Count


class Optimizer(TypedDict, total=False):
    """Ranges that torch does not check, or only when training begins."""

    lr: Positive
    momentum: Share
    betas: Annotated[list[Share], Field(min_length=2, max_length=2)]
    weight_decay: NonNegative
    eps: Positive


class EarlyStopping(TypedDict, total=False):
    patience: Whole
    min_delta: NonNegative


class Callbacks(TypedDict, total=False):
    early_stopping: EarlyStopping


class Train(TypedDict, total=False):
    seed: Seed
    label_smoothing: Share
    kernels: Kernels
    guided_alignment: NonNegative
    r_drop: NonNegative
    name: str
    log_dir: PathText
    start_from: PathText | None
    resume: PathText | None
    run_dir: PathText
    trusted: list[str]
    data: Data
    trainer: Trainer
    optimizer: Optimizer
    callbacks: Callbacks


class OfARun(TypedDict, total=False):
    """What every command shares that loads a trained run."""

    checkpoint: PathText
    average: Count | None
    device: str
    trusted: list[str]


class Evaluate(OfARun, total=False):
    run: PathText | list[PathText]
    split: Split
    src: PathText | None
    refs: PathText | Annotated[list[PathText], Field(min_length=1)] | None
    hypotheses: PathText | None
    int8: bool
    num_bootstrap: Whole
    output: PathText | None
    data: Data


class Translate(OfARun, total=False):
    run: PathText | list[PathText]
    input: PathText | None
    prefixes: PathText | None
    output: PathText | None
    alignments: PathText | None
    weights: Weights | None
    heatmaps: PathText | None
    page: Page | None
    units: Units
    beside: PathText | list[PathText] | None
    num_best: Count
    int8: bool
    block_size: Count


class Align(OfARun, total=False):
    run: PathText | None
    src: PathText | None
    tgt: PathText | None
    gold: PathText | None
    flip_gold: bool
    output: PathText | None
    weights: Weights | None
    heatmaps: PathText | None
    page: Page | None
    units: Units
    alignment: PathText | None
    method: Literal["argmax", "mutual", "threshold"]
    threshold: ZeroToOne
    reading: Literal["emitted", "fed"]
    layer: Whole | None
    head: Whole | None
    search: bool
    reverse_run: PathText | None
    symmetrization: Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]


class Compare(TypedDict, total=False):
    runs: PathText | list[PathText]
    systems: list[PathText]
    split: Split
    refs: PathText | Annotated[list[PathText], Field(min_length=1)] | None
    num_bootstrap: Whole
    num_trials: Whole
    length_bounds: list[Count]
    baseline: PathText | None
    columns: Annotated[list[str], Field(min_length=1)] | None
    output: PathText | None
    formats: Annotated[list[Literal["png", "svg", "pdf"]], Field(min_length=1)]
    trusted: list[str]


class Demo(OfARun, total=False):
    run: PathText | Annotated[list[PathText], Field(min_length=1)]
    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)]
    share: bool


class Export(TypedDict, total=False):
    run: PathText
    format: Literal["ctranslate2", "transformers", "onnx", "safetensors"]
    output: PathText
    quantization: Literal["int8", "int16", "float16", "bfloat16"] | None
    license: Annotated[str, Field(min_length=1)]
    push: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None
    checkpoint: PathText
    average: Count | None
    trusted: list[str]


class Axes(TypedDict, total=False):
    lengths: Counts
    widths: Counts
    vocabularies: Counts
    corpora: Counts


class Benchmark(TypedDict, total=False):
    attentions: list[str] | None
    variants: dict[str, list[str]] | None
    name: str
    num_batches: Count
    num_decode_batches: Count
    decode_length: Count
    beam_size: Count
    repeats: Count
    startup: bool
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["32-true", "bf16-mixed"]
    gradient_clip_val: Positive
    label_smoothing: Share
    r_drop: NonNegative
    kernels: Kernels
    int8: bool
    seed: Seed
    output: PathText | None
    corpora: list[Count] | None
    speedrun: str | None
    target: float
    growth: (
        Annotated[list[Literal["lengths", "widths", "vocabularies", "corpora"]], Field(min_length=1)] | None
    )
    axes: Axes
    compare: Annotated[list[PathText], Field(min_length=2, max_length=2)] | None
    trusted: list[str]
    data: Data


OF_COMMANDS: dict[str, Any] = {
    each.__name__.lower(): each
    for each in (Train, Evaluate, Translate, Align, Compare, Benchmark, Demo, Export)
}


def settle(cfg: DictConfig, command: str, overrides: Sequence[str]) -> None:
    """Check a command's own settings, and restore paths that YAML takes for numbers, as a directory called 2024.

    Settings of what is built, as the model, are checked where it is built. Raises UserError naming the setting.
    """
    kinds = OF_COMMANDS[command]
    paths = set(_paths(kinds))
    for override in overrides:
        key = key_of(override)
        if override[0] != "~" and key in paths:
            value = OmegaConf.select(cfg, key, throw_on_missing=False)
            if OmegaConf.is_list(value):
                OmegaConf.update(cfg, key, [str(each) for each in value])
            elif isinstance(value, bool | int | float):
                OmegaConf.update(cfg, key, override.partition("=")[2].strip())
    check_value(kinds, _values(kinds, cfg), "")


def _values(kinds: Any, cfg: DictConfig) -> dict[str, Any]:
    """The values of the settings that are declared; a reference is checked where it leads."""
    found: dict[str, Any] = {}
    for key, kind in get_type_hints(kinds).items():
        if key in cfg and not OmegaConf.is_missing(cfg, key) and not OmegaConf.is_interpolation(cfg, key):
            value = cfg[key]
            if is_typeddict(kind) and OmegaConf.is_dict(value):
                found[key] = _values(kind, value)
            elif value is None and kind is EarlyStopping:  # left out
                continue
            else:
                found[key] = (
                    OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
                )
    return found


def _paths(kinds: Any, prefix: str = "") -> list[str]:
    """The dotted keys of settings that are paths."""
    found = []
    for name, kind in get_type_hints(kinds, include_extras=True).items():
        if is_typeddict(kind):
            found += _paths(kind, f"{prefix}{name}.")
        elif _PATH in str(kind):
            found.append(f"{prefix}{name}")
    return found
