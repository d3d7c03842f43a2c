/* Memory in large pages, for what a run of many clients keeps; part of small.c.

   The models of a million clients and the objects around them are all over the memory. In pages of 4 kB not even
   the tables of those pages are in a cache, so that whoever looks at a model waits for the table first. Linux gives
   pages of 2 MB to whoever asks for them. They are asked for in areas: some are divided into rows, for vectors, and
   some are where Python's own allocator of objects puts its arenas. Elsewhere everything is where it always was. */

#if defined(__linux__)
#include <sys/mman.h>
#define LARGE_PAGE ((size_t)2 << 20)
#define AREA ((size_t)32 << 20)

/* A new area, which begins at a multiple of LARGE_PAGE; NULL where there is none. */
static char *new_area(void)
{
    char *all = mmap(NULL, AREA + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t before = -(size_t)all % LARGE_PAGE;
    if (before > 0)
        munmap(all, before);
    munmap(all + before + AREA, LARGE_PAGE - before);
    madvise(all + before, AREA, MADV_HUGEPAGE); /* what it says does not matter: small pages will do, too */
    return all + before;
}

/* --- rows: vectors of one size ---

   A row is a Python object, which is the base of the array whose numbers follow it: when the array and every view
   of it are gone, so is the row, and the next vector of its size takes its place while it is still in a cache. */

#define LEAST_BYTES 1024 /* NumPy keeps smaller blocks itself */
#define MOST_BYTES ((size_t)256 << 10)
#define ROW_HEAD 64 /* bytes before the numbers, which begin with a line of the cache */
#define MOST_POOLS 8
#define TRACED 389047 /* numpy.lib.tracemalloc_domain */

typedef struct Area Area;

typedef struct Row {
    PyObject_HEAD
    Area *area;
    struct Row *next; /* of the rows that are free */
} Row;

typedef struct {
    size_t bytes; /* of a row, with its head */
    Area *areas;  /* those with room: the one in which a row became free last is the first */
    size_t all;   /* areas, with room and without */
} Pool;

struct Area {
    Pool *pool;
    Area *before, *after;
    Row *free;
    char *unused; /* from here on no row was ever made */
    size_t live;
};

#define AREA_HEAD 64
typedef char area_head_is_large_enough[sizeof(Area) <= AREA_HEAD && sizeof(Row) <= ROW_HEAD ? 1 : -1];
static Pool pools[MOST_POOLS];
static int wanted = 0;

static int has_room(const Area *area)
{
    return area->free != NULL || (size_t)(area->unused - (char *)area) + area->pool->bytes <= AREA;
}

static void unlist(Area *area)
{
    if (area->after != NULL)
        area->after->before = area->before;
    if (area->before != NULL)
        area->before->after = area->after;
    else
        area->pool->areas = area->after;
}

static void list_first(Area *area)
{
    area->before = NULL;
    area->after = area->pool->areas;
    if (area->after != NULL)
        area->after->before = area;
    area->pool->areas = area;
}

static void begin_area(Area *area, Pool *pool)
{
    *area = (Area){.pool = pool, .unused = (char *)area + AREA_HEAD};
}

/* The pool of rows of so many bytes: that which has them, or one that no row is left of. */
static Pool *pool_of(size_t bytes)
{
    Pool *idle = NULL;
    for (Pool *pool = pools; pool < pools + MOST_POOLS; pool++) {
        if (pool->bytes == bytes)
            return pool;
        if (idle == NULL && (pool->all == 0 || (pool->all == 1 && pool->areas != NULL && pool->areas->live == 0)))
            idle = pool;
    }
    if (idle != NULL)
        idle->bytes = bytes; /* an area that it has was begun anew when its last row became free */
    return idle;
}

static void row_dealloc(PyObject *self)
{
    Row *row = (Row *)self;
    Area *area = row->area;
    Pool *pool = area->pool;
    PyTraceMalloc_Untrack(TRACED, (uintptr_t)row + ROW_HEAD);
    if (has_room(area))
        unlist(area);
    row->next = area->free;
    area->free = row;
    area->live--;
    if (area->live == 0 && pool->areas != NULL) { /* there is room elsewhere */
        pool->all--;
        munmap(area, AREA);
        return;
    }
    if (area->live == 0)
        begin_area(area, pool);
    list_first(area);
}

/* Each pool keeps an area without rows, for the next; no more. */
static void give_idle_areas_back(void)
{
    for (Pool *pool = pools; pool < pools + MOST_POOLS; pool++)
        if (pool->all == 1 && pool->areas != NULL && pool->areas->live == 0) {
            munmap(pool->areas, AREA);
            *pool = (Pool){0};
        }
}

static PyTypeObject Row_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "swiftfl_small.Row",
    .tp_basicsize = sizeof(Row),
    .tp_dealloc = row_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* A row for so many bytes of numbers; NULL, without an error, where it should be memory of another kind. */
static PyObject *new_row(size_t bytes)
{
    if (!wanted || bytes < LEAST_BYTES || bytes > MOST_BYTES)
        return NULL;
    Pool *pool = pool_of(ROW_HEAD + (bytes + ROW_HEAD - 1) / ROW_HEAD * ROW_HEAD);
    if (pool == NULL)
        return NULL;
    Area *area = pool->areas;
    if (area == NULL) {
        area = (Area *)new_area();
        if (area == NULL)
            return NULL;
        begin_area(area, pool);
        list_first(area);
        pool->all++;
    }
    Row *row = area->free;
    if (row != NULL) {
        area->free = row->next;
    } else {
        row = (Row *)area->unused;
        area->unused += pool->bytes;
    }
    row->area = area;
    area->live++;
    if (!has_room(area))
        unlist(area);
    PyTraceMalloc_Track(TRACED, (uintptr_t)row + ROW_HEAD, bytes);
    return PyObject_Init((PyObject *)row, &Row_type);
}

/* --- arenas of Python's allocator --- */

/* Not what else Python asks of that allocator: since 3.11 the frames of each thread, 16 kB at a time, of which many come
   and go, and which a kernel with larger pages could not give back by themselves. */
#define LEAST_ARENA ((size_t)256 << 10)

typedef struct {
    char *start, *unused;
    size_t live; /* arenas */
} Arenas;

static Arenas *arenas;
static size_t arenas_count, arenas_room; /* the last is where the next arena comes from */
static PyObjectArenaAllocator usual;

static void *new_arena(void *nothing, size_t bytes)
{
    Arenas *last = arenas_count > 0 ? &arenas[arenas_count - 1] : NULL;
    if (!wanted || bytes < LEAST_ARENA || bytes > AREA)
        return usual.alloc(usual.ctx, bytes);
    if (last == NULL || last->unused + bytes > last->start + AREA) {
        if (arenas_count == arenas_room) {
            size_t room = arenas_room + 64;
            Arenas *larger = PyMem_RawRealloc(arenas, room * sizeof(Arenas));
            if (larger == NULL)
                return usual.alloc(usual.ctx, bytes);
            arenas = larger;
            arenas_room = room;
        }
        char *start = new_area();
        if (start == NULL)
            return usual.alloc(usual.ctx, bytes);
        last = &arenas[arenas_count++];
        *last = (Arenas){start, start, 0};
    }
    char *arena = last->unused;
    last->unused += bytes;
    last->live++;
    return arena;
}

static void free_arena(void *nothing, void *arena, size_t bytes)
{
    for (size_t k = 0; k < arenas_count; k++) {
        if ((char *)arena < arenas[k].start || (char *)arena >= arenas[k].start + AREA)
            continue;
        munmap(arena, bytes);
        if (--arenas[k].live == 0) { /* what of it was never used */
            if (arenas[k].unused < arenas[k].start + AREA)
                munmap(arenas[k].unused, arenas[k].start + AREA - arenas[k].unused);
            memmove(&arenas[k], &arenas[k + 1], (--arenas_count - k) * sizeof(Arenas));
        }
        return;
    }
    usual.free(usual.ctx, arena, bytes); /* of before */
}

/* What is made from here on, or no more; what there is stays where it is. */
static void want_large_pages(int now_wanted)
{
    static int installed = 0;
    wanted = now_wanted;
    if (!wanted) {
        give_idle_areas_back();
    } else if (!installed) { /* once: whoever has wrapped it since still ends here */
        installed = 1;
        PyObject_GetArenaAllocator(&usual);
        PyObject_SetArenaAllocator(&(PyObjectArenaAllocator){NULL, new_arena, free_arena});
    }
}
#else
static PyTypeObject Row_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "swiftfl_small.Row",
    .tp_basicsize = sizeof(PyObject),
};

static PyObject *new_row(size_t bytes)
{
    return NULL;
}

static void want_large_pages(int now_wanted) {}
#define ROW_HEAD 0
#endif

/* large_pages(wanted): for small vectors, and for Python's objects, from here on. */
static PyObject *large_pages(PyObject *self, PyObject *yes)
{
    want_large_pages(yes == Py_True);
    Py_RETURN_NONE;
}

/* A vector whose numbers are not set. */
static PyObject *new_vector(int type, npy_intp size, size_t bytes)
{
    PyObject *row = new_row(bytes);
    if (row == NULL)
        return PyErr_Occurred() ? NULL : PyArray_SimpleNew(1, &size, type);
    PyObject *vector = PyArray_SimpleNewFromData(1, &size, type, (char *)row + ROW_HEAD);
    if (vector == NULL) {
        Py_DECREF(row);
    } else if (PyArray_SetBaseObject((PyArrayObject *)vector, row) != 0) { /* which has taken the row */
        Py_CLEAR(vector);
    }
    return vector;
}
