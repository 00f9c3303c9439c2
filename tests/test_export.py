"""Exports compute what the run computes, in the programs that read them, and their READMEs say how."""

import copy
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from sentencepiece import SentencePieceProcessor

from nmt import Run
from nmt.checkpoint import write_checkpoint
from nmt.commands import early_checks
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.export import NEEDS, hub
from tests.commands import CONFIGS, refused, run_composed
from tests.small import BPE, SMALL, SOURCES, SPECIAL_IDS, TARGETS, make_run, own_model

ROOT = CONFIGS.parent
REAL = ROOT.parent / "shared/data"
GREEDY = DecodingSettings(beam_size=1, length_alpha=0.0)
POST = ("encoder.pre_norm=false", "decoder.pre_norm=false")
TRANSFORMER = (
    *("model=transformer", "model.size=8", "encoder.feedforward_size=8", "decoder.feedforward_size=12"),
    *("encoder.num_heads=2", "decoder.num_heads=4", "decoder.num_layers=2"),
)
TRANSFORMERS = {
    "pre": TRANSFORMER,
    "post": (*TRANSFORMER, *POST),
    "learned": (*TRANSFORMER, "positions=learned", "positions.max_length=40"),
    "untied": (*TRANSFORMER, "model.tie_output=false"),
    "rotary": (*TRANSFORMER, "positions=rotary"),
}
# Every kind of encoder, cell, wiring and state between them
OTHERS = {
    "lstm, additive": ("model=lstm", "attention=bahdanau", *SMALL),
    "layer norm, local": ("model=gru_layer_norm", "attention=local_p", *SMALL),
    "conditional, fertility": (
        "attention=coverage_fertility",
        "wiring=conditional",
        "encoder.num_layers=2",
        *SMALL,
    ),
    "convolution, fed, sparse, voting": (
        *("encoder=convolutional", "attention=multi_head", "wiring.input_feeding=true"),
        *("normalizer=sparsemax", "model.size=8", "decoder.size=8", "model.lexical=true"),
    ),
    "location, few positions": ("attention=location", "attention.max_positions=11", *SMALL),
    "transformer and recurrent": (
        *("encoder=transformer", "attention=none", "model.size=8", "decoder.size=8"),
        *("encoder.feedforward_size=8", "encoder.num_heads=2"),
    ),
}
LINES = [
    *SOURCES,
    "now the  house </s> here",
    "a",
    " small house ",
    "the\u0301 ca\u0302\u0301t",
]  # the last: decomposed


def given(**choices: Any) -> Tokenizer:
    """The tokenizer of a SentencePiece model that the person has trained."""
    return Tokenizer(own_model(SOURCES * 20, **SPECIAL_IDS, **choices))


def needs(format: str) -> None:
    for name in NEEDS[format]:
        pytest.importorskip(name, reason="needs attention-nmt[export]")


def spread(directory: Path) -> Run:
    """The run, its weights moved so far that each bias, gain and tie matters; saved so."""
    torch.manual_seed(3)
    found = Run.load(directory, device="cpu")
    with torch.no_grad():
        for each in found.translator.parameters():
            each += 0.3 * torch.randn_like(each)
    state = {f"translator.{name}": value for name, value in found.translator.state_dict().items()}
    write_checkpoint({"state_dict": state}, directory / "checkpoints" / "best.ckpt")
    return found


def exported(found: Run, format: str, *more: str) -> Path:
    output = found.directory / f"as_{format}"
    shutil.rmtree(output, ignore_errors=True)
    ended = run_composed("export", f"run={found.directory}", f"format={format}", f"output={output}", *more)
    assert ended.status == 0, ended.err
    return output


def python_of(readme: Path, text: str) -> str:
    [block] = re.findall(r"```python\n(.*?)```", readme.read_text("utf-8"), re.DOTALL)
    return block.replace("TEXT", text)


def logits(found: Run, src: list[list[int]], tgt: list[list[int]]) -> torch.Tensor:
    """[B, T, V] of every piece of `tgt` but after the last, under teacher forcing."""
    source, target = found.pad(src), found.pad(tgt)
    tgt_in = torch.nn.functional.pad(target[:, :-1], (1, 0), value=found.tokenizer.bos_id)
    with torch.inference_mode():
        return found.translator.forward(
            found.translator.encode(source, source != found.tokenizer.pad_id), tgt_in
        ).logits


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Run]:
    kinds = TRANSFORMERS | OTHERS
    return {name: spread(make_run(tmp_path_factory.mktemp("run"), *kinds[name])) for name in kinds}


# --------------------------------------------------------------------------------------------------------- CTranslate2


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_ctranslate2_gives_the_same_log_probabilities_and_translations(name, models):
    needs("ctranslate2")
    import ctranslate2

    found = models[name]
    there = ctranslate2.Translator(str(exported(found, "ctranslate2")), device="cpu")
    src, tgt = found.tokenizer.encode_source(SOURCES[:2]), found.tokenizer.encode_target(TARGETS[:2])
    pieces = [found.tokenizer.source_pieces(row[:-1]) for row in src]
    scored = there.score_batch(pieces, [found.tokenizer.target_pieces(row[:-1]) for row in tgt])
    ours = logits(found, src, tgt).log_softmax(dim=-1)
    for row, theirs, own in zip(tgt, scored, ours, strict=True):
        expected = [float(own[t, piece]) for t, piece in enumerate(row)]
        np.testing.assert_allclose(theirs.log_probs, expected, atol=1e-4)
    settings = DecodingSettings(beam_size=1, length_alpha=0.0, max_length=12)
    translated = there.translate_batch(
        pieces, beam_size=1, max_decoding_length=12, suppress_sequences=[["<pad>"], ["<s>"]]
    )
    target = SentencePieceProcessor(model_file=str(found.directory / "as_ctranslate2/joint.model"))
    texts = [target.decode(each.hypotheses[0]) for each in translated]
    assert texts == [each.text for each in found.translate(SOURCES[:2], settings)]


# What a program that has Argos Translate does, but for the splitter of sentences, which it fetches
ARGOS = """
import sys
from types import SimpleNamespace
import argostranslate.package
import argostranslate.translate
argostranslate.package.install_from_path(sys.argv[1])
source, target = argostranslate.translate.get_installed_languages()
found = source.get_translation(target)
found.underlying.sentencizer = SimpleNamespace(split_sentences=lambda text: [text])
print(found.translate(sys.argv[2]))
"""


@pytest.mark.slow
def test_argos_translate_installs_and_translates(models, tmp_path):
    needs("argos")
    import ctranslate2

    packages = ("argostranslate==1.11.0", "minisbd==0.9.5", "stanza==1.10.1", "emoji==2.15.0")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "site"]
    if subprocess.run([*pip, *packages], capture_output=True, timeout=300).returncode != 0:
        pytest.skip(f"pip cannot install {packages[0]}")
    there = shutil.copytree(models["pre"].directory, tmp_path / "run")
    config = OmegaConf.load(there / "config.yaml")
    OmegaConf.save(
        OmegaConf.merge(config, {"data": {"src_lang": "en", "tgt_lang": "vi"}}), there / "config.yaml"
    )
    found = Run.load(there, device="cpu")
    [file] = exported(found, "argos").glob("translate-en_vi-1_0.argosmodel")
    homes = dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(tmp_path))
    environment = os.environ | homes | {"PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", ARGOS, file, SOURCES[0]]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    there = exported(found, "ctranslate2")
    pieces = SentencePieceProcessor(model_file=str(there / "joint.model"))
    [expected] = ctranslate2.Translator(str(there), device="cpu").translate_batch(
        [pieces.encode(SOURCES[0], out_type=str)], beam_size=4, length_penalty=0.2, replace_unknowns=True
    )
    assert ended.stdout.rstrip("\n") == pieces.decode(expected.hypotheses[0])


@pytest.mark.parametrize("language", ["../../vi", '"); print("x', "vi\n```", "", None], ids=repr)
def test_argos_refuses_a_language_that_could_be_a_path_or_code(language, models, tmp_path):
    needs("argos")
    from nmt.export import argos

    found = copy.copy(models["pre"])
    found.config = OmegaConf.merge(found.config, {"data": {"src_lang": "en", "tgt_lang": language}})
    with pytest.raises(UserError, match="languages of letters"):
        argos.write(found, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_weights_can_be_stored_in_bytes(models):
    needs("ctranslate2")
    wide, narrow = (
        (exported(models["pre"], "ctranslate2", *more) / "model.bin").stat().st_size
        for more in ((), ("quantization=int8",))
    )
    # Most of so small a model are positions and biases, which are not quantised
    assert narrow < 0.9 * wide


# -------------------------------------------------------------------------------------------------------- transformers


@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in TRANSFORMERS if each != "rotary"])
def test_transformers_gives_the_same_ids_logits_and_translations(name, models):
    needs("transformers")
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    found = models[name]
    directory = exported(found, "transformers")
    model, tokenizer = (each.from_pretrained(directory) for each in (AutoModelForSeq2SeqLM, AutoTokenizer))
    assert tokenizer(LINES)["input_ids"] == found.tokenizer.encode_source(LINES)
    src, tgt = found.tokenizer.encode_source(SOURCES), found.tokenizer.encode_target(TARGETS)
    source, target = found.pad(src), found.pad(tgt)
    with torch.inference_mode():
        theirs = model(
            input_ids=source,
            attention_mask=(source != found.tokenizer.pad_id).long(),
            decoder_input_ids=torch.nn.functional.pad(target[:, :-1], (1, 0), value=found.tokenizer.bos_id),
        ).logits
        torch.testing.assert_close(theirs, logits(found, src, tgt), atol=1e-4, rtol=1e-4)
        given = tokenizer(SOURCES[:2], return_tensors="pt", padding=True)
        generated = model.generate(**given, num_beams=1, max_new_tokens=12)
    texts = found.tokenizer.decode([row[1:] for row in generated.tolist()])
    settings = DecodingSettings(beam_size=1, length_alpha=0.0, max_length=12)
    assert texts == [each.text for each in found.translate(SOURCES[:2], settings)]


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_any_text_has_the_same_ids_in_transformers(model_type, normalization):
    """The names of special pieces, blanks that are no spaces, and letters that are written in two characters."""
    needs("transformers")
    from nmt.export.transformers import fast_tokenizer

    own = Tokenizer.train(
        *(SOURCES * 20, [*TARGETS, "</s> <pad> <unk>", "th\u1ebf gi\u1edbi"] * 20),
        **{"model_type": model_type, "joint": True, "vocab_size": 40, "character_coverage": 1.0},
        normalization=normalization,
    )
    lines = [*LINES, "<s>a</s> <pad><unk>", "a\u00a0", "\u3000a\tb", "the\u0302\u0301 gio\u031b\u0301i"]
    assert fast_tokenizer(own, model_max_length=10**9)(lines)["input_ids"] == own.encode_source(lines)


@pytest.mark.slow
def test_what_is_written_in_bytes_is_read_back_by_transformers():
    needs("transformers")
    from nmt.export.transformers import fast_tokenizer

    own = given(byte_fallback=True, vocab_size=300)
    theirs = fast_tokenizer(own, model_max_length=10**9)
    [ids] = theirs(["the € house"])["input_ids"]
    assert [ids] == own.encode_source(["the € house"])
    assert theirs.decode(ids, skip_special_tokens=True) == "the € house"


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_every_line_of_real_text_has_the_same_ids(model_type):
    needs("transformers")
    from nmt.export.transformers import fast_tokenizer

    if not REAL.is_dir():
        pytest.skip("the real corpora are not beside the project")
    rows = [json.loads(line) for line in (REAL / "multi30k/train.jsonl").read_text("utf-8").splitlines()]
    multi30k = [row[lang] for row in rows for lang in ("de", "en")]
    news = [
        line
        for file in sorted(REAL.glob("evbnews_en_vi/train.*"))
        for line in file.read_text("utf-8").splitlines()
    ]
    for lines in (multi30k, news):
        assert len(lines) > 10_000
        sides = lines[::2], lines[1::2]
        own = Tokenizer.train(
            *sides, model_type=model_type, joint=True, vocab_size=4000, character_coverage=0.9995
        )
        theirs = fast_tokenizer(own, model_max_length=10**9)(lines)["input_ids"]
        different = [
            pair for pair in zip(own.encode_source(lines), theirs, strict=True) if pair[0] != pair[1]
        ]
        # Of two cuts with the very same probability SentencePiece takes the one that rounding favours
        assert all(sorted(one) == sorted(other) for one, other in different)
        assert len(different) <= (len(lines) / 10_000 if model_type == "unigram" else 0)


# ---------------------------------------------------------------------------------------------------------------- ONNX


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["post", "rotary", "lstm, additive", "conditional, fertility", "convolution, fed, sparse, voting"]
)
def test_the_program_beside_the_graphs_translates_as_greedy_search(name, models):
    needs("onnx")
    from nmt.export import onnx

    directory = exported(models[name], "onnx")  # which compares the graphs with the model at several sizes
    text = "".join(f"{line}\n" for line in LINES)
    ended = subprocess.run(
        [sys.executable, str(directory / "translate.py")], input=text, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [each.text for each in models[name].translate(LINES, GREEDY)]
    another = copy.deepcopy(models[name].translator)
    with torch.no_grad():
        another.output.bias += 1
        with pytest.raises(UserError, match="compute something else than the model, by 1"):
            onnx.check_graphs(another, directory)


@pytest.mark.slow
def test_the_program_beside_the_graphs_keeps_the_longest_length(models, tmp_path, monkeypatch, caplog):
    needs("onnx")
    from nmt.export import onnx

    run, decoding = models["post"], replace(GREEDY, max_length=2, min_length=1)
    monkeypatch.setitem(vars(run), "decoding", decoding)
    onnx.write(run, tmp_path)
    text = "".join(f"{line}\n" for line in LINES)
    program = [sys.executable, str(tmp_path / "translate.py")]
    ended = subprocess.run(program, input=text, capture_output=True, text=True)
    assert ended.stdout.splitlines() == [
        each.text for each in run.translate(LINES, replace(GREEDY, max_length=2))
    ]
    assert "decoding.min_length is left out" in caplog.text


# ------------------------------------------------------------------------- safetensors, cards, the command


@pytest.mark.slow
def test_a_graph_may_have_more_source_pieces_than_target_pieces(tmp_path):
    needs("onnx")
    source, target = (
        Tokenizer.train(
            lines * 20, lines * 20, model_type="bpe", joint=True, vocab_size=size, character_coverage=1.0
        )
        for lines, size in ((SOURCES, 60), (TARGETS, 40))
    )
    own = Tokenizer(*source.models, *target.models)
    untied = ("model.tie_source=false", *SMALL)
    assert exported(spread(make_run(tmp_path, *untied, tokenizer=own)), "onnx").is_dir()


@pytest.mark.parametrize(
    "choices",
    [
        {"model_type": "word"},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"treat_whitespace_as_suffix": True},
        {"model_type": "bpe", "split_by_whitespace": False},
        {"model_type": "bpe", "user_defined_symbols": ["small"]},
    ],
    ids=str,
)
def test_a_tokenizer_that_transformers_cannot_copy_is_refused(choices):
    needs("transformers")
    from nmt.export.transformers import check_tokenizer

    with pytest.raises(UserError, match="use format=ctranslate2"):
        check_tokenizer(given(vocab_size=30, **choices))


@pytest.mark.parametrize("format", ["ctranslate2", "transformers", "onnx", "web"])
def test_a_vocabulary_of_words_is_refused_where_sentencepiece_alone_cuts_text(format, tmp_path):
    needs(format)
    model = (
        ("model=transformer", *SMALL[2:], "encoder.num_heads=2")
        if format in ("ctranslate2", "transformers")
        else SMALL
    )
    found = make_run(tmp_path / "run", *model, tokenizer=given(model_type="word", vocab_size=30))
    output = tmp_path / "out"
    ended = run_composed("export", f"run={found}", f"format={format}", f"output={output}")
    refused(ended, f"format={format}", "model_type=")
    assert not output.exists()


def test_plain_weights_can_be_read_without_this_package(models):
    needs("safetensors")
    from safetensors.numpy import load_file

    found = models["lstm, additive"]
    directory = exported(found, "safetensors")
    weights = load_file(directory / "model.safetensors")
    state = found.translator.state_dict()
    assert {each.size for each in weights.values()} <= {each.numel() for each in state.values()}
    for name, value in weights.items():
        np.testing.assert_array_equal(value, state[name].numpy())
    tied = set(state) - set(weights)
    kept = [state[name].data_ptr() for name in weights]
    assert all(state[name].data_ptr() in kept for name in tied)
    named = re.findall(r"^\| `(.*?)` \|", (directory / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(named) == set(weights)
    config = json.loads((directory / "config.json").read_text("utf-8"))
    assert config["model"]["encoder"]["size"] == 8
    assert config["eos_id"] == found.tokenizer.eos_id


@pytest.mark.parametrize("name", ["pre", "lstm, additive"])
def test_plain_weights_are_a_run_without_a_pickle(name, models, tmp_path):
    needs("safetensors")
    found = models[name]
    directory = shutil.copytree(exported(found, "safetensors"), tmp_path / "sent")
    assert not [file for file in directory.rglob("*") if file.suffix in (".ckpt", ".bin", ".pt")]
    assert str(found.directory.parent) not in (directory / "config.yaml").read_text("utf-8")
    there = Run.load(directory, device="cpu")
    for key, value in found.translator.state_dict().items():
        assert torch.equal(there.translator.state_dict()[key], value), key
    assert there.translate(SOURCES, GREEDY)[0].text == found.translate(SOURCES, GREEDY)[0].text
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match=r"model\.safetensors is broken or no checkpoint"):
        Run.load(directory, device="cpu")


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("ctranslate2", "pre"),
        ("ctranslate2", "learned"),
        ("safetensors", "pre"),
        pytest.param("transformers", "pre", marks=pytest.mark.slow),
    ],
)
def test_what_a_readme_says_can_be_done(format, name, models, monkeypatch, capsys):
    needs(format)
    directory = exported(models[name], format)
    monkeypatch.chdir(directory)
    exec(python_of(directory / "README.md", SOURCES[0]), {})
    assert format == "safetensors" or capsys.readouterr().out.endswith("\n")


def test_a_card_has_scores_data_and_licence_but_no_paths(models):
    needs("safetensors")
    found = models["pre"]
    scores = {
        "bleu": {"score": 12.345, "ci": 0.5, "signature": "nrefs:1|tok:13a"},
        "chrf": {"score": 1.0, "ci": None, "signature": "nrefs:1|nc:6|nw:2|s:no"},
        "decoding": {"beam_size": 4},
    }
    (found.directory / "metrics.json").write_text(json.dumps(scores), "utf-8")
    card = (exported(found, "safetensors", "license=mit") / "README.md").read_text("utf-8")
    assert "license: mit\n" in card
    assert "| chrF++ |" in card
    assert "| test, beam 4 | BLEU | 12.35 ± 0.50 | `nrefs:1\\|tok:13a` |" in card
    assert str(found.directory) not in card


def test_a_card_shows_text_of_a_run_and_is_not_changed_by_it(models, tmp_path):
    needs("safetensors")
    run = tmp_path / "run"
    shutil.copytree(models["pre"].directory, run)
    config = OmegaConf.load(run / "config.yaml")
    config.data.src_lang, config.data.tgt_lang = "<script>", "vi"
    config.data["a\n# b\x1b"] = "[c](http://d)"
    config.data.tokenizer = {"joint": True, "model": [str(tmp_path / "a.model")]}
    OmegaConf.save(config, run / "config.yaml")
    scores = {"<img>|": {"score": 1.0, "ci": None, "signature": "`<b>"}}
    (run / "metrics.json").write_text(json.dumps(scores), "utf-8")
    made = run_composed("export", f"run={run}", "format=safetensors", f"output={tmp_path / 'out'}")
    assert made.status == 0, made.err
    assert str(tmp_path) not in (tmp_path / "out" / "config.yaml").read_text("utf-8")
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "# &lt;script> to " in card
    assert "\n- a # b\\\\x1b: \\[c\\](http://d)\n" in card
    assert "| test | &lt;img>\\| | 1.00 | `'<b>` |" in card


def test_a_card_has_no_scores_of_other_weights_or_data(models):
    needs("safetensors")
    found = models["pre"]
    (found.directory / "checkpoints" / "last.ckpt").write_bytes(
        (found.directory / "checkpoints" / "best.ckpt").read_bytes()
    )
    scores = {"bleu": {"score": 12.345, "ci": None, "signature": "nrefs:1"}, "checkpoint": "best"}
    (found.directory / "metrics.json").write_text(json.dumps(scores), "utf-8")
    card = (exported(found, "safetensors", "checkpoint=last") / "README.md").read_text("utf-8")
    assert "12.35" not in card
    assert "Not scored." in card
    assert "12.35" in (exported(found, "safetensors") / "README.md").read_text("utf-8")
    (found.directory / "metrics.json").write_text(json.dumps(scores | {"data": {"path": "other"}}), "utf-8")
    assert "12.35" not in (exported(found, "safetensors") / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("choices", "advised"),
    [(("model.tie_source=false",), "onnx"), (("encoder=hierarchical", "attention=none"), "safetensors")],
)
def test_argos_advises_a_format_that_takes_the_model(choices, advised, tmp_path):
    needs("argos")
    needs("onnx")
    from nmt.export import argos

    documents = advised == "safetensors"
    kind = BPE | {"joint": documents, "documents": documents, "vocab_size": 40}
    own = Tokenizer.train(SOURCES * 20, TARGETS * 20, **kind)
    found = Run.load(make_run(tmp_path / "run", *choices, *SMALL[1:], tokenizer=own), device="cpu")
    with pytest.raises(UserError, match=f"use format={advised}$"):
        argos.write(found, tmp_path / "out")
    importlib.import_module(f"nmt.export.{advised}").write(found, tmp_path)


def test_what_cannot_be_exported_is_refused_in_one_line_and_leaves_nothing(models, tmp_path, monkeypatch):
    recurrent, output = models["lstm, additive"].directory, tmp_path / "out"
    command = [f"run={recurrent}", f"output={output}"]
    for format in ("ctranslate2", "transformers"):
        needs(format)
        refused(
            run_composed("export", *command, f"format={format}"),
            "for Transformers without lexical votes",
            f"format={format} ",
            "use format=onnx",
        )
    turned = [f"run={models['rotary'].directory}", f"output={output}", "format=transformers"]
    refused(run_composed("export", *turned), "no class with rotary positions: use format=ctranslate2")
    (tmp_path / "run").mkdir()
    none = make_run(tmp_path / "run", *TRANSFORMER, *POST, "positions=learned")
    refused(
        run_composed("export", f"run={none}", f"output={output}", "format=transformers"),
        "no class with norms after and learned positions",
    )
    refused(
        run_composed("export", *command, "format=onnx", "quantization=int8"),
        "quantization=int8 has no effect",
    )
    refused(run_composed("export", *command, "format=onnx", "push=name"), "push")
    assert not output.exists()
    output.mkdir()
    (output / "mine").touch()
    refused(run_composed("export", *command, "format=safetensors"), "is not empty: give a new folder")
    assert [each.name for each in output.iterdir()] == ["mine"]
    (output / "mine").unlink()
    (tmp_path / "link").symlink_to(output)
    ended = run_composed("export", f"run={recurrent}", f"output={tmp_path / 'link'}", "format=safetensors")
    assert ended.status == 0, ended.err
    assert (output / "README.md").is_file()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused(
        run_composed("export", f"run={recurrent}", "output=.", "format=safetensors"), "the folder you are in"
    )
    monkeypatch.setattr(early_checks, "find_spec", lambda name: None)
    refused(run_composed("export", *command, "format=onnx"), "pip install -e '.[export]'")


# ----------------------------------------------------------------------------------------------------------------- Hub


def contents(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


class Hub:
    """A stand-in of the client: it keeps what it was given."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault, self.kept = fault, {}

    def create_repo(self, name: str, *, exist_ok: bool) -> None:
        assert exist_ok
        if self.fault is not None:
            raise self.fault

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> str:
        self.kept[repo_id] = contents(Path(folder_path))
        return f"https://huggingface.co/{repo_id}"


def test_an_export_is_pushed_whole(models, monkeypatch):
    needs("safetensors")
    there = Hub()
    monkeypatch.setattr(hub.huggingface_hub, "HfApi", lambda: there)
    monkeypatch.setattr(hub.huggingface_hub, "get_token", lambda: "token")
    directory = exported(models["pre"], "safetensors", "push=me/en-vi")
    assert there.kept == {"me/en-vi": contents(directory)}
    assert {"README.md", "tokenizer/joint.model"} < there.kept["me/en-vi"].keys()


@pytest.mark.parametrize(
    "fault", [OSError("no\nnetwork"), hub.HTTPError("a bad\nname"), ValueError("Invalid metadata")]
)
def test_what_the_hub_refuses_is_one_line_and_the_folder_stays(fault, models, monkeypatch, tmp_path):
    needs("safetensors")
    command = [
        f"run={models['pre'].directory}",
        "format=safetensors",
        f"output={tmp_path / 'out'}",
        "push=me/en-vi",
    ]
    monkeypatch.setattr(hub.huggingface_hub, "get_token", lambda: None)
    refused(run_composed("export", *command), "push=me/en-vi needs a token")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(hub.huggingface_hub, "get_token", lambda: "token")
    monkeypatch.setattr(hub.huggingface_hub, "HfApi", lambda: Hub(fault))
    refused(run_composed("export", *command), "push=me/en-vi: " + " ".join(str(fault).split()))
    assert (tmp_path / "out/README.md").exists()
