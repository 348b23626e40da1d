/*
** terminal/tty.c: what a prompt needs from the system and the FFI can't give: signal
** handlers, and a terminal's raw mode that ends whatever ends the process.
**
** One idea: handlers only set fields of one struct (and S->interrupt, which every
** op looks at); Lua code reads them when it likes. The exceptions are
** signals that end or stop the process: they put the terminal back first.
**
** All of it is of the process, not of a state: there is one terminal. Nothing here
** draws or edits; lua/amp/repl does. Handlers use async-signal-safe calls alone.
*/
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "core.h"

static amp_tty tty;                /* handlers write it */
static amp_state *_Atomic stopped; /* whose ops SIGINT interrupts */
static volatile sig_atomic_t mode, raw;
static struct sigaction host; /* what handled SIGINT before */
static struct termios cooked, edited;

static void say(const char *text, size_t n)
{
  while (n > 0) {
    ssize_t k = write(STDOUT_FILENO, text, n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return; /* the reader is gone */
    text += k;
    n -= (size_t)k;
  }
}
#define SAY(text) say(text, sizeof text - 1)

static void set_handler(int sig, void (*fn)(int), int flags)
{
  struct sigaction a = { .sa_flags = flags };
  a.sa_handler = fn;
  sigemptyset(&a.sa_mask);
  sigaction(sig, &a, NULL);
}

/* -- SIGINT ----------------------------------------------------------------- */

static void on_interrupt(int sig)
{
  int before = errno;
  tty.interrupts++;
  amp_state *state = stopped;
  if (mode >= AMP_TTY_STOP && state) amp_interrupt(state);
  if (mode == AMP_TTY_STOP && tty.interrupts == 2) SAY("\n(still busy; Ctrl-C once more ends amp)\n");
  if (mode == AMP_TTY_STOP && tty.interrupts > 2) {
    set_handler(sig, SIG_DFL, 0);
    raise(sig);
  }
  if (mode == AMP_TTY_HOST && !(host.sa_flags & SA_SIGINFO)) {
    set_handler(sig, SIG_DFL, 0); /* a second one ends the process */
    if (host.sa_handler != SIG_DFL && host.sa_handler != SIG_IGN) host.sa_handler(sig);
  }
  errno = before;
}

amp_tty *amp_tty_watch(amp_state *state, int new_mode)
{
  if (new_mode < AMP_TTY_OFF || new_mode > AMP_TTY_HOST) return NULL;
  stopped = state;
  if (new_mode != AMP_TTY_OFF) {
    struct sigaction now;
    sigaction(SIGINT, NULL, &now);
    if (mode == AMP_TTY_OFF) host = now;
    mode = new_mode;
    /* a shell starts what runs in the background with SIGINT ignored: so it stays. No SA_RESTART: a read that waits
    ** for input has to end */
    if (host.sa_handler != SIG_IGN) set_handler(SIGINT, on_interrupt, 0);
  } else if (mode != AMP_TTY_OFF) {
    mode = AMP_TTY_OFF;
    sigaction(SIGINT, &host, NULL);
  }
  return &tty;
}

void amp__tty_forget(const amp_state *state)
{
  if (stopped == state) stopped = NULL;
}

/* -- Raw mode ----------------------------------------------------------------- */

static const int ends[]
    = { SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL };
enum { NENDS = sizeof ends / sizeof *ends };
static struct sigaction outer[NENDS], outer_tstp, outer_cont, outer_winch;

static void put_back(void)
{
  if (raw) {
    SAY("\033[?2004l"); /* pastes come as they are */
    tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
  }
}

static void take(void)
{
  tcsetattr(STDIN_FILENO, TCSADRAIN, &edited);
  SAY("\033[?2004h"); /* pastes come in brackets */
}

/* Ends as the signal would have without us, with the terminal as it was. */
static void on_end(int sig)
{
  put_back();
  raw = 0;
  set_handler(sig, SIG_DFL, 0);
  raise(sig);
}

/* Stops here; what comes after runs when the process goes on (or at once, where nothing could continue it). */
static void on_stop(int sig)
{
  int before = errno;
  sigset_t set;
  put_back();
  set_handler(sig, SIG_DFL, 0);
  sigemptyset(&set);
  sigaddset(&set, sig);
  raise(sig);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  set_handler(sig, on_stop, SA_RESTART);
  if (raw) take();
  tty.resumed = 1;
  errno = before;
}

/* After a SIGSTOP, which nothing could see coming. In the background the terminal is another's. */
static void on_continue(int sig)
{
  int before = errno;
  if (raw && tcgetpgrp(STDIN_FILENO) == getpgrp()) take();
  tty.resumed = 1;
  errno = before;
}

static void on_resize(int sig) { tty.resized = 1; }

int amp_tty_raw(int on)
{
  if (!on == !raw) return 0;
  if (!on) {
    put_back();
    raw = 0;
    for (int i = 0; i < NENDS; i++) sigaction(ends[i], &outer[i], NULL);
    sigaction(SIGTSTP, &outer_tstp, NULL);
    sigaction(SIGCONT, &outer_cont, NULL);
    sigaction(SIGWINCH, &outer_winch, NULL);
    return 0;
  }
  if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &cooked) != 0) return -1;
  edited = cooked;
  edited.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
  edited.c_cflag |= CS8;
  edited.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
  edited.c_cc[VMIN] = 1;
  edited.c_cc[VTIME] = 0;
  for (int i = 0; i < NENDS; i++) {
    sigaction(ends[i], NULL, &outer[i]);
    if (!(outer[i].sa_flags & SA_SIGINFO) && outer[i].sa_handler == SIG_DFL) set_handler(ends[i], on_end, SA_RESETHAND);
  }
  sigaction(SIGTSTP, NULL, &outer_tstp);
  sigaction(SIGCONT, NULL, &outer_cont);
  sigaction(SIGWINCH, NULL, &outer_winch);
  raw = 1;
  if (outer_tstp.sa_handler == SIG_DFL) set_handler(SIGTSTP, on_stop, SA_RESTART);
  set_handler(SIGCONT, on_continue, SA_RESTART);
  set_handler(SIGWINCH, on_resize, SA_RESTART);
  take();
  return 0;
}

/* However the process comes to call exit(): the terminal is as it was. */
static __attribute__((destructor)) void at_exit(void)
{
  put_back();
  raw = 0;
}

/* -- Reading -------------------------------------------------------------------- */

int amp_tty_read(char *buffer, int n, double seconds)
{
  struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
  int wait = seconds < 0 ? -1 : (int)(seconds * 1000);
  int ready = poll(&p, 1, wait);
  if (ready < 0) return errno == EINTR ? -2 : -1;
  if (ready == 0) return 0;
  ssize_t got = read(STDIN_FILENO, buffer, (size_t)n);
  if (got < 0) return errno == EINTR || errno == EAGAIN ? -2 : -1;
  return got == 0 ? -1 : (int)got;
}

int amp_tty_is(int fd) { return isatty(fd); }

int amp_tty_size(int *rows, int *columns)
{
  struct winsize w;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0) return -1;
  *rows = w.ws_row;
  *columns = w.ws_col;
  return 0;
}
