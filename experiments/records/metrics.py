"""What is measured: every metric by its name, with its SI unit and its meaning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric's SI unit (empty for a pure number) and what it says."""

    unit: str
    about: str


METRICS: dict[str, Metric] = {
    "test_accuracy": Metric("", "of the best epoch's weights, on data not used before"),
    "test_loss": Metric("nat", "mean cross-entropy of the same"),
    "validation_accuracy": Metric("", "of the best epoch"),
    "boxes_found": Metric(
        "", "true boxes found, with the right class and an overlap (IoU) above 0.5"
    ),
    "boxes_right": Metric("", "of what was found"),
    "mean_overlap": Metric("", "IoU of true boxes with the best of what was found of their class"),
    "training_loss": Metric("nat", "mean cross-entropy in training of the last epoch"),
    "images_per_second": Metric("1/s", "batch size over step time"),
    "step_time": Metric("s", "median steady train step, end to end"),
    "step_time_low": Metric(
        "s", "lower end of the 95 % confidence interval of the median step time"
    ),
    "step_time_high": Metric("s", "upper end of it"),
    "call_time": Metric("s", "median steady time of one call"),
    "call_time_low": Metric(
        "s", "lower end of the 95 % confidence interval of the median call time"
    ),
    "call_time_high": Metric("s", "upper end of it"),
    "flops_per_second": Metric("FLOP/s", "model FLOPs of a step, or of a call, over its time"),
    "bytes_per_second": Metric(
        "B/s", "bytes that must move at least once over the time of the call"
    ),
    "mfu": Metric("", "model FLOP/s over the published dense peak for this precision"),
    "mfu_measured_peak": Metric("", "model FLOP/s over the peak measured here, now"),
    "roofline_share": Metric("", "roofline bound over time; above 1 where data stay in a cache"),
    "roofline_time": Metric("s", "least time by the measured peak and the measured bandwidth"),
    "arithmetic_intensity": Metric("FLOP/B", "model FLOPs over bytes that must move at least once"),
    "flops_per_dollar": Metric(
        "FLOP/$", "μ: model FLOP/s for each dollar a second that the accelerator costs"
    ),
    "flops_per_joule": Metric("FLOP/J", "η: model FLOP/s per watt, power measured"),
    "flops_per_joule_data_sheet": Metric(
        "FLOP/J", "η: model FLOP/s per watt, power from the data sheet"
    ),
    "images_per_joule": Metric("1/J", "images per second over measured power"),
    "images_per_joule_data_sheet": Metric("1/J", "images per second over the data sheet's power"),
    "cost_to_target": Metric("$", "price of the time to the target accuracy"),
    "cost_per_million_images": Metric("$", "price of training on a million images at this rate"),
    "price_per_hour": Metric("$/h", "of the devices used, from the device table or --price"),
    "power": Metric("W", "mean measured power of the devices used, in training"),
    "energy_per_step": Metric(
        "J", "measured energy of training over its steps, validation and saving included"
    ),
    "power_data_sheet": Metric("W", "of the devices used, from the device table"),
    "memory_planned": Metric("B", "of the train program on one device, as the compiler plans it"),
    "memory_peak": Metric(
        "B", "high-water mark: of the device where it says so, else of this process"
    ),
    "peak_published": Metric(
        "FLOP/s", "dense peak of the devices used for this precision, from the device table"
    ),
    "peak_measured": Metric("FLOP/s", "of a large matrix product on these devices, now"),
    "bandwidth_published": Metric(
        "B/s", "memory bandwidth of the devices used, from the device table"
    ),
    "bandwidth_measured": Metric(
        "B/s", "memory bandwidth by the STREAM triad on these devices, now"
    ),
    "flops_per_step": Metric(
        "FLOP", "model FLOPs of a train step: products and convolutions, from the jaxpr"
    ),
    "compiler_flops_per_step": Metric(
        "FLOP", "of the train program by its compiler's own count, on one device"
    ),
    "closed_form_flops_per_step": Metric(
        "FLOP", "three forward passes less the first input gradient, by the layers"
    ),
    "bytes_per_step": Metric("B", "that a train step must move at least once"),
    "flops_per_call": Metric("FLOP", "model FLOPs of one call"),
    "bytes_per_call": Metric("B", "that one call must move at least once: inputs and outputs"),
    "largest_error": Metric("", "largest difference from float64 over the largest value"),
    "break_even_size": Metric(
        "rows", "of the square matrices from which the device wins over NumPy, copies included"
    ),
    "compile_time": Metric("s", "of the train program: tracing, lowering, compiling"),
    "cache_load_time": Metric(
        "s", "of the train program from the compilation cache, where it had been compiled before"
    ),
    "first_step_time": Metric("s", "of the first step after compiling"),
    "training_time": Metric("s", "all steps and evaluations, without compiling"),
    "time_to_target": Metric(
        "s", "training time until the target accuracy was first reached in validation"
    ),
    "time_to_target_loss": Metric(
        "s", "training time until the target loss was first reached in training"
    ),
    "steps_to_target_loss": Metric("", "train steps until then"),
    "total_time": Metric(
        "s", "wall time of this sitting, from reading the data to the last evaluation"
    ),
    "bare_step_time": Metric(
        "s", "median step of a bare compiled step in a Python loop, data already on the device"
    ),
    "loop_over_bare": Metric(
        "", "median over rounds of our loop's time per step over the bare one's"
    ),
    "parameters": Metric("", "trainable"),
    "steps": Metric("", "train steps taken"),
    "epochs": Metric("", "passes over the training set"),
    "bytes_summed": Metric(
        "B", "that a step sums over devices (all-reduce), by the text of the compiled program"
    ),
    "communication_share": Metric(
        "",
        "of the step beyond the same local work on one device: sums between devices, waiting, dispatch",
    ),
    "largest_loss_difference": Metric(
        "", "from the run that it must agree with, over the largest loss"
    ),
    "largest_parameter_difference": Metric(
        "", "the same of the parameters after the last step, over the largest of their leaf"
    ),
    "members": Metric("", "networks trained at once"),
    "one_by_one_time": Metric("s", "median time of a step of every member, one after the other"),
    "speed_up": Metric(
        "", "median over rounds of the time of one after the other over that at once"
    ),
    "speed_up_low": Metric("", "lower end of the 98 % confidence interval of the speed-up"),
    "speed_up_high": Metric("", "upper end of it"),
    "mean_accuracy": Metric("", "of the members, on what each was not trained on"),
    "accuracy_spread": Metric("", "standard deviation of the members' accuracies"),
    "ensemble_accuracy": Metric(
        "", "of the mean of the members' probabilities, on the same images"
    ),
    "best_learning_rate": Metric("", "of the member with the best accuracy"),
    "product_bits": Metric(
        "bit", "of a float32 factor's fraction that a matrix product keeps: 23, TF32 10, bfloat16 7"
    ),
    "latency_p50": Metric(
        "s", "median time from images on the host to the answer on the host, one batch at a time"
    ),
    "latency_p90": Metric("s", "90 answers in 100 take no longer"),
    "latency_p99": Metric("s", "99 answers in 100 take no longer"),
    "accuracy_loss": Metric("", "test accuracy of the same network in float32, less this one's"),
    "model_bytes": Metric("B", "parameters, running statistics, integers and their scales"),
    "rounding_drift": Metric(
        "",
        "largest relative difference of a step's loss from a run whose weights are rounded once more",
    ),
    "memory_limit": Metric(
        "B", "that programs could take: of the device, on a CPU of the process, or --memory-limit"
    ),
    "memory_held": Metric("B", "of the memory limit, what was taken by all but the train program"),
    "copy_time": Metric("s", "median copy of the training images to the devices"),
    "setup_and_training_time": Metric("s", "compiling, copying the images and training"),
    "prediction_time": Metric("s", "of one test image, the mean over all that were classified"),
    "excess_loss": Metric("nat", "training loss over the least that this network can have"),
    "loop_step_time": Metric(
        "s", "median step of a network without products, whose every loop XLA compiles itself"
    ),
    "relative_inferences": Metric(
        "", "published: inferences a second within 10 ms, over those of a TPU v1"
    ),
    "on_chip_memory": Metric("B", "published: memory on the chip"),
    "speed_up_over_cpu": Metric(
        "", "published: times as fast as the processor it was held against"
    ),
    "step_time_bound": Metric(
        "s", "predicted: least time of a step by the published peak and bandwidth"
    ),
    "images_per_second_bound": Metric("1/s", "predicted: batch size over that time"),
    "mfu_ceiling": Metric("", "predicted: model FLOP/s at that time over the published peak"),
    "cost_per_thousand_images_bound": Metric(
        "$", "predicted: least price of training on a thousand images"
    ),
    "cost_per_epoch_bound": Metric(
        "$", "predicted: least price of an epoch of the data set that the recipe is for"
    ),
    "step_time_calibrated": Metric(
        "s", "estimated: the bound times what measured records of this device took over theirs"
    ),
    "memory_available": Metric(
        "B", "that a program may take on one device, by its compiler; of a GPU three quarters"
    ),
    "memory_arguments": Metric("B", "of the plan: state and batch"),
    "memory_outputs": Metric(
        "B", "of the plan: results, those that take the place of arguments included"
    ),
    "memory_temporaries": Metric("B", "of the plan: what is needed in between"),
    "memory_code": Metric("B", "of the plan: the program itself"),
    "largest_batch": Metric("images", "that was compiled and whose plan fits"),
    "smallest_refused_batch": Metric("images", "that was compiled and does not fit"),
    "bytes_exchanged": Metric(
        "B",
        "results of all collectives of a step on one device, by the text of the compiled program",
    ),
    "communication_bound": Metric(
        "s", "predicted: least time of a step's collectives by the published interconnect"
    ),
    "scaling_efficiency_bound": Metric(
        "", "predicted: of several devices at most, all communication hidden behind computing"
    ),
    "scaling_efficiency_unhidden": Metric(
        "", "predicted: of several devices at most, none of it hidden"
    ),
    "once_step_time": Metric("s", "median train step of ours, each step a dispatch of its own"),
    "best_peer_step_time": Metric(
        "s", "median train step of the quickest of the PyTorch and Keras variants"
    ),
    "best_peer_call_time": Metric("s", "median inference of the quickest of them"),
    "train_over_best_peer": Metric("", "median over rounds of our train step over the best peer's"),
    "train_over_best_peer_low": Metric("", "lower end of its 98 % confidence interval"),
    "train_over_best_peer_high": Metric("", "upper end of it"),
    "inference_over_best_peer": Metric(
        "", "median over rounds of our inference over the best peer's"
    ),
    "inference_over_best_peer_low": Metric("", "lower end of its 98 % confidence interval"),
    "inference_over_best_peer_high": Metric("", "upper end of it"),
    "train_over_flax": Metric("", "median over rounds of our train step over plain Flax's"),
    "train_over_flax_low": Metric("", "lower end of its 98 % confidence interval"),
    "train_over_flax_high": Metric("", "upper end of it"),
    "inference_over_flax": Metric("", "median over rounds of our inference over plain Flax's"),
    "inference_over_flax_low": Metric("", "lower end of its 98 % confidence interval"),
    "inference_over_flax_high": Metric("", "upper end of it"),
    "memory_over_pytorch": Metric(
        "", "peak resident memory of a process that takes train steps, ours over PyTorch's"
    ),
    "time_to_first_step": Metric(
        "s", "from starting the process to its first finished train step, nothing compiled before"
    ),
    "time_to_first_step_cached": Metric(
        "s", "the same where the compilation cache has the programs"
    ),
}
