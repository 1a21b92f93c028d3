#!/usr/bin/env bash
# Runs one training on several hosts by plain ssh:
#
#   launch/ssh.sh "HOST HOST..." FOLDER OPTIONS...
#   launch/ssh.sh "node1 node2" /shared/jaxcnn --study=train --model=resnet50 \
#       --dataset=tfds:imagenette --results=/shared/results
#
# FOLDER is this project on each host, with its environment in .venv; --results names a folder that
# all hosts share, or a bucket. The first host is the coordinator, on port PORT. SSH and PYTHON
# replace the commands. The exit code is the largest of the processes'.
set -uo pipefail
source "$(dirname "$0")/processes.sh"

read -ra hosts <<<"$1"
folder=$2
shift 2
options=$(printf ' %q' "$@")
for index in "${!hosts[@]}"; do
    # -tt: the process ends with the connection.
    ${SSH:-ssh -tt} "${hosts[index]}" "cd $(printf %q "$folder") && \
exec ${PYTHON:-.venv/bin/python} -m experiments.run$options --distributed \
--coordinator=${hosts[0]}:${PORT:-9876} --num-processes=${#hosts[@]} --process-id=$index" \
        </dev/null &
    pids+=("$!")
done
wait_for_all
