/* Rows of log files, made from the text of results without parsing them.

   A result reaches the driver as one line of JSON. Where all its values are numbers, texts, booleans and nulls, its row of a table and its
   record of an event file hold the same characters, or numbers read off them. What is not as expected is left to the Python beside
   this file, `texts.py`, which says what each function returns; nothing here decides what a file looks like. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../storage/_crc.h"

#define MAX_KEYS 255
#define MAX_VARINT 10
#define FRAME 16 /* of a record: size, its checksum, and the checksum of the payload */

typedef struct {
    const char *start, *end;
    char kind; /* i(nteger), f(loat), s(tring), b(oolean), n(ull) */
} Value;

typedef struct {
    const char *text;
    Py_ssize_t size;
} Bytes;

typedef struct {
    Bytes keys[MAX_KEYS];
    Py_ssize_t num_keys;
} Keys;

static int bytes_of(PyObject *object, Bytes *bytes)
{
    char *text;
    if (PyBytes_AsStringAndSize(object, &text, &bytes->size) < 0) return 0;
    bytes->text = text;
    return 1;
}

static int keys_of(PyObject *tuple, Keys *keys)
{
    keys->num_keys = PyTuple_Size(tuple);
    if (keys->num_keys < 0) return 0;
    if (keys->num_keys < 1 || keys->num_keys > MAX_KEYS) {
        PyErr_Format(PyExc_ValueError, "there must be 1 to %d keys, got %zd", MAX_KEYS, keys->num_keys);
        return 0;
    }
    for (Py_ssize_t i = 0; i < keys->num_keys; i++)
        if (!bytes_of(PyTuple_GetItem(tuple, i), &keys->keys[i])) return 0;
    return 1;
}

static int places_of(PyObject *object, Py_ssize_t num_keys, Bytes *places)
{
    char is_taken[MAX_KEYS] = {0};
    if (!bytes_of(object, places)) return 0;
    for (Py_ssize_t i = 0; i < places->size; i++) {
        unsigned char place = (unsigned char)places->text[i];
        if (place >= num_keys || is_taken[place]) {
            PyErr_SetString(PyExc_ValueError, "places must be those of keys, each once");
            return 0;
        }
        is_taken[place] = 1;
    }
    return 1;
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at;
}

static const char *read_number(const char *at, const char *end, Value *value)
{
    const char *digits = at += *at == '-';
    value->kind = 'i';
    if ((at = skip_digits(at, end)) == digits) return NULL;
    if (at < end && *at == '.') {
        value->kind = 'f';
        digits = ++at;
        if ((at = skip_digits(at, end)) == digits) return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        value->kind = 'f';
        digits = at += at + 1 < end && (at[1] == '-' || at[1] == '+') ? 2 : 1;
        if ((at = skip_digits(at, end)) == digits) return NULL;
    }
    value->end = at;
    return at;
}

static const char *read_value(const char *at, const char *end, Value *value)
{
    value->start = at;
    if (at == end) return NULL;
    if (*at == '"') {
        for (at++; at < end && *at != '"'; at++)
            if (*at == '\\') return NULL;
        if (at == end) return NULL;
        value->kind = 's';
        value->end = ++at;
        return at;
    }
    if (*at == '-' || (*at >= '0' && *at <= '9')) return read_number(at, end, value);
    value->kind = *at == 'n' ? 'n' : 'b';
    Py_ssize_t size = *at == 'f' ? 5 : 4;
    if (end - at < size) return NULL;
    if (memcmp(at, *at == 'n' ? "null" : *at == 'f' ? "false" : "true", size)) return NULL;
    value->end = at + size;
    return value->end;
}

/* Return whether the text is an object with exactly these keys, in this order, and read where its values stand. */
static int read_values(Bytes text, const Keys *keys, Value *values)
{
    const char *at = text.text, *end = at + text.size;
    for (Py_ssize_t i = 0; i < keys->num_keys; i++) {
        Py_ssize_t size = keys->keys[i].size;
        if (end - at < size + 1 || *at != (i ? ',' : '{') || memcmp(at + 1, keys->keys[i].text, size)) return 0;
        at = read_value(at + 1 + size, end, &values[i]);
        if (at == NULL) return 0;
    }
    return end - at == 1 && *at == '}';
}

static PyObject *num_alike(PyObject *module, PyObject *args)
{
    PyObject *texts, *tuple;
    Py_ssize_t start;
    Bytes kinds, text;
    Keys keys;
    Value values[MAX_KEYS];
    (void)module;
    if (!PyArg_ParseTuple(args, "O!nO!y#", &PyList_Type, &texts, &start, &PyTuple_Type, &tuple, &kinds.text, &kinds.size)) return NULL;
    if (!keys_of(tuple, &keys)) return NULL;
    if (kinds.size != keys.num_keys || start < 0) {
        PyErr_SetString(PyExc_ValueError, "each key has one kind, and no text comes before the first");
        return NULL;
    }
    Py_ssize_t at = start;
    for (; at < PyList_Size(texts); at++) {
        if (!bytes_of(PyList_GetItem(texts, at), &text)) return NULL;
        if (!read_values(text, &keys, values)) break;
        Py_ssize_t i = 0;
        while (i < keys.num_keys && values[i].kind == kinds.text[i]) i++;
        if (i < keys.num_keys) break;
    }
    return PyLong_FromSsize_t(at - start);
}

/* Copy a value as a cell of a table; return NULL where it would have to be quoted. */
static char *put_cell(char *to, const Value *value)
{
    const char *start = value->start, *end = value->end;
    switch (value->kind) {
    case 'n':
        return to;
    case 's':
        start++, end--;
        if (start < end && strchr("=+-@", *start)) return NULL;
        if (memchr(start, ',', end - start)) return NULL;
        break;
    case 'b':
        *to++ = (char)(*start++ - 'a' + 'A');
    }
    memcpy(to, start, end - start);
    return to + (end - start);
}

static PyObject *table(PyObject *module, PyObject *args)
{
    PyObject *texts, *tuple, *order, *made = NULL;
    Bytes places, text;
    Keys keys;
    Value values[MAX_KEYS];
    Py_ssize_t size = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!S", &PyList_Type, &texts, &PyTuple_Type, &tuple, &order)) return NULL;
    if (!keys_of(tuple, &keys) || !places_of(order, keys.num_keys, &places)) return NULL;
    Py_ssize_t num_texts = PyList_Size(texts);
    for (Py_ssize_t i = 0; i < num_texts; i++) {
        if (!bytes_of(PyList_GetItem(texts, i), &text)) return NULL;
        size += text.size;
    }
    /* No cell is longer than its value, and each stands once in a line. */
    char *buffer = PyMem_Malloc(size + num_texts * (places.size + 2) + 1), *to = buffer;
    if (buffer == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < num_texts; i++) {
        if (!bytes_of(PyList_GetItem(texts, i), &text)) goto done;
        if (!read_values(text, &keys, values)) goto refused;
        for (Py_ssize_t j = 0; j < places.size; j++) {
            if (j) *to++ = ',';
            if ((to = put_cell(to, &values[(unsigned char)places.text[j]])) == NULL) goto refused;
        }
        *to++ = '\r';
        *to++ = '\n';
    }
    made = PyBytes_FromStringAndSize(buffer, to - buffer);
    goto done;
refused:
    made = Py_NewRef(Py_None);
done:
    PyMem_Free(buffer);
    return made;
}

static uint32_t crc32c_table[256];

/* Masked as TensorFlow's record format wants it. */
static uint32_t checksum(const char *data, Py_ssize_t size)
{
    uint32_t crc = crc_of(crc32c_table, data, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static char *put_little(char *to, uint64_t number, int num_bytes)
{
    for (int i = 0; i < num_bytes; i++, number >>= 8) *to++ = (char)(number & 0xFF);
    return to;
}

static char *put_double(char *to, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return put_little(to, bits, 8);
}

static char *put_varint(char *to, uint64_t number)
{
    for (; number > 0x7F; number >>= 7) *to++ = (char)((number & 0x7F) | 0x80);
    *to++ = (char)number;
    return to;
}

/* Read a step, a positive integer of at most 18 digits; 0 for any other. */
static uint64_t step_of(const Value *value)
{
    uint64_t step = 0;
    if (value->kind != 'i' || value->end - value->start > 18) return 0;
    for (const char *at = value->start; at < value->end; at++) {
        if (*at < '0' || *at > '9') return 0;
        step = 10 * step + (uint64_t)(*at - '0');
    }
    return step;
}

/* Append a value as 32 bits; return NULL, possibly with an error set, where it is no number, or too large a one. */
static char *put_single(char *to, const Value *value)
{
    double number;
    char *end;
    if (value->kind == 'b')
        number = *value->start == 't';
    else if (value->kind == 'i' || value->kind == 'f') {
        number = PyOS_string_to_double(value->start, &end, NULL);
        if (PyErr_Occurred() || end != value->end) return NULL;
    } else
        return NULL;
    float single = (float)number;
    if (isinf(single)) return NULL;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return put_little(to, bits, 4);
}

static PyObject *events(PyObject *module, PyObject *args)
{
    PyObject *texts, *times, *tuple, *picked, *named, *made = NULL;
    Py_ssize_t step_place, size;
    Bytes places, head, text;
    Keys keys, names;
    Value values[MAX_KEYS];
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!nSy#O!", &PyList_Type, &texts, &PyList_Type, &times, &PyTuple_Type, &tuple, &step_place, &picked,
                          &head.text, &head.size, &PyTuple_Type, &named))
        return NULL;
    if (!keys_of(tuple, &keys) || !places_of(picked, keys.num_keys, &places) || !keys_of(named, &names)) return NULL;
    Py_ssize_t num_texts = PyList_Size(texts);
    if (step_place < 0 || step_place >= keys.num_keys || names.num_keys != places.size || PyList_Size(times) != num_texts) {
        PyErr_SetString(PyExc_ValueError, "there must be a step among the keys, a name for each curve and a time for each text");
        return NULL;
    }
    size = FRAME + 9 + 1 + MAX_VARINT + head.size;
    for (Py_ssize_t i = 0; i < names.num_keys; i++) size += names.keys[i].size + 4;
    char *buffer = PyMem_Malloc(num_texts ? size * num_texts : 1), *to = buffer;
    if (buffer == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < num_texts; i++) {
        if (!bytes_of(PyList_GetItem(texts, i), &text)) goto done;
        double at = PyFloat_AsDouble(PyList_GetItem(times, i));
        if (PyErr_Occurred()) goto done;
        uint64_t step = read_values(text, &keys, values) ? step_of(&values[step_place]) : 0;
        if (step == 0) goto refused;
        char *record = to, *payload = to + 12;
        to = payload;
        *to++ = 0x09; /* the tags of time and step, see event_file.py */
        to = put_double(to, at);
        *to++ = 0x10;
        to = put_varint(to, step);
        memcpy(to, head.text, head.size);
        to += head.size;
        for (Py_ssize_t j = 0; j < places.size; j++) {
            memcpy(to, names.keys[j].text, names.keys[j].size);
            to = put_single(to + names.keys[j].size, &values[(unsigned char)places.text[j]]);
            if (to == NULL) {
                if (PyErr_Occurred()) goto done;
                goto refused;
            }
        }
        put_little(record, (uint64_t)(to - payload), 8);
        put_little(record + 8, checksum(record, 8), 4);
        to = put_little(to, checksum(payload, to - payload), 4);
    }
    made = PyBytes_FromStringAndSize(buffer, to - buffer);
    goto done;
refused:
    made = Py_NewRef(Py_None);
done:
    PyMem_Free(buffer);
    return made;
}

static PyMethodDef methods[] = {
    {"num_alike", num_alike, METH_VARARGS, "See texts.py."},
    {"table", table, METH_VARARGS, "See texts.py."},
    {"events", events, METH_VARARGS, "See texts.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_rows", "See texts.py.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rows(void)
{
    fill_crc_table(crc32c_table, 0x82F63B78u); /* Castagnoli's */
    return PyModule_Create(&definition);
}
