// Measures pages in Chromium: node bench.mjs URL. Prints medians as JSON.
//
// A cold load is that of /status, with nothing in the browser's cache, to the end of its load event; its transfer is all that
// comes over the wire. Plots are drawn when the frame with them is done: they are put into the page as an update puts them.

import { chromium } from "playwright-core";

const [url] = process.argv.slice(2);
const median = (values) => values.sort((one, other) => one - other)[Math.floor(values.length / 2)];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const loads = [], transfers = [], draws = [];
let plots = 0;
for (let round = 0; round < 7; round += 1) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  let transferred = 0;
  session.on("Network.loadingFinished", (event) => { transferred += event.encodedDataLength; });
  await page.goto(url + "/status", { waitUntil: "load" });
  loads.push(await page.evaluate(() => {
    const [entry] = performance.getEntriesByType("navigation");
    return entry.loadEventEnd - entry.startTime;
  }));
  transfers.push(transferred / 1024);
  await page.goto(url + "/vars/bench_plot_*", { waitUntil: "load" });
  const drawn = await page.evaluate(async () => {
    const part = document.getElementById("live");
    const html = part.innerHTML;
    part.innerHTML = "";
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    await frame();
    const began = performance.now();
    part.innerHTML = html;
    await frame();
    return [performance.now() - began, part.querySelectorAll("svg.plot").length];
  });
  draws.push(drawn[0]);
  plots = drawn[1];
  await context.close();
}
await browser.close();
console.log(JSON.stringify({ load_ms: median(loads), plots_ms: median(draws), plots, transfer_kib: median(transfers) }));
