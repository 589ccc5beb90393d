/* Whether a value is plain JSON: the same as `fast_json.is_plain_in_python`, which says what that is. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

#define MAX_DEPTH 200 /* below what orjson takes */

static int is_plain(PyObject *value, int depth)
{
    PyObject *item;
    Py_ssize_t place = 0;
    if (value == Py_None || PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value)) return 1;
    if (PyFloat_CheckExact(value)) return isfinite(PyFloat_AsDouble(value));
    if (depth > MAX_DEPTH) return 0;
    if (PyDict_CheckExact(value)) {
        while (PyDict_Next(value, &place, NULL, &item))
            if (!is_plain(item, depth + 1)) return 0;
        return 1;
    }
    if (PyList_CheckExact(value)) {
        for (; place < PyList_Size(value); place++)
            if (!is_plain(PyList_GetItem(value, place), depth + 1)) return 0;
        return 1;
    }
    if (PyTuple_CheckExact(value)) {
        for (; place < PyTuple_Size(value); place++)
            if (!is_plain(PyTuple_GetItem(value, place), depth + 1)) return 0;
        return 1;
    }
    return 0;
}

static PyObject *is_plain_object(PyObject *module, PyObject *value)
{
    (void)module;
    return PyBool_FromLong(is_plain(value, 0));
}

static PyMethodDef methods[] = {
    {"is_plain", is_plain_object, METH_O, "See fast_json.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_plain", "See fast_json.py.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__plain(void)
{
    return PyModule_Create(&definition);
}
