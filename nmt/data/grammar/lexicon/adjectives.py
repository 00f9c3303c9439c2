# ruff: noqa: E501 (tables)
"""Adjectives, each with its senses."""

from nmt.data.grammar.lexicon.entries import adjectives, rows

# adjective comparative superlative | sense: what it describes; …
ADJECTIVES = adjectives("""
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
    for en, vi in rows("""
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
