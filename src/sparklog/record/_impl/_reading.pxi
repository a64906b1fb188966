"""Reading: varints, a record's prefix, its fields and headers, each checked against where it must end."""

cdef const uint8_t* _read_long_varint(const uint8_t* p, const uint8_t* end, int max_size, uint64_t* raw) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(max_size):
        if p >= end:
            return NULL
        value |= <uint64_t>(p[0] & 0x7F) << (7 * i)
        if p[0] < 0x80:
            raw[0] = value
            return p + 1
        p += 1
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
    # The offset delta that no record may pass, and the one of the record before, -1 for none.
    int32_t last_delta
    int32_t delta


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
    if offset_delta <= batch.delta or offset_delta > batch.last_delta:
        return BAD_OFFSET_DELTA
    batch.delta = offset_delta
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
