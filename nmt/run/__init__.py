"""Run directories: load a run, then translate, align and score with it.

    from nmt import Run

    run = Run.load("logs/…"); run.translate(["a small house ."])[0].text

A run directory is data: its configuration may build only classes that `nmt.config.build.may_build` allows, and its
checkpoints are loaded as weights only.
"""
