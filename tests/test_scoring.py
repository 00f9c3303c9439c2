"""How a run is scored: tokenisation, length limits, and the files of scores."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from omegaconf import OmegaConf

from nmt import metrics
from nmt.analysis.faithfulness import read_faithfulness
from nmt.commands.evaluate import compare_explanations
from nmt.comparison.runs import read_run
from nmt.config.build import build
from nmt.data.corpus import read_files
from nmt.data.datamodule import TranslationDataModule
from nmt.data.encoding import length_ratio
from nmt.data.find import Languages, find
from nmt.decoding import BEAM, Constraints, DecodingSettings
from nmt.errors import UserError
from nmt.export.card import _scores
from nmt.run.data import references_of
from nmt.run.limits import count_above_limit
from nmt.run.paths import find_runs
from nmt.run.run import Run
from nmt.run.scores import write_scores
from nmt.training.callbacks import ScoreValidation
from nmt.training.checks import check_monitors, check_references
from nmt.training.lengths import set_length_ratio, warn_of_long_references
from nmt.training.module import TranslationModule
from nmt.training.scoring import scores_after
from tests.commands import compose, refused, run_composed
from tests.small import SMALL, SOURCES, TARGETS, make_run, written

REFERENCES = {
    "zh": ["老人在家里看书。", "孩子们在公园里玩。", "她买了三个苹果。"],
    "th": ["ชายชราอ่านหนังสือที่บ้าน", "เด็ก ๆ เล่นอยู่ในสวน", "เธอซื้อแอปเปิลสามผล"],
    "en": ["the old man reads a book .", "yes .", "the children play in the park ."],
    "with spaces": ["ชายชราอ่าน หนังสือที่บ้าน", "เด็กๆเล่น อยู่ในสวน", "เธอซื้อแอปเปิล สามผล"],
    "words": ["book", "apple", "park"],
}


def warnings_of(language: str, *overrides: str, caplog) -> str:
    """The warnings before training on references of a language."""
    caplog.clear()
    cfg = compose("train", "data=files", "data.src_lang=xx", *overrides)
    bleu = metrics.Bleu(tokenize=(cfg.metrics.get("bleu") or {}).get("tokenize", "13a"), lowercase=False)
    check_references(cfg, bleu, REFERENCES[language])
    return caplog.text


def test_references_without_four_grams_are_noticed_before_training(caplog):
    for language in ("zh", "th", "en"):
        assert not warnings_of(language, f"data.tgt_lang={language}", caplog=caplog)
    for language in ("zh", "th", "with spaces"):
        said = warnings_of(language, "data.tgt_lang=target", caplog=caplog)
        for fact in ("100 %", "without spaces", "tokenize=13a for target", "metrics.bleu.tokenize=char"):
            assert fact in said
    said = warnings_of("words", "data.tgt_lang=en", caplog=caplog)
    assert "near 0" in said
    assert "checkpoint.monitor=val/chrf" in said
    assert "near 0" in warnings_of("words", "data.tgt_lang=en", "metrics.bleu=null", caplog=caplog)  # chooses
    said = warnings_of("words", "data.tgt_lang=en", "callbacks.checkpoint.monitor=val/chrf", caplog=caplog)
    assert said.strip().endswith("BLEU will be near 0")
    # Labels, which are not scored by BLEU
    labels = ["data.tgt_lang=en", "metrics=classification", "callbacks.checkpoint.monitor=val/chrf"]
    assert not warnings_of("words", *labels, caplog=caplog)
    assert "near 0" in warnings_of("words", *labels[:2], caplog=caplog)  # but choose the checkpoint by it


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_characters_in_place_of_mecab_are_said_in_one_line(language, caplog):
    said = warnings_of("zh", f"data.tgt_lang={language}", "metrics.bleu.tokenize=char", caplog=caplog)
    assert said.count("\n") == 1
    assert f"sacrebleu[{language}]" in said
    assert f"metrics.bleu.tokenize={language}-mecab" in said


@pytest.mark.parametrize(
    ("pairs", "ratio"),
    [
        ([(4, 6)] * 50, -1),  # 5 pieces, and 10 may come whatever the source
        ([(10, 31)] * 50, 2),
        ([(10, 32)] * 50, 3),  # 31 pieces <= 2.1 * 10 + 10
        ([(8, 8)] * 998 + [(10, 111)], 10),
        ([(8, 8)] * 999 + [(10, 111)], 0),  # one in a thousand is left out
    ],
)
def test_the_ratio_of_lengths_holds_all_but_one_in_a_thousand(pairs, ratio):
    src, tgt = np.array(pairs, dtype=np.int32).T
    assert length_ratio(src, tgt, extra=10) == ratio


def limited(src: list[int], tgt: list[int], *overrides: str) -> float:
    """The `decoding.max_length_ratio` of a training on pairs of these lengths."""
    cfg = compose("train", *overrides)
    lengths = tuple(np.array(each, dtype=np.int32) for each in (src, tgt))
    set_length_ratio(cfg, SimpleNamespace(training_lengths=lambda: lengths))
    return cfg.decoding.max_length_ratio


def test_the_length_limit_follows_the_training_text():
    assert limited([10, 20], [12, 19]) == 2  # the least
    assert limited([10, 20], [31, 60]) == 3  # 59 = 2.45 * 20 + 10
    assert limited([10, 20], [31, 95]) == 4  # data.max_ratio; 4.2 would be needed
    assert limited([10, 20], [31, 60], "decoding.max_length_ratio=1.5") == 1.5
    assert limited([10, 20], [31, 60], "decoding.max_length_extra=0", "data.max_ratio=3.5") == 3
    assert limited([10, 20], [31, 71], "decoding.max_length_extra=0", "data.max_ratio=3.5") == 3.5
    assert limited([10, 20], [31, 60], "decoding=greedy") == 3


def test_references_above_the_limit_are_counted_as_the_search_would_cut_them():
    translator = SimpleNamespace(max_length=None)
    settings = DecodingSettings(max_length_ratio=2.1, max_length_extra=0.5)
    src, tgt = np.array([15, 15, 4, 1000]), np.array([33, 34, 10, 2000])  # 32, 32, 8 and 2100 pieces may come
    assert count_above_limit(settings, translator, src, tgt) == 2
    limits = Constraints(
        SimpleNamespace(max_length=None, pad_id=0, bos_id=1, eos_id=2), torch.tensor(src), settings, None
    )
    assert limits.limits.tolist() == [32, 32, 8, 2100]
    assert count_above_limit(replace(settings, max_length=20), translator, src, tgt) == 4
    assert count_above_limit(settings, SimpleNamespace(max_length=21), src, tgt) == 4


def test_references_above_the_limit_are_said_in_one_line(caplog):
    lengths = {"train": ([10] * 3000, [12] * 2996 + [99] * 4), "val": ([10] * 5, [12, 12, 12, 40, 40])}
    arrays = {split: tuple(map(np.array, each)) for split, each in lengths.items()}
    data = SimpleNamespace(
        training_lengths=lambda: arrays["train"], rows=lambda split: (None, *arrays[split])
    )
    warn_of_long_references(BEAM, SimpleNamespace(max_length=None), data, {})
    assert caplog.text.count("\n") == 1
    for fact in (
        "=2 x source",
        "extra=10",
        "4 of 3,000 in train",
        "2 of 5 in val",
        "raise decoding.max_length_ratio",
    ):
        assert fact.lower() in caplog.text.lower()
    caplog.clear()
    arrays["train"][1][3000 - 4] = 12  # one in a thousand is no fault
    warn_of_long_references(BEAM, SimpleNamespace(max_length=None), data, {})
    assert "train" not in caplog.records[-1].getMessage()
    arrays["val"][1][:] = 30
    caplog.clear()
    warn_of_long_references(BEAM, SimpleNamespace(max_length=None), data, {})
    assert not caplog.text


def test_evaluate_says_how_many_references_are_above_its_limit(scored, caplog):
    for ratio, said in (("0.1", "2 of 4 in val"), ("3", "")):
        caplog.clear()
        given = [f"decoding.max_length_ratio={ratio}", "decoding.max_length_extra=3", "split=val"]
        scores_of(scored, *given, "decoding.min_length_ratio=0")
        assert (said in caplog.text) if said else "Raise decoding" not in caplog.text


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Path:
    """A run with random weights that stores other metrics and decoding than the usual, with the scores of its test."""
    workspace = tmp_path_factory.mktemp("scored")
    for split in ("test", "val"):
        for lang, lines in (("en", SOURCES), ("vi", TARGETS)):
            (workspace / f"{split}.{lang}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    directory = make_run(workspace / "run", *SMALL)
    config = OmegaConf.load(directory / "config.yaml")
    config.data = compose(
        *("train", "data=files", "data.src_lang=en", "data.tgt_lang=vi", f"data.path={workspace}"),
        f"data.cache_dir={workspace / 'cache'}",
    ).data
    OmegaConf.resolve(config)
    config.metrics.bleu.tokenize, config.metrics.chrf.word_order, config.decoding.beam_size = "char", 2, 2
    config.decoding.max_length_ratio = 3.0
    OmegaConf.save(config, directory / "config.yaml")
    assert scores_of(directory)[0] == directory / "metrics.json"
    return directory


def scores_of(directory: Path, *overrides: str) -> tuple[Path, dict]:
    """Evaluate a run: the file that the command names, and what it holds."""
    ended = run_composed("evaluate", f"run={directory}", "device=cpu", *overrides)
    assert ended.status == 0, ended.err
    [named] = re.findall(r"^written to (.*metrics\S*\.json), ", ended.out, re.MULTILINE)
    return Path(named), json.loads(Path(named).read_text("utf-8"))


def test_evaluate_scores_by_the_runs_own_metrics_and_search(scored):
    _, scores = scores_of(scored, "split=val")
    assert "tok:char" in scores["bleu"]["signature"]
    assert "nw:2" in scores["chrf"]["signature"]
    assert (scores["decoding"]["beam_size"], scores["decoding"]["max_length_ratio"]) == (2, 3)
    assert Run.load(scored).decoding == DecodingSettings(**scores["decoding"])
    python, _ = Run.load(scored, device="cpu").score(Run.load(scored).split("val"))
    assert python["bleu"] == scores["bleu"]
    _, other = scores_of(scored, "metrics.bleu.tokenize=13a", "decoding=greedy")
    assert "tok:13a" in other["bleu"]["signature"]
    assert "nw:2" in other["chrf"]["signature"]
    assert (other["decoding"]["beam_size"], other["decoding"]["max_length_ratio"]) == (1, 3)
    _, whole = scores_of(scored, "metrics=classification")
    assert "exact_match" in whole
    assert "bleu" not in whole


CHANGES = {
    "another search": ["decoding=greedy", "num_bootstrap=0"],
    "one setting": ["decoding.length_alpha=0.5"],
    "no interval": ["num_bootstrap=0"],
    "bytes": ["int8=true"],
    "other metrics": ["metrics.chrf.word_order=0"],
    "fewer metrics": ["~metrics.ter"],
    "another checkpoint": ["checkpoint=CHECKPOINT"],
    "other data": ["data.path=ELSEWHERE"],
    "the place itself": ["output=RUN", "decoding.beam_size=3"],
}


@pytest.mark.parametrize("overrides", CHANGES.values(), ids=CHANGES)
def test_other_scores_are_written_beside_those_of_the_training(overrides, scored, tmp_path):
    before = {name: (scored / name).read_bytes() for name in ("metrics.json", "hypotheses.txt")}
    shutil.copy(scored / "checkpoints" / "best.ckpt", tmp_path / "other.ckpt")
    for file in scored.parent.glob("test.*"):
        shutil.copy(file, tmp_path)
    places = {"CHECKPOINT": tmp_path / "other.ckpt", "ELSEWHERE": tmp_path, "RUN": scored}
    for name, place in places.items():
        overrides = [each.replace(name, str(place)) for each in overrides]
    file, _ = scores_of(scored, *overrides)
    assert file.parent.parent == scored / "evaluations"
    assert (file.parent / "hypotheses.txt").exists()
    assert {name: (scored / name).read_bytes() for name in before} == before
    again, _ = scores_of(scored, *overrides)
    assert again == file
    # compare.py takes the folder for a run, also when the run has moved
    moved = tmp_path / "moved"
    shutil.copytree(scored, moved)
    assert read_run(moved / file.parent.relative_to(scored), "test").config == OmegaConf.load(
        moved / "config.yaml"
    )


def test_probes_and_observations_are_written_with_the_scores(scored, tmp_path):
    before = (scored / "metrics.json").read_bytes()
    ended = run_composed("evaluate", f"run={scored}", "device=cpu", "probes=true")
    assert ended.status == 0, ended.err
    file = scored / "evaluations" / "probes-true" / "metrics.json"
    scores = json.loads(file.read_text("utf-8"))
    assert (scored / "metrics.json").read_bytes() == before
    for name, probe in scores["probes"].items():
        assert f"| {name.replace('_', ' ')} " in ended.out
        assert {"score", "original"} == set(probe["chrf"])
    assert {"upper_case", "two_sentences"} <= scores["probes"].keys()
    found = {each["name"]: each for each in scores["observations"]}
    assert found  # of random weights
    for each in found.values():
        assert f"note  {each['text']}\n" in ended.out
    hypotheses = written(tmp_path / "out.vi", *TARGETS)
    ended = run_composed("evaluate", f"run={scored}", f"hypotheses={hypotheses}", "probes=true")
    refused(ended, "probes has no effect", f"hypotheses={hypotheses}")
    refused(
        run_composed("evaluate", f"run={scored}", "metrics=classification", "probes=true"),
        "probes=true",
        "BLEU",
    )


def test_the_faithfulness_of_explanations_is_written_with_the_scores(scored):
    given = ("evaluate", f"run={scored}", "device=cpu", "num_bootstrap=0")
    ended = run_composed(*given, "explain=[attention,occlusion]", "explain_lines=2")
    assert ended.status == 0, ended.err
    [file] = scored.glob("evaluations/*explain*/metrics.json")
    found = json.loads(file.read_text("utf-8"))["explanations"]
    assert list(found) == ["attention", "occlusion", "random"]
    assert found["occlusion"]["tau"]["score"] == pytest.approx(1)
    assert "| occlusion " in ended.out
    assert read_faithfulness(read_run(file.parent, "test"), "test") == found
    assert file.with_name("explanations.png").stat().st_size > 1000
    refused(run_composed(*given, "explain=[lime]"), "explain", "lime")
    refused(run_composed(*given, "explain=[rollout]"), "rollout", "Transformer")
    refused(run_composed(*given, "explain_lines=2"), "explain_lines", "explain=")
    refused(run_composed(*given, "explain=[gradient]", "int8=true"), "int8", "gradient")


def test_pairs_that_the_model_cannot_read_are_not_explained(tmp_path, caplog):
    sizes = ["model=transformer", "model.size=8", "encoder.num_heads=2", "decoder.num_heads=2"]
    run = Run.load(make_run(tmp_path, *sizes, "positions=learned", "positions.max_length=12"), device="cpu")
    pairs = Dataset.from_dict({"src": ["the house", "house " * 20], "tgt": ["nhà", "nhà"]})
    cfg = SimpleNamespace(explain=["attention"], explain_lines=2, num_bootstrap=0)
    assert compare_explanations(cfg, run, pairs)["attention"]["num_sentences"] == 1
    assert "more than 12 pieces" in caplog.text
    with pytest.raises(UserError, match=r"first 1 pairs .* 12 pieces.* explain_lines"):
        compare_explanations(cfg, run, pairs.select([1]))


def test_explanations_read_lines_as_translation_does(tmp_path, monkeypatch, caplog):
    """A recurrent model, which has no limit of its own, reads at most MOST_PIECES at once."""
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    run = Run.load(make_run(tmp_path), device="cpu")
    pairs = Dataset.from_dict({"src": ["the house", "house " * 20], "tgt": ["nhà", "nhà"]})
    cfg = SimpleNamespace(explain=["attention"], explain_lines=2, num_bootstrap=0)
    assert compare_explanations(cfg, run, pairs)["attention"]["num_sentences"] == 1
    assert "more than 12 pieces" in caplog.text


def test_scores_of_an_export_are_its_own(scored, tmp_path):
    pytest.importorskip("safetensors", reason="needs attention-nmt[export]")
    sent = tmp_path / "sent"
    made = run_composed("export", f"run={scored}", "format=safetensors", f"output={sent}")
    assert made.status == 0, made.err
    shutil.copy(scored / "config.yaml", sent)  # an export keeps the names of paths alone
    for overrides in ([], ["checkpoint=last"], [f"checkpoint={sent / 'model.safetensors'}"]):
        file, scores = scores_of(sent, *overrides)
        assert (file, scores["checkpoint"]) == (sent / "metrics.json", "best")
    assert read_run(sent, "test").metrics["checkpoint"] == "best"
    assert "| test" in _scores(Run.load(sent, device="cpu"), "best", None)


def test_changed_settings_name_the_folder(scored):
    for overrides, name in (
        (["decoding.beam_size=3", "num_bootstrap=0"], "beam_size-3_num_bootstrap-0"),
        (["metrics.chrf.word_order=0"], "chrf.word_order-0"),
        (["metrics=classification"], "metrics-exact_match+macro_f1"),
    ):
        assert scores_of(scored, *overrides)[0].parent.name == name
    file, _ = scores_of(scored, "decoding.beam_size=3", "split=val")
    assert file == scored / "evaluations" / "beam_size-3" / "metrics_val.json"


def test_the_same_scoring_again_may_replace_the_file_and_other_text_does_not(scored):
    file, scores = scores_of(scored)
    assert file == scored / "metrics.json"
    assert scores["checkpoint"] == "best"
    assert scores_of(scored, f"checkpoint={scored / 'checkpoints' / 'best.ckpt'}")[0] == file
    text = scored.parent / "test.vi"
    before = text.read_bytes()
    try:
        text.write_text(before.decode().replace("nhà", "cửa"), "utf-8")
        assert scores_of(scored)[0].parent.parent == scored / "evaluations"
    finally:
        text.write_bytes(before)
    assert json.loads(file.read_text("utf-8")) == scores


def test_an_ensemble_of_runs_with_different_metrics_must_be_told_which(scored, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(scored, other)
    config = OmegaConf.load(other / "config.yaml")
    config.metrics.bleu.tokenize = "zh"
    OmegaConf.save(config, other / "config.yaml")
    ensemble = [f"run=[{scored},{other}]", f"output={tmp_path / 'scores'}", "num_bootstrap=0", "device=cpu"]
    refused(
        run_composed("evaluate", *ensemble),
        str(scored),
        str(other),
        "bleu.tokenize",
        "char",
        "zh",
        "metrics=",
    )
    assert run_composed("evaluate", *ensemble, "metrics=translation").status == 0


def test_a_metric_that_the_run_does_not_store_is_chosen_with_its_group(scored, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(scored, other)
    config = OmegaConf.load(other / "config.yaml")
    config.metrics = compose("train", "metrics=classification").metrics
    OmegaConf.resolve(config)
    OmegaConf.save(config, other / "config.yaml")
    refused(
        run_composed("evaluate", f"run={other}", "metrics.bleu.tokenize=zh"),
        "metrics.bleu.tokenize",
        "metrics=",
    )


def test_files_of_several_references_are_read_and_scored(scored, tmp_path):
    written(tmp_path / "test.en", *SOURCES)
    others = [[f"{line} đó" for line in TARGETS], ["", *TARGETS[1:]]]
    for number, lines in zip((1, 2, 10), (TARGETS, *others), strict=True):
        written(tmp_path / f"test.{number}.vi", *lines)
    _, scores = scores_of(scored, f"data.path={tmp_path}", "num_bootstrap=0")
    assert "nrefs:var" in scores["bleu"]["signature"]
    hypotheses = [each.text for each in Run.load(scored, device="cpu").translate(SOURCES)]
    scorer = metrics.Bleu(tokenize="char", lowercase=False)
    [expected] = metrics.score_with(
        {"bleu": scorer}, hypotheses, [TARGETS, *others], num_bootstrap=0
    ).values()
    assert scores["bleu"] == expected
    assert scores["references"] == metrics.digest(SOURCES, [TARGETS, *others])
    # The same by file; and a plain test.vi comes first
    refs = ",".join(str(tmp_path / f"test.{number}.vi") for number in (1, 2, 10))
    _, given = scores_of(scored, f"refs=[{refs}]", "num_bootstrap=0")
    assert given["bleu"] == expected
    written(tmp_path / "test.vi", *others[0])
    languages = Languages("en", "vi")
    files = find(tmp_path, "test", languages)
    assert [each.name for each in (*files.paths[1:], *files.references)] == ["test.vi"] + [
        f"test.{number}.vi" for number in (1, 2, 10)
    ]
    written(tmp_path / "test.2.vi", *TARGETS[1:])
    refused(
        run_composed("evaluate", f"run={scored}", f"data.path={tmp_path}"),
        "test.2.vi",
        "3 lines",
        "4 sentences",
    )


def test_a_numbered_pair_is_a_corpus_and_no_reference(tmp_path):
    for name in ("test.en", "test.vi", "test.1.en", "test.1.vi"):
        written(tmp_path / name, "x")
    assert find(tmp_path, "test", Languages("en", "vi")).references == ()
    assert find(tmp_path, "test.1", Languages("en", "vi")).paths[0].name == "test.1.en"


def validate(callback, data, run: Run) -> dict[str, float]:
    """The scores that the callback logs for the validation set."""
    logged: dict[str, float] = {}
    trainer = SimpleNamespace(
        datamodule=data, val_dataloaders=data.val_dataloader(), num_val_batches=[99], is_global_zero=False
    )
    module = SimpleNamespace(
        translator=run.translator,
        device="cpu",
        decoding=run.decoding,
        progress={},
        log=lambda name, value, **_: logged.update({name: value}),
    )
    callback.on_validation_epoch_end(trainer, module)
    return logged


def with_two_references(run: Run, folder: Path) -> tuple[TranslationDataModule, list[str], list[list[str]]]:
    """A data module whose validation set has two references for each source: (data module, sources, references)."""
    sources, targets = ([lines[row] for row in (0, 1, 3)] for lines in (SOURCES, TARGETS))
    others = [f"{line} đó" for line in targets]
    for split in ("train", "val"):
        written(folder / f"{split}.en", *sources)
        written(folder / f"{split}.vi", *targets)
    written(folder / "val.2.vi", *others)
    found = read_files(folder, src_lang="en", tgt_lang="vi", cache_dir=folder / "cache")
    assert references_of(found["val"]) == [targets, others]
    data = TranslationDataModule(
        found, run.tokenizer, max_length=50, max_ratio=4, max_tokens=500, seed=1, guided=False
    )
    return data, sources, [targets, others]


def test_several_references_are_used_in_validation(scored, tmp_path):
    run = Run.load(scored, device="cpu")
    data, sources, references = with_two_references(run, tmp_path)
    logged = validate(ScoreValidation(num_samples=0), data, run)
    greedy = [each.text for each in run.translate(sources, run.decoding.greedy)]
    chrf = {"chrf": metrics.Chrf(lowercase=False)}
    [expected] = metrics.score_with(chrf, greedy, references, num_bootstrap=0).values()
    assert logged["val/chrf"] == pytest.approx(expected["score"])


class ExtraWords(metrics.ExactMatch):
    """A metric of a person's own module: the difference of the numbers of words."""

    higher_is_better = False

    def value(self, hypothesis, reference):
        return abs(len(hypothesis.split()) - len(reference.split()))


def test_a_metric_in_validation_takes_one_class_and_one_setting(scored, tmp_path):
    given = [
        f"+callbacks.score.metrics.extra._target_={__name__}.ExtraWords",
        "callbacks.checkpoint.monitor=val/extra",
    ]
    cfg = compose("train", *given)
    callback = build(cfg.callbacks.score, "callbacks", trusted=[__name__])
    run = Run.load(scored, device="cpu")
    data, sources, references = with_two_references(run, tmp_path)
    logged = validate(callback, data, run)
    assert logged.keys() == {"val/bleu", "val/chrf", "val/extra"}
    lengths = [len(each.text.split()) for each in run.translate(sources, run.decoding.greedy)]
    farthest = [
        max(abs(length - len(each.split())) for each in row)
        for length, row in zip(lengths, zip(*references, strict=True), strict=True)
    ]
    assert logged["val/extra"] == pytest.approx(100 * np.mean(farthest))
    monitors = {"has_attention": False, "has_gold": False}
    with pytest.raises(UserError, match=r"give callbacks\.checkpoint\.mode=min"):
        check_monitors(cfg, [TranslationModule, callback], **monitors)
    cfg = compose("train", *given, "callbacks.checkpoint.mode=min")
    check_monitors(cfg, [TranslationModule, callback], **monitors)


def test_other_test_sets_are_scored_by_their_names(scored, tmp_path):
    for name in ("test", "test_2017_flickr", "test_2018_flickr"):
        written(tmp_path / f"{name}.en", *SOURCES)
        written(tmp_path / f"{name}.vi", *(f"{line} {name}" for line in TARGETS))
    file, scores = scores_of(scored, f"data.path={tmp_path}", "split=test_2017_flickr")
    assert file.name == "metrics_test_2017_flickr.json"
    assert scores["references"] == metrics.digest(SOURCES, [f"{line} test_2017_flickr" for line in TARGETS])
    assert find_runs(str(file.parent)) == [file.parent]
    missing = run_composed("evaluate", f"run={scored}", f"data.path={tmp_path}", "split=test_2016_flickr")
    refused(missing, "no test_2016_flickr", "test_2017_flickr.en")
    refused(run_composed("evaluate", f"run={scored}", "data=grammar", "split=test_2017"), "split=test_2017")


def test_given_translations_have_the_log_probabilities_of_the_search(scored, tmp_path):
    run = Run.load(scored, device="cpu")
    found = run.translate(SOURCES)
    files = [
        f"{name}={written(tmp_path / name, *lines)}"
        for name, lines in (("src", SOURCES), ("hypotheses", TARGETS))
    ]
    place, scores = scores_of(scored, *files)
    log_probs = [float(line) for line in (place.parent / "log_probs.txt").read_text().splitlines()]
    assert len(log_probs) == len(SOURCES)
    assert "bleu" not in scores
    for log_prob, source, target in zip(log_probs, SOURCES, TARGETS, strict=True):
        src, tgt = run.pad(run.tokenizer.encode_source([source])), run.tokenizer.encode_target([target])[0]
        tgt_in = torch.tensor([[run.tokenizer.bos_id, *tgt[:-1]]])
        logits = run.translator(run.translator.encode(src, src != run.tokenizer.pad_id), tgt_in).logits[0]
        expected = logits.double().log_softmax(-1)[range(len(tgt)), tgt].sum().item()
        assert log_prob == pytest.approx(expected, abs=2e-4)
    num_pieces = sum(map(len, run.tokenizer.encode_target(TARGETS)))
    assert scores["log_prob"]["sum"] == pytest.approx(sum(log_probs), abs=1e-3)
    assert scores["log_prob"]["per_piece"] == pytest.approx(sum(log_probs) / num_pieces, abs=1e-4)
    # Against the references of the split too
    [hypotheses] = files[1:]
    _, both = scores_of(scored, hypotheses)
    assert both["bleu"]["score"] == pytest.approx(100)
    assert both["log_prob"] == scores["log_prob"]
    texts = [each.text for each in found]
    again, _ = run.force(SOURCES, texts)
    same = [n for n, each in enumerate(found) if run.tokenizer.encode_target([each.text])]
    assert [again[n].text for n in same] == [texts[n] for n in same]


@pytest.mark.parametrize(
    ("overrides", "facts"),
    [
        (["src=FILE"], ["src=", "refs=", "hypotheses="]),
        (["src=FILE", "refs=FILE", "split=val"], ["split has no effect", "src="]),
        (["src=FILE", "refs=FILE", "data.path=x"], ["data.path has no effect", "src="]),
        (["hypotheses=FILE", "decoding=greedy"], ["decoding has no effect", "hypotheses="]),
        (
            ["decoding=greedy", "decoding.coverage_beta=0.2"],
            ["coverage_beta=0.2 has no effect with beam_size=1"],
        ),
        (["decoding=tuned"], ["only train.py chooses", "give a number"]),
        (["hypotheses=nowhere"], ["nowhere: no such file"]),
        (["src=/dev/null", "hypotheses=/dev/null"], ["/dev/null has no lines"]),
        (["refs=[nowhere]"], ["nowhere: no such file"]),
        (["refs=[]"], ["refs=[]"]),
        (["hypotheses=FILE"], ["4 source lines but 2 target lines"]),
        (["refs=FILE"], ["2 lines", "4 sentences"]),
    ],
)
def test_evaluate_refuses_files_that_do_not_go_together(overrides, facts, scored, tmp_path):
    file = written(tmp_path / "lines", "a", "b")
    ended = run_composed(
        "evaluate", f"run={scored}", "device=cpu", *(each.replace("FILE", str(file)) for each in overrides)
    )
    refused(ended, *facts)


def test_scoring_a_split_keeps_what_training_cost(tmp_path):
    """That of a run without a test set stands in metrics_val.json alone."""
    write_scores(tmp_path, "val", {"training": {"steps": 7}}, [])
    write_scores(tmp_path, "val", {}, [])
    write_scores(tmp_path, "train", {}, [])
    for name in ("val", "train"):
        assert json.loads((tmp_path / f"metrics_{name}.json").read_text())["training"] == {"steps": 7}
    write_scores(tmp_path, "test", {"training": {"steps": 9}}, [])  # of a later end of the run
    write_scores(tmp_path, "val", {}, [])
    assert json.loads((tmp_path / "metrics_val.json").read_text())["training"] == {"steps": 9}


def test_scores_of_an_earlier_end_are_not_those_of_this_one(tmp_path):
    assert scores_after(tmp_path, 10) is None
    (tmp_path / "metrics_val.json").write_text('{"training": {"steps": 10}}')
    (tmp_path / "metrics.json").write_text('{"training": {"steps": 5}}')
    assert scores_after(tmp_path, 10) == tmp_path / "metrics_val.json"
    assert scores_after(tmp_path, 5) == tmp_path / "metrics.json"
    assert scores_after(tmp_path, 7) is None


def test_validation_scores_as_the_test_does():
    def scorers(*overrides: str) -> dict:
        return build(compose("train", *overrides).callbacks.score, "callbacks").scorers

    chosen = scorers("metrics.bleu.tokenize=char", "metrics.bleu.lowercase=true")
    result = metrics.score_with(chosen, ["AB cd"], ["ab cd"], num_bootstrap=0)["bleu"]
    assert "case:lc" in result["signature"]
    assert "tok:char" in result["signature"]
    assert result["score"] == pytest.approx(100)
    usual = metrics.score_with(scorers("metrics=classification"), ["ab cd"], ["ab cd"], num_bootstrap=0)
    assert "tok:13a" in usual["bleu"]["signature"]
