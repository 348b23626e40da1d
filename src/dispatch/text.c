/*
** dispatch/text.c: tensors from numbers in a text, as requests and files bring them: a list of JSON's, nested or
** not, or numbers with commas or blanks between them. One pass, no memory but the tensor's.
**
** A number of up to 19 digits whose power of ten is small is one product or quotient of two exact doubles, and so is
** rounded as strtod rounds it; strtod reads the others.
*/
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "dispatch/dispatch.h"

enum { MOST_DIGITS = 19, EXACT_POWER = 22, LONGEST = 400 };

typedef struct {
  const char *at, *begin, *end;
  int depth;
} reader;

static bool is_digit(const char *at, const char *end) { return at < end && (unsigned)(*at - '0') <= 9; }

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Fails at the reader's place: what is there, in place of what is expected. */
static int fail_at(const reader *r, const char *expected)
{
  char got[24] = "the end";
  unsigned char c = r->at < r->end ? (unsigned char)*r->at : 0;
  if (r->at < r->end) snprintf(got, sizeof got, c >= ' ' && c < 127 ? "'%c'" : "byte %d", c);
  return amp__fail(AMP_E_VALUE, "%s expected at byte %lld of the text, got %s", expected,
                   (long long)(r->at - r->begin) + 1, got);
}

/* The number from..to by strtod, whose decimal point is the program's locale's. */
static bool by_library(const char *from, const char *to, double *value)
{
  char text[LONGEST + 1], *end;
  size_t length = (size_t)(to - from);
  if (length > LONGEST) return false;
  memcpy(text, from, length);
  text[length] = 0;
  char *point = memchr(text, '.', length);
  if (point) *point = localeconv()->decimal_point[0];
  *value = strtod(text, &end);
  return end == text + length && isfinite(*value);
}

/* Reads -12.5e3 and what is like it. */
static int read_number(reader *r, double *value)
{
  static const double powers[EXACT_POWER + 1]
      = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
          1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
  const char *from = r->at, *at = from, *end = r->end;
  bool negative = at < end && *at == '-';
  at += negative;
  if (!is_digit(at, end)) return fail_at(r, "a number is");
  uint64_t digits = 0;
  int count = 0, power = 0, given = 0;
  for (; is_digit(at, end); at++) count += digits || *at != '0', digits = digits * 10 + (uint64_t)(*at - '0');
  if (at < end && *at == '.') {
    if (!is_digit(++at, end)) return fail_at(r, "a number is");
    for (; is_digit(at, end); at++, power--)
      count += digits || *at != '0', digits = digits * 10 + (uint64_t)(*at - '0');
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    bool below = ++at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    if (!is_digit(at, end)) return fail_at(r, "a number is");
    for (; is_digit(at, end); at++) given = given < 10000 ? given * 10 + (*at - '0') : given;
    power += below ? -given : given;
  }
  if (count <= MOST_DIGITS && digits <= (1ULL << 53) && power >= -EXACT_POWER && power <= EXACT_POWER) {
    double whole = (double)digits;
    double size = power < 0 ? whole / powers[-power] : whole * powers[power];
    *value = negative ? -size : size;
  } else if (!by_library(from, at, value)) return fail_at(r, "a number that a double holds is");
  r->at = at;
  return 0;
}

/* Goes on to the next number, over blanks, brackets and at most one comma. 1: there is one, 0: the text is over. */
static int next_number(reader *r, bool first)
{
  bool comma = false, apart = first, opened = first;
  if (!first && r->end - r->at > 2 && *r->at == ',') { /* as most are: a comma, perhaps a blank, and a digit */
    const char *at = r->at + 1 + (r->at[1] == ' ');
    if (is_digit(at, r->end)) {
      r->at = at;
      return 1;
    }
  }
  for (; r->at < r->end; r->at++) {
    char c = *r->at;
    if (is_blank(c)) apart = true;
    else if (c == '[' && (comma || opened)) r->depth++, opened = apart = true;
    else if (c == ']' && r->depth > 0 && !comma) r->depth--, opened = false;
    else if (c == ',' && !comma && !opened) comma = apart = true;
    else return apart ? 1 : fail_at(r, "a comma is");
  }
  if (r->depth > 0) return fail_at(r, "] is");
  return comma ? fail_at(r, "a number is") : 0;
}

static int fill(amp_tensor *tensor, const char *text, int64_t length)
{
  reader r = { text, text, text + length, 0 };
  int size = amp__dtype_size[tensor->dtype], status;
  char *to = amp__data(tensor);
  int64_t count = 0;
  while ((status = next_number(&r, count == 0)) > 0) {
    double value = 0;
    const char *at = r.at;
    if (count == tensor->numel)
      return amp__fail(AMP_E_SHAPE, "the text has more than the %lld numbers of shape %s", (long long)count,
                       amp__shape_str(tensor->ndim, tensor->size));
    if ((status = read_number(&r, &value)) < 0) return status;
    if (amp_unlikely(tensor->dtype == AMP_INT64 && fabs(value) >= 0x1p53)) /* may not be what the text says */
      return amp__fail(AMP_E_VALUE,
                       "%.17g at byte %lld of the text is not below 2^53: whole numbers are read exactly there", value,
                       (long long)(at - text) + 1);
    if (amp_unlikely(!amp__value_put(to + count * size, tensor->dtype, value)))
      return amp__fail(AMP_E_VALUE, "value %.17g at byte %lld of the text does not fit %s", value,
                       (long long)(at - text) + 1, amp_dtype_name(tensor->dtype));
    count++;
  }
  if (status == 0 && count < tensor->numel)
    return amp__fail(AMP_E_SHAPE, "the text has %lld numbers, shape %s takes %lld", (long long)count,
                     amp__shape_str(tensor->ndim, tensor->size), (long long)tensor->numel);
  return status;
}

int amp_from_text(amp_state *state, amp_ref *out, const char *text, int64_t length, int ndim, const int64_t *size,
                  int dtype)
{
  AMP_ENTER(state);
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
  int status = amp__check_size(ndim, size, dtype, NULL);
  if (status < 0) return status;
  amp_tensor *tensor = amp__tensor_make(dtype, AMP_CPU, 0, ndim, size);
  if (tensor == NULL) return state->err.code;
  if ((status = fill(tensor, text, length)) < 0) amp__free(tensor);
  else out->t = tensor;
  return status;
}
