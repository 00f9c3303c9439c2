"""Attention over given pairs: between pieces, per layer and head, or between words."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from nmt import alignment, plotting
from nmt.alignment import Links, Side
from nmt.attention.masks import padding_mask
from nmt.config.types import Units
from nmt.data.batching import Batch, collate
from nmt.data.unknown_characters import UnknownCharacters
from nmt.decoding import Hypothesis, force_decode
from nmt.errors import UserError, check_lines
from nmt.run.model import Model, batches_by_length
from nmt.run.translation import Translation

log = logging.getLogger(__name__)

Reading = Literal["emitted", "fed"]


class Aligned(NamedTuple):
    """A pair of texts with the weights [T, S] between the labels of its sides."""

    weights: np.ndarray
    source: Side
    target: Side

    def links(self, method: Any = "argmax", threshold: float = 0.3) -> Links:
        """Links (source, target) between labels; see `alignment.links_from_weights`."""
        return alignment.links_from_weights(
            self.weights, method, threshold=threshold, sizes=self.source.sizes
        )

    def sentence(self, title: str, gold: Iterable[tuple[int, int]] | None) -> plotting.Sentence:
        """The labels and their weights, for pictures and pages, with gold links (source, target) outlined."""
        return plotting.Sentence(self.weights, self.source.labels, self.target.labels, title, gold)


class AligningModel(Model):
    """A model whose attention aligns the words of given pairs."""

    @torch.inference_mode()
    def attentions(
        self, sources: Sequence[str], targets: Sequence[str], *, max_tokens: int = 4096, first_line: int = 1
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the cross-attention between the pieces of given pairs, ends of sentence included. Targets are forced.

        Yields (number of the pair, weights [L, K, T, S] per layer and head); nothing for a model without attention. A
        pair longer than the model can read is left out, with a warning that counts from `first_line`.
        """
        for rows, batch in self._batches(sources, targets, max_tokens, first_line):
            src, pad_id = batch.src, self.tokenizer.pad_id
            cross = self.translator.attentions(src, padding_mask(src, pad_id), batch.tgt_in).cross
            if cross is None:
                return
            num_pieces = [padding_mask(each, pad_id).sum(dim=1).tolist() for each in (batch.tgt_out, src)]
            for row, weights, T, S in zip(rows, cross.float().cpu().numpy(), *num_pieces, strict=True):
                yield row, weights[..., :T, :S]

    @torch.inference_mode()
    def force(
        self, sources: Sequence[str], targets: Sequence[str], *, max_tokens: int = 4096
    ) -> tuple[list[Translation], dict[str, float]]:
        """Given translations with their log-probabilities, and the sum of these, their mean over pieces, and the
        perplexity.

        In nats, ends of sentence included. Raises UserError for a pair longer than the model can read.
        """
        found: dict[int, Hypothesis] = {}
        for rows, batch in self._batches(sources, targets, max_tokens):
            forced = force_decode(self.translator, batch.src, batch.tgt_in, batch.tgt_out)
            found |= zip(rows, forced, strict=True)
        if lost := [row + 1 for row in range(len(sources)) if row not in found]:
            raise UserError(f"line {lost[0]} is longer than the model can read: it has no log-probability")
        total = sum(each.log_prob for each in found.values())
        mean = total / sum(len(each.ids) + 1 for each in found.values())
        translations = [
            Translation(source, target, found[row].log_prob, found[row].log_prob)
            for row, (source, target) in enumerate(zip(sources, targets, strict=True))
        ]
        return translations, {"sum": total, "per_piece": mean, "perplexity": float(np.exp(-mean))}

    def _batches(
        self, sources: Sequence[str], targets: Sequence[str], max_tokens: int, first_line: int = 1
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yield batches of given pairs on the model's device, with the numbers of their pairs; see `attentions`."""
        check_lines(sources=sources, targets=targets)
        if len(sources) != len(targets):
            raise UserError(f"{len(sources)} source lines but {len(targets)} target lines")
        src_ids, tgt_ids = self.tokenizer.encode_source(sources), self.tokenizer.encode_target(targets)
        lengths = {row: max(len(src_ids[row]), len(tgt_ids[row])) for row in range(len(sources))}
        longest = self.translator.max_length or max(lengths.values(), default=0)
        if too_long := [row for row, length in lengths.items() if length > longest]:
            log.warning(
                "%d of %d pairs have more than the %d pieces that the model can read: left out (the first is %d)",
                *(len(too_long), len(lengths), longest, too_long[0] + first_line),
            )
        fitting = {row: length for row, length in lengths.items() if length <= longest}
        for rows in batches_by_length(fitting, max_tokens):
            examples = [{"index": row, "src_ids": src_ids[row], "tgt_ids": tgt_ids[row]} for row in rows]
            batch = collate(examples, pad_id=self.tokenizer.pad_id, bos_id=self.tokenizer.bos_id)
            src, tgt_in, tgt_out = (each.to(self.device) for each in batch[1:4])
            yield rows, batch._replace(src=src, tgt_in=tgt_in, tgt_out=tgt_out)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        layer: int | None = None,
        head: int | None = None,
        reading: Reading = "emitted",
        units: Units = "auto",
    ) -> list[np.ndarray | None]:
        """Cross-attention between the words of given pairs: [target words, source words] per pair. Targets are forced.

        `layer` and `head` count from 0. If `layer` is None, the model's layer of alignment is taken, or the mean over
        layers if the model has none; if `head` is None, the mean over heads. `reading` selects the row of the weights
        for a piece (`alignment.shift_reading`). `units` are words, or characters of text without spaces
        (`alignment.choose_units`). A pair without weights gives None. Raises UserError if there is no such layer or
        head.
        """
        found = dict(self.align_pairs(sources, targets, layer=layer, head=head, reading=reading, units=units))
        return [found[row].weights if row in found else None for row in range(len(sources))]

    def align_pairs(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        layer: int | None = None,
        head: int | None = None,
        reading: Reading = "emitted",
        units: str = "auto",
        first_line: int = 1,
        weigh: Callable[[str, str], np.ndarray] | None = None,
    ) -> Iterator[tuple[int, Aligned]]:
        """Yield (number of the pair, weights with their labels) as in `align`, in the order of computation.

        `weigh(source, target)` gives weights [T, S], ends of sentence included, in place of the attention of `layer`
        and `head`.
        """
        check_lines(sources=sources, targets=targets)
        with UnknownCharacters(self.tokenizer) as unknown:
            unknown.count(sources, "sources")
            unknown.count(targets, "targets", is_target=True)
        if weigh is None:
            found = self.attentions(sources, targets, first_line=first_line)
            chosen = ((row, self.choose_head(weights, layer, head)) for row, weights in found)
        else:
            readable = self._batches(sources, targets, 1, first_line)
            chosen = ((row, weigh(sources[row], targets[row])) for rows, _ in readable for row in rows)
        for row, weights in chosen:
            yield row, self.between_units(weights, sources[row], targets[row], reading, units)

    def choose_head(self, weights: np.ndarray, layer: int | None, head: int | None) -> np.ndarray:
        """Weights [T, S] out of [L, K, T, S]; see `align`."""
        layer = self.translator.alignment_layer if layer is None else layer
        for name, chosen, number in (("layer", layer, len(weights)), ("head", head, weights.shape[1])):
            if chosen is not None and not (type(chosen) is int and 0 <= chosen < number):
                raise UserError(f"{name}={chosen}: the run has {number}, counted from 0")
        of_layer = weights.mean(axis=0) if layer is None else weights[layer]
        return of_layer.mean(axis=0) if head is None else of_layer[head]

    def between_units(
        self,
        weights: np.ndarray,
        source: str,
        target: str,
        reading: Reading = "emitted",
        units: str = "auto",
    ) -> Aligned:
        """Weights between the units of a pair, from weights [T, S] between its pieces, ends of sentence included."""
        of_source, of_target = (
            self.tokenizer.source_side(source, units),
            self.tokenizer.target_side(target, units),
        )
        rows = alignment.shift_reading(weights, reading)
        without_end = of_target._replace(groups=of_target.groups[:-1])
        return Aligned(alignment.weights_between(rows, without_end, of_source), of_source, of_target)

    def between_words(
        self, weights: np.ndarray, source: str, target: str, reading: Reading = "emitted"
    ) -> np.ndarray:
        """Weights between the words of a pair, from weights [T, S] between its pieces, ends of sentence included."""
        return self.between_units(weights, source, target, reading, "words").weights

    def alignment_error(
        self, dataset: Any, weights: Mapping[int, Any], rows: Iterable[int]
    ) -> alignment.AlignmentScore:
        """Alignment error of the most attended words against the gold links of these rows of a data set.

        `weights` [T, S] are between the pieces of a row; a row without weights has no links.
        """
        links: list[alignment.Links] = []
        golds = []
        for row in rows:
            example = dataset[row]
            golds.append(alignment.parse_talp(example["alignment"]))
            if row in weights:
                words = self.between_words(weights[row], example["src"], example["tgt"])
            links.append(alignment.links_from_weights(words) if row in weights else set())
        sures, possibles = zip(*golds, strict=True)
        return alignment.score_alignments(links, sures, possibles)

    def importance(self, dataset: Any, weights: Mapping[int, Any]) -> alignment.Importance | None:
        """Score how well attention finds the sentences that the gold links name; None without documents or without
        links.

        `weights` [T, S] are between the pieces of rows of a data set.
        """
        examples = {row: dataset[row] for row in sorted(weights)}
        if not any(alignment.SEPARATOR in each["src"].split() for each in examples.values()):
            return None
        return alignment.score_importance(
            (self.between_words(weights[row], each["src"], each["tgt"]) for row, each in examples.items()),
            (each["src"].split() for each in examples.values()),
            (alignment.parse_talp(each["alignment"])[1] for each in examples.values()),
        )
