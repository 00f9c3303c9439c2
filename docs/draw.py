"""Make the committed pictures of README and docs: `make pictures RUN=RUN_DIR DOCUMENTS=RUN_DIR`.

They are drawn from a run of the default settings, from one of experiment=document_classification, and from the results
of the first chapter's notebook.

Plots of results are drawn from the records in `docs/results/`. Those of the playground need
the extra `demo`, playwright, a Chromium on the path, and a network.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from matplotlib.figure import Figure

import records
import result_tables  # noqa: F401  first: it adds the workbench to the path
from growth import growth_panels
from nmt import Run, plotting
from nmt.alignment import parse_talp

PICTURES = Path(__file__).parent / "pictures"
CHAPTER = Path(__file__).parent / "learn" / "01_bottleneck.ipynb"
SHORT_SENTENCE = "the old teacher reads a book ."
DOCUMENT = (
    "the nurse wants to cook this meat . ¶ Linh will listen to the song . ¶ they have not found the key . ¶ "
    "who closed the old gate ? ¶ she sings . ¶ the cow is sleeping ."
)
MOST_BYTES = 300_000
PORT = 7861


def main(run_dir: Path, documents: Path) -> None:
    animations = sorted(run_dir.glob("alignments/*.gif"))
    if not animations:
        sys.exit(f"{run_dir} has no alignments/*.gif: give a run that has ended, by RUN=RUN_DIR")
    shutil.copy(animations[0], PICTURES / "alignment.gif")
    plotting.to_png(bottleneck(), PICTURES / "bottleneck.png")
    plotting.to_png(right_alignment(Run.load(run_dir, device="cpu")), PICTURES / "heatmap.png")
    photograph_playground(run_dir)
    best = Run.load(documents, device="cpu").translate([DOCUMENT])[0]
    picture = plotting.document(best.weights, best.source_words, best.target_words, title="label")
    plotting.to_png(picture, PICTURES / "document.png")
    record = records.load("multi30k_fast")
    lengths = record["bleu_by_length"]
    scores = {run["run"]: [each] for run, each in zip(record["runs"], lengths["scores"], strict=True)}
    figure = plotting.bleu_by_length(lengths["buckets"], scores, lengths["num_sentences"])
    plotting.to_png(figure, PICTURES / "multi30k_lengths.png")
    axes = records.load("growth")["growth"] | records.load("growth_corpora")["growth"]
    plotting.to_png(growth_panels(axes), PICTURES / "growth.png")
    for file in PICTURES.iterdir():
        if file.stat().st_size > MOST_BYTES:
            sys.exit(f"{file} has {file.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
        print(f"{file.name}: {file.stat().st_size:,} bytes")


def bottleneck() -> Figure:
    """The share of right digits by length, with and without attention, as printed in the first chapter's notebook."""
    cells = json.loads(CHAPTER.read_text("utf-8"))["cells"]
    texts = ["".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", ())]
    table = next(text for text in texts if text.startswith("length")).splitlines()
    lengths, *shares = ([float(word) for word in line[12:].split()] for line in table)
    names = ("without attention", "with attention")
    systems = {name: [(lengths, each)] for name, each in zip(names, shares, strict=True)}
    labels = {"ylabel": "share of digits that are right", "xlabel": "digits in the number"}
    figure = plotting.learning_curves(systems, **labels)
    figure.axes[0].set_ylim(0, 1.05)
    figure.axes[0].set_xticks(lengths)
    return figure


def right_alignment(run: Run) -> Figure:
    """The first test sentence of 9 to 11 words and two clauses whose translation and links are all right."""
    rows = [row for row in run.split("test") if 9 <= len(row["src"].split()) <= 11 and " when " in row["src"]]
    for row, found in zip(rows, run.translate([row["src"] for row in rows]), strict=True):
        sure, possible = parse_talp(row["alignment"])
        if found.text == row["tgt"] and sure <= found.links <= possible:
            return plotting.heatmap(found.weights, found.source_words, found.target_words, gold=possible)
    sys.exit("no such test sentence: train longer")


def photograph_playground(run_dir: Path) -> None:
    """Pictures of a word's alternatives, and of a validation early in training."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "nmt.commands", "demo", f"run={run_dir}", f"port={PORT}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as driver:
        assert server.stdout is not None
        next(line for line in server.stdout if "the playground is at" in line)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1240})
        page.goto(f"http://127.0.0.1:{PORT}/#text={quote(SHORT_SENTENCE)}")
        page.locator("#view .target .word").nth(2).click(timeout=60_000)
        page.locator("#sources input").nth(3).check()
        _photograph(page, "playground.png")
        page.set_viewport_size({"width": 1000, "height": 660})
        page.locator("summary", has_text="during training").click()
        slider = page.locator("#history input").first
        slider.fill(str(int(slider.get_attribute("max") or 0) // 3))
        slider.scroll_into_view_if_needed()
        _photograph(page, "over_time.png")
        browser.close()
        server.terminate()


def _photograph(page: Any, name: str) -> None:
    page.wait_for_timeout(1000)  # until nothing moves
    page.screenshot(path=PICTURES / name)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
