"""Text in each character set of the servers, to Unicode exactly as the servers themselves convert it.

Rule: what the server has no character for is refused, never replaced. Text in UTF-8 or ASCII stays the bytes that it
is, only looked at; in most other sets text of ASCII alone is the same bytes too.

A set is a codec of Python's and what the server has otherwise. The lists below were made by asking MariaDB and MySQL
for each code they have. (Seven codes of big5, its full-width slashes among them, are characters here, for which the
servers print a replacement.)
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cache
from typing import Final

from extract.sources.mysql.values.unread import UnreadValueError

Decode = Callable[[bytes], str]

BINARY: Final = 63
"""The collation of columns that hold bytes."""
WIDE: Final = frozenset({"ucs2", "utf16", "utf16le", "utf32", "swe7"})
"""In these, bytes of ASCII are not that text."""

_COLLATIONS: Final = """
armscii8 32 64 1056 1088; ascii 11 65 1035 1089; big5 1 84 1025 1108; binary 63; cp1250 26 34 44 66 99 1050 1090;
cp1251 14 23 50-52 1074-1075; cp1256 57 67 1081 1091; cp1257 29 58-59 1082-1083; cp850 4 80 1028 1104;
cp852 40 81 1064 1105; cp866 36 68 1060 1092; cp932 95-96 1119-1120; dec8 3 69 1027 1093; eucjpms 97-98 1121-1122;
euckr 19 85 1043 1109; gb18030 248-250; gb2312 24 86 1048 1110; gbk 28 87 1052 1111; geostd8 92-93 1116-1117;
greek 25 70 1049 1094; hebrew 16 71 1040 1095; hp8 6 72 1030 1096; keybcs2 37 73 1061 1097; koi8r 7 74 1031 1098;
koi8u 22 75 1046 1099; latin1 5 8 15 31 47-49 94 1032 1071; latin2 2 9 21 27 77 1033 1101; latin5 30 78 1054 1102;
latin7 20 41-42 79 1065 1103; macce 38 43 1062 1067; macroman 39 53 1063 1077; sjis 13 88 1037 1112;
swe7 10 82 1034 1106; tis620 18 89 1042 1113; ujis 12 91 1036 1115; utf16le 56 62 1080 1086;
ucs2 35 90 128-151 159 640-642 1059 1114 1152 1174 2560-2815; utf16 54-55 101-124 672-674 1078-1079 1125 1147 2816-3071;
utf32 60-61 160-183 736-738 1084-1085 1184 1206 3072-3327;
utf8mb3 33 76 83 192-215 223 576-578 1057 1107 1216 1238 2048-2303;
utf8mb4 45-46 224-247 255-323 608-610 1069-1070 1248 1270 2304-2559
"""
"""The numbers of each set's collations: both servers agree in them. UCA has whole ranges, for more to come."""

_CODECS: Final = {
    "ascii": "ascii", "big5": "big5", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932", "euckr": "cp949", "gb18030": "gb18030",
    "gb2312": "gb2312", "gbk": "gbk", "greek": "iso8859_7", "hebrew": "iso8859_8", "hp8": "hp_roman8",
    "koi8r": "koi8_r", "koi8u": "koi8_u", "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9",
    "latin7": "iso8859_13", "macce": "mac_latin2", "macroman": "mac_roman", "sjis": "shift_jis", "tis620": "tis_620",
    "ujis": "euc_jp", "eucjpms": "euc_jp", "utf8mb3": "utf_8", "utf8mb4": "utf_8", "ucs2": "utf_16_be",
    "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be", "armscii8": "latin_1", "dec8": "latin_1",
    "geostd8": "cp1252", "keybcs2": "cp437", "swe7": "ascii",
}  # fmt: skip

NONE: Final = "\ufffe"
"""In a set of single bytes: the server has no character for it."""
_ARMENIAN: Final = "".join(chr(0x531 + i) + chr(0x561 + i) for i in range(38))
_SINGLE: Final[dict[str, tuple[tuple[int, str], ...]]] = {
    "armscii8": ((0xA1, "❁§։)(»«—.՝,-՟…՜՛՞"), (0xB2, _ARMENIAN), (0xFE, "’'")),
    "cp1256": tuple((at, NONE) for at in (0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF)),
    "cp866": ((0xFC, "\u207f\u00b2"),),
    "dec8": (*((at, NONE) for at in (0xA4, 0xA6, 0xAC, 0xAD, 0xAE, 0xAF, 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0, 0xFE,
                                     0xFF)), (0xA8, "¤"), (0xD7, "Œ"), (0xDD, "Ÿ"), (0xF7, "œ"), (0xFD, "ÿ")),
    "geostd8": (*((at, NONE) for at in (0x83, 0x88, 0x8A, 0x8C, 0x8E, 0x98, 0x99, 0x9A, 0x9C, 0x9E, 0x9F)),
                (0xC0, "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ" + NONE * 23 + "№" + NONE * 2)),
    "greek": ((0xA1, "\u02bd\u02bc"), (0xA4, NONE * 2), (0xAA, NONE)),
    "hebrew": ((0xAF, "\u203e"),),
    "keybcs2": ((0x80, "Č"), (0x83, "ď"), (0x85, "ĎŤčěĚĹÍľĺ"), (0x8F, "Á"), (0x91, "žŽ"), (0x95, "ÓůÚý"),
                (0x9B, "ŠĽÝŘť"), (0xA4, "ňŇŮÔšřŕŔ")),
    "koi8u": ((0x95, "\u2022"),),
    "latin1": tuple((at, chr(at)) for at in (0x81, 0x8D, 0x8F, 0x90, 0x9D)),
    "swe7": ((0x40, "É"), (0x5B, "ÄÖÅÜ"), (0x60, "é"), (0x7B, "äöåü" + NONE)),
}  # fmt: skip
"""Runs of characters that differ from the codec's."""

_SEVERAL: Final = {
    "sjis": {"＼": "\\"},
    "ujis": {"＼": "\\"},
    "gb18030": {"ḿ": "\ue7c7", "\ue7c7": "ḿ"},
}
"""In sets of several bytes a character: those that the server has for the codec's."""
_NEVER: Final = {"ucs2": re.compile("[\U00010000-\U0010ffff]"), "cp932": re.compile("[\x80\uf8f0-\uf8f3]")}
"""Characters that the codec has, and the server has not."""


@cache
def _names() -> dict[int, str]:
    names = {}
    for entry in _COLLATIONS.replace("\n", " ").split(";"):
        name, *numbers = entry.split()
        for number in numbers:
            first, _, last = number.partition("-")
            names.update(dict.fromkeys(range(int(first), int(last or first) + 1), name))
    return names


def charset(collation: int | None) -> str:
    """The character set of a collation. Raises UnreadValueError for one that is not known."""
    found = _names().get(-1 if collation is None else collation)
    if found is None:
        raise UnreadValueError(f"its collation has the number {collation}, which this release does not know")
    return found


@cache
def decoder(name: str) -> Decode:
    """Makes text of bytes in this character set. Raises UnreadValueError for one that is not known."""
    codec = _CODECS.get(name)
    if codec is None:
        raise UnreadValueError(
            f"its character set is {name}, which this release can't read", hint="Convert the column to utf8mb4"
        )
    if name in _LETTERS:
        return lambda raw: _by_letters(name, raw)
    decode = codecs.getdecoder(codec)
    table = _table(name, codec) if name in _SINGLE else ""
    never = _NEVER.get(name)
    others = str.maketrans(_SEVERAL.get(name, {}))

    def text(raw: bytes) -> str:
        try:
            if table:
                return codecs.charmap_decode(raw, "strict", table)[0]
            made = decode(raw)[0]
        except UnicodeDecodeError as error:
            raise _none(name, raw[error.start : error.end], error.start) from error
        if never and never.search(made):
            raise UnreadValueError(f"expected text in {name}, found {raw[:40].hex()}")
        return made.translate(others) if others else made

    return text


def _table(name: str, codec: str) -> str:
    """A set of single bytes: the character of each."""
    made = [bytes([byte]).decode(codec, "ignore") or NONE for byte in range(256)]
    for first, run in _SINGLE[name]:
        made[first : first + len(run)] = run
    return "".join(made)


def _none(name: str, letter: bytes, at: int) -> UnreadValueError:
    return UnreadValueError(f"expected text in {name}, found {letter.hex()} at byte {at}")


# --- sets that no codec has: letter by letter -----------------------------------------------------------------------


def _big5(letter: bytes) -> str:
    """With the seven characters that came later."""
    return letter.decode("cp950" if b"\xf9\xd6" <= letter <= b"\xf9\xdc" else "big5")


def _eucjpms(letter: bytes) -> str:
    """Its two bytes are those of cp932, laid out as EUC has them; private characters are at the end."""
    if len(letter) == 2 and letter[0] != 0x8E:
        row, cell = letter[0] - 0xA1, letter[1] - 0xA1
        if row < 0 or not 0 <= cell < 94:
            raise UnicodeDecodeError("eucjpms", letter, 0, 2, "no such code")
        if row >= 84:
            return chr(0xE000 + (row - 84) * 94 + cell)
        lead = (row >> 1) + (0x81 if row < 62 else 0xC1)
        trail = cell + 0x9F if row & 1 else cell + 0x40 + (cell >= 63)
        return bytes((lead, trail)).decode("cp932")
    return letter.decode("euc_jp").translate(_HALF)


_HALF: Final = str.maketrans("~\xa6", "～￤")
_LETTERS: Final[dict[str, tuple[Callable[[bytes], str], bytes]]] = {
    "big5": (_big5, b""),
    "eucjpms": (_eucjpms, b"\x8f"),
}
"""The codec of one letter, and the first bytes of those that have three."""


def _by_letters(name: str, raw: bytes) -> str:
    codec, long = _LETTERS[name]
    made, at = [], 0
    while at < len(raw):
        size = 1 if raw[at] < 0x80 else 3 if raw[at] in long else 2
        letter = raw[at : at + size]
        try:
            made.append(letter.decode("ascii") if size == 1 else codec(letter))
        except UnicodeDecodeError:
            raise _none(name, letter, at) from None
        at += size
    return "".join(made)
