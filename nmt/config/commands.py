"""Types and ranges of the settings of each command, and their check."""

from typing import Annotated, Any, Literal, get_type_hints

from omegaconf import DictConfig, OmegaConf
from pydantic import Field
from typing_extensions import TypedDict, is_typeddict

from nmt.config.types import (
    Bound,
    Count,
    Explainer,
    NonNegative,
    Portion,
    Positive,
    Seed,
    Share,
    Text,
    Texts,
    Units,
    Whole,
    ZeroToOne,
    check_value,
    pattern,
)

# Settings of the data that only training reads
OF_TRAINING = ("max_length", "max_ratio", "max_tokens", "streaming", "buffer_pairs", "tokenizer")


Name = Annotated[
    Text,
    pattern(r"^(?!/)(?!(.*/)?\.\.(/|$))", "a run's name stays within log_dir: leave out .. and the first /"),
]
Page = Annotated[Text, pattern(r"\.html$", "give a file that ends in .html")]
Json = Annotated[Text, pattern(r"\.json$", "give a file that ends in .json")]
Weights = Annotated[Text, pattern(r"\.npz$", "give a file that ends in .npz")]
Split = (
    Literal["train", "val", "test"] | Annotated[str, pattern("^test", "the name of a test set, as test_2017")]
)
Trials = Annotated[int, Field(ge=0, le=1_000_000)]
Time = Annotated[str, pattern(r"\A(?=.*[1-9])\d+:\d\d:\d\d:\d\d\Z", "give DD:HH:MM:SS, above zero")]
Kernels = Literal["fast", "plain"]


class Vocabulary(TypedDict, total=False):
    model_type: Literal["unigram", "bpe", "word", "char"]
    vocab_size: Annotated[int, Field(ge=8)]  # control pieces and a few characters
    joint: bool
    character_coverage: Annotated[float, Field(ge=0.98, le=1)]
    normalization: Literal["nmt_nfkc", "nfkc", "identity"]
    max_pairs: Count
    sampling: NonNegative
    lowercase: bool
    documents: bool
    model: Text | Annotated[list[Text], Field(min_length=1, max_length=2)] | None


class Augment(TypedDict, total=False):
    two_sentences: ZeroToOne


class Corpus(TypedDict, total=False):
    """Settings of every corpus. The arguments of the function `data.reader` are the others."""

    path: Text | None
    columns: list[Text] | None
    cache_dir: Text | None
    max_length: Annotated[int, Field(ge=2)]  # a piece and the end of sentence
    max_ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)]
    buffer_pairs: Count
    streaming: Count | None
    tokenizer: Vocabulary


class Data(Corpus, total=False):
    augment: Augment
    src_lang: Text
    tgt_lang: Text


OF_DATA = frozenset(get_type_hints(Data))


class OtherData(Corpus, total=False):
    """Data for a trained run; null means the value used in training."""

    src_lang: Text | None
    tgt_lang: Text | None


class Trainer(TypedDict, total=False):
    """The ranges of numbers that Lightning does not check."""

    max_epochs: Literal[-1] | Count | None
    min_epochs: Whole | None
    max_steps: Literal[-1] | Count
    min_steps: Whole | None
    max_time: Time | None
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
    mode: Literal["min", "max"]
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
    name: Name
    log_dir: Text
    start_from: Text | None
    freeze: list[Text]
    old_share: Share
    resume: Text | None
    run_dir: Text
    trusted: list[str]
    data: Data
    trainer: Trainer
    optimizer: Optimizer
    callbacks: Callbacks


class OfARun(TypedDict, total=False):
    """Settings of every command that loads a trained run."""

    checkpoint: Text
    average: Count | None
    trusted: list[str]


class Evaluate(OfARun, total=False):
    device: str
    run: Text | Texts
    split: Split
    src: Text | None
    refs: Text | Texts | None
    hypotheses: Text | None
    int8: bool
    num_bootstrap: Trials
    probes: bool
    explain: list[Explainer]
    explain_lines: Count
    output: Text | None
    data: OtherData


class Translate(OfARun, total=False):
    device: str
    run: Text | Texts
    input: Text | None
    prefixes: Text | None
    output: Text | None
    alignments: Text | None
    weights: Weights | None
    heatmaps: Text | None
    page: Page | None
    units: Units
    beside: Text | Texts | None
    explain: list[Explainer]
    num_best: Annotated[int, Field(ge=1, le=1_000)]
    int8: bool
    block_size: Count


class Align(OfARun, total=False):
    device: str
    run: Text | None
    src: Text | None
    tgt: Text | None
    gold: Text | None
    flip_gold: bool
    output: Text | None
    weights: Weights | None
    heatmaps: Text | None
    page: Page | None
    units: Units
    alignment: Text | None
    method: Literal["argmax", "mutual", "threshold"]
    threshold: ZeroToOne
    reading: Literal["emitted", "fed"]
    layer: Whole | None
    head: Whole | None
    explain: Explainer | None
    search: bool
    reverse_run: Text | None
    symmetrization: Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]


class Compare(TypedDict, total=False):
    runs: Text | list[Text]
    systems: list[Text]
    split: Split
    refs: Text | Texts | None
    num_bootstrap: Trials
    num_trials: Trials
    length_bounds: list[Count]
    baseline: Text | None
    columns: Annotated[list[str], Field(min_length=1)] | None
    output: Text | None
    formats: Annotated[list[Literal["png", "svg", "pdf"]], Field(min_length=1)]
    trusted: list[str]


class Demo(OfARun, total=False):
    run: Text | Texts | None
    host: Text
    port: Annotated[int, Field(ge=1, le=65535)]
    runtime: Text | None


class Export(OfARun, total=False):
    run: Text | Texts
    format: Literal["ctranslate2", "argos", "transformers", "onnx", "safetensors", "web"]
    output: Text
    runtime: Text | None
    quantization: Literal["int8", "int16", "float16", "bfloat16"] | None
    license: Text
    push: Annotated[str, pattern(r"^[\w.-]+/[\w.-]+$", "give USER/NAME of the Hub")] | None


class OwnText(TypedDict, total=False):
    path: Text
    src_lang: Text
    tgt_lang: Text
    columns: list[Text] | None
    bad_rows: Literal["stop", "skip"]


class Rules(TypedDict, total=False):
    """True for the usual bound, false for none."""

    empty: bool
    equal: bool
    duplicate: bool
    targets: bool | Count
    long: bool | Count
    ratio: bool | Bound
    script: bool | Portion
    swapped: bool | Bound
    untranslated: bool | Bound
    foreign: bool | Bound
    mojibake: bool
    shifted: bool
    mismatched: bool | float
    truncated: bool | float
    held_out: bool
    near: bool
    numbers: bool
    links: bool
    markup: bool
    characters: bool
    forms: bool


class Prepare(TypedDict, total=False):
    data: OwnText
    minutes: Annotated[int, Field(ge=1, le=100_000)]
    output: Text | None
    report: Json | None
    page: Page | None
    seed: Seed
    rules: Rules
    trusted: list[str]


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
    output: Text | None
    compare: Annotated[list[Text], Field(min_length=2, max_length=2)] | None
    trusted: list[str]
    data: Data


OF_COMMANDS: dict[str, Any] = {
    each.__name__.lower(): each
    for each in (Train, Evaluate, Translate, Align, Compare, Benchmark, Demo, Export, Prepare)
}


def check_settings(cfg: DictConfig, command: str) -> None:
    """Check the settings of a command. Raises UserError naming the setting.

    The settings of an object, as the model, are checked when the object is built.
    """
    kinds = OF_COMMANDS[command]
    check_value(kinds, _values(kinds, cfg), "")


def _values(kinds: Any, cfg: DictConfig) -> dict[str, Any]:
    """The values of the declared settings. A reference is checked at the setting that it leads to."""
    found: dict[str, Any] = {}
    for key, kind in get_type_hints(kinds).items():
        if key in cfg and not OmegaConf.is_missing(cfg, key) and not OmegaConf.is_interpolation(cfg, key):
            value = cfg[key]
            if is_typeddict(kind) and OmegaConf.is_dict(value):
                found[key] = _values(kind, value)
            elif OmegaConf.is_config(value):
                found[key] = OmegaConf.to_container(value, resolve=True)
            elif value is not None or kind is not EarlyStopping:  # null leaves it out
                found[key] = value
    return found
