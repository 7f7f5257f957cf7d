/* Tables of LEB128 numbers, row by row, into columns: what varint.py does where there is no compiler. */
#include <stdint.h>

/* How many numbers there are, -1 if the last one is cut off. */
int64_t p3s_numbers(const uint8_t *raw, int64_t bytes)
{
    int64_t found = 0;
    for (int64_t i = 0; i < bytes; i++)
        found += raw[i] < 0x80;
    return bytes && raw[bytes - 1] >= 0x80 ? -1 : found;
}

/* Column c of row r goes to out[c * rows + r]. 0; 1: a number of more than ten bytes, 2: of more than
 * 64 bits. The bytes must hold rows * columns whole numbers. */
int p3s_columns(const uint8_t *raw, int64_t rows, int64_t columns, uint64_t *out)
{
    int large = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            uint64_t value = *raw & 0x7f;
            int place = 0;
            while (*raw++ >= 0x80) {
                if (++place > 9)
                    return 1;
                large |= place == 9 && (*raw & 0x7f) > 1;
                value |= (uint64_t)(*raw & 0x7f) << 7 * place;
            }
            out[c * rows + r] = value;
        }
    return large ? 2 : 0;
}
