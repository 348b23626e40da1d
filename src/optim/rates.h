/*
** optim/rates.h: what NAdam and RAdam multiply a step by, the same on a CPU and on a GPU.
**
** NAdam's momentum at step t is mu_t = beta1 (1 - 0.96^(t decay) / 2) (Dozat, 2016), and its bias is corrected by the
** product of all of them. The product lies beside a parameter's step count; 0 there: it is not known, and is
** multiplied anew. RAdam's rectification is Liu et al., 2020.
*/
#ifndef AMP_OPTIM_RATES_H
#define AMP_OPTIM_RATES_H
#include <math.h>
#ifdef __CUDACC__
#define AMP_RATE static __device__ __forceinline__
#else
#define AMP_RATE static inline
#endif

typedef struct amp__nadam {
  double mu, mu_next, product; /* product: mu_1 .. mu_t */
} amp__nadam;

AMP_RATE double amp__nadam_mu(double beta1, double decay, double t) { return beta1 * (1 - 0.5 * pow(0.96, t * decay)); }

/* steps: updates so far; the product of their momenta. */
AMP_RATE amp__nadam amp__nadam_rates(double beta1, double decay, const double *steps)
{
  double t = steps[0] + 1, product = steps[1];
  if (product == 0) {
    product = 1;
    for (double i = 1; i < t && product > 1e-280; i += 1) product *= amp__nadam_mu(beta1, decay, i);
  }
  amp__nadam rates = { amp__nadam_mu(beta1, decay, t), amp__nadam_mu(beta1, decay, t + 1), 0 };
  product *= rates.mu;
  rates.product = product > 1e-280 ? product : 1e-280; /* 0 would be multiplied anew at each step */
  return rates;
}

/* What lr / (1 - beta1^t) is multiplied by, over sqrt(v) + eps; 0: step t does not adapt. */
AMP_RATE double amp__radam_rate(double beta2, double t)
{
  double power = pow(beta2, t), most = 2 / (1 - beta2) - 1, length = most - 2 * t * power / (1 - power);
  if (!(length > 5)) return 0;
  return sqrt((1 - power) * (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
}

#endif
