"""Compare training and translation with other toolkits, on the same batches, in turns. Not on Windows.

python scripts/workbench/peers/toolkits.py data=multi30k [KEY=VALUE …] [--output FILE.json]

KEY=VALUE: settings of `data`. pip makes an environment per toolkit in .peers/ at its first use. Set OMP_NUM_THREADS for
the number of threads of all toolkits.
"""

import argparse
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from nmt.atomic import json_text
from nmt.benchmark import paired_ratio
from nmt.commands.benchmark import make_data
from nmt.commands.composing import compose
from nmt.commands.entry import errors_in_one_line
from nmt.comparison.tables import align_columns
from nmt.errors import UserError
from nmt.run.paths import write_atomically
from nmt.run.provenance import ROOT, provenance

HERE = Path(__file__).resolve().parent
SETTINGS = ("data.max_tokens=4096", "data.tokenizer.vocab_size=8000", "data.tokenizer.joint=true")
MODELS = {
    "gru_general": "GRU general, no input feeding",
    "gru_feeding": "GRU general, input feeding",
    "gru_bahdanau": "GRU Bahdanau",
    "transformer": "Transformer 3+3×256",
    "transformer_int8": "Transformer 3+3×256, int8",
}
WORKS = {"train": "training", "greedy": "greedy", "beam": "beam 5"}


class Toolkit(NamedTuple):
    """A toolkit, its models, and the calls of `pip install` for its environment: none if the project's own has it."""

    name: str
    models: tuple[str, ...]
    installs: tuple[str, ...] = ()
    trains: bool = True


TORCH = "torch==2.13.0 setuptools wheel"
TOOLKITS = {
    "nmt": Toolkit("here", tuple(MODELS)),
    "transformers": Toolkit("transformers 5", ("transformer",)),
    "ctranslate2": Toolkit("CTranslate2 4", ("transformer", "transformer_int8"), trains=False),
    "eole": Toolkit("Eole 0.6", tuple(MODELS)[:4], (f"{TORCH} eole==0.6.4",)),
    # Its pins exclude this torch: its dependencies are installed separately
    "opennmt": Toolkit(
        "OpenNMT-py 3.5",
        tuple(MODELS)[:4],
        (
            f"{TORCH} configargparse ctranslate2<5 waitress pyonmttok pyyaml rapidfuzz scikit-learn fasttext-wheel "
            "tensorboard flask six sacrebleu sentencepiece spacy pyahocorasick",
            "--no-deps OpenNMT-py==3.5.1",
        ),
    ),
    # It needs importlib_metadata, which it does not declare, and a function that sentencepiece has since removed
    "joeynmt": Toolkit(
        "JoeyNMT 2.3",
        ("gru_feeding", "gru_bahdanau", "transformer"),
        (f"{TORCH} joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0",),
    ),
}


class Turn(NamedTuple):
    """The parameters of the model, and target tokens or sentences per second.

    Seconds of one thread are those of the processor, which other processes on its core do not lengthen.
    """

    num_parameters: int
    rate: float


class Runner:
    """A process of a toolkit that holds a model and the batches, and computes only when it is asked."""

    def __init__(self, name: str, job: Path) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [str(python_of(name)), "-W", "ignore", str(HERE / f"run_{name}.py"), str(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def turn(self, model: str, work: str, numbers: Sequence[int]) -> Turn:
        """Do `work` with `model` on the batches `numbers`."""
        assert self.process.stdout is not None
        print(json.dumps([model, work, list(numbers)]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            name = TOOLKITS[self.name].name
            raise UserError(f"the runner of {name} ended with status {self.process.wait()}")
        num_parameters, amount, seconds, own = json.loads(line)
        return Turn(num_parameters, amount / (own if torch.get_num_threads() == 1 else seconds))


def python_of(name: str) -> Path:
    """The Python of a toolkit's environment, which is made if it is missing."""
    if not TOOLKITS[name].installs:
        return Path(sys.executable)
    folder = ROOT / ".peers" / name
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        for packages in TOOLKITS[name].installs:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages.split()], check=True)
        (folder / "complete").touch()
    return python


def make_job(overrides: Sequence[str], num_batches: int) -> dict[str, Any]:
    """The job of the runners, but for the model: batches of pairs, with the ids of runner.py.

    Raises UserError if the text has too few batches.
    """
    data = make_data(compose("benchmark", [*SETTINGS, *overrides]))
    renumbered = {data.tokenizer.unk_id: 0}

    def rows(ids: torch.Tensor) -> list[list[int]]:
        return [
            [renumbered.get(each, each) for each in row if each != data.tokenizer.pad_id]
            for row in ids.tolist()
        ]

    loaded = itertools.islice(data.train_dataloader(), num_batches)
    batches = [(rows(batch.src), rows(batch.tgt_out)) for batch in loaded]
    if len(batches) < num_batches:
        raise UserError(
            f"the text has {len(batches)} batches, fewer than {num_batches}: lower --rounds or --batches"
        )
    return {
        "batches": batches,
        "vocab_size": data.tokenizer.tgt_vocab_size,
        "num_threads": torch.get_num_threads(),
    }


def take_turns(
    runners: Iterable[Runner], model: str, *, num_rounds: int, per_turn: int
) -> dict[str, dict[str, list[Turn]]]:
    """The turns by kind of work and runner. The round before the counted ones warms up."""
    order = deque(runners)
    turns: dict[str, dict[str, list[Turn]]] = defaultdict(dict)
    for number in tqdm(range(num_rounds + 1), desc=model, unit="round", disable=None, leave=False):
        batches = range(number * per_turn, (number + 1) * per_turn)
        for work, runner in itertools.product(WORKS, order):
            if work == "train" and (model == "transformer_int8" or not TOOLKITS[runner.name].trains):
                continue
            turn = runner.turn(model, work, batches)
            if number > 0:
                turns[work].setdefault(runner.name, []).append(turn)
        order.rotate(-1)
    return turns


def row_of(work: str, model: str, turns: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    """A row of the table: the medians of here and of the fastest other toolkit, and their ratio over the rounds."""
    rates = {name: [round(turn.rate, 1) for turn in each] for name, each in turns.items()}
    medians = {name: statistics.median(each) for name, each in rates.items()}
    fastest = max((name for name in medians if name != "nmt"), key=lambda name: medians[name])
    ratio = paired_ratio(rates["nmt"], rates[fastest])
    return {
        "work": f"{WORKS[work]}, {MODELS[model]}",
        "here": round(medians["nmt"]),
        "toolkit": TOOLKITS[fastest].name,
        "there": round(medians[fastest]),
        "ratio": round(ratio["median"], 2),
        "range": [round(ratio[each], 2) for each in ("min", "max")],
        "rounds": {TOOLKITS[name].name: values for name, values in rates.items()},
    }


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """The rows of all models, with the facts that repeat them."""
    command = shlex.join(["python", "scripts/workbench/peers/toolkits.py", *sys.argv[1:]])
    result: dict[str, Any] = provenance(command, torch.device("cpu")) | {"parameters": {}, "rows": []}
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file, ExitStack() as stack:
        json.dump(make_job(args.settings, (args.rounds + 1) * args.batches), file)
        file.flush()
        runners = [Runner(name, Path(file.name)) for name in ("nmt", *args.toolkits)]
        for runner in runners:
            stack.callback(runner.process.communicate)
        for model in args.models:
            chosen = [each for each in runners if model in TOOLKITS[each.name].models]
            turns = take_turns(chosen, model, num_rounds=args.rounds, per_turn=args.batches)
            result["rows"] += [row_of(work, model, each) for work, each in turns.items() if len(each) > 1]
            result["parameters"][model] = {
                TOOLKITS[name].name: each[0].num_parameters for name, each in turns["greedy"].items()
            }
    return result


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows, with the medians of every toolkit."""
    names = [each.name for each in TOOLKITS.values() if any(each.name in row["rounds"] for row in rows)]
    lines = [["work", *names, "ratio to the fastest other"]]
    for row in rows:
        rounds = [row["rounds"].get(name) for name in names]
        medians = ["–" if each is None else f"{statistics.median(each):,.0f}" for each in rounds]
        low, high = row["range"]
        lines.append([row["work"], *medians, f"{row['ratio']:.2f} ({low:.2f}–{high:.2f})"])
    return align_columns(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    others = [each for each in TOOLKITS if each != "nmt"]
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--toolkits", nargs="+", choices=others, default=others)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=4, help="per turn")
    parser.add_argument("--output", type=Path, help="a .json file")
    args = parser.parse_intermixed_args()
    with errors_in_one_line("benchmark"):
        result = compare(args)
        print(table(result["rows"]))
        if args.output is not None:
            write_atomically(args.output, json_text(result))


if __name__ == "__main__":
    main()
