"""Scoring at the end of a training run: write, print and log the scores, with the cost of training."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Any

from omegaconf import DictConfig

from nmt.checkpoint import checkpoint_name
from nmt.config.build import build, build_parts
from nmt.config.types import GROUPS, flat, key_of
from nmt.environment import is_sweep
from nmt.errors import UserError, command, printable
from nmt.run.observations import observe
from nmt.run.paths import TUNED, load_config, score_files, write_config
from nmt.run.provenance import commands_of, provenance
from nmt.run.run import Run
from nmt.run.scores import score_lines, training_in, write_scores
from nmt.run.translation import Translation
from nmt.training.lengths import choose_length_alpha

USUAL = (
    "choice/attention",
    "choice/data",
    "choice/model",
    "model.size",
    "optimizer.lr",
)  # settings shown first


def cost(steps: int, seconds: float, num_tokens: int) -> dict[str, Any]:
    """The cost of training for metrics.json: seconds, optimizer steps, target pieces per second."""
    return {"seconds": seconds, "steps": steps, "tokens_per_second": num_tokens / max(seconds, 1e-9)}


def cost_so_far(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The cost of the training that a checkpoint comes from."""
    by_rank = checkpoint["training"]
    since = sum(int(record["since_log"][1]) for record in by_rank)
    seconds = by_rank[0]["train_seconds"] + by_rank[0]["seconds_on_clock"]
    return cost(checkpoint["global_step"], seconds, by_rank[0]["train_tokens"] + since)


def score(
    cfg: DictConfig, run_dir: Path, splits: dict[str, Any], *, device: str, training: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Write, print and return the scores on the test set, else on the validation set: (split, scores).

    Scores the best checkpoint, or the last if the run ended before a validation. Sets `decoding.length_alpha` of `cfg`
    and of the run if it is null. Raises UserError if there is no checkpoint.
    """
    split = "test" if "test" in splits else "val"
    try:
        checkpoint = checkpoint_name(run_dir, "best")
    except UserError as error:
        raise UserError(
            f"{run_dir}: not one batch was trained, so that there is nothing to score: see what limits training, "
            "trainer.max_epochs, max_steps, max_time or limit_train_batches"
        ) from error
    run = Run.load(run_dir, checkpoint=checkpoint, device=device, trusted=cfg.trusted)
    decoding = build(cfg.decoding, "decoding")
    scorers = build_parts(cfg.metrics, "metrics", trusted=cfg.trusted)
    if cfg.decoding.length_alpha is None:
        cfg.decoding.length_alpha = choose_length_alpha(run, splits["val"], decoding, scorers)
        decoding = build(cfg.decoding, "decoding")
        stored = load_config(run_dir)
        stored.decoding.length_alpha, stored.choices.decoding = decoding.length_alpha, TUNED
        write_config(run_dir, stored)
    scores, translations = run.score(splits[split], decoding, scorers=scorers, show_progress=True)
    texts = [each.text for each in translations]
    scores["observations"] = observe(run, splits[split], texts, trained=True)
    scores["training"] = {
        **provenance(commands_of(run_dir), run.device),
        **training,
        "num_parameters": run.translator.num_parameters,
    }
    scores["decoding"], scores["checkpoint"] = asdict(decoding), checkpoint
    write_scores(run_dir, split, scores, translations)
    print(
        f"{split} of {run_dir}\n{score_lines(scores)}\n{closing_lines(run_dir, splits[split], translations)}"
    )
    return split, scores


def closing_lines(run_dir: Path, rows: Any, translations: Sequence[Translation]) -> str:
    """A translation with its source and reference, and commands to run next."""
    number = next((number for number, each in enumerate(rows["src"]) if len(each) <= 100), 0)
    texts = {
        "source": rows[number]["src"],
        "output": translations[number].text,
        "reference": rows[number]["tgt"],
    }
    lines = [f"{name:9}  {shorten(printable(text), 200, placeholder=' …')}" for name, text in texts.items()]
    if (page := run_dir / "alignments" / "index.html").is_file():
        lines.append(f"attention  {page}")
    runs = run_dir.parent.parent if is_sweep() else run_dir
    commands = [
        *([command("compare", [f"runs={runs}/*/*"])] if is_sweep() else []),
        command("evaluate", [f"run={run_dir}"]),
        command("translate", [f"run={run_dir}", "input=FILE"]),
        shlex.join(["tensorboard", "--samples_per_plugin", "images=200", "--logdir", str(runs)]),
    ]
    lines += [f"{'' if number else 'next':9}  {each}" for number, each in enumerate(commands)]
    return "\n".join(lines)


def scores_after(run_dir: Path, step: int) -> Path | None:
    """The file with the scores of a run that ended after `step`; None if there is none for this step."""
    for file in (score_files(run_dir, split)[0] for split in ("test", "val")):
        if (training := training_in(file)) and training["steps"] == step:
            return file
    return None


def hyperparameters(resolved: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of a configuration, flat: `{"choice/attention": "bahdanau", "model.size": 256}`."""
    within_model = {part for key in flat(resolved["model"]) for part in key.split(".")}
    groups = {group.name for group in GROUPS if group.recorded}
    recorded = groups - within_model
    choices = resolved.get("choices", {})
    return {f"choice/{group}": name for group, name in choices.items() if group in groups} | {
        key: value if isinstance(value, int | float | str | bool) else str(value)
        for key, value in flat(resolved).items()
        if key.split(".")[0] in recorded or (isinstance(value, int | float) and "." not in key)
        if not key.endswith(("_partial_", "_target_")) and key != "data.reader"
    }


def by_interest(params: dict[str, Any], command: str) -> dict[str, Any]:
    """The hyper-parameters that have a value: those of the command line first, then `USUAL`, then all others."""
    given = {key_of(word) for word in shlex.split(command)}

    def rank(name: str) -> int:
        key = name.removeprefix("choice/")
        return 0 if any(f".{key}".endswith(f".{each}") for each in given) else 1 if name in USUAL else 2

    return {name: params[name] for name in sorted(params, key=rank) if params[name] != "None"}


def log_final(
    loggers: Iterable[Any], resolved: dict[str, Any], split: str, scores: dict[str, Any], *, step: int
) -> None:
    """Log the final scores, as `test/bleu`; in TensorBoard as a row of HPARAMS with the hyper-parameters."""
    final = {
        f"{split}/{name}": result["score"]
        for name, result in scores.items()
        if isinstance(result, dict) and "score" in result
    }
    settings = by_interest(hyperparameters(resolved), scores["training"].get("command") or "")
    for logger in loggers:
        if hasattr(logger.experiment, "add_image"):
            logger.log_hyperparams(settings, final, step=step)
        else:
            logger.log_metrics(final, step=step)
        logger.finalize("success")
