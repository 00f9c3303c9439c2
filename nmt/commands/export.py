"""Export a trained run to the format of another program."""

import importlib
import time
from pathlib import Path

from omegaconf import DictConfig

from nmt.atomic import new_folder
from nmt.config.types import as_list
from nmt.export import hub
from nmt.export.card import card
from nmt.run.run import Run


def export(cfg: DictConfig) -> None:
    """Write the run and a model card into a new folder; with `push`, upload it to the Hub."""
    weights = {key: cfg[key] for key in ("checkpoint", "average")}
    runs = [Run.load(path, device="cpu", trusted=cfg.trusted, **weights) for path in as_list(cfg.run)]
    module, output = importlib.import_module(f"nmt.export.{cfg.format}"), Path(cfg.output).resolve()
    began = time.monotonic()
    with new_folder(output) as folder:
        if cfg.format == "web":
            usage = module.write(runs, folder, runtime=None if cfg.runtime is None else Path(cfg.runtime))
        else:
            more = {} if cfg.quantization is None else {"quantization": cfg.quantization}
            usage = module.write(runs[0], folder, **more)
        for number, run in enumerate(runs):
            text = card(run, usage, library=module.LIBRARY, license=cfg.license, **weights)
            place = folder if len(runs) == 1 else folder / str(number)
            (place / "README.md").write_text(text, "utf-8")
        files = [file for file in folder.rglob("*") if file.is_file()]
        for file in files:
            file.chmod(0o644)  # some libraries let only the owner read it
        size = sum(file.stat().st_size for file in files) / 1e6
    seconds = time.monotonic() - began
    readme = "its README.md" if len(runs) == 1 else "0/README.md"
    print(f"{output}: {cfg.format}, {size:.1f} MB, in {seconds:.0f} s; {readme} says how to use it")
    if cfg.push is not None:
        print(hub.push(output, cfg.push))


main = export
