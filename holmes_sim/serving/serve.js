"use strict";
// A changed control sends its form; the search reports its improvements as server-sent events. Without this script, the page has
// buttons for the former and loads itself anew for the latter.

const form = document.getElementById("topology");
const KEPT = "holmes-sim"; // where the page was scrolled to, and which control had the focus, before a form was sent

form.addEventListener("input", event => {
  const rates = event.target.dataset.rates;
  if (!rates) return;
  const rate = rates.split(",")[event.target.value];
  event.target.nextElementSibling.value = rate;
  event.target.setAttribute("aria-valuetext", rate);
});
let pressing = false; // a button of the form, which will send the changed control with the rest
addEventListener("pointerdown", event => { pressing = event.target.form === form && event.target.type === "submit"; });
addEventListener("pointerup", () => setTimeout(() => { pressing = false; }));
form.addEventListener("change", event => {
  if (!pressing && !("own" in event.target.dataset) && form.reportValidity()) form.requestSubmit(form.querySelector(".apply"));
});
form.addEventListener("submit", event => {
  const pressed = event.submitter;
  if (pressed && pressed.classList.contains("main")) return;
  const focused = pressed && pressed.name ? pressed : document.activeElement;
  const name = focused && focused.name === "set" ? focused.value.split("=")[0] + (focused.nextElementSibling ? "-" : "+") : focused && focused.name;
  sessionStorage.setItem(KEPT, JSON.stringify({ y: scrollY, name }));
});
for (const chosen of document.querySelectorAll(".upload input, .open select"))
  chosen.addEventListener("change", () => { if (chosen.value) chosen.form.requestSubmit(); });

const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
if (kept) {
  sessionStorage.removeItem(KEPT);
  scrollTo(0, kept.y);
  const field = kept.name && form.elements[kept.name.replace(/[-+]$/, "")];
  const button = field && (kept.name.endsWith("-") ? field.previousElementSibling : kept.name.endsWith("+") ? field.nextElementSibling : field);
  if (button) button.focus({ preventScroll: true });
}

const search = document.querySelector("[data-events]");
if (search) {
  const events = new EventSource(search.dataset.events);
  events.onmessage = event => {
    const status = JSON.parse(event.data);
    for (const shown of search.querySelectorAll("[data-show]")) {
      const text = status[shown.dataset.show];
      if (shown.textContent !== text) shown.textContent = text;
    }
    const rows = search.querySelector("[data-found]");
    for (const row of status.found.slice(rows.rows.length)) {
      const line = rows.insertRow();
      for (const text of row) line.insertCell().textContent = text;
      line.lastChild.className = "words";
    }
  };
  events.addEventListener("over", () => { events.close(); location.reload(); });
}
