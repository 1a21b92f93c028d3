"""Groups of targets by name: what `--target=colab`, `all`, `single` and `eight` stand for."""

# What Colab's menu offers without payment; one device each.
COLAB = ("tpu-v5e-1", "gpu-t4")
ALL = (
    "cpu",
    "tpu-v2-8",
    "tpu-v3-8",
    "tpu-v4-8",
    "tpu-v5e-1",
    "tpu-v5e-4",
    "tpu-v5p-8",
    "tpu-v6e-1",
    "tpu-v6e-4",
    "tpu-7x-4",
    "gpu-mx150",
    "gpu-p100",
    "gpu-v100",
    "gpu-t4",
    "gpu-rtx3090",
    "gpu-a10g",
    "gpu-a100",
    "gpu-a100-80gb",
    "gpu-rtx4090",
    "gpu-l4",
    "gpu-l40s",
    "gpu-h100",
    "gpu-h200",
    "gpu-b200",
)
# Each kind once as a single chip, or the smallest slice that Google rents, and once as eight
# devices or the four chips of a machine: what the published matrix compiles for.
SINGLE = (
    "tpu-v2-8",
    "tpu-v3-8",
    "tpu-v4-8",
    "tpu-v5e-1",
    "tpu-v5p-8",
    "tpu-v6e-1",
    "tpu-7x-4",
    "gpu-v100",
    "gpu-p100",
    "gpu-t4",
    "gpu-l4",
    "gpu-a10g",
    "gpu-a100",
    "gpu-rtx3090",
    "gpu-rtx4090",
    "gpu-l40s",
    "gpu-h100",
    "gpu-h200",
    "gpu-b200",
    "gpu-mi300x",
)
EIGHT = (
    *("tpu-v2-8", "tpu-v3-8", "tpu-v4-8", "tpu-v5e-8", "tpu-v5p-8", "tpu-v6e-8", "tpu-7x-4"),
    *(f"{name}-8" for name in SINGLE if name.startswith("gpu-")),
)
GROUPS = {"colab": COLAB, "all": ALL, "single": SINGLE, "eight": EIGHT}
