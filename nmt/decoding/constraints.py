"""Constraints on a search: length limits, given prefixes, no repeated n-grams."""

from fractions import Fraction

import torch
from torch import Tensor

from nmt.decoding.settings import DecodingSettings
from nmt.models.base import Translator

NEVER = float("-inf")


_MOST_PIECES = 2**24  # float32, the type of the length penalty, holds every whole number up to this


def length_limits(src_lengths: Tensor, *, ratio: float, extra: float, cap: int | None) -> Tensor:
    """The most pieces of each translation: `min(cap, floor(ratio * |x| + extra))` [B].

    |x| [B] counts the real source positions, EOS included. Numbers count as written, in decimals: 0.29 * 100 is 29,
    but less in binary fractions.
    """
    most = _MOST_PIECES if cap is None else min(cap, _MOST_PIECES)
    slope, start = Fraction(str(ratio)), Fraction(str(extra))
    return src_lengths.new_tensor([min(most, int(slope * each + start)) for each in src_lengths.tolist()])


def log_softmax(logits: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Log-probabilities in nats, in float32 or wider, for logits of any precision.

    They use the memory of `out` if its type fits and it is large enough.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    if out is None or logits.dtype != out.dtype or logits.numel() > out.numel():
        return logits.log_softmax(dim=-1, dtype=dtype)
    return torch.log_softmax(logits, dim=-1, out=out.flatten()[: logits.numel()].view(logits.shape))


def block_repeats(log_probs: Tensor, history: Tensor, size: int) -> None:
    """Exclude, in place, each piece that would complete an n-gram of `size` pieces that the history contains.

    `log_probs` [N, V]; `history` [N, T] are the pieces so far, without BOS.
    """
    if history.size(1) < size:
        return
    ngrams = history.unfold(1, size, 1)  # [N, T - size + 1, size]
    last = history[:, history.size(1) - size + 1 :].unsqueeze(1)  # [N, 1, size - 1]
    seen = (ngrams[..., :-1] == last).all(dim=-1)  # [N, T - size + 1]
    # Add -inf or 0: several n-grams may concern the same piece.
    log_probs.scatter_add_(1, ngrams[..., -1], log_probs.new_zeros(seen.shape).masked_fill(seen, NEVER))


class PrefixError(ValueError):
    """The prefix of the sentence in `row` of a batch cannot begin its translation, for `reason`."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"the prefix of sentence {row} {reason}")
        self.row, self.reason = row, reason


class Constraints:
    """The pieces that may come next. Nothing else in a search changes the model's log-probabilities.

    A translation of a source of |x| positions has at most `limits` and at least `minimums` pieces:

        limit = min(max_length, floor(max_length_ratio * |x| + max_length_extra))
        minimum = min(limit, max(min_length, floor(min_length_ratio * |x|)))

    It begins with its row of `prefixes` [B, P] (padded on the right), against all other constraints. With
    `no_repeat_ngram_size` > 0 no later piece completes an n-gram of that size that came before. EOS comes before the
    minimum only if no other piece may, so that every hypothesis can go on or end.

    Raises PrefixError for a prefix that does not fit.
    """

    def __init__(
        self,
        model: Translator,
        src_lengths: Tensor,
        settings: DecodingSettings,
        prefixes: Tensor | None,
    ) -> None:
        self.pad_id, self.bos_id, self.eos_id = model.pad_id, model.bos_id, model.eos_id
        self.no_repeat_ngram_size = settings.no_repeat_ngram_size
        self.limits = length_limits(
            src_lengths,
            ratio=settings.max_length_ratio,
            extra=settings.max_length_extra,
            cap=settings.max_length,
        )
        # BOS takes a position.
        self._most_of_model = None if model.max_length is None else model.max_length - 1
        if self._most_of_model is not None:
            self.limits = self.limits.clamp(max=self._most_of_model)
        wanted = length_limits(src_lengths, ratio=settings.min_length_ratio, extra=0, cap=None)
        self.minimums = torch.minimum(self.limits, wanted.clamp(min=settings.min_length))
        # Python numbers: a step with nothing to exclude does not wait for the device.
        any_sentence = len(src_lengths) > 0
        self.smallest_limit = int(self.limits.min()) if any_sentence else 0
        self.largest_limit = int(self.limits.max()) if any_sentence else 0
        self.largest_minimum = int(self.minimums.max()) if any_sentence else 0
        self.prefixes = prefixes
        self._last: Tensor | None = None  # log-probabilities; the next step uses their memory again
        self.longest_prefix = 0
        if prefixes is not None:
            self.longest_prefix = self._check_prefixes(prefixes)

    def _check_prefixes(self, prefixes: Tensor) -> int:
        """Length of the longest of `prefixes` [B, P]. Raises PrefixError for a prefix that does not fit."""
        assert len(prefixes) == len(self.limits), "one prefix for each sentence"
        lengths = (prefixes != self.pad_id).sum(dim=1)
        for i, (ids, length, limit) in enumerate(
            zip(prefixes.tolist(), lengths.tolist(), self.limits.tolist(), strict=True)
        ):
            if {self.pad_id, self.bos_id, self.eos_id} & set(ids[:length]):
                raise PrefixError(i, f"holds PAD, BOS or EOS between its pieces: {ids}")
            if length > limit:
                advice = "raise max_length or max_length_extra"
                if limit == self._most_of_model:
                    advice = "the model's positions end there"
                raise PrefixError(
                    i, f"has {length} pieces, but its translation may have only {limit}: {advice}"
                )
        return int(lengths.max()) if len(lengths) else 0

    def no_history(self, num_hypotheses: int, device: torch.device) -> Tensor | None:
        """The empty history [N, 0] before the first step; None if the search needs no history."""
        if self.no_repeat_ngram_size == 0:
            return None
        return torch.empty(num_hypotheses, 0, dtype=torch.long, device=device)

    def log_probs(self, logits: Tensor, rows: Tensor, num_pieces: int, history: Tensor | None) -> Tensor:
        """Log-probabilities [b, K, V] after `num_pieces` pieces, -inf for pieces that may not come next.

        `logits` [N, V] of the sentences `rows` [b]; `history` [N, T], begun by `no_history`. PAD and BOS never come.
        The next call overwrites the result.
        """
        self._last = log_softmax(logits, out=self._last)
        log_probs = self._last.unflatten(0, (len(rows), -1))  # [b, K, V]
        eos = log_probs[:, :, self.eos_id].clone()
        given = self._next_pieces(log_probs, rows, num_pieces)
        log_probs[:, :, self.pad_id] = NEVER
        log_probs[:, :, self.bos_id] = NEVER
        if history is not None:
            block_repeats(log_probs.view(len(history), -1), history, self.no_repeat_ngram_size)
        if num_pieces >= self.smallest_limit:
            log_probs.masked_fill_((num_pieces >= self.limits[rows])[:, None, None], NEVER)
        if num_pieces < self.largest_minimum:
            too_short = (num_pieces < self.minimums[rows]).unsqueeze(1)
            if history is not None:  # blocked pieces may leave none; a limit is at least the minimum
                log_probs[:, :, self.eos_id] = NEVER
                too_short = too_short & (log_probs.amax(dim=-1) != NEVER)  # [b, K]
            eos.masked_fill_(too_short, NEVER)
        log_probs[:, :, self.eos_id] = eos
        if given is None:
            return log_probs
        pieces, log_probs_given = given
        return torch.where((pieces != self.pad_id)[:, None, None], log_probs_given, log_probs)

    def _next_pieces(self, log_probs: Tensor, rows: Tensor, num_pieces: int) -> tuple[Tensor, Tensor] | None:
        """The next piece of each prefix [b], PAD past its end, and log-probabilities that leave only this piece.

        None after the end of the longest prefix.
        """
        if self.prefixes is None or num_pieces >= self.longest_prefix:
            return None
        pieces = self.prefixes[rows, num_pieces]  # [b]
        index = pieces[:, None, None].expand(-1, log_probs.size(1), 1)  # [b, K, 1]
        nothing = torch.full_like(log_probs, NEVER)
        return pieces, nothing.scatter_(2, index, log_probs.gather(2, index))
