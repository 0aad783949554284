# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A block's unpacked payload straight to each table's net effect as COPY text, without a Python object a value; and,
where MAPs have expressions, to the operands that Spark reads, and from the results that it gives.

README.md beside this file has the rules. In short: what is usual is done here, byte for byte as wellformed.py, net/ and
targets/sql/copytext.py would do it; where anything else comes, the answer is False, and the plain code does the whole
task. No length is trusted that was not held against the end of the payload.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcmp, memcpy

from replicat.model.programs import OUT, PASSES
from trails.format import TIMES, Indicator
from trails.record import BEGIN, COMMIT, DELETE, INSERT, UPDATE
from trails.unpacking import EXT_BYTES
from trails.wellformed import ID_SIZE

cdef int _OUT = OUT, _PASSES = PASSES
cdef int _BEGIN = BEGIN, _COMMIT = COMMIT, _INSERT = INSERT, _UPDATE = UPDATE, _DELETE = DELETE
cdef int _WHOLE = Indicator.WHOLE, _FIRST = Indicator.BEGIN, _MIDDLE = Indicator.MIDDLE, _END = Indicator.END
cdef uint8_t _EXT = EXT_BYTES
cdef int64_t _EARLIEST = TIMES.start, _LATEST = TIMES.stop - 1
cdef Py_ssize_t _ID = ID_SIZE
cdef const char *_HEX = b"0123456789abcdef"

cdef enum:
    WIDEST = 1664  # tables of more columns are done by the plain code
    NULL_VALUE = 0  # what a value is
    TEXT = 1
    BYTES = 2
    MISSING = 3
    NOTHING = 0  # what a key's changes come to
    NEW = 1
    THERE = 2
    GONE = 3
    VOID = 4
    EITHER = 5  # of a row that may have been there or not
    REMOVED = 6
    STATES = 7
    UPSERT = 32  # what a change becomes by its MAP, beside the three
    REMOVE = 33
    LEFT_OUT = 34
    AS_IT_IS = 0  # what is asked of an operand, or done to a result
    FITS_DECIMAL = 1
    FITS_TIME = 2
    SHORT_DECIMAL = 1
    PLAIN_TIME = 2
    MICROSECONDS = 26  # letters of a time with six digits of a second
    DIGITS = 38  # of Spark's decimals


MOST_COLUMNS = WIDEST
UNCHECKED, DECIMAL, TIME = AS_IT_IS, FITS_DECIMAL, FITS_TIME
UNCHANGED, SHORTENED, MOMENT = AS_IT_IS, SHORT_DECIMAL, PLAIN_TIME


# --- msgpack ----------------------------------------------------------------------------------------------------------


cdef struct Place:
    const uint8_t *p
    Py_ssize_t at
    Py_ssize_t end


cdef inline uint64_t big(const uint8_t *p, int width) noexcept nogil:
    cdef uint64_t n = 0
    cdef int i
    for i in range(width):
        n = n << 8 | p[i]
    return n


cdef inline bint has(Place *s, Py_ssize_t n) noexcept nogil:
    return s.end - s.at >= n


cdef Py_ssize_t array(Place *s) noexcept nogil:
    """How many members the array at the place has, which is passed; -1: there is none."""
    cdef Py_ssize_t n = -1
    cdef int c
    if not has(s, 1):
        return -1
    c = s.p[s.at]
    if c >> 4 == 9:
        s.at += 1
        return c & 15
    if c == 0xDC and has(s, 3):
        n = big(s.p + s.at + 1, 2)
        s.at += 3
    elif c == 0xDD and has(s, 5):
        n = big(s.p + s.at + 1, 4)
        s.at += 5
    return n


cdef bint number(Place *s, int64_t *found) noexcept nogil:
    """The whole number at the place, which is passed."""
    cdef int c, width
    cdef uint64_t n
    if not has(s, 1):
        return False
    c = s.p[s.at]
    if c < 128 or c >= 0xE0:
        found[0] = c if c < 128 else c - 256
        s.at += 1
        return True
    if not 0xCC <= c <= 0xD3:
        return False
    width = 1 << (c - 0xCC & 3)
    if not has(s, 1 + width):
        return False
    n = big(s.p + s.at + 1, width)
    if c >= 0xD0:
        if width < 8 and n >> (8 * width - 1):
            n |= ~<uint64_t> 0 << (8 * width)
    elif n > <uint64_t> INT64_MAX:
        return False
    found[0] = <int64_t> n
    s.at += 1 + width
    return True


cdef int value(Place *s, const uint8_t **begin, uint32_t *size) noexcept nogil:
    """What kind of value is at the place, which is passed, and where its bytes are; -1: none of a row."""
    cdef int c, head, width
    cdef uint64_t n
    cdef int kind = TEXT
    if not has(s, 1):
        return -1
    c = s.p[s.at]
    size[0] = 0
    if c >> 5 == 5:
        head, n = 1, c & 31
    elif c == 0xC0 or c == 0xC2:
        s.at += 1
        return NULL_VALUE if c == 0xC0 else MISSING
    elif 0xD9 <= c <= 0xDB or 0xC7 <= c <= 0xC9:
        width = 1 << (c - 0xD9 if c >= 0xD9 else c - 0xC7)
        if not has(s, 1 + width):
            return -1
        head, n = 1 + width, big(s.p + s.at + 1, width)
        if c < 0xD9:
            kind = BYTES
    elif 0xD4 <= c <= 0xD8:
        head, n, kind = 1, 1 << (c - 0xD4), BYTES
    else:
        return -1
    if kind == BYTES:
        if not has(s, head + 1) or s.p[s.at + head] != _EXT:
            return -1
        head += 1
    if n > <uint64_t> (s.end - s.at - head):
        return -1
    begin[0], size[0] = s.p + s.at + head, n
    s.at += head + n
    return kind


# --- text -------------------------------------------------------------------------------------------------------------


cdef inline uint32_t to_escape(const uint8_t *p, uint32_t n) noexcept nogil:
    """How many of these bytes COPY must escape; the compiler makes vector instructions of it."""
    cdef uint32_t i, found = 0
    for i in range(n):
        found += (p[i] == 9) | (p[i] == 10) | (p[i] == 13) | (p[i] == 92)
    return found


cdef uint8_t *put(uint8_t *o, int kind, const uint8_t *p, uint32_t n) noexcept nogil:
    """A value as COPY reads it; twice its bytes and three are enough."""
    cdef uint32_t i
    cdef uint8_t c
    if kind == NULL_VALUE:
        o[0], o[1] = 92, 78
        return o + 2
    if kind == BYTES:
        o[0], o[1], o[2] = 92, 92, 120
        o += 3
        for i in range(n):
            o[2 * i], o[2 * i + 1] = _HEX[p[i] >> 4], _HEX[p[i] & 15]
        return o + 2 * n
    if not to_escape(p, n):
        memcpy(o, p, n)
        return o + n
    for i in range(n):
        c = p[i]
        if c == 9 or c == 10 or c == 13 or c == 92:
            o[0] = 92
            o[1] = 116 if c == 9 else 110 if c == 10 else 114 if c == 13 else 92
            o += 2
        else:
            o[0] = c
            o += 1
    return o


cdef bint is_utf8(const uint8_t *p, uint32_t n) noexcept nogil:
    """Whether it is: then the order of its bytes is that of its characters."""
    cdef uint32_t i = 0, more, k, low
    cdef uint8_t c
    while i < n:
        c = p[i]
        if c < 128:
            i += 1
            continue
        if 0xC2 <= c <= 0xDF:
            more, low = 1, 0x80
        elif 0xE0 <= c <= 0xEF:
            more, low = 2, 0xA0 if c == 0xE0 else 0x80
        elif 0xF0 <= c <= 0xF4:
            more, low = 3, 0x90 if c == 0xF0 else 0x80
        else:
            return False
        if n - i <= more or p[i + 1] < low or (c == 0xED and p[i + 1] > 0x9F) or (c == 0xF4 and p[i + 1] > 0x8F):
            return False
        for k in range(1, more + 1):
            if p[i + k] >> 6 != 2:
                return False
        i += more + 1
    return True


# --- one table --------------------------------------------------------------------------------------------------------


cdef struct Line:
    int64_t key  # of whole numbers; else where its bytes begin
    uint64_t at  # where its text begins; later ones have higher places
    uint32_t key_size
    uint32_t size
    uint8_t op
    uint8_t state  # of the first line of a key: what it came to


cdef const uint8_t *_sorted_keys  # of the net that is sorted


cdef int by_number(const void *a, const void *b) noexcept nogil:
    cdef const Line *x = <const Line *> a
    cdef const Line *y = <const Line *> b
    if x.key != y.key:
        return -1 if x.key < y.key else 1
    return -1 if x.at < y.at else 1


cdef int by_bytes(const void *a, const void *b) noexcept nogil:
    cdef const Line *x = <const Line *> a
    cdef const Line *y = <const Line *> b
    cdef int found = memcmp(_sorted_keys + x.key, _sorted_keys + y.key, min(x.key_size, y.key_size))
    if found:
        return found
    if x.key_size != y.key_size:
        return -1 if x.key_size < y.key_size else 1
    return -1 if x.at < y.at else 1


cdef class Buffer:
    """Bytes that grow."""

    cdef uint8_t *begin
    cdef size_t size, room

    def __dealloc__(self):
        free(self.begin)

    cdef uint8_t *need(self, size_t more) except NULL:
        """The place behind what is there, with room for so many."""
        cdef void *found
        cdef size_t room = self.size + more
        if room > self.room:
            room += room // 2 + 4096
            found = realloc(self.begin, room)
            if found == NULL:
                raise MemoryError
            self.begin, self.room = <uint8_t *> found, room
        return self.begin + self.size


cdef class Table:
    """Who takes the changes of one table."""

    cdef int width
    # Of the row at hand; what a MAP puts beside its columns stands behind them.
    cdef const uint8_t *begins[WIDEST]
    cdef uint32_t sizes[WIDEST]
    cdef uint8_t kinds[WIDEST]

    cdef int change(self, Place *s, int op) except -1:
        """Take the image at the place; 0: it is not one that is done here."""
        raise NotImplementedError

    cdef int image(self, Place *s) noexcept:
        """Read it: how many of its columns are missing; -1: it is none of this table."""
        cdef int i, kind, missing = 0
        if array(s) != self.width:
            return -1
        for i in range(self.width):
            kind = value(s, &self.begins[i], &self.sizes[i])
            if kind < 0:
                return -1
            missing += kind == MISSING
            self.kinds[i] = kind
        return missing


cdef class Mapped


cdef class Net(Table):
    """What the changes of one table come to. `inserts`, `updates`, `deletes`: how many came; `left_out`: of these, how
    many filters left out.

    Lines are kept as they came, and sorted at the end: no key is looked up.
    """

    cdef Buffer text, keys
    cdef Line *lines
    cdef Py_ssize_t count, slots
    cdef int key_width, picked
    cdef int key[WIDEST]
    cdef int pick[WIDEST]
    cdef bint numbered, taken, extras, ordered
    cdef Mapped mapped
    cdef readonly Py_ssize_t inserts, updates, deletes
    cdef Py_ssize_t out[3]

    def __init__(self, int width, key, pick, *, bint numbered, bint taken, bint extras, Mapped mapped=None):
        """`width`: of an image; `key` and `pick`: which of its columns are the key, and which are written; behind the
        image's stand those of `mapped`.

        `numbered`: the key is a whole number; not `taken`: changes are counted and left; `extras`: the target has
        columns of its own, so a row that is made again is no update.
        """
        cdef int room = width if mapped is None else width + mapped.width
        if not 0 < width <= room <= WIDEST or len(key) > WIDEST or len(pick) > WIDEST:
            raise ValueError(f"a table of {width} columns")
        if any(not 0 <= i < width for i in key) or any(not 0 <= i < room for i in pick):
            raise ValueError(f"columns {key} and {pick} of a table of {width}")
        self.text, self.keys = Buffer(), Buffer()
        self.width, self.key_width, self.picked = width, len(key), len(pick)
        for i, column in enumerate(key):
            self.key[i] = column
        for i, column in enumerate(pick):
            self.pick[i] = column
        self.numbered, self.taken, self.extras, self.ordered = numbered, taken, extras, True
        self.mapped = mapped
        if mapped is not None:
            mapped.put_constants(self)

    @property
    def left_out(self):
        return [self.out[0], self.out[1], self.out[2]]

    def __dealloc__(self):
        free(self.lines)

    cdef Line *line(self) except NULL:
        cdef void *found
        if self.count == self.slots:
            found = realloc(self.lines, (2 * self.slots + 256) * sizeof(Line))
            if found == NULL:
                raise MemoryError
            self.lines, self.slots = <Line *> found, 2 * self.slots + 256
        return &self.lines[self.count]

    cdef int change(self, Place *s, int op) except -1:
        cdef size_t size = s.at
        cdef int missing = self.image(s)
        cdef int became = op
        cdef Line *line
        cdef uint8_t *o
        if missing < 0 or (missing and op != _DELETE):
            return 0
        if op == _INSERT:
            self.inserts += 1
        elif op == _UPDATE:
            self.updates += 1
        else:
            self.deletes += 1
        if not self.taken:
            return 1
        size = s.at - size
        if self.mapped is not None:
            became = self.mapped.becomes(self, op, missing)
            if became == LEFT_OUT:
                self.out[0 if op == _INSERT else 1 if op == _UPDATE else 2] += 1
                return 1
            if not became:
                return 0
            size += self.mapped.size
        line = self.line()
        if not self.find_key(line):
            return 0
        o = self.text.need(2 * size + 4 * <size_t> (self.width + self.picked) + 8)
        line.at, line.op = self.text.size, became
        if became == _DELETE or became == REMOVE:
            o = self.columns(o, self.key, self.key_width)
        else:
            o = self.columns(o, self.pick, self.picked)
        line.size = o - self.text.begin - self.text.size
        self.text.size += line.size
        if self.ordered and self.count and self.compare(&self.lines[self.count - 1], line) > 0:
            self.ordered = False
        self.count += 1
        return 1

    cdef uint8_t *columns(self, uint8_t *o, const int *which, int many) noexcept:
        cdef int i, c
        for i in range(many):
            c = which[i]
            o = put(o, self.kinds[c], self.begins[c], self.sizes[c])
            o[0] = 9
            o += 1
        if many:
            (o - 1)[0] = 10
        else:
            o[0] = 10
            o += 1
        return o

    cdef int find_key(self, Line *line) except -1:
        """The key of the row at hand; 0: none whose order is known here."""
        cdef int i, c
        cdef size_t size = 0
        cdef uint8_t *o
        for i in range(self.key_width):
            c = self.key[i]
            if self.kinds[c] != TEXT:
                return 0
            size += self.sizes[c] + 1
        if self.numbered:
            line.key_size = 0
            return whole_number(self.begins[self.key[0]], self.sizes[self.key[0]], &line.key)
        o = self.keys.need(size)
        for i in range(self.key_width):
            c = self.key[i]
            # A zero byte parts the columns: so the order of the bytes is that of the columns, one after the other.
            for at in range(self.sizes[c]):
                if not self.begins[c][at]:
                    return 0
            if not is_utf8(self.begins[c], self.sizes[c]):
                return 0
            memcpy(o, self.begins[c], self.sizes[c])
            o[self.sizes[c]] = 0
            o += self.sizes[c] + 1
        line.key, line.key_size = self.keys.size, size
        self.keys.size += size
        return 1

    cdef int compare(self, const Line *x, const Line *y) noexcept:
        global _sorted_keys
        if self.numbered:
            return -1 if x.key < y.key else x.key > y.key
        _sorted_keys = self.keys.begin
        return by_bytes(x, y)

    cdef bint is_same(self, const Line *x, const Line *y) noexcept:
        if self.numbered:
            return x.key == y.key
        return x.key_size == y.key_size and not memcmp(self.keys.begin + x.key, self.keys.begin + y.key, x.key_size)

    cdef bint is_made_again(self, int before, int state) noexcept:
        """A row that was gone: columns of the target's own begin anew with it. A strict one that was never there in the
        target is just new.
        """
        strict = self.mapped is None or not self.mapped.lenient
        return has_row(state) and not has_row(before) and not (strict and before == VOID)

    def finish(self):
        """(text, rows) of inserts, updates, deletes, of keys that must not be there, of rows and of keys that may be
        there or not; None: the plain code has to.
        """
        global _sorted_keys
        cdef Py_ssize_t i = 0, n = 0, k
        cdef size_t sizes[STATES]
        cdef Py_ssize_t counts[STATES]
        cdef char *places[STATES]
        cdef Line *kept
        cdef int state, before
        if not self.ordered:
            _sorted_keys = self.keys.begin
            qsort(self.lines, self.count, sizeof(Line), by_number if self.numbered else by_bytes)
        for state in range(STATES):
            sizes[state], counts[state] = 0, 0
        while i < self.count:
            kept = &self.lines[n]
            kept[0] = self.lines[i]
            state = first(kept.op)
            i += 1
            while i < self.count and self.is_same(&self.lines[i], kept):
                before, state = state, after(state, self.lines[i].op)
                if state == NOTHING or (self.extras and self.is_made_again(before, state)):
                    return None
                kept.at, kept.size = self.lines[i].at, self.lines[i].size
                i += 1
            kept.state = state
            sizes[state] += kept.size
            counts[state] += 1
            n += 1
        found = []
        for state in range(NEW, STATES):
            text = PyBytes_FromStringAndSize(NULL, sizes[state])
            places[state] = PyBytes_AS_STRING(text)
            found.append((text, counts[state]))
        for k in range(n):
            kept = &self.lines[k]
            memcpy(places[kept.state], self.text.begin + kept.at, kept.size)
            places[kept.state] += kept.size
        return found


cdef int first(int op) noexcept nogil:
    """What the first change of a key says of it."""
    if op == _INSERT:
        return NEW
    if op == _UPDATE:
        return THERE
    return GONE if op == _DELETE else EITHER if op == UPSERT else REMOVED


cdef bint has_row(int state) noexcept nogil:
    return state == NEW or state == THERE or state == EITHER


cdef int after(int state, int op) noexcept nogil:
    """What one more change makes of a key's state, as net/compact.py and overlay.py; NOTHING: no source can have made
    it.
    """
    cdef bint there = has_row(state)
    if there:
        if op == _INSERT:
            return NOTHING
        if op == _UPDATE or op == UPSERT:
            return state
        return VOID if state == NEW else GONE if state == THERE else REMOVED
    if op == _INSERT or op == UPSERT:
        return THERE if state == GONE else NEW if state == VOID else EITHER
    return state if op == REMOVE else NOTHING


cdef int whole_number(const uint8_t *p, uint32_t n, int64_t *found) noexcept nogil:
    """As a database writes it: two texts of one number would be two keys."""
    cdef bint negative = n > 0 and p[0] == 45
    cdef uint32_t i = negative
    cdef int64_t total = 0
    cdef int digit
    if not 0 < n - i <= 19 or n <= i or (p[i] == 48 and n > 1):
        return 0
    for i in range(negative, n):
        digit = p[i] - 48
        if not 0 <= digit <= 9:
            return 0
        if total < (INT64_MIN + digit) // 10:  # as in C, towards zero
            return 0
        total = 10 * total - digit
    if not negative and total == INT64_MIN:
        return 0
    found[0] = total if negative else -total
    return 1


# --- MAPs -------------------------------------------------------------------------------------------------------------


cdef class Asked:
    """What images of one kind need evaluated: the number of their program, -1 for none, and its operands."""

    cdef readonly int number
    cdef int operands, expressions
    cdef bint judges
    cdef int columns[WIDEST]
    cdef int checks[WIDEST]
    cdef int scales[WIDEST]
    cdef tuple needs

    def __init__(self, int number, operands, needs, *, bint judges):
        """`operands`: (column, what it is asked, digits behind the point); `needs`: the columns that each expression
        reads; `judges`: a filter of operations is among them.
        """
        if len(operands) > WIDEST:
            raise ValueError(f"{len(operands)} operands")
        self.number, self.operands, self.expressions, self.judges = number, len(operands), len(needs), judges
        self.needs = tuple(map(tuple, needs))
        for i, (column, check, scale) in enumerate(operands):
            self.columns[i], self.checks[i], self.scales[i] = column, check, scale

    cdef int masked(self, Table row) except -1:
        """How many expressions can't be evaluated, as a column that they read is missing."""
        cdef int found = 0, column
        for columns in self.needs:
            for column in columns:
                if not 0 <= column < row.width:
                    raise ValueError(f"column {column} of a table of {row.width}")
                if row.kinds[column] == MISSING:
                    found += 1
                    break
        return found


cdef class OperandRows


cdef class Operands(Table):
    """The rows that Spark reads of one table's changes, put into the columns of all tables'."""

    cdef OperandRows rows
    cdef Asked insert, update, delete


    def __init__(self, int width, OperandRows rows, insert, update, delete):
        """Of each kind of change: an Asked; None: it is not done here."""
        if not 0 < width <= WIDEST:
            raise ValueError(f"a table of {width} columns")
        self.width, self.rows = width, rows
        self.insert, self.update, self.delete = insert, update, delete
        for asked in (insert, update, delete):
            if asked is not None:
                self.check(asked)

    cdef int check(self, Asked asked) except -1:
        cdef int i, most = 0, least = 0
        for i in range(asked.operands):
            most, least = max(most, asked.columns[i]), min(least, asked.columns[i])
        if asked.operands > self.rows.width or least < 0 or most >= self.width:
            raise ValueError(f"operands of a table of {self.width}")
        return 0

    cdef int change(self, Place *s, int op) except -1:
        cdef int missing = self.image(s), masked
        cdef Asked asked = self.insert if op == _INSERT else self.update if op == _UPDATE else self.delete
        if missing < 0 or (missing and op != _DELETE) or asked is None:
            return 0
        if asked.number < 0:
            return 1
        if missing:
            masked = asked.masked(self)
            if masked:
                return masked == asked.expressions
        return self.rows.add(self, asked)


cdef class OperandRows:
    """Arrow's columns of operand rows: numbers of programs, and texts. `count`: how many rows there are."""

    cdef readonly int width
    cdef readonly Py_ssize_t count
    cdef Buffer numbers
    cdef list texts, ends, there

    def __init__(self, int width):
        self.width, self.numbers = width, Buffer()
        self.texts, self.ends, self.there = ([Buffer() for _ in range(width)] for _ in range(3))

    cdef int add(self, Table row, Asked asked) except -1:
        """One row; 0: Spark would not take an operand as it is."""
        cdef int i, c
        cdef uint32_t n
        cdef Buffer text
        for i in range(asked.operands):
            c = asked.columns[i]
            if row.kinds[c] != NULL_VALUE and not is_operand(row, c, asked.checks[i], asked.scales[i]):
                return 0
        (<int32_t *> self.numbers.need(4))[0] = asked.number
        self.numbers.size += 4
        for i in range(self.width):
            text, n = self.texts[i], 0
            c = asked.columns[i] if i < asked.operands else -1
            if c >= 0 and row.kinds[c] == TEXT:
                n = row.sizes[c]
                memcpy(text.need(n + 1), row.begins[c], n)
                text.size += n
                if text.size > 0x7FFFFFFF:
                    return 0
            self.end(i, text.size, c >= 0 and row.kinds[c] == TEXT)
        self.count += 1
        return 1

    cdef int end(self, int i, size_t size, bint there) except -1:
        cdef Buffer ends = self.ends[i], known = self.there[i]
        (<int32_t *> ends.need(4))[0] = size
        ends.size += 4
        known.need(1)[0] = there
        known.size += 1
        return 0

    def columns(self):
        """The numbers, and of each column of texts which rows have one, as bits, where each begins, and the texts."""
        cdef Buffer one
        cdef list found = []
        for i in range(self.width):
            one = self.ends[i]
            begins = b"\0\0\0\0" + bytes_of(one)
            one = self.texts[i]
            found.append((bits_of(self.there[i]), begins, bytes_of(one)))
        return bytes_of(self.numbers), found


cdef bytes bytes_of(Buffer one):
    return PyBytes_FromStringAndSize(<char *> one.begin, one.size)


cdef bytes bits_of(Buffer flags):
    """The lowest bit first, as Arrow has them."""
    cdef bytes found = bytes((flags.size + 7) // 8)
    cdef uint8_t *o = <uint8_t *> PyBytes_AS_STRING(found)
    cdef size_t i
    for i in range(flags.size):
        o[i >> 3] |= flags.begin[i] << (i & 7)
    return found


cdef bint is_operand(Table row, int c, int check, int scale) noexcept:
    """Whether a value is the text that is cast, as maps/expressions/sparktext.py would leave it."""
    cdef const uint8_t *p = row.begins[c]
    cdef uint32_t n = row.sizes[c], whole = 0
    if row.kinds[c] != TEXT or not is_utf8(p, n):
        return False
    if check == FITS_DECIMAL:
        while whole < n and p[whole] != 46:
            whole += 1
        return whole <= DIGITS - scale and n <= whole + scale + 1
    return check != FITS_TIME or (0 < n <= MICROSECONDS and p[n - 1] != 67)


cdef class Results


cdef class Mapped:
    """What a MAP makes of a table's rows: results of evaluations and constants, behind the columns of the image."""

    cdef readonly int width
    cdef Results results
    cdef Asked insert, update, delete
    cdef tuple changes, constants
    cdef bint upserts, lenient
    cdef size_t size  # of what stands behind the image of the row at hand

    def __init__(self, Results results, changes, constants, insert, update, delete, *, bint upserts, bint lenient):
        """`changes`: what is done to each value of a result; `constants`: bytes, or None, behind them. `insert`,
        `update`, `delete`: an Asked, or None; `upserts`: an update may have let its row in;
        `lenient`: as the plan's.
        """
        self.results, self.changes, self.constants = results, tuple(changes), tuple(constants)
        self.width = len(self.changes) + len(self.constants)
        self.insert, self.update, self.delete = insert, update, delete
        self.upserts, self.lenient = upserts, lenient

    cdef int put_constants(self, Net net) except -1:
        cdef int at = net.width + len(self.changes)
        cdef bytes text
        for constant in self.constants:
            if constant is None:
                net.kinds[at] = NULL_VALUE
            else:
                text = constant
                net.kinds[at], net.begins[at] = TEXT, <const uint8_t *> PyBytes_AS_STRING(text)
                net.sizes[at] = PyBytes_GET_SIZE(text)
            at += 1
        return 0

    cdef int becomes(self, Net net, int op, int missing) except -1:
        """What a change is for the target's table, whose values are put in their places; 0: it is not done here."""
        cdef Asked asked = self.insert if op == _INSERT else self.update if op == _UPDATE else self.delete
        cdef int verdict = _PASSES, masked = 0
        if asked is None:
            return 0
        if asked.number >= 0 and missing:
            masked = asked.masked(net)
        if masked:
            return REMOVE if masked == asked.expressions and not asked.judges else 0
        if asked.number >= 0:
            verdict = self.results.take(net, self)
            if verdict < 0:
                return 0
        self.size = 0
        if verdict == _PASSES:
            for i in range(net.width, net.width + self.width):
                self.size += net.sizes[i] if net.kinds[i] == TEXT else 0
            return UPSERT if op == _UPDATE and self.upserts else op
        if op == _UPDATE and self.upserts and verdict != _OUT:
            return REMOVE
        return LEFT_OUT


cdef class Results:
    """Results as Arrow has them, one row after the other. `fetch()` gives (who holds the memory, how many rows, the
    verdicts' address, and of each column the addresses of its bits (0: all are there), of its begins, of its texts, and
    how long these are); None: there are no more.
    """

    cdef object fetch, held
    cdef Py_ssize_t at, count, columns
    cdef const int8_t *verdicts
    cdef const uint8_t *bits[WIDEST]
    cdef const int32_t *begins[WIDEST]
    cdef const uint8_t *texts[WIDEST]
    cdef int64_t sizes[WIDEST]

    def __init__(self, fetch, Py_ssize_t skip):
        """`skip`: so many rows are nobody's."""
        self.fetch, self.at = fetch, skip

    cdef bint more(self) except -1:
        cdef size_t verdicts, bits, begins, texts
        while self.at >= self.count:
            self.at -= self.count
            found = self.fetch()
            if found is None:
                self.at, self.count = 0, 0
                return False
            self.held, self.count, verdicts, columns = found
            self.verdicts, self.columns = <const int8_t *> verdicts, len(columns)
            if self.columns > WIDEST:
                raise ValueError(f"{self.columns} columns of results")
            for i, (bits, begins, texts, size) in enumerate(columns):
                self.bits[i], self.begins[i] = <const uint8_t *> bits, <const int32_t *> begins
                self.texts[i], self.sizes[i] = <const uint8_t *> texts, size
        return True

    cdef int take(self, Net net, Mapped mapped) except? -2:
        """The next row's verdict, its values put behind the image; -1: there is none, or not one that is done here."""
        cdef Py_ssize_t k, at
        cdef int verdict, place
        cdef int64_t begin, end
        if not self.more():
            return -1
        at = self.at
        self.at += 1
        verdict = self.verdicts[at]
        if verdict != _PASSES:
            return verdict
        if len(mapped.changes) > self.columns:
            return -1
        for k in range(len(mapped.changes)):
            place = net.width + k
            if self.bits[k] != NULL and not self.bits[k][at >> 3] >> (at & 7) & 1:
                net.kinds[place] = NULL_VALUE
                continue
            begin, end = self.begins[k][at], self.begins[k][at + 1]
            if not 0 <= begin <= end <= self.sizes[k]:
                return -1
            net.kinds[place], net.begins[place], net.sizes[place] = TEXT, self.texts[k] + begin, end - begin
            if mapped.changes[k] and not changed(net, place, mapped.changes[k]):
                return -1
        return verdict


cdef bint changed(Net net, int place, int how) noexcept:
    """A result as maps/expressions/sparktext.py makes it canonical text; False: it is not done here."""
    cdef const uint8_t *p = net.begins[place]
    cdef uint32_t n = net.sizes[place], i = 0
    if how == PLAIN_TIME:
        return n > 4 and p[0] != 43 and p[0] != 45 and not (p[0] == p[1] == p[2] == p[3] == 48)
    while i < n and p[i] != 46:
        i += 1
    if i < n:
        while p[n - 1] == 48:
            n -= 1
        net.sizes[place] = n - 1 if p[n - 1] == 46 else n
    return True


# --- blocks -----------------------------------------------------------------------------------------------------------


cdef class Taker:
    """Takes block after block. `nets`: by table id, in the order in which they were met; `xid`, `ends`: as in a Part."""

    cdef readonly dict nets
    cdef readonly str xid
    cdef readonly bint ends
    cdef object make
    cdef int64_t open_changes  # of the transaction that goes on; -1: not known

    def __init__(self, make, changes):
        """`make(id)` gives a Table, or None. `changes`: of the transaction that is open before; None: not known."""
        self.make, self.nets, self.xid = make, {}, ""
        self.open_changes = -1 if changes is None else changes

    def block(self, bytes raw, int indicator, int64_t changes, int64_t transactions):
        """Take a block of `changes` and `transactions`, as its header says; False: it is not one that is done here."""
        cdef Place s
        cdef Py_ssize_t count, i
        cdef list tables
        s.p, s.at, s.end = <const uint8_t *> PyBytes_AS_STRING(raw), 0, PyBytes_GET_SIZE(raw)
        if array(&s) != 2:
            return False
        tables = self.tables(&s)
        count = array(&s)
        if tables is None or count < 0:
            return False
        if count > 1 and not self.known(tables):
            return False
        for i in range(len(tables)):
            tables[i] = self.nets.get(tables[i], tables[i])
        return self.records(&s, count, tables, indicator, changes, transactions) and s.at == s.end

    cdef list tables(self, Place *s):
        cdef Py_ssize_t count = array(s), i
        cdef list found = []
        for i in range(count):
            if not has(s, 2 + _ID) or s.p[s.at] != 0xD8 or s.p[s.at + 1] != _EXT:
                return None
            found.append(PyBytes_FromStringAndSize(<char *> s.p + s.at + 2, _ID))
            s.at += 2 + _ID
        return None if count < 0 else found

    cdef bint known(self, list tables) except -1:
        """Each has a net."""
        for table in tables:
            if table not in self.nets:
                net = self.make(table)
                if net is None:
                    return False
                self.nets[table] = net
        return True

    cdef bint records(
        self, Place *s, Py_ssize_t count, list tables, int indicator, int64_t changes, int64_t transactions
    ) except -1:
        cdef Py_ssize_t i
        cdef int op = 0
        cdef int64_t said, here = 0, ended = 0, table, at_hand = -1
        cdef bint inside = indicator == _MIDDLE or indicator == _END
        cdef Table net = None
        if not inside and indicator != _WHOLE and indicator != _FIRST:
            return False
        for i in range(count):
            if not has(s, 3) or s.p[s.at] >> 4 != 9:
                return False
            op = s.p[s.at + 1]
            if s.p[s.at] & 15 != (3 if op == _INSERT or op == _DELETE else 2 if op == _COMMIT else 4):
                return False
            s.at += 2
            if op == _INSERT or op == _UPDATE or op == _DELETE:
                if not inside or not number(s, &table) or not 0 <= table < len(tables):
                    return False
                if table != at_hand:
                    if not isinstance(tables[table], Table) and not self.one(tables, table):
                        return False
                    net, at_hand = tables[table], table
                if not net.change(s, op):
                    return False
                if op == _UPDATE:
                    if not has(s, 1) or s.p[s.at] != 0xC0:
                        return False
                    s.at += 1
                here += 1
                if self.open_changes >= 0:
                    self.open_changes += 1
            elif op == _BEGIN:
                if inside or (indicator == _FIRST and i) or not self.begin(s):
                    return False
                inside, self.open_changes = True, 0
            elif op == _COMMIT:
                if not inside or indicator == _FIRST or (indicator == _END and i != count - 1) or not number(s, &said):
                    return False
                if self.open_changes >= 0 and said != self.open_changes:
                    return False
                ended += 1
                inside, self.open_changes = False, 0
            else:
                return False
        if count:
            self.ends = op == _COMMIT
        if inside != (indicator == _FIRST or indicator == _MIDDLE):
            return False
        return here == changes and ended == transactions

    cdef bint one(self, list tables, Py_ssize_t at) except -1:
        """Of a block with one record the table that it is of."""
        if not self.known([tables[at]]):
            return False
        tables[at] = self.nets[tables[at]]
        return True

    cdef bint begin(self, Place *s) except -1:
        cdef const uint8_t *p
        cdef uint32_t n
        cdef int64_t when
        if value(s, &p, &n) != TEXT or value(s, &p, &n) != TEXT or not number(s, &when):
            return False
        if not _EARLIEST <= when <= _LATEST:
            return False
        self.xid = (<char *> p)[:n].decode("utf-8", "surrogateescape")
        return True
