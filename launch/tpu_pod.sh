#!/usr/bin/env bash
# One training on all hosts of a Cloud TPU pod slice:
#
#   TPU=my-v5e-16 ZONE=us-central1-a launch/tpu_pod.sh --study=train --model=resnet50 \
#       --dataset=tfds:imagenette --results=gs://BUCKET/results
#
# The project must lie in ~/jaxcnn on each host, with its environment in .venv (docs/many-machines.md).
set -euo pipefail

gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all --command="cd jaxcnn && \
.venv/bin/python -m experiments.run --distributed --device=tpu$(printf ' %q' "$@")"
