#include <new>
#include <cstdlib>
#include <atomic>
static std::atomic<long> left{ -1 };
extern "C" void throw_at(long n) { left = n; }
extern "C" long throw_left(void) { return left; }
static bool now() { return left.load() > 0 && left.fetch_sub(1) == 1; }
void *operator new(std::size_t n)
{
  if (now()) throw std::bad_alloc();
  void *p = std::malloc(n ? n : 1);
  if (!p) throw std::bad_alloc();
  return p;
}
void *operator new[](std::size_t n) { return operator new(n); }
void *operator new(std::size_t n, std::align_val_t a)
{
  if (now()) throw std::bad_alloc();
  return std::aligned_alloc((size_t)a, (n + (size_t)a - 1) / (size_t)a * (size_t)a);
}
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
void operator delete(void *p, std::align_val_t) noexcept { std::free(p); }
