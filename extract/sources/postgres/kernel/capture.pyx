# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""pgoutput's messages straight to packed records, without a Python object a value: PackedRecords and PackedDecoder.

README.md beside this file has the rules. In short: what is usual is done here, byte for byte as the decoder in
pgoutput.py and msgpack would do it; all else, and all that is broken, goes to that decoder, which refuses it in its
own words. No length is trusted that was not held against the end of the message.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

import msgpack

from trails.position import Position
from trails.record import BEGIN, COMMIT, DELETE, INSERT, UPDATE
from trails.unpacking import EXT_BYTES

cdef extern from "string.h" nogil:
    void *memmem(const void *, size_t, const void *, size_t)

ctypedef int (*get_copy_t)(void *, char **, int) noexcept nogil
ctypedef void (*free_t)(void *) noexcept nogil

cdef int _BEGIN = BEGIN, _COMMIT = COMMIT, _INSERT = INSERT, _UPDATE = UPDATE, _DELETE = DELETE
cdef uint8_t _EXT = EXT_BYTES
cdef enum:
    WIDEST = 1664  # no table of PostgreSQL has more than 1600 columns
    HEADER = 25  # of an XLogData message: letter, two places, time
    KEEPALIVE = 18  # letter, place, time, whether an answer is wanted
cdef int64_t EPOCH_US = 946684800000000  # from 1970 to 2000
cdef int64_t LATEST_US = 1LL << 57  # before trails.format.TIMES end
cdef size_t KEPT = 4 << 20  # an empty buffer of more goes back to the system

cdef enum:  # what a column is
    BOOLEAN = 1
    BYTEA = 2
    KEY = 4
    IDENTITY = 8


cdef inline uint32_t u32(const uint8_t *p) noexcept nogil:
    return (<uint32_t> p[0] << 24) | (<uint32_t> p[1] << 16) | (<uint32_t> p[2] << 8) | p[3]


cdef inline uint64_t u64(const uint8_t *p) noexcept nogil:
    return (<uint64_t> u32(p) << 32) | u32(p + 4)


# --- msgpack's forms, as its packer chooses them ----------------------------------------------------------------------


cdef inline uint8_t *put_text(uint8_t *o, const uint8_t *p, uint32_t n) noexcept nogil:
    if n < 32:
        o[0] = 0xA0 | n
        o += 1
    elif n < 65536:
        o[0], o[1], o[2] = 0xDA, n >> 8, n & 255
        o += 3
    else:
        o[0], o[1], o[2], o[3], o[4] = 0xDB, n >> 24, n >> 16 & 255, n >> 8 & 255, n & 255
        o += 5
    memcpy(o, p, n)
    return o + n


cdef inline uint8_t *put_number(uint8_t *o, uint32_t n) noexcept nogil:
    if n < 128:
        o[0] = n
        return o + 1
    if n < 256:
        o[0], o[1] = 0xCC, n
        return o + 2
    if n < 65536:
        o[0], o[1], o[2] = 0xCD, n >> 8, n & 255
        return o + 3
    o[0], o[1], o[2], o[3], o[4] = 0xCE, n >> 24, n >> 16 & 255, n >> 8 & 255, n & 255
    return o + 5


cdef inline int hex_of(uint8_t c) noexcept nogil:
    if 48 <= c <= 57:
        return c - 48
    c |= 32
    return c - 87 if 97 <= c <= 102 else -1


cdef uint8_t *put_bytes(uint8_t *o, const uint8_t *p, uint32_t n) noexcept nogil:
    r"""The bytes of `\x...`; NULL where it is not that."""
    cdef uint32_t i, m
    cdef int high, low
    if n < 2 or n & 1 or p[0] != 92 or p[1] != 120:
        return NULL
    m = (n - 2) >> 1
    if m == 1 or m == 2 or m == 4 or m == 8 or m == 16:
        o[0] = 0xD4 if m == 1 else 0xD5 if m == 2 else 0xD6 if m == 4 else 0xD7 if m == 8 else 0xD8
        o += 1
    elif m < 256:
        o[0], o[1] = 0xC7, m
        o += 2
    elif m < 65536:
        o[0], o[1], o[2] = 0xC8, m >> 8, m & 255
        o += 3
    else:
        o[0], o[1], o[2], o[3], o[4] = 0xC9, m >> 24, m >> 16 & 255, m >> 8 & 255, m & 255
        o += 5
    o[0] = _EXT
    o += 1
    p += 2
    for i in range(m):
        high, low = hex_of(p[2 * i]), hex_of(p[2 * i + 1])
        if high < 0 or low < 0:
            return NULL
        o[i] = high << 4 | low
    return o + m


cdef bint is_formed(const uint8_t *p, uint32_t n, int mark) noexcept nogil:
    """Whether a column's text is one of its type, or empty."""
    cdef uint32_t i
    if not n:
        return True
    if mark & BOOLEAN:
        return n == 1 and (p[0] == c"t" or p[0] == c"f")
    if n < 2 or n & 1 or p[0] != 92 or p[1] != 120:
        return False
    for i in range(2, n):
        if hex_of(p[i]) < 0:
            return False
    return True


# --- records ----------------------------------------------------------------------------------------------------------


cdef class PackedRecords:
    """A list of records that holds them packed. What is taken out of it is unpacked: texts of rows as bytes."""

    cdef uint8_t *buf
    cdef size_t size, room
    cdef size_t *starts
    cdef Py_ssize_t count, slots
    cdef object packer

    def __cinit__(self, records=()):
        self.packer = msgpack.Packer(use_bin_type=False, unicode_errors="surrogateescape")
        for record in records:
            self.append(record)

    def __dealloc__(self):
        free(self.buf)
        free(self.starts)

    cdef int need(self, size_t more) except -1:
        """Room for so many bytes, and for a record."""
        cdef size_t room
        cdef void *found
        if self.size + more > self.room:
            room = self.size + more
            room += room // 4 + 65536
            found = realloc(self.buf, room)
            if found == NULL:
                raise MemoryError
            self.buf, self.room = <uint8_t *> found, room
        if self.count + 1 >= self.slots:
            found = realloc(self.starts, (2 * self.slots + 1024) * sizeof(size_t))
            if found == NULL:
                raise MemoryError
            self.starts, self.slots = <size_t *> found, 2 * self.slots + 1024
        return 0

    cdef inline void add(self, uint8_t *end) noexcept:
        """What was written behind the last record is one."""
        self.starts[self.count] = self.size
        self.count += 1
        self.size = end - self.buf

    cdef inline size_t start(self, Py_ssize_t at) noexcept:
        return self.starts[at] if at < self.count else self.size

    def append(self, record):
        cdef bytes packed = self.packer.pack(record)
        cdef size_t n = PyBytes_GET_SIZE(packed)
        self.need(n)
        memcpy(self.buf + self.size, PyBytes_AS_STRING(packed), n)
        self.add(self.buf + self.size + n)

    def __len__(self):
        return self.count

    def __iter__(self):
        cdef Py_ssize_t at = 0
        while at < self.count:
            yield self.record(at)
            at += 1

    cdef record(self, Py_ssize_t at):
        cdef size_t begin = self.starts[at]
        found = msgpack.unpackb(
            PyBytes_FromStringAndSize(<char *> self.buf + begin, self.start(at + 1) - begin), raw=True, use_list=False
        )
        if found[0] == _BEGIN:
            return (found[0], found[1].decode(), found[2].decode(), found[3])
        return found

    def __getitem__(self, where):
        """One record, or those of a slice as a list that is packed too."""
        cdef PackedRecords found
        cdef Py_ssize_t low, high, i
        if not isinstance(where, slice):
            low = where + self.count if where < 0 else where
            if not 0 <= low < self.count:
                raise IndexError(f"record {where} of {self.count}")
            return self.record(low)
        low, high, _ = where.indices(self.count)
        found = PackedRecords()
        if high > low:
            found.need(self.start(high) - self.starts[low])
            found.slots = high - low + 1
            free(found.starts)
            found.starts = <size_t *> malloc(found.slots * sizeof(size_t))
            if found.starts == NULL:
                raise MemoryError
            found.count, found.size = high - low, self.start(high) - self.starts[low]
            memcpy(found.buf, self.buf + self.starts[low], found.size)
            for i in range(low, high):
                found.starts[i - low] = self.starts[i] - self.starts[low]
        return found

    def __delitem__(self, where):
        """A slice from the first record on, or up to the last one."""
        cdef Py_ssize_t low, high, i
        cdef size_t upto
        low, high, _ = where.indices(self.count)
        if low >= high:
            return
        if high == self.count:
            self.size, self.count = self.starts[low], low
        elif low:
            raise IndexError(f"records {low} to {high} of {self.count}: expected those at the begin or at the end")
        else:
            upto = self.starts[high]
            memmove(self.buf, self.buf + upto, self.size - upto)
            for i in range(high, self.count):
                self.starts[i - high] = self.starts[i] - upto
            self.count -= high
            self.size -= upto
        if not self.count and self.room > KEPT:
            free(self.buf)
            self.buf, self.room = NULL, 0

    def __setitem__(self, where, records):
        """Others in place of all from a place on."""
        made = list(records)
        del self[where.start:]
        for record in made:
            self.append(record)

    def packed(self):
        """All of them, as msgpack packs a list of them."""
        cdef bytes head = msgpack.Packer().pack_array_header(self.count)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(head)
        cdef bytes out = PyBytes_FromStringAndSize(NULL, n + self.size)
        memcpy(PyBytes_AS_STRING(out), PyBytes_AS_STRING(head), n)
        if self.size:
            memcpy(PyBytes_AS_STRING(out) + n, self.buf, self.size)
        return out

    def tally(self):
        """{(op, table): how many}, of changes alone; a TRUNCATE's table is a tuple of tables."""
        cdef Py_ssize_t i
        cdef uint32_t found[5][128]
        cdef uint8_t op, table
        cdef dict counts = {}
        for op in range(5):
            for table in range(128):
                found[op][table] = 0
        for i in range(self.count):
            op, table = self.buf[self.starts[i] + 1], self.buf[self.starts[i] + 2]
            if _INSERT <= op <= _DELETE and table < 128:
                found[op][table] += 1
            elif op != _BEGIN and op != _COMMIT:
                record = self.record(i)
                counts[record[:2]] = counts.get(record[:2], 0) + 1
        for op in range(_INSERT, _DELETE + 1):
            for table in range(128):
                if found[op][table]:
                    counts[op, table] = found[op][table]
        return counts


# --- messages ---------------------------------------------------------------------------------------------------------


cdef class PackedDecoder:
    """In front of a Decoder, whose sink gathers in PackedRecords.

    `halt`: whoever gives the messages wants no further one decoded. `asked`: in the last gulp the server has asked for a
    status message. `taken`: how many messages were done here.

    `settle` brings decoder and sink up to what happened here, `enter` learns what they are at: each call of either, and
    whatever the sink's owner does, lies between the two.
    """

    cdef PackedRecords records
    cdef object decoder, sink, fix_bool, fix_bytea, unusual
    cdef dict cache
    cdef public bint halt
    cdef readonly bint asked
    cdef readonly long taken
    # The table at hand; 0 where there is none.
    cdef uint32_t oid
    cdef uint32_t number
    cdef int width
    cdef bint keyed
    cdef uint8_t marks[WIDEST]
    cdef const uint8_t *olds[WIDEST]
    cdef uint8_t divider[3]
    # The transaction that is open. `takes`: its rows are wanted. `told`: decoder and sink know of it.
    cdef bint is_open, takes, told
    cdef uint64_t final
    cdef uint32_t xid
    cdef int64_t begun_us
    cdef Py_ssize_t open_at
    # Whether a begin, or a commit, is nothing but to be noted.
    cdef bint begins, commits
    cdef uint64_t after
    # Of those that ended here, and are not told yet: how many, and the last one.
    cdef Py_ssize_t ended
    cdef uint64_t ended_final, ended_end
    cdef int64_t ended_us

    def __init__(self, records, decoder, sink, fixes, unusual):
        """`fixes`: (fix_bool, fix_bytea) of pgoutput.py. `unusual`: gives the error of a message of no known kind."""
        self.records, self.decoder, self.sink, self.unusual = records, decoder, sink, unusual
        self.fix_bool, self.fix_bytea = fixes
        self.cache = sink.cache
        self.after = decoder.after
        self.enter()

    cdef enter(self):
        self.oid = 0
        self.is_open = self.told = self.decoder.open
        self.takes, self.begins, self.commits = self.decoder.takes, self.decoder.begins_plainly, not self.sink.is_full

    cdef settle(self):
        if self.ended:
            self.sink.gathered(self.ended, Position(0, self.ended_end), text_of(self.ended_final), self.ended_us)
            self.decoder.passed(self.ended_final, self.xid, is_open=False)
            self.ended = 0
        if self.is_open and not self.told:
            self.told = True
            self.sink.opened(self.open_at, text_of(self.final), str(self.xid), self.begun_us)
            self.decoder.passed(self.final, self.xid, is_open=True)

    def decode(self, bytes data, Py_ssize_t at=0):
        """As Decoder.decode."""
        self.enter()
        if self.take(<const uint8_t *> PyBytes_AS_STRING(data), at, PyBytes_GET_SIZE(data)):
            self.taken += 1
            self.settle()
        else:
            self.hand_over(data, at)

    cdef hand_over(self, bytes data, Py_ssize_t at):
        self.settle()
        self.decoder.decode(data, at)
        self.enter()

    def gulp(self, size_t connection, size_t get_copy, size_t free_memory):
        """All messages that libpq has: (their bytes, its last answer, the last message's first bytes).

        The addresses are those of a PGconn, of PQgetCopyData and of PQfreemem.
        """
        cdef char *found = NULL
        cdef int n = 0, known = 0
        cdef Py_ssize_t size = 0
        cdef uint8_t last[HEADER]
        self.enter()
        self.asked = False
        try:
            while not self.halt:
                n = (<get_copy_t> get_copy)(<void *> connection, &found, 1)
                if n <= 0 or self.halt:
                    break
                size += n
                known = n if n < HEADER else HEADER
                memcpy(last, found, known)
                if found[0] == c"w" and n > HEADER and self.take(<const uint8_t *> found, HEADER, n):
                    self.taken += 1
                elif found[0] == c"w":
                    self.hand_over(found[:n], HEADER)
                elif found[0] == c"k" and n == KEEPALIVE:
                    self.asked = self.asked or found[n - 1] != 0
                else:
                    raise self.unusual(found[:n])
                (<free_t> free_memory)(found)
                found = NULL
        finally:
            if found != NULL:
                (<free_t> free_memory)(found)
            self.settle()
        return size, n, (<char *> last)[:known]

    # Transactions

    cdef int begin(self, const uint8_t *p, Py_ssize_t n) except -1:
        cdef uint8_t *o
        cdef int64_t us
        cdef uint64_t final
        cdef int i, size
        if n != 21 or self.is_open or not self.begins:
            return 0
        final, us = u64(p + 1), <int64_t> u64(p + 9)
        if final < self.after or not 0 <= us < LATEST_US:
            return 0
        us += EPOCH_US
        self.records.need(64)
        o = self.records.buf + self.records.size
        size = snprintf(<char *> o + 3, 32, b"%08X/%08X", <uint32_t> (final >> 32), <uint32_t> final)
        o[0], o[1], o[2] = 0x94, _BEGIN, 0xA0 | size
        o += 3 + size
        size = snprintf(<char *> o + 1, 16, b"%u", u32(p + 17))
        o[0] = 0xA0 | size
        o += 1 + size
        o[0] = 0xCF
        for i in range(8):
            o[1 + i] = <uint64_t> us >> (56 - 8 * i) & 255
        self.final, self.xid, self.begun_us, self.open_at = final, u32(p + 17), us, self.records.count
        self.records.add(o + 9)
        self.is_open, self.takes, self.told = True, True, False
        return 1

    cdef int commit(self, const uint8_t *p, Py_ssize_t n) except -1:
        cdef uint8_t *o
        cdef int64_t us
        cdef Py_ssize_t changes = self.records.count - self.open_at - 1
        if n != 26 or not self.is_open or self.told or not self.commits or not 0 < changes < 1 << 31:
            return 0
        us = <int64_t> u64(p + 18)
        if p[1] or u64(p + 2) != self.final or u64(p + 10) < self.final or not 0 <= us < LATEST_US:
            return 0
        self.records.need(16)
        o = self.records.buf + self.records.size
        o[0], o[1] = 0x92, _COMMIT
        self.records.add(put_number(o + 2, changes))
        self.ended += 1
        self.ended_final, self.ended_end, self.ended_us = self.final, u64(p + 10), us + EPOCH_US
        self.is_open = self.takes = False
        return 1

    # Rows

    cdef int take(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end) except -1:
        """Whether the message at `at` was done here."""
        cdef int kind
        cdef uint32_t oid
        if at >= end:
            return 0
        kind = p[at]
        if kind == c"B":
            return self.begin(p + at, end - at)
        if kind == c"C":
            return self.commit(p + at, end - at)
        if (kind != c"I" and kind != c"U" and kind != c"D") or end - at < 8 or not self.takes:
            return 0
        oid = u32(p + at + 1)
        if (oid != self.oid or not oid) and not self.look(oid):
            return 0
        if kind == c"D":
            return self.delete(p, at + 5, end)
        if p[at + 5] == c"N":
            return self.row(p, at + 6, end, _INSERT if kind == c"I" else _UPDATE, False)
        if p[at + 5] != c"O" or kind != c"U" or not self.keyed:
            return 0
        at = self.pass_old(p, at + 6, end)
        return at and self.row(p, at, end, _UPDATE, True)

    cdef int look(self, uint32_t oid) except -1:
        """Have the table at hand; 0: it is not one that is done here."""
        cdef int i
        self.oid = 0
        table = self.cache.get(oid)
        # The number of what is passed over is below 0; the seed table's is far above all others.
        if table is None or not 0 <= table.number < 65536 or table.width > WIDEST or table.befores:
            return 0
        self.number, self.width, self.keyed = table.number, table.width, len(table.key) > 0
        for i in range(self.width):
            self.marks[i] = IDENTITY if table.identity[i] else 0
        for i in table.key:
            self.marks[i] |= KEY
        for i, fix in table.fixes:
            if fix is not self.fix_bool and fix is not self.fix_bytea:
                return 0
            self.marks[i] |= BOOLEAN if fix is self.fix_bool else BYTEA
        self.divider[0], self.divider[1], self.divider[2] = c"N", self.width >> 8, self.width & 255
        self.oid = oid
        return 1

    cdef Py_ssize_t pass_old(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end) noexcept:
        """Note where the columns of the old row begin; where the new row begins, or 0."""
        cdef int i
        cdef Py_ssize_t begin = at
        if end - at < 2 or ((<int> p[at] << 8) | p[at + 1]) != self.width:
            return 0
        at += 2
        for i in range(self.width):
            if at >= end:
                return 0
            self.olds[i] = p + at
            if p[at] == c"t":
                if end - at < 5 or u32(p + at + 1) > <size_t> (end - at - 5):
                    return 0
                if self.marks[i] & (BOOLEAN | BYTEA) and not is_formed(p + at + 5, u32(p + at + 1), self.marks[i]):
                    return 0
                at += 5 + u32(p + at + 1)
            elif p[at] == c"n":
                at += 1
            else:
                return 0
        # The decoder finds the new row by its first bytes: where they are in the old one, it has the word.
        if at >= end or p[at] != c"N" or memmem(p + begin, at - begin, self.divider, 3) != NULL:
            return 0
        return at + 1

    cdef inline uint8_t *head(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int op) except? NULL:
        """The begin of a record, for a row that begins at `at`; NULL: not one of the table."""
        cdef uint8_t *o
        if end - at < 2 or ((<int> p[at] << 8) | p[at + 1]) != self.width:
            return NULL
        self.records.need(end + 64)
        o = self.records.buf + self.records.size
        o[0], o[1] = (0x94 if op == _UPDATE else 0x93), op
        o = put_number(o + 2, self.number)
        if self.width < 16:
            o[0] = 0x90 | self.width
            return o + 1
        o[0], o[1], o[2] = 0xDC, self.width >> 8, self.width & 255
        return o + 3

    cdef inline uint8_t *value(self, uint8_t *o, const uint8_t *p, uint32_t n, int mark) noexcept:
        """A column's text in its form; NULL: it is not of that form."""
        if n and mark & BOOLEAN:
            if n != 1 or (p[0] != c"t" and p[0] != c"f"):
                return NULL
            return put_text(o, <const uint8_t *> b"true", 4) if p[0] == c"t" else put_text(o, <const uint8_t *> b"false", 5)
        if n and mark & BYTEA:
            return put_bytes(o, p, n)
        return put_text(o, p, n)

    cdef int row(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int op, bint with_old) except -1:
        """A new row, which must end the message. With an old one its key must be as it was; what is left out is there."""
        cdef uint8_t *o = self.head(p, at, end, op)
        cdef const uint8_t *was
        cdef uint32_t n
        cdef int i, mark
        if o == NULL:
            return 0
        at += 2
        for i in range(self.width):
            if at >= end:
                return 0
            mark = self.marks[i]
            if p[at] == c"t":
                if end - at < 5:
                    return 0
                n = u32(p + at + 1)
                at += 5
                if n > <size_t> (end - at):
                    return 0
                if with_old and mark & KEY:
                    was = self.olds[i]
                    if was[0] != c"t" or u32(was + 1) != n or memcmp(was + 5, p + at, n):
                        return 0
                o = self.value(o, p + at, n, mark)
                if o == NULL:
                    return 0
                at += n
            elif p[at] == c"n" and not (with_old and mark & KEY):
                o[0] = 0xC0
                o += 1
                at += 1
            elif p[at] == c"u" and with_old:
                was = self.olds[i]  # a value out of line that stayed
                if was[0] == c"t":
                    o = self.value(o, was + 5, u32(was + 1), mark)
                    if o == NULL:
                        return 0
                else:
                    o[0] = 0xC0
                    o += 1
                at += 1
            else:
                return 0
        if at != end:
            return 0
        if op == _UPDATE:
            o[0] = 0xC0
            o += 1
        self.records.add(o)
        return 1

    cdef int delete(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end) except -1:
        """The old row, which must end the message: all of it, or its key alone."""
        cdef bint whole = p[at] == c"O"
        cdef uint8_t *o
        cdef uint32_t n
        cdef int i, mark
        if not whole and p[at] != c"K":
            return 0
        o = self.head(p, at + 1, end, _DELETE)
        if o == NULL:
            return 0
        at += 3
        for i in range(self.width):
            if at >= end or (p[at] != c"t" and p[at] != c"n"):
                return 0
            n = 0
            mark = self.marks[i]
            if p[at] == c"t":
                if end - at < 5 or u32(p + at + 1) > <size_t> (end - at - 5):
                    return 0
                n = 4 + u32(p + at + 1)
            if not whole and not mark & IDENTITY:
                o[0] = 0xC2  # MISSING: what stands there is no value
                o += 1
            elif n:
                o = self.value(o, p + at + 5, n - 4, mark)
                if o == NULL:
                    return 0
            else:
                o[0] = 0xC0
                o += 1
            at += 1 + n
        if at != end:
            return 0
        self.records.add(o)
        return 1


cdef str text_of(uint64_t lsn):
    """As pgoutput.lsn_text."""
    return "%08X/%08X" % (lsn >> 32, lsn & 0xFFFFFFFF)
