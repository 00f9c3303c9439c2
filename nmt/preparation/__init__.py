"""Look for faults in parallel text before training, and write a clean copy of it.

`reading` reads pairs in blocks, `counts` counts them, `problems` finds faults of single lines, `trigrams` languages,
`word_pairs` words that translate each other, `mismatches` pairs that are no or half translations, `shifts` misaligned
stretches, `held_out` training pairs that stand in held-out splits, `examination` all of these, `overview` writes the
report, `clean_copy` the clean text, and `recipe` the command to train with.
"""
