# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record codec over C memory: batches to Arrow buffers and back, without the GIL and without a Python object a record.

Reading. A cursor runs over the payload; each read is checked against the end of the record, and each record against
the end of the payload, so malformed bytes end in a status and never in a read past the end. Columns grow in malloc'd
memory (`bytes_t`), which `finish` hands over to Arrow through the buffer protocol. A batch that fails half-way is
rolled back.

Writing. A section is measured first (which also validates the columns' offsets), then written into a bytearray of
exactly the right size.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from crc32c import crc32c

from sparklog.errors import CorruptRecord, LocalProtocolError, LogError
from sparklog.record._impl.abc import (
    BinaryBuffers,
    DecodedColumns,
    EncodedRecords,
    HeaderBuffers,
    Record,
    Retained,
)
from sparklog.record._impl.map_file import MAP_FILE_HEAD, MapHead, open_map_files

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(PyObject* item)


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
    BAD_OFFSET_DELTA
    TRAILING_BYTES
    OUT_OF_MEMORY
    COLUMN_FULL
    ROW_OUT_OF_RANGE
    BAD_COLUMN
    SECTION_FULL
    MAP_FULL

_DECODE_MESSAGES = {
    BAD_VARINT: "a varint is too long, or runs past the end of its record",
    BAD_RECORD_LENGTH: "a record's length is negative or goes beyond the end of the batch",
    BAD_FIELD_LENGTH: "a key, value or header goes beyond the end of its record",
    BAD_HEADER_COUNT: "a record's header count is negative or more than it can hold",
    HEADER_WITHOUT_KEY: "a record header has no key",
    RECORD_NOT_FILLED: "a record is longer than its fields",
    BAD_OFFSET_DELTA: "a record's offset does not lie behind the one before it, or not in its batch",
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


include "_memory.pxi"
include "_reading.pxi"
include "_checking.pxi"
include "_decoder.pxi"
include "_encoder.pxi"
include "_objects.pxi"
include "_partitioning.pxi"
include "_scanning.pxi"
include "_latest.pxi"
include "_offset_map.pxi"
include "_rewriting.pxi"
