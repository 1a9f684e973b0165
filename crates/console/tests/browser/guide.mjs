// Makes the pictures of the guide "operating a server": node guide.mjs URL FOLDER. What they show is a shop of four services, and
// it fails if a picture does not show what the guide says: a trace of four protocols, the functions of busy handlers.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({
  colorScheme: "light",
  // As wide as a flame graph.
  viewport: { width: 1232, height: 620 },
  httpCredentials: { username: "ann", password: "a-token-for-writing" },
});
const page = await context.newPage();

// The functions in which the handlers are busy.
const WORK = ["match_words", "weigh_parcel", "add_up"];

// Returns where the last of some elements ends. It looks for them at once, since a page replaces its parts.
const bottom = (selector) => page.evaluate((selector) => {
  const elements = document.querySelectorAll(selector);
  return elements[elements.length - 1].getBoundingClientRect().bottom + window.scrollY;
}, selector);

// Takes a picture of the page, from its top to here.
async function shot(name, end) {
  const clip = { x: 0, y: 0, width: page.viewportSize().width, height: Math.ceil(end) + 8 };
  await page.screenshot({ path: join(folder, `operating-${name}.png`), clip, fullPage: true, animations: "disabled" });
}

function check(name, problem) {
  if (!problem) return;
  console.error(`FAIL ${name}: ${problem}`);
  process.exitCode = 1;
}

// Some seconds of the plots.
await page.goto(url + "/status");
await page.waitForTimeout(8000);
await shot("status", await bottom("#live table"));

const variable = await page.locator("#live a[href^='/vars/'][href*='web_order']").first().getAttribute("href");
await page.goto(url + variable.replace("_*", "_latency_99"));
await shot("plots", await bottom(".plots svg"));

await page.goto(url + "/rpcz?method=Web&side=server&protocol=grpc");
// One of an order that was fulfilled.
await page.locator("#live tr", { hasText: "OK" }).locator("a[href*='trace=']").first().click();
await page.waitForURL(/trace=/);
const rows = await page.locator("tr", { has: page.locator("svg.waterfall") }).evaluateAll((rows) => rows.map((row) => row.cells[2].textContent));
const missing = ["grpc", "rpcx", "baidu_std", "http"].filter((protocol) => !rows.includes(protocol));
check("a trace of four protocols is one tree", missing.length > 0 && `${missing} missing of ${rows}`);
await shot("trace", await bottom("tr:has(svg.waterfall)"));

await page.goto(url + "/try/Web/Order");
await page.fill("textarea[name=message]", '["lamp", 2]');
await page.click("form.try button");
await page.locator("[role=status]").waitFor();
await shot("try", await bottom("p:has(a[href*='trace='])"));

await page.goto(url + "/fleet");
await page.locator("svg.calls .node").first().waitFor({ timeout: 30000 });
await page.waitForFunction(() => [...document.querySelectorAll("svg.calls text")].some((text) => /^[1-9].*\/s$/.test(text.textContent)), null, { timeout: 30000 });
await shot("fleet", await bottom("svg.calls"));

if (process.env.PROFILES) {
  await page.goto(url + "/hotspots/cpu?seconds=5&by=method");
  const titles = await page.locator("svg.flame title").allTextContents();
  const wanted = ["Shop/Search", "Stock/Take", "Ledger/Book", ...WORK];
  const missing = wanted.filter((name) => !titles.some((title) => title.includes(name)));
  check("a flame graph names busy handlers and their functions", missing.length > 0 && `${missing} missing`);
  // Down to what the handlers do.
  const ends = await page.locator("svg.flame g").evaluateAll((rects, work) => {
    const wanted = rects.filter((rect) => work.some((name) => rect.querySelector("title").textContent.includes(name)));
    return wanted.map((rect) => rect.getBoundingClientRect().bottom + window.scrollY);
  }, WORK);
  await shot("profile", Math.max(...ends) + 24);
}
await browser.close();
