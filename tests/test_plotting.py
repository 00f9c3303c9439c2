"""What a heatmap shows, read back from the figure; a person has looked at the pictures besides."""

import logging
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from nmt import plotting
from nmt.plotting import fonts

SOURCE, TARGET = ["the", "old", "teacher", "pays", "$5$"], ["giáo", "viên", "già", "trả", "nghiêng", "ượ"]


def weights(num_rows, num_columns):
    values = np.random.default_rng(0).random((num_rows, num_columns))
    return values / values.sum(axis=1, keepdims=True)


def test_labels_stand_in_order_at_their_rows_and_columns():
    values = weights(6, 5)
    axes = plotting.heatmap(values, SOURCE, TARGET, title="one").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in axes.get_yticklabels()] == TARGET
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
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        plotting.heatmap(weights(2, 3), ["a", "b"], ["c", "d"])


@pytest.mark.parametrize("size", [(1, 1), (6, 5), (60, 70)])
def test_pictures_have_pixels_and_stay_of_a_size(size):
    figure = plotting.heatmap(weights(*size), ["từ"] * size[1], ["word"] * size[0])
    pixels = plotting.to_array(figure)
    assert pixels.dtype == np.uint8
    assert pixels.shape[2] == 3
    assert max(pixels.shape) < 1800
    assert pixels.min() < 120 < pixels.max()


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
    pixels = plotting.to_array(figure)
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert edge.min() == 255


@pytest.mark.parametrize("size", [(0, 0), (0, 3), (2, 0)])
def test_a_sentence_without_words_is_an_empty_picture(size):
    assert plotting.to_array(plotting.heatmap(np.zeros(size), ["s"] * size[1], ["t"] * size[0])).size


def test_a_picture_says_what_its_outlines_are():
    def headings(**settings):
        return [text.get_text() for text in plotting.heatmap([[1.0]], ["a"], ["b"], **settings).texts]

    assert headings() == []
    assert headings(title="x $y$", gold={(0, 0)}) == ["x $y$ · outlined: gold links"]


def test_a_character_without_a_glyph_is_one_message_however_often_it_is_drawn(caplog, monkeypatch):
    monkeypatch.setattr(fonts, "_reported", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            plotting.to_array(plotting.heatmap([[1.0]], ["\U0010fffd"], ["a"]))
    assert len(caplog.records) == 1
    assert "install a font" in caplog.text


def test_other_warnings_are_not_swallowed():
    with pytest.warns(UserWarning, match="something else"), fonts.missing_glyphs_logged():
        warnings.warn("something else", stacklevel=1)


def test_pyplot_is_not_imported():
    code = "import sys, nmt.plotting; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
