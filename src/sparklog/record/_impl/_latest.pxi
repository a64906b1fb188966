"""The last record of each key: see ``abc.Codec.take_latest``."""

cdef enum:
    CODEC_BITS = 0x07
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    COMMIT = 1


def take_latest(buffer, dict latest, dict undecided):
    cdef Py_buffer view
    cdef Py_ssize_t at = 0, size
    cdef const uint8_t* p
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while True:
            p = <const uint8_t*>view.buf + at
            size = _plain_size(p, view.len - at)
            if size == 0:
                break
            if p[22] & CONTROL_BIT:
                if not _take_marker(p, size, latest, undecided):
                    break
            else:
                _take_records(p, size, latest, undecided)
            at += size
    finally:
        PyBuffer_Release(&view)
    return at


cdef Py_ssize_t _plain_size(const uint8_t* p, Py_ssize_t left) noexcept nogil:
    """The size of the batch at ``p`` if it is whole, not compressed, and its records can be read; else 0."""
    cdef int64_t size
    cdef const uint8_t* end
    cdef const uint8_t* q
    cdef int32_t i, count
    cdef batch_t batch
    cdef record_t record
    cdef field_t key, value
    if left < HEADER_SIZE:
        return 0
    size = <int64_t><int32_t>_be32(p + 8) + LOG_OVERHEAD
    count = <int32_t>_be32(p + 57)
    if p[16] != 2 or not HEADER_SIZE <= size <= left or p[22] & CODEC_BITS or <int32_t>_be32(p + 23) < 0:
        return 0
    if count < 0 or <int64_t>count * MIN_RECORD_SIZE > size - HEADER_SIZE:
        return 0
    q = p + HEADER_SIZE
    end = p + size
    _begin_batch(&batch, p)
    for i in range(count):
        if _read_entry(&q, end, &batch, &record, &key, &value):
            return 0
    return size if q == end else 0


cdef inline void _begin_batch(batch_t* batch, const uint8_t* p) noexcept nogil:
    """What the records of the batch at ``p`` depend on; their timestamps are not looked at."""
    batch.base_offset = _be64(p)
    batch.base_timestamp = batch.append_time = 0
    batch.has_append_time = True
    batch.last_delta = <int32_t>_be32(p + 23)
    batch.delta = -1


cdef inline int _read_entry(
    const uint8_t** cursor, const uint8_t* end, batch_t* batch, record_t* record, field_t* key, field_t* value
) noexcept nogil:
    """The next record of ``batch`` whole, its headers passed over."""
    cdef field_t name, content
    cdef int32_t headers, i
    cdef int status
    status = _read_prefix(cursor, end, batch, record)
    if not status:
        status = _read_field(cursor, record.end, key)
    if not status:
        status = _read_field(cursor, record.end, value)
    if not status:
        status = _read_header_count(cursor, record.end, &headers)
    if status:
        return status
    for i in range(headers):
        status = _read_header(cursor, record.end, &name, &content)
        if status:
            return status
    return OK if cursor[0] == record.end else RECORD_NOT_FILLED


cdef int _take_records(const uint8_t* p, Py_ssize_t size, dict latest, dict undecided) except -1:
    """The records of a batch that was found sound."""
    cdef const uint8_t* q = p + HEADER_SIZE
    cdef const uint8_t* end = p + size
    cdef int32_t i
    cdef batch_t batch
    cdef record_t record
    cdef field_t key, value
    cdef dict into = latest
    _begin_batch(&batch, p)
    memset(&record, 0, sizeof(record_t))
    memset(&key, 0, sizeof(field_t))
    memset(&value, 0, sizeof(field_t))
    if p[22] & TRANSACTIONAL_BIT:
        into = undecided.setdefault(_be64(p + 43), {})
    for i in range(<int32_t>_be32(p + 57)):
        _read_entry(&q, end, &batch, &record, &key, &value)
        if key.length < 0:
            continue
        name = PyBytes_FromStringAndSize(<const char*>key.data, key.length)
        if value.length >= 0:
            into[name] = (record.offset, PyBytes_FromStringAndSize(<const char*>value.data, value.length))
            continue
        latest.pop(name, None)
        for records in undecided.values():
            (<dict>records).pop(name, None)
    return 0


cdef bint _take_marker(const uint8_t* p, Py_ssize_t size, dict latest, dict undecided) except -1:
    """False for what is no marker that commits or aborts."""
    cdef const uint8_t* q = p + HEADER_SIZE
    cdef batch_t batch
    cdef record_t record
    cdef field_t key, value
    cdef int kind
    if <int32_t>_be32(p + 57) != 1:
        return False
    memset(&key, 0, sizeof(field_t))
    memset(&value, 0, sizeof(field_t))
    _begin_batch(&batch, p)
    _read_entry(&q, p + size, &batch, &record, &key, &value)
    if key.length < 4 or value.length < 6 or key.data[0] & 0x80 or value.data[0] & 0x80:
        return False
    kind = (key.data[2] << 8) | key.data[3]
    if kind > COMMIT:
        return False
    records = undecided.pop(_be64(p + 43), None)
    if kind == COMMIT and records is not None:
        for name, placed in (<dict>records).items():
            if name not in latest or latest[name][0] <= placed[0]:
                latest[name] = placed
    return True
