/* Small vectors: an average or a step of SGD in one call. Where a model has hundreds of numbers, NumPy spends
   most of its time between its calls. The arithmetic is that of kernels.c, and so are its bits. small.py compiles
   this file. Each function gives None for whatever it does not take: NumPy does that. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#include "kernels.c"

#define MOST_MODELS 256
#define LINE 64 /* bytes that a processor reads at a time */

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
    return PyArray_SimpleNew(1, &kind.size, kind.type);
}

/* Ask for all models at once: they lie anywhere in memory, and each would be waited for in turn. */
static void ask_for(const void *const *models, int count, size_t bytes)
{
#ifdef __GNUC__
    for (int k = 0; k < count; k++)
        for (size_t at = 0; at < bytes; at += LINE)
            __builtin_prefetch((const char *)models[k] + at);
#endif
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
    int terms = 1;
    Py_ssize_t place = 0;
    while (PyDict_Next(of, &place, &key, &factor)) {
        PyObject *model = PyDict_GetItemWithError(inbox, key);
        if (model == NULL) {
            if (PyErr_Occurred())
                return NULL;
            continue;
        }
        if (!is_number(factor) || !is_like(model, kind))
            Py_RETURN_NONE;
        models[terms] = numbers(model);
        factors[terms++] = PyFloat_AS_DOUBLE(factor);
    }
    PyObject *out = made(kind);
    if (out == NULL)
        return NULL;
    if (kind.type == NPY_FLOAT) {
        ask_for(models, terms, kind.size * sizeof(float));
        combine_float(numbers(out), kind.size, (const float *const *)models, factors, terms, 0);
    } else {
        ask_for(models, terms, kind.size * sizeof(double));
        combine_double(numbers(out), kind.size, (const double *const *)models, factors, terms, 0);
    }
    return out;
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

static PyMethodDef methods[] = {
    {"mix", (PyCFunction)(void (*)(void))mix, METH_FASTCALL, NULL},
    {"sgd", (PyCFunction)(void (*)(void))sgd, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "swiftfl_small", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_swiftfl_small(void)
{
    import_array();
    return PyModule_Create(&module);
}
