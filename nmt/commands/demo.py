"""Serve the playground: explore trained runs in a browser."""

from omegaconf import DictConfig

from nmt.demo.session import Explorer
from nmt.run.building import build
from nmt.run.checks import check_decoding
from nmt.run.directory import Run


def demo(cfg: DictConfig) -> None:
    """Serve the playground of one run, or of several."""
    from nmt.demo.app import build_app, launch  # gradio is an extra

    how = {key: cfg[key] for key in ("checkpoint", "average", "device", "trusted")}
    decoding = build(cfg.decoding, "decoding")
    explorers = []
    for path in [cfg.run] if isinstance(cfg.run, str) else cfg.run:
        run = Run.load(path, **how)
        print(f"showing {path}")
        check_decoding(decoding, run.translator, num_best=1)
        explorers.append(Explorer(run, decoding))
    launch(build_app(explorers), host=cfg.host, port=cfg.port, share=cfg.share)


main = demo
