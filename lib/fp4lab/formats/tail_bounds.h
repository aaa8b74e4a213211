// p-values for sums of independent yes-or-no draws whose probabilities are known.
#pragma once

#include <cstdint>
#include <vector>

namespace fp4lab {

// Twice the exact probability that Binomial(trials, p) lies at `yes` or farther from its mean on
// the same side, at most 1. 0 < p < 1.
double BinomialPValue(std::uint64_t trials, std::uint64_t yes, double p);

// A sum of independent draws of different probabilities. Its p-value is the exact binomial one if
// all draws share one probability, else twice Chernoff's bound, min over t of
// E exp(t S) / exp(t s). The bound is never less than the exact probability, so the error rate of a
// test at a given level is at most that level; the bound costs a little power.
class DrawSum {
 public:
  // `yes` of `trials` draws of probability p, 0 < p < 1.
  void Add(double p, std::uint64_t trials, std::uint64_t yes);

  std::uint64_t Trials() const { return trials_; }
  std::uint64_t Yes() const { return yes_; }
  double Mean() const { return mean_; }
  double PValue() const { return PValueOf(yes_); }
  // PValue() of the same draws if `yes` of them had been a yes.
  double PValueOf(std::uint64_t yes) const;

 private:
  struct Draws {
    double p;
    double trials;
  };
  double LogTail(double sum) const;  // log of Chernoff's bound on the side of `sum`

  std::vector<Draws> draws_;
  std::uint64_t trials_ = 0, yes_ = 0;
  double mean_ = 0.0, variance_ = 0.0;
  bool one_probability_ = true;
};

}  // namespace fp4lab
