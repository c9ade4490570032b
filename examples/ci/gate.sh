#!/usr/bin/env bash
# Gate a model on its dumps of logits. Exit 0: all gates hold; 1: one failed, or no threshold keeps the risk; 2: an error.
#
#   VAL     rows to calibrate and fit on
#   CHOOSE  other rows to choose the threshold on: the guarantee needs rows that the fit has not seen
#   TEST    rows to judge
#   OUT     directory for rejector.json, report.json, report.md and report.xml
set -euo pipefail

mkdir -p "$OUT"
drrej calibrate "$VAL" |
  drrej fit "$VAL" -r - |
  drrej threshold "$CHOOSE" -r - --risk "${RISK:-0.05}" --confidence "${CONFIDENCE:-0.95}" -o "$OUT/rejector.json" -f

gates=(--gate 'accuracy >= 0.95' --gate 'coverage >= 0.5' --gate 'drift.p_value >= 1e-6')
if [ -n "${BASELINE:-}" ]; then # the report.json of the main branch
  gates+=(--baseline "$BASELINE" --gate 'difference.accuracy.lower >= -0.02')
fi
drrej evaluate "$TEST" -r "$OUT/rejector.json" "${gates[@]}" --intervals \
  -o "$OUT/report.json" -o "$OUT/report.md" -o "$OUT/report.xml" -f
