"""The comparison with other toolkits: batches, rows, and the runners that need only this project's packages."""

import json
import sys

import pytest
import run_nmt
import runner
import torch
from runner import BOS, EOS, HIDDEN, PAD

import toolkits
from nmt.errors import UserError
from toolkits import Turn

TINY = ("data=grammar", "data.num_train=100", "data.num_val=5", "data.max_tokens=300")
BATCH = runner.Batch.of([[5, 6, EOS], [7, EOS]], [[8, EOS], [9, 10, EOS]])


def test_batches_are_padded_and_begin_and_end_with_the_pieces_of_the_sentence():
    assert BATCH.src.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert BATCH.lengths.tolist() == [3, 2]
    assert BATCH.tgt.tolist() == [[BOS, 8, EOS, PAD], [BOS, 9, 10, EOS]]
    assert BATCH.tgt_in.tolist() == [[BOS, 8, PAD], [BOS, 9, 10]]
    assert BATCH.tgt_out.tolist() == [[8, EOS, PAD], [9, 10, EOS]]
    assert BATCH.num_tokens == 5


@pytest.mark.parametrize("model", toolkits.MODELS)
def test_our_runner_trains_and_translates_to_the_given_length(model):
    here = run_nmt.Nmt(model, vocab_size=30)
    before = here.model.output.weight.detach().clone() if "int8" not in model else None
    if before is not None:
        here.step(BATCH)
        assert not torch.equal(here.model.output.weight, before)
    with torch.inference_mode():
        for beam_size in (1, 5):
            assert here.decode(BATCH, beam_size) == [runner.LENGTH] * 2


def test_our_models_have_the_given_sizes():
    gru, transformer = (run_nmt.Nmt(model, vocab_size=30).model for model in ("gru_general", "transformer"))
    assert gru.output.weight.shape == gru.decoder.embedding.weight.shape == (30, HIDDEN)
    assert gru.encoder.output_size == gru.decoder.size == HIDDEN
    assert transformer.output.weight is transformer.encoder.embedding.weight
    for side in (transformer.encoder, transformer.decoder):
        assert len(side.layers) == runner.LAYERS
        assert side.embedding.embedding_dim == runner.SIZE
        assert side.layers[0].self_attention.num_heads == runner.HEADS


def test_jobs_hold_the_batches_of_training_with_the_ids_of_the_runners(tmp_path):
    settings = [*TINY, f"data.cache_dir={tmp_path}", "data.tokenizer.vocab_size=300"]
    job = toolkits.make_job(settings, 2)
    assert len(job["batches"]) == 2
    for src, tgt in job["batches"]:
        assert len(src) == len(tgt)
        for row in src + tgt:
            assert row[-1] == EOS
            assert not {PAD, BOS, EOS} & set(row[:-1])
    with pytest.raises(UserError, match=r"fewer than 9999: lower --rounds or --batches"):
        toolkits.make_job(settings, 9999)


def test_rows_name_the_fastest_other_toolkit():
    rates = {"nmt": (100, 90, 110), "eole": (50, 300, 60), "opennmt": (80, 100, 70)}
    turns = {name: [Turn(7, rate) for rate in each] for name, each in rates.items()}
    row = toolkits.row_of("beam", "gru_general", turns)
    assert row["work"] == "beam 5, GRU general, no input feeding"
    assert (row["here"], row["toolkit"], row["there"]) == (100, "OpenNMT-py 3.5", 80)
    assert (row["ratio"], row["range"]) == (1.25, [0.9, 1.57])
    cells = toolkits.table([row]).splitlines()[-1].split("|")
    assert [each.strip() for each in cells[2:-1]] == ["100", "60", "80", "1.25 (0.90–1.57)"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a second process reads the open file")
def test_toolkits_take_turns_on_the_same_work(tmp_path, monkeypatch, capsys):
    """With the two that this project's extras install."""
    output = tmp_path / "record.json"
    words = [*TINY, f"data.cache_dir={tmp_path}/cache", "data.tokenizer.vocab_size=300"]
    words += ["--models", "transformer", "--toolkits", "transformers", "ctranslate2"]
    words += ["--rounds", "1", "--batches", "1", "--output", str(output)]
    monkeypatch.setattr("sys.argv", ["toolkits.py", *words])
    toolkits.main()
    record = json.loads(output.read_text("utf-8"))
    assert [row["work"].partition(",")[0] for row in record["rows"]] == ["training", "greedy", "beam 5"]
    assert [set(row["rounds"]) for row in record["rows"]] == [
        {"here", "transformers 5"},
        *2 * [{"here", "transformers 5", "CTranslate2 4"}],
    ]
    sizes = record["parameters"]["transformer"]
    assert sizes["here"] == sizes["CTranslate2 4"] == pytest.approx(sizes["transformers 5"], rel=0.005)
    assert "beam 5, Transformer" in capsys.readouterr().out
