"""murmur2, and the rows of a key column by partition."""

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
