# Sourced by local.sh and ssh.sh: waits for background processes and passes signals on to them.
pids=()

stop_all() { kill -s TERM "${pids[@]}" 2>/dev/null || true; }
trap stop_all INT TERM

# The exit code of a process. A signal interrupts `wait`, so that it may take more than one.
exit_code() {
    local code=0
    wait "$1" || code=$?
    while kill -0 "$1" 2>/dev/null; do
        code=0
        wait "$1" || code=$?
    done
    return "$code"
}

wait_for_all() {
    local pid code largest=0
    for pid in "${pids[@]}"; do
        code=0
        exit_code "$pid" || code=$?
        ((code > largest)) && largest=$code
    done
    exit "$largest"
}
