/*
** check.h: counted checks for the C tests. A failed one prints its place and
** the test goes on; DONE() prints the sums and is main's result.
*/
#ifndef AMP_CHECK_H
#define AMP_CHECK_H
#include <math.h>
#include <stdio.h>

static int check_passed, check_failed;

static inline void check_that(int ok, const char *file, int line, const char *what)
{
  if (ok) {
    check_passed++;
    return;
  }
  check_failed++;
  printf("%s:%d: %s\n", file, line, what);
}

#define CHECK(cond) check_that(!!(cond), __FILE__, __LINE__, #cond)
#define OK(call) check_that((call) >= 0, __FILE__, __LINE__, #call " succeeds")
#define CHECK_NEAR(got, want, tolerance) check_near(got, want, tolerance, __FILE__, __LINE__, #got " near " #want)
#define DONE() (printf("%d passed, %d failed\n", check_passed, check_failed), check_failed != 0)

static inline void check_near(double got, double want, double tolerance, const char *file, int line, const char *what)
{
  check_that(fabs(got - want) <= tolerance, file, line, what);
  if (!(fabs(got - want) <= tolerance)) printf("  got %.10g, expected %.10g\n", got, want);
}
#endif
