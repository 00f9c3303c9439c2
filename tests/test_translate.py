"""The command that translates: files that grow, pipes that wait, weights as arrays, and what a notebook shows."""

import gzip
import lzma
import os
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nmt import alignment, plotting
from nmt.commands import translate as command
from nmt.errors import UserError
from nmt.run.paths import grow_file
from nmt.run.run import Run
from nmt.run.translation import Translation
from tests.commands import align, compose, run, translate
from tests.small import SMALL, SOURCES, TARGETS, make_run, written


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("gru"), *SMALL)


# ------------------------------------------------------------------------------------------------------ files that grow


def test_a_file_grows_beside_its_name_and_takes_it_at_the_end(tmp_path):
    file = written(tmp_path / "out", "old")
    with grow_file(file) as write:
        write("one\n")
        write("twó\n")
        assert file.read_text("utf-8") == "old\n"
    assert file.read_bytes() == "one\ntwó\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def write_and_fail(write, fault):
    write("one\n")
    raise fault("cut off")


@pytest.mark.parametrize("fault", [UserError, KeyboardInterrupt, OSError])
def test_what_was_written_before_a_fault_is_kept_apart(fault, tmp_path, caplog):
    file = written(tmp_path / "out", "old")
    with pytest.raises(fault), grow_file(file) as write:
        write_and_fail(write, fault)
    assert file.read_text("utf-8") == "old\n"
    assert (tmp_path / "out.part").read_text("utf-8") == "one\n"
    assert len(list(tmp_path.iterdir())) == 2
    assert "out.part has what was written" in caplog.text
    (tmp_path / "out.part").unlink()
    with pytest.raises(fault), grow_file(file):
        raise fault("before the first line")
    assert list(tmp_path.iterdir()) == [file]


def test_a_name_of_packed_text_gives_packed_text(run_dir, tmp_path):
    lines = written(tmp_path / "in", *SOURCES)
    for name in ("plain", "a.gz", "a.xz"):
        translate(run=run_dir, input=lines, output=tmp_path / name, alignments=tmp_path / f"links.{name}")
    plain, links = ((tmp_path / name).read_text("utf-8") for name in ("plain", "links.plain"))
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).decode() == plain
    assert lzma.decompress((tmp_path / "a.xz").read_bytes()).decode() == plain
    assert gzip.decompress((tmp_path / "links.a.gz").read_bytes()).decode() == links


def test_links_are_followed_and_streams_stay_streams(tmp_path):
    file, link = written(tmp_path / "file", "old"), tmp_path / "link"
    link.symlink_to(file)
    with grow_file(link) as write:
        write("new\n")
    assert link.is_symlink()
    assert file.read_text("utf-8") == "new\n"
    reader, writer = os.pipe()
    with grow_file(Path(f"/dev/fd/{writer}")) as write:
        write("streamed\n")
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        assert stream.read() == b"streamed\n"


@pytest.fixture
def fake(monkeypatch):
    """A run that copies each line a hundred times over: what the command itself does, without a model's time."""

    def copied(lines, *given, units, **how):
        words = [alignment.split_units(line, units) for line in lines]
        return [
            Translation(line, line, 0, 0, own, own, np.eye(len(own)))
            for line, own in zip(lines, words, strict=True)
        ]

    run = SimpleNamespace(
        translate=copied,
        translator=SimpleNamespace(has_attention=True, reads_documents=False),
        tokenizer=None,
        title="a copier",
        languages=None,
    )
    monkeypatch.setattr(command, "open_run", lambda *given, **how: run)
    monkeypatch.setattr(command, "check_decoding", lambda *given, **how: None)
    return run


def run_command(**settings) -> None:
    command.translate(
        compose("translate", "run=none", *(f"{key}={value}" for key, value in settings.items()))
    )


def test_memory_and_files_do_not_wait_for_the_end(fake, tmp_path, monkeypatch):
    """Of 4,000 lines of 30 words, 29 MB of weights, few are in memory; the file beside grows with each block."""
    lines = written(tmp_path / "in", *[" ".join(["word"] * 30)] * 4000)
    sizes, copied = [], fake.translate

    def noted(*given, **how):
        sizes.append(sum(each.stat().st_size for each in tmp_path.glob(".out.*.tmp")))
        return copied(*given, **how)

    fake.translate = noted
    given = {
        "alignments": tmp_path / "links",
        "weights": tmp_path / "weights.npz",
        "page": tmp_path / "page.html",
    }
    monkeypatch.setattr("nmt.plotting.output.MOST_OF_PAGE", 20_000)
    tracemalloc.start()
    run_command(input=lines, output=tmp_path / "out", block_size=100, **given)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12e6
    assert len(sizes) == 40
    assert 0 == sizes[0] < sizes[20] < sizes[39]
    assert (tmp_path / "out").read_text("utf-8") == lines.read_text("utf-8")
    assert (tmp_path / "links").read_text("utf-8").count("29-29\n") == 4000
    assert sum(1 for _ in alignment.read_arrays(tmp_path / "weights.npz")) == 4000
    assert (tmp_path / "page.html").read_text("utf-8").count('"weights": ') == 20_000 // 34**2


# ----------------------------------------------------------------------------------------------------- pipes that wait


def test_a_writer_that_waits_gets_its_answers(monkeypatch):
    """Each line is answered before the next one is written, though a block has room for more."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "r", encoding="utf-8") as lines:
        answers = command.arriving(iter(lines), 256)
        for text in ("one\n", "two\n", "three\nfour\n"):
            os.write(writer, text.encode())
            assert "".join(next(answers)) == text
        os.close(writer)
        assert list(answers) == []


def test_arriving_lines_fill_blocks_and_end_with_what_went_wrong():
    lines = [str(number) for number in range(600)]
    blocks = list(command.arriving(iter(lines), 256))
    assert [line for block in blocks for line in block] == lines
    assert max(map(len, blocks)) <= 256

    def broken():
        yield from lines[:3]
        raise UserError("line 4: not UTF-8")

    found = []
    with pytest.raises(UserError, match="line 4"):
        found += [line for block in command.arriving(broken(), 2) for line in found.append(block) or ()]
    assert found == [["0", "1"], ["2"]]


def test_a_pipe_is_answered_as_it_comes_and_a_file_in_blocks(fake, tmp_path, monkeypatch, capsys):
    sizes, copied = [], fake.translate
    fake.translate = lambda lines, *given, **how: sizes.append(len(lines)) or copied(lines, *given, **how)
    with written(tmp_path / "in", *SOURCES * 100).open("rb") as file:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=file))
        run_command()
    assert sizes == [256, 144]
    reader, writer = os.pipe()
    os.write(writer, b"the house\na")
    os.close(writer)
    capsys.readouterr()
    with os.fdopen(reader, "rb") as file:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=file))
        run_command()
    assert capsys.readouterr().out == "the house\na\n"


# ---------------------------------------------------------------------------------------------------- weights as arrays


def test_weights_of_each_line_are_read_back(run_dir, tmp_path):
    lines = written(tmp_path / "in", *SOURCES, "the " + "house" * 20)
    file = tmp_path / "weights.npz"
    translate(run=run_dir, input=lines, output=tmp_path / "out", weights=file, block_size=2)
    found = Run.load(run_dir).translate(lines.read_text("utf-8").splitlines())
    for (weights, source, target), each in zip(alignment.read_arrays(file), found, strict=True):
        np.testing.assert_allclose(weights, each.weights, atol=1e-6)
        assert source == [word[:40] for word in each.source_words]
        assert target == [word[:40] for word in each.target_words]


@pytest.mark.parametrize("units", ["words", "pieces"])
def test_the_arrays_are_plain_and_as_documented(run_dir, tmp_path, units):
    pairs = {"src": written(tmp_path / "src", *SOURCES), "tgt": written(tmp_path / "tgt", *TARGETS)}
    align(run=run_dir, **pairs, weights=tmp_path / "w.npz", units=units)
    expected = dict(Run.load(run_dir).align_pairs(SOURCES, TARGETS, units=units))
    with np.load(tmp_path / "w.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.kind for name in arrays} == {
            "shapes": "i",
            "weights": "f",
            "source": "U",
            "target": "U",
        }
        shapes, ends = arrays["shapes"], arrays["shapes"].prod(axis=1).cumsum()
        for row, each in expected.items():
            T, S = shapes[row]
            weights = arrays["weights"][ends[row] - T * S : ends[row]].reshape(T, S)
            np.testing.assert_allclose(weights, each.weights, atol=1e-6)
        labels = [label for row in range(len(SOURCES)) for label in expected[row].source.labels]
        assert arrays["source"].tolist() == labels
    assert sorted(each.name for each in tmp_path.iterdir()) == ["src", "tgt", "w.npz"]


def test_weights_need_their_name_and_a_model_with_attention(run_dir, tmp_path):
    lines = written(tmp_path / "in", "a")
    with pytest.raises(UserError, match=r"weights=w\.txt"):
        translate(run=run_dir, input=lines, weights="w.txt")
    without = make_run(tmp_path / "none", "attention=none", *SMALL)
    with pytest.raises(UserError, match="has no attention"):
        translate(run=without, input=lines, weights=tmp_path / "w.npz")
    assert not (tmp_path / "w.npz").exists()


# --------------------------------------------------------------------------------------------------- what is left out


def test_a_page_shows_what_it_has_room_for_and_says_what_not(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("nmt.plotting.output.MOST_OF_PAGE", 500)
    page = plotting.Page()
    sentence = plotting.Sentence(np.eye(6), list("abcdef"), list("abcdef"))
    assert [page.add(sentence) for _ in range(7)] == [True] * 5 + [False] * 2
    page.write(tmp_path / "page.html", title="x", languages=None)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert text.count('"weights": ') == 5
    for said in (text, caplog.text):
        assert "2 more sentences are left out: a page has room for about 500 weights" in said


def test_of_a_long_sentence_the_beginning_is_drawn(monkeypatch):
    monkeypatch.setattr("nmt.plotting.sentence.MOST_OF_SENTENCE", 100)
    words = [str(number) for number in range(30)]
    for num_src, num_tgt, S, T in ((30, 30, 10, 10), (5, 30, 5, 20), (30, 5, 20, 5), (10, 10, 10, 10)):
        whole = plotting.Sentence(
            np.arange(num_src * num_tgt).reshape(num_tgt, num_src),
            words[:num_src],
            words[:num_tgt],
            "t",
            {(1, 2), (29, 4)},
        )
        part = plotting.sentence.crop(whole)
        assert (list(part.source), list(part.target)) == (words[:S], words[:T])
        np.testing.assert_array_equal(part.weights, np.asarray(whole.weights)[:T, :S])
        if num_src * num_tgt <= 100:
            assert part is whole
        else:
            assert part.title == f"t · the first {S} of {num_src} source and {T} of {num_tgt} target words"
            assert set(part.gold) == {(1, 2)}


def test_a_line_without_end_has_links_but_no_weights(run_dir, tmp_path, monkeypatch, caplog):
    """They are the same links as of a shorter line, which has weights."""
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    run, line = Run.load(run_dir), " ".join([*SOURCES[0].split() * 4, "house" * 20])
    [whole] = run.translate([line])
    monkeypatch.setattr("nmt.run.translation.MOST_WEIGHTS", 10)
    [found] = run.translate([line])
    assert (found.weights, found.text) == (None, whole.text)
    assert found.links == whole.links != set()
    files = {"output": tmp_path / "out", "weights": tmp_path / "w.npz", "page": tmp_path / "p.html"}
    translate(run=run_dir, input=written(tmp_path / "in", line, "a"), **files)
    assert "line 1 is too long: it has links, but no weights" in caplog.text
    shapes = [weights.shape for weights, *_ in alignment.read_arrays(files["weights"])]
    assert shapes[0] == (0, 0) != shapes[1]


SHORT = {"decoding.max_length": 4}


def test_a_page_and_heatmaps_show_explanations_beside_the_attention(run_dir, tmp_path, monkeypatch):
    drawn, draw = {}, plotting.picture
    monkeypatch.setattr(
        "nmt.plotting.output.picture", lambda each: drawn.setdefault(each.title, each) and draw(each)
    )
    text, explain = written(tmp_path / "in", "", SOURCES[0]), "[attention,integrated_gradients]"
    to = {"output": tmp_path / "out", "page": tmp_path / "p.html", "heatmaps": tmp_path / "maps"}
    translate(run=run_dir, input=text, **to, explain=explain, **SHORT)
    page = to["page"].read_text("utf-8")
    assert [page.count(f'"{name}"') for name in ("attention", "integrated gradients")] == [1, 1]
    names = {each.name for each in to["heatmaps"].iterdir()}
    stems = ("line_00002", "line_00002_integrated_gradients")
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    assert list(drawn) == ["line 2", "line 2, integrated gradients"]
    weights, scores = (each.weights for each in drawn.values())
    assert weights.shape == scores.shape
    assert np.abs(weights - scores).max() > 0.01


@pytest.mark.parametrize(
    ("more", "fragment"),
    [
        ({}, "page=FILE"),
        ({"explain": "[]", "units": "pieces"}, "units= has no effect without alignments="),
        ({"page": "p.html", "beside": "RUN"}, "beside"),
        ({"heatmaps": "maps", "explain": "[rollout]"}, "Transformer"),
        ({"page": "p.html", "explain": "[gradient]", "int8": "true"}, "int8"),
    ],
)
def test_explanations_that_cannot_be_drawn_are_refused(run_dir, tmp_path, more, fragment):
    more = {key: run_dir if value == "RUN" else value for key, value in more.items()}
    given = {"input": written(tmp_path / "in", SOURCES[0]), "output": tmp_path / "out"}
    with pytest.raises(UserError, match=fragment):
        translate(run=run_dir, **given | {"explain": "[occlusion]"} | more)
    assert not (tmp_path / "out").exists()


def test_a_model_without_attention_has_pictures_of_explanations_alone(tmp_path, caplog):
    run_dir = make_run(tmp_path / "run", *SMALL, "attention=none")
    given = {"run": run_dir, "input": written(tmp_path / "in", SOURCES[0]), "output": tmp_path / "out"}
    maps = tmp_path / "maps"
    translate(**given, heatmaps=maps, page=tmp_path / "p.html", explain="[occlusion]", **SHORT)
    assert {each.name for each in maps.iterdir()} == {"line_00001_occlusion.png", "line_00001_occlusion.svg"}
    assert '"occlusion"' in (tmp_path / "p.html").read_text("utf-8")
    assert "too long" not in caplog.text
    for given_too in (
        {"alignments": "links", "explain": "[occlusion]", "heatmaps": maps},
        {"heatmaps": maps},
    ):
        with pytest.raises(UserError, match="no attention"):
            translate(**given, **given_too)


def test_a_line_that_is_translated_in_parts_is_not_explained(run_dir, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 12)
    lines = written(tmp_path / "in", " ".join(SOURCES[0].split() * 4), "a")
    to = {"output": tmp_path / "out", "page": tmp_path / "p.html"}
    translate(run=run_dir, input=lines, **to, explain="[occlusion]", **SHORT)
    assert "line 1 is too long to explain" in caplog.text
    assert "12 pieces" in caplog.text
    assert to["page"].read_text("utf-8").count('"occlusion"') == 1


# ------------------------------------------------------------------------------------------------------- in a notebook


def test_a_translation_draws_itself(run_dir):
    [found, empty] = Run.load(run_dir).translate(["the house", ""])
    svg = found._repr_svg_()
    assert "</svg>" in svg
    assert empty._repr_svg_() is None
    assert "weights" not in repr(found)


def test_a_run_says_what_it_is(run_dir):
    run = Run.load(run_dir)
    assert repr(run).startswith(
        f"Run({str(run_dir)!r}: {run.translator.name}, {run.translator.num_parameters:,} parameters"
    )


# ---------------------------------------------------------------------------------------------------- lines at the door


@pytest.mark.parametrize(
    ("line", "reason"), [("x" * 2**15, "more than 32,768 bytes"), (b"\xe9", "not UTF-8"), ("a\0b", "NUL")]
)
def test_a_bad_line_is_named_before_the_first_is_translated(run_dir, tmp_path, monkeypatch, line, reason):
    file = tmp_path / "in"
    file.write_bytes(b"the cat\nb\n" + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    monkeypatch.setattr(Run, "translate", None)
    with pytest.raises(UserError, match=rf"in, line 3: .*{reason}"):
        translate(run=run_dir, input=file, output=tmp_path / "out", block_size=1)
    assert list(tmp_path.iterdir()) == [file]


def test_unknown_characters_are_counted_over_all_blocks(run_dir, tmp_path, caplog):
    lines = written(tmp_path / "in", *SOURCES, "猫", *SOURCES, "は猫")
    translate(run=run_dir, input=lines, output=tmp_path / "out", block_size=3)
    [said] = caplog.messages
    assert said.startswith("2 of 10 lines hold characters that the vocabulary does not know (猫, は): ")


LINES = [
    b"the cat sleeps .",
    b"",
    b"carriage return\r",
    b"\r",
    b"a\x0cb\x0bc\x1c\x1d\x1e\x85".replace(b"\x85", "\u0085".encode()),
    "a\u2028b\u2029c".encode(),
    "\u2028".encode(),
    "\u200b\ufeff\u00ad".encode(),
    "\u200b\ufeff".encode(),
    "\u0085 \u0085".encode(),
    b"\xc2\x85 " * 400,
    "שלום \u202eעולם".encode(),
    ("e" + "\u0301" * 100).encode(),
    b"x" * 200,
    b"no line feed at the end",
]


@pytest.mark.parametrize("way", ["standard input", "file"])
def test_translate_never_loses_or_adds_a_line(way, untrained, tmp_path):
    text = b"\n".join(LINES)
    if way == "file":
        (tmp_path / "in.txt").write_bytes(text)
        ended = run(
            "translate",
            f"run={untrained}",
            f"input={tmp_path / 'in.txt'}",
            f"output={tmp_path / 'out'}",
            "decoding=greedy",
        )
        out = (tmp_path / "out").read_bytes().decode()
    else:
        ended = run("translate", f"run={untrained}", "block_size=3", "decoding=greedy", stdin=text)
        out = ended.out
    assert ended.status == 0, ended.err
    lines = out.split("\n")
    assert len(lines) == len(LINES) + 1
    assert not any(
        out
        for line, out in zip(LINES, lines, strict=False)
        if not line.decode().strip().strip("\u200b\ufeff")
    )
    assert all(len(line.splitlines()) <= 1 for line in lines)
