//! A page with everything: one file, which loads nothing, works without scripts, on a phone and in print.

mod markup;
mod overview;
mod run;
mod suite;
mod versus;

use self::markup::Html;
use crate::figure::STYLE;
use crate::model::Document;

/// A page of one or several results, each with its name.
pub fn html(title: &str, documents: &[(String, Document)]) -> String {
    let mut page = Html::default();
    page.raw("<!doctype html>\n<html lang=en><head><meta charset=utf-8>");
    page.raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">");
    // Nothing is loaded, whatever a result contains.
    page.raw(
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">",
    );
    page.raw("<title>")
        .text(title)
        .raw("</title><style>")
        .raw(PAGE_STYLE)
        .raw(STYLE)
        .raw("</style></head><body>");
    page.raw("<a class=skip href=\"#main\">Skip to the results</a><header><h1>").text(title).raw("</h1>");
    contents(&mut page, documents);
    page.raw("</header><main id=main>");
    overview::write(&mut page, documents);
    for (number, (name, document)) in documents.iter().enumerate() {
        page.raw("<section aria-labelledby=r")
            .text(number)
            .raw("><h2 id=r")
            .text(number)
            .raw(">")
            .text(name)
            .raw("</h2>");
        match document {
            Document::Run(run) => run::write(&mut page, run),
            Document::Versus(versus) => versus::write(&mut page, versus),
            Document::Suite(suite) => suite::write(&mut page, suite),
        }
        page.raw("</section>");
    }
    page.raw("</main></body></html>\n");
    page.into_string()
}

fn contents(page: &mut Html, documents: &[(String, Document)]) {
    if documents.len() < 2 {
        return;
    }
    page.raw("<nav aria-label=Results><ul>");
    for (number, (name, _)) in documents.iter().enumerate() {
        page.raw("<li><a href=\"#r").text(number).raw("\">").text(name).raw("</a>");
    }
    page.raw("</ul></nav>");
}

const PAGE_STYLE: &str = include_str!("page.css");
