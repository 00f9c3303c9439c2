"""`python -m nmt.data.grammar DIR` writes a corpus."""

import sys

from nmt.data.grammar.write import write_grammar

sys.exit(write_grammar())
