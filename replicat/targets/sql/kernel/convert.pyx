# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Lines of canonical text to what a target takes: lines again, or rows of Python's values.

README.md beside this file has the rules. In short: what is usual is done here, and means the same as codec.py makes of
it; where a value is anything else the answer is None, and codec.py does the whole piece.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from replicat.targets.sql.ways import Usual

cdef int KEPT = Usual.KEPT, WHOLE = Usual.WHOLE, NUMBER = Usual.NUMBER, FLOAT = Usual.FLOAT, TRUTH = Usual.TRUTH
cdef int MOMENT = Usual.MOMENT, UTC = Usual.UTC, DATE = Usual.DATE, TIME = Usual.TIME
cdef int STRIPPED = Usual.STRIPPED, UNPADDED = Usual.UNPADDED
cdef int INT = Usual.INT, DOUBLE = Usual.DOUBLE, DECIMAL = Usual.DECIMAL, BIT = Usual.BIT, BYTES = Usual.BYTES

cdef enum:
    WIDEST = 1664
    TAB = 9
    END = 10
    ESCAPE = 92
    DIGITS = 15  # of a decimal that a double gives back
    LONGEST = 18  # digits of a whole number

MOST_COLUMNS = WIDEST

cdef const char *_MOMENT = b"0000-00-00 00:00:00"
cdef const char *_FIRST = b"1970-01-01 00:00:01"
cdef double[23] _TENS
for _i in range(23):
    _TENS[_i] = 10.0 ** _i


cdef struct Field:
    const uint8_t *p
    Py_ssize_t n


cdef class Converter:
    """Converts the columns of one table, each in its way. `lost`: values that a rule changed, until somebody empties it."""

    cdef public Py_ssize_t lost
    cdef Py_ssize_t width
    cdef int ways[WIDEST]
    cdef int digits[WIDEST]
    cdef bint since[WIDEST]
    cdef bint required[WIDEST]

    def __init__(self, ways, required):
        """`ways`: of each column its Way; `required`: whether NULL is refused."""
        self.width = len(ways)
        if not 0 < self.width <= WIDEST or len(required) != self.width:
            raise ValueError(f"{self.width} columns")
        for i, (way, must) in enumerate(zip(ways, required)):
            self.ways[i], self.digits[i], self.since[i] = Usual(way.usual), way.digits, way.since
            self.required[i] = must

    def lines(self, bytes data):
        """Lines of text, converted; None: they are not all usual."""
        cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = p + PyBytes_GET_SIZE(data)
        cdef bytes made = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(data))  # no way makes a value longer
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(made)
        cdef uint8_t *o = begin
        cdef Py_ssize_t lost = 0, i
        cdef Field field
        cdef int way
        while p < end:
            for i in range(self.width):
                p = self.field(p, end, i, &field)
                if p == NULL:
                    return None
                if is_null(&field):
                    if self.required[i]:
                        return None
                    o[0], o[1] = ESCAPE, 78
                    o += 2
                else:
                    way = self.ways[i]
                    if way != KEPT:
                        if way >= INT or not self.fits(i, &field):
                            return None
                        if way == FLOAT:
                            lost += is_minus_zero(&field)
                    if way == TRUTH:
                        o[0] = 49 if field.n == 4 else 48
                        o += 1
                    else:
                        memcpy(o, field.p, field.n)
                        o += field.n
                o[0] = END if i == self.width - 1 else TAB
                o += 1
        self.lost += lost
        return made[: o - begin]

    def rows(self, bytes data):
        """Rows of values; None: they are not all usual."""
        cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = p + PyBytes_GET_SIZE(data)
        cdef Py_ssize_t lost = 0, i
        cdef Field field
        cdef list rows = []
        cdef tuple row
        cdef object value
        while p < end:
            row = PyTuple_New(self.width)
            for i in range(self.width):
                p = self.field(p, end, i, &field)
                if p == NULL:
                    return None
                if is_null(&field):
                    if self.required[i]:
                        return None
                    value = None
                else:
                    if self.ways[i] != KEPT and not self.fits(i, &field):
                        return None
                    value = self.value(i, &field, &lost)
                    if value is None:
                        return None
                Py_INCREF(value)
                PyTuple_SET_ITEM(row, i, value)
            PyList_Append(rows, row)
        self.lost += lost
        return rows

    cdef const uint8_t *field(self, const uint8_t *p, const uint8_t *end, Py_ssize_t i, Field *found) noexcept:
        """The field at the place, and the place behind it; NULL: it does not end as one of this column."""
        cdef const uint8_t *q = p
        while q < end and q[0] != TAB and q[0] != END:
            q += 1
        if q == end or q[0] != (END if i == self.width - 1 else TAB):
            return NULL
        found.p, found.n = p, q - p
        return q + 1

    cdef bint fits(self, Py_ssize_t i, Field *f) noexcept:
        """Whether a value is usual for its way; of what the way leaves out, the field is shortened."""
        cdef int way = self.ways[i]
        if way == STRIPPED or way == UNPADDED:
            if way == STRIPPED:
                while f.n and f.p[f.n - 1] == 32:
                    f.n -= 1
            return not f.n or f.p[f.n - 1] != 32
        if way == WHOLE or way == INT:
            return is_whole(f)
        if way == NUMBER or way == FLOAT or way == DOUBLE:
            return f.n > 0 and is_digit(f.p[f.n - 1]) and memchr(f.p, ESCAPE, f.n) == NULL
        if way == DECIMAL:
            return is_decimal(f)
        if way == TRUTH or way == BIT:
            return (f.n == 4 and memcmp(f.p, b"true", 4) == 0) or (f.n == 5 and memcmp(f.p, b"false", 5) == 0)
        if way == DATE:
            return f.n == 10 and is_like(f.p, _MOMENT, 10)
        if way == TIME:
            return self.is_time(i, f)
        if way == BYTES:
            return is_hex(f)
        if way == UTC:
            if f.n < 3 or memcmp(f.p + f.n - 3, b"+00", 3):
                return False
            f.n -= 3
        elif way != MOMENT:
            return False
        if f.n < 19 or not is_like(f.p, _MOMENT, 19) or (self.since[i] and memcmp(f.p, _FIRST, 19) < 0):
            return False
        return self.keeps(i, f, 19)

    cdef bint is_time(self, Py_ssize_t i, Field *f) noexcept:
        """A time of the day; longer ones are left to the plain code."""
        if f.n < 8 or not is_like(f.p, b"00:00:00", 8) or f.p[3] > 53 or f.p[6] > 53:
            return False
        return self.keeps(i, f, 8)

    cdef bint keeps(self, Py_ssize_t i, Field *f, Py_ssize_t at) noexcept:
        """Whether the column keeps the fraction of a second that begins there, if there is one."""
        cdef Py_ssize_t end = f.n, k
        if f.n == at:
            return True
        if f.p[at] != 46 or f.n == at + 1:
            return False
        for k in range(at + 1, f.n):
            if not is_digit(f.p[k]):
                return False
        while f.p[end - 1] == 48:
            end -= 1
        return end - at - 1 <= self.digits[i]

    cdef object value(self, Py_ssize_t i, Field *f, Py_ssize_t *lost):
        """A value that fits; None: it is not one that is done here."""
        cdef int way = self.ways[i]
        if way == FLOAT or way == DOUBLE:
            lost[0] += is_minus_zero(f)
        if way == TRUTH:
            return "1" if f.n == 4 else "0"
        if way < INT:
            return text(f)
        if way == INT:
            return whole(f)
        if way == DOUBLE:
            return double(f)
        if way == DECIMAL:
            return decimal(f, lost)
        if way == BIT:
            return 1 if f.n == 4 else 0
        return bytes_of(f)


cdef inline bint is_null(Field *f) noexcept:
    return f.n == 2 and f.p[0] == ESCAPE and f.p[1] == 78


cdef inline bint is_digit(uint8_t c) noexcept:
    return 48 <= c <= 57


cdef bint is_like(const uint8_t *p, const char *model, Py_ssize_t n) noexcept:
    """Whether digits stand where the model has them, and else the model's own letters."""
    cdef Py_ssize_t k
    for k in range(n):
        if model[k] == 48:
            if not is_digit(p[k]):
                return False
        elif p[k] != <uint8_t> model[k]:
            return False
    return True


cdef bint is_minus_zero(Field *f) noexcept:
    return f.n == 2 and f.p[0] == 45 and f.p[1] == 48


cdef bint is_whole(Field *f) noexcept:
    """As canonical.WHOLE, of at most LONGEST digits."""
    cdef Py_ssize_t at = f.n > 0 and f.p[0] == 45, k
    if not 0 < f.n - at <= LONGEST or (f.p[at] == 48 and f.n - at > 1):
        return False
    for k in range(at, f.n):
        if not is_digit(f.p[k]):
            return False
    return True


cdef int64_t digits_of(const uint8_t *p, Py_ssize_t n) noexcept:
    """A number's digits, without its sign and its point."""
    cdef int64_t number = 0
    cdef Py_ssize_t k
    for k in range(n):
        if is_digit(p[k]):
            number = number * 10 + p[k] - 48
    return number


cdef object whole(Field *f):
    cdef int64_t number = digits_of(f.p, f.n)
    return -number if f.p[0] == 45 else number


cdef bint is_decimal(Field *f) noexcept:
    """A whole number, or one with a point, of at most DIGITS digits."""
    cdef Field part
    cdef const uint8_t *point = <const uint8_t *> memchr(f.p, 46, f.n)
    cdef Py_ssize_t k
    if point == NULL:
        return is_whole(f)
    part.p, part.n = f.p, point - f.p
    if not is_whole(&part) or part.n + 1 == f.n or f.n - 1 > DIGITS:
        return False
    for k in range(part.n + 1, f.n):
        if not is_digit(f.p[k]):
            return False
    return True


cdef object decimal(Field *f, Py_ssize_t *lost):
    """An int where nothing but zeros stands behind the point, else a double.

    A whole number below 2 ** 53 by a power of ten up to 22 is rounded once, so it is the nearest double.
    """
    cdef const uint8_t *point = <const uint8_t *> memchr(f.p, 46, f.n)
    cdef Py_ssize_t scale
    cdef int64_t number = digits_of(f.p, f.n), power = 1, k
    cdef double near
    if point == NULL:
        lost[0] += is_minus_zero(f)
        return -number if f.p[0] == 45 else number
    lost[0] += f.p[f.n - 1] == 48
    scale = f.p + f.n - point - 1
    for k in range(scale):
        power *= 10
    if number % power == 0:
        number //= power
        return -number if f.p[0] == 45 else number
    near = <double> number / _TENS[scale]
    return -near if f.p[0] == 45 else near


cdef object double(Field *f):
    """By Python's own reader, where nothing stands that only Python takes for a number; None: something else does."""
    cdef Py_ssize_t k
    cdef uint8_t c
    for k in range(f.n):
        c = f.p[k]
        if not (is_digit(c) or c == 46 or c == 45 or c == 43 or c == 101):
            return None
    try:
        return float(PyBytes_FromStringAndSize(<char *> f.p, f.n))
    except ValueError:
        return None


cdef bint is_hex(Field *f) noexcept:
    r"""`\\x` and pairs of hexadecimal digits, its first backslash escaped."""
    cdef Py_ssize_t k
    cdef uint8_t c
    if f.n < 3 or f.n & 1 == 0 or f.p[0] != ESCAPE or f.p[1] != ESCAPE or f.p[2] != 120:
        return False
    for k in range(3, f.n):
        c = f.p[k]
        if not (is_digit(c) or 97 <= c <= 102):
            return False
    return True


cdef bytes bytes_of(Field *f):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, (f.n - 3) // 2)
    cdef uint8_t *o = <uint8_t *> PyBytes_AS_STRING(made)
    cdef Py_ssize_t k
    for k in range((f.n - 3) // 2):
        o[k] = nibble(f.p[3 + 2 * k]) << 4 | nibble(f.p[4 + 2 * k])
    return made


cdef inline uint8_t nibble(uint8_t c) noexcept:
    return c - 48 if c <= 57 else c - 87


cdef object text(Field *f):
    """Text without its escapes; None: it is no UTF-8."""
    cdef bytes plain
    cdef uint8_t *begin
    cdef uint8_t *o
    cdef Py_ssize_t k = 0
    cdef uint8_t c
    try:
        if memchr(f.p, ESCAPE, f.n) == NULL:
            return PyUnicode_DecodeUTF8(<char *> f.p, f.n, NULL)
        plain = PyBytes_FromStringAndSize(NULL, f.n)
        begin = o = <uint8_t *> PyBytes_AS_STRING(plain)
        while k < f.n:
            c = f.p[k]
            if c == ESCAPE and k + 1 < f.n:
                k += 1
                c = f.p[k]
                c = TAB if c == 116 else END if c == 110 else 13 if c == 114 else c
            o[0] = c
            o += 1
            k += 1
        return PyUnicode_DecodeUTF8(<char *> begin, o - begin, NULL)
    except UnicodeDecodeError:
        return None
