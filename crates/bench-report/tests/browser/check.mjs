// Opens pages in Chromium: node check.mjs PACKAGES FOLDER FILE…. Prints a line for each check, and exits with 1 if one
// failed.
//
// Each page at the width of a phone and of a desktop, in light and dark, and in print: no finding of axe, no error in
// the console, no request, no script of a hostile name, nothing wider than the screen, plots with visible lines and
// texts that do not overlap. PACKAGES is a folder in which playwright-core and axe-core are installed; screenshots go
// to FOLDER. The page `suites` must have every table and figure of the documents; a picture of it goes to the folder
// PICTURES of the environment, if that is set.

import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, folder, ...files] = process.argv.slice(2);
const require = createRequire(join(packages, "check.mjs"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

let failed = 0;
function check(name, problems) {
  failed += problems.length > 0 ? 1 : 0;
  console.log(problems.length > 0 ? `FAIL ${name}: ${problems.join("; ")}` : `ok   ${name}`);
}

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

async function open(file, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("dialog", (dialog) => { errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (request.url() !== pathToFileURL(file).href) errors.push(`loads ${request.url()}`); });
  await page.goto(pathToFileURL(file).href);
  return { context, page, errors };
}

// What a reader would see as broken. Runs in the page.
function faults() {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const plots = [...document.querySelectorAll("svg.plot")];
  if (plots.length === 0) found.push("no plot");
  for (const plot of plots) {
    const name = plot.getAttribute("aria-label").slice(0, 30);
    const frame = plot.getBoundingClientRect();
    const shapes = [...plot.querySelectorAll(".line, circle, rect:not(.page)")].map((shape) => shape.getBoundingClientRect());
    if (!shapes.some((box) => box.width > frame.width / 20)) found.push(`${name}: nothing is drawn`);
    const texts = [...plot.querySelectorAll("text")].map((text) => ({ text: text.textContent, box: text.getBoundingClientRect() }));
    for (const [at, one] of texts.entries()) {
      if (parseFloat(getComputedStyle(plot).fontSize) * frame.width / 360 < 9) found.push(`${name}: the text is too small`);
      const { left, right, top, bottom } = one.box;
      if (left < frame.left - 1 || right > frame.right + 1 || top < frame.top - 1 || bottom > frame.bottom + 1) {
        found.push(`${name}: ${one.text} is cut`);
      }
      for (const other of texts.slice(at + 1)) {
        const width = Math.min(right, other.box.right) - Math.max(left, other.box.left);
        const height = Math.min(bottom, other.box.bottom) - Math.max(top, other.box.top);
        if (width > 1 && height > 3) found.push(`${name}: ${one.text} overlaps ${other.text}`);
      }
    }
  }
  for (const figure of document.querySelectorAll("figure")) {
    const isOverview = figure.closest("section").getAttribute("aria-labelledby") === "overview";
    if (!isOverview && !figure.querySelector("table")) found.push(`${figure.textContent.slice(0, 30)} has no table`);
  }
  return found;
}

// Tables of the five documents with their numbers of rows, and their figures, in the order of the page.
const documents = {
  tables: [
    ["one-thread", 4], ["threads-1k", 3], ["threads-64k", 3],
    ["ghz-light", 11], ["ghz-heavy", 11],
    ["client-light-1", 1], ["client-light-2", 1], ["client-heavy-1", 1], ["client-heavy-2", 1],
    ["rpcx-1", 5], ["grpc-1", 5], ["rpcx-2", 5], ["grpc-2", 5], ["rpcx-3", 5], ["grpc-3", 5], ["codecs", 8],
    ["threads-1", 3], ["threads-64", 3],
    ["connections", 5],
  ],
  charts: [
    "one-thread", "threads-1k", "threads-64k", "qps-vs-threads",
    "heavy-0", "heavy-10000000",
    "throughput", "latency", "rpcx-grpc-1", "rpcx-grpc-2", "rpcx-grpc-3",
    "cpu", "latency",
  ],
};

// Each table of the documents is there and visible, with a row of published and a row of measured figures for each of
// its rows; each figure is there, as a plot or with the reason.
async function missingTables(page) {
  const problems = [];
  const found = await page.locator("[data-table]").evaluateAll((elements) => elements.map((element) => {
    const rows = [...element.querySelectorAll("tr")].filter((row) => row.getBoundingClientRect().height > 5);
    const heads = rows.map((row) => row.querySelector("th[scope=row]")?.textContent ?? "");
    const count = (end) => heads.filter((head) => head.endsWith(end)).length;
    return [element.dataset.table, count(", published"), count(", here")];
  }));
  const wanted = documents.tables.map(([name, rows]) => [name, rows, rows]);
  if (found.join(" ") !== wanted.join(" ")) problems.push(`tables are ${found.join(" ")} instead of ${wanted.join(" ")}`);
  const charts = await page.locator("[data-chart]").evaluateAll((elements) => elements.map((element) => [
    element.dataset.chart,
    element.getBoundingClientRect().height > 40 && element.querySelector("svg.plot, .note, p") !== null,
  ]));
  const names = charts.map(([name]) => name);
  if (names.join() !== documents.charts.join()) problems.push(`figures are ${names.join()} instead of ${documents.charts.join()}`);
  for (const [name] of charts.filter(([, isVisible]) => !isVisible)) problems.push(`figure ${name} is not visible`);
  return problems;
}

for (const file of files) {
  const name = basename(file, ".html");
  for (const [screen, viewport] of Object.entries({ phone: { width: 360, height: 740 }, desktop: { width: 1280, height: 900 } })) {
    for (const colorScheme of ["light", "dark"]) {
      const { context, page, errors } = await open(file, { viewport, colorScheme });
      await page.screenshot({ path: join(folder, `${name}-${screen}-${colorScheme}.png`), fullPage: true });
      const problems = await page.evaluate(faults);
      // By the protocol of the developer tools, past the policy of the page.
      const session = await context.newCDPSession(page);
      await session.send("Runtime.evaluate", { expression: axe });
      const result = await session.send("Runtime.evaluate", {
        expression: "axe.run(document, { resultTypes: ['violations'] }).then((found) => JSON.stringify(found.violations.map((one) => one.id + ' ' + one.nodes.slice(0, 3).map((node) => node.target).join(','))))",
        awaitPromise: true,
        returnByValue: true,
      });
      check(`${name} on a ${screen} in ${colorScheme}`, [...problems, ...JSON.parse(result.result.value), ...errors]);
      await context.close();
    }
  }

  const { context, page, errors } = await open(file, { javaScriptEnabled: false, viewport: { width: 1280, height: 900 } });
  const plots = await page.locator("svg.plot").count();
  if (name === "suites") {
    errors.push(...await missingTables(page));
    if (process.env.PICTURES) {
      await page.locator('[data-table="rpcx-1"]').scrollIntoViewIfNeeded();
      await page.evaluate(() => document.querySelector('[data-table="rpcx-1"]').closest(".figures").previousElementSibling.scrollIntoView());
      await page.screenshot({ path: join(process.env.PICTURES, "bench-suite.png") });
    }
  }
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  await page.pdf({ path: join(folder, `${name}.pdf`), format: "A4", printBackground: true });
  await page.setViewportSize({ width: 794, height: 1123 });
  const wide = await page.evaluate(() => [...document.querySelectorAll("figure table")]
    .filter((table) => table.offsetWidth > table.closest("figure").offsetWidth).map((table) => `${table.caption.textContent} is too wide`));
  await page.screenshot({ path: join(folder, `${name}-print.png`), fullPage: true });
  check(`${name} without scripts and in print`, plots > 0 ? [...wide, ...errors] : ["no plot", ...errors]);
  await context.close();
}

// The keyboard reaches the skip link first, then each scrollable table, with a visible focus.
{
  const { context, page, errors } = await open(files[0], { viewport: { width: 1280, height: 900 } });
  const tables = await page.locator(".scroll").count();
  await page.keyboard.press("Tab");
  const first = await page.evaluate(() => document.activeElement.className);
  const problems = first === "skip" ? [] : [`the first stop is ${first}`];
  let reached = 0;
  for (let stop = 0; stop < tables + 20; stop += 1) {
    await page.keyboard.press("Tab");
    const focus = await page.evaluate(() => ({
      isTable: document.activeElement.classList.contains("scroll"),
      isBody: document.activeElement === document.body,
      outline: getComputedStyle(document.activeElement).outlineStyle,
    }));
    if (focus.isBody) break;
    if (focus.outline === "none") problems.push(`stop ${stop} has no outline`);
    reached += focus.isTable ? 1 : 0;
  }
  if (reached !== tables) problems.push(`${reached} of ${tables} tables`);
  check("keyboard", [...problems, ...errors]);
  await context.close();
}

await browser.close();
process.exit(failed > 0 ? 1 : 0);
