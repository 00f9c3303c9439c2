"""What figures and pages show, read back from them; a person has looked at the pictures besides."""

import base64
import hashlib
import json
import logging
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from PIL import Image

from nmt import plotting
from nmt.plotting import fonts
from nmt.plotting.sentence import abbreviate

SOURCE, TARGET = ["the", "old", "teacher", "pays", "$5$"], ["giáo", "viên", "già", "trả", "nghiêng", "ượ"]


def weights(num_rows, num_columns):
    values = np.random.default_rng(0).random((num_rows, num_columns))
    return values / values.sum(axis=1, keepdims=True)


def test_labels_stand_in_order_at_their_rows_and_columns():
    values = weights(6, 5)
    axes = plotting.heatmap(values, SOURCE, TARGET, title="one").axes[0]
    assert labels(axes) == [SOURCE, TARGET]
    np.testing.assert_array_equal(axes.images[0].get_array(), values)
    assert axes.images[0].get_clim() == (0, 1)


def test_cells_say_hundredths_where_there_is_room():
    axes = plotting.heatmap([[0.25, 0.746], [0.001, 0.999]], ["a", "b"], ["c", "d"]).axes[0]
    assert [text.get_text() for text in axes.texts] == ["25", "75", "100"]
    assert not plotting.heatmap(weights(2, 30), ["w"] * 30, ["a", "b"]).axes[0].texts


def test_gold_links_are_outlined_at_source_column_and_target_row():
    axes = plotting.heatmap(weights(2, 3), list("abc"), list("de"), gold={(2, 0), (0, 1)}).axes[0]
    outlined = {
        (patch.get_x() + 0.5, patch.get_y() + 0.5)
        for patch in axes.patches
        if isinstance(patch, Rectangle) and patch.get_edgecolor() == to_rgba("tab:orange")
    }
    assert outlined == {(2, 0), (0, 1)}


def test_labels_that_do_not_fit_the_weights_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\) but there are 2 target and 2 source"):
        plotting.heatmap(weights(2, 3), ["a", "b"], ["c", "d"])
    with pytest.raises(ValueError, match=r"\(1, 2, 2\)"):
        plotting.heatmap(np.eye(2)[None], ["a", "b"], ["c", "d"])
    with pytest.raises(ValueError, match=r"\[layers, heads, T, S\].*got \(3, 2, 2\)"):
        plotting.head_grid(np.zeros((3, 2, 2)), ["a", "b"], ["c", "d"])
    with pytest.raises(ValueError, match=r"\(2, 2\) but there are 3 target and 2 source"):
        plotting.head_grid(np.zeros((1, 3, 2, 2)), ["a", "b"], ["c", "d", "e"])
    with pytest.raises(ValueError, match=r"\(2, 2\) but there are 1 target and 2 source"):
        plotting.alignment_page([plotting.Sentence(np.eye(2), ["a", "b"], ["c"])], title="x")


@pytest.mark.parametrize("size", [(1, 1), (6, 5), (60, 70)])
def test_pictures_have_pixels_and_stay_of_a_size(size):
    figure = plotting.heatmap(weights(*size), ["từ"] * size[1], ["word"] * size[0])
    pixels = plotting.to_array(figure)
    assert pixels.dtype == np.uint8
    assert pixels.shape[2] == 3
    assert max(pixels.shape) < 1800
    assert pixels.min() < 120 < pixels.max()


def test_a_pdf_contains_its_fonts_and_is_the_same_again(tmp_path):
    for name in ("one", "two"):
        plotting.to_pdf(plotting.heatmap([[1.0]], ["từ"], ["word"]), tmp_path / f"{name}.pdf")
    content = (tmp_path / "one.pdf").read_bytes()
    assert content == (tmp_path / "two.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/TrueType" in content or b"/FontFile2" in content


def test_png_is_whole(tmp_path):
    path = tmp_path / "deep" / "one.png"
    plotting.to_png(plotting.heatmap(weights(6, 5), SOURCE, TARGET), path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (["MMMMMMMMMM"], ["WWWWWWWWWWWW"]),
        (["a", "a", "Donaudampfschifffahrtsgesellschaft"], ["x"]),
        (["ướt", "$x$"] * 40, ["nghiêngnghiêng"] * 90),
    ],
)
def test_no_label_is_cut_off(source, target):
    figure = plotting.heatmap(
        weights(len(target), len(source)), source, target, title="longer than the grid is wide", gold={(0, 0)}
    )
    assert_margins(figure)


@pytest.mark.parametrize("size", [(0, 0), (0, 3), (2, 0)])
def test_a_sentence_without_words_is_an_empty_picture(size):
    assert plotting.to_array(plotting.heatmap(np.zeros(size), ["s"] * size[1], ["t"] * size[0])).size


def test_a_picture_says_what_its_outlines_are():
    assert headings(plotting.heatmap([[1.0]], ["a"], ["b"])) == []
    figure = plotting.heatmap([[1.0]], ["a"], ["b"], title="x $y$", gold={(0, 0)})
    assert headings(figure) == ["x $y$ · outlined: gold links"]


def test_a_character_without_a_glyph_is_one_message_however_often_it_is_drawn(caplog, monkeypatch):
    monkeypatch.setattr(fonts, "_reported", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            plotting.to_array(plotting.heatmap([[1.0]], ["\U0010fffd"], ["a"]))
    assert len(caplog.records) == 1
    assert "install one that does" in caplog.text


def test_other_warnings_are_not_swallowed():
    with pytest.warns(UserWarning, match="something else"), fonts.log_missing_glyphs():
        warnings.warn("something else", stacklevel=1)


def labels(axes):
    return [[label.get_text() for label in side] for side in (axes.get_xticklabels(), axes.get_yticklabels())]


def headings(figure):
    return [text.get_text() for text in figure.texts]


def assert_margins(figure):
    """Nothing reaches the edge of the picture."""
    pixels = plotting.to_array(figure)
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert edge.min() == 255


def assert_whole(figure):
    """Nothing reaches the edge of the picture, and no heading covers another heading or cells."""
    assert_margins(figure)
    boxes = [text.get_window_extent() for text in figure.texts]
    cells = [axes.get_window_extent() for axes in figure.axes]
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :] + cells)


@pytest.mark.parametrize("words", [2, 6])
def test_each_head_has_a_grid_and_the_words_stand_at_the_outer_ones(words):
    values = np.random.default_rng(1).random((2, 3, words, words))
    source, target = SOURCE[:1] * words, TARGET[:words]
    figure = plotting.head_grid(values, source, target, title="one", gold={(1, 0)})
    names = [f"layer {layer} head {head}" for layer in (0, 1) for head in (0, 1, 2)]
    assert headings(figure) == ["one · outlined: gold links", *names]
    for number, axes in enumerate(figure.axes):
        np.testing.assert_array_equal(axes.images[0].get_array(), values[number // 3, number % 3])
        assert labels(axes) == [source if number < 3 else [], [] if number % 3 else target]
        assert [(patch.get_x(), patch.get_y()) for patch in axes.patches] == [(0.5, -0.5)]
    corners = [(round(axes.get_position().x0, 9), round(axes.get_position().y0, 9)) for axes in figure.axes]
    assert len(set(corners)) == 6
    assert len({x for x, _ in corners}) == 3
    assert len({y for _, y in corners}) == 2
    assert_whole(figure)


def test_an_svg_is_well_formed_without_text_and_the_same_again(tmp_path):
    for name in ("one", "two"):
        figure = plotting.heatmap(weights(2, 2), ["<a>", "b&--"], ["]]>", "$d$"], title="</svg> -->")
        plotting.to_svg(figure, tmp_path / f"{name}.svg")
    content = (tmp_path / "one.svg").read_bytes()
    assert content == (tmp_path / "two.svg").read_bytes()
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(content).iter()}
    assert "path" in tags
    assert not tags & {"text", "script", "a"}


def test_characters_that_files_may_not_hold_are_drawn_as_replaced(tmp_path):
    words = ["a\x01", "\ud800", "\x00"]
    figure = plotting.heatmap(np.eye(3), words, words, title="\x1b")
    plotting.to_svg(figure, tmp_path / "one.svg")
    ElementTree.parse(tmp_path / "one.svg")
    sentence = plotting.Sentence(np.diag([1, np.nan, np.inf]), words, words)
    page = plotting.alignment_page([sentence], title="\x1b", target_lang="\ud800")
    [item] = Page(page.encode().decode()).data["items"]
    assert item["weights"] == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert item["source"] == item["target"] == ["a�", "�", "�"]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_bleu_by_length_has_a_line_for_each_run_with_gaps_where_there_are_no_sentences():
    runs = {"bahdanau": [30.0, 25.0, float("nan")], "_none $x$": [20.0, 10.0, 5.0]}
    figure = plotting.bleu_by_length(
        ["1-10", "11-20", "21+"], {name: [scores] for name, scores in runs.items()}, [1200, 30, 0]
    )
    axes = figure.axes[0]
    assert labels(axes)[0] == ["1-10\n(1,200)", "11-20\n(30)", "21+\n(0)"]
    assert axes.get_xlabel() == "sentence length, words (number of sentences)"
    assert legend(figure) == list(runs)
    for line, values in zip(axes.lines, runs.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([[0, 1, 2], values], axis=1))
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 2
    assert axes.get_ylim()[0] == 0
    assert plotting.to_array(figure).min() < 120


def test_learning_curves_have_the_steps_of_each_run():
    runs = {"one": ([100, 200], [1.0, 2.0]), "none": None, "two": ([50, 150, 400], [0.5, 3.0, 4.0])}
    curves = {name: [] if curve is None else [curve] for name, curve in runs.items()}
    figure = plotting.learning_curves(curves, ylabel="val/bleu")
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "val/bleu")
    assert legend(figure) == ["one", "two"]
    assert [line.get_color() for line in axes.lines] == ["C0", "C2"]  # of their places, drawn or not
    for line, curve in zip(axes.lines, filter(None, runs.values()), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.transpose(curve))


@pytest.mark.parametrize(("last", "are_whole"), [(20, True), (1.5, False)])
def test_whole_numbers_are_marked_by_whole_numbers(last, are_whole):
    figure = plotting.learning_curves({"a": [([0, last], [1.0, 2.0])]}, ylabel="lines")
    assert all(float(mark).is_integer() for mark in figure.axes[0].get_xticks()) == are_whole


def test_a_long_name_in_a_legend_is_broken_into_lines():
    name = "path=" + "very/long/" * 30
    figure = plotting.learning_curves({name: [([0, 1], [1.0, 2.0])], "b": [([0, 1], [1.0, 2.0])]}, ylabel="y")
    assert [text.replace("\n", "") for text in legend(figure)] == [name, "b"]
    assert_margins(figure)


def test_runs_of_one_system_share_a_colour_with_their_mean_and_a_band():
    curves = [([0, 10, 20], [1.0, 3.0, 5.0]), ([0, 20, 30], [3.0, 7.0, 9.0])]  # 5 at step 10
    figure = plotting.learning_curves({"a": curves, "b": curves[:1]}, ylabel="val/bleu")
    axes = figure.axes[0]
    assert legend(figure) == ["a, mean ± standard deviation of 2 runs", "b"]
    mean, *thin, other = axes.lines
    np.testing.assert_allclose(mean.get_xydata(), [[0, 2.0], [10, 4.0], [20, 6.0]])
    assert [line.get_color() for line in (mean, *thin, other)] == ["C0", "C0", "C0", "C1"]
    for line, curve in zip(thin, curves, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.transpose(curve))
    [band] = axes.collections
    std = 2**0.5
    corners = {tuple(point) for point in band.get_paths()[0].vertices.round(6).tolist()}
    assert {(0, round(2 + std, 6)), (10, round(4 - std, 6)), (20, round(6 + std, 6))} <= corners


class Page(HTMLParser):
    """Elements (tag, attributes, text) of a page; a tag that is closed out of order is an error."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])
        if tag != "meta":
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    @property
    def data(self):
        return json.loads(*self.find("script", type="application/json"))

    def find(self, tag, **wanted):
        return [
            text for name, attrs, text in self.elements if name == tag and wanted.items() <= attrs.items()
        ]


HOSTILE = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "&amp;"]


def test_a_word_without_end_leaves_room_for_the_weights():
    word = "data:" + "x" * 10_000 + "end"
    pixels = plotting.to_array(plotting.heatmap(np.eye(2), [word, "a"], ["b", word]))
    assert max(pixels.shape) < 1000
    assert abbreviate(word) == "data:" + "x" * 15 + "…" + "x" * 16 + "end"
    assert (len(abbreviate(word)), abbreviate("y" * 40)) == (40, "y" * 40)


def test_a_page_tells_a_browser_its_languages(tmp_path):
    written = plotting.Page()
    written.add(plotting.Sentence([[1.0]], ["图"], ["ượ"]))
    written.write(tmp_path / "page.html", title="x", languages=("en", "vi"))
    page = Page((tmp_path / "page.html").read_text("utf-8"))
    assert page.data["langs"] == {"source": "en", "target": "vi"}
    assert (page.data["items"][0]["source"], page.data["items"][0]["target"]) == (["图"], ["ượ"])


def test_a_web_page_shows_words_weights_and_gold_of_each_sentence():
    values = weights(6, 5)
    sentences = [
        plotting.Sentence(values, SOURCE, TARGET, "one", {(2, 1)}),
        plotting.Sentence(np.eye(4), HOSTILE, HOSTILE, HOSTILE[0]),
        plotting.Sentence(np.zeros((0, 1)), ["图书馆"], []),
    ]
    text = plotting.alignment_page(sentences, title=HOSTILE[1], target_lang="vi")
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert page.find("title") == [HOSTILE[1]]
    one, hostile, empty = page.data["items"]
    assert (one["title"], one["source"], one["target"], one["gold"]) == ("one", SOURCE, TARGET, [[2, 1]])
    np.testing.assert_allclose(one["weights"], values, rtol=0, atol=5e-4)
    assert (hostile["title"], hostile["source"], hostile["target"]) == (HOSTILE[0], HOSTILE, HOSTILE)
    assert (empty["source"], empty["target"], empty["weights"]) == (["图书馆"], [], [])
    assert page.data["langs"]["target"] == "vi"
    assert {"lang": "en"} in [attrs for tag, attrs, _ in page.elements if tag == "html"]
    assert {"charset": "utf-8"} in [attrs for tag, attrs, _ in page.elements if tag == "meta"]


def test_a_web_page_runs_its_one_script_and_asks_for_nothing_else():
    text = plotting.alignment_page([plotting.Sentence(np.eye(4), HOSTILE, HOSTILE)], title="x")
    page = Page(text)
    (script,) = page.find("script", type="module")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policies = [a["content"] for _, a, _ in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"]
    for tag, attributes, _ in page.elements:
        assert tag not in {"img", "link", "iframe", "base"}
        assert not any(name.startswith("on") or name in {"src", "href"} for name in attributes)


def test_pyplot_is_not_imported():
    code = "import sys, nmt.plotting; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_animation_has_a_frame_for_each_picture_in_order(tmp_path):
    colours = {"a.png": ("red", (4, 3)), "b.png": ("blue", (2, 5))}
    for name, (colour, size) in colours.items():
        Image.new("RGB", size, colour).save(tmp_path / name)
    plotting.to_gif([tmp_path / name for name in colours], tmp_path / "whole.gif", seconds_per_frame=0.5)
    with Image.open(tmp_path / "whole.gif") as animation:
        assert (animation.n_frames, animation.size, animation.info["duration"]) == (2, (4, 5), 500)
        assert animation.convert("RGB").getpixel((0, 0)) == (255, 0, 0)
        animation.seek(1)
        assert animation.convert("RGB").getpixel((0, 0)) == (0, 0, 255)
        assert animation.convert("RGB").getpixel((3, 0)) == (255, 255, 255)
    (tmp_path / "program.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    )
    with pytest.raises(OSError, match="cannot identify"):  # PostScript would be run
        plotting.to_gif([tmp_path / "program.png"], tmp_path / "never.gif", seconds_per_frame=0.5)
