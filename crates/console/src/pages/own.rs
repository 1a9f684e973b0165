//! Pages that the program adds.

use super::layout::frame_page;
use crate::html::Html;
use crate::own_page::{OwnPage, PageContent};
use crate::reply::Reply;
use crate::request::{PageFormat, PageRequest};
use crate::text::Text;

/// Answers with a page of the program.
pub(crate) fn answer(page: &OwnPage, request: &PageRequest) -> Reply {
    let content = (page.content)();
    match request.format {
        PageFormat::Text => Reply::text(text(&content)),
        PageFormat::Json => Reply::json(page.name, &content.data),
        PageFormat::Html => Reply::html(200, frame_page(request, page.name, page.title, html(&content))),
        PageFormat::Part => Reply::html(200, html(&content)),
    }
}

fn text(content: &PageContent) -> Text {
    let mut text = Text::default();
    for table in &content.tables {
        text.raw("[").value(&table.caption).raw("]\n");
        for row in &table.rows {
            for (n, (column, value)) in table.columns.iter().zip(row).enumerate() {
                text.raw(if n > 0 { " " } else { "" }).raw(column).raw("=").value(value);
            }
            text.raw("\n");
        }
        text.raw("\n");
    }
    text
}

fn html(content: &PageContent) -> Html {
    let mut html = Html::default();
    for table in &content.tables {
        html.table(&table.caption, &table.columns);
        for row in &table.rows {
            html.raw("<tr>");
            for value in row {
                html.cell(value);
            }
            html.raw("</tr>");
        }
        html.end_table();
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_text_and_as_html() {
        let content = PageContent::new("[1]").table("Routes", ["route", "to"], [["<a>".into(), "b".into()]]);
        assert_eq!(text(&content).into_string(), "[Routes]\nroute=<a> to=b\n\n");
        let html = html(&content).into_string();
        assert!(html.contains("<th scope=col>route</th>") && html.contains("<td>&lt;a&gt;</td>"), "{html}");
    }
}
