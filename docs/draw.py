"""Make the committed pictures of README and docs: `make pictures RUN=RUN_DIR DOCUMENTS=RUN_DIR`.

They are drawn from a run of the default settings and from one of experiment=document_classification.

Plots of results are drawn from the records in `docs/results/`.
"""

import shutil
import sys
from pathlib import Path

import records
from nmt import Run, plotting

PICTURES = Path(__file__).parent / "pictures"
SENTENCE = "she will clean our big chair when that boy feeds the cow ."
DOCUMENT = (
    "the nurse wants to cook this meat . ¶ Linh will listen to the song . ¶ they have not found the key . ¶ "
    "who closed the old gate ? ¶ she sings . ¶ the cow is sleeping ."
)
MOST_BYTES = 300_000


def main(run_dir: Path, documents: Path) -> None:
    animations = sorted(run_dir.glob("alignments/*.gif"))
    if not animations:
        sys.exit(f"{run_dir} has no alignments/*.gif: give a run that has ended, by RUN=RUN_DIR")
    shutil.copy(animations[-1], PICTURES / "alignment.gif")
    best = Run.load(run_dir, device="cpu").translate([SENTENCE])[0]
    figure = plotting.heatmap(best.weights, best.source_words, best.target_words)
    plotting.to_png(figure, PICTURES / "heatmap.png")
    best = Run.load(documents, device="cpu").translate([DOCUMENT])[0]
    picture = plotting.document(best.weights, best.source_words, best.target_words, title="label")
    plotting.to_png(picture, PICTURES / "document.png")
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
    main(*map(Path, sys.argv[1:]))
