"""Attention weights of many sentences in an .npz file: writing sentence by sentence, and reading."""

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.atomic import replace_file

LONGEST_LABEL = 40  # characters; longer labels are cut


@contextmanager
def saving_weights(path: Path) -> Iterator[Callable[..., None]]:
    """Open `path` for writing; yields a function that adds the weights [T, S] and labels of a sentence.

    Its arguments, all empty by default, are weights, source labels and target labels. In the file, shapes [N, 2] has
    T and S of each sentence, weights (float32) all weights row by row, source and target (text) all labels. Until the
    block ends, the data is in unnamed files beside `path`.
    """
    types = {"shapes": "<i8", "weights": "<f4"} | dict.fromkeys(("source", "target"), f"<U{LONGEST_LABEL}")
    with ExitStack() as stack:
        files = {name: stack.enter_context(tempfile.TemporaryFile(dir=path.parent)) for name in types}

        def save(weights: Any = (), source: Sequence[str] = (), target: Sequence[str] = ()) -> None:
            parts = ([len(target), len(source)], weights, source, target)
            for (name, kind), values in zip(types.items(), parts, strict=True):
                files[name].write(np.asarray(values).astype(kind).tobytes())

        yield save
        new = stack.enter_context(replace_file(path))
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, kind in types.items():
                size = files[name].tell() // np.dtype(kind).itemsize
                shape = (size // 2, 2) if name == "shapes" else (size,)
                header = {"descr": kind, "fortran_order": False, "shape": shape}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    files[name].seek(0)
                    shutil.copyfileobj(files[name], member)


def read_arrays(path: str | Path) -> Iterator[tuple[NDArray[np.float32], list[str], list[str]]]:
    """Weights [T, S], source labels and target labels of each sentence in a file that `weights=FILE.npz` wrote."""
    with np.load(path) as arrays:
        weights, source, target = (arrays[name] for name in ("weights", "source", "target"))
        w = s = t = 0
        for T, S in arrays["shapes"].tolist():
            yield weights[w : w + T * S].reshape(T, S), source[s : s + S].tolist(), target[t : t + T].tolist()
            w, s, t = w + T * S, s + S, t + T
