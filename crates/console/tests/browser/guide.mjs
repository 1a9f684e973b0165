// Makes the pictures of the guide "operating a server": node guide.mjs URL FOLDER. What they show is a shop of four services, and
// it fails if a picture does not show what the guide says: a trace of four protocols, the function of a busy handler.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({
  colorScheme: "light",
  viewport: { width: 1180, height: 620 },
  httpCredentials: { username: "ann", password: "a-token-for-writing" },
});
const page = await context.newPage();

// The part of the page that has content, up to this height.
async function shot(name, height = 620) {
  const content = await page.evaluate(() => Math.ceil(document.querySelector("main").getBoundingClientRect().bottom));
  const clip = { x: 0, y: 0, width: 1180, height: Math.min(content, height) };
  await page.screenshot({ path: join(folder, `operating-${name}.png`), clip, animations: "disabled" });
}

function check(name, problem) {
  if (!problem) return;
  console.error(`FAIL ${name}: ${problem}`);
  process.exitCode = 1;
}

// Some seconds of the plots.
await page.goto(url + "/status");
await page.waitForTimeout(8000);
await shot("status", 460);

const variable = await page.locator("#live a[href^='/vars/'][href*='web_order']").first().getAttribute("href");
await page.goto(url + variable.replace("_*", "_latency_99"));
await shot("plots", 420);

await page.goto(url + "/rpcz?method=Web&side=server&protocol=grpc");
// One of an order that was fulfilled.
await page.locator("#live tr", { hasText: "OK" }).locator("a[href*='trace=']").first().click();
await page.waitForURL(/trace=/);
const rows = await page.locator("tr", { has: page.locator("svg.waterfall") }).evaluateAll((rows) => rows.map((row) => row.cells[2].textContent));
const missing = ["grpc", "rpcx", "baidu_std", "http"].filter((protocol) => !rows.includes(protocol));
check("a trace of four protocols is one tree", missing.length > 0 && `${missing} missing of ${rows}`);
await shot("trace", 520);

await page.setViewportSize({ width: 1180, height: 900 });
await page.goto(url + "/try/Web/Order");
await page.fill("textarea[name=message]", '["lamp", 2]');
await page.click("form.try button");
await page.locator("[role=status]").waitFor();
await shot("try", 860);

await page.goto(url + "/fleet");
await page.locator("svg.calls .node").first().waitFor({ timeout: 30000 });
await page.waitForFunction(() => [...document.querySelectorAll("svg.calls text")].some((text) => /^[1-9].*\/s$/.test(text.textContent)), null, { timeout: 30000 });
await page.setViewportSize({ width: 1180, height: 1100 });
await shot("fleet", 1000);

if (process.env.PROFILES) {
  await page.setViewportSize({ width: 1180, height: 620 });
  await page.goto(url + "/hotspots/cpu?seconds=3&by=method");
  const titles = await page.locator("svg.flame title").allTextContents();
  const named = ["Web/Order", "weigh"].filter((name) => !titles.some((title) => title.includes(name)));
  check("a flame graph names the busy handler and its function", named.length > 0 && `${named} is missing`);
  await shot("profile", 600);
}
await browser.close();
