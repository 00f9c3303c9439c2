"""Aligning given pairs with a run, and scoring alignments, as the command does it."""

import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from omegaconf import OmegaConf

from nmt import alignment, metrics, plotting
from nmt.analysis import explain, head_importance
from nmt.data import grammar
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.run.run import Run
from nmt.run.translating import split_sentences
from tests.commands import align, translate
from tests.small import SMALL, SOURCES, TARGETS, make_run, written


@pytest.fixture(scope="module")
def gru(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("gru"), "attention=multi_head", *SMALL)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory) -> Path:
    sizes = (
        "model.size=8",
        "encoder.feedforward_size=8",
        "decoder.feedforward_size=8",
        "encoder.num_heads=2",
        "decoder.num_heads=2",
        "decoder.num_layers=2",
    )
    return make_run(tmp_path_factory.mktemp("transformer"), "model=transformer", *sizes)


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    contents = {"src": SOURCES, "tgt": TARGETS, "gold": ["0-3 1p6 2-4 2-5", "1-0", "", "4-1 3-2"]}
    for name, lines in contents.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return {name: str(tmp_path / name) for name in contents}


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


@pytest.mark.parametrize("settings", [["attention=luong_general"], ["attention=none"]])
def test_pairs_are_aligned_by_an_explanation(settings, tmp_path, files):
    run = make_run(tmp_path, *settings, *SMALL)
    output = tmp_path / "out.align"
    align(run=run, src=files["src"], tgt=files["tgt"], output=output, explain="occlusion")
    own = Run.load(run)
    for source, target, line in zip(SOURCES, TARGETS, output.read_text("utf-8").splitlines(), strict=True):
        sizes = np.abs(explain(own, source, target, "occlusion").source)
        weights = own.between_words(sizes / sizes.sum(axis=1, keepdims=True), source, target)
        assert alignment.parse_pharaoh(line) == alignment.links_from_weights(weights)


def test_the_sure_links_score_as_perfect_and_flipped_not(files, tmp_path):
    with pytest.raises(UserError, match=r"gold:1: a Pharaoh line has links i-j only"):
        align(alignment=files["gold"], gold=files["gold"])
    sure = written(tmp_path / "sure", "0-3 2-4 2-5", "1-0", "", "4-1 3-2")
    assert align(alignment=sure, gold=files["gold"]).aer == 0
    assert align(alignment=sure, gold=files["gold"], flip_gold="true").aer > 0


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


def test_both_directions_are_read_by_the_same_layer_head_and_reading(transformer, files, monkeypatch):
    asked: list[dict] = []
    whole = Run.align_pairs
    monkeypatch.setattr(
        Run, "align_pairs", lambda self, *texts, **how: asked.append(how) or whole(self, *texts, **how)
    )
    given = {"src": files["src"], "tgt": files["tgt"], "gold": files["gold"]}
    align(run=transformer, reverse_run=transformer, **given, layer=1, head=0, reading="fed")
    assert asked == [{"layer": 1, "head": 0, "reading": "fed", "units": "words", "first_line": 1}] * 2


def test_the_run_s_own_direction_comes_first_in_symmetrising(gru, tmp_path_factory, files, monkeypatch):
    """It matters to grow-diag-final, whose last links are taken from one after the other."""
    reverse = make_run(tmp_path_factory.mktemp("reverse"), "attention=luong_general", *SMALL)
    given: list[tuple] = []
    symmetrize = alignment.symmetrize
    monkeypatch.setattr(alignment, "symmetrize", lambda *each: given.append(each) or symmetrize(*each))
    align(run=gru, reverse_run=reverse, src=files["src"], tgt=files["tgt"], gold=files["gold"])
    forward = [alignment.links_from_weights(w) for w in Run.load(gru).align(SOURCES, TARGETS)]
    assert [one for one, _, _ in given] == forward


def test_a_reverse_run_of_other_languages_is_refused(gru, tmp_path, files):
    """Only where both say what they were trained on."""
    runs = {}
    for name, languages in {"en-vi": ("en", "vi"), "vi-en": ("vi", "en"), "en-de": ("en", "de")}.items():
        runs[name] = tmp_path / name
        shutil.copytree(gru, runs[name])
        config = OmegaConf.load(gru / "config.yaml")
        config.data = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
        OmegaConf.save(config, runs[name] / "config.yaml")
    settings = {"src": files["src"], "tgt": files["tgt"], "gold": files["gold"]}
    assert align(run=runs["en-vi"], reverse_run=runs["vi-en"], **settings) is not None
    for other, direction in (("en-vi", "en to vi"), ("en-de", "en to de")):
        with pytest.raises(UserError, match=f"translates {direction}, which is not en to vi in reverse"):
            align(run=runs["en-vi"], reverse_run=runs[other], **settings)


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


def test_the_mean_over_layers_is_that_of_all_where_the_model_has_its_own_layer(
    transformer, files, capsys, tmp_path
):
    """The same weights, of which one configuration says which layer aligns."""
    own = tmp_path / "own"
    shutil.copytree(transformer, own)
    config = OmegaConf.load(own / "config.yaml")
    config.model.decoder.alignment_layer = 0
    OmegaConf.save(config, own / "config.yaml")
    given = {"src": files["src"], "tgt": files["tgt"], "gold": files["gold"]}
    tables = []
    for run in (transformer, own):
        align(run=run, **given, search="true")
        tables.append(sorted(capsys.readouterr().out.splitlines()))
    assert tables[0] == tables[1]
    [layer], [mean] = (Run.load(own).align(SOURCES[:1], TARGETS[:1], layer=each) for each in (0, None))
    np.testing.assert_array_equal(layer, mean)
    [mean] = Run.load(transformer).align(SOURCES[:1], TARGETS[:1])
    assert not np.allclose(layer, mean)


def test_pictures_outline_gold_and_skip_empty_lines(gru, files, tmp_path, monkeypatch):
    page, heatmaps, drawn = tmp_path / "page.html", tmp_path / "heatmaps", []

    def noted(*arguments, title, gold):
        drawn.append((title, gold))
        return plotting.heatmap(*arguments, title=title, gold=gold)

    monkeypatch.setattr("nmt.plotting.output.heatmap", noted)
    align(run=gru, src=files["src"], tgt=files["tgt"], gold=files["gold"], page=page, heatmaps=heatmaps)
    assert "house" in page.read_text("utf-8")
    assert '"langs": {"source": "", "target": ""}' in page.read_text("utf-8")  # the run does not say them
    gold = [sure for sure, _ in alignment.read_alignments(files["gold"])]
    assert drawn == [(f"line {n}", gold[n - 1]) for n in (1, 2, 4)]
    names = {path.name for path in heatmaps.iterdir()}
    assert names == {f"line_0000{n}.{form}" for n in (1, 2, 4) for form in ("png", "svg")}


def test_without_a_run_words_are_aligned_by_counting(tmp_path, capsys, caplog):
    pairs = grammar.corpus(num_train=500, num_val=1, num_test=1, max_words=12, seed=1)["train"]
    given = {name: tmp_path / name for name in ("src", "tgt", "gold", "output")}
    gold = [alignment.format_pharaoh(pair.alignment) for pair in pairs]
    for name, lines in (
        ("src", [each.en for each in pairs]),
        ("tgt", [each.vi for each in pairs]),
        ("gold", gold),
    ):
        given[name].write_text("".join(f"{line}\n" for line in ["", *lines]), "utf-8")
    assert align(**given).aer < 0.25
    assert capsys.readouterr().out.startswith("AER 0.")
    assert caplog.messages == [
        f"{given['src']} has 501 lines: without run=, words are counted, and need thousands"
    ]
    links = alignment.align_words(
        *(
            [each.split() for each in given[name].read_text("utf-8").split("\n")[:-1]]
            for name in ("src", "tgt")
        )
    )
    assert given["output"].read_text().splitlines() == [*map(alignment.format_pharaoh, links)]
    given["gold"].write_text("0-0\n" + "\n" * len(pairs))
    with pytest.raises(UserError, match=r"gold:1: link 0-0 is out of range: the line has 0 words"):
        align(**given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "src is required"),
        ({"src": "a", "tgt": "b", "layer": 0}, "layer=0 has no effect without run=RUN_DIR"),
        ({"src": "a", "tgt": "b", "units": "pieces"}, "units=pieces are those of a run"),
        ({"alignment": "a"}, "scored with gold=FILE alone"),
        ({"alignment": "a", "gold": "b", "run": "c"}, "not with run"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        align(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search": "true", "output": "o"}, "output=o has no effect with search=true"),
        ({"search": "true", "reading": "fed"}, "reading=fed has no effect with search=true"),
        ({"explain": "occlusion", "head": 0}, "head=0 has no effect with explain=METHOD"),
        ({"threshold": 0.5}, r"threshold=0\.5 has no effect without method=threshold: leave it out"),
        ({"symmetrization": "union"}, "symmetrization=union has no effect without reverse_run=RUN_DIR"),
        ({"flip_gold": "true"}, "flip_gold=true has no effect without gold=FILE"),
        ({"search": "true"}, "search=true needs gold=FILE"),
        ({"output": "nowhere/links"}, "output=nowhere/links: there is no folder nowhere"),
        ({"output": "links.zst"}, r"output=links.zst: text is packed as .gz, .xz or .bz2"),
    ],
)
def test_settings_that_cannot_take_effect_are_refused_and_their_defaults_are_not(settings, message):
    neutral = {"threshold": 0.3, "symmetrization": "grow-diag-final-and", "flip_gold": "false"}
    with pytest.raises(UserError, match=message):
        align(**{"run": "r", "src": "s", "tgt": "t", **neutral, **settings})


@pytest.mark.parametrize(
    ("link", "flip", "said"),
    [("9-9", "false", "9-9"), ("2p0", "false", "2p0"), ("0-2", "false", "0-2"), ("2-0", "true", "2-0")],
)
@pytest.mark.parametrize("way", ["score", "search", "page"])
def test_gold_links_outside_their_pair_are_named_with_file_and_line(gru, way, link, flip, said, tmp_path):
    text = written(tmp_path / "text", "the house", "the house")
    gold = written(tmp_path / "gold.talp", "0-0 1p1", f"1-1 {link}")
    extra = {"search": {"search": "true"}, "page": {"page": tmp_path / "page.html"}}.get(way, {})
    with pytest.raises(
        UserError, match=rf"gold\.talp:2: link {said} is out of range: the line has 2 words .* and 2 "
    ):
        align(run=gru, src=text, tgt=text, gold=gold, flip_gold=flip, **extra)


def test_links_that_seem_to_count_from_one_are_hinted_at(gru, files, tmp_path, caplog):
    """Of a file to score, of gold links within their pairs, and of gold links beyond them."""
    gold = written(tmp_path / "gold", "0-3 1-5", "1-0", "", "4-1")
    from_1 = written(tmp_path / "from_1", "1-4 2-6", "2-1", "", "5-2")
    for hypothesis, reference, file in ((from_1, gold, from_1), (gold, from_1, from_1)):
        caplog.clear()
        align(alignment=hypothesis, gold=reference)
        assert f"{file} has no link of a word 0: does it count from 1?" in caplog.text
    caplog.clear()
    empty = written(tmp_path / "empty", "", "", "", "")
    for hypothesis, reference in ((gold, gold), (from_1, from_1), (empty, from_1), (from_1, empty)):
        align(alignment=hypothesis, gold=reference)
    assert caplog.text == ""
    beyond = written(tmp_path / "beyond", "1-4 5-8", "", "", "")
    with pytest.raises(UserError, match=r"out of range: .*: does the file count from 1\?"):
        align(run=gru, src=files["src"], tgt=files["tgt"], gold=beyond)


def test_files_without_lines_give_no_line_and_nothing_to_draw_or_to_search(gru, tmp_path, capsys):
    empty = written(tmp_path / "empty")
    given = {"run": gru, "src": empty, "tgt": empty}
    assert align(**given) is None
    align(**given, output=tmp_path / "out")
    translate(run=gru, input=empty)
    translate(run=gru, input=empty, alignments=tmp_path / "links")
    assert capsys.readouterr().out == ""
    assert (tmp_path / "out").read_bytes() == (tmp_path / "links").read_bytes() == b""
    with pytest.raises(UserError, match=r"empty has no lines: there is nothing to search"):
        align(**given, gold=empty, search="true")


def test_files_that_do_not_fit_are_refused(gru, files, tmp_path):
    short = tmp_path / "short"
    short.write_text("0-0\n", "utf-8")
    with pytest.raises(UserError, match=r"has 4 lines but .*short has 1"):
        align(run=gru, src=files["src"], tgt=files["tgt"], gold=short)
    with pytest.raises(UserError, match=r"has 4 lines but .*short has 1"):
        align(run=gru, src=files["src"], tgt=short)


def test_agreement_is_the_mean_over_layers_and_target_pieces(transformer):
    run = Run.load(transformer)
    scores, _ = run.score(Dataset.from_dict({"src": SOURCES, "tgt": TARGETS}), num_bootstrap=0)
    each = [alignment.agreement(heads).ravel() for _, heads in run.attentions(SOURCES, TARGETS)]
    assert scores["attention"]["agreement"] == pytest.approx(np.concatenate(each).mean(), rel=1e-6)


def test_an_ensemble_shares_its_tokenizer(gru, tmp_path_factory):
    other = make_run(tmp_path_factory.mktemp("other"), *SMALL, vocab_size=55)
    with pytest.raises(UserError, match="different tokenizers"):
        Run.load_ensemble([gru, other])


def test_members_read_text_alike(gru, tmp_path):
    other = tmp_path / "lower"
    shutil.copytree(gru, other)
    config = OmegaConf.load(other / "config.yaml")
    config.data = {"tokenizer": {"lowercase": True}}
    OmegaConf.save(config, other / "config.yaml")
    with pytest.raises(UserError, match="different tokenizers"):
        Run.load_ensemble([gru, other])


def test_translations_without_weights_are_the_same_texts(gru):
    run, lines = Run.load(gru), [*SOURCES, ""]
    with_weights, without = (run.translate(lines, need_weights=wanted) for wanted in (True, False))
    assert [each.text for each in without] == [each.text for each in with_weights]
    assert all(each.weights is None for each in without)
    assert all(each.weights is not None for each in with_weights)


def test_translations_begin_with_their_prefixes(gru):
    found = Run.load(gru).translate(SOURCES, prefixes=TARGETS)
    for target, translation in zip(TARGETS, found, strict=True):
        assert translation.text.startswith(target)
    with pytest.raises(UserError, match="4 lines to translate but 1 prefixes"):
        Run.load(gru).translate(SOURCES, prefixes=["a"])


def test_lines_with_unknown_characters_are_counted(gru, caplog):
    run = Run.load(gru)
    run.translate([*SOURCES, "猫は寝ている。", "the 猫"], prefixes=[*TARGETS, "", "ж"], num_best=2)
    hold = "hold characters that the vocabulary does not know"
    assert [each.partition(":")[0] for each in caplog.messages] == [
        f"2 of 6 lines {hold} (猫, は, 寝, て, い, る, 。)",
        f"1 of 6 prefixes {hold} (ж)",
    ]


def test_unknown_characters_of_given_pairs_are_counted(gru, caplog):
    Run.load(gru).align([*SOURCES, "the 猫"], [*TARGETS, "жuk ж"])
    assert [each.partition(" hold")[0] for each in caplog.messages] == ["1 of 5 sources", "1 of 5 targets"]


@pytest.mark.parametrize("max_tokens", [4096, 1])
def test_an_empty_prefix_leaves_its_line_free(gru, max_tokens):
    """In a batch with lines that have one, and in one of its own."""
    run = Run.load(gru)
    long, short = SOURCES[0], SOURCES[1]
    free, begun = run.translate([long, short], prefixes=["", "ngôi nhà"], max_tokens=max_tokens)
    assert free.text == run.translate([long])[0].text
    assert begun.text.startswith("ngôi nhà")


@pytest.mark.parametrize("prefix", ["", "ngôi nhà"])
def test_a_prefix_of_a_line_in_parts_is_that_of_its_first_part(gru, prefix, monkeypatch):
    run = Run.load(gru)
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    long = " ".join(SOURCES[0].split() * 3)
    first, *others = run._parts(long)
    found, other = run.translate([long, SOURCES[1]], prefixes=[prefix, "ở đây"])
    alone = [run.translate([first], prefixes=[prefix])[0], *(run.translate([part])[0] for part in others)]
    assert found.text == " ".join(each.text for each in alone if each.text)
    assert found.text.startswith(prefix)
    assert other.text.startswith("ở đây")


@pytest.mark.parametrize("most", [512, 12], ids=["whole", "cut"])
def test_a_prefix_longer_than_its_translation_may_be_is_named_by_its_line(gru, most, monkeypatch):
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", most)
    lines, prefixes = [*SOURCES, " ".join([SOURCES[0]] * 5)], ["", "", "", TARGETS[0], ""]
    with pytest.raises(
        UserError, match=r"^the prefix of line 14 has [0-9]+ pieces, .* only 1: raise max_length"
    ):
        Run.load(gru).translate(lines, DecodingSettings(max_length=1), prefixes=prefixes, first_line=11)


@pytest.mark.parametrize("number", [3, 5])
@pytest.mark.parametrize("way", ["file", "standard input"])
def test_prefixes_of_another_number_than_the_lines_are_refused_before_anything_is_out(
    gru, number, way, tmp_path, monkeypatch, capsys
):
    lines, prefixes = written(tmp_path / "in", *SOURCES), written(tmp_path / "begin", *["a"] * number)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines.read_bytes()), isatty=bool))
    given, name = ({"input": lines}, str(lines)) if way == "file" else ({}, "standard input")
    with pytest.raises(UserError, match=f"^{name} has 4 lines but {prefixes} has {number}$"):
        translate(run=gru, **given, prefixes=prefixes, block_size=1)
    assert capsys.readouterr().out == ""


def test_prefixes_go_with_their_lines_through_blocks(gru, tmp_path, capsys):
    lines, prefixes = written(tmp_path / "in", *SOURCES), written(tmp_path / "begin", *TARGETS)
    translate(run=gru, input=lines, prefixes=prefixes, block_size=3)
    for text, target in zip(capsys.readouterr().out.splitlines(), TARGETS, strict=True):
        assert text.startswith(target)


@pytest.mark.parametrize("key", ["output", "alignments"])
def test_a_folder_that_is_not_there_is_named_before_anything_is_read(key, tmp_path):
    with pytest.raises(UserError, match=rf"{key}=.*x\.txt: there is no folder .*nowhere"):
        translate(run="r", input="missing", **{key: tmp_path / "nowhere" / "x.txt"})


def test_settings_are_looked_at_before_the_first_line(gru, tmp_path):
    blank = written(tmp_path / "blank", "", "")
    with pytest.raises(
        UserError, match="decoding: beam search needs 1 <= num_best <= beam_size, got 2 and 1"
    ):
        translate(run=gru, input=blank, decoding="greedy", num_best=2)


@pytest.mark.parametrize("key", ["src", "tgt", "gold"])
def test_what_is_read_is_not_written_over(gru, files, key):
    before = Path(files[key]).read_text("utf-8")
    with pytest.raises(UserError, match=f"output=.* is that of {key} too"):
        align(run=gru, **files, output=files[key])
    with pytest.raises(UserError, match=r"alignments=.* is that of input too"):
        translate(run=gru, input=files[key], alignments=files[key])
    with pytest.raises(UserError, match=r"heatmaps=.* is that of output too"):
        translate(run=gru, input=files[key], output=f"{files[key]}.out", heatmaps=f"{files[key]}.out")
    assert Path(files[key]).read_text("utf-8") == before


def test_a_line_beyond_the_limit_is_translated_in_parts(gru, monkeypatch, caplog):
    """Cut at words, translated by themselves, joined; other lines of the same call are as they were alone."""
    run = Run.load(gru)
    long = " ".join(SOURCES[0].split() * 6)
    alone = run.translate([SOURCES[1]])[0]
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    parts = run._parts(long)
    assert len(parts) > 2
    assert " ".join(parts) == long
    assert all(len(ids) <= 12 for ids in run.tokenizer.encode_source(parts))
    with caplog.at_level("WARNING", logger="nmt.run.translating"):
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


def test_a_part_without_pieces_has_its_place_in_the_weights(gru, monkeypatch):
    run = Run.load(gru)
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    word = "house" * 40
    [found], [alone] = (run.translate([line]) for line in (f"{word} \u200b small", f"{word} small"))
    assert found.text == alone.text
    assert found.source_words == [word, "\u200b", "small"]
    np.testing.assert_allclose(found.weights, np.insert(alone.weights, 1, 0, axis=1), atol=1e-6)
    [(part, again)] = [(run.translate([word])[0], [run.translate([each])[0] for each in run._parts(word)])]
    assert part.log_prob == pytest.approx(sum(each.log_prob for each in again), rel=1e-4)


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("the house . here stands a house ?", ["the house .", "here stands a house ?"]),
        ('He said: "Go!" (She went.) Then', ['He said: "Go!"', "(She went.)", "Then"]),
        ("猫睡觉。「真的？」他说。", ["猫睡觉。", "「真的？」", "他说。"]),
        ("J. Smith paid 3.5, e.g. here. Yes", ["J. Smith paid 3.5, e.g. here.", "Yes"]),
        ("یک. دو؟ सच। हाँ", ["یک.", "دو؟", "सच।", "हाँ"]),
        ("no end ", ["no end"]),
        (". .", [".", "."]),
    ],
)
def test_sentences_end_at_full_stops(line, sentences):
    assert split_sentences(line) == sentences


def test_a_line_beyond_the_limit_is_cut_at_ends_of_sentences_first(gru, monkeypatch):
    """Only a sentence that is too long itself is cut at its words."""
    run = Run.load(gru)
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 20)
    sentences = ["a small house .", "the house stands here .", "here !"]
    long = " ".join(["the small house"] * 6) + " ."
    line = " ".join([*sentences, long])
    parts = run._parts(line)
    assert parts[:3] == sentences
    assert " ".join(parts[3:]) == long
    assert len(parts) > 4
    [found] = run.translate([line])
    texts = [each.text for each in run.translate(parts)]
    assert found.text == " ".join(each for each in texts if each)
    assert run._parts(sentences[0]) == sentences[:1]


@pytest.mark.parametrize("text", ["the house", b"the house"])
def test_a_string_in_place_of_lines_is_refused(gru, text):
    """Its letters would be taken for lines."""
    run = Run.load(gru)
    for call in (
        lambda: run.translate(text),
        lambda: run.translate(["the house"], prefixes=text),
        lambda: run.align(text, text),
        lambda: list(run.attentions(["the house"], text)),
        lambda: head_importance(run, text, text),
        lambda: run.tokenizer.encode_target(text),
        lambda: metrics.score_with({}, text, text, num_bootstrap=0),
        lambda: metrics.score_with({}, ["the house"], text, num_bootstrap=0),
    ):
        with pytest.raises(
            UserError, match=r"is one string: give a list of lines, such as \[b?'the house'\]"
        ):
            call()


def test_a_word_that_was_cut_among_others_keeps_its_place(gru, monkeypatch):
    run = Run.load(gru)
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    line = f"  the  {'house' * 20}\u3000stands "
    [found] = run.translate([line])
    assert found.source_words == line.split()
    assert found.weights.shape == (len(found.target_words), 3)
    parts = [run.translate([part])[0] for part in run._parts(line)]
    row = 0
    for part in parts:
        own = [next(i for i, word in enumerate(line.split()) if each in word) for each in part.source_words]
        block = found.weights[row : row + len(part.target_words)]
        np.testing.assert_allclose(block[:, own], part.weights, atol=1e-6)
        assert block.sum() == pytest.approx(part.weights.sum())
        row += len(part.target_words)


def test_a_long_line_is_named_by_its_number_in_the_input(gru, tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    lines = written(tmp_path / "in", *["the house"] * 4, "the house " * 9)
    with caplog.at_level("WARNING", logger="nmt.run.translating"):
        translate(run=gru, input=lines, block_size=2)
    assert "(the first is line 5)" in caplog.text


def test_lines_that_are_empty_or_cut_have_one_translation_of_the_n_best(gru, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    lines = written(tmp_path / "in", "the house", "", "the house " * 9)
    translate(run=gru, input=lines, num_best=3)
    rows = [line.split(" ||| ") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2", "3"]
    assert rows[3] == ["2", "", "0.0000"]


def test_the_training_text_of_a_run_that_streamed_it_is_read_whole(gru, tmp_path):
    rows = [{"en": source, "vi": target} for source, target in zip(SOURCES, TARGETS, strict=True)]
    for split in ("train", "val"):
        written(tmp_path / f"{split}.jsonl", *map(json.dumps, rows))
    data = {
        "reader": "nmt.data.corpus.read_files",
        "path": str(tmp_path),
        "streaming": 7,
        "src_lang": "en",
        "tgt_lang": "vi",
        "cache_dir": str(tmp_path / "cache"),
    }
    run = Run.load(gru)
    run.config.data = data
    assert list(run.split("train")["src"]) == SOURCES
    assert list(run.split("val", run.config.data)["src"]) == SOURCES
    assert run.config.data.streaming == 7
    assert run.score(run.split("train"), num_bootstrap=0)[0]["num_sentences"] == len(SOURCES)


def test_what_learned_positions_cannot_hold_is_cut_or_left_out_with_a_word(tmp_path, caplog):
    """A source is cut, a translation ends in time, and a forced pair has no weights; the others are as without it."""
    sizes = (
        "model.size=8",
        "encoder.feedforward_size=8",
        "decoder.feedforward_size=8",
        "encoder.num_heads=2",
        "decoder.num_heads=2",
    )
    run = Run.load(
        make_run(tmp_path, "model=transformer", "positions=learned", "positions.max_length=12", *sizes)
    )
    assert run.translator.max_length == 12
    long = " ".join(SOURCES * 3)
    found = run.translate([long, SOURCES[0]], DecodingSettings(max_length_extra=1000))
    assert found[1].text == run.translate(SOURCES[:1], DecodingSettings(max_length_extra=1000))[0].text
    assert "have more than 12 pieces" in caplog.text
    short, target = "nhà", "house"
    weights = run.align([short, long], [target, target])
    assert weights[1] is None
    np.testing.assert_allclose(weights[0], run.align([short], [target])[0], atol=1e-6)
    assert "1 of 2 pairs have more than the 12 pieces that the model can read" in caplog.text
    pairs = {"src": [short, long], "tgt": [target] * 2, "alignment": ["0-0", "0-0 1-1"]}
    scores, _ = run.score(Dataset.from_dict(pairs), num_bootstrap=0)
    assert scores["num_sentences"] == 2
    assert (scores["aer"]["precision"], scores["aer"]["recall"]) == (1, 1 / 3)  # a pair unread links nothing
    files = [written(tmp_path / name, *lines) for name, lines in (("src", [long]), ("tgt", [target]))]
    gold = written(tmp_path / "gold", "0-0")
    with pytest.raises(UserError, match="the model can read none of the pairs: there is nothing to search"):
        align(run=tmp_path, src=files[0], tgt=files[1], gold=gold, search="true")
    scores, _ = run.score(Dataset.from_dict({"src": [long], "tgt": [target]}), num_bootstrap=0)
    assert "attention" not in scores


def test_forced_pairs_share_a_batch_by_their_longer_side(gru, monkeypatch):
    """One long target among short sources must not be padded to with all of them."""
    run, sizes = Run.load(gru), []
    attentions = run.translator.attentions

    def noted(src, mask, tgt_in):
        sizes.append(len(tgt_in) * max(src.size(1), tgt_in.size(1)))
        return attentions(src, mask, tgt_in)

    monkeypatch.setattr(run.translator, "attentions", noted)
    targets = ["ở"] * 40 + [" ".join(TARGETS * 4)]
    assert len(list(run.attentions(["a"] * 41, targets, max_tokens=60))) == 41
    longest = len(run.tokenizer.encode_target(targets[-1:])[0])
    assert max(sizes) == longest > 60
    assert sorted(sizes)[-2] <= 60


def test_a_reverse_run_without_attention_is_refused(gru, files, tmp_path):
    without = make_run(tmp_path, "attention=none", *SMALL)
    with pytest.raises(UserError, match=f"^{without} has no attention: give explain=occlusion"):
        align(run=gru, reverse_run=without, src=files["src"], tgt=files["tgt"])


def test_a_prefix_of_an_empty_line_is_refused(gru):
    with pytest.raises(
        UserError, match=r"^line 8 is empty, and so is its translation, which cannot begin with 'a'"
    ):
        Run.load(gru).translate([SOURCES[0], ""], prefixes=["", "a"], first_line=7)


@pytest.mark.parametrize("key", ["output", "page", "alignments", "heatmaps"])
def test_where_nothing_can_be_written_is_said_before_anything_is_translated(key, gru, tmp_path, capsys):
    folder, file = tmp_path / "folder.html", written(tmp_path / "file", "x")
    folder.mkdir()
    lines = written(tmp_path / "in", *SOURCES)
    place = file / "deep" if key == "heatmaps" else folder
    with pytest.raises(UserError, match=f"{key}={place}"):
        translate(run=gru, input=lines, **{key: place})
    if key == "page":
        with pytest.raises(UserError, match=f"{file} is a file, not a folder"):
            translate(run=gru, input=lines, page=file / "x.html")
    assert capsys.readouterr().out == ""
