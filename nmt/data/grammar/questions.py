"""Questions and requests."""

import random
from collections.abc import Callable

from nmt.data.grammar import lexicon
from nmt.data.grammar.adverbials import time_phrase
from nmt.data.grammar.derivation import EMPTY, Phrase, rule, unlinked_word, word
from nmt.data.grammar.lexicon import Noun
from nmt.data.grammar.nominals import (
    THIS_OR_THAT,
    NounPhrase,
    article,
    count_noun,
    described_noun,
    noun_of,
    pronoun_subject,
    simple_person,
    single_person,
    with_adjective,
)
from nmt.data.grammar.phrases import action, noun_phrase, subject
from nmt.data.grammar.predicates import ACTIVE, act_of, agree, clause_of, predicate


def question(rng: random.Random, room: int) -> Phrase:
    """A question with its mark. In Vietnamese the question word takes the place of the answer."""
    for _ in range(12):
        ask = rng.choice(_QUESTIONS)
        found = ask(rng, room - 1)
        if found.size <= room:
            return found._replace(kind="yes-no question" if ask in _POLAR else "open question")
    who = pronoun_subject(rng.choice(lexicon.SHORT_PRONOUNS))
    return clause_of(who, "where/1 {be} S ?/2", "S ở/1 đâu/1 ?/2")._replace(kind="open question")


def _question_subject(rng: random.Random, room: int) -> tuple[NounPhrase, int]:
    """A subject without a relative clause, and the room that is left."""
    who = subject(rng, min(room, 9))
    while "mà" in who.phrase.vi:
        who = subject(rng, min(room, 9))
    return who, room - who.phrase.size


def polar_question(rng: random.Random, room: int) -> Phrase:
    """does he read books ?, `anh ấy có đọc sách không ?`; did he …, with a time, `hôm qua anh ấy có … không ?`."""
    who, rest = _question_subject(rng, room)
    if rng.random() < 0.35:
        act = action(rng, who, rest - 3, state=False)
        time = time_phrase(rng, "past")
        assert time is not None
        sides = ("did/1 S C [T] ?/2", "T S có/1 C không/1 ?/2")
        return clause_of(who, *sides, C=act.build("base", ""), T=time)
    act = action(rng, who, rest - 2)
    if rng.random() < 0.3:  # can you swim ?, `bạn có thể bơi không ?`
        return clause_of(who, "can/1 S C ?/2", "S có/1 thể/1 C không/1 ?/2", C=act.build("base", ""))
    return clause_of(who, "{do}/1 S C ?/2", "S có/1 C không/1 ?/2", C=act.build("base", ""))


def yet_question(rng: random.Random, room: int) -> Phrase:
    """has he sold the house yet ?, `anh ấy đã bán ngôi nhà chưa ?`."""
    who, rest = _question_subject(rng, room)
    act = action(rng, who, min(rest, 6), state=False, place=False)
    return clause_of(who, "{have}/1 S C yet/3 ?/2", "S đã/1 C chưa/3 ?/2", C=act.build("participle", ""))


def being_question(rng: random.Random, room: int) -> Phrase:
    """is this house old ?, `ngôi nhà này có cũ không ?`; is she a doctor ?, `cô ấy có phải là một bác sĩ không ?`."""
    choice = rng.random()
    if choice < 0.35:
        who = single_person(rng)
        job = article(count_noun(rng.choice(lexicon.PROFESSIONS)))
        return clause_of(who, "{be}/1 S N ?/2", "S có/1 phải/1 là/1 N không/1 ?/2", N=job)
    if choice < 0.6:
        who = simple_person(rng)
        described = word(*rng.choice(lexicon.FEELINGS))
    else:
        noun, (adjective, vi) = described_noun(rng)
        who = noun_phrase(rng, noun, 6, definite=True, relative=False)
        described = word(adjective.en, vi)
    return clause_of(who, "{be}/1 S A ?/2", "S có/1 A không/1 ?/2", A=described)


def object_question(rng: random.Random, room: int) -> Phrase:
    """what did he buy ?, `anh ấy đã mua cái gì ?`; who does she love ?, `cô ấy yêu ai ?`; which, `nào`."""
    who = simple_person(rng) if rng.random() < 0.6 else _question_subject(rng, room)[0]
    verbs = [verb for verb in lexicon.verbs_for(who.kind, who.name, False) if verb.one_sense]
    if not verbs:
        return adverb_question(rng, room)
    verb = rng.choice(verbs)
    noun, sense = rng.choice(lexicon.objects_of(verb))
    choice = rng.random()
    if isinstance(noun, Noun) and choice < 0.25:  # which book, `quyển sách nào`
        asked = rule("which/1 N", "N nào/1", N=count_noun(noun))
    elif isinstance(noun, Noun) and choice < 0.45:  # how many books, `bao nhiêu quyển sách`
        asked = rule("how/1 many/2 N", "bao/1 nhiêu/2 N", N=count_noun(noun, plural=True))
    elif noun.kind == "person":
        asked = word("who", "ai")
    else:
        animate = all(each.kind in lexicon.ANIMATE for each, _ in lexicon.objects_of(verb))
        asked = word("what", "con gì" if animate else "cái gì")
    do, did, will = unlinked_word(agree("{do}", who.agr)), word("did", "đã"), word("will", "sẽ")
    before, _, after = sense.partition("…")
    before, after = (" ".join(f"{syllable}/1" for syllable in part.split()) for part in (before, after))
    english = f"W D S {verb.base}/1 {verb.particle} ?/2"
    return clause_of(who, english, f"S D {before} W {after} ?/2", W=asked, D=rng.choice((do, did, did, will)))


def subject_question(rng: random.Random, room: int) -> Phrase:
    """who bought this house ?, `ai đã mua ngôi nhà này ?`: the same order in both."""
    who = NounPhrase(word("who", "ai"), "3", "person", "")
    tense = rng.choice(("present", "past", "past", "future", "progressive", "can", "want"))
    act = action(rng, who, room - 3, state=tense not in ACTIVE)
    return clause_of(who, "S V ?/1", "S V ?/1", V=predicate(act, tense, "3"))


def adverb_question(rng: random.Random, room: int) -> Phrase:
    """where does he work ?, `anh ấy làm việc ở đâu ?`; when will …, `khi nào … sẽ … ?`; why, `tại sao`."""
    who, rest = _question_subject(rng, room)
    act = action(rng, who, min(rest - 3, 8), state=False, place=False)
    choice = rng.random()
    if choice < 0.4 and "place" not in act.verb.flags:
        placed = [verb for verb in lexicon.verbs_for(who.kind, who.name, True) if "place" in verb.flags]
        act = act_of(rng.choice(placed or [lexicon.SLEEP]))
    sides = next(sides for share, *sides in _ADVERB_QUESTIONS if choice < share)
    return clause_of(who, *sides, V=act.build("base", ""))


# Upper bound of the random number, English, Vietnamese. `khi nào` comes last in the past, first in the future.
_ADVERB_QUESTIONS = (
    (0.20, "where/1 {do} S V ?/2", "S V ở/1 đâu/1 ?/2"),
    (0.40, "where/1 did/3 S V ?/2", "S đã/3 V ở/1 đâu/1 ?/2"),
    (0.55, "when/1 did/3 S V ?/2", "S đã/3 V khi/1 nào/1 ?/2"),
    (0.70, "when/1 will/3 S V ?/2", "khi/1 nào/1 S sẽ/3 V ?/2"),
    (0.85, "why/1 {do} S V ?/2", "tại/1 sao/1 S V ?/2"),
    (1.00, "why/1 did/3 S V ?/2", "tại/1 sao/1 S đã/3 V ?/2"),
)


def naming_question(rng: random.Random, room: int) -> Phrase:
    """whose book is this ?, `đây là quyển sách của ai ?`; who is that man ?, `người đàn ông đó là ai ?`; where is …"""
    choice = rng.random()
    if choice < 0.35:
        noun = rng.choice(lexicon.OWNED)
        head = count_noun(noun)
        if rng.random() < 0.4:
            head = with_adjective(rng, noun, head)
        near = rng.choice((word("this", "đây"), word("that", "đó")))
        return rule("whose/1 N is/2 D ?/3", "D là/2 N của/1 ai/1 ?/3", N=head, D=near)
    if choice < 0.6:
        noun = noun_of(rng, "person")
        head = count_noun(noun)
        if rng.random() < 0.5:
            head = with_adjective(rng, noun, head)
        return rule("who/1 is/2 D N ?/3", "N D là/2 ai/1 ?/3", D=rng.choice(THIS_OR_THAT), N=head)
    kinds = (lexicon.NOUNS_OF_KIND[kind] for kind in ("person", "site", "inside"))
    noun = rng.choice([*lexicon.OWNED, *(noun for kind in kinds for noun in kind)])
    thing = noun_phrase(rng, noun, 8, definite=True, relative=False)
    return clause_of(thing, "where/1 {be} S ?/2", "S ở/1 đâu/1 ?/2")


def request(rng: random.Random, room: int) -> Phrase:
    """please open the door, `xin hãy mở cánh cửa`; do not open the door, `đừng mở cánh cửa`."""
    act = action(rng, NounPhrase(EMPTY, "p", "person", ""), room - 3, state=False)
    doing = act.build("base", "")
    if rng.random() < 0.55:
        return rule("please/1 C", "xin/1 hãy/1 C", C=doing)._replace(kind="request")
    return rule("do/1 not/1 C", "đừng/1 C", C=doing)._replace(kind="prohibition")


_POLAR = (polar_question, yet_question, being_question)  # answered by yes or no
_QUESTIONS: tuple[Callable[[random.Random, int], Phrase], ...] = (
    *(polar_question, polar_question, yet_question, being_question),
    *(object_question, object_question, subject_question),
    *(adverb_question, adverb_question, naming_question),
)
