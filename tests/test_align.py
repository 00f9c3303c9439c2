"""Aligning given pairs with a run, and scoring alignments, as the command does it."""

import importlib.util
from pathlib import Path

import hydra
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from nmt import alignment
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.run import Run, build_translator

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ["a small house stands here", "the house", "", "here stands the small house"]
TARGETS = ["ở đây có một ngôi nhà nhỏ", "ngôi nhà", "", "ngôi nhà nhỏ ở đây"]


def load_script(name: str):
    specification = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def compose(name: str, *overrides: str):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        return hydra.compose(name, overrides=list(overrides))


def make_run(directory: Path, *overrides: str, vocab_size: int = 60) -> Path:
    """A run directory with random weights."""
    tokenizer = Tokenizer.train(
        SOURCES * 20,
        TARGETS * 20,
        model_type="bpe",
        joint=True,
        vocab_size=vocab_size,
        character_coverage=1.0,
    )
    tokenizer.save(directory / "tokenizer")
    model = OmegaConf.create(OmegaConf.to_container(compose("train", *overrides).model, resolve=True))
    torch.manual_seed(1)
    translator = build_translator(model, tokenizer)
    (directory / "checkpoints").mkdir()
    state = {f"translator.{name}": value for name, value in translator.state_dict().items()}
    torch.save({"state_dict": state}, directory / "checkpoints" / "best.ckpt")
    OmegaConf.save(OmegaConf.create({"model": model, "data": {}}), directory / "config.yaml")
    return directory


SMALL = ("model.hidden_size=8", "model.embedding_size=8")


@pytest.fixture(scope="module")
def gru(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("gru"), "attention=multi_head", *SMALL)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory) -> Path:
    sizes = ("model.size=8", "model.feedforward_size=8", "model.num_heads=2", "model.num_decoder_layers=2")
    return make_run(tmp_path_factory.mktemp("transformer"), "model=transformer", *sizes)


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    contents = {"src": SOURCES, "tgt": TARGETS, "gold": ["0-3 1p6 2-4 2-5", "1-0", "", "4-1 3-2"]}
    for name, lines in contents.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return {name: str(tmp_path / name) for name in contents}


def align(**settings):
    overrides = [f"{key}={value}" for key, value in settings.items()]
    return load_script("align").align(compose("align", *overrides))


@pytest.mark.parametrize("which", ["gru", "transformer"])
@pytest.mark.parametrize(("layer", "head"), [(None, None), (0, None), (0, 1)])
@pytest.mark.parametrize("reading", ["emitted", "fed"])
def test_weights_between_words_are_those_of_each_pair_alone(which, layer, head, reading, request):
    """A loop over pairs, without padding: choose, shift, group, sum over source pieces, average over target's."""
    run = Run.load(request.getfixturevalue(which))
    together = run.align(SOURCES, TARGETS, layer=layer, head=head, reading=reading)
    for source, target, weights in zip(SOURCES, TARGETS, together, strict=True):
        src_ids, src_words = run.tokenizer.align_source(source)
        tgt_ids, tgt_words = run.tokenizer.align_target(target)
        src = torch.tensor([src_ids])
        tgt_in = torch.tensor([[run.tokenizer.bos_id, *tgt_ids[:-1]]])
        cross = run.translator.attentions(src, src != run.tokenizer.pad_id, tgt_in).cross[0]
        rows = cross.mean(0) if layer is None else cross[layer]
        rows = (rows.mean(0) if head is None else rows[head]).detach().double().numpy()
        rows = rows[1:] if reading == "fed" else rows[:-1]
        expected = np.zeros((len(target.split()), len(source.split())))
        for j in range(len(expected)):
            own = [t for t, word in enumerate(tgt_words) if word == j]
            for t in own:
                total = sum(rows[t, s] for s, word in enumerate(src_words) if word >= 0)
                for s, word in enumerate(src_words):
                    if word >= 0:
                        expected[j, word] += rows[t, s] / total / len(own)
        np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_a_layer_or_head_that_is_not_there_is_named(transformer):
    run = Run.load(transformer)
    with pytest.raises(UserError, match=r"layer=2: .* has 2, counted from 0"):
        run.align(SOURCES, TARGETS, layer=2)
    with pytest.raises(UserError, match=r"head=5: .* has 2, counted from 0"):
        run.align(SOURCES, TARGETS, head=5)


def test_what_is_written_scores_as_what_was_printed(gru, files, tmp_path, capsys):
    output = tmp_path / "out.align"
    result = align(run=gru, src=files["src"], tgt=files["tgt"], gold=files["gold"], output=output)
    printed = capsys.readouterr().out
    assert align(alignment=output, gold=files["gold"]) == result
    assert capsys.readouterr().out == printed
    assert printed.startswith(f"AER {result.aer:.3f}  precision {result.precision:.3f}  recall")
    lines = output.read_text("utf-8").splitlines()
    assert len(lines) == len(SOURCES)
    assert lines[2] == ""
    for line, target in zip(lines, TARGETS, strict=True):
        assert [link.split("-")[1] for link in sorted(line.split(), key=lambda x: int(x.split("-")[1]))] == [
            str(j) for j in range(len(target.split()))
        ], "argmax links every target word once"


def test_the_gold_file_scores_as_perfect_and_flipped_not(files, capsys):
    assert align(alignment=files["gold"], gold=files["gold"]).aer == 0
    assert align(alignment=files["gold"], gold=files["gold"], flip_gold="true").aer > 0


def test_symmetrising_joins_two_directions_over_the_same_words(gru, tmp_path_factory, files, tmp_path):
    reverse = make_run(tmp_path_factory.mktemp("reverse"), "attention=luong_general", *SMALL)
    forward = [alignment.links_from_weights(w) for w in Run.load(gru).align(SOURCES, TARGETS)]
    backward = [alignment.links_from_weights(w) for w in Run.load(reverse).align(TARGETS, SOURCES)]
    output = tmp_path / "out.align"
    for method in ("union", "intersection", "grow-diag-final-and"):
        align(
            run=gru,
            reverse_run=reverse,
            src=files["src"],
            tgt=files["tgt"],
            output=output,
            symmetrization=method,
        )
        found = [alignment.parse_pharaoh(line) for line in output.read_text("utf-8").splitlines()]
        for one, other, links in zip(forward, backward, found, strict=True):
            assert links == alignment.symmetrize(one, {(i, j) for j, i in other}, method)


def test_search_scores_every_layer_and_head_in_both_readings(transformer, files, capsys):
    best = align(run=transformer, src=files["src"], tgt=files["tgt"], gold=files["gold"], search="true")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + (2 + 1) * (2 + 1) * 2
    assert float(lines[1].split()[3]) == pytest.approx(best.aer, abs=5e-4)
    chosen = {tuple(line.split()[:3]): float(line.split()[3]) for line in lines[1:]}
    alone = align(
        run=transformer,
        src=files["src"],
        tgt=files["tgt"],
        gold=files["gold"],
        layer=1,
        head=0,
        reading="fed",
    )
    assert chosen["1", "0", "fed"] == pytest.approx(alone.aer, abs=5e-4)


def test_pictures_outline_gold_and_skip_empty_lines(gru, files, tmp_path):
    page, heatmaps = tmp_path / "page.html", tmp_path / "heatmaps"
    align(run=gru, src=files["src"], tgt=files["tgt"], gold=files["gold"], page=page, heatmaps=heatmaps)
    assert "house" in page.read_text("utf-8")
    names = {path.name for path in heatmaps.iterdir()}
    assert names == {f"line_0000{n}.{form}" for n in (1, 2, 4) for form in ("png", "svg")}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "run is required"),
        ({"alignment": "a"}, "scored with gold=FILE alone"),
        ({"alignment": "a", "gold": "b", "run": "c"}, "not with run"),
        ({"run": "r", "src": "s", "tgt": "t", "method": "maximum"}, "method=maximum: choose one of argmax"),
        ({"run": "r", "src": "s", "tgt": "t", "page": "p.pdf"}, r"a page ends in \.html"),
        ({"run": "r", "src": "s", "tgt": "t", "search": "true", "output": "o"}, "leave output"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        align(**settings)


def test_files_that_do_not_fit_are_refused(gru, files, tmp_path):
    short = tmp_path / "short"
    short.write_text("0-0\n", "utf-8")
    with pytest.raises(UserError, match=r"has 4 lines but .*short has 1"):
        align(run=gru, src=files["src"], tgt=files["tgt"], gold=short)
    with pytest.raises(UserError, match=r"has 4 lines but .*short has 1"):
        align(run=gru, src=files["src"], tgt=short)
    with pytest.raises(UserError, match="needs gold=FILE"):
        align(run=gru, src=files["src"], tgt=files["tgt"], search="true")


def test_an_ensemble_of_one_run_with_itself_translates_as_it_does(gru, tmp_path):
    alone, twice = Run.load(gru), Run.load_ensemble([gru, gru])
    ours, theirs = (run.translate(SOURCES, beam_size=3) for run in (alone, twice))
    assert [each.text for each in ours] == [each.text for each in theirs]
    assert [each.score for each in ours] == pytest.approx([each.score for each in theirs], abs=1e-4)


def test_an_ensemble_shares_its_tokenizer(gru, tmp_path_factory):
    other = make_run(tmp_path_factory.mktemp("other"), *SMALL, vocab_size=55)
    with pytest.raises(UserError, match="different tokenizers"):
        Run.load_ensemble([gru, other])


def test_translations_begin_with_their_prefixes(gru):
    found = Run.load(gru).translate(SOURCES, prefixes=TARGETS)
    for target, translation in zip(TARGETS, found, strict=True):
        assert translation.text.startswith(target)
    with pytest.raises(UserError, match="4 lines to translate but 1 prefixes"):
        Run.load(gru).translate(SOURCES, prefixes=["a"])


def test_a_line_beyond_the_limit_is_translated_in_parts(gru, monkeypatch, caplog):
    """Cut at words, translated by themselves, joined; other lines of the same call are as they were alone."""
    run = Run.load(gru)
    long = " ".join(SOURCES[0].split() * 6)
    alone = run.translate([SOURCES[1]])[0]
    monkeypatch.setattr("nmt.run.directory.MOST_PIECES", 12)
    parts = run._parts(long)
    assert len(parts) > 2
    assert " ".join(parts) == long
    assert all(len(ids) <= 12 for ids in run.tokenizer.encode_source(parts))
    with caplog.at_level("WARNING", logger="nmt.run.directory"):
        found = run.translate([SOURCES[1], long, ""])
    assert "1 of 3 lines have more than 12 pieces" in caplog.text
    assert found[0].text == alone.text
    assert found[2].text == ""
    joined = [run.translate([part])[0] for part in parts]
    assert found[1].text == " ".join(each.text for each in joined if each.text)
    assert found[1].source_words == long.split()
    assert found[1].weights.shape == (len(found[1].target_words), len(long.split()))
    row = column = 0
    for each in joined:
        height, width = each.weights.shape
        block = found[1].weights[row : row + height]
        np.testing.assert_allclose(block[:, column : column + width], each.weights, atol=1e-6)
        assert not np.delete(block, np.s_[column : column + width], axis=1).any()
        row, column = row + height, column + width


def test_a_word_beyond_the_limit_is_cut_between_characters(gru, monkeypatch):
    run = Run.load(gru)
    monkeypatch.setattr("nmt.run.directory.MOST_PIECES", 12)
    parts = run._parts("house" * 40)
    assert "".join(parts) == "house" * 40
    assert len(run.translate(["house" * 40])) == 1
