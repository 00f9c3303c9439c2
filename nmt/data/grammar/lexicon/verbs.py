# ruff: noqa: E501 (tables)
"""Verbs, each with what can act, its senses and what can go with it."""

from nmt.data.grammar.lexicon.entries import verbs

# base third past participle ing (particle) | subjects | sense: objects; … | flags
TRANSITIVES = verbs("""
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

INTRANSITIVES = verbs("""
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
MOTIONS = verbs("""
go goes went gone going | person | đi |
walk walks walked walked walking | person | đi bộ |
run runs ran run running | person animal | chạy |
move moves moved moved moving | person | chuyển |
""")

# Handing something to someone: English `to` is `cho`.
GIVINGS = verbs("""
give gives gave given giving | person | đưa: thing book newspaper dictionary letter report picture jewel flower fruit |
send sends sent sent sending | person | gửi: book newspaper letter report poem picture gift flower |
sell sells sold sold selling | person | bán: thing furniture picture car bike fruit house animal garment |
bring brings brought brought bringing | person | mang: thing picture fruit flower snack book newspaper dictionary letter |
""")

LEARN = verbs("learn learns learned learned learning | person | học | place quickly patiently")[0]
TEACH = verbs("teach teaches taught taught teaching | person | dạy | place")[0]
LIVE = verbs("live lives lived lived living | person | sống | state")[0]

# Saying and thinking: base third past participle ing; English `that` is `rằng`.
SAYINGS = verbs("""
say says said said saying | person | nói |
think thinks thought thought thinking | person | nghĩ | state
know knows knew known knowing | person | biết | state
hope hopes hoped hoped hoping | person | hy vọng | state
believe believes believed believed believing | person | tin | state
""")

SEE = next(verb for verb in TRANSITIVES if verb.base == "see")
SLEEP = next(verb for verb in INTRANSITIVES if verb.base == "sleep")
