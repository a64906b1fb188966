"""RecordEncoder: Arrow columns to records sections."""

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
    if length:
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
            if view.len % 4:
                _raise_encode(ROW_OUT_OF_RANGE)
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
        field.data, field.length = NULL, -1
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
        field.data, field.length = NULL, -1
        _list_bounds(&self.headers, row, self.header_keys.length, &start, &end)
        p = _write_varint(p, end - start)
        for element in range(start, end):
            _get(&self.header_keys, element, &field)
            p = _write_field(p, field.data, field.length)
            _get(&self.header_values, element, &field)
            p = _write_field(p, field.data, field.length)
        return p
