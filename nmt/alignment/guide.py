"""Given alignments as a guide for attention (Chen et al. 2016): from links between words to rows of weights."""

from collections.abc import Sequence

from nmt.alignment.links import Links


def piece_links(links: Links, tgt_words: Sequence[int], src_words: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs (t, s) of target and source pieces whose words are linked, in order.

    `links` (i, j) join source word i and target word j. `tgt_words` [T] and `src_words` [S] give the word of
    each piece, -1 for what is no word (end of sentence): the inverse of `words_from_pieces`.
    """
    pieces_of: dict[int, list[int]] = {}
    for s, word in enumerate(src_words):
        pieces_of.setdefault(word, []).append(s)
    sources_of: dict[int, list[int]] = {}
    for i, j in sorted(links):
        sources_of.setdefault(j, []).extend(pieces_of.get(i, []))
    return [(t, s) for t, word in enumerate(tgt_words) for s in sources_of.get(word, [])]
