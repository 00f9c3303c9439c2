"""Make the committed pictures of README and docs from a run of the default settings: `make pictures RUN=RUN_DIR`."""

import shutil
import sys
from pathlib import Path

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
    for file in PICTURES.iterdir():
        if file.stat().st_size > MOST_BYTES:
            sys.exit(f"{file} has {file.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
        print(f"{file.name}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
