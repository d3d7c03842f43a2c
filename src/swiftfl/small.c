/* Small vectors: a fetch, an average or a step of SGD in one call, and models given up by the thousand. Where a
   model has hundreds of numbers, NumPy spends most of its time between its calls. The arithmetic is that of
   kernels.c, and so are its bits. small.py compiles this file. Each function gives None for whatever it does not
   take: Python and NumPy do that.

   With very many clients nothing of a neighbour is in a cache, and each step from one object to the next waits for
   memory. So whatever leads to the models is asked for of all neighbours at once, stage by stage. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#include "kernels.c"
#include "pages.c"
#define MOST_MODELS 256
#define LINE 64 /* bytes that a processor reads at a time */
#define AT_ONCE 32 /* clients that memory is asked for together */

typedef struct {
    int type;
    npy_intp size;
} Kind;

static int is_number(PyObject *object)
{
    return PyFloat_CheckExact(object);
}

static int is_vector(PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    int type = PyArray_TYPE(array);
    return PyArray_NDIM(array) == 1 && (type == NPY_FLOAT || type == NPY_DOUBLE) && PyArray_ISCARRAY_RO(array);
}

static Kind kind_of(PyObject *vector)
{
    return (Kind){PyArray_TYPE((PyArrayObject *)vector), PyArray_DIM((PyArrayObject *)vector, 0)};
}

static int is_like(PyObject *object, Kind kind)
{
    if (!is_vector(object))
        return 0;
    Kind own = kind_of(object);
    return own.type == kind.type && own.size == kind.size;
}

static void *numbers(PyObject *vector)
{
    return vector == NULL ? NULL : PyArray_DATA((PyArrayObject *)vector);
}

static PyObject *made(Kind kind)
{
    return new_vector(kind.type, kind.size, kind.size * (kind.type == NPY_FLOAT ? sizeof(float) : sizeof(double)));
}

static void ask_for(const void *place, size_t bytes)
{
#ifdef __GNUC__
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const char *)place + at);
#endif
}

static void ask_for_each(const void *const *places, int count, size_t bytes)
{
    for (int k = 0; k < count; k++)
        ask_for(places[k], bytes);
}

/* Whether an inbox finds its items as a dict does; the last class that does is remembered. */
static int is_plain_dict(PyObject *inbox)
{
    static PyTypeObject *seen = NULL;
    if (Py_TYPE(inbox) == seen || PyDict_CheckExact(inbox))
        return 1;
    if (!PyDict_Check(inbox))
        return 0;
    PyObject *own = PyObject_GetAttrString((PyObject *)Py_TYPE(inbox), "__getitem__");
    PyObject *plain = PyObject_GetAttrString((PyObject *)&PyDict_Type, "__getitem__");
    int same = own != NULL && own == plain;
    Py_XDECREF(own);
    Py_XDECREF(plain);
    PyErr_Clear();
    if (same) {
        Py_INCREF(Py_TYPE(inbox));
        Py_XDECREF(seen);
        seen = Py_TYPE(inbox);
    }
    return same;
}

/* mix(own, of, x, inbox): own x and, in the order of `of`, of[k] inbox[k] added up. */
static PyObject *mix(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 4 || !is_number(given[0]) || !PyDict_CheckExact(given[1]) || !is_vector(given[2]) ||
        !is_plain_dict(given[3]))
        Py_RETURN_NONE;
    PyObject *of = given[1], *inbox = given[3], *key, *factor;
    if (PyDict_Size(of) >= MOST_MODELS || PyDict_Size(inbox) < PyDict_Size(of))
        Py_RETURN_NONE;
    Kind kind = kind_of(given[2]);
    const void *models[MOST_MODELS] = {numbers(given[2])};
    double factors[MOST_MODELS] = {PyFloat_AS_DOUBLE(given[0])};
    PyObject *found[MOST_MODELS];
    int terms = 1;
    Py_ssize_t place = 0;
    while (PyDict_Next(of, &place, &key, &factor)) {
        PyObject *model = PyDict_GetItemWithError(inbox, key);
        if (model == NULL && PyErr_Occurred())
            return NULL;
        if (model == NULL || !is_number(factor))
            Py_RETURN_NONE;
        found[terms] = model;
        factors[terms++] = PyFloat_AS_DOUBLE(factor);
    }
    ask_for_each((const void *const *)found + 1, terms - 1, sizeof(PyArrayObject_fields));
    for (int k = 1; k < terms; k++)
        if (PyArray_CheckExact(found[k]))
            ask_for(PyArray_DIMS((PyArrayObject *)found[k]), sizeof(npy_intp));
    for (int k = 1; k < terms; k++) {
        if (!is_like(found[k], kind))
            Py_RETURN_NONE;
        models[k] = numbers(found[k]);
    }
    PyObject *out = made(kind);
    if (out == NULL)
        return NULL;
    if (kind.type == NPY_FLOAT) {
        ask_for_each(models, terms, kind.size * sizeof(float));
        combine_float(numbers(out), kind.size, (const float *const *)models, factors, terms, 0);
    } else {
        ask_for_each(models, terms, kind.size * sizeof(double));
        combine_double(numbers(out), kind.size, (const double *const *)models, factors, terms, 0);
    }
    return out;
}

/* The newest of a sender's versions, (sent, number, model, since), that was sent by a time; NULL if none was. A
   version that is not such a tuple is given as it is, for whoever looks at it next. */
static PyObject *newest_by(PyObject *versions, double sent_by)
{
    for (Py_ssize_t k = PyList_GET_SIZE(versions) - 1; k >= 0; k--) {
        PyObject *version = PyList_GET_ITEM(versions, k);
        if (!PyTuple_Check(version) || PyTuple_GET_SIZE(version) != 4 || !is_number(PyTuple_GET_ITEM(version, 0)) ||
            PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(version, 0)) <= sent_by)
            return version;
    }
    return NULL;
}

static int is_version(PyObject *object)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 4 && is_number(PyTuple_GET_ITEM(object, 0)) &&
           is_number(PyTuple_GET_ITEM(object, 3));
}

/* fetch(inbox, ages, senders, newest, versions, steps, sent_by, until): put into the two dicts the model of each
   sender's newest version that was sent by a time, and its age in steps of the sender. `newest` has the newest
   version of each client, `versions` a list of all, `steps` (array of doubles) how long its steps are. */
static PyObject *fetch(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 8 || !PyDict_Check(given[0]) || !PyDict_CheckExact(given[1]) || !PyTuple_CheckExact(given[2]) ||
        !PyList_CheckExact(given[3]) || !PyList_CheckExact(given[4]) || !is_number(given[6]) || !is_number(given[7]))
        Py_RETURN_NONE;
    PyObject *senders = given[2], *newest = given[3], *versions = given[4];
    Py_ssize_t terms = PyTuple_GET_SIZE(senders), clients = PyList_GET_SIZE(newest);
    if (terms > MOST_MODELS || PyList_GET_SIZE(versions) != clients)
        Py_RETURN_NONE;
    double sent_by = PyFloat_AS_DOUBLE(given[6]), until = PyFloat_AS_DOUBLE(given[7]);
    Py_buffer steps;
    if (PyObject_GetBuffer(given[5], &steps, PyBUF_SIMPLE) != 0)
        return NULL;
    PyObject *answer = Py_None, *found[MOST_MODELS];
    Py_ssize_t places[MOST_MODELS];
    const double *lengths = steps.buf;
    if (steps.len != clients * (Py_ssize_t)sizeof(double))
        goto over;
    for (Py_ssize_t k = 0; k < terms; k++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(senders, k));
        if (place < 0 || place >= clients) {
            PyErr_Clear();
            goto over;
        }
        places[k] = place;
        ask_for(((PyListObject *)newest)->ob_item + place, 1);
        ask_for(&lengths[place], 1);
    }
    for (Py_ssize_t k = 0; k < terms; k++) {
        found[k] = PyList_GET_ITEM(newest, places[k]);
        ask_for(found[k], sizeof(PyTupleObject) + 3 * sizeof(PyObject *));
    }
    for (Py_ssize_t k = 0; k < terms; k++) {
        if (!PyTuple_Check(found[k]) || PyTuple_GET_SIZE(found[k]) != 4)
            goto over;
        ask_for(PyTuple_GET_ITEM(found[k], 0), sizeof(PyFloatObject));
        ask_for(PyTuple_GET_ITEM(found[k], 2), sizeof(PyArrayObject_fields));
        ask_for(PyTuple_GET_ITEM(found[k], 3), sizeof(PyFloatObject));
    }
    for (Py_ssize_t k = 0; k < terms; k++) {
        if (!is_version(found[k]))
            goto over;
        if (PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(found[k], 0)) > sent_by) {
            PyObject *kept = PyList_GET_ITEM(versions, places[k]);
            if (!PyList_CheckExact(kept))
                goto over;
            found[k] = newest_by(kept, sent_by);
            if (found[k] != NULL && !is_version(found[k]))
                goto over;
        }
    }
    for (Py_ssize_t k = 0; k < terms; k++) {
        if (found[k] == NULL)
            continue;
        PyObject *sender = PyTuple_GET_ITEM(senders, k);
        if (PyDict_SetItem(given[0], sender, PyTuple_GET_ITEM(found[k], 2)) != 0)
            goto failed;
        double since = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(found[k], 3)), step = lengths[places[k]];
        if (step == 0.0 || since == -Py_HUGE_VAL)
            continue;
        PyObject *age = PyFloat_FromDouble((until - since) / step);
        int put = age == NULL ? -1 : PyDict_SetItem(given[1], sender, age);
        Py_XDECREF(age);
        if (put != 0)
            goto failed;
    }
    answer = Py_True;
over:
    PyBuffer_Release(&steps);
    return Py_NewRef(answer);
failed:
    PyBuffer_Release(&steps);
    return NULL;
}

/* Ask memory for what leads to the older models of some clients, stage by stage. */
static void ask_for_versions(PyObject **versions, const npy_int64 *places, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++)
        ask_for(versions[places[k]], sizeof(PyListObject));
    for (Py_ssize_t k = 0; k < count; k++)
        ask_for(((PyListObject *)versions[places[k]])->ob_item, 2 * sizeof(PyObject *));
    for (int stage = 0; stage < 2; stage++)
        for (Py_ssize_t k = 0; k < count; k++)
            for (Py_ssize_t v = 0; v < Py_MIN(PyList_GET_SIZE(versions[places[k]]), 2); v++) {
                PyObject *version = PyList_GET_ITEM(versions[places[k]], v);
                if (stage == 0)
                    ask_for(version, sizeof(PyTupleObject) + 3 * sizeof(PyObject *));
                else if (is_version(version))
                    ask_for(PyTuple_GET_ITEM(version, v == 0 ? 2 : 0), sizeof(PyArrayObject_fields));
            }
}

/* Put `none` in place of the models of all versions before the newest that was sent by a time; 0 where they are
   not what they should be, -1 with an error. */
static int forget_older(PyObject *versions, double sent_by, PyObject *none)
{
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(versions); k++)
        if (!is_version(PyList_GET_ITEM(versions, k)))
            return 0;
    Py_ssize_t newest = PyList_GET_SIZE(versions) - 1;
    while (newest > 0 && PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(PyList_GET_ITEM(versions, newest), 0)) > sent_by)
        newest--;
    for (Py_ssize_t k = 0; k < newest; k++) {
        PyObject *version = PyList_GET_ITEM(versions, k);
        if (PyTuple_GET_ITEM(version, 2) == none)
            continue;
        PyObject *changed = Py_TYPE(version)->tp_alloc(Py_TYPE(version), 4);
        if (changed == NULL)
            return -1;
        for (int part = 0; part < 4; part++)
            PyTuple_SET_ITEM(changed, part, Py_NewRef(part == 2 ? none : PyTuple_GET_ITEM(version, part)));
        PyList_SetItem(versions, k, changed);
    }
    return 1;
}

/* forget(places, times, versions, to, usual, none): of each client in `places`, put `none` in place of the models
   that are older than its newest that was sent by its time, where its newest went to its usual receivers. */
static PyObject *forget(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 6 || !PyList_CheckExact(given[2]) || !PyList_CheckExact(given[3]) || !PyList_CheckExact(given[4]))
        Py_RETURN_NONE;
    Py_ssize_t clients = PyList_GET_SIZE(given[2]);
    if (PyList_GET_SIZE(given[3]) != clients || PyList_GET_SIZE(given[4]) != clients)
        Py_RETURN_NONE;
    PyObject **versions = ((PyListObject *)given[2])->ob_item;
    PyObject **to = ((PyListObject *)given[3])->ob_item, **usual = ((PyListObject *)given[4])->ob_item;
    Py_buffer places = {0}, times = {0};
    int done = PyObject_GetBuffer(given[0], &places, PyBUF_SIMPLE) || PyObject_GetBuffer(given[1], &times, PyBUF_SIMPLE)
                   ? -1
                   : places.len == times.len;
    const npy_int64 *place = places.buf;
    const double *time = times.buf;
    Py_ssize_t all = done == 1 ? times.len / (Py_ssize_t)sizeof(double) : 0;
    for (Py_ssize_t k = 0; k < all && done == 1; k++)
        done = place[k] >= 0 && place[k] < clients && PyList_CheckExact(versions[place[k]]);
    for (Py_ssize_t k = 0; k < all && done == 1; k++) {
        if (k % AT_ONCE == 0)
            ask_for_versions(versions, place + k, Py_MIN(all - k, AT_ONCE));
        if (to[place[k]] == usual[place[k]])
            done = forget_older(versions[place[k]], time[k], given[5]);
    }
    PyBuffer_Release(&places);
    PyBuffer_Release(&times);
    return done < 0 ? NULL : Py_NewRef(done ? Py_True : Py_None);
}

/* sgd(half, g, x, m, momentum, weight_decay, minus_step_size, nesterov): the model and momentum after a step, and
   whether both are finite; without momentum, m is None. */
static PyObject *sgd(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 8 || !is_vector(given[0]))
        Py_RETURN_NONE;
    Kind kind = kind_of(given[0]);
    PyObject *m = given[3] == Py_None ? NULL : given[3];
    if (!is_like(given[1], kind) || !is_like(given[2], kind) || (m != NULL && !is_like(m, kind)))
        Py_RETURN_NONE;
    if (!is_number(given[4]) || !is_number(given[5]) || !is_number(given[6]))
        Py_RETURN_NONE;
    double momentum = PyFloat_AS_DOUBLE(given[4]), decay = PyFloat_AS_DOUBLE(given[5]);
    double minus = PyFloat_AS_DOUBLE(given[6]);
    int nesterov = given[7] == Py_True, fine;
    if ((m == NULL) != (momentum == 0.0))
        Py_RETURN_NONE;
    PyObject *after = made(kind), *m_after = m == NULL ? NULL : made(kind);
    if (after == NULL || (m != NULL && m_after == NULL)) {
        Py_XDECREF(after);
        Py_XDECREF(m_after);
        return NULL;
    }
    if (kind.type == NPY_FLOAT)
        fine = sgd_float(numbers(after), numbers(m_after), numbers(given[0]), numbers(given[1]), numbers(given[2]),
                         numbers(m), kind.size, momentum, decay, minus, nesterov, 0);
    else
        fine = sgd_double(numbers(after), numbers(m_after), numbers(given[0]), numbers(given[1]), numbers(given[2]),
                          numbers(m), kind.size, momentum, decay, minus, nesterov, 0);
    return Py_BuildValue("NNO", after, m_after == NULL ? Py_NewRef(Py_None) : m_after, fine ? Py_True : Py_False);
}

#include "events.c"

static PyMethodDef methods[] = {
    {"fetch", (PyCFunction)(void (*)(void))fetch, METH_FASTCALL, NULL},
    {"forget", (PyCFunction)(void (*)(void))forget, METH_FASTCALL, NULL},
    {"large_pages", large_pages, METH_O, NULL},
    {"mix", (PyCFunction)(void (*)(void))mix, METH_FASTCALL, NULL},
    {"sgd", (PyCFunction)(void (*)(void))sgd, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "swiftfl_small", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_swiftfl_small(void)
{
    import_array();
    if (PyType_Ready(&Row_type) != 0)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || PyModule_AddType(made, &Events_type) != 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
