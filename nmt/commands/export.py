"""Export a trained run to the format of another program."""

import importlib
import time
from pathlib import Path

from omegaconf import DictConfig

from nmt.export import hub
from nmt.export.card import card
from nmt.files import new_folder
from nmt.run.directory import Run


def export(cfg: DictConfig) -> None:
    """Write the run and a model card into a new folder; with `push`, upload it to the Hub."""
    weights = {key: cfg[key] for key in ("checkpoint", "average")}
    run = Run.load(cfg.run, device="cpu", trusted=cfg.trusted, **weights)
    module, output = importlib.import_module(f"nmt.export.{cfg.format}"), Path(cfg.output).resolve()
    more = {} if cfg.quantization is None else {"quantization": cfg.quantization}
    began = time.monotonic()
    with new_folder(output) as folder:
        usage = module.write(run, folder, **more)
        text = card(run, usage, library=module.LIBRARY, license=cfg.license, **weights)
        (folder / "README.md").write_text(text, "utf-8")
        for file in folder.iterdir():
            file.chmod(0o644)  # some libraries let only the owner read it
    size = sum(file.stat().st_size for file in output.iterdir()) / 1e6
    print(
        f"{output}: {cfg.format}, {size:.1f} MB, in {time.monotonic() - began:.0f} s; its README.md says how to use it"
    )
    if cfg.push is not None:
        print(hub.push(output, cfg.push))


main = export
