"""What joins clauses. The core does without what stands in brackets."""

from nmt.data.grammar.lexicon.entries import rows

# Clauses in a row: English | Vietnamese, A the first clause and B the second.
CONJUNCTIONS = tuple(
    rows("""
A [and/1 B] | A và/1 B
A [,/1 and/2 B] | A ,/1 và/2 B
A [,/1 but/2 B] | A ,/1 nhưng/2 B
A [because/1 B] | A vì/1 B
A [,/1 so/2 B] | A ,/1 nên/2 B
A [when/1 B] | A khi/1 B
A [before/1 B] | A trước/1 khi/1 B
A [after/1 B] | A sau/1 khi/1 B
A [while/1 B] | A trong/1 khi/1 B
A [although/1 B] | A mặc/1 dù/1 B
A [if/1 B] | A nếu/1 B
""")
)
FRONTED = tuple(
    rows("""
[when/1 A ,/2] B | khi/1 A ,/2 B
[if/1 A ,/2] B | nếu/1 A thì/2 B
[because/1 A ,/2] B | vì/1 A nên/2 B
[although/1 A ,/2] B | mặc/1 dù/1 A ,/2 B
[before/1 A ,/2] B | trước/1 khi/1 A ,/2 B
[after/1 A ,/2] B | sau/1 khi/1 A ,/2 B
""")
)
