"""Values of every column type of MySQL and MariaDB, at their edges: what tests write, as SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trails.codec import binary

BOTH, MARIA, MYSQL = "both", "MariaDB", "MySQL"


def as_is(value: Any) -> Any:
    """What SELECT gives."""
    return value


def no_idle_zeros(text: str) -> str:
    """Without zeros at the end of a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def in_utc(text: str) -> str:
    """A TIMESTAMP."""
    return no_idle_zeros(text) + "+00"


def digits(text: str) -> str:
    """A number without leading zeros."""
    return str(int(text))


@dataclass(frozen=True)
class Case:
    """A type, and values of it in SQL. `read`: SQL that gives v's value; `expected`: what the trail must have."""

    type: str
    values: tuple[str, ...]
    logical: str
    read: str = "v"
    expected: Callable[[Any], Any] = as_is
    only: str = BOTH
    name: str = ""

    @property
    def title(self) -> str:
        """For the test's name."""
        return self.name or self.type.partition(" CHARACTER SET ")[2] or self.type[:40]


def _whole(base: str, bits: int, logical: str, wider: str) -> list[Case]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    near = [
        n for n in (-4096, -4095, -129, -2, -1, 0, 1, 9, 127, 128, 255, 4095, 4096, 65535, 65536) if least < n < most
    ]
    numbers = tuple(str(n) for n in (least, least + 1, *near, most - 1, most))
    top = (1 << bits) - 1
    plus = tuple(str(n) for n in (0, 1, 42, most, most + 1, top - 1, top))
    return [Case(base, numbers, logical), Case(f"{base} unsigned", plus, wider)]


def _quoted(*texts: str) -> tuple[str, ...]:
    return tuple("'" + text.replace("\\", "\\\\").replace("'", "''") + "'" for text in texts)


def _hex(*values: bytes) -> tuple[str, ...]:
    return tuple(f"x'{value.hex()}'" for value in values)


_NUMBERS = [
    *_whole("tinyint", 8, "smallint", "smallint"), *_whole("smallint", 16, "smallint", "integer"),
    *_whole("mediumint", 24, "integer", "integer"), *_whole("int", 32, "integer", "bigint"),
    *_whole("bigint", 64, "bigint", "decimal"),
    Case("tinyint(1)", ("0", "1", "-128", "127"), "smallint"),
    Case("int(5) zerofill", ("0", "42", "4294967295"), "bigint", expected=digits),
    Case("year", ("0", "'00'", "1901", "1999", "2024", "2155"), "smallint", expected=digits),
    Case("decimal(65,30)", tuple(f"{s}{n}" for s in ("", "-") for n in (
        "99999999999999999999999999999999999.999999999999999999999999999999", "0.000000000000000000000000000001",
        "12345678901234567890123456789012345.123456789012345678901234567890", "0", "1", "100000000000000000")),
        "decimal"),
    Case("decimal(65,0)", ("9" * 65, "-" + "9" * 65, "0", "-1", "1" + "0" * 64), "decimal"),
    Case("decimal(10,2)", ("0", "0.01", "-0.01", "99999999.99", "-99999999.99", "12.30", "-0.00", "1000000"),
    "decimal"),
    Case("decimal(9,9)", ("0.123456789", "-0.000000001", "0"), "decimal"),
    Case("decimal(18,9)", ("999999999.999999999", "-999999999.000000001", "1.1"), "decimal"),
    Case("decimal(20,10)", ("1234567890.0987654321", "-1234567890.0987654321", "-5"), "decimal"),
    Case("decimal(1,0)", ("9", "-9", "0"), "decimal"),
    Case("decimal(5,1) unsigned", ("0", "9999.9"), "decimal"),
    Case("bit(1)", ("b'0'", "b'1'"), "bits", "LPAD(BIN(v), 1, '0')"),
    Case("bit(7)", ("b'0'", "b'1010101'", "b'1111111'"), "bits", "LPAD(BIN(v), 7, '0')"),
    Case("bit(8)", ("b'0'", "b'10000001'"), "bits", "LPAD(BIN(v), 8, '0')"),
    Case("bit(9)", ("b'0'", "b'100000001'", "b'1'"), "bits", "LPAD(BIN(v), 9, '0')"),
    Case("bit(64)", ("b'0'", f"b'{'1' * 64}'", f"b'1{'0' * 63}'", "b'101'"), "bits", "LPAD(BIN(v), 64, '0')"),
]  # fmt: skip

_DOUBLES = (
    "0", "-0e0", "1", "-1.5", "0.1", "1e15", "1e16", "123456789012345", "1234567890123456.5", "1.7976931348623157e308",
    "-1.7976931348623157e308", "2.2250738585072014e-308", "1e-5", "0.0001", "3.141592653589793", "1e100", "-2e-300",
)  # fmt: skip
_SINGLES = (
    "0", "-0e0", "1", "0.1", "-1.5", "3.40282e38", "1.17549e-38", "16777216", "16777217", "1e10", "123456.5",
    "1234567.5",
    "999999", "1000000", "1e-4", "1e-5", "3.1415927", "0.3333333",
)  # fmt: skip

_DATES = (
    "'0000-00-00'", "'2024-00-15'", "'2024-02-00'", "'2024-00-00'", "'0000-01-01'", "'0001-01-01'", "'1000-01-01'",
    "'9999-12-31'", "'2024-02-29'", "'2023-02-31'", "'1970-01-01'",
)  # fmt: skip
_MOMENTS = (
    "'0000-00-00 00:00:00'", "'2024-00-15 12:34:56'", "'2024-00-00 00:00:01'", "'0001-01-01 00:00:00'",
    "'9999-12-31 23:59:59'", "'2024-02-29 23:59:59'", "'2023-02-31 00:00:00'", "'1969-12-31 23:59:59'",
)  # fmt: skip
_STAMPS = (
    "'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'2024-03-31 00:30:00'",
    "'2024-02-29 23:59:59'", "'2001-09-09 01:46:40'",
)  # fmt: skip
_TIMES = (
    "'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'", "'24:00:00'", "'100:00:00'", "'23:59:59'",
    "'-12:34:56'",
)  # fmt: skip


def _fractions(digits: int, moments: tuple[str, ...]) -> tuple[str, ...]:
    """Some with a fraction; the widest last digit too."""
    if not digits:
        return moments
    tails = (".123456"[: digits + 1], ".999999"[: digits + 1], ".000001"[: digits + 1], ".500000"[: digits + 1])
    return (*moments, *(f"{moment[:-1]}{tail}'" for moment in moments[-2:] for tail in tails))


def _temporal() -> list[Case]:
    cases = [Case("date", _DATES, "date")]
    for n in range(7):
        size = f"({n})" if n else ""
        late = ("'2038-01-19 03:14:07.999999'",) if n == 6 else ()
        long = ("'-838:59:59.999999'", "'-00:00:00.000001'", "'-01:02:03.250000'") if n == 6 else ()
        tenth = ("'-00:00:00.5'", "'-1:00:00.1'") if n else ()
        cases += [
            Case(f"datetime{size}", _fractions(n, _MOMENTS), "timestamp", expected=no_idle_zeros),
            Case(f"timestamp{size} NULL", _fractions(n, _STAMPS) + late, "timestamptz", expected=in_utc),
            Case(f"time{size}", _fractions(n, _TIMES) + tenth + long, "time", expected=no_idle_zeros),
        ]
    return cases


_ASCII = "plain ~ text \\ | ^"
_SAMPLES = {
    "ascii": "", "latin1": "äöüß€ÿ\x81", "latin2": "łŁžŽ", "latin5": "ğışİ", "latin7": "ąčęė", "cp1250": "ěščř€",
    "cp1251": "приветЁ", "cp1256": "مرحبا", "cp1257": "ąčęėį", "cp850": "äöü░", "cp852": "łůě", "cp866": "привет²№",
    "greek": "αβγΩ", "hebrew": "שלום", "koi8r": "привет─", "koi8u": "їєґі•", "macce": "ěšč", "macroman": "äéÆ",
    "tis620": "สวัสดี", "hp8": "äöÅ", "dec8": "ŒŸÿä", "keybcs2": "čďěý", "geostd8": "აბგ№", "armscii8": "ԱաԲ",
    "swe7": "ÅÄÖåäöé", "big5": "中文測試裏", "gb2312": "中文测试", "gbk": "中文測試丂", "euckr": "한글똠",
    "sjis": "日本語ｱ漢",
    "cp932": "日本語①ｱ～", "ujis": "日本語漢字ｱ", "eucjpms": "日本語①～ｱ", "utf8mb3": "ünï中€\ufeff",
    "utf8mb4": "ünï中𝄞👩‍👩‍👧",
    "ucs2": "ünï中", "utf16": "ünï中𝄞", "utf16le": "ünï中𝄞", "utf32": "ünï中𝄞",
}  # fmt: skip


def _text() -> list[Case]:
    cases = []
    for charset, sample in _SAMPLES.items():
        plain = "plain text" if charset == "swe7" else _ASCII
        texts = _quoted("", "a", plain, sample, f"{sample} {sample}x", " lead", "tail ", "\t\n\r\0")
        kinds = ("varchar(70)", "char(30)")
        cases += [Case(f"{kind} CHARACTER SET {charset}", texts, "text", name=f"{charset} {kind}") for kind in kinds]
    long = _quoted("x" * 300, "ü" * 40_000)
    cases += [
        Case("varchar(255) CHARACTER SET utf8mb4", (*_quoted("ü" * 255), "REPEAT('a', 255)"),
        "text", name="utf8mb4 255"),
        Case("char(255) CHARACTER SET utf8mb4", (*_quoted("ü" * 255), "''"), "text", name="utf8mb4 char(255)"),
        Case("tinytext", _quoted("", "x" * 255), "text"),
        Case("text", _quoted("", *("x" * 300, "ü" * 30_000)), "text"),
        Case("mediumtext", _quoted("", *long), "text"), Case("longtext", _quoted("", *long), "text"),
        Case("varchar(20) CHARACTER SET gb18030", _quoted("", "中文𝄞ḿ", "a"), "text", only=MYSQL),
    ]  # fmt: skip
    return [case for case in cases if case.values]


def _bytes() -> list[Case]:
    odd = (b"", b"\0", b"a\0b", bytes(range(256)), b"\xff" * 16, b"tail \0")
    cases = [
        Case(kind, _hex(*(one for one in odd if len(one) <= most)), "bytes", expected=binary)
        for kind, most in (
            ("varbinary(20)", 20), ("varbinary(300)", 300), ("tinyblob", 255), ("blob", 9999), ("mediumblob", 9999),
            ("longblob", 9999),
        )
    ]  # fmt: skip
    cases += [Case(f"binary({n})", _hex(b"", b"a", b"\0\1", b"\xff" * min(n, 5)), "bytes", expected=binary)
              for n in (5, 16, 255)]  # fmt: skip
    return [
        *cases,
        Case("char(5) CHARACTER SET binary", _hex(b"ab", b"\0"), "bytes", expected=binary, name="char binary"),
    ]


_MANY = tuple(f"label {n}" for n in range(300))
_SET = tuple(f"s{n}" for n in range(64))


def _members() -> list[Case]:
    return [
        Case("enum('a','b','it''s','')", ("'a'", "'b'", "'it''s'", "''", "1"), "enum", name="enum"),
        Case("enum('a','b')", ("'a'", "0", "'nothing'"), "enum", name="enum of 0"),
        Case(f"enum({','.join(_quoted(*_MANY))})", ("'label 0'", "'label 255'", "'label 299'"),
        "enum", name="enum of 300"),
        Case("enum('ä','中') CHARACTER SET utf8mb4", ("'ä'", "'中'"), "enum", name="enum of utf8mb4"),
        Case("enum('é','y') CHARACTER SET latin1", ("'é'", "'y'"), "enum", name="enum of latin1"),
        Case("set('a','b','c d')", ("''", "'a'", "'c d,a'", "'a,b,c d'"), "text", name="set"),
        Case("set('ä','b') CHARACTER SET latin1", ("'ä,b'", "'ä'"), "text", name="set of latin1"),
        *(Case(f"set({','.join(_quoted(*_SET[:n]))})", ("''", f"'s{n - 1}'", f"'{','.join(_SET[:n])}'"), "text",
               name=f"set of {n}") for n in (8, 9, 16, 17, 24, 25, 32, 33, 63, 64)),
    ]  # fmt: skip


_SHAPES = (
    "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1.5 1e300)')",
    "ST_GeomFromText('LINESTRING(0 0,1 1,2 2)')", "ST_GeomFromText('POLYGON((0 0,4 0,4 4,0 0),(1 1,2 1,2 2,1 1))')",
    "ST_GeomFromText('MULTIPOINT(1 1,2 2)')", "ST_GeomFromText('MULTILINESTRING((0 0,1 1),(2 2,3 3))')",
    "ST_GeomFromText('MULTIPOLYGON(((0 0,4 0,4 4,0 0)))')",
    "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))')", "ST_GeomFromText('POINT(1 2)', 4326)",
    "ST_GeomFromText('LINESTRING(1 2,3 4)', 3857)",
)  # fmt: skip


def ewkb(raw: bytes) -> str:
    """EWKB of the servers' own bytes, written down once more for tests."""
    srid, kind = int.from_bytes(raw[:4], "little"), int.from_bytes(raw[5:9], "little")
    head = b"\1" + (kind | (0x20000000 if srid else 0)).to_bytes(4, "little") + (raw[:4] if srid else b"")
    return (head + raw[9:]).hex().upper()


def maria_json(text: str) -> str:
    """MariaDB keeps the text."""
    return text


_JSONS = (
    "'null'", "'true'", "'false'", "'0'", "'-1'", "'32767'", "'32768'", "'-32769'", "'65535'", "'2147483648'",
    "'4294967296'", "'-9223372036854775808'", "'18446744073709551615'", "'1.0'", "'1.5'", "'-0.0'", "'1e15'", "'1e16'",
    "'1e-14'", "'1e-15'", "'0.00001'", "'123456789012345.6'", "'1e308'", "'5e-324'", "'1e22'", "'0.1'", "'100.25'",
    "'12345678901234567890'", "'\"\"'",
    "'\"text\"'", r"""'"q\\" b\\\\ s/ t\\t n\\n u\\u0001 \\u00e4 \\ud834\\udd1e"'""",
    "'[]'", "'{}'", "'[1, [2, [3, {}]], \"x\"]'", """'{"b": 1, "a": 2, "aa": 3, "": 4, "ä": 5}'""",
    """'{"a": 1, "a": 2}'""", """'{"deep": {"deep": {"deep": [null, true, 1.5, "x"]}}}'""",
    f"""'[{", ".join(f'{{"k{n}": "value {n}"}}' for n in range(30))}]'""",
    f"""'{{{", ".join(f'"key{n}": "{"x" * 200}"' for n in range(400))}}}'""", f"'[{', '.join(map(str, range(9000)))}]'",
    "CONCAT('[', REPEAT('70000, ', 20000), '1]')",
)  # fmt: skip
_OPAQUES = (
    "JSON_ARRAY(CAST(1.50 AS DECIMAL(10,2)), CAST(-0.001 AS DECIMAL(65,30)), CAST(1234567890 AS DECIMAL(30,0)))",
    "JSON_OBJECT('d', DATE'2024-02-29', 't', CAST('-12:34:56.789' AS TIME(3)), 'z', TIME'00:00:00')",
    "JSON_OBJECT('m', CAST('2024-02-29 23:59:59.123456' AS DATETIME(6)))",
    "JSON_ARRAY(TIMESTAMP'2024-02-29 23:59:59', CAST('838:59:59' AS TIME), DATE'0001-01-01')",
    "JSON_ARRAY(CAST(x'00ff10' AS BINARY), b'101', x'')",
    "JSON_OBJECT('long', CAST(REPEAT('z', 200) AS BINARY))",
    "JSON_ARRAY(2024, 18446744073709551615, 1e0, 1.1, true, NULL, 'x')",
    "CAST(CAST('2024-02-29' AS DATE) AS JSON)", "CAST(CAST(1.10 AS DECIMAL(5,2)) AS JSON)",
    "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)",
)  # fmt: skip

_UUIDS = _quoted(
    "a0eebc99-9c0b-1ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff", "a0eebc99-9c0b-7ef8-bb6d-6bb9bd380a00",
    "0190163d-8694-739b-aea5-966c26f8ad91",
)  # fmt: skip
_ADDRESSES = _quoted(
    "::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "::2:3", "1::", "1:2:3:4:5:6:7:8", "1:0:0:4:5:0:0:8", "1:0:3:4:5:6:7:8",
    "::ffff:0:1.2.3.4", "::0.0.1.2", "::ffff", "::1:0", "fe80::1:0:0:1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:0",
)  # fmt: skip


def _own() -> list[Case]:
    compressed = ("''", "'a'", "REPEAT('compress me ', 500)", "REPEAT('ü', 300)")
    return [
        *(Case(kind, _SHAPES if kind == "geometry" else _SHAPES[:1], "geometry", expected=ewkb)
          for kind in ("geometry", "point")),
        Case("json", _JSONS, "json", only=MYSQL), Case("json", _OPAQUES, "json", only=MYSQL, name="json, opaque"),
        Case("json", _quoted('{"b": 1,  "a": 2.50}', "[]", '"ü"'), "json", only=MARIA),
        Case("uuid", _UUIDS, "uuid", only=MARIA), Case("inet6", _ADDRESSES, "other", only=MARIA),
        Case("inet4", _quoted("0.0.0.0", "1.2.3.4", "255.255.255.255"), "other", only=MARIA),
        Case("varchar(2000) COMPRESSED", compressed[:2] + compressed[3:], "text", only=MARIA),
        Case("text COMPRESSED", compressed, "text", only=MARIA),
        Case("varchar(200) COMPRESSED CHARACTER SET latin1", ("'é'", "REPEAT('é', 150)"), "text", only=MARIA),
        Case("blob COMPRESSED", (*compressed, "x'00ff'"), "bytes", expected=binary, only=MARIA),
        Case("varbinary(100) COMPRESSED", ("''", "x'00ff'"), "bytes", expected=binary, only=MARIA),
    ]  # fmt: skip


_FLOATS = [Case("double", _DOUBLES, "double"), Case("float", _SINGLES, "real", "v * 1e0")]

CASES: list[Case] = [*_NUMBERS, *_FLOATS, *_temporal(), *_text(), *_bytes(), *_members(), *_own()]
