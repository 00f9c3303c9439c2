"""A run directory as an object: built by training, then all that is needed to translate and to score.

    run = Run.load("logs/…"); run.translate(["a small house ."])[0].text

A run directory is data: its configuration may build only what `ALLOWED_TARGETS` names, and its checkpoints
are loaded as weights only.
"""

from nmt.run.building import (
    ALLOWED_TARGETS,
    build,
    build_translator,
    instantiate,
    make_scorers,
    make_tokenizer,
    quantise,
    read_splits,
    read_whole,
    reads_lowercase,
    stored_data,
)
from nmt.run.checks import (
    check_case,
    check_decoding,
    check_lengths,
    check_monitors,
    check_numbers,
    check_parts,
    check_trainer,
    check_vocabulary,
)
from nmt.run.directory import Run, open_run
from nmt.run.files import (
    check_folders,
    checkpoint_file,
    claimed,
    load_config,
    load_weights,
    report,
    score_files,
    write_atomically,
    write_scores,
    write_together,
)
from nmt.run.translation import Translation

__all__ = [
    "ALLOWED_TARGETS",
    "Run",
    "Translation",
    "build",
    "build_translator",
    "check_case",
    "check_decoding",
    "check_folders",
    "check_lengths",
    "check_monitors",
    "check_numbers",
    "check_parts",
    "check_trainer",
    "check_vocabulary",
    "checkpoint_file",
    "claimed",
    "instantiate",
    "load_config",
    "load_weights",
    "make_scorers",
    "make_tokenizer",
    "open_run",
    "quantise",
    "read_splits",
    "read_whole",
    "reads_lowercase",
    "report",
    "score_files",
    "stored_data",
    "write_atomically",
    "write_scores",
    "write_together",
]
