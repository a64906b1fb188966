"""Memory that grows without the GIL and is handed over to Arrow, and a binary column made of it."""

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
