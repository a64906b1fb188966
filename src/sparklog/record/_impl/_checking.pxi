"""Walking a records section: what the decoder would refuse, without decoding."""

cdef extern from *:
    """
    #define SPARKLOG_PREFETCH(p) __builtin_prefetch(p)
    """
    void SPARKLOG_PREFETCH(const uint8_t* p) nogil


cdef enum:
    WORTH_RELEASING = 1 << 16
    USUAL_SIZE = 16


cdef inline const uint8_t* _short_length(const uint8_t* p, Py_ssize_t* length) noexcept nogil:
    """The position behind a length or delta of at most three bytes that is not negative; NULL for any other."""
    cdef uint32_t raw
    if p[0] < 0x80:
        raw = p[0]
        p += 1
    elif p[1] < 0x80:
        raw = (p[0] & 0x7F) | (<uint32_t>p[1] << 7)
        p += 2
    elif p[2] < 0x80:
        raw = (p[0] & 0x7F) | (<uint32_t>(p[1] & 0x7F) << 7) | (<uint32_t>p[2] << 14)
        p += 3
    else:
        return NULL
    length[0] = raw >> 1
    return NULL if raw & 1 else p


cdef inline const uint8_t* _after_usual(
    const uint8_t* p, const uint8_t* end, int32_t delta, int32_t* timestamp_delta
) noexcept nogil:
    """The end of a record as most are: offsets without a gap, a value, no headers, short numbers. NULL for any other.

    It says no more than ``_read_prefix`` and ``_walk_body`` do, which look at what it gives NULL for, and takes half
    their time. ``USUAL_SIZE`` bytes are there at ``p``.
    """
    cdef Py_ssize_t number
    cdef uint32_t raw
    cdef const uint8_t* last
    p = _short_length(p, &number)
    if p == NULL or number > end - p or number < USUAL_SIZE:
        return NULL
    last = p + number - 1
    p += 1
    if p[0] < 0x80:
        raw = p[0]
        p += 1
    elif p[1] < 0x80:
        raw = (p[0] & 0x7F) | (<uint32_t>p[1] << 7)
        p += 2
    elif p[2] < 0x80:
        raw = (p[0] & 0x7F) | (<uint32_t>(p[1] & 0x7F) << 7) | (<uint32_t>p[2] << 14)
        p += 3
    else:
        return NULL
    timestamp_delta[0] = <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
    p = _short_length(p, &number)
    if p == NULL or number != delta:
        return NULL
    if p[0] == 1:
        p += 1
    else:
        p = _short_length(p, &number)
        if p == NULL or number > last - p - 3:
            return NULL
        p += number
    p = _short_length(p, &number)
    if p == NULL or number != last - p or last[0] != 0:
        return NULL
    return last + 1


def check_records(payload, fields):
    cdef Py_buffer view
    cdef batch_t batch
    cdef int64_t greatest
    cdef int status
    _fill_batch(&batch, fields)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        _check_count(batch.count, view.len)
        if view.len < WORTH_RELEASING:  # it takes microseconds: who else wants to run waits no longer than that
            status = _walk(<const uint8_t*>view.buf, view.len, &batch, &greatest)
        else:
            with nogil:
                status = _walk(<const uint8_t*>view.buf, view.len, &batch, &greatest)
    finally:
        PyBuffer_Release(&view)
    if status:
        _raise_decode(status)
    return greatest


cdef int _walk(const uint8_t* p, Py_ssize_t size, batch_t* batch, int64_t* greatest) noexcept nogil:
    """``greatest`` becomes the greatest timestamp, and -1 at least."""
    cdef const uint8_t* end = p + size
    cdef const uint8_t* after
    cdef record_t record
    cdef uint64_t base = <uint64_t>batch.base_timestamp
    cdef int64_t timestamp, latest = -1
    cdef int32_t timestamp_delta
    cdef int status
    cdef Py_ssize_t i
    for i in range(batch.count):
        SPARKLOG_PREFETCH(p + 1024)
        if end - p >= USUAL_SIZE:
            after = _after_usual(p, end, batch.delta + 1, &timestamp_delta)
            if after != NULL and batch.delta < batch.last_delta:
                batch.delta += 1
                timestamp = <int64_t>(base + <uint64_t><int64_t>timestamp_delta)
                latest = timestamp if timestamp > latest else latest
                p = after
                continue
        status = _read_prefix(&p, end, batch, &record)
        if status:
            return status
        latest = record.timestamp if record.timestamp > latest else latest
        status = _walk_body(&p, record.end)
        if status:
            return status
    greatest[0] = max(batch.append_time, -1) if batch.has_append_time and batch.count else latest
    return OK if p == end or batch.count == 0 else TRAILING_BYTES


cdef inline int _walk_body(const uint8_t** p, const uint8_t* end) noexcept nogil:
    cdef field_t key, value
    cdef int32_t headers, i
    cdef int status = _read_field(p, end, &key)
    if status:
        return status
    status = _read_field(p, end, &value)
    if status:
        return status
    status = _read_header_count(p, end, &headers)
    if status:
        return status
    for i in range(headers):
        status = _read_header(p, end, &key, &value)
        if status:
            return status
    return OK if p[0] == end else RECORD_NOT_FILLED
