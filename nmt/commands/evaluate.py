"""Score a trained run on a split of its data, or of other data."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset
from omegaconf import DictConfig, OmegaConf

from nmt import plotting
from nmt.analysis.explanation import check_explainers
from nmt.analysis.faithfulness import (
    faithfulness_plot,
    faithfulness_rows,
    measure_faithfulness,
    summarize_faithfulness,
)
from nmt.checkpoint import checkpoint_name
from nmt.comparison.tables import align_columns
from nmt.config.build import build, build_parts, metrics_of
from nmt.config.types import as_list, flat
from nmt.data.corpus import read_references, with_references
from nmt.decoding import DecodingSettings
from nmt.errors import UserError, WriteError
from nmt.lines import read_lines
from nmt.run.data import stored_data
from nmt.run.limits import check_decoding, count_above_limit, warn_of_limit
from nmt.run.observations import observe
from nmt.run.paths import EVALUATIONS, score_files
from nmt.run.probes import SCORES, probe_notes, probe_rows, run_probes
from nmt.run.run import Run, open_run
from nmt.run.scores import folder_name, is_repeated, score_lines, write_scores

log = logging.getLogger(__name__)

USUAL: dict[str, Any] = {
    "average": None,
    "int8": False,
    "num_bootstrap": 1000,
    "probes": False,
    "explain": [],
    "explain_lines": 100,
}


def evaluate(cfg: DictConfig) -> dict:
    """Translate and score the split, or score given translations; print and write the scores, and return them."""
    how = {key: cfg[key] for key in ("checkpoint", "average", "device", "int8", "trusted")}
    run = open_run(cfg.run, **how)
    decoding = build(cfg.decoding, "decoding")
    check_decoding(decoding, run.translator)
    metrics = metrics_of(cfg, run.config.data)
    scorers = build_parts(metrics, "metrics", trusted=cfg.trusted)
    if cfg.probes and not set(SCORES) & set(scorers):
        raise UserError("probes=true: the run has neither BLEU nor chrF: give metrics=translation too")
    check_explainers(run, cfg.explain)
    dataset = read_text(cfg, run)
    if cfg.hypotheses is None:
        count_long_references(cfg, run, dataset, decoding)
    scores, translations = run.score(
        dataset,
        decoding,
        scorers=scorers,
        num_bootstrap=cfg.num_bootstrap,
        show_progress=True,
        hypotheses=None if cfg.hypotheses is None else list(read_lines(Path(cfg.hypotheses))),
    )
    texts = [each.text for each in translations]
    if "tgt" in dataset.column_names:
        is_own = isinstance(cfg.run, str) and cfg.hypotheses is None
        scores["observations"] = observe(run, dataset, texts, trained=is_own)
    if cfg.probes:
        scores["probes"] = run_probes(run, dataset, texts, decoding, scorers)
    if cfg.explain:
        scores["explanations"] = compare_explanations(cfg, run, dataset)
    scores |= how_scored(cfg, decoding)
    text = cfg.split if cfg.src is None else cfg.src
    weights = "" if cfg.average is None else f", mean of the last {cfg.average} checkpoints"
    print(f"{text} of {cfg.run}{weights}, {scores['num_sentences']} sentences\n{score_lines(scores)}")
    if cfg.probes:
        print("\n".join([align_columns(probe_rows(scores["probes"])), *probe_notes(scores["probes"])]))
    explained = {"": scores.get("explanations", {})}
    if cfg.explain:
        print(align_columns([row[1:] for row in faithfulness_rows(explained)]))
    if not isinstance(cfg.run, str):
        scores["ensemble"] = [str(Path(each).resolve()) for each in cfg.run]
        output = Path(cfg.output)
    else:
        output = place(cfg, scores, changed_settings(cfg, run, decoding, metrics))
        if output != Path(cfg.run):
            scores["run"] = str(Path(cfg.run).resolve()) if cfg.output else "../.."
    trained_in = Path(cfg.run) if isinstance(cfg.run, str) else None
    try:
        file = write_scores(output, cfg.split, scores, translations, trained_in=trained_in)
        if cfg.explain:
            plotting.to_png(faithfulness_plot(explained), output / "explanations.png")
    except WriteError as error:
        raise UserError(f"{error}, or give another output=DIR") from error
    beside = "translations" if cfg.hypotheses is None else "log-probabilities"
    print(f"written to {file}, with the {beside} beside it")
    return scores


def how_scored(cfg: DictConfig, decoding: DecodingSettings) -> dict[str, Any]:
    """The settings that scores are written with."""
    how: dict[str, Any] = {"decoding": asdict(decoding)}
    if cfg.average is not None:
        how["average"] = cfg.average
    elif isinstance(cfg.run, str):
        how["checkpoint"] = checkpoint_name(Path(cfg.run), cfg.checkpoint)
    else:
        how["checkpoint"] = cfg.checkpoint
    how |= {"int8": True} if cfg.int8 else {}
    data = given_data(cfg)
    return how | ({"data": data} if data else {}) | given_files(cfg)


def read_text(cfg: DictConfig, run: Run) -> Dataset:
    """The split, or the lines of `src`; if `refs` is given, with its references."""
    if cfg.src is None:
        dataset = run.split(cfg.split, data_config(run, cfg.data), stored=cfg.data.reader is None)
    else:
        dataset = Dataset.from_dict({"src": list(read_lines(Path(cfg.src)))})
    if not len(dataset):
        raise UserError(f"{cfg.src or f'split={cfg.split}'} has no lines: there is nothing to score")
    if cfg.refs is None:
        return dataset
    sources = Dataset.from_dict({"src": list(dataset["src"])})
    refs = as_list(cfg.refs)
    first, *others = read_references(map(Path, refs), len(sources))
    return with_references(sources.add_column("tgt", first), others)


def compare_explanations(cfg: DictConfig, run: Run, dataset: Dataset) -> dict[str, Any]:
    """The faithfulness of the methods `explain` on the references of the first lines, with gold links their AER."""
    rows = dataset.select(range(min(cfg.explain_lines, len(dataset))))
    sides = run.tokenizer.encode_source(list(rows["src"])), run.tokenizer.encode_target(list(rows["tgt"]))
    lengths = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
    if max(lengths) > (most := run.most_pieces):
        fitting = [row for row, length in enumerate(lengths) if length <= most]
        if not fitting:
            raise UserError(
                f"explain: the first {len(rows)} pairs have more than {most} pieces: see explain_lines"
            )
        log.warning("pairs of more than %d pieces are not explained", most)
        rows = rows.select(fitting)
    found = measure_faithfulness(run, list(rows["src"]), list(rows["tgt"]), cfg.explain)
    golds = list(rows["alignment"]) if "alignment" in rows.column_names else None
    return summarize_faithfulness(found, golds, cfg.num_bootstrap)


def count_long_references(cfg: DictConfig, run: Run, dataset: Dataset, decoding: DecodingSettings) -> None:
    """Warn with the number of references that have more pieces than a translation may have."""
    sides = (
        run.tokenizer.encode_source(list(dataset["src"])),
        run.tokenizer.encode_target(list(dataset["tgt"])),
    )
    number = count_above_limit(decoding, run.translator, *(list(map(len, side)) for side in sides))
    where = f"{number:,} of {len(dataset):,} in {cfg.src or cfg.split}"
    warn_of_limit(decoding, [where] if number else [])


def given_files(cfg: DictConfig) -> dict[str, Any]:
    """The files that replace the split's text and the run's translations."""
    refs = list(cfg.refs) if OmegaConf.is_list(cfg.refs) else cfg.refs
    files = {"src": cfg.src, "refs": refs, "hypotheses": cfg.hypotheses}
    return {key: value for key, value in files.items() if value is not None}


def given_data(cfg: DictConfig) -> dict[str, Any]:
    """The data settings that replace those of the run."""
    data = flat(OmegaConf.to_container(cfg.data, resolve=True))
    return {key: value for key, value in data.items() if value is not None}


def changed_settings(
    cfg: DictConfig, run: Run, decoding: DecodingSettings, metrics: DictConfig
) -> dict[str, Any]:
    """The settings that differ from those of the scores at the end of the run's training."""
    usual = asdict(run.decoding)
    changed = {f"decoding.{key}": value for key, value in asdict(decoding).items() if value != usual[key]}
    here, there = (
        {name: part for name, part in OmegaConf.to_container(each).items() if part is not None}  # type: ignore[union-attr]
        for each in (metrics, run.config.get("metrics") or OmegaConf.create())
    )
    if here.keys() != there.keys():
        changed["metrics"] = "+".join(map(str, here))
    else:
        stored = flat(there)
        changed |= {key: value for key, value in flat(here).items() if value != stored.get(key)}
    if cfg.average is None:
        name, best = (checkpoint_name(run.directory, each) for each in (cfg.checkpoint, "best"))
        changed |= {} if name == best else {"checkpoint": name}
    changed |= {key: cfg[key] for key, value in USUAL.items() if cfg[key] != value}
    return changed | {f"data.{key}": value for key, value in given_data(cfg).items()} | given_files(cfg)


def place(cfg: DictConfig, scores: dict[str, Any], changed: dict[str, Any]) -> Path:
    """The folder for a run's scores: `output`, else the run directory or a folder in it for changed settings.

    The run directory itself is used if no setting is changed and it holds no other scores of the split.
    """
    run_dir = Path(cfg.run)
    if cfg.output is not None:
        return Path(cfg.output)
    if not changed and is_repeated(score_files(run_dir, cfg.split)[0], scores):
        return run_dir
    return run_dir / EVALUATIONS / folder_name(changed)


def data_config(run: Run, chosen: DictConfig) -> DictConfig:
    """The data settings of the command line; settings that are not given have the run's values.

    Raises UserError for the reverse language pair and for settings that the run's data lack.
    """
    if (str(chosen.tgt_lang), str(chosen.src_lang)) == run.languages:
        raise UserError(
            f"data.src_lang={chosen.src_lang} data.tgt_lang={chosen.tgt_lang}: {run.directory} translates the other way"
        )
    if chosen.reader is not None:
        return chosen
    given = {key: value for key, value in chosen.items() if value is not None}
    stored = stored_data(run.config.data)
    for key, value in given.items():
        if key not in stored:
            raise UserError(
                f"data.{key!s}: the run's data have no such setting; choose data=files or another too"
            )
        stored[key] = value
    return stored


main = evaluate
