// The frame of the page: the view that is shown, and the polling of the server.

import { address, fill, h, leave, note, prose, waitedSoFar } from "./dom.js";
import * as runs from "./runs.js";
import * as run from "./run.js";
import * as population from "./population.js";
import * as watch from "./watch.js";
import * as timeline from "./timeline.js";

const VIEWS = { runs, run, population, watch, timeline };
const OF_RUN = { run: "Run", population: "Population", watch: "Watch", timeline: "Timeline" };
const main = document.getElementById("main"), nav = document.getElementById("nav"), alive = document.getElementById("alive");
// The browser may run on the machine that trains: the page works at most a fiftieth of the time, but
// polls at least every ten seconds. A view that waits less than a second, since a long file is being read, is exempt.
const REST = 50, LONGEST = 10000;
let view = null, timer = null;

function route() {
  const [, page, ...rest] = location.hash.split("/");
  const name = VIEWS[page] ? page : "runs";
  let id = "";
  try { id = decodeURIComponent(rest.join("/")); } catch { /* no such run: the page says so */ }
  return { name, id };
}

function navigation({ name, id }) {
  const link = (href, words, here) => h("a", { href, "aria-current": here ? "page" : null }, words);
  fill(nav, link("#/", "Runs", name === "runs"),
    id && Object.entries(OF_RUN).map(([page, words]) => link(address(page, id), words, page === name)));
  document.title = id ? `${OF_RUN[name]}: ${id} – Remuda` : "Runs – Remuda";
}

async function open() {
  clearTimeout(timer);
  leave();
  view?.end?.();
  const where = route();
  navigation(where);
  fill(main, h("p", { class: "quiet" }, "Loading…"));
  const mine = VIEWS[where.name].make(main, where.id);
  view = mine;
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  await again(mine);
}

// Polls at the interval that the view returns, and only while the page is visible.
async function again(mine) {
  clearTimeout(timer);
  let wait = 1000;
  if (!document.hidden) {
    try {
      const worked = () => performance.now() - waitedSoFar(), begun = worked();
      wait = (await mine.update()) ?? 1000;
      if (mine !== view) return;
      if (wait >= 1000) wait = Math.max(wait, Math.min(LONGEST, REST * (worked() - begun)));
      fill(alive, "");
      alive.className = "";
    } catch (error) {
      if (mine !== view) return;
      const unreachable = error instanceof TypeError;
      fill(alive, prose(unreachable ? "The server does not answer" : error.message));
      alive.className = "bad";
      if (!unreachable && !mine.shown) fill(main, h("h1", {}, "Not found"), note(error.message), h("p", {}, h("a", { href: "#/", class: "link" }, "All runs")));
      wait = 3000;
    }
  }
  if (mine === view && wait !== Infinity) timer = setTimeout(() => again(mine), wait);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && view) again(view); });
window.addEventListener("hashchange", open);
open();
