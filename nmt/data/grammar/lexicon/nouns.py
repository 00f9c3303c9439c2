"""Nouns, pronouns, names and numbers."""

from nmt.data.grammar.lexicon.entries import Mass, Noun, Pronoun, nouns, rows

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
NOUNS = nouns("""
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
    for en, vi in rows("""
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
    for en, vi, kind, measure in rows("""
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
    for en, vi in rows("Hanoi | Hà Nội\nSaigon | Sài Gòn\nHue | Huế\nDalat | Đà Lạt\nHaiphong | Hải Phòng")
)
SUBJECTS = tuple(
    (en, vi)
    for en, vi in rows("""
Vietnamese | tiếng Việt
English | tiếng Anh
French | tiếng Pháp
history | lịch sử
mathematics | toán học
music | âm nhạc
""")
)

# Professions, for `she is a doctor`.
PROFESSIONS = tuple(noun for noun in NOUNS[:13])

NUMBERS = tuple(
    (en, vi)
    for en, vi in rows("""
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
