"""Records sections to and from Python objects, one record at a time."""

cdef inline void _fill(object made, Py_ssize_t place, object item):
    """Fill a place of a tuple that no other code has seen."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, place, item)


cdef inline tuple _blank(object kind, Py_ssize_t size):
    """A named tuple whose places are still to be filled: its constructor only sorts out arguments.

    The garbage collector need not know it, since numbers, text, bytes and tuples of them are in no cycle. If it did, it
    would walk over whatever the program has for every few ten thousand records that are read.
    """
    made = PyType_GenericAlloc(<PyTypeObject*>kind, size)
    PyObject_GC_UnTrack(<PyObject*>made)
    return <tuple>made


def read_records(payload, fields):
    cdef Py_buffer view
    cdef batch_t batch
    _fill_batch(&batch, fields)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        _check_count(batch.count, view.len)
        return _read_objects(<const uint8_t*>view.buf, view.len, &batch, Record, None)
    finally:
        PyBuffer_Release(&view)


def read_placed_records(payload, fields, place, kind):
    cdef Py_buffer view
    cdef batch_t batch
    if not issubclass(kind, tuple) or kind.__itemsize__ != sizeof(void*):
        raise TypeError(f"{kind!r} is no named tuple")
    _fill_batch(&batch, fields)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        _check_count(batch.count, view.len)
        return _read_objects(<const uint8_t*>view.buf, view.len, &batch, kind, tuple(place))
    finally:
        PyBuffer_Release(&view)


cdef list _read_objects(const uint8_t* p, Py_ssize_t size, batch_t* batch, object kind, tuple place):
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
        records.append(_record_object(kind, place, &record, _field_object(&key), _field_object(&value), pairs))
    if batch.count and p != end:
        _raise_decode(TRAILING_BYTES)
    return records


cdef inline tuple _record_object(object kind, tuple place, record_t* record, object key, object value, object headers):
    cdef tuple made
    if place is None:
        made = _blank(kind, 5)
        _fill(made, 0, record.offset)
        _fill(made, 1, record.timestamp)
        _fill(made, 2, key)
        _fill(made, 3, value)
        _fill(made, 4, headers)
        return made
    made = _blank(kind, 9)
    _fill(made, 0, place[0])
    _fill(made, 1, place[1])
    _fill(made, 2, record.offset)
    _fill(made, 3, record.timestamp)
    _fill(made, 4, place[2])
    _fill(made, 5, key)
    _fill(made, 6, value)
    _fill(made, 7, headers)
    _fill(made, 8, place[3])
    return made


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
