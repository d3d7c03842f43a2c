/* Events of virtual time, by (time, number); part of small.c.

   A heap of plain numbers takes a sixth of the memory of one of Python's tuples, and a comparison one look at it
   instead of five: of a million clients, none of those is in a cache. */

typedef struct {
    double time;
    long long number;
    Py_ssize_t client;
} Event;

typedef struct {
    PyObject_HEAD
    Event *heap;
    Py_ssize_t count, room;
} Events;

static int before(const Event *a, const Event *b)
{
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

static PyObject *told(const Event *event)
{
    return Py_BuildValue("dLn", event->time, event->number, event->client);
}

static PyObject *nothing_left(void)
{
    PyErr_SetString(PyExc_IndexError, "no event is left");
    return NULL;
}

/* push(time, number, client) */
static PyObject *events_push(Events *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "push takes a time, a number and a client");
        return NULL;
    }
    Event event = {PyFloat_AsDouble(given[0]), PyLong_AsLongLong(given[1]), PyLong_AsSsize_t(given[2])};
    if (PyErr_Occurred())
        return NULL;
    if (self->count == self->room) {
        Py_ssize_t room = self->room < 64 ? 64 : self->room + self->room / 2;
        Event *larger = PyMem_RawRealloc(self->heap, room * sizeof(Event));
        if (larger == NULL)
            return PyErr_NoMemory();
        self->heap = larger;
        self->room = room;
    }
    Py_ssize_t place = self->count++;
    while (place > 0 && before(&event, &self->heap[(place - 1) / 2])) {
        self->heap[place] = self->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    self->heap[place] = event;
    Py_RETURN_NONE;
}

/* pop(): the first event, which is taken out. */
static PyObject *events_pop(Events *self, PyObject *nothing)
{
    if (self->count == 0)
        return nothing_left();
    Event first = self->heap[0], last = self->heap[--self->count];
    Py_ssize_t place = 0, child;
    while ((child = 2 * place + 1) < self->count) {
        if (child + 1 < self->count && before(&self->heap[child + 1], &self->heap[child]))
            child++;
        if (!before(&self->heap[child], &last))
            break;
        self->heap[place] = self->heap[child];
        place = child;
    }
    self->heap[place] = last;
    return told(&first);
}

/* first(): the first event, which stays. */
static PyObject *events_first(Events *self, PyObject *nothing)
{
    return self->count == 0 ? nothing_left() : told(&self->heap[0]);
}

/* entries(): all events, in no order. */
static PyObject *events_entries(Events *self, PyObject *nothing)
{
    PyObject *all = PyList_New(self->count);
    for (Py_ssize_t k = 0; all != NULL && k < self->count; k++) {
        PyObject *event = told(&self->heap[k]);
        if (event == NULL)
            Py_CLEAR(all);
        else
            PyList_SET_ITEM(all, k, event);
    }
    return all;
}

static Py_ssize_t events_length(PyObject *self)
{
    return ((Events *)self)->count;
}

static void events_dealloc(PyObject *self)
{
    PyMem_RawFree(((Events *)self)->heap);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef events_methods[] = {
    {"push", (PyCFunction)(void (*)(void))events_push, METH_FASTCALL, NULL},
    {"pop", (PyCFunction)events_pop, METH_NOARGS, NULL},
    {"first", (PyCFunction)events_first, METH_NOARGS, NULL},
    {"entries", (PyCFunction)events_entries, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods events_sequence = {.sq_length = events_length};

static PyTypeObject Events_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "swiftfl_small.Events",
    .tp_basicsize = sizeof(Events),
    .tp_dealloc = events_dealloc,
    .tp_as_sequence = &events_sequence,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = events_methods,
    .tp_new = PyType_GenericNew,
};
