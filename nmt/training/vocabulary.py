"""The tokenizer of a training run: a given SentencePiece model, or one trained on the training text."""

import hashlib
import logging
from typing import Any

from datasets import Dataset
from omegaconf import DictConfig

from nmt.config.build import reads_lowercase
from nmt.config.types import as_list
from nmt.data import encoding
from nmt.data.cache import cached_tokenizer
from nmt.data.streaming import TextStream
from nmt.data.tokenizer import NORMALIZATION, Tokenizer
from nmt.errors import UserError

log = logging.getLogger(__name__)


def make_tokenizer(config: DictConfig, train: Dataset | TextStream) -> Tokenizer:
    """The tokenizer of a `data` configuration: given SentencePiece models, else trained on the training text.

    Trains on at most `tokenizer.max_pairs` pairs, evenly drawn; from a stream, on the first pairs of every file. The
    result is cached unless the text is streamed. Raises UserError if `joint` does not fit the given models.
    """
    settings, lowercase = config.tokenizer, reads_lowercase(config)
    if settings.model is not None:
        files = as_list(settings.model)
        if settings.joint != (len(files) == 1):
            said, sides = str(settings.joint).lower(), "both sides" if len(files) == 1 else "one side each"
            raise UserError(
                f"data.tokenizer.joint={said}: the models given are of {sides}: give "
                f"data.tokenizer.joint={str(not settings.joint).lower()}"
            )
        return Tokenizer.from_models(*files, lowercase=lowercase)
    keywords: Any = {
        name: settings[name] for name in ("model_type", "joint", "vocab_size", "character_coverage")
    }
    # Only settings that are on are part of the cache key
    keywords |= {name: True for name in ("lowercase", "documents") if settings.get(name)}
    if settings.get("normalization", NORMALIZATION) != NORMALIZATION:
        keywords["normalization"] = settings.normalization
    if isinstance(train, TextStream):
        src = (row[0] for row in train.first_pairs(settings.max_pairs))
        tgt = (row[1] for row in train.first_pairs(settings.max_pairs))
        tokenizer = Tokenizer.train(src, tgt, **keywords)
    else:
        some = encoding.sample_rows(train, settings.max_pairs)
        tokenizer = cached_tokenizer(
            lambda: Tokenizer.train(encoding.texts(some, "src"), encoding.texts(some, "tgt"), **keywords),
            key=hashlib.sha256(repr((some._fingerprint, sorted(keywords.items()))).encode()).hexdigest(),
            cache_dir=config.cache_dir,
            lowercase=lowercase,
        )
    sizes = [tokenizer.src_vocab_size, *([] if tokenizer.joint else [tokenizer.tgt_vocab_size])]
    if min(sizes) < settings.vocab_size:
        log.info(
            "the text gives %s pieces, fewer than data.tokenizer.vocab_size=%d",
            *(" and ".join(map(str, sizes)), settings.vocab_size),
        )
    return tokenizer
