"""Scores equal sacreBLEU's own command line; what sacreBLEU has not equals its definition."""

import hashlib
import importlib.util
import inspect
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import hydra
import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from nmt import languages, metrics
from nmt.errors import UserError
from tests.commands import compose

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def score(hypotheses, references, num_bootstrap=1000):
    usual = {"bleu": metrics.Bleu(tokenize="13a", lowercase=False), "chrf": metrics.Chrf(lowercase=False)}
    return metrics.score_with(
        usual | {"ter": metrics.Ter()}, hypotheses, references, num_bootstrap=num_bootstrap
    )


def test_scores_signatures_and_intervals_equal_sacrebleus_command_line(corpus, tmp_path):
    for name, lines in zip(("hyp", "ref"), corpus, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp")]
    command += ["-m", "bleu", "chrf", "ter", "--confidence", "-f", "json", "-w", "4"]
    theirs = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    ours = score(*corpus)
    for (name, own), other in zip(ours.items(), theirs, strict=True):
        assert own["score"] == pytest.approx(other["score"], abs=5e-5), name
        assert own["ci"] == pytest.approx(other["confidence_var"], abs=5e-5), name
        assert own["signature"] == f"{other['signature']}", name


def test_without_resamples_there_is_no_interval(corpus):
    result = score(*corpus, num_bootstrap=0)["bleu"]
    assert result["ci"] is None
    assert "bs:" not in result["signature"]


def test_unequal_counts_and_nothing_are_refused():
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(UserError, match="0 sentences"):
        score([], [])


def test_resamples_without_any_match_still_give_an_interval():
    hypotheses, references = ["x y", *["a b c d e"] * 2], ["f g", *["a b c d e"] * 2]
    for lines in (hypotheses, ["x"] * 3, [*["x"] * 9, "a b c d"]):
        scores = score(lines, [*references, *["a b c d e"] * 7][: len(lines)], num_bootstrap=200)
        assert all(0 <= result["ci"] <= 100 for result in scores.values())


def test_a_tokenisation_that_is_none_is_refused():
    with pytest.raises(UserError, match="no tokenisation '14a'"):
        metrics.Bleu(tokenize="14a", lowercase=False)


TOKENIZATIONS = {
    "zh": "zh zh_CN zh-Hant zho zho_Hans zho_Hant zho-TW cmn cmn_Hans yue_Hant lzh chinese ZH",
    "char": "th tha tha_Thai km khm_Khmr lo lao_Laoo my mya_Mymr bur bo bod_Tibt dz dzo_Tibt shn_Mymr jav_Java "
    "ja jpn jpn_Jpan ja-JP ko kor_Hang",  # the last ones without MeCab
    "13a": "en de-AT vi None no zh_Latn nan_Latn ms_MY fr-LA en_TH kind de-1996 srp_Cyrl",
}


def test_bleu_counts_words_as_the_language_is_written(monkeypatch):
    monkeypatch.setattr(languages, "find_spec", lambda name: None)
    for tokenization, codes in TOKENIZATIONS.items():
        for code in codes.split():
            assert languages.bleu_tokenization(code) == tokenization, code
    monkeypatch.setattr(languages, "find_spec", lambda name: name)
    assert [languages.bleu_tokenization(each) for each in ("ja", "kor_Hang")] == ["ja-mecab", "ko-mecab"]
    for code, theirs in BLEU._TOKENIZER_MAP.items():  # as sacreBLEU's own command line chooses
        assert languages.wanted_tokenization(code) == theirs
    for tgt_lang in ("zh_CN", "th", "de"):
        tokenize = compose(
            "train", "data=files", "data.src_lang=en", f"data.tgt_lang={tgt_lang}"
        ).metrics.bleu.tokenize
        assert tokenize == languages.wanted_tokenization(tgt_lang)


@pytest.mark.parametrize(
    ("language", "text"),
    [("zh", "老人在家里看书。"), ("th", "ชายชราอ่านหนังสือที่บ้าน"), ("km", "បុរសចំណាស់អានសៀវភៅ")],
)
def test_text_without_spaces_has_a_bleu(language, text):
    tokenize = languages.bleu_tokenization(language)
    scorer = metrics.Bleu(tokenize=tokenize, lowercase=False)
    near = text[:-1]
    [ours] = metrics.score_with({"bleu": scorer}, [near], [text], num_bootstrap=0).values()
    characters = [" ".join(each) for each in (near, text)]
    theirs = BLEU(tokenize="none").corpus_score(characters[:1], [characters[1:]]).score
    assert ours["score"] == pytest.approx(theirs)
    assert 50 < theirs < 100
    assert f"tok:{tokenize}" in ours["signature"]


def test_a_tokenisation_without_its_mecab_says_what_to_install():
    if importlib.util.find_spec("mecab_ko"):
        pytest.skip("MeCab is installed")
    with pytest.raises(UserError, match=r"sacrebleu\[ko\]'.* metrics\.bleu\.tokenize=char"):
        metrics.Bleu(tokenize="ko-mecab", lowercase=False)


def test_every_argument_of_sacrebleus_metrics_is_a_setting():
    config = compose("train").metrics
    for name, theirs in (("bleu", BLEU), ("chrf", CHRF), ("ter", TER)):
        theirs = {key: each.default for key, each in inspect.signature(theirs).parameters.items()}
        ours = {key: value for key, value in config[name].items() if key != "_target_"}
        assert set(ours) == set(theirs) - {"force", "trg_lang", "references"}
        assert ours == {key: "13a" if key == "tokenize" else theirs[key] for key in ours}


def test_settings_of_metrics_score_as_sacrebleus_own(corpus):
    words = {"lowercase": True, "tokenize": "intl"}
    cases = {
        "chrf": (metrics.Chrf, CHRF, {"word_order": 2, "beta": 1, "lowercase": True}),
        "bleu": (
            metrics.Bleu,
            BLEU,
            {"smooth_method": "add-k", "smooth_value": 2.0, "max_ngram_order": 2} | words,
        ),
        "ter": (metrics.Ter, TER, {"normalized": True, "case_sensitive": True}),
    }
    for name, (our, their, settings) in cases.items():
        [ours] = metrics.score_with({name: our(**settings)}, *corpus, num_bootstrap=0).values()
        theirs = their(**settings)
        assert ours["score"] == pytest.approx(theirs.corpus_score(corpus[0], [corpus[1]]).score)
        assert ours["signature"] == str(theirs.get_signature())
        assert (
            metrics.label(name, ours["signature"]) == {"chrf": "chrF++", "bleu": "BLEU", "ter": "TER"}[name]
        )


def test_several_references_score_as_sacrebleus_command_line_does(corpus, tmp_path):
    hypotheses, references = corpus
    others = [["", *hypotheses[1:60], *references[60:]], references[::-1]]
    others[1][3] = ""
    files = [tmp_path / name for name in ("first", "second", "third", "hyp")]
    for file, lines in zip(files, (references, *others, hypotheses), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    ours = score(hypotheses, [references, *others], num_bootstrap=0)
    theirs = [[line or None for line in each] for each in (references, *others)]
    for name, scorer in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert ours[name]["score"] == pytest.approx(scorer.corpus_score(hypotheses, theirs).score)
        assert "nrefs:var" in ours[name]["signature"]
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        *map(str, files[:2]),
        "-i",
        str(files[3]),
        "-m",
        "bleu",
        "-b",
        "-w",
        "6",
    ]
    full = [references, [line or "x" for line in others[0]]]
    files[1].write_text("".join(f"{line}\n" for line in full[1]), "utf-8")
    found = float(subprocess.run(command, capture_output=True, check=True).stdout)
    assert score(hypotheses, full, num_bootstrap=0)["bleu"]["score"] == pytest.approx(found, abs=1e-5)


def test_of_several_references_the_nearest_counts_in_a_mean_over_sentences():
    exact = {"exact_match": metrics.ExactMatch()}
    references = [["a", "b", "c"], ["x", "y", ""]]
    [found] = metrics.score_with(exact, ["x", "b", "z"], references, num_bootstrap=0).values()
    assert found["score"] == pytest.approx(200 / 3)
    with pytest.raises(UserError, match=r"macro_f1.*several references"):
        metrics.score_with({"macro_f1": metrics.MacroF1()}, ["x"] * 3, references, num_bootstrap=0)
    with pytest.raises(UserError, match="1 hypotheses but 3 references"):
        metrics.score_with(exact, ["x"], references, num_bootstrap=0)
    assert (
        metrics.digest(["s"], [["a"]])
        == metrics.digest(["s"], ["a"])
        != metrics.digest(["s"], [["a"], ["b"]])
    )


def test_settings_of_metrics_that_could_take_no_effect_are_refused():
    with pytest.raises(UserError, match=r"smooth_value=2.*smooth_method=exp"):
        metrics.Bleu(tokenize="13a", lowercase=False, smooth_value=2)
    with pytest.raises(UserError, match=r"asian_support.*normalized"):
        metrics.Ter(asian_support=True)


def test_exact_match_is_the_share_of_equal_sentences_and_its_interval_that_of_their_mean():
    rng = np.random.default_rng(3)
    right = rng.random(200) < 0.3
    hypotheses = ["yes  it is" if hit else "Yes it is" for hit in right]
    [result] = metrics.score_with(
        {"exact_match": metrics.ExactMatch()}, hypotheses, ["yes it is"] * 200, num_bootstrap=400
    ).values()
    assert result["score"] == pytest.approx(100 * right.mean())
    resampled = np.sort(
        [100 * right[rows].mean() for rows in np.random.default_rng(12345).choice(200, (400, 200))]
    )
    assert result["ci"] == pytest.approx((resampled[-11] - resampled[10]) / 2, abs=1e-4)  # 1/40 from each end
    assert "bs:400|seed:12345|case:mixed" in result["signature"]


def lcs_length(a, b):
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return lcs_length(a[:-1], b[:-1]) + 1
    return max(lcs_length(a[:-1], b), lcs_length(a, b[:-1]))


def test_rouge_keeps_the_words_of_any_script_and_is_the_f1_of_their_matches():
    pytest.importorskip("rouge_score")
    hypotheses = ["Đi học về nhà!", "the cat sat", "नमस्ते दुनिया"]
    references = ["đi về nhà học.", "a cat sat down", "दुनिया नमस्ते"]
    pairs = [
        (["đi", "học", "về", "nhà"], ["đi", "về", "nhà", "học"]),
        (["the", "cat", "sat"], ["a", "cat", "sat", "down"]),
        (["नमस्ते", "दुनिया"], ["दुनिया", "नमस्ते"]),
    ]
    unigrams = [len(set(h) & set(r)) for h, r in pairs]  # no word comes twice
    bigrams = [len(set(pairwise(h)) & set(pairwise(r))) for h, r in pairs]
    longest = [lcs_length(h, r) for h, r in pairs]
    for kind, matches, fewer in (("rouge1", unigrams, 0), ("rouge2", bigrams, 1), ("rougeL", longest, 0)):
        [result] = metrics.score_with(
            {kind: metrics.Rouge(kind=kind)}, hypotheses, references, num_bootstrap=0
        ).values()
        f1 = [2 * m / (len(h) + len(r) - 2 * fewer) for m, (h, r) in zip(matches, pairs, strict=True)]
        assert result["score"] == pytest.approx(100 * sum(f1) / 3), kind


def test_on_ascii_the_words_are_those_of_rouge_score_itself():
    tokenizers = pytest.importorskip("rouge_score.tokenizers")
    text = "Don't pay $3.50, U.S. e-mail_addresses (ROUGE-L)\tend."
    assert metrics.words_of_any_script(text) == tokenizers.DefaultTokenizer(use_stemmer=False).tokenize(text)


@pytest.mark.parametrize("name", sorted(file.stem for file in (CONFIGS / "metrics").glob("*.yaml")))
def test_every_metrics_configuration_scores(name):
    if name == "summarization":
        pytest.importorskip("rouge_score")
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        config = hydra.compose("compare", overrides=[f"metrics={name}"]).metrics
    chosen = dict(hydra.utils.instantiate(config).items())
    scores = metrics.score_with(chosen, ["a b c d"] * 2, ["a b c d"] * 2, num_bootstrap=2)
    assert {key: result["score"] for key, result in scores.items()} == {
        key: pytest.approx(0 if key == "ter" else 100) for key in chosen
    }


def test_the_digest_tells_sources_references_and_their_cuts_apart():
    texts = [(["a"], ["b"]), (["b"], ["a"]), (["a", "b"], []), (["a"], ["b", ""]), (["a"], ["b\n"])]
    assert len({metrics.digest(*text) for text in texts}) == len(texts)
    assert metrics.digest(["a"], ["b"]) == "sha256:" + hashlib.sha256(b'[["a"],["b"]]').hexdigest()
