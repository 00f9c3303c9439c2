"""The race from text to a score, and the plain loop that is raced against."""

import json
import random
import sys

import plain_loop as plain
import pytest
import speedrun
import torch
from plain_loop import EOS, PAD, Recipe
from speedrun import Validation, run_to_validations, seconds_to

from nmt.data.grammar import sentence
from nmt.errors import UserError


@pytest.fixture
def model():
    return plain.PlainTranslator(vocab_size=20, size=8, dropout=0.0).eval()


def test_what_is_read_at_once_is_what_is_read_in_steps_whatever_the_padding(model):
    src, tgt = torch.randint(4, 20, (1, 5)), torch.randint(4, 20, (1, 4))
    beside = torch.cat((torch.cat((src, torch.full((1, 3), PAD)), dim=1), torch.randint(4, 20, (1, 8))))
    whole, _ = model.decode(tgt.expand(2, -1), *model.encode(beside))
    states, padding, hidden = model.encode(src)
    for position, piece in enumerate(tgt.unbind(dim=1)):
        scores, hidden = model.decode(piece[:, None], states, padding, hidden)
        torch.testing.assert_close(scores[0, 0], whole[0, position])


def test_greedy_search_ends_at_the_end_of_a_sentence(model):
    with torch.no_grad():
        model.output.bias[7] = 100.0
    src = torch.randint(4, 20, (2, 3))
    assert model.greedy(src) == [[7] * (2 * 3 + 10)] * 2
    with torch.no_grad():
        model.output.bias[EOS] = 200.0
    assert model.greedy(src) == [[], []]


def test_batches_hold_each_pair_once_and_no_more_than_they_may():
    pairs = [([5] * random.randint(1, 20), [5] * random.randint(1, 20)) for _ in range(200)]
    dealt = list(plain.batches(pairs, max_tokens=60))
    assert sorted(number for batch in dealt for number in batch) == list(range(200))
    assert all(len(batch) * max(len(side) for n in batch for side in pairs[n]) <= 60 for batch in dealt)


def texts(num_pairs):
    rng = random.Random(1)
    pairs = [sentence(rng, max_words=8) for _ in range(num_pairs)]
    return [(each.en, each.vi) for each in pairs]


def test_the_plain_loop_learns_by_heart():
    given = {"train": texts(60)}
    given["val"] = given["train"][:10]
    recipe = Recipe(
        vocab_size=150, size=48, dropout=0.0, lr=0.01, warmup_steps=10, num_epochs=25, max_tokens=128
    )
    found = list(plain.train_plain(given, recipe, seed=1))
    assert [step for step, _ in found] == [found[0][0] * epoch for epoch in range(1, 26)]
    assert found[-1][1] > 50


def test_validations_are_timed_as_they_are_printed_and_a_failure_is_one_line(capsys):
    program = "import sys, time; print('{\"step\": 3, \"bleu\": 1.5}', flush=True); time.sleep(0.3); print('other'); "
    program += 'print(\'{"step": 6, "bleu": 2.5}\')'
    first, second = run_to_validations([sys.executable, "-c", program], "it")
    assert (first.step, first.bleu, second.step, second.bleu) == (3, 1.5, 6, 2.5)
    assert second.seconds - first.seconds >= 0.25
    assert capsys.readouterr().err == "".join(
        f"it: {each.bleu:.2f} BLEU after {each.seconds:.0f} s\n" for each in (first, second)
    )
    with pytest.raises(UserError, match=r"^speedrun: the run ended before its first validation"):
        run_to_validations([sys.executable, "-c", ""], "it")
    with pytest.raises(UserError, match=r"^speedrun: out of luck$"):
        run_to_validations([sys.executable, "-c", "import sys; sys.exit('one line\\nout of luck')"], "it")


def test_the_target_is_reached_at_the_first_validation_that_has_it():
    curve = [Validation(1.0, 1, 35.0), Validation(2.0, 2, 36.0), Validation(3.0, 3, 35.5)]
    assert [seconds_to(target, curve) for target in (30, 36, 36.1)] == [1.0, 2.0, None]


def test_rounds_take_turns_with_their_seeds_and_the_curves_are_kept(tmp_path, capsys, monkeypatch):
    asked = []

    def validated(words, name):
        asked.append(words)
        seed = 1 + sum("train" in each for each in asked) // 2
        return [Validation(10.0 * len(asked), 5, 20.0), Validation(11.0 * len(asked), 9, 35.0 + seed)]

    monkeypatch.setattr(speedrun, "run_to_validations", validated)
    settings = ["data=grammar", "data.num_train=50", "data.num_val=5", "data.num_test=5"]
    settings += [f"data.cache_dir={tmp_path}/cache", "--rounds=2", f"--output={tmp_path}/a.json"]
    monkeypatch.setattr(sys, "argv", ["speedrun.py", *settings])
    speedrun.main()
    assert ["nmt.commands" in words for words in asked] == [True, False, True, False]
    assert all("experiment=multi30k_speedrun" in words for words in asked[::2])
    assert [words[-1] for words in asked[1::2]] == ["1", "2"]
    assert all(f"seed={seed}" in words for seed, words in enumerate(asked[::2], start=1))
    kept = json.loads((tmp_path / "a.json").read_text())
    assert kept["command"].startswith("python scripts/workbench/speedrun.py data=grammar")
    assert kept["seconds"] == {"here": [11.0, 33.0], "plain loop": [22.0, 44.0]}
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert "36 BLEU after 22 s (rounds: 11, 33)" in capsys.readouterr().out


def test_settings_without_effect_on_the_race_are_refused():
    with pytest.raises(UserError, match=r"^model\.size= has no effect"):
        speedrun.speedrun("multi30k_speedrun", ["model.size=128"], num_rounds=1)


@pytest.mark.slow
def test_a_race_is_run(tmp_path):
    (tmp_path / "text").mkdir()
    for name, number in (("train", 100), ("val", 3), ("test", 1)):
        for side, lang in enumerate(("en", "vi")):
            lines = "\n".join(pair[side] for pair in texts(number))
            (tmp_path / "text" / f"{name}.{lang}").write_text(lines + "\n", "utf-8")
    data = ["data=files", f"data.path={tmp_path}/text", "data.src_lang=en", "data.tgt_lang=vi"]
    curves = speedrun.speedrun("multi30k_fast", [*data, "data.tokenizer.vocab_size=250"], num_rounds=1)
    assert [len(curves[name][0]) for name in ("here", "plain loop")] == [4, 4]
    for name in curves:
        assert "not reached" in speedrun.race_line(name, curves[name], 36.0)
