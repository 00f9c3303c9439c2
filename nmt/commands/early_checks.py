"""Checks of the commands' settings that need no model, made before torch is imported.

`check_COMMAND` takes the configuration of the command and its overrides, and raises UserError.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nmt.commands.composing import CONFIGS
from nmt.commands.stored import check_coverage, take_stored
from nmt.commands.suggesting import settings_of, suggest
from nmt.comparison.runs import read_runs
from nmt.config.commands import OF_TRAINING
from nmt.config.types import as_list, key_of, say
from nmt.environment import is_sweep
from nmt.errors import UserError, install
from nmt.export import NEEDS
from nmt.run.paths import TUNED, check_folders, check_run

OF_A_VOCABULARY = ("model_type", "vocab_size", "character_coverage", "normalization", "max_pairs")


def check_additions(cfg: DictConfig, command: str, overrides: Sequence[str]) -> None:
    """Raise UserError for an added setting that nothing reads, and for a trusted module that does not exist."""
    for key in (key_of(each) for each in overrides if each[0] == "+" and not OmegaConf.select(cfg, "resume")):
        if key not in settings_of(command) and not _is_built(cfg, key):
            raise UserError(f"unknown configuration key '{key}'{suggest(key, command)}")
    if any(each.partition(".")[0] != "nmt" for each in cfg.trusted):
        sys.path.append(os.getcwd())  # a script has only its folder in the path
    for module in cfg.trusted:
        try:
            found = find_spec(module)
        except (ImportError, ValueError):
            found = None
        if found is None:
            raise UserError(f"trusted=[{module}]: there is no such module here, or in PYTHONPATH")


def _is_built(cfg: DictConfig, key: str) -> bool:
    """True if a setting belongs to an object that is built later, and is checked then."""
    names = key.split(".")
    if names[0] in ("callbacks", "logger", "metrics"):
        return True
    if names[0] == "data":
        return not str(cfg.data.reader).startswith("nmt.")  # a reader of a trusted module
    nodes = (OmegaConf.select(cfg, ".".join(names[:end])) for end in range(1, len(names) + 1))
    return any(OmegaConf.is_dict(each) and "_target_" in each for each in nodes)


def check_train(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for a choice or a setting without effect, and for missing text."""
    # Other groups fail to compose
    for group in {"cell", "positions", "wiring"} & set(map(key_of, overrides)):
        if f"${{{group}}}" not in OmegaConf.to_yaml(cfg):
            raise UserError(f"{group}= has no effect with what else is chosen: leave it out")
    if "tuning" in map(key_of, overrides) and not is_sweep():
        raise UserError("tuning= has no effect in a single run: add -m")
    _check_removals(overrides)
    _check_limits(cfg.trainer)
    if cfg.data.get("streaming") is None:
        _refuse_idle("data.buffer_pairs", overrides, "without data.streaming=")
    _check_inputs(OmegaConf.select(cfg, "data.path", throw_on_missing=False))
    if cfg.resume is not None:
        if not (Path(cfg.resume) / "config.yaml").is_file():
            raise UserError(f"{cfg.resume} is no run to resume: it has no config.yaml")
        return
    model = OmegaConf.select(cfg, "data.tokenizer.model", throw_on_missing=False)
    idle: tuple[str, ...] = () if model is None else OF_A_VOCABULARY
    given = f"data.tokenizer.model={model}"
    kind, alpha = (OmegaConf.select(cfg, f"data.tokenizer.{name}") for name in ("model_type", "sampling"))
    if alpha and kind in ("word", "char") and model is None and cfg.start_from is None:
        raise UserError(f"data.tokenizer.sampling={alpha} has no effect with model_type={kind}: leave it out")
    decoding = cfg.decoding
    check_coverage(decoding)
    if decoding.length_alpha is None and (decoding.beam_size == 1 or decoding.coverage_beta > 0):
        key = "beam_size" if decoding.beam_size == 1 else "coverage_beta"
        raise UserError(
            f"decoding.length_alpha=null is chosen after training, not with {key}={decoding[key]}: give a number"
        )
    if f"decoding={TUNED}" in overrides and decoding.length_alpha is not None:
        raise UserError("decoding=tuned chooses decoding.length_alpha: leave one of them out")
    check_start(cfg)
    for key in ("data.augment.two_sentences", "old_share"):
        _check_read_whole(cfg, key)
    if cfg.start_from is not None:
        idle = tuple(str(name) for name in cfg.data.tokenizer if name != "sampling")
        given = f"start_from={cfg.start_from}, whose tokenizer is used"
    for key in map(key_of, overrides):
        if key in (f"data.tokenizer.{name}" for name in idle):
            raise UserError(f"{key} has no effect with {given}: leave it out")
    _check_inputs(*as_list(model), OmegaConf.select(cfg, "decoding.dictionary"))


def check_start(cfg: DictConfig) -> None:
    """Raise UserError for a setting that needs the run to start from, without one."""
    for key in ("freeze", "old_share"):
        if cfg.get(key) and cfg.get("start_from") is None:
            raise UserError(f"{key}={say(cfg[key])} needs start_from=RUN_DIR")


def _refuse_idle(key: str, overrides: Sequence[str], where: str) -> None:
    """Raise UserError if the setting `key`, which has no effect here, was given."""
    if key in map(key_of, overrides):
        raise UserError(f"{key}= has no effect {where}: leave it out")


def _check_read_whole(cfg: DictConfig, key: str) -> None:
    """Raise UserError if a stream is read, and the share `key` is above 0."""
    share = OmegaConf.select(cfg, key)
    if share and cfg.data.get("streaming") is not None:
        raise UserError(f"{key}={share} needs text that is read whole: leave out data.streaming=")


def _check_removals(overrides: Sequence[str]) -> None:
    """Raise UserError for `~` on a single setting of a class that was not given: the class's default would be used."""
    for override in overrides:
        parent, _, name = key_of(override).rpartition(".")
        is_removal = override.startswith("~") and parent not in ("", "callbacks", "logger", "metrics")
        if is_removal and f"{parent}._target_" not in map(key_of, overrides):
            raise UserError(
                f"{override} would leave {parent}.{name} to a library: give a value in its place (or null, for none)"
            )


def _check_limits(trainer: DictConfig) -> None:
    """Raise UserError if nothing limits training: Lightning would choose a number of epochs."""
    if (
        trainer.get("max_epochs") is None
        and trainer.get("max_steps") in (None, -1)
        and trainer.get("max_time") is None
    ):
        raise UserError(
            "trainer.max_epochs=null: nothing says when training ends: give a number of epochs, or -1 and "
            "trainer.max_steps or trainer.max_time"
        )


def check_evaluate(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for incompatible settings, and for a missing run."""
    for key in map(key_of, overrides):
        if key.startswith("data.") and key.split(".")[1] in OF_TRAINING:
            raise UserError(f"{key} is for training: a split is scored as it is; leave it out")
    if cfg.src is not None and cfg.refs is None and cfg.hypotheses is None:
        raise UserError(f"src={cfg.src} needs refs=FILE to score against, or hypotheses=FILE to score")
    for given, idle in (("src", ("split", "data")), ("hypotheses", ("decoding", "probes", "explain"))):
        for key in map(key_of, overrides):
            if cfg[given] is not None and key.split(".")[0] in idle:
                raise UserError(f"{key} has no effect with {given}={cfg[given]}: leave it out")
    if not cfg.explain:
        _refuse_idle("explain_lines", overrides, "without explain=")
    _check_explainers(cfg)
    refs = as_list(cfg.refs)
    _check_inputs(cfg.src, cfg.hypotheses, *refs)
    if cfg.output is None and not isinstance(cfg.run, str):
        raise UserError("an ensemble has no run directory of its own: give output=DIR")
    check_folders(cfg, folders=["output"])
    check_run(cfg)
    take_stored(cfg, "decoding", overrides)
    take_stored(cfg, "metrics", overrides)
    # An ensemble may not write into the directory of a member
    if None not in (cfg.output, cfg.run) and Path(cfg.output).resolve() == Path(str(cfg.run)).resolve():
        cfg.output = None
    if cfg.output is not None and (Path(cfg.output) / "config.yaml").exists():
        raise UserError(
            f"output={cfg.output} is the directory of a run, whose scores these are not: give another"
        )


def _check_explainers(cfg: DictConfig) -> None:
    if cfg.int8 and {"gradient", "integrated_gradients"} & set(cfg.explain):
        raise UserError(
            "int8=true has no gradients: leave it out, or explain without gradient and integrated_gradients"
        )


def check_translate(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for incompatible settings, and for missing files and runs."""
    read = ["input", "prefixes"]
    if cfg.input == "-":
        raise UserError("input=- is no file: leave input out to read standard input")
    check_folders(cfg, "output", "alignments", "weights", made=["page"], folders=["heatmaps"], read=read)
    _check_inputs(*(cfg[key] for key in read))
    check_run(cfg)
    take_stored(cfg, "decoding", overrides)
    if cfg.beside is not None:
        if cfg.page is None:
            raise UserError(f"beside={cfg.beside} has no effect without page=FILE: leave it out")
        check_run(cfg, "beside")
    if not any(cfg[key] for key in ("alignments", "weights", "heatmaps", "page")):
        _refuse_idle("units", overrides, "without alignments=, weights=, heatmaps= or page=")
    if cfg.explain and ((cfg.page is None and cfg.heatmaps is None) or cfg.beside is not None):
        raise UserError(
            f"explain={say(cfg.explain)} needs page=FILE or heatmaps=DIR, and does not go with beside="
        )
    _check_explainers(cfg)


def check_align(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for settings that are incompatible or without effect, and for a missing run."""
    defaults: Any = OmegaConf.load(CONFIGS / "align.yaml")
    changed = [str(key) for key in cfg if cfg[key] != defaults.get(str(key))]
    if cfg.alignment is not None:
        given = [key for key in changed if key not in ("alignment", "gold", "flip_gold")]
        if cfg.gold is None or given:
            raise UserError(
                f"alignment=FILE is scored with gold=FILE alone{', not with ' + given[0] if given else ''}"
            )
        _check_inputs(cfg.alignment, cfg.gold)
        return
    for key in ("src", "tgt"):
        if cfg[key] is None:
            raise UserError(f"{key} is required: give {key}=FILE")
    of_a_run = [key for key in changed if key not in ("src", "tgt", "gold", "flip_gold", "output", "units")]
    searched = ("output", "weights", "page", "heatmaps", "reverse_run", "layer", "head", "reading", "explain")
    for idle, keys, where in (
        (cfg.run is None, of_a_run, "without run=RUN_DIR, as words are then aligned by counting"),
        (cfg.search, searched, "with search=true, which scores every layer, head and reading of one run"),
        (cfg.method != "threshold", ("threshold",), "without method=threshold"),
        (cfg.explain is not None, ("layer", "head"), "with explain=METHOD"),
        (cfg.reverse_run is None, ("symmetrization",), "without reverse_run=RUN_DIR"),
        (cfg.gold is None, ("flip_gold",), "without gold=FILE"),
    ):
        for key in keys:
            if idle and key in changed:
                value = str(cfg[key]).lower() if isinstance(cfg[key], bool) else cfg[key]
                raise UserError(f"{key}={value} has no effect {where}: leave it out")
    if cfg.units == "pieces" and cfg.run is None:
        raise UserError("units=pieces are those of a run: give run=RUN_DIR, or units=words")
    if cfg.units == "pieces" and cfg.reverse_run is not None:
        raise UserError("units=pieces has no meaning with reverse_run: two runs have pieces of their own")
    if cfg.search and cfg.gold is None:
        raise UserError("search=true needs gold=FILE to score against")
    read = ["src", "tgt", "gold"]
    check_folders(cfg, "output", "weights", made=["page"], folders=["heatmaps"], read=read)
    _check_inputs(*(cfg[key] for key in read))
    if cfg.run is not None:
        check_run(cfg)


def check_compare(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for missing files and runs, idle settings, and length bounds that do not rise."""
    bounds = list(cfg.length_bounds)
    if not bounds or bounds != sorted(set(bounds)):
        raise UserError(f"length_bounds={bounds}: give rising numbers of words, such as [10,20,30]")
    if cfg.refs is not None:
        _refuse_idle("length_bounds", overrides, f"with refs={cfg.refs}, as the sources are not read")
    if cfg.output is None:
        _refuse_idle("formats", overrides, "without output=DIR")
    check_folders(cfg, folders=["output"])
    _check_inputs(*as_list(cfg.refs))
    runs, _ = read_runs(cfg.runs, cfg.split)
    take_stored(cfg, "metrics", overrides, {run.directory: run.config for run in runs})


def check_benchmark(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for files that are missing or cannot be written, and for settings without effect.

    Variants are checked later, when they are composed.
    """
    check_folders(cfg, "output")
    _check_read_whole(cfg, "data.augment.two_sentences")
    for key in map(key_of, overrides):
        if cfg.compare is not None and key != "compare":
            raise UserError(f"{key}= has no effect with compare=: leave it out")
    _check_inputs(*(cfg.compare or []))


def check_demo(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError if a package that makes the page, or the run, is missing."""
    from nmt.commands.demo import newest_or_small_run

    _check_packages("the demo", "web", "demo")
    _check_inputs(cfg.runtime)
    if cfg.run is None:
        cfg.run = str(newest_or_small_run(Path("logs")))
    check_run(cfg)
    take_stored(cfg, "decoding", overrides)


def check_export(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError if a package, the Hub's token or the run is missing, or if the folder is not empty."""
    _check_packages(f"format={cfg.format}", cfg.format, "export")
    if cfg.quantization is not None and cfg.format not in ("ctranslate2", "argos"):
        raise UserError(
            f"quantization={cfg.quantization} has no effect with format={cfg.format}: leave it out"
        )
    if cfg.runtime is not None and cfg.format != "web":
        raise UserError(f"runtime={cfg.runtime} has no effect with format={cfg.format}: leave it out")
    if not isinstance(cfg.run, str) and cfg.format != "web":
        raise UserError(f"format={cfg.format} takes one run=RUN_DIR: several are for format=web")
    _check_inputs(cfg.runtime)
    check_folders(cfg, folders=["output"])
    _check_empty(cfg.output)
    if cfg.push is not None:
        from nmt.export import hub  # slow to import

        hub.check_token(cfg.push)
    check_run(cfg)


def check_prepare(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError if the text is missing, or if a path cannot be written or lies in the text's folder."""
    directory = Path(cfg.data.path).expanduser().resolve()
    if not directory.is_dir():
        raise UserError(
            f"{cfg.data.path} is no folder: set data.path to the one with the train, val and test files"
        )
    check_folders(cfg, made=["report", "page"], folders=["output"])
    for key in ("report", "page"):
        if cfg[key] is not None and directory in Path(cfg[key]).resolve().parents:
            raise UserError(f"{key}={cfg[key]} lies in the folder of the text: give a place outside it")
    if cfg.output is None:
        return
    output = Path(cfg.output).resolve()
    if output == directory or directory in output.parents or output in directory.parents:
        raise UserError(
            f"output={cfg.output} and data.path={cfg.data.path} lie in each other: give a folder apart"
        )
    _check_empty(cfg.output)


def _check_empty(output: str) -> None:
    if Path(output).resolve() == Path.cwd():  # the command replaces the empty folder
        raise UserError(f"output={output} is the folder you are in: give a new folder")
    if Path(output).is_dir() and any(Path(output).iterdir()):
        raise UserError(f"output={output} is not empty: give a new folder")


def _check_packages(subject: str, format: str, extra: str) -> None:
    missing = [name for name in NEEDS[format] if find_spec(name) is None]
    if missing:
        raise UserError(f"{subject} needs {', '.join(missing)}: {install(extra)}")


def _check_inputs(*files: str | None) -> None:
    for file in files:
        if file is not None and not Path(file).expanduser().exists():
            raise UserError(f"{file}: no such file or folder")
