/*
** ops/rnn/rnn_bias_body.h: both biases of a layer as one, and apart the state's bias of a
** GRU's last gate; included by ops/rnn/rnn.c once for each `real`, with NAME for the names.
*/

/* `sum` has room for all gates and one more. b_ih and b_hh may be NULL. */
static void NAME(biases)(rnn_layer *layer, const real *b_ih, const real *b_hh, real *sum)
{
  real *last = sum + layer->gates;
  bool gru = layer->mode == RNN_LAYER_MODE_GRU;
  int64_t joined = gru ? 2 * layer->hidden : layer->gates;
  for (int64_t j = 0; j < layer->gates; j++) sum[j] = (b_ih ? b_ih[j] : 0) + (b_hh && j < joined ? b_hh[j] : 0);
  if (gru)
    for (int64_t j = 0; j < layer->hidden; j++) last[j] = b_hh ? b_hh[joined + j] : 0;
  layer->bias = sum;
  layer->bias_hn = last;
}

#undef real
#undef NAME
