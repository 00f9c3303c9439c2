"""Tables of results for README and docs, made from records.

A page marks the place of a table with `<!-- table NAME -->` and `<!-- end -->`; NAME is one of `TABLES`.
"""

import re
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nmt.comparison.tables import align_columns
from nmt.metrics import LABELS
from records import command_of, decimals, load, origin, score_of, table_with_note, table_with_origin, within

sys.path.append(str(Path(__file__).parents[1] / "scripts" / "workbench"))
sys.path.append(str(Path(__file__).parents[1] / "scripts" / "workbench" / "peers"))
from growth import growth_rows
from toolkits import table as table_of_toolkits

MARKED = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str) -> str:
    """The text with the table of each marked place written anew."""
    return MARKED.sub(lambda place: f"{place[1]}\n{TABLES[place[2]]()}\n\n{place[3]}", text)


def mechanisms() -> str:
    """Every mechanism on the built-in corpus."""
    record = load("earlier")["mechanisms"]
    lines = [["settings", "BLEU", "AER", "parameters"]]
    for row in record["rows"]:
        score, size = within(row["bleu"], row["ci"]), f"{row['parameters'] / 1e6:.2f}M"
        lines.append([f"`{row['settings']}`", score, decimals(row["aer"]), size])
    return table_with_note(lines, record)


def seeds(name: str) -> str:
    """Runs that differ in their seed alone, and their mean."""
    record = load(name)
    lines = [["settings", "BLEU", "AER", "steps"]]
    for run in record["runs"]:
        lines.append([command_of(run), score_of(run), decimals(run.get("aer")), f"{run['steps']:,}"])
    for each in record["seeds"]:
        aer = f"{each['aer']['mean']:.3f} ± {each['aer']['std']:.3f}" if "aer" in each else "–"
        lines.append([f"mean and deviation of {each['num_runs']}", score_of(each), aer, ""])
    return table_with_origin(lines, record["runs"])


def lengths(name: str) -> str:
    """BLEU by source length of each run of a comparison."""
    record = load(name)
    buckets = record["bleu_by_length"]
    lines = [["settings", *(f"{each} words" for each in buckets["buckets"])]]
    lines.append(["sentences", *map(str, buckets["num_sentences"])])
    for run, scores in zip(record["runs"], buckets["scores"], strict=True):
        lines.append([command_of(run), *(f"{score:.1f}" for score in scores)])
    return align_columns(lines)


def earlier_scores() -> str:
    lines = [["test set", "settings", "BLEU", "seeds", "epochs", "commit"]]
    for row in load("earlier")["scores"]:
        score = f"{row['bleu']}" if row["std"] is None else f"{row['bleu']} ± {row['std']}"
        cells = [row["data"], f"`{row['settings']}`", score, str(row["seeds"]), str(row["epochs"])]
        lines.append([*cells, f"`{row['commit']}`"])
    return align_columns(lines)


def toolkits(record: dict[str, Any], rows: str = "rows") -> str:
    return f"{beside_toolkits(record[rows])}\n\n{record['note']} Commit `{record['commit']}`."


def beside_toolkits(rows: Sequence[dict[str, Any]]) -> str:
    lines = [["work", "here", "toolkit", "there", "ratio"]]
    for row in rows:
        lines.append(
            [row["work"], f"{row['here']:,}", row["toolkit"], f"{row['there']:,}", f"{row['ratio']:.2f}"]
        )
    return align_columns(lines)


def gpu(max_tokens: int) -> str:
    """Training steps on a GPU, recorded, and beside them as the plain kernels run them."""
    lines = [["model", "precision", "steps/s", "pieces/s", "`plain`", "ratio", "memory, MiB", "products"]]
    for row in load("gpu")["rows"]:
        if row["max_tokens"] == max_tokens:
            here, plain = row["tokens_per_second"], row["plain_tokens_per_second"]
            memory = f"{row['memory_mib']:,} ({row['plain_memory_mib']:,})"
            cells = [
                row["model"],
                row["precision"],
                f"{row['steps_per_second']:.0f}",
                f"{here:,}",
                f"{plain:,}",
            ]
            lines.append([*cells, f"{here / plain:.2f}", memory, f"{100 * row['share']:.0f} %"])
    return align_columns(lines)


def gpu_decoding() -> str:
    record = load("gpu")
    return f"{beside_toolkits(record['decoding'])}\n\n{record['decoding_note']} Commit `{record['commit']}`."


def gpu_narrow() -> str:
    """Sentences a second of a model in several types of numbers."""
    rows = load("gpu")["narrow"]
    return align_columns(
        [
            [*rows[0]],
            *([f"{each:,}" if isinstance(each, int) else each for each in row.values()] for row in rows),
        ]
    )


def alignment() -> str:
    record = load("earlier")["alignment"]
    columns = list(record["rows"][0])
    lines = [columns]
    for row in record["rows"]:
        lines.append([row["model"], *(decimals(row[key]) for key in columns[1:])])
    return table_with_note(lines, record)


def reproduction() -> str:
    record = load("earlier")["reproduction"]
    lines = [["settings", "BLEU", "AER"]]
    for row in sorted(record["rows"], key=lambda row: -row["bleu"]):
        lines.append([f"`{row['settings']}`", within(row["bleu"], row["std"]), decimals(row["aer"])])
    return table_with_note(lines, record)


def options(name: str) -> str:
    """Runs of a comparison against the first: BLEU on the test set, p, parameters, training steps."""
    runs = load(name)["runs"]
    lines = [["settings", "BLEU", "p", "parameters", "steps"]]
    for run in runs:
        p = run["bleu_p_randomization"]
        chance = "< 0.001" if p is not None and p < 0.001 else decimals(p)
        sizes = f"{run['num_parameters']:,}", f"{run['steps']:,}"
        lines.append([command_of(run), score_of(run), chance, *sizes])
    return table_with_origin(lines, runs)


def documents(name: str, score: str) -> str:
    """Runs on documents: a score, and how well attention finds the sentences that matter."""
    runs = load(name)["runs"]
    lines = [["settings", LABELS[score], "precision at k", "mass", "parameters"]]
    for run in sorted(runs, key=lambda run: run["command"]):
        found = [f"{run[f'importance/{key}']:.2f}" for key in ("precision", "mass")]
        lines.append([command_of(run), score_of(run, score), *found, f"{run['num_parameters']:,}"])
    return table_with_origin(lines, runs)


def race(name: str) -> str:
    """Seconds from raw text to a validation BLEU, of each round."""
    record = load(name)
    lines = [["", f"seconds to {record['target']:g} BLEU", "best BLEU"]]
    for program, seconds in record["seconds"].items():
        best = (f"{max(bleu for _, _, bleu in run):.1f}" for run in record["curves"][program])
        reached = ("–" if each is None else f"{each:.0f}" for each in seconds)
        lines.append([program, ", ".join(reached), ", ".join(best)])
    return table_with_origin(lines, [record])


def means(name: str) -> str:
    """Runs that differ in their seed alone as one row: mean and deviation of BLEU, and training steps."""
    runs = load(name)["runs"]
    alike: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        alike.setdefault(re.sub(r" seed=\d+", "", command_of(run)), []).append(run)
    lines = [["settings", "BLEU", "seeds", "steps"]]
    for settings, group in alike.items():
        scores = [run["bleu"] for run in group]
        score = within(statistics.mean(scores), statistics.stdev(scores))
        lines.append([settings, score, str(len(group)), f"{group[0]['steps']:,}"])
    return table_with_origin(lines, runs)


def growth(axis: str) -> str:
    """What training costs at each value of an axis; pieces/s beside those of an earlier commit, where there are any."""
    points = load("growth_corpora" if axis == "corpora" else "growth")["growth"][axis]
    lines = growth_rows(axis, points)
    if earlier := load("growth_before")["growth"].get(axis):
        before = ["before: target pieces/s", *(f"{each['per_second']['median']:,.0f}" for each in earlier)]
        lines = [[row[0], cell, *row[1:]] for row, cell in zip(lines, before, strict=True)]
    return align_columns(lines)


def growth_origin() -> str:
    record, corpora, before = load("growth"), load("growth_corpora"), load("growth_before")
    return (
        "Measured by commands that are now `scripts/workbench/growth.py` and `corpora.py`: "
        f"`{record['command']}`; `{corpora['command']}`. {origin([record, corpora])} "
        f"{corpora['note']} Before: commit `{before['commit']}`, on the same machine."
    )


def readme_results() -> str:
    """Ten rows at most: the default run, attention against the bottleneck, real text."""
    [default] = load("default")["seeds"]
    lines = [["test set", "settings", "BLEU", "AER"]]
    aer = decimals(default["aer"]["mean"])
    lines.append(["built-in en→vi, 3 seeds", "the defaults", score_of(default), aer])
    for run in load("multi30k_fast")["runs"][:2]:
        lines.append(["Multi30k de→en, 4 epochs", command_of(run), score_of(run), "–"])
    guided = "experiment=multi30k_transformer_guided data.path=DIR"
    longer = f"{guided} trainer.max_epochs=22"
    en_de = f"{guided} data.src_lang=en data.tgt_lang=de"
    rows = [
        ("Multi30k de→en, test 2016", load("multi30k_wide")["seeds"][0], "experiment=multi30k_gru_wide"),
        ("Multi30k de→en, test 2016", load("multi30k_longer")["seeds"][0], longer),
        ("Multi30k en→de, test 2016", load("multi30k_transformer_en_de")["seeds"][0], en_de),
        ("EVBNews en→vi", load("evbnews_votes")["seeds"][0], "experiment=evbnews_en_vi_wide data.path=DIR"),
    ]
    for name, run, settings in rows:
        precision = "one in bfloat16" if settings == longer else "in bfloat16"
        lines.append([f"{name}, {run['num_runs']} seeds, {precision}", f"`{settings}`", score_of(run), "–"])
    chosen = "_gru_ema", "_lower data.src_lang=en data.tgt_lang=de"
    earlier = [
        [f"{row['data']}, {row['seeds']} seeds", f"`{row['settings']}`", f"{row['bleu']} ± {row['std']}", "–"]
        for row in load("earlier")["scores"]
        if row["seeds"] > 1 and row["settings"].endswith(chosen)
    ]
    return align_columns([*lines[:-1], *earlier, lines[-1]])


def how_long() -> str:
    """Size, minutes and score of trainings on one core."""
    captions, news = "Multi30k de→en, 29,000 short", "EVBNews en→vi, 42,367 of news"
    longer = "`experiment=multi30k_transformer_guided trainer.max_epochs=22`, bfloat16"
    chosen = (
        ("built-in en→vi, 20,000 short", "muon_builtin", "`optimizer=muon trainer.max_epochs=3`"),
        (captions, "speedrun_parts", "two epochs of large batches, Muon"),
        (captions, "diversification", "`experiment=multi30k_gru_muon`"),
        (captions, "multi30k_wide", "`experiment=multi30k_gru_wide`, bfloat16"),
        (captions, "multi30k_votes", longer),
        (news, "evbnews", "half the width, no votes, no guidance"),
        (news, "evbnews_votes", "`experiment=evbnews_en_vi_wide`, bfloat16"),
    )
    lines = [["training pairs", "settings", "parameters", "steps", "minutes", "BLEU"]]
    for pairs, record, settings in chosen:
        run = load(record)["runs"][0]
        size, minutes = f"{run['num_parameters'] / 1e6:.1f}M", f"{run['seconds'] / 60:.0f}"
        lines.append([pairs, settings, size, f"{run['steps']:,}", minutes, score_of(run)])
    return align_columns(lines)


def peers(name: str) -> str:
    """Every toolkit, measured in one run."""
    record = load(name)
    return f"{table_of_toolkits(record['rows'])}\n\n{origin([record])}"


def readme_toolkits() -> str:
    """Training and beam search beside the fastest other toolkit, six rows."""
    rows = load("peers")["rows"]
    left_out = ("greedy", "int8", "general, input feeding")
    return beside_toolkits([row for row in rows if not any(each in row["work"] for each in left_out)])


COMPARED = (
    "multi30k_fast", "diversification", "diversification_en_de", "evbnews", "evbnews_wide",
    "evbnews_rotary", "evbnews_r_drop", "multi30k_votes", "multi30k_transformer_en_de",
    "multi30k_wide_en_de", "multi30k_wide_pieces", "r_drop", "r_drop_pieces", "r_drop_en_de",
    "multi30k_tried", "multi30k_transformer",
)  # fmt: skip
SEEDS = ("default", "muon_builtin", "evbnews_votes", "multi30k_longer", "multi30k_wide")
TABLES: dict[str, Callable[[], str]] = {
    **{name: partial(options, name) for name in COMPARED},
    **{name: partial(seeds, name) for name in SEEDS},
    **{name: partial(peers, name) for name in ("peers", "peers_amd")},
    **{f"growth_{axis}": partial(growth, axis) for axis in ("lengths", "widths", "vocabularies", "corpora")},
    "mechanisms": mechanisms,
    "multi30k_lengths": lambda: lengths("multi30k_fast"),
    "evbnews_lengths": lambda: lengths("evbnews"),
    "earlier_scores": earlier_scores,
    "toolkits": lambda: toolkits(load("earlier")["toolkits"]),
    "toolkits_avx2": lambda: toolkits(load("toolkits_avx2")),
    "toolkits_amx": lambda: toolkits(load("toolkits_amx")),
    "gpu_4096": lambda: gpu(4096),
    "gpu_16384": lambda: gpu(16384),
    "gpu_beside": lambda: toolkits(load("gpu"), "beside"),
    "gpu_decoding": gpu_decoding,
    "gpu_narrow": gpu_narrow,
    "alignment": alignment,
    "reproduction": reproduction,
    "documents": lambda: documents("documents", "exact_match"),
    "summaries": lambda: documents("summaries", "bleu"),
    "race": lambda: race("speedrun"),
    "race_as_avx2": lambda: race("speedrun_as_avx2"),
    "race_avx2": lambda: race("speedrun_avx2"),
    "race_parts": lambda: means("speedrun_parts"),
    "growth_origin": growth_origin,
    "how_long": how_long,
    "readme_results": readme_results,
    "readme_toolkits": readme_toolkits,
}
