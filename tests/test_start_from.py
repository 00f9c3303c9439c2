"""A run that starts from another has its weights and its tokenizer; parts may be frozen, and old text mixed in."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from omegaconf import OmegaConf

from nmt import kernels
from nmt.config.build import build
from nmt.config.commands import check_settings
from nmt.data.batching import collate
from nmt.data.datamodule import TranslationDataModule
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.run.model import build_translator
from nmt.training import fine_tuning
from nmt.training.fine_tuning import freeze, mix_in_old_text
from nmt.training.module import TranslationModule
from nmt.training.muon import make_optimizer
from tests.commands import compose, refused, run_composed

TINY = [
    *("data.num_train=100", "data.num_val=5", "data.num_test=5", "data.max_words=12", "decoding=greedy"),
    *("trainer.max_epochs=1", "trainer.log_every_n_steps=1", "trainer.accelerator=cpu"),
    *("trainer.enable_progress_bar=false", "callbacks.alignments=null"),
]


@pytest.fixture(scope="module")
def origin(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("origin")
    of_its_own = ["data.tokenizer.vocab_size=300", "data.tokenizer.lowercase=true", "model.size=16"]
    ended = run_composed(
        "train", *TINY, *of_its_own, f"run_dir={directory}", f"data.cache_dir={directory}/cache"
    )
    assert ended.status == 0, ended.err
    return directory


def start(origin: Path, run_dir: Path, *overrides: str):
    places = [f"start_from={origin}", f"run_dir={run_dir}", f"data.cache_dir={origin}/cache"]
    return run_composed("train", *TINY, *places, *overrides)


def test_a_run_begins_with_the_weights_and_the_tokenizer_of_another(origin, tmp_path, caplog):
    """At a rate that changes next to nothing, they are its own at the end, of other text and with another seed."""
    caplog.set_level("INFO")
    ended = start(
        *(origin, tmp_path, "model.size=16", "optimizer.lr=1e-12", "seed=2", "data.tokenizer.sampling=0.1"),
        "attention.temperature=2",
    )
    assert ended.status == 0, ended.err
    assert "the model differs from that of start_from: decoder.attention.temperature 1.0 → 2" in caplog.text
    [before, after] = [
        torch.load(each / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
        for each in (origin, tmp_path)
    ]
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], rtol=0, atol=1e-9) for name in before)
    for file in (origin / "tokenizer").iterdir():
        assert (tmp_path / "tokenizer" / file.name).read_bytes() == file.read_bytes()
    stored = OmegaConf.load(tmp_path / "config.yaml")
    check_settings(stored, "train")  # as when the run is resumed
    tokenizer = stored.data.tokenizer
    assert (tokenizer.vocab_size, tokenizer.lowercase, tokenizer.sampling) == (300, True, 0.1)


def test_a_run_cannot_start_from_another_model_or_choose_the_vocabulary(origin, tmp_path):
    refused(
        start(origin, tmp_path),
        "does not fit the configured model",
        "size mismatch for encoder.embedding.weight",
    )
    vocabulary = "data.tokenizer.vocab_size=200"
    refused(start(origin, tmp_path, vocabulary), "data.tokenizer.vocab_size has no effect with start_from=")
    refused(start(tmp_path / "nothing", tmp_path), "no such run directory")


def translator(origin: Path, *overrides: str):
    cfg = compose("train", "model.size=16", "model.dropout=0", *overrides)
    return build_translator(cfg.model, Tokenizer.load(origin / "tokenizer", lowercase=True))


def frozen(model) -> set[str]:
    return {name for name, each in model.named_parameters(remove_duplicate=False) if not each.requires_grad}


DATA = {"reader": "nmt.data.corpus.read_grammar", "cache_dir": "c", "src_lang": "en", "tgt_lang": "vi"}
TRANSFORMER = ["model=transformer", "encoder.num_heads=2", "decoder.num_heads=2", "decoder.num_layers=2"]
UNTIED = ["model.tie_source=false", "model.tie_output=false"]


def test_frozen_parts_are_those_named_with_the_weights_that_they_share(origin):
    model = translator(origin, *TRANSFORMER, *UNTIED)
    freeze(model, [])
    assert frozen(model) == set()
    said = freeze(model, ["encoder"])
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert frozen(model) == {name for name in names if name.startswith("encoder.")}
    number = sum(each.numel() for each in model.encoder.parameters())
    assert said == f"encoder, {number:,} of {model.num_parameters:,} parameters"
    model = translator(origin, *TRANSFORMER, *UNTIED)
    freeze(model, ["embeddings", "decoder.layers.1"])
    more = ("encoder.embedding.", "decoder.layers.1.", "decoder.embedding.")
    assert frozen(model) == {name for name in names if name.startswith(more)}
    tied = translator(origin, *TRANSFORMER)
    said = freeze(tied, ["encoder"])
    assert {"decoder.embedding.weight", "output.weight"} < frozen(tied)
    assert said.endswith("; decoder.embedding.weight, output.weight too, which they share")


@pytest.mark.parametrize(
    ("names", "facts"),
    [
        (["encodr"], ["freeze=[encodr]", "decoder.embedding", "embeddings, encoder"]),
        (["encoder", "decoder", "output"], ["freeze=[encoder,decoder,output]", "nothing to train"]),
        ([""], ["freeze=[]"]),
    ],
)
def test_names_of_no_part_and_a_model_frozen_whole_are_refused(names, facts, origin):
    with pytest.raises(UserError) as error:
        freeze(translator(origin), names)
    for fact in facts:
        assert fact in str(error.value)


def gradients(model, kind: str) -> dict[str, torch.Tensor]:
    """Those of the loss of two sentences."""
    rows = [{"index": n, "src_ids": [5, 7, 9 + n, 3], "tgt_ids": [6, 8 + n, *[11] * n, 3]} for n in range(2)]
    settings = {"label_smoothing": 0.1, "guided_alignment": 0.0}
    module = TranslationModule(model, optimizer=None, scheduler=None, **settings)
    with kernels.using(kind):
        module.loss_of(collate(rows, pad_id=0, bos_id=2)).smoothed.backward()
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon", "sgd"])
@pytest.mark.parametrize("model", [[], TRANSFORMER], ids=["gru", "transformer"])
def test_frozen_weights_have_no_gradient_no_state_and_no_decay(model, optimizer, origin):
    """The other gradients are those of the model without frozen parts, by fast and by plain kernels."""
    free, part_frozen = (translator(origin, *model) for _ in range(2))
    part_frozen.load_state_dict(free.state_dict())
    freeze(part_frozen, ["encoder"])
    expected = gradients(free, "plain")
    for kind in ("fast", "plain"):
        part_frozen.zero_grad()
        found = gradients(part_frozen, kind)
        assert found.keys() == {name for name in expected if name not in frozen(part_frozen)}
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)
    before = {name: value.clone() for name, value in part_frozen.state_dict().items()}
    factory = build(compose("train", f"optimizer={optimizer}").optimizer, "optimizer")
    factory.keywords.update({"weight_decay": 0.1} if optimizer == "adamw" else {})
    rule = make_optimizer(factory, part_frozen)
    rule.step()
    assert {id(each) for group in rule.param_groups for each in group["params"]} == {
        id(each) for each in part_frozen.parameters() if each.requires_grad
    }
    same = {name for name, value in part_frozen.state_dict().items() if torch.equal(value, before[name])}
    assert frozen(part_frozen) <= same
    assert not same & found.keys() - {name for name, each in found.items() if not each.any()}


def pairs(prefix: str, number: int, **more: list[str]) -> Dataset:
    return Dataset.from_dict({"src": [f"{prefix} {n}" for n in range(number)], "tgt": ["x"] * number, **more})


@pytest.mark.parametrize(
    ("share", "number", "most"), [(0.5, 30, 1), (0.25, 10, 1), (0.9, 270, 3), (0.001, 1, 1)]
)
def test_old_pairs_are_the_share_of_all_and_drawn_evenly(share, number, most, monkeypatch):
    old = pairs("old", 100, alignment=["0-0"] * 100)
    monkeypatch.setattr(fine_tuning, "load_config", lambda _: OmegaConf.create({"data": DATA}))
    monkeypatch.setattr(fine_tuning, "read_whole", lambda *_, **__: {"train": old})
    cfg = {"start_from": "there", "old_share": share, "seed": 1, "trusted": [], "data": {"cache_dir": "c"}}
    mixed = mix_in_old_text(OmegaConf.create(cfg), pairs("new", 30))
    assert mixed.column_names == ["src", "tgt"]
    assert mixed["src"][:30] == [f"new {n}" for n in range(30)]
    counts = Counter(mixed["src"][30:])
    assert counts.total() == number
    assert set(counts) <= set(old["src"])
    assert max(counts.values()) == most
    assert min(counts.values()) >= most - 1
    again = mix_in_old_text(OmegaConf.create(cfg), pairs("new", 30))
    assert list(again["src"]) == list(mixed["src"])
    other = mix_in_old_text(OmegaConf.create(cfg | {"seed": 2}), pairs("new", 30))
    assert list(other["src"]) != list(mixed["src"])


@pytest.mark.slow
def test_a_frozen_run_with_old_text_is_resumed_as_it_was(origin, tmp_path, caplog):
    """In two halves it is the run of one piece; the frozen weights are those of the origin."""
    caplog.set_level("INFO")
    settings = ["model.size=16", "data.seed=2", "freeze=[encoder]", "old_share=0.5", "optimizer.lr=0.01"]
    settings += ["scheduler=constant", "trainer.max_epochs=2"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert start(origin, whole, *settings).status == 0
    assert "old_share=0.5: 100 pairs of the text of" in caplog.text
    assert "frozen: encoder, " in caplog.text
    assert start(origin, parts, *settings, "trainer.max_epochs=1").status == 0
    given = [f"resume={parts}", "trainer.max_epochs=2", f"data.cache_dir={origin}/cache"]
    ended = run_composed("train", *given)
    assert ended.status == 0, ended.err
    first, last, resumed = (
        torch.load(each / "checkpoints" / "last.ckpt", weights_only=True) for each in (origin, whole, parts)
    )
    shared = first["state_dict"]["translator.encoder.embedding.weight"]
    for name, value in last["state_dict"].items():
        assert torch.equal(value, resumed["state_dict"][name]), name
        before = first["state_dict"][name]
        is_frozen = name.startswith("translator.encoder.") or torch.equal(before, shared)
        assert torch.equal(value, before) == is_frozen, name
    stored = OmegaConf.load(parts / "config.yaml")
    assert (list(stored.freeze), stored.old_share) == (["encoder"], 0.5)
    refused(run_composed("train", f"resume={parts}", "freeze=[]"), "freeze cannot change")
    moved = ["trainer.max_epochs=3", f"start_from={tmp_path / 'moved'}"]
    refused(run_composed("train", f"resume={parts}", *moved), "old_share reads its text: give start_from=")


def test_freeze_and_old_share_need_a_run_to_start_from(origin, tmp_path):
    for setting in ("freeze=[encoder]", "old_share=0.5"):
        refused(run_composed("train", *TINY, setting), setting.replace("[encoder]", ""), "needs start_from=")
    files = [
        "data=files",
        "data.src_lang=en",
        "data.tgt_lang=vi",
        f"data.path={tmp_path}",
        "data.streaming=9",
    ]
    small = [each for each in TINY if not each.startswith("data.")]
    ended = run_composed("train", *small, f"start_from={origin}", "old_share=0.5", *files)
    refused(ended, "old_share=0.5", "data.streaming")
    refused(start(origin, tmp_path, "old_share=1.0"), "old_share=1.0")
    places = [f"start_from={origin}", f"run_dir={tmp_path}", "model.size=16", *files[:-1]]
    ended = run_composed(
        "train", *small, *places, "freeze=[encodr]"
    )  # before the folder is found to be empty
    refused(ended, "freeze=[encodr]", "encoder")
    assert not (tmp_path / "config.yaml").exists()


def test_a_model_larger_than_its_checkpoint_and_settings_without_a_tokenizer_are_refused(origin, tmp_path):
    """Before memory is taken for it."""
    for name, key, value, fragment in (
        ("large", "model.size", 60_000, "does not fit the configured model, which has more weights"),
        ("bare", "data.tokenizer", None, "config.yaml is broken: it has no data.tokenizer"),
    ):
        other = tmp_path / name
        shutil.copytree(origin, other)
        config = OmegaConf.load(other / "config.yaml")
        if value is None:
            del config.data["tokenizer"]
        else:
            assert OmegaConf.select(config, key)
            OmegaConf.update(config, key, value)
        OmegaConf.save(config, other / "config.yaml")
        refused(start(other, tmp_path / "new", "freeze=[encoder]"), fragment)


def test_pieces_that_the_vocabulary_lacks_are_told_with_their_share_and_words(origin, caplog):
    tokenizer = Tokenizer.load(origin / "tokenizer", lowercase=True)
    targets = ["con chó ngủ ."] * 19 + ["ж Щи щи ю ."]
    rows = Dataset.from_dict({"src": ["a dog sleeps ."] * 20, "tgt": targets})
    limits = {"max_length": 99, "max_ratio": 9.0, "max_tokens": 99, "seed": 1, "guided": False}
    TranslationDataModule({"train": rows, "val": rows.select([0])}, tokenizer, **limits)
    [line] = [each for each in caplog.text.splitlines() if "of 20 training targets" in each]
    pieces = tokenizer.encode_target(targets)
    share = sum(row.count(tokenizer.unk_id) for row in pieces) / sum(map(len, pieces))
    assert f"({100 * share:.2g} % of the pieces, as in ж, Щи, щи)" in line
