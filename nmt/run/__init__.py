"""A run directory as an object: built by training, then all that is needed to translate and to score.

    from nmt import Run

    run = Run.load("logs/…"); run.translate(["a small house ."])[0].text

A run directory is data: its configuration may build only what `building.may_build` allows, and its checkpoints
are loaded as weights only.
"""
