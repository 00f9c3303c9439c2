"""When, how and how often."""

from nmt.data.grammar.lexicon.entries import rows

# When: links are by number, as in the grammar's rules. English | Vietnamese
TIMES = {
    "past": tuple(
        rows("""
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
        rows("""
tomorrow/1 | ngày/1 mai/1
next/1 week/2 | tuần/2 sau/1
next/1 month/2 | tháng/2 sau/1
next/1 year/2 | năm/2 sau/1
tonight/1 | tối/1 nay/1
""")
    ),
    "present": tuple(
        rows("""
every/1 day/2 | mỗi/1 ngày/2
every/1 morning/2 | mỗi/1 buổi/2 sáng/2
every/1 evening/2 | mỗi/1 buổi/2 tối/2
every/1 week/2 | mỗi/1 tuần/2
""")
    ),
    "progressive": tuple(rows("now/1 | bây/1 giờ/1")),
}

# How: always after the verb and its object.
MANNERS = dict(
    rows("""
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
    for en, vi in rows("""
always | luôn luôn
often | thường
sometimes | đôi khi
rarely | hiếm khi
never | không bao giờ
still | vẫn
also | cũng
""")
)
