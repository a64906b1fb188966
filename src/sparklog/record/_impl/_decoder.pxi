"""RecordDecoder: records sections to Arrow columns."""

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
    count, base_offset, base_timestamp, append_time, last_delta = fields
    batch.count = count
    batch.base_offset = base_offset
    batch.base_timestamp = base_timestamp
    batch.has_append_time = append_time is not None
    batch.append_time = append_time if append_time is not None else 0
    batch.last_delta = last_delta
    batch.delta = -1
    return 0


cdef int _check_count(Py_ssize_t count, Py_ssize_t size) except -1:
    if count < 0 or count > size // MIN_RECORD_SIZE:
        raise CorruptRecord(f"record batch claims {count} records in {size} bytes")
    return 0
