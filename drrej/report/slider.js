// Moves along the embedded curve: what another cutoff would give, and the command that chooses it.
const data = JSON.parse(document.getElementById("curve-data").textContent);
const box = document.getElementById("slider");
const range = box.querySelector("input");
const percent = (share) => share === null ? "–" : (100 * share).toFixed(1) + " %";
const count = (number) => Math.round(number).toLocaleString("en");

function show() {
  const [coverage, accuracy, lower, upper, cost] = data.points[range.value];
  const accepted = Math.round(coverage * data.rows);
  const set = (name, text) => { for (const node of box.querySelectorAll("[data-show=" + name + "]")) node.textContent = text; };
  set("coverage", percent(coverage));
  set("accuracy", percent(accuracy));
  set("interval", lower === null ? "" : "95 % interval " + percent(lower) + " to " + percent(upper));
  set("errors", accuracy === null ? "–" : count((1 - accuracy) * accepted));
  set("accepted", "of " + count(accepted) + " accepted rows");
  set("reviews", count(data.rows - accepted));
  set("share", percent(1 - coverage) + " of " + count(data.rows) + " rows");
  set("cost", cost === null ? "–" : cost.toLocaleString("en", { maximumSignificantDigits: 4 }));
  set("command", "drrej threshold FRESH.parquet -r rejector.json --coverage " + coverage.toFixed(3) + " -o rejector.json");
  range.setAttribute("aria-valuetext", percent(coverage) + " accepted, " + percent(accuracy) + " right");
}

range.addEventListener("input", show);
const copy = box.querySelector("button");
if (navigator.clipboard) {
  copy.addEventListener("click", () => navigator.clipboard.writeText(box.querySelector("code").textContent)
    .then(() => { copy.textContent = "Copied"; }, () => { copy.hidden = true; }));
} else {
  copy.hidden = true;
}
box.hidden = false;
show();
addEventListener("beforeprint", () => { for (const folded of document.querySelectorAll("details.more")) folded.open = true; });
