// Keeps a page up to date: the server sends its part again whenever it has changed. The page is complete without this.

const part = document.getElementById("live");
const button = document.getElementById("pause");
const search = document.querySelector("[role=search] input");
let events;
let paused = false;

function connect() {
  if (events || paused || document.hidden || !part?.hasAttribute("data-live")) return;
  events = new EventSource("/console/live?path=" + encodeURIComponent(location.pathname + location.search));
  events.onopen = () => { button.hidden = false; };
  events.onmessage = (event) => {
    // What somebody reads or types stays as it is.
    const isUsed = part.contains(document.activeElement) || !document.getSelection().isCollapsed;
    if (!isUsed) part.innerHTML = JSON.parse(event.data);
  };
  events.onerror = () => {
    // The browser tries again by itself, unless the server has refused.
    if (events?.readyState === EventSource.CLOSED) disconnect();
  };
}

function disconnect() {
  events?.close();
  events = undefined;
}

function toggle() {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  if (paused) disconnect(); else connect();
}

button.addEventListener("click", toggle);
document.addEventListener("visibilitychange", () => { if (document.hidden) disconnect(); else connect(); });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  if (event.key === "/" && search) {
    event.preventDefault();
    document.querySelector("[role=search] input")?.focus();
  }
  if (event.key === "p" && !button.hidden) toggle();
});
connect();
