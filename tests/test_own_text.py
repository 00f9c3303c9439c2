"""The recipe that a training on one's own text takes if it names no experiment."""

import gzip
import json

import pytest

from nmt.commands.arguments import prepare_arguments
from nmt.commands.composing import compose
from nmt.commands.own_text import with_recipe

LANGS = ("data.src_lang=en", "data.tgt_lang=fr")


@pytest.fixture
def folder(tmp_path):
    def write(number):
        for lang in ("en", "fr"):
            (tmp_path / f"train.{lang}").write_text("abc d\n" * number, "utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("number", "recipe"),
    [(1, "tiny"), (25_000, "tiny"), (25_001, "small"), (80_000, "small"), (80_001, "medium")],
)
def test_the_characters_choose_the_recipe(folder, number, recipe, capsys):
    given = prepare_arguments(["data=files", f"data.path={folder(number)}", *LANGS, "seed=2"], "train")
    assert with_recipe(given) == [*given, f"experiment=own_text_{recipe}"]
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{min(10 * number, 800_000):,} characters" in said.err
    assert ("over" in said.err) == (number > 80_000)
    cfg = compose("train", [*with_recipe(given), "run_dir=x", "name=x"])
    assert (cfg.trainer.max_time, cfg.seed) == ("00:00:10:00", 2)


def test_a_given_time_is_not_contradicted(folder, capsys):
    given = ["data=files", f"data.path={folder(9)}", *LANGS, "trainer.max_time=00:00:00:30"]
    assert with_recipe(prepare_arguments(given, "train"))[-1] == "experiment=own_text_tiny"
    assert "minutes" not in capsys.readouterr().err


def test_text_of_other_formats_is_counted(tmp_path):
    rows = [json.dumps({"english": "abc d", "french": "e fgh"}) for _ in range(30_000)]
    for shard in range(2):
        with gzip.open(tmp_path / f"train-0000{shard}-of-00002.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(rows))
    columns = "data.columns=[en:english,fr:french]"
    given = prepare_arguments(["data=files", f"data.path={tmp_path}", *LANGS, columns], "train")
    assert with_recipe(given)[-1] == "experiment=own_text_small"


@pytest.mark.parametrize(
    "settings",
    [
        ["attention=bahdanau"],
        ["data=files", "experiment=evbnews_en_vi"],
        ["resume=logs/a", "data=files"],
        ["start_from=logs/a", "data=files"],
        ["-m", "data=files,grammar"],
        ["data=multi30k"],
    ],
)
def test_other_trainings_take_none(folder, settings):
    given = prepare_arguments([*settings, f"data.path={folder(9)}", *LANGS], "train")
    assert with_recipe(given) == given


@pytest.mark.parametrize("settings", [["data=files"], ["attention=bahdanau"]])
def test_a_training_without_an_experiment_composes(folder, settings):
    where = ["data=files", f"data.path={folder(9)}", *LANGS] if "data=files" in settings else []
    given = prepare_arguments([*{*settings, *where}, "experiment=null"], "train")
    cfg = compose("train", [*with_recipe(given), "run_dir=x", "name=x"])
    assert (cfg.trainer.max_time, cfg.optimizer._target_) == (None, "torch.optim.Adam")


def test_text_that_is_streamed_is_not_counted(folder):
    given = prepare_arguments(["data=files", f"data.path={folder(9)}", *LANGS, "data.streaming=50"], "train")
    assert with_recipe(given)[-2:] == ["experiment=own_text_medium", "guided_alignment=0"]


@pytest.mark.parametrize("given", [[], ["guided_alignment=0"], ["model.lexical=false"]])
def test_a_model_without_attention_is_neither_guided_nor_given_votes(folder, given):
    given = prepare_arguments(
        ["data=files", f"data.path={folder(9)}", *LANGS, "attention=none", *given], "train"
    )
    cfg = compose("train", [*with_recipe(given), "run_dir=x", "name=x"])
    assert (cfg.guided_alignment, cfg.model.lexical) == (0, False)


@pytest.mark.parametrize("settings", [[], ["data.path=nowhere"], ["data.path='a"]])
def test_a_fault_of_the_text_is_left_to_training(settings, capsys):
    given = ["data=files", *settings, *LANGS]
    assert with_recipe(given) == given
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("model", ["transformer", "gru", "gru_layer_norm"])
@pytest.mark.parametrize("size", ["tiny", "small", "medium"])
def test_every_recipe_takes_other_models(model, size):
    given = [f"experiment=own_text_{size}", "data.path=x", *LANGS, f"model={model}", "run_dir=x", "name=x"]
    cfg = compose("train", given)
    assert cfg.optimizer._target_ == "nmt.training.muon.Muon"
