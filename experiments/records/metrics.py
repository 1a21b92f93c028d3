"""Every metric by name, with its unit and its meaning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """What a metric says.

    Attributes:
      unit: SI unit, without a prefix; ``share`` for a part of a whole, 1 being all of it; empty for
        another pure number.
      about: the meaning, shown to users beside the value.
    """

    unit: str
    about: str


METRICS: dict[str, Metric] = {
    "test_accuracy": Metric(
        "share",
        "accuracy on unseen test images, with the weights of the best epoch, or the last ones",
    ),
    "test_accuracy_multicrop": Metric(
        "share", "accuracy on unseen test images, by the mean logits of six views of each"
    ),
    "test_loss": Metric("nat", "mean cross-entropy on the test images, with the same weights"),
    "validation_accuracy": Metric("share", "accuracy on the validation images in the best epoch"),
    "boxes_found": Metric(
        "share", "share of true boxes detected, with the right class and IoU above 0.5"
    ),
    "boxes_right": Metric("share", "share of detected boxes that match a true box"),
    "mean_overlap": Metric(
        "share", "mean IoU of each true box with the best detection of its class"
    ),
    "training_loss": Metric(
        "nat", "mean cross-entropy of the last training epoch, without the penalty on weights"
    ),
    "total_loss": Metric(
        "nat", "mean of what the last training epoch minimized: training_loss and the penalty"
    ),
    "images_per_second": Metric("images/s", "batch size divided by step time"),
    "step_time": Metric("s", "median steady-state train step, end to end"),
    "step_time_low": Metric("s", "lower end of the 95 % confidence interval of step_time"),
    "step_time_high": Metric("s", "upper end of the 95 % confidence interval of step_time"),
    "call_time": Metric(
        "s", "median steady-state time of one call, of many of which the last is waited for"
    ),
    "call_latency": Metric("s", "median time of a single call that is waited for"),
    "call_time_low": Metric("s", "lower end of the 95 % confidence interval of call_time"),
    "call_time_high": Metric("s", "upper end of the 95 % confidence interval of call_time"),
    "flops_per_second": Metric("FLOP/s", "model FLOPs of a step or call, divided by its time"),
    "bytes_per_second": Metric(
        "B/s", "bytes that a call must move at least once, divided by its time"
    ),
    "mfu": Metric("share", "model FLOP/s divided by the published dense peak for this precision"),
    "mfu_measured_peak": Metric(
        "share", "model FLOP/s divided by the peak measured in this session"
    ),
    "roofline_share": Metric(
        "share", "roofline_time divided by time; above 1 if data stay in a cache"
    ),
    "roofline_time": Metric("s", "lower bound on time, from measured peak and measured bandwidth"),
    "arithmetic_intensity": Metric("FLOP/B", "model FLOPs per byte that must move at least once"),
    "flops_per_dollar": Metric(
        "FLOP/$", "μ: model FLOP/s divided by the accelerator's price per second"
    ),
    "flops_per_joule": Metric("FLOP/J", "η: model FLOP/s per watt of measured power"),
    "flops_per_joule_data_sheet": Metric("FLOP/J", "η: model FLOP/s per watt of data-sheet power"),
    "images_per_joule": Metric("images/J", "images per second per watt of measured power"),
    "images_per_joule_data_sheet": Metric(
        "images/J", "images per second per watt of data-sheet power"
    ),
    "cost_to_target": Metric("$", "cost of the training time to the target accuracy"),
    "cost_per_million_images": Metric("$", "cost of training on a million images at this rate"),
    "price_per_hour": Metric("$/h", "price of the devices used, from the device table or --price"),
    "power": Metric("W", "mean measured power of the devices used, during train steps or calls"),
    "energy_per_call": Metric("J", "measured energy of one call, repeated for seconds"),
    "energy_per_call_low": Metric("J", "energy_per_call, less what the counter may be ahead"),
    "energy_per_call_high": Metric("J", "energy_per_call, plus what the counter may be behind"),
    "energy_per_step": Metric("J", "measured energy of a train step, without validation"),
    "energy_to_target": Metric("J", "mean measured power times the training time to the target"),
    "power_data_sheet": Metric("W", "power limit of the devices used, from the device table"),
    "memory_planned": Metric(
        "B", "memory of the train program on one device, as the compiler plans it"
    ),
    "memory_used": Metric(
        "B", "most data that the process had during its steps, everything included; on a CPU"
    ),
    "memory_peak": Metric("B", "peak memory of the device if it reports it, else of this process"),
    "peak_published": Metric(
        "FLOP/s", "dense peak of the devices used for this precision, from the device table"
    ),
    "peak_measured": Metric(
        "FLOP/s", "best rate of a large matrix product on these devices, in this session"
    ),
    "bandwidth_published": Metric(
        "B/s", "memory bandwidth of the devices used, from the device table"
    ),
    "bandwidth_measured": Metric(
        "B/s", "memory bandwidth of the devices, by the STREAM triad, in this session"
    ),
    "flops_per_step": Metric(
        "FLOP", "model FLOPs of a train step: matrix products and convolutions in the jaxpr"
    ),
    "compiler_flops_per_step": Metric(
        "FLOP", "FLOPs of the train program on one device, as its compiler counts them"
    ),
    "closed_form_flops_per_step": Metric(
        "FLOP", "three forward passes less the first input gradient, layer by layer"
    ),
    "bytes_per_step": Metric("B", "bytes that a train step must move at least once"),
    "flops_per_call": Metric("FLOP", "model FLOPs of one call"),
    "bytes_per_call": Metric("B", "bytes that a call must move at least once: inputs and outputs"),
    "largest_error": Metric("", "largest difference from float64, divided by the largest value"),
    "break_even_size": Metric(
        "rows", "square matrices from which the device is faster than NumPy, copies included"
    ),
    "compile_time": Metric(
        "s", "tracing, lowering and compiling the train program; in the preflight compiling alone"
    ),
    "cache_load_time": Metric(
        "s", "loading the train program from the compilation cache, if it was there"
    ),
    "first_step_time": Metric("s", "the first step after compiling"),
    "input_wait_share": Metric(
        "share", "share of the training in which the device waited for its next batch"
    ),
    "training_time": Metric("s", "all steps and evaluations, without compiling"),
    "time_to_target": Metric(
        "s", "training time until validation first reached the target accuracy"
    ),
    "time_to_target_loss": Metric(
        "s", "training time until training first reached the target loss"
    ),
    "steps_to_target_loss": Metric("", "train steps until training first reached the target loss"),
    "total_time": Metric(
        "s", "wall time of this session, reading the data to the last evaluation, without idling"
    ),
    "bare_step_time": Metric(
        "s", "median compiled step in a bare Python loop, with the data on the device"
    ),
    "loop_over_bare": Metric(
        "", "median over rounds: step time of our loop divided by that of the bare loop"
    ),
    "parameters": Metric("", "trainable parameters"),
    "steps": Metric("", "train steps taken"),
    "epochs": Metric("", "passes over the training set"),
    "bytes_summed": Metric(
        "B", "bytes that a step all-reduces over devices, from the compiled program"
    ),
    "bus_bandwidth": Metric(
        "B/s", "bytes_per_second times what a ring of the devices sends over each link"
    ),
    "communication_share": Metric(
        "share", "share of a step beyond the local work: collectives, waiting, dispatch"
    ),
    "largest_loss_difference": Metric("", "from the reference run, divided by the largest loss"),
    "largest_parameter_difference": Metric(
        "", "from the reference run after the last step, divided by the leaf's largest value"
    ),
    "members": Metric("", "networks trained at once"),
    "one_by_one_time": Metric("s", "median time of one step of every member, one after the other"),
    "speed_up": Metric("", "median over rounds: time one after the other divided by time at once"),
    "speed_up_low": Metric("", "lower end of the 98 % confidence interval of speed_up"),
    "speed_up_high": Metric("", "upper end of the 98 % confidence interval of speed_up"),
    "mean_accuracy": Metric(
        "share", "mean accuracy of the members, each on images it was not trained on"
    ),
    "accuracy_spread": Metric("share", "standard deviation of the members' accuracies"),
    "ensemble_accuracy": Metric(
        "share", "accuracy of the members' averaged probabilities, on the same images"
    ),
    "best_learning_rate": Metric("", "learning rate of the member with the best accuracy"),
    "product_bits": Metric(
        "bit", "fraction bits kept by a matrix product in this precision: 23; TF32 10; bfloat16 7"
    ),
    "latency_p50": Metric(
        "s", "median time from images on the host to answers on the host, one batch at a time"
    ),
    "latency_p90": Metric("s", "90th percentile of that time"),
    "latency_p99": Metric("s", "99th percentile of that time"),
    "served_rate": Metric(
        "requests/s", "highest tried rate of random requests whose 99th percentile is within 10 ms"
    ),
    "accuracy_loss": Metric(
        "share", "test accuracy of the network in float32 minus that of this one"
    ),
    "model_bytes": Metric("B", "parameters, running statistics, integers and their scales"),
    "rounding_drift": Metric(
        "", "largest relative loss difference from a run with weights rounded once more"
    ),
    "memory_limit": Metric(
        "B", "memory for programs: the device's, on a CPU the process's, or --memory-limit"
    ),
    "memory_held": Metric("B", "part of memory_limit used by everything except the train program"),
    "copy_time": Metric("s", "median time to copy the training images to the devices"),
    "setup_and_training_time": Metric("s", "compiling, copying the images and training"),
    "prediction_time": Metric("s", "mean time per test image"),
    "excess_loss": Metric("nat", "training loss minus the lowest loss that this network can reach"),
    "loop_step_time": Metric(
        "s", "median step of a network without matrix products: XLA compiles every loop"
    ),
    "relative_inferences": Metric(
        "", "published: inferences per second within 10 ms, relative to a TPU v1"
    ),
    "on_chip_memory": Metric("B", "published: memory on the chip"),
    "speed_up_over_cpu": Metric("", "speed relative to the CPU of the same study"),
    "step_time_bound": Metric(
        "s",
        "predicted: lower bound on step time of the definition's FLOPs, from published peak, "
        "bandwidth and interconnect",
    ),
    "images_per_second_bound": Metric(
        "images/s", "predicted: batch size divided by step_time_bound"
    ),
    "mfu_ceiling": Metric("share", "predicted: MFU at step_time_bound"),
    "cost_per_thousand_images_bound": Metric(
        "$", "predicted: lowest cost of training on a thousand images"
    ),
    "cost_per_epoch_bound": Metric(
        "$", "predicted: lowest cost of an epoch of the recipe's data set"
    ),
    "step_time_estimate": Metric(
        "s", "estimated: step time by the kernels' rooflines, fitted to published runs"
    ),
    "step_time_estimate_low": Metric("s", "lower end of the 90 % interval of step_time_estimate"),
    "step_time_estimate_high": Metric("s", "upper end of the 90 % interval of step_time_estimate"),
    "images_per_second_estimate": Metric(
        "images/s", "estimated: batch size divided by step_time_estimate"
    ),
    "images_per_second_estimate_low": Metric(
        "images/s", "lower end of the 90 % interval of images_per_second_estimate"
    ),
    "images_per_second_estimate_high": Metric(
        "images/s", "upper end of the 90 % interval of images_per_second_estimate"
    ),
    "cost_per_epoch_estimate": Metric(
        "$", "estimated: cost of an epoch of the recipe's data set, by step_time_estimate"
    ),
    "cost_per_epoch_estimate_low": Metric(
        "$", "lower end of the 90 % interval of cost_per_epoch_estimate"
    ),
    "cost_per_epoch_estimate_high": Metric(
        "$", "upper end of the 90 % interval of cost_per_epoch_estimate"
    ),
    "cost_per_million_images_estimate": Metric(
        "$", "estimated: cost of training on a million images, by step_time_estimate"
    ),
    "cost_per_million_images_estimate_low": Metric(
        "$", "lower end of the 90 % interval of cost_per_million_images_estimate"
    ),
    "cost_per_million_images_estimate_high": Metric(
        "$", "upper end of the 90 % interval of cost_per_million_images_estimate"
    ),
    "communication_share_estimate": Metric(
        "share", "estimated: share of a step in collectives, if none of them is hidden"
    ),
    "step_time_estimate_error": Metric(
        "share", "step_time_estimate divided by the measured step_time, minus 1"
    ),
    "memory_available": Metric(
        "B", "memory for a program on one device, per its compiler; on a GPU three quarters"
    ),
    "memory_arguments": Metric("B", "memory plan: state and batch"),
    "memory_outputs": Metric("B", "memory plan: results, including those that reuse arguments"),
    "memory_temporaries": Metric("B", "memory plan: intermediate values"),
    "memory_code": Metric("B", "memory plan: the program itself"),
    "largest_batch": Metric("images", "largest batch that was compiled and fits in memory"),
    "largest_batch_without_recomputing": Metric(
        "images", "largest batch tried that fits without computing activations twice"
    ),
    "recomputed_flops": Metric(
        "", "compiled FLOPs of an image of largest_batch, by those of the leanest batch tried"
    ),
    "smallest_refused_batch": Metric(
        "images", "smallest batch that was compiled and does not fit in memory"
    ),
    "bytes_exchanged": Metric(
        "B", "results of all collectives of a step on one device, from the compiled program"
    ),
    "communication_bound": Metric(
        "s", "predicted: lower bound on a step's collectives, from the published interconnect"
    ),
    "many_steps_time": Metric("s", "median train step of ours, with many steps in one call"),
    "best_peer_step_time": Metric("s", "median train step of the fastest PyTorch or Keras variant"),
    "best_peer_call_time": Metric("s", "median inference of the fastest PyTorch or Keras variant"),
    "train_over_best_peer": Metric(
        "", "our train step divided by the best peer's, one step in each call"
    ),
    "train_over_best_peer_low": Metric(
        "", "lower end of the 98 % interval of train_over_best_peer"
    ),
    "train_over_best_peer_high": Metric(
        "", "upper end of the 98 % interval of train_over_best_peer"
    ),
    "many_steps_over_best_peer": Metric(
        "", "our train step, many in one call, divided by the best peer's, one in each call"
    ),
    "many_steps_over_best_peer_low": Metric(
        "", "lower end of the 98 % interval of many_steps_over_best_peer"
    ),
    "many_steps_over_best_peer_high": Metric(
        "", "upper end of the 98 % interval of many_steps_over_best_peer"
    ),
    "inference_over_best_peer": Metric("", "our inference divided by the best peer's"),
    "inference_over_best_peer_low": Metric(
        "", "lower end of the 98 % interval of inference_over_best_peer"
    ),
    "inference_over_best_peer_high": Metric(
        "", "upper end of the 98 % interval of inference_over_best_peer"
    ),
    "frozen_call_time": Metric("s", "median inference with fixed weights"),
    "frozen_inference_over_best_peer": Metric(
        "", "our inference with fixed weights divided by the best peer's"
    ),
    "frozen_inference_over_best_peer_low": Metric(
        "", "lower end of the 98 % interval of frozen_inference_over_best_peer"
    ),
    "frozen_inference_over_best_peer_high": Metric(
        "", "upper end of the 98 % interval of frozen_inference_over_best_peer"
    ),
    "train_over_flax": Metric("", "our train step divided by plain Flax's, one step in each call"),
    "train_over_flax_low": Metric("", "lower end of the 98 % interval of train_over_flax"),
    "train_over_flax_high": Metric("", "upper end of the 98 % interval of train_over_flax"),
    "inference_over_flax": Metric("", "our inference divided by plain Flax's"),
    "inference_over_flax_low": Metric("", "lower end of the 98 % interval of inference_over_flax"),
    "inference_over_flax_high": Metric("", "upper end of the 98 % interval of inference_over_flax"),
    "memory_over_pytorch": Metric(
        "", "peak resident memory of a training process, ours divided by PyTorch's"
    ),
    "time_to_first_step": Metric(
        "s", "from process start to the end of the first train step, with an empty cache"
    ),
    "time_to_first_step_cached": Metric("s", "the same with the programs in the compilation cache"),
    "programs_compiled": Metric("", "programs that compile for the accelerator, and fit"),
    "programs_out_of_memory": Metric("", "programs that need more memory than the accelerator has"),
    "programs_failed": Metric("", "programs that do not compile for the accelerator"),
}
