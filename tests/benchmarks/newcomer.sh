#!/usr/bin/env bash
# What a newcomer does with nothing but the README, timed step by step: install into a fresh virtual environment, answer
# "two RTX 3090 or one RTX 4090 for a 32B model at 32k context", draw the chart, write the report, add a device.
#
#     tests/benchmarks/newcomer.sh [FOLDER]
#
# FOLDER, a new temporary one by default, keeps what is made. PYTHON names the interpreter (default: python3).
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"

step() {
  local name=$1 from=$EPOCHREALTIME
  shift
  "$@" >"$name.txt" 2>&1 || { cat "$name.txt"; echo "$name failed"; exit 1; }
  awk -v a="$from" -v b="$EPOCHREALTIME" -v n="$name" 'BEGIN { printf "%-14s %6.1f s\n", n, b - a }'
}

install() {
  "${PYTHON:-python3}" -m venv venv
  venv/bin/pip install -q "$checkout"
}

# Exit code 1 is an answer: it does not fit.
does_it_fit() {
  "$run" fit qwen3-32b rtx-4090 --weights Q4_K_M --context 32768 || [ $? -eq 1 ]
}

# The example of CONTRIBUTING.md, as it stands there.
add_device() {
  awk '/<!-- file: nvidia-geforce-rtx-9090.yaml -->/ { found = 1 } found && /^```$/ { exit } inside { print }
       found && /^```yaml$/ { inside = 1 }' "$checkout/CONTRIBUTING.md" >nvidia-geforce-rtx-9090.yaml
  "$run" hardware lint nvidia-geforce-rtx-9090.yaml
  "$run" estimate qwen3-32b ./nvidia-geforce-rtx-9090.yaml --weights Q4_K_M
}

run=venv/bin/rooflinellm
model=(qwen3-32b --weights Q4_K_M)
start=$EPOCHREALTIME
[ -x venv/bin/rooflinellm ] || step 1-install install
step 2-compare "$run" compare qwen3-32b "2x rtx-3090" rtx-4090 --weights Q4_K_M --context 32768 -o compare.png
step 3-fit does_it_fit
step 4-chart "$run" roofline "${model[0]}" rtx-3090 rtx-4090 "${model[@]:1}" -o roofline.png
step 5-report "$run" report "${model[0]}" "2x rtx-3090" rtx-4090 "${model[@]:1}" --context 32768 -o report.html
step 6-add-device add_device
awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%-14s %6.1f s\n", "altogether", b - a }'
cat 2-compare.txt 3-fit.txt
