"""Run the chapters of Learn and keep their results: `docs/learn/NAME.md` is the source of the notebook `NAME.ipynb`.

python docs/execute.py                    runs all chapters
python docs/execute.py 01_bottleneck …    runs these
"""

import sys
from pathlib import Path

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from nbclient import NotebookClient
from nbformat import NotebookNode
from tqdm import tqdm

LEARN = Path(__file__).parent / "learn"
CHAPTERS = sorted(LEARN.glob("[0-9]*.md"))
MOST_BYTES = 500_000  # of a notebook, which is kept in the repository


def read(chapter: Path) -> NotebookNode:
    """The notebook of a chapter, without results."""
    notebook = read_myst_markdown_notebook(chapter.read_text("utf-8"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = NotebookNode(kernelspec=kernel, language_info={"name": "python"})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # nbformat's are random
    return notebook


def execute(chapter: Path) -> None:
    """Run a chapter and write its notebook. A cell that fails raises CellExecutionError, and nothing is written."""
    notebook = read(chapter)
    metadata = notebook.metadata.copy()
    num_cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    with tqdm(total=num_cells, desc=chapter.stem, unit="cell") as bar:
        NotebookClient(
            notebook,
            timeout=None,
            resources={"metadata": {"path": str(LEARN)}},
            record_timing=False,
            coalesce_streams=True,
            on_cell_start=lambda cell, **_: bar.set_postfix_str(cell.source.partition("\n")[0]),
            on_cell_executed=lambda **_: bar.update(),
        ).execute()
    notebook.metadata = metadata  # without the versions of this machine
    text = nbformat.writes(notebook) + "\n"
    if len(text.encode()) > MOST_BYTES:
        sys.exit(f"{chapter.name}: its notebook has {len(text.encode()):,} bytes, more than {MOST_BYTES:,}")
    chapter.with_suffix(".ipynb").write_text(text, "utf-8", newline="\n")


if __name__ == "__main__":
    names = sys.argv[1:] or [chapter.stem for chapter in CHAPTERS]
    for name in names:
        execute(LEARN / f"{name}.md")
