// Walks through the console in Chromium: node check.mjs URL FOLDER. Prints a line for each check, and exits with 1 if one failed.
//
// Every page in light and dark: no finding of axe, no error in the console, nothing blocked by the policy, no script of a
// hostile name. Then live updates, a change by the form, and the keyboard alone.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [url, folder] = process.argv.slice(2);
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const pages = ["/", "/status", "/vars", "/connections", "/channels", "/rpcz", "/flags", "/protobufs", "/threads", "/memory", "/ids", "/vlog", "/tap", "/tasks", "/fleet", "/try", "/try/tick", "/try/Counting/Stall", "/nothing"];
if (process.env.PROFILES) pages.push("/hotspots/cpu", "/hotspots/cpu?seconds=1");

let failed = 0;
function check(name, problems) {
  failed += problems.length > 0 ? 1 : 0;
  console.log(problems.length > 0 ? `FAIL ${name}: ${problems.join("; ")}` : `ok   ${name}`);
}

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

async function open(colorScheme) {
  const context = await browser.newContext({
    colorScheme,
    viewport: { width: 1280, height: 900 },
    httpCredentials: { username: "ann", password: "a-token-for-writing" },
  });
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => {
    // A page that does not exist is asked for on purpose.
    const isExpected = message.text().includes("404") && message.location().url.endsWith("/nothing");
    if (message.type() === "error" && !isExpected) errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("dialog", (dialog) => { errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  return { context, page, errors };
}

for (const colorScheme of ["light", "dark"]) {
  const { context, page, errors } = await open(colorScheme);
  await page.goto(url + "/rpcz");
  const trace = await page.locator("#live a[href*='trace=']").first().getAttribute("href");
  for (const target of [...pages, trace]) {
    errors.length = 0;
    await page.goto(url + target);
    const name = target === trace ? "trace" : target.slice(1).replace(/[/?=]/g, "-") || "index";
    await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
    // By the protocol of the developer tools, past the policy of the page.
    const session = await context.newCDPSession(page);
    const source = (await import("node:fs")).readFileSync(axe, "utf8");
    await session.send("Runtime.evaluate", { expression: source });
    const found = await session.send("Runtime.evaluate", {
      expression: "axe.run(document, { resultTypes: ['violations'] }).then((found) => JSON.stringify(found.violations.map((one) => one.id + ' ' + one.nodes.slice(0, 3).map((node) => node.target).join(','))))",
      awaitPromise: true,
      returnByValue: true,
    });
    const problems = JSON.parse(found.result.value);
    check(`${target === trace ? "/rpcz?trace" : target} in ${colorScheme}`, [...problems, ...errors]);
  }
  await context.close();
}

{
  const { context, page, errors } = await open("light");
  await page.goto(url + "/status");
  const count = () => page.evaluate(() => Number([...document.querySelectorAll("#live tr")].find((row) => row.textContent.includes("tick"))?.cells[2].textContent));
  const before = await count();
  const rises = await page.waitForFunction(
    (before) => Number([...document.querySelectorAll("#live tr")].find((row) => row.textContent.includes("tick"))?.cells[2].textContent) > before,
    before,
    { timeout: 60000 },
  ).then(() => true, () => false);
  check("counts rise without a reload", rises ? errors : [`still ${before}`, ...errors]);

  await page.keyboard.press("p");
  const pressed = await page.locator("#pause").getAttribute("aria-pressed");
  const held = await count();
  await page.waitForTimeout(2500);
  check("p pauses", pressed === "true" && (await count()) === held ? [] : [`pressed is ${pressed}, ${held} became ${await count()}`]);

  await page.goto(url + "/vars");
  await page.keyboard.press("/");
  await page.keyboard.type("pid");
  await page.keyboard.press("Enter");
  await page.waitForURL(/filter=pid/);
  const rows = await page.locator("#live tbody tr").count();
  check("keyboard searches", rows > 0 && rows < 10 ? [] : [`${rows} rows`]);

  // The first stop is the link past the navigation; then each control has a visible focus.
  await page.goto(url + "/flags/browser_limit");
  await page.keyboard.press("Tab");
  const skip = await page.evaluate(() => document.activeElement.className);
  const unseen = [];
  for (let stop = 0; stop < 30; stop += 1) {
    await page.keyboard.press("Tab");
    const seen = await page.evaluate(() => {
      const { activeElement } = document;
      const style = getComputedStyle(activeElement);
      return activeElement === document.body || style.outlineStyle !== "none" || `${activeElement.tagName} has no outline`;
    });
    if (seen !== true) unseen.push(seen);
    if (await page.evaluate(() => document.activeElement.name === "setvalue")) break;
  }
  check("focus is visible", skip === "skip" ? unseen : ["the first stop is not the skip link", ...unseen]);

  await page.keyboard.press("Control+A");
  await page.keyboard.type("7");
  await page.keyboard.press("Enter");
  await page.waitForURL(url + "/flags");
  const shown = await page.locator("tr", { hasText: "browser_limit" }).first().textContent();
  const author = await page.locator("tr", { hasText: "ann from" }).count();
  check("a setting is changed by the keyboard", shown.includes("7 (default:5)") && author > 0 ? errors : [shown, ...errors]);
  await page.goto(url + "/tap?method=tick");
  const seen = await page.locator("#live tbody tr", { hasText: "tick" }).first().waitFor({ timeout: 60000 }).then(() => true, () => false);
  check("calls are shown live", seen ? errors : ["none", ...errors]);

  await page.goto(url + "/fleet");
  const ready = await page.locator("#live tbody tr", { hasText: "ready" }).first().waitFor({ timeout: 60000 }).then(() => true, () => false);
  await page.locator("button[name=drain]").first().click();
  const drained = await page.locator("#live tbody tr", { hasText: "not ready" }).first().waitFor({ timeout: 60000 }).then(() => true, () => false);
  await page.locator("button[name=serve]").first().click();
  check("a server is drained from the page of its registry", ready && drained ? errors : [`ready ${ready}, drained ${drained}`, ...errors]);

  await page.goto(url + "/try/add");
  await page.selectOption("select[name=protocol]", "baidu-std");
  await page.fill("textarea[name=message]", "[20, 22]");
  await page.click("form.try button");
  const reply = await page.locator("[role=status]").textContent();
  await page.click("text=its trace");
  const spans = await page.locator("svg.waterfall").count();
  check("a method is called, and its trace is there", reply.trim() === "42" && spans === 1 ? errors : [reply, `${spans} spans`, ...errors]);
  await page.goto(url + "/try/Counting/Stall");
  await page.fill("textarea[name=message]", '"<b>hello</b>"');
  await page.fill("input[name=timeout_ms]", "3000");
  await page.click("form.try button", { noWaitAfter: true });
  await page.waitForFunction(() => document.querySelector("[role=log]")?.textContent.includes("<b>hello</b>"));
  const loading = await page.evaluate(() => document.readyState);
  await page.waitForLoadState();
  const ended = await page.locator("[role=alert]").textContent();
  await page.screenshot({ path: `${folder}/try-stream.png`, fullPage: true });
  check("messages of a stream are shown as they arrive", loading === "loading" && ended.includes("deadline exceeded") ? errors : [loading, ended, ...errors]);
  await context.close();
}

{
  // A page of another origin, in the same browser.
  const { context, page } = await open("light");
  await page.goto("data:text/html,<p>elsewhere");
  const read = await page.evaluate(async (url) => {
    try {
      const answer = await fetch(url + "/flags/browser_limit?setvalue=9", { credentials: "include" });
      return `read ${answer.status}`;
    } catch {
      return "refused";
    }
  }, url);
  await page.evaluate((url) => {
    document.body.innerHTML = `<form method=post action="${url}/flags/browser_limit"><input name=setvalue value=9></form>`;
    document.forms[0].submit();
  }, url);
  await page.waitForLoadState();
  const { page: own } = await open("light");
  await own.goto(url + "/flags/browser_limit");
  const kept = (await own.locator("tr", { hasText: "browser_limit" }).first().textContent()).includes("7 (default:5)");
  check("pages of other origins change nothing", read === "refused" && kept ? [] : [read, `kept: ${kept}`]);
  await context.close();
}

await browser.close();
process.exit(failed > 0 ? 1 : 0);
