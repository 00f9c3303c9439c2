"""Attended source pieces vote for target pieces."""

import pytest
import torch

from nmt.run.model import build_translator
from tests.commands import compose, refused, run_composed
from tests.small import vocabulary


@torch.no_grad()
@pytest.mark.parametrize("chosen", ["attention=luong_general", "attention=multi_head", "model=transformer"])
def test_votes_are_added_to_what_the_output_layer_reads(chosen):
    torch.manual_seed(1)
    config = compose("train", "model.size=8", "model.lexical=true", chosen)
    model = build_translator(config.model, vocabulary()).double().eval()
    src, tgt_in = torch.tensor([[5, 6, 7, 3], [8, 9, 3, 0]]), torch.tensor([[2, 5, 6], [2, 7, 7]])
    mask = src != 0
    features, weights = model.decoder.unroll(
        model.decoder.prepare(model.encoder(src, mask)), tgt_in, need_weights=True
    )
    for b in range(2):
        for t in range(3):
            attended = sum(
                weights[b, t, s] * model.encoder.embedding.weight[src[b, s]] for s in range(4)
            ).tanh()
            hidden = (model.lexical.hidden.weight @ attended).tanh() + attended
            features[b, t] += model.lexical.vote.weight @ hidden
    expected = features @ model.output.weight.t() + model.output.bias
    torch.testing.assert_close(model(model.encode(src, mask), tgt_in).logits, expected)


def test_without_attention_nobody_votes(tmp_path):
    refused(
        run_composed("train", "attention=none", "model.lexical=true", f"run_dir={tmp_path / 'run'}"),
        "model.lexical=true",
        "no attention",
    )
