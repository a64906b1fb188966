"""Walking batches: each checked whole, and the index entries that it is due."""

cdef inline uint32_t _be32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | <uint32_t>p[3]


cdef inline int64_t _be64(const uint8_t* p) noexcept nogil:
    return <int64_t>((<uint64_t>_be32(p) << 32) | <uint64_t>_be32(p + 4))


cdef int _put(bytes_t* out, uint64_t value, int size) noexcept nogil:
    cdef int i
    if _reserve(out, size):
        return OUT_OF_MEMORY
    for i in range(size):
        out.data[out.size + i] = <uint8_t>(value >> (8 * (size - 1 - i)))
    out.size += size
    return OK


cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CODECS = 5


cdef class BatchScanner:
    cdef readonly int64_t position
    cdef readonly int64_t next_offset
    cdef readonly int64_t latest_timestamp
    cdef readonly int64_t latest_offset
    cdef readonly int64_t bytes_since_entry
    cdef readonly bint is_bad
    cdef readonly object first_timestamp
    cdef int64_t base, end, interval, last_time
    cdef Py_ssize_t max_offsets, max_times
    cdef bytes_t offsets, times

    def __cinit__(self, limits):
        self.base = self.next_offset = self.latest_offset = limits.base_offset
        self.end = limits.end_offset
        self.interval = limits.index_interval
        self.max_offsets = limits.max_offset_entries * 8
        self.max_times = limits.max_time_entries * 12
        self.latest_timestamp = self.last_time = -1

    def __dealloc__(self):
        free(self.offsets.data)
        free(self.times.data)

    def scan(self, buffer):
        cdef Py_buffer view
        cdef Py_ssize_t at = 0, size
        cdef const uint8_t* p
        cdef list producers = []
        bytes_view = memoryview(buffer)
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            while not self.is_bad:
                p = <const uint8_t*>view.buf + at
                size = self._whole(p, view.len - at)
                if size == 0:
                    break
                if <uint32_t>crc32c(bytes_view[at + 21:at + size]) != _be32(p + 17):
                    self.is_bad = True
                    break
                if _be64(p + 43) >= 0:
                    producers.append(at)
                if self._take(p, size):
                    raise MemoryError
                at += size
        finally:
            PyBuffer_Release(&view)
        return producers

    cdef Py_ssize_t _whole(self, const uint8_t* p, Py_ssize_t left) noexcept nogil:
        """The size of the batch at ``p`` if it is whole and its header can be; 0 if not, ``is_bad`` where it cannot."""
        cdef int64_t base, size
        cdef int32_t delta, count
        cdef int codec
        if left < LOG_OVERHEAD:
            return 0
        base = _be64(p)
        size = <int64_t><int32_t>_be32(p + 8) + LOG_OVERHEAD
        if not self.next_offset <= base < self.end or size < HEADER_SIZE or (left > 16 and p[16] != 2):
            self.is_bad = True
            return 0
        if size > left:
            return 0
        delta = <int32_t>_be32(p + 23)
        count = <int32_t>_be32(p + 57)
        codec = p[22] & 7
        if (
            delta < 0 or base > self.end - 1 - delta or count < 0 or codec >= CODECS
            or (codec == 0 and <int64_t>count * MIN_RECORD_SIZE > size - HEADER_SIZE)
        ):
            self.is_bad = True
            return 0
        return size

    cdef int _take(self, const uint8_t* p, Py_ssize_t size) except -1:
        cdef int64_t last = _be64(p) + <int32_t>_be32(p + 23)
        cdef int64_t timestamp = _be64(p + 35)
        if timestamp > self.latest_timestamp:
            self.latest_timestamp = timestamp
            self.latest_offset = last
        if self.bytes_since_entry > self.interval and self.offsets.size < self.max_offsets:
            if _put(&self.offsets, <uint64_t>(last - self.base), 4) or _put(&self.offsets, <uint64_t>self.position, 4):
                return 1
            if self.latest_timestamp > self.last_time and self.times.size < self.max_times:
                if (
                    _put(&self.times, <uint64_t>self.latest_timestamp, 8)
                    or _put(&self.times, <uint64_t>(self.latest_offset - self.base), 4)
                ):
                    return 1
                self.last_time = self.latest_timestamp
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        if self.first_timestamp is None:
            self.first_timestamp = timestamp
        self.next_offset = last + 1
        self.position += size
        return 0

    def entries(self):
        return (
            PyBytes_FromStringAndSize(<char*>self.offsets.data, self.offsets.size),
            PyBytes_FromStringAndSize(<char*>self.times.data, self.times.size),
        )
