/* Lines of the journal, put together in one go: the same as `lines.in_python`, which says what they look like. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_crc.h"

#define HEAD 9        /* eight digits of the checksum, and a blank */
#define MAX_NUMBER 32 /* characters of an integer of 64 bits, or of a float */
#define MIN_PLAIN 1e-4 /* smaller floats, and greater ones than the other, are written otherwise, or have more digits */
#define MAX_PLAIN 1e9
#define ON_STACK 2048

static uint32_t crc32_table[256];

static char *put_digits(char *to, uint64_t number, int num_digits)
{
    char digits[20];
    int at = sizeof digits;
    for (; number || num_digits > 0; number /= 10, num_digits--) digits[--at] = (char)('0' + number % 10);
    memcpy(to, digits + at, sizeof digits - at);
    return to + sizeof digits - at;
}

static char *put_integer(char *to, PyObject *value)
{
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred()) return NULL;
    if (number < 0) *to++ = '-';
    return put_digits(to, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 1);
}

/* As `repr` has it: the shortest digits that come back as the same number. Of one with at most 15 digits those are its own, and where they
   end with the millionths, as in a driver's stamps, no long division has to find them. */
static char *put_float(char *to, PyObject *value)
{
    if (!PyFloat_CheckExact(value)) {
        PyErr_SetString(PyExc_TypeError, "a float is needed; others look otherwise");
        return NULL;
    }
    double number = PyFloat_AsDouble(value);
    if (number >= MIN_PLAIN && number < MAX_PLAIN) {
        uint64_t millionths = (uint64_t)(number * 1e6 + 0.5);
        if ((double)millionths / 1e6 == number) {
            to = put_digits(to, millionths / 1000000, 1);
            *to++ = '.';
            to = put_digits(to, millionths % 1000000, 6);
            while (to[-1] == '0' && to[-2] != '.') to--;
            return to;
        }
    }
    char *digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (digits == NULL) return NULL;
    size_t size = strlen(digits);
    memcpy(to, digits, size);
    PyMem_Free(digits);
    return to + size;
}

static char *put_value(char *to, const char **form, PyObject *value)
{
    char *bytes;
    Py_ssize_t size;
    switch (*(*form)++) {
    case 'd':
        return put_integer(to, value);
    case 'b':
        if (PyBytes_AsStringAndSize(value, &bytes, &size) < 0) return NULL;
        memcpy(to, bytes, size);
        return to + size;
    case 'a':
        return put_float(to, value);
    }
    PyErr_SetString(PyExc_ValueError, "a form has no other places than %d, %b and %a");
    return NULL;
}

/* An upper bound of the line's size, if the values fit their form. */
static Py_ssize_t size_of(PyObject *values, Py_ssize_t form_size)
{
    Py_ssize_t size = HEAD + form_size + 1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(values); i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        size += PyBytes_Check(value) ? PyBytes_Size(value) : MAX_NUMBER;
    }
    return size;
}

static PyObject *filled(PyObject *module, PyObject *args)
{
    const char *form;
    Py_ssize_t form_size, place = 0;
    PyObject *values, *made = NULL;
    char on_stack[ON_STACK], *line = on_stack;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#O!", &form, &form_size, &PyTuple_Type, &values)) return NULL;
    Py_ssize_t size = size_of(values, form_size);
    if (size > ON_STACK && (line = PyMem_Malloc(size)) == NULL) return PyErr_NoMemory();
    char *to = line + HEAD;
    for (const char *end = form + form_size; form < end;) {
        const char *literal = memchr(form, '%', end - form);
        Py_ssize_t length = (literal ? literal : end) - form;
        memcpy(to, form, length);
        to += length;
        form += length;
        if (literal == NULL) break;
        form++;
        if (place >= PyTuple_Size(values)) {
            PyErr_SetString(PyExc_ValueError, "a form has more places than there are values");
            goto done;
        }
        if ((to = put_value(to, &form, PyTuple_GetItem(values, place++))) == NULL) goto done;
    }
    if (place != PyTuple_Size(values)) {
        PyErr_SetString(PyExc_ValueError, "there are more values than a form has places");
        goto done;
    }
    uint32_t crc = crc_of(crc32_table, line + HEAD, to - line - HEAD);
    for (int i = 0; i < 8; i++) line[i] = "0123456789abcdef"[crc >> (28 - 4 * i) & 0xF];
    line[HEAD - 1] = ' ';
    *to++ = '\n';
    made = Py_BuildValue("y#k", line, (Py_ssize_t)(to - line), (unsigned long)crc);
done:
    if (line != on_stack) PyMem_Free(line);
    return made;
}

static PyMethodDef methods[] = {
    {"filled", filled, METH_VARARGS, "See lines.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_lines", "See lines.py.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__lines(void)
{
    fill_crc_table(crc32_table, 0xEDB88320u); /* that of zlib */
    return PyModule_Create(&definition);
}
