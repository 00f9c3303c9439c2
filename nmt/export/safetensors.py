"""Export of the weights as safetensors, with the model's configuration: also a run to send without a pickle."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from safetensors import safe_open
from safetensors.torch import save_model

from nmt.atomic import json_text
from nmt.config.types import flat
from nmt.run.run import Run

LIBRARY = None


def _without_folder(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def write(run: Run, directory: Path) -> str:
    """Write model.safetensors, config.json and the SentencePiece models; return usage instructions.

    With config.yaml the folder is a run directory for this program. Of an absolute path in it, only the last part is
    kept.
    """
    file = str(directory / "model.safetensors")
    save_model(run.translator, file, metadata={"format": "pt"})
    tokenizer = run.tokenizer
    config = {
        "model": OmegaConf.to_container(run.config.model, resolve=True),
        "src_vocab_size": tokenizer.src_vocab_size,
        "tgt_vocab_size": tokenizer.tgt_vocab_size,
        "joint": tokenizer.joint,
        "lowercase": tokenizer.lowercase,
        **{name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")},
    }
    (directory / "config.json").write_text(json_text(config), "utf-8")
    tokenizer.save(directory / "tokenizer")
    settings = run.config.copy()
    for key, value in flat(OmegaConf.to_container(settings, resolve=True)).items():
        kept = list(map(_without_folder, value)) if isinstance(value, list) else _without_folder(value)
        if kept != value:
            OmegaConf.update(settings, key, kept)
    OmegaConf.save(settings, directory / "config.yaml")
    state = run.translator.state_dict()
    with safe_open(file, framework="pt") as stored:
        names = sorted(stored.keys(), key=list(state).index)
    rows = "\n".join(f"| `{name}` | {' x '.join(map(str, state[name].shape))} |" for name in names)
    return f"""`pip install safetensors`, then, beside this file:

```python
from safetensors.numpy import load_file

weights = load_file("model.safetensors")  # tied weights are stored once, under one of their names
```

`config.json` has the model's settings and the special ids, `tokenizer` holds SentencePiece's models. With `config.yaml`
the folder is also a run directory of the program that trained it: `nmt translate run=DIR`. The gates of a GRU
are stacked as r, z, n, those of an LSTM as i, f, g, o; projections of a Transformer as q, k, v.

| weight | shape |
|---|---|
{rows}"""
