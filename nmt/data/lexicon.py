"""The words of the English–Vietnamese grammar: tables that a speaker of both languages can proofread.

Every English word has one translation in its context. A noun brings its classifier (`cái bàn`, `con chó`); a verb
or an adjective may have several senses, chosen by the noun it goes with: an old teacher is `già`, an old book
`cũ`; one wears (`mặc`) a shirt but wears (`đội`) a hat.
"""

import unicodedata
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Noun:
    """A count noun. classifier: empty where the noun is counted without one (`hai bác sĩ`, two doctors)."""

    singular: str
    plural: str
    classifier: str
    vi: str
    kind: str

    @property
    def plural_marker(self) -> str:
        """`các` before a noun without classifier (các bác sĩ), `những` before a classifier (những con chó)."""
        return "những" if self.classifier else "các"


@dataclass(frozen=True)
class Mass:
    """A noun that is not counted but measured: tea, `trà`; two cups of tea, `hai tách trà`."""

    en: str
    vi: str
    kind: str
    measure: tuple[str, str, str] | None  # cup, cups, tách


@dataclass(frozen=True)
class Adjective:
    """senses: what noun (kind, or the noun itself) -> the Vietnamese for it, or `-` where they do not go together."""

    en: str
    comparative: str  # empty where English needs `more`
    superlative: str
    senses: dict[str, str] = field(hash=False)

    def vi(self, noun: Noun | Mass) -> str | None:
        """The Vietnamese of this adjective with `noun`, or None where they do not go together."""
        return _sense(self.senses, noun)


@dataclass(frozen=True)
class Verb:
    """senses: the kind of object (or the noun itself) -> the Vietnamese, where … stands for the object.

    An intransitive verb has the one key "". flags: `state` (no progressive), `place` (goes with a place), `passive`,
    and the adverbs of manner that it goes with.
    """

    base: str
    third: str
    past: str
    participle: str
    ing: str
    particle: str  # the `for` of `wait for`: part of the verb, with no word of its own in Vietnamese
    subjects: tuple[str, ...]
    senses: dict[str, str] = field(hash=False)
    flags: frozenset[str]

    @property
    def one_sense(self) -> bool:
        """Whether it translates alike before every object, so that the object may be a pronoun."""
        return len(set(self.senses.values())) == 1

    def sense(self, noun: Noun | Mass) -> str | None:
        """The Vietnamese of this verb with the object `noun`, or None where they do not go together."""
        return _sense(self.senses, noun)


@dataclass(frozen=True)
class Pronoun:
    """agr: how the verb agrees, `1` (I am), `3` (she is) or `p` (they are)."""

    subject: str
    object: str
    possessive: str
    vi: str
    agr: str
    kind: str


def _sense(senses: dict[str, str], noun: Noun | Mass) -> str | None:
    """The sense for the noun itself, else for its kind; `-` says that there is none."""
    name = noun.singular if isinstance(noun, Noun) else noun.en
    sense = senses.get(name, senses.get(noun.kind))
    return None if sense == "-" else sense


def _rows(table: str) -> list[list[str]]:
    """The cells of a table: a row a line, cells between bars."""
    lines = unicodedata.normalize("NFC", table).strip().splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def _nouns(table: str) -> tuple[Noun, ...]:
    found = []
    for kind, forms, classifier, vi in _rows(table):
        singular, plural = forms.split()
        found.append(Noun(singular, plural, classifier, vi, kind))
    return tuple(found)


def _senses(cell: str) -> dict[str, str]:
    """`già: person animal; cũ: text` -> {"person": "già", …}."""
    found = {}
    for sense in cell.split(";"):
        vi, _, keys = sense.partition(":")
        for key in keys.split() or [""]:
            found[key] = vi.strip()
    return found


def _adjectives(table: str) -> tuple[Adjective, ...]:
    found = []
    for forms, senses in _rows(table):
        en, comparative, superlative = [*forms.split(), "", ""][:3]
        found.append(Adjective(en, comparative, superlative, _senses(senses)))
    return tuple(found)


def _verbs(table: str) -> tuple[Verb, ...]:
    found = []
    for forms, subjects, senses, flags in _rows(table):
        base, third, past, participle, ing, particle = [*forms.split(), ""][:6]
        found.append(
            Verb(
                base,
                third,
                past,
                participle,
                ing,
                particle,
                tuple(subjects.split()),
                _senses(senses),
                frozenset(flags.split()),
            )
        )
    return tuple(found)


PRONOUNS = (
    Pronoun("I", "me", "my", "tôi", "1", "person"),
    Pronoun("you", "you", "your", "bạn", "p", "person"),
    Pronoun("he", "him", "his", "anh ấy", "3", "person"),
    Pronoun("she", "her", "her", "cô ấy", "3", "person"),
    Pronoun("we", "us", "our", "chúng tôi", "p", "person"),
    Pronoun("they", "them", "their", "họ", "p", "person"),
    Pronoun("it", "it", "its", "nó", "3", "animal"),
)

NAMES = ("Lan", "Nam", "Mai", "Minh", "Hoa", "Linh", "Phong")

# kind | singular plural | classifier | noun
NOUNS = _nouns("""
person | teacher teachers | | giáo viên
person | student students | | học sinh
person | doctor doctors | | bác sĩ
person | nurse nurses | | y tá
person | farmer farmers | | nông dân
person | worker workers | | công nhân
person | engineer engineers | | kỹ sư
person | writer writers | | nhà văn
person | singer singers | | ca sĩ
person | artist artists | | họa sĩ
person | driver drivers | | tài xế
person | journalist journalists | | nhà báo
person | cook cooks | | đầu bếp
person | boy boys | | cậu bé
person | girl girls | | cô bé
person | man men | người | đàn ông
person | woman women | người | phụ nữ
person | child children | đứa | trẻ
person | soldier soldiers | người | lính
person | neighbour neighbours | người | hàng xóm
person | friend friends | người | bạn
person | guest guests | vị | khách
animal | dog dogs | con | chó
animal | cat cats | con | mèo
animal | horse horses | con | ngựa
animal | cow cows | con | bò
animal | buffalo buffaloes | con | trâu
animal | pig pigs | con | lợn
animal | chicken chickens | con | gà
animal | duck ducks | con | vịt
animal | monkey monkeys | con | khỉ
animal | elephant elephants | con | voi
animal | tiger tigers | con | hổ
bird | bird birds | con | chim
bird | parrot parrots | con | vẹt
text | book books | quyển | sách
text | newspaper newspapers | tờ | báo
text | letter letters | bức | thư
text | story stories | câu | chuyện
text | poem poems | bài | thơ
text | report reports | bản | báo cáo
text | dictionary dictionaries | quyển | từ điển
furniture | table tables | cái | bàn
furniture | chair chairs | cái | ghế
furniture | bed beds | cái | giường
thing | bag bags | cái | túi
thing | lamp lamps | cái | đèn
thing | bowl bowls | cái | bát
thing | phone phones | chiếc | điện thoại
thing | computer computers | chiếc | máy tính
thing | key keys | chiếc | chìa khóa
thing | umbrella umbrellas | chiếc | ô
thing | clock clocks | chiếc | đồng hồ
thing | box boxes | chiếc | hộp
thing | pen pens | cây | bút
thing | knife knives | con | dao
thing | gift gifts | món | quà
thing | ball balls | quả | bóng
picture | picture pictures | bức | tranh
picture | photograph photographs | bức | ảnh
picture | map maps | tấm | bản đồ
opening | door doors | cánh | cửa
opening | gate gates | cánh | cổng
garment | shirt shirts | chiếc | áo sơ mi
garment | dress dresses | chiếc | váy
garment | coat coats | chiếc | áo khoác
hat | hat hats | chiếc | mũ
jewel | ring rings | chiếc | nhẫn
jewel | necklace necklaces | chiếc | vòng cổ
scarf | scarf scarves | chiếc | khăn
car | car cars | chiếc | ô tô
car | truck trucks | chiếc | xe tải
car | bus buses | chiếc | xe buýt
bike | bicycle bicycles | chiếc | xe đạp
bike | motorbike motorbikes | chiếc | xe máy
fruit | apple apples | quả | táo
fruit | orange oranges | quả | cam
fruit | banana bananas | quả | chuối
fruit | mango mangoes | quả | xoài
snack | egg eggs | quả | trứng
snack | cake cakes | chiếc | bánh
flower | flower flowers | bông | hoa
flower | rose roses | bông | hoa hồng
tree | tree trees | cái | cây
show | film films | bộ | phim
show | match matches | trận | đấu
song | song songs | bài | hát
task | question questions | câu | hỏi
task | lesson lessons | bài | học
task | problem problems | | vấn đề
house | house houses | ngôi | nhà
house | room rooms | căn | phòng
house | garden gardens | khu | vườn
inside | library libraries | | thư viện
inside | hospital hospitals | | bệnh viện
inside | restaurant restaurants | | nhà hàng
inside | park parks | | công viên
inside | museum museums | | bảo tàng
inside | hotel hotels | | khách sạn
inside | office offices | | văn phòng
site | market markets | | chợ
site | station stations | | nhà ga
site | school schools | | trường học
town | city cities | | thành phố
town | village villages | ngôi | làng
nature | river rivers | con | sông
nature | road roads | con | đường
nature | bridge bridges | cây | cầu
nature | mountain mountains | ngọn | núi
""")

# One's family: possessed without `của` (my mother, mẹ tôi). singular | noun
KIN = tuple(
    Noun(en, en + "s", "", vi, "person")
    for en, vi in _rows("""
mother | mẹ
father | bố
grandmother | bà
grandfather | ông
son | con trai
daughter | con gái
""")
)

# English | Vietnamese | kind | measure
MASSES = tuple(
    Mass(en, vi, kind, (measure.split()[0], measure.split()[1], measure.split()[2]) if measure else None)
    for en, vi, kind, measure in _rows("""
tea | trà | drink | cup cups tách
coffee | cà phê | drink | cup cups tách
water | nước | water | glass glasses cốc
milk | sữa | drink | glass glasses cốc
beer | bia | drink | bottle bottles chai
rice | cơm | meal | bowl bowls bát
soup | súp | meal | bowl bowls bát
meat | thịt | meal |
bread | bánh mì | bread |
""")
)

# Names of cities, and of what one learns: English | Vietnamese
CITIES = tuple(
    (en, vi)
    for en, vi in _rows("Hanoi | Hà Nội\nSaigon | Sài Gòn\nHue | Huế\nDalat | Đà Lạt\nHaiphong | Hải Phòng")
)
SUBJECTS = tuple(
    (en, vi)
    for en, vi in _rows("""
Vietnamese | tiếng Việt
English | tiếng Anh
French | tiếng Pháp
history | lịch sử
mathematics | toán học
music | âm nhạc
""")
)

# adjective comparative superlative | sense: what it describes; …
ADJECTIVES = _adjectives("""
old older oldest | già: person animal bird; cũ: text furniture thing picture opening garment hat scarf car bike house inside site show song; cổ: town; -: boy girl child student
young younger youngest | trẻ: teacher doctor nurse farmer worker engineer writer singer artist driver journalist cook man woman soldier neighbour guest; non: tree
new newer newest | mới: text furniture thing picture opening garment hat jewel scarf car bike house inside site show song task road bridge
big bigger biggest | lớn: animal bird furniture thing picture opening hat car fruit snack flower tree house inside site town nature task
small smaller smallest | nhỏ: animal bird furniture thing picture opening garment hat jewel scarf car bike fruit snack flower tree house inside site town nature
beautiful | đẹp: picture garment hat jewel scarf car bike flower house inside town nature bird poem song horse; xinh đẹp: woman girl singer
tall taller tallest | cao: person tree mountain
short shorter shortest | thấp: man woman boy girl soldier worker; ngắn: text song show lesson road bridge
long longer longest | dài: text show song lesson river road bridge dress scarf
good | giỏi: person; tốt: man woman boy girl child neighbour friend guest car bike computer phone lamp key pen; hay: text show song question lesson; ngon: fruit snack meal drink bread
expensive | đắt: furniture garment hat jewel scarf car bike phone computer picture clock hotel restaurant house
cheap cheaper cheapest | rẻ: furniture garment hat scarf car bike phone computer clock hotel restaurant
heavy heavier heaviest | nặng: furniture bag box computer clock
interesting | thú vị: text show song task
difficult | khó: task poem
easy easier easiest | dễ: question lesson
quiet quieter quietest | yên tĩnh: house inside town
noisy noisier noisiest | ồn ào: town market station restaurant school
famous | nổi tiếng: doctor engineer writer singer artist journalist cook poem story song picture inside town film
kind kinder kindest | tốt bụng: person
clever cleverer cleverest | thông minh: person dog cat monkey horse parrot
strong stronger strongest | khỏe: man soldier worker farmer animal
rich richer richest | giàu: man woman farmer engineer doctor singer neighbour
poor poorer poorest | nghèo: man woman farmer worker writer student neighbour artist
lazy lazier laziest | lười biếng: student worker boy cat dog
red | đỏ: garment hat scarf car bike flower bag box ball umbrella pen apple
black | đen: garment hat scarf car bike bag box umbrella pen dog cat horse phone
white | trắng: garment hat scarf car bike flower umbrella dog cat horse duck bowl bag
yellow | vàng: garment hat scarf car bike flower bag ball umbrella
tired | mệt mỏi: person animal
sad sadder saddest | buồn: person
hungry hungrier hungriest | đói: animal child man soldier
hot hotter hottest | nóng: meal drink water
cold colder coldest | lạnh: drink water
sweet sweeter sweetest | ngọt: fruit
fresh fresher freshest | tươi: fruit flower
""")
COLOURS = frozenset(("red", "black", "white", "yellow"))
SIZES = frozenset(("old", "new", "big", "small"))  # what may stand before a colour

# How a person feels: adjective | Vietnamese
FEELINGS = tuple(
    (en, vi)
    for en, vi in _rows("""
tired | mệt mỏi
sad | buồn
happy | vui
hungry | đói
thirsty | khát
busy | bận
ill | ốm
angry | tức giận
worried | lo lắng
""")
)

# base third past participle ing (particle) | subjects | sense: objects; … | flags
TRANSITIVES = _verbs("""
read reads read read reading | person | đọc: text | carefully slowly quickly quietly place
write writes wrote written writing | person | viết: text song | carefully slowly quickly place passive
buy buys bought bought buying | person | mua: book newspaper dictionary furniture thing picture garment hat jewel scarf car bike fruit snack flower house bread animal | place
sell sells sold sold selling | person | bán: book newspaper dictionary furniture thing picture garment hat jewel scarf car bike fruit snack flower house bread animal |
like likes liked liked liking | person | thích: text picture garment hat car bike flower show song inside town animal bird fruit meal drink | state
love loves loved loved loving | person | yêu: person town | state
know knows knew known knowing | person | quen: person; biết: song poem story | state
need needs needed needed needing | person | cần: thing furniture car bike dictionary map water | state
remember remembers remembered remembered remembering | person | nhớ: person song poem story lesson | state
see sees saw seen seeing | person animal bird | nhìn thấy: person animal bird thing flower tree car bike | state place
help helps helped helped helping | person | giúp: person | place
meet meets met met meeting | person | gặp: person | place
visit visits visited visited visiting | person | thăm: person inside town school |
thank thanks thanked thanked thanking | person | cảm ơn: person |
invite invites invited invited inviting | person | mời: person |
teach teaches taught taught teaching | person | dạy: student child boy girl worker soldier | patiently place
wait waits waited waited waiting for | person dog | đợi: person bus | patiently quietly place
look looks looked looked looking for | person | tìm: person animal thing book letter newspaper report hat jewel scarf | patiently carefully place
find finds found found finding | person | tìm thấy: thing book letter newspaper report picture animal hat jewel scarf bike | place
lose loses lost lost losing | person | làm mất: thing hat jewel scarf letter book picture bike | place
keep keeps kept kept keeping | person | giữ: letter gift key map photograph ring book |
use uses used used using | person | dùng: thing dictionary map |
eat eats ate eaten eating | person monkey bird | ăn: fruit snack meal bread | quickly slowly quietly place
cook cooks cooked cooked cooking | person | nấu: meal |
drink drinks drank drunk drinking | person | uống: drink water | quickly slowly place
wear wears wore worn wearing | person | mặc: garment; đội: hat; đeo: jewel; quàng: scarf |
ride rides rode ridden riding | person | đi: bike; cưỡi: horse buffalo elephant |
drive drives drove driven driving | person | lái: car | carefully slowly quickly
repair repairs repaired repaired repairing | person | sửa: car bike furniture phone computer clock lamp house bridge opening | carefully slowly quickly passive
clean cleans cleaned cleaned cleaning | person | dọn: house office; lau: furniture lamp computer | carefully slowly quickly
wash washes washed washed washing | person | rửa: fruit bowl knife car bike; giặt: garment scarf | carefully slowly quickly
open opens opened opened opening | person | mở: opening box letter gift bag | carefully slowly quickly
close closes closed closed closing | person | đóng: opening box | carefully slowly quickly
watch watches watched watched watching | person | xem: show | place
listen listens listened listened listening to | person | nghe: song | happily quietly place
sing sings sang sung singing | person | hát: song | place
draw draws drew drawn drawing | person | vẽ: picture flower tree animal bird house | carefully slowly quickly place
build builds built built building | person | xây: house inside school bridge | passive
grow grows grew grown growing | farmer man woman | trồng: flower tree |
feed feeds fed fed feeding | person | cho … ăn: animal bird child | carefully
follow follows followed followed following | person animal | đi theo: person animal |
chase chases chased chased chasing | animal | đuổi: animal bird child boy |
bite bites bit bitten biting | animal | cắn: person animal |
carry carries carried carried carrying | person | mang: thing picture furniture fruit book newspaper dictionary letter |
answer answers answered answered answering | person | trả lời: question letter | carefully quickly patiently
understand understands understood understood understanding | person | hiểu: text task person | state
forget forgets forgot forgotten forgetting | person | quên: lesson song poem story | state
""")

INTRANSITIVES = _verbs("""
sleep sleeps slept slept sleeping | person animal bird | ngủ | place quietly
run runs ran run running | person animal | chạy | place quickly slowly
walk walks walked walked walking | person | đi bộ | place quickly slowly
swim swims swam swum swimming | person duck elephant buffalo | bơi | quickly slowly
laugh laughs laughed laughed laughing | person | cười | place happily
cry cries cried cried crying | person | khóc | place
work works worked worked working | person | làm việc | place carefully quickly quietly patiently
study studies studied studied studying | person | học | place quietly patiently
dance dances danced danced dancing | person | nhảy múa | place happily
rest rests rested rested resting | person animal | nghỉ ngơi | place
talk talks talked talked talking | person | nói chuyện | place
shout shouts shouted shouted shouting | person | la hét | place
smile smiles smiled smiled smiling | person | mỉm cười | happily quietly
sing sings sang sung singing | bird | hót | place
fly flies flew flown flying | bird | bay |
sit sits sat sat sitting | person animal | ngồi | place
stand stands stood stood standing | person animal | đứng | place
""")

# Going somewhere: English `to` is `đến`.
MOTIONS = _verbs("""
go goes went gone going | person | đi |
walk walks walked walked walking | person | đi bộ |
run runs ran run running | person animal | chạy |
move moves moved moved moving | person | chuyển |
""")

# Handing something to someone: English `to` is `cho`.
GIVINGS = _verbs("""
give gives gave given giving | person | đưa: thing book newspaper dictionary letter report picture jewel flower fruit |
send sends sent sent sending | person | gửi: book newspaper letter report poem picture gift flower |
sell sells sold sold selling | person | bán: thing furniture picture car bike fruit house animal garment |
bring brings brought brought bringing | person | mang: thing picture fruit flower snack book newspaper dictionary letter |
""")

LEARN = _verbs("learn learns learned learned learning | person | học | place quickly patiently")[0]
TEACH = _verbs("teach teaches taught taught teaching | person | dạy | place")[0]
LIVE = _verbs("live lives lived lived living | person | sống | state")[0]

# Saying and thinking: base third past participle ing; English `that` is `rằng`.
SAYINGS = _verbs("""
say says said said saying | person | nói |
think thinks thought thought thinking | person | nghĩ | state
know knows knew known knowing | person | biết | state
hope hopes hoped hoped hoping | person | hy vọng | state
believe believes believed believed believing | person | tin | state
""")

# Professions, for `she is a doctor`.
PROFESSIONS = tuple(noun for noun in NOUNS[:13])

NUMBERS = tuple(
    (en, vi)
    for en, vi in _rows("""
two | hai
three | ba
four | bốn
five | năm
six | sáu
seven | bảy
eight | tám
nine | chín
ten | mười
""")
)

# When: links are by number, as in the grammar's rules. English | Vietnamese
TIMES = {
    "past": tuple(
        _rows("""
yesterday/1 | hôm/1 qua/1
last/1 week/2 | tuần/2 trước/1
last/1 month/2 | tháng/2 trước/1
last/1 year/2 | năm/2 ngoái/1
last/1 night/2 | đêm/2 qua/1
this/1 morning/2 | sáng/2 nay/1
two/1 days/2 ago/3 | hai/1 ngày/2 trước/3
three/1 years/2 ago/3 | ba/1 năm/2 trước/3
""")
    ),
    "future": tuple(
        _rows("""
tomorrow/1 | ngày/1 mai/1
next/1 week/2 | tuần/2 sau/1
next/1 month/2 | tháng/2 sau/1
next/1 year/2 | năm/2 sau/1
tonight/1 | tối/1 nay/1
""")
    ),
    "present": tuple(
        _rows("""
every/1 day/2 | mỗi/1 ngày/2
every/1 morning/2 | mỗi/1 buổi/2 sáng/2
every/1 evening/2 | mỗi/1 buổi/2 tối/2
every/1 week/2 | mỗi/1 tuần/2
""")
    ),
    "progressive": tuple(_rows("now/1 | bây/1 giờ/1")),
}

# How: always after the verb and its object.
MANNERS = dict(
    _rows("""
carefully | một cách cẩn thận
slowly | một cách chậm rãi
quickly | một cách nhanh chóng
happily | một cách vui vẻ
quietly | một cách lặng lẽ
patiently | một cách kiên nhẫn
""")
)

# How often: before the verb.
FREQUENCIES = tuple(
    (en, vi)
    for en, vi in _rows("""
always | luôn luôn
often | thường
sometimes | đôi khi
rarely | hiếm khi
never | không bao giờ
still | vẫn
also | cũng
""")
)

# Clauses in a row: English | Vietnamese, A the first clause and B the second.
CONJUNCTIONS = tuple(
    _rows("""
A and/1 B | A và/1 B
A ,/1 and/2 B | A ,/1 và/2 B
A ,/1 but/2 B | A ,/1 nhưng/2 B
A because/1 B | A vì/1 B
A ,/1 so/2 B | A ,/1 nên/2 B
A when/1 B | A khi/1 B
A before/1 B | A trước/1 khi/1 B
A after/1 B | A sau/1 khi/1 B
A while/1 B | A trong/1 khi/1 B
A although/1 B | A mặc/1 dù/1 B
A if/1 B | A nếu/1 B
""")
)
FRONTED = tuple(
    _rows("""
when/1 A ,/2 B | khi/1 A ,/2 B
if/1 A ,/2 B | nếu/1 A thì/2 B
because/1 A ,/2 B | vì/1 A nên/2 B
although/1 A ,/2 B | mặc/1 dù/1 A ,/2 B
before/1 A ,/2 B | trước/1 khi/1 A ,/2 B
after/1 A ,/2 B | sau/1 khi/1 A ,/2 B
""")
)
