#!/usr/bin/env bash
# Runs one training as several processes on this machine, to try it out or to use all its GPUs:
#
#   launch/local.sh PROCESSES OPTIONS...
#   launch/local.sh 2 --device=cpu:1 --study=train --model=lenet5
#
# PORT is the coordinator's port, PYTHON the interpreter. Ctrl-C and SIGTERM reach all processes.
# The exit code is the largest of theirs.
set -uo pipefail
source "$(dirname "$0")/processes.sh"

count=$1
shift
for ((index = 0; index < count; index++)); do
    "${PYTHON:-python}" -m experiments.run "$@" --distributed \
        --coordinator="localhost:${PORT:-9876}" --num-processes="$count" --process-id="$index" &
    pids+=("$!")
done
wait_for_all
