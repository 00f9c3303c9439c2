"""Small models for the chapters, each trained once and kept, and ways to show code and attention."""

import contextlib
import hashlib
import inspect
import io
import shutil
import warnings
from pathlib import Path
from typing import Any

from IPython.display import Image, Markdown

import nmt
import nmt.commands  # defines what the configurations refer to
from nmt import metrics, plotting
from nmt.commands.composing import CONFIGS, compose
from nmt.decoding import DecodingSettings

warnings.filterwarnings("ignore", "IProgress not found")  # progress bars are off

MODELS = Path(__file__).resolve().parent / "models"
BASE = """
data.num_train=8000 data.num_val=100 data.num_test=600 data.max_words=12 data.max_tokens=512
data.tokenizer.vocab_size=1300 model.size=64 model.dropout=0 label_smoothing=0 optimizer.lr=0.01
trainer=cpu trainer.max_epochs=4 trainer.enable_progress_bar=false callbacks=minimal decoding=greedy ~metrics.ter
"""  # half a minute or so for each model, on one core
TRANSFORMER = (  # the one Transformer of the chapters: trained(*TRANSFORMER)
    *("model=transformer", "encoder.num_layers=2", "decoder.num_layers=2"),
    *("encoder.feedforward_size=256", "decoder.feedforward_size=256", "optimizer.lr=0.003"),
)
GREEDY = DecodingSettings(beam_size=1, length_alpha=0.0)


def trained(*overrides: str, base: str = BASE) -> nmt.Run:
    """The model that these settings on top of `base` train; it is trained where it is not kept yet."""
    package = Path(nmt.__file__).parent
    parts = ("attention", "data", "decoders", "encoders", "kernels", "layers", "models", "training")
    files = [file for part in parts for file in sorted((package / part).rglob("*.*"))]
    sources = [file for file in files if file.suffix in (".py", ".tsv")]  # .tsv: the words of the grammar
    key = hashlib.sha256(repr((tuple(base.split()), overrides)).encode())
    for file in (*sources, *sorted(CONFIGS.rglob("*.yaml"))):
        key.update(file.read_bytes())
    directory = MODELS / key.hexdigest()[:16]
    if not (directory / "metrics.json").is_file():  # the last file that a run writes
        shutil.rmtree(directory, ignore_errors=True)
        places = [f"run_dir={directory}", f"data.cache_dir={MODELS / 'text'}", "name=learn"]
        # Importing takes seconds, and kept models do not need it
        from nmt.training.train import silence_warnings, train

        silence_warnings()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            train(compose("train", [*base.split(), *overrides, *places]))
    return nmt.Run.load(directory, device="cpu")


def scores_of(run: nmt.Run) -> dict[str, Any]:
    """BLEU of greedy translations of the test set, and where its references attend: AER and statistics."""
    bleu = {"bleu": metrics.Bleu(tokenize="13a", lowercase=False)}
    return run.score(run.split("test"), GREEDY, scorers=bleu, num_bootstrap=0)[0]


def code(thing: Any) -> Markdown:
    """The source of a class or function of the package, as it is installed."""
    return Markdown(f"```python\n{inspect.getsource(thing)}```")


def show(figure: Any) -> Image:
    """A figure of `nmt.plotting` as a picture."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return Image(content.getvalue())


def alignment(run: nmt.Run, sentence: str, title: str | None = None) -> Image:
    """The attention between a sentence and its greedy translation."""
    [found] = run.translate([sentence], GREEDY)
    return show(plotting.heatmap(found.weights, found.source_words, found.target_words, title=title))
