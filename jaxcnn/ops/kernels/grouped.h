// Convolutions of groups of channels, each of which has a kernel of its own.
//
// Groups that are narrower than a vector are merged: the kernel of several adjacent groups is one
// dense kernel, which is zero between a group's channels and another group's outputs. It takes more
// multiplications and wastes no lanes.
#pragma once

#include "direct.h"
#include "gradient.h"

namespace jaxcnn {

// How a kernel [h][w][C / groups][D] is divided into merged groups.
class Groups {
 public:
  // `width` is the number of adjacent elements that a group has in a vector: its outputs or, in the
  // gradient with respect to the images, its channels.
  Groups(Index taps, Index count, Index channels, Index outputs, Index width)
      : taps_(taps), count_(count), channels_(channels / count), outputs_(outputs / count) {
    while (together_ < count && (count % together_ || together_ * width < kLanes)) ++together_;
  }

  Index Count() const { return count_ / together_; }  // of merged groups
  Index Channels() const { return together_ * channels_; }
  Index Outputs() const { return together_ * outputs_; }
  Index KernelSize() const { return taps_ * Channels() * Outputs(); }

  // Copies the kernel of a merged group to dense [h][w][Channels()][Outputs()].
  void ToDense(Index merged, const float* kernel, float* dense) const {
    std::memset(dense, 0, KernelSize() * sizeof(float));
    ForEachRow(merged, [=](Index sparse_row, Index dense_row) {
      std::memcpy(dense + dense_row, kernel + sparse_row, outputs_ * sizeof(float));
    });
  }

  // The inverse: elements between different groups are dropped.
  void FromDense(Index merged, const float* dense, float* kernel) const {
    ForEachRow(merged, [=](Index sparse_row, Index dense_row) {
      std::memcpy(kernel + sparse_row, dense + dense_row, outputs_ * sizeof(float));
    });
  }

 private:
  // Calls f with the position of each row of a group's outputs in the kernel and in the dense one.
  template <class F>
  void ForEachRow(Index merged, F f) const {
    for (Index tap = 0; tap < taps_; ++tap)
      for (Index group = 0; group < together_; ++group)
        for (Index channel = 0; channel < channels_; ++channel) {
          const Index column = (merged * together_ + group) * outputs_;
          const Index row = tap * Channels() + group * channels_ + channel;
          f((tap * channels_ + channel) * count_ * outputs_ + column,
            row * Outputs() + group * outputs_);
        }
  }

  Index taps_, count_, channels_, outputs_;  // channels and outputs of one group
  Index together_ = 1;
};

// The part of a convolution that computes some of the outputs from some of the channels.
inline Geometry PartOfChannels(const Geometry& g, Index channels, Index outputs) {
  Geometry part = g;
  part.channels = channels;
  part.outputs = outputs;
  return part;
}

// Calls convolve(part, images, kernel, epilogue, result) for each merged group of a convolution of
// the channels `g.channels` of all groups, with a kernel [h][w][C / groups][D]. A flipped kernel,
// of the gradient with respect to the images, is that of the convolution, whose outputs are
// `g.channels`.
template <class Convolve>
void GroupedConvolution(const Geometry& g, Index groups, const float* images, const float* kernel,
                        bool is_flipped, const Epilogue& epilogue, float* result,
                        Convolve convolve) {
  const Index channels = is_flipped ? g.outputs : g.channels;
  const Index outputs = is_flipped ? g.channels : g.outputs;
  const Groups merged(g.TapCount(), groups, channels, outputs, g.outputs / groups);
  const Buffer dense(merged.KernelSize());
  const Index inputs_together = is_flipped ? merged.Outputs() : merged.Channels();
  const Index outputs_together = is_flipped ? merged.Channels() : merged.Outputs();
  const Geometry part = PartOfChannels(g, inputs_together, outputs_together);
  for (Index group = 0; group < merged.Count(); ++group) {
    merged.ToDense(group, kernel, dense);
    const Index first = group * outputs_together;
    convolve(part, images + group * inputs_together,
             Kernel{dense, g.TapCount(), part.channels, part.outputs, is_flipped},
             epilogue.From(first), result + first);
  }
}

// Computes the gradient [h][w][C / groups][D] with respect to the kernel, where
// compute(part, images, cotangent, gradient) computes that of a merged group.
template <class Compute>
void GroupedKernelGradient(const Geometry& g, Index groups, const float* images,
                           const float* cotangent, float* gradient, Compute compute) {
  const Groups merged(g.TapCount(), groups, g.channels, g.outputs, g.outputs / groups);
  const Buffer dense(merged.KernelSize());
  const Geometry part = PartOfChannels(g, merged.Channels(), merged.Outputs());
  for (Index group = 0; group < merged.Count(); ++group) {
    compute(part, images + group * part.channels, cotangent + group * part.outputs,
            static_cast<float*>(dense));
    merged.FromDense(group, dense, gradient);
  }
}

}  // namespace jaxcnn
