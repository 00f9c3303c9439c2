"""Training text that is read as it goes: each pair once a pass, the same batches wherever they are begun."""

import json
import re
import threading
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nmt.data import streaming
from nmt.data.batching import collate
from nmt.data.corpus import read_files
from nmt.data.datamodule import StreamingDataModule
from nmt.data.find import Files, Languages
from nmt.data.pair_sampler import PairSampler
from nmt.data.streaming import BatchStream, Place, TextStream
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.run.data import read_splits
from nmt.training.vocabulary import make_tokenizer

NUM_PAIRS = 100
LINES = [
    {"en": f"the number {n}" + " and more" * (n % 9), "vi": f"số {n}" + " và thêm" * (n % 9)}
    for n in range(NUM_PAIRS)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four shards of unequal lengths."""
    directory = tmp_path / "data"
    directory.mkdir()
    cuts = [0, 10, 45, 60, NUM_PAIRS]
    for n in range(4):
        rows = LINES[cuts[n] : cuts[n + 1]]
        (directory / f"train-{n:05}-of-00004.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (directory / "val.jsonl").write_text(json.dumps(LINES[0]) + "\n")
    return directory


def read(folder: Path, streaming: int | None = 7) -> dict:
    cache = folder.parent / "cache"
    return read_files(folder, src_lang="en", tgt_lang="vi", cache_dir=cache, streaming=streaming)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    src, tgt = zip(*((row["en"], row["vi"]) for row in LINES), strict=True)
    return Tokenizer.train(src, tgt, model_type="bpe", joint=True, vocab_size=80, character_coverage=1.0)


def stream(folder: Path, tokenizer: Tokenizer, **changed) -> BatchStream:
    settings = {
        "buffer_pairs": 30,
        "max_length": 60,
        "max_ratio": 4.0,
        "max_tokens": 120,
        "seed": 3,
        "guided": False,
    }
    pad = partial(collate, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id)
    return BatchStream(read(folder)["train"], tokenizer, pad, **(settings | changed))


def batches(of: BatchStream, number: int, first: int = 0, num_replicas: int = 1, rank: int = 0) -> list:
    return list(islice(of.batches(first, num_replicas=num_replicas, rank=rank), number))


def num_pairs(some: list) -> int:
    return sum(len(batch.src) for batch in some)


def sources(some: list, tokenizer: Tokenizer) -> Counter[str]:
    """How often each source occurs; the vocabulary is joint, so that targets' decoder reads it too."""
    return Counter(text for batch in some for text in tokenizer.decode(batch.src.tolist()))


def first_pass(of: BatchStream) -> list:
    """Its batches up to the one that comes from the second pass."""
    found = []
    for batch in of.batches(0, num_replicas=1, rank=0):
        if of.place.number:
            return found
        found.append(batch)
    raise AssertionError("a stream has no end")


def test_a_pass_has_every_pair_once(folder, tokenizer):
    found = first_pass(stream(folder, tokenizer))
    assert sources(found, tokenizer) == Counter(row["en"] for row in LINES)
    assert sorted(index for batch in found for index in batch.indices.tolist()) == list(range(NUM_PAIRS))
    for batch in found:
        assert max(batch.src.numel(), batch.tgt_out.numel()) <= 120


def test_another_pass_has_them_in_other_batches(folder, tokenizer):
    of = stream(folder, tokenizer)
    length = len(first_pass(of))
    whole = batches(stream(folder, tokenizer), 3 * length)
    assert num_pairs(whole) > 2 * NUM_PAIRS
    first, second = ([batch.src.tolist() for batch in whole[n : n + length]] for n in (0, length))
    assert first != second


def test_ranks_share_each_block_evenly(folder, tokenizer):
    ranks = [stream(folder, tokenizer) for _ in range(2)]
    found: list[list] = [[], []]
    open_streams = [each.batches(0, num_replicas=2, rank=rank) for rank, each in enumerate(ranks)]
    while True:
        pair = [next(each) for each in open_streams]
        assert ranks[0].place == ranks[1].place
        if ranks[0].place.number:
            break
        for side, batch in zip(found, pair, strict=True):
            side.append(batch)
    assert sources(found[0] + found[1], tokenizer) == Counter(row["en"] for row in LINES)


@pytest.mark.parametrize("first", [0, 1, 5, 11, 12, 30])
def test_a_stream_goes_on_from_any_batch(folder, tokenizer, first):
    """From the place that a checkpoint after `first` batches has."""
    before = stream(folder, tokenizer)
    batches(before, first)
    expected = batches(before, 6, first)
    for place in (Place(), before_place(folder, tokenizer, first)):
        again = stream(folder, tokenizer)
        again.place = place
        for one, other in zip(batches(again, 6, first), expected, strict=True):
            assert one.src.tolist() == other.src.tolist()
            assert one.tgt_in.tolist() == other.tgt_in.tolist()
            assert one.indices.tolist() == other.indices.tolist()


def before_place(folder: Path, tokenizer: Tokenizer, first: int, **changed) -> Place:
    of = stream(folder, tokenizer, **changed)
    batches(of, first)
    return of.place


def test_a_stream_that_is_closed_waits_for_no_block(folder, tokenizer, monkeypatch):
    """The garbage collector closes it in any thread; one that waits there for another may wait forever."""
    read_on, reading = threading.Event(), stream(folder, tokenizer)
    first = next(reading._blocks(Place(), 1))

    def blocks(*_):
        yield first
        read_on.wait()

    monkeypatch.setattr(reading, "_blocks", blocks)
    batches = reading._from(Place(), 1, 0)
    next(batches)
    closing = threading.Thread(target=batches.close, daemon=True)
    closing.start()
    closing.join(timeout=10)
    closed = not closing.is_alive()
    read_on.set()
    assert closed


def test_shards_come_in_an_order_of_their_own_for_each_pass(folder):
    text: TextStream = read(folder)["train"]
    orders = {tuple(src for src, _ in text.rows(3, number)) for number in range(6)}
    assert len(orders) > 1
    assert list(text.rows(3, 1)) == list(text.rows(3, 1))


def test_a_vocabulary_sees_all_shards(folder):
    text: TextStream = read(folder)["train"]
    assert [src for src, _ in text.first_pairs(8)] == [
        row["en"] for start in (0, 10, 45, 60) for row in LINES[start : start + 2]
    ]


def test_a_streams_vocabulary_is_that_of_its_pairs(folder):
    settings = {"model_type": "bpe", "joint": False, "vocab_size": 50, "character_coverage": 1.0}
    config = OmegaConf.create({"tokenizer": settings | {"model": None, "max_pairs": 1000}})
    src, tgt = zip(*((row["en"], row["vi"]) for row in LINES), strict=True)
    found = make_tokenizer(config, read(folder)["train"])
    assert found.__reduce__() == Tokenizer.train(src, tgt, **settings).__reduce__()


def test_the_fault_of_a_line_is_named_when_it_is_reached(folder, tokenizer):
    shard = folder / "train-00002-of-00004.jsonl"
    shard.write_text(shard.read_text() + "{broken\n")
    with pytest.raises(UserError, match=r"train-00002-of-00004\.jsonl, line 16: not JSON"):
        batches(stream(folder, tokenizer), 100)


def test_an_empty_shard_is_taken_as_it_is_where_the_text_is_read_whole(folder, tokenizer):
    (folder / "train-00001-of-00004.jsonl").write_text("")
    assert len(read(folder, streaming=None)["train"]) == NUM_PAIRS - 35
    found = first_pass(stream(folder, tokenizer))
    assert sources(found, tokenizer) == Counter(row["en"] for row in LINES[:10] + LINES[45:])
    text: TextStream = read(folder)["train"]
    assert len(list(text.first_pairs(8))) == 6
    for shard in folder.glob("train-*"):
        shard.write_text("")
    for of in (text.rows(3, 0), text.first_pairs(8)):
        with pytest.raises(UserError, match=r"train-0000\d-of-00004\.jsonl: the split has no rows"):
            next(of)


@pytest.mark.parametrize(("guided", "buffer_pairs"), [(False, 30), (True, 30), (True, 10)])
def test_alignments_in_some_shards_only_are_refused(folder, tokenizer, guided, buffer_pairs):
    """Also where the first blocks are of shards that have none."""
    aligned = folder / "train-00003-of-00004.jsonl"
    aligned.write_text("".join(json.dumps(row | {"alignment": "0-0"}) + "\n" for row in LINES[60:]))
    fault = r"jsonl, line 1: some rows have an alignment and others have none"
    with pytest.raises(UserError, match=fault):
        read(folder, streaming=None)
    with pytest.raises(UserError, match=fault):
        list(read(folder)["train"].first_pairs(8))
    for seed in range(4):  # orders of the shards
        with pytest.raises(UserError, match=f"{fault}|guided_alignment of a stream needs"):
            batches(stream(folder, tokenizer, guided=guided, buffer_pairs=buffer_pairs, seed=seed), 100)


def test_a_text_of_which_nothing_is_left_ends_the_run(folder, tokenizer):
    with pytest.raises(UserError, match=r"0 of 100 training pairs are left: raise one of data\.max_length=2"):
        batches(stream(folder, tokenizer, max_length=2), 1)
    with pytest.raises(UserError, match=r"0 of 8 training pairs are left: raise one of data\.max_length=2"):
        stream(folder, tokenizer, max_length=2).first_lengths(9)


def data(folder: Path, tokenizer: Tokenizer, **changed) -> StreamingDataModule:
    settings = {
        "max_length": 60,
        "max_ratio": 4.0,
        "max_tokens": 120,
        "seed": 3,
        "guided": False,
        "epoch_batches": 7,
        "buffer_pairs": 30,
    }
    return StreamingDataModule(read(folder), tokenizer, **(settings | changed))


def test_an_epoch_has_as_many_batches_as_were_asked_for(folder, tokenizer):
    module = data(folder, tokenizer)
    loader = module.train_dataloader()
    assert len(loader) == len(list(loader)) == 7
    module.start_at(0, 5)
    assert [b.src.tolist() for b in module.train_dataloader()] == [
        b.src.tolist() for b in batches(stream(folder, tokenizer), 7)[5:]
    ]


@pytest.mark.parametrize(
    ("place", "position"),
    [(Place(batch=9), 5), (Place(), 31), (Place(batch=30), 51)],
    ids=["behind", "far ahead", "after the epoch"],
)
def test_a_stored_place_of_another_batch_is_refused(folder, tokenizer, place, position):
    module = data(folder, tokenizer, epoch_batches=50)
    module.stream.place = place
    module.start_at(0, position)
    with pytest.raises(UserError, match=r"StreamingDataModule\.place is not that of its batch"):
        next(iter(module.train_dataloader()))


def test_the_largest_batch_is_as_large_as_any(folder, tokenizer):
    def shapes(**limits: int) -> list[tuple[int, ...]]:
        largest = data(folder, tokenizer, **limits).largest_batches(0)
        assert all(batch.src.shape == batch.tgt_out.shape for batch in largest)
        return [tuple(batch.src.shape) for batch in largest]

    assert shapes(max_tokens=125) == [(5, 25), (2, 60)]  # the most cells, and the most pairs of positions
    assert shapes(max_tokens=120) == [(2, 60)]
    assert shapes(max_tokens=100) == [(2, 50)]  # more than one of 60
    assert shapes(max_tokens=1000, max_length=128) == [(8, 125)]


def test_a_pair_without_room_in_a_batch_is_refused(folder, tokenizer):
    with pytest.raises(UserError, match=r"data\.max_length=200 above data\.max_tokens=120"):
        data(folder, tokenizer, max_length=200)


@pytest.mark.parametrize("streaming", [0, -1, True, 2.5])
def test_an_epoch_of_no_batches_is_refused(folder, streaming):
    reader = {"reader": "nmt.data.corpus.read_files", "path": str(folder), "streaming": streaming}
    languages = {"src_lang": "en", "tgt_lang": "vi", "cache_dir": str(folder.parent)}
    with pytest.raises(UserError, match=r"data\.streaming=.*: Input should be"):
        read_splits(OmegaConf.create(reader | languages))


def test_pieces_are_drawn_anew_for_each_pass(folder, tokenizer):
    def drawn(first: int = 0, place: Place | None = None) -> list:
        sampler = PairSampler(tokenizer, 0.3, max_length=60, seed=3)
        of = stream(folder, tokenizer, pair_sampler=sampler)
        of.place = place or Place()
        return batches(of, 150 - first, first)

    found = drawn()
    assert [batch.src.tolist() for batch in drawn()] == [batch.src.tolist() for batch in found]
    pieces: dict[str, set] = {row["en"]: set() for row in LINES}
    for batch in found:
        assert max(batch.src.numel(), batch.tgt_out.numel()) <= 120
        for ids in batch.src.tolist():
            pieces[tokenizer.decode([ids])[0]].add(tuple(each for each in ids if each))
    assert sum(len(ways) > 1 for ways in pieces.values()) > NUM_PAIRS / 2
    place = before_place(
        folder, tokenizer, 12, pair_sampler=PairSampler(tokenizer, 0.3, max_length=60, seed=3)
    )
    assert [b.src.tolist() for b in drawn(12, place)] == [b.src.tolist() for b in found[12:]]


def test_pairs_left_out_by_a_limit_are_warned_of_once(folder, tokenizer, caplog):
    first_pass(stream(folder, tokenizer, max_length=4, buffer_pairs=10))
    [said] = [each.message for each in caplog.records if "left out" in each.message]
    assert re.fullmatch(r"\d+ % of the first 10 training pairs are left out by data.max_length=4: .*", said)


def test_a_block_of_which_nothing_is_kept_is_passed_over(folder, tokenizer):
    shard = folder / "train-00002-of-00004.jsonl"
    shard.write_text(json.dumps({"en": "", "vi": ""}) + "\n")
    found = {}
    for alpha in (0.0, 0.3):
        sampler = PairSampler(tokenizer, alpha, max_length=60, seed=3) if alpha else None
        of = stream(folder, tokenizer, buffer_pairs=1, pair_sampler=sampler)
        found[alpha] = sorted(index for batch in first_pass(of) for index in batch.indices.tolist())
    assert len(found[0.3]) == NUM_PAIRS - 15
    assert found[0.3] == found[0.0]


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_batches_do_not_depend_on_how_many_rows_are_split_at_once(folder, tokenizer, alpha, monkeypatch):
    def found() -> list:
        sampler = PairSampler(tokenizer, alpha, max_length=60, seed=3) if alpha else None
        some = batches(stream(folder, tokenizer, pair_sampler=sampler), 60)
        return [(b.src.tolist(), b.tgt_in.tolist(), b.indices.tolist()) for b in some]

    whole = found()
    monkeypatch.setattr(streaming, "_ROWS_AT_ONCE", 7)
    assert found() == whole


def test_a_text_of_one_file_is_cut_anew_in_each_pass_too(tmp_path, tokenizer):
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LINES))
    (directory / "val.jsonl").write_text(json.dumps(LINES[0]) + "\n")
    of = stream(directory, tokenizer, pair_sampler=PairSampler(tokenizer, 0.3, max_length=60, seed=3))
    pieces: dict[int, set] = {row: set() for row in range(NUM_PAIRS)}
    for batch in batches(of, 150):
        for row, ids in zip(batch.indices.tolist(), batch.src.tolist(), strict=True):
            pieces[row].add(tuple(each for each in ids if each))
    assert of.place.number >= 2
    assert sum(len(ways) > 1 for ways in pieces.values()) > NUM_PAIRS / 2


def test_a_run_does_not_go_on_with_other_text_or_another_validation_set(folder, tokenizer):
    state = data(folder, tokenizer).state_dict()
    data(folder, tokenizer).load_state_dict(state)
    (folder / "val.jsonl").write_text(json.dumps(LINES[1]) + "\n")
    with pytest.raises(UserError, match="the validation set is not the one that the run was scored on"):
        data(folder, tokenizer).load_state_dict(state)
    shard = folder / "train-00000-of-00004.jsonl"
    shard.write_text(shard.read_text().upper().replace("EN", "en").replace("VI", "vi"))
    with pytest.raises(UserError, match="the training text is not the one that the run was trained on"):
        data(folder, tokenizer).load_state_dict(state)


def test_a_stream_is_identified_by_all_its_bytes(tmp_path):
    def digest() -> str:
        return TextStream(
            Files("text", (tmp_path / "train.en", tmp_path / "train.vi")), Languages("en", "vi")
        ).digest

    for lang in ("en", "vi"):
        (tmp_path / f"train.{lang}").write_text("a\n" * 100_000 + "b\n")
    before = digest()
    assert digest() == before
    (tmp_path / "train.vi").write_text("a\n" * 100_000 + "c\n")
    assert digest() != before


def test_guidance_needs_alignments(folder, tokenizer):
    with pytest.raises(UserError, match=r"guided_alignment of a stream needs .*train\.align"):
        batches(stream(folder, tokenizer, guided=True), 1)
    with pytest.raises(UserError, match=r"guided_alignment of a stream needs .*train\.align"):
        stream(folder, tokenizer, guided=True).first_lengths(10)
