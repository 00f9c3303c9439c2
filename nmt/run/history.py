"""The attention of a few sentences at each validation of a run, as plain arrays in one small file."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt import alignment
from nmt.atomic import write_together
from nmt.errors import UserError
from nmt.plotting import Sentence, SentenceGroup
from nmt.plotting.sentence import MOST_OF_PAGE, crop

FILE, PAGE = "history.npz", "index.html"
MOST_ON_PAGE = 100  # validations: the page must not grow with the length of training
MOST_BYTES = 2**29  # of the arrays in memory, which a small file can exceed
_ARRAYS: dict[str, tuple[Any, ...]] = {  # the kind of each array's elements, then its shape; None is any size
    "steps": ("i", "N"), "rows": ("i", "K"), "source": ("U", "K"), "target": ("U", "K"),
    "translations": ("U", "N", "K"), "aer": ("f", "N", "K"), "weights": ("f", "N", None, None), "gold": ("i", None, 2),
}  # fmt: skip


@dataclass(frozen=True)
class History:
    """K sentences at N validations.

    steps [N]; rows [K] of the validation set; source, target [K]: texts, the target as the reference; translations
    [N, K]: by greedy search; aer [N, K]: alignment error rates, NaN without gold; weights: K arrays [N, T, S] between
    the words of source and reference, or characters (teacher forcing); gold: K arrays [G, 2] of sure links (source,
    target).
    """

    steps: np.ndarray
    rows: np.ndarray
    source: np.ndarray
    target: np.ndarray
    translations: np.ndarray
    aer: np.ndarray
    weights: list[np.ndarray]
    gold: list[np.ndarray]

    @classmethod
    def load(cls, directory: Path) -> "History":
        """The history that `save` wrote. Raises FileNotFoundError if there is none, UserError if it is broken."""
        try:
            with (directory / FILE).open("rb") as file, np.load(file) as arrays:
                size = sum(each.file_size for each in arrays.zip.infolist())
                if size > MOST_BYTES:
                    raise ValueError(f"{size:,} bytes unpacked, more than {MOST_BYTES:,}")
                number = len(arrays["rows"])
                plain: dict[str, Any] = {
                    name: arrays[name]
                    for name in ("steps", "rows", "source", "target", "translations", "aer")
                }
                each: dict[str, Any] = {
                    name: [arrays[f"{name}_{k}"] for k in range(number)] for name in ("weights", "gold")
                }
            history = cls(**plain, **each)
            history._check()
        except FileNotFoundError:
            raise
        except Exception as error:  # of numpy, zipfile and zlib, for a foreign or damaged file
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UserError(f"{directory / FILE} is broken ({reason}): remove it") from error
        return history

    def _check(self) -> None:
        """Raise ValueError for an array with another type or shape than `_ARRAYS` declares."""
        num: dict[Any, int] = {"N": len(self.steps), "K": len(self.rows)}
        for name, (kind, *sizes) in _ARRAYS.items():
            arrays = getattr(self, name)
            for array in arrays if isinstance(arrays, list) else [arrays]:
                shape = [num.get(size, size) for size in sizes]
                wrong = [
                    size for size, found in zip(shape, array.shape, strict=False) if size not in (None, found)
                ]
                if wrong or array.ndim != len(shape) or array.dtype.kind != kind:
                    raise ValueError(f"{name} is {array.dtype} {list(array.shape)}")
                if kind == "U":
                    letters = array.astype(array.dtype.newbyteorder("<")).tobytes()
                    letters.decode("utf-32-le")  # numpy accepts numbers that are no letters
        for texts, axis in ((self.target, 1), (self.source, 2)):
            for text, weights in zip(texts, self.weights, strict=True):
                if len(_labels(text, weights.shape[axis])) != weights.shape[axis]:
                    raise ValueError(f"{weights.shape[axis]} weights for the text {str(text)!r:.40}")

    def after(self, earlier: "History") -> "History":
        """Append to `earlier`. Overlapping steps of `earlier` are dropped, since a resumed run validates again.

        If the sentences differ from those of `earlier`, it is left out.
        """
        if [each.shape[1:] for each in self.weights] != [each.shape[1:] for each in earlier.weights] or not (
            np.array_equal(self.rows, earlier.rows) and np.array_equal(self.source, earlier.source)
        ):
            return self
        kept = earlier.steps < self.steps.min()
        joined: dict[str, Any] = {
            name: np.concatenate((getattr(earlier, name)[kept], getattr(self, name)))
            for name in ("steps", "translations", "aer")
        }
        pairs = zip(earlier.weights, self.weights, strict=True)
        return replace(self, **joined, weights=[np.concatenate((before[kept], now)) for before, now in pairs])

    def save(self, directory: Path, page: str) -> None:
        """Write the arrays and the page that shows them, both or neither."""
        plain: dict[str, Any] = {
            name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        for name in ("weights", "gold"):
            plain |= {f"{name}_{k}": value for k, value in enumerate(getattr(self, name))}
        content = io.BytesIO()
        np.savez_compressed(content, **plain)
        write_together({directory / FILE: content.getvalue(), directory / PAGE: page})

    def groups(self) -> list[SentenceGroup]:
        """A series of the last validations per sentence, as many as a page has room for."""
        groups = []
        for k in range(len(self.rows)):
            room = MOST_OF_PAGE // max(1, len(self.rows) * self.weights[k][0].size)
            shown = range(len(self.steps))[-max(1, min(MOST_ON_PAGE, room)) :]
            series = [crop(self._sentence(n, k)) for n in shown]
            groups.append(SentenceGroup(f"sentence {self.rows[k]}: {self.source[k]}", series, is_series=True))
        return groups

    def _sentence(self, n: int, k: int) -> Sentence:
        error = "" if np.isnan(self.aer[n, k]) else f" · AER {self.aer[n, k]:.2f}"
        return Sentence(
            self.weights[k][n],
            _labels(self.source[k], self.weights[k].shape[2]),
            _labels(self.target[k], self.weights[k].shape[1]),
            title=f"step {self.steps[n]}{error}",
            gold=[(int(i), int(j)) for i, j in self.gold[k]],
            note=f"greedy: {self.translations[n, k]}",
        )


def _labels(text: str, number: int) -> list[str]:
    """The words of a text or, if their number differs from `number`, its units without spaces, which are parts of
    words.
    """
    words = str(text).split()
    return words if len(words) == number else alignment.split_units(str(text))
