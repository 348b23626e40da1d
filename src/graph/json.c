/*
** graph/json.c: a strict reader of JSON.
**
** What is open at a place is a stack of at most JSON_DEPTH items, so no text makes the reader recurse; items grow with
** the text that was read, so a file can't ask for more memory than a fixed multiple of its size.
*/
#include <stdlib.h>
#include "graph/json.h"

typedef struct reader {
  json *j;
  char *text; /* its end has a zero */
  size_t at, length;
  uint32_t open[JSON_DEPTH]; /* arrays and objects around the place */
  int depth;
} reader;

static int bad(const reader *r, const char *what) { return amp__fail(AMP_E_VALUE, "%s at byte %zu", what, r->at + 1); }

static void skip_blank(reader *r)
{
  while (r->at < r->length && strchr(" \t\r\n", r->text[r->at])) {
    if (r->text[r->at] == 0) return;
    r->at++;
  }
}

static int add_item(reader *r, json_kind kind, size_t at)
{
  json *j = r->j;
  if (j->count == j->room) {
    uint32_t room = j->room ? j->room + j->room / 2 : 64;
    json_item *items = realloc(j->items, sizeof *items * room);
    if (items == NULL) return amp__nomem(sizeof *items * room);
    j->items = items;
    j->room = room;
  }
  j->items[j->count] = (json_item){ .kind = kind, .at = (uint32_t)at, .next = j->count + 1 };
  j->count++;
  return 0;
}

/* -- Strings ------------------------------------------------------------------- */

/* Bytes of the UTF-8 sequence at p, 0 where there is none. */
static int utf8_length(const unsigned char *p)
{
  static const struct {
    uint8_t from, to, low, high, length; /* of the first byte; of the second */
  } forms[] = { { 0x20, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
                { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
                { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 } };
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    if (p[0] < forms[f].from || p[0] > forms[f].to) continue;
    if (forms[f].length == 1) return 1;
    if (p[1] < forms[f].low || p[1] > forms[f].high) return 0;
    for (int i = 2; i < forms[f].length; i++)
      if ((p[i] & 0xc0) != 0x80) return 0;
    return forms[f].length;
  }
  return 0;
}

/* Four hexadecimal digits at p, -1: they are not. */
static int32_t hex4(const char *p)
{
  int32_t v = 0;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    v = v * 16 + digit;
  }
  return v;
}

static char *put_utf8(char *to, int32_t c)
{
  if (c < 0x80) *to++ = (char)c;
  else if (c < 0x800) *to++ = (char)(0xc0 | c >> 6);
  else if (c < 0x10000) *to++ = (char)(0xe0 | c >> 12);
  else {
    *to++ = (char)(0xf0 | c >> 18);
    *to++ = (char)(0x80 | (c >> 12 & 63));
  }
  if (c >= 0x800) *to++ = (char)(0x80 | (c >> 6 & 63));
  if (c >= 0x80) *to++ = (char)(0x80 | (c & 63));
  return to;
}

/* What follows \u, from the first digit on. */
static int read_unicode(reader *r, char **to)
{
  int32_t c = hex4(r->text + r->at); /* the zero at the end is no digit */
  if (c < 0) return bad(r, "four hexadecimal digits expected");
  if (c == 0) return bad(r, "a zero in a string");
  r->at += 4;
  if (c >= 0xdc00 && c <= 0xdfff) return bad(r, "a lone low surrogate");
  if (c >= 0xd800 && c <= 0xdbff) {
    int32_t low = r->text[r->at] == '\\' && r->text[r->at + 1] == 'u' ? hex4(r->text + r->at + 2) : -1;
    if (low < 0xdc00 || low > 0xdfff) return bad(r, "a lone high surrogate");
    r->at += 6;
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  *to = put_utf8(*to, c);
  return 0;
}

static int read_string(reader *r)
{
  int rc = add_item(r, JSON_STRING, r->at + 1);
  char *to = r->text + ++r->at;
  while (rc == 0) {
    char c = r->text[r->at];
    if (c == '"') break;
    if (c != '\\') {
      int n = r->at < r->length ? utf8_length((unsigned char *)r->text + r->at) : 0;
      if (n == 0)
        return bad(r, r->at < r->length ? "no UTF-8, or a control character, in a string" : "a string without its end");
      while (n-- > 0) *to++ = r->text[r->at++];
      continue;
    }
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char e = r->text[r->at + 1];
    const char *known = e ? strchr(names, e) : NULL;
    if (e != 'u' && known == NULL) return bad(r, "an unknown escape");
    r->at += 2;
    if (known) *to++ = values[known - names];
    else rc = read_unicode(r, &to);
  }
  r->at++;
  *to = 0;
  return rc;
}

/* -- Values -------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int read_number(reader *r)
{
  size_t from = r->at;
  const char *p = r->text + from;
  if (*p == '-') p++;
  if (*p == '0') p++;
  else
    while (is_digit(*p)) p++;
  if (!is_digit(p[-1])) return bad(r, "a value expected");
  if (*p == '.') {
    p++;
    if (!is_digit(*p)) return bad(r, "a digit expected in a number");
    while (is_digit(*p)) p++;
  }
  if (*p == 'e' || *p == 'E') {
    p++;
    if (*p == '+' || *p == '-') p++;
    if (!is_digit(*p)) return bad(r, "a digit expected in a number");
    while (is_digit(*p)) p++;
  }
  r->at = (size_t)(p - r->text);
  return add_item(r, JSON_NUMBER, from);
}

static int read_word(reader *r)
{
  static const char *const words[] = { "null", "false", "true" };
  for (int w = 0; w < 3; w++) {
    size_t n = strlen(words[w]);
    if (r->length - r->at >= n && memcmp(r->text + r->at, words[w], n) == 0) {
      int rc = add_item(r, (json_kind)w, r->at);
      r->at += n;
      return rc;
    }
  }
  return read_number(r);
}

/* One value, or the beginning of one that holds others. */
static int read_value(reader *r)
{
  char c = r->text[r->at];
  if (c == '"') return read_string(r);
  if (c != '[' && c != '{') return read_word(r);
  if (r->depth == JSON_DEPTH) return bad(r, "too many levels of nesting");
  int rc = add_item(r, c == '[' ? JSON_ARRAY : JSON_OBJECT, r->at++);
  if (rc == 0) r->open[r->depth++] = r->j->count - 1;
  return rc;
}

static int read_key(reader *r)
{
  if (r->text[r->at] != '"') return bad(r, "a key in quotes expected");
  int rc = read_string(r);
  if (rc < 0) return rc;
  skip_blank(r);
  if (r->text[r->at] != ':') return bad(r, "':' expected");
  r->at++;
  skip_blank(r);
  return 0;
}

/* In an array or object: its end, or the next value of it. */
static int read_inside(reader *r)
{
  uint32_t around = r->open[r->depth - 1];
  bool object = r->j->items[around].kind == JSON_OBJECT;
  uint32_t held = r->j->items[around].length;
  int rc = 0;
  if (r->text[r->at] == (object ? '}' : ']')) {
    r->at++;
    r->j->items[around].next = r->j->count;
    r->depth--;
    return 0;
  }
  if (held > 0) {
    if (r->text[r->at] != ',') return bad(r, object ? "',' or '}' expected" : "',' or ']' expected");
    r->at++;
    skip_blank(r);
  }
  if (held == 0xffffff) return bad(r, "too many values in one list");
  r->j->items[around].length = (held + 1) & 0xffffff;
  if (object) rc = read_key(r);
  return rc < 0 ? rc : read_value(r);
}

int json_parse(json *j, char *text, size_t length)
{
  reader r = { .j = j, .text = text, .length = length };
  *j = (json){ .text = text };
  if (length > UINT32_MAX / 2) return amp__fail(AMP_E_VALUE, "%zu bytes of JSON are too many", length);
  skip_blank(&r);
  int rc = read_value(&r);
  while (rc == 0 && r.depth > 0) {
    skip_blank(&r);
    rc = read_inside(&r);
  }
  skip_blank(&r);
  if (rc == 0 && r.at < r.length) rc = bad(&r, "text after the value");
  return rc;
}

void json_free(json *j)
{
  free(j->items);
  j->items = NULL;
}

/* -- Asking -------------------------------------------------------------------- */

uint32_t json_get(const json *j, uint32_t object, const char *key)
{
  if (j->items[object].kind != JSON_OBJECT) return 0;
  for (uint32_t i = object + 1; i < j->items[object].next; i = j->items[i + 1].next)
    if (strcmp(j->text + j->items[i].at, key) == 0) return i + 1;
  return 0;
}

const char *json_text(const json *j, uint32_t i)
{
  return j->items[i].kind == JSON_STRING ? j->text + j->items[i].at : NULL;
}

bool json_number(const json *j, uint32_t i, double *out)
{
  const char *p = j->text + j->items[i].at;
  char *end;
  if (j->items[i].kind == JSON_NUMBER) {
    *out = strtod(p, NULL);
    return true;
  }
  if (j->items[i].kind != JSON_STRING || *p == 0) return false;
  if (strcmp(p, "nan") == 0) *out = (double)__builtin_nan("");
  else if (strcmp(p, "inf") == 0 || strcmp(p, "-inf") == 0) *out = *p == '-' ? -__builtin_inf() : __builtin_inf();
  else if (strcmp(p, "-0") == 0) *out = -0.0;
  else {
    int64_t whole;
    if (!json_integer(j, i, &whole)) return false;
    *out = strtod(p, &end);
  }
  return true;
}

bool json_integer(const json *j, uint32_t i, int64_t *out)
{
  if (j->items[i].kind != JSON_NUMBER && j->items[i].kind != JSON_STRING) return false;
  const char *p = j->text + j->items[i].at;
  bool minus = *p == '-';
  int64_t v = 0;
  if (minus) p++;
  if (!is_digit(*p)) return false;
  for (; is_digit(*p); p++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, *p - '0', &v)) return false;
  if (j->items[i].kind == JSON_STRING ? *p != 0 : *p == '.' || *p == 'e' || *p == 'E') return false;
  if (!minus && v == INT64_MIN) return false;
  *out = minus ? v : -v;
  return true;
}
