// Improves an assignment by moving a unit from one worker to another or swapping two.
// The number of holders of each unit never changes.
#pragma once

#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {

// Local search that lowers the sum over workers of the squared distance from their share of
// all elements, with a small weight on the same for load (FLOPs), and a large one on
// elements over a worker's limit. Elements come first where the two disagree: the late blocks of a
// ResNet hold most parameters and cost no more FLOPs than the early ones, and an uneven
// division of elements decides whether a worker fits at all. Deterministic; the number of
// trials is bounded.
Assignment BalanceByExchange(const SchemeInput& input, const Assignment& assignment);

// Exchanges that raise the spectral gap, each the one with the largest gain for the balance it
// costs and none that brings a worker over its limit, until input.min_gap is reached or nothing
// helps. Deterministic; the number of trials is bounded.
Assignment MixByExchange(const SchemeInput& input, const Assignment& assignment);

}  // namespace tessera::plan
