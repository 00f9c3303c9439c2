"""Make the committed pictures of README and docs: `make pictures RUN=RUN_DIR`, a run of the default settings.

Plots of results are drawn from the records in `docs/results/`.
"""

import shutil
import sys
from pathlib import Path

import records
from nmt import Run, plotting

PICTURES = Path(__file__).parent / "pictures"
SENTENCE = "she will clean our big chair when that boy feeds the cow ."
MOST_BYTES = 300_000


def main(run_dir: Path) -> None:
    animations = sorted(run_dir.glob("alignments/*.gif"))
    if not animations:
        sys.exit(f"{run_dir} has no alignments/*.gif: give a run that has ended, by RUN=RUN_DIR")
    shutil.copy(animations[-1], PICTURES / "alignment.gif")
    best = Run.load(run_dir, device="cpu").translate([SENTENCE])[0]
    figure = plotting.heatmap(best.weights, best.source_words, best.target_words)
    plotting.to_png(figure, PICTURES / "heatmap.png")
    record = records.load("multi30k_fast")
    lengths = record["bleu_by_length"]
    names = [run["run"] for run in record["runs"]]
    figure = plotting.bleu_by_length(lengths["buckets"], dict(zip(names, lengths["scores"], strict=True)))
    plotting.to_png(figure, PICTURES / "multi30k_lengths.png")
    for file in PICTURES.iterdir():
        if file.stat().st_size > MOST_BYTES:
            sys.exit(f"{file} has {file.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
        print(f"{file.name}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
