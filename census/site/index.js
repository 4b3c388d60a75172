// The index: search, filters and order, kept in the address after '#', so that a view can be linked.
"use strict";

const form = document.querySelector("form.filters");
const body = document.querySelector("table.models tbody");
const rows = [...body.rows];
const headers = [...document.querySelectorAll("table.models thead th")];
const count = document.getElementById("count");
const none = document.getElementById("none");
const FIELDS = ["q", "family", "mixer", "routed", "route"];
const FIRST = "case";

// How a row is held against what is chosen in a list.
const HAS = {
  family: (row, chosen) => row.dataset.family === chosen,
  mixer: (row, chosen) => row.dataset.mixer.split(" ").includes(chosen),
  routed: (row, chosen) => row.dataset.routed === chosen,
  route: (row, chosen) => row.dataset.route.split("|").includes(chosen),
};

let order = { key: FIRST, descending: false };

function buttonOf(key) {
  return headers.map((header) => header.querySelector("button")).find((button) => button.dataset.key === key);
}

function show() {
  const words = form.q.value.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = Object.entries(HAS).filter(([name]) => form[name].value);
  let shown = 0;
  for (const row of rows) {
    const fits = words.every((word) => row.dataset.text.includes(word)) &&
      chosen.every(([name, has]) => has(row, form[name].value));
    row.hidden = !fits;
    shown += fits;
  }
  count.textContent = `${shown} of ${rows.length} models`;
  none.hidden = shown > 0;
}

function sort() {
  const { key, descending } = order;
  const number = key !== "family" && key !== "mixer";
  const compare = (one, other) => {
    const [a, b] = [one.dataset[key], other.dataset[key]];
    const found = number ? Number(a) - Number(b) : a.localeCompare(b, "en");
    // Rows that are equal stand by name, whichever way the others go.
    return (descending ? -found : found) || Number(one.dataset[FIRST]) - Number(other.dataset[FIRST]);
  };
  body.append(...rows.sort(compare));
  for (const header of headers) {
    const sorted = header.querySelector("button").dataset.key === key;
    header.setAttribute("aria-sort", sorted ? (descending ? "descending" : "ascending") : "none");
  }
}

function keep() {
  const state = new URLSearchParams();
  for (const field of FIELDS) if (form[field].value.trim()) state.set(field, form[field].value.trim());
  if (order.key !== FIRST || order.descending) state.set("sort", (order.descending ? "-" : "") + order.key);
  const text = state.toString();
  // '#' alone would jump to the top of the page; an address without it cannot be set where the page is a file.
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : "#");
}

function take() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const field of FIELDS) {
    form[field].value = state.get(field) ?? "";
    // What is in no list is not chosen: a list left blank would say nothing of why.
    if (form[field].selectedIndex === -1) form[field].value = "";
  }
  const sorted = state.get("sort") ?? FIRST;
  const key = sorted.replace(/^-/, "");
  order = buttonOf(key) ? { key, descending: sorted.startsWith("-") } : { key: FIRST, descending: false };
  sort();
  show();
}

form.addEventListener("input", () => { show(); keep(); });
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(() => { show(); keep(); }));
document.getElementById("clear").addEventListener("click", () => { form.reset(); form.q.focus(); });
for (const header of headers) {
  const button = header.querySelector("button");
  button.addEventListener("click", () => {
    const again = order.key === button.dataset.key;
    order = { key: button.dataset.key, descending: again ? !order.descending : button.dataset.first === "descending" };
    sort();
    keep();
  });
}
// The address keeps the view, not the place that was skipped to.
document.querySelector("a.skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
addEventListener("hashchange", take);
take();
