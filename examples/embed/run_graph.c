/*
** run_graph.c: a network that Lua trained, run in C without Lua. It tells which digit a picture shows.
**
**   luajit examples/quickstart.lua --graph digits.safetensors
**   cc run_graph.c $(pkg-config --cflags --libs amp) -o run_graph && ./run_graph digits.safetensors [digit.pgm]
**
** The picture is a PGM file (P5) of 28 x 28 pixels, white on black; without one it is the seven below. `cuda` as the last
** argument runs the network on a GPU. examples/guide/embedding.md says how to link amp into the program itself.
*/
#include <stdio.h>
#include <string.h>
#include <amp.h>

enum { SIDE = 28, CLASSES = 10 };

static amp_state *S;

/* Every call gives 0 or a negative code, and S->err says what was asked and got. */
#define TRY(call) do { if ((call) < 0) { fprintf(stderr, "%s: %s\n", S->err.op, S->err.message); goto out; } } while (0)

/* Each letter is a square of two by two pixels. */
static const char *const seven[SIDE / 2] = {
  "..............", "..............", "..............", "...XXXXXXX....", "...XXXXXXX....", ".........X....", "........XX....",
  "........X.....", ".......XX.....", ".......X......", "......XX......", "......X.......", "..............", "..............",
};

static int read_picture(const char *path, double *pixel)
{
  unsigned char bytes[SIDE * SIDE];
  if (path == NULL) {
    for (int i = 0; i < SIDE * SIDE; i++) pixel[i] = seven[i / SIDE / 2][i % SIDE / 2] == 'X';
    return 0;
  }
  FILE *f = fopen(path, "rb");
  int width, height, most, good = f != NULL && fscanf(f, "P5 %d %d %d", &width, &height, &most) == 3 && fgetc(f) != EOF
                                  && width == SIDE && height == SIDE && most == 255 && fread(bytes, 1, sizeof bytes, f) == sizeof bytes;
  if (f) fclose(f);
  if (!good) fprintf(stderr, "%s is no PGM file (P5) of %d x %d pixels\n", path, SIDE, SIDE);
  for (int i = 0; good && i < SIDE * SIDE; i++) pixel[i] = bytes[i] / 255.0;
  return good ? 0 : -1;
}

int main(int argc, char **argv)
{
  const int64_t size[] = { 1, 1, SIDE, SIDE };
  double pixel[SIDE * SIDE], score[CLASSES];
  amp_ref x = { NULL }, moved = { NULL }, y = { NULL };
  amp_graph *g = NULL;
  int status = 1, gpu = argc > 2 && strcmp(argv[argc - 1], "cuda") == 0;
  const char *picture = argc - gpu > 2 ? argv[2] : NULL;

  if (argc < 2) {
    fprintf(stderr, "usage: %s graph [picture] [cuda]\n", argv[0]);
    return 1;
  }
  S = amp_state_new();
  if (S == NULL) { fprintf(stderr, "no memory\n"); return 1; }
  S->grad_mode = 0; /* no history: nothing is to be trained here */
  const amp_slot device = { .i = (gpu ? AMP_CUDA : AMP_CPU) * 256 };
  g = amp_graph_load(S, argv[1], (int)device.i);
  TRY(g ? 0 : -1);
  if (read_picture(picture, pixel) < 0) goto out;
  TRY(amp_from_double(S, &x, pixel, 4, size, AMP_FLOAT32));
  TRY(amp_opx(S, AMP_OP_to_device, &moved, NULL, NULL, &x, NULL, NULL, NULL, NULL, &device));
  TRY(amp_graph_run(g, &moved, 1, &y, 1)); /* any thread may run the same graph; errors go to the state it uses */
  TRY(amp_read(S, &y, score, CLASSES));

  int best = 0;
  for (int i = 1; i < CLASSES; i++)
    if (score[i] > score[best]) best = i;
  printf("it is a %d\n", best);
  status = 0;
out:
  amp_release(&y);
  amp_release(&moved);
  amp_release(&x);
  amp_graph_free(g);
  amp_state_free(S);
  return status;
}
