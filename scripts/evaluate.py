"""Score a trained run on a split of its data, or of other data."""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from nmt.commands import command
from nmt.errors import UserError
from nmt.run import (
    Run,
    check_decoding,
    check_folders,
    make_scorers,
    open_run,
    report,
    stored_data,
    write_scores,
)
from nmt.settings import key_of

# Settings of the data that say what training makes of them
OF_TRAINING = (
    *("max_length", "max_ratio", "max_tokens", "num_workers"),
    *("streaming", "buffer_pairs", "tokenizer"),
)


def evaluate(cfg: DictConfig) -> dict:
    """Translate the split, write metrics.json and hypotheses.txt into the run directory, print the scores."""
    if cfg.output is None and not isinstance(cfg.run, str):
        raise UserError("an ensemble has no run directory of its own: give output=DIR")
    check_folders(cfg, folders=["output"])
    if cfg.num_bootstrap < 0:
        raise UserError(f"num_bootstrap={cfg.num_bootstrap}: give a whole number of at least 0")
    run = open_run(cfg.run, checkpoint=cfg.checkpoint, average=cfg.average, device=cfg.device, int8=cfg.int8)
    check_decoding(cfg.decoding, run.translator)
    dataset = run.split(cfg.split, data_config(run, cfg.data))
    scores, translations = run.score(
        dataset,
        scorers=make_scorers(cfg, lowercase=run.tokenizer.lowercase),
        num_bootstrap=cfg.num_bootstrap,
        show_progress=True,
        **cfg.decoding,
    )
    scores["decoding"] = OmegaConf.to_container(cfg.decoding, resolve=True)
    weights = ""
    if cfg.average is None:
        scores["checkpoint"] = cfg.checkpoint
    else:
        scores["average"] = cfg.average
        weights = f", mean of the last {cfg.average} checkpoints"
    if cfg.int8:
        scores["int8"] = True
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
                f"data.{key}: the run's data have no such setting; choose data=files or another too"
            )
        stored.reader[key] = value
    return stored


def check_data(overrides: Sequence[str]) -> None:
    """Raise UserError for a setting of the data that only a training reads."""
    for key in map(key_of, overrides):
        if key.startswith("data.") and key.split(".")[1] in OF_TRAINING:
            raise UserError(f"{key} is for training: evaluate.py takes a split as it is; leave it out")


@command("evaluate")
def main(cfg: DictConfig) -> None:
    check_data(HydraConfig.get().overrides.task)
    evaluate(cfg)


if __name__ == "__main__":
    main()
