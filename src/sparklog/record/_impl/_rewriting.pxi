"""BatchRewriter: which records stay, and the batches that are written. See ``abc.BatchRewriter``."""

cdef enum Treatment:
    JUDGE
    KEEP_ALL
    ALL_GONE


cdef struct kept_t:
    const uint8_t* start
    const uint8_t* rest
    const uint8_t* end
    int64_t timestamp
    int32_t delta
    bint is_canonical


cdef struct retained_t:
    Py_ssize_t read
    Py_ssize_t kept
    Py_ssize_t invalid
    bint has_tombstones
    bint is_whole
    bint has_horizon
    int64_t horizon
    int64_t base_timestamp
    int64_t max_timestamp


cdef struct piece_t:
    # A batch of a run, and what was written for it: nothing, itself, or a new one whose CRC is still to be computed.
    bint stays_empty
    bint is_new
    Py_ssize_t at
    Py_ssize_t size


cdef inline void _put_be(uint8_t* p, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        p[i] = <uint8_t>(value >> (8 * (size - 1 - i)))


cdef class BatchRewriter:
    cdef readonly object rules
    cdef readonly int64_t messages_read, messages_kept, invalid
    cdef readonly int64_t bytes_read, bytes_written, batches_read, batches_written
    cdef OffsetMap map
    cdef BatchScanner scanner
    cdef int64_t now, new_horizon, last_of_log
    cdef bint erases
    cdef object last_offsets
    cdef bytes_t out, kept, scratch
    cdef run_t run
    cdef piece_t[RUN] pieces

    def __cinit__(self, OffsetMap offset_map not None, rules, limits):
        self.map = offset_map
        self.rules = rules
        self.now = rules.now_ms
        self.new_horizon = rules.new_horizon
        self.last_offsets = rules.last_offsets
        self.last_of_log = rules.last_of_log
        self.erases = rules.erases
        self.scanner = BatchScanner(limits)

    def __dealloc__(self):
        free(self.out.data)
        free(self.kept.data)
        free(self.scratch.data)

    @property
    def size(self):
        return self.scanner.position

    @property
    def next_offset(self):
        return self.scanner.next_offset

    @property
    def latest_timestamp(self):
        return self.scanner.latest_timestamp

    @property
    def latest_offset(self):
        return self.scanner.latest_offset

    @property
    def bytes_since_entry(self):
        return self.scanner.bytes_since_entry

    def entries(self):
        return self.scanner.entries()

    def drain(self):
        return memoryview(_hand_over(&self.out))

    def count_batch(self, int64_t size):
        self.bytes_read += size
        self.batches_read += 1

    def write(self, batch):
        cdef Py_buffer view
        cdef Py_ssize_t size
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            size = self.scanner._whole(<const uint8_t*>view.buf, view.len)
            self.scanner.is_bad = False
            if size == 0 or size != view.len:
                raise CorruptRecord("a batch to be written is malformed, or its offsets do not follow those before it")
            if self.scanner.position + size > INT32_MAX:
                _raise_rewrite(SECTION_FULL)
            if _extend(&self.out, <const uint8_t*>view.buf, size):
                raise MemoryError
            self.scanner._take(<const uint8_t*>view.buf, size)
        finally:
            PyBuffer_Release(&view)
        self.bytes_written += size
        self.batches_written += 1

    def take(self, buffer):
        cdef Py_buffer view
        cdef Py_ssize_t at = 0
        cdef int status = OK, done
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            while True:
                self.gather(<const uint8_t*>view.buf + at, view.len - at)
                if self.run.count == 0:
                    break
                with nogil:
                    if _reserve(&self.out, view.len - at):
                        status, done = OUT_OF_MEMORY, 0
                    else:
                        status = self.rewrite_run(<const uint8_t*>view.buf + at, &done)
                at += self.finish_run(done)
                if status == OUT_OF_MEMORY or status == SECTION_FULL:
                    _raise_rewrite(status)
                if status:
                    break
        finally:
            PyBuffer_Release(&view)
        return at

    def retain(
        self, payload, fields, horizon_ms, *, bint all_gone=False, bint keep_all=False, bint needs_horizon=False
    ):
        cdef Py_buffer view
        cdef batch_t batch
        cdef retained_t found
        cdef int status
        cdef Treatment treatment = ALL_GONE if all_gone else KEEP_ALL if keep_all else JUDGE
        _fill_batch(&batch, fields)
        _begin_retained(&found, horizon_ms is not None, horizon_ms if horizon_ms is not None else 0)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            _check_count(batch.count, view.len)
            with nogil:
                status = self.sift(<const uint8_t*>view.buf, view.len, &batch, treatment, needs_horizon, &found)
                self.scratch.size = 0
                if not status and not found.is_whole:
                    status = self.write_section(&self.scratch, &batch, &found)
        finally:
            PyBuffer_Release(&view)
        if status == OUT_OF_MEMORY:
            raise MemoryError
        if status:
            _raise_decode(status)
        self.count_records(&found)
        section = None
        if not found.is_whole:
            section = PyByteArray_FromStringAndSize(<const char*>self.scratch.data, self.scratch.size)
        return Retained(
            found.read,
            found.kept,
            bool(found.has_tombstones),
            section,
            found.base_timestamp,
            found.max_timestamp,
            found.horizon if found.has_horizon else None,
        )

    cdef int gather(self, const uint8_t* p, Py_ssize_t left) except -1:
        """The next run, and which of its batches stay even when they are empty."""
        cdef int64_t producer_id, last
        cdef int i
        _gather(&self.run, p, left)
        for i in range(self.run.count):
            producer_id = _be64(p + 43)
            last = _be64(p) + <int32_t>_be32(p + 23)
            self.pieces[i].stays_empty = self.erases or last == self.last_of_log or (
                producer_id >= 0 and self.last_offsets.get(producer_id) == last
            )
            p += self.run.sizes[i]
        return 0

    cdef int rewrite_run(self, const uint8_t* p, int* done) noexcept nogil:
        """Write the batches of the run up to one that cannot be; ``done`` are written."""
        cdef int64_t next_offset = self.scanner.next_offset
        cdef int64_t position = self.scanner.position
        cdef int64_t last
        cdef Py_ssize_t before
        cdef int status
        done[0] = 0
        while done[0] < self.run.count:
            last = _be64(p) + <int32_t>_be32(p + 23)
            if _be64(p) < next_offset or last >= self.scanner.end:
                return BAD_OFFSET_DELTA
            before = self.out.size
            status = self.rewrite(p, self.run.sizes[done[0]], &self.pieces[done[0]])
            position += self.out.size - before
            if not status and position > INT32_MAX:
                status = SECTION_FULL
            if status:
                self.out.size = before
                return status
            if self.out.size > before:
                next_offset = last + 1
            p += self.run.sizes[done[0]]
            done[0] += 1
        return OK

    cdef int rewrite(self, const uint8_t* p, Py_ssize_t size, piece_t* piece) noexcept nogil:
        """Append what is left of one batch to the output; it is counted only if there is nothing wrong with it."""
        cdef batch_t batch
        cdef retained_t found
        cdef int status
        _open_batch(&batch, p)
        _begin_retained(&found, (p[22] & 0x40) != 0, batch.base_timestamp)
        status = self.sift(p + HEADER_SIZE, size - HEADER_SIZE, &batch, JUDGE, False, &found)
        if status:
            return status
        piece.at = self.out.size
        piece.is_new = not found.is_whole
        if found.is_whole:
            status = _extend(&self.out, p, size)
        elif found.kept:
            status = self.write_batch(p, &batch, &found)
        elif piece.stays_empty:
            status = self.write_empty(p)
        if status:
            return status
        piece.size = self.out.size - piece.at
        self.count_records(&found)
        self.bytes_read += size
        self.batches_read += 1
        return OK

    cdef Py_ssize_t finish_run(self, int done) except -1:
        """Give the new batches their CRCs, and the index its entries; the bytes that the run took."""
        cdef Py_ssize_t taken = 0
        cdef piece_t* piece
        cdef uint8_t* p
        cdef int i
        for i in range(done):
            taken += self.run.sizes[i]
            piece = &self.pieces[i]
            if piece.size == 0:
                continue
            p = self.out.data + piece.at
            if piece.is_new:
                _put_be(p + 17, _crc_of(p + 21, piece.size - 21), 4)
            self.scanner._take(p, piece.size)
            self.bytes_written += piece.size
            self.batches_written += 1
        return taken

    cdef inline void count_records(self, retained_t* found) noexcept nogil:
        self.messages_read += found.read
        self.messages_kept += found.kept
        self.invalid += found.invalid

    cdef int sift(
        self, const uint8_t* p, Py_ssize_t size, batch_t* batch, Treatment treatment, bint needs_horizon, retained_t* found
    ) noexcept nogil:
        """Find the records that stay, and what they make of their batch."""
        cdef const uint8_t* end = p + size
        cdef item_t[CHUNK] items
        cdef Py_ssize_t left = batch.count
        cdef int count, status
        self.kept.size = 0
        while left:
            count = 0
            while count < CHUNK and count < left:
                status = _read_item(&p, end, batch, &items[count])
                if status:
                    return status
                count += 1
            left -= count
            if _reserve(&self.kept, count * sizeof(kept_t)):
                return OUT_OF_MEMORY
            if treatment == JUDGE:
                self.judge(items, count, found)
            elif treatment == KEEP_ALL:
                self.keep_all(items, count, found)
        if p != end and batch.count:
            return TRAILING_BYTES
        self.conclude(batch, needs_horizon, found)
        return OK

    cdef void judge(self, item_t* items, int count, retained_t* found) noexcept nogil:
        cdef int64_t latest = self.map.latest_offset
        cdef bint is_versioned = self.map.is_versioned
        cdef bint tombstones_go = found.has_horizon and self.now >= found.horizon and not self.erases
        cdef item_t* item
        cdef uint64_t stored
        cdef int i
        for i in range(count):
            item = &items[i]
            item.is_hashed = item.key_length >= 0 and item.offset <= latest and self.map.hash(item)
        for i in range(count):
            item = &items[i]
            if item.is_hashed:
                stored = self.map.find(item)
                if _gives_way(item.offset, stored, is_versioned):
                    continue
                if tombstones_go and not item.has_value and not _is_followed(stored, is_versioned):
                    continue
            elif item.key_length < 0 and item.offset <= latest and not self.erases:
                found.invalid += 1
                continue
            self.keep(item, found)

    cdef void keep_all(self, item_t* items, int count, retained_t* found) noexcept nogil:
        cdef int i
        for i in range(count):
            self.keep(&items[i], found)

    cdef inline void keep(self, item_t* item, retained_t* found) noexcept nogil:
        """Its room is reserved."""
        cdef kept_t* kept = <kept_t*>(self.kept.data + self.kept.size)
        self.kept.size += sizeof(kept_t)
        kept.start = item.start
        kept.rest = item.rest
        kept.end = item.end
        kept.timestamp = item.timestamp
        kept.delta = item.delta
        kept.is_canonical = item.is_canonical
        found.kept += 1
        if item.timestamp > found.max_timestamp:
            found.max_timestamp = item.timestamp
        if not item.has_value:
            found.has_tombstones = True

    cdef void conclude(self, batch_t* batch, bint needs_horizon, retained_t* found) noexcept nogil:
        found.read = batch.count
        if found.kept == 0:
            found.has_horizon = False
            return
        if batch.has_append_time:
            found.max_timestamp = batch.append_time
        needs_horizon = (needs_horizon or found.has_tombstones) and not found.has_horizon and not self.erases
        found.is_whole = found.kept == found.read and not needs_horizon
        found.base_timestamp = batch.base_timestamp
        if found.is_whole:
            return
        if needs_horizon:
            found.has_horizon = True
            found.horizon = self.new_horizon
        found.base_timestamp = found.horizon if found.has_horizon else (<kept_t*>self.kept.data).timestamp

    cdef int write_section(self, bytes_t* out, batch_t* batch, retained_t* found) noexcept nogil:
        """The records that stay; those that need no other bytes than they have are copied, as many as follow each other."""
        cdef kept_t* kept = <kept_t*>self.kept.data
        cdef kept_t* behind = kept + found.kept
        cdef kept_t* first
        cdef bint same_base = not batch.has_append_time and found.base_timestamp == batch.base_timestamp
        while kept < behind:
            first = kept
            while kept < behind and same_base and kept.is_canonical and (kept == first or kept.start == (kept - 1).end):
                kept += 1
            if kept > first:
                if _extend(out, first.start, (kept - 1).end - first.start):
                    return OUT_OF_MEMORY
                continue
            if _write_kept(out, kept, found.base_timestamp):
                return OUT_OF_MEMORY
            kept += 1
        return OK

    cdef int write_batch(self, const uint8_t* p, batch_t* batch, retained_t* found) noexcept nogil:
        cdef Py_ssize_t at = self.out.size
        cdef Py_ssize_t size
        cdef uint8_t* header
        if _extend(&self.out, p, HEADER_SIZE) or self.write_section(&self.out, batch, found):
            return OUT_OF_MEMORY
        size = self.out.size - at
        if size > INT32_MAX:
            return SECTION_FULL
        header = self.out.data + at
        _put_be(header + 8, <uint64_t>(size - LOG_OVERHEAD), 4)
        header[21] = 0
        header[22] = (p[22] & 0x3F) | (0x40 if found.has_horizon else 0)
        _put_be(header + 27, <uint64_t>found.base_timestamp, 8)
        _put_be(header + 35, <uint64_t>found.max_timestamp, 8)
        _put_be(header + 57, <uint64_t>found.kept, 4)
        return OK

    cdef int write_empty(self, const uint8_t* p) noexcept nogil:
        cdef uint8_t* header
        if _extend(&self.out, p, HEADER_SIZE):
            return OUT_OF_MEMORY
        header = self.out.data + self.out.size - HEADER_SIZE
        _put_be(header + 8, HEADER_SIZE - LOG_OVERHEAD, 4)
        header[21] = 0
        header[22] = p[22] & 0x38
        _put_be(header + 27, <uint64_t>-1, 8)
        _put_be(header + 57, 0, 4)
        return OK


cdef object _raise_rewrite(int status):
    if status == OUT_OF_MEMORY:
        raise MemoryError
    raise LogError("a compacted segment would exceed 2 GiB")


cdef inline void _begin_retained(retained_t* found, bint has_horizon, int64_t horizon) noexcept nogil:
    memset(found, 0, sizeof(retained_t))
    found.has_horizon = has_horizon
    found.horizon = horizon
    found.base_timestamp = found.max_timestamp = -1


cdef inline int _extend(bytes_t* out, const uint8_t* p, Py_ssize_t size) noexcept nogil:
    if _reserve(out, size):
        return OUT_OF_MEMORY
    memcpy(out.data + out.size, p, size)
    out.size += size
    return OK


cdef int _write_kept(bytes_t* out, kept_t* kept, int64_t base) noexcept nogil:
    cdef int64_t timestamp_delta = <int64_t>(<uint64_t>kept.timestamp - <uint64_t>base)
    cdef Py_ssize_t rest = kept.end - kept.rest
    cdef Py_ssize_t body = 1 + _varint_size(timestamp_delta) + _varint_size(kept.delta) + rest
    cdef uint8_t* p
    if _reserve(out, 10 + body):
        return OUT_OF_MEMORY
    p = _write_varint(out.data + out.size, body)
    p[0] = 0
    p = _write_varint(p + 1, timestamp_delta)
    p = _write_varint(p, kept.delta)
    memcpy(p, kept.rest, rest)
    out.size = p + rest - out.data
    return OK
