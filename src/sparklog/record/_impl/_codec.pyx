# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record codec over C memory: batches to Arrow buffers and back, without the GIL and without a Python object a record.

Reading. A cursor runs over the payload; each read is checked against the end of the record, and each record against
the end of the payload, so malformed bytes end in a status and never in a read past the end. Columns grow in malloc'd
memory (`bytes_t`), which `finish` hands over to Arrow through the buffer protocol. A batch that fails half-way is
rolled back.

Writing. A section is measured first (which also validates the columns' offsets), then written into a bytearray of
exactly the right size.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from sparklog.errors import CorruptRecord, LocalProtocolError, LogError
from sparklog.record._impl.abc import (
    BinaryBuffers,
    DecodedColumns,
    EncodedRecords,
    HeaderBuffers,
    Record,
)

cdef extern from *:
    """
    #define SPARKLOG_BITS(v) (64 - __builtin_clzll((v) | 1))
    """
    int SPARKLOG_BITS(uint64_t v) nogil


cdef enum:
    MIN_RECORD_SIZE = 7

cdef enum Status:
    OK = 0
    BAD_VARINT
    BAD_RECORD_LENGTH
    BAD_FIELD_LENGTH
    BAD_HEADER_COUNT
    HEADER_WITHOUT_KEY
    RECORD_NOT_FILLED
    TRAILING_BYTES
    OUT_OF_MEMORY
    COLUMN_FULL
    ROW_OUT_OF_RANGE
    BAD_COLUMN
    SECTION_FULL

_DECODE_MESSAGES = {
    BAD_VARINT: "a varint is too long, or runs past the end of its record",
    BAD_RECORD_LENGTH: "a record's length is negative or goes beyond the end of the batch",
    BAD_FIELD_LENGTH: "a key, value or header goes beyond the end of its record",
    BAD_HEADER_COUNT: "a record's header count is negative or more than it can hold",
    HEADER_WITHOUT_KEY: "a record header has no key",
    RECORD_NOT_FILLED: "a record is longer than its fields",
    TRAILING_BYTES: "bytes follow the last record",
}

_ENCODE_MESSAGES = {
    HEADER_WITHOUT_KEY: "a header has no key: Kafka does not allow that",
    ROW_OUT_OF_RANGE: "a row number to encode is not a row of the columns",
    BAD_COLUMN: "a column's offsets do not fit its data",
    SECTION_FULL: "a record would exceed 2 GiB",
}


cdef object _raise_decode(int status):
    if status == OUT_OF_MEMORY:
        raise MemoryError
    if status == COLUMN_FULL:
        raise LogError("a decoded column would exceed 2 GiB: call finish() more often")
    raise CorruptRecord(_DECODE_MESSAGES[status])


cdef object _raise_encode(int status):
    if status == OUT_OF_MEMORY:
        raise MemoryError
    raise LocalProtocolError(_ENCODE_MESSAGES[status])


# ---- memory that grows, and its handing over

cdef struct bytes_t:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity


cdef int _grow(bytes_t* b, Py_ssize_t extra) noexcept nogil:
    cdef Py_ssize_t wanted = b.size + extra
    cdef Py_ssize_t capacity = b.capacity + (b.capacity >> 1) + 64
    cdef uint8_t* data
    if capacity < wanted:
        capacity = wanted
    data = <uint8_t*>realloc(b.data, capacity)
    if data == NULL:
        return OUT_OF_MEMORY
    b.data = data
    b.capacity = capacity
    return OK


cdef inline int _reserve(bytes_t* b, Py_ssize_t extra) noexcept nogil:
    if b.size + extra <= b.capacity:
        return OK
    return _grow(b, extra)


cdef class Memory:
    """Read-only malloc'd memory behind the buffer protocol; freed with the last view of it."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __cinit__(self):
        self.data = NULL
        self.size = 0

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef Memory _hand_over(bytes_t* b):
    cdef Memory memory = Memory.__new__(Memory)
    memory.data = b.data if b.data != NULL else <uint8_t*>malloc(1)
    memory.size = b.size
    b.data = NULL
    b.size = 0
    b.capacity = 0
    return memory


cdef struct binary_t:
    bytes_t offsets
    bytes_t data
    bytes_t validity
    Py_ssize_t rows
    Py_ssize_t nulls


cdef int _reserve_rows(binary_t* c, Py_ssize_t extra) noexcept nogil:
    """Room for ``extra`` more rows. Bits of the validity beyond ``rows`` are always 1: appending clears, never sets."""
    cdef Py_ssize_t bitmap = (c.rows + extra + 7) >> 3
    c.offsets.size = 4 * c.rows
    if _reserve(&c.offsets, 4 * (extra + 1)):
        return OUT_OF_MEMORY
    if c.rows == 0:
        (<int32_t*>c.offsets.data)[0] = 0
    if bitmap > c.validity.size:
        if _reserve(&c.validity, bitmap - c.validity.size):
            return OUT_OF_MEMORY
        memset(c.validity.data + c.validity.size, 0xFF, bitmap - c.validity.size)
        c.validity.size = bitmap
    return OK


cdef inline int _append(binary_t* c, const uint8_t* p, int32_t length) noexcept nogil:
    """One more row, null where ``length`` is negative; its row must have been reserved."""
    if length < 0:
        c.validity.data[c.rows >> 3] &= ~(1 << (c.rows & 7))
        c.nulls += 1
    elif length > 0:
        if c.data.size + length > INT32_MAX:
            return COLUMN_FULL
        if c.data.size + length > c.data.capacity and _grow(&c.data, length):
            return OUT_OF_MEMORY
        memcpy(c.data.data + c.data.size, p, length)
        c.data.size += length
    c.rows += 1
    (<int32_t*>c.offsets.data)[c.rows] = <int32_t>c.data.size
    return OK


cdef void _truncate(binary_t* c, Py_ssize_t rows, Py_ssize_t nulls) noexcept nogil:
    """Back to the first ``rows`` rows."""
    if rows < c.rows:
        c.validity.data[rows >> 3] |= <uint8_t>(0xFF << (rows & 7))
        memset(c.validity.data + (rows >> 3) + 1, 0xFF, c.validity.size - (rows >> 3) - 1)
        c.rows = rows
        c.nulls = nulls
        c.data.size = (<int32_t*>c.offsets.data)[rows]


cdef object _finish_binary(binary_t* c):
    if _reserve_rows(c, 0):
        raise MemoryError
    cdef Py_ssize_t rows = c.rows
    cdef Py_ssize_t nulls = c.nulls
    c.offsets.size = (rows + 1) * 4
    c.validity.size = (rows + 7) >> 3
    cdef object validity = None
    if nulls:
        validity = _hand_over(&c.validity)
    else:
        c.validity.size = 0
    c.rows = 0
    c.nulls = 0
    return BinaryBuffers(rows, nulls, validity, _hand_over(&c.offsets), _hand_over(&c.data))


cdef void _free_binary(binary_t* c) noexcept nogil:
    free(c.offsets.data)
    free(c.data.data)
    free(c.validity.data)


cdef inline Py_ssize_t _binary_size(binary_t* c) noexcept nogil:
    return c.data.size + 4 * c.rows


# ---- reading

cdef const uint8_t* _read_long_varint(const uint8_t* p, const uint8_t* end, int max_size, uint64_t* raw) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(max_size):
        if p >= end:
            return NULL
        value |= <uint64_t>(p[0] & 0x7F) << (7 * i)
        p += 1
        if p[-1] < 0x80:
            raw[0] = value
            return p
    return NULL


cdef inline const uint8_t* _read_varint(const uint8_t* p, const uint8_t* end, int32_t* value) noexcept nogil:
    """The position after the varint, NULL where there is none before ``end``."""
    cdef uint64_t raw
    cdef uint32_t low
    if p < end and p[0] < 0x80:
        value[0] = <int32_t>(p[0] >> 1) ^ -<int32_t>(p[0] & 1)
        return p + 1
    if end - p >= 2 and p[1] < 0x80:
        low = <uint32_t>(p[0] & 0x7F) | (<uint32_t>p[1] << 7)
        value[0] = <int32_t>(low >> 1) ^ -<int32_t>(low & 1)
        return p + 2
    p = _read_long_varint(p, end, 5, &raw)
    if p != NULL:
        low = <uint32_t>raw
        value[0] = <int32_t>(low >> 1) ^ -<int32_t>(low & 1)
    return p


cdef inline const uint8_t* _read_varlong(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept nogil:
    cdef uint64_t raw
    if p < end and p[0] < 0x80:
        value[0] = <int64_t>(p[0] >> 1) ^ -<int64_t>(p[0] & 1)
        return p + 1
    p = _read_long_varint(p, end, 10, &raw)
    if p != NULL:
        value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return p


cdef struct batch_t:
    Py_ssize_t count
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    bint has_append_time


cdef struct record_t:
    # Where the record ends, and what its prefix says.
    const uint8_t* end
    int64_t offset
    int64_t timestamp


cdef struct field_t:
    # A key or value: its first byte and its length, negative for null.
    const uint8_t* data
    int32_t length


cdef inline int _read_prefix(const uint8_t** cursor, const uint8_t* end, batch_t* batch, record_t* record) noexcept nogil:
    """Read up to the offset delta, leaving the cursor at the key's length."""
    cdef const uint8_t* p = cursor[0]
    cdef int32_t length, offset_delta
    cdef int64_t timestamp_delta
    p = _read_varint(p, end, &length)
    if p == NULL:
        return BAD_VARINT
    if length < 0 or length > end - p:
        return BAD_RECORD_LENGTH
    record.end = end = p + length
    if length == 0:
        return BAD_VARINT
    p = _read_varlong(p + 1, end, &timestamp_delta)
    if p == NULL:
        return BAD_VARINT
    p = _read_varint(p, end, &offset_delta)
    if p == NULL:
        return BAD_VARINT
    if batch.has_append_time:
        record.timestamp = batch.append_time
    else:
        record.timestamp = <int64_t>(<uint64_t>batch.base_timestamp + <uint64_t>timestamp_delta)
    record.offset = <int64_t>(<uint64_t>batch.base_offset + <uint64_t><int64_t>offset_delta)
    cursor[0] = p
    return OK


cdef inline int _read_field(const uint8_t** cursor, const uint8_t* end, field_t* field) noexcept nogil:
    cdef const uint8_t* p = _read_varint(cursor[0], end, &field.length)
    if p == NULL:
        return BAD_VARINT
    if field.length > end - p:
        return BAD_FIELD_LENGTH
    field.data = p
    cursor[0] = p + field.length if field.length > 0 else p
    return OK


cdef inline int _read_header_count(const uint8_t** cursor, const uint8_t* end, int32_t* count) noexcept nogil:
    cdef const uint8_t* p = _read_varint(cursor[0], end, count)
    if p == NULL:
        return BAD_VARINT
    if count[0] < 0 or count[0] > end - p:
        return BAD_HEADER_COUNT
    cursor[0] = p
    return OK


cdef inline int _read_header(const uint8_t** cursor, const uint8_t* end, field_t* key, field_t* value) noexcept nogil:
    cdef int status = _read_field(cursor, end, key)
    if status:
        return status
    if key.length < 0:
        return HEADER_WITHOUT_KEY
    return _read_field(cursor, end, value)


cdef inline bint _is_ascii(const uint8_t* p, int32_t length) noexcept nogil:
    cdef int32_t i
    for i in range(length):
        if p[i] >= 0x80:
            return False
    return True


cdef class RecordDecoder:
    """See ``abc.RecordDecoder``."""

    cdef readonly Py_ssize_t rows
    cdef bint wants_key, wants_value, wants_headers, wants_offset, wants_timestamp, wants_timestamp_type
    cdef int64_t scale, least_timestamp, greatest_timestamp
    cdef binary_t key, value, header_keys, header_values
    cdef bytes_t header_offsets, header_validity
    cdef Py_ssize_t header_nulls
    cdef bytes_t offset, timestamp, timestamp_type

    def __cinit__(self, columns, timestamp_scale):
        memset(&self.key, 0, sizeof(binary_t))
        memset(&self.value, 0, sizeof(binary_t))
        memset(&self.header_keys, 0, sizeof(binary_t))
        memset(&self.header_values, 0, sizeof(binary_t))
        self.rows = 0
        self.header_nulls = 0
        self.wants_key = "key" in columns
        self.wants_value = "value" in columns
        self.wants_headers = "headers" in columns
        self.wants_offset = "offset" in columns
        self.wants_timestamp = "timestamp" in columns
        self.wants_timestamp_type = "timestamp_type" in columns
        self.scale = timestamp_scale
        self.least_timestamp = INT64_MIN // self.scale
        self.greatest_timestamp = INT64_MAX // self.scale

    def __dealloc__(self):
        _free_binary(&self.key)
        _free_binary(&self.value)
        _free_binary(&self.header_keys)
        _free_binary(&self.header_values)
        free(self.header_offsets.data)
        free(self.header_validity.data)
        free(self.offset.data)
        free(self.timestamp.data)
        free(self.timestamp_type.data)

    @property
    def nbytes(self):
        return (
            _binary_size(&self.key)
            + _binary_size(&self.value)
            + _binary_size(&self.header_keys)
            + _binary_size(&self.header_values)
            + (4 * self.rows if self.wants_headers else 0)
            + self.offset.size
            + self.timestamp.size
            + self.timestamp_type.size
        )

    def append(self, payload, fields, int64_t start_offset, int64_t end_offset):
        cdef Py_buffer view
        cdef batch_t batch
        cdef int status
        cdef Py_ssize_t before = self.rows
        cdef Py_ssize_t keys = self.header_keys.rows
        cdef Py_ssize_t[5] nulls
        _fill_batch(&batch, fields)
        nulls[0], nulls[1], nulls[2] = self.key.nulls, self.value.nulls, self.header_keys.nulls
        nulls[3], nulls[4] = self.header_values.nulls, self.header_nulls
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            _check_count(batch.count, view.len)
            with nogil:
                status = self.reserve(batch.count)
                if not status:
                    status = self.read(<const uint8_t*>view.buf, view.len, &batch, start_offset, end_offset)
                if status:
                    self.roll_back(before, keys, nulls)
        finally:
            PyBuffer_Release(&view)
        if status:
            _raise_decode(status)
        return self.rows - before

    cdef int reserve(self, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t bitmap = (self.rows + count + 7) >> 3
        if self.wants_key and _reserve_rows(&self.key, count):
            return OUT_OF_MEMORY
        if self.wants_value and _reserve_rows(&self.value, count):
            return OUT_OF_MEMORY
        if self.wants_offset and _reserve(&self.offset, 8 * count):
            return OUT_OF_MEMORY
        if self.wants_timestamp and _reserve(&self.timestamp, 8 * count):
            return OUT_OF_MEMORY
        if self.wants_timestamp_type and _reserve(&self.timestamp_type, 4 * count):
            return OUT_OF_MEMORY
        if self.wants_headers:
            self.header_offsets.size = 4 * self.rows
            if _reserve(&self.header_offsets, 4 * (count + 1)):
                return OUT_OF_MEMORY
            if bitmap > self.header_validity.size:
                if _reserve(&self.header_validity, bitmap - self.header_validity.size):
                    return OUT_OF_MEMORY
                memset(self.header_validity.data + self.header_validity.size, 0xFF, bitmap - self.header_validity.size)
                self.header_validity.size = bitmap
        return OK

    cdef void roll_back(self, Py_ssize_t rows, Py_ssize_t keys, Py_ssize_t* nulls) noexcept nogil:
        cdef Py_ssize_t byte = rows >> 3
        _truncate(&self.key, rows, nulls[0])
        _truncate(&self.value, rows, nulls[1])
        _truncate(&self.header_keys, keys, nulls[2])
        _truncate(&self.header_values, keys, nulls[3])
        self.header_nulls = nulls[4]
        if self.header_validity.size > byte:
            self.header_validity.data[byte] |= <uint8_t>(0xFF << (rows & 7))
            memset(self.header_validity.data + byte + 1, 0xFF, self.header_validity.size - byte - 1)
        if self.wants_offset:
            self.offset.size = 8 * rows
        if self.wants_timestamp:
            self.timestamp.size = 8 * rows
        if self.wants_timestamp_type:
            self.timestamp_type.size = 4 * rows
        self.rows = rows

    cdef int read(
        self, const uint8_t* p, Py_ssize_t size, batch_t* batch, int64_t start_offset, int64_t end_offset
    ) noexcept nogil:
        cdef const uint8_t* end = p + size
        cdef record_t record
        cdef int status
        cdef Py_ssize_t i
        for i in range(batch.count):
            status = _read_prefix(&p, end, batch, &record)
            if status:
                return status
            if start_offset <= record.offset < end_offset:
                status = self.read_body(&p, record.end)
                if status:
                    return status
                self.add_numbers(&record, batch.has_append_time)
            p = record.end
        return OK if p == end or batch.count == 0 else TRAILING_BYTES

    cdef inline int read_body(self, const uint8_t** p, const uint8_t* end) noexcept nogil:
        cdef field_t key, value
        cdef int32_t headers
        cdef int status = _read_field(p, end, &key)
        if status:
            return status
        status = _read_field(p, end, &value)
        if status:
            return status
        status = _read_header_count(p, end, &headers)
        if status:
            return status
        if headers or self.wants_headers:
            status = self.read_headers(p, end, headers)
            if status:
                return status
        if p[0] != end:
            return RECORD_NOT_FILLED
        if self.wants_key:
            status = _append(&self.key, key.data, key.length)
            if status:
                return status
        if self.wants_value:
            status = _append(&self.value, value.data, value.length)
        return status

    cdef int read_headers(self, const uint8_t** p, const uint8_t* end, int32_t count) noexcept nogil:
        cdef field_t key, value
        cdef int status
        cdef int32_t i
        if self.wants_headers:
            if _reserve_rows(&self.header_keys, count) or _reserve_rows(&self.header_values, count):
                return OUT_OF_MEMORY
            if count == 0:
                self.header_validity.data[self.rows >> 3] &= ~(1 << (self.rows & 7))
                self.header_nulls += 1
            (<int32_t*>self.header_offsets.data)[self.rows] = <int32_t>self.header_keys.rows
            if self.header_keys.rows + count > INT32_MAX:
                return COLUMN_FULL
        for i in range(count):
            status = _read_header(p, end, &key, &value)
            if status:
                return status
            if self.wants_headers:
                status = self.add_header(&key, &value)
                if status:
                    return status
        return OK

    cdef int add_header(self, field_t* key, field_t* value) noexcept nogil:
        cdef int status
        if _is_ascii(key.data, key.length):
            status = _append(&self.header_keys, key.data, key.length)
        else:
            with gil:
                status = self.add_repaired_key(key)
        if status:
            return status
        return _append(&self.header_values, value.data, value.length)

    cdef int add_repaired_key(self, field_t* key) noexcept:
        """Arrow strings are valid UTF-8, header keys need not be."""
        cdef bytes text
        try:
            text = PyUnicode_DecodeUTF8(<const char*>key.data, key.length, "replace").encode()
        except MemoryError:
            return OUT_OF_MEMORY
        return _append(&self.header_keys, <const uint8_t*><const char*>text, <int32_t>len(text))

    cdef inline void add_numbers(self, record_t* record, bint append_time) noexcept nogil:
        cdef int64_t timestamp = record.timestamp
        if self.wants_offset:
            (<int64_t*>(self.offset.data + self.offset.size))[0] = record.offset
            self.offset.size += 8
        if self.wants_timestamp:
            if timestamp > self.greatest_timestamp:
                timestamp = INT64_MAX
            elif timestamp < self.least_timestamp:
                timestamp = INT64_MIN
            else:
                timestamp *= self.scale
            (<int64_t*>(self.timestamp.data + self.timestamp.size))[0] = timestamp
            self.timestamp.size += 8
        if self.wants_timestamp_type:
            (<int32_t*>(self.timestamp_type.data + self.timestamp_type.size))[0] = append_time
            self.timestamp_type.size += 4
        self.rows += 1

    def finish(self):
        cdef Py_ssize_t rows = self.rows
        headers = self.finish_headers() if self.wants_headers else None
        self.rows = 0
        return DecodedColumns(
            rows,
            _finish_binary(&self.key) if self.wants_key else None,
            _finish_binary(&self.value) if self.wants_value else None,
            headers,
            _hand_over(&self.offset) if self.wants_offset else None,
            _hand_over(&self.timestamp) if self.wants_timestamp else None,
            _hand_over(&self.timestamp_type) if self.wants_timestamp_type else None,
        )

    cdef object finish_headers(self):
        cdef Py_ssize_t nulls = self.header_nulls
        if self.reserve(0):
            raise MemoryError
        (<int32_t*>self.header_offsets.data)[self.rows] = <int32_t>self.header_keys.rows
        self.header_offsets.size = 4 * (self.rows + 1)
        cdef object validity = None
        if nulls:
            self.header_validity.size = (self.rows + 7) >> 3
            validity = _hand_over(&self.header_validity)
        self.header_validity.size = 0
        self.header_nulls = 0
        return HeaderBuffers(
            self.rows,
            nulls,
            validity,
            _hand_over(&self.header_offsets),
            _finish_binary(&self.header_keys),
            _finish_binary(&self.header_values),
        )


cdef int _fill_batch(batch_t* batch, fields) except -1:
    count, base_offset, base_timestamp, append_time = fields
    batch.count = count
    batch.base_offset = base_offset
    batch.base_timestamp = base_timestamp
    batch.has_append_time = append_time is not None
    batch.append_time = append_time if append_time is not None else 0
    return 0


cdef int _check_count(Py_ssize_t count, Py_ssize_t size) except -1:
    if count < 0 or count > size // MIN_RECORD_SIZE:
        raise CorruptRecord(f"record batch claims {count} records in {size} bytes")
    return 0


# ---- reading into Python objects

def read_records(payload, count, base_offset, base_timestamp, append_time):
    cdef Py_buffer view
    cdef batch_t batch
    _fill_batch(&batch, (count, base_offset, base_timestamp, append_time))
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        _check_count(batch.count, view.len)
        return _read_objects(<const uint8_t*>view.buf, view.len, &batch)
    finally:
        PyBuffer_Release(&view)


cdef list _read_objects(const uint8_t* p, Py_ssize_t size, batch_t* batch):
    cdef const uint8_t* end = p + size
    cdef record_t record
    cdef field_t key, value
    cdef int32_t headers
    cdef Py_ssize_t i
    cdef list records = []
    memset(&record, 0, sizeof(record_t))
    memset(&key, 0, sizeof(field_t))
    memset(&value, 0, sizeof(field_t))
    headers = 0
    for i in range(batch.count):
        _check(_read_prefix(&p, end, batch, &record))
        _check(_read_field(&p, record.end, &key))
        _check(_read_field(&p, record.end, &value))
        _check(_read_header_count(&p, record.end, &headers))
        pairs = _header_objects(&p, record.end, headers) if headers else ()
        if p != record.end:
            _raise_decode(RECORD_NOT_FILLED)
        records.append(Record(record.offset, record.timestamp, _field_object(&key), _field_object(&value), pairs))
    if batch.count and p != end:
        _raise_decode(TRAILING_BYTES)
    return records


cdef tuple _header_objects(const uint8_t** p, const uint8_t* end, int32_t count):
    cdef field_t key, value
    cdef list pairs = []
    cdef int32_t i
    memset(&key, 0, sizeof(field_t))
    memset(&value, 0, sizeof(field_t))
    for i in range(count):
        _check(_read_header(p, end, &key, &value))
        text = PyUnicode_DecodeUTF8(<const char*>key.data, key.length, "replace")
        pairs.append((text, _field_object(&value)))
    return tuple(pairs)


cdef inline object _field_object(field_t* field):
    if field.length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>field.data, field.length)


cdef inline int _check(int status) except -1:
    if status:
        _raise_decode(status)
    return 0


# ---- writing

cdef inline uint64_t _zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t _varint_size(int64_t value) noexcept nogil:
    return (SPARKLOG_BITS(_zigzag(value)) + 6) // 7


cdef inline uint8_t* _write_varint(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint64_t raw = _zigzag(value)
    while raw > 0x7F:
        p[0] = <uint8_t>(raw | 0x80)
        p += 1
        raw >>= 7
    p[0] = <uint8_t>raw
    return p + 1


cdef inline Py_ssize_t _field_size(Py_ssize_t length) noexcept nogil:
    """Bytes of a field, its length included; a negative length is null."""
    return 1 if length < 0 else _varint_size(length) + length


cdef inline uint8_t* _write_field(uint8_t* p, const uint8_t* data, Py_ssize_t length) noexcept nogil:
    if length < 0:
        p[0] = 1
        return p + 1
    p = _write_varint(p, length)
    memcpy(p, data, length)
    return p + length


cdef class _Borrowed:
    """The buffers of one column, held for as long as this lives."""

    cdef Py_buffer[3] views
    cdef int held

    def __cinit__(self):
        self.held = 0

    def __dealloc__(self):
        cdef int i
        for i in range(self.held):
            PyBuffer_Release(&self.views[i])

    cdef Py_buffer* borrow(self, source) except NULL:
        cdef Py_buffer* view = &self.views[self.held]
        PyObject_GetBuffer(source, view, PyBUF_SIMPLE)
        self.held += 1
        return view


cdef struct source_t:
    const uint8_t* validity
    const int32_t* offsets
    const uint8_t* data
    Py_ssize_t data_size
    Py_ssize_t shift
    Py_ssize_t length
    bint present


cdef _Borrowed _open_offsets(source_t* source, column):
    """Validity and offsets of ``column``, checked to be long enough for its rows."""
    cdef _Borrowed held = _Borrowed()
    cdef Py_buffer* view
    memset(source, 0, sizeof(source_t))
    source.length = column.length
    source.shift = column.offset
    source.present = True
    cdef Py_ssize_t rows = source.length + source.shift
    if source.length < 0 or source.shift < 0:
        _raise_encode(BAD_COLUMN)
    view = held.borrow(column.offsets)
    if source.length and view.len < 4 * (rows + 1):
        _raise_encode(BAD_COLUMN)
    source.offsets = <const int32_t*>view.buf
    if column.validity is not None:
        view = held.borrow(column.validity)
        if view.len < (rows + 7) >> 3:
            _raise_encode(BAD_COLUMN)
        source.validity = <const uint8_t*>view.buf
    return held


cdef _Borrowed _open_binary(source_t* source, column):
    if column is None:
        memset(source, 0, sizeof(source_t))
        return None
    cdef _Borrowed held = _open_offsets(source, column)
    cdef Py_buffer* view = held.borrow(column.data)
    source.data = <const uint8_t*>view.buf
    source.data_size = view.len
    return held


cdef inline int _get(source_t* source, Py_ssize_t row, field_t* field) noexcept nogil:
    """The value of ``row``, which must be one of the column's rows."""
    cdef int32_t start, end
    if not source.present:
        field.length = -1
        return OK
    row += source.shift
    if source.validity != NULL and not (source.validity[row >> 3] >> (row & 7)) & 1:
        field.length = -1
        return OK
    start = source.offsets[row]
    end = source.offsets[row + 1]
    if start < 0 or end < start or end > source.data_size:
        return BAD_COLUMN
    field.data = source.data + start
    field.length = end - start
    return OK


cdef inline int _list_bounds(source_t* source, Py_ssize_t row, Py_ssize_t elements, int32_t* start, int32_t* end) noexcept nogil:
    start[0] = end[0] = 0
    if not source.present:
        return OK
    row += source.shift
    if source.validity != NULL and not (source.validity[row >> 3] >> (row & 7)) & 1:
        return OK
    start[0] = source.offsets[row]
    end[0] = source.offsets[row + 1]
    if start[0] < 0 or end[0] < start[0] or end[0] > elements:
        return BAD_COLUMN
    return OK


cdef class RecordEncoder:
    """See ``abc.RecordEncoder``."""

    cdef list held
    cdef source_t key, value, headers, header_keys, header_values
    cdef _Borrowed numbers
    cdef const int64_t* timestamps
    cdef const int32_t* rows
    cdef int64_t now_ms
    cdef Py_ssize_t length, count, position
    cdef bytes_t sizes

    def __cinit__(self, columns, rows):
        self.length = columns.length
        self.now_ms = columns.now_ms
        self.position = 0
        self.held = [_open_binary(&self.key, columns.key), _open_binary(&self.value, columns.value)]
        self.open_headers(columns.headers)
        self.open_numbers(columns.timestamps, rows)
        for column in (columns.key, columns.value, columns.headers):
            if column is not None and column.length != self.length:
                _raise_encode(BAD_COLUMN)

    def __dealloc__(self):
        free(self.sizes.data)

    cdef int open_headers(self, headers) except -1:
        if headers is None:
            memset(&self.headers, 0, sizeof(source_t))
            return 0
        self.held.append(_open_offsets(&self.headers, headers))
        self.held.append(_open_binary(&self.header_keys, headers.keys))
        self.held.append(_open_binary(&self.header_values, headers.values))
        if self.header_keys.length != self.header_values.length:
            _raise_encode(BAD_COLUMN)
        return 0

    cdef int open_numbers(self, timestamps, rows) except -1:
        cdef Py_buffer* view
        self.numbers = _Borrowed()
        self.count = self.length
        if timestamps is not None:
            view = self.numbers.borrow(timestamps)
            if view.len < 8 * self.length:
                _raise_encode(BAD_COLUMN)
            self.timestamps = <const int64_t*>view.buf
        if rows is not None:
            view = self.numbers.borrow(rows)
            self.rows = <const int32_t*>view.buf
            self.count = view.len // 4
        return 0

    def next_section(self, Py_ssize_t max_bytes, Py_ssize_t room):
        cdef Py_ssize_t first = self.position
        cdef Py_ssize_t size = 0
        cdef int64_t base_timestamp = 0
        cdef int64_t max_timestamp = 0
        cdef int status
        cdef uint8_t* p
        if first >= self.count:
            return None
        with nogil:
            status = self.measure(min(max_bytes, INT32_MAX - room), &size, &base_timestamp, &max_timestamp)
        if status:
            self.position = first
            _raise_encode(status)
        out = PyByteArray_FromStringAndSize(NULL, room + size)
        p = <uint8_t*>PyByteArray_AS_STRING(out)
        with nogil:
            memset(p, 0, room)
            self.write(p + room, first, base_timestamp)
        return EncodedRecords(out, self.position - first, base_timestamp, max_timestamp)

    cdef inline int row_at(self, Py_ssize_t position, Py_ssize_t* row) noexcept nogil:
        row[0] = self.rows[position] if self.rows != NULL else position
        return OK if 0 <= row[0] < self.length else ROW_OUT_OF_RANGE

    cdef inline int64_t timestamp_of(self, Py_ssize_t row) noexcept nogil:
        return self.timestamps[row] if self.timestamps != NULL else self.now_ms

    cdef int measure(self, Py_ssize_t max_bytes, Py_ssize_t* size, int64_t* base, int64_t* greatest) noexcept nogil:
        """Move ``position`` past the records that fit, and keep the length of each in ``sizes``."""
        cdef Py_ssize_t first = self.position
        cdef Py_ssize_t row, body
        cdef int64_t timestamp
        cdef int status
        self.sizes.size = 0
        while self.position < self.count:
            status = self.row_at(self.position, &row)
            if status:
                return status
            timestamp = self.timestamp_of(row)
            if self.position == first:
                base[0] = greatest[0] = timestamp
            status = self.measure_row(row, &body)
            if status:
                return status
            body += 1 + _varint_size(<int64_t>(<uint64_t>timestamp - <uint64_t>base[0]))
            body += _varint_size(self.position - first)
            if self.position != first and size[0] + _varint_size(body) + body > max_bytes:
                return OK
            size[0] += _varint_size(body) + body
            if size[0] > INT32_MAX - 64:
                return SECTION_FULL
            if _reserve(&self.sizes, 4):
                return OUT_OF_MEMORY
            (<int32_t*>(self.sizes.data + self.sizes.size))[0] = <int32_t>body
            self.sizes.size += 4
            greatest[0] = max(greatest[0], timestamp)
            self.position += 1
        return OK

    cdef inline int measure_row(self, Py_ssize_t row, Py_ssize_t* size) noexcept nogil:
        """Bytes of key, value and headers."""
        cdef field_t key, value
        cdef int status = _get(&self.key, row, &key)
        if status:
            return status
        status = _get(&self.value, row, &value)
        if status:
            return status
        size[0] = _field_size(key.length) + _field_size(value.length)
        if not self.headers.present:
            size[0] += 1
            return OK
        return self.measure_headers(row, size)

    cdef int measure_headers(self, Py_ssize_t row, Py_ssize_t* size) noexcept nogil:
        cdef int32_t start, end, element
        cdef field_t key, value
        cdef int status = _list_bounds(&self.headers, row, self.header_keys.length, &start, &end)
        if status:
            return status
        size[0] += _varint_size(end - start)
        for element in range(start, end):
            status = _get(&self.header_keys, element, &key)
            if not status:
                status = _get(&self.header_values, element, &value)
            if not status and key.length < 0:
                status = HEADER_WITHOUT_KEY
            if status:
                return status
            size[0] += _field_size(key.length) + _field_size(value.length)
        return OK

    cdef void write(self, uint8_t* p, Py_ssize_t first, int64_t base) noexcept nogil:
        """Write what ``measure`` measured, and found to be sound."""
        cdef Py_ssize_t position, row
        cdef field_t field
        for position in range(first, self.position):
            self.row_at(position, &row)
            p = _write_varint(p, (<int32_t*>self.sizes.data)[position - first])
            p[0] = 0
            p = _write_varint(p + 1, <int64_t>(<uint64_t>self.timestamp_of(row) - <uint64_t>base))
            p = _write_varint(p, position - first)
            _get(&self.key, row, &field)
            p = _write_field(p, field.data, field.length)
            _get(&self.value, row, &field)
            p = _write_field(p, field.data, field.length)
            if self.headers.present:
                p = self.write_headers(p, row)
            else:
                p[0] = 0
                p += 1

    cdef uint8_t* write_headers(self, uint8_t* p, Py_ssize_t row) noexcept nogil:
        cdef int32_t start, end, element
        cdef field_t field
        _list_bounds(&self.headers, row, self.header_keys.length, &start, &end)
        p = _write_varint(p, end - start)
        for element in range(start, end):
            _get(&self.header_keys, element, &field)
            p = _write_field(p, field.data, field.length)
            _get(&self.header_values, element, &field)
            p = _write_field(p, field.data, field.length)
        return p


# ---- writing from Python objects

def write_record(bytearray out, int64_t timestamp_delta, int32_t offset_delta, key, value, headers):
    cdef Py_buffer key_view, value_view
    cdef bytes packed = _pack_headers(headers) if headers else b"\0"
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(out)
    cdef Py_ssize_t key_size = _open_view(key, &key_view)
    cdef Py_ssize_t value_size = -1
    cdef Py_ssize_t body
    cdef uint8_t* p
    try:
        value_size = _open_view(value, &value_view)
        body = 1 + _varint_size(timestamp_delta) + _varint_size(offset_delta)
        body += _field_size(key_size) + _field_size(value_size) + len(packed)
        PyByteArray_Resize(out, before + _varint_size(body) + body)
        p = <uint8_t*>PyByteArray_AS_STRING(out) + before
        p = _write_varint(p, body)
        p[0] = 0
        p = _write_varint(p + 1, timestamp_delta)
        p = _write_varint(p, offset_delta)
        p = _write_field(p, <const uint8_t*>key_view.buf, key_size)
        p = _write_field(p, <const uint8_t*>value_view.buf, value_size)
        memcpy(p, <const char*>packed, len(packed))
    finally:
        if key_size >= 0:
            PyBuffer_Release(&key_view)
        if value_size >= 0:
            PyBuffer_Release(&value_view)


cdef Py_ssize_t _open_view(source, Py_buffer* view) except -2:
    """The size of ``source``, -1 for None, in which case there is no view to release."""
    view.buf = NULL
    if source is None:
        return -1
    PyObject_GetBuffer(source, view, PyBUF_SIMPLE)
    return view.len


cdef bytes _pack_headers(headers):
    cdef list parts = [_packed_varint(len(headers))]
    for key, value in headers:
        text = key.encode()
        parts.append(_packed_varint(len(text)))
        parts.append(text)
        if value is None:
            parts.append(b"\1")
        else:
            parts.append(_packed_varint(memoryview(value).nbytes))
            parts.append(value)
    return b"".join(parts)


cdef bytes _packed_varint(int64_t value):
    cdef uint8_t[10] room
    return PyBytes_FromStringAndSize(<const char*>room, _write_varint(room, value) - room)


# ---- partitioning

cdef uint32_t _murmur2(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28CU ^ <uint32_t>length
    cdef uint32_t k
    while length >= 4:
        memcpy(&k, data, 4)
        k *= m
        k ^= k >> 24
        k *= m
        h = h * m ^ k
        data += 4
        length -= 4
    if length:
        k = 0
        memcpy(&k, data, length)
        h = (h ^ k) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def murmur2(data):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return _murmur2(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def partition_rows(key, int32_t partition_count, int32_t null_partition):
    cdef source_t source
    cdef _Borrowed held = _open_binary(&source, key)
    cdef bytes_t partitions, starts, numbers
    cdef int status
    memset(&partitions, 0, sizeof(bytes_t))
    memset(&starts, 0, sizeof(bytes_t))
    memset(&numbers, 0, sizeof(bytes_t))
    try:
        with nogil:
            status = _assign(&source, partition_count, null_partition, &partitions, &starts, &numbers)
        if status:
            _raise_encode(status)
        rows = memoryview(_hand_over(&numbers)).cast("i")
        ends = [(<int32_t*>starts.data)[i] for i in range(partition_count)]
    finally:
        free(partitions.data)
        free(starts.data)
        free(numbers.data)
    return [rows[start:end] for start, end in zip([0, *ends], ends)]


cdef int _assign(
    source_t* source, int32_t count, int32_t null_partition, bytes_t* partitions, bytes_t* starts, bytes_t* numbers
) noexcept nogil:
    """Fill ``numbers`` with the rows sorted by partition; ``starts`` ends up as where each partition's rows end."""
    cdef Py_ssize_t row
    cdef int32_t partition, rows, before
    cdef int32_t* start
    cdef field_t field
    if _reserve(partitions, 4 * source.length + 1) or _reserve(numbers, 4 * source.length + 1):
        return OUT_OF_MEMORY
    if _reserve(starts, 4 * count):
        return OUT_OF_MEMORY
    start = <int32_t*>starts.data
    memset(start, 0, 4 * count)
    numbers.size = 4 * source.length
    for row in range(source.length):
        if _get(source, row, &field):
            return BAD_COLUMN
        partition = null_partition
        if field.length >= 0:
            partition = <int32_t>((_murmur2(field.data, field.length) & 0x7FFFFFFF) % <uint32_t>count)
        (<int32_t*>partitions.data)[row] = partition
        start[partition] += 1
    rows = 0
    for partition in range(count):
        before = rows
        rows += start[partition]
        start[partition] = before
    for row in range(source.length):
        partition = (<int32_t*>partitions.data)[row]
        (<int32_t*>numbers.data)[start[partition]] = <int32_t>row
        start[partition] += 1
    return OK
