/*
** base/hooks.c: what rooms above put in for the ones below (base/hooks.h), and what all look at.
*/
#include "base/hooks.h"

amp_hooks amp__hooks;
int amp__capturing;
_Atomic uint32_t amp__epoch = 1;
