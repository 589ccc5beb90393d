/* Cyclic redundancy checks, byte by byte: the larger tables of faster ones would have to be fetched anew at each report. */

#pragma once

#include <Python.h>
#include <stdint.h>

static void fill_crc_table(uint32_t table[256], uint32_t reflected_polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? reflected_polynomial : 0);
        table[byte] = crc;
    }
}

static uint32_t crc_of(const uint32_t table[256], const char *data, Py_ssize_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (Py_ssize_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ (unsigned char)data[i]) & 0xFF];
    return crc ^ 0xFFFFFFFFu;
}
