"""Export to Argos Translate, a program, web page and server for translation without a network.

https://github.com/argosopentech/argos-translate
"""

import re
import shutil
from pathlib import Path

from nmt.atomic import json_text
from nmt.errors import UserError
from nmt.export import ctranslate2
from nmt.export.layouts import parts_of
from nmt.run.run import Run

LIBRARY = None
VERSION = "1.0"  # of the package


def write(run: Run, directory: Path, quantization: str | None = None) -> str:
    """Write translate-SRC_TGT-1_0.argosmodel; return usage instructions.

    It is a zip of a folder: metadata.json, the model as CTranslate2 reads it, and the SentencePiece model. Argos
    Translate cuts the text and joins the translation by the same model, and changes no case: raises UserError for two
    vocabularies and for a model of lower-cased text. Languages become a file name and Python: other words are refused.
    """
    parts_of(run, "argos")
    tokenizer = run.tokenizer
    if not tokenizer.joint:
        raise UserError(
            f"format=argos needs one vocabulary for both languages, {run.directory} has two: use format=ctranslate2"
        )
    if tokenizer.lowercase:
        raise UserError(
            f"format=argos keeps the case of its text, {run.directory} reads lower case: use format=ctranslate2"
        )
    source, target = run.languages or ("", "")
    if not all(re.fullmatch(r"[\w-]+", each) for each in (source, target)):
        raise UserError(
            f"format=argos needs languages of letters, digits, _ and -, {run.directory} has {source!r} and {target!r}: "
            "use format=ctranslate2"
        )
    name = f"translate-{source}_{target}-{VERSION.replace('.', '_')}"
    model = directory / name / "model"
    model.mkdir(parents=True)
    ctranslate2.write(run, model, quantization)
    (model / "joint.model").rename(directory / name / "sentencepiece.model")
    metadata = {
        "type": "translate",
        "package_version": VERSION,
        "argos_version": "1.0",
        **{"from_code": source, "from_name": source, "to_code": target, "to_name": target},
    }
    (directory / name / "metadata.json").write_text(json_text(metadata), "utf-8")
    (directory / name / "README.md").write_text(f"A translator from {source} to {target}.\n", "utf-8")
    archive = Path(shutil.make_archive(str(directory / name), "zip", directory, name))
    archive.rename(directory / f"{name}.argosmodel")
    shutil.rmtree(directory / name)
    return f"""`pip install argostranslate`, then `argospm install {name}.argosmodel`: Argos Translate, its window
(`pip install argostranslategui`) and LibreTranslate, a web page and a server, have the translator.

```python
import argostranslate.package
import argostranslate.translate

argostranslate.package.install_from_path("{name}.argosmodel")
print(argostranslate.translate.translate("TEXT", "{source}", "{target}"))
```

Argos Translate fetches its splitter of sentences at the first use. It takes a language's name from the first installed
package that has its code; here the names are the codes, {source} and {target}."""
