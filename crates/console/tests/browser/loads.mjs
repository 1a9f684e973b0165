// Follows pages in Chromium while loads of several protocols run: node loads.mjs URL FOLDER PROTOCOL…
// Each protocol has a method of its own, over_PROTOCOL. A page is loaded once: on the row of each method the rate has to become
// more than zero, and its calls and the line of its last minute have to grow, again and again. So does a large plot. Prints `ok`
// for each, and exits with 1 if one failed.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, folder, ...protocols] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
const errors = [];
page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
page.on("pageerror", (error) => errors.push(String(error)));
let pages = 0;
page.on("load", () => { pages += 1; });

// How often a page has to change, and how long that may take.
const CHANGES = 3;
const LONGEST = 60000;

// Returns how many points of a line are above its lowest ones.
const raised = (points) => {
  const heights = points.trim().split(" ").map((point) => Number(point.split(",")[1]));
  return heights.filter((height) => height < Math.max(...heights)).length;
};

// Returns what the page says of each protocol.
async function rows() {
  const cells = await page.locator("#live tbody tr").evaluateAll((rows) => rows.map((row) => ({
    name: row.cells[0].textContent.split(" ")[0],
    rate: Number(row.cells[1].textContent),
    calls: Number(row.cells[2].textContent),
    protocols: row.cells[12].textContent,
    line: row.querySelector("polyline").getAttribute("points"),
  })));
  return protocols.map((protocol) => ({ protocol, ...cells.find((row) => row.name === `over_${protocol}`) }));
}

await page.goto(url + "/status");
const seen = new Map(protocols.map((protocol) => [protocol, []]));
const end = Date.now() + LONGEST;
while (Date.now() < end && [...seen.values()].some((looks) => looks.length <= CHANGES)) {
  for (const { protocol, rate, calls, protocols, line } of await rows()) {
    const look = { calls, raised: raised(line), rate };
    const looks = seen.get(protocol);
    const last = looks.at(-1) ?? { calls: 0, raised: 0 };
    // No other load calls this method.
    const isOwn = new RegExp(`^${protocol} \\d+$`).test(protocols);
    if (isOwn && rate > 0 && calls > last.calls && look.raised > last.raised) looks.push(look);
  }
  await page.waitForTimeout(100);
}
for (const [protocol, looks] of seen) {
  const { rate, calls } = looks.at(-1) ?? { rate: 0, calls: 0 };
  if (looks.length > CHANGES) console.log(`ok   ${protocol}: ${rate}/s, ${calls} calls`);
  else errors.push(`${protocol}: ${looks.length} changes, ${rate}/s, ${calls} calls`);
}
await page.screenshot({ path: join(folder, "loads.png"), fullPage: true });

const variable = await page.locator("#live a[href^='/vars/'][href*='over_grpc']").first().getAttribute("href");
await page.goto(url + variable.replace("_*", "_count"));
const plot = () => page.locator("svg.plot polyline").first().getAttribute("points");
let changes = 0;
for (let last = await plot(), stop = Date.now() + LONGEST; changes < CHANGES && Date.now() < stop;) {
  const now = await plot();
  if (now !== last) changes += 1;
  last = now;
  await page.waitForTimeout(100);
}
if (changes >= CHANGES) console.log("ok   a plot grows");
else errors.push(`the plot has changed ${changes} times`);
if (pages !== 2) errors.push(`${pages} pages were loaded, and not 2`);
await browser.close();
if (errors.length > 0) {
  console.error(errors.join("\n"));
  process.exit(1);
}
