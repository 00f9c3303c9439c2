"""Runs side by side, on run directories written by hand: figures, labels, groups, files, and what is refused."""

import csv
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import hydra
import pytest
import yaml
from sacrebleu.metrics import BLEU
from tensorboard.summary.writer.record_writer import RecordWriter

from nmt import metrics, plotting
from nmt.commands import compare as compare_command
from nmt.commands import early_checks
from nmt.comparison import figures, tables
from nmt.comparison.runs import (
    group_runs,
    label_experiments,
    label_runs,
    label_systems,
    read_run,
)
from nmt.config.commands import check_settings
from nmt.errors import UserError
from nmt.run.paths import find_runs
from tests.commands import refused, run, unread
from tests.test_metrics import score

ROOT = Path(__file__).resolve().parents[1]
FAST = ["num_bootstrap=20", "num_trials=20", "length_bounds=[4,8]"]


def lines(text: list[str]) -> str:
    return "".join(f"{line}\n" for line in text)


class Sweep:
    """Run directories that share a corpus: de sources and en references of 60 sentences."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rng = random.Random(1)
        words = "a small old house cat sees the red dog .".split()  # noqa: SIM905
        self.references = [" ".join(self.rng.choices(words, k=self.rng.randint(3, 12))) for _ in range(60)]
        self.sources = [line.upper() for line in self.references]
        self.write_data("data", self.references)

    def write_data(self, name: str, references: list[str]) -> None:
        folder = self.root / name
        folder.mkdir()
        for split in ("val", "test"):
            (folder / f"{split}.de").write_text(lines(self.sources), "utf-8")
            (folder / f"{split}.en").write_text(lines(references), "utf-8")

    def hypotheses(self) -> list[str]:
        return [" ".join(w for w in line.split() if self.rng.random() < 0.9) for line in self.references]

    def write(
        self,
        name: str,
        *,
        attention="DotAttention",
        seed=1,
        lr=0.002,
        data="data",
        extra=None,
        choices=None,
    ) -> Path:
        """A run that was scored on `data`; `extra` goes into metrics.json."""
        directory = self.root / "runs" / name
        directory.mkdir(parents=True)
        text = {
            "reader": "nmt.data.corpus.read_files",
            "path": str(self.root / data),
            "src_lang": "de",
            "tgt_lang": "en",
            "cache_dir": str(self.root / "cache"),
        }
        config = {
            "seed": seed,
            "name": f"files_{attention}",
            "run_dir": f"logs/{name}",
            "data": text,
            "model": {
                "_target_": "nmt.models.EncoderDecoder",
                "attention": {"_target_": f"nmt.attention.{attention}", "size": len(attention)},
            },
            "wiring": {"_target_": "nmt.decoders.UpdateThenAttend"},
            "optimizer": {"lr": lr},
            "callbacks": {"checkpoint": {"dirpath": f"logs/{name}/checkpoints"}},
        }
        if choices:
            config["choices"] = choices
        hypotheses = self.hypotheses()
        references = (self.root / data / "test.en").read_text("utf-8").splitlines()
        scores = score(hypotheses, references, num_bootstrap=0)
        scores["references"] = metrics.digest(self.sources, references)
        (directory / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
        (directory / "hypotheses.txt").write_text(lines(hypotheses), "utf-8")
        (directory / "metrics.json").write_text(
            json.dumps({"split": "test", **scores, "num_sentences": 60, **(extra or {})}), "utf-8"
        )
        return directory


@pytest.fixture
def sweep(tmp_path) -> Sweep:
    return Sweep(tmp_path)


def compare(*overrides: str) -> dict:
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        cfg = hydra.compose("compare", overrides=[*FAST, *overrides])
    check_settings(cfg, "compare")
    early_checks.check_compare(cfg, overrides)
    return compare_command.compare(cfg)


def test_the_command_prints_what_sacrebleu_scores_and_what_the_runs_differ_in(sweep):
    training = {"seconds": 1234.5, "steps": 9, "tokens_per_second": 5678.0, "num_parameters": 2345678}
    aer = {"score": 0.125, "precision": 0.9, "recall": 0.8}
    sweep.write("a", extra={"aer": aer, "training": training})
    sweep.write("b", attention="AdditiveAttention")
    ended = run("compare", f"runs={sweep.root}/runs/*", *FAST, cwd=sweep.root)
    assert ended.status == 0, ended.err
    table = ended.out.split("\n\n")[1].splitlines()
    assert len({len(line) for line in table}) == 1  # the columns line up
    header, _, first, second = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table)
    assert header == (
        [
            "run",
            "BLEU",
            "BLEU p (run)",
            "chrF",
            "chrF p (run)",
            "TER",
            "TER p (run)",
            "AER",
            "parameters",
            "training s",
            "tokens/s",
        ]
    )
    assert (first[0], second[0]) == ("attention=DotAttention", "attention=AdditiveAttention")
    assert first[-4:] == ["0.125", "2,345,678", "1,234", "5,678"]
    assert second[-4:] == ["–"] * 4
    assert first[2] == "–"
    assert re.fullmatch(r"[\d.<]+ / [\d.<]+", second[2])
    for row, name in ((first, "a"), (second, "b")):
        files = [
            str(sweep.root / "data" / "test.en"),
            "-i",
            str(sweep.root / "runs" / name / "hypotheses.txt"),
        ]
        command = [sys.executable, "-m", "sacrebleu", *files, "-m", "bleu", "-b", "-w", "2"]
        theirs = subprocess.run(command, capture_output=True, check=True).stdout.decode().strip()
        assert row[1].split()[0] == theirs


def test_the_files_are_whole_and_agree(sweep):
    for number, name in enumerate("abc"):
        sweep.write(name, seed=number, extra={"attention": {"entropy": 1.5}})
    result = compare(f"runs={sweep.root}/runs", f"output={sweep.root}/out/deep")
    output = sweep.root / "out" / "deep"
    assert sorted(path.name for path in output.iterdir()) == [
        "bleu_by_length.png",
        "comparison.csv",
        "comparison.json",
        "comparison.md",
        "comparison.tex",
    ]
    assert json.loads((output / "comparison.json").read_text("utf-8")) == result
    with (output / "comparison.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["bleu"]) for row in rows] == [row["bleu"] for row in result["runs"]]
    assert [row["run"] for row in rows] == ["seed=0", "seed=1", "seed=2"]
    report = (output / "comparison.md").read_text("utf-8")
    assert "tok:13a" in report
    assert "attention entropy" in report
    assert "(bleu_by_length.png)" in report
    assert all(f"{row['bleu']:.2f} ± {row['bleu_ci']:.2f}" in report for row in result["runs"])


def test_learning_curves_are_drawn_from_the_event_files(sweep):
    from torch.utils.tensorboard import SummaryWriter

    directory = sweep.write("a")
    sweep.write("b", seed=2)
    assert figures.learning_curve(directory, "val/bleu") is None
    with SummaryWriter(str(directory)) as writer:
        for step in range(0, 30, 10):
            writer.add_scalar("val/bleu", step / 2, step)
    assert figures.learning_curve(directory, "val/bleu") == ([0, 10, 20], [0.0, 5.0, 10.0])
    assert figures.learning_curve(directory, "val/nothing") is None
    compare(f"runs={sweep.root}/runs", f"output={sweep.root}/out")
    assert (sweep.root / "out" / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_event_files_that_are_broken_leave_the_curve_out(sweep, caplog):
    directory = sweep.write("a")
    with (directory / "events.out.tfevents.1").open("wb") as file:
        RecordWriter(file).write(b"no event")
    assert figures.learning_curve(directory, "val/bleu") is None
    assert f"{directory} has event files that are broken" in caplog.text


def test_runs_that_differ_in_their_seed_alone_are_averaged(sweep):
    aers = [0.1, 0.2, 0.4]
    for seed, aer in enumerate(aers):
        sweep.write(f"dot{seed}", seed=seed, extra={"aer": {"score": aer, "precision": 1, "recall": 1}})
    sweep.write("fast", seed=0, lr=0.004)
    result = compare(f"runs={sweep.root}/runs")
    [average] = result["seeds"]
    scores = [row["bleu"] for row in result["runs"] if row["run"] != "lr=0.004"]
    assert (average["run"], average["num_runs"]) == ("lr=0.002", 3)
    assert average["bleu"]["mean"] == pytest.approx(sum(scores) / 3)
    assert average["bleu"]["std"] == pytest.approx(statistics.stdev(scores))
    assert average["aer"] == {
        "mean": pytest.approx(sum(aers) / 3),
        "std": pytest.approx(statistics.stdev(aers)),
    }
    assert tables.system_table([average], {"bleu": "BLEU", "aer": "AER"}).endswith("| 0.233 ± 0.153 |")


def test_what_made_the_hypotheses_tells_runs_apart_and_not_what_training_would_have(sweep):
    """The keys that evaluation writes into metrics.json; an earlier version's file has none of them."""
    decodings = {
        "a": None,
        "b": {"beam_size": 1, "length_alpha": 1.0},
        "c": {"beam_size": 10, "length_alpha": 1},
    }
    for seed, (name, decoding) in enumerate(decodings.items()):
        written = {} if decoding is None else {"decoding": decoding, "checkpoint": "best"}
        directory = sweep.write(name, seed=seed, extra=written)
        config = yaml.safe_load((directory / "config.yaml").read_text("utf-8"))
        config["decoding"] = {"beam_size": 10, "length_alpha": 1.0}
        (directory / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    sweep.write("d", extra={"decoding": {"beam_size": 1, "length_alpha": 1.0}, "average": 5})
    runs = [read_run(sweep.root / "runs" / name, "test") for name in "abcd"]
    assert label_experiments(runs[:3]) == ["beam_size=10", "beam_size=1", "beam_size=10"]
    systems = group_runs(label_systems(runs[:3]), [run.seed for run in runs[:3]])
    assert systems == {"beam_size=10": [0, 2], "beam_size=1": [1]}
    assert label_runs([runs[1], runs[3]]) == ["average=None", "average=5"]


def test_pictures_and_reports_make_no_other_system(sweep):
    plain, drawn = (sweep.write(name, seed=seed) for seed, name in enumerate("ab"))
    config = yaml.safe_load((drawn / "config.yaml").read_text("utf-8"))
    config.setdefault("callbacks", {})["alignments"] = {"num_sentences": 4}
    config.setdefault("trainer", {})["log_every_n_steps"] = 7
    (drawn / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    assert read_run(plain, "test").settings == read_run(drawn, "test").settings


def test_length_penalties_that_runs_chose_by_themselves_are_one_setting(sweep):
    """Those of a and b; c was scored with another, and d trained with a given one."""
    for seed, (name, trained, scored) in enumerate(
        [("a", 1.6, 1.6), ("b", 1.8, 1.8), ("c", 1.6, 1.0), ("d", 1.6, 1.6)]
    ):
        choices = {} if name == "d" else {"decoding": "tuned"}
        extra = {"decoding": {"beam_size": 5, "length_alpha": scored}}
        directory = sweep.write(name, seed=seed, choices={"model": "gru"} | choices, extra=extra)
        config = yaml.safe_load((directory / "config.yaml").read_text("utf-8"))
        config["decoding"] = {"beam_size": 5, "length_alpha": trained}
        (directory / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    runs = [read_run(sweep.root / "runs" / name, "test") for name in "abcd"]
    assert label_experiments(runs) == [f"length_alpha={each}" for each in ("tuned", "tuned", "1", "1.6")]
    none = sweep.write("e", choices={"model": "gru", "decoding": "tuned"})
    assert read_run(none, "test").settings["decoding.length_alpha"] == "tuned"


def test_labels_are_the_fewest_settings_that_tell_the_runs_apart(sweep):
    # Attention decides the size too, so the size adds nothing; the learning rate does.
    for attention in ("DotAttention", "AdditiveAttention"):
        for lr in (0.1, 0.2):
            sweep.write(f"{attention}{lr}", attention=attention, lr=lr)
    sweep.write("again", lr=0.1, seed=7)
    names = ["DotAttention0.1", "DotAttention0.2", "AdditiveAttention0.1", "again"]
    runs = [read_run(sweep.root / "runs" / name, "test") for name in names]
    assert label_experiments(runs) == [
        "attention=DotAttention lr=0.1",
        "attention=DotAttention lr=0.2",
        "attention=AdditiveAttention lr=0.1",
        "attention=DotAttention lr=0.1",
    ]
    assert label_runs(runs)[0] == "attention=DotAttention lr=0.1 seed=1"
    assert label_runs(runs)[1] == "attention=DotAttention lr=0.2"
    assert label_runs(runs)[3] == "attention=DotAttention lr=0.1 seed=7"
    assert label_runs(runs[:1] + runs[2:3]) == ["attention=DotAttention", "attention=AdditiveAttention"]


def test_a_config_groups_choice_is_the_label_and_twins_are_called_by_their_directories(sweep):
    for name, choice in (("a", "bahdanau"), ("b", "luong_dot")):
        choices = {"attention": choice, "experiment": name, "wiring": "same"}
        sweep.write(name, attention=f"{choice.title()}Attention", choices=choices)
    sweep.write("c", attention="Luong_DotAttention")
    runs = [read_run(directory, "test") for directory in find_runs(f"{sweep.root}/runs")]
    assert label_runs(runs[:2]) == ["attention=bahdanau", "attention=luong_dot"]
    assert label_runs(runs[1:]) == ["b", "c"]


def test_choices_are_those_of_the_configuration_and_a_transformer_is_called_by_its_model(sweep):
    runs = []
    for name, choices in {
        "a": {"model": "gru", "attention": "luong_dot", "wiring": "update_then_attend"},
        "b": {"model": "gru", "attention": "none", "wiring": "update_then_attend"},
        "c": {"model": "transformer"},
    }.items():
        directory = sweep.write(name, choices=choices)
        runs.append(read_run(directory, "test"))
    assert label_runs(runs) == ["attention=luong_dot", "attention=none", "model=transformer"]
    assert label_runs(runs[:2]) == ["attention=luong_dot", "attention=none"]


def test_scores_by_length_are_those_of_the_sentences_in_each_bucket(sweep):
    runs = [read_run(sweep.write(name), "test") for name in "ab"]
    metric = metrics.Bleu(tokenize="13a", lowercase=False)
    found = figures.score_by_length(
        [each.hypotheses for each in runs], sweep.sources, [sweep.references], metric, bounds=[2, 4, 8, 10]
    )
    assert found["buckets"] == ["3-4", "5-8", "9-10", "11+"]  # none has 2 words or fewer
    spans = [(3, 4), (5, 8), (9, 10), (11, 99)]
    for number, (low, high) in enumerate(spans):
        rows = [i for i, line in enumerate(sweep.sources) if low <= len(line.split()) <= high]
        assert found["num_sentences"][number] == len(rows)
        for scored, scores in zip(runs, found["scores"], strict=True):
            chosen = [scored.hypotheses[i] for i in rows], [[sweep.references[i] for i in rows]]
            assert scores[number] == pytest.approx(BLEU(force=True).corpus_score(*chosen).score)


def test_runs_are_found_once_each_in_the_order_given(sweep, monkeypatch):
    for name in ("a", "b"):
        sweep.write(name)
    monkeypatch.chdir(sweep.root)
    assert find_runs(["runs/b", "runs"]) == [Path("runs/b"), Path("runs/a")]
    assert find_runs("runs/*") == [Path("runs/a"), Path("runs/b")]
    for wrong, message in (("nowhere", "no such run"), ("no*", "no run directory"), ("data", "no run dir")):
        with pytest.raises(UserError, match=rf"{re.escape(wrong)}: {message}"):
            find_runs(wrong)
    with pytest.raises(UserError, match="runs is empty"):
        find_runs([])


def test_runs_of_a_pattern_come_in_the_order_of_their_numbers(sweep, monkeypatch):
    for name in ("b_10", "b_9", "a_2/x", "a_10/x"):
        sweep.write(name)
    monkeypatch.chdir(sweep.root)
    assert find_runs("runs/b*") == [Path("runs/b_9"), Path("runs/b_10")]
    ordered = [Path("runs/a_2/x"), Path("runs/a_10/x"), Path("runs/b_9"), Path("runs/b_10")]
    assert find_runs("runs") == find_runs("runs/*") == ordered


def test_runs_of_a_pattern_that_are_not_scored_are_skipped_and_named(sweep, caplog):
    for name in ("done", "unscored", "broken"):
        sweep.write(name)
    (sweep.root / "runs" / "unscored" / "metrics.json").unlink()
    (sweep.root / "runs" / "broken" / "metrics.json").write_text("{")
    (sweep.root / "runs" / "left\x1b[2J" / ".hydra").mkdir(parents=True)
    for pattern, skipped in (("*", 3), ("", 2)):  # a parent folder names the runs in it alone
        caplog.clear()
        [row] = compare(f"runs={sweep.root}/runs/{pattern}")["runs"]
        assert row["directory"].endswith("runs/done")
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == skipped
        assert all(message.isprintable() for message in messages)
        assert any(
            "runs/unscored has no metrics.json" in message and "evaluate.py run=" in message
            for message in messages
        )
        assert any("runs/broken/metrics.json is broken" in message for message in messages)
    assert (
        any("runs/left\\x1b[2J holds no run" in record.getMessage() for record in caplog.records)
        or not pattern
    )
    (sweep.root / "runs" / "done" / "metrics.json").unlink()
    with pytest.raises(UserError, match=r"no run is left to compare: .*runs/broken"):
        compare(f"runs={sweep.root}/runs/*")


@pytest.fixture
def systems(sweep) -> Sweep:
    """Two systems of three seeds, and one of a single run."""
    for seed in (1, 2, 3):
        sweep.write(f"dot_{seed}", seed=seed, choices={"attention": "luong_dot"})
        sweep.write(
            f"additive_{seed}", attention="AdditiveAttention", seed=seed, choices={"attention": "bahdanau"}
        )
    sweep.write("single", attention="NoAttention", choices={"attention": "none"})
    return sweep


def test_systems_are_compared_over_seeds_and_sentences_and_runs_are_marked_as_such(systems, capsys):
    result = compare(f"runs={systems.root}/runs")
    labels = ["attention=bahdanau", "attention=luong_dot", "attention=none"]
    found = [each for each in result["differences"] if each["metric"] == "bleu"]
    assert [(each["system"], each["other"], each["of"]) for each in found] == [
        (labels[0], labels[1], "systems"),
        (labels[0], labels[2], "runs"),
        (labels[1], labels[2], "runs"),
    ]
    scores = {label: [row["bleu"] for row in result["runs"] if row["system"] == label] for label in labels}
    assert found[0]["difference"] == pytest.approx(
        statistics.mean(scores[labels[0]]) - statistics.mean(scores[labels[1]])
    )
    report = capsys.readouterr().out
    assert "BLEU p (run)" in report
    assert "from the run attention=bahdanau seed=1" in report
    [matrix] = [table for table in report.split("\n\n") if table.startswith("| BLEU: row − column (p)")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in matrix.splitlines()[2:]]
    assert [cell[0] for cell in cells] == [f"{number} {label}" for number, label in enumerate(labels, 1)]
    assert cells[0][2].startswith(f"{found[0]['difference']:+.2f} (")
    assert cells[1][1].startswith(f"{-found[0]['difference']:+.2f} (")
    assert ["†" in cell for cell in cells[2][1:3]] == [True, True]
    assert "†" not in cells[0][2]
    assert [cells[number][number + 1] for number in range(3)] == [""] * 3


@pytest.mark.parametrize(
    ("baseline", "first", "system"),
    [
        ("attention=luong_dot", "attention=luong_dot seed=1", "attention=luong_dot"),
        ("luong_dot", "attention=luong_dot seed=1", "attention=luong_dot"),
        ("attention=luong_dot seed=2", "attention=luong_dot seed=2", "attention=luong_dot"),
        ("DIRECTORY/dot_3", "attention=luong_dot seed=3", "attention=luong_dot"),
        ("none", "attention=none", "attention=none"),
    ],
)
def test_the_others_are_compared_with_a_baseline_run_or_system(systems, baseline, first, system, capsys):
    named = baseline.replace("DIRECTORY", f"{systems.root}/runs")
    result = compare(f"runs={systems.root}/runs", f"baseline='{named}'")
    assert [row["run"] for row in result["runs"] if row["bleu_p_bootstrap"] is None] == [first]
    found = [each for each in result["differences"] if each["metric"] == "ter"]
    assert {each["other"] for each in found} == {system}
    assert len(found) == 2
    report = capsys.readouterr().out
    assert f"| difference from {system} (p) |" in report
    assert f" {found[0]['difference']:+.2f} ± {found[0]['ci']:.2f} (" in report


def test_a_baseline_that_is_no_run_is_refused(systems):
    with pytest.raises(
        UserError, match=r"^baseline=x names none of.*: give one of attention=bahdanau, .*seed=1"
    ):
        compare(f"runs={systems.root}/runs", "baseline=x")


def test_the_columns_of_the_tables_are_chosen(systems, capsys):
    result = compare(f"runs={systems.root}/runs", "columns=[ter,bleu]", f"output={systems.root}/out")
    tables_shown = [each for each in capsys.readouterr().out.split("\n\n") if each.startswith("| ")]
    headers = [[cell.strip() for cell in table.splitlines()[0].split("|")[1:-1]] for table in tables_shown]
    assert headers[0] == ["run", "TER", "TER p (run)", "BLEU", "BLEU p (run)"]
    assert headers[1] == ["mean ± standard deviation", "runs", "TER", "BLEU"]
    assert [header[0] for header in headers[2:4]] == ["TER: row − column (p)", "BLEU: row − column (p)"]
    assert "chrf" in result["runs"][0]
    assert " & TER & BLEU " in (systems.root / "out" / "comparison.tex").read_text("utf-8")
    with pytest.raises(UserError, match=r"^columns: no run has aer: choose from bleu, chrf, ter$"):
        compare(f"runs={systems.root}/runs", "columns=[bleu,aer]")


def test_a_latex_table_has_the_best_of_each_score_in_bold():
    averages = [
        {
            "run": "a_1",
            "num_runs": 3,
            "bleu": {"mean": 30.0, "std": 0.5},
            "ter": {"mean": 50.0, "std": 1},
            "num_parameters": {"mean": 11_432, "std": 0.0},
        },
        {"run": "b", "num_runs": 1, "bleu": {"mean": 31.0, "std": None}, "ter": {"mean": 51.0, "std": None}},
        {"run": "c", "num_runs": 2, "bleu": {"mean": 31.0, "std": 0.1}},
    ]
    columns = {"bleu": "BLEU", "ter": "TER", "num_parameters": "parameters"}
    lines = tables.to_latex(averages, columns, "- BLEU: `nrefs:1`", lower=["ter"]).splitlines()
    assert lines[0] == "% \\usepackage{booktabs}"
    assert "nrefs:1" in lines[1]
    assert "bold" in lines[2]
    assert lines[3:] == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r" & BLEU & TER & parameters \\",
        r"\midrule",
        r"a\_1 & 30.00 $\pm$ 0.50 & \textbf{50.00} $\pm$ 1.00 & 11,432 \\",
        r"b & \textbf{31.00} & 51.00 & – \\",
        r"c & \textbf{31.00} $\pm$ 0.10 & – & – \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


@pytest.mark.parametrize(
    ("baseline", "p_a", "rows"),
    [
        (None, 0.2, [r"a & \textbf{30.00} \\", r"b & 29.00 \\", r"c & \textbf{31.00} \\"]),
        ("a", 0.01, [r"a & 30.00 \\", r"b & 29.00 \\", r"c & \textbf{31.00}$^{*}$ \\"]),
    ],
)
def test_a_latex_table_shows_which_differences_are_real(baseline, p_a, rows):
    averages = [
        {"run": run, "num_runs": 1, "bleu": {"mean": mean, "std": 0.0}}
        for run, mean in (("a", 30), ("b", 29), ("c", 31))
    ]
    found = [
        {"metric": "bleu", "system": ours, "other": other, "p_holm": p}
        for ours, other, p in (("a", "b", 0.3), ("c", "a", p_a), ("b", "c", 0.01))
        if baseline in (None, ours, other)
    ]
    text = tables.to_latex(averages, {"bleu": "BLEU"}, "", lower=[], differences=found, baseline=baseline)
    assert text.splitlines()[-5:-2] == rows


def test_plots_have_a_line_for_each_system_in_the_formats_that_are_asked_for(systems, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plotting, "to_png", lambda figure, path: drawn.update({Path(path).name: figure}))
    output = systems.root / "out"
    compare(f"runs={systems.root}/runs", f"output={output}", "formats=[png,pdf,svg]")
    assert (output / "bleu_by_length.pdf").read_bytes().startswith(b"%PDF")
    assert b"<svg" in (output / "bleu_by_length.svg").read_bytes()
    figure = drawn["bleu_by_length.png"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "attention=bahdanau, mean ± standard deviation of 3 runs",
        "attention=luong_dot, mean ± standard deviation of 3 runs",
        "attention=none",
    ]
    assert "bleu_by_length.png" in (output / "comparison.md").read_text("utf-8")


def test_choices_and_seeds_of_a_run_end_no_comment_of_latex(sweep):
    evil = "x\n\\input{/etc/passwd}\n\x1b[2J"
    for name in ("a", "b"):  # a is named in the comment as the baseline
        for seed in (1, 2):
            sweep.write(f"{name}{seed}", seed=f"{seed}{evil}", choices={"data": f"{evil}{name}"})
    compare(f"runs={sweep.root}/runs", f"output={sweep.root}/out")
    for kind in ("tex", "md"):
        text = (sweep.root / f"out/comparison.{kind}").read_text("utf-8")
        assert all(line.isprintable() for line in text.split("\n"))
        assert "\n\\input" not in text


def test_text_of_a_run_is_text_in_a_terminal_a_page_a_spreadsheet_and_latex(sweep):
    script, link, control = "<script>alert(1)</script>", "[x](http://evil)`*\\", "\x1b]0;owned\x07\x9b2J\n"
    training = {"command": "=cmd|' /C calc'!A0", "commit": "\t@SUM(1)", "steps": 3}
    extra = {"training": training, "attention": {"<b>\x1b": 0.5, "=1+1": 0.5}}
    runs = [sweep.write("a", lr=f"{script}{control}", extra=extra)]
    runs += [sweep.write("b", lr=f"{link}\\input{{/etc/passwd}}%$&#_^~", extra=extra)]
    output = sweep.root / "out"
    ended = run("compare", f"runs=[{runs[0]},{runs[1]}]", *FAST, f"output={output}", cwd=sweep.root)
    assert ended.status == 0, ended.err
    for text in (ended.out, (output / "comparison.md").read_text("utf-8")):
        assert all(line.isprintable() for line in text.split("\n"))
        assert "<script>" not in text
        assert "<b>" not in text
        assert r"&lt;script>alert(1)&lt;/script>\\x1b\]0;owned" in text
        assert r"\[x\](http://evil)\`\*\\\\input{" in text
    with (output / "comparison.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["command"] == f"'{training['command']}"
    assert rows[0]["commit"] == "'@SUM(1)"
    for cell in [*rows[0], *(cell for row in rows for cell in row.values())]:
        assert not cell.lstrip().startswith(("=", "+", "@"))
    table = (output / "comparison.tex").read_text("utf-8")
    assert r"\textbackslash{}input\{/etc/passwd\}\%\$\&\#\_\textasciicircum{}\textasciitilde{}" in table
    for name in ("=1+1", "c"):  # which differ in nothing, and so are called by their directories
        sweep.write(f"twins/{name}")
    rows = compare(f"runs={sweep.root}/runs/twins", f"output={output}")["runs"]
    assert [row["run"] for row in rows] == ["=1+1", "c"]
    assert "\n'=1+1," in (output / "comparison.csv").read_text("utf-8")


def elsewhere(sweep: Sweep, name: str, **scores) -> Path:
    """Scores as evaluate.py's `output` leaves them: without a configuration."""
    directory = sweep.write(name, extra=scores)
    (directory / "config.yaml").unlink()
    return directory


def test_scores_that_stand_apart_from_their_runs_are_compared_too(sweep, capsys):
    """Those of one run decoded otherwise, and those of an ensemble."""
    runs = [sweep.write("a"), sweep.write("b", attention="AdditiveAttention")]
    greedy = elsewhere(sweep, "greedy", run=str(runs[0]), decoding={"beam_size": 1})
    both = elsewhere(sweep, "both", ensemble=[str(run) for run in runs])
    rows = compare(f"runs=[{runs[0]},{greedy},{both}]")["runs"]
    assert [row["directory"] for row in rows] == [str(runs[0]), str(greedy), str(both)]
    assert "beam_size=1" in rows[1]["run"]
    assert "ensemble=a+b" in rows[2]["run"]
    assert rows[2]["bleu_p_bootstrap"] <= 1
    said = capsys.readouterr().out
    assert f"- BLEU: `{rows[0]['bleu_signature']}`" in said
    (runs[0] / "config.yaml").unlink()
    with pytest.raises(
        UserError, match=rf"{greedy} has no config.yaml, and {runs[0]} is no run; .* output={greedy}"
    ):
        compare(f"runs=[{runs[1]},{greedy}]")


@pytest.mark.slow
def test_a_sweep_of_comparisons_leaves_nothing_behind(sweep):
    sweep.write("a")
    before = sorted(sweep.root.rglob("*"))
    arguments = [
        f"runs={sweep.root}/runs",
        f"refs={sweep.root}/data/test.en",
        "num_bootstrap=5",
        "num_trials=5,6",
    ]
    command = [sys.executable, str(ROOT / "scripts" / "compare.py"), "-m", *arguments]
    environment = {**os.environ, "TMPDIR": str(sweep.root)}
    result = subprocess.run(command, capture_output=True, cwd=sweep.root, env=environment, check=False)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.count(b"test, 60 sentences") == 2
    assert b"HYDRA" in result.stderr
    assert b"HYDRA" not in result.stdout
    assert sorted(sweep.root.rglob("*")) == before


def test_the_files_are_written_though_nobody_reads_the_tables(sweep):
    directory, output = sweep.write("a"), sweep.root / "unread"
    arguments = [f"runs=[{directory}]", f"output={output}", "num_bootstrap=5", "num_trials=5"]
    with unread() as stdout:
        ended = run("compare", *arguments, cwd=sweep.root, stdout=stdout)
    assert ended.status == 0, ended.err
    assert {each.name for each in output.iterdir()} >= {"comparison.md", "comparison.csv", "comparison.json"}


def test_a_run_that_was_not_scored_ends_the_command_with_one_line(sweep):
    directory = sweep.write("a")
    (directory / "metrics.json").unlink()
    ended = run("compare", f"runs=[{directory}]", cwd=sweep.root)
    assert ended.status == 1
    [line] = ended.err.splitlines()
    assert line == (
        f"compare.py: error: {directory} has no metrics.json;"
        f" score it with: python scripts/evaluate.py run={directory} split=test"
    )
    for name in ("metrics.json", "hypotheses.txt"):
        (directory / name.replace(".", "_val.")).write_text("{}")
    refused(run("compare", f"runs=[{directory}]", cwd=sweep.root), "it was scored on val: give split=val")


def store_metrics(directory: Path, **bleu: object) -> None:
    config = yaml.safe_load((directory / "config.yaml").read_text("utf-8"))
    config["metrics"] = {
        "bleu": {"_target_": "nmt.metrics.Bleu", "lowercase": False, "tokenize": "13a", **bleu}
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")


def test_runs_are_scored_by_the_metrics_that_they_store_unless_others_are_given(sweep):
    runs = [sweep.write("a"), sweep.write("b", lr=0.1)]
    for directory in runs:
        store_metrics(directory, tokenize="char")
    [first, _] = compare(f"runs={sweep.root}/runs")["runs"]
    assert "tok:char" in first["bleu_signature"]
    assert "chrf" not in first
    [first, _] = compare(f"runs={sweep.root}/runs", "metrics.bleu.lowercase=true")["runs"]
    assert "case:lc" in first["bleu_signature"]
    assert "tok:char" in first["bleu_signature"]
    [first, _] = compare(f"runs={sweep.root}/runs", "metrics=translation")["runs"]
    assert "tok:13a" in first["bleu_signature"]
    assert "chrf" in first


def test_runs_that_store_different_metrics_are_refused_with_both_named(sweep):
    for name, tokenize in (("a", "13a"), ("b", "13a"), ("c", "zh")):
        store_metrics(sweep.write(name), tokenize=tokenize)
    message = (
        r"runs/a and .*runs/c store different metrics \(bleu.tokenize: 13a and zh\): give metrics=CHOICE"
    )
    with pytest.raises(UserError, match=message):
        compare(f"runs={sweep.root}/runs")
    compare(f"runs={sweep.root}/runs", "metrics=translation", "metrics.bleu.tokenize=char")
    (sweep.root / "runs" / "c" / "metrics.json").unlink()  # it is skipped, and so are its metrics
    assert len(compare(f"runs={sweep.root}/runs")["runs"]) == 2


def test_runs_scored_on_other_references_are_refused(sweep):
    sweep.write_data("other", [*sweep.references[:-1], "another sentence"])
    sweep.write("a")
    sweep.write("b", data="other")
    with pytest.raises(UserError, match=r"runs/b was scored on other sentences than .*runs/a"):
        compare(f"runs={sweep.root}/runs")


def test_the_data_of_the_first_run_must_be_what_it_was_scored_on(sweep):
    directory = sweep.write("a")
    (sweep.root / "data" / "test.en").write_text(lines(["x", *sweep.references[1:]]), "utf-8")
    with pytest.raises(UserError, match=r"runs/a was scored on other sentences than its data now hold"):
        compare(f"runs=[{directory}]")


def test_references_from_a_file_stand_in_for_data_that_are_gone(sweep):
    for name in "ab":
        sweep.write(name)
    expected = compare(f"runs={sweep.root}/runs")["runs"]
    (sweep.root / "data").rename(sweep.root / "moved")
    with pytest.raises(UserError, match=r"runs/a: .*data is no folder.*refs=FILE"):
        compare(f"runs={sweep.root}/runs")
    result = compare(f"runs={sweep.root}/runs", f"refs={sweep.root}/moved/test.en")
    assert result["runs"] == expected
    assert "bleu_by_length" not in result
    of_windows = sweep.root / "windows.en"  # with a byte order mark, carriage returns and no last line feed
    lines = (sweep.root / "moved" / "test.en").read_text("utf-8").splitlines()
    of_windows.write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    assert compare(f"runs={sweep.root}/runs", f"refs={of_windows}")["runs"] == expected


def test_several_references_are_those_of_the_data_or_of_files(sweep):
    directory = sweep.write("a")
    hypotheses = (directory / "hypotheses.txt").read_text("utf-8").splitlines()
    second = [line.replace("small", "little") for line in sweep.references[:-1]] + [hypotheses[-1]]
    file = sweep.root / "second.en"
    file.write_text(lines(second), "utf-8")
    score = BLEU(force=True).corpus_score(hypotheses, [sweep.references, second]).score
    [row] = compare(f"runs=[{directory}]", f"refs=[{sweep.root}/data/test.en,{file}]")["runs"]
    assert row["bleu"] == pytest.approx(score)
    assert row["bleu_signature"].startswith("nrefs:2|")
    file.rename(sweep.root / "data" / "test.1.en")
    scores = json.loads((directory / "metrics.json").read_text("utf-8"))
    scores["references"] = metrics.digest(sweep.sources, [sweep.references, second])
    (directory / "metrics.json").write_text(json.dumps(scores), "utf-8")
    result = compare(f"runs=[{directory}]")
    assert result["runs"] == [row]
    assert result["bleu_by_length"]["scores"]
    (sweep.root / "short.en").write_text("x\n", "utf-8")
    with pytest.raises(UserError, match=r"short\.en has 1 lines for 60 sentences"):
        compare(f"runs=[{directory}]", f"refs=[{sweep.root}/data/test.en,{sweep.root}/short.en]")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics.json", "{", "metrics.json is broken"),
        ("metrics.json", "[]", "metrics.json is broken"),
        ("metrics.json", '{"ensemble": 5}', "metrics.json is broken .*ensemble=5"),
        ("metrics.json", '{"decoding": 5}', "metrics.json is broken .*decoding=5"),
        ("metrics.json", "[" * 100_000, "metrics.json is broken"),
        ("config.yaml", "a: [", "config.yaml is not YAML"),
        ("config.yaml", "- 1", "config.yaml is broken"),
        ("config.yaml", "seed: 1", "config.yaml is broken"),
    ],
)
def test_a_broken_run_directory_is_named(sweep, file, text, message):
    directory = sweep.write("a")
    (directory / file).write_text(text, "utf-8")
    with pytest.raises(UserError, match=rf"runs/a.*{message}"):
        compare(f"runs=[{directory}]")


def test_the_faithfulness_that_runs_have_stored_is_one_table(sweep, capsys):
    def summary(score: float) -> dict:
        interval = {"score": score, "ci": 0.01}
        of_all = dict.fromkeys(("comprehensiveness", "sufficiency", "tau"), interval)
        return {"num_sentences": 30, "lost": [score] * 4, **of_all}

    stored = {"gradient": summary(0.1), "attention": summary(0.2)}
    runs = [sweep.write("a"), sweep.write("b", attention="AdditiveAttention", extra={"explanations": stored})]
    usual = json.loads((runs[0] / "metrics.json").read_text("utf-8"))
    for age, (folder, found, more) in enumerate(
        (
            ("last", summary(0.3), {"checkpoint": "last"}),
            ("damaged", {"tau": {"score": "x"}}, {}),
            ("new", summary(0.4), {}),
            ("old", summary(0.5), {}),
        )
    ):
        file = runs[0] / "evaluations" / folder / "metrics.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(usual | {"explanations": {"gradient": found}} | more), "utf-8")
        os.utime(file, (9e8 - age, 9e8 - age))
    output = sweep.root / "out"
    result = compare(f"runs=[{runs[0]},{runs[1]}]", f"output={output}")
    labels = [row["run"] for row in result["runs"]]
    assert result["explanations"] == {labels[0]: {"gradient": summary(0.4)}, labels[1]: stored}
    table = [line for line in capsys.readouterr().out.splitlines() if " 30 |" in line]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert cells == [
        [labels[0], "gradient", "30", *["0.400 ± 0.010"] * 3],
        [labels[1], "gradient", "30", *["0.100 ± 0.010"] * 3],
        [labels[1], "attention", "30", *["0.200 ± 0.010"] * 3],
    ]
    assert "![explanations](explanations.png)" in (output / "comparison.md").read_text("utf-8")
    assert (output / "explanations.png").stat().st_size > 1000


def test_extras_that_are_damaged_are_left_out(sweep):
    damaged = {
        "aer": {"score": "x"},
        "attention": {"a": "<b>", "entropy": 1.5},
        "importance": {"precision": 10**400},
        "training": [],
    }
    sweep.write("a", extra=damaged)
    [row] = compare(f"runs={sweep.root}/runs")["runs"]
    assert row["attention/entropy"] == 1.5
    assert not {"aer", "attention/a", "importance/precision", "steps"} & row.keys()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("split=dev", "^split=dev: Input should be 'train', 'val' or 'test'"),
        ("num_bootstrap=1", "need resamples"),
        ("num_bootstrap=-5", "^num_bootstrap=-5: Input should be greater"),
        ("split=val", "has no metrics_val.json"),
        ("formats=[svg]", "formats= has no effect without output=DIR"),
    ],
)
def test_settings_that_cannot_be_are_refused(sweep, override, message):
    directory = sweep.write("a")
    with pytest.raises(UserError, match=message):
        compare(f"runs=[{directory}]", override)


def test_a_file_of_another_programs_translations_is_a_row_with_the_same_tests(sweep):
    first, other = sweep.write("a"), sweep.write("b", attention="AdditiveAttention")
    file = sweep.root / "other.txt"
    shutil.copy(other / "hypotheses.txt", file)
    runs = compare(f"runs=[{first},{other}]")["runs"]
    _, system = compare(f"runs=[{first}]", f"systems=[{file}]")["runs"]
    assert system["run"] == str(file)
    for name in ("bleu", "bleu_ci", "bleu_p_bootstrap", "bleu_p_randomization", "ter"):
        assert system[name] == runs[1][name]
    file.write_text("one line\n")
    with pytest.raises(UserError, match=r"other\.txt has 1 hypotheses but there are 60 references"):
        compare(f"runs=[{first}]", f"systems=[{file}]")
