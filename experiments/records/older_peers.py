"""Records that the study `peers` wrote when a step of ours was one of many in one call.

Until version 0.1, ``step_time`` and its ratios were of such steps, the rates were derived from
them, and the time of a step in a call of its own was ``once_step_time``.
"""

from typing import Any

RENAMED_SAMPLES = {"ours: train": "ours: many_steps", "ours: once": "ours: train"}
RENAMED_METRICS = {
    "once_step_time": "step_time",
    "step_time": "many_steps_time",
    "train_over_best_peer": "many_steps_over_best_peer",
    "train_over_best_peer_low": "many_steps_over_best_peer_low",
    "train_over_best_peer_high": "many_steps_over_best_peer_high",
}
# Of many steps in one call, and without a name for that now.
DROPPED_METRICS = {
    "step_time_low",
    "step_time_high",
    "train_over_flax",
    "train_over_flax_low",
    "train_over_flax_high",
    "images_per_second",
    "flops_per_second",
    "mfu",
    "mfu_measured_peak",
    "roofline_share",
    "flops_per_dollar",
    "flops_per_joule",
    "flops_per_joule_data_sheet",
    "images_per_joule",
    "images_per_joule_data_sheet",
    "cost_per_million_images",
}


def with_present_names(entry: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a record with the present names, if it is such a record; else unchanged.

    >>> metrics = {"step_time": 1.0, "once_step_time": 2.0, "mfu": 0.5}
    >>> with_present_names({"study": "peers", "metrics": metrics})["metrics"]
    {'many_steps_time': 1.0, 'step_time': 2.0}
    """
    metrics = entry.get("metrics", {})
    if entry.get("study") != "peers" or "once_step_time" not in metrics:
        return entry
    remaining = {name: value for name, value in metrics.items() if name not in DROPPED_METRICS}
    samples = entry.get("samples", {})
    return entry | {
        "metrics": {RENAMED_METRICS.get(name, name): value for name, value in remaining.items()},
        "samples": {RENAMED_SAMPLES.get(name, name): value for name, value in samples.items()},
    }
