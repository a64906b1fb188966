"""OffsetMap: the record that wins for each key, in a table of hashes. See ``abc.OffsetMap``.

Open addressing with linear probing. The first word of the hash, scaled to the slots in use, says where to look first;
the second says which part of the keys it is. An offset is kept as one more than it is, so that 0 is an empty slot.

The table is an anonymous mapping of all slots, of which only the beginning is in use while there are few keys: it
takes the memory and the caches that its keys need, and what was never in use takes none. When half of the slots in use
are taken, four times as many are. The entries are then copied out, and put back in the order of their hashes, so that
the table is filled from its beginning to its end.

Where versions decide, they stand in a second mapping, the n-th beside the n-th slot, and the highest bit of what is kept
as the offset says that the record is followed by another of its key. Without versions nothing of that is there.

A table of millions of keys is larger than any cache, so that each probe waits for memory. Records are therefore parsed
``CHUNK`` at a time, and the slots of all of them asked for before the first is looked at.
"""

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t size, int protection, int flags, int descriptor, long offset)
    int munmap(void* address, size_t size)
    int madvise(void* address, size_t size, int advice)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_DONTNEED, MADV_HUGEPAGE
    void* MAP_FAILED


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define SPARKLOG_FOLLOWED ((uint64_t)1 << 63)

    /* The high word of a product: a hash becomes a number below n without a division. */
    static inline uint64_t sparklog_scale(uint64_t hash, uint64_t n) {
        return (uint64_t)(((unsigned __int128)hash * n) >> 64);
    }

    #define SPARKLOG_ROTATED(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define SPARKLOG_SIP_ROUND \\
        v0 += v1; v1 = SPARKLOG_ROTATED(v1, 13); v1 ^= v0; v0 = SPARKLOG_ROTATED(v0, 32); \\
        v2 += v3; v3 = SPARKLOG_ROTATED(v3, 16); v3 ^= v2; \\
        v0 += v3; v3 = SPARKLOG_ROTATED(v3, 21); v3 ^= v0; \\
        v2 += v1; v1 = SPARKLOG_ROTATED(v1, 17); v1 ^= v2; v2 = SPARKLOG_ROTATED(v2, 32);

    static inline uint64_t sparklog_word(const uint8_t *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }

    /* The last bytes, fewer than eight, without a loop and without reading beyond the data. */
    static inline uint64_t sparklog_tail(const uint8_t *data, size_t length) {
        size_t rest = length & 7;
        const uint8_t *p = data + length - rest;
        uint32_t low, high;
        if (rest == 0)
            return 0;
        if (length >= 8)
            return sparklog_word(data + length - 8) >> (64 - 8 * rest);
        if (rest < 4)
            return (uint64_t)p[0] | (uint64_t)p[rest >> 1] << (8 * (rest >> 1)) | (uint64_t)p[rest - 1] << (8 * (rest - 1));
        memcpy(&low, p, 4);
        memcpy(&high, p + rest - 4, 4);
        return (uint64_t)low | (uint64_t)high << (8 * (rest - 4));
    }

    /* SipHash-2-4 with 128 bits of output, as two words; for little-endian machines. */
    static inline void sparklog_siphash(const uint8_t *data, size_t length, const uint64_t *key, uint64_t *low, uint64_t *high) {
        uint64_t v0 = key[0] ^ 0x736f6d6570736575ULL, v1 = key[1] ^ 0x646f72616e646f6dULL ^ 0xee;
        uint64_t v2 = key[0] ^ 0x6c7967656e657261ULL, v3 = key[1] ^ 0x7465646279746573ULL;
        const uint8_t *p = data, *end = data + (length & ~(size_t)7);
        uint64_t word;
        for (; p != end; p += 8) {
            word = sparklog_word(p);
            v3 ^= word;
            SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND
            v0 ^= word;
        }
        word = sparklog_tail(data, length) | (uint64_t)length << 56;
        v3 ^= word;
        SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND
        v0 ^= word;
        v2 ^= 0xee;
        SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND
        *low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND SPARKLOG_SIP_ROUND
        *high = v0 ^ v1 ^ v2 ^ v3;
    }
    """
    const uint64_t SPARKLOG_FOLLOWED
    uint64_t sparklog_scale(uint64_t hash, uint64_t n) nogil
    void sparklog_siphash(const uint8_t* data, size_t length, const uint64_t* key, uint64_t* low, uint64_t* high) nogil


cdef enum:
    CHUNK = 128
    RUN = 64
    RUN_BYTES = 1 << 17
    NOT_PLAIN = 0x37
    OF_TRANSACTION = 0x30
    FIRST_ROOM = 1024
    GROWTH = 4
    HUGE_PAGE = 1 << 21


cdef struct slot_t:
    uint64_t low
    uint64_t high
    uint64_t stored


cdef inline void* _map_memory(size_t size) noexcept nogil:
    """So many bytes, all 0; NULL where there are none."""
    cdef void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return NULL if memory == MAP_FAILED else memory


cdef inline void _use_huge_pages(void* memory, size_t size) noexcept nogil:
    """For memory that will be touched all over: fewer faults, and fewer addresses to look up."""
    if size >= HUGE_PAGE:
        madvise(memory, size, MADV_HUGEPAGE)


cdef struct item_t:
    # One record: where it begins, where its key's length stands, and where it ends.
    const uint8_t* start
    const uint8_t* rest
    const uint8_t* end
    const uint8_t* key
    int64_t offset
    int64_t timestamp
    uint64_t low
    uint64_t high
    uint64_t at
    int32_t key_length
    int32_t delta
    bint has_value
    # Its bytes are those that it would be written with, if the base timestamp stays.
    bint is_canonical
    bint is_hashed


cdef inline const uint8_t* _quick_item(const uint8_t* p, const uint8_t* end, batch_t* batch, item_t* item) noexcept nogil:
    """The end of a record as most are: short numbers, no headers. NULL for any other, and for one that is corrupt.

    It says no more than ``_read_entry`` does. ``USUAL_SIZE`` bytes are there at ``p``.
    """
    cdef Py_ssize_t number
    cdef uint32_t raw
    cdef int64_t timestamp_delta
    cdef const uint8_t* last
    cdef const uint8_t* before
    item.start = p
    p = _short_length(p, &number)
    if p == NULL or number > end - p or number < USUAL_SIZE:
        return NULL
    last = p + number - 1
    item.is_canonical = (p - 1)[0] != 0 and p[0] == 0
    p += 1
    before = p
    if p[0] < 0x80:
        raw = p[0]
        p += 1
        timestamp_delta = <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
    elif p[1] < 0x80:
        raw = (p[0] & 0x7F) | (<uint32_t>p[1] << 7)
        p += 2
        timestamp_delta = <int32_t>(raw >> 1) ^ -<int32_t>(raw & 1)
    else:
        p = _read_varlong(p, last, &timestamp_delta)
        if p == NULL or last - p < 8 or p - before == 10:
            return NULL
    if (p - 1)[0] == 0 and p - before > 1:
        item.is_canonical = False
    before = p
    p = _short_length(p, &number)
    if p == NULL or number <= batch.delta or number > batch.last_delta:
        return NULL
    if (p - 1)[0] == 0 and p - before > 1:
        item.is_canonical = False
    item.delta = <int32_t>number
    item.rest = p
    if p[0] == 1:
        item.key_length = -1
        p += 1
    else:
        p = _short_length(p, &number)
        if p == NULL or number > last - p - 3:
            return NULL
        item.key = p
        item.key_length = <int32_t>number
        p += number
    item.has_value = p[0] != 1
    if item.has_value:
        p = _short_length(p, &number)
        if p == NULL or number != last - p:
            return NULL
    elif last - p != 1:
        return NULL
    if last[0] != 0:
        return NULL
    item.timestamp = batch.append_time if batch.has_append_time else (
        <int64_t>(<uint64_t>batch.base_timestamp + <uint64_t>timestamp_delta)
    )
    item.offset = <int64_t>(<uint64_t>batch.base_offset + <uint64_t><int64_t>item.delta)
    item.end = last + 1
    batch.delta = item.delta
    return item.end


cdef inline int _read_item(const uint8_t** cursor, const uint8_t* end, batch_t* batch, item_t* item) noexcept nogil:
    cdef const uint8_t* after
    if end - cursor[0] >= USUAL_SIZE:
        after = _quick_item(cursor[0], end, batch, item)
        if after != NULL:
            cursor[0] = after
            return OK
    return _read_any_item(cursor, end, batch, item)


cdef int _read_any_item(const uint8_t** cursor, const uint8_t* end, batch_t* batch, item_t* item) noexcept nogil:
    cdef record_t record
    cdef field_t key, value, name, content
    cdef int32_t headers, i
    cdef int status
    item.start = cursor[0]
    status = _read_prefix(cursor, end, batch, &record)
    item.rest = cursor[0]
    if not status:
        status = _read_field(cursor, record.end, &key)
    if not status:
        status = _read_field(cursor, record.end, &value)
    if not status:
        status = _read_header_count(cursor, record.end, &headers)
    if status:
        return status
    for i in range(headers):
        status = _read_header(cursor, record.end, &name, &content)
        if status:
            return status
    if cursor[0] != record.end:
        return RECORD_NOT_FILLED
    item.end = record.end
    item.key = key.data
    item.key_length = key.length
    item.offset = record.offset
    item.timestamp = record.timestamp
    item.delta = batch.delta
    item.has_value = value.length >= 0
    item.is_canonical = False
    return OK


cdef Py_ssize_t _kernel_size(const uint8_t* p, Py_ssize_t left) noexcept nogil:
    """The size of the batch at ``p`` if it is whole, of the kind that the kernels take, and its header can be; else 0."""
    cdef int64_t base, size
    cdef int32_t delta, count
    if left < HEADER_SIZE:
        return 0
    base = _be64(p)
    size = <int64_t><int32_t>_be32(p + 8) + LOG_OVERHEAD
    delta = <int32_t>_be32(p + 23)
    count = <int32_t>_be32(p + 57)
    if p[16] != 2 or not HEADER_SIZE <= size <= left or p[22] & NOT_PLAIN:
        return 0
    if delta < 0 or base < 0 or base > INT64_MAX - delta or count < 0:
        return 0
    return size if <int64_t>count * MIN_RECORD_SIZE <= size - HEADER_SIZE else 0


cdef inline void _open_batch(batch_t* batch, const uint8_t* p) noexcept nogil:
    """What the records of the batch at ``p`` depend on."""
    batch.count = <int32_t>_be32(p + 57)
    batch.base_offset = _be64(p)
    batch.base_timestamp = _be64(p + 27)
    batch.has_append_time = (p[22] & 0x08) != 0
    batch.append_time = _be64(p + 35)
    batch.last_delta = <int32_t>_be32(p + 23)
    batch.delta = -1


cdef inline uint32_t _crc_of(const uint8_t* p, Py_ssize_t size) except? 0:
    return <uint32_t>crc32c(PyMemoryView_FromMemory(<char*>p, size, PyBUF_READ))


cdef struct run_t:
    # Batches one after another whose CRCs are right.
    int count
    Py_ssize_t size
    Py_ssize_t[RUN] sizes


cdef int _gather(run_t* run, const uint8_t* p, Py_ssize_t left) except -1:
    """The next batches that the kernels take, as many as the cache holds still when they are walked."""
    cdef Py_ssize_t size
    run.count = 0
    run.size = 0
    while run.count < RUN and run.size < RUN_BYTES:
        size = _kernel_size(p, left - run.size)
        if size == 0 or _crc_of(p + 21, size - 21) != _be32(p + 17):
            break
        run.sizes[run.count] = size
        run.count += 1
        run.size += size
        p += size
    return 0


cdef struct table_t:
    # The slots of a file, as they lie there.
    const slot_t* slots
    uint64_t room


cdef inline const slot_t* _probe(const slot_t* table, uint64_t room, uint64_t low, uint64_t high, uint64_t first) noexcept nogil:
    """The slot of the key, or the empty one where it would be; NULL where there is neither."""
    cdef uint64_t at = first
    cdef const slot_t* slot = &table[at]
    while slot.stored and (slot.low != low or slot.high != high):
        at += 1
        if at == room:
            at = 0
        if at == first:
            return NULL
        slot = &table[at]
    return slot


cdef inline uint64_t _offset_bits(uint64_t stored, bint is_versioned) noexcept nogil:
    return stored & ~SPARKLOG_FOLLOWED if is_versioned else stored


cdef inline bint _gives_way(int64_t offset, uint64_t stored, bint is_versioned) noexcept nogil:
    """See ``abc.OffsetMap.outdates``; ``stored`` is what is known of the record's key, 0 if nothing."""
    if is_versioned:
        return stored != 0 and _offset_bits(stored, True) != <uint64_t>offset + 1
    return offset < <int64_t>(stored - 1)


cdef inline bint _is_followed(uint64_t stored, bint is_versioned) noexcept nogil:
    return is_versioned and stored & SPARKLOG_FOLLOWED != 0


cdef class OffsetMap:
    cdef readonly Py_ssize_t size, slots, most
    cdef readonly int64_t latest_offset, messages
    cdef readonly bint is_full
    cdef readonly bint is_versioned
    cdef slot_t* table
    # NULL without versions; the header's name is NULL where timestamps are versions.
    cdef int64_t* versions
    cdef bytes header
    cdef const uint8_t* header_name
    cdef int32_t header_length
    # The slots in use; never 0.
    cdef uint64_t room
    cdef uint64_t part, parts
    cdef uint64_t[2] seed
    # Of a map that was opened: for each layer a table for each part of the keys, and what keeps their memory.
    cdef table_t* files
    cdef uint64_t file_count, layer_count
    cdef list views

    def __cinit__(self, Py_ssize_t max_bytes, double load_factor, seed, part=(0, 1), versions=None):
        number, count = part
        if not 0 < load_factor <= 1 or len(seed) != 16 or max_bytes < 0:
            raise ValueError("an offset map needs a load factor above 0 and at most 1, and a seed of 16 bytes")
        if not 0 <= number < count:
            raise ValueError(f"{part} is no part of the keys: (i, n) with 0 <= i < n")
        cdef bytes key = bytes(seed)
        memcpy(self.seed, <const char*>key, 16)
        self.part, self.parts = number, count
        self.is_versioned = versions is not None
        self.slots = max_bytes // <Py_ssize_t>self.entry_size()
        self.most = int(self.slots * load_factor)
        self.room = max(min(self.slots, FIRST_ROOM), 1)
        self.latest_offset = -1
        self.table = <slot_t*>_map_memory(self.mapped(sizeof(slot_t)))
        if self.table == NULL:
            raise MemoryError
        if versions is not None:
            self.use_versions(versions.header)

    cdef int use_versions(self, header) except -1:
        if header is not None:
            self.header = header.encode()
            self.header_name = <const uint8_t*><const char*>self.header
            self.header_length = <int32_t>len(self.header)
        self.versions = <int64_t*>_map_memory(self.mapped(sizeof(int64_t)))
        if self.versions == NULL:
            raise MemoryError
        return 0

    def __dealloc__(self):
        if self.table != NULL:
            munmap(self.table, self.mapped(sizeof(slot_t)))
        if self.versions != NULL:
            munmap(self.versions, self.mapped(sizeof(int64_t)))
        free(self.files)

    @property
    def nbytes(self):
        return self.slots * <Py_ssize_t>self.entry_size()

    cdef inline size_t entry_size(self) noexcept nogil:
        return sizeof(slot_t) + (sizeof(int64_t) if self.is_versioned else 0)

    cdef inline size_t mapped(self, size_t size) noexcept nogil:
        """Bytes of a mapping that has so many for each slot."""
        return max(self.slots, 1) * size

    def advance(self, int64_t offset):
        self.latest_offset = max(self.latest_offset, offset)

    def dump(self, path, int64_t first_offset=0):
        if self.files != NULL:
            raise ValueError("a map that was opened is in files already")
        cdef uint64_t room = min(self.room, <uint64_t>max(2 * self.size, 1))
        cdef slot_t* table = self.table if room == self.room else self.packed(room)
        if table == NULL:
            raise MemoryError
        seed = PyBytes_FromStringAndSize(<char*>self.seed, 16)
        numbers = (self.part, self.parts, first_offset, room, self.size, self.latest_offset, self.messages)
        head = MapHead(seed, *numbers, self.is_versioned)
        try:
            with open(path, "xb") as file:
                file.write(head.to_bytes())
                file.write(PyMemoryView_FromMemory(<char*>table, room * sizeof(slot_t), PyBUF_READ))
        finally:
            if table != self.table:
                munmap(table, room * sizeof(slot_t))

    cdef slot_t* packed(self, uint64_t room) noexcept nogil:
        """The same keys in a table of ``room`` slots, NULL where there is no memory for it; filled in the order of the
        hashes, so from its beginning to its end.
        """
        cdef slot_t* table = <slot_t*>_map_memory(room * sizeof(slot_t))
        cdef const slot_t* entry
        cdef uint64_t at
        if table == NULL:
            return NULL
        _use_huge_pages(table, room * sizeof(slot_t))
        for at in range(self.room):
            entry = &self.table[at]
            if entry.stored:
                (<slot_t*>_probe(table, room, entry.low, entry.high, sparklog_scale(entry.low, room)))[0] = entry[0]
        return table

    @classmethod
    def open(cls, paths):
        cdef OffsetMap found
        cdef const uint8_t[::1] view
        opened = open_map_files(paths)
        heads = opened.heads
        found = cls(0, 1.0, heads[0].seed)
        found.is_versioned = heads[0].is_versioned
        holders = [holder for layer in opened.layers for holder in layer]
        found.files = <table_t*>calloc(len(holders), sizeof(table_t))
        if found.files == NULL:
            raise MemoryError
        found.views = [memoryview(mapping)[MAP_FILE_HEAD:] for mapping in opened.mappings]
        for number, holder in enumerate(holders):
            view = found.views[holder]
            found.files[number].slots = <const slot_t*>&view[0]
            found.files[number].room = heads[holder].room
        found.layer_count = len(opened.layers)
        found.file_count = len(holders) // len(opened.layers)
        found.size = sum(head.size for head in heads)
        found.latest_offset = opened.latest_offset
        found.messages = opened.messages
        return found

    def clear(self):
        free(self.files)
        self.files = NULL
        self.file_count = self.layer_count = 0
        self.views = None
        if madvise(self.table, self.mapped(sizeof(slot_t)), MADV_DONTNEED):
            memset(self.table, 0, self.room * sizeof(slot_t))
        if self.versions != NULL:  # which count only where a slot is taken
            madvise(self.versions, self.mapped(sizeof(int64_t)), MADV_DONTNEED)
        self.room = max(min(self.slots, FIRST_ROOM), 1)
        self.size = 0
        self.is_full = False
        self.latest_offset = -1
        self.messages = 0

    def covers(self, bytes key):
        cdef uint64_t low, high
        sparklog_siphash(<const uint8_t*><const char*>key, len(key), self.seed, &low, &high)
        return sparklog_scale(high, self.parts) == self.part

    def get(self, bytes key):
        return <int64_t>(_offset_bits(self.stored_of(key), self.is_versioned) - 1)

    def outdates(self, bytes key, int64_t offset):
        return bool(_gives_way(offset, self.stored_of(key), self.is_versioned))

    def is_followed(self, bytes key):
        return bool(_is_followed(self.stored_of(key), self.is_versioned))

    cdef uint64_t stored_of(self, bytes key):
        cdef item_t item
        item.key = <const uint8_t*><const char*>key
        item.key_length = <int32_t>len(key)
        return self.find(&item) if self.hash(&item) else 0

    def index(self, payload, fields, int64_t start_offset):
        cdef Py_buffer view
        cdef batch_t batch
        cdef int status
        _fill_batch(&batch, fields)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            _check_count(batch.count, view.len)
            with nogil:
                status = self.put_section(<const uint8_t*>view.buf, view.len, &batch, max(start_offset, 0))
        finally:
            PyBuffer_Release(&view)
        if status and status != MAP_FULL:
            _raise_decode(status)

    def index_batches(self, buffer, int64_t start_offset):
        cdef Py_buffer view
        cdef run_t run
        cdef Py_ssize_t taken, at = 0
        cdef int status
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            while not self.is_full:
                _gather(&run, <const uint8_t*>view.buf + at, view.len - at)
                if run.count == 0:
                    break
                with nogil:
                    status = self.put_run(<const uint8_t*>view.buf + at, &run, start_offset, &taken)
                if status == OUT_OF_MEMORY:
                    raise MemoryError
                at += taken
                if taken < run.size:
                    break
        finally:
            PyBuffer_Release(&view)
        return at

    cdef int put_run(self, const uint8_t* p, run_t* run, int64_t start_offset, Py_ssize_t* taken) noexcept nogil:
        """Put the records of a run; ``taken`` bytes of it, up to what could not be put."""
        cdef int64_t last
        cdef batch_t batch
        cdef int i, status
        taken[0] = 0
        for i in range(run.count):
            _open_batch(&batch, p)
            last = batch.base_offset + batch.last_delta
            status = self.put_section(p + HEADER_SIZE, run.sizes[i] - HEADER_SIZE, &batch, max(start_offset, 0))
            if status:
                return status
            if last >= start_offset and last > self.latest_offset:
                self.latest_offset = last
            taken[0] += run.sizes[i]
            p += run.sizes[i]
        return OK

    cdef int put_section(self, const uint8_t* p, Py_ssize_t size, batch_t* batch, int64_t start_offset) noexcept nogil:
        cdef const uint8_t* end = p + size
        cdef item_t[CHUNK] items
        cdef Py_ssize_t left = batch.count
        cdef int count, refusal, status = OK
        while left and not status:
            count = 0
            while count < CHUNK and count < left:
                status = _read_item(&p, end, batch, &items[count])
                if status:
                    break
                count += 1
            left -= count
            refusal = self.put(items, count, start_offset)
            if refusal:
                return refusal
        if status:
            return status
        return OK if p == end or batch.count == 0 else TRAILING_BYTES

    cdef int put(self, item_t* items, int count, int64_t start_offset) noexcept nogil:
        cdef slot_t* slot
        cdef uint64_t stored
        cdef int i
        if self.room < <uint64_t>self.slots and 2 * <uint64_t>(self.size + count) > self.room and self.grow():
            return OUT_OF_MEMORY
        for i in range(count):
            items[i].is_hashed = items[i].key_length >= 0 and items[i].offset >= start_offset and self.hash(&items[i])
        if self.is_versioned:
            return self.put_versions(items, count)
        for i in range(count):
            if items[i].is_hashed:
                if self.size >= self.most:
                    self.is_full = True
                    return MAP_FULL
                slot = <slot_t*>_probe(self.table, self.room, items[i].low, items[i].high, items[i].at)
                stored = <uint64_t>items[i].offset + 1
                if slot.stored == 0:
                    slot.low = items[i].low
                    slot.high = items[i].high
                    self.size += 1
                if stored > slot.stored:
                    slot.stored = stored
                if items[i].offset > self.latest_offset:
                    self.latest_offset = items[i].offset
            self.messages += 1
        return OK

    cdef int put_versions(self, item_t* items, int count) noexcept nogil:
        """As ``put``, of items that are hashed, where versions decide which record wins."""
        cdef slot_t* slot
        cdef int i
        for i in range(count):
            if items[i].is_hashed and self.versions != NULL:
                SPARKLOG_PREFETCH(<const uint8_t*>&self.versions[items[i].at])
        for i in range(count):
            if items[i].is_hashed:
                slot = NULL  # as in a map that was opened
                if self.versions != NULL:
                    slot = <slot_t*>_probe(self.table, self.room, items[i].low, items[i].high, items[i].at)
                if slot == NULL or (slot.stored == 0 and self.size >= self.most):
                    self.is_full = True
                    return MAP_FULL
                self.put_version(&items[i], slot)
                if items[i].offset > self.latest_offset:
                    self.latest_offset = items[i].offset
            self.messages += 1
        return OK

    cdef void put_version(self, item_t* item, slot_t* slot) noexcept nogil:
        cdef int64_t* known = &self.versions[slot - self.table]
        cdef uint64_t stored = <uint64_t>item.offset + 1
        cdef uint64_t winner = slot.stored & ~SPARKLOG_FOLLOWED
        cdef int64_t version = item.timestamp if self.header_name == NULL else (
            _header_version(item, self.header_name, self.header_length)
        )
        version = max(version, -1)
        if slot.stored == 0:
            slot.low = item.low
            slot.high = item.high
            self.size += 1
        elif version < known[0] or (version == known[0] and stored <= winner):
            if stored > winner:
                slot.stored |= SPARKLOG_FOLLOWED
            return
        known[0] = version
        slot.stored = stored | (SPARKLOG_FOLLOWED if stored < winner else 0)

    cdef int grow(self) noexcept nogil:
        cdef uint64_t room = min(GROWTH * self.room, <uint64_t>self.slots)
        cdef Py_ssize_t count = max(self.size, 1)
        cdef slot_t* entries = <slot_t*>_map_memory(count * self.entry_size())
        cdef int64_t* versions = <int64_t*>(entries + count)
        cdef slot_t* end = entries
        cdef uint64_t at
        if entries == NULL:
            return OUT_OF_MEMORY
        _use_huge_pages(entries, count * self.entry_size())
        for at in range(self.room):
            if self.table[at].stored:
                if self.is_versioned:
                    versions[end - entries] = self.versions[at]
                end[0] = self.table[at]
                end += 1
        memset(self.table, 0, self.room * sizeof(slot_t))
        _use_huge_pages(self.table, room * sizeof(slot_t))
        if self.is_versioned:
            _use_huge_pages(self.versions, room * sizeof(int64_t))
        self.room = room
        self.put_back(entries, versions, end - entries)
        munmap(entries, count * self.entry_size())
        return OK

    cdef void put_back(self, const slot_t* entries, const int64_t* versions, Py_ssize_t count) noexcept nogil:
        """Into an empty table."""
        cdef const slot_t* entry
        cdef slot_t* slot
        cdef Py_ssize_t i
        for i in range(count):
            entry = &entries[i]
            slot = <slot_t*>_probe(self.table, self.room, entry.low, entry.high, sparklog_scale(entry.low, self.room))
            slot[0] = entry[0]
            if self.is_versioned:
                self.versions[slot - self.table] = versions[i]

    cdef inline bint hash(self, item_t* item) noexcept nogil:
        """Hash the key and ask for the memory of its slot; False for a key of another part."""
        sparklog_siphash(item.key, item.key_length, self.seed, &item.low, &item.high)
        if self.parts > 1 and sparklog_scale(item.high, self.parts) != self.part:
            return False
        cdef const slot_t* table = self.table
        cdef uint64_t room = self.room
        if self.files != NULL:
            table = self.files[sparklog_scale(item.high, self.file_count)].slots
            room = self.files[sparklog_scale(item.high, self.file_count)].room
        item.at = sparklog_scale(item.low, room)
        SPARKLOG_PREFETCH(<const uint8_t*>&table[item.at])
        SPARKLOG_PREFETCH(<const uint8_t*>&table[item.at] + 40)
        return True

    cdef inline uint64_t find(self, item_t* item) noexcept nogil:
        """What is stored of the key, 0 where it is not in the map; of an item that is hashed."""
        cdef const slot_t* slot
        cdef const table_t* file
        cdef uint64_t layer, at = item.at
        if self.files == NULL:
            slot = _probe(self.table, self.room, item.low, item.high, at)
            return 0 if slot == NULL else slot.stored
        file = &self.files[sparklog_scale(item.high, self.file_count)]
        for layer in range(self.layer_count):
            if layer:
                file += self.file_count
                at = sparklog_scale(item.low, file.room)
            slot = _probe(file.slots, file.room, item.low, item.high, at)
            if slot != NULL and slot.stored:
                return slot.stored
        return 0


cdef int64_t _header_version(item_t* item, const uint8_t* name, int32_t length) noexcept nogil:
    """The version in the last header of this name, -1 where there is none; of a record that was read without fault."""
    cdef const uint8_t* p = item.rest
    cdef field_t field, content
    cdef int64_t version = -1
    cdef int32_t count, i
    if _read_field(&p, item.end, &field) or _read_field(&p, item.end, &field) or _read_header_count(&p, item.end, &count):
        return -1
    for i in range(count):
        if _read_header(&p, item.end, &field, &content):
            return -1
        if field.length == length and memcmp(field.data, name, length) == 0:
            version = _be64(content.data) if content.length == 8 else -1
    return version


def skip_plain(buffer):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef Py_ssize_t at = 0
    cdef int64_t size
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while view.len - at >= HEADER_SIZE:
            p = <const uint8_t*>view.buf + at
            size = <int64_t><int32_t>_be32(p + 8) + LOG_OVERHEAD
            if p[16] != 2 or not HEADER_SIZE <= size <= view.len - at or p[22] & OF_TRANSACTION:
                break
            at += size
    finally:
        PyBuffer_Release(&view)
    return at
