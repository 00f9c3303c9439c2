"""Symmetrisation of two alignments made in opposite directions (Koehn et al. 2003; Koehn et al. 2005)."""

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Literal

from nmt.alignment.links import Links

Method = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]

# In the order of Moses' symal, over (second, first): the order decides between neighbours that compete for a word.
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrize(forward: Links, backward: Links, method: Method) -> Links:
    """Join two alignments of one sentence pair, both as links (i, j) with word i of the FIRST language.

    `forward` comes from a model that reads the first language and writes the second. `backward` comes from a model
    that reads the second and writes the first: turn its links round before, {(i, j) for j, i in links}.

    - intersection, union: of the two sets.
    - grow-diag: the intersection, then links of the union that neighbour a link (also diagonally) and have a word
      without a link, until there are no more.
    - grow-diag-final: then every link of `forward`, and then of `backward`, that has a word without a link.
    - grow-diag-final-and: the same, for links with both words free.

    Order and ties are those of Moses' `symal`. Every result lies between intersection and union. Raises ValueError
    for another method.
    """
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    if method not in ("grow-diag", "grow-diag-final", "grow-diag-final-and"):
        raise ValueError(
            "a method is intersection, union, grow-diag, grow-diag-final or grow-diag-final-and, "
            f"not {method!r}"
        )
    links = _grow_diag(forward & backward, forward | backward)
    if method != "grow-diag":
        for direction in (forward, backward):
            _add_final(links, direction, both_free=method == "grow-diag-final-and")
    return links


def _grow_diag(links: Links, union: Links) -> Links:
    """Add to `links`, until none is left, links of the union that neighbour a link and give a free word a link."""
    points = sorted((j, i) for i, j in links)  # sorted by the word of the second language, as in symal
    covered_first, covered_second = {i for i, _ in links}, {j for _, j in links}
    size = -1
    while size != len(points):
        size = len(points)
        for j, i in _iterate_sorted(points):
            for dj, di in NEIGHBOURS:
                first, second = i + di, j + dj
                free = first not in covered_first or second not in covered_second
                if free and (first, second) in union:
                    insort(points, (second, first))
                    covered_first.add(first)
                    covered_second.add(second)
    return {(i, j) for j, i in points}


def _iterate_sorted(points: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Iterate over the sorted points, including points inserted beyond the present point meanwhile."""
    point = (-1, -1)
    while (index := bisect_right(points, point)) < len(points):
        point = points[index]
        yield point


def _add_final(links: Links, direction: Links, *, both_free: bool) -> None:
    """Add to `links` the links of a direction that give a free word (with `both_free`: two free words) a link."""
    covered_first, covered_second = {i for i, _ in links}, {j for _, j in links}
    for i, j in sorted(direction, key=lambda link: (link[1], link[0])):
        free = (i not in covered_first, j not in covered_second)
        if all(free) if both_free else any(free):
            links.add((i, j))
            covered_first.add(i)
            covered_second.add(j)
