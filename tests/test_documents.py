"""Documents: two levels of encoders and attention, against loops over sentences; the built-in documents; labels."""

import json
import math
import re
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch

from nmt import Run, alignment, metrics, plotting
from nmt.attention import AdditiveAttention, HierarchicalAttention, SentenceAttention
from nmt.attention.masks import masked_softmax
from nmt.data import grammar
from nmt.data.corpus import read_documents, read_files
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings
from nmt.encoders import HierarchicalEncoder, RecurrentEncoder
from nmt.errors import UserError
from nmt.layers.cells import GRULayer
from nmt.layers.embedding import Embedding
from nmt.run.model import build_translator
from tests.commands import compose
from tests.small import vocabulary

PAD, UNK, BOS, EOS, SEP = range(5)
SIZE = 6
# Lengths of sentences; each but the last ends with a separator, the last with the end of the text.
DOCUMENTS = [[3, 1, 2], [4], [1, 1, 1, 1], [2, 5]]


def ids_of(sizes: list[int]) -> list[list[int]]:
    """Random sentences of these numbers of words, each with the sign that ends it."""
    sentences = [torch.randint(5, 20, (size,)).tolist() for size in sizes]
    return [[*words, SEP] for words in sentences[:-1]] + [[*sentences[-1], EOS]]


def batch_of(documents: list[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.tensor([*chain.from_iterable(sentences)]) for sentences in documents]
    src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return src, src != PAD


def make_encoder(separator_id: int | None = SEP) -> HierarchicalEncoder:
    recurrent = partial(
        RecurrentEncoder, size=SIZE, num_layers=1, output_size=SIZE, residual=False, cell=partial(GRULayer),
    )  # fmt: skip
    embedding = Embedding(20, SIZE, pad_id=PAD, separator_id=separator_id)
    encoder = HierarchicalEncoder(embedding=embedding, dropout=0.0, words=recurrent, sentences=recurrent)
    return encoder.double().eval()


@torch.no_grad()
def reference(encoder: HierarchicalEncoder, sentences: list[list[int]]):
    """States of words, sentence by sentence; vectors by loops; states of sentences: one document, no batch."""
    states, vectors, weights = [], [], []
    for words in sentences:
        src = torch.tensor([words])
        h = encoder.words(src, torch.ones_like(src, dtype=torch.bool)).states[0]
        scores = [
            float(
                encoder.pooling.u
                @ torch.tanh(encoder.pooling.projection.weight @ each + encoder.pooling.projection.bias)
            )
            for each in h
        ]
        total = sum(math.exp(score) for score in scores)
        a = [math.exp(score) / total for score in scores]
        states.append(h)
        weights.append(a)
        vectors.append(sum(weight * each for weight, each in zip(a, h, strict=True)))
    above = encoder.sentences(torch.stack(vectors)[None], torch.ones(1, len(vectors), dtype=torch.bool))
    return states, weights, above.states[0], above.summary[0]


def test_the_encoder_equals_a_loop_over_sentences():
    encoder = make_encoder()
    documents = [ids_of(sizes) for sizes in DOCUMENTS]
    src, mask = batch_of(documents)
    with torch.no_grad():
        encoded = encoder(src, mask)
    for row, sentences in enumerate(documents):
        states, weights, above, summary = reference(encoder, sentences)
        size, number = int(mask[row].sum()), len(sentences)
        torch.testing.assert_close(encoded.states[row, :size], torch.cat(states))
        assert not encoded.states[row, size:].any()
        torch.testing.assert_close(encoded.document.states[row, :number], above)
        assert encoded.document.mask[row].tolist() == [True] * number + [False] * (
            encoded.document.mask.size(1) - number
        )
        torch.testing.assert_close(encoded.summary[row], summary)
        for each, a in enumerate(weights):
            torch.testing.assert_close(
                encoded.document.pooling[row, each, : len(a)], torch.tensor(a).double()
            )


def attended(attention, encoder, documents):
    torch.manual_seed(2)
    src, mask = batch_of(documents)
    encoded = encoder(src, mask)
    query = torch.randn(len(src), 3, SIZE, dtype=torch.double)
    positions = torch.arange(3).expand(len(src), 3)
    found = attention(query, attention.project(encoded), encoded.states, mask, positions=positions, past=None)
    return query, found


def scores_of(module: AdditiveAttention, query, states):
    return [
        float(
            module.v @ torch.tanh(module.query_projection.weight @ query + module.key_projection.weight @ h)
        )
        for h in states
    ]


def softmax(scores):
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


@pytest.mark.parametrize("kind", [HierarchicalAttention, SentenceAttention])
@torch.no_grad()
def test_a_word_weighs_its_sentence_times_its_share_of_it(kind):
    content = partial(AdditiveAttention, size=4, temperature=1.0, normalizer=masked_softmax)
    attention = kind(query_size=SIZE, key_size=SIZE, content=content).double()
    encoder = make_encoder()
    documents = [ids_of(sizes) for sizes in DOCUMENTS]
    queries, found = attended(attention, encoder, documents)
    for row, sentences in enumerate(documents):
        states, pooling, above, _ = reference(encoder, sentences)
        for t in range(3):
            query = queries[row, t]
            b = softmax(scores_of(attention.of_sentences, query, above))
            if kind is HierarchicalAttention:
                within = [softmax(scores_of(attention.of_words, query, each)) for each in states]
                context = sum(
                    b_i * a * h
                    for b_i, own, hs in zip(b, within, states, strict=True)
                    for a, h in zip(own, hs, strict=True)
                )
            else:
                within = pooling
                context = sum(b_i * h for b_i, h in zip(b, above, strict=True))
            expected = [b_i * a for b_i, own in zip(b, within, strict=True) for a in own]
            assert found.weights[row, t, : len(expected)].tolist() == pytest.approx(expected)
            assert not found.weights[row, t, len(expected) :].any()
            torch.testing.assert_close(found.context[row, t], context)
    torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(len(documents), 3).double())


def test_padding_changes_nothing_and_the_end_of_the_text_belongs_to_the_last_sentence():
    encoder = make_encoder()
    src = torch.tensor([[7, SEP, 8, 9, SEP, EOS]])
    padded = torch.nn.functional.pad(src, (0, 3), value=PAD)
    with torch.no_grad():
        whole, wide = encoder(src, src != PAD), encoder(padded, padded != PAD)
    assert whole.document.mask.tolist() == [[True, True]]
    torch.testing.assert_close(whole.states, wide.states[:, :6])
    torch.testing.assert_close(whole.document.states, wide.document.states)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"set data\.tokenizer\.documents=true"):
        make_encoder(separator_id=None)
    with pytest.raises(UserError, match="set encoder=hierarchical"):
        build("attention=sentences", "encoder=recurrent")
    for others in (["decoder=pooling"], ["model=transformer"]):
        with pytest.raises(UserError, match="nothing reads the sentences of encoder=hierarchical"):
            build("encoder=hierarchical", *others)
    with pytest.raises(UserError, match="does not remember earlier steps"):
        build("decoder=pooling", "attention=coverage")
    with pytest.raises(UserError, match="does not remember earlier steps"):
        build("decoder=pooling", "attention=none")


VOCABULARY = vocabulary(separator_id=SEP, pad_id=PAD, bos_id=BOS, eos_id=EOS)


def build(*overrides: str):
    return build_translator(compose("train", "model.size=8", *overrides).model, VOCABULARY).double().eval()


@pytest.mark.parametrize("words", ["recurrent", "transformer"])
@pytest.mark.parametrize("attention", ["luong_general", "hierarchical", "none"])
def test_a_gradient_reaches_every_parameter_in_mixed_precision(attention, words):
    """A dead one would never train, and DistributedDataParallel refuses it."""
    model = build(f"attention={attention}", "encoder=hierarchical", f"encoder@encoder.words={words}").float()
    src, mask = batch_of([ids_of(sizes) for sizes in DOCUMENTS])
    with torch.autocast("cpu", torch.bfloat16):
        model(model.encode(src, mask), src).logits.square().sum().backward()
    assert [name for name, each in model.named_parameters() if each.grad is None] == []


def test_either_level_may_limit_the_length():
    learned = ("encoder=hierarchical", "positions=learned", "attention=hierarchical")
    for level in ("words", "sentences"):
        model = build(f"encoder@encoder.{level}=transformer", *learned, "positions.max_length=9")
        assert model.max_length == 9


@torch.no_grad()
def test_the_first_question_is_the_same_for_all_texts_and_a_label_of_one_piece_is_a_linear_map_of_the_pooled_states():
    model = build("decoder=pooling", "attention=luong_dot")
    src, mask = batch_of([[[5, 6, 7, EOS]], [[9, EOS]]])
    encoded = model.encoder(src, mask)
    logits, weights = model(model.encode(src, mask), torch.full((2, 1), BOS), need_weights=True)
    begin = model.decoder.embedding.weight[BOS]
    question = model.decoder.query.weight @ begin
    for row, size in enumerate((4, 2)):
        a = softmax([float(question @ h) for h in encoded.states[row, :size]])
        assert weights[row, 0, :size].tolist() == pytest.approx(a)
        pooled = sum(weight * h for weight, h in zip(a, encoded.states[row], strict=False))
        read = model.decoder.readout.weight @ torch.cat((pooled, begin)) + model.decoder.readout.bias
        torch.testing.assert_close(logits[row, 0], model.output.weight @ read + model.output.bias)


# ------------------------------------------------------------------------------------------ text, scores, pictures


def test_a_separator_is_one_piece_wherever_it_stands():
    lines = ["the dog sleeps . ¶ a cat eats .", "who sees ?"] * 30
    tokenizer = Tokenizer.train(
        lines, lines, model_type="bpe", joint=True, vocab_size=40, character_coverage=1.0, documents=True
    )
    for text, number in (("the dog ¶ a cat", 1), ("¶ a", 1), ("a ¶ ¶ b ¶", 3), ("a", 0)):
        [ids] = tokenizer.encode_source([text])
        assert ids.count(tokenizer.separator_id) == number
    plain = Tokenizer.train(
        lines[1:2], lines[1:2], model_type="bpe", joint=True, vocab_size=14, character_coverage=1.0
    )
    assert plain.separator_id is None


def test_a_list_of_sentences_is_a_document(tmp_path):
    for split in ("train", "val", "test"):
        row = {"text": ["one .", "two ."], "label": "good"}
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    found = read_files(tmp_path, src_lang="text", tgt_lang="label", cache_dir=tmp_path / "cache")
    assert found["train"][0] == {"src": "one . ¶ two .", "tgt": "good"}
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": ["one", 2], "label": "good"}) + "\n", "utf-8")
    with pytest.raises(UserError, match=r'train.jsonl, line 1: "text" is 2, not text'):
        read_files(tmp_path, src_lang="text", tgt_lang="label", cache_dir=tmp_path / "cache")


def test_a_built_in_document_has_one_denial_that_the_label_tells_the_tense_of():
    splits = grammar.documents(
        num_train=20, num_val=5, num_test=20, min_sentences=3, max_sentences=6, most_important=1, seed=1
    )
    used = {
        name: {each.en for document in split for each in document.sentences} for name, split in splits.items()
    }
    assert not used["train"] & used["test"]
    for document in splits["test"]:
        assert 3 <= len(document.sentences) <= 6
        [important] = document.important
        kinds = [each.kind for each in document.sentences]
        assert kinds[important] == f"negative {document.label}"
        assert [each for each in kinds if each.startswith("negative ")] == [kinds[important]]
    with pytest.raises(UserError, match="must be at least 2"):
        grammar.documents(
            num_train=1, num_val=1, num_test=1, min_sentences=1, max_sentences=6, most_important=2, seed=1
        )


def test_links_of_a_document_lie_in_the_sentences_that_matter(tmp_path):
    splits = read_documents(
        src_lang="vi", tgt_lang="summary", cache_dir=tmp_path, num_train=2, num_val=2, num_test=8,
        min_sentences=3, max_sentences=6, seed=1,
    )  # fmt: skip
    for row in splits["test"]:
        words, numbers = row["src"].split(), alignment.sentences_of(row["src"].split())
        sure, possible = alignment.parse_talp(row["alignment"])
        assert not sure
        assert {target for _, target in possible} == set(range(len(row["tgt"].split())))
        assert all(words[source] != "¶" for source, _ in possible)
        assert 1 <= len({numbers[source] for source, _ in possible}) <= 2


def test_importance_by_hand():
    words = ["a", "b", "¶", "c", "¶", "d"]
    assert alignment.sentences_of(words) == [0, 0, 0, 1, 1, 2]
    weights = np.array([[0.1, 0.1, 0.0, 0.5, 0.0, 0.3], [0.1, 0.1, 0.2, 0.1, 0.0, 0.5]])
    np.testing.assert_allclose(alignment.sentence_weights(weights, words), [[0.2, 0.5, 0.3], [0.4, 0.1, 0.5]])
    golds = [{(3, 0)}, {(5, 0), (0, 1)}, set()]  # sentence 1; sentences 0 and 2; none
    found = alignment.score_importance([weights] * 3, [words] * 3, golds)
    # Over both words the sentences weigh .3, .3, .4.
    assert found == pytest.approx(((0 + 0.5 + 0.5) / 2, (0.3 + 0.7) / 2))
    assert alignment.score_importance([weights], [words], [set()]) is None


def test_a_document_whose_words_have_no_weight_counts_as_nothing_found():
    """As of sparse attention that is all on the end of sentence; means over the others must not become NaN."""
    words, gold = ["a", "¶", "b", "¶", "c"], {(0, 0)}
    none, sure = np.zeros((1, 5)), np.array([[1.0, 0, 0, 0, 0]])
    assert alignment.score_importance([none], [words], [gold]) == (0, 0)
    assert alignment.score_importance([none, sure], [words] * 2, [gold] * 2) == (0.5, 0.5)
    assert alignment.score_importance([np.zeros((0, 5))], [words], [gold]) == (0, 0)  # without output
    # Of two sentences that matter one has weight: the other is not found by being first of the rest
    assert alignment.score_importance([sure], [words], [{(0, 0), (2, 0)}]) == (0.5, 1)


def test_words_that_weigh_by_hand():
    found = alignment.weighed_words(
        [[[0.9, 0.1]], [[0.5, 0.5]], [[0.7, 0.3]], [[1.0]]],
        [["not", "a"], ["not", "b"], ["not", "a"], ["x"]],
        ["no", "no", "no", "yes"],
    )
    assert found == {"no": [("not", pytest.approx(0.7))], "yes": []}
    twice, without_output = [[0.9, 0.1, 0.2]], np.empty((0, 1))
    words = [["not", "a", "a"], ["not"], ["not"]]
    found = alignment.weighed_words([twice, without_output, without_output], words, ["no"] * 3)
    assert found == {"no": []}  # each stands in one text that has an output


def test_macro_f1_by_hand_and_its_labels():
    references = ["a", "a", "a", "b", "b", "c c"]
    hypotheses = ["a", "b", "a", "b", "nonsense", "c  c"]
    labels, table = metrics.confusion(hypotheses, references)
    assert labels == ["a", "b", "c c"]
    assert table.tolist() == [[2, 1, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    found = metrics.score_with({"f1": metrics.MacroF1()}, hypotheses, references, num_bootstrap=20)["f1"]
    # 2 TP / (2 TP + FP + FN): a 4 / 5, b 2 / 4, c 1
    assert found["classes"] == pytest.approx({"a": 80, "b": 50, "c c": 100})
    assert found["score"] == pytest.approx(230 / 3)
    assert found["ci"] > 0
    shares = plotting.confusion_heatmap(labels, table).axes[0].images[0].get_array()
    np.testing.assert_allclose(shares, [[2 / 3, 1 / 3, 0, 0], [0, 0.5, 0, 0.5], [0, 0, 1, 0]])


def test_labels_that_are_right_have_no_spread_and_may_have_no_case():
    references = ["Yes"] * 19 + ["No"]  # a resample may have no No
    for name in ("ExactMatch", "MacroF1"):
        scorers = {"cased": getattr(metrics, name)(), "lower": getattr(metrics, name)(lowercase=True)}
        found = metrics.score_with(scorers, references, references, num_bootstrap=50)
        assert {(each["score"], each["ci"]) for each in found.values()} == {(100, 0)}
        lower = [each.lower() for each in references]
        found = metrics.score_with(scorers, lower, references, num_bootstrap=0)
        assert [each["score"] for each in found.values()] == [0, 100]
        assert "case:lc" in found["lower"]["signature"]
    labels, table = metrics.confusion(["yes"], ["Yes"], lowercase=True)
    assert (labels, table.tolist()) == (["yes"], [[1, 0]])


WORDS = ["a", "bird", "sings", ".", "¶", "nobody", "<b>hears</b>", "it", "."]


def test_a_document_is_drawn_sentence_by_sentence():
    weights = np.full((2, len(WORDS)), 1 / len(WORDS))
    figure = plotting.document(weights, WORDS, ["no", "."], title="line 1")
    drawn = [each.get_text() for each in figure.texts]
    assert drawn[0] == "line 1 · no ."
    assert drawn[1:3] == ["56", "44"]  # a separator counts with the sentence that it ends
    assert drawn[3:] == [word for word in WORDS if word != "¶"]
    assert plotting.picture(plotting.Sentence(weights, WORDS, ["no", "."])).texts[1].get_text() == "56"


def test_a_page_groups_the_words_of_a_document():
    weights = np.full((1, len(WORDS)), 1 / len(WORDS))
    page = plotting.alignment_page([plotting.Sentence(weights, WORDS, ["no"])], title="documents")
    assert '"parts": [5, 4]' in page
    assert "\\u003cb>hears\\u003c/b>" in page
    assert '"parts"' not in plotting.alignment_page(
        [plotting.Sentence(weights[:, :4], WORDS[:4], ["no"])], title="a sentence"
    )


@pytest.fixture
def of_documents(monkeypatch) -> Run:
    """A run that reads documents of at most 60 pieces."""
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES_OF_A_DOCUMENT", 60)
    lines = ["the dog sleeps . ¶ a cat eats .", "who sees ?"] * 30
    tokenizer = Tokenizer.train(
        lines, lines, model_type="bpe", joint=True, vocab_size=40, character_coverage=1.0, documents=True
    )
    model = build_translator(compose("train", "model.size=8", "attention=sentences").model, tokenizer).eval()
    return Run(None, None, tokenizer, model)


def num_kept(caplog) -> int:
    """The number of sentences that are not left out of a document of 50, by the warning."""
    [said] = [each for each in caplog.messages if "to 50 are left out" in each]
    pattern = r"line \d+: sentences (\d+) to 50 are left out, a document has at most 60 pieces"
    return int(re.fullmatch(pattern, said)[1]) - 1


@pytest.mark.parametrize("sentence", ["a", "a cat", "who sees ?", "the dog sleeps . ", "x"])
def test_of_a_document_that_is_too_long_all_sentences_are_kept_that_fit(of_documents, caplog, sentence):
    document = [sentence] * 50
    beginnings = [" ¶ ".join(document[:number]) for number in range(1, 51)]
    fitting = [ids for ids in of_documents.tokenizer.encode_source(beginnings) if len(ids) <= 60]
    of_documents.translate([" ¶ ".join(document)], DecodingSettings(beam_size=1))
    assert num_kept(caplog) == len(fitting)


def test_a_document_that_is_too_long_loses_whole_sentences_which_are_named(of_documents, caplog):
    endless = " ".join(["cat"] * 200)
    given = ["", "¶", "a cat ¶ ¶ who ?", " ¶ ".join(["a cat eats ."] * 50), endless]
    found = of_documents.translate(given, DecodingSettings(beam_size=1), first_line=7)
    assert [each.source for each in found] == given
    last = "line 11: all but the beginning of sentence 1 is left out, a document has at most 60 pieces"
    assert last in caplog.messages
    kept = num_kept(caplog)
    assert 1 < kept < 20
    weights = found[3].weights
    assert weights.shape[1] == len(given[3].split())
    if weights.size:
        assert weights[:, : 5 * kept - 1].any()
    assert not weights[:, 5 * kept :].any()
