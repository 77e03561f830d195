#!/usr/bin/env bash
# Throughput and latency beside the peers, all in one run on the same documents:
# the corpus's English receipts, forms and scans that have line truth.
#   N=24 C=1,8 FILES=12 ONLY="gunicorn2 affinity" scripts/bench_peers.sh
set -euo pipefail
cd "$(dirname "$0")/.."
shared=$PWD/../shared
[ -d "$shared/bench" ] || { echo "needs ../shared/bench and ../shared/corpus"; exit 1; }
venv=$PWD/.venv-peers
[ -x "$venv/bin/gunicorn" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q rapidocr onnxruntime openvino flask gunicorn litserve mosec rapidocr-api httpx; }
export N=${N:-24} C=${C:-1,8} FILES=${FILES:-12} TMPDIR=${TMPDIR:-/tmp}
mapfile -t files < <(.venv/bin/python scripts/documents.py "$FILES")
echo "# $(git rev-parse --short HEAD) $(date -u +%FT%TZ) $(nproc) cores, ${#files[@]} files, N=$N C=$C"
ours() {
  .venv/bin/pagemill serve --port 9100 >"$TMPDIR/pagemill-bench.log" 2>&1 & pid=$!
  for _ in $(seq 200); do curl -fs -o /dev/null http://127.0.0.1:9100/health/ready && break; sleep 0.2; done
  "$venv/bin/python" "$shared/bench/drive.py" http://127.0.0.1:9100/ocr b64file "${files[@]}" --c "$C" --n "$N" --name pagemill
  grep -h VmHWM /proc/$pid/status $(pgrep -P $pid | sed 's|.*|/proc/&/status|') | awk '{s+=$2} END {print "   peak rss, all its processes, MB", int(s/1024)}'
  kill $pid; wait $pid || true
}
[ -n "${SKIP_OURS:-}" ] || ours
unset SAME; for each in ${ONLY-gunicorn2 affinity litserve mosec}; do ONLY=$each bash "$shared/bench/peers.sh" "$venv" "${files[@]}"; done
export SAME=1; echo "# with our settings (SAME=1)"
for each in ${ONLY_SAME-affinity lock}; do ONLY=$each bash "$shared/bench/peers.sh" "$venv" "${files[@]}"; done
[ -n "${SKIP_OURS:-}" ] || { echo "# pagemill again"; unset SAME; ours; }
