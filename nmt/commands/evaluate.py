"""Score a trained run on a split of its data, or of other data."""

from dataclasses import asdict
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from nmt.errors import UserError
from nmt.run.building import build, make_scorers
from nmt.run.checks import check_decoding
from nmt.run.data import stored_data
from nmt.run.directory import Run, open_run
from nmt.run.scores import report, write_scores
from nmt.settings import flat


def evaluate(cfg: DictConfig) -> dict:
    """Translate the split, write metrics.json and hypotheses.txt to the run directory or `output`, print the scores."""
    how = {key: cfg[key] for key in ("checkpoint", "average", "device", "int8", "trusted")}
    run = open_run(cfg.run, **how)
    decoding = build(cfg.decoding)
    check_decoding(decoding, run.translator)
    dataset = run.split(cfg.split, data_config(run, cfg.data))
    scores, translations = run.score(
        dataset,
        decoding,
        scorers=make_scorers(cfg, lowercase=run.tokenizer.lowercase),
        num_bootstrap=cfg.num_bootstrap,
        show_progress=True,
    )
    scores["decoding"] = asdict(decoding)
    weights = ""
    if cfg.average is None:
        scores["checkpoint"] = cfg.checkpoint
    else:
        scores["average"] = cfg.average
        weights = f", mean of the last {cfg.average} checkpoints"
    if cfg.int8:
        scores["int8"] = True
    data = flat(OmegaConf.to_container(cfg.data, resolve=True))
    if given := {key: value for key, value in data.items() if value is not None}:
        scores["data"] = given
    if not isinstance(cfg.run, str):
        scores["ensemble"] = [str(Path(each).resolve()) for each in cfg.run]
    elif cfg.output is not None:
        scores["run"] = str(Path(cfg.run).resolve())
    output = Path(cfg.run if cfg.output is None else cfg.output)
    output.mkdir(parents=True, exist_ok=True)
    write_scores(output, cfg.split, scores, translations)
    print(f"{cfg.split} of {cfg.run}{weights}, {scores['num_sentences']} sentences\n{report(scores)}")
    return scores


def data_config(run: Run, chosen: DictConfig) -> DictConfig:
    """What was chosen on the command line; what was left open is as the run was trained."""
    if (str(chosen.tgt_lang), str(chosen.src_lang)) == run.languages:
        raise UserError(
            f"data.src_lang={chosen.src_lang} data.tgt_lang={chosen.tgt_lang}: {run.directory} translates the other way"
        )
    if chosen.reader is not None:
        return chosen
    given = {key: value for key, value in chosen.items() if value is not None}
    stored = stored_data(run.config.data)
    for key, value in given.items():
        if key not in stored.reader:
            raise UserError(
                f"data.{key!s}: the run's data have no such setting; choose data=files or another too"
            )
        stored.reader[key] = value
    return stored


main = evaluate
