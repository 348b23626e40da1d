/*
** graph/json.h: JSON of a file, strict, without recursion.
**
** The text is parsed in its place: strings are decoded where they stand and end with a zero, so an item is 16 bytes and
** holds no copy. Items lie in the order of the text; an item's `next` is the first one behind all that it holds.
*/
#ifndef AMP_GRAPH_JSON_H
#define AMP_GRAPH_JSON_H
#include "base/base.h"

enum { JSON_DEPTH = 64 };
typedef enum json_kind {
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT /* its items: a string, its value, and so on */
} json_kind;

typedef struct json_item {
  uint32_t kind : 8,
      length : 24; /* of an array: its values; of an object: its pairs (the largest number stands for more) */
  uint32_t at;     /* place in the text of a number or a string */
  uint32_t next;
} json_item;

typedef struct json {
  char *text;
  json_item *items;
  uint32_t count, room;
} json;

/* Parses `text`, of `length` bytes and a zero, which it changes and which must live on. 0, or an error that says where.
 */
int json_parse(json *j, char *text, size_t length);
void json_free(json *j);

/* Item numbers; 0 is the whole, and stands for "none" where an object is asked. */
uint32_t json_get(const json *j, uint32_t object, const char *key);
static inline json_kind json_kind_of(const json *j, uint32_t i) { return (json_kind)j->items[i].kind; }
const char *json_text(const json *j, uint32_t i);         /* NULL: no string */
bool json_number(const json *j, uint32_t i, double *out); /* a number, or a text that spells one: "nan", "-inf", "-0" */
bool json_integer(const json *j, uint32_t i, int64_t *out); /* exact; a text of digits, too */

#endif
