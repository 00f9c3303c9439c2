"""`python -m nmt.data.grammar DIR` writes a corpus."""

import sys

from nmt.data.grammar.write import main

sys.exit(main())
